"""flipscope curvature: second derivatives of the loss of a saved transformer."""

from __future__ import annotations

import argparse
from typing import Any

from flipscope.basics.checks import check_confidence, check_count
from flipscope.basics.errors import InputError
from flipscope.cli.common import print_json, sampling
from flipscope.cli.model_files import (
    Asked,
    answering,
    function_of,
    loaded,
    model_file,
    model_strings,
    strings_options,
    targets_options,
)

# What can be asked for, and the measurements of `flipscope.curvature` that it takes.
PARTS = {
    "trace": ("trace", "gauss_newton"),
    "eigenvalues": ("eigenvalues",),
    "density": ("density",),
    "fisher-rao": ("fisher_rao",),
    "all": ("trace", "gauss_newton", "fisher_rao", "eigenvalues", "density"),
}
PASSES = 6  # forwards that a product costs, about

EXAMPLES = """
  flipscope curvature model.safetensors --function "majority(12)" --exhaustive
  flipscope curvature model.safetensors --function "parity(12)" --what trace --probes 300
  flipscope curvature model.safetensors --function "parity(12)" --what eigenvalues --eigenvalues 10 --json
  flipscope curvature model.safetensors --what trace --parameters "blocks.*"

Without --function the targets are the model's own outputs: the loss is 0 there, and the trace is 2 mean |grad f|^2.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    model_file(parser)
    targets_options(parser, "whose labels the loss is on (default: the model's own outputs)")
    strings_options(parser)
    parser.add_argument("--what", choices=tuple(PARTS), default="all", help="what to measure (default all)")
    parser.add_argument("--probes", type=int, default=99, metavar="K", help="products for a trace (default 99)")
    parser.add_argument(
        "--method",
        choices=("auto", "exact", "hutchinson", "hutch++"),
        default="auto",
        help="of the traces (default auto: exact up to 500 products)",
    )
    parser.add_argument("--eigenvalues", type=int, default=3, metavar="K", help="at either end (default 3)")
    parser.add_argument(
        "--tolerance", type=float, default=1e-3, metavar="T", help="of eigenvalues, of the norm of H (default 0.001)"
    )
    parser.add_argument(
        "--parameters",
        action="append",
        metavar="PATTERN",
        help="parameters to differentiate by, as in a shell; repeatable (default: all but learned positions)",
    )
    parser.add_argument("--float64", action="store_true", help="differentiate in float64")
    sampling(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure the curvature of a model's loss."""
    probes = check_count("probes", arguments.probes, 3)
    check_count("eigenvalues", arguments.eigenvalues)
    check_confidence(arguments.confidence)
    check_count("seed", arguments.seed, 0)
    if not 0 < arguments.tolerance < 1:
        raise InputError(f"tolerance={arguments.tolerance:g} must lie between 0 and 1")
    f = function_of(arguments)
    if f is None and arguments.loss != "mse":
        raise InputError(f"--loss {arguments.loss} needs the labels of a function: give --function, or leave it out")
    products = sum(
        {"eigenvalues": 2 * arguments.eigenvalues, "density": 1, "fisher_rao": 1}.get(part, probes)
        for part in PARTS[arguments.what]
    )
    asked = Asked(PASSES * products, f"{products:,} products", ("--probes", "--eigenvalues", "--strings"))
    model, length = loaded(arguments, asked=asked, bits=None if f is None else f.n)
    strings, targets = model_strings(arguments, length, f)

    import torch

    from flipscope.probes.curvature import curvature

    if arguments.float64:
        model = model.double()
    forward = answering(model)
    if targets is None:
        with torch.no_grad():
            targets = (forward or model)(torch.from_numpy(strings)).double().numpy()
    found = curvature(
        model,
        arguments.loss,
        (strings, targets),
        what=PARTS[arguments.what],  # type: ignore[arg-type]
        parameters=arguments.parameters,
        method=arguments.method,
        probes=probes,
        eigenvalues=arguments.eigenvalues,
        tolerance=arguments.tolerance,
        confidence=arguments.confidence,
        seed=arguments.seed,
        forward=forward,
    )
    document: dict[str, Any] = {
        "length": length,
        "exhaustive": arguments.exhaustive,
        "function": arguments.function,
        **found.as_json(),
        "loss": {"name": arguments.loss, "value": found.loss},
    }
    if arguments.json:
        print_json(document)
        return 0
    from flipscope.report.curvature import curvature_page
    from flipscope.report.terminal import show

    show(curvature_page(arguments.model, document, found))
    return 0
