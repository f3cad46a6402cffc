"""flipscope run: run studies, measure all trials that are not stored yet, judge every claim."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from typing import Any

from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.cli.common import data_folder_option, print_json, results_folder
from flipscope.cli.live import Live
from flipscope.data.finding import data_folder, data_in
from flipscope.lab import registry
from flipscope.lab.findings import Findings
from flipscope.lab.run.driver import run_study
from flipscope.lab.run.runner import Runner, open_runner
from flipscope.lab.settings import split_change
from flipscope.lab.store.store import Store
from flipscope.lab.study import Study, Trial

EXAMPLES = """
  flipscope run random-init --scale smoke
  flipscope run random-init trained-profiles --workers 2
  flipscope run random-init --scale smoke --again
  flipscope run random-init --scale smoke --set length=14 --set strings=10,20
  flipscope run sparse-parity --set "seeds=0..9" --seed 100 --strict
  flipscope run zero-strings --scale paper --slurm --jobs 20 --queue cpu
  flipscope run my_package.my_study:STUDY --json
  flipscope run path/to/my_study.py --scale smoke
  flipscope run path/to/my_study.py --data ~/datasets
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "study", nargs="+", metavar="STUDY", help="by name (see flipscope studies), package.module:NAME, or file.py"
    )
    parser.add_argument(
        "--scale", default="laptop", metavar="SCALE", help="smoke, demo, laptop or paper (default laptop)"
    )
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change a setting of the scale (flipscope studies STUDY lists them): 14, 0.5, 4,6,8 or 0..9; repeatable",
    )
    parser.add_argument("--seed", type=int, metavar="S", help="first seed of the trials")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a claim is contradicted")
    parser.add_argument("--limit", type=int, metavar="K", help="measure at most K trials now; the next call continues")
    parser.add_argument(
        "--again", action="store_true", help="measure stored trials again too; each new result replaces the old one"
    )
    parser.add_argument("--verbose", action="store_true", help="show every number behind a verdict")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--workers", type=int, metavar="W", help="processes (default: one per core; 0: in this process)")
    where.add_argument("--cluster", metavar="ADDRESS", help="address of a Dask scheduler, such as tls://node1:8786")
    where.add_argument(
        "--slurm", action="store_true", help="start Dask workers as Slurm jobs (needs flipscope[cluster])"
    )
    for name, what in (
        ("ca", "certificate of the scheduler's authority"),
        ("cert", "our certificate"),
        ("key", "the key of our certificate"),
    ):
        parser.add_argument(f"--tls-{name}", metavar="FILE", help=f"with --cluster tls://...: {what} (PEM)")
    for name, what in (
        ("jobs", "with --slurm: number of jobs (default 1)"),
        ("queue", "with --slurm: partition"),
        ("account", "with --slurm: account"),
        ("walltime", "with --slurm: walltime of each job, such as 02:00:00"),
        ("memory", "with --slurm: memory of each job (default 4GiB)"),
        ("cores", "with --slurm: cores of each job, one worker each (default 1)"),
    ):
        parser.add_argument(f"--{name}", metavar="X", type=int if name in ("jobs", "cores") else str, help=what)
    data_folder_option(parser)
    results_folder(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run studies one after the other; 1 when a trial failed or a judge raised, and with --strict when a claim is
    contradicted."""
    if arguments.workers is not None:
        check_count("workers", arguments.workers, 0)
    if arguments.limit is not None:
        check_count("limit", arguments.limit)
    slurm = _slurm(arguments)
    tls = {name: path for name in ("ca", "cert", "key") if (path := getattr(arguments, f"tls_{name}")) is not None}
    studies = [registry.find(name) for name in arguments.study]
    settings = _settings(arguments.settings)
    scales = [study.scale_name(arguments.scale, settings, arguments.seed, from_text=True) for study in studies]
    # Reject invalid requests before anything is started.
    if arguments.data is not None:
        data_folder(arguments.data)
    with data_in(arguments.data):
        plans = [(study, scale, study.checked_trials(scale)) for study, scale in zip(studies, scales, strict=True)]
    runs = []
    with (
        data_in(arguments.data),
        open_runner(arguments.workers, arguments.cluster, slurm, tls) as runner,
        Store(arguments.results) as store,
    ):
        for study, scale, trials in plans:
            run = watched(study, scale, trials, store, runner, arguments.limit, arguments.again)
            runs.append(run)
            if not arguments.json:
                from flipscope.report.lab import run_page
                from flipscope.report.terminal import show

                show(run_page(run, arguments.results, arguments.verbose))
    if arguments.json:
        documents = [run.as_json() for run in runs]
        print_json(documents[0] if len(documents) == 1 else documents)
    verdicts = {judgement.verdict for run in runs for _, judgement in run.judgements}
    broken = any(run.failed or run.errors for run in runs)
    return 1 if broken or (arguments.strict and "contradicted" in verdicts) else 0


def _settings(given: Sequence[str]) -> dict[str, str]:
    """The changed settings by name, as texts."""
    found: dict[str, str] = {}
    for name, value in map(split_change, given):
        if found.setdefault(name, value) != value:
            raise InputError(f"--set gives {name} twice, as {found[name]} and as {value}")
    return found


def watched(
    study: Study,
    scale: str,
    trials: Sequence[Trial],
    store: Store,
    runner: Runner,
    limit: int | None = None,
    again: bool = False,
) -> Findings:
    """Run a study with the given trials and show its progress on standard error."""
    # Text that trials print in this process must not mix with the JSON document on standard output.
    with contextlib.redirect_stdout(sys.stderr), Live(sys.stderr) as live:
        command = registry.repeat_command(study, scale)
        return run_study(
            study, scale, store, runner, observer=live, limit=limit, again=again, command=command, trials=trials
        )


def _slurm(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """The options of the Slurm jobs, or None."""
    names = ("jobs", "queue", "account", "walltime", "memory", "cores")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    if arguments.slurm:
        return given
    if given:
        raise InputError(f"--{next(iter(given))} is for jobs of a cluster: add --slurm")
    return None
