"""PARITY with the norms of the paper's model, with norms elsewhere, bounded, or none: one training, its row, judges."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import nn

import flipscope.lab as lab
from flipscope.basics.bits import index_bits
from flipscope.basics.seeds import generators, random_strings
from flipscope.models.config import TransformerConfig
from flipscope.models.parameters import positional, weight_norm
from flipscope.models.presets import hardness
from flipscope.models.transformer import LayerNorm, Transformer
from flipscope.probes.blowup import blowup
from flipscope.studies.hardness._shared import above
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.hardness import final, hardness_recipe

Variant = Literal["post", "pre", "large eps", "none"]
LARGE = 1.0  # eps with which a norm blows nothing up: a factor of at most 2
VARIANTS: dict[Variant, tuple[str, dict[str, Any]]] = {
    "post": ("norm after each sub-layer, as in the paper", {}),
    "pre": ("norm before each sub-layer", {"norm": "pre"}),
    "large eps": (f"norm after each sub-layer, eps = {LARGE:g}", {"eps": LARGE}),
    "none": ("no norm", {"norm": "none"}),
}
BOUNDED: tuple[Variant, ...] = ("large eps", "none")
LEARNED = 0.99  # accuracy
RARE = 1 / 2  # share of models: PARITY is not learned if no more learn it
STRINGS = 1_024  # on which blowup is measured, or all there are
FEWEST = 3  # slopes that an interval needs


@dataclass(frozen=True)
class Variation(lab.Trial):
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
    def cost(self) -> float:
        """Multiply-adds of a step, and some milliseconds."""
        return self.steps * (4e6 + self.batch * self.length * self.width * (14 * self.width + 3 * self.length))


def config_of(trial: Variation) -> TransformerConfig:
    """The paper's model with the norms of the variant."""
    return dataclasses.replace(hardness(trial.length, trial.width), **VARIANTS[trial.variant][1])


def recipe_of(trial: Variation) -> Recipe:
    """The paper's training; that of "post" is the recipe of every other study."""
    settings = {name: getattr(trial, name) for name in ("width", "batch", "steps", "lr", "weight_decay")}
    return hardness_recipe("parity", trial.length, trial.seed, model=config_of(trial), **settings)


def matrices_norm(model: nn.Module) -> float:
    """The norm of what all variants have: without positions, and without gains and biases of layer norms."""
    of_norms = {id(p) for module in model.modules() if isinstance(module, LayerNorm) for p in module.parameters()}
    left_out = positional(model) | {name for name, p in model.named_parameters() if id(p) in of_norms}
    return weight_norm(model, lambda name: name not in left_out)


def measured(trial: Variation, progress: lab.Progress) -> lab.Outcome:
    """Accuracy and error on fresh strings or on all, weight norms, and log10 of the blowup (Eq 18; 0 without norms).

    The blowup is also that of the same model before its training: the largest of more positions is larger by itself.
    """
    recipe = recipe_of(trial)
    model = lab.trained(recipe, progress).transformer
    done = final(recipe, model)
    assert done.accuracy is not None
    found = {"accuracy": done.accuracy.value, "error": done.error.value, "kept": done.kept}
    if not np.isfinite(done.error.value):
        return found
    n = trial.length
    (stream,) = generators(trial.seed, 1)
    strings = index_bits(0, 1 << n, n) if n <= 10 else random_strings(stream, STRINGS, n)
    start = Transformer(config_of(trial), scheme=recipe.init, seed=recipe.seed)
    after, before = (float(np.log10(blowup(each, strings).beta).mean()) for each in (model, start))
    norms = {"norm": weight_norm(model), "matrices": matrices_norm(model)}
    return {**found, **norms, "log10_beta": after, "log10_beta_start": before}


def longest_learned(table: lab.Rows) -> int | None:
    """The largest length that most models of the paper's variant learned: only there the others can be held to it."""
    lengths = [n for n, rows in table.where(variant="post").by("length") if 2 * sum(rows.column("learned")) > len(rows)]
    return max(lengths, default=None)


