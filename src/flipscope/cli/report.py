"""flipscope report: what is stored, as one HTML file."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flipscope.basics.errors import InputError, printable
from flipscope.basics.files import check_target, write_bytes
from flipscope.basics.wording import settings_of
from flipscope.cli.common import print_json, results_folder
from flipscope.cli.progress import progress
from flipscope.cli.run import repeat_command
from flipscope.lab import registry
from flipscope.lab.figures import Figure
from flipscope.lab.run.driver import Run, judged
from flipscope.lab.store.store import RunState, Store
from flipscope.lab.study import Study, Trial
from flipscope.lab.vegalite import specification
from flipscope.lab.version import code_version, trial_key
from flipscope.report.drawing import FORMATS, file_stems, render
from flipscope.report.html import StudyPage, write_report

Missing = list[tuple[str, str]]

EXAMPLES = """
  flipscope report -o report.html
  flipscope report random-init zero-strings --results ./results
  flipscope report random-init --scale laptop --figures figures --format pdf,svg
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    parser.add_argument("study", nargs="*", metavar="STUDY", help="by name (default: all that have results)")
    parser.add_argument("--scale", metavar="SCALE", help="smoke, laptop or paper (default: that of the latest run)")
    parser.add_argument("-o", "--output", default="parser.html", metavar="FILE", help="to write (default parser.html)")
    parser.add_argument("--figures", metavar="DIR", help="write the figures as files there too")
    parser.add_argument("--format", metavar="LIST", help="with --figures: of svg, png, pdf (default all three)")
    results_folder(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the report of the named studies, or of all that have results."""
    output = Path(arguments.output)
    check_target(output, "report")
    formats = _checked_formats(arguments)
    with Store(arguments.results, create=False) as store:
        pages, missing = _pages(store, arguments)
    if not pages and not missing:
        raise InputError(
            f"nothing has been measured in {arguments.results}: run a study first, such as "
            f"flipscope run random-init --scale smoke --results {arguments.results}"
        )
    files = _write_figures(Path(arguments.figures), pages, formats) if arguments.figures is not None else []
    write_report(output, pages, missing, made=datetime.now(UTC).date().isoformat())
    for name, note in missing:
        print(printable(f"flipscope: {name} is not in the report: {note}."), file=sys.stderr)
    for page in pages:
        for note in page.notes:
            print(printable(f"flipscope: {page.run.study.name}: {note}"), file=sys.stderr)
    if arguments.json:
        print_json(_document(output, pages, missing, files))
    else:
        said = f" and {len(files)} figure files in {arguments.figures}" if files else ""
        print(f"wrote {output}{said}", file=sys.stderr)
    return 0


def _checked_formats(arguments: argparse.Namespace) -> list[Any]:
    if arguments.format is None:
        return list(FORMATS)
    if arguments.figures is None:
        raise InputError("--format says how figures are written: add --figures DIR")
    formats = [part.strip().lower() for part in arguments.format.split(",")]
    for part in formats:
        if part not in FORMATS:
            raise InputError(f"--format {part!r} is not one of {', '.join(FORMATS)}, or several with commas between")
    return list(dict.fromkeys(formats))


def _pages(store: Store, arguments: argparse.Namespace) -> tuple[list[StudyPage], Missing]:
    """The page of each study, and why some have none; a study that breaks does not take the others with it."""
    names = arguments.study or sorted({run.study for run in store.runs()} | {kept.study for kept in store.kept()})
    pages: list[StudyPage] = []
    missing: Missing = []
    with progress("reading the results") as report:
        for number, name in enumerate(dict.fromkeys(names)):
            try:
                study = registry.find(name)
            except InputError as error:
                if arguments.study:
                    raise
                missing.append((name, str(error).rstrip(".") + "; its results stay in the store"))
                continue
            try:
                page = _page(study, store, arguments.scale)
            except InputError as error:
                if arguments.study:
                    raise
                missing.append((name, str(error).rstrip(".")))
            except Exception as error:
                missing.append((name, f"its own code raised {type(error).__name__}: {error}"))
            else:
                pages.append(page)
            report(number + 1, len(names))
    return pages, missing


def _page(study: Study, store: Store, scale: str | None) -> StudyPage:
    latest = _latest(store, study, scale)
    chosen = latest.scale if latest is not None else scale
    if chosen is None:
        raise InputError(
            f"there are no results of {study.name} in {store.folder}: run it first with flipscope run {study.name}"
        )
    run = judged(study, chosen, store)
    if run.done == 0 and run.failed == 0:
        codes = {kept.code for kept in store.kept() if kept.study == study.name}
        stale = codes and code_version(study) not in codes
        why = "the stored ones are of code that has changed since" if stale else "none of its trials is done"
        again = repeat_command(study, chosen)
        raise InputError(f"there are no results of {study.name} at scale {chosen}: {why}; run it with {again}")
    figures, notes = _drawn(study, run)
    trials = study.checked_trials(chosen)
    machines, finished = _provenance(study, trials, store)
    return StudyPage(
        run,
        figures,
        settings_of([trial.content() for trial in trials]),
        machines,
        code_version(study),
        (latest.command if latest is not None else "") or repeat_command(study, chosen),
        finished,
        notes,
    )


def _latest(store: Store, study: Study, scale: str | None) -> RunState | None:
    """The last run of a study, at this scale if one is named."""
    runs = [run for run in store.runs(study.name, latest=False) if scale is None or run.scale == scale]
    return runs[-1] if runs else None


def _drawn(study: Study, run: Run) -> tuple[list[Figure], list[str]]:
    """The figures, or a note why there are none: a figure that fails must not hide the verdicts."""
    if not run.table:
        return [], []
    try:
        figures = list(study.draw(run.table))
        for figure in figures:
            specification(figure)
    except Exception as error:
        part = "" if run.complete else " from part of the trials"
        return [], [f"The figures cannot be drawn{part} ({type(error).__name__}: {error})."]
    return figures, []


def _provenance(study: Study, trials: Sequence[Trial], store: Store) -> tuple[list[str], str]:
    """What the trials were measured on, in words, and when the last was done."""
    code = code_version(study)
    origins = store.machines(trial_key(study, trial, code) for trial in trials)
    machines: Counter[str] = Counter()
    for origin in origins:  # several may read the same
        machines[_machine_text(origin.machine)] += origin.trials
    said = [text if len(machines) == 1 else f"{text} ({count:,} trials)" for text, count in machines.most_common(5)]
    if len(machines) > 5:
        said.append(f"{len(machines) - 5} more machines")
    finished = max((origin.finished for origin in origins), default="")
    return said, finished[:16].replace("T", " ") + " UTC" if finished else ""


def _machine_text(machine: dict[str, Any]) -> str:
    """A machine without its name, which says nothing to a reader elsewhere."""
    versions = [f"{name} {machine[name]}" for name in ("python", "torch", "numpy", "flipscope") if machine.get(name)]
    cores = [f"{machine['cores']} cores"] if machine.get("cores") else []
    parts = [str(machine[name]) for name in ("cpu", "system") if machine.get(name)]
    return ", ".join([*parts[:1], *cores, *parts[1:], *versions])


def _write_figures(folder: Path, pages: Sequence[StudyPage], formats: Sequence[Any]) -> list[Path]:
    """Write each figure in each format; returns the paths."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"the figures cannot be written to {folder}: {error.strerror or error}") from None
    written = []
    for page in pages:
        figures = list(page.figures)
        for stem, figure in zip(file_stems(page.run.study.name, figures), figures, strict=True):
            for format in formats:
                written.append(write_bytes(folder / f"{stem}.{format}", render(figure, format), "figure"))
    return written


def _document(output: Path, pages: Sequence[StudyPage], missing: Missing, files: Sequence[Path]) -> dict[str, Any]:
    documents = [page.run.as_json() for page in pages]
    return {
        "output": str(output),
        "studies": [document["study"] for document in documents],
        "claims": [
            {"study": document["study"], "scale": document["scale"], **claim}
            for document in documents
            for claim in document["claims"]
        ],
        "figures": [str(path) for path in files],
        "missing": [{"study": name, "note": note} for name, note in missing],
    }
