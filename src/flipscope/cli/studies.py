"""flipscope studies: all studies, those of a figure, or everything about one."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from typing import Any

from flipscope.basics.errors import InputError
from flipscope.cli.common import print_json, results_folder
from flipscope.cli.progress import progress
from flipscope.lab import catalogue
from flipscope.lab.catalogue import Entry
from flipscope.lab.store.store import RunState, Store

EXAMPLES = """
  flipscope studies
  flipscope studies random-init
  flipscope studies --paper 001 --figure 5
  flipscope studies --results ./results --json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "study", nargs="?", metavar="STUDY", help="show everything about this one: claims, scales, settings, deviations"
    )
    parser.add_argument("--paper", metavar="P", help="only studies of this paper, such as 001")
    parser.add_argument("--figure", metavar="F", help='only studies of this figure or theorem: 5, "Fig 5", "Thm 4"')
    results_folder(parser)


def run(arguments: argparse.Namespace) -> int:
    """List studies with their cost and progress, or show everything about one."""
    if arguments.study is not None and (arguments.paper is not None or arguments.figure is not None):
        raise InputError(f"--paper and --figure choose among all studies: leave them out, or {arguments.study}")
    with contextlib.ExitStack() as held:
        store = _existing(arguments.results)
        if store is not None:
            held.enter_context(store)
        if arguments.study is not None:
            return _show(catalogue.find(arguments.study), store, arguments.json)
        with progress("reading the studies") as report:
            rows = [
                _row(entry, store) for entry in _chosen(catalogue.entries(report), arguments.paper, arguments.figure)
            ]
    if arguments.json:
        print_json(rows)
        return 0
    from flipscope.report.lab import studies_page
    from flipscope.report.terminal import show

    show(studies_page(rows))
    return 0


def _chosen(entries: Sequence[Entry], paper: str | None, figure: str | None) -> list[Entry]:
    """The studies of a paper, of a figure, or of both; InputError if there is none."""
    papers = sorted({entry.paper for entry in entries if entry.paper is not None})
    if paper is not None and paper not in papers:
        raise InputError(f"no study is of paper {paper!r}; there are papers {', '.join(papers)}")
    found = [entry for entry in entries if paper in (None, entry.paper)]
    if figure is None:
        return found
    showing = [entry for entry in found if catalogue.shows(entry.figures, figure)]
    if not showing:
        known = ", ".join(dict.fromkeys(each for entry in found for each in entry.figures)) or "none"
        of = "" if paper is None else f" of paper {paper}"
        raise InputError(f"no study shows {figure!r}{of}; those that are shown are {known}")
    return showing


def _row(entry: catalogue.Entry, store: Store | None) -> dict[str, Any]:
    """The row of one study in the list."""
    if entry.error:
        return {
            "name": entry.name, "paper": None, "figures": [], "scales": {}, "state": "broken", "error": entry.error
        }  # fmt: skip
    return {
        "name": entry.name,
        "paper": entry.paper,
        "title": entry.title,
        "figures": list(entry.figures),
        "scales": entry.scales,
        "state": _state(store.runs(entry.name) if store is not None else [], entry.code),
    }


def _show(entry: Entry, store: Store | None, as_json: bool) -> int:
    """Everything about one study: scales, settings, claims, deviations."""
    state = _state(store.runs(entry.name) if store is not None else [], entry.code)
    if as_json:
        names = ("name", "paper", "title", "figures", "scales", "claims", "deviations", "settings", "sample_sizes")
        print_json({**{name: getattr(entry, name) for name in names}, "base_seed": entry.base_seed, "state": state})
        return 0
    from flipscope.report.lab import study_page
    from flipscope.report.terminal import show

    show(study_page(entry, state))
    return 0


def _state(runs: list[RunState], code: str) -> str:
    """The state of the latest run as text."""
    if not runs:
        return "not run"
    latest = runs[0]
    progress = f"{latest.scale}: {latest.done:,} of {latest.total:,}"
    if latest.state == "running":
        return f"running {progress}"
    if latest.code != code:
        return f"{latest.scale} measured with other code"
    return f"done at scale {latest.scale}" if latest.done == latest.total else f"partly done, {progress}"


def _existing(folder: str) -> Store | None:
    """The store of a folder, if there is one."""
    from pathlib import Path

    from flipscope.lab.store.store import DATABASE

    return Store(folder, create=False) if (Path(folder) / DATABASE).exists() else None
