"""From what is stored of a study to what is shown of it, each step a function of the one before.

    read        the planned trials of a scale, and what is stored of them      Measurements
    tabulate    the study's table of their results                             Rows
    judge       the study's claims by that table, each with its look           Judged
    conclude    all of it                                                      Findings, which pages and figures show

A run takes the same path for its own trials, and so its verdicts rest on what is stored, not on what a worker sent.
"""

from __future__ import annotations

import dataclasses
import logging
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flipscope.basics.errors import RunError
from flipscope.basics.wording import count_text
from flipscope.figures import Figure
from flipscope.lab import registry
from flipscope.lab.data_sets import notes_on_others
from flipscope.lab.history import Data, Look, interim, look_at
from flipscope.lab.keys import is_ours, source_digest, trial_key
from flipscope.lab.rows import Rows
from flipscope.lab.store.store import Failure, Origin, Record, Store, origins
from flipscope.lab.study import Claim, Result, Study, Trial
from flipscope.lab.verdict import Judgement

Judgements = list[tuple[Claim, Judgement]]


# ---------------------------------------------------------------- read


@dataclass
class Measurements:
    """The planned trials of a study at a scale, and what is stored of them."""

    study: Study
    scale: str
    revision: int  # of the study
    trials: dict[str, Trial]  # by key
    records: dict[str, Record]
    damaged: set[str]  # keys of trials that cannot be used, and were not warned of yet

    @property
    def results(self) -> list[Result]:
        """The finished trials in their order."""
        done = [(trial, self.records[key]) for key, trial in self.trials.items() if key in self.records]
        return [Result(trial, record.outcome, record.seconds) for trial, record in done]

    @property
    def complete(self) -> bool:
        """Whether every trial is done."""
        return len(self.records) == len(self.trials)

    def read_new(self, store: Store, keys: Iterable[str]) -> None:
        """Read trials that were stored since, each once."""
        records, damaged = store.records([key for key in keys if key not in self.records])
        self.records |= records
        self.damaged |= damaged

    def warn_of_damage(self, so: str) -> None:
        """Warn, once per trial, about stored trials that cannot be used, and say what happens to them."""
        if self.damaged:
            message = "%d stored trials of %s are damaged, %s"
            logging.getLogger("flipscope").warning(message, len(self.damaged), self.study.name, so)
            self.damaged.clear()


LEFT_OUT = "and left out: run it again to measure them anew"  # what happens to damaged trials outside a run


def read(
    study: Study, scale: str, store: Store, trials: Sequence[Trial] | None = None, *, revision: int | None = None
) -> Measurements:
    """What is stored of a study at a scale, for its present revision and plan unless others are given."""
    planned = store.planned(study, scale) if trials is None else trials
    revision = study.revision if revision is None else revision
    by_key = {trial_key(study, trial, revision): trial for trial in planned}
    records, damaged = store.records(by_key)
    return Measurements(study, scale, revision, by_key, records, damaged)


# ---------------------------------------------------------------- tabulate


def tabulate(measurements: Measurements) -> Rows:
    """The table by which claims are judged: the study's summary of the finished trials."""
    results = measurements.results
    return Rows.of(measurements.study.summarise(results)) if results else Rows()


def stored_table(study: Study, scale: str, store: Store) -> Rows:
    """The same, read from a store; RunError if the study's own code fails."""
    measurements = read(study, scale, store)
    measurements.warn_of_damage(LEFT_OUT)
    try:
        return tabulate(measurements)
    except Exception as error:
        raise RunError(f"the table of {study.name} at scale {scale} cannot be made: {raised_by(error)}") from error


# ---------------------------------------------------------------- judge


@dataclass(frozen=True)
class Judged:
    """The claims of a study, judged by its table."""

    table: Rows
    judgements: Judgements
    looks: Sequence[Look] = ()  # all recorded looks at its claims
    errors: Sequence[str] = ()  # exceptions of the study's own code


