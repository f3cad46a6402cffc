"""flipscope function: everything about one Boolean function."""

from __future__ import annotations

import argparse

from flipscope.bounds.noise_stability import portrait_noise_bounds
from flipscope.cli.common import EXPRESSION_HELP, length_option, print_json
from flipscope.cli.portraits import check_options, draw, portrait, portrait_options
from flipscope.cube.expression import parse
from flipscope.cube.portrait import RHOS

EXAMPLES = """
  flipscope function "maj(x1..x5) ^ (x6 & x7)"
  flipscope function "majority(21)" --json
  flipscope function "sparse_parity(3, n=40, seed=1)" --plot parity.svg
  flipscope function "random(100)" --strings 10000 --confidence 0.99
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("expression", metavar="EXPR", help=EXPRESSION_HELP)
    length_option(parser)
    portrait_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Describe one function."""
    f = parse(arguments.expression, arguments.length)
    check_options(arguments)
    found = portrait(f, arguments.expression, arguments)
    draw(arguments, [found])
    # The bounds hold for correlations from 0 on; the noise stability is defined for negative ones as well.
    bounds = portrait_noise_bounds(found, [rho for rho in arguments.correlation or RHOS if rho >= 0])
    if arguments.json:
        print_json(found.as_json() | {"noise_bounds": {str(each.rho): each.as_json() for each in bounds}})
    else:
        from flipscope.report import terminal

        terminal.show(terminal.function_page(found, bounds))
    return 0
