"""flipscope status: the progress of runs, from any shell."""

from __future__ import annotations

import argparse
import dataclasses

from flipscope.cli.common import print_json, results_folder
from flipscope.lab import registry
from flipscope.lab.store.store import Store

EXAMPLES = """
  flipscope status
  watch flipscope status --results ./results
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("study", nargs="?", metavar="STUDY", help="only this one")
    results_folder(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show which studies are running in a results folder, and how the latest run of each ended."""
    with Store(arguments.results, create=False) as store:
        states = store.runs(None if arguments.study is None else registry.name_of(arguments.study))
    if arguments.json:
        print_json([dataclasses.asdict(state) for state in states])
        return 0
    if not states:
        print("Nothing has been run here.")
        return 0
    from flipscope.report.lists import status_page
    from flipscope.report.terminal import show

    show(status_page(states))
    return 0
