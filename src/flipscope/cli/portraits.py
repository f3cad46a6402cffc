"""The options, portraits and pictures that function and compare share."""

from __future__ import annotations

import argparse
import sys

from flipscope.basics.checks import check_confidence, check_count
from flipscope.basics.limits import check_memory
from flipscope.cli.common import plot_option, sampling
from flipscope.cli.hours import anyway, check_hours, querying_seconds
from flipscope.cli.plots import check_plot, save_plot
from flipscope.cli.progress import progress
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.portrait import RHOS, Portrait, describe


def portrait_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of both commands."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--exact", action="store_true", help="fail instead of falling back to sampling")
    how.add_argument("--strings", type=int, metavar="M", help="estimate from M random strings and all their flips")
    anyway(parser)
    sampling(parser)
    parser.add_argument(
        "--correlation",
        type=float,
        action="append",
        metavar="R",
        help="correlation rho of the noise stability; repeatable",
    )
    plot_option(parser, "the sensitivity profile and spectrum")


def check_options(arguments: argparse.Namespace) -> None:
    """Reject unusable options before any work, even if an exact answer would not need them."""
    check_confidence(arguments.confidence)
    check_count("seed", arguments.seed, 0)
    if arguments.strings is not None:
        strings = check_count("strings", arguments.strings)
        check_memory(8 * strings, f"{strings:,} strings", "give fewer")  # each string leaves one number
    check_plot(arguments.plot)


def portrait(f: BooleanFunction, name: str, arguments: argparse.Namespace) -> Portrait:
    """All numbers of a function, exact if possible."""
    if arguments.strings is not None:
        what = f"{arguments.strings:,} strings of {f.n:,} bits with all their flips"
        check_hours(arguments, querying_seconds(f, arguments.strings * (f.n + 1)), what, ("--strings",))
    with progress(name[:40]) as report:
        return describe(
            f,
            strings=arguments.strings,
            seed=arguments.seed,
            confidence=arguments.confidence,
            rhos=tuple(arguments.correlation) if arguments.correlation else RHOS,
            name=name,
            exact=arguments.exact,
            notice=lambda sentence: print(sentence, file=sys.stderr),
            progress=report,
        )


def draw(arguments: argparse.Namespace, portraits: list[Portrait]) -> None:
    """Draw the picture of --plot."""
    if arguments.plot is not None:
        from flipscope.report.figures import function_figure

        save_plot(function_figure(portraits), arguments.plot)
