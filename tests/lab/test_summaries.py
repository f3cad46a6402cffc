"""The list of studies: found by their files, the same whether loaded or cached, and read again after an edit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from studies import index

from flipscope.cli import main
from flipscope.cli.studies import shows
from flipscope.lab import registry
from flipscope.lab.study import Study
from flipscope.lab.summaries import FILE, summaries


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "flipscope" / FILE


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two studies, of different folders."""
    names = ["low-variance", "sparse-and"]
    monkeypatch.setattr(registry, "names", lambda: names)
    return names


def _loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the studies that are loaded from now on."""
    loaded: list[str] = []
    find = registry.find

    def noted(name: str) -> Study:
        loaded.append(name)
        return find(name)

    monkeypatch.setattr(registry, "find", noted)
    return loaded


def test_every_file_with_a_study_is_found_by_its_name() -> None:
    names = registry.names()
    assert len(names) >= 45
    assert names == sorted(names)
    assert {registry.find(name).name for name in names} == set(names)
    assert not {"shared", "training", "random-models"} & set(names)


def test_the_table_of_figures_is_what_the_studies_say() -> None:
    """If not: python -m tests.studies.index."""
    assert index.TABLE.read_text("utf-8") == index.table()


def test_an_edit_of_a_study_costs_that_study_only(
    two: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = {name: tmp_path / f"{name}.py" for name in two}
    for name, copy in copies.items():
        copy.write_text(registry.files(name)[0].read_text("utf-8"), "utf-8")
    monkeypatch.setattr(registry, "files", lambda name: [copies[name]])
    first = summaries()
    loaded = _loads(monkeypatch)
    assert summaries() == first
    assert loaded == []
    copies["sparse-and"].write_text("# edited", "utf-8")
    assert summaries() == first
    assert loaded == ["sparse-and"]


def test_a_shared_file_counts_for_its_neighbours() -> None:
    assert [path.name for path in registry.files("sparse-and")][:1] == ["sparse_and.py"]
    assert "random_models.py" in [path.name for path in registry.files("random-init")]
    assert "zero_strings.py" not in [path.name for path in registry.files("random-init")]


def test_a_cached_list_loads_neither_torch_nor_numba_nor_a_study() -> None:
    summaries()
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
    assert shows(figures, wanted) is found


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


def test_a_summary_says_what_the_study_says(two: list[str]) -> None:
    summary = summaries()[0]
    study = registry.find("low-variance")
    assert (summary.name, summary.paper, summary.title) == (study.name, study.paper, study.title)
    assert summary.revision == study.revision
    assert summary.scales is not None
    assert summary.scales["smoke"] == {"note": study.scales["smoke"].note, "minutes": study.scales["smoke"].minutes}


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"low-variance": 1}', '{"low-variance": {"version": 3}}'])
def test_a_damaged_cache_is_written_anew(two: list[str], home: Path, damage: str) -> None:
    first = summaries()
    home.write_text(damage, "utf-8")
    assert summaries() == first
    assert set(json.loads(home.read_text("utf-8"))) == set(two)


def test_nowhere_to_cache_is_no_trouble(two: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert [summary.name for summary in summaries()] == two
