"""Merging a pack into a store: new content is added, and nothing existing is lost or changed.

A trial with the same outcome in both stays as it is. If the outcomes differ, the store's own remains the result and the
other is kept as a *variant*, which `flipscope results` and the report show with the processor and the size of the
difference. A look at a claim that both have is one look; a different look whose number is taken becomes the next one,
at its original error.
"""

from __future__ import annotations

import hashlib
import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flipscope.basics.errors import InputError
from flipscope.lab import registry
from flipscope.lab.history import Look, alike
from flipscope.lab.store import outcomes, schema, tables
from flipscope.lab.store.arrays import flush_folder, write_whole
from flipscope.lab.store.packs import Pack
from flipscope.lab.store.store import Store, look_key
from flipscope.lab.study import digest

MODELS = "models"  # the folder of trained models beside the database


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


def merge(store: Store, pack: Pack) -> Merged:
    """Add the content of a pack to a store: all of its rows, or none if something fails."""
    models, others = _write_files(store, pack)
    with store.changing() as database:
        results, known, variants = _merge_trials(store, pack, database)
        looks = _merge_looks(store, pack, database)
        _merge_runs(store, pack, database)
    return Merged(results, known, variants, looks, models, tuple(others))


# ---------------------------------------------------------------- files


def _write_files(store: Store, pack: Pack) -> tuple[int, list[str]]:
    """Write missing files; returns the number of new models and the names of models that differ."""
    new, others = 0, []
    with schema.said(store.path):
        for kind, name, content in pack.files():
            if kind == "arrays":
                if not store.arrays.intact(name):
                    _write(store.arrays.path(name), content)
                continue
            path = store.folder / MODELS / name
            if not path.exists():
                _write(path, content)
                new += 1
            elif hashlib.sha256(path.read_bytes()).digest() != hashlib.sha256(content).digest():
                others.append(name)
    return new, others


def _write(path: Path, content: bytes) -> None:
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        flush_folder(path.parent.parent)
    write_whole(path, content)


# ---------------------------------------------------------------- rows


def _named(table: str, row: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(tables.COLUMNS[table], row, strict=True))


def _insert(database: sqlite3.Connection, table: str, row: Iterable[Any]) -> None:
    database.execute(tables.inserted(table), tables.sealed(table, tuple(row)))


def _merge_trials(store: Store, pack: Pack, database: sqlite3.Connection) -> tuple[int, int, int]:
    """Add results and variants; returns the numbers of new results, known results and new variants."""
    found = [_named("results", row) for row in pack.rows["results"]]
    others = [_named("variants", row) for row in pack.rows["variants"]]
    kept = {row[0]: _named("results", row) for row in store.whole({each["key"] for each in (*found, *others)})}
    results = known = variants = 0
    ids = {row[0] for row in store.stored("variants")}
    for row in pack.rows["machines"]:
        _insert(database, "machines", row)
    if any(each["arrays"] and not store.arrays.path(each["arrays"]).exists() for each in (*found, *others)):
        raise InputError(f"arrays of {pack.path} were pruned while it was unpacked: unpack it again")
    for each in found:
        own = kept.get(each["key"])
        if own is None:
            _insert(database, "results", each.values())
            database.execute("DELETE FROM failures WHERE key = ?", (each["key"],))
            kept[each["key"]] = each
            results += 1
        elif _same_outcome(own, each):
            known += 1
        else:
            variants += _add_variant(database, own, each, ids, pack)
    for each in others:
        own = kept.get(each["key"])
        if own is not None and not _same_outcome(own, each):
            variants += _add_variant(database, own, each, ids, pack)
    return results, known, variants


