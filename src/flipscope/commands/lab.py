"""The commands of the laboratory: run, studies, status."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import shlex
import sys
from typing import Any

from flipscope.commands.cube import print_json
from flipscope.commands.live import Live
from flipscope.commands.progress import progress
from flipscope.cube.intervals import check_count
from flipscope.errors import InputError
from flipscope.lab import catalogue, registry
from flipscope.lab.driver import Run, run_study
from flipscope.lab.runner import Runner, open_runner
from flipscope.lab.store import RunState, Store
from flipscope.lab.study import Study
from flipscope.lab.version import code_version


def run_run(arguments: argparse.Namespace) -> int:
    """Run studies one after the other; 1 when a claim is contradicted or a trial failed."""
    if arguments.workers is not None:
        check_count("workers", arguments.workers, 0)
    if arguments.limit is not None:
        check_count("limit", arguments.limit)
    slurm = _slurm(arguments)
    tls = {name: path for name in ("ca", "cert", "key") if (path := getattr(arguments, f"tls_{name}")) is not None}
    studies = [registry.find(name) for name in arguments.study]
    for study in studies:
        study.checked_trials(arguments.scale)
    runs = []
    with (
        open_runner(arguments.workers, arguments.cluster, slurm, tls) as runner,
        Store(arguments.results) as store,
    ):
        for study in studies:
            run = watched(study, arguments.scale, store, runner, arguments.limit)
            runs.append(run)
            if not arguments.json:
                from flipscope.report.lab import run_page
                from flipscope.report.terminal import show

                show(run_page(run, arguments.results, arguments.verbose))
    if arguments.json:
        documents = [run.as_json() for run in runs]
        print_json(documents[0] if len(documents) == 1 else documents)
    verdicts = {judgement.verdict for run in runs for _, judgement in run.judgements}
    return 1 if "contradicted" in verdicts or any(run.failed for run in runs) else 0


def watched(study: Study, scale: str, store: Store, runner: Runner, limit: int | None = None) -> Run:
    """Run a study, with a view of how far it is on standard error."""
    # What trials print in this process must not get into the one document on standard output.
    with contextlib.redirect_stdout(sys.stderr), Live(sys.stderr) as watch:
        command = repeat_command(study, scale)
        return run_study(study, scale, store, runner, watch=watch, limit=limit, command=command)


def repeat_command(study: Study, scale: str) -> str:
    """What to type to get the same results again."""
    return shlex.join(["flipscope", "run", registry.address(study), "--scale", scale])


def _slurm(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """The options of a cluster to ask Slurm for, or None."""
    names = ("jobs", "queue", "account", "walltime", "memory", "cores")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    if arguments.slurm:
        return given
    if given:
        raise InputError(f"--{next(iter(given))} is for jobs of a cluster: add --slurm")
    return None


# ---------------------------------------------------------------- studies, status


def run_studies(arguments: argparse.Namespace) -> int:
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


def run_status(arguments: argparse.Namespace) -> int:
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


def _existing(folder: str) -> Store | None:
    """The store of a folder, if there is one."""
    from pathlib import Path

    from flipscope.lab.store import DATABASE

    return Store(folder, create=False) if (Path(folder) / DATABASE).exists() else None
