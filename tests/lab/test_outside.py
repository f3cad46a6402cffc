"""A study of another package: the one of docs/add-a-study.md, word for word, installed, run and reported."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from lab.example_studies import environment
from lab.shadows import plant_shadows

from flipscope.basics.errors import InputError
from flipscope.lab import registry

DOCUMENT = Path(__file__).parents[2] / "docs" / "add-a-study.md"


def _code() -> str:
    found = re.search(r"```python\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found.group(1)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder as pip leaves it: a package, and the metadata that names its entry point."""
    package = tmp_path / "site" / "my_package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "juntas.py").write_text(_code())
    metadata = tmp_path / "site" / "my_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[flipscope.studies]\njuntas = my_package.juntas:STUDY\n")
    return tmp_path


def _flipscope(folder: Path, *arguments: str, code: int = 0) -> str:
    path = os.pathsep.join([str(folder / "site"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-m", "flipscope.cli", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == code, run.stderr
    return run.stdout if code == 0 else run.stderr


def test_the_study_of_the_guide_is_short() -> None:
    assert len(_code().splitlines()) < 150


def test_it_is_listed_run_and_reported_by_name(outside: Path) -> None:
    listed = {row["name"]: row for row in json.loads(_flipscope(outside, "studies", "--json"))}
    assert listed["juntas"]["state"] == "not run"
    assert listed["juntas"]["scales"]["laptop"]["minutes"] == 0.2
    assert "random-init" in listed

    first = json.loads(_flipscope(outside, "run", "juntas", "--scale", "smoke", "--workers", "2", "--json"))
    assert (first["study"], first["trials"], first["failed"], first["reused"]) == ("juntas", 10, 0, 0)
    assert [claim["verdict"] for claim in first["claims"]] == ["undecided"]  # of five functions
    again = json.loads(_flipscope(outside, "run", "juntas", "--scale", "smoke", "--workers", "0", "--json"))
    assert again["reused"] == 10
    assert again["claims"] == first["claims"]

    listed = {row["name"]: row for row in json.loads(_flipscope(outside, "studies", "--json"))}
    assert listed["juntas"]["state"] == "done at scale smoke"
    _flipscope(outside, "report", "juntas", "-o", "juntas.html")
    page = (outside / "juntas.html").read_text("utf-8")
    assert "Strings of sensitivity 0 of random juntas" in page
    assert "flipscope run juntas --scale smoke" in page


def test_it_runs_from_the_folder_it_is_in(tmp_path: Path) -> None:
    (tmp_path / "juntas.py").write_text(_code())
    page = _flipscope(tmp_path, "run", "juntas:STUDY", "--scale", "smoke")
    assert "The figures: flipscope report juntas:STUDY --results results" in page
    _flipscope(tmp_path, "report", "juntas:STUDY", "--results", "results", "-o", "juntas.html")
    assert "flipscope run juntas:STUDY --scale smoke" in (tmp_path / "juntas.html").read_text("utf-8")


def installed_command(folder: Path) -> list[str]:
    """The command as pip installs it: a script, whose own folder is looked into for modules, not the current one."""
    script = folder / "flipscope"
    script.write_text("import sys\nfrom flipscope.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n")
    return [sys.executable, str(script)]


def test_files_of_the_folder_do_not_stand_in_for_modules(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    work = tmp_path / "work"
    work.mkdir()
    (work / "juntas.py").write_text(_code() + "import helper_of_juntas\n")
    (work / "helper_of_juntas.py").touch()
    plant_shadows(work)
    command = [
        *installed_command(tmp_path / "bin"),
        "run",
        "juntas:STUDY",
        "--scale",
        "smoke",
        "--workers",
        "2",
        "--json",
    ]
    run = subprocess.run(command, cwd=work, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert not list(work.glob("ran *"))
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["trials"] == 10


def test_a_study_that_a_module_hides_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyclbr.py").write_text(_code())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "pyclbr", raising=False)
    with pytest.raises(InputError, match=r"pyclbr\.py is hidden by the module pyclbr of .*pyclbr\.py\): rename"):
        registry.find("pyclbr:STUDY")
    assert "pyclbr" not in sys.modules


def test_an_edited_study_keeps_its_results_until_its_revision_is_raised(tmp_path: Path) -> None:
    file = tmp_path / "juntas.py"
    run = ("run", "juntas:STUDY", "--scale", "smoke", "--workers", "0", "--json")
    file.write_text(_code())
    assert json.loads(_flipscope(tmp_path, *run))["notes"] == []
    file.write_text(_code().replace("Bars: 95 %", "Whiskers: 95 %"))
    edited = json.loads(_flipscope(tmp_path, *run))
    assert edited["reused"] == 10
    (note,) = edited["notes"]
    assert note.startswith("10 results measured by another version of the study's file: flipscope run juntas:STUDY")
    again = json.loads(_flipscope(tmp_path, *run, "--again"))
    assert (again["reused"], again["notes"]) == (0, [])
    file.write_text(_code().replace('name, paper, title = "juntas"', 'revision = 2\n    name, paper, title = "juntas"'))
    raised = json.loads(_flipscope(tmp_path, *run))
    assert (raised["reused"], raised["done"]) == (0, 10)


def test_a_broken_study_does_not_hide_the_others(outside: Path) -> None:
    (outside / "site" / "my_package" / "juntas.py").write_text("import no_such_module\n")
    listed = {row["name"]: row for row in json.loads(_flipscope(outside, "studies", "--json"))}
    assert listed["juntas"]["state"] == "broken"
    assert "no_such_module" in listed["juntas"]["error"]
    assert listed["random-init"]["state"] == "not run"
    assert "cannot be loaded" in _flipscope(outside, "run", "juntas", code=2)


def test_an_unknown_study_is_told_with_the_three_nearest_names(tmp_path: Path) -> None:
    said = _flipscope(tmp_path, "run", "random-inti", code=2)
    assert re.search(
        r"no study is called 'random-inti'; did you mean random-init, random-[a-z]+ or random-[a-z]+\?", said
    )
    assert re.search(r"did you mean [a-z-]+, [a-z-]+ or [a-z-]+\?$", _flipscope(tmp_path, "run", "qqq", code=2).strip())
