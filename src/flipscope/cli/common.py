"""Options that several commands share, with one meaning each, and the JSON output."""

from __future__ import annotations

import argparse
import json
from typing import Any

EXPRESSION_HELP = 'a Boolean function, such as "maj(x1..x5) ^ x6" or "majority(21)"'
FUNCTION_LENGTH = "bits of each string (default: as many as the expression uses)"


def print_json(document: Any) -> None:
    """Print one JSON document on standard output; NaN raises an error, since it would be a bug."""
    print(json.dumps(document, allow_nan=False))


def length_option(parser: argparse.ArgumentParser, what: str = FUNCTION_LENGTH, default: int | None = None) -> None:
    """Add the number of bits of a string."""
    parser.add_argument("-n", "--length", type=int, default=default, metavar="N", help=what)


def seed_option(parser: argparse.ArgumentParser) -> None:
    """Add the seed."""
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of everything random (default 0)")


def sampling(parser: argparse.ArgumentParser) -> None:
    """Add the seed and the confidence."""
    seed_option(parser)
    parser.add_argument(
        "--confidence",
        type=float,
        default=0.95,
        metavar="C",
        help="confidence of every interval or test (default 0.95)",
    )


def output_option(parser: argparse.ArgumentParser, what: str, *, required: bool = False) -> None:
    """Add the file that the command writes."""
    parser.add_argument("-o", "--output", required=required, metavar="FILE", help=what)


def plot_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the picture that the command draws."""
    parser.add_argument("--plot", metavar="FILE", help=f"draw {what} to FILE (.svg, .pdf or .png)")


DATA_FOLDER = "folder of data sets, such as those of MNIST or QQP (default: that of $FLIPSCOPE_DATA)"


def data_folder_option(parser: argparse._ActionsContainer, what: str = DATA_FOLDER) -> None:
    """Add the folder of the data sets."""
    parser.add_argument("--data", metavar="DIR", help=what)


def results_folder(parser: argparse.ArgumentParser) -> None:
    """Add the folder of the results."""
    parser.add_argument("--results", default="results", metavar="DIR", help="folder of the results (default ./results)")
