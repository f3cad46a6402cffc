"""PARITY with and without blowup: norms after or before each sub-layer, with a large eps, or none (Fact 1).

Fact 1 and Corollary 5 say that sensitive functions need blowup or large weights. The paper does not try models without
blowup. Here the paper's training of PARITY is repeated with the layer norms moved, bounded by a large eps, or left out.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import nn

import flipscope.lab as lab
from flipscope.adapters.parameters import positional, weight_norm
from flipscope.lab import quantities
from flipscope.models.config import TransformerConfig
from flipscope.models.presets import hardness
from flipscope.models.transformer import LayerNorm, Transformer
from flipscope.probes.blowup import blowup
from flipscope.studies.hardness.shared import SEPARATE_LAYERS, STRINGS, needing_spread, strings_of
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.hardness import final, hardness_recipe

Variant = Literal["post", "pre", "large eps", "none"]
LARGE = 1.0  # with this eps a norm amplifies by a factor of at most 2
CHANGES: dict[Variant, dict[str, Any]] = {"post": {}, "pre": {"norm": "pre"}, "large eps": {"eps": LARGE},
                                          "none": {"norm": "none"}}  # fmt: skip
VARIANTS: dict[Variant, str] = {
    "post": "norm after each sub-layer, as in the paper",
    "pre": "norm before each sub-layer",
    "large eps": f"norm after each sub-layer, eps = {LARGE:g}",
    "none": "no norm",
}
BOUNDED: tuple[Variant, ...] = ("large eps", "none")  # without blowup
LEARNED = 0.99  # accuracy
RARE = 1 / 2  # PARITY counts as not learned if at most this share of models learns it
FEWEST = 3  # slopes that an interval needs
APART = 0.15  # bits between the marks of two variants, so that all intervals are visible


# ---------------------------------------------------------------- measurements


@dataclass(frozen=True)
class Variation(lab.TrainedTrial):
    """One training of PARITY with one of the variants."""

    variant: Variant
    length: int
    seed: int
    width: int
    batch: int
    steps: int
    lr: float = 3e-4
    weight_decay: float = 0.1

    @property
    def config(self) -> TransformerConfig:
        """The paper's model with the norms of the variant."""
        return dataclasses.replace(hardness(self.length, self.width), **CHANGES[self.variant])

    @property
    def recipe(self) -> Recipe:
        """The paper's training; that of "post" is the recipe of every other study."""
        return hardness_recipe(
            "parity",
            self.length,
            self.seed,
            model=self.config,
            width=self.width,
            batch=self.batch,
            steps=self.steps,
            lr=self.lr,
            weight_decay=self.weight_decay,
        )

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """Accuracy and error on fresh strings or on all, weight norms, and log10 of the blowup (0 without norms).

        The blowup (Eq 18) is measured before the training as well: the maximum over more positions is larger even
        without training.
        """
        recipe = self.recipe
        model = lab.trained(recipe, progress).transformer
        done = final(recipe, model)
        assert done.accuracy is not None
        outcome = {"accuracy": done.accuracy.value, "error": done.error.value, "kept": done.kept}
        if not np.isfinite(done.error.value):
            return outcome
        strings = strings_of(self.length, STRINGS, self.seed)
        start = Transformer(self.config, scheme=recipe.init, seed=recipe.seed)
        after, before = (float(np.log10(blowup(each, strings).beta).mean()) for each in (model, start))
        norms = {"norm": weight_norm(model), "matrices": matrices_norm(model)}
        return {**outcome, **norms, "log10_beta": after, "log10_beta_start": before}


def matrices_norm(model: nn.Module) -> float:
    """The norm of the parameters that all variants have: without positions, gains and biases of layer norms."""
    of_norms = {id(p) for module in model.modules() if isinstance(module, LayerNorm) for p in module.parameters()}
    left_out = positional(model) | {name for name, p in model.named_parameters() if id(p) in of_norms}
    return weight_norm(model, lambda name: name not in left_out)


# ---------------------------------------------------------------- claims


def learned(rows: lab.Rows) -> lab.Rows:
    """The models that learned."""
    return rows.where(learned=True)


def longest_learned(table: lab.Rows) -> int | None:
    """The largest length that most models of the paper's variant learned, at which others can be compared with it."""
    lengths = [n for n, rows in table.where(variant="post").by("length") if 2 * sum(rows.column("learned")) > len(rows)]
    return max(lengths, default=None)


