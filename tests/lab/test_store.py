"""The store under hostile conditions: death at any moment, two processes, damage, full and read-only disks."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from flipscope.errors import InputError
from flipscope.lab import locks, schema, store
from flipscope.lab.machine import born, machine
from flipscope.lab.store import DATABASE, Store
from flipscope.lab.study import Scale, Study, Trial
from flipscope.lab.version import trial_key

OUTCOME = {"mean": 0.5, "worst": math.inf, "count": 10**40, "names": ["é"], "weights": np.arange(12.0).reshape(3, 4)}


@dataclass(frozen=True)
class Toss(Trial):
    size: int
    kind: str = "a"


class Tosses(Study):
    name = "tosses"
    paper = "000"
    title = "Tosses"
    scales: ClassVar = {"smoke": Scale("a few", 0.1)}
    claims = ()

    def trials(self, scale: str) -> list[Toss]:
        return [Toss(size) for size in range(4)]

    def measure(self, trial: Any, progress: Any) -> dict[str, Any]:
        return {"size": trial.size, "bits": np.arange(trial.size)}

    def summarise(self, results: Any) -> list[dict[str, Any]]:
        return []


STUDY = Tosses()


@pytest.fixture(autouse=True)
def _local(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the tests are run on."""
    monkeypatch.setattr(schema, "on_local_disk", lambda _: True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.fixture
def kept(folder: Path) -> Iterator[Store]:
    with Store(folder) as made:
        yield made


def put(to: Store, key: str = "k", outcome: Any = OUTCOME, **options: Any) -> None:
    to.put(key, "tosses", {"size": 3}, "c0de", outcome, 1.5, **options)


def refused(match: str, call: Any, *arguments: Any, **options: Any) -> str:
    """The one sentence with which a call is refused."""
    with pytest.raises(InputError, match=match) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def files(folder: Path) -> dict[str, bytes]:
    """Whatever is in a folder, except what SQLite keeps in memory."""
    found = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith("-shm")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    """A process of its own that runs a script."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


# ---------------------------------------------------------------- keeping and finding


def test_what_is_put_comes_back(kept: Store) -> None:
    assert kept.get("k") is None
    put(kept, attempts=2)
    found = kept.get("k")
    assert found is not None
    assert (found.key, found.study, found.code, found.trial) == ("k", "tosses", "c0de", {"size": 3})
    assert (found.seconds, found.attempts, found.machine) == (1.5, 2, machine())
    assert list(found.outcome) == list(OUTCOME)
    assert {**found.outcome, "weights": 0} == {**OUTCOME, "weights": 0}
    np.testing.assert_array_equal(found.outcome["weights"], OUTCOME["weights"])
    assert found.finished.endswith("+00:00")


def test_another_machine_can_be_named(kept: Store) -> None:
    put(kept, machine={"host": "node7"})
    found = kept.get("k")
    assert found is not None
    assert found.machine == {"host": "node7"}


def test_a_key_is_stored_once(kept: Store) -> None:
    put(kept)
    put(kept, outcome={"mean": 7})
    found = kept.get("k")
    assert found is not None
    assert found.outcome["mean"] == 0.5
    assert len(kept.rows()) == 1


def test_done_of_many_keys(kept: Store) -> None:
    for key in "abc":
        put(kept, key, {"x": 1})
    keys = [f"{number:064x}" for number in range(100_000)]
    assert kept.done([*keys, "b", "z", "a", "a"]) == {"a", "b"}
    assert kept.done([]) == set()
    plan = kept._read(f"EXPLAIN QUERY PLAN SELECT key FROM results WHERE {store._AMONG}", "[]")
    assert any("USING COVERING INDEX" in str(row) for row in plan)


def test_results_are_those_of_the_present_code_in_the_order_asked_for(kept: Store) -> None:
    trials = STUDY.trials("smoke")
    for trial in (trials[2], trials[0]):
        kept.put(trial_key(STUDY, trial), "tosses", trial.content(), "x", STUDY.measure(trial, None), 1.0)
    kept.put(trial_key(STUDY, trials[1], "an older code"), "tosses", trials[1].content(), "y", {"size": 9}, 1.0)
    found = kept.results(STUDY, trials)
    assert [result.trial for result in found] == [trials[0], trials[2]]
    assert [result.outcome["size"] for result in found] == [0, 2]
    np.testing.assert_array_equal(found[1].outcome["bits"], [0, 1])


def test_failures_are_kept_until_the_trial_is_done(kept: Store) -> None:
    trace = "Traceback\nValueError: \ud800 no"
    kept.fail("k", "tosses", {"size": 3}, "c0de", trace, 0.5)
    kept.fail("k", "tosses", {"size": 3}, "c0de", trace, 0.7, attempts=2)
    kept.fail("l", "other", {}, "c0de", "x", 0.7)
    (found,) = kept.failures("tosses")
    assert (found.key, found.trial, found.attempts, found.seconds) == ("k", {"size": 3}, 2, 0.7)
    assert found.traceback == "Traceback\nValueError: \\ud800 no"
    assert kept.done("kl") == set()
    assert [failure.key for failure in kept.failures()] == ["k", "l"]
    assert kept.failures("tosses", ["l"]) == []
    put(kept)
    assert kept.failures("tosses") == []
    kept.fail("k", "tosses", {"size": 3}, "c0de", trace, 0.5)
    assert kept.failures("tosses") == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("key", ""), ("study", 3), ("seconds", math.nan), ("seconds", -1.0), ("attempts", 0), ("trial", {"x": object()})],
)
def test_bad_values_are_named(kept: Store, name: str, value: Any) -> None:
    good = {"key": "k", "study": "s", "trial": {}, "code": "c", "outcome": {}, "seconds": 1.0, "attempts": 1}
    refused(name, kept.put, **{**good, name: value})
    assert kept.rows() == []


# ---------------------------------------------------------------- rows


@pytest.fixture
def several(kept: Store) -> Store:
    for size in range(5):
        outcome = {"mean": size / 2, "even": size % 2 == 0, "note": f"n{size}", "list": [1], "x": np.zeros(1)}
        if size == 4:
            outcome |= {"mean": math.nan, "extra": 1 << 70}
        kept.put(f"k{size}", "tosses", {"size": size, "shape": [1, size], "rate": None}, "c", outcome, 1.0)
    kept.put("o", "other", {"length": 3}, "c", {"mean": 1}, 1.0)
    return kept


def test_rows_are_flat(several: Store) -> None:
    row = several.rows("tosses")[1]
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
    assert len(several.rows()) == 6


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
    assert "".join(row["key"][1:] for row in several.rows("tosses", [where])) == keys


def test_conditions_must_make_sense(several: Store) -> None:
    assert several.rows("tosses", [("size", ">", "1"), ("size", "<", "3")])[0]["key"] == "k2"
    assert several.rows("nothing", [("size", "=", "1")]) == []
    assert "trial.size" in refused("no such field", several.rows, "tosses", [("width", "=", "1")])
    refused("nothing like its values, such as 0", several.rows, "tosses", [("size", "=", "two")])
    refused("not a comparison", several.rows, "tosses", [("size", "~", "2")])
    several.put("z", "tosses", {"mean": 3}, "c", {"mean": 1}, 1.0)
    refused("name one of them", several.rows, "tosses", [("mean", "=", "1")])


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


# ---------------------------------------------------------------- forgetting and pruning


def test_forget_and_prune(kept: Store, folder: Path) -> None:
    shared, own = {"x": np.arange(3)}, {"x": np.arange(4)}
    put(kept, "a", shared)
    put(kept, "b", shared)
    put(kept, "c", own)
    kept.fail("d", "tosses", {}, "c0de", "x", 1.0)
    assert kept.prune() == store.Pruned(0, 0, 0, 0)
    assert kept.forget(["a", "c", "d", "nothing"]) == 3
    would = kept.prune(dry_run=True)
    assert would.files == 1
    assert len(list(kept.arrays.names())) == 2
    assert kept.prune() == would
    assert would.size > 0
    assert kept.done("abcd") == {"b"}
    assert kept.damaged("b") == set()


def test_prune_removes_stale_rows(kept: Store) -> None:
    for key, study, code in (("a", "s", "old"), ("b", "s", "new"), ("c", "t", "old"), ("d", "s", "older")):
        kept.put(key, study, {}, code, {"x": np.arange(ord(key))}, 1.0)
    kept.fail("e", "s", {}, "old", "x", 1.0)

    def stale(study: str, code: str) -> bool:
        return study == "s" and code != "new"

    would = kept.prune(stale=stale, dry_run=True)
    assert kept.done("abcd") == set("abcd")
    assert (would.results, would.failures, would.files) == (2, 1, 2)
    assert kept.prune(stale=stale) == would
    assert kept.done("abcd") == {"b", "c"}
    assert kept.damaged("abcd") == set()
    assert kept.failures() == []
    assert len(list(kept.arrays.names())) == 2


def test_a_file_pruned_just_before_the_row_is_written_again(kept: Store, folder: Path) -> None:
    write = kept.arrays.write

    def write_and_lose(arrays: Any) -> tuple[str, int]:
        found = write(arrays)
        kept.arrays.write = write  # type: ignore[method-assign]
        with Store(folder) as other:
            assert other.prune().files == 1
        return found

    kept.arrays.write = write_and_lose  # type: ignore[method-assign]
    put(kept)
    assert kept.done("k") == {"k"}
    assert kept.damaged("k") == set()


# ---------------------------------------------------------------- death


def died(script: str, *arguments: object) -> bool:
    """Whether a process that runs a script was killed."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, timeout=60, check=False).returncode == -signal.SIGKILL


# A store that kills its process at a named point of its first put.
DYING = """
import os, signal, stat, sys
import numpy as np
from flipscope.lab import arrays
from flipscope.lab.store import Store

folder, point = sys.argv[1:]
die = lambda: os.kill(os.getpid(), signal.SIGKILL)

def before(name):
    call = getattr(os, name)
    def dying(*arguments, **options):
        if name == "fsync" and stat.S_ISDIR(os.fstat(arguments[0]).st_mode):
            return call(*arguments)
        if name == "write":
            call(arguments[0], arguments[1][:50])
        die()
    return dying

class Dying:
    def __init__(self, database):
        self.database = database
    def execute(self, text, *values):
        if point == "before " + text.split()[0]:
            die()
        found = self.database.execute(text, *values)
        if point == "after " + text.split()[0]:
            die()
        return found
    def __getattr__(self, name):
        return getattr(self.database, name)

if point == "link":
    os.link = before("link")
with Store(folder) as store:
    store._database = Dying(store._database)
    if point in ("write", "fsync", "replace"):
        setattr(os, point, before(point))
    if point == "renamed":
        arrays.flush_folder = lambda folder: die() if len(folder.name) == 2 else None
    store.put("new", "tosses", {}, "c", {"x": np.arange(1000)}, 1.0)
"""


@pytest.mark.parametrize(
    "point",
    ["write", "fsync", "replace", "renamed", "before BEGIN", "after BEGIN", "after INSERT", "before COMMIT"],
)
def test_death_before_the_commit(folder: Path, point: str) -> None:
    with Store(folder) as made:
        put(made, "old")
    assert died(DYING, folder, point)
    with Store(folder) as found:
        assert found.done(["old", "new"]) == {"old"}
        assert found.damaged(["old"]) == set()
        assert len(found.rows()) == 1
        for path in folder.rglob("*.part"):
            os.utime(path, (0, 0))
        assert found.prune().files == 1
        assert [found.arrays.path(name).exists() for name in found.arrays.names()] == [True]
        assert list(folder.rglob("*.part")) == []
        put(found, "new")
        assert found.done(["old", "new"]) == {"old", "new"}


def test_death_after_the_commit(folder: Path) -> None:
    Store(folder).close()
    assert died(DYING, folder, "after COMMIT")
    with Store(folder) as found:
        assert found.done(["new"]) == {"new"}
        assert found.damaged(["new"]) == set()
        assert found.prune().files == 0


def test_death_while_the_store_is_made(folder: Path) -> None:
    assert died(DYING, folder, "link")
    refused("no results", Store, folder, create=False)
    with Store(folder) as found:
        assert found.rows() == []
        (part,) = folder.glob(".*.part")
        assert found.prune().files == 0
        os.utime(part, (0, 0))
        assert found.prune().files == 1


WRITER = """
import sys
import numpy as np
from flipscope.lab.store import Store

folder, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with Store(folder) as store:
    print("ready", flush=True)
    for number in range(first, last):
        store.put(f"k{number}", "tosses", {"n": number}, "c", {"n": number, "x": np.arange(number)}, 1.0)
        print(number, flush=True)
print("end", flush=True)
"""


def test_killed_at_random_moments(folder: Path) -> None:
    moments = random.Random(1)
    said: set[str] = set()
    for _ in range(4):
        with start(WRITER, folder, 0, 40) as child:
            assert child.stdout is not None
            said |= {child.stdout.readline().strip() for _ in range(moments.randrange(1, 12))}
            time.sleep(moments.random() / 50)
            child.kill()
            said |= set(child.stdout.read().split())
        with Store(folder) as found:
            keys = [row["key"] for row in found.rows()]
            assert len(set(keys)) == len(keys)
            assert found.damaged(keys) == set()
            assert {f"k{number}" for number in said - {"ready", "end"}} <= set(keys)
    with start(WRITER, folder, 0, 40) as child:
        assert child.wait(60) == 0
    with Store(folder) as found:
        assert len(found.rows()) == 40
        for number in range(40):
            record = found.get(f"k{number}")
            assert record is not None
            np.testing.assert_array_equal(record.outcome["x"], np.arange(number))


# ---------------------------------------------------------------- several at once


def test_two_processes_put_the_same_trials(folder: Path) -> None:
    with start(WRITER, folder, 0, 40) as one, start(WRITER, folder, 0, 40) as two:  # both also make the store
        assert [child.communicate(timeout=60)[0].split()[-1] for child in (one, two)] == ["end", "end"]
    with Store(folder) as found:
        assert sorted(row["trial.n"] for row in found.rows()) == list(range(40))
        assert found.damaged(f"k{number}" for number in range(40)) == set()
        assert found.prune().files == 0


DRIVER = """
import os, sys, time
from flipscope.lab.store import Store

with Store(sys.argv[1]) as store, store.driving(sys.argv[2]):
    run = store.begin_run(sys.argv[2], "smoke", "c", 10, "flipscope run")
    store.beat(run, done=3, failed=1, running=[{"trial": "x", "seconds": 1.0, "share": 0.5}])
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    print(child, flush=True)
    sys.stdin.read()
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


@pytest.mark.parametrize("local", [True, False])
def test_a_second_store_of_a_process_does_not_undo_the_locks_of_the_first(
    folder: Path, local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "on_local_disk", lambda _: local)
    script = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0.1).execute('BEGIN IMMEDIATE')"
    command = [sys.executable, "-c", script, str(folder / DATABASE)]
    with Store(folder) as first:
        put(first)
        with first._writing():
            Store(folder).close()  # opening and closing a file drops all POSIX locks that a process has on it
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert "database is locked" in done.stderr
        assert subprocess.run(command, check=False).returncode == 0
        # Without its lock on the file the other process would have taken itself for the last, and the log away.
        assert (folder / (DATABASE + "-wal")).exists() == local


def test_a_store_in_use(kept: Store, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "PATIENCE", 0.05)
    with Store(folder) as other, kept._writing():
        refused("in use by another process", put, other)
    put(kept)


# ---------------------------------------------------------------- runs


def test_runs(kept: Store) -> None:
    first = kept.begin_run("tosses", "smoke", "c", 10, "flipscope run tosses")
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
    second = kept.begin_run("tosses", "laptop", "c", 10, "")
    third = kept.begin_run("other", "laptop", "c", 10, "")
    assert [run.id for run in kept.runs()] == [second, third]
    assert [run.id for run in kept.runs("tosses", latest=False)] == [first, second]
    assert kept.runs("nothing") == []


def test_runs_of_the_dead_are_interrupted(kept: Store) -> None:
    kept.begin_run("tosses", "smoke", "c", 10, "")
    for change, state in (
        ("born = 'another boot 1'", "interrupted"),  # the number was given to another process
        ("born = ''", "running"),
        ("pid = 99999999", "interrupted"),
        ("host = 'elsewhere'", "running"),
        ("updated = '2001-01-01T00:00:00.000+00:00'", "interrupted"),
    ):
        kept._database.execute(f"UPDATE runs SET {change}")
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


# ---------------------------------------------------------------- damage


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "results"
    with Store(folder) as made:
        for number in range(80):
            put(made, f"k{number}", {"text": "x" * 500, "x": np.arange(number % 3)})
    return folder


@pytest.fixture
def filled(template: Path, folder: Path) -> Path:
    shutil.copytree(template, folder)
    return folder


@pytest.mark.parametrize("cut", [0, 1, 50, 99, 100, 512, 4095, 4096, 4097, 20_000, 5 * 4096, -4096, -513, -1])
def test_a_cut_off_database(filled: Path, cut: int) -> None:
    path = filled / DATABASE
    path.write_bytes(path.read_bytes()[:cut])
    before = files(filled)
    for create in (True, False):
        said = refused("is damaged .* move it away", Store, filled, create=create)
        assert str(path) in said
    after = files(filled)
    assert {name: after[name] for name in before} == before
    assert not set(after) - set(before) or not any(after[name] for name in set(after) - set(before))
    path.rename(path.with_suffix(".broken"))
    with Store(filled) as fresh:
        assert fresh.rows() == []
        assert len(list(fresh.arrays.names())) == 3


@pytest.mark.parametrize("garbage", [b"", b"not a database", bytes(8192), b"\xff" * 8192])
def test_an_overwritten_database(filled: Path, garbage: bytes) -> None:
    path = filled / DATABASE
    path.write_bytes(garbage)
    refused("is damaged", Store, filled)
    assert path.read_bytes() == garbage


@pytest.mark.parametrize("page", [1, 2, 5, 9])
def test_garbage_inside(filled: Path, page: int) -> None:
    path = filled / DATABASE
    content = path.read_bytes()
    path.write_bytes(content[: page * 4096] + b"\xa5" * 4096 + content[(page + 1) * 4096 :])
    refused("is damaged", Store, filled)


def test_a_cut_off_database_with_an_unmerged_log(filled: Path) -> None:
    copy = filled.with_name("copy")
    with Store(filled) as made:
        put(made, "new")
        shutil.copytree(filled, copy)  # as a killed process would leave it
    path, log = copy / DATABASE, copy / (DATABASE + "-wal")
    whole = path.read_bytes()
    for cut in (0, 4096, 5 * 4096, len(whole) // 8192 * 4096):
        path.write_bytes(whole[:cut])
        before = files(copy)
        assert before[log.name]
        refused("is damaged", Store, copy)
        assert files(copy) == before
    path.write_bytes(whole)
    with Store(copy) as found:
        assert len(found.rows()) == 81


def test_a_lost_database_with_an_unmerged_log(folder: Path) -> None:
    with Store(folder) as made:
        put(made)
        shutil.copytree(folder, folder.with_name("copy"))
    copy = folder.with_name("copy")
    (copy / DATABASE).unlink()
    refused("is missing but flipscope.sqlite-wal is there", Store, copy)


def test_no_database(folder: Path, tmp_path: Path) -> None:
    refused("there are no results in .*: run a study, or name another folder", Store, folder, create=False)
    assert not folder.exists()
    (tmp_path / "file").touch()
    refused("file cannot be used", Store, tmp_path / "file")


def test_newer_and_foreign_databases(folder: Path) -> None:
    Store(folder).close()
    path = folder / DATABASE
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    before = path.read_bytes()
    refused("of a newer flipscope .* update flipscope", Store, folder)
    assert path.read_bytes() == before
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (a)")
    before = path.read_bytes()
    refused("is not a results database of flipscope", Store, folder)
    assert path.read_bytes() == before


@pytest.mark.parametrize("harm", ["missing", "changed"])
def test_damaged_arrays(kept: Store, harm: str) -> None:
    trial = Toss(5)
    key = trial_key(STUDY, trial)
    kept.put(key, "tosses", trial.content(), "c", STUDY.measure(trial, None), 1.0)
    put(kept, "other")
    (name,) = [name for name in kept.arrays.names() if "bits" in kept.arrays.read(name)]
    path = kept.arrays.path(name)
    if harm == "missing":
        path.unlink()
    else:
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 4]))
    assert kept.damaged([key, "other", "nothing"]) == {key}
    for call in (lambda: kept.get(key), lambda: kept.results(STUDY, [trial])):
        said = refused("run tosses again to measure it anew", call)
        assert str(path) in said
        assert key[:12] in said
    kept.put(key, "tosses", trial.content(), "c", {"size": 6, "bits": np.arange(9)}, 1.0)
    (found,) = kept.results(STUDY, [trial])
    assert found.outcome["size"] == 6
    assert kept.damaged([key]) == set()
    assert len(kept.rows()) == 2


# ---------------------------------------------------------------- the disk


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk(kept: Store, folder: Path, call: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    put(kept, "old")

    def full(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        refused(f"the disk of {folder} is full: what was stored before is safe", put, kept, "new", {"x": np.arange(9)})
    assert kept.done(["old", "new"]) == {"old"}
    assert list(folder.rglob("*.part")) == []
    put(kept, "new", {"x": np.arange(9)})
    assert kept.damaged(kept.done(["old", "new"])) == set()


def test_a_full_database(kept: Store, folder: Path) -> None:
    put(kept, "old")
    ((pages,),) = kept._database.execute("PRAGMA page_count")
    kept._database.execute(f"PRAGMA max_page_count = {pages}")
    refused("is full: what was stored before is safe", put, kept, "new", {"text": "x" * 100_000, "x": np.arange(5)})
    refused("is full", kept.fail, "new", "tosses", {}, "c", "x" * 100_000, 1.0)
    assert kept.done(["old", "new"]) == {"old"}
    kept._database.execute("PRAGMA max_page_count = 1000000")
    put(kept, "new")
    with Store(folder) as again:
        assert again.damaged(again.done(["old", "new"])) == set()
        assert len(again.rows()) == 2


# Root may write everywhere: this process gives that up first.
READ_ONLY = """
import ctypes, os, sys
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)())
from flipscope.errors import InputError
from flipscope.lab.store import Store