def _same_outcome(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    return all(first[name] == second[name] for name in ("outcome", "arrays"))


def _add_variant(
    database: sqlite3.Connection, own: Mapping[str, Any], other: Mapping[str, Any], ids: set[str], pack: Pack
) -> int:
    """Store a variant of a trial unless it is stored already; returns the number added."""
    if any(own[name] != other[name] for name in ("study", "trial", "code")):
        raise InputError(f"{pack.path} has trial {own['key'][:12]} as another one than the store: nothing was merged")
    id = digest({name: other[name] for name in ("key", "outcome", "arrays")})
    if id in ids:
        return 0
    ids.add(id)
    _insert(database, "variants", [id if name == "id" else other[name] for name in tables.COLUMNS["variants"]])
    return 1


def _merge_looks(store: Store, pack: Pack, database: sqlite3.Connection) -> int:
    """Add looks that the store does not have; returns their number."""
    studies = {row[1] for row in pack.rows["looks"]}
    withdrawn = {study: _withdrawn(study) for study in studies}
    kept = [_named("looks", row) for row in store.stored("looks") if row[1] in studies]
    for row in pack.rows["plans"]:
        _insert(database, "plans", row)
    new = 0
    order = tables.COLUMNS["looks"].index("number"), tables.COLUMNS["looks"].index("made")
    for row in sorted(pack.rows["looks"], key=lambda row: (row[order[0]], row[order[1]])):
        look = _named("looks", row)
        own = [each for each in kept if all(each[name] == look[name] for name in ("study", "scale", "claim"))]
        if any(_same_look(each, look) for each in own):
            continue
        if not look["exploratory"]:
            look["number"] = _number(look, own, withdrawn[look["study"]])
        look["key"] = _look_key(look)
        _insert(database, "looks", look.values())
        kept.append(look)
        new += 1
    return new


def _look_key(look: Mapping[str, Any]) -> str:
    names = ("claim", "number", "error", "data", "revision", "code")
    fields = {name: look[name] for name in names} | {"exploratory": bool(look["exploratory"])}
    judgement = outcomes.decode(look["judgement"])
    return look_key(look["study"], look["scale"], Look(**fields, trials=frozenset(), judgement=judgement))


def _same_look(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two looks at a claim are one: the same numbers of the same trials at the same error."""
    if any(first[name] != second[name] for name in ("exploratory", "error", "data", "revision")):
        return False
    return alike(*(outcomes.decode(each["judgement"]) for each in (first, second)))


def _withdrawn(study: str) -> set[int]:
    """The withdrawn revisions of a study, if it is installed."""
    try:
        return set(registry.find(study).withdrawn)
    except InputError:
        return set()


def _number(look: Mapping[str, Any], own: Sequence[Mapping[str, Any]], withdrawn: set[int]) -> int:
    """The number of a look among the counted ones: its own, or the next free one."""
    defect = look["revision"] in withdrawn
    taken = {
        each["number"]
        for each in own
        if not each["exploratory"]
        and (each["revision"] == look["revision"] if defect else each["revision"] not in withdrawn)
    }
    number: int = look["number"]
    return number if number not in taken else max(taken) + 1


def _merge_runs(store: Store, pack: Pack, database: sqlite3.Connection) -> None:
    """Add runs of studies at scales without runs in the store, since `report` shows the store's latest run."""
    known = {(row[1], row[2]) for row in store.stored("runs")}
    ((number,),) = database.execute("SELECT coalesce(max(id), 0) + 1 FROM runs")
    for row in pack.rows["runs"]:
        if (row[1], row[2]) not in known:
            _insert(database, "runs", (number, *row[1:]))
            number += 1


# ---------------------------------------------------------------- variants


def variants(store: Store, study: str | None = None, keys: Iterable[str] | None = None) -> list[Variant]:
    """The other outcomes of trials, of a study or of some keys, the largest differences first."""
    wanted = None if keys is None else set(keys)
    rows = [_named("variants", row) for row in store.stored("variants") if study in (None, row[1])]
    rows = [row for row in rows if wanted is None or row["key"] in wanted]
    if not rows:
        return []
    machines = {id: outcomes.decode(document) for id, document in store.stored("machines")}
    own = {row[0]: _named("results", row) for row in store.whole({row["key"] for row in rows})}
    found = [_variant(store, own[row["key"]], row, machines) for row in rows if row["key"] in own]
    return sorted(found, key=lambda each: (-each.difference, each.study, each.key))


def _variant(
    store: Store, own: Mapping[str, Any], other: Mapping[str, Any], machines: Mapping[str, dict[str, Any]]
) -> Variant:
    ours, theirs = (
        outcomes.join(row["outcome"], {} if row["arrays"] is None else store.arrays.read(row["arrays"]))
        for row in (own, other)
    )
    column, first, second, size = largest_difference(ours, theirs)
    return Variant(
        own["key"],
        own["study"],
        outcomes.decode(own["trial"]),
        column,
        first,
        second,
        size,
        machines.get(own["machine"], {}),
        machines.get(other["machine"], {}),
        other["finished"],
    )


def largest_difference(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[str, str, str, float]:
    """The name of the value in which two outcomes differ most, both values, and their relative difference.

    >>> largest_difference({"a": 1.0, "b": [2.0, 4.0]}, {"a": 1.0, "b": [2.0, 5.0]})
    ('b', '4', '5', 0.2)
    """
    worst = ("", "", "", 0.0)
    for name in sorted(first.keys() | second.keys()):
        found = _difference(first.get(name), second.get(name))
        if found[-1] > worst[-1]:
            worst = (name, *found)
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
        found = np.asarray(value)
    except ValueError:  # lists of unequal lengths
        return None
    if found.dtype == object:  # integers beyond 64 bits
        try:
            found = found.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            return None
    if found.dtype.kind == "c":
        return np.stack([found.real, found.imag]).astype(np.float64)
    return found.astype(np.float64) if found.dtype.kind in "biuf" else None
