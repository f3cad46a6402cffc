"""flipscope test-sparsity: test by queries alone whether a function or a model has few Fourier coefficients."""

from __future__ import annotations

import argparse

from flipscope.cli.testing import print_sweep, print_test, test_options, tested, testing

EXAMPLES = """
  flipscope test-sparsity "maj(x1..x5) ^ x6"
  flipscope test-sparsity "sparse_majority(5, n=20)" --free 16
  flipscope test-sparsity "sparse_majority(5, n=20)" --free 16 --sparsity 8
  flipscope test-sparsity model.safetensors --sparsity 40
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--sparsity", type=int, metavar="W", help="test this sparsity only (default: the first accepted)"
    )
    parser.add_argument(
        "--free", type=int, default=10, metavar="R", help="free bits of each random restriction (default 10)"
    )
    testing(parser, 1e-3, "smallest energy outside that must be noticed")


def run(arguments: argparse.Namespace) -> int:
    """Test, by queries only, whether a function or a model has few Fourier coefficients."""
    from flipscope.cube.testers import first_accepted_sparsity, fourier_sparsity_test

    options = test_options(arguments) | {"free": arguments.free}
    with tested(arguments) as (f, n, opened):
        if arguments.sparsity is None:
            return print_sweep(arguments, "sparsity", first_accepted_sparsity(f, n, **options), opened)
        return print_test(arguments, "sparsity", fourier_sparsity_test(f, n, arguments.sparsity, **options), opened)
