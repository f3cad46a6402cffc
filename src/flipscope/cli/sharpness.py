"""flipscope sharpness: how far the outputs of a saved transformer go when its weights move at random."""

from __future__ import annotations

import argparse
from typing import Any

from flipscope.basics.checks import check_confidence, check_count, check_positive
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
from flipscope.cli.progress import progress

STD = 0.02  # of the hardness paper

EXAMPLES = """
  flipscope sharpness model.safetensors --std 0.02
  flipscope sharpness model.safetensors --function "parity(12)" --strings 2000 --draws 200
  flipscope sharpness model.safetensors --rho 5 --adaptive --json
  flipscope sharpness model.safetensors --parameters "blocks.*" --parameters "head.*"
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    model_file(parser)
    targets_options(parser, "measure the increase of the loss on this function too")
    strings_options(parser)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--std", type=float, metavar="S", help=f"Gaussian noise on every parameter (default {STD})")
    size.add_argument("--rho", type=float, metavar="R", help="uniform direction of this length instead")
    parser.add_argument("--draws", type=int, default=100, metavar="K", help="perturbations (default 100)")
    parser.add_argument("--adaptive", action="store_true", help="noise in proportion to each parameter's size")
    parser.add_argument(
        "--parameters",
        action="append",
        metavar="PATTERN",
        help="parameters that move, as in a shell; repeatable (default: all but learned positions)",
    )
    parser.add_argument(
        "--interval", choices=("student", "bootstrap"), default="student", help="over the draws (default student)"
    )
    sampling(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure the sharpness of a model."""
    draws = check_count("draws", arguments.draws, 2)
    check_confidence(arguments.confidence)
    check_count("seed", arguments.seed, 0)
    for name in ("std", "rho"):
        value = getattr(arguments, name)
        if value is not None:
            check_positive(name, value)
    f = function_of(arguments)
    asked = Asked(draws + 1, f"{draws:,} draws", ("--draws", "--strings"), distinct=True)
    model, length = loaded(arguments, asked=asked, bits=None if f is None else f.n)
    strings, targets = model_strings(arguments, length, f)

    from flipscope.probes.sharpness import Measure, sharpnesses

    gaussian = arguments.rho is None
    measures: list[Measure] = (
        ["prediction", "ShOp", "ShPred"] if f is None else ["loss", "prediction", "ShOp", "ShPred"]
    )
    with progress("draws") as report:
        found = sharpnesses(
            model,
            strings,
            targets,
            measures=measures,
            rho=arguments.rho,
            std=(STD if arguments.std is None else arguments.std) if gaussian else None,
            adaptive=arguments.adaptive,
            parameters=arguments.parameters,
            draws=draws,
            seed=arguments.seed,
            loss=arguments.loss,
            threshold=0.5 if arguments.labels == "bits" and arguments.loss == "mse" else 0.0,
            confidence=arguments.confidence,
            interval=arguments.interval,
            forward=None if f is None else answering(model),
            progress=report,
        )
    first = found["prediction"]
    document: dict[str, Any] = {
        "length": length,
        "strings": first.strings,
        "exhaustive": arguments.exhaustive,
        "function": arguments.function,
        "loss": None if f is None else {"name": arguments.loss, "value": first.loss},
        "noise": first.noise,
        "adaptive": first.adaptive,
        "rho": first.rho,
        "std": first.std,
        "parameters": first.parameters,
        "sharpness": {measure: each.value.as_json() for measure, each in found.items()},
    }
    if arguments.json:
        print_json(document)
        return 0
    from flipscope.report import models as pages
    from flipscope.report.terminal import show

    show(pages.sharpness_page(arguments.model, document))
    return 0