def judge_essential(table: lab.Rows) -> lab.Judgement:
    """Each variant without blowup is not learned, or its models that learned have larger weights."""
    n = longest_learned(table)
    if n is None:
        return lab.Judgement.without("the paper's model did not learn PARITY at any length", "more steps or seeds")
    rows = table.where(length=n)
    post = learned(rows.where(variant="post"))
    rare = lab.share_where(lambda row: row["learned"], lab.at_most, RARE, f"share that learned, n = {n}")

    def one(variant: Variant, models: lab.Rows, confidence: float) -> lab.Judgement:
        larger, unit = f"norm of the matrices less that of post, n = {n}, {variant}", "models that learned"
        return either(
            rare(variant, models, confidence),
            lab.larger_mean(learned(models), post, "matrices", larger, confidence=confidence, unit=unit),
        )

    return lab.for_each(
        rows.each("variant", BOUNDED), one, missing=f"no model of n = {n}", intervals=2, what="variants"
    )


def either(first: lab.Judgement, second: lab.Judgement) -> lab.Judgement:
    """Reproduced if one of the two is, contradicted if both are; otherwise the undecided one."""
    order = ("reproduced", "undecided", "contradicted")
    shown = min((first, second), key=lambda judged: order.index(judged.verdict))
    return dataclasses.replace(shown, parts=(first, second))


def at_the_longest(rows: lab.Rows) -> list[tuple[str, lab.Rows]]:
    """The models of the largest length."""
    return [(f"n = {n}", models) for n, models in rows.by("length")][-1:]


def with_control(table: lab.Rows) -> list[tuple[Variant, lab.Rows]]:
    """The models of each variant without blowup, together with those of the paper's variant."""
    post = table.where(variant="post")
    return [
        (variant, lab.Rows([*models, *post] if models else [])) for variant, models in table.each("variant", BOUNDED)
    ]


def beyond_control(rows: lab.Rows) -> lab.Rows:
    """The models that learned, each with how far its matrices are above those of the paper's model of its seed."""
    control = {(row["length"], row["seed"]): row["matrices"] for row in learned(rows.where(variant="post"))}
    return lab.Rows(
        {**row, "beyond": row["matrices"] - control[row["length"], row["seed"]]}
        for row in learned(rows).where(lambda row: row["variant"] != "post")
        if (row["length"], row["seed"]) in control
    )


def slope(column: lab.Column) -> lab.Quantity:
    """How fast a column rises with n, averaged over the seeds that learned at three lengths."""
    return needing_spread(quantities.slope(column, "length", per="seed", fewest=FEWEST, unit="seeds"))


BLOWUP = lab.Column(
    "log10 of the factor by which training changes the blowup",
    lambda row: row["log10_beta"] - row["log10_beta_start"],
)
WEIGHTS = lab.Column("the norm of the matrices less that of the paper's model of that seed", lambda row: row["beyond"])
CLAIMS = (
    lab.claim(
        "the paper's model learns PARITY",
        "Figs 2, 5",
        "with layer norms, PARITY is learned at every length tried",
        quantities.share(f"share with an accuracy above {LEARNED:g}", lambda row: row["learned"])
        .where("models of the paper's variant", variant="post")
        .grouped("at the largest n", at_the_longest)
        >= RARE,
    ),
    lab.Claim(
        "blowup is essential",
        "Fact 1, Cor 5",
        "without blowup PARITY is not learned, or needs larger weights",
        "at the largest n that most models with norms learned, without norms and with a large eps: share that "
        f"learned at most {RARE:g}, or mean norm of the matrices above that of models with norms",
        judge_essential,
    ),
    lab.claim(
        "blowup grows with the length",
        "Fig 2, Cor 5",
        "longer PARITY needs more blowup or larger weights",
        slope(BLOWUP).counting("models that learned", learned).where("the paper's variant", variant="post") > 0,
    ),
    lab.claim(
        "without blowup weights grow with the length",
        "Fact 1",
        "left open: a theorem about growing n; whether it shows at these lengths",
        slope(WEIGHTS)
        .counting("models that learned", beyond_control)
        .grouped("for each variant without blowup", with_control, what="variants", weakest_first=False)
        > 0,
        exploratory=True,
    ),
)


# ---------------------------------------------------------------- figures


