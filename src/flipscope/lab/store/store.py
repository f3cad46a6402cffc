"""The store of a results folder: the outcome of every trial as soon as it is known, and the state of runs.

Rows are in one SQLite file, arrays in files beside it, named after their content (lab/store/arrays.py). A trial is done
when its row is committed, after its arrays are on the disk, so a process may die at any point.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import platform
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError, RunError
from flipscope.data.finding import in_named_folder
from flipscope.lab import data_sets
from flipscope.lab.context import DATABASE
from flipscope.lab.history import Look
from flipscope.lab.keys import code_version, trial_key
from flipscope.lab.machine import born
from flipscope.lab.machine import machine as this_machine
from flipscope.lab.store import listing, locks, outcomes, schema, tables
from flipscope.lab.store.arrays import PART, LostArrays, old_parts
from flipscope.lab.store.database import AMONG, Database, blocks
from flipscope.lab.study import Outcome, Result, Study, Trial, digest

SILENCE = 600.0  # seconds without a heartbeat after which a driver on another machine counts as dead
_TRIALS = ("results", "failures")
_ARRAYS = tables.COLUMNS["results"].index("arrays")
_WITH_ARRAYS = ("results", "variants")
_WITH_TRIALS = (*_TRIALS, "variants")  # tables from which a forgotten trial is removed


@dataclass(frozen=True)
class Tried:
    """A trial that was run, successfully or not."""

    key: str
    study: str
    trial: dict[str, Any]
    code: str
    seconds: float
    finished: str  # ISO 8601, UTC
    attempts: int


@dataclass(frozen=True)
class Record(Tried):
    """A done trial as it is stored."""

    outcome: dict[str, Any]
    machine: dict[str, Any]  # empty where its description is damaged
    digest: str  # of the outcome


@dataclass(frozen=True)
class Failure(Tried):
    """A failed trial with its traceback."""

    traceback: str


@dataclass(frozen=True)
class Origin:
    """A machine that measured finished trials."""

    machine: dict[str, Any]
    trials: int
    finished: str  # when the last of them was


@dataclass(frozen=True)
class RunState:
    """The progress of a run of a study, or its state when it ended."""

    id: int
    study: str
    scale: str
    code: str
    state: str  # "running", or what end_run said, or "interrupted" when its driver died
    total: int
    done: int
    failed: int
    started: str
    updated: str
    pid: int
    host: str
    command: str
    running: list[dict[str, Any]]  # trial, seconds, share of each trial that is being measured
    verdicts: list[dict[str, Any]]  # claim, verdict


@dataclass(frozen=True)
class Kept:
    """Counts of the stored results of one study for one version of its code."""

    study: str
    code: str
    done: int
    failed: int
    seconds: float
    size: int  # bytes of arrays and outcomes


@dataclass(frozen=True)
class Pruned:
    """Counts of what prune removed or would remove."""

    results: int
    failures: int
    files: int
    size: int  # bytes of the files


class Store(Database):
    """The results of a folder, for one thread; a context manager.

    A folder that is not writable can be read. Every disk error becomes an InputError of one sentence, and stored
    results stay. Damaged rows are treated as missing, with a warning.
    """

    # ---------------------------------------------------------------- trials

    def done(self, keys: Iterable[str]) -> set[str]:
        """The subset of keys whose trials are done."""
        return {row[0] for row in self._find("results", keys)}

    def records(self, keys: Iterable[str]) -> tuple[dict[str, Record], set[str]]:
        """The done trials with these keys, and the keys of those that were done but are to be measured again.

        Of the latter the row is damaged, or the array file missing or changed. Each row and file is read once.
        """
        found: dict[str, Record] = {}
        damaged = set()
        machines: dict[str, dict[str, Any]] | None = None
        for block in blocks(keys):
            for row in self._read(f"{tables.selected('results')} WHERE {AMONG}", json.dumps(block)):
                if not tables.intact("results", row):
                    damaged.add(row[0])
                    continue
                machines = self._machines() if machines is None else machines
                try:
                    found[row[0]] = self._record(row[:-1], machines)
                except LostArrays:
                    damaged.add(row[0])
        self._left_out |= {("results", key) for key in damaged}  # the caller reports them
        return found, damaged

    def _sound(self, row: Sequence[Any]) -> bool:
        """Whether a row of results is intact, and its arrays are."""
        arrays = row[_ARRAYS]
        return tables.intact("results", row) and (arrays is None or self.arrays.intact(arrays))

    def put(
        self,
        key: str,
        study: str,
        trial: Mapping[str, Any],
        code: str,
        outcome: Outcome,
        seconds: float,
        attempts: int = 1,
        *,
        machine: Mapping[str, Any] | None = None,
        again: bool = False,
    ) -> None:
        """Store the outcome of a trial, measured on this machine unless another is given; the trial is then done.

        A key is stored once: of a trial that is done already nothing changes, unless its arrays are damaged, or it was
        measured `again`: then this outcome takes the place of the earlier one.
        """
        document, arrays = outcomes.split(outcome)
        common = _common(key, study, trial, code, seconds, attempts)
        where = outcomes.encode(this_machine() if machine is None else machine, "machine")
        machine_row = (tables.document_id(where), where)
        name: str | None = None
        size = 0
        self._secure()
        if arrays and self.writable and (again or not self._kept(key)):
            with schema.said(self.path):
                name, size = self.arrays.write(arrays)
        with self._writing() as database:
            if again or not self._kept(key):
                if arrays and (name is None or not self.arrays.path(name).exists()):  # pruned in this very moment
                    name, size = self.arrays.write(arrays)
                row = (*common, document, name, size, machine_row[0])
                known = self._read(f"{tables.selected('machines')} WHERE id = ?", machine_row[0])
                if not any(tables.intact("machines", one) for one in known):
                    database.execute(tables.inserted("machines"), tables.sealed("machines", machine_row))
                database.execute(tables.inserted("results"), tables.sealed("results", row))
            database.execute("DELETE FROM failures WHERE key = ?", (key,))

    def _kept(self, key: str) -> bool:
        """Whether a trial is done and its row and arrays are intact."""
        return any(self._sound(row) for row in self._read(f"{tables.selected('results')} WHERE key = ?", key))

    def fail(
        self,
        key: str,
        study: str,
        trial: Mapping[str, Any],
        code: str,
        traceback: str,
        seconds: float,
        attempts: int = 1,
    ) -> None:
        """Store the failure of a trial, replacing an earlier one; does nothing if the trial is done."""
        common = _common(key, study, trial, code, seconds, attempts)
        text = traceback.encode(errors="backslashreplace").decode()
        with self._writing() as database:
            if not self._kept(key):
                database.execute(tables.inserted("failures"), tables.sealed("failures", (*common, text)))

    def confirm(self, keys: Iterable[str]) -> None:
        """Raise RunError unless a new connection finds these trials done: the user may have changed the files."""
        asked = set(keys)
        try:
            with Store(self._files.path.parent, create=False) as again:
                lost = asked - again.done(asked)
        except InputError as error:
            raise RunError(str(error)) from error
        if lost:
            raise RunError(
                f"{len(lost)} of {len(asked)} trials are not in {self.path} any more, which was changed while this "
                "process used it: run the same command again"
            )

    def get(self, key: str) -> Record | None:
        """The stored trial, or None; InputError if its arrays are missing or changed."""
        for row in self._find("results", [key]):
            return self._record(row, self._machines())
        return None

    def _record(self, row: Sequence[Any], machines: Mapping[str, dict[str, Any]]) -> Record:
        """The record of an intact row, with its arrays."""
        key, study, code, trial, seconds, finished, attempts, document, name, _, machine = row
        try:
            arrays = {} if name is None else self.arrays.read(name)
        except InputError as error:
            raise type(error)(
                f"{error}, and with it the outcome of trial {key[:12]}: run {study} again to measure it anew"
            ) from error
        return Record(
            key,
            study,
            outcomes.decode(trial),
            code,
            seconds,
            finished,
            attempts,
            outcomes.join(document, arrays),
            machines.get(machine, {}),
            tables.document_id(f"{document}\n{name or ''}"),
        )

    def _machines(self) -> dict[str, dict[str, Any]]:
        """The descriptions of all machines by id, without damaged ones."""
        return {id: outcomes.decode(document) for id, document in self._scan("machines")}

    def results(self, study: Study, trials: Sequence[Trial]) -> list[Result]:
        """The trials that are done with the study's present code, in their order."""
        code = code_version(study)
        by_key = {trial_key(study, trial, code): trial for trial in trials}
        machines = self._machines()
        records = (self._record(row, machines) for row in self._find("results", by_key))
        return [Result(by_key[record.key], record.outcome, record.seconds) for record in records]

    def data_sets(self, study: str) -> list[data_sets.Use]:
        """The data sets that the stored trials of a study name, the last used first."""
        named = "SELECT trial, finished FROM {} WHERE study = ? AND instr(trial, '@')"
        return data_sets.uses(row for table in _TRIALS for row in self._read(named.format(table), study))

    def planned(self, study: Study, scale: str) -> list[Trial]:
        """The trials of a scale, on the data sets that the stored trials of the study used last.

        Within `flipscope.data.finding.data_in`, they are on the data sets of that folder.
        """
        known = {} if in_named_folder() else data_sets.latest(self.data_sets(study.name))
        with data_sets.recorded(known):
            return study.checked_trials(scale)

    def failures(self, study: str | None = None, keys: Iterable[str] | None = None) -> list[Failure]:
        """The failed trials of a study or of all, in the order they failed; of these keys only, if given."""
        chosen = None if keys is None else set(keys)
        rows = [row for row in self._scan("failures", study) if chosen is None or row[0] in chosen]
        return [
            Failure(key, name, outcomes.decode(trial), code, seconds, finished, attempts, text)
            for key, name, code, trial, seconds, finished, attempts, text in sorted(rows, key=_when)
        ]

    # ---------------------------------------------------------------- looks

    def looks(self, study: str, scale: str | None = None) -> list[tuple[str, Look]]:
        """The looks at a study's claims, each with its scale, in the order they were made."""
        plans = {id: frozenset(outcomes.decode(document)) for id, document in self._scan("plans")}
        found = []
        for _, _, at, claim, number, exploratory, error, plan, data, revision, code, judgement, made in self._scan(
            "looks", study
        ):
            if scale is None or at == scale:
                trials = plans.get(plan, frozenset())
                judged = outcomes.decode(judgement)
                look = Look(claim, number, bool(exploratory), error, trials, data, revision, code, judged, made)
                found.append((at, look))
        return sorted(found, key=lambda each: each[1].made)

    def add_look(self, study: str, scale: str, look: Look) -> bool:
        """Record a look; False if another process has just recorded one with this number."""
        plan = outcomes.encode(sorted(look.trials), "trials")
        key = look_key(study, scale, look)
        judgement = outcomes.encode(look.judgement, "judgement")
        row = [key, study, scale, look.claim, look.number, int(look.exploratory), look.error]
        row += [tables.document_id(plan), look.data, look.revision, look.code, judgement, _now()]
        with self._writing() as database:
            if database.execute("SELECT 1 FROM looks WHERE key = ?", (key,)).fetchone():
                return look.exploratory  # of which the same may be there
            database.execute(tables.inserted("plans"), tables.sealed("plans", (tables.document_id(plan), plan)))
            database.execute(tables.inserted("looks"), tables.sealed("looks", row))
        return True

    # ---------------------------------------------------------------- tables

    def changing(self) -> AbstractContextManager[sqlite3.Connection]:
        """A transaction for changes of several tables: all are made or none."""
        return self._writing()

    def whole(self, keys: Iterable[str]) -> list[tuple[Any, ...]]:
        """The rows of finished trials with intact arrays."""
        return [row for row in self._find("results", keys) if row[_ARRAYS] is None or self.arrays.intact(row[_ARRAYS])]

    def stored(self, table: str) -> Iterator[tuple[Any, ...]]:
        """All intact rows of a table of the database, as they are."""
        return self._scan(table)

    def table(
        self, study: str | None = None, where: Sequence[listing.Condition] = (), *, failed: bool = False
    ) -> listing.Rows:
        """One flat row per finished trial, read lazily; with `failed` one per failed trial.

        Names are study, key, trial.*, outcome.* (numbers and texts), seconds, finished; of failures error (the last
        line of the traceback), traceback and attempts.
        """
        name = "failures" if failed else "results"
        flat = _failed_row if failed else _done_row
        fields = {field for condition in where for field in listing.candidates(condition[0])}
        known: dict[tuple[str, ...], tuple[str, ...]] = {}
        outlines = []
        for row in self._scan(name, study):
            key, order = row[0], (row[1], *_when(row))
            content = flat(row) if where else {}
            names = tuple(content)
            values = {field: content[field] for field in fields if field in content}
            outlines.append(listing.Outline(order, key, known.setdefault(names, names), values))
        outlines.sort(key=lambda outline: outline.order)
        keys = [outline.key for outline in listing.select(outlines, where)]
        return listing.Rows(keys, lambda wanted: map(flat, self._find(name, wanted)))

    def rows(self, study: str | None = None, where: Sequence[listing.Condition] = ()) -> list[listing.Row]:
        """The rows of `table`, all at once."""
        return list(self.table(study, where))

    def frame(self, study: str | None = None, where: Sequence[listing.Condition] = ()) -> Any:
        """The same rows as a pandas DataFrame."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise InputError("a data frame needs pandas: pip install 'flipscope[tables]'") from None
        rows = self.rows(study, where)
        return pandas.DataFrame(rows, columns=listing.columns(rows))

    def kept(self) -> list[Kept]:
        """Counts of the stored results of every study, for each version of its code."""
        found: dict[tuple[str, str], list[Any]] = {}
        for _, study, code, _, seconds, _, _, document, _, size, _ in self._scan("results"):
            entry = found.setdefault((study, code), [0, 0, 0.0, 0])
            entry[0] += 1
            entry[2] += seconds
            entry[3] += size + len(document)
        for _, study, code, _, seconds, *_ in self._scan("failures"):
            entry = found.setdefault((study, code), [0, 0, 0.0, 0])
            entry[1] += 1
            entry[2] += seconds
        return [Kept(*names, *counts) for names, counts in sorted(found.items())]

    def codes(self, study: str) -> dict[str, int]:
        """The number of results of a study for each version of its code."""
        return dict(self._read("SELECT code, count(*) FROM results WHERE study = ? GROUP BY code", study))

    def holds(self, study: str) -> bool:
        """Whether anything is stored of a study."""
        try:
            study.encode()
        except UnicodeEncodeError:  # of a name that was no Unicode on the command line
            return False
        return any(self._read(f"SELECT 1 FROM {table} WHERE study = ? LIMIT 1", study) for table in _TRIALS)

    def studies(self) -> list[str]:
        """The studies of which something is stored."""
        return sorted({row[1] for table in _TRIALS for row in self._scan(table)})

    def forget(self, keys: Iterable[str]) -> int:
        """Remove results and failures with these keys and return their number; prune removes their arrays."""
        listed = json.dumps(list(keys))
        with self._writing() as database:
            return self._removed(database, AMONG, listed)

    def forget_study(self, study: str, *, dry_run: bool = False) -> int:
        """Remove everything stored of a study, damaged or not; returns the number of trials."""
        if dry_run:
            counts = [self._read(f"SELECT count(*) FROM {table} WHERE study = ?", study)[0][0] for table in _TRIALS]
            return sum(counts)
        with self._writing() as database:
            return self._removed(database, "study = ?", study)

    @staticmethod
    def _removed(database: sqlite3.Connection, condition: str, value: str) -> int:
        """Remove the trials that satisfy a condition, with their variants; returns the number of trials."""
        counts = {
            table: database.execute(f"DELETE FROM {table} WHERE {condition}", (value,)).rowcount
            for table in _WITH_TRIALS
        }
        return sum(counts[table] for table in _TRIALS)

    def prune(self, *, stale: Callable[[str, str], bool] | None = None, dry_run: bool = False) -> Pruned:
        """Remove trials for which `stale(study, code)`, array files of no trial, and files never finished.

        With `dry_run` nothing is removed; the count is of what would be.
        """
        old = [kept for kept in self.kept() if stale is not None and stale(kept.study, kept.code)]
        chosen = json.dumps([[kept.study, kept.code] for kept in old])
        among = (
            "EXISTS (SELECT 1 FROM json_each(?) AS pair WHERE study = json_extract(pair.value, '$[0]') "
            "AND code = json_extract(pair.value, '$[1]'))"
        )
        if dry_run:
            rows = [
                row
                for table in _WITH_ARRAYS
                for row in self._read(f"SELECT DISTINCT arrays FROM {table} WHERE NOT {among}", chosen)
            ]
            files = self._unnamed({name for (name,) in rows})
            size = sum(map(_size, files))
        else:
            with self._writing() as database:
                self._removed(database, among, chosen)
            # Only when the rows are gone for good do their files go. New rows wait meanwhile: `put` looks for its
            # file again once it may write its row.
            with self._writing() as database:
                tables_of = (database.execute(f"SELECT DISTINCT arrays FROM {table}") for table in _WITH_ARRAYS)
                files = self._unnamed({name for rows in tables_of for (name,) in rows})
                size = sum(map(_size, files))
                for path in files:
                    path.unlink(missing_ok=True)
        return Pruned(sum(kept.done for kept in old), sum(kept.failed for kept in old), len(files), size)

    def _unnamed(self, named: set[str | None]) -> list[Path]:
        """The files that belong to no trial and are not being written."""
        unnamed = [self.arrays.path(name) for name in self.arrays.names() if name not in named]
        return [*unnamed, *self.arrays.leftovers(), *old_parts(self.folder, f".{DATABASE}.*{PART}*")]

    # ---------------------------------------------------------------- runs

    def driving(self, study: str) -> AbstractContextManager[None]:
        """Hold the lock to run a study in this folder; if it is being run, InputError names the process."""
        if not self.writable:
            raise InputError(f"{self.folder} cannot be written: use another --results")
        return locks.driving(self.folder, study)

    def begin_run(self, study: str, scale: str, code: str, total: int, command: str) -> int:
        """Record that this process runs a study; returns the number of the run."""
        now, pid = _now(), os.getpid()
        text = command.encode(errors="backslashreplace").decode()
        rest = [study, scale, code, "running", total, 0, 0, now, now, pid, born(pid) or "", platform.node(), text]
        with self._writing() as database:
            ((number,),) = database.execute("SELECT coalesce(max(id), 0) + 1 FROM runs")
            row = tables.sealed("runs", [number, *rest, "[]", "[]"])
            database.execute(tables.inserted("runs"), row)
        return int(number)

    def beat(
        self,
        run: int,
        *,
        done: int,
        failed: int,
        running: Sequence[Mapping[str, Any]] = (),
        verdicts: Sequence[Mapping[str, Any]] | None = None,
        state: str = "running",
    ) -> None:
        """Record the progress of a run and that its driver is alive; verdicts stay unless given."""
        changes: dict[str, object] = {"state": state, "done": done, "failed": failed, "updated": _now()}
        changes["running"] = outcomes.encode(list(running), "running")
        if verdicts is not None:
            changes["verdicts"] = outcomes.encode(list(verdicts), "verdicts")
        with self._writing() as database:
            for row in database.execute(f"{tables.selected('runs')} WHERE id = ?", (run,)).fetchall():
                if tables.intact("runs", row):  # a damaged one is not to look whole again
                    named = dict(zip(tables.COLUMNS["runs"], row[:-1], strict=True)) | changes
                    database.execute(tables.inserted("runs"), tables.sealed("runs", list(named.values())))

    def end_run(
        self,
        run: int,
        state: str,
        *,
        done: int,
        failed: int,
        verdicts: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Record how a run ended, such as "done" or "stopped"."""
        self.beat(run, done=done, failed=failed, verdicts=verdicts, state=state)

    def runs(self, study: str | None = None, latest: bool = True) -> list[RunState]:
        """The runs of a study or of all, oldest first; with `latest` only the last of each study.

        A run whose driver died is "interrupted".
        """
        found = {row[0]: row for row in self._scan("runs", study)}
        last = {row[1]: id for id, row in sorted(found.items())}
        return [_run_state(row) for id, row in sorted(found.items()) if not latest or last[row[1]] == id]


