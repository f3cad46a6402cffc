"""flipscope sensitivity: the sensitivity profile of a saved transformer."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from flipscope.basics.checks import check_confidence
from flipscope.cli.common import print_json, sampling
from flipscope.cli.model_files import MAX_STRINGS, engine, how, loaded, model_file
from flipscope.cli.progress import progress

# PyTorch and the compiled loops are loaded after the sizes have been checked: what is too large is refused at once.
if TYPE_CHECKING:
    from flipscope.probes.sensitivity import Options

EXAMPLES = """
  flipscope sensitivity model.safetensors --length 40 --strings 1000
  flipscope sensitivity model.safetensors --precision 0.1 --json
  flipscope sensitivity model.safetensors --length 16 --exhaustive
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    model_file(parser)
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument(
        "--strings", type=int, metavar="M", help="random strings, each with all its flips (default 200)"
    )
    amount.add_argument(
        "--precision", type=float, metavar="P", help="as many as the average sensitivity needs to be known to +-P"
    )
    amount.add_argument("--exhaustive", action="store_true", help="all strings, exactly (at most 20 bits)")
    parser.add_argument(
        "--threshold", type=float, default=0.0, metavar="T", help="the answer is 1 where logit > T (default 0)"
    )
    engine(parser)
    sampling(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure the sensitivity spectrum of a model."""
    if arguments.precision is not None:
        check_confidence(arguments.confidence)
    model, length = loaded(arguments)

    from flipscope.probes.sensitivity import sensitivity_profile

    with progress("flips") as report:
        options: Options = {**how(arguments), "threshold": arguments.threshold, "progress": report}
        found = sensitivity_profile(
            model,
            length,
            strings=arguments.strings,
            precision_target=arguments.precision,
            max_strings=MAX_STRINGS,
            exhaustive=arguments.exhaustive,
            seed=arguments.seed,
            confidence=arguments.confidence,
            **options,
        )
    if arguments.json:
        print_json(found.as_json())
        return 0
    from flipscope.report import models as pages
    from flipscope.report.terminal import show

    show(pages.sensitivity_page(found, arguments.model, arguments.confidence))
    return 0
