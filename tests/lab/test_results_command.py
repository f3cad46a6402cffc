"""The command `results`: lists, filters, exports, forgets and prunes."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab.stores import flat

from flipscope.basics.errors import InputError
from flipscope.cli import results
from flipscope.cli.results import run as run_results
from flipscope.lab.store import database
from flipscope.lab.store.listing import parse_condition, write_csv, write_parquet
from flipscope.lab.store.store import Store

Call = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results of a study of revision 3, and of one that is not installed."""

    def found(name: str) -> Any:
        if name != "tosses":
            raise InputError(f"no study is called {name!r}")
        return types.SimpleNamespace(name=name, revision=3)

    monkeypatch.setattr(results.registry, "find", found)
    monkeypatch.setenv("COLUMNS", "200")
    folder = tmp_path / "results"
    with Store(folder) as store:
        for size in range(4):
            outcome = {"mean": size / 4 if size else math.nan, "note": "é,\n", "big": 10**size**4, "x": np.arange(size)}
            revision = 2 if size == 3 else 3
            store.put(f"{size:064}", "tosses", {"size": size, "shape": [1, 2], "kind": "a"}, revision, outcome, 1.25)
        store.put("f" * 64, "gone", {}, 1, {"x": np.zeros(1000)}, 1.0)
        store.fail("e" * 64, "tosses", {"size": 9, "shape": [], "kind": "a"}, 3, "Traceback\nValueError: no", 2.0)
    return folder


