"""flipscope sensitivity: the sensitivity profile of a model."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from flipscope.basics.checks import check_confidence
from flipscope.basics.errors import InputError
from flipscope.cli.common import print_json, sampling
from flipscope.cli.model_options import engine_keywords, engine_options, model_argument
from flipscope.cli.opening import MAX_STRINGS, Opened, open_model
from flipscope.cli.progress import progress
from flipscope.cube.functions import BooleanFunction

# PyTorch and the compiled loops are loaded after the sizes have been checked, so that errors appear at once.
if TYPE_CHECKING:
    from flipscope.probes.sensitivity import Options

EXAMPLES = """
  flipscope sensitivity model.safetensors
  flipscope sensitivity model.safetensors --strings 1000 --length 40
  flipscope sensitivity model.safetensors --precision 0.1 --json
  flipscope sensitivity model.safetensors --length 16 --exhaustive
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    model_argument(parser)
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument(
        "--strings", type=int, metavar="M", help="random strings, each with all its flips (default 200)"
    )
    amount.add_argument(
        "--precision", type=float, metavar="P", help="draw strings until the average sensitivity is known to +-P"
    )
    amount.add_argument("--exhaustive", action="store_true", help="all strings, exactly (at most 20 bits)")
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="T",
        help="the answer is 1 where the output is above T (default: the file's, else 0)",
    )
    engine_options(parser)
    sampling(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure the sensitivity profile of a model."""
    if arguments.precision is not None:
        check_confidence(arguments.confidence)
    opened = open_model(arguments, function="shown")

    from flipscope.probes.sensitivity import sensitivity_profile

    with progress("flips") as report:
        options: Options = {**engine_keywords(arguments), "progress": report}
        found = sensitivity_profile(
            opened.model,
            opened.length,
            strings=arguments.strings,
            precision_target=arguments.precision,
            max_strings=MAX_STRINGS,
            exhaustive=arguments.exhaustive,
            seed=arguments.seed,
            confidence=arguments.confidence,
            **options,
        )
    average = _function_average(opened)
    if arguments.json:
        own: dict[str, Any] = {"function": opened.function_name, "function_average_sensitivity": average}
        print_json(found.as_json() | own | opened.as_json())
        return 0
    from flipscope.report import models as pages
    from flipscope.report.terminal import show

    compared = None if average is None else (str(opened.function_name), average)
    show(pages.sensitivity_page(found, arguments.model, arguments.confidence, compared, opened.notes))
    return 0


def _function_average(opened: Opened) -> float | None:
    """The average sensitivity of the model's training target if it is quick to compute, else None."""
    if not isinstance(opened.function, BooleanFunction):
        return None
    from flipscope.cube.sensitivity import average_sensitivity

    try:
        return float(average_sensitivity(opened.function))
    except InputError:
        return None
