"""flipscope status: what is running, from any shell."""

from __future__ import annotations

import argparse
import dataclasses

from flipscope.cli.common import print_json, results_folder
from flipscope.lab.store.store import Store

EXAMPLES = """
  flipscope status
  watch flipscope status --results ./results
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    parser.add_argument("study", nargs="?", metavar="STUDY", help="only this one")
    results_folder(parser)


def run(arguments: argparse.Namespace) -> int:
    """Say what is running in a results folder, or how the latest run of each study ended."""
    with Store(arguments.results, create=False) as store:
        states = store.runs(arguments.study)
    if arguments.json:
        print_json([dataclasses.asdict(state) for state in states])
        return 0
    if not states:
        print("Nothing has been run here.")
        return 0
    from flipscope.report.lab import status_page
    from flipscope.report.terminal import show

    show(status_page(states))
    return 0
