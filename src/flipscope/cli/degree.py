"""flipscope test-degree: test by queries alone whether a function or a model has low degree."""

from __future__ import annotations

import argparse

from flipscope.cli.testing import print_sweep, print_test, test_options, tested, testing

EXAMPLES = """
  flipscope test-degree "sparse_parity(3, n=100)"
  flipscope test-degree "sparse_parity(3, n=100)" --degree 2
  flipscope test-degree model.safetensors --degree 3
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--degree", type=int, metavar="D", help="test this degree only (default: the first accepted)")
    testing(parser, 0.1, "smallest weight above the degree that must be noticed")


def run(arguments: argparse.Namespace) -> int:
    """Test, by queries only, whether a function or a model has low degree."""
    from flipscope.cube.testers import first_accepted_degree, low_degree_test

    options = test_options(arguments)
    with tested(arguments) as (f, n, opened):
        if arguments.degree is None:
            return print_sweep(arguments, "degree", first_accepted_degree(f, n, **options), opened)
        return print_test(arguments, "degree", low_degree_test(f, n, arguments.degree, **options), opened)
