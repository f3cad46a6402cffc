"""Merging a pack into a store: new content is added, and nothing existing is lost or changed.

A trial with the same outcome in both stays as it is. If the outcomes differ, the store's own remains the result and the
other is kept as a *variant*, which `flipscope results` and the report show with the processor and the size of the
difference. A look at a claim that both have is one look; a different look whose number is taken becomes the next one,
at its original error.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flipscope.basics.errors import InputError
from flipscope.basics.files import write_bytes
from flipscope.lab import registry
from flipscope.lab.context import MODELS
from flipscope.lab.history import alike
from flipscope.lab.store import outcomes
from flipscope.lab.store.database import Row
from flipscope.lab.store.packs import Pack
from flipscope.lab.store.store import Record, Store, look_key, look_of


@dataclass(frozen=True)
class Merged:
    """The counts of merged content of a pack."""

    results: int  # new trials
    known: int  # trials already stored with the same outcome
    variants: int  # new outcomes of trials stored with a different one
    looks: int  # new looks
    models: int  # new models
    other_models: tuple[str, ...]  # names of stored models with other weights, which stay


@dataclass(frozen=True)
class Variant:
    """Another outcome of a trial, and where it differs most from the one that counts as the result."""

    key: str
    study: str
    trial: dict[str, Any]
    column: str
    ours: str
    theirs: str
    difference: float  # relative to the larger; infinite where the two cannot be compared
    our_machine: dict[str, Any]
    their_machine: dict[str, Any]
    finished: str  # when the other outcome was measured

    @property
    def processors(self) -> str:
        """The processors on which the two were measured."""
        ours, theirs = (str(machine.get("cpu", "unknown")) for machine in (self.our_machine, self.their_machine))
        return ours if ours == theirs else f"{ours}; {theirs}"


# ---------------------------------------------------------------- trials and runs

_OTHER = "(theirs.outcome, theirs.arrays) IS NOT (ours.outcome, ours.arrays)"
_CONTENTS = """
    INSERT OR IGNORE INTO contents SELECT * FROM pack.contents
    WHERE digest NOT IN (SELECT content FROM pack.models)
"""
_FOREIGN = """
    SELECT key FROM pack.results AS theirs JOIN results AS ours USING (key)
    WHERE (theirs.study, theirs.trial, theirs.revision) IS NOT (ours.study, ours.trial, ours.revision)
"""
_KNOWN = f"SELECT count(*) FROM pack.results AS theirs JOIN results AS ours USING (key) WHERE NOT {_OTHER}"
_VARIANTS = f"""
    INSERT OR IGNORE INTO variants
    SELECT theirs.* FROM (SELECT * FROM pack.results UNION ALL SELECT * FROM pack.variants) AS theirs
    JOIN results AS ours USING (key)
    WHERE {_OTHER} AND NOT EXISTS (
      SELECT 1 FROM variants AS known WHERE known.key = theirs.key
      AND (known.outcome, known.arrays) IS (theirs.outcome, theirs.arrays)
    )
