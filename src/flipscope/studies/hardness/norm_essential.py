"""PARITY with and without what can blow up: norms after or before each sub-layer, of a large eps, and none (Fact 1)."""

from __future__ import annotations

import itertools

import flipscope.lab as lab
from flipscope.studies.hardness._norms import (
    LARGE,
    LEARNED,
    RARE,
    VARIANTS,
    Variant,
    Variation,
    judge_blowup,
    judge_essential,
    judge_learned,
    judge_weights,
    measured,
)
from flipscope.studies.hardness._shared import LAYERS_APART

APART = 0.15  # bits between the marks of two variants, so that all intervals are seen


class NormEssential(lab.Study):
    """Whether a transformer needs the blowup of its layer norms to learn PARITY."""

    name, paper = "norm-essential", "001"
    revision = 2  # blowup before the training
    title = "PARITY with layer norms after or before each sub-layer, of a large eps, and without, against the length"
    scales = lab.scales(
        "{seeds} models of each of 4 variants for each n in {lengths}, {most} at the largest, width {width}, {steps} "
        "steps of {batch} strings",
        smoke=(0.1, {"lengths": (2, 3), "seeds": 1, "most": 1, "width": 8, "batch": 16, "steps": 20, "first_seed": 0}),
        # Seeds from 1000 on: what is beyond a control is judged since runs with seeds 0 to 7 were looked at.
        laptop=(30, {"lengths": (4, 6, 8, 10), "seeds": 6, "most": 8, "width": 64, "batch": 128, "steps": 4_000}
                | {"first_seed": 1_000}),
        paper=(5_000, {"lengths": (5, 10, 15, 20, 25), "seeds": 10, "most": 10}
               | {"width": 128, "batch": 1_024, "steps": 10_000, "first_seed": 0}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("experiment", "silent: Fact 1 and Cor 5 are theorems", "the paper's training, norms changed", "to test them"),
        ("norm before", "silent", "no norm after the last layer", "nothing else is changed"),
        ("large eps", "any eps ≥ 0", f"{LARGE:g}: a norm multiplies by at most {1 / LARGE**0.5:g}", "silent"),
        ("learned", "squared error below 0.001", f"accuracy above {LEARNED:g}; the other is counted", "what is asked"),
        ("weight norm", "all but positions", "without gains and biases of norms", "not all variants have these"),
        ("blowup", "product of 1 / std", "Eq 18 of paper 000, with eps and a 1 added", "1 where there is no norm"),
        (
            "grows",
            "silent",
            "beyond the start, or beyond the paper's model",
            "both grow with n where nothing is learned, or whatever the norms",
        ),
        ("width, batch, steps", "128, 1,024, 10,000", "laptop: 64, 128, 4,000; smoke: 8, 16, 20", "half an hour"),
        ("lengths, seeds, most", "silent; 5 to 25, 10", "laptop: 4 to 10, 6 and 8; smoke: 2, 3, one of each", "time"),
        ("first seed (laptop)", "0", "1000", "seeds that no earlier run has looked at"),
        LAYERS_APART,
    )
    claims = (
        lab.Claim(
            "the paper's model learns PARITY",
            "Figs 2, 5",
            "with layer norms PARITY is learned, at every length that is tried",
            f"share of models of the largest n with an accuracy above {LEARNED:g}: at least {RARE:g}",
            judge_learned,
        ),
        lab.Claim(
            "blowup is essential",
            "Fact 1, Cor 5",
            "without it PARITY is not learned, or needs larger weights",
            "at the largest n that most models with norms learned, without norms and with a large eps: share that "
            f"learned at most {RARE:g}, or mean norm of the matrices above that of models with norms",
            judge_essential,
        ),
        lab.Claim(
            "blowup grows with the length",
            "Fig 2, Cor 5",
            "longer PARITY needs more blowup or larger weights",
            "slope over n of log10 of the blowup, less that of the same models before training, in models that "
            "learned, averaged over seeds: above 0",
            judge_blowup,
        ),
        lab.Claim(
            "without blowup weights grow with the length",
            "Fact 1",
            "left open: a theorem for n that grows; whether it is seen at these lengths",
            "slope over n of the norm of the matrices, less that of the paper's model of the same seed, in models that "
            "learned, averaged over seeds: above 0 for each variant",
            judge_weights,
            exploratory=True,
        ),
    )

    def trials(self, scale: str) -> list[Variation]:
        plan = self.scales[scale].settings
        longest = max(plan["lengths"])
        return [
            Variation(variant, n, seed, plan["width"], plan["batch"], plan["steps"])
            for variant, n in itertools.product(VARIANTS, plan["lengths"])
            for seed in range(plan["first_seed"], plan["first_seed"] + plan["most" if n == longest else "seeds"])
        ]

    def measure(self, trial: Variation, progress: lab.Progress) -> lab.Outcome:
        return measured(trial, progress)

    def row(self, trial: Variation, outcome: lab.Outcome) -> lab.Row:
        return {**super().row(trial, outcome), "learned": outcome["accuracy"] > LEARNED}

    def provenance(self, table: lab.Rows) -> list[str]:
        def counted(column: str) -> str:
            return ", ".join(f"{sum(own.column(column))} of {len(own)} {name}" for name, own in _by_variant(table))

        return [
            f"accuracy above {LEARNED:g}: {counted('learned')}; the others count for the share only",
            f"squared error below 0.001, the paper's rule: {counted('kept')}",
        ]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        learned = table.where(learned=True)
        shares = [
            lab.estimates(
                VARIANTS[name][0],
                [n + APART * (colour - 1.5) for n in own.values("length")],
                [lab.share_of(rows, lambda row: row["learned"], 0.95) for _, rows in own.by("length")],
                "points",
                colour=colour,
            )
            for colour, (name, own) in enumerate(_by_variant(table))
            if own
        ]
        panels = [
            lab.Panel("", "length n", "share of models that learned", shares, y_range=(0, 1)),
            lab.Panel("", "length n", "norm of the matrices", _lines(learned, "matrices")),
            lab.Panel("", "length n", "log10 of the blowup", _lines(learned, "log10_beta")),
        ]
        caption = "Left: with 95 % intervals. Others: means over models that learned, bands to the least and largest."
        return [lab.Figure("norm-essential", self.title, caption, panels, columns=3, where="Fact 1")]


def _by_variant(table: lab.Rows) -> list[tuple[Variant, lab.Rows]]:
    return table.each("variant", VARIANTS)


def _lines(table: lab.Rows, column: str) -> list[lab.Series]:
    return [
        lab.line(own, "length", column, VARIANTS[name][0], "mean", colour=colour)
        for colour, (name, own) in enumerate(_by_variant(table))
        if own
    ]


STUDY = NormEssential()
