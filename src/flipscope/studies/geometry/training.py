"""What is trained in the studies of trained transformers: a model on a language."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import flipscope.lab as lab
from flipscope.cube.expression import parse
from flipscope.cube.sensitivity import profile
from flipscope.data.languages import LabelledStrings, draw, random_language
from flipscope.models.init import Scheme
from flipscope.models.presets import encoder
from flipscope.models.shapes import random_shape
from flipscope.training.fit import random_training as random_setting
from flipscope.training.recipe import Recipe, StringData, TrainingProtocol

VALIDATION = 1_000  # strings that say when to stop (App. F.2)
Name = Literal["first", "majority", "parity", "sparse_majority", "sparse_parity", "random"]
PLAIN: tuple[Name, ...] = ("first", "majority", "parity")
SPARSE: tuple[Name, ...] = ("sparse_majority", "sparse_parity")


@dataclass(frozen=True)
class Training(lab.Trial):
    """One model to train on one language."""

    language: Name
    relevant: int  # bits of a sparse language, 0 for others
    instance: int  # which language of its kind, and which strings of it
    seed: int  # of the model's weights and of the order of the strings
    length: int
    init: Scheme
    layers: int
    heads: int
    head_size: int
    ffn_multiple: int
    batch: int
    learning_rate: float
    train: int
    test: int
    strings: int  # whose sensitivity is measured
    max_epochs: int

    @property
    def cost(self) -> float:
        """Multiply-adds of an epoch."""
        width = self.heads * self.head_size
        layer = width * width * (4 + 2 * self.ffn_multiple) + 2 * self.length * width
        return float(self.train * self.length * self.layers * layer)

    @property
    def memory(self) -> int:
        """Weights with their moments, and the activations of a part of a batch, with room to spare."""
        width = self.heads * self.head_size
        weights = self.layers * width * width * (4 + 2 * self.ffn_multiple)
        return (1 << 30) + 32 * weights + 6400 * width * self.layers * (16 + 4 * self.ffn_multiple) * 4


def named(row: lab.Row) -> str:
    """A trained model in words."""
    sparse = f" of {row['relevant']} bits" if row["relevant"] else ""
    return f"{row['language'].replace('_', ' ')}{sparse}, width {row['heads'] * row['head_size']}, seed {row['seed']}"


def random_training(language: Name, relevant: int, instance: int, seed: int) -> Training:
    """A training of App. F.2: the shape, batch and learning rate at random, from the seed."""
    shape, setting, random = random_shape(seed), random_setting(seed), language == "random"
    return Training(
        language,
        relevant,
        instance,
        seed,
        40 if random else 100,
        "xavier_normal" if random else "uniform",
        shape.layers,
        shape.heads,
        shape.width // shape.heads,
        shape.hidden_width // shape.width,
        setting.batch,
        setting.learning_rate,
        train=10_000,
        test=1_000,
        strings=1_000,
        max_epochs=1_000,
    )


def _small_trainings(plan: Mapping[str, Any]) -> Iterator[Training]:
    """Small shapes with fixed batch and learning rate: those of App. F.1 would take months on two cores."""
    for seed in range(plan["models"]):
        settings: list[tuple[Name, int, int]] = [(name, 0, heads) for name in PLAIN for heads in plan["heads"]]
        settings += [(name, m, 1) for name in SPARSE for m in plan["sparse"]]
        for name, relevant, heads in settings:
            yield Training(name, relevant, seed, seed, plan["length"], "uniform", 2, heads, **plan["training"])
        if plan["sparse"]:
            yield Training("random", 0, seed, seed, 40, "xavier_normal", 2, 1, **plan["training"])


def _paper_trainings(plan: Mapping[str, Any]) -> Iterator[Training]:
    """App. F.2: shape, batch and learning rate at random."""
    several = range(plan["models"])
    languages: list[tuple[Name, int, int]] = [(name, 0, 0) for name in PLAIN]
    languages += itertools.product(SPARSE, plan["sparse"], several)
    languages += [("random", 0, instance) for instance in several]
    for number, language in enumerate(languages):
        for model in several:
            yield random_training(*language, plan["models"] * number + model)


def trainings(plan: Mapping[str, Any]) -> Iterator[Training]:
    """All trainings of a scale: of one setting where the plan has one, otherwise of settings drawn at random."""
    return _small_trainings(plan) if "training" in plan else _paper_trainings(plan)


def expression_of(trial: Training) -> str | None:
    """The function by its name, or None for a random language, which is its strings only."""
    if trial.language == "random":
        return None
    sparse = f"{trial.relevant}, n={trial.length}, seed={trial.instance}"
    return f"{trial.language}({sparse if trial.relevant else trial.length})"


@functools.cache
def own_profile(expression: str | None, length: int) -> list[float] | None:
    """The share of strings at each sensitivity in a language itself; a random language is its strings only."""
    return None if expression is None else [count / 2**length for count in profile(parse(expression, length))]


def strings_at(row: lab.Row, around: float) -> tuple[int, int]:
    """How many of a model's strings have sensitivity 0, and how many one that its language has beyond 0.

    Those not further from it than the part `around` of it count.
    """
    found, own = np.array(row["profile"]), np.flatnonzero(row["own_profile"])
    there = np.abs(np.arange(len(found))[:, None] - own[own > 0]) <= around * own[own > 0]
    return int(found[0]), int(found[there.any(axis=1)].sum())


def strings_of(trial: Training) -> dict[str, LabelledStrings]:
    """Strings to train on, to stop by, and to test on; of a random language all three are the same (App. F.2)."""
    expression = expression_of(trial)
    if expression is None:
        data = random_language(trial.length, trial.train, trial.instance)
        return {"train": data, "validation": data, "test": data}
    sizes = {"train": trial.train, "validation": VALIDATION, "test": trial.test}
    return draw(parse(expression), trial.length, sizes, trial.instance)


def recipe_of(trial: Training) -> Recipe:
    """The training of App. F.2."""
    width = trial.heads * trial.head_size
    return Recipe(
        data=StringData(
            function=expression_of(trial),
            length=trial.length,
            train=trial.train,
            validation=VALIDATION,
            seed=trial.instance,
        ),
        model=encoder(width=width, layers=trial.layers, heads=trial.heads, ffn_width=trial.ffn_multiple * width),
        protocol=TrainingProtocol(batch=trial.batch, learning_rate=trial.learning_rate, max_epochs=trial.max_epochs),
        init=trial.init,
        seed=trial.seed,
    )
