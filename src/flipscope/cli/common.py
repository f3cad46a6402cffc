"""What several commands share: arguments, and the one JSON document on standard output."""

from __future__ import annotations

import argparse
import json
from typing import Any

SIZE_HELP = "number of bits (default: as many as the expression uses)"


def print_json(document: Any) -> None:
    """One JSON document on standard output; NaN is a bug, not a number."""
    print(json.dumps(document, allow_nan=False))


def sampling(parser: argparse.ArgumentParser) -> None:
    """Seed and confidence."""
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of whatever is random (default 0)")
    parser.add_argument(
        "--confidence", type=float, default=0.95, metavar="C", help="of every interval or test (default 0.95)"
    )


def results_folder(parser: argparse.ArgumentParser) -> None:
    """The folder of the results."""
    parser.add_argument(
        "--results", default="results", metavar="DIR", help="where results are kept (default ./results)"
    )
