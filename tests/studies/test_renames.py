"""Renaming and rewording in a copy of the package changes no key of any study."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import flipscope
from flipscope.lab import registry
from flipscope.lab.keys import trial_key

KEYS = """
import json
from flipscope.lab import registry
from flipscope.lab.keys import trial_key

studies = [registry.find(name) for name in sorted(registry.names())]
print(json.dumps({study.name: trial_key(study, study.checked_trials("smoke")[0]) for study in studies}))
"""


def _replaced(folder: Path, pattern: str, text: str, file: str = "*.py") -> None:
    """Replace a pattern in the files of a package, at least once."""
    count = 0
    for path in folder.rglob(file):
        before = path.read_text("utf-8")
        after, found = re.subn(pattern, text, before)
        if found:
            path.write_text(after, "utf-8")
        count += found
    assert count, pattern


def _edited(folder: Path) -> None:
    """A copy in which much has another name and nothing another meaning."""
    # A module, and a function that studies measure with.
    (folder / "models" / "modes.py").rename(folder / "models" / "switches.py")
    _replaced(folder, r"models\.modes\b", "models.switches")
    _replaced(folder, r"\beval_mode\b", "evaluating")
    _replaced(folder, r"(FORMER_NAMES: .*) = \{\}", r'\1 = {"evaluating": "eval_mode"}', "keys.py")
    # Locals and messages of the transformer.
    _replaced(folder, r"\bposition\b(?=[ ),])(?! = nn)", "place", "transformer.py")
    _replaced(folder, r"must be integers \[string", "should be integers [string", "transformer.py")
    # A study's own function, parameter, local and class of trials.
    _replaced(folder, r"\bslacks\b", "looseness", "blowup_bound.py")
    _replaced(folder, r"\bperturbed\b", "after_noise", "blowup_bound.py")
    _replaced(folder, r"\bprogress\b(?!\.)", "report_progress", "blowup_bound.py")
    _replaced(folder, r"\bDecay\b", "Falling", "influence_decay.py")


def _measured_otherwise(folder: Path) -> None:
    """A copy in which one study measures something else."""
    _replaced(folder, r"2 \* model\(", "3 * model(", "blowup_bound.py")


@pytest.mark.parametrize(("edit", "changed"), [(_edited, []), (_measured_otherwise, ["blowup-bound"])])
def test_only_an_edit_of_what_is_measured_changes_keys(
    edit: Callable[[Path], None], changed: list[str], tmp_path: Path
) -> None:
    source = Path(flipscope.__file__).parent
    shutil.copytree(source, tmp_path / "flipscope", ignore=shutil.ignore_patterns("__pycache__"))
    edit(tmp_path / "flipscope")
    found = json.loads(
        subprocess.run(
            [sys.executable, "-B", "-c", KEYS],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            cwd=tmp_path,
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
    )
    studies = {name: registry.find(name) for name in registry.names()}
    keys = {name: trial_key(study, study.checked_trials("smoke")[0]) for name, study in studies.items()}
    assert sorted(name for name in keys if keys[name] != found[name]) == changed
    assert found.keys() == keys.keys()
