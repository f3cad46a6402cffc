"""Stores to test with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flipscope.lab.store.store import Store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.fixture
def kept(folder: Path) -> Iterator[Store]:
    with Store(folder) as made:
        yield made
