"""flipscope bounds: every constant and bound of the geometry and the hardness paper for a saved transformer."""

from __future__ import annotations

import argparse

from flipscope.basics.checks import check_count
from flipscope.basics.seeds import generators, random_strings
from flipscope.cli.common import print_json
from flipscope.cli.model_files import loaded, model_file

EXAMPLES = """
  flipscope bounds model.safetensors --length 1000
  flipscope bounds model.safetensors --margin 0.5 --radius 1 --json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    model_file(parser)
    parser.add_argument("--margin", type=float, default=0.1, metavar="XI", help="of acceptance (default 0.1)")
    parser.add_argument(
        "--radius",
        type=float,
        metavar="R",
        help="of the cube that parameters are in (default: the smallest around 0 that holds the model's)",
    )
    parser.add_argument(
        "--failure", type=float, default=0.01, metavar="P", help="probability that Thm 4.5 may fail (default 0.01)"
    )
    parser.add_argument("--strings", type=int, default=20, metavar="M", help="to measure the blowup on (default 20)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the strings (default 0)")


def run(arguments: argparse.Namespace) -> int:
    """Say of every bound what it is for this model, and whether it says something."""
    model, length = loaded(arguments)

    from flipscope.bounds import hardness
    from flipscope.bounds.geometry.summary import summary

    (stream,) = generators(arguments.seed, 1)
    strings = random_strings(stream, check_count("strings", arguments.strings), length)
    found = summary(model, length, strings, margin=arguments.margin, radius=arguments.radius, failure=arguments.failure)
    flips = hardness.summary(model, length, strings)
    if arguments.json:
        print_json(found.as_json() | {"hardness": flips.as_json()})
        return 0
    from flipscope.report import models as pages
    from flipscope.report.terminal import show

    show(pages.bounds_page(arguments.model, found, flips))
    return 0
