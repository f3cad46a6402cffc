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
    claim_all_learn,
    claim_gathered,
    claim_learned,
    every_model,
    judge_higher,
    trained_alike,
    wrong_profile,
)
from flipscope.studies.geometry.training import SMALL, TINY, Name, Training, trainings

LANGUAGES: tuple[tuple[Name, int], ...] = (("first", 0), ("majority", 0), ("parity", 0))
LEARNABLE: tuple[Name, ...] = ("first", "majority")
CHANCE = 0.6  # accuracy up to which a language is not learned at all
SHORT = {**SMALL, "train": 5_000, "max_epochs": 12, "learning_rate": 3e-3}


class TrainedProfiles(TrainedModels):
    """Whether training reaches the spectra of languages that the theory rules out."""

    name, paper, figures = "trained-profiles", "000", ("Fig 5",)
    title = "Sensitivity spectra of transformers trained on First, Majority and Parity"
    drawn = "trained", "Fig 5"
    scales = lab.scales(
        "First, Majority and Parity at N = {length}, {models} small models per language and number of heads in {heads}",
        smoke=(0.5, {"length": 16, "models": 1, "first_seed": 0, "heads": (2,), "training": TINY}),
        demo=(1, {"length": 20, "models": 6, "first_seed": 0, "heads": (1,), "training": SHORT}),
        # Seeds from 0 on were used to choose the criterion for a learned language.
        laptop=(20, {"length": 100, "models": 3, "first_seed": 1000, "heads": (1, 2), "training": SMALL}),
    )
    scales |= lab.scales(
        "First, Majority and Parity at N = 100, {models} models per language, shapes at random",
        paper=(17_000, {"models": 10, "instances": 1, "first_seed": 0}),
    )
    deviations = (
        *training.DEVIATIONS,
        *trained_models.DEVIATIONS,
        *lab.deviations(
            ("length (smoke, demo)", "N = 100", "N = 16; demo 20", "to take a minute"),
            ("models, seeds", "10 of each language", "6; smoke 1", "if all 6 learn, the interval lies above one half"),
            (
                "training (demo)",
                "10,000 strings",
                "5,000, at most 12 epochs, learning rate 0.003",
                "to take a minute; both were chosen on seeds that the demo does not use",
            ),
            ("Parity", "not learned", f"accuracy at most {CHANCE}", "no accuracy is given"),
            (
                "higher-sensitivity strings of Parity",
                "does not say than what",
                "than those of First and Majority",
                "neighbours",
            ),
        ),
    )
    claims = (
        claim_learned("first", "First is learned", "§ 5, § 6", "First is learned reliably at moderate lengths"),
        claim_gathered("first", "First: spectrum at 1", "§ 6, Fig 5", "sensitivities cluster at 1"),
        claim_learned("majority", "Majority is learned", "§ 5, § 6", "Majority is learned reliably"),
        claim_gathered(
            "majority",
            "Majority: spectrum at 0 and N/2",
            "§ 6, Fig 5",
            "sensitivities cluster at 0 and at half the length",
        ),
        claim_all_learn(
            LEARNABLE,
            "every model learns First or Majority",
            "App. F.2",
            "all models trained on First and Majority learn the languages perfectly",
        ),
        lab.Claim(
            "Parity is not learned",
            "Cor 5.1, Fig 5",
            "no model learns Parity",
            f"test accuracy at most {CHANCE} in every model, where a model of First or Majority that is "
            "trained in the same way learns",
            trained_alike(every_model(accuracy_judge(lab.at_most, CHANCE), "parity"), LEARNABLE),
        ),
        lab.Claim(
            "Parity: a wrong profile",
            "§ 6, Fig 5",
            "models trained on Parity do not reach its sensitivity profile",
            f"share of the strings with sensitivity {1 - AROUND:g} N or more: at most {GATHERED} in every model, where "
            "a model of First or Majority that is trained in the same way learns",
            trained_alike(every_model(wrong_profile, "parity"), LEARNABLE),
        ),
        lab.Claim(
            "Parity: strings of higher sensitivity",
            "App. F.2, Fig 5",
            "models trained on Parity have strings of higher sensitivity",
            "largest sensitivity of a model's strings, mean over models: larger than of First and than of Majority",
            partial(judge_higher, parity="parity", others=LEARNABLE),
        ),
    )

    def trials(self, scale: str) -> list[Training]:
        return trainings(self.scales[scale].settings, LANGUAGES)


STUDY = TrainedProfiles()
