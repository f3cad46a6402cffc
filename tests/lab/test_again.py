"""Stored results that are measured again, and what is said beside those of older code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from commands import Run as Call

from flipscope.basics.estimates import mean_from_samples
from flipscope.basics.progress import Progress
from flipscope.lab import registry
from flipscope.lab.findings import Findings, findings
from flipscope.lab.keys import trial_key
from flipscope.lab.rows import Rows
from flipscope.lab.run.driver import run_study
from flipscope.lab.run.runner import InProcess
from flipscope.lab.store.store import Store
from flipscope.lab.study import Claim, Outcome, Scale, Study, Trial
from flipscope.lab.verdict import Judgement, at_least
from flipscope.report.pages import stored_pages


@dataclass(frozen=True)
class Draw(Trial):
    """A draw whose number the tests shift, as an import that measures otherwise does."""

    shift: ClassVar[float] = 0.0
    broken: ClassVar[bool] = False
    seed: int

    def measure(self, progress: Progress) -> Outcome:
        if self.broken and self.seed == 2:
            raise ValueError("this self is meant to fail")
        return {"value": float(np.random.default_rng(self.seed).uniform(0.3, 0.9)) + self.shift, "x": np.ones(3)}


def _judge(table: Rows) -> Judgement:
    return at_least(mean_from_samples([row["value"] for row in table], 0, 1, 0.95), 0.2, "the mean value")


class Draws(Study):
    """A study of six draws."""

    name, paper, title = "draws", "000", "A study for tests"
    scales = {"smoke": Scale(0.1, {}, "all of it")}
    claims = (Claim("mean", "Fig 0", "values are large", "mean value against 0.2", _judge),)

    def trials(self, scale: str) -> Sequence[Draw]:
        return [Draw(seed) for seed in range(6)]


STUDY = Draws()


def run(folder: Path, *, again: bool = False, limit: int | None = None) -> Findings:
    with Store(folder) as store:
        return run_study(STUDY, "smoke", store, InProcess(), again=again, limit=limit)


def values(found: Findings) -> list[float]:
    return [row["value"] for row in found.table]


def test_stored_trials_are_measured_again_when_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(tmp_path)
    monkeypatch.setattr(Draw, "shift", 0.05)
    assert values(run(tmp_path)) == values(first)
    second = run(tmp_path, again=True)
    assert values(second) == pytest.approx(np.array(values(first)) + 0.05)
    assert (second.done, second.reused, second.failed, second.complete) == (6, 0, 0, True)
    assert [look.number for look in second.looks] == [1, 2]  # measured differently: the next look
    assert len(run(tmp_path, again=True).looks) == 2  # with the same numbers: the same look


def test_an_outcome_stays_until_the_new_one_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(tmp_path)
    monkeypatch.setattr(Draw, "shift", 0.05)
    monkeypatch.setattr(Draw, "broken", True)
    second = run(tmp_path, again=True)
    assert (second.done, second.failed, len(second.looks)) == (5, 1, 1)
    with Store(tmp_path) as store:
        found = findings(STUDY, "smoke", store)
    assert (found.done, found.failed) == (6, 0)
    assert values(found)[2] == values(first)[2]
    assert values(found)[3] == pytest.approx(values(first)[3] + 0.05)


def test_a_limit_measures_the_longest_stored_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = np.array(values(run(tmp_path)))
    monkeypatch.setattr(Draw, "shift", 0.05)
    part = run(tmp_path, again=True, limit=4)
    assert (part.done, part.reused) == (6, 2)
    assert (np.array(values(part)) > first).sum() == 4
    assert (np.array(values(run(tmp_path, again=True, limit=2))) > first).all()


def test_the_command_measures_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Call) -> None:
    monkeypatch.setattr(registry, "find", lambda name: STUDY)
    options = ["run", "draws", "--scale", "smoke", "--workers", "0", "--results", str(tmp_path), "--json"]
    run(*options)
    monkeypatch.setattr(Draw, "shift", 0.05)
    code, out, _ = run(*options, "--again")
    assert code == 0
    assert (json.loads(out)["reused"], len(json.loads(out)["looks"])) == (0, 2)


# ---------------------------------------------------------------- what is said beside older results


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """Six results, of another version of the study's file, and three of an older revision of the study."""
    with Store(tmp_path) as store:
        for number, trial in enumerate(STUDY.trials("smoke")):
            outcome = trial.measure(lambda done, total: None)
            store.put(trial_key(STUDY, trial), "draws", trial.content(), 1, outcome, 0.1, source="0" * 64)
            if number < 3:
                store.put(f"{number:064}", "draws", trial.content(), 0, outcome, 0.1)
    return tmp_path


def test_commands_say_which_results_are_older(older: Path, monkeypatch: pytest.MonkeyPatch, run: Call) -> None:
    monkeypatch.setattr(registry, "find", lambda name: STUDY)
    monkeypatch.setenv("COLUMNS", "300")
    where = ["--results", str(older)]
    measured = ["run", "draws", "--scale", "smoke", "--workers", "0", *where]
    other = "6 results measured by another version of the study's file: flipscope run draws --scale smoke --again"
    monkeypatch.setattr(registry, "address", lambda study: study.name)
    assert other in " ".join(run(*measured)[1].split())
    sentence = "3 stored results of draws are of its revision 0, which is now 1"
    assert sentence in run("results", *where)[1]
    assert sentence in run("results", "draws", *where)[1]
    (row,) = json.loads(run("results", "--json", *where)[1])
    assert len(row["notes"]) == 1
    with Store(older, create=False) as store:
        ((page,), missing) = stored_pages(store, ["draws"])
    assert not missing
    assert any(sentence in note for note in page.notes)
    assert any(other in note for note in page.notes)
    assert other not in " ".join(run(*measured, "--again")[1].split())
