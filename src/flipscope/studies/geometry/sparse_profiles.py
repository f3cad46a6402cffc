"""Sensitivity spectra of transformers trained on sparse majorities and sparse parities (App. F.2, Figs 6 and 7)."""

from __future__ import annotations

import itertools

import flipscope.lab as lab
from flipscope.studies.geometry import trained_models, training
from flipscope.studies.geometry.trained_models import (
    AROUND,
    FEWEST,
    GATHERED,
    TrainedModels,
    claim_gathered,
    claim_learned,
    judge_higher,
    measured,
    wrong_profile,
)
from flipscope.studies.geometry.training import SMALL, TINY, Name, Training, trainings

SPARSE: tuple[Name, ...] = ("sparse_majority", "sparse_parity")


def _judge_parities(table: lab.Rows) -> lab.Judgement:
    """Both patterns of Parity, each with half of the error."""
    rows = table.where(language="sparse_parity")
    wrong = lab.for_every(rows, wrong_profile, besides=len(rows), fewest=FEWEST, what="models")
    higher = judge_higher(table, "sparse_parity", ("sparse_majority",), besides=len(rows.values("relevant")))
    return lab.all_of([higher, wrong]) if rows else lab.Judgement.without("no model was trained on it")


class SparseProfiles(TrainedModels):
    """Whether languages of few relevant bits show the patterns of Majority and Parity."""

    name, paper, figures = "sparse-profiles", "000", ("Fig 6", "Fig 7")
    title = "Sensitivity spectra of transformers trained on sparse majorities and sparse parities"
    drawn = "sparse", "Figs 6, 7"
    scales = lab.scales(
        "majorities and parities of m in {sparse} of N = {length} bits, {models} small models each",
        smoke=(0.5, {"length": 16, "models": 1, "sparse": (5,), "heads": (2,), "training": TINY}),
        laptop=(9, {"length": 100, "models": 3, "sparse": (5, 20), "heads": (1,), "training": SMALL}),
    )
    scales |= lab.scales(
        "majorities and parities of m in {sparse} of 100 bits, {instances} of each, {models} models of each of these, "
        "shapes at random",
        paper=(465_000, {"models": 10, "instances": 10, "sparse": (5, 10, 20, 50), "first_seed": 30}),
    )
    deviations = (
        *training.DEVIATIONS,
        *trained_models.DEVIATIONS,
        *lab.deviations(
            ("shapes (laptop)", "at random, width up to 1024", "width 16", "months on two cores"),
            ("training (laptop)", "until it stops improving", "at most 40 epochs", "9 minutes in all"),
            ("test strings (laptop)", "1,000", "4,000", "to tell 0.99 from 1 in every model together"),
            ("higher-sensitivity strings of parities", "silent: than what", "than of majorities", "the same m"),
        ),
    )
    claims = (
        claim_learned("sparse_majority", "sparse majorities are learned", "§ 6, Figs 6, 7"),
        claim_gathered(
            "sparse_majority", "sparse majorities mirror Majority", "§ 6, Figs 6, 7", "at 0 and half the m bits"
        ),
        lab.Claim(
            "sparse parities mirror Parity",
            "§ 6, Figs 6, 7",
            "the patterns of sparse parities are those of Parity: a wrong profile, and strings of higher sensitivity",
            f"share of strings at m, within {AROUND:g} m: at most {GATHERED} in every model; mean of the largest "
            "sensitivity larger than with sparse Majority of the same m",
            _judge_parities,
        ),
    )

    def trials(self, scale: str) -> list[Training]:
        plan = self.scales[scale].settings
        return trainings(plan, list(itertools.product(SPARSE, plan["sparse"])))

    def measure(self, trial: Training, progress: lab.Progress) -> lab.Outcome:
        return measured(trial, progress)


STUDY = SparseProfiles()
