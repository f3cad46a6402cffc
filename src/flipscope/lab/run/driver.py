"""Runs a study: measures trials that are not stored, stores each result as it arrives, and judges what is stored."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError, RunError
from flipscope.data.finding import data_folder, data_in, named_folder
from flipscope.lab import registry
from flipscope.lab.findings import (
    LEFT_OUT,
    Findings,
    Judgements,
    Measurements,
    conclude,
    failed_trials,
    judge_so_far,
    read,
)
from flipscope.lab.keys import source_digest
from flipscope.lab.run.events import Advanced, Event, Failed, Finished, Idle, Retried, Started
from flipscope.lab.run.runner import Job, Runner, open_runner
from flipscope.lab.store.store import Store
from flipscope.lab.study import Study, Trial

BEAT_SECONDS = 1.0
NEWS = 0.02  # share of the trials that must be new before the claims are judged again
JUDGING = 0.05  # largest share of the time spent judging during a run


@runtime_checkable
class Observer(Protocol):
    """The interface of objects that observe a running study."""

    def begin(self, study: Study, scale: str, total: int, reused: int, costs: Mapping[str, float]) -> None:
        """The run begins; `costs` are those of the trials to be measured, by key."""

    def event(self, event: Event) -> None:
        """An event occurred; a measured result is already stored."""

    def judged(self, judgements: Judgements) -> None:
        """The claims were judged by the results so far."""

    def finished(self, findings: Findings) -> None:
        """The run has finished."""


def run_study(
    study: Study,
    scale: str,
    store: Store,
    runner: Runner,
    *,
    observer: Observer | None = None,
    retry_failed: bool = True,
    limit: int | None = None,
    again: bool = False,
    command: str = "",
    trials: Sequence[Trial] | None = None,
) -> Findings:
    """Measure the trials of a scale that are not stored, `limit` of them at most, and judge the claims.

    The scale is one that the study declares or, by its name (`Study.scale_name`), one with changed settings.

    Stored results are never lost: the next call continues where this one was stopped. With `again`, stored trials are
    measured anew, the oldest first, and each outcome is replaced when the new one arrives. `trials` are the study's
    `checked_trials` of the scale, if the caller has made them already.
    """
    planned = study.checked_trials(scale) if trials is None else trials
    with store.driving(study.name):
        drive = _Drive(read(study, scale, store, planned), store, observer)
        jobs = drive.jobs(retry_failed=retry_failed, limit=limit, again=again)
        drive.begin(jobs, command)
        try:
            drive.follow(runner, jobs)
            findings = drive.conclude()
        except BaseException as error:
            try:
                drive.end("stopped" if isinstance(error, KeyboardInterrupt) else "failed")
            except RunError as lost:  # that the folder is lost matters most
                raise lost from error
            except InputError:  # of a full disk, which has been reported
                pass
            raise
        drive.end("done" if findings.complete else "incomplete", findings.judgements)
        if observer is not None:
            observer.finished(findings)
        return findings


@checked_arguments
def run(
    study: Study | str,
    scale: str = "laptop",
    *,
    settings: Mapping[str, Any] | None = None,
    seed: int | None = None,
    results: str | Path = "results",
    workers: int | None = None,
    limit: int | None = None,
    again: bool = False,
    data: str | Path | None = None,
    observer: Observer | None = None,
) -> Findings:
    """Run a study, given as an object or by name, as `flipscope run` does; stored trials are measured only with
    ``again``.

    ``settings`` changes settings of the scale by name, such as ``{"length": 14, "training.steps": 100}``, and ``seed``
    is the study's first seed; `flipscope studies NAME` lists the settings. ``workers`` is the number of processes
    (default: one per core; 0: this process), ``limit`` the largest number of trials to measure, ``data`` the folder of
    data sets (default: that of the environment variable FLIPSCOPE_DATA). The result has the table, each claim with its
    judgement, and `figures`, which a notebook shows.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = run("low-variance", "smoke", results=folder, workers=0, limit=1)
    >>> found.done, [judgement.verdict for _, judgement in found.judgements][:2]
    (1, ['undecided', 'undecided'])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = run("low-variance", "smoke", settings={"widths": (3,)}, results=folder, workers=0, limit=1)
    >>> found.scale, found.changes
    ('smoke+widths=3', {'widths': ((2, 4, 5), (3,))})
    """
    chosen = registry.find(study) if isinstance(study, str) else study
    scale = chosen.scale_name(scale, settings, seed)
    if limit is not None:
        check_count("limit", limit)
    if data is not None:
        data_folder(data)
    with data_in(data):
        trials = chosen.checked_trials(scale)
    with data_in(data), open_runner(workers) as runner, Store(results) as store:
        command = registry.repeat_command(chosen, scale)
        return run_study(
            chosen, scale, store, runner, observer=observer, limit=limit, again=again, command=command, trials=trials
        )


class _Drive:
    """A running study: its finished, failed and running trials."""

    def __init__(self, measurements: Measurements, store: Store, observer: Observer | None) -> None:
        self.measurements, self.store, self.observer = measurements, store, observer
        self.study, self.trials = measurements.study, measurements.trials
        self.done = set(measurements.records)
        self.failed = {failure.key for failure in failed_trials(measurements, store)}
        self.reused = len(self.done)
        self._source = source_digest(self.study)
        self._anew: set[str] = set()  # stored trials that are measured again
        self._number = 0  # of the run in the store
        self._started = time.monotonic()
        self._running: dict[str, tuple[float, float]] = {}  # start time, and the finished share
        self._last_beat = self._last_judging = self._started
        self._news = 0
        self._judging = 0.0  # duration of the last judging in seconds
        self._verdicts: list[dict[str, Any]] | None = None

    def jobs(self, *, retry_failed: bool, limit: int | None, again: bool = False) -> list[Job]:
        """The trials to measure; with `again`, stored ones too, the oldest first."""
        self.measurements.warn_of_damage("and are measured again")
        skipped = set() if again else self.done if retry_failed else self.done | self.failed
        keys = [key for key in self.trials if key not in skipped]
        if again:
            records = self.measurements.records
            keys.sort(key=lambda key: records[key].finished if key in records else "")
        folder = str(self.store.folder.resolve())
        jobs = [Job(key, self.study, self.trials[key], folder, named_folder()) for key in keys]
        return jobs if limit is None else jobs[: check_count("limit", limit)]

    def begin(self, jobs: Sequence[Job], command: str) -> None:
        """Announce the start to observers and the store; failed trials that are retried no longer count as failed."""
        scale, revision = self.measurements.scale, self.measurements.revision
        self._number = self.store.begin_run(self.study.name, scale, revision, len(self.trials), command)
        self.failed -= {job.key for job in jobs}
        self._anew = {job.key for job in jobs} & self.done
        self.done -= self._anew
        for key in self._anew:
            del self.measurements.records[key]
        self.reused = len(self.done)
        if self.observer is not None:
            costs = {job.key: job.trial.cost for job in jobs}
            self.observer.begin(self.study, scale, len(self.trials), self.reused, costs)
        self._beat()

    def follow(self, runner: Runner, jobs: Sequence[Job]) -> None:
        """Let the runner measure the trials, and store the results."""
        if not jobs:
            return
        with contextlib.closing(runner.run(jobs)) as events:  # closing it ends the workers
            for event in events:
                self._handle(event)
                if self.observer is not None and not isinstance(event, Idle):
                    self.observer.event(event)
                self._heartbeat()

    def _handle(self, event: Event) -> None:
        """Store the result of an event."""
        now = time.monotonic()
        match event:
            case Started(key):
                self._running[key] = (now, 0.0)
            case Advanced(key, share):
                self._running[key] = (self._running[key][0] if key in self._running else now, share)
            case Retried(key):
                self._running.pop(key, None)
            case Finished(key, outcome, seconds, attempts, machine):
                self._running.pop(key, None)
                self.store.put(
                    key,
                    self.study.name,
                    self.trials[key].content(),
                    self.measurements.revision,
                    outcome,
                    seconds,
                    attempts,
                    source=self._source,
                    machine=machine,
                    again=key in self._anew,
                )
                self.done.add(key)
                self._news += 1
            case Failed(key, text, seconds, attempts):
                self._running.pop(key, None)
                content, revision = self.trials[key].content(), self.measurements.revision
                self.store.fail(key, self.study.name, content, revision, text, seconds, attempts, source=self._source)
                self.failed.add(key)

    def _heartbeat(self) -> None:
        """From time to time, record that this process is alive, and judge the claims."""
        now = time.monotonic()
        if now - self._last_beat >= BEAT_SECONDS:
            self._beat()
            self._last_beat = now
        due = self._judging / JUDGING
        if self._news >= max(1, NEWS * len(self.trials)) and now - self._last_judging >= max(BEAT_SECONDS, due):
            self._judge_on_the_way()

    def _judge_on_the_way(self) -> None:
        start = time.monotonic()
        self._read_new()
        judgements = judge_so_far(self.measurements).judgements
        self._news, self._last_judging = 0, time.monotonic()
        self._judging = self._last_judging - start
        self._verdicts = _verdicts(judgements)
        if self.observer is not None:
            self.observer.judged(judgements)

    def _read_new(self) -> None:
        """Read what this run stored since the last time; damaged trials no longer count as finished."""
        self.measurements.read_new(self.store, self.done)
        self.done &= self.measurements.records.keys()

    def conclude(self) -> Findings:
        """The findings from all that is stored now."""
        self._read_new()
        self.measurements.warn_of_damage(LEFT_OUT)
        seconds = time.monotonic() - self._started
        return conclude(self.measurements, self.store, reused=self.reused, failed=len(self.failed), seconds=seconds)

    def _beat(self) -> None:
        now = time.monotonic()
        running = [
            {"trial": self.trials[key].content(), "seconds": now - since, "share": share}
            for key, (since, share) in self._running.items()
        ]
        done, failed = len(self.done), len(self.failed)
        self.store.beat(self._number, done=done, failed=failed, running=running, verdicts=self._verdicts)

    def end(self, state: str, judgements: Judgements | None = None) -> None:
        """Record how the run ended."""
        verdicts = self._verdicts if judgements is None else _verdicts(judgements)
        done, failed = len(self.done), len(self.failed)
        self.store.end_run(self._number, state, done=done, failed=failed, verdicts=verdicts)


def _verdicts(judgements: Judgements) -> list[dict[str, Any]]:
    return [
        {"claim": claim.name, "verdict": judgement.verdict, "standing": judgement.seen and judgement.seen.standing}
        for claim, judgement in judgements
    ]
