"""Sensitivity spectra and average sensitivities of randomly initialised transformers (App. F.1, Figs 3 left and 4)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from flipscope.cube.blocks import Progress
from flipscope.cube.estimate import generators, random_strings
from flipscope.errors import InputError
from flipscope.lab.plots import Figure, Panel, Rule, Series
from flipscope.lab.study import Outcome, Result, Scale, Study, Table, Trial
from flipscope.models.config import TransformerConfig
from flipscope.models.init import random_shape
from flipscope.models.transformer import Transformer
from flipscope.probes import flips
from flipscope.studies.geometry._random_claims import CLAIMS
from flipscope.studies.geometry._shared import flip_work, seed_of

Init = Literal["uniform", "gaussian", "xavier_uniform", "xavier_normal"]
INITS: tuple[Init, ...] = get_args(Init)
WIDEST = 1024  # of App. F.1's shapes
SPEED = 3.8e10  # multiply-adds a second of one core, for `cost` and the budgets below
# What a screened measurement computes at least, in strings with all their flips: the pilot strings and the audit.
SCREEN_OVERHEAD = 5
SEEN_THROUGH = 0.1  # share of the models on which the screen can skip nothing


@dataclass(frozen=True)
class Draw(Trial):
    """Some strings of one data set, asked of one random transformer.

    The seed of the model comes from init, data set and model, and gives its shape and its weights: all models are
    drawn independently. The strings come from init and data set, so that the models of a data set share them.
    """

    init: Init
    data_set: int
    model: int
    length: int
    widest: int  # shapes of App. F.1 wider than this are drawn again
    first: int  # of the strings of the data set
    count: int
    screened: bool  # whether flips that are unlikely to matter are skipped, with an audit

    def check(self) -> None:
        if min(self.data_set, self.model, self.first) < 0 or min(self.length, self.count) < 1 or self.widest < 16:
            raise InputError(f"{self} needs numbers from 0 on, a length, a count, and room for the least width, 16")

    @property
    def seed(self) -> int:
        """The model's: of its shape and of its weights."""
        return _drawn(INITS.index(self.init), self.data_set, self.model, self.widest)[0]

    @property
    def shape(self) -> TransformerConfig:
        """Its layers, heads, widths."""
        return _drawn(INITS.index(self.init), self.data_set, self.model, self.widest)[1]

    def strings(self) -> NDArray[np.uint8]:
        """The strings to ask."""
        (stream,) = generators(seed_of(INITS.index(self.init), self.data_set), 1)
        return random_strings(stream, self.first + self.count, self.length)[self.first :]

    @property
    def cost(self) -> float:
        """About the seconds it takes on one core."""
        computed = SCREEN_OVERHEAD + self.count * (SEEN_THROUGH + 1 / self.length) if self.screened else self.count
        return computed * flip_work(self.shape, self.length) / SPEED

    @property
    def memory(self) -> int:
        """The parameters in float32, in float64, and while they are drawn; activations of a string and its flips."""
        shape = self.shape
        parameters = shape.layers * shape.width * (4 * shape.width + 2 * shape.hidden_width)
        activations = (self.length + 1) ** 2 * (8 * shape.width + 2 * shape.hidden_width) * 4
        return (1 << 29) + 16 * parameters + activations


@cache
def _drawn(init: int, data_set: int, model: int, widest: int) -> tuple[int, TransformerConfig]:
    """The first seed of this model whose shape is not too wide, and the shape."""
    for attempt in itertools.count():
        seed = seed_of(init, data_set, model, attempt)
        if (shape := random_shape(seed)).width <= widest:
            break
    return seed, shape


