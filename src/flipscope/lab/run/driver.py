"""Runs a study: measures trials that are not stored, stores each result as it arrives, and judges the claims."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import shlex
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError, RunError
from flipscope.data.finding import data_folder, data_in, named_folder
from flipscope.figures import Figure
from flipscope.lab import registry
from flipscope.lab.data_sets import notes_on_others
from flipscope.lab.history import Data, Look, interim, look_at
from flipscope.lab.keys import code_version, trial_key
from flipscope.lab.rows import Rows
from flipscope.lab.run.events import Advanced, Event, Failed, Finished, Idle, Retried, Started
from flipscope.lab.run.runner import Job, Runner, open_runner
from flipscope.lab.settings import split_name
from flipscope.lab.store.store import Origin, Record, Store, origins
from flipscope.lab.study import Claim, Result, Study, Trial
from flipscope.lab.verdict import Judgement

Judgements = list[tuple[Claim, Judgement]]

BEAT_SECONDS = 1.0
NEWS = 0.02  # share of the trials that must be new before the claims are judged again
JUDGING = 0.05  # largest share of the time spent judging during a run
LEFT_OUT = "and left out: run it again to measure them anew"  # end of the message about damaged trials


@dataclass(frozen=True, repr=False)
class Run:
    """The state of a study at a scale: numbers of finished and failed trials, the table, the judged claims."""

    study: Study
    scale: str
    trials: int  # of the scale
    done: int
    failed: int
    reused: int  # done before this run
    seconds: float  # duration of this run; for stored results, the total duration of the trials
    table: Rows
    judgements: Judgements
    looks: Sequence[Look] = ()  # all recorded looks at its claims at this scale
    planned: Sequence[Trial] = ()  # the trials of the scale
    origins: Sequence[Origin] = ()  # the machines that measured the finished trials
    errors: Sequence[str] = ()  # exceptions of the study's own code when summarising or judging
    first_failure: str = ""  # the last line of what the first failed trial raised
    notes: Sequence[str] = ()  # on stored trials of other data sets of the same names

    @property
    def complete(self) -> bool:
        """Whether every trial is done."""
        return self.done == self.trials

    @property
    def missing(self) -> int:
        """The number of trials that were not attempted."""
        return self.trials - self.done - self.failed

    @property
    def changes(self) -> dict[str, tuple[Any, Any]]:
        """The settings changed by the user: the study's value and the changed one."""
        return self.study.changes(self.scale)

    @property
    def decided_first(self) -> Judgements:
        """The claims in the order of the study, undecided ones last."""
        return sorted(self.judgements, key=lambda judged: judged[1].verdict == "undecided")

    @property
    def provenance(self) -> list[str]:
        """How the numbers were computed; empty if the study cannot tell from part of its trials."""
        if not self.table:
            return []
        try:
            return list(self.study.provenance(self.table))
        except Exception:
            if self.complete:
                raise
            return []

    @property
    def figures(self) -> list[Figure]:
        """The study's figures; none if part of the trials is not enough to draw them."""
        if not self.table:
            return []
        try:
            return list(self.study.draw(self.table))
        except Exception:
            if self.complete:
                raise
            return []

    def __repr__(self) -> str:
        verdicts = Counter(judgement.verdict for _, judgement in self.judgements)
        said = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common()) or "none"
        return f"Run({self.study.name}, {self.scale}: {self.done:,} of {self.trials:,} trials; claims: {said})"

    def as_json(self) -> dict[str, Any]:
        """The run as one JSON document."""
        return {
            "study": self.study.name,
            "scale": self.scale,
            "trials": self.trials,
            "failed": self.failed,
            "seconds": self.seconds,
            "claims": [_claim_json(claim, judgement) for claim, judgement in self.judgements],
            "done": self.done,
            "reused": self.reused,
            "complete": self.complete,
            "provenance": self.provenance,
            "notes": list(self.notes),
            "deviations": [dataclasses.asdict(deviation) for deviation in self.study.deviations],
            "differences": [
                {"setting": name, "paper": there, "here": here}
                for name, there, here in self.study.differences(self.scale)
            ],
            "looks": [_look_json(look, self.study) for look in self.looks],
            "changes": [{"setting": name, "scale": own, "here": here} for name, (own, here) in self.changes.items()],
            "errors": list(self.errors),
            "first_failure": self.first_failure,
        }


