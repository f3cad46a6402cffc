"""A process that dies at any moment of its writing leaves a store that is whole."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab.stores import WRITER, flat, put, record, refused, start
from repetitions import repeated
from waiting import LIMIT

from flipscope.lab.store.store import Store

KILLS = repeated(57, 4)


def died(script: str, *arguments: object) -> bool:
    """Whether a process that runs a script was killed."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, timeout=LIMIT, check=False).returncode == -signal.SIGKILL


# A store that kills its process at a named point of its first put.
DYING = """
import os, signal, sys
import numpy as np
from flipscope.lab.store.store import Store

folder, point = sys.argv[1:]
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)

class Dying:
    def __init__(self, connection):
        self.connection = connection
    def execute(self, text, *values):
        if point == "before " + text.split()[0]:
            die()
        found = self.connection.execute(text, *values)
        if point == "after " + text.split()[0]:
            die()
        return found
    def __getattr__(self, name):
        return getattr(self.connection, name)

if point == "link":
    os.link = die
with Store(folder) as store:
    store._connection = Dying(store._connection)
    store.put("new", "tosses", {}, 1, {"x": np.arange(100_000)}, 1.0)
"""


@pytest.mark.parametrize("point", ["before BEGIN", "after BEGIN", "after INSERT", "before COMMIT"])
def test_death_before_the_commit(folder: Path, point: str) -> None:
    with Store(folder) as made:
        put(made, "old")
    assert died(DYING, folder, point)
    with Store(folder) as found:
        assert set(found.records(["old", "new"])[0]) == {"old"}
        assert len(flat(found)) == 1
        found.check()
        put(found, "new")
        assert found.done(["old", "new"]) == {"old", "new"}


def test_death_after_the_commit(folder: Path) -> None:
    Store(folder).close()
    assert died(DYING, folder, "after COMMIT")
    with Store(folder) as found:
        assert set(found.records(["new"])[0]) == {"new"}


def test_death_while_the_store_is_made(folder: Path) -> None:
    assert died(DYING, folder, "link")
    refused("no results", Store, folder, create=False)
    with Store(folder) as found:
        assert flat(found) == []


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
        patch.setattr(kept, "_connection", Interrupted(kept._connection))
        with pytest.raises(KeyboardInterrupt):
            put(kept)
    assert kept.done("k") == set()
    put(kept)
    assert kept.done("k") == {"k"}


def test_killed_at_random_moments(folder: Path) -> None:
    moments = random.Random(1)
    said: set[str] = set()
    for _ in range(KILLS):
        with start(WRITER, folder, 0, 40) as child:
            assert child.stdout is not None
            said |= {child.stdout.readline().strip() for _ in range(moments.randrange(1, 12))}
            time.sleep(moments.random() / 50)
            child.kill()
            said |= set(child.stdout.read().split())
        with Store(folder) as found:
            keys = [row["key"] for row in flat(found)]
            assert len(set(keys)) == len(keys)
            assert found.records(keys)[1] == set()
            assert {f"k{number}" for number in said - {"ready", "end"}} <= set(keys)
    with start(WRITER, folder, 0, 40) as child:
        assert child.wait(LIMIT) == 0
    with Store(folder) as found:
        assert len(flat(found)) == 40
        for number in range(40):
            stored = record(found, f"k{number}")
            assert stored is not None
            np.testing.assert_array_equal(stored.outcome["x"], np.arange(number))
