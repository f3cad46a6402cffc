"""A results folder or its files moved, deleted or replaced while a store is open: noticed, told, and nothing lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from lab.stores import put, refused

from flipscope.basics.errors import RunError
from flipscope.lab.store import place, salvage, schema
from flipscope.lab.store.store import DATABASE, Store

WAL = DATABASE + "-wal"


def deleted(folder: Path) -> None:
    shutil.rmtree(folder)


def database_deleted(folder: Path) -> None:
    (folder / DATABASE).unlink()


def database_moved(folder: Path) -> None:
    (folder / DATABASE).rename(folder / "elsewhere")


def database_replaced(folder: Path) -> None:
    shutil.copy(folder / DATABASE, folder / "copy")
    (folder / "copy").replace(folder / DATABASE)


def folder_replaced(folder: Path) -> None:
    shutil.rmtree(folder)
    Store(folder.with_name("new")).close()
    folder.with_name("new").rename(folder)


def log_deleted(folder: Path) -> None:
    (folder / WAL).unlink()


def memory_deleted(folder: Path) -> None:
    (folder / (DATABASE + "-shm")).unlink()


HARMS = [deleted, database_deleted, database_moved, database_replaced, folder_replaced, log_deleted, memory_deleted]


@pytest.mark.parametrize("harm", HARMS)
def test_what_an_open_store_holds_is_saved_when_its_files_go(
    folder: Path, harm: Callable[[Path], None], local_disk: None
) -> None:
    with Store(folder) as store:
        put(store, "a", {"x": 1})
        harm(folder)
        with pytest.raises(RunError, match="while this process used it: what it held was saved to") as caught:
            put(store, "b", {"x": 2})
        with pytest.raises(RunError):
            store.fail("c", "tosses", {}, "c0de", "Traceback", 1.0)
    assert caught.value.exit_code == 1
    assert "\n" not in str(caught.value)
    saved = folder / (DATABASE + place.RESCUED)
    assert str(saved) in str(caught.value)
    assert not (folder / WAL).exists()
    if not (folder / DATABASE).exists():
        refused("is missing but flipscope.sqlite.rescued is there", Store, folder)
    saved.replace(folder / DATABASE)
    with Store(folder) as found:
        assert found.done("abc") == {"a", "b"}
        assert [failure.key for failure in found.failures()] == ["c"]
        put(found, "d")
    assert list(folder.glob("*rescued*")) == []


@pytest.mark.parametrize("local", [True, False])
def test_a_moved_folder_takes_its_results_along(
    folder: Path, local: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("only there it can be told where an open file is now")
    monkeypatch.setattr(schema, "on_local_disk", lambda _: local)
    there = tmp_path / "there"
    with Store(folder) as store:
        put(store, "a", {"x": np.arange(3)})
        folder.rename(there)
        with pytest.raises(RunError, match=f"{folder} was moved to {there} .* continue with --results {there}"):
            put(store, "b", {"x": np.arange(4)})
    assert not folder.exists()
    with Store(there) as found:
        assert found.done("ab") == {"a", "b"}
        assert found.records("ab")[1] == set()


@pytest.mark.parametrize("harm", [deleted, database_deleted, database_moved, database_replaced])
def test_the_same_with_a_plain_journal(
    folder: Path, harm: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "on_local_disk", lambda _: False)
    with Store(folder) as store:
        put(store, "a", {"x": 1})
        harm(folder)
        with pytest.raises(RunError, match="was saved to"):
            put(store, "b", {"x": 2})
    (folder / (DATABASE + place.RESCUED)).replace(folder / DATABASE)
    with Store(folder) as found:
        assert found.done("ab") == {"a", "b"}


@pytest.mark.parametrize(("size", "said"), [(0, "was emptied"), (5000, "was cut off")])
@pytest.mark.parametrize("local", [True, False])
def test_a_database_that_is_emptied_is_told_of_and_repaired(
    folder: Path, local: bool, size: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "on_local_disk", lambda _: local)
    with Store(folder) as store:
        put(store, "a", {"x": 1})
        os.truncate(folder / DATABASE, size)
        for key in "bc":
            with pytest.raises(RunError, match=f"{said} while .* could not be saved elsewhere .* --repair") as caught:
                put(store, key, {"x": 2})
            assert "\n" not in str(caught.value)
    assert place.rescued(folder / DATABASE) == []
    refused("is damaged", Store, folder)
    if local:  # the log still has what this process wrote
        salvage.repair(folder)
        with Store(folder) as found:
            assert found.done("abc") == {"a", "b", "c"}


def test_it_is_noticed_after_the_commit_too(folder: Path, local_disk: None) -> None:
    with Store(folder) as store:
        put(store, "a", {"x": 1})
        with pytest.raises(RunError, match="was deleted"), store._writing():
            shutil.rmtree(folder)
    (folder / (DATABASE + place.RESCUED)).rename(folder / DATABASE)
    with Store(folder) as found:
        assert found.done("a") == {"a"}


def test_arrays_that_are_left_stay_with_the_saved_rows(folder: Path, local_disk: None) -> None:
    with Store(folder) as store:
        put(store, "a", {"x": np.arange(3)})
        deleted(folder)
        with pytest.raises(RunError):
            put(store, "b", {"x": np.arange(4)})
    (folder / (DATABASE + place.RESCUED)).rename(folder / DATABASE)
    with Store(folder) as found:
        assert found.done("ab") == {"a", "b"}
        assert found.records("ab")[1] == {"a"}


def test_saved_files_do_not_replace_each_other(folder: Path, local_disk: None) -> None:
    for number, name in enumerate(("", "-2", "-3")):
        with Store(folder) as store:
            put(store, f"k{number}", {"x": 1})
            for path in folder.glob(DATABASE + "*"):
                if place.RESCUED not in path.name:
                    path.unlink()
            with pytest.raises(RunError, match=f"rescued{name};"):
                put(store, "b", {"x": 2})
        shutil.copy(folder / (DATABASE + place.RESCUED), folder / DATABASE)
    assert len(place.rescued(folder / DATABASE)) == 3


def test_where_nothing_can_be_saved_it_is_said(folder: Path, local_disk: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    with Store(folder) as store:
        put(store, "a", {"x": 1})
        deleted(folder)
        monkeypatch.setattr(place, "_copied", full)
        with pytest.raises(RunError, match=r"was deleted .* could not be saved elsewhere \(.*No space left"):
            put(store, "b", {"x": 2})


def test_a_changed_working_folder_is_no_loss(tmp_path: Path, local_disk: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Store("results") as store:
        put(store, "a")
        (tmp_path / "inside").mkdir()
        monkeypatch.chdir(tmp_path / "inside")
        put(store, "b")
        assert store.records("ab")[1] == set()
    with Store(tmp_path / "results") as found:
        assert found.records("ab")[1] == set()
        assert found.done("ab") == {"a", "b"}