@runtime_checkable
class Observer(Protocol):
    """The interface of objects that observe a running study."""

    def begin(self, study: Study, scale: str, total: int, reused: int, costs: Mapping[str, float]) -> None:
        """The run begins; `costs` are those of the trials to be measured, by key."""

    def event(self, event: Event) -> None:
        """An event occurred; a measured result is already stored."""

    def judged(self, judgements: Judgements) -> None:
        """The claims were judged by the results so far."""

    def finished(self, run: Run) -> None:
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
) -> Run:
    """Measure the trials of a scale that are not stored, `limit` of them at most, and judge the claims.

    The scale is one that the study declares or, by its name (`Study.scale_name`), one with changed settings.

    Stored results are never lost: the next call continues where this one was stopped. With `again`, stored trials are
    measured anew, the oldest first, and each outcome is replaced when the new one arrives. `trials` are the study's
    `checked_trials` of the scale, if the caller has made them already.
    """
    planned = study.checked_trials(scale) if trials is None else trials
    with store.driving(study.name):
        drive = _Drive(study, scale, planned, store, observer)
        jobs = drive.jobs(retry_failed=retry_failed, limit=limit, again=again)
        number = store.begin_run(study.name, scale, drive.code, len(drive.trials), command)
        try:
            drive.begin(number, jobs)
            drive.follow(runner, jobs)
            run = drive.run()
            drive.tell_of_damage(LEFT_OUT)  # of results stored by this run
        except BaseException as error:
            try:
                drive.end("stopped" if isinstance(error, KeyboardInterrupt) else "failed")
            except RunError as lost:  # that the folder is lost matters most
                raise lost from error
            except InputError:  # of a full disk, which has been reported
                pass
            raise
        drive.end("done" if run.complete else "incomplete", run.judgements)
        if observer is not None:
            observer.finished(run)
        return run


def repeat_command(study: Study, scale: str) -> str:
    """The command that repeats the run."""
    base, changes = split_name(scale)
    changed = [part for change in changes for part in ("--set", change)]
    return shlex.join(["flipscope", "run", registry.address(study), "--scale", base, *changed])


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
) -> Run:
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
        command = repeat_command(chosen, scale)
        return run_study(
            chosen, scale, store, runner, observer=observer, limit=limit, again=again, command=command, trials=trials
        )


def judged(
    study: Study, scale: str, store: Store, *, code: str | None = None, trials: Sequence[Trial] | None = None
) -> Run:
    """The state of a study at a scale from the store, for its present code and plan unless others are given."""
    plan = store.planned(study, scale) if trials is None else trials
    drive = _Drive(study, scale, plan, store, None, code)
    drive.tell_of_damage(LEFT_OUT)
    return drive.run()


def judged_table(study: Study, scale: str, store: Store) -> Rows:
    """The table by which claims are judged: `summarise` of the finished trials of a scale."""
    drive = _Drive(study, scale, store.planned(study, scale), store, None)
    drive.tell_of_damage(LEFT_OUT)
    try:
        return Rows.of(study.summarise(drive.results()))
    except Exception as error:
        raise RunError(f"the table of {study.name} at scale {scale} cannot be made: {raised_by(error)}") from error


