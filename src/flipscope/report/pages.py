"""The pages of studies from what is stored, and the report of them: `flipscope report`, `flipscope.report.write`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.basics.files import check_target, write_bytes
from flipscope.basics.progress import Progress
from flipscope.basics.wording import settings_of
from flipscope.lab import registry
from flipscope.lab.figures import Figure
from flipscope.lab.keys import code_version
from flipscope.lab.run.driver import Run, judged, repeat_command
from flipscope.lab.store.store import Origin, RunState, Store
from flipscope.lab.study import Study
from flipscope.report.drawing import file_stems, render
from flipscope.report.html import StudyPage, write_report

Missing = list[tuple[str, str]]


@checked_arguments
def write(
    output: str | Path = "report.html",
    studies: Sequence[str] = (),
    *,
    results: str | Path = "results",
    scale: str | None = None,
) -> Path:
    """Write what is stored of these studies, or of all, as one HTML file; the path of the file is returned.

    ``results`` is the folder of `flipscope.run`, ``scale`` the one to show (default: the one run last).

    >>> import flipscope
    >>> found = flipscope.run("low-variance", "smoke")  # doctest: +SKIP
    >>> write("report.html", ["low-variance"])  # doctest: +SKIP
    PosixPath('report.html')
    """
    target = Path(output)
    check_target(target, "report")
    with Store(results, create=False) as store:
        pages, missing = stored_pages(store, studies, scale)
    if not pages and not missing:
        raise InputError(f"nothing has been measured in {results}: run a study first, such as {_EXAMPLE}{results}")
    write_report(target, pages, missing, made=datetime.now(UTC).date().isoformat())
    return target


_EXAMPLE = "flipscope run random-init --scale smoke --results "


def stored_pages(
    store: Store, studies: Sequence[str] = (), scale: str | None = None, progress: Progress | None = None
) -> tuple[list[StudyPage], Missing]:
    """The page of each study, and why some have none; a study that breaks does not take the others with it."""
    names = studies or sorted({run.study for run in store.runs()} | {kept.study for kept in store.kept()})
    pages: list[StudyPage] = []
    missing: Missing = []
    for number, name in enumerate(dict.fromkeys(names)):
        try:
            study = registry.find(name)
        except InputError as error:
            if studies:
                raise
            missing.append((name, str(error).rstrip(".") + "; its results stay in the store"))
            continue
        try:
            page = _page(study, store, scale)
        except InputError as error:
            if studies:
                raise
            missing.append((name, str(error).rstrip(".")))
        except Exception as error:
            missing.append((name, f"its own code raised {type(error).__name__}: {error}"))
        else:
            pages.append(page)
        if progress is not None:
            progress(number + 1, len(names))
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
    machines, finished = _provenance(run.origins)
    return StudyPage(
        run,
        figures,
        settings_of([trial.content() for trial in run.planned]),
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
            render(figure, "svg")
    except Exception as error:
        part = "" if run.complete else " from part of the trials"
        reason = " ".join(str(error).split())[:200]  # Vega's is several lines
        return [], [f"The figures cannot be drawn{part} ({type(error).__name__}: {reason})."]
    return figures, []


def _provenance(origins: Sequence[Origin]) -> tuple[list[str], str]:
    """What the trials were measured on, in words, and when the last was done."""
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


def write_figures(folder: Path, pages: Sequence[StudyPage], formats: Sequence[Any]) -> list[Path]:
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
