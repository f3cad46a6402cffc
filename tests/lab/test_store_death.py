"""A process that dies at any moment of its writing leaves a store that is whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab.stores import WRITER, put, refused, start
from waiting import LIMIT

from flipscope.lab.store.store import Store

pytestmark = pytest.mark.usefixtures("local_disk")


def died(script: str, *arguments: object) -> bool:
    """Whether a process that runs a script was killed."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, timeout=LIMIT, check=False).returncode == -signal.SIGKILL


# A store that kills its process at a named point of its first put.
DYING = """
import os, signal, stat, sys
import numpy as np
from flipscope.lab.store import arrays
from flipscope.lab.store.store import Store

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
        assert found.records(["old"])[1] == set()
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
        assert found.records(["new"])[1] == set()
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


class Interrupted:
    """A database whose user loses patience as soon as a transaction has begun."""

    def __init__(self, database: Any) -> None:
        self.database = database

    def execute(self, text: str, *values: Any) -> Any:
        found = self.database.execute(text, *values)
        if text.startswith("BEGIN"):
            raise KeyboardInterrupt
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.database, name)


def test_an_interrupt_as_soon_as_a_transaction_has_begun(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(kept, "_database", Interrupted(kept._database))
        with pytest.raises(KeyboardInterrupt):
            put(kept)
    assert kept.done("k") == set()
    put(kept)
    assert kept.done("k") == {"k"}


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
            assert found.records(keys)[1] == set()
            assert {f"k{number}" for number in said - {"ready", "end"}} <= set(keys)
    with start(WRITER, folder, 0, 40) as child:
        assert child.wait(LIMIT) == 0
    with Store(folder) as found:
        assert len(found.rows()) == 40
        for number in range(40):
            record = found.get(f"k{number}")
            assert record is not None
            np.testing.assert_array_equal(record.outcome["x"], np.arange(number))
