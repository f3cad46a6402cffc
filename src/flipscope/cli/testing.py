"""The options and output that test-degree and test-sparsity share."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flipscope.basics.bits import Bits
from flipscope.cli.common import EXPRESSION_HELP, length_option, print_json, sampling
from flipscope.cli.model_options import MODEL_HELP, subject_options
from flipscope.cli.opening import Opened, open_model
from flipscope.cli.other_models import is_other_model
from flipscope.cli.progress import progress
from flipscope.cube.expression import parse
from flipscope.cube.structure import Oracle

_MODEL_FILE = ".safetensors"


def testing(parser: argparse.ArgumentParser, epsilon: float, noticed: str) -> None:
    """Add the function or model, and the options of both testers."""
    parser.add_argument("function", metavar="EXPR|MODEL", help=f"{EXPRESSION_HELP}; or a model: {MODEL_HELP}")
    length_option(parser, "bits of each string (default: as many as the expression uses, or as the model reads)")
    subject_options(parser)
    parser.add_argument("--epsilon", type=float, default=epsilon, metavar="E", help=f"{noticed} (default {epsilon:g})")
    parser.add_argument(
        "--max-queries",
        type=int,
        default=10_000_000,
        metavar="Q",
        help="largest number of queries (default 10,000,000)",
    )
    sampling(parser)


class Tested(NamedTuple):
    """The function that a test queries, its number of bits, and the model if it is that of a model."""

    ask: Oracle
    n: int
    opened: Opened | None = None


@contextmanager
def tested(arguments: argparse.Namespace) -> Iterator[Tested]:
    """The given function, or the decision of the given model.

    The number of queries that a test will need is not known: progress is shown against the largest number allowed.
    """
    text = arguments.function
    if not (is_other_model(text) or text.endswith(_MODEL_FILE) or Path(text).is_file()):
        f = parse(text, arguments.length)
        yield Tested(f, f.n)
        return
    measured = {"model": text, "function": None, "threshold": None, "strings": None}
    opened = open_model(argparse.Namespace(**vars(arguments) | measured))

    from flipscope.probes.fourier import oracle

    ask, asked = oracle(opened.model), 0
    with progress(f"queries, of at most {arguments.max_queries:,}") as report:

        def counted(strings: Bits) -> Bits:
            nonlocal asked
            found: Bits = np.asarray(ask(strings), np.uint8)
            asked += len(strings)
            report(asked, arguments.max_queries)
            return found

        yield Tested(counted, opened.length, opened)


def test_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of a test."""
    return {name: getattr(arguments, name) for name in ("epsilon", "confidence", "seed", "max_queries")}


def print_sweep(arguments: argparse.Namespace, what: str, sweep: Any, opened: Opened | None) -> int:
    """Print the first value that a test accepts."""
    if arguments.json:
        print_json(
            {
                "function": arguments.function,
                f"first_accepted_{what}": sweep.value,
                "queries": sweep.queries,
                "note": sweep.note,
                **_settings(opened),
            }
        )
    else:
        # A rejection is proof, an acceptance is not.
        least = "" if sweep.value is None else f", so the true {what} is at least {sweep.value}"
        print(f"{arguments.function}, after {sweep.queries:,} queries: {sweep.note}{least}.")
        _print_notes(opened)
    return 0


def print_test(arguments: argparse.Namespace, what: str, result: Any, opened: Opened | None) -> int:
    """Print the result of one test."""
    bound = getattr(arguments, what)
    if arguments.json:
        print_json({"function": arguments.function, what: bound, **asdict(result), **_settings(opened)})
    else:
        outcome = f"{what} at most {bound} is {'accepted' if result.accepted else 'rejected'}"
        print(f"{arguments.function}, after {result.queries:,} queries: {outcome}, since {result.note}.")
        _print_notes(opened)
    return 0


def _settings(opened: Opened | None) -> dict[str, Any]:
    """The settings of a model's measurement, for the JSON document."""
    return {} if opened is None else {"length": opened.length, **opened.as_json()}


def _print_notes(opened: Opened | None) -> None:
    """Print which settings came from the model's file."""
    for note in [] if opened is None else opened.notes:
        print(note)