"""
_RESULTS = "INSERT INTO results SELECT * FROM pack.results WHERE key NOT IN (SELECT key FROM results)"
_NO_FAILURES = "DELETE FROM failures WHERE key IN (SELECT key FROM pack.results)"
_RUNS = "SELECT * FROM pack.runs WHERE (study, scale) NOT IN (SELECT study, scale FROM runs) ORDER BY id"


def merge(store: Store, pack: Pack) -> Merged:
    """Add the content of a pack to a store: all of it, or nothing if something fails."""
    models, others = _write_models(store, pack)
    with store.attached(pack.path), store.writing() as connection:
        _remove_damaged(store, connection)
        for (key,) in connection.execute(_FOREIGN):
            raise InputError(f"{pack.source} has trial {key[:12]} as another one than the store: nothing was merged")
        connection.execute(_CONTENTS)
        ((known,),) = connection.execute(_KNOWN)
        results = connection.execute(_RESULTS).rowcount
        variants = connection.execute(_VARIANTS).rowcount
        connection.execute(_NO_FAILURES)
        looks = _merge_looks(store)
        for row in store.read(_RUNS):
            ((number,),) = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM main.runs")
            store.insert("runs", {**row, "id": number})
    return Merged(results, known, variants, looks, models, tuple(others))


def _write_models(store: Store, pack: Pack) -> tuple[int, list[str]]:
    """Write missing models; returns their number and the names of models that differ."""
    new, others = 0, []
    for name, content in pack.models():
        path = store.folder / MODELS / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            write_bytes(path, content, "model")
            new += 1
        elif path.read_bytes() != content:
            others.append(name)
    return new, others


def _remove_damaged(store: Store, connection: sqlite3.Connection) -> None:
    """Remove damaged rows and contents that the pack has too."""
    keys = "SELECT key FROM pack.results UNION SELECT key FROM pack.variants"
    for row in store.read(f"SELECT * FROM results WHERE key IN ({keys})"):
        if not store.whole(row):
            connection.execute("DELETE FROM results WHERE key = ?", (row["key"],))
    for row in store.read("SELECT digest FROM contents WHERE digest IN (SELECT digest FROM pack.contents)"):
        if store.content(row["digest"]) is None:
            connection.execute("DELETE FROM contents WHERE digest = ?", (row["digest"],))


# ---------------------------------------------------------------- looks


def _merge_looks(store: Store) -> int:
    """Add looks that the store does not have; returns their number."""
    theirs = store.read("SELECT * FROM pack.looks ORDER BY number, made")
    studies = {row["study"] for row in theirs}
    withdrawn = {study: _withdrawn(study) for study in studies}
    ours = [row for row in store.rows("looks") if row["study"] in studies]
    new = 0
    for row in theirs:
        same_claim = [each for each in ours if all(each[name] == row[name] for name in ("study", "scale", "claim"))]
        if any(_same_look(each, row) for each in same_claim):
            continue
        if not row["exploratory"]:
            row["number"] = _number(row, same_claim, withdrawn[row["study"]])
        outcomes_of_trials = json.loads(store.document(row["trials"]) or "{}")
        row["key"] = look_key(row["study"], row["scale"], look_of(row, outcomes_of_trials))
        store.insert("looks", row)
        ours.append(row)
        new += 1
    return new


def _same_look(first: Row, second: Row) -> bool:
    """Whether two looks at a claim are one: the same numbers of the same trials at the same error."""
    if any(first[name] != second[name] for name in ("exploratory", "error", "trials", "revision")):
        return False
    judgements = (outcomes.decode(row["judgement"]) for row in (first, second))
    return alike(*judgements, *(outcomes.decode(row["limits"]) for row in (first, second)))


def _withdrawn(study: str) -> set[int]:
    """The withdrawn revisions of a study, if it is installed."""
    try:
        return set(registry.find(study).withdrawn)
    except InputError:
        return set()


def _number(look: Row, same_claim: Sequence[Row], withdrawn: set[int]) -> int:
    """The number of a look among the counted ones: its own, or the next free one."""
    defect = look["revision"] in withdrawn
    taken = {
        each["number"]
        for each in same_claim
        if not each["exploratory"]
        and (each["revision"] == look["revision"] if defect else each["revision"] not in withdrawn)
    }
    number: int = look["number"]
    return number if number not in taken else max(taken) + 1


# ---------------------------------------------------------------- variants


def variants(store: Store, study: str | None = None, keys: Iterable[str] | None = None) -> list[Variant]:
    """The other outcomes of trials, of a study or of some keys, the largest differences first."""
    wanted = None if keys is None else set(keys)
    others = [row for row in store.rows("variants", study) if wanted is None or row["key"] in wanted]
    ours = store.records({row["key"] for row in others})[0]
    compared = [_variant(ours[row["key"]], store.record_of(row)) for row in others if row["key"] in ours]
    return sorted(filter(None, compared), key=lambda each: (-each.difference, each.study, each.key))


def _variant(ours: Record, theirs: Record | None) -> Variant | None:
    """Where two outcomes of a trial differ most; None if the arrays of the other are damaged."""
    if theirs is None:
        return None
    difference = largest_difference(ours.outcome, theirs.outcome)
    return Variant(ours.key, ours.study, ours.trial, *difference, ours.machine, theirs.machine, theirs.finished)


def largest_difference(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[str, str, str, float]:
    """The name of the value in which two outcomes differ most, both values, and their relative difference.

    >>> largest_difference({"a": 1.0, "b": [2.0, 4.0]}, {"a": 1.0, "b": [2.0, 5.0]})
    ('b', '4', '5', 0.2)
    """
    worst = ("", "", "", 0.0)
    for name in sorted(first.keys() | second.keys()):
        difference = _difference(first.get(name), second.get(name))
        if difference[-1] > worst[-1]:
            worst = (name, *difference)
    return worst


def _difference(first: Any, second: Any) -> tuple[str, str, float]:
    """The entries at which two values differ most, and the difference."""
    ours, theirs = _numbers(first), _numbers(second)
    if ours is not None and theirs is not None and ours.shape == theirs.shape:
        if not ours.size:
            return "", "", 0.0
        with np.errstate(all="ignore"):
            size = np.abs(ours - theirs) / np.maximum(np.abs(ours), np.abs(theirs))
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        size = np.where(same, 0.0, np.where(np.isfinite(size), size, math.inf))
        worst = int(np.argmax(size))
        first, second = (f"{each.reshape(-1)[worst]:.12g}" for each in (ours, theirs))
        return first, second, float(size.reshape(-1)[worst])
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return largest_difference(first, second)[1:]
    same = type(first) is type(second) and not isinstance(first, np.ndarray) and first == second
    return str(first)[:60], str(second)[:60], 0.0 if same else math.inf


def _numbers(value: Any) -> np.ndarray | None:
    """A value as an array of numbers, or None if that is impossible."""
    try:
        array = np.asarray(value)
        array = array.astype(np.float64) if array.dtype == object else array  # integers beyond 64 bits
    except (TypeError, ValueError, OverflowError):  # such as lists of unequal lengths
        return None
    if array.dtype.kind == "c":
        return np.stack([array.real, array.imag]).astype(np.float64)
    return array.astype(np.float64) if array.dtype.kind in "biuf" else None