folder = sys.argv[1]
assert not os.access(folder, os.W_OK)
with Store(folder, create=False) as store, Store(folder) as again:
    print(len(store.rows()), store.get("k0").outcome["x"].tolist(), len(again.done(["k1", "k2", "z"])))
    for call in (
        lambda: store.put("new", "s", {}, "c", {"x": 1}, 1.0),
        lambda: store.fail("new", "s", {}, "c", "", 1.0),
        lambda: store.forget(["k0"]),
        lambda: store.prune(),
        lambda: store.driving("s").__enter__(),
        lambda: store.begin_run("s", "smoke", "c", 1, ""),
        lambda: Store(folder + "/inside"),
    ):
        try:
            call()
        except InputError as error:
            print(error)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="capabilities are Linux's")
def test_a_read_only_folder_can_be_read(filled: Path) -> None:
    modes = [(path, 0o555 if path.is_dir() else 0o444) for path in (filled, *filled.rglob("*"))]
    for path, mode in reversed(modes):
        path.chmod(mode)
    try:
        with start(READ_ONLY, filled) as child:
            out = child.communicate(timeout=60)[0].splitlines()
    finally:
        for path, _ in modes:
            path.chmod(0o755)
    assert child.returncode == 0
    assert out[0] == "80 [] 2"
    assert len(out) == 8
    assert all("cannot be" in line and "use another --results" in line for line in out[1:])