def look_key(study: str, scale: str, look: Look) -> str:
    """The key under which a look is stored."""
    return digest({"study": study, "scale": scale, "look": look.key})


def origins(records: Iterable[Record]) -> list[Origin]:
    """The machines that measured trials, the one with the most trials first."""
    finished: dict[str, list[str]] = {}
    machines: dict[str, dict[str, Any]] = {}
    for record in records:
        id = outcomes.encode(record.machine, "machine")
        machines[id] = record.machine
        finished.setdefault(id, []).append(record.finished)
    counted = sorted(finished.items(), key=lambda item: (-len(item[1]), min(item[1])))
    return [Origin(machines[id], len(moments), max(moments)) for id, moments in counted]


def _run_state(row: Sequence[Any]) -> RunState:
    named = dict(zip(tables.COLUMNS["runs"], row, strict=True))
    birth, running, verdicts = (named.pop(name) for name in ("born", "running", "verdicts"))
    found = RunState(**named, running=outcomes.decode(running), verdicts=outcomes.decode(verdicts))
    if found.state != "running":
        return found
    if found.host == platform.node():
        dead = born(found.pid) is None or (birth != "" and born(found.pid) != birth)
    else:
        dead = (datetime.now(UTC) - datetime.fromisoformat(found.updated)).total_seconds() > SILENCE
    return replace(found, state="interrupted", running=[]) if dead else found