class _Drive:
    """A running study: its finished, failed and running trials."""

    def __init__(
        self,
        study: Study,
        scale: str,
        trials: Sequence[Trial],
        store: Store,
        observer: Observer | None,
        code: str | None = None,
    ) -> None:
        self.study, self.scale, self.store, self.observer = study, scale, store, observer
        self._look_scale = study.look_scale(scale)  # a larger sample is the next look at the same claim
        self.code = code_version(study) if code is None else code
        self.trials: dict[str, Trial] = {trial_key(study, trial, self.code): trial for trial in trials}
        self._records: dict[str, Record]  # records of finished trials, each read once
        self._records, self.damaged = store.records(self.trials)
        self._looks: list[Look] | None = None  # recorded looks at its claims, once read
        self.done = set(self._records)
        self.failed = {failure.key for failure in store.failures(study.name, self.trials)} - self.done
        self.reused = len(self.done)
        self._anew: set[str] = set()  # stored trials that are measured again
        self.number: int | None = None
        self.started = time.monotonic()
        self._running: dict[str, tuple[float, float]] = {}  # start time, and the finished share
        self._last_beat = self._last_judging = self.started
        self._news = 0
        self._judging = 0.0  # duration of the last judging in seconds
        self._verdicts: list[dict[str, Any]] | None = None
        self._errors: list[str] = []  # exceptions of the study's own code at the last judging

    def _read(self) -> None:
        """Read the trials stored by this run since the last time; damaged ones no longer count as finished."""
        new = [key for key in self.trials if key in self.done and key not in self._records]
        found, damaged = self.store.records(new)
        self._records |= found
        self.damaged |= damaged
        self.done -= damaged

    def jobs(self, *, retry_failed: bool, limit: int | None, again: bool = False) -> list[Job]:
        """The trials to measure; with `again`, stored ones too, the oldest first."""
        self.tell_of_damage("and are measured again")
        skipped = set() if again else self.done if retry_failed else self.done | self.failed
        keys = [key for key in self.trials if key not in skipped]
        if again:
            keys.sort(key=lambda key: self._records[key].finished if key in self._records else "")
        folder = str(self.store.folder.resolve())
        jobs = [Job(key, self.study, self.trials[key], folder, named_folder()) for key in keys]
        return jobs if limit is None else jobs[: check_count("limit", limit)]

    def tell_of_damage(self, so: str) -> None:
        """Warn, once per trial, about stored trials that cannot be used, and say what happens to them."""
        if self.damaged:
            logging.getLogger("flipscope").warning(
                "%d stored trials of %s are damaged, %s",
                len(self.damaged),
                self.study.name,
                so,
            )
            self.damaged.clear()

    def begin(self, number: int, jobs: Sequence[Job]) -> None:
        """Announce the start to observers and the store; failed trials that are retried no longer count as failed."""
        self.number = number
        self.failed -= {job.key for job in jobs}
        self._anew = {job.key for job in jobs} & self.done
        self.done -= self._anew
        for key in self._anew:
            del self._records[key]
        self.reused = len(self.done)
        if self.observer is not None:
            costs = {job.key: job.trial.cost for job in jobs}
            self.observer.begin(self.study, self.scale, len(self.trials), self.reused, costs)
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
                content, again = self.trials[key].content(), key in self._anew
                self.store.put(
                    key, self.study.name, content, self.code, outcome, seconds, attempts, machine=machine, again=again
                )
                self.done.add(key)
                self._news += 1
            case Failed(key, text, seconds, attempts):
                self._running.pop(key, None)
                content = self.trials[key].content()
                self.store.fail(key, self.study.name, content, self.code, text, seconds, attempts)
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
        judgements = self._summary(final=False)[1]
        self._news, self._last_judging = 0, time.monotonic()
        self._judging = self._last_judging - start
        self._verdicts = _verdicts(judgements)
        if self.observer is not None:
            self.observer.judged(judgements)

    def _beat(self) -> None:
        assert self.number is not None
        now = time.monotonic()
        running = [
            {"trial": self.trials[key].content(), "seconds": now - since, "share": share}
            for key, (since, share) in self._running.items()
        ]
        self.store.beat(
            self.number, done=len(self.done), failed=len(self.failed), running=running, verdicts=self._verdicts
        )

    def end(self, state: str, judgements: Judgements | None = None) -> None:
        """Record how the run ended."""
        assert self.number is not None
        verdicts = self._verdicts if judgements is None else _verdicts(judgements)
        self.store.end_run(self.number, state, done=len(self.done), failed=len(self.failed), verdicts=verdicts)

    def run(self) -> Run:
        """The current state as a `Run`."""
        table, judgements, spent = self._summary(final=True)
        return Run(
            self.study,
            self.scale,
            len(self.trials),
            len(self.done),
            len(self.failed),
            self.reused,
            spent if self.number is None else time.monotonic() - self.started,
            table,
            judgements,
            self._kept_looks(),
            list(self.trials.values()),
            origins(self._records.values()),
            list(self._errors),
            self._first_failure(),
            self._notes(),
        )

    def _notes(self) -> list[str]:
        """Notes on stored trials of the study on other data sets of the same names."""
        return notes_on_others(
            [trial.content() for trial in self.trials.values()], self.store.data_sets(self.study.name)
        )

    def _first_failure(self) -> str:
        """The last line of what the first failed trial raised."""
        failures = self.store.failures(self.study.name, self.failed) if self.failed else []
        return next((lines[-1] for each in failures if (lines := each.traceback.strip().splitlines())), "")

    def results(self) -> list[Result]:
        """The finished trials in their order."""
        done = [(trial, self._records[key]) for key, trial in self.trials.items() if key in self._records]
        return [Result(trial, record.outcome, record.seconds) for trial, record in done]

    def _summary(self, *, final: bool) -> tuple[Rows, Judgements, float]:
        """The table of finished trials, the claims judged by it (as looks only if `final`), and the seconds spent.

        A study may raise an exception for part of its trials; its claims are then undecided.
        """
        self._read()
        results = self.results()
        complete = final and len(results) == len(self.trials)
        spent = sum(result.seconds for result in results)
        self._errors = []
        try:
            table = Rows.of(self.study.summarise(results)) if results else Rows()
        except Exception as error:
            if complete:
                self._errors.append(f"the table cannot be made: {raised_by(error)}")
            reason = f"{len(results)} of {len(self.trials)} trials do not suffice ({type(error).__name__}: {error})"
            why = self._errors[0] if complete else reason
            return Rows(), [(claim, Judgement.without(why)) for claim in self.study.claims], spent
        if complete and results:
            return table, self._look(results, table), spent
        part = (len(results), len(self.trials))
        return table, [(claim, self._so_far(claim, table, *part)) for claim in self.study.claims], spent

    def _so_far(self, claim: Claim, table: Rows, done: int, of: int) -> Judgement:
        """The claim judged by part of its trials; a judge that raises an exception leaves it undecided."""
        if not table:
            return interim(Judgement.without("no trial is done"), done, of)
        try:
            return interim(claim.judged(table), done, of)
        except Exception as error:
            return Judgement.without(f"{done} of {of} trials do not suffice ({type(error).__name__}: {error})")

    def _look(self, results: Sequence[Result], whole: Rows) -> Judgements:
        """The claims judged on every planned trial; each new look is recorded."""
        by_hash = {result.trial.hash: result for result in results}
        tables = {frozenset(by_hash): whole}

        def table(chosen: frozenset[str]) -> Rows:
            if chosen not in tables:
                own = [result for name, result in by_hash.items() if name in chosen]
                tables[chosen] = Rows.of(self.study.summarise(own))
            return tables[chosen]

        data = Data({trial.hash: self._records[key].digest for key, trial in self.trials.items()}, table)
        return [(claim, self._look_at(claim, data, self._kept_looks())) for claim in self.study.claims]

    def _kept_looks(self) -> list[Look]:
        if self._looks is None:
            self._looks = [look for _, look in self.store.looks(self.study.name, self._look_scale)]
        return self._looks

    def _look_at(self, claim: Claim, data: Data, kept: list[Look]) -> Judgement:
        """The claim's judgement; if its judge raises an exception it is undecided, which is not a look."""
        try:
            judgement, new = look_at(
                claim,
                data,
                [look for look in kept if look.claim == claim.name],
                declared=self.study.plan(self.scale).looks,
                withdrawn=self.study.withdrawn,
                revision=self.study.revision,
                code=self.code,
            )
        except Exception as error:
            self._errors.append(f"the judge of {claim.name!r} raised {raised_by(error)}")
            return Judgement.without(f"its judge raised {raised_by(error)}")
        if new is None or not self.store.writable:
            return judgement
        self._looks = None  # there is one more now
        if self.store.add_look(self.study.name, self._look_scale, new):
            return judgement
        return self._look_at(claim, data, self._kept_looks())  # another process has just recorded a look


