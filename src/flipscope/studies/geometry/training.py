"""The trainings of the studies of trained transformers: a model on a language (App. F.2)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import flipscope.lab as lab
from flipscope.cube.expression import parse
from flipscope.data.languages import LabelledStrings, draw, random_language
from flipscope.models.init import Scheme
from flipscope.models.shapes import random_shape
from flipscope.probes.sensitivity import sensitivities
from flipscope.training.fit import evaluate
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.geometry import VALIDATION, language_recipe, random_setting

Name = Literal["first", "majority", "parity", "sparse_majority", "sparse_parity", "random"]
# Settings of small models. Those of App. F.1 would take months on two cores.
SETTING = ("head_size", "ffn_multiple", "batch", "learning_rate", "train", "test", "strings", "max_epochs")
TINY = dict(zip(SETTING, (8, 2, 64, 3e-3, 2_000, 1_000, 200, 5), strict=True))
SMALL = dict(zip(SETTING, (16, 2, 128, 1e-2, 10_000, 4_000, 400, 40), strict=True))
CURVES = ("train_loss", "validation_loss", "validation_accuracy")
DEVIATIONS = lab.deviations(
    (
        "models per language",
        "10 in the text, 50 under Figs 5 to 7",
        "10 at scale paper",
        "the paper contradicts itself",
    ),
    (
        "shapes, heads (up to laptop)",
        "at random, width up to 1,024",
        "2 layers, widths 16 and 32",
        "months on two cores",
    ),
    (
        "instances, first seed (up to laptop)",
        "10 models of one language",
        "a different language for each model",
        "more languages",
    ),
    (
        "training: batch, learning rate (up to laptop)",
        "at random",
        "128 and 0.01; smoke 64 and 0.003",
        "these settings learn",
    ),
    ("training: epochs (up to laptop)", "until it stops improving", "at most 40, 20 or 5", "to take minutes in all"),
    (
        "training: strings to test, to flip (up to laptop)",
        "1,000",
        "4,000 and 400; smoke 1,000 and 200",
        "to distinguish 0.99 from 1",
    ),
    ("training: most epochs", "not stated", "1,000 at scale paper", "a training must end"),
)


@dataclass(frozen=True)
class Training(lab.TrainedTrial):
    """One model to train on one language."""

    language: Name
    relevant: int  # bits of a sparse language, 0 for others
    instance: int  # number of the language among those of its kind, and of its strings
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
    def recipe(self) -> Recipe:
        """The training of App. F.2."""
        return language_recipe(
            expression_of(self),
            self.length,
            self.seed,
            layers=self.layers,
            heads=self.heads,
            head_size=self.head_size,
            ffn_multiple=self.ffn_multiple,
            batch=self.batch,
            learning_rate=self.learning_rate,
            train=self.train,
            max_epochs=self.max_epochs,
            init=self.init,
            strings_seed=self.instance,
        )

    @property
    def memory(self) -> int:
        """Bytes of the weights with their moments and of the activations of part of a batch, rounded up generously."""
        width = self.heads * self.head_size
        weights = self.layers * width * width * (4 + 2 * self.ffn_multiple)
        return (1 << 30) + 32 * weights + 6400 * width * self.layers * (16 + 4 * self.ffn_multiple) * 4

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """The sensitivities of the trained model's strings, its accuracy, and how its training went."""
        data = strings_of(self)
        trained = lab.trained(self.recipe, progress)
        model, fitted = trained.model, trained.fitted
        tested = evaluate(model, data["test"])
        strings = sensitivities(model, data["test"].bits[: self.strings])
        return {
            "counts": strings.counts,
            "near_ties": strings.near_ties,
            "correct": tested.correct,
            "tested": tested.strings,
            "epochs": len(fitted.history),
            **{name: getattr(fitted, name) for name in ("kept_epoch", "steps", "stopped")},
            **{name: np.array([getattr(epoch, name) for epoch in fitted.history]) for name in CURVES},
        }


def named(row: lab.Row) -> str:
    """A trained model in words."""
    sparse = f" of {row['relevant']} bits" if row["relevant"] else ""
    return f"{row['language'].replace('_', ' ')}{sparse}, width {row['heads'] * row['head_size']}, seed {row['seed']}"


def random_training(language: Name, relevant: int, instance: int, seed: int) -> Training:
    """A training of App. F.2: the shape, batch and learning rate at random, from the seed."""
    shape, setting = random_shape(seed), random_setting(seed)
    return Training(
        language,
        relevant,
        instance,
        seed,
        40 if language == "random" else 100,
        _init(language),
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


def trainings(plan: Mapping[str, Any], languages: Sequence[tuple[Name, int]]) -> list[Training]:
    """All trainings of a scale, on languages with these numbers of relevant bits.

    Where the plan has a setting, they are of small models, each on another instance of its language, numbered from
    `first_seed` on. Otherwise they are those of App. F.2: `models` models of `instances` instances each, with settings
    drawn at random from `first_seed` on, which differs between studies.
    """
    first = plan["first_seed"]
    if "training" not in plan:
        models = range(plan["models"])
        kinds = enumerate(itertools.product(languages, range(plan["instances"]), models), first)
        return [random_training(*language, instance, seed) for seed, (language, instance, _) in kinds]
    models = range(first, first + plan["models"])
    return [
        Training(*language, seed, seed, plan["length"], _init(language[0]), 2, heads, **plan["training"])
        for seed, language, heads in itertools.product(models, languages, plan["heads"])
    ]


def _init(language: Name) -> Scheme:
    return "xavier_normal" if language == "random" else "uniform"


def expression_of(trial: Training) -> str | None:
    """The language's function as an expression; None for a random language, which consists of its strings."""
    if trial.language == "random":
        return None
    sparse = f"{trial.relevant}, n={trial.length}, seed={trial.instance}"
    return f"{trial.language}({sparse if trial.relevant else trial.length})"


def strings_of(trial: Training) -> dict[str, LabelledStrings]:
    """Strings for training, validation and test; for a random language all three are the same (App. F.2)."""
    expression = expression_of(trial)
    if expression is None:
        data = random_language(trial.length, trial.train, trial.instance)
        return {"train": data, "validation": data, "test": data}
    sizes = {"train": trial.train, "validation": VALIDATION, "test": trial.test}
    return draw(parse(expression), trial.length, sizes, trial.instance)