def judge_so_far(measurements: Measurements) -> Judged:
    """The claims judged by a part of the planned trials, which decides nothing.

    A study may raise an exception for part of its trials; its claims are then undecided.
    """
    done, planned = len(measurements.results), len(measurements.trials)
    few = f"{done} of {planned} trials do not suffice"
    claims = measurements.study.claims
    try:
        table = tabulate(measurements)
    except Exception as error:
        return Judged(Rows(), _all_open(claims, f"{few} ({type(error).__name__}: {error})"))
    judgements: Judgements = []
    for claim in claims:
        try:
            judgement = claim.judged(table) if table else Judgement.without("no trial is done")
            judgements.append((claim, interim(judgement, done, planned)))
        except Exception as error:
            judgements.append((claim, Judgement.without(f"{few} ({type(error).__name__}: {error})")))
    return Judged(table, judgements)


def judge(measurements: Measurements, store: Store) -> Judged:
    """The claims judged by all planned trials, each new look recorded; by part of them if some are not done."""
    study = measurements.study
    scale = study.look_scale(measurements.scale)  # a larger sample is the next look at the same claim
    looks = _recorded(measurements, store)
    if not measurements.complete or not measurements.results:
        return dataclasses.replace(judge_so_far(measurements), looks=looks)
    try:
        table = tabulate(measurements)
    except Exception as error:
        why = f"the table cannot be made: {raised_by(error)}"
        return Judged(Rows(), _all_open(study.claims, why), looks, [why])
    data = _data(measurements, table)
    judgements: Judgements = []
    errors = []
    for claim in study.claims:
        new = None
        try:
            judgement, new = _look(claim, data, measurements, looks)
            while new is not None and store.writable:
                recorded = store.add_look(study.name, scale, new)
                looks = _recorded(measurements, store)
                if recorded:
                    break
                judgement, new = _look(claim, data, measurements, looks)  # another process has just recorded a look
        except _StudyError as error:
            errors.append(f"the judge of {claim.name!r} raised {error}")
            judgement = Judgement.without(f"its judge raised {error}")  # which is not a look
        judgements.append((claim, judgement))
    return Judged(table, judgements, looks, errors)


class _StudyError(Exception):
    """An exception of the study's own code."""


def _recorded(measurements: Measurements, store: Store) -> list[Look]:
    """The recorded looks at the study's claims."""
    study = measurements.study
    return [look for _, look in store.looks(study.name, study.look_scale(measurements.scale))]


def _all_open(claims: Sequence[Claim], why: str) -> Judgements:
    return [(claim, Judgement.without(why)) for claim in claims]


def _data(measurements: Measurements, whole: Rows) -> Data:
    """The outcomes of all trials, and the tables of some of them."""
    by_hash = {result.trial.hash: result for result in measurements.results}
    tables = {frozenset(by_hash): whole}

    def table(chosen: frozenset[str]) -> Rows:
        if chosen not in tables:
            results = [result for name, result in by_hash.items() if name in chosen]
            tables[chosen] = Rows.of(measurements.study.summarise(results))
        return tables[chosen]

    outcomes = {trial.hash: measurements.records[key].digest for key, trial in measurements.trials.items()}
    return Data(outcomes, table)


def _look(claim: Claim, data: Data, measurements: Measurements, looks: Sequence[Look]) -> tuple[Judgement, Look | None]:
    """The claim's judgement on every planned trial, and the look if it is a new one."""
    study = measurements.study
    try:
        return look_at(
            claim,
            data,
            [look for look in looks if look.claim == claim.name],
            declared=study.plan(measurements.scale).looks,
            withdrawn=study.withdrawn,
            revision=measurements.revision,
            drawn=study.sample_settings(measurements.scale),
        )
    except Exception as error:
        raise _StudyError(raised_by(error)) from error


