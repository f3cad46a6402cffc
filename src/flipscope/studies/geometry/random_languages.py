"""Sensitivity spectra of transformers trained on random languages, learned or not (App. F.2, Fig 3 right)."""

from __future__ import annotations

import numpy as np

import flipscope.lab as lab
from flipscope.lab import quantities
from flipscope.studies.geometry import training
from flipscope.studies.geometry.trained_models import LEARNED, TrainedModels
from flipscope.studies.geometry.training import SMALL, TINY, Name, Training, trainings

LANGUAGES: tuple[tuple[Name, int], ...] = (("random", 0),)
VAST, NEAR = 0.9, 1 / 20  # the vast majority; part of N up to which a sensitivity is near 0, as in random-init
FAR = 1 / 2  # part of a random function's N/2
FEW = {**SMALL, "train": 2_000, "max_epochs": 20}


RELATIVE = quantities.Column("average sensitivity over N/2", lambda row: row["relative"])
NEAR_SHARE = quantities.Column(f"share of strings with s(x) ≤ N/{1 / NEAR:g}", lambda row: row["near_share"])


class RandomLanguages(TrainedModels):
    """Whether the bias towards low sensitivity remains after training on labels without structure."""

    name, paper, figures = "random-languages", "000", ("Fig 3 right",)
    title = "Sensitivity spectra of transformers trained on random languages"
    drawn = "random-languages", "Fig 3 right"
    scales = lab.scales(
        "{models} random languages of {training[train]:,} strings, N = {length}, one small model each",
        smoke=(0.5, {"length": 16, "models": 2, "first_seed": 0, "heads": (2,), "training": TINY}),
        laptop=(2.5, {"length": 40, "models": 40, "first_seed": 0, "heads": (1,), "training": FEW}),
    )
    scales |= lab.scales(
        "{instances} random languages of 10,000 strings, N = 40, {models} models each, shapes at random",
        paper=(18_000, {"models": 10, "instances": 10, "first_seed": 830}),
    )
    deviations = (
        *training.DEVIATIONS,
        *lab.deviations(
            ("models (laptop)", "10 of each of 10 languages", "40 languages, a model each", "an interval, in minutes"),
            ("length (smoke)", "N = 40", "N = 16", "to take seconds"),
            ("training: epochs (laptop)", "until it stops improving", "at most 20", "to take minutes in all"),
            ("strings of a language (laptop)", "10,000", "2,000", "enough languages for an interval, in minutes"),
            ("learned", "perfectly", f"accuracy above {LEARNED}", "no threshold is given"),
            (
                "around 0",
                "seen in the figure",
                f"{VAST} of the strings at most at N/{1 / NEAR:g}",
                "no numbers are given",
            ),
        ),
    )
    claims = (
        lab.claim(
            "random languages that are not learned: sensitivities at 0",
            "Fig 3 right, App. F.2",
            "models that fail to learn a random language have sensitivities and average sensitivities near 0",
            quantities.mean(NEAR_SHARE, within=(0, 1)).where("models that failed", language="random", learned=False)
            >= VAST,
        ),
        lab.claim(
            "random languages that are learned: the bias persists",
            "§ 6, Fig 3 right",
            "the bias towards low sensitivity persists after training",
            quantities.mean(RELATIVE, within=(0, 2)).where("models that learned", language="random", learned=True)
            <= FAR,
        ),
    )

    def trials(self, scale: str) -> list[Training]:
        return trainings(self.scales[scale].settings, LANGUAGES)

    def row(self, trial: Training, outcome: lab.Outcome) -> lab.Row:
        near = float(np.mean(outcome["counts"] <= NEAR * trial.length))
        return {**super().row(trial, outcome), "near_share": near}


STUDY = RandomLanguages()
