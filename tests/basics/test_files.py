"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from lab.stores import put

from flipscope.basics.files import write_bytes
from flipscope.cube import functions
from flipscope.lab.store.store import Store
from flipscope.models import Transformer, encoder, save


@pytest.fixture(params=[0o002, 0o027, 0o077], ids="umask {:03o}".format)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def results(path: Path) -> None:
    with Store(path / "results") as store:
        put(store, "a", {"x": np.arange(3)})


WRITERS: dict[str, Callable[[Path], object]] = {
    "report or figure": lambda path: write_bytes(path / "r.html", b"text", "report"),
    "function": lambda path: functions.majority(5).save(path / "f.npz"),
    "model": lambda path: save(Transformer(encoder(8, 1, 2)), path / "m.safetensors"),
    "results": results,
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_files_have_the_rights_that_the_umask_leaves(
    umask: int, write: Callable[[Path], object], tmp_path: Path
) -> None:
    write(tmp_path)
    found = {path: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
    assert found
    assert found == dict.fromkeys(found, 438 & ~umask)