@pytest.fixture
def call(folder: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    def called(study: str | None = None, **options: Any) -> str:
        defaults: dict[str, Any] = {"where": [], "failed": False, "export": None, "prune": False, "forget": False}
        defaults |= {"dry_run": False, "json": False, "results": str(folder)}
        defaults |= {"limit": None, "verify": False, "repair": False, "variants": False, "scale": None}
        defaults |= {"raw": options.get("export") is not None}  # these trials belong to no study that makes a table
        assert run_results(argparse.Namespace(study=study, **{**defaults, **options})) == 0
        captured = capsys.readouterr()
        return captured.out + captured.err

    return called


def test_overview(call: Call) -> None:
    one, two = json.loads(call(json=True))
    rest = {"size": 0, "variants": 0, "notes": []}
    assert {**one, "size": 0} == {"study": "gone", "done": 1, "failed": 0, "stale": None, "seconds": 1.0, **rest}
    (note,) = two["notes"]
    assert "1 stored results of tosses are of its revision 2, which is now 3" in note
    rest["notes"] = [note]
    assert {**two, "size": 0} == {"study": "tosses", "done": 4, "failed": 1, "stale": 1, "seconds": 7.0, **rest}
    assert one["size"] > 8000
    page = call()
    assert "tosses" in page
    assert "--prune" in page
    assert "not installed" in page


def test_trials(call: Call) -> None:
    rows = json.loads(call("tosses", json=True))
    assert [row["trial.size"] for row in rows] == [0, 1, 2, 3]
    assert [row["outcome.mean"] for row in rows] == [None, 0.25, 0.5, 0.75]
    assert rows[3]["outcome.big"] == 10**81
    page = call("tosses")
    assert "the same in all: shape [1, 2], kind a." in page
    assert "10^81.00" in page
    assert "nan" in page
    assert len(json.loads(call("tosses", json=True, where=["size>0", "mean<=0.5"]))) == 2
    assert "No stored trial" in call("tosses", where=["size=77"])


def test_failed(call: Call) -> None:
    (row,) = json.loads(call(failed=True, json=True))
    assert (row["study"], row["trial.size"], row["error"]) == ("tosses", 9, "ValueError: no")
    assert "ValueError: no" in call("tosses", failed=True)
    assert json.loads(call("tosses", failed=True, where=["size=9"], json=True)) == [row]


def test_failed_trials_are_shown_with_their_whole_tracebacks(call: Call, folder: Path) -> None:
    trace = (
        'Traceback (most recent call last):\n  File "a.py", line 3, in measure\n    f(x)\nValueError: [bold]no[/bold]\n'
    )
    with Store(folder) as store:
        for key in "ab":
            store.fail(key * 64, "tosses", {"size": 7, "shape": [], "kind": "a"}, 3, trace, 2.0)
    page = call("tosses", failed=True)
    assert page.count(trace.rstrip()) == 1  # that of several trials is shown once
    assert f"{'a' * 10}, {'b' * 10}\n{trace}" in page
    assert f"{'e' * 10}\nTraceback\nValueError: no\n" in page
    assert [row["traceback"] for row in json.loads(call("tosses", failed=True, json=True))][1:] == [trace, trace]


HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\u202eabc\u2066\x7f\x00"


def test_control_characters_never_reach_a_terminal(call: Call, folder: Path, tmp_path: Path) -> None:
    with Store(folder) as store:
        store.put("a" * 64, "study", {f"t{HOSTILE}": f"u{HOSTILE}"}, 1, {f"v{HOSTILE}": f"w{HOSTILE}"}, 1.0)
        store.fail("b" * 64, "study", {"x": [HOSTILE]}, 1, f"Traceback\nValueError: {HOSTILE}", 1.0)
    target = tmp_path / "table.csv"
    pages = [
        call(),
        call("study"),
        call("study", failed=True),
        call(prune=True, dry_run=True),
        call("study", export=str(target)),
    ]
    for page in pages:
        assert not set(page) & set(HOSTILE) - set("abcdeiltmJ0123;[]"), page
    assert "\\x1b]0;title" in pages[1]
    assert "\\u202eabc" in pages[2]
    assert f"u{HOSTILE}".encode() in target.read_bytes()  # a file is data
    assert json.loads(call("study", json=True))[0][f"outcome.v{HOSTILE}"] == f"w{HOSTILE}"


def test_a_page_shows_the_first_rows_and_counts_all(call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "LIMIT", 2)
    page = call("tosses")
    assert "4 trials of tosses; the first 2 are shown: --limit K shows more" in page
    assert "the same in all: shape [1, 2], kind a." in page
    assert "0.25" in page
    assert "0.75" not in page
    assert "0.75" in call("tosses", limit=4)
    assert [row["trial.size"] for row in json.loads(call("tosses", limit=3, json=True))] == [0, 1, 2]
    assert json.loads(call("tosses", where=["size=77"], json=True)) == []
    target = folder / "table.csv"
    assert json.loads(call("tosses", limit=1, export=str(target), json=True))["rows"] == 1
    assert target.read_text().count("\n") >= 2


def test_rows_are_read_a_few_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_BLOCK", 2)
    asked: list[int] = []
    read = Store.read

    def noted(self: Store, question: str, *values: object) -> list[Any]:
        found = read(self, question, *values)
        asked.append(len(found))
        return found

    with Store(folder) as store:
        table = store.table("tosses")
        monkeypatch.setattr(Store, "read", noted)
        assert [row["trial.size"] for row in table] == [0, 1, 2, 3]
        assert asked == [2, 2]
        assert [row["trial.size"] for row in table] == [0, 1, 2, 3]  # once more
        store.forget(["1".rjust(64, "0")])
        assert [row["trial.size"] for row in table] == [0, 2, 3]


def test_csv(call: Call, tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    assert "wrote 4 rows" in call("tosses", export=str(target))
    rows = list(csv.DictReader(io.StringIO(target.read_bytes().decode(), newline="")))
    assert list(rows[0])[:3] == ["study", "key", "trial.size"]
    assert [row["outcome.mean"] for row in rows] == ["nan", "0.25", "0.5", "0.75"]
    assert rows[2]["outcome.note"] == "é,\n"
    assert rows[2]["trial.shape"] == "[1, 2]"
    assert rows[3]["outcome.big"] == str(10**81)
    assert json.loads(call(export=str(target), json=True)) == {"file": str(target), "rows": 5}
    write_csv([{"a": True, "b": None}, {"c": 1 << 40_000}], target)
    assert target.read_bytes().startswith(b"a,b,c\ntrue,,\n,,0x1000")


def test_parquet(call: Call, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is an optional package")
    pytest.importorskip("pyarrow", reason="pyarrow is an optional package")
    target = tmp_path / "table.parquet"
    call(export=str(target))
    frame = pandas.read_parquet(target)
    assert len(frame) == 5
    own = frame[frame["study"] == "tosses"]
    assert own["trial.size"].tolist() == [0, 1, 2, 3]
    assert own["outcome.big"].tolist() == ["1", "10", "1" + "0" * 16, "1" + "0" * 81]
    assert own["trial.shape"].tolist() == ["[1, 2]"] * 4
    assert own["outcome.mean"].tolist()[1:] == [0.25, 0.5, 0.75]


def test_columns_of_mixed_values(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is an optional package")
    pytest.importorskip("pyarrow", reason="pyarrow is an optional package")
    target = tmp_path / "table.parquet"
    rows = [{"a": 1, "b": True, "c": "x", "d": None}, {"a": 1 << 60, "b": None, "c": 2, "e": 0.5}, {"e": 1}]
    write_parquet(rows, target)
    frame = pandas.read_parquet(target)
    assert frame["a"].tolist()[:2] == [1, 1 << 60]
    assert frame["b"].tolist()[0] is True
    assert frame["c"].tolist()[:2] == ["x", "2"]
    assert frame["e"].tolist()[1:] == [0.5, 1.0]
    assert [frame[name].isna().sum() for name in "abcde"] == [1, 2, 1, 3, 1]


def test_parquet_without_pyarrow(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pip install 'flipscope\[tables\]'"):
        call(export=str(tmp_path / "table.parquet"))


def test_prune(call: Call, folder: Path) -> None:
    would = call(prune=True, dry_run=True)
    assert "would remove 1 results and 0 failures" in would
    found = json.loads(call(prune=True, dry_run=True, json=True))
    assert {**found, "size": 0} == {
        "results": 1,
        "failures": 0,
        "size": 0,
        "dry_run": True,
        "unknown": ["gone"],
    }
    said = call("tosses", prune=True)
    assert "removed 1 results" in said
    assert "kept all results of gone" in said
    with Store(folder) as store:
        assert [row["trial.size"] for row in flat(store, "tosses")] == [0, 1, 2]
        assert len(flat(store, "gone")) == 1
        assert store.records(row["key"] for row in flat(store))[1] == set()


def test_prune_of_another_study_leaves_stale_rows(call: Call) -> None:
    assert "removed 0 results" in call("gone", prune=True)


def test_forget(call: Call, folder: Path) -> None:
    assert "would forget 2 trials" in call("tosses", forget=True, where=["size>=2"], dry_run=True)
    assert "forgot 2 trials of tosses." in call("tosses", forget=True, where=["size>=2"])
    assert json.loads(call("tosses", forget=True, failed=True, json=True))["trials"] == 1
    assert [row["trial.size"] for row in json.loads(call("tosses", json=True))] == [0, 1]
    with Store(folder) as store:
        store.fail("9", "tosses", {}, 3, "x", 1.0)
    assert "forgot 3 trials" in call("tosses", forget=True)
    assert [row["study"] for row in json.loads(call(json=True))] == ["gone"]


def test_what_is_being_run_is_left_alone(call: Call, folder: Path) -> None:
    with Store(folder) as store, store.driving("tosses"):
        for options in ({"forget": True}, {"prune": True}):
            with pytest.raises(InputError, match="tosses is being run"):
                call("tosses", **options)
        call("tosses", prune=True, dry_run=True)
        assert len(flat(store, "tosses")) == 4


@pytest.mark.parametrize(
    ("study", "options", "words"),
    [
        ("toses", {}, "no results of 'toses' in .* there are results of gone, tosses"),
        ("tosses", {"where": ["size"]}, "is not a condition"),
        ("tosses", {"where": ["width=1"]}, "no such field"),
        ("tosses", {"export": "table.xlsx"}, r"must end in .csv, .parquet or .json"),
        ("tosses", {"export": "nowhere/table.csv"}, "the folder nowhere does not exist"),
        ("tosses", {"export": "table.csv", "where": ["size=77"]}, "nothing was written"),
        (None, {"forget": True}, "--forget needs a STUDY"),
        (None, {"dry_run": True}, "--dry-run goes with"),
        (None, {"prune": True, "failed": True}, "takes no --where or --failed"),
        (None, {"results": "nowhere"}, "there are no results in nowhere"),
        (None, {"results": "nowhere", "verify": True}, "there are no results in nowhere"),
        (None, {"results": "nowhere", "repair": True}, "there are no results in nowhere"),
        ("tosses", {"limit": 0}, "limit must be"),
        ("tosses", {"limit": 1, "forget": True}, "--limit is for rows that are listed"),
        (None, {"limit": 1}, "--limit is for rows that are listed"),
        ("tosses", {"verify": True, "where": ["size=1"]}, "they take no --where"),
        ("tosses", {"repair": True}, "leave tosses out"),
        ("toses", {"verify": True}, "no results of 'toses'"),
        ("caf\udce9", {}, r"no results of 'caf\\udce9'"),
        ("caf\udce9", {"verify": True}, r"no results of 'caf\\udce9'"),
        ("caf\udce9", {"forget": True}, r"no results of 'caf\\udce9'"),
    ],
)
def test_bad_input(call: Call, study: str | None, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        call(study, **options)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a=b", ("a", "=", "b")),
        ("a = b=c", ("a", "=", "b=c")),
        ("a!=1", ("a", "!=", "1")),
        ("a<=1", ("a", "<=", "1")),
        ("a>1", ("a", ">", "1")),
        ("a=", ("a", "=", "")),
    ],
)
def test_conditions_as_written(text: str, parts: tuple[str, str, str]) -> None:
    assert parse_condition(text) == parts
