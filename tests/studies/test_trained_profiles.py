from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from studies.harness import run

from flipscope.lab import Rows
from flipscope.studies.geometry.trained_profiles import LEARNED, STUDY
from flipscope.studies.geometry.training import Training, recipe_of, strings_of

CLAIMS = {claim.name: claim for claim in STUDY.claims}
LAPTOP = STUDY.checked_trials("laptop")


def _row(language: str, accuracy: float, sensitivities: dict[int, float], relevant: int = 0, seed: int = 0) -> Any:
    trial = next(trial.content() for trial in LAPTOP if trial.content()["language"] == language)
    profile = np.zeros(trial["length"] + 1, int)
    for sensitivity, share in sensitivities.items():
        profile[sensitivity] = round(1000 * share)
    return {
        **trial,
        "relevant": relevant,
        "seed": seed,
        "correct": round(10_000 * accuracy),
        "tested": 10_000,
        "accuracy": accuracy,
        "learned": accuracy > LEARNED,
        "strings": int(profile.sum()),
        "profile": profile.tolist(),
        "average_sensitivity": float((profile * np.arange(len(profile))).sum() / profile.sum()),
    }


def _verdict(name: str, *rows: Any) -> str:
    return CLAIMS[name].judge(Rows(rows)).verdict


@pytest.mark.parametrize(("accuracy", "verdict"), [(1.0, "reproduced"), (0.99, "undecided"), (0.97, "contradicted")])
@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("First is learned", "first"),
        ("Majority is learned", "majority"),
        ("sparse majorities are learned", "sparse_majority"),
    ],
)
def test_learned(name: str, language: str, accuracy: float, verdict: str) -> None:
    good = [_row(language, 1.0, {0: 1}, seed=seed) for seed in (1, 2)]
    assert _verdict(name, *good, _row(language, accuracy, {0: 1})) == verdict
    assert _verdict(name, *good) == "undecided"  # two models say little of every model
    assert _verdict(name, _row("parity", 0.5, {0: 1})) == "undecided"


@pytest.mark.parametrize(("accuracy", "verdict"), [(0.5, "reproduced"), (0.6, "undecided"), (0.7, "contradicted")])
@pytest.mark.parametrize(
    ("name", "language"), [("Parity is not learned", "parity"), ("sparse parities are not learned", "sparse_parity")]
)
def test_not_learned(name: str, language: str, accuracy: float, verdict: str) -> None:
    bad = [_row(language, 0.5, {0: 1}, seed=seed) for seed in (1, 2)]
    assert _verdict(name, *bad, _row(language, accuracy, {0: 1})) == verdict


@pytest.mark.parametrize(
    ("name", "language", "relevant", "there", "elsewhere"),
    [
        ("First: spectrum at 1", "first", 0, {1: 0.9}, 0),
        ("Majority: spectrum at 0 and N/2", "majority", 0, {0: 0.7, 45: 0.1, 60: 0.1}, 20),
        ("sparse Majority: spectrum at 0 and m/2", "sparse_majority", 20, {0: 0.7, 8: 0.1, 12: 0.1}, 20),
        ("sparse Majority: spectrum at 0 and m/2", "sparse_majority", 5, {0: 0.7, 2: 0.1, 3: 0.1}, 5),
    ],
)
def test_spectrum(name: str, language: str, relevant: int, there: dict[int, float], elsewhere: int) -> None:
    good = _row(language, 1.0, {**there, elsewhere: 0.1}, relevant)
    assert _verdict(name, good, good, good) == "reproduced"
    assert _verdict(name, good) == "undecided"
    mixed = {sensitivity: share * 0.8 / 0.9 for sensitivity, share in there.items()}
    assert _verdict(name, _row(language, 1.0, {**mixed, elsewhere: 0.2}, relevant)) == "undecided"
    assert _verdict(name, good, _row(language, 1.0, {elsewhere: 1.0}, relevant)) == "contradicted"
    assert _verdict(name, _row(language, 0.9, {elsewhere: 1.0}, relevant)) == "undecided"  # it was not learned


