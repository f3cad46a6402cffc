"""flipscope studies: all studies, or all of one."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
from typing import Any

from flipscope.cli.common import print_json, results_folder
from flipscope.cli.progress import progress
from flipscope.lab import catalogue, registry
from flipscope.lab.keys import code_version
from flipscope.lab.store.store import RunState, Store
from flipscope.lab.study import Study

EXAMPLES = """
  flipscope studies
  flipscope studies random-init
  flipscope studies --results ./results --json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    parser.add_argument("study", nargs="?", metavar="STUDY", help="tell all of this one: claims, scales, deviations")
    results_folder(parser)


def run(arguments: argparse.Namespace) -> int:
    """List all studies with what they cost and how far they are, or tell all of one."""
    with contextlib.ExitStack() as held:
        store = _existing(arguments.results)
        if store is not None:
            held.enter_context(store)
        if arguments.study is not None:
            return _tell(registry.find(arguments.study), store, arguments.json)
        with progress("reading the studies") as report:
            rows = [_row(entry, store) for entry in catalogue.entries(report)]
    if arguments.json:
        print_json(rows)
        return 0
    from flipscope.report.lab import studies_page
    from flipscope.report.terminal import show

    show(studies_page(rows))
    return 0


def _row(entry: catalogue.Entry, store: Store | None) -> dict[str, Any]:
    """What there is to know of one study."""
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


def _tell(study: Study, store: Store | None, as_json: bool) -> int:
    """Everything about one study: scales, claims, deviations."""
    state = _state(store.runs(study.name) if store is not None else [], code_version(study))
    if as_json:
        names = ("name", "source", "statement", "criterion", "exploratory")
        print_json(
            {
                "name": study.name,
                "paper": study.paper,
                "title": study.title,
                "figures": list(study.figures),
                "scales": {name: {"note": made.note, "minutes": made.minutes} for name, made in study.scales.items()},
                "claims": [{name: getattr(claim, name) for name in names} for claim in study.claims],
                "deviations": [dataclasses.asdict(deviation) for deviation in study.deviations],
                "state": state,
            }
        )
        return 0
    from flipscope.report.lab import study_page
    from flipscope.report.terminal import show

    show(study_page(study, state))
    return 0


def _state(runs: list[RunState], code: str) -> str:
    """In words: where the latest run stands."""
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
