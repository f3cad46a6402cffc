"""Tables of the studies of trained transformers, as runs would give them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flipscope.lab import Row, Rows
from flipscope.studies.geometry import random_languages, sparse_profiles, trained_profiles
from flipscope.studies.geometry.training import Training

STUDIES = (trained_profiles.STUDY, sparse_profiles.STUDY, random_languages.STUDY)
CLAIMS = {claim.name: claim for study in STUDIES for claim in study.claims}


def trainings(scale: str) -> list[Training]:
    """Those of all three studies."""
    return [trial for study in STUDIES for trial in study.checked_trials(scale) if isinstance(trial, Training)]


LAPTOP = [(study, trial) for study in STUDIES for trial in study.trials("laptop")]


def row(language: str, accuracy: float, sensitivities: dict[int, float], relevant: int = 0, seed: int = 0) -> Row:
    """A model of a language: its accuracy, and the share of its strings at each sensitivity."""
    study, trial = next((study, trial) for study, trial in LAPTOP if trial.language == language)
    trial = replace(trial, seed=seed, relevant=relevant or trial.relevant)
    counts = np.repeat(list(sensitivities), [round(1000 * share) for share in sensitivities.values()])
    outcome = {"counts": counts, "correct": round(10_000 * accuracy), "tested": 10_000, "epochs": 1, "steps": 1}
    return study.row(trial, {**outcome, "stopped": "epochs", "near_ties": 0})


def models(language: str, sensitivities: dict[int, float], relevant: int = 0, count: int = 6) -> list[Row]:
    """Several that failed to learn it."""
    return [row(language, 0.5, {**sensitivities, seed % 2: 0.001}, relevant, seed) for seed in range(count)]


def verdict(name: str, *rows: Row) -> str:
    """What these models say of a claim."""
    return CLAIMS[name].judge(Rows(rows)).verdict


def check_learned(name: str, language: str) -> None:
    """A claim that a language is learned: by most of its models, so that one that is stuck says nothing."""
    good = [row(language, 1.0, {0: 1}, seed=seed) for seed in range(8)]
    stuck = [row(language, 0.6, {0: 1}, seed=seed) for seed in range(8, 16)]
    assert verdict(name, *good) == verdict(name, *good, stuck[0]) == "reproduced"
    found = CLAIMS[name].judged(Rows([*good[:2], stuck[0]]))
    assert (found.verdict, found.note) == ("undecided", "2 of 3 models")  # shown, and no contradiction
    assert verdict(name, *good[:5]) == verdict(name, *good, *stuck) == "undecided"
    assert verdict(name, *stuck) == "contradicted"  # an untrained network too
    assert verdict(name, row("parity", 0.5, {0: 1})) == "undecided"


def check_spectrum(name: str, language: str, relevant: int, own: dict[int, float]) -> None:
    """A claim that models that learned a language have its own spectrum."""

    def judged(*spectra: dict[int, float], accuracy: float = 1.0) -> str:
        return verdict(name, *(row(language, accuracy, each, relevant) for each in spectra))

    mixed = {s: share * (0.9 if s else 1) for s, share in own.items()}
    mixed[4] = 1 - sum(mixed.values())
    assert judged(own, own, own) == judged(mixed, own, own) == "reproduced"
    assert judged(own) == "undecided"  # one model says little of every model
    assert judged({0: 1.0}, own, own) == "contradicted"  # every string at 0
    assert judged({4: 1.0}, own, own) == "contradicted"
    above = {s: share * 0.2 if s else share for s, share in own.items()}
    assert judged({**above, 25: 1 - sum(above.values())}, own, own) == "contradicted"  # above 0, but elsewhere
    assert judged({25: 1.0}, accuracy=0.9) == "undecided"  # it was not learned


def check_rows(table: Rows) -> None:
    """The rows of a smoke run."""
    for each in table:
        assert sum(each["profile"]) == each["strings"] == 200
        mean = sum(sensitivity * count for sensitivity, count in enumerate(each["profile"])) / 200
        assert each["average_sensitivity"] == each["relative"] * each["length"] / 2 == mean
