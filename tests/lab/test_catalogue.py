"""The list of studies: the same whether they are loaded or kept, and read again when a source changes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from studies import index

from flipscope.cli import main
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


@pytest.fixture
def unindexed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two studies as if they were of another package, which has no index."""
    monkeypatch.setattr(registry, "names", lambda: ["low-variance", "zero-strings"])
    monkeypatch.setattr(catalogue, "_source", lambda name: None)


def test_the_index_is_what_the_studies_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """If not: python -m tests.studies.index."""
    ours = [name for name in registry.names() if catalogue._source(name) is not None]
    assert len(ours) >= 35
    said = {name: catalogue.entry_of(registry.find(name)) for name in ours}
    _unloadable(monkeypatch)
    assert {name: catalogue._indexed(name) for name in ours} == said
    assert catalogue.entries() == list(said.values())
    assert index.TABLE.read_text("utf-8") == index.table()


def test_an_edited_study_is_not_looked_up_in_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = catalogue._source("zero-strings")
    assert source is not None
    copy = tmp_path / source.name
    copy.write_text(source.read_text("utf-8"), "utf-8")
    (tmp_path / catalogue.INDEX).write_text((source.parent / catalogue.INDEX).read_text("utf-8"), "utf-8")
    monkeypatch.setattr(catalogue, "_source", lambda name: copy)
    assert catalogue._indexed("zero-strings") is not None
    copy.write_text(source.read_text("utf-8") + "\n", "utf-8")
    assert catalogue._indexed("zero-strings") is None
    (tmp_path / catalogue.INDEX).write_text("{", "utf-8")
    assert catalogue._indexed("zero-strings") is None


def test_listing_loads_neither_torch_nor_numba_nor_a_study() -> None:
    code = """
import sys
from flipscope.cli import main
for arguments in ([], ["random-init"], ["--paper", "001", "--figure", "5"]):
    assert main(["studies", *arguments]) == 0
assert not [name for name in sys.modules if name.split(".")[0] in ("torch", "numba", "scipy")]
assert not [name for name in sys.modules if name.startswith("flipscope.studies.")]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Settings, changed by --set NAME=VALUE" in done.stdout


@pytest.mark.parametrize(
    ("figures", "wanted", "found"),
    [
        (("Fig 3 left", "Fig 4"), "3", True),
        (("Fig 3 left",), "Figure 3", True),
        (("Fig 15",), "5", False),
        (("Figs 6, 7",), "7", True),
        (("Thm 5",), "5", False),
        (("Thms 7, 8, 16",), "Theorem 8", True),
        (("Thms 7, 8, 16",), "Thm 8", True),
        (("Lemmas B.2-B.8",), "Lem B.5", True),
        (("E.3",), "E.3", True),
        (("Fig 3",), "left", False),
    ],
)
def test_figures_by_their_numbers(figures: tuple[str, ...], wanted: str, found: bool) -> None:
    assert catalogue.shows(figures, wanted) is found


def test_studies_of_a_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["studies", "--paper", "001", "--figure", "5", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["sharpness-by-length"]
    for arguments, said in (
        (("--paper", "999"), "no study is of paper '999'; there are papers 000, 001"),
        (("--paper", "001", "--figure", "99"), "no study shows '99' of paper 001; those that are shown are Fact 1"),
        (("random-init", "--paper", "000"), "leave them out, or random-init"),
    ):
        assert main(["studies", *arguments]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.usefixtures("unindexed")
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


@pytest.mark.usefixtures("unindexed")
@pytest.mark.parametrize("damage", ["", "{", "[]", '{"stamp": 1, "entries": []}', '{"entries": 3}'])
def test_a_damaged_file_is_read_over(home: Path, damage: str) -> None:
    first = catalogue.entries()
    home.write_text(damage, "utf-8")
    assert catalogue.entries() == first
    assert json.loads(home.read_text("utf-8"))["entries"]


@pytest.mark.usefixtures("unindexed")
def test_a_changed_source_is_read_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue.entries()
    real = catalogue._sources
    monkeypatch.setattr(catalogue, "_sources", lambda package: [*real(package), ("new.py", 1, 1)])
    _unloadable(monkeypatch)
    with pytest.raises(AssertionError, match="was loaded"):
        catalogue.entries()


@pytest.mark.usefixtures("unindexed")
def test_nowhere_to_keep_it_is_no_trouble(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert [entry.name for entry in catalogue.entries()] == registry.names()
