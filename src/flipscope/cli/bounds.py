"""flipscope bounds: every constant and bound of the geometry and the hardness paper for a transformer."""

from __future__ import annotations

import argparse

from flipscope.cli.common import print_json
from flipscope.cli.model_options import drawn_strings_options, model_argument
from flipscope.cli.opening import open_model, standard

EXAMPLES = """
  flipscope bounds model.safetensors
  flipscope bounds model.safetensors --length 1000 --margin 0.5 --radius 1 --json

These are bounds on the effect of flips. For bounds on the loss on new strings see flipscope bound, without an s.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    model_argument(parser)
    parser.add_argument("--margin", type=float, default=0.1, metavar="XI", help="margin of acceptance (default 0.1)")
    parser.add_argument(
        "--radius",
        type=float,
        metavar="R",
        help="half the side of the cube of parameters (default: the smallest around 0 that contains the model's)",
    )
    parser.add_argument(
        "--delta", type=float, default=0.01, metavar="P", help="probability that Thm 4.5 may fail (default 0.01)"
    )
    drawn_strings_options(parser, 20, "random strings to measure the blowup on")


def run(arguments: argparse.Namespace) -> int:
    """Evaluate every bound for this model, and say whether it is vacuous."""
    opened = open_model(arguments)
    model = standard(opened, "these bounds cover flipscope's transformers, whose blocks have residuals")

    from flipscope.bounds import geometry, hardness

    strings, settings = opened.strings(arguments), {"margin": arguments.margin, "failure": arguments.delta}
    bounds = geometry.summary(model, opened.length, strings, radius=arguments.radius, **settings)
    flips = hardness.summary(model, opened.length, strings)
    if arguments.json:
        print_json(bounds.as_json() | {"hardness": flips.as_json()} | opened.as_json())
        return 0
    from flipscope.report import models as pages
    from flipscope.report.terminal import show

    show(pages.bounds_page(arguments.model, bounds, flips, opened.notes))
    return 0
