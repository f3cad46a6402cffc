"""The pages of studies from stored results, and their report: `flipscope report`, `flipscope.report.write`."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.basics.files import check_target, write_bytes
from flipscope.basics.progress import Progress
from flipscope.basics.wording import count_text, settings_of
from flipscope.figures import Figure
from flipscope.lab import registry
from flipscope.lab.findings import Findings, findings
from flipscope.lab.history import Look
from flipscope.lab.keys import older_revisions, trial_key
from flipscope.lab.rows import Rows
from flipscope.lab.store import packs
from flipscope.lab.store.merging import merge, variants
from flipscope.lab.store.store import Origin, RunState, Store, origins
from flipscope.lab.study import Study, Trial
from flipscope.lab.verdict import Judgement, Seen
from flipscope.report.drawing import file_stems, render
from flipscope.report.html import write_report
from flipscope.report.views import StudyPage

Missing = list[tuple[str, str]]


@checked_arguments
def write(
    output: str | Path = "report.html",
    studies: Sequence[str] = (),
    *,
    results: str | Path = "results",
    scale: str | None = None,
) -> Path:
    """Write the stored results of these studies, or of all, as one HTML file and return its path.

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


def packed_pages(
    files: Sequence[Path], studies: Sequence[str] = (), scale: str | None = None, progress: Progress | None = None
) -> tuple[list[StudyPage], Missing]:
    """The same for the results in packs; results of older code are marked."""
    with packs.read(files) as found, tempfile.TemporaryDirectory(prefix="flipscope-") as folder, Store(folder) as store:
        for pack in found:
            merge(store, pack)
        store.writable = False  # showing a pack is not a look at its claims
        return stored_pages(store, studies, scale, progress, older=True)


def stored_pages(
    store: Store,
    studies: Sequence[str] = (),
    scale: str | None = None,
    progress: Progress | None = None,
    *,
    older: bool = False,
) -> tuple[list[StudyPage], Missing]:
    """The page of each study, and the reasons why some have none; a failing study does not affect the others.

    With `older`, a study without results of its present code gets a page with the results of older code.
    """
    names = studies or sorted({run.study for run in store.runs()} | {stored.study for stored in store.stored()})
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
            page = _page(study, store, scale, older)
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


def _page(study: Study, store: Store, scale: str | None, older: bool) -> StudyPage:
    latest = _latest(store, study, scale)
    chosen = latest.scale if latest is not None else scale and study.scale_name(scale)
    if chosen is None:
        raise InputError(
            f"there are no results of {study.name} in {store.folder}: run it first with flipscope run {study.name}"
        )
    command = (latest.command if latest is not None else "") or registry.repeat_command(study, chosen)
    run = findings(study, chosen, store)
    if run.done or run.failed:
        return _shown(study, store, run, study.revision, command)
    revisions = store.revisions(study.name)
    stale = bool(revisions) and study.revision not in revisions
    if stale and older and latest is not None:
        return _older_page(study, store, latest, command)
    why = (
        f"the stored ones are of other revisions than {study.revision}"
        if stale
        else "none of its trials has been measured"
    )
    again = registry.repeat_command(study, chosen)
    raise InputError(f"there are no results of {study.name} at scale {chosen}: {why}; run it with {again}")


def _shown(study: Study, store: Store, run: Findings, revision: int, command: str, older: str = "") -> StudyPage:
    """The page of findings at this revision of the study."""
    figures, missing = _drawn(study, run)
    keys = [trial_key(study, trial, revision) for trial in run.planned]
    machines, finished = _provenance(run.origins)
    settings = settings_of([trial.content() for trial in run.planned])
    notes = [
        *_variant_notes(store, keys),
        *missing,
        *run.notes,
        *(() if older else older_revisions(study, store.revisions(study.name))),
    ]
    return StudyPage(run, figures, settings, machines, revision, command, finished, notes, older)


def _variant_notes(store: Store, keys: Sequence[str]) -> list[str]:
    """A sentence about trials for which another outcome was imported, or nothing."""
    found = variants(store, keys=keys)
    if not found:
        return []
    worst = found[0]
    size = f"by {worst.difference:.2g} of its size" if math.isfinite(worst.difference) else "in kind"
    trials = count_text(len({each.key for each in found}), "trial")
    return [
        f"{trials} of {len(keys):,} had a different outcome elsewhere, which is kept but not judged; the largest "
        f"difference is in {worst.column}, {size}: {worst.ours} here, {worst.theirs} there ({worst.processors})."
    ]