def shares_learned(table: lab.Rows) -> list[lab.Series]:
    """The share of each variant that learned at each length, with its interval."""
    return [
        lab.estimates(
            VARIANTS[variant],
            [n + APART * (colour - 1.5) for n in models.values("length")],
            [lab.share_of(rows, lambda row: row["learned"], 0.95) for _, rows in models.by("length")],
            "points",
            colour=colour,
        )
        for colour, (variant, models) in enumerate(table.each("variant", VARIANTS))
        if models
    ]


class NormEssential(lab.Study):
    """Whether a transformer needs the blowup of its layer norms to learn PARITY."""

    name, paper = "norm-essential", "001"
    revision = 2  # blowup before the training
    title = "PARITY with layer norms after or before each sub-layer, with a large eps, and without norms, by length"
    sample_sizes = ("most",)
    scales = lab.scales(
        "{seeds} models of each of 4 variants for each n in {lengths}, {most} at the largest, width {width}, {steps} "
        "steps of {batch} strings",
        smoke=(0.1, {"lengths": (2, 3), "seeds": 1, "most": 1, "width": 8, "batch": 16, "steps": 20, "first_seed": 0}),
        # Seeds from 1000 on: runs with seeds 0 to 7 were used to choose the comparison with a control.
        laptop=(30, {"lengths": (4, 6, 8, 10), "seeds": 6, "most": 8, "width": 64, "batch": 128, "steps": 4_000}
                | {"first_seed": 1_000}),
        paper=(5_000, {"lengths": (5, 10, 15, 20, 25), "seeds": 10, "most": 10}
               | {"width": 128, "batch": 1_024, "steps": 10_000, "first_seed": 0}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("experiment", "none: Fact 1 and Cor 5 are theorems", "the paper's training, norms changed", "to test them"),
        ("norm before", "not stated", "no norm after the last layer", "nothing else is changed"),
        ("large eps", "any eps ≥ 0", f"{LARGE:g}: a norm multiplies by at most {1 / LARGE**0.5:g}", "not stated"),
        ("learned", "squared error below 0.001", f"accuracy above {LEARNED:g}; the other is counted",
         "the question is whether PARITY is computed"),
        ("weight norm", "all but positions", "without gains and biases of norms", "not all variants have these"),
        ("blowup", "product of 1 / std", "Eq 18 of paper 000, with eps and a 1 added", "1 where there is no norm"),
        (
            "grows",
            "not stated",
            "beyond the start, or beyond the paper's model",
            "both also grow with n where nothing is learned, and with any placement of norms",
        ),
        ("width, batch, steps", "128, 1,024, 10,000", "laptop: 64, 128, 4,000; smoke: 8, 16, 20", "computing time"),
        ("lengths, seeds, most", "not stated; 5 to 25, 10", "laptop: 4 to 10, 6 and 8; smoke: 2, 3, one each", "time"),
        ("first seed (laptop)", "0", "1000", "seeds not used by any earlier run"),
        SEPARATE_LAYERS,
    )  # fmt: skip
    claims = CLAIMS

    def trials(self, scale: str) -> list[Variation]:
        plan = self.scales[scale].settings
        longest = max(plan["lengths"])
        return [
            Variation(variant, n, seed, plan["width"], plan["batch"], plan["steps"])
            for variant, n in itertools.product(VARIANTS, plan["lengths"])
            for seed in range(plan["first_seed"], plan["first_seed"] + plan["most" if n == longest else "seeds"])
        ]

    def row(self, trial: Variation, outcome: lab.Outcome) -> lab.Row:
        return {**super().row(trial, outcome), "learned": outcome["accuracy"] > LEARNED}

    def provenance(self, table: lab.Rows) -> list[str]:
        def counted(column: str) -> str:
            variants = table.each("variant", VARIANTS)
            return ", ".join(f"{sum(models.column(column))} of {len(models)} {name}" for name, models in variants)

        return [
            f"accuracy above {LEARNED:g}: {counted('learned')}; the others count for the share only",
            f"squared error below 0.001, the paper's rule: {counted('kept')}",
        ]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        labels = {"matrices": "norm of the matrices", "log10_beta": "log10 of the blowup"}
        panels = [
            lab.Panel("", "length n", "share of models that learned", shares_learned(table), y_range=(0, 1)),
            *(
                lab.chart(
                    learned(table), "length", column, by="variant", labels=VARIANTS, x_label="length n", y_label=label
                )
                for column, label in labels.items()
            ),
        ]
        caption = "Left: with 95 % intervals. Others: means over models that learned, bands to the least and largest."
        return [lab.Figure("norm-essential", self.title, caption, panels, columns=3, where="Fact 1")]


STUDY = NormEssential()
