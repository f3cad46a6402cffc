"""Damage inside the database: no number changes silently, nothing ends in a traceback, and there is a way out."""

from __future__ import annotations

import contextlib
import json
import logging
import random
import shutil
import sqlite3
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from lab.example_studies import Deed, Deeds
from lab.stores import OUTCOME, put, refused

from flipscope.cli import main
from flipscope.lab import registry
from flipscope.lab.run.driver import run_study
from flipscope.lab.run.runner import InProcess
from flipscope.lab.store import database, outcomes, schema, tables
from flipscope.lab.store.store import DATABASE, Store, origins

pytestmark = pytest.mark.usefixtures("local_disk")

TRIALS = 12
FLIPS = 24


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "results"
    with Store(folder) as store:
        run_study(study(), "smoke", store, InProcess())
        store.put("a" * 64, "other", {}, "c", {"x": np.arange(3)}, 1.0)
    return folder


def study() -> Deeds:
    return Deeds(*(Deed("nothing", number) for number in range(TRIALS)), Deed("fail"))


@pytest.fixture
def here(template: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(registry, "find", lambda name: study())
    monkeypatch.setattr(registry, "names", lambda: ["deeds"])
    shutil.copytree(template, folder)
    return folder


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, "flipscope")
    return caplog


def told(
    capsys: pytest.CaptureFixture[str], warned: pytest.LogCaptureFixture, folder: Path, *arguments: str
) -> tuple[int, str, str]:
    """What a command answers, prints, and complains of."""
    warned.clear()
    code = main([*arguments, "--results", str(folder)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err + warned.text


LOOKS = (
    ("results", "deeds", "--json"),
    ("results", "deeds", "--failed", "--json"),
    ("results", "--json"),
    ("status", "--json"),
)


def test_random_bit_flips(
    here: Path, template: Path, capsys: pytest.CaptureFixture[str], warned: pytest.LogCaptureFixture
) -> None:
    path = here / DATABASE
    whole = path.read_bytes()
    good = [told(capsys, warned, here, *look) for look in LOOKS]
    assert all((code, words) == (0, "") for code, _, words in good)
    chance, seen = random.Random(1), Counter[str]()
    for _ in range(FLIPS):
        at, bit = chance.randrange(len(whole)), chance.randrange(8)
        shutil.rmtree(here)
        shutil.copytree(template, here)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        found = [told(capsys, warned, here, *look) for look in LOOKS]
        for before, after in zip(good, found, strict=True):
            assert after[:2] == before[:2] or after[2], (at, bit)
        damaged = found != good
        seen["damaged" if damaged else "same"] += 1
        assert main(["results", "--verify", "--results", str(here)]) == damaged, (at, bit)
        capsys.readouterr()
    assert min(seen["damaged"], seen["same"]) > FLIPS // 8


def spoil(folder: Path, statement: str) -> None:
    """Change the database behind the back of the store."""
    with contextlib.closing(sqlite3.connect(folder / DATABASE)) as connection:
        connection.execute(statement)
        connection.commit()


def measured(text: str) -> list[int]:
    return [row["trial.number"] for row in json.loads(text)]


ONE = "WHERE key = (SELECT min(key) FROM results WHERE study = 'deeds')"
DAMAGES = {
    "outcome": f"UPDATE results SET outcome = replace(outcome, '0.5', '0.6') {ONE}",
    "not even JSON": f"UPDATE results SET outcome = '{{' {ONE}",
    "not even Unicode": f"UPDATE results SET trial = CAST(x'ff22' AS TEXT) {ONE}",
    "seconds": f"UPDATE results SET seconds = seconds + 1 {ONE}",
    "machine": f"UPDATE results SET machine = 'x' {ONE}",
    "study": f"UPDATE results SET study = 'deedz' {ONE}",
    "key": f"UPDATE results SET key = key || 'x' {ONE}",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_row_is_left_out_told_of_and_measured_again(
    here: Path, damage: str, capsys: pytest.CaptureFixture[str], warned: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    spoil(here, DAMAGES[damage])
    code, out, words = told(capsys, warned, here, "results", "deeds", "--json")
    assert (code, len(measured(out))) == (0, TRIALS - 1)
    assert "1 damaged row of" in words
    assert "flipscope results --verify" in words
    assert told(capsys, warned, here, "results", "deeds", "--export", str(tmp_path / "table.csv"))[0] == 0
    code, out, _ = told(capsys, warned, here, "results", "--verify", "--json")
    document = json.loads(out)
    assert (code, document["whole"], document["database"]) == (1, False, None)
    assert [finding["what"] for finding in document["damaged"]] == ["result"]
    code, out, words = told(capsys, warned, here, "results", "--verify")
    assert code == 1
    assert "its checksum does not fit" in out
    code, out, words = told(capsys, warned, here, "run", "deeds", "--scale", "smoke", "--workers", "0", "--json")
    assert (json.loads(out)["done"], json.loads(out)["reused"]) == (TRIALS, TRIALS - 1)
    assert (
        damage == "key"
        or "1 stored trials of deeds are damaged or have lost their arrays, and are measured again" in words
    )
    if damage != "key":  # the old row is replaced
        assert told(capsys, warned, here, "results", "--verify")[0] == 0
    code, out, words = told(capsys, warned, here, "results", "--repair")
    assert (code, "nothing to repair" in out) == (0, damage != "key")
    assert told(capsys, warned, here, "results", "--verify")[0] == 0
    assert sorted(measured(told(capsys, warned, here, "results", "deeds", "--json")[1])) == list(range(TRIALS))


@pytest.mark.parametrize("block", [1, 3, 13, 14])
def test_no_row_is_missed_between_blocks(here: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_BLOCK", block)
    spoil(here, f"UPDATE results SET key = CAST(key || x'ff' AS TEXT) {ONE}")
    with Store(here) as store:
        rows = list(store.checked("results"))
        assert len(rows) == TRIALS + 1
        assert [whole for _, whole in rows].count(False) == 1
        assert len(store.rows()) == TRIALS


def test_damaged_failures_runs_and_machines_are_told_of(
    here: Path, capsys: pytest.CaptureFixture[str], warned: pytest.LogCaptureFixture
) -> None:
    spoil(here, "UPDATE failures SET traceback = 'nothing'")
    spoil(here, "UPDATE runs SET done = done + 1")
    spoil(here, "UPDATE machines SET document = '{}'")
    for look in LOOKS[1:]:
        code, _, words = told(capsys, warned, here, *look)
        assert (code, "1 damaged row" in words) == (0, True)
    document = json.loads(told(capsys, warned, here, "results", "--verify", "--json")[1])
    assert sorted(finding["what"] for finding in document["damaged"]) == ["failure", "machine", "run"]
    with Store(here) as store:
        record = store.get("a" * 64)
        assert record is not None
        assert record.machine == {}
        assert [origin.machine for origin in origins([record])] == [{}]
        put(store, "new", {"x": 1})  # on this machine: its description is there again
        record = store.get("a" * 64)
        assert record is not None
        assert record.machine


def test_verify_finds_damaged_arrays_and_says_what_cannot_be_read(
    here: Path, capsys: pytest.CaptureFixture[str], warned: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told(capsys, warned, here, "results", "--verify")[:2] == (
        0,
        "16 rows and 1 array files were read: all are whole.\n",
    )
    (path,) = here.rglob("*.safetensors")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"\xff")
    (finding,) = json.loads(told(capsys, warned, here, "results", "--verify", "--json")[1])["damaged"]
    assert (finding["what"], finding["study"], finding["key"]) == ("arrays", "other", "a" * 64)
    assert finding["why"] == f"{path} is changed"
    assert told(capsys, warned, here, "results", "deeds", "--verify")[0] == 0
    path.unlink()
    code, out, _ = told(capsys, warned, here, "results", "other", "--verify")
    assert code == 1
    assert "is missing" in " ".join(out.split())
    path.mkdir()  # which root cannot read as a file either
    document = json.loads(told(capsys, warned, here, "results", "--verify", "--json")[1])
    (finding,) = document["unreadable"]
    assert (document["whole"], document["damaged"], finding["what"]) == (False, [], "arrays")
    assert "cannot be read: Is a directory" in finding["why"]
    code, out, _ = told(capsys, warned, here, "results", "--verify")
    assert code == 1
    assert "0 are damaged; 1 cannot be read here, for the reasons above." in " ".join(out.split())
    assert "--repair" not in out


@pytest.mark.parametrize(
    ("outcome", "why"),
    [('{"x":{"!quaternion":[1]}}', "of the kind 'quaternion', unknown to this flipscope"), ("[", "Expecting")],
)
def test_rows_that_a_newer_flipscope_wrote_are_not_called_damaged(
    here: Path, outcome: str, why: str, capsys: pytest.CaptureFixture[str], warned: pytest.LogCaptureFixture
) -> None:
    with contextlib.closing(sqlite3.connect(here / DATABASE)) as connection:
        *row, _ = connection.execute(f"{tables.selected('results')} {ONE}").fetchone()
        row[tables.COLUMNS["results"].index("outcome")] = outcome
        connection.execute(tables.inserted("results"), tables.sealed("results", row))
        connection.commit()
    code, out, _ = told(capsys, warned, here, "results", "--verify", "--json")
    document = json.loads(out)
    (finding,) = document["unreadable"]
    assert (code, document["whole"], document["damaged"]) == (1, False, [])
    assert (finding["what"], finding["study"], finding["key"]) == ("result", "deeds", row[0])
    assert why in finding["why"]


def test_names_that_look_like_kinds_come_back_as_they_were() -> None:
    for value in ({"!new": 1}, {"!": 1}, {"!!": {"!float": "nan"}}, {"!a": 1, "b": 2}):
        assert outcomes.decode(outcomes.encode(value, "value")) == value


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large") / "results"
    with Store(folder) as store:
        for key in KEYS:
            put(store, key, {"text": "x" * 200})
        store.end_run(store.begin_run("tosses", "smoke", "c", 1, ""), "done", done=1, failed=0)
    return folder


KEYS = [f"{number * 7919 % 4096:03x}" + "0" * 61 for number in range(100)]


@pytest.mark.parametrize("page", [2, 4, 6, 8, -1])
def test_what_can_be_read_around_a_damaged_page_is_kept(large: Path, folder: Path, page: int) -> None:
    shutil.copytree(large, folder)
    path = folder / DATABASE
    broken = bytearray(path.read_bytes())
    start = page * 4096 % len(broken)
    broken[start : start + 4096] = b"\xa5" * 4096
    path.write_bytes(broken)
    assert "flipscope results --repair" in refused("is damaged", Store, folder)
    main(["results", "--repair", "--results", str(folder)])
    (before,) = folder.glob("*.damaged")
    assert before.read_bytes() == broken
    with Store(folder) as store:
        found = store.done(KEYS)
        assert len(found) == 0 if page == 2 else 80 <= len(found) <= 100  # 2 is the root of all results
        assert store.records(KEYS)[1] == set()


def test_nothing_is_made_of_what_cannot_be_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Store(folder).close()
    path = folder / DATABASE
    path.write_bytes(b"\xa5" * len(path.read_bytes()))
    before = path.read_bytes()
    for arguments, code, words in (
        (("results", "--verify"), 1, "is damaged (it is not an SQLite database)"),
        (("results", "--repair"), 2, "nothing can be read of"),
        (("results",), 2, "flipscope results --repair"),
    ):
        assert main([*arguments, "--results", str(folder)]) == code
        captured = capsys.readouterr()
        assert words in " ".join((captured.out + captured.err).split())
    assert [each.name for each in folder.iterdir()] == [DATABASE]
    assert path.read_bytes() == before


def test_nothing_is_repaired_under_a_driver(here: Path) -> None:
    spoil(here, DAMAGES["outcome"])
    with Store(here) as store, store.driving("deeds"):
        from flipscope.lab.store.salvage import repair

        refused("deeds is being run", repair, here)


def test_a_damaged_definition_of_a_table(here: Path) -> None:
    path = here / DATABASE
    whole = path.read_bytes()
    for damage in (b"attempts INTEGES", b"attemptt INTEGER", b"attempts INTEG\xd4R", b"attempts\xd4INTEGER"):
        path.write_bytes(whole.replace(b"attempts INTEGER", damage, 1))
        refused("is damaged", Store, here)
        assert main(["results", "--repair", "--results", str(here)]) == 0
        with Store(here) as store:
            assert len(store.rows()) == TRIALS + 1
        for left in here.glob("*.damaged*"):
            left.unlink()


def test_damaged_results_can_be_forgotten(
    here: Path, capsys: pytest.CaptureFixture[str], warned: pytest.LogCaptureFixture
) -> None:
    spoil(here, DAMAGES["not even JSON"])
    told(capsys, warned, here, "results", "deeds", "--forget")
    assert told(capsys, warned, here, "results", "--verify")[0] == 0


def test_values_of_odd_types_have_the_checksum_of_what_is_stored(kept: Store) -> None:
    kept.put(
        np.str_("k"), np.str_("tosses"), {"size": np.int64(3)}, np.str_("c"), OUTCOME, np.float32(-0.0), np.int64(2)
    )
    found = kept.get("k")
    assert found is not None
    assert (found.seconds, found.attempts) == (0.0, 2)


# ---------------------------------------------------------------- older formats

FORMAT_1 = """
CREATE TABLE machines (id INTEGER PRIMARY KEY, document TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE results (key TEXT NOT NULL PRIMARY KEY, study TEXT NOT NULL, code TEXT NOT NULL, trial TEXT NOT NULL,
    seconds REAL NOT NULL, finished TEXT NOT NULL, attempts INTEGER NOT NULL, outcome TEXT NOT NULL, arrays TEXT,
    size INTEGER NOT NULL, machine INTEGER NOT NULL REFERENCES machines(id)) STRICT;
CREATE INDEX results_by_study ON results(study, code);
CREATE INDEX results_by_arrays ON results(arrays);
CREATE TABLE failures (key TEXT NOT NULL PRIMARY KEY, study TEXT NOT NULL, code TEXT NOT NULL, trial TEXT NOT NULL,
    seconds REAL NOT NULL, finished TEXT NOT NULL, attempts INTEGER NOT NULL, traceback TEXT NOT NULL) STRICT;
CREATE INDEX failures_by_study ON failures(study, code);
CREATE TABLE runs (id INTEGER PRIMARY KEY AUTOINCREMENT, study TEXT NOT NULL, scale TEXT NOT NULL, code TEXT NOT NULL,
    state TEXT NOT NULL, total INTEGER NOT NULL, done INTEGER NOT NULL, failed INTEGER NOT NULL, started TEXT NOT NULL,
    updated TEXT NOT NULL, pid INTEGER NOT NULL, born TEXT NOT NULL, host TEXT NOT NULL, command TEXT NOT NULL,
    running TEXT NOT NULL, verdicts TEXT NOT NULL) STRICT;
CREATE INDEX runs_by_study ON runs(study);
PRAGMA application_id = 1718380912;
PRAGMA user_version = 1;
INSERT INTO machines VALUES (1, '{"host":"one"}'), (2, '{"host":"two"}');
INSERT INTO results VALUES
    ('k', 's', 'c', '{"n":1}', 1.5, '2024-01-01T00:00:00.000+00:00', 1, '{"x":0.5}', NULL, 0, 2),
    ('l', 's', 'c', '{"n":2}', 1.5, '2024-01-01T00:00:00.000+00:00', 1, '{"x":', NULL, 0, 1);
INSERT INTO failures VALUES ('m', 's', 'c', '{}', 1.5, '2024-01-01T00:00:00.000+00:00', 1, 'Traceback');
INSERT INTO runs VALUES (3, 's', 'smoke', 'c', 'done', 2, 2, 0, 'a', 'b', 1, '', 'h', 'flipscope run s', '[]', '[]');
"""


@pytest.mark.skipif(not tables.STRICT, reason="SQLite knows no STRICT tables")
def test_a_store_without_checksums_is_brought_up_to_date(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.mkdir()
    with contextlib.closing(sqlite3.connect(folder / DATABASE)) as connection:
        connection.executescript(FORMAT_1)
    for _ in range(2):
        with Store(folder) as store:
            record = store.get("k")
            assert record is not None
            assert (record.outcome, record.machine, record.trial) == ({"x": 0.5}, {"host": "two"}, {"n": 1})
            assert [row["key"] for row in store.rows()] == ["k"]
            assert [failure.key for failure in store.failures()] == ["m"]
            assert [(run.id, run.command) for run in store.runs()] == [(3, "flipscope run s")]
    assert caplog.text.count("1 stored rows were damaged, and are left out") == 1


@pytest.mark.skipif(not tables.STRICT, reason="SQLite knows no STRICT tables")
def test_an_older_store_that_cannot_be_written_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    with contextlib.closing(sqlite3.connect(folder / DATABASE)) as connection:
        connection.executescript(FORMAT_1)
    monkeypatch.setattr(schema.os, "access", lambda *_: False)
    refused("is of an older flipscope .* make it writable", Store, folder)
