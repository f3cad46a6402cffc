"""flipscope compare: two functions side by side, and on how many strings they differ."""

from __future__ import annotations

import argparse
from typing import Any

from flipscope.cli.common import EXPRESSION_HELP, length_option, print_json
from flipscope.cli.portraits import check_options, draw, portrait, portrait_options
from flipscope.cube.compose import NotExact
from flipscope.cube.expression import parse
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.portrait import DEFAULT_CELLS

EXAMPLES = """
  flipscope compare "majority(9)" "maj(x1..x7)"
  flipscope compare "x1 -> x2" "~x1 | x2"
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("first", metavar="EXPR", help=EXPRESSION_HELP)
    parser.add_argument("second", metavar="EXPR", help="the function to compare it with")
    length_option(parser)
    portrait_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Describe two functions side by side, with their distance."""
    first, second = (parse(text, arguments.length) for text in (arguments.first, arguments.second))
    check_options(arguments)
    size = max(first.n, second.n)
    first, second = first.extend(size), second.extend(size)
    portraits = [portrait(f, name, arguments) for f, name in ((first, arguments.first), (second, arguments.second))]
    distance, sentence = _distance(first ^ second, arguments)
    draw(arguments, portraits)
    if arguments.json:
        print_json({"first": portraits[0].as_json(), "second": portraits[1].as_json(), **distance})
    else:
        from flipscope.report import terminal

        terminal.show(terminal.compare_page(portraits[0], portraits[1], sentence))
    return 0


def _distance(difference: BooleanFunction, arguments: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """The number of strings on which the two differ, exact if possible: for JSON, and as a sentence."""
    from flipscope.cube.estimate import fourier_coefficient
    from flipscope.cube.sensitivity import count_ones
    from flipscope.report.terminal import number

    if arguments.strings is None:
        try:
            count = count_ones(difference)
        except NotExact:
            if arguments.exact:
                raise
        else:
            share = count / (1 << difference.n)
            sentence = f"They differ on {number(count)} strings, a share of {share:.6g} (exact)."
            same = "The two are the same function."
            return {"disagreement": share, "differing_strings": count}, sentence if count else same
    strings = min(100_000, DEFAULT_CELLS // difference.n) if arguments.strings is None else arguments.strings
    # The coefficient of the empty set is 1 - 2 P(different).
    found = fourier_coefficient(
        difference,
        difference.n,
        (),
        samples=strings,
        seed=arguments.seed,
        confidence=arguments.confidence,
    ).scaled(-0.5, 0.5)
    sentence = (
        f"They differ on a share of {number(found)} of all strings, estimated from {strings:,} at confidence "
        f"{arguments.confidence:g}."
    )
    return {"disagreement": found.as_json(), "differing_strings": found.as_count_json(difference.n)}, sentence
