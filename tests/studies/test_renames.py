"""Renaming and rewording in a copy of the package changes no key and no golden number; measuring otherwise does."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import flipscope
from flipscope.lab import registry
from flipscope.lab.keys import trial_key

# Studies that are measured in the copy, each by a golden trial that runs through what is renamed or edited.
MEASURED = {"blowup-bound": 9, "influence-decay": 0, "low-variance": 0}
SCRIPT = f"""
import json
from studies.golden import Golden, compared, measured
from flipscope.lab import registry
from flipscope.lab.keys import trial_key

studies = [registry.find(name) for name in sorted(registry.names())]
keys = {{study.name: trial_key(study, study.checked_trials("smoke")[0]) for study in studies}}
numbers = {{}}
for name, place in {MEASURED}.items():
    study, golden = registry.find(name), Golden.read(name)
    content, outcome = golden.trials[place]
    (trial,) = [each for each in study.checked_trials("smoke") if json.loads(json.dumps(each.content())) == content]
    for _, now in measured(study, [trial]):
        numbers[name] = compared(content, outcome, now, golden.relative, golden.columns)
print(json.dumps([keys, numbers]))
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


def _renamed(folder: Path) -> None:
    """Much has another name and nothing another meaning."""
    # A module.
    (folder / "models" / "modes.py").rename(folder / "models" / "switches.py")
    _replaced(folder, r"models\.modes\b", "models.switches")
    # A local and a message of the transformer.
    _replaced(folder, r"weights = self\.weights\(", "shares = self.weights(", "transformer.py")
    _replaced(folder, r"self\.dropout\(weights\)", "self.dropout(shares)", "transformer.py")
    _replaced(folder, r"must be integers \[string", "should be integers [string", "transformer.py")
    # A study's own function, parameter, local and class of trials.
    _replaced(folder, r"\bslacks\b", "looseness", "blowup_bound.py")
    _replaced(folder, r"\bperturbed\b", "after_noise", "blowup_bound.py")
    _replaced(folder, r"\bprogress\b(?!\.)", "report_progress", "blowup_bound.py")
    _replaced(folder, r"\bDecay\b", "Falling", "influence_decay.py")


def _measured_otherwise(folder: Path) -> None:
    """One study measures something else."""
    _replaced(folder, r"< kappa\*\*2 / width", "< 2 * kappa**2 / width", "low_variance.py")


def test_only_an_edit_of_what_is_measured_changes_keys_and_numbers(tmp_path: Path) -> None:
    source = Path(flipscope.__file__).parent
    shutil.copytree(source, tmp_path / "flipscope", ignore=shutil.ignore_patterns("__pycache__"))
    _renamed(tmp_path / "flipscope")
    _measured_otherwise(tmp_path / "flipscope")
    tests = Path(__file__).parents[1]
    edited, numbers = json.loads(
        subprocess.run(
            [sys.executable, "-B", "-c", SCRIPT],
            env={**os.environ, "FLIPSCOPE_COMPILE": "never", "PYTHONPATH": f"{tmp_path}{os.pathsep}{tests}"},
            cwd=tmp_path,
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
    )
    studies = {name: registry.find(name) for name in registry.names()}
    keys = {name: trial_key(study, study.checked_trials("smoke")[0]) for name, study in studies.items()}
    assert edited.keys() == keys.keys()
    assert [name for name in keys if keys[name] != edited[name]] == ["low-variance"]
    assert [name for name, differences in numbers.items() if differences] == ["low-variance"]
