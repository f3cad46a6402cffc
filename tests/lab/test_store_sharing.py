"""Several processes at one store: locks, drivers, and the runs they report."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from lab.stores import WRITER, flat, put, refused, start
from waiting import LIMIT

from flipscope.basics.errors import InputError
from flipscope.lab.context import DATABASE
from flipscope.lab.machine import born, machine
from flipscope.lab.store import database, locks
from flipscope.lab.store.store import Store


def test_two_processes_put_the_same_trials(folder: Path) -> None:
    with start(WRITER, folder, 0, 40) as one, start(WRITER, folder, 0, 40) as two:  # both also make the store
        assert [child.communicate(timeout=LIMIT)[0].split()[-1] for child in (one, two)] == ["end", "end"]
    with Store(folder) as found:
        assert sorted(row["trial.n"] for row in flat(found)) == list(range(40))
        assert found.records(f"k{number}" for number in range(40))[1] == set()


DRIVER = """
import os, sys
from flipscope.lab.store.store import Store

with Store(sys.argv[1]) as store, store.driving(sys.argv[2]):
    run = store.begin_run(sys.argv[2], "smoke", 1, 10, "flipscope run")
    store.beat(run, done=3, failed=1, running=[{"trial": "x", "seconds": 1.0, "share": 0.5}])
    child = os.fork()
    if child:
        print(child, flush=True)
    sys.stdin.read()
    if not child:
        os._exit(0)
"""


def test_one_driver_a_study(folder: Path) -> None:
    with Store(folder) as mine, start(DRIVER, folder, "tosses") as driver:
        assert driver.stdout is not None
        worker = int(driver.stdout.readline())
        try:
            with pytest.raises(InputError, match=f"is being run in this folder by process {driver.pid} on .* since "):
                mine.driving("tosses").__enter__()
            with mine.driving("other"):
                put(mine)
            assert mine.runs()[0].state == "running"
            driver.kill()  # the worker it forked lives on, and must not hold the lock
            driver.wait()
            with mine.driving("tosses"):
                pass
            (run,) = mine.runs("tosses")
            assert (run.state, run.done, run.failed, run.running) == ("interrupted", 3, 1, [])
        finally:
            os.kill(worker, signal.SIGKILL)


def test_a_process_does_not_drive_twice(kept: Store, folder: Path) -> None:
    with kept.driving("tosses"), Store(folder) as other:
        refused(f"by process {os.getpid()} on ", other.driving("tosses").__enter__)
    with kept.driving("tosses"):
        pass
    refused("not the name of a study", kept.driving("../x").__enter__)


def test_no_locks_on_this_file_system(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "lockf", without)
    refused("cannot be locked: No locks available; use --results", kept.driving("tosses").__enter__)


def test_a_second_store_of_a_process_does_not_undo_the_locks_of_the_first(folder: Path) -> None:
    script = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0.1).execute('BEGIN IMMEDIATE')"
    command = [sys.executable, "-c", script, str(folder / DATABASE)]
    with Store(folder) as first:
        put(first)
        with first.writing():
            Store(folder).close()  # opening and closing a file drops all POSIX locks that a process has on it
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert "database is locked" in done.stderr
        assert subprocess.run(command, check=False).returncode == 0


def test_a_store_in_use(
    kept: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database, "PATIENCE", 0.05)
    monkeypatch.setattr(database, "SILENT", 0.01)
    with Store(folder) as other, kept.writing():
        refused("in use by another process for 0.05 seconds: wait for it", put, other)
        assert other.runs() == []  # a transaction that has begun does not keep readers out
    assert "waiting for another process that uses" in caplog.text
    put(kept)


READER = """
import sys, time
from flipscope.lab.store.store import Store

until, rounds = time.monotonic() + 2, 0
while time.monotonic() < until:
    with Store(sys.argv[1], create=False) as store:
        rows, records = list(store.table()), store.records(f"k{number}" for number in range(40))
        assert len(rows) <= 40 and not records[1], records[1]
    rounds += 1
