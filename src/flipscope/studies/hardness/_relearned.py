"""A function learned from some rows of a random one, or a random completion of them, and a model of all of it (E4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

import flipscope.lab as lab
from flipscope.basics.bits import Bits, index_bits
from flipscope.basics.seeds import seed_of
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.sensitivity import average_sensitivity
from flipscope.cube.spectrum import weight_floats
from flipscope.data.tables import TableData, completed_table, random_table, table_text
from flipscope.probes.sharpness import sharpness
from flipscope.studies.hardness._shared import DRAWS, SIGNS, STD
from flipscope.training.recipes.hardness import final, table_recipe

Kind = Literal["learned", "random"]


@dataclass(frozen=True)
class Learned(lab.Trial):
    """A function learned from `size` rows of a random one, or a random completion of them; trained on in full again."""

    target: int
    seed: int
    size: int
    kind: Kind
    again: int  # seed of the second step
    length: int
    width: int
    batch: int
    first: int  # steps of either step
    steps: int
    lr: float
    draws: int = DRAWS

    @property
    def cost(self) -> float:
        """Both trainings."""
        return float(self.steps + (self.first if self.kind == "learned" else 0))


def rows_of(trial: Learned) -> TableData:
    """The rows that are known, of a random function: distinct ones, and others of other targets and seeds."""
    table = random_table(trial.length, trial.target)
    return TableData(table=table, length=trial.length, subset=trial.size, seed=seed_of(trial.target, trial.seed))


@torch.no_grad()
def answers(model: nn.Module, strings: Bits) -> Bits:
    """On which side of 1/2 the model is."""
    found: Bits = (model(torch.from_numpy(strings)) > 0.5).reshape(-1).numpy().astype(np.uint8)
    return found


def measured(trial: Learned, progress: lab.Progress) -> lab.Outcome:
    """The function of a trial, and how sharp a model of all of it is, if it agrees with the known rows.

    No two targets share the start of a model, the order of its rows or the draws of the noise: what is said of targets
    takes them as independent. A learned function and its random completion do share them.
    """
    known, cube = rows_of(trial), index_bits(0, 1 << trial.length, trial.length)
    options: dict[str, Any] = {"width": trial.width, "batch": trial.batch, "lr": trial.lr}
    own = seed_of(trial.target, trial.seed)
    if trial.kind == "learned":
        first = lab.trained(table_recipe(known, own, steps=trial.first, **options), progress).model
        labels = answers(first, cube)
    else:
        labels = TableData(table=completed_table(known, own), length=trial.length).values()
    wrong = int((labels != known.values())[known.rows()].sum())
    function = BooleanFunction.from_table(labels)
    weights = weight_floats(function)
    found = {
        "table": table_text(labels),
        "known": len(set(known.rows().tolist())),
        "wrong_known": wrong,
        "fitted": wrong == 0,
        "kept": False,
        "sensitivity": float(average_sensitivity(function)),
        "target_sensitivity": float(average_sensitivity(BooleanFunction.from_table(known.values()))),
        "weights": weights,
        "high": sum(weights[trial.length // 2 + 1 :]),
    }
    if wrong:
        return found
    full = TableData(table=table_text(labels), length=trial.length)
    recipe = table_recipe(full, seed_of(trial.target, trial.seed, trial.again), steps=trial.steps, **options)
    model = lab.trained(recipe, progress).model
    done = final(recipe, model, strings=1 << trial.length)
    noise: dict[str, Any] = {"std": STD, "draws": trial.draws, "seed": own}
    everywhere, there = (sharpness(model, strings, **noise).value for strings in (cube, cube[known.rows()]))
    sharp = {"sharpness": everywhere.value, "sharpness_low": everywhere.low, "sharpness_high": everywhere.high}
    sharp = {name: SIGNS * value for name, value in {**sharp, "sharpness_known": there.value}.items()}
    return {**found, "error": done.error.value, "kept": done.kept, **sharp}
