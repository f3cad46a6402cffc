"""flipscope sharpness: how much the outputs and the loss of a model change under random noise on its weights."""

from __future__ import annotations

import argparse
from typing import Any

from flipscope.basics.checks import check_confidence, check_count, check_positive
from flipscope.cli.common import print_json, sampling
from flipscope.cli.model_options import (
    all_or_drawn_strings_options,
    function_options,
    model_argument,
    parameters_option,
)
from flipscope.cli.opening import Work, open_model
from flipscope.cli.progress import progress

STD = 0.02  # as in the hardness paper

EXAMPLES = """
  flipscope sharpness model.safetensors
  flipscope sharpness model.safetensors --function "parity(12)" --strings 2000 --draws 200
  flipscope sharpness model.safetensors --rho 5 --adaptive --json
  flipscope sharpness model.safetensors --parameters "blocks.*" --parameters "head.*"
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    model_argument(parser)
    function_options(parser, "measure the increase of the loss on this function too")
    all_or_drawn_strings_options(parser)
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--std",
        type=float,
        metavar="S",
        help=f"standard deviation of Gaussian noise on every parameter (default {STD})",
    )
    size.add_argument("--rho", type=float, metavar="R", help="length of a random direction instead")
    parser.add_argument("--draws", type=int, default=100, metavar="K", help="number of perturbations (default 100)")
    parser.add_argument("--adaptive", action="store_true", help="noise in proportion to each parameter's size")
    parameters_option(parser, "parameters that move")
    parser.add_argument(
        "--interval",
        choices=("student", "bootstrap"),
        default="student",
        help="kind of interval over the draws (default student)",
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
    work = Work(draws + 1, f"{draws:,} draws", ("--draws", "--strings"), distinct=True)
    opened = open_model(arguments, work=work, function="optional")
    strings = opened.strings(arguments)

    from flipscope.adapters.subject import as_subject
    from flipscope.probes.sharpness import Measure, sharpnesses

    gaussian = arguments.rho is None
    model = opened.one_number() if opened.function is not None else opened.model
    if opened.labels == "bits" and opened.loss == "mse":
        model = as_subject(model).replaced(threshold=0.5)
    measures: list[Measure] = (
        ["prediction", "ShOp", "ShPred"] if opened.function is None else ["loss", "prediction", "ShOp", "ShPred"]
    )
    with progress("draws") as report:
        found = sharpnesses(
            model,
            strings,
            opened.targets(strings),
            measures=measures,
            rho=arguments.rho,
            std=(STD if arguments.std is None else arguments.std) if gaussian else None,
            adaptive=arguments.adaptive,
            parameters=arguments.parameters,
            draws=draws,
            seed=arguments.seed,
            loss=opened.loss,
            confidence=arguments.confidence,
            interval=arguments.interval,
            progress=report,
        )
    first = found["prediction"]
    document: dict[str, Any] = {
        "length": opened.length,
        "strings": first.strings,
        "exhaustive": arguments.exhaustive,
        "function": opened.function_name,
        "loss": None if opened.function is None else {"name": opened.loss, "value": first.loss},
        "noise": first.noise,
        "adaptive": first.adaptive,
        "rho": first.rho,
        "std": first.std,
        "parameters": first.parameters,
        "sharpness": {measure: each.value.as_json() for measure, each in found.items()},
        **opened.as_json(),
    }
    if arguments.json:
        print_json(document)
        return 0
    from flipscope.report import models as pages
    from flipscope.report.terminal import show

    show(pages.sharpness_page(arguments.model, document, opened.notes))
    return 0