print(rounds)
"""


def test_readers_beside_a_writer_see_whole_rows_only(folder: Path) -> None:
    Store(folder).close()
    with start(READER, folder) as reader, start(WRITER, folder, 0, 40) as writer:
        assert writer.communicate(timeout=LIMIT)[0].split()[-1] == "end"
        assert int(reader.communicate(timeout=LIMIT)[0]) > 3
        assert (reader.returncode, writer.returncode) == (0, 0)


# ---------------------------------------------------------------- runs


def test_runs(kept: Store) -> None:
    first = kept.begin_run("tosses", "smoke", 1, 10, "flipscope run tosses")
    kept.beat(
        first, done=4, failed=1, running=[{"trial": "t", "seconds": 1.0, "share": None}], verdicts=[{"claim": "x"}]
    )
    (state,) = kept.runs()
    assert (state.state, state.done, state.failed, state.total, state.pid) == ("running", 4, 1, 10, os.getpid())
    assert state.running == [{"trial": "t", "seconds": 1.0, "share": None}]
    kept.beat(first, done=5, failed=1)
    assert kept.runs()[0].verdicts == [{"claim": "x"}]
    kept.end_run(first, "done", done=9, failed=1, verdicts=[{"claim": "y"}])
    (state,) = kept.runs("tosses")
    assert (state.state, state.done, state.running, state.verdicts) == ("done", 9, [], [{"claim": "y"}])
    second = kept.begin_run("tosses", "laptop", 1, 10, "")
    third = kept.begin_run("other", "laptop", 1, 10, "")
    assert [run.id for run in kept.runs()] == [second, third]
    assert [run.id for run in kept.runs("tosses", latest=False)] == [first, second]
    assert kept.runs("nothing") == []


def test_runs_of_the_dead_are_interrupted(kept: Store) -> None:
    kept.begin_run("tosses", "smoke", 1, 10, "")
    for change, state in (
        ("born = 'another boot 1'", "interrupted"),  # the number was given to another process
        ("born = ''", "running"),
        ("pid = 99999999", "interrupted"),
        ("host = 'elsewhere'", "running"),
        ("updated = '2001-01-01T00:00:00.000+00:00'", "interrupted"),
    ):
        with kept.writing() as connection:
            connection.execute(f"UPDATE runs SET {change}")
            kept.insert("runs", kept.read("SELECT * FROM runs")[0])
        assert kept.runs()[0].state == state, change


def test_processes_that_are_gone_or_waited_for_are_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert born(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert born(child.pid) is None
    child.communicate()
    assert born(child.pid) is None
    assert born(os.getpid()) == born(os.getpid())


def test_the_machine_is_described() -> None:
    found = machine()
    assert set(found) == {"host", "system", "cpu", "python", "flipscope", "torch", "numpy", "cores"}
    assert found["numpy"] == np.__version__
    assert found["cores"] >= 1
    json.dumps(found)


@pytest.mark.parametrize("how", ["link", "hard link", "pipe", "folder", "link for the folder of locks"])
def test_what_is_planted_as_a_lock_file_is_left_alone(folder: Path, tmp_path: Path, how: str) -> None:
    folder.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    victim = elsewhere / "s.lock"
    victim.write_text("precious")
    path = folder / "locks" / "s.lock"
    if how == "link for the folder of locks":
        path.parent.symlink_to(elsewhere)
    else:
        path.parent.mkdir()
        {
            "link": lambda: path.symlink_to(victim),
            "hard link": lambda: path.hardlink_to(victim),
            "pipe": lambda: os.mkfifo(path),
            "folder": lambda: path.mkdir(),
        }[how]()
    with pytest.raises(InputError, match=r"locks.* use another --results") as raised, locks.driving(folder, "s"):
        pass
    assert "\n" not in str(raised.value)
    assert victim.read_text() == "precious"
    planted = path.parent if path.parent.is_symlink() else path
    planted.rename(folder / "away")
    with locks.driving(folder, "s"):
        assert json.loads(path.read_text())["pid"] == os.getpid()
