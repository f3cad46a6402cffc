"""The store of a results folder: the outcome of every trial as soon as it is known, looks at claims, states of runs.

A trial is done when its row is committed, so a process may die at any point.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import platform
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.data.finding import in_named_folder
from flipscope.lab import data_sets
from flipscope.lab.history import Look
from flipscope.lab.machine import born
from flipscope.lab.machine import machine as this_machine
from flipscope.lab.store import listing, locks, outcomes
from flipscope.lab.store.database import Database, Row, digest_of, intact
from flipscope.lab.study import NAME, Outcome, Study, Trial, digest

SILENCE = 600.0  # seconds without a heartbeat after which a driver on another machine counts as dead
_TRIALS = ("results", "failures")
_UNUSED = """
    SELECT digest FROM contents EXCEPT
    SELECT arrays FROM results EXCEPT SELECT machine FROM results EXCEPT
    SELECT arrays FROM variants EXCEPT SELECT machine FROM variants EXCEPT SELECT trials FROM looks
"""


@dataclass(frozen=True)
class Tried:
    """A trial that was run, successfully or not."""

    key: str
    study: str
    trial: dict[str, Any]
    revision: int  # of the study
    source: str  # digest of the study's file
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
    revision: int
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
class Stored:
    """Counts of the stored results of one study and revision."""

    study: str
    revision: int
    done: int
    failed: int
    seconds: float
    size: int  # bytes of arrays and outcomes


@dataclass(frozen=True)
class Pruned:
    """Counts of what prune removed or would remove."""

    results: int
    failures: int
    size: int  # bytes of outcomes and arrays


class Store(Database):
    """The results of a folder, for one thread; a context manager."""

    # ---------------------------------------------------------------- trials

    def done(self, keys: Iterable[str]) -> set[str]:
        """The subset of keys whose trials are done."""
        return {row["key"] for row, whole in self.rows_of("results", keys) if whole}

    def records(self, keys: Iterable[str]) -> tuple[dict[str, Record], set[str]]:
        """The done trials with these keys, and the keys of those that were done but are to be measured again.

        Of the latter the row is damaged, or the arrays are. Each row is read once.
        """
        records: dict[str, Record] = {}
        damaged = set()
        machines: dict[str, dict[str, Any]] = {}
        for row, whole in self.rows_of("results", keys):
            arrays = self._arrays(row) if whole else None
            if arrays is None:
                damaged.add(row["key"])
            else:
                records[row["key"]] = self._record(row, arrays, machines)
        self._reported |= {("results", key) for key in damaged}  # the caller reports them
        return records, damaged

    def _arrays(self, row: Row) -> dict[str, outcomes.Array] | None:
        """The arrays of a result; None if they are damaged."""
        if row["arrays"] is None:
            return {}
        content = self.content(row["arrays"])
        return None if content is None else outcomes.unpacked(content)

    def _record(self, row: Row, arrays: Mapping[str, Any], machines: dict[str, dict[str, Any]]) -> Record:
        """The record of an intact row; `machines` are those that were read already."""
        if row["machine"] not in machines:
            machines[row["machine"]] = outcomes.decode(self.document(row["machine"]) or "{}")
        names = ("key", "study", "revision", "source", "seconds", "finished", "attempts")
        return Record(
            **{name: row[name] for name in names},
            trial=outcomes.decode(row["trial"]),
            outcome=outcomes.join(row["outcome"], arrays),
            machine=machines[row["machine"]],
            digest=outcome_digest(row),
        )

    def put(
        self,
        key: str,
        study: str,
        trial: Mapping[str, Any],
        revision: int,
        outcome: Outcome,
        seconds: float,
        attempts: int = 1,
        *,
        source: str = "",
        machine: Mapping[str, Any] | None = None,
        again: bool = False,
    ) -> None:
        """Store the outcome of a trial, measured on this machine unless another is given; the trial is then done.

        A key is stored once: of a trial that is done already nothing changes, unless it is damaged, or it was measured
        `again`: then this outcome takes the place of the earlier one.
        """
        document, arrays = outcomes.split(outcome)
        content = outcomes.packed(arrays) if arrays else None
        row = _tried(key, study, trial, revision, source, seconds, attempts)
        description = outcomes.encode(this_machine() if machine is None else machine, "machine").encode()
        with self.writing() as connection:
            if again or not self._done(key):
                name = None if content is None else self.insert_content(content)
                place = self.insert_content(description)
                self.insert("results", {**row, "outcome": document, "arrays": name, "machine": place})
            connection.execute("DELETE FROM failures WHERE key = ?", (key,))

    def whole(self, row: Row) -> bool:
        """Whether a row of results is intact, and its arrays are."""
        return intact("results", row) and self._arrays(row) is not None

    def _done(self, key: str) -> bool:
        """Whether a trial is done and nothing of it is damaged."""
        return any(self.whole(row) for row, _ in self.rows_of("results", [key]))

    def record_of(self, row: Row) -> Record | None:
        """The record of an intact row of results or variants; None if its arrays are damaged."""
        arrays = self._arrays(row)
        return None if arrays is None else self._record(row, arrays, {})

    def fail(
        self,
        key: str,
        study: str,
        trial: Mapping[str, Any],
        revision: int,
        traceback: str,
        seconds: float,
        attempts: int = 1,
        *,
        source: str = "",
    ) -> None:
        """Store the failure of a trial, replacing an earlier one; does nothing if the trial is done."""
        row = _tried(key, study, trial, revision, source, seconds, attempts)
        text = traceback.encode(errors="backslashreplace").decode()
        with self.writing():
            if not self._done(key):
                self.insert("failures", {**row, "traceback": text})

    def data_sets(self, study: str) -> list[data_sets.Use]:
        """The data sets that the stored trials of a study name, the last used first."""
        named = "SELECT trial, finished FROM {} WHERE study = ? AND instr(trial, '@')"
        rows = [row for table in _TRIALS for row in self.read(named.format(table), study)]
        return data_sets.uses((row["trial"], row["finished"]) for row in rows)

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
        rows = [row for row in self.rows("failures", study) if chosen is None or row["key"] in chosen]
        names = ("key", "study", "revision", "source", "seconds", "finished", "attempts", "traceback")
        return [
            Failure(**{name: row[name] for name in names}, trial=outcomes.decode(row["trial"]))
            for row in sorted(rows, key=_when)
        ]

    # ---------------------------------------------------------------- looks

    def looks(self, study: str, scale: str | None = None) -> list[tuple[str, Look]]:
        """The looks at a study's claims, each with its scale, in the order they were made."""
        rows = [row for row in self.rows("looks", study) if scale in (None, row["scale"])]
        trials = {name: json.loads(self.document(name) or "{}") for name in {row["trials"] for row in rows}}
        return [
            (row["scale"], look_of(row, trials[row["trials"]])) for row in sorted(rows, key=lambda row: row["made"])
        ]

    def add_look(self, study: str, scale: str, look: Look) -> bool:
        """Record a look; False if another process has just recorded one with this number."""
        names = ("claim", "number", "error", "declared", "revision", "limit_by")
        row = {name: getattr(look, name) for name in names}
        row |= {name: outcomes.encode(getattr(look, name), name) for name in ("judgement", "limits", "drawn")}
        row |= {"key": look_key(study, scale, look), "study": study, "scale": scale}
        with self.writing() as connection:
            if connection.execute("SELECT 1 FROM looks WHERE key = ?", (row["key"],)).fetchone():
                return look.exploratory  # of which the same may be there
            trials = self.insert_content(json.dumps(look.outcomes, sort_keys=True).encode())
            self.insert("looks", {**row, "exploratory": int(look.exploratory), "trials": trials, "made": now()})
        return True

    # ---------------------------------------------------------------- tables

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
        for row in self.rows(name, study):
            content = flat(row) if where else {}
            names = tuple(content)
            values = {field: content[field] for field in fields if field in content}
            order = (row["study"], *_when(row))
            outlines.append(listing.Outline(order, row["key"], known.setdefault(names, names), values))
        outlines.sort(key=lambda outline: outline.order)
        keys = [outline.key for outline in listing.select(outlines, where)]
        return listing.Rows(keys, lambda wanted: (flat(row) for row, whole in self.rows_of(name, wanted) if whole))

    def frame(self, study: str | None = None, where: Sequence[listing.Condition] = ()) -> Any:
        """The same rows as a pandas DataFrame."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise InputError("a data frame needs pandas: pip install 'flipscope[tables]'") from None
        rows = list(self.table(study, where))
        return pandas.DataFrame(rows, columns=listing.columns(rows))

    def stored(self) -> list[Stored]:
        """Counts of what is stored of every study, for each version of its code."""
        sizes = {
            row["digest"]: row["size"] for row in self.read("SELECT digest, length(content) AS size FROM contents")
        }
        counts: dict[tuple[str, int], list[Any]] = {}
        for row in self.rows("results"):
            count = counts.setdefault((row["study"], row["revision"]), [0, 0, 0.0, 0])
            count[0] += 1
            count[2] += row["seconds"]
            count[3] += len(row["outcome"]) + sizes.get(row["arrays"], 0)
        for row in self.rows("failures"):
            count = counts.setdefault((row["study"], row["revision"]), [0, 0, 0.0, 0])
            count[1] += 1
            count[2] += row["seconds"]
        return [Stored(*names, *count) for names, count in sorted(counts.items())]

    def revisions(self, study: str) -> dict[int, int]:
        """The number of results of a study for each of its revisions."""
        rows = self.read("SELECT revision, count(*) AS count FROM results WHERE study = ? GROUP BY revision", study)
        return {row["revision"]: row["count"] for row in rows}

    def holds(self, study: str) -> bool:
        """Whether anything is stored of a study."""
        try:
            study.encode()
        except UnicodeEncodeError:  # of a name that was no Unicode on the command line
            return False
        return any(self.read(f"SELECT 1 FROM {table} WHERE study = ? LIMIT 1", study) for table in _TRIALS)

    def studies(self) -> list[str]:
        """The studies of which something is stored."""
        return sorted({row["study"] for table in _TRIALS for row in self.rows(table)})

    def forget(self, keys: Iterable[str]) -> int:
        """Remove trials with these keys and return their number."""
        count = self._remove("key IN (SELECT value FROM json_each(?))", json.dumps(list(keys)))
        self._shrink()
        return count

    def forget_study(self, study: str, *, dry_run: bool = False) -> int:
        """Remove everything stored of a study, damaged or not; returns the number of trials."""
        if dry_run:
            counted = [self.read(f"SELECT count(*) AS count FROM {name} WHERE study = ?", study) for name in _TRIALS]
            return sum(row["count"] for rows in counted for row in rows)
        count = self._remove("study = ?", study)
        self._shrink()
        return count

    def _remove(self, condition: str, *values: object) -> int:
        """Remove the trials that satisfy a condition, with their variants and arrays; returns the number of trials."""
        with self.writing() as connection:
            counts = {
                table: connection.execute(f"DELETE FROM {table} WHERE {condition}", values).rowcount
                for table in (*_TRIALS, "variants")
            }
            connection.execute(f"DELETE FROM contents WHERE digest IN ({_UNUSED})")
        return sum(counts[table] for table in _TRIALS)

    def _shrink(self) -> None:
        """Give the room of removed rows back to the disk, unless another process reads, or the disk has no room."""
        with contextlib.suppress(sqlite3.OperationalError):
            self._connection.execute("VACUUM")

    def prune(self, stale: Callable[[str, int], bool], *, dry_run: bool = False) -> Pruned:
        """Remove trials for which `stale(study, revision)`; with `dry_run` they are only counted."""
        old = [stored for stored in self.stored() if stale(stored.study, stored.revision)]
        if not dry_run:
            for stored in old:
                self._remove("study = ? AND revision = ?", stored.study, stored.revision)
            self._shrink()
        done, failed, size = (sum(getattr(each, name) for each in old) for name in ("done", "failed", "size"))
        return Pruned(done, failed, size)

    # ---------------------------------------------------------------- runs

    def driving(self, study: str) -> AbstractContextManager[None]:
        """Hold the lock to run a study in this folder; if it is being run, InputError names the process."""
        if not self.writable:
            raise InputError(f"{self.folder} cannot be written: use another --results")
        return locks.driving(self.folder, study)

    def begin_run(self, study: str, scale: str, revision: int, total: int, command: str) -> int:
        """Record that this process runs a study; returns the number of the run."""
        text = command.encode(errors="backslashreplace").decode()
        row = {
            "study": study,
            "scale": scale,
            "revision": revision,
            "state": "running",
            "total": total,
            "command": text,
        }
        row |= {"done": 0, "failed": 0, "running": "[]", "verdicts": "[]", "started": now(), "updated": now()}
        row |= {"pid": os.getpid(), "born": born(os.getpid()) or "", "host": platform.node()}
        with self.writing() as connection:
            ((number,),) = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM runs")
            self.insert("runs", {**row, "id": number})
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
        changes: Row = {"state": state, "done": done, "failed": failed, "updated": now()}
        changes["running"] = outcomes.encode(list(running), "running")
        if verdicts is not None:
            changes["verdicts"] = outcomes.encode(list(verdicts), "verdicts")
        with self.writing():
            for row in self.read("SELECT * FROM runs WHERE id = ?", run):
                if intact("runs", row):  # a damaged one is not to look whole again
                    self.insert("runs", row | changes)

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
        rows = list(self.rows("runs", study))  # in the order of their numbers
        last = {row["study"]: row["id"] for row in rows}
        return [_run_state(row) for row in rows if not latest or last[row["study"]] == row["id"]]


def outcome_digest(row: Row) -> str:
    """The digest of a result's outcome with its arrays."""
    return digest_of(f"{row['outcome']}\n{row['arrays'] or ''}".encode())


