"""flipscope studies: all studies, those of a figure, or everything about one."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flipscope.basics.errors import InputError
from flipscope.cli.common import print_json, results_folder
from flipscope.cli.progress import progress
from flipscope.lab import registry
from flipscope.lab.context import DATABASE
from flipscope.lab.summaries import Summary, summaries, summary_of

if TYPE_CHECKING:
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
            summary = _found(arguments.study)
            if summary.error:
                raise InputError(summary.error)
            return _show(summary, store, arguments.json)
        with progress("reading the studies") as report:
            chosen = _chosen(summaries(report=report), arguments.paper, arguments.figure)
            rows = [_row(summary, store) for summary in chosen]
    if arguments.json:
        print_json(rows)
        return 0
    from flipscope.report.lists import studies_page
    from flipscope.report.terminal import show

    show(studies_page(rows))
    return 0


def _found(text: str) -> Summary:
    """The study of this name, or at this place."""
    return summaries([text])[0] if text in registry.names() else summary_of(registry.find(text))


def _chosen(studies: Sequence[Summary], paper: str | None, figure: str | None) -> list[Summary]:
    """The studies of a paper, of a figure, or of both; InputError if there is none."""
    papers = sorted({study.paper for study in studies if study.paper is not None})
    if paper is not None and paper not in papers:
        raise InputError(f"no study is of paper {paper!r}; there are papers {', '.join(papers)}")
    chosen = [study for study in studies if paper in (None, study.paper)]
    if figure is None:
        return chosen
    showing = [study for study in chosen if shows(study.figures, figure)]
    if not showing:
        known = ", ".join(dict.fromkeys(each for study in chosen for each in study.figures)) or "none"
        of = "" if paper is None else f" of paper {paper}"
        raise InputError(f"no study shows {figure!r}{of}; those that are shown are {known}")
    return showing


def _row(study: Summary, store: Store | None) -> dict[str, Any]:
    """The row of one study in the list."""
    if study.error:
        return {
            "name": study.name, "paper": None, "figures": [], "scales": {}, "state": "broken", "error": study.error
        }  # fmt: skip
    return {
        "name": study.name,
        "paper": study.paper,
        "title": study.title,
        "figures": list(study.figures),
        "scales": study.scales,
        "state": _state(store.runs(study.name) if store is not None else [], study.revision),
    }


def _show(study: Summary, store: Store | None, as_json: bool) -> int:
    """Everything about one study: scales, settings, claims, deviations."""
    state = _state(store.runs(study.name) if store is not None else [], study.revision)
    if as_json:
        names = ("name", "paper", "title", "figures", "scales", "claims", "deviations", "settings", "sample_sizes")
        print_json({**{name: getattr(study, name) for name in names}, "base_seed": study.base_seed, "state": state})
        return 0
    from flipscope.report.lists import study_page
    from flipscope.report.terminal import show

    show(study_page(study, state))
    return 0


def _state(runs: list[RunState], revision: int) -> str:
    """The state of the latest run as text."""
    if not runs:
        return "not run"
    latest = runs[0]
    progress = f"{latest.scale}: {latest.done:,} of {latest.total:,}"
    if latest.state == "running":
        return f"running {progress}"
    if latest.revision != revision:
        return f"{latest.scale} measured at revision {latest.revision}"
    return f"done at scale {latest.scale}" if latest.done == latest.total else f"partly done, {progress}"


def _existing(folder: str) -> Store | None:
    """The store of a folder, if there is one."""
    if not (Path(folder) / DATABASE).exists():
        return None
    from flipscope.lab.store.store import Store

    return Store(folder, create=False)


def shows(figures: Iterable[str], wanted: str) -> bool:
    """Whether a study with these `figures` shows one, such as "5", "Fig 5" or "Thm 4".

    >>> shows(("Fig 5", "Figs 6, 7"), "7"), shows(("Thms 7, 8, 16",), "7"), shows(("Lemmas B.2-B.8",), "Lemma B.4")
    (True, False, True)
    """
    kind, numbers = _parsed(wanted)
    kinds = {kind} if kind else {"fig", ""}
    return bool(numbers) and any(other in kinds and numbers <= there for other, there in map(_parsed, figures))


def _parsed(text: str) -> tuple[str, set[str]]:
    """The kind of a figure or theorem by its first three letters, and its numbers."""
    word = re.search(r"[A-Za-z]{3,}", text)
    numbers = set(re.findall(r"(?:[A-Z]\.)?\d+(?:\.\d+)*", text))
    for prefix, first, last in re.findall(r"([A-Z]\.)?(\d+)\s*[-–]\s*(?:[A-Z]\.)?(\d+)", text):
        numbers |= {f"{prefix}{number}" for number in range(int(first), int(last) + 1)}
    kind = word[0][:3].lower() if word else ""
    return "thm" if kind == "the" else kind, numbers
