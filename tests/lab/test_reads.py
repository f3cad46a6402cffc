"""What a command does once: it makes the trials of a study, and reads what is stored of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab.example_studies import Example

from flipscope import report
from flipscope.basics.progress import Progress
from flipscope.cli import main
from flipscope.lab import registry
from flipscope.lab.run import driver
from flipscope.lab.run.driver import run
from flipscope.lab.store.store import Store
from flipscope.lab.study import Outcome, Trial

TRIALS = 6


@dataclass(frozen=True)
class Square(Trial):
    number: int

    def measure(self, progress: Progress) -> Outcome:
        return {"value": 1.0, "many": np.arange(self.number + 1)}


class Squares(Example):
    """Counts how often its trials are made and its results summarised."""

    name = "squares"

    def __init__(self) -> None:
        self.made = self.summarised = 0

    def trials(self, scale: str) -> Sequence[Square]:
        self.made += 1
        return [Square(number) for number in range(TRIALS)]

    def summarise(self, results: Any) -> Any:
        self.summarised += 1
        return super().summarise(results)


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Squares:
    made = Squares()
    monkeypatch.setattr(registry, "find", lambda name: made)
    monkeypatch.chdir(tmp_path)
    return made


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[int, str, str]]:
    """How often each store reads each row of a result, and its arrays."""
    found: Counter[tuple[int, str, str]] = Counter()
    rows_of, arrays = Store.rows_of, Store._arrays

    def counted_rows(self: Store, table: str, keys: Any) -> Any:
        for row, whole in rows_of(self, table, keys):
            found[id(self), "row", row["key"]] += 1
            yield row, whole

    def counted_arrays(self: Store, row: Any) -> Any:
        found[id(self), "arrays", row["key"]] += 1
        return arrays(self, row)

    monkeypatch.setattr(Store, "rows_of", counted_rows)
    monkeypatch.setattr(Store, "_arrays", counted_arrays)
    return found


def once(reads: Counter[tuple[int, str, str]], kind: str) -> bool:
    """Whether all rows, or all arrays, were read, each once."""
    return set(reads.values()) == {1} and len({name for _, each, name in reads if each == kind}) == TRIALS


COMMANDS: dict[str, Callable[[], object]] = {
    "flipscope run": lambda: main(["run", "squares", "--scale", "smoke", "--workers", "0"]),
    "flipscope.run": lambda: run("squares", "smoke", workers=0),
    "flipscope report": lambda: main(["report", "squares", "--scale", "smoke"]),
    "flipscope.report.write": lambda: report.write(studies=["squares"]),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_stored_trials_are_made_and_read_once(
    command: str, study: Squares, reads: Counter[tuple[int, str, str]]
) -> None:
    run(study, "smoke", workers=0)
    study.made = study.summarised = 0
    reads.clear()
    COMMANDS[command]()
    assert study.made == 1
    assert study.summarised == 1
    assert once(reads, "row")
    assert once(reads, "arrays")


@pytest.mark.parametrize("command", ["flipscope run", "flipscope.run"])
def test_new_trials_are_made_and_read_once_however_often_they_are_judged(
    command: str, study: Squares, reads: Counter[tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "BEAT_SECONDS", 0.0)
    monkeypatch.setattr(driver, "JUDGING", 1e9)  # the claims are judged after every trial
    run(study, "smoke", workers=0, limit=2)
    study.made = study.summarised = 0
    reads.clear()
    COMMANDS[command]()
    assert study.made == 1
    assert study.summarised == 1 + TRIALS - 2
    assert once(reads, "row")
    assert once(reads, "arrays")