def raised_by(error: BaseException) -> str:
    """An exception and its location, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}{where}"


# ---------------------------------------------------------------- conclude


@dataclass(frozen=True, repr=False)
class Findings:
    """What is known of a study at a scale: numbers of finished and failed trials, the table, the judged claims."""

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
    notes: Sequence[str] = ()  # on trials of other data sets, and of other versions of the study's file

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
        counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common()) or "none"
        return f"Findings({self.study.name}, {self.scale}: {self.done:,} of {self.trials:,} trials; claims: {counts})"

    def as_json(self) -> dict[str, Any]:
        """The findings as one JSON document."""
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
            "changes": [
                {"setting": name, "scale": before, "here": here} for name, (before, here) in self.changes.items()
            ],
            "errors": list(self.errors),
            "first_failure": self.first_failure,
        }


def conclude(
    measurements: Measurements,
    store: Store,
    *,
    reused: int | None = None,
    failed: int | None = None,
    seconds: float | None = None,
) -> Findings:
    """The findings from these measurements; the numbers are those of a run, if they come from one."""
    study, done = measurements.study, len(measurements.records)
    judged = judge(measurements, store)
    failures = failed_trials(measurements, store)
    contents = [trial.content() for trial in measurements.trials.values()]
    return Findings(
        study,
        measurements.scale,
        len(measurements.trials),
        done,
        len(failures) if failed is None else failed,
        done if reused is None else reused,
        sum(result.seconds for result in measurements.results) if seconds is None else seconds,
        judged.table,
        judged.judgements,
        judged.looks,
        list(measurements.trials.values()),
        origins(measurements.records.values()),
        judged.errors,
        next((lines[-1] for each in failures if (lines := each.traceback.strip().splitlines())), ""),
        [*notes_on_others(contents, store.data_sets(study.name)), *_other_versions(measurements)],
    )


def _other_versions(measurements: Measurements) -> list[str]:
    """A sentence on results that another version of the study's file measured; golden numbers watch our own studies."""
    study = measurements.study
    if is_ours(study):
        return []
    source = source_digest(study)
    count = sum(record.source not in ("", source) for record in measurements.records.values())
    again = f"{registry.repeat_command(study, measurements.scale)} --again"
    return (
        [f"{count_text(count, 'result')} measured by another version of the study's file: {again} measures anew."]
        if count
        else []
    )


def failed_trials(measurements: Measurements, store: Store) -> list[Failure]:
    """The planned trials that failed and are not done."""
    failures = store.failures(measurements.study.name, measurements.trials)
    return [failure for failure in failures if failure.key not in measurements.records]


def findings(
    study: Study, scale: str, store: Store, trials: Sequence[Trial] | None = None, *, revision: int | None = None
) -> Findings:
    """What is known of a study at a scale from a store, for its present revision and plan unless others are given."""
    measurements = read(study, scale, store, trials, revision=revision)
    measurements.warn_of_damage(LEFT_OUT)
    return conclude(measurements, store)


def _look_json(look: Look, study: Study) -> dict[str, Any]:
    """A recorded look with its numbers, as a JSON object."""
    numbers = {name: look.judgement[name] for name in ("verdict", "quantity", "measured", "low", "high", "limit")}
    about = {"claim": look.claim, "number": look.number, "exploratory": look.exploratory, "made": look.made}
    withdrawn = study.withdrawn.get(look.revision, "")
    return {**about, "confidence": 1 - look.error, **numbers, "revision": look.revision, "withdrawn": withdrawn}


def _claim_json(claim: Claim, judgement: Judgement) -> dict[str, Any]:
    """A claim with its verdict as a JSON object, the most important names first."""
    rest = judgement.as_json()
    first = {name: rest.pop(name) for name in ("measured", "low", "high", "verdict")}
    about = {name: getattr(claim, name) for name in ("source", "criterion", "exploratory", "asymptotic")}
    return {"claim": claim.name, "statement": claim.statement, **first, **rest, **about}
