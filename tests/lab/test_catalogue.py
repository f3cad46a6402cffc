"""The list of studies: the same whether they are loaded or kept, and read again when a source changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flipscope.lab import catalogue, registry
from flipscope.lab.keys import code_version


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "flipscope" / catalogue.FILE


def _unloadable(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} was loaded")

    monkeypatch.setattr(registry, "find", refuse)


def test_what_is_kept_is_what_was_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = catalogue.entries()
    assert [entry.name for entry in first] == registry.names()
    study = registry.find("zero-strings")
    entry = next(entry for entry in first if entry.name == "zero-strings")
    assert (entry.paper, entry.title, entry.code) == ("000", study.title, code_version(study))
    assert entry.scales is not None
    assert entry.scales["smoke"] == {"note": study.scales["smoke"].note, "minutes": study.scales["smoke"].minutes}
    _unloadable(monkeypatch)
    assert catalogue.entries() == first


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"stamp": 1, "entries": []}', '{"entries": 3}'])
def test_a_damaged_file_is_read_over(home: Path, damage: str) -> None:
    first = catalogue.entries()
    home.write_text(damage, "utf-8")
    assert catalogue.entries() == first
    assert json.loads(home.read_text("utf-8"))["entries"]


def test_a_changed_source_is_read_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue.entries()
    real = catalogue._sources
    monkeypatch.setattr(catalogue, "_sources", lambda package: [*real(package), ("new.py", 1, 1)])
    _unloadable(monkeypatch)
    with pytest.raises(AssertionError, match="was loaded"):
        catalogue.entries()


def test_nowhere_to_keep_it_is_no_trouble(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert [entry.name for entry in catalogue.entries()] == registry.names()
