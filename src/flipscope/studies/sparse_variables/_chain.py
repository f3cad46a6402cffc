"""Trainings on a hidden gate as chains of a staircase in the number of strings; a learner that keeps every triple."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import flipscope.lab as lab
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import random_strings, seed_of
from flipscope.training.logs import series
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.sparse_variables import SUCCESS, on_training_set, sparse_recipe

FITTED = 1e-4  # training loss below which, with every string right, a training set is fitted
RELEVANT = 3
MANY = 60  # other bits that agree with all positive strings: among so many some triple passes for the right one


@dataclass(frozen=True)
class Chain(lab.Trial):
    """Trainings one after the other: a success takes fewer strings next, a failure more, by the ratio.

    With ratio 1 all have the same number. Without `stop` a training goes on after its success, and its curves are kept.
    """

    tag = "chain"

    length: int
    start: int
    chain: int
    trainings: int
    steps: int
    ratio: float = 1.1
    gate: str = "and"
    noise: float = 0.0
    balanced: bool = False
    stop: bool = True
    validation: int = 10_000
    width: int = 64
    heads: int = 16

    def check(self) -> None:
        """A ratio below 1 would go the wrong way."""
        if self.ratio < 1 or min(self.start, self.trainings) < 1:
            raise InputError(f"ratio={self.ratio} must be at least 1, and start={self.start} and trainings positive")

    @property
    def cost(self) -> float:
        """Positions of all strings that are trained on, and a part per step for validation."""
        return self.trainings * self.steps * (self.start * self.length + 2_000.0)


@dataclass(frozen=True)
class Learner(lab.Trial):
    """Draws of m strings for each of some m: how often do they leave one triple only?"""

    tag = "learner"

    length: int
    samples: tuple[int, ...]
    draws: int


def samples_at(trial: Chain, rung: int) -> int:
    """The strings on a rung of the staircase."""
    return max(2, round(trial.start * trial.ratio**rung))


def recipe_of(trial: Chain, samples: int, number: int) -> Recipe:
    """One training of a chain: hidden bits, strings, weights and masks of its own."""
    settings = {name: getattr(trial, name) for name in ("steps", "noise", "balanced", "stop", "validation", "width")}
    seed = seed_of(trial.length, trial.start, trial.chain, number) >> 16
    plain = sparse_recipe(trial.gate, trial.length, seed, samples=samples, heads=trial.heads, **settings)
    return dataclasses.replace(plain, log=(on_training_set(plain),))


def climb(trial: Chain, progress: lab.Progress) -> lab.Outcome:
    """The trainings of a chain; each is a stored model, so that a chain that was killed goes on where it was."""
    rung, found = 0, []
    for number in range(trial.trainings):
        samples = samples_at(trial, rung)

        def told(done: int, _most: int, before: int = number * trial.steps) -> None:
            progress(before + min(done, trial.steps), trial.trainings * trial.steps)

        fitted = lab.trained(recipe_of(trial, samples, number), told).fitted
        accuracies = [line.validation_accuracy for line in fitted.history]
        _, losses = series(fitted.log, "training_set.loss")
        _, rights = series(fitted.log, "training_set.accuracy")
        won = max(accuracies, default=0.0) > SUCCESS
        fits = any(loss < FITTED and right == 1 for loss, right in zip(losses, rights, strict=True))
        found.append((samples, won, fitted.steps, max(accuracies, default=0.0), min(losses), max(rights), fits))
        rung += -1 if won else 1
    names = ("samples", "success", "taken", "accuracy", "train_loss", "train_accuracy", "fits")
    table: dict[str, np.ndarray] = {
        name: np.array(each) for name, each in zip(names, zip(*found, strict=True), strict=True)
    }
    if trial.stop or trial.trainings > 1:
        return table
    history = fitted.history
    curves = {
        "step": [line.steps for line in history],
        "batch_loss": [line.train_loss for line in history],
        "set_loss": losses[1:],  # without that before the first step
        "validation_loss": [line.validation_loss for line in history],
        "validation_accuracy": accuracies,
    }
    return table | {f"curve_{name}": np.array(values) for name, values in curves.items()}


def flattened(trial: lab.Trial, outcome: lab.Outcome) -> list[lab.Row]:
    """A row per training, or per number of strings of a learner."""
    about = trial.content()
    if isinstance(trial, Learner):
        hits = np.array(outcome["hits"]).tolist()
        return [
            {"kind": "learner", "length": trial.length, "samples": m, "hits": hit, "of": trial.draws}
            for m, hit in zip(trial.samples, hits, strict=True)
        ]
    plain = {name: np.array(value).tolist() for name, value in outcome.items()}
    curves = {name: value for name, value in plain.items() if name.startswith("curve_")}
    per_training = {name: value for name, value in plain.items() if name not in curves}
    kind = "curve" if curves else "training"
    return [
        {"kind": kind, **about, **dict(zip(per_training, each, strict=True)), "number": number, **curves}
        for number, each in enumerate(zip(*per_training.values(), strict=True))
    ]


# ---------------------------------------------------------------- the learner of consistent triples


def only_one_triple(length: int, samples: int, stream: np.random.Generator) -> bool:
    """Whether among all ANDs of three of `length` bits only the right one agrees with so many random strings.

    Others must be 1 on every positive string. By symmetry the right one is of the first three bits, and only the number
    of other bits that are 1 on all positive strings matters: each is with probability 2^-positives.
    """
    right = random_strings(stream, samples, RELEVANT)
    positive = right.all(axis=1)
    others = int(stream.binomial(length - RELEVANT, 0.5 ** int(positive.sum())))
    if others > MANY:
        return False
    negative = np.concatenate(
        [right[~positive], random_strings(stream, int((~positive).sum()), max(1, others))], axis=1
    )
    negative = negative[:, : RELEVANT + others].astype(np.float32)
    pairs = np.array(list(itertools.combinations(range(RELEVANT + others), 2)))
    both = negative[:, pairs[:, 0]] * negative[:, pairs[:, 1]]
    free = (both.T @ negative) == 0  # [pair, bit]: the triple is 1 on no negative string
    free &= np.arange(RELEVANT + others) > pairs[:, 1:]  # each triple once
    return int(free.sum()) == 1  # the right one agrees in any case


def keep_all(trial: Learner, progress: lab.Progress) -> lab.Outcome:
    """How often, for each number of strings, one triple is left."""
    hits = []
    for place, samples in enumerate(trial.samples):
        stream = np.random.default_rng([trial.length, samples])
        hits.append(sum(only_one_triple(trial.length, samples, stream) for _ in range(trial.draws)))
        progress(place + 1, len(trial.samples))
    return {"hits": np.array(hits)}


def floor(length: float) -> float:
    """Strings that a learner of AND needs at least: log2 C(T, 3) bits, of which a label carries H(1/8).

    >>> [round(floor(length), 1) for length in (50, 100, 200, 400)]
    [26.2, 31.8, 37.4, 42.9]
    """
    ones = 2.0**-RELEVANT
    entropy = -ones * math.log2(ones) - (1 - ones) * math.log2(1 - ones)
    return math.log2(math.comb(round(length), RELEVANT)) / entropy


def halfway(places: Sequence[float], shares: Sequence[float]) -> float | None:
    """Where a rising share crosses one half, between two of the places; None if it does not.

    >>> halfway([10, 20, 30], [0.0, 0.25, 0.75])
    25.0
    """
    for (x, low), (y, high) in itertools.pairwise(zip(places, shares, strict=True)):
        if low < 0.5 <= high:
            return x + (y - x) * (0.5 - low) / (high - low)
    return None
