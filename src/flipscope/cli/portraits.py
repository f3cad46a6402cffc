"""What function and compare share: options, portraits, pictures."""

from __future__ import annotations

import argparse
import sys

from flipscope.basics.checks import check_confidence, check_count
from flipscope.basics.limits import check_memory
from flipscope.cli.common import sampling
from flipscope.cli.hours import anyway, check_hours, querying_seconds
from flipscope.cli.progress import progress
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.portrait import RHOS, Portrait, describe


def portrait_options(parser: argparse.ArgumentParser) -> None:
    """What both commands take."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--exact", action="store_true", help="exact or nothing: never fall back to sampling")
    how.add_argument("--samples", type=int, metavar="M", help="estimate from M random strings and all their flips")
    anyway(parser)
    sampling(parser)
    parser.add_argument(
        "--rho", type=float, action="append", metavar="R", help="correlation for noise stability; repeatable"
    )
    parser.add_argument("--plot", metavar="FILE", help="draw the function to FILE (.svg, .pdf or .png)")


def check_options(arguments: argparse.Namespace) -> None:
    """Refuse what could not be used, also where an exact answer happens not to need it, before any work."""
    check_confidence(arguments.confidence)
    check_count("seed", arguments.seed, 0)
    if arguments.samples is not None:
        samples = check_count("samples", arguments.samples)
        check_memory(8 * samples, f"{samples:,} samples", "give fewer")  # each leaves a number behind
    if arguments.plot is not None:
        from flipscope.report.drawing import checked_target

        checked_target(arguments.plot)


def portrait(f: BooleanFunction, name: str, arguments: argparse.Namespace) -> Portrait:
    """All numbers of a function, exact if they can be."""
    if arguments.samples is not None:
        what = f"{arguments.samples:,} strings of {f.n:,} bits with all their flips"
        check_hours(arguments, querying_seconds(f, arguments.samples * (f.n + 1)), what, ("--samples",))
    with progress(name[:40]) as report:
        return describe(
            f,
            strings=arguments.samples,
            seed=arguments.seed,
            confidence=arguments.confidence,
            rhos=tuple(arguments.rho) if arguments.rho else RHOS,
            name=name,
            exact=arguments.exact,
            notice=lambda sentence: print(sentence, file=sys.stderr),
            progress=report,
        )


def draw(arguments: argparse.Namespace, portraits: list[Portrait]) -> None:
    """The picture that was asked for."""
    if arguments.plot is not None:
        from flipscope.report.drawing import save_figure
        from flipscope.report.figures import function_figure

        print(f"wrote {save_figure(function_figure(portraits), arguments.plot)}", file=sys.stderr)
