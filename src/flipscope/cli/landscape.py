"""flipscope landscape: slices of the loss around a saved transformer."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from flipscope.basics.checks import check_count, check_positive
from flipscope.basics.errors import InputError
from flipscope.basics.files import check_target, write_bytes
from flipscope.cli.common import print_json
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

POINTS = {1: 41, 2: 21}

EXAMPLES = """
  flipscope landscape model.safetensors --function "parity(12)"
  flipscope landscape model.safetensors --function "parity(12)" -o lines.svg
  flipscope landscape model.safetensors --function "parity(12)" --dimensions 2 --reach 0.5 -o plane.png
  flipscope landscape model.safetensors --function "majority(12)" -o losses.json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    model_file(parser)
    targets_options(parser, "the function whose loss is measured", required=True)
    strings_options(parser)
    parser.add_argument(
        "--dimensions", type=int, choices=(1, 2), default=1, help="lines, or the plane of two directions (default 1)"
    )
    parser.add_argument("--directions", type=int, default=3, metavar="K", help="random lines (default 3)")
    parser.add_argument("--points", type=int, metavar="P", help="per axis, odd (default 41 on a line, 21 on a plane)")
    parser.add_argument(
        "--reach", type=float, default=1.0, metavar="R", help="largest offset; 1 moves a unit by its size (default 1)"
    )
    parser.add_argument("--parameters", action="append", metavar="PATTERN", help="that move, as in a shell; repeatable")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of strings and directions (default 0)")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the picture (.svg, .png, .pdf) or numbers (.json)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure and draw."""
    points = POINTS[arguments.dimensions] if arguments.points is None else check_count("points", arguments.points, 3)
    rows = points if arguments.dimensions == 2 else check_count("directions", arguments.directions)
    check_count("seed", arguments.seed, 0)
    check_positive("reach", arguments.reach)
    target = _target(arguments.output)
    f = function_of(arguments)
    options = ("--points", "--strings") if arguments.dimensions == 2 else ("--points", "--directions", "--strings")
    asked = Asked(points * rows + 1, f"{points * rows:,} points", options, distinct=True)
    model, length = loaded(arguments, asked=asked, bits=None if f is None else f.n)
    strings, targets = model_strings(arguments, length, f)
    assert targets is not None

    from flipscope.probes.landscape import landscape
    from flipscope.report.landscape import landscape_figure, landscape_page

    with progress("points") as report:
        found = landscape(
            model,
            strings,
            targets,
            dimensions=arguments.dimensions,
            directions=arguments.directions,
            points=points,
            reach=arguments.reach,
            parameters=arguments.parameters,
            seed=arguments.seed,
            loss=arguments.loss,
            forward=answering(model),
            progress=report,
        )
    document = {"length": length, "function": arguments.function, "loss_name": arguments.loss, **found.as_json()}
    if target is not None:
        if target.suffix.lower() == ".json":
            write_bytes(target, json.dumps(document, allow_nan=False).encode() + b"\n", "landscape")
        else:
            from flipscope.report.drawing import save_figure

            save_figure(landscape_figure(found, arguments.function, arguments.loss), target)
        print(f"wrote {target}", file=sys.stderr)
    if arguments.json:
        print_json(document)
        return 0
    from flipscope.report.terminal import show

    show(landscape_page(found, arguments.model, arguments.function, arguments.loss))
    return 0


def _target(path: str | None) -> Path | None:
    """Where to write, known before any work to be possible."""
    if path is None:
        return None
    target = Path(path)
    if target.suffix.lower() == ".json":
        check_target(target, "landscape")
        return target
    from flipscope.report.drawing import FORMATS, checked_target

    if target.suffix.lower()[1:] not in FORMATS:
        raise InputError(f"the output's name must end in .json, .svg, .png or .pdf; {target.name!r} does not")
    return checked_target(target)