def test_failures() -> None:
    low = [_row("random", 0.6, {0: 0.9, 10: 0.1}, seed=seed) for seed in range(8)]
    high = [_row("parity", 0.5, {50: 1.0}, seed=seed) for seed in range(8)]
    assert _verdict("models that fail to learn: sensitivities at 0", *low) == "reproduced"
    assert _verdict("models that fail to learn: sensitivities at 0", *high) == "contradicted"
    assert _verdict("models that fail to learn: sensitivities at 0", *low, *high) == "undecided"
    assert _verdict("models that fail to learn: sensitivities at 0", _row("random", 1.0, {0: 1})) == "undecided"


def test_the_paper_scale_has_the_papers_counts() -> None:
    trials = [trial.content() for trial in STUDY.checked_trials("paper")]
    models = {
        kind: sum(trial["language"] == kind for trial in trials)
        for kind in ("first", "majority", "parity", "sparse_majority", "sparse_parity", "random")
    }
    assert models == {
        "first": 10,
        "majority": 10,
        "parity": 10,
        "sparse_majority": 10 * 4 * 10,
        "sparse_parity": 10 * 4 * 10,
        "random": 100,
    }
    for trial in trials:
        assert (trial["train"], trial["test"]) == (10_000, 1_000)
        assert trial["length"] == (40 if trial["language"] == "random" else 100)
        assert trial["init"] == ("xavier_normal" if trial["language"] == "random" else "uniform")
        assert 128 <= trial["batch"] <= 4096
        assert 1e-4 <= trial["learning_rate"] <= 1e-2
        assert 2 <= trial["layers"] <= 6
        assert trial["heads"] in (1, 2, 4, 8)
        assert trial["head_size"] in (16, 32, 64, 128)
        assert trial["ffn_multiple"] in (2, 4, 8)
    assert len({(trial["language"], trial["relevant"], trial["instance"]) for trial in trials}) == 93


def test_the_laptop_scale_has_every_language() -> None:
    kinds = {(trial.language, trial.relevant, trial.length) for trial in LAPTOP if isinstance(trial, Training)}
    assert kinds == {
        ("first", 0, 100),
        ("majority", 0, 100),
        ("parity", 0, 100),
        ("sparse_majority", 5, 100),
        ("sparse_majority", 20, 100),
        ("sparse_parity", 5, 100),
        ("sparse_parity", 20, 100),
        ("random", 0, 40),
    }


def test_strings_of_a_language() -> None:
    for trial in (trial for trial in LAPTOP if isinstance(trial, Training)):
        if trial.seed:
            continue
        data, f = strings_of(trial), recipe_of(trial).data.language()
        assert len(data["train"]) == trial.train
        if f is None:
            assert data["test"] is data["train"]  # App. F.2: evaluated on the training set
            assert 4_700 < data["train"].ones < 5_300
        else:
            assert (f(data["test"].bits) == data["test"].labels).all()
            assert len(f.support) == (trial.relevant or {"first": 1}.get(trial.language, 100))


@pytest.mark.slow
def test_smoke() -> None:
    table, judgements, figures = run(STUDY, "smoke")
    _check_rows(table)
    assert len(judgements) == len(STUDY.claims)
    assert [figure.name for figure in figures] == ["trained-spectra", "trained-averages"]
    assert len(figures[0].panels) == 3


def _check_rows(table: Rows) -> None:
    assert [row["language"] for row in table] == ["first", "majority", "parity"]
    for row in table:
        assert sum(row["profile"]) == row["strings"] == 200
        mean = sum(sensitivity * count for sensitivity, count in enumerate(row["profile"])) / 200
        assert row["average_sensitivity"] == pytest.approx(mean)
    assert table[0]["accuracy"] == 1.0  # First, at 16 bits
    assert table[0]["profile"][1] == 200
