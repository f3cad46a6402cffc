"""Trained on short strings, asked on longer ones: PARITY, MAJORITY, FIRST, MEAN, and PARITY with a scratchpad."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

import flipscope.lab as lab
from flipscope.basics.estimates import Estimate
from flipscope.models.seq2seq import Seq2Seq
from flipscope.studies.hardness._beyond import CHANCE, GENERAL, Task, claim, panels_of
from flipscope.studies.hardness._shared import FUNCTIONS, LAYERS_APART, kept
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.hardness import (
    KEPT_ABOVE,
    KEPT_BELOW,
    Positions,
    final,
    lengths_recipe,
    longer_lengths,
    scratchpad_recipe,
    written,
)

POSITIONS: tuple[Positions, ...] = ("sinusoidal", "learned")
FACTORS = (4 / 3, 2.0, 8 / 3)
# `steps` are those of PARITY, and of the others.
# Seeds from 1000 on: most models are judged, and no longer every one, since runs with seeds 0 to 2 were looked at.
PLAN = {"shortest": 4, "longest": 12, "seeds": 6, "first_seed": 1_000, "width": 64, "batch": 128,
        "steps": (10_000, 4_000), "strings": 4_096}  # fmt: skip
PAPER = {**PLAN, "longest": 30, "seeds": 10, "width": 128, "batch": 1_024, "steps": (10_000,) * 2, "strings": 100_000,
         "first_seed": 0}  # fmt: skip
SMOKE = {**PLAN, "shortest": 2, "longest": 3, "seeds": 1, "width": 16, "batch": 32, "steps": (30, 30), "strings": 200}


@dataclass(frozen=True)
class Lengths(lab.Trial):
    """One training on lengths from the shortest to the longest, and how many longer strings its model is asked."""

    task: Task
    positions: Positions
    seed: int
    shortest: int
    longest: int
    width: int
    batch: int
    steps: int
    strings: int

    @property
    def cost(self) -> float:
        """The encoder-decoder has two and a half times the layers, of half the width or less."""
        return self.steps * (1.5 if self.task == "scratchpad" else 1.0)


def recipe_of(trial: Lengths) -> Recipe:
    """The training of a trial."""
    options: dict[str, Any] = {"shortest": trial.shortest, "batch": trial.batch, "steps": trial.steps}
    if trial.task == "scratchpad":
        most = max(longer_lengths(trial.longest, FACTORS))
        return scratchpad_recipe(trial.longest, trial.seed, longest=most, **options)
    options |= {"factors": FACTORS, "positions": trial.positions, "width": trial.width}
    return lengths_recipe(trial.task, trial.longest, trial.seed, **options)


class LengthGeneralization(lab.Study):
    """Which functions carry over to strings that are longer than all of the training."""

    name, paper = "length-generalization", "001"
    title = "Trained on short strings, asked on longer ones"
    scales = lab.scales(
        "trained on {shortest} to {longest} bits, asked at 4/3, 2 and 8/3 times that; {seeds} seeds of the four "
        "functions with sinusoidal and learned positions, and of PARITY with a scratchpad",
        smoke=(0.2, SMOKE),
        laptop=(36, PLAN),
        paper=(20_000, PAPER),
    )
    deviations = lab.deviations(
        (
            "experiment",
            "told in the abstract; the release has no such sweep",
            "a design of our own",
            "there is none to copy",
        ),
        ("positions", "learned, in all of its code", "sinusoidal beside them", "learned ones end with the training"),
        ("lengths of a batch", "mixed where lengths are", "one length a batch, drawn anew", "nothing is padded"),
        ("shortest, longest", "silent; 4 to 30", "laptop: 4 to 12; smoke: 2 to 3", "PARITY is learned up to there"),
        ("width, batch", "128, 1024", "laptop: 64, 128; smoke: 16, 32; scratchpad: width 32 always", "time"),
        (
            "steps",
            "10,000",
            "laptop: 4,000, PARITY 10,000; smoke: 30",
            "after 4,000 it has learned 12 bits by 94 % only",
        ),
        ("seeds, strings", "silent; 10, 100,000", "laptop: 6, 4,096; smoke: 1, 200", "time"),
        ("first seed (laptop, smoke)", "0", "1000", "seeds that no earlier run has looked at"),
        ("models that fail, or do not", "silent", "most of the kept ones", "one training can be stuck"),
        LAYERS_APART,
        (
            "kept",
            f"error below {KEPT_BELOW} at one length",
            "its mean over all lengths of the training",
            "there are many",
        ),
        (
            "fails, does not fail",
            "silent",
            f"accuracy at most {CHANCE}, at least {GENERAL}, at factor 2",
            "there is no number",
        ),
    )
    claims = (
        *(
            claim(task, positions, task == "parity")
            for positions in POSITIONS
            for task in ("parity", "majority", "first")
        ),
        claim("scratchpad", "learned", False),
    )

    def trials(self, scale: str) -> list[Lengths]:
        plan = self.scales[scale].settings
        kinds: list[tuple[Task, Positions]] = [*itertools.product(FUNCTIONS, POSITIONS), ("scratchpad", "learned")]
        same = {name: plan[name] for name in ("shortest", "longest", "width", "batch", "strings")}
        return [
            Lengths(task, positions, seed, steps=plan["steps"][task != "parity"], **same)
            for task, positions in kinds
            for seed in range(plan["first_seed"], plan["first_seed"] + plan["seeds"])
        ]

    def measure(self, trial: Lengths, progress: lab.Progress) -> lab.Outcome:
        recipe = recipe_of(trial)
        model = lab.trained(recipe, progress).model
        lengths = [*range(trial.shortest, trial.longest + 1), *longer_lengths(trial.longest, FACTORS)]
        trained = np.array(lengths) <= trial.longest
        options = {"strings": trial.strings, "seed": trial.seed}
        shares: list[Estimate | None]
        if isinstance(model, Seq2Seq):
            pages = [written(recipe, model, length=n, **options) for n in lengths]
            bits = [page.tokens.value for page in pages]
            shares = [page.answers for page in pages]
            told = {"bits": bits, "kept": bool(np.mean(np.array(bits)[trained]) > KEPT_ABOVE)}
        else:
            asked = [final(recipe, model, length=n, **options) for n in lengths]
            scale = [4 * n if trial.task == "mean" else 4 for n in lengths]  # 1 over the variance of the values
            relative = [factor * one.error.value for factor, one in zip(scale, asked, strict=True)]
            shares = [one.accuracy for one in asked]
            told = {"relative": relative, "kept": bool(np.mean(np.array(relative)[trained]) < 4 * KEPT_BELOW)}
        return {
            "lengths": lengths,
            "accuracy": [None if one is None else one.value for one in shares],
            "asked": [None if one is None else one.samples for one in shares],
            "right": [None if one is None else round(one.value * one.samples) for one in shares],
            **told,
        }

    def provenance(self, table: lab.Rows) -> list[str]:
        by = [
            f"{task}, {positions}: {len(kept(rows))} of {len(rows)}"
            for (task, positions), rows in table.by("task", "positions")
        ]
        rule = (
            f"kept and judged are models whose squared error over the lengths of the training is below {KEPT_BELOW} "
            f"(of the mean / n), and scratchpads with more than {KEPT_ABOVE} of the bits right"
        )
        return [f"{rule}: {'; '.join(by)}"]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        chance, needed = lab.Rule(0.5, "chance"), lab.Rule(GENERAL, "does not fail")
        panels = [
            *panels_of(table, "accuracy", "accuracy", (chance, needed)),
            *panels_of(table.having("relative"), "relative", "squared error / variance"),
        ]
        caption = (
            "Mean of the models at each length, with a band from the least to the largest; hollow points are models "
            "that did not learn the lengths of their training. A scratchpad is right if the last bit that it writes is."
        )
        return [lab.Figure("length-generalization", self.title, caption, panels)]


STUDY = LengthGeneralization()
