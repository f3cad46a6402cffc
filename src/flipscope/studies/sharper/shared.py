"""Trainings on sums of parities, shared by the studies of this paper.

`fourier_recipe(sparsity, degree, seed, **LAPTOP)` is the same model in every study that uses it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import flipscope.lab as lab
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.sharper import Norm, fourier_recipe

# Settings of the trainings, by scale.
SMOKE: Mapping[str, Any] = {"length": 5, "samples": 24, "batch": 24, "lr": 3e-3, "steps": 12, "dropout": 0.0}
LAPTOP: Mapping[str, Any] = {"length": 10, "samples": 512, "batch": 256, "lr": 1e-3, "steps": 4_000, "dropout": 0.0}
LONG: Mapping[str, Any] = {"length": 20, "samples": 8_192, "batch": 256, "lr": 1e-3, "steps": 2_000, "dropout": 0.0}
PAPER: Mapping[str, Any] = {"length": 20, "samples": 8_192, "batch": 256, "lr": 2e-3, "steps": 100_000, "dropout": 0.1}
DEGREES = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Learning(lab.TrainedTrial):
    """One random function of a class, and how it is learned."""

    sparsity: int
    degree: int
    seed: int
    length: int
    samples: int
    batch: int
    lr: float
    steps: int
    dropout: float
    norm: Norm = "none"
    penalty: float = 0.0
    heads: int = 1

    @property
    def recipe(self) -> Recipe:
        return fourier_recipe(
            self.sparsity,
            self.degree,
            self.seed,
            length=self.length,
            samples=self.samples,
            batch=self.batch,
            lr=self.lr,
            steps=self.steps,
            dropout=self.dropout,
            norm=self.norm,
            penalty=self.penalty,
            heads=self.heads,
        )

    @property
    def cost(self) -> float:
        """The cost in the units of the other trials of these studies, assuming that the steps grow with the degree."""
        slower = 10 if self.penalty else 1
        return self.steps * self.heads * (20 + self.batch * self.length / 64) * self.degree * slower


def functions_of(sparsities: tuple[int, ...], degrees: tuple[int, ...], functions: int) -> list[dict[str, int]]:
    """Sparsity, degree and seed of `functions` functions of every class."""
    return [
        {"sparsity": sparsity, "degree": degree, "seed": seed}
        for sparsity, degree, seed in itertools.product(sparsities, degrees, range(functions))
    ]


def learned_summary(table: lab.Rows) -> str:
    """How many functions were learned, and the classes with functions that were not, in words."""
    if not table:
        return "none was tried"
    failed = [
        f"D = {degree}, sparsity {sparsity}: {len(missed)} of {len(rows)}"
        for (degree, sparsity), rows in table.by("degree", "sparsity")
        if (missed := rows.where(learned=False))
    ]
    summary = f"{len(table.where(learned=True))} of {len(table)} functions were learned"
    return f"{summary}; not learned: {'; '.join(failed)}" if failed else summary
