"""Sensitivity spectra of transformers trained on First, Majority and Parity (App. F.2, Fig 5)."""

from __future__ import annotations

from functools import partial

import flipscope.lab as lab
from flipscope.studies.geometry import trained_models, training
from flipscope.studies.geometry.trained_models import (
    AROUND,
    GATHERED,
    TrainedModels,
    accuracy_judge,
    claim_gathered,
    claim_learned,
    every_model,
    judge_higher,
    measured,
    wrong_profile,
)
from flipscope.studies.geometry.training import SMALL, TINY, Name, Training, trainings

LANGUAGES: tuple[tuple[Name, int], ...] = (("first", 0), ("majority", 0), ("parity", 0))
CHANCE = 0.6  # accuracy up to which a language is not learned at all
SHORT = {**SMALL, "max_epochs": 20}


class TrainedProfiles(TrainedModels):
    """Whether training reaches the spectra of languages that the theory rules out, or does not."""

    name, paper, figures = "trained-profiles", "000", ("Fig 5",)
    title = "Sensitivity spectra of transformers trained on First, Majority and Parity"
    drawn = "trained", "Fig 5"
    scales = lab.scales(
        "First, Majority and Parity at N = {length}, {models} small models per language and number of heads in {heads}",
        smoke=(0.5, {"length": 16, "models": 1, "heads": (2,), "training": TINY}),
        demo=(1.2, {"length": 20, "models": 3, "heads": (1,), "training": SHORT}),
        laptop=(20, {"length": 100, "models": 3, "heads": (1, 2), "training": SMALL}),
    )
    scales |= lab.scales(
        "First, Majority and Parity at N = 100, {models} models per language, shapes at random",
        paper=(17_000, {"models": 10, "instances": 1, "first_seed": 0}),
    )
    deviations = (
        *training.DEVIATIONS,
        *trained_models.DEVIATIONS,
        *lab.deviations(
            ("shapes (laptop)", "at random, width up to 1024", "widths 16 and 32; demo 16", "months on two cores"),
            ("training (demo, laptop)", "until it stops improving", "at most 40 epochs, demo 20", "20 minutes in all"),
            ("length (demo)", "N = 100", "N = 20", "a minute"),
            ("test strings (demo, laptop)", "1,000", "4,000", "to tell 0.99 from 1 in every model together"),
            ("Parity", "not learned", f"accuracy at most {CHANCE}", "silent on accuracy"),
            ("higher-sensitivity strings of Parity", "silent: than what", "than of First and Majority", "neighbours"),
        ),
    )
    claims = (
        claim_learned("first", "First is learned", "Fig 5"),
        claim_gathered("first", "First: spectrum at 1", "§ 6, Fig 5", "sensitivities cluster at 1"),
        claim_learned("majority", "Majority is learned", "Fig 5"),
        claim_gathered("majority", "Majority: spectrum at 0 and N/2", "§ 6, Fig 5", "at 0 and at half the length"),
        lab.Claim(
            "Parity is not learned",
            "Cor 5.1, Fig 5",
            "no model learns Parity",
            f"test accuracy at most {CHANCE} in every model",
            every_model(accuracy_judge(lab.at_most, CHANCE), "parity"),
        ),
        lab.Claim(
            "Parity: a wrong profile",
            "§ 6, Fig 5",
            "models trained on Parity do not reach its sensitivity profile",
            f"share of the strings with sensitivity {1 - AROUND:g} N or more: at most {GATHERED} in every model",
            every_model(wrong_profile, "parity"),
        ),
        lab.Claim(
            "Parity: strings of higher sensitivity",
            "App. F.2, Fig 5",
            "models trained on Parity have strings of higher sensitivity",
            "largest sensitivity of a model's strings, mean over models: larger than of First and than of Majority",
            partial(judge_higher, parity="parity", others=("first", "majority")),
        ),
    )

    def trials(self, scale: str) -> list[Training]:
        return trainings(self.scales[scale].settings, LANGUAGES)

    def measure(self, trial: Training, progress: lab.Progress) -> lab.Outcome:
        return measured(trial, progress)


STUDY = TrainedProfiles()
