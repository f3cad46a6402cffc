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
    trained_alike,
    wrong_profile,
)
from flipscope.studies.geometry.training import SMALL, TINY, Name, Training, trainings

SPARSE: tuple[Name, ...] = ("sparse_majority", "sparse_parity")
SPARSITIES = (5, 10, 20, 50)  # 5 and 20 in Fig 6, 10 and 50 in Fig 7


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
        smoke=(0.5, {"length": 16, "models": 1, "sparse": (5,), "first_seed": 0, "heads": (2,), "training": TINY}),
        # Seeds from 0 on were used to choose the criterion for a learned language.
        laptop=(
            18,
            {"length": 100, "models": 3, "sparse": SPARSITIES, "first_seed": 1000, "heads": (1,), "training": SMALL},
        ),
    )
    scales |= lab.scales(
        "majorities and parities of m in {sparse} of 100 bits, {instances} of each, {models} models of each of these, "
        "shapes at random",
        paper=(465_000, {"models": 10, "instances": 10, "sparse": SPARSITIES, "first_seed": 30}),
    )
    deviations = (
        *training.DEVIATIONS,
        *trained_models.DEVIATIONS,
        *lab.deviations(
            (
                "models (up to laptop)",
                "10 of each of 10 languages",
                "3 languages of each m, a model each",
                "18 minutes",
            ),
            ("length, sparse: m (smoke)", "N = 100; m = 5, 10, 20, 50", "N = 16, m = 5", "to take seconds"),
            ("higher-sensitivity strings of parities", "does not say than what", "than of majorities", "the same m"),
        ),
    )
    claims = (
        claim_learned(
            "sparse_majority", "sparse majorities are learned", "§ 6, Figs 6, 7", "sparse majorities mirror Majority"
        ),
        claim_gathered(
            "sparse_majority",
            "sparse majorities mirror Majority",
            "§ 6, Figs 6, 7",
            "sensitivities cluster at 0 and at half of the m bits",
        ),
        lab.Claim(
            "sparse parities mirror Parity",
            "§ 6, Figs 6, 7",
            "sparse parities behave like Parity: a wrong profile, and strings of higher sensitivity",
            f"share of strings at m, within {AROUND:g} m: at most {GATHERED} in every model; mean of the largest "
            "sensitivity larger than with sparse Majority of the same m, of which one is learned",
            trained_alike(_judge_parities, ("sparse_majority",)),
        ),
    )

    def trials(self, scale: str) -> list[Training]:
        plan = self.scales[scale].settings
        return trainings(plan, list(itertools.product(SPARSE, plan["sparse"])))


STUDY = SparseProfiles()