@dataclass(frozen=True)
class Plan:
    """How many models a scale draws, and how many strings each of them is asked."""

    data_sets: int
    models: int  # of each data set and initialisation
    length: int
    strings: tuple[int, int]  # fewest and most a model
    seconds: float  # a model is given as many strings as take so long without the screen; dearer ones are screened
    piece: tuple[int, float]  # one trial: at least so many strings, and more only if they take at most so long
    widest: int = WIDEST

    def draws(self, init: Init, data_set: int, model: int) -> list[Draw]:
        """The trials of one model."""
        whole = Draw(init, data_set, model, self.length, self.widest, 0, 1, False)
        least, most = self.strings
        affordable = int(self.seconds / whole.cost)
        count = min(max(affordable, least), most)
        fewest, seconds = self.piece
        parts = max(1, min(math.ceil(count * whole.cost / seconds), count // fewest))
        ends = np.linspace(0, count, parts + 1).astype(int).tolist()
        return [
            Draw(init, data_set, model, self.length, self.widest, first, last - first, affordable < count)
            for first, last in itertools.pairwise(ends)
        ]


PLANS = {
    "smoke": Plan(3, 1, 40, (20, 60), 0.2, (30, 1.0), widest=64),
    "laptop": Plan(24, 1, 100, (100, 2_000), 8.0, (50, 600.0)),
    "paper": Plan(10, 50, 100, (10_000, 10_000), 600.0, (100, 600.0)),
}


class RandomInit(Study):
    """Whether random transformers are insensitive, whatever the initialisation."""

    name = "random-init"
    paper = "000"
    title = "Sensitivity spectra and average sensitivities of randomly initialised transformers"
    figures = ("Fig 3 left", "Fig 4")
    scales = {
        "smoke": Scale("4 initialisations, 3 transformers each, N = 40, width at most 64, 20 to 60 strings", 0.1),
        "laptop": Scale("4 initialisations, 24 transformers each, N = 100, 100 to 2,000 strings a transformer", 20),
        "paper": Scale("4 initialisations, 10 data sets of 10,000 strings, 50 transformers each, N = 100", 45_000),
    }
    claims = CLAIMS

    def trials(self, scale: str) -> list[Draw]:
        plan = PLANS[scale]
        drawn = itertools.product(INITS, range(plan.data_sets), range(plan.models))
        return [draw for chosen in drawn for draw in plan.draws(*chosen)]

    def measure(self, trial: Draw, progress: Progress) -> Outcome:
        model = Transformer(trial.shape, scheme=trial.init, seed=trial.seed)
        found = flips.measure(model, trial.strings(), heuristic=trial.screened, progress=progress)
        screening = found.screening
        return {
            "config": trial.shape.as_dict(),
            "counts": found.counts,
            "path": found.path,
            "precision": found.precision,
            "rechecked": found.rechecked,
            "near_ties": found.near_ties,
            "skipped": 0 if screening is None else screening.skipped,
            "audited": 0 if screening is None else screening.audited,
            "wrong": 0 if screening is None else screening.wrong,
        }

    def summarise(self, results: Sequence[Result]) -> Table:
        models: dict[tuple[int, int, int], list[Result]] = {}
        for result in results:
            trial = result.trial
            assert isinstance(trial, Draw)
            models.setdefault((INITS.index(trial.init), trial.data_set, trial.model), []).append(result)
        return [_row(models[number]) for number in sorted(models)]

    def draw(self, table: Table) -> list[Figure]:
        return [
            Figure(
                "random-init-spectra",
                "Sensitivity spectra",
                "Share of the strings at each sensitivity, on a log scale. Every transformer counts the same, "
                "however many strings it was asked.",
                [_spectrum_panel(table, init) for init in INITS],
                where="Figs 3 and 4, top",
            ),
            Figure(
                "random-init-averages",
                "Distribution of average sensitivities",
                "Share of the transformers by average sensitivity, in bins of one bit, on a log scale to show the "
                "tail. A random function lies at N/2.",
                [_averages_panel(table, init) for init in INITS],
                where="Figs 3 and 4, bottom",
            ),
        ]


def _row(pieces: Sequence[Result]) -> dict[str, object]:
    """One model, of however many of its pieces are there."""
    pieces = sorted(pieces, key=lambda piece: piece.trial.content()["first"])
    trial, outcomes = pieces[0].trial, [piece.outcome for piece in pieces]
    assert isinstance(trial, Draw)
    counts = np.concatenate([outcome["counts"] for outcome in outcomes])
    shape = TransformerConfig.from_dict(outcomes[0]["config"])
    summed = ("rechecked", "near_ties", "skipped", "audited", "wrong")
    return {
        "init": trial.init,
        "data_set": trial.data_set,
        "model": trial.model,
        "seed": trial.seed,
        "length": trial.length,
        "layers": shape.layers,
        "heads": shape.heads,
        "width": shape.width,
        "ffn_width": shape.hidden_width,
        "strings": len(counts),
        "average_sensitivity": float(counts.mean()),
        "zero_share": float(np.mean(counts == 0)),
        "largest": int(counts.max()),
        "profile": np.bincount(counts, minlength=trial.length + 1).tolist(),
        "path": outcomes[0]["path"],
        "screened": trial.screened,
        **{name: sum(outcome[name] for outcome in outcomes) for name in summed},
        "seconds": sum(piece.seconds for piece in pieces),
    }


# ---------------------------------------------------------------- figures


def _spectrum_panel(table: Table, init: Init) -> Panel:
    rows = [row for row in table if row["init"] == init]
    shares = np.zeros(table[0]["length"] + 1)
    for row in rows:
        shares += np.array(row["profile"]) / row["strings"] / len(rows)
    lowest = min(1 / row["strings"] for row in table) / max(1, len(rows)) / 2  # below one string of one model
    return _panel(init, len(rows), "sensitivity", "share of strings", shares, lowest)


def _averages_panel(table: Table, init: Init) -> Panel:
    rows = [row for row in table if row["init"] == init]
    bins = np.bincount([int(row["average_sensitivity"]) for row in rows], minlength=table[0]["length"] + 1)
    models = max(1, len(rows))
    return _panel(init, len(rows), "average sensitivity", "share of transformers", bins / models, 0.5 / models)


def _panel(init: Init, models: int, x: str, y: str, shares: NDArray[np.float64], lowest: float) -> Panel:
    length = len(shares) - 1
    title = f"{init.replace('_', ' ').capitalize()}, {models} transformers"
    heights = [float(share) or None for share in shares]
    hover = [f"{place}: {share:.3g}" for place, share in enumerate(shares)]
    bars = Series(title, list(range(length + 1)), heights, "bars", colour=INITS.index(init), hover=hover)
    rules = (Rule(length / 2, "random function", axis="x"),)
    x_range, y_range = (-1.0, length + 1.0), (lowest, 1.5)
    return Panel(title, x, y, [bars], y_log=True, x_range=x_range, y_range=y_range, rules=rules)


STUDY = RandomInit()
