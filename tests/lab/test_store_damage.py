"""Damaged, foreign, lost and read-only stores: no number changes silently, and there is a way out in one sentence."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import shutil
import sqlite3
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from lab.example_studies import Deed, Deeds
from lab.stores import files, flat, put, record, refused, start
from repetitions import repeated
from waiting import LIMIT

from flipscope.cli import main
from flipscope.lab import registry
from flipscope.lab.context import DATABASE
from flipscope.lab.run.driver import run_study
from flipscope.lab.run.events import Finished
from flipscope.lab.run.runner import InProcess, Job
from flipscope.lab.store import database
from flipscope.lab.store.repair import repair
from flipscope.lab.store.store import Store, origins

TRIALS = 12
FLIPS = repeated(200, 24)


def study() -> Deeds:
    return Deeds(*(Deed("nothing", number) for number in range(TRIALS)), Deed("fail"))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "results"
    with Store(folder) as store:
        run_study(study(), "smoke", store, InProcess())
        store.put("a" * 64, "other", {}, 1, {"x": np.arange(3)}, 1.0)
    return folder


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


def spoil(folder: Path, statement: str) -> None:
    """Change the database behind the back of the store."""
    with contextlib.closing(sqlite3.connect(folder / DATABASE)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(statement)
        connection.commit()


# ---------------------------------------------------------------- damaged bytes and rows

PAGES = (
    ("results", "deeds", "--json"),
    ("results", "deeds", "--failed", "--json"),
    ("results", "--json"),
    ("status", "--json"),
)


def test_random_bit_flips_and_cuts_show_nothing_wrong(
    here: Path, template: Path, capsys: pytest.CaptureFixture[str], warned: pytest.LogCaptureFixture
) -> None:
    path = here / DATABASE
    whole = path.read_bytes()
    good = [told(capsys, warned, here, *page) for page in PAGES]
    assert all((code, words) == (0, "") for code, _, words in good)
    chance, seen = random.Random(1), Counter[str]()
    for round in range(FLIPS):
        data = bytearray(whole)
        for _ in range(chance.choice([1, 1, 3, 20])):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        if round % 5 == 0:
            del data[chance.randrange(len(data)) :]
        path.write_bytes(data)
        found = [told(capsys, warned, here, *page) for page in PAGES]
        for before, after in zip(good, found, strict=True):
            assert after[:2] == before[:2] or after[2], round  # what is missing is said
        damaged = found != good
        seen["damaged" if damaged else "same"] += 1
        verified = main(["results", "--verify", "--results", str(here)])
        assert verified == 1 or not damaged, round
        capsys.readouterr()
        for left in here.glob(f"{DATABASE}-*"):
            left.unlink()
    assert min(seen.values()) > 0


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
def test_a_damaged_row_is_named_left_out_and_measured_again(
    here: Path, damage: str, capsys: pytest.CaptureFixture[str], warned: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with Store(here) as store:
        key = min(row["key"] for row in flat(store, "deeds"))
    spoil(here, DAMAGES[damage])
    code, out, words = told(capsys, warned, here, "results", "deeds", "--json")
    assert (code, len(measured(out))) == (0, TRIALS - 1)
    assert f"a row of {here / DATABASE} is damaged and left out (results {key[:10]})" in words
    assert "flipscope results --verify" in words
    assert told(capsys, warned, here, "results", "deeds", "--export", str(tmp_path / "table.csv"))[0] == 0
    document = json.loads(told(capsys, warned, here, "results", "--verify", "--json")[1])
    assert (document["whole"], document["database"]) == (False, None)
    assert [finding["what"] for finding in document["damaged"]] == ["result"]
    code, out, words = told(capsys, warned, here, "results", "--verify")
    assert code == 1
    assert "its checksum does not fit" in out
    code, out, words = told(capsys, warned, here, "run", "deeds", "--scale", "smoke", "--workers", "0", "--json")
    assert (json.loads(out)["done"], json.loads(out)["reused"]) == (TRIALS, TRIALS - 1)
    assert damage == "key" or "1 stored trials of deeds are damaged, and are measured again" in words
    assert told(capsys, warned, here, "results", "--verify")[0] == (damage == "key")  # else the old row is replaced
    code, out, words = told(capsys, warned, here, "results", "--repair")
    assert (code, "nothing to repair" in out) == (0, damage != "key")
    assert told(capsys, warned, here, "results", "--verify")[0] == 0
    assert sorted(measured(told(capsys, warned, here, "results", "deeds", "--json")[1])) == list(range(TRIALS))


@pytest.mark.parametrize("block", [1, 3, 13, 14])
def test_no_row_is_missed_between_blocks(here: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_BLOCK", block)
    spoil(here, f"UPDATE results SET key = CAST(key || x'ff' AS TEXT) {ONE}")
    with Store(here) as store:
        rows = list(store.rows_with_state("results"))
        assert len(rows) == TRIALS + 1
        assert [whole for _, whole in rows].count(False) == 1
        assert len(flat(store)) == TRIALS


def test_damaged_failures_runs_machines_and_arrays_are_named(
    here: Path, capsys: pytest.CaptureFixture[str], warned: pytest.LogCaptureFixture
) -> None:
    code, out, _ = told(capsys, warned, here, "results", "--verify")
    assert (code, out) == (0, "15 rows and 2 arrays and descriptions were read: all are whole.\n")
    spoil(here, "UPDATE failures SET traceback = 'nothing'")
    spoil(here, "UPDATE runs SET done = done + 1")
    for page in PAGES[1:]:
        assert "a row of" in told(capsys, warned, here, *page)[2]
    spoil(here, "UPDATE contents SET content = x'00' WHERE digest IN (SELECT machine FROM results)")
    with Store(here) as store:
        assert store.records(["a" * 64])[0]["a" * 64].machine == {}
        assert [origin.machine for origin in origins(store.records(["a" * 64])[0].values())] == [{}]
        put(store, "new", {"x": 1})  # on this machine: its description is there again
        assert store.records(["a" * 64])[0]["a" * 64].machine
        store.forget(["new"])
    spoil(here, "UPDATE contents SET content = x'00' WHERE digest IN (SELECT arrays FROM results)")
    document = json.loads(told(capsys, warned, here, "results", "--verify", "--json")[1])
    whats = ["arrays of a result", "failure", "run"]
    assert sorted(finding["what"] for finding in document["damaged"]) == whats
    with Store(here) as store:
        assert store.records(["a" * 64]) == ({}, {"a" * 64})


@pytest.mark.parametrize(
    ("outcome", "why"),
    [('{"x":{"!quaternion":[1]}}', "of the kind 'quaternion', unknown to this flipscope"), ("[", "Expecting")],
)
def test_rows_that_a_newer_flipscope_wrote_are_not_called_damaged(
    here: Path, outcome: str, why: str, capsys: pytest.CaptureFixture[str], warned: pytest.LogCaptureFixture
) -> None:
    with Store(here) as store, store.writing():
        (row,) = store.read(f"SELECT * FROM results {ONE}")
        store.insert("results", {**row, "outcome": outcome})
    code, out, _ = told(capsys, warned, here, "results", "--verify", "--json")
    document = json.loads(out)
    (finding,) = document["unreadable"]
    assert (code, document["whole"], document["damaged"]) == (1, False, [])
    assert (finding["what"], finding["study"], finding["key"]) == ("result", "deeds", row["key"])
    assert why in finding["why"]


def test_damaged_results_can_be_forgotten(
    here: Path, capsys: pytest.CaptureFixture[str], warned: pytest.LogCaptureFixture
) -> None:
    spoil(here, DAMAGES["not even JSON"])
    told(capsys, warned, here, "results", "deeds", "--forget")
    assert told(capsys, warned, here, "results", "--verify")[0] == 0


# ---------------------------------------------------------------- damaged files, and repair

KEYS = [f"{number * 7919 % 4096:03x}" + "0" * 61 for number in range(100)]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large") / "results"
    with Store(folder) as store:
        for key in KEYS:
            put(store, key, {"text": "x" * 500, "x": np.arange(len(key))})
        store.end_run(store.begin_run("tosses", "smoke", 1, 1, ""), "done", done=1, failed=0)
    return folder


@pytest.mark.parametrize("cut", [0, 1, 50, 99, 512, 4095, 4096, 4097, -4096, -513, -1])
def test_a_file_that_is_cut_off_is_refused_or_says_what_it_lost(large: Path, folder: Path, cut: int) -> None:
    shutil.copytree(large, folder)
    path = folder / DATABASE
    path.write_bytes(path.read_bytes()[:cut])
    before = files(folder)
    assert str(path) in refused("is damaged .* move it away", Store, folder)
    assert files(folder) == before
    path.rename(path.with_suffix(".broken"))
    with Store(folder) as fresh:
        assert flat(fresh) == []


@pytest.mark.parametrize("garbage", [b"", b"not a database", bytes(8192), b"\xff" * 8192])
def test_an_overwritten_file_is_left_as_it_is(folder: Path, garbage: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    Store(folder).close()
    path = folder / DATABASE
    path.write_bytes(garbage)
    for arguments, code, words in (
        (("results", "--verify"), 1, "is damaged"),
        (("results", "--repair"), 2, "nothing can be read of"),
        (("results",), 2, "flipscope results --repair"),
    ):
        if not garbage.strip(b"\0") and len(garbage) > 100:
            words = words.replace("is damaged", "is")  # zeros are an empty database of nobody
        assert main([*arguments, "--results", str(folder)]) == code
        captured = capsys.readouterr()
        assert words in " ".join((captured.out + captured.err).split())
    assert [each.name for each in folder.iterdir()] == [DATABASE]
    assert path.read_bytes() == garbage


@pytest.mark.parametrize("page", [12, 20, 30, -1])
def test_what_can_be_read_around_a_damaged_page_is_copied(large: Path, folder: Path, page: int) -> None:
    shutil.copytree(large, folder)
    path = folder / DATABASE
    broken = bytearray(path.read_bytes())
    start = page * 4096 % len(broken)
    broken[start : start + 4096] = b"\xa5" * 4096
    path.write_bytes(broken)
    with Store(folder) as store:
        assert "flipscope results --repair" in refused("is damaged", put, store, "new")
    assert path.read_bytes() == broken
    assert main(["results", "--repair", "--results", str(folder)]) == 0
    (before,) = folder.glob("*.damaged")
    assert before.read_bytes() == broken
    with Store(folder) as store:
        assert 50 <= len(store.done(KEYS)) <= 100
        for key in KEYS:
            put(store, key, {"text": "x" * 500, "x": np.arange(len(key))})
        assert store.records(KEYS)[1] == set()


def test_repair_keeps_the_start_of_a_file_that_is_cut_off(large: Path, folder: Path) -> None:
    shutil.copytree(large, folder)
    path = folder / DATABASE
    path.write_bytes(path.read_bytes()[: -2 * 4096])
    assert repair(folder).kept > 50


def test_nothing_is_repaired_under_a_driver(here: Path) -> None:
    spoil(here, DAMAGES["outcome"])
    with Store(here) as store, store.driving("deeds"):
        refused("deeds is being run", repair, here)


# ---------------------------------------------------------------- other files


def test_no_database(folder: Path, tmp_path: Path) -> None:
    refused("there are no results in .*: run a study, or name another folder", Store, folder, create=False)
    assert not folder.exists()
    (tmp_path / "file").touch()
    refused("file cannot be used", Store, tmp_path / "file")


def test_a_journal_without_its_database_is_not_applied_to_a_new_one(folder: Path) -> None:
    folder.mkdir()
    (folder / f"{DATABASE}-journal").write_bytes(b"x")
    refused("is missing but flipscope.sqlite-journal is there", Store, folder)


@pytest.mark.parametrize(
    ("statement", "match"),
    [
        ("PRAGMA user_version = 7", "of a newer flipscope .* update flipscope"),
        ("PRAGMA user_version = 5", "of an older flipscope .* make it anew"),
        ("PRAGMA application_id = 7", "is not a results database of flipscope"),
        ("CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM results; END", "its tables are not those"),
        ("CREATE VIEW v AS SELECT * FROM results", "its tables are not those"),
        ("DROP TABLE models", "its tables are not those"),
    ],
)
def test_newer_older_and_foreign_files_are_refused(folder: Path, statement: str, match: str) -> None:
    Store(folder).close()
    spoil(folder, statement)
    before = files(folder)
    refused(match, Store, folder)
    assert files(folder) == before


def test_an_old_sqlite_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database.sqlite3, "sqlite_version_info", (3, 33, 0))
    database._empty.cache_clear()
    refused("results need SQLite 3.34.0 or newer", Store, folder)


def test_the_schema_uses_nothing_newer_than_sqlite_3_34() -> None:
    text = database._SCHEMA.read_text("utf-8")
    statements = "\n".join(line.partition("--")[0] for line in text.splitlines())
    assert not any(word in statements for word in ("STRICT", "->", "RETURNING", "GENERATED"))


def test_a_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/r\xff 100%"))
    with Store(folder) as store:
        put(store)
        assert record(store, "k") is not None
    with Store(folder, create=False) as store:
        assert store.done(["k"]) == {"k"}


# ---------------------------------------------------------------- lost, full and read-only folders


class Deleting(InProcess):
    """Measures two trials, then does something to the folder."""

    def __init__(self, deed: object) -> None:
        self.deed = deed

    def run(self, jobs: list[Job]) -> object:  # type: ignore[override]
        done = 0
        for event in super().run(jobs):
            yield event
            if isinstance(event, Finished):
                done += 1
                if done == 2:
                    self.deed()  # type: ignore[operator]


@pytest.mark.parametrize("what", ["delete", "move", "replace", "delete the file"])
def test_a_folder_that_is_lost_under_a_run_ends_it_with_one_sentence(folder: Path, what: str) -> None:
    deeds = {
        "delete": lambda: shutil.rmtree(folder),
        "move": lambda: folder.rename(folder.with_name("moved")),
        "replace": lambda: shutil.copyfile(folder / DATABASE, folder / "new").replace(folder / DATABASE),
        "delete the file": lambda: (folder / DATABASE).unlink(),
    }
    with Store(folder) as store:
        said = refused("while this process used it", run_study, study(), "smoke", store, Deleting(deeds[what]))
    assert ("replaced by another file" if what == "replace" else "deleted or moved") in said
    if what == "move":
        with Store(folder.with_name("moved")) as moved:
            assert len(flat(moved)) == 2


def test_a_changed_working_folder_is_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Store("results") as store:
        monkeypatch.chdir("/")
        put(store)
        assert store.done(["k"]) == {"k"}


def test_a_full_disk(kept: Store, folder: Path) -> None:
    put(kept, "old")
    ((pages,),) = kept._connection.execute("PRAGMA page_count")
    kept._connection.execute(f"PRAGMA max_page_count = {pages}")
    refused("is full: what was stored before is safe", put, kept, "new", {"text": "x" * 100_000, "x": np.arange(5)})
    refused("is full", kept.fail, "new", "tosses", {}, 1, "x" * 100_000, 1.0)
    assert kept.done(["old", "new"]) == {"old"}
    kept._connection.execute("PRAGMA max_page_count = 1000000")
    put(kept, "new")
    with Store(folder) as again:
        assert set(again.records(["old", "new"])[0]) == {"old", "new"}


# Root may write everywhere: this process gives that up first.
READ_ONLY = """
import ctypes, os, sys
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)())
from flipscope.basics.errors import InputError
from flipscope.lab.store.store import Store

