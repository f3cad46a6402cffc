"""The options and output that test-degree and test-sparsity share."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from flipscope.cli.common import print_json, sampling


def testing(parser: argparse.ArgumentParser, epsilon: float, noticed: str) -> None:
    """Add the options of both testers."""
    parser.add_argument("--epsilon", type=float, default=epsilon, metavar="E", help=f"{noticed} (default {epsilon:g})")
    parser.add_argument(
        "--max-queries",
        type=int,
        default=10_000_000,
        metavar="Q",
        help="largest number of queries (default 10,000,000)",
    )
    sampling(parser)


def test_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of a test."""
    return {name: getattr(arguments, name) for name in ("epsilon", "confidence", "seed", "max_queries")}


def print_sweep(arguments: argparse.Namespace, what: str, sweep: Any) -> int:
    """Print the first value that a test accepts."""
    if arguments.json:
        print_json(
            {
                "function": arguments.expression,
                f"first_accepted_{what}": sweep.value,
                "queries": sweep.queries,
                "note": sweep.note,
            }
        )
    else:
        # A rejection is proof, an acceptance is not.
        least = "" if sweep.value is None else f", so the true {what} is at least {sweep.value}"
        print(f"{arguments.expression}, after {sweep.queries:,} queries: {sweep.note}{least}.")
    return 0


def print_test(arguments: argparse.Namespace, what: str, result: Any) -> int:
    """Print the result of one test."""
    bound = getattr(arguments, what)
    if arguments.json:
        print_json({"function": arguments.expression, what: bound, **asdict(result)})
    else:
        outcome = f"{what} at most {bound} is {'accepted' if result.accepted else 'rejected'}"
        print(f"{arguments.expression}, after {result.queries:,} queries: {outcome}, since {result.note}.")
    return 0
