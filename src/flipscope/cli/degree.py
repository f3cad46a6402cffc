"""flipscope test-degree: test by queries alone whether a function has low degree."""

from __future__ import annotations

import argparse

from flipscope.cli.common import EXPRESSION_HELP, length_option
from flipscope.cli.testing import print_sweep, print_test, test_options, testing
from flipscope.cube.expression import parse

EXAMPLES = """
  flipscope test-degree "sparse_parity(3, n=100)"
  flipscope test-degree "sparse_parity(3, n=100)" --degree 2
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("expression", metavar="EXPR", help=EXPRESSION_HELP)
    length_option(parser)
    parser.add_argument("--degree", type=int, metavar="D", help="test this degree only (default: the first accepted)")
    testing(parser, 0.1, "smallest weight above the degree that must be noticed")


def run(arguments: argparse.Namespace) -> int:
    """Test, by queries only, whether a function has low degree."""
    from flipscope.cube.testers import first_accepted_degree, low_degree_test

    f = parse(arguments.expression, arguments.length)
    options = test_options(arguments)
    if arguments.degree is None:
        return print_sweep(arguments, "degree", first_accepted_degree(f, f.n, **options))
    return print_test(arguments, "degree", low_degree_test(f, f.n, arguments.degree, **options))