def _done_row(row: Sequence[Any]) -> listing.Row:
    key, study, _, trial, seconds, finished, _, document, *_ = row
    fields = listing.flat(outcomes.decode(trial), outcomes.scalars(document))
    return {"study": study, "key": key, **fields, "seconds": seconds, "finished": finished}


def _failed_row(row: Sequence[Any]) -> listing.Row:
    key, study, _, trial, seconds, finished, attempts, text = row
    lines = text.strip().splitlines()
    return {
        "study": study,
        "key": key,
        **listing.flat(outcomes.decode(trial), {}),
        "error": lines[-1] if lines else "",
        "traceback": text,
        "attempts": attempts,
        "seconds": seconds,
        "finished": finished,
    }


def _when(row: Sequence[Any]) -> tuple[str, str]:
    """The sort key of rows by time, then by key."""
    return row[5], row[0]


def _common(
    key: str, study: str, trial: Mapping[str, Any], code: str, seconds: float, attempts: int
) -> tuple[str, str, str, str, float, str, int]:
    """The first columns of a result or a failure."""
    for name, value in (("key", key), ("study", study), ("code", code)):
        if not isinstance(value, str) or not value:
            raise InputError(f"{name}={value!r} is not a text")
    if not math.isfinite(seconds) or seconds < 0:
        raise InputError(f"seconds={seconds!r} is not a time")
    check_count("attempts", attempts)
    texts = (str(key), str(study), str(code), outcomes.encode(trial, "trial"))
    return *texts, float(seconds) + 0.0, _now(), int(attempts)  # SQLite has no negative zero


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
