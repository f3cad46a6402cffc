"""Runs a study: measures what is not yet stored, stores each result the moment it comes, and judges the claims."""

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
from flipscope.figures import Figure
from flipscope.lab import registry
from flipscope.lab.changes import outdated
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
JUDGING = 0.05  # share of the time that may go into judging on the way
LEFT_OUT = "and left out: run it again to measure them anew"  # what becomes of stored trials that are damaged


@dataclass(frozen=True, repr=False)
class Run:
    """What is known of a study at a scale: how many trials are done or failed, the table, the claims judged."""

    study: Study
    scale: str
    trials: int  # of the scale
    done: int
    failed: int
    reused: int  # done before this run
    seconds: float  # this run took; of what is only stored, the time its trials took together
    table: Rows
    judgements: Judgements
    looks: Sequence[Look] = ()  # all that were kept of its claims at this scale, also earlier ones
    planned: Sequence[Trial] = ()  # the trials of the scale
    origins: Sequence[Origin] = ()  # the machines that the done ones were measured on
    errors: Sequence[str] = ()  # what the study's own code raised when the trials were summarised or judged
    first_failure: str = ""  # the last line of what the first failed trial raised

    @property
    def complete(self) -> bool:
        """Whether every trial is done."""
        return self.done == self.trials

    @property
    def missing(self) -> int:
        """Trials that were not tried."""
        return self.trials - self.done - self.failed

    @property
    def changes(self) -> dict[str, tuple[Any, Any]]:
        """The settings that whoever ran it has changed: the study's own value, and the one that was run."""
        return self.study.changes(self.scale)

    @property
    def decided_first(self) -> Judgements:
        """The claims in the order of the study, but those that are undecided last."""
        return sorted(self.judgements, key=lambda judged: judged[1].verdict == "undecided")

    @property
    def notes(self) -> list[str]:
        """Which results an older flipscope has measured that measured otherwise."""
        versions: Counter[str] = Counter()
        for origin in self.origins:
            versions[str(origin.machine.get("flipscope", ""))] += origin.trials
        return outdated(self.study, versions)

    @property
    def provenance(self) -> list[str]:
        """How the numbers came about; a study need not make sense of a part of its trials."""
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
        """What the study draws of its table; none where a part of the trials is not enough to draw."""
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
            "notes": self.notes,
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
    """Whoever looks on while a study runs."""

    def begin(self, study: Study, scale: str, total: int, reused: int, costs: Mapping[str, float]) -> None:
        """It begins; the costs are those of the trials to be measured, by key."""

    def event(self, event: Event) -> None:
        """Something happened; what is measured is stored already."""

    def judged(self, judgements: Judgements) -> None:
        """The claims, judged by what is there."""

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

    What is stored stays whatever happens: the next call goes on where this one was stopped. With `again` stored trials
    are measured anew, the longest stored first, and an outcome is replaced when the new one is there. `trials` are the
    study's `checked_trials` of the scale, where the caller has made them already.
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
            drive.tell_of_damage(LEFT_OUT)  # of what this run stored itself
        except BaseException as error:
            try:
                drive.end("stopped" if isinstance(error, KeyboardInterrupt) else "failed")
            except RunError as lost:  # which says where the results are, whatever else happened
                raise lost from error
            except InputError:  # of a full disk, which is told already
                pass
            raise
        drive.end("done" if run.complete else "incomplete", run.judgements)
        store.confirm(drive.done)
        if observer is not None:
            observer.finished(run)
        return run


