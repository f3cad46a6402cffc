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
from flipscope.probes.sharpness import sharpness
from flipscope.studies.hardness._shared import DRAWS, SIGNS, STD
from flipscope.training.protocols import table_recipe
from flipscope.training.sets import TableData, completed_table, random_table, table_text

Kind = Literal["learned", "random"]
FITS = 0.99  # share of all rows that the second step must have right


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
    """The rows that are known, of a random function; others of other targets and seeds."""
    table = random_table(trial.length, trial.target)
    return TableData(table=table, length=trial.length, subset=trial.size, seed=seed_of(trial.target, trial.seed))


@torch.no_grad()
def answers(model: nn.Module, strings: Bits) -> Bits:
    """On which side of 1/2 the model is."""
    found: Bits = (model(torch.from_numpy(strings)) > 0.5).reshape(-1).numpy().astype(np.uint8)
    return found


def measured(trial: Learned, progress: lab.Progress) -> lab.Outcome:
    """The function of a trial, and how sharp a model of all of it is, if it agrees with the known rows."""
    known, cube = rows_of(trial), index_bits(0, 1 << trial.length, trial.length)
    options: dict[str, Any] = {"width": trial.width, "batch": trial.batch, "lr": trial.lr}
    if trial.kind == "learned":
        first = lab.trained(table_recipe(known, trial.seed, steps=trial.first, **options), progress).model
        labels = answers(first, cube)
    else:
        labels = TableData(
            table=completed_table(known, seed_of(trial.target, trial.seed)), length=trial.length
        ).values()
    wrong = int((labels != known.values())[known.rows()].sum())
    function = BooleanFunction.from_table(labels)
    weights = weight_floats(function)
    found = {
        "table": table_text(labels),
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
    model = lab.trained(table_recipe(full, trial.again, steps=trial.steps, **options), progress).model
    wrong = int((answers(model, cube) != labels).sum())
    noise: dict[str, Any] = {"std": STD, "draws": trial.draws, "seed": trial.seed}
    everywhere, there = (sharpness(model, strings, **noise).value for strings in (cube, cube[known.rows()]))
    sharp = {"sharpness": everywhere.value, "sharpness_low": everywhere.low, "sharpness_high": everywhere.high}
    sharp = {name: SIGNS * value for name, value in {**sharp, "sharpness_known": there.value}.items()}
    return {**found, "wrong": wrong, "kept": wrong <= (1 - FITS) * len(cube), **sharp}