def look_key(study: str, scale: str, look: Look) -> str:
    """The key under which a look is stored."""
    return digest({"study": study, "scale": scale, "look": look.key})


def look_of(row: Row, outcomes_of_trials: Mapping[str, str]) -> Look:
    """The look in a row, at trials with these outcomes."""
    names = ("claim", "number", "error", "declared", "revision", "limit_by", "made")
    fields = {name: row[name] for name in names}
    fields |= {name: outcomes.decode(row[name]) for name in ("judgement", "limits", "drawn")}
    return Look(**fields, exploratory=bool(row["exploratory"]), outcomes=outcomes_of_trials)


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


def _run_state(row: Row) -> RunState:
    lists = {name: outcomes.decode(row[name]) for name in ("running", "verdicts")}
    state = RunState(**{name: row[name] for name in RunState.__dataclass_fields__ if name not in lists}, **lists)
    if state.state != "running":
        return state
    if state.host == platform.node():
        dead = born(state.pid) is None or (row["born"] != "" and born(state.pid) != row["born"])
    else:
        dead = (datetime.now(UTC) - datetime.fromisoformat(state.updated)).total_seconds() > SILENCE
    return replace(state, state="interrupted", running=[]) if dead else state


def _done_row(row: Row) -> listing.Row:
    fields = listing.flat(outcomes.decode(row["trial"]), outcomes.scalars(row["outcome"]))
    return {
        "study": row["study"], "key": row["key"], **fields, "seconds": row["seconds"], "finished": row["finished"]
    }  # fmt: skip