folder = sys.argv[1]
assert not os.access(folder, os.W_OK)
with Store(folder, create=False) as store, Store(folder) as again:
    print(len(list(store.table())), store.records(["a" * 64])[0]["a" * 64].outcome["x"].tolist())
    for call in (
        lambda: store.put("new", "s", {}, 1, {"x": 1}, 1.0),
        lambda: store.fail("new", "s", {}, 1, "", 1.0),
        lambda: store.forget(["k0"]),
        lambda: store.driving("s").__enter__(),
        lambda: store.begin_run("s", "smoke", 1, 1, ""),
        lambda: Store(folder + "/inside"),
    ):
        try:
            call()
        except InputError as error:
            print(error)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="capabilities are Linux's")
def test_a_read_only_folder_can_be_read(here: Path) -> None:
    modes = [(path, 0o555 if path.is_dir() else 0o444) for path in (here, *here.rglob("*"))]
    for path, mode in reversed(modes):
        path.chmod(mode)
    try:
        with start(READ_ONLY, here) as child:
            out = child.communicate(timeout=LIMIT)[0].splitlines()
    finally:
        for path, _ in modes:
            path.chmod(0o755)
    assert child.returncode == 0
    assert out[0] == f"{TRIALS + 1} [0, 1, 2]"
    assert len(out) == 7
    assert all("cannot be" in line and "use another --results" in line for line in out[1:])