def _older_page(study: Study, store: Store, latest: RunState, command: str) -> StudyPage:
    """The page of results of older code: judged anew where possible, otherwise with the recorded verdicts."""
    revision, scale = latest.revision, latest.scale
    looks = [
        look
        for _, look in store.looks(study.name, study.look_scale(scale))
        if look.revision == revision and not look.exploratory
    ]
    trials = _rebuilt(study, scale, store, revision)
    plan = looks[-1].trials if looks else frozenset(trial.hash for trial in store.planned(study, scale))
    chosen = [trial for trial in trials if trial.hash in plan]
    run = findings(study, scale, store, chosen, revision=revision) if len(chosen) == len(plan) else None
    if run is None or run.errors:  # the present study may not understand its old results
        run = _recorded(study, store, latest, looks)
    older = f"{_versions(run.origins)}revision {revision} of the study"
    page = _shown(study, store, run, revision, command, older)
    how = "judged by today's rules" if run.table else "as it was judged then"
    note = (
        f"Measured by older code ({older}) and {how}; today's code might give other numbers. "
        f"{registry.repeat_command(study, scale)} measures it again."
    )
    return replace(page, notes=[note, *page.notes])


def _rebuilt(study: Study, scale: str, store: Store, revision: int) -> list[Trial]:
    """The trials measured at this revision, as far as they fit the study's present classes of trials."""
    kinds = list(dict.fromkeys(type(trial) for trial in store.planned(study, scale)))
    found = []
    for row in store.table(study.name):
        content = {name.removeprefix("trial."): _tuples(value) for name, value in row.items() if name[:6] == "trial."}
        for kind in kinds:
            try:
                trial = kind(**content)
            except (InputError, TypeError):  # the fields or their allowed values have changed
                continue
            if trial_key(study, trial, revision) == row["key"]:
                found.append(trial)
                break
    return found


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _recorded(study: Study, store: Store, latest: RunState, looks: Sequence[Look]) -> Findings:
    """A run of which only the recorded looks at its claims are known."""
    judgements = []
    for claim in study.claims:
        own = [look for look in looks if look.claim == claim.name]
        if own:
            seen = Seen("look", own[-1].number, own[-1].error)
            judgements.append((claim, replace(Judgement.from_json(own[-1].judgement), seen=seen)))
        else:
            judgements.append((claim, Judgement.without("it was not judged at that time")))
    keys = [row["key"] for row in store.rows("results", study.name) if row["revision"] == latest.revision]
    records = store.records(keys)[0].values()
    return Findings(
        study,
        latest.scale,
        latest.total,
        latest.done,
        latest.failed,
        latest.done,
        sum(record.seconds for record in records),
        Rows(),
        judgements,
        [look for _, look in store.looks(study.name, study.look_scale(latest.scale))],
        origins=origins(records),
    )


def _versions(origins: Sequence[Origin]) -> str:
    """The versions of flipscope that measured on these machines."""
    versions = sorted({str(origin.machine["flipscope"]) for origin in origins if "flipscope" in origin.machine})
    return f"flipscope {', '.join(versions)}, " if versions else ""


def _latest(store: Store, study: Study, scale: str | None) -> RunState | None:
    """The last run of a study, at the given scale if there is one."""
    scale = None if scale is None else study.scale_name(scale)
    runs = [run for run in store.runs(study.name, latest=False) if scale is None or run.scale == scale]
    return runs[-1] if runs else None


def _drawn(study: Study, run: Findings) -> tuple[list[Figure], list[str]]:
    """The figures, or a note on why there are none: a failing figure must not hide the verdicts."""
    if not run.table:
        return [], []
    try:
        figures = list(study.draw(run.table))
        for figure in figures:
            render(figure, "svg")
    except Exception as error:
        part = "" if run.complete else " from part of the trials"
        reason = " ".join(str(error).split())[:200]  # Vega's messages have several lines
        return [], [f"The figures cannot be drawn{part} ({type(error).__name__}: {reason})."]
    return figures, []


def _provenance(origins: Sequence[Origin]) -> tuple[list[str], str]:
    """Descriptions of the machines that measured the trials, and the time of the last trial."""
    machines: Counter[str] = Counter()
    for origin in origins:  # several may have the same description
        machines[_machine_text(origin.machine)] += origin.trials
    said = [text if len(machines) == 1 else f"{text} ({count:,} trials)" for text, count in machines.most_common(5)]
    if len(machines) > 5:
        said.append(f"{len(machines) - 5} more machines")
    finished = max((origin.finished for origin in origins), default="")
    return said, finished[:16].replace("T", " ") + " UTC" if finished else ""


def _machine_text(machine: dict[str, Any]) -> str:
    """The description of a machine, without its host name, which means nothing to other readers."""
    versions = [f"{name} {machine[name]}" for name in ("python", "torch", "numpy", "flipscope") if machine.get(name)]
    cores = [f"{machine['cores']} cores"] if machine.get("cores") else []
    parts = [str(machine[name]) for name in ("cpu", "system") if machine.get(name)]
    return ", ".join([*parts[:1], *cores, *parts[1:], *versions])


def write_figures(folder: Path, pages: Sequence[StudyPage], formats: Sequence[Any]) -> list[Path]:
    """Write each figure in each format and return the paths."""
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