def _failed_row(row: Row) -> listing.Row:
    lines = row["traceback"].strip().splitlines()
    return {
        "study": row["study"],
        "key": row["key"],
        **listing.flat(outcomes.decode(row["trial"]), {}),
        "error": lines[-1] if lines else "",
        **{name: row[name] for name in ("traceback", "attempts", "seconds", "finished")},
    }


def _when(row: Row) -> tuple[str, str]:
    """The sort key of rows by time, then by key."""
    return row["finished"], row["key"]


def _tried(
    key: str, study: str, trial: Mapping[str, Any], revision: int, source: str, seconds: float, attempts: int
) -> Row:
    """The columns that results and failures share."""
    for name, value in (("key", key), ("study", study)):
        if not isinstance(value, str) or not value:
            raise InputError(f"{name}={value!r} is not a text")
    if NAME.fullmatch(study) is None:
        raise InputError(f"study={study!r} is not the name of a study: use a-z, 0-9 and dashes")
    if not math.isfinite(seconds) or seconds < 0:
        raise InputError(f"seconds={seconds!r} is not a time")
    check_count("attempts", attempts)
    row: Row = {"key": str(key), "study": str(study), "revision": int(revision), "source": source}
    row["trial"] = outcomes.encode(trial, "trial")
    return row | {"seconds": float(seconds) + 0.0, "finished": now(), "attempts": int(attempts)}  # no negative zero


def now() -> str:
    """This moment, as rows have it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
