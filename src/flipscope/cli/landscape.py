"""flipscope landscape: slices of the loss around a model."""

from __future__ import annotations

import argparse

from flipscope.basics.checks import check_count, check_positive
from flipscope.cli.common import plot_option, print_json, seed_option
from flipscope.cli.model_options import (
    all_or_drawn_strings_options,
    function_options,
    model_argument,
    parameters_option,
)
from flipscope.cli.opening import Work, open_model
from flipscope.cli.plots import check_plot, save_plot
from flipscope.cli.progress import progress

POINTS = {1: 41, 2: 21}

EXAMPLES = """
  flipscope landscape model.safetensors --plot lines.svg
  flipscope landscape model.safetensors --dimensions 2 --reach 0.5 --plot plane.png
  flipscope landscape model.safetensors --function "majority(12)" --json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    model_argument(parser)
    function_options(parser, "the function whose loss is measured")
    all_or_drawn_strings_options(parser)
    parser.add_argument(
        "--dimensions", type=int, choices=(1, 2), default=1, help="lines, or the plane of two directions (default 1)"
    )
    parser.add_argument("--directions", type=int, default=3, metavar="K", help="number of random lines (default 3)")
    parser.add_argument(
        "--points", type=int, metavar="P", help="points per axis, an odd number (default 41 on a line, 21 on a plane)"
    )
    parser.add_argument(
        "--reach", type=float, default=1.0, metavar="R", help="largest offset; 1 moves a unit by its size (default 1)"
    )
    parameters_option(parser, "parameters that move")
    seed_option(parser)
    plot_option(parser, "the slices")


def run(arguments: argparse.Namespace) -> int:
    """Compute slices of the loss and plot them."""
    points = POINTS[arguments.dimensions] if arguments.points is None else check_count("points", arguments.points, 3)
    rows = points if arguments.dimensions == 2 else check_count("directions", arguments.directions)
    check_count("seed", arguments.seed, 0)
    check_positive("reach", arguments.reach)
    check_plot(arguments.plot)
    options = ("--points", "--strings") if arguments.dimensions == 2 else ("--points", "--directions", "--strings")
    work = Work(points * rows + 1, f"{points * rows:,} points", options, distinct=True)
    opened = open_model(arguments, work=work, function="required")
    strings = opened.strings(arguments)
    targets = opened.targets(strings)
    assert targets is not None  # open_model requires a function here
    assert opened.function_name is not None

    from flipscope.probes.landscape import landscape
    from flipscope.report.landscape import landscape_page

    with progress("points") as report:
        found = landscape(
            opened.one_number(),
            strings,
            targets,
            dimensions=arguments.dimensions,
            directions=arguments.directions,
            points=points,
            reach=arguments.reach,
            parameters=arguments.parameters,
            seed=arguments.seed,
            loss=opened.loss,
            progress=report,
        )
    document = {
        "length": opened.length,
        "function": opened.function_name,
        "loss_name": opened.loss,
        **found.as_json(),
        **opened.as_json(),
    }
    if arguments.plot is not None:
        save_plot(found.plot(f"Loss around a model of {opened.function_name}", opened.loss), arguments.plot)
    if arguments.json:
        print_json(document)
        return 0
    from flipscope.report.terminal import show

    show(landscape_page(found, arguments.model, opened.function_name, opened.loss, opened.notes))
    return 0