def raised_by(error: BaseException) -> str:
    """An exception and its location, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}{where}"


def _verdicts(judgements: Judgements) -> list[dict[str, Any]]:
    return [
        {"claim": claim.name, "verdict": judgement.verdict, "standing": judgement.seen and judgement.seen.standing}
        for claim, judgement in judgements
    ]


def _look_json(look: Look, study: Study) -> dict[str, Any]:
    """A recorded look with its numbers, as a JSON object."""
    told = {name: look.judgement[name] for name in ("verdict", "quantity", "measured", "low", "high", "limit")}
    about = {"claim": look.claim, "number": look.number, "exploratory": look.exploratory, "made": look.made}
    withdrawn = study.withdrawn.get(look.revision, "")
    return {**about, "confidence": 1 - look.error, **told, "revision": look.revision, "withdrawn": withdrawn}


def _claim_json(claim: Claim, judgement: Judgement) -> dict[str, Any]:
    """A claim with its verdict as a JSON object, the most important names first."""
    told = judgement.as_json()
    first = {name: told.pop(name) for name in ("measured", "low", "high", "verdict")}
    names = ("source", "criterion", "exploratory", "asymptotic")
    about = {name: getattr(claim, name) for name in names}
    return {"claim": claim.name, "statement": claim.statement, **first, **told, **about}
