"""flipscope bounds: every constant and bound of the geometry and the hardness paper for a saved transformer."""

from __future__ import annotations

import argparse

from flipscope.cli.common import print_json
from flipscope.cli.model_files import drawn_strings, loaded, model_file, standard, strings_to_draw

EXAMPLES = """
  flipscope bounds model.safetensors --length 1000
  flipscope bounds model.safetensors --margin 0.5 --radius 1 --json

How well the model generalizes for all that theorems know is told by flipscope bound, without an s.
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
    strings_to_draw(parser, 20, "to measure the blowup on")


def run(arguments: argparse.Namespace) -> int:
    """Say of every bound what it is for this model, and whether it says something."""
    found, length = loaded(arguments)
    model = standard(found, "these bounds are for blocks with residuals")

    from flipscope.bounds import geometry, hardness

    strings, settings = drawn_strings(arguments, length), {"margin": arguments.margin, "failure": arguments.failure}
    bounds = geometry.summary(model, length, strings, radius=arguments.radius, **settings)
    flips = hardness.summary(model, length, strings)
    if arguments.json:
        print_json(bounds.as_json() | {"hardness": flips.as_json()})
        return 0
    from flipscope.report import models as pages
    from flipscope.report.terminal import show

    show(pages.bounds_page(arguments.model, bounds, flips))
    return 0
