"""README's commands run in order, on one trained file, and take from it what it knows."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from commands import Run

README = Path(__file__).parents[1] / "README.md"

# Added to README's commands, whose own amounts are for people who wait; of an option given twice the last counts.
LESS = {
    "random-model": "--count 1 --length 4 --strings 1 --width 8 --heads 1 --layers 1 --workers 1",
    "train": "--steps 20 --batch 8 --width 8 --layers 1 --heads 1",
    "sensitivity": "--strings 4 --path general",
    "blowup": "--strings 4",
    "sharpness": "--strings 8 --draws 2",
    "curvature": "--strings 8 --what trace --probes 3",
    "landscape": "--strings 8 --points 3",
    "bounds": "--strings 4",
    "run": "--workers 0 --set data_sets=1",
}
KNOWN = {
    "sensitivity": {"function": "majority(15)", "length": 15},
    "blowup": {"length": 15},
    "sharpness": {"function": "majority(15)", "length": 15, "loss": "bce"},
    "curvature": {"function": "majority(15)", "length": 15, "loss": "bce"},
    "landscape": {"function": "majority(15)", "length": 15, "loss": "bce"},
    "bounds": {"length": 15},
    "bound covering": {"length": 15},
}


def _commands() -> list[list[str]]:
    """The words of each command in the section on the command line, without comments."""
    section = README.read_text().split("## On the command line")[1].split("\n## ")[0]
    lines = [line.partition("  #")[0] for line in section.splitlines() if line.startswith("flipscope ")]
    return [shlex.split(line)[1:] for line in lines]


def test_readme_commands_in_order(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = _commands()
    seen = []
    for command in commands:
        name = " ".join(command[:2]) if command[0] == "bound" else command[0]
        words = [*command, *shlex.split(LESS.get(command[0], "")), *([] if "--json" in command else ["--json"])]
        code, out, err = run(*words)
        assert code == 0, (command, err)
        found = json.loads(out)
        if "model.safetensors" in command and command[0] != "train":
            assert (found["from_file"], found["differs_from_file"]) == (KNOWN[name], {}), command
            # No option repeats what the file knows.
            assert not {"--function", "--length", "-n", "--loss", "--labels"} & set(command), command
            seen.append(name)
    assert set(seen) == set(KNOWN)
    assert Path("loss.svg").is_file()
    assert Path("f.svg").is_file()
    assert len(Path("table.csv").read_text().splitlines()) == 5
