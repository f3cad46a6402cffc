"""What is forgotten and pruned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab.stores import put

from flipscope.lab.store import store
from flipscope.lab.store.store import Store

pytestmark = pytest.mark.usefixtures("local_disk")


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
    assert kept.records("b")[1] == set()


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
    assert kept.records("abcd")[1] == set()
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
    assert kept.records("k")[1] == set()