def journal(found: Store) -> str:
    ((mode,),) = found._database.execute("PRAGMA journal_mode")
    return str(mode)


def test_no_write_ahead_log_on_a_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(folder) as found:
        assert journal(found) == "wal"
        put(found)
    monkeypatch.setattr(schema, "on_local_disk", lambda _: False)
    for _ in range(2):
        with Store(folder) as found, Store(folder) as other:
            assert journal(found) == "delete"
            ((level,),) = found._database.execute("PRAGMA synchronous")
            assert level >= 2
            put(found, "l")
            put(other, "m")
            assert found.done("klm") == set("klm")
            assert not (folder / (DATABASE + "-wal")).exists()
    with Store(folder.with_name("another")) as found:
        assert journal(found) == "delete"
    monkeypatch.setattr(schema, "on_local_disk", lambda _: True)
    with Store(folder) as found:
        assert journal(found) == "wal"
        assert found.done("klm") == set("klm")


@pytest.mark.skipif(not Path("/proc/mounts").exists(), reason="mounts are listed there on Linux")
def test_this_machine_is_looked_at() -> None:
    assert schema.file_system(Path("/proc/self"), Path("/proc/mounts").read_bytes()) == "proc"


MOUNTS = rb"""/dev/sda1 / ext4 rw 0 0
proc /proc proc rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb1 /home/me/disk xfs rw 0 0
scratch /scratch lustre rw 0 0
me@host: /mnt/my\040files fuse.sshfs rw 0 0
/dev/sdc1 /data ext4 rw 0 0
nas:/data /data nfs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/tmp/x", "ext4"),
        ("/home/me/results", "nfs4"),
        ("/home/me/disk/results", "xfs"),
        ("/homes/me", "ext4"),
        ("/scratch", "lustre"),
        ("/mnt/my files/x", "fuse.sshfs"),
        ("/data/x", "nfs"),
    ],
)
def test_file_systems_by_mount_point(path: str, kind: str) -> None:
    assert schema.file_system(Path(path), MOUNTS) == kind
    assert (kind in schema._LOCAL) == (kind in ("ext4", "xfs"))
    assert schema.file_system(Path(path), b"") == ""