def repeat_command(study: Study, scale: str) -> str:
    """What to type to get the same results again."""
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
    observer: Observer | None = None,
) -> Run:
    """Run a study, given itself or by name, as `flipscope run` does: what is stored already is measured ``again`` only
    if that is asked for.

    ``settings`` changes settings of the scale by name, such as ``{"length": 14, "training.steps": 100}``, and ``seed``
    is where the study's seeds begin; `flipscope studies NAME` lists the settings.
    ``workers`` are processes (default: one per core; 0: this process), ``limit`` is how many trials to measure at
    most. The result has the table, each claim with its judgement, and its `figures` are data that a notebook shows.

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
    trials = chosen.checked_trials(scale)
    if limit is not None:
        check_count("limit", limit)
    with open_runner(workers) as runner, Store(results) as store:
        command = repeat_command(chosen, scale)
        return run_study(
            chosen, scale, store, runner, observer=observer, limit=limit, again=again, command=command, trials=trials
        )


def judged(
    study: Study, scale: str, store: Store, *, code: str | None = None, trials: Sequence[Trial] | None = None
) -> Run:
    """What the store says of a study at a scale: of its present code and plan, unless others are given."""
    plan = study.checked_trials(scale) if trials is None else trials
    drive = _Drive(study, scale, plan, store, None, code)
    drive.tell_of_damage(LEFT_OUT)
    return drive.run()


def judged_table(study: Study, scale: str, store: Store) -> Rows:
    """The table that claims are judged by: what `summarise` makes of the trials of a scale that are done."""
    drive = _Drive(study, scale, study.checked_trials(scale), store, None)
    drive.tell_of_damage(LEFT_OUT)
    try:
        return Rows.of(study.summarise(drive.results()))
    except Exception as error:
        raise RunError(f"the table of {study.name} at scale {scale} cannot be made: {raised_by(error)}") from error


class _Drive:
    """A study on its way: which of its trials are done, failed, running."""

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
        self._records: dict[str, Record]  # of the trials that are done, each read once
        self._records, self.damaged = store.records(self.trials)
        self._looks: list[Look] | None = None  # that are kept of its claims, once they were read
        self.done = set(self._records)
        self.failed = {failure.key for failure in store.failures(study.name, self.trials)} - self.done
        self.reused = len(self.done)
        self._anew: set[str] = set()  # trials that are stored and measured again
        self.number: int | None = None
        self.started = time.monotonic()
        self._running: dict[str, tuple[float, float]] = {}  # since when, and the share that is done
        self._last_beat = self._last_judging = self.started
        self._news = 0
        self._judging = 0.0  # seconds that judging took the last time
        self._verdicts: list[dict[str, Any]] | None = None
        self._errors: list[str] = []  # what the study's own code raised at the last judging

    def _read(self) -> None:
        """Read the trials that this run has stored since the last time; what is damaged is not done any more."""
        new = [key for key in self.trials if key in self.done and key not in self._records]
        found, damaged = self.store.records(new)
        self._records |= found
        self.damaged |= damaged
        self.done -= damaged

    def jobs(self, *, retry_failed: bool, limit: int | None, again: bool = False) -> list[Job]:
        """What is to be measured, the longest stored first where stored trials are measured `again`."""
        self.tell_of_damage("and are measured again")
        skipped = set() if again else self.done if retry_failed else self.done | self.failed
        keys = [key for key in self.trials if key not in skipped]
        if again:
            keys.sort(key=lambda key: self._records[key].finished if key in self._records else "")
        folder = str(self.store.folder.resolve())
        jobs = [Job(key, self.study, self.trials[key], folder) for key in keys]
        return jobs if limit is None else jobs[: check_count("limit", limit)]

    def tell_of_damage(self, so: str) -> None:
        """Say how many stored trials cannot be used, if any, and what becomes of them; once of each."""
        if self.damaged:
            logging.getLogger("flipscope").warning(
                "%d stored trials of %s are damaged or have lost their arrays, %s",
                len(self.damaged),
                self.study.name,
                so,
            )
            self.damaged.clear()

    def begin(self, number: int, jobs: Sequence[Job]) -> None:
        """Tell everyone that it begins; what failed before and is tried again has not failed yet."""
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
        """Let the trials be measured, and store what comes."""
        if not jobs:
            return
        with contextlib.closing(runner.run(jobs)) as events:  # which ends the workers, whatever happens
            for event in events:
                self._handle(event)
                if self.observer is not None and not isinstance(event, Idle):
                    self.observer.event(event)
                self._heartbeat()

    def _handle(self, event: Event) -> None:
        """Store what happened."""
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
        """Now and then: say that this process lives, and what the claims look like."""
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
        """Write down how it ended."""
        assert self.number is not None
        verdicts = self._verdicts if judgements is None else _verdicts(judgements)
        self.store.end_run(self.number, state, done=len(self.done), failed=len(self.failed), verdicts=verdicts)

    def run(self) -> Run:
        """What is known now."""
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
        )

    def _first_failure(self) -> str:
        """The last line of what the first failed trial raised."""
        failures = self.store.failures(self.study.name, self.failed) if self.failed else []
        return next((lines[-1] for each in failures if (lines := each.traceback.strip().splitlines())), "")

    def results(self) -> list[Result]:
        """The trials that are done, in their order."""
        done = [(trial, self._records[key]) for key, trial in self.trials.items() if key in self._records]
        return [Result(trial, record.outcome, record.seconds) for trial, record in done]

    def _summary(self, *, final: bool) -> tuple[Rows, Judgements, float]:
        """The table of what is done, the claims judged by it (on every trial: only if `final`), and the seconds spent.

        A study need not make sense of a part of its trials: what it raises then leaves its claims undecided.
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
        """The claim judged by a part of its trials, of which a judge need not make sense."""
        if not table:
            return interim(Judgement.without("no trial is done"), done, of)
        try:
            return interim(claim.judged(table), done, of)
        except Exception as error:
            return Judgement.without(f"{done} of {of} trials do not suffice ({type(error).__name__}: {error})")

    def _look(self, results: Sequence[Result], whole: Rows) -> Judgements:
        """The claims, judged on every planned trial; each new look is kept."""
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
        """The claim judged; where its judge raises it is undecided, which is no look and leaves the others alone."""
        try:
            judgement, new = look_at(
                claim,
                data,
                [look for look in kept if look.claim in (claim.name, *claim.formerly)],
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
        return self._look_at(claim, data, self._kept_looks())  # another process has just made a look


def raised_by(error: BaseException) -> str:
    """What was raised, and where, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}{where}"


def _verdicts(judgements: Judgements) -> list[dict[str, Any]]:
    return [
        {"claim": claim.name, "verdict": judgement.verdict, "standing": judgement.seen and judgement.seen.standing}
        for claim, judgement in judgements
    ]


def _look_json(look: Look, study: Study) -> dict[str, Any]:
    """A look that was kept, with the numbers it rested on."""
    told = {name: look.judgement[name] for name in ("verdict", "quantity", "measured", "low", "high", "limit")}
    about = {"claim": look.claim, "number": look.number, "exploratory": look.exploratory, "made": look.made}
    withdrawn = study.withdrawn.get(look.revision, "")
    return {**about, "confidence": 1 - look.error, **told, "revision": look.revision, "withdrawn": withdrawn}


def _claim_json(claim: Claim, judgement: Judgement) -> dict[str, Any]:
    """A claim with its verdict, the names that every reader expects first."""
    told = judgement.as_json()
    first = {name: told.pop(name) for name in ("measured", "low", "high", "verdict")}
    names = ("source", "criterion", "exploratory", "asymptotic")
    about = {name: getattr(claim, name) for name in names}
    return {"claim": claim.name, "statement": claim.statement, **first, **told, **about}
