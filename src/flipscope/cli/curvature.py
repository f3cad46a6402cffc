"""flipscope curvature: second derivatives of the loss of a model."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from flipscope.basics.checks import check_confidence, check_count
from flipscope.basics.errors import InputError
from flipscope.cli.common import print_json, sampling
from flipscope.cli.model_options import (
    all_or_drawn_strings_options,
    function_options,
    model_argument,
    parameters_option,
)
from flipscope.cli.opening import Work, open_model

# The choices of --what, and the measurements of `flipscope.curvature` that each needs.
PARTS = {
    "trace": ("trace", "gauss_newton"),
    "eigenvalues": ("eigenvalues",),
    "density": ("density",),
    "fisher-rao": ("fisher_rao",),
    "all": ("trace", "gauss_newton", "fisher_rao", "eigenvalues", "density"),
}
PASSES = 6  # approximate cost of a Hessian product, in forward passes

EXAMPLES = """
  flipscope curvature model.safetensors --exhaustive
  flipscope curvature model.safetensors --what trace --probes 300
  flipscope curvature model.safetensors --function "parity(12)" --what eigenvalues --eigenvalues 10 --json
  flipscope curvature model.safetensors --what trace --parameters "blocks.*"

Without a function, from --function or from the file, the targets are the model's own outputs: the loss is 0, and the
trace is 2 mean |grad f|^2.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    model_argument(parser)
    function_options(parser, "the function that gives the labels of the loss")
    all_or_drawn_strings_options(parser)
    parser.add_argument("--what", choices=tuple(PARTS), default="all", help="what to measure (default all)")
    parser.add_argument("--probes", type=int, default=99, metavar="K", help="Hessian products for a trace (default 99)")
    parser.add_argument(
        "--method",
        choices=("auto", "exact", "hutchinson", "hutch++"),
        default="auto",
        help="method for the traces (default auto: exact up to 500 products)",
    )
    parser.add_argument("--eigenvalues", type=int, default=3, metavar="K", help="eigenvalues at either end (default 3)")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-3,
        metavar="T",
        help="error of eigenvalues, as a share of the norm of H (default 0.001)",
    )
    parameters_option(parser, "parameters to differentiate by")
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
    products = sum(
        {"eigenvalues": 2 * arguments.eigenvalues, "density": 1, "fisher_rao": 1}.get(part, probes)
        for part in PARTS[arguments.what]
    )
    work = Work(PASSES * products, f"{products:,} products", ("--probes", "--eigenvalues", "--strings"))
    opened = open_model(arguments, work=work, function="optional", double=arguments.float64)
    if opened.function is None and arguments.loss == "bce":
        raise InputError("--loss bce needs labels: give --function, or leave it out for the model's own outputs")
    strings = opened.strings(arguments)
    targets = opened.targets(strings)

    from flipscope.probes.curvature import curvature

    model = opened.one_number()
    if targets is None:
        targets = model.values(strings).astype(np.float64)
    found = curvature(
        model,
        opened.loss,
        (strings, targets),
        what=PARTS[arguments.what],  # type: ignore[arg-type]
        parameters=arguments.parameters,
        method=arguments.method,
        probes=probes,
        eigenvalues=arguments.eigenvalues,
        tolerance=arguments.tolerance,
        confidence=arguments.confidence,
        seed=arguments.seed,
    )
    document: dict[str, Any] = {
        "length": opened.length,
        "exhaustive": arguments.exhaustive,
        "function": opened.function_name,
        **found.as_json(),
        "loss": {"name": opened.loss, "value": found.loss},
        **opened.as_json(),
    }
    if arguments.json:
        print_json(document)
        return 0
    from flipscope.report.curvature import curvature_page
    from flipscope.report.terminal import show

    show(curvature_page(arguments.model, document, found, opened.notes))
    return 0
