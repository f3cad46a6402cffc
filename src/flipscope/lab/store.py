"""The store of a results folder: what every trial gave, the moment it is known, and who is running what.

Rows are in one SQLite file, arrays in files beside it, named after their content (lab/arrays.py). A trial is done
when its row is committed, which is after its arrays are on the disk: a process may die at any point between.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import platform
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from flipscope.cube.intervals import check_count
from flipscope.errors import InputError
from flipscope.lab import listing, locks, outcomes, schema
from flipscope.lab.arrays import PART, ArrayFiles, old_parts
from flipscope.lab.machine import born
from flipscope.lab.machine import machine as this_machine
from flipscope.lab.study import Outcome, Result, Study, Trial
from flipscope.lab.version import code_version, trial_key

DATABASE = schema.DATABASE  # the file that makes a folder a store
SILENCE = 600.0  # seconds without a beat after which a driver on another machine is taken for dead
_TRIED = "key, study, trial, code, seconds, finished, attempts"
_AMONG = "key IN (SELECT value FROM json_each(?))"  # one statement for any number of keys


@dataclass(frozen=True)
class Tried:
    """A trial that was run, however it ended."""

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
    machine: dict[str, Any]


@dataclass(frozen=True)
class Failure(Tried):
    """A trial that raised, and where."""

    traceback: str


@dataclass(frozen=True)
class Origin:
    """A machine that done trials were measured on."""

    machine: dict[str, Any]
    trials: int
    finished: str  # when the last of them was


@dataclass(frozen=True)
class RunState:
    """How far a run of a study is, or was when it ended."""

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
    """What is stored of one study as measured by one version of its code."""

    study: str
    code: str
    done: int
    failed: int
    seconds: float
    size: int  # bytes of arrays and outcomes


@dataclass(frozen=True)
class Pruned:
    """What prune removed, or would remove."""

    results: int
    failures: int
    files: int
    size: int  # bytes of the files


class Store:
    """The results of a folder, for one thread; a context manager.

    A folder that cannot be written can be read. Everything that goes wrong on the disk is an InputError of one
    sentence, and what was stored before stays.
    """

    def __init__(self, folder: str | os.PathLike[str], *, create: bool = True) -> None:
        self.folder = Path(folder)
        self.path = self.folder / DATABASE
        self.arrays = ArrayFiles(self.folder / schema.ARRAYS)
        self._database, self.writable = schema.connect(self.folder, create=create)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database; nothing is written here that was not safe before."""
        self._database.close()

    def _read(self, question: str, *values: object) -> list[Any]:
        with schema.said(self.path):
            return self._database.execute(question, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that keeps other writers out from its start."""
        if not self.writable:
            raise InputError(f"{self.folder} cannot be written: use another --results")
        with schema.said(self.path):
            try:
                self._database.execute("BEGIN IMMEDIATE")  # in here: an interrupt may come as soon as it is done
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    with suppress(sqlite3.Error):
                        self._database.execute("ROLLBACK")
                raise

    # ---------------------------------------------------------------- trials

    def done(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys whose trials are done."""
        return {key for (key,) in self._read(f"SELECT key FROM results WHERE {_AMONG}", _listed(keys))}

    def damaged(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys whose trials are done but whose array files are missing or changed: measure them again."""
        rows = self._read(f"SELECT key, arrays FROM results WHERE arrays IS NOT NULL AND {_AMONG}", _listed(keys))
        return {key for key, name in rows if not self.arrays.intact(name)}

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
    ) -> None:
        """Store what a trial gave, measured on this machine unless another is given; the trial is done after this.

        A key is stored once: of a trial that is done already nothing changes, unless its arrays are damaged.
        """
        document, arrays = outcomes.split(outcome)
        common = _common(key, study, trial, code, seconds, attempts)
        where = outcomes.encode(this_machine() if machine is None else machine, "machine")
        name: str | None = None
        size = 0
        if arrays and self.writable and not self._kept(key):
            with schema.said(self.path):
                name, size = self.arrays.write(arrays)
        with self._writing() as database:
            if not self._kept(key):
                if arrays and (name is None or not self.arrays.path(name).exists()):  # pruned in this very moment
                    name, size = self.arrays.write(arrays)
                database.execute("INSERT OR IGNORE INTO machines (document) VALUES (?)", (where,))
                database.execute(
                    "INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
                    "(SELECT id FROM machines WHERE document = ?))",
                    (*common, document, name, size, where),
                )
            database.execute("DELETE FROM failures WHERE key = ?", (key,))

    def _kept(self, key: str) -> bool:
        """Whether a trial is done and its arrays are as they were."""
        rows = self._read("SELECT arrays FROM results WHERE key = ?", key)
        return bool(rows) and (rows[0][0] is None or self.arrays.intact(rows[0][0]))

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
        """Store that a trial raised, in place of an earlier failure; nothing if it is done."""
        common = _common(key, study, trial, code, seconds, attempts)
        text = traceback.encode(errors="backslashreplace").decode()
        with self._writing() as database:
            database.execute(
                "INSERT OR REPLACE INTO failures SELECT ?, ?, ?, ?, ?, ?, ?, ? "
                "WHERE NOT EXISTS (SELECT 1 FROM results WHERE key = ?)",
                (*common, text, key),
            )

    def get(self, key: str, *, check: bool = True) -> Record | None:
        """The stored trial, or None; InputError if its arrays are missing or, with `check`, changed."""
        rows = self._read(
            f"SELECT {_TRIED}, outcome, arrays, document "
            "FROM results JOIN machines ON machine = machines.id WHERE key = ?",
            key,
        )
        if not rows:
            return None
        _, study, trial, code, seconds, finished, attempts, document, name, where = rows[0]
        outcome, place = outcomes.join(document, self._arrays(key, study, name, check)), outcomes.decode(where)
        return Record(key, study, outcomes.decode(trial), code, seconds, finished, attempts, outcome, place)

    def _arrays(self, key: str, study: str, name: str | None, check: bool) -> dict[str, outcomes.Array]:
        try:
            return {} if name is None else self.arrays.read(name, check=check)
        except InputError as error:
            raise InputError(
                f"{error}, and with it the outcome of trial {key[:12]}: run {study} again to measure it anew"
            ) from error

    def results(self, study: Study, trials: Sequence[Trial], *, check: bool = True) -> list[Result]:
        """Those of the trials that are done with the study's present code, in their order."""
        code = code_version(study)
        keys = [trial_key(study, trial, code) for trial in trials]
        rows = self._read(f"SELECT key, outcome, arrays, seconds FROM results WHERE {_AMONG}", _listed(keys))
        found = {key: rest for key, *rest in rows}
        results = []
        for key, trial in zip(keys, trials, strict=True):
            if key in found:
                document, name, seconds = found[key]
                arrays = self._arrays(key, study.name, name, check)
                results.append(Result(trial, outcomes.join(document, arrays), seconds))
        return results

    def failures(self, study: str | None = None, keys: Iterable[str] | None = None) -> list[Failure]:
        """The failed trials of a study or of all, in the order they failed; of these keys only, if given."""
        where, values = _of_study(study)
        if keys is not None:
            where, values = f"{where} AND {_AMONG}", [*values, _listed(keys)]
        rows = self._read(
            f"SELECT {_TRIED}, traceback FROM failures WHERE {where} ORDER BY finished, rowid",
            *values,
        )
        return [Failure(key, name, outcomes.decode(trial), *rest) for key, name, trial, *rest in rows]

    def machines(self, keys: Iterable[str]) -> list[Origin]:
        """What those of the trials that are done were measured on, the machine of most of them first."""
        rows = self._read(
            "SELECT document, count(*), max(finished) FROM results JOIN machines ON machine = machines.id "
            f"WHERE {_AMONG} GROUP BY machine ORDER BY count(*) DESC, machine",
            _listed(keys),
        )
        return [Origin(outcomes.decode(document), *rest) for document, *rest in rows]

    # ---------------------------------------------------------------- tables

    def rows(self, study: str | None = None, where: Sequence[listing.Condition] = ()) -> list[listing.Row]:
        """One flat row a done trial: study, key, trial.*, outcome.* (numbers and texts), seconds, finished."""
        condition, values = _of_study(study)
        found = self._read(
            "SELECT study, key, trial, outcome, seconds, finished FROM results "
            f"WHERE {condition} ORDER BY study, finished, rowid",
            *values,
        )
        rows = []
        for name, key, trial, document, seconds, finished in found:
            fields = listing.flat(outcomes.decode(trial), outcomes.scalars(document))
            rows.append({"study": name, "key": key, **fields, "seconds": seconds, "finished": finished})
        return listing.select(rows, where)

    def frame(self, study: str | None = None, where: Sequence[listing.Condition] = ()) -> Any:
        """The same rows as a pandas DataFrame."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise InputError("a data frame needs pandas: pip install 'flipscope[tables]'") from None
        rows = self.rows(study, where)
        return pandas.DataFrame(rows, columns=listing.columns(rows))

    def kept(self) -> list[Kept]:
        """What is stored of every study, for each version of its code."""
        rows = self._read(
            "SELECT study, code, sum(done), sum(failed), sum(seconds), sum(size) FROM ("
            "SELECT study, code, 1 AS done, 0 AS failed, seconds, size + length(outcome) AS size FROM results "
            "UNION ALL SELECT study, code, 0, 1, seconds, 0 FROM failures) GROUP BY study, code ORDER BY study, code"
        )
        return [Kept(*row) for row in rows]

    def forget(self, keys: Iterable[str]) -> int:
        """Remove what is stored under these keys, failures too; how many there were. Their arrays go with prune."""
        listed = _listed(keys)
        with self._writing() as database:
            return sum(
                database.execute(f"DELETE FROM {table} WHERE {_AMONG}", (listed,)).rowcount
                for table in ("results", "failures")
            )

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
            rows = self._read(f"SELECT DISTINCT arrays FROM results WHERE NOT {among}", chosen)
            files = self._unnamed({name for (name,) in rows})
            size = sum(map(_size, files))
        else:
            with self._writing() as database:
                for table in ("results", "failures"):
                    database.execute(f"DELETE FROM {table} WHERE {among}", (chosen,))
            # Only when the rows are gone for good do their files go. New rows wait meanwhile: `put` looks for its
            # file again once it may write its row.
            with self._writing() as database:
                files = self._unnamed({name for (name,) in database.execute("SELECT DISTINCT arrays FROM results")})
                size = sum(map(_size, files))
                for path in files:
                    path.unlink(missing_ok=True)
        return Pruned(sum(kept.done for kept in old), sum(kept.failed for kept in old), len(files), size)

    def _unnamed(self, named: set[str | None]) -> list[Path]:
        """The files that belong to no trial and to nobody who is writing."""
        unnamed = [self.arrays.path(name) for name in self.arrays.names() if name not in named]
        return [*unnamed, *self.arrays.leftovers(), *old_parts(self.folder, f".{DATABASE}.*{PART}*")]

    # ---------------------------------------------------------------- runs

    def driving(self, study: str) -> AbstractContextManager[None]:
        """Hold the right to run a study in this folder; InputError, saying by whom, if it is being run."""
        if not self.writable:
            raise InputError(f"{self.folder} cannot be written: use another --results")
        return locks.driving(self.folder, study)

    def begin_run(self, study: str, scale: str, code: str, total: int, command: str) -> int:
        """Say that this process runs a study; the number of the run."""
        now, pid = _now(), os.getpid()
        text = command.encode(errors="backslashreplace").decode()
        with self._writing() as database:
            found = database.execute(
                "INSERT INTO runs (study, scale, code, state, total, done, failed, started, updated, pid, born, host, "
                "command, running, verdicts) VALUES (?, ?, ?, 'running', ?, 0, 0, ?, ?, ?, ?, ?, ?, '[]', '[]')",
                (study, scale, code, total, now, now, pid, born(pid) or "", platform.node(), text),
            )
            number = found.lastrowid
        assert number is not None  # an INSERT into a table with rowids
        return number

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
        """Say how far a run is, and that its driver lives; verdicts stay as they were unless given."""
        values: list[object] = [state, done, failed, _now(), outcomes.encode(list(running), "running")]
        values.append(None if verdicts is None else outcomes.encode(list(verdicts), "verdicts"))
        with self._writing() as database:
            database.execute(
                "UPDATE runs SET state = ?, done = ?, failed = ?, updated = ?, running = ?, "
                "verdicts = coalesce(?, verdicts) WHERE id = ?",
                (*values, run),
            )

    def end_run(
        self,
        run: int,
        state: str,
        *,
        done: int,
        failed: int,
        verdicts: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Say how a run ended, such as "done" or "stopped"."""
        self.beat(run, done=done, failed=failed, verdicts=verdicts, state=state)

    def runs(self, study: str | None = None, latest: bool = True) -> list[RunState]:
        """The runs of a study or of all, oldest first; with `latest` only the last of each study.

        A run whose driver died without a word is "interrupted".
        """
        where, values = _of_study(study)
        if latest:
            where += " AND id IN (SELECT max(id) FROM runs GROUP BY study)"
        rows = self._read(
            "SELECT id, study, scale, code, state, total, done, failed, started, updated, pid, host, command, running, "
            f"verdicts, born FROM runs WHERE {where} ORDER BY id",
            *values,
        )
        return [_run_state(row) for row in rows]


def _run_state(row: Sequence[Any]) -> RunState:
    *plain, running, verdicts, birth = row
    found = RunState(*[*plain, outcomes.decode(running), outcomes.decode(verdicts)])
    if found.state != "running":
        return found
    if found.host == platform.node():
        dead = born(found.pid) is None or (birth != "" and born(found.pid) != birth)
    else:
        dead = (datetime.now(UTC) - datetime.fromisoformat(found.updated)).total_seconds() > SILENCE
    return replace(found, state="interrupted", running=[]) if dead else found


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
    return key, study, code, outcomes.encode(trial, "trial"), float(seconds), _now(), attempts


def _of_study(study: str | None) -> tuple[str, list[str]]:
    """The condition of SQL that a row is of a study, or of any."""
    return ("TRUE", []) if study is None else ("study = ?", [study])


def _listed(keys: Iterable[str]) -> str:
    return json.dumps(list(keys))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
