"""flipscope bound: what a theorem on generalization promises of a saved model, and whether that says something."""

from __future__ import annotations

import argparse

from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.cli.common import print_json
from flipscope.cli.model_files import loaded, model_file

EXAMPLES = """
  flipscope bound covering model.safetensors --samples 1000
  flipscope bound covering model.safetensors --samples 100000 --length 64 --delta 0.01 --json

Every bound is on the gap between the loss on new strings and on the training strings. What the weights say of
sensitivity and of single flips is told by flipscope bounds, with an s.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    parser.add_argument(
        "theory", choices=("covering",), metavar="THEORY", help="covering: covering numbers, from norms of the weights"
    )
    model_file(parser)
    parser.add_argument(
        "--samples", type=int, default=1000, metavar="M", help="strings it was trained on (default 1000)"
    )
    parser.add_argument(
        "--delta", type=float, default=0.05, metavar="P", help="probability that the bound may fail (default 0.05)"
    )
    parser.set_defaults(strings=None)  # none are drawn


def run(arguments: argparse.Namespace) -> int:
    """Say what the gap cannot exceed, or that the number is a score and no bound, and where it is vacuous."""
    samples = check_count("samples", arguments.samples)
    if not 0 < arguments.delta < 1:
        raise InputError(f"delta={arguments.delta:g} must lie strictly between 0 and 1, such as 0.05")
    model, length = loaded(arguments)

    from flipscope.bounds import covering

    found = covering.summary(model, length, samples, delta=arguments.delta)
    if arguments.json:
        print_json(found.as_json())
        return 0
    from flipscope.report import models as pages
    from flipscope.report.terminal import show

    show(pages.covering_page(arguments.model, found))
    return 0
