"""What is stored and read back, as records and as tables."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
from lab.stores import OUTCOME, flat, put, record, refused

from flipscope.lab.machine import machine
from flipscope.lab.store import store
from flipscope.lab.store.store import Store


def test_what_is_put_comes_back(kept: Store) -> None:
    assert record(kept, "k") is None
    put(kept, attempts=2)
    found = record(kept, "k")
    assert found is not None
    assert (found.key, found.study, found.revision, found.trial) == ("k", "tosses", 1, {"size": 3})
    assert (found.seconds, found.attempts, found.machine) == (1.5, 2, machine())
    assert list(found.outcome) == list(OUTCOME)
    assert {**found.outcome, "weights": 0} == {**OUTCOME, "weights": 0}
    np.testing.assert_array_equal(found.outcome["weights"], OUTCOME["weights"])
    assert found.finished.endswith("+00:00")


def test_another_machine_can_be_named(kept: Store) -> None:
    put(kept, machine={"host": "node7"})
    found = record(kept, "k")
    assert found is not None
    assert found.machine == {"host": "node7"}


def test_the_machines_of_trials_are_counted(kept: Store) -> None:
    assert store.origins([]) == []
    for key, host in (("a", "one"), ("b", "two"), ("c", "two"), ("d", "two")):
        put(kept, key, machine={"host": host, "cores": 2})
    last = {row["key"]: row["finished"] for row in flat(kept)}
    records, _ = kept.records(["a", "b", "c", "nothing"])
    assert store.origins(records.values()) == [
        store.Origin({"host": "two", "cores": 2}, 2, max(last["b"], last["c"])),
        store.Origin({"host": "one", "cores": 2}, 1, last["a"]),
    ]


def test_a_key_is_stored_once(kept: Store) -> None:
    put(kept)
    put(kept, outcome={"mean": 7})
    found = record(kept, "k")
    assert found is not None
    assert found.outcome["mean"] == 0.5
    assert len(flat(kept)) == 1


def test_done_of_many_keys(kept: Store) -> None:
    for key in "abc":
        put(kept, key, {"x": 1})
    keys = [f"{number:064x}" for number in range(100_000)]
    assert kept.done([*keys, "b", "z", "a", "a"]) == {"a", "b"}
    assert kept.done([]) == set()
    plan = kept.read("EXPLAIN QUERY PLAN SELECT * FROM results WHERE key IN (SELECT value FROM json_each(?))", "[]")
    assert any("USING PRIMARY KEY" in row["detail"] for row in plan)


def test_failures_are_kept_until_the_trial_is_done(kept: Store) -> None:
    trace = "Traceback\nValueError: \ud800 no"
    kept.fail("k", "tosses", {"size": 3}, 1, trace, 0.5)
    kept.fail("k", "tosses", {"size": 3}, 1, trace, 0.7, attempts=2)
    kept.fail("l", "other", {}, 1, "x", 0.7)
    (found,) = kept.failures("tosses")
    assert (found.key, found.trial, found.attempts, found.seconds) == ("k", {"size": 3}, 2, 0.7)
    assert found.traceback == "Traceback\nValueError: \\ud800 no"
    assert kept.done("kl") == set()
    assert [failure.key for failure in kept.failures()] == ["k", "l"]
    assert kept.failures("tosses", ["l"]) == []
    put(kept)
    assert kept.failures("tosses") == []
    kept.fail("k", "tosses", {"size": 3}, 1, trace, 0.5)
    assert kept.failures("tosses") == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("key", ""), ("study", 3), ("seconds", math.nan), ("seconds", -1.0), ("attempts", 0), ("trial", {"x": object()})],
)
def test_bad_values_are_named(kept: Store, name: str, value: Any) -> None:
    good = {"key": "k", "study": "s", "trial": {}, "revision": 1, "outcome": {}, "seconds": 1.0, "attempts": 1}
    refused(name, kept.put, **{**good, name: value})
    assert flat(kept) == []


# ---------------------------------------------------------------- rows


@pytest.fixture
def several(kept: Store) -> Store:
    for size in range(5):
        outcome = {"mean": size / 2, "even": size % 2 == 0, "note": f"n{size}", "list": [1], "x": np.zeros(1)}
        if size == 4:
            outcome |= {"mean": math.nan, "extra": 1 << 70}
        kept.put(f"k{size}", "tosses", {"size": size, "shape": [1, size], "rate": None}, 1, outcome, 1.0)
    kept.put("o", "other", {"length": 3}, 1, {"mean": 1}, 1.0)
    return kept


def test_rows_are_flat(several: Store) -> None:
    row = flat(several, "tosses")[1]
    assert {**row, "finished": 0} == {
        "study": "tosses",
        "key": "k1",
        "trial.size": 1,
        "trial.shape": [1, 1],
        "trial.rate": None,
        "outcome.mean": 0.5,
        "outcome.even": False,
        "outcome.note": "n1",
        "seconds": 1.0,
        "finished": 0,
    }
    assert len(flat(several)) == 6


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        (("size", "=", "2"), "2"),
        (("trial.size", ">=", "2.5"), "34"),
        (("outcome.mean", "<", "1"), "01"),
        (("mean", "!=", "1"), "0134"),
        (("even", "=", "true"), "024"),
        (("even", "!=", "True"), "13"),
        (("note", "=", "n3"), "3"),
        (("note", ">", "n3"), "4"),
        (("shape", "=", "[1, 2]"), "2"),
        (("rate", "=", "none"), "01234"),
        (("extra", "=", str(1 << 70)), "4"),
        (("extra", "!=", "0"), "4"),
        (("key", "=", "k1"), "1"),
    ],
)
def test_conditions(several: Store, where: tuple[str, str, str], keys: str) -> None:
    assert "".join(row["key"][1:] for row in flat(several, "tosses", [where])) == keys


def test_conditions_must_make_sense(several: Store) -> None:
    assert flat(several, "tosses", [("size", ">", "1"), ("size", "<", "3")])[0]["key"] == "k2"
    assert flat(several, "nothing", [("size", "=", "1")]) == []
    assert "trial.size" in refused("no such field", flat, several, "tosses", [("width", "=", "1")])
    refused("nothing like its values, such as 0", flat, several, "tosses", [("size", "=", "two")])
    refused("not a comparison", flat, several, "tosses", [("size", "~", "2")])
    several.put("z", "tosses", {"mean": 3}, 1, {"mean": 1}, 1.0)
    refused("name one of them", flat, several, "tosses", [("mean", "=", "1")])


def test_frame(several: Store) -> None:
    pytest.importorskip("pandas", reason="pandas is an optional package")
    frame = several.frame("tosses", [("size", "<", "3")])
    assert frame["outcome.mean"].tolist() == [0.0, 0.5, 1.0]
    assert frame["trial.shape"].tolist() == [[1, 0], [1, 1], [1, 2]]
    assert len(several.frame()) == 6
    assert several.frame("nothing").empty


def test_frame_without_pandas(several: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    refused(r"pip install 'flipscope\[tables\]'", several.frame)


# ---------------------------------------------------------------- what is forgotten and pruned


def contents(store: Store) -> int:
    """The number of arrays and descriptions in a store."""
    return int(store.read("SELECT count(*) AS count FROM contents")[0]["count"])


def test_what_is_forgotten_takes_its_arrays_along(kept: Store) -> None:
    shared = {"x": np.arange(3)}
    put(kept, "a", shared)
    put(kept, "b", shared)
    put(kept, "c", {"x": np.arange(40_000)})
    kept.fail("d", "tosses", {}, 1, "x", 1.0)
    assert contents(kept) == 3  # equal arrays are stored once, and the machine
    before = kept.path.stat().st_size
    assert kept.forget(["a", "c", "d", "nothing"]) == 3
    assert contents(kept) == 2
    assert kept.path.stat().st_size < before - 300_000
    assert set(kept.records("abcd")[0]) == {"b"}
    assert kept.forget_study("tosses", dry_run=True) == kept.forget_study("tosses") == 1
    assert contents(kept) == 0


def test_prune_removes_stale_rows(kept: Store) -> None:
    for key, study, revision in (("a", "s", 2), ("b", "s", 3), ("c", "t", 2), ("d", "s", 1)):
        kept.put(key, study, {}, revision, {"x": np.arange(ord(key))}, 1.0)
    kept.fail("e", "s", {}, 1, "x", 1.0)

    def stale(study: str, revision: int) -> bool:
        return study == "s" and revision != 3

    would = kept.prune(stale, dry_run=True)
    assert kept.done("abcd") == set("abcd")
    assert (would.results, would.failures) == (2, 1)
    assert would.size > 0
    assert kept.prune(stale) == would
    assert set(kept.records("abcd")[0]) == {"b", "c"}
    assert kept.failures() == []
    assert contents(kept) == 3


def test_values_of_odd_types_are_stored_as_plain_ones(kept: Store) -> None:
    kept.put(
        np.str_("k"), np.str_("tosses"), {"size": np.int64(3)}, np.int64(1), OUTCOME, np.float32(-0.0), np.int64(2)
    )
    found = record(kept, "k")
    assert found is not None
    assert (found.seconds, found.attempts) == (0.0, 2)