def judge_essential(table: lab.Rows) -> lab.Judgement:
    """Each variant without blowup is not learned, or its models that learned have larger weights."""
    n = longest_learned(table)
    if n is None:
        return lab.Judgement.without("the paper's model did not learn PARITY at any length", "more steps or seeds")
    rows = table.where(length=n)
    post = rows.where(variant="post", learned=True)
    rare = lab.share_where(lambda row: row["learned"], lab.at_most, RARE, f"share that learned, n = {n}")

    def one(variant: Variant, own: lab.Rows, confidence: float) -> lab.Judgement:
        learned = own.where(learned=True)
        larger = f"norm of the matrices less that of post, n = {n}, {variant}"
        return either(
            rare(variant, own, confidence),
            lab.larger_mean(learned, post, "matrices", larger, confidence=confidence, unit="models that learned"),
        )

    return lab.for_each(
        rows.each("variant", BOUNDED), one, missing=f"no model of n = {n}", intervals=2, what="variants"
    )


def either(first: lab.Judgement, second: lab.Judgement) -> lab.Judgement:
    """Reproduced if one is, contradicted if both are; undecided otherwise, which is then shown."""
    order = ("reproduced", "undecided", "contradicted")
    shown = min((first, second), key=lambda judged: order.index(judged.verdict))
    return dataclasses.replace(shown, parts=(first, second))


def judge_learned(table: lab.Rows) -> lab.Judgement:
    """The paper's model learns PARITY at the largest length."""
    judge = lab.share_where(lambda row: row["learned"], lab.at_least, RARE, "share that learned, post")
    lengths = [(f"n = {n}", rows) for n, rows in table.where(variant="post").by("length")]
    return lab.for_each(lengths[-1:], judge, missing="no model is done")


def beyond(rows: lab.Rows, column: str, control: lab.Rows, other: str) -> lab.Rows:
    """How far a column is above another of the control, of models of one length and seed that both learned."""
    theirs = {(row["length"], row["seed"]): row[other] for row in control.where(learned=True)}
    return lab.Rows(
        {**row, "beyond": row[column] - theirs[row["length"], row["seed"]]}
        for row in rows.where(learned=True)
        if (row["length"], row["seed"]) in theirs
    )


def rises(rows: lab.Rows, quantity: str, confidence: float) -> lab.Judgement:
    """Whether what is beyond a control rises with n, by the slope of each seed at three lengths."""
    found = lab.slopes(rows, "length", "beyond")
    if len(found) < FEWEST:
        reason = f"{quantity}: {len(found)} seeds that learned at three lengths"
        return lab.Judgement.without(reason, f"at least {FEWEST} such seeds")
    return above(lab.student_mean(found, confidence), 0.0, quantity, unit="seeds")


def judge_blowup(table: lab.Rows) -> lab.Judgement:
    """The blowup of the paper's model rises with n, beyond that of the same models before training."""
    post = table.where(variant="post")

    def one(variant: Variant, rows: lab.Rows, confidence: float) -> lab.Judgement:
        trained = beyond(rows, "log10_beta", rows, "log10_beta_start")
        return rises(trained, f"slope over n beyond the start, {variant}", confidence)

    return lab.for_each(post.each("variant", ["post"]), one, missing="no model is done")


def judge_weights(table: lab.Rows) -> lab.Judgement:
    """The weights of models without blowup rise with n, beyond those of the paper's model."""
    post = table.where(variant="post")

    def one(variant: Variant, rows: lab.Rows, confidence: float) -> lab.Judgement:
        return rises(beyond(rows, "matrices", post, "matrices"), f"slope over n beyond post, {variant}", confidence)

    return lab.for_each(table.each("variant", BOUNDED), one, missing="no model is done", what="variants")
