"""Attention networks written down for sparse functions: errors, answers and norms against the lemmas (App. B)."""

from __future__ import annotations

import itertools
from typing import get_args

import numpy as np

import flipscope.lab as lab
from flipscope.models.attention_network_config import InputMapping
from flipscope.studies.sparse_variables._constructions import LARGEST, NORMS, Basis, Built, measured
from flipscope.studies.sparse_variables._judged_constructions import (
    FEWEST,
    ROUNDING,
    figure_of_errors,
    figure_of_norms,
    judge_printed,
    judged,
)


class SparseConstructions(lab.Study):
    """Lemmas B.2 to B.6 for all input mappings, one and s heads, symmetric and general functions."""

    name, paper = "sparse-constructions", "003"
    title = "Sparse functions by attention, written down: error, answers and norms"
    figures = ("Lemmas B.2-B.8", "Prop B.1")
    scales = lab.scales(
        "s up to {sparsity}, T in {lengths}, {seeds} functions for each case, three bases, printed and ours",
        smoke=(0.2, {"sparsity": 3, "lengths": (8,), "seeds": 1}),
        laptop=(3, {"sparsity": LARGEST, "lengths": (10, 100, 1000), "seeds": 1}),
        paper=(60, {"sparsity": LARGEST, "lengths": (10, 12, 30, 100, 300, 1000, 2000), "seeds": 5}),
    )
    deviations = lab.deviations(
        ("g of B.2 and B.3", "decreases in the ones", "W_V = E_1 - E_0: it increases", "monotone means increasing"),
        ("B.2, s heads", "W_V = (E_0 - E_1) e_2", "e_1", "W_V W_C = 0 as printed"),
        ("Delta > 0", "sum of the v_i, R by 1 - s Delta", "dual vectors, R by the measured gap", "false as printed"),
        ("bumps of B.8", "0 at the centre", "(u+2)+ - (u+1)+ - (u-1)+ + (u-2)+", "a sign in two of four ReLUs"),
        ("delta in B.5, B.6", "gamma/8", "gamma/4, of the target's own gamma", "the noise is gamma/4"),
        ("one head, any function", "symmetric functions only", "attention weights 1, 2, 4, ...", "beyond the paper"),
        ("bag, s heads", "not considered", "B.4 for each bit by itself", "to compare"),
        ("worst error", "a bound", "exact for every T, by the weights", "no sampling is needed"),
    )
    claims = (
        lab.Claim(
            "heads approximate their target uniformly",
            "Lemmas B.2-B.4",
            "attention comes within gamma/4 of a monotone or injective function of the relevant bits, on all strings",
            f"share of constructions whose certified error is above gamma/4: never, of {FEWEST} or more",
            judged("error", "limit", "share of constructions above gamma/4"),
        ),
        lab.Claim(
            "exact after the MLP",
            "Lemmas B.5, B.6, B.8",
            "an MLP of the promised widths makes of this the function itself, on all strings",
            "share of constructions over 1e-9 from f on all strings (T up to 12), or on those farthest from the "
            f"target and on every pattern of relevant bits with the others 0 and 1: never, of {FEWEST} or more",
            judged("answer_error", "exact_limit", "share of constructions that are not exact"),
        ),
        lab.Claim(
            "every norm is within its bound",
            "Lemmas B.2-B.6",
            "norms grow like log T and poly(s), with 2^s hidden units for a general function",
            f"share of constructions with a norm above its bound: never, of {FEWEST} or more",
            judged("worst_ratio", "one", "share of constructions with a norm above its bound"),
        ),
        lab.Claim(
            "the certificate is what all strings say",
            "App. B",
            "no sampling is needed: attention does not depend on the bits, or is a ratio of linear functions of them",
            f"share of constructions with T up to 12 where enumeration differs by more than {ROUNDING:g}: never",
            judged("difference", "rounding", "share of constructions where enumeration differs"),
            exploratory=True,
        ),
        lab.Claim(
            "printed forms fail where they are wrong, and only there",
            "App. B.4, Lemma B.8",
            "not said: five formulas of the appendix are slips",
            "printed s heads have error 1; printed heads on a tilted basis are above gamma/4 for s >= 3; the printed "
            "MLP is wrong and its W_1 above its bound; other heads are right on an orthonormal basis: always",
            judge_printed,
            exploratory=True,
        ),
    )

    def trials(self, scale: str) -> list[Built]:
        plan = self.scales[scale].settings
        both, sizes = (True, False), range(1, plan["sparsity"] + 1)
        mappings, bases = get_args(InputMapping), get_args(Basis)
        chosen = itertools.product(mappings, both, both, sizes, plan["lengths"], bases, both, range(plan["seeds"]))
        built = [Built(*each) for each in chosen]
        # Chosen positions need no basis, and one head is one per bit where there is one bit.
        return [
            each
            for each in built
            if (each.mapping != "trainable" or each.basis == "orthonormal") and (each.single or each.sparsity > 1)
        ]

    def cost(self, trial: Built) -> float:
        return 1 + (trial.length / 100) ** 2

    def measure(self, trial: Built, progress: lab.Progress) -> lab.Outcome:
        return measured(trial)

    def row(self, trial: Built, outcome: lab.Outcome) -> lab.Row:
        ratios = [outcome[f"ratio {name}"] for name in NORMS if f"ratio {name}" in outcome]
        own = {"worst_ratio": float(np.max(ratios)) if ratios else None, "one": 1.0, "rounding": ROUNDING}
        return {**super().row(trial, outcome), **own, "quotient": outcome.get("error", 0) / outcome.get("limit", 1)}

    def provenance(self, table: lab.Rows) -> list[str]:
        refused = table.having("refused")
        kinds = [("ours, refused for want of a gap", False), ("printed, outside the lemma's assumptions", True)]
        return [f"{len(refused.where(printed=printed))} of {len(table)}: {what}" for what, printed in kinds]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return [figure_of_errors(table, self.title), figure_of_norms(table)]


STUDY = SparseConstructions()
