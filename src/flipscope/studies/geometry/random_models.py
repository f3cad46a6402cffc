"""Random transformers of App. F.1: shapes, seeds, strings and costs, their measurement, and figures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Literal, Unpack, get_args

import numpy as np
from numpy.typing import NDArray

import flipscope.lab as lab
from flipscope.basics.bits import Bits
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import mean_from_samples
from flipscope.basics.seeds import generators, random_strings, seed_of
from flipscope.models.config import TransformerConfig
from flipscope.models.shapes import random_shape
from flipscope.studies.geometry.shared import flip_memory, flip_work, spectrum, spectrum_panel

if TYPE_CHECKING:
    from flipscope.models.init import Scheme
    from flipscope.probes.results import Flips
    from flipscope.probes.sensitivity import Options

Init = Literal["uniform", "gaussian", "xavier_uniform", "xavier_normal"]
INITS: tuple[Init, ...] = get_args(Init)
WIDEST = 1024  # of App. F.1's shapes
SPEED = 3.8e10  # multiply-adds a second of one core, for `cost` and the budgets below
# The least work of a screened measurement, in strings with all their flips: the pilot strings and the audit.
SCREEN_OVERHEAD = 5
NEAR = 1 / 20  # of N: sensitivity near 0
SEEN_THROUGH = 0.1  # share of the models for which the screen can skip nothing
MEDIAN = 400  # strings whose median logit is the threshold; an even number, so that no logit equals it
SETTINGS = {"layers": "layers L", "width": "width D", "ffn_multiple": "FFN multiple"}
SIGNS = ("counts", "path", "precision", "rechecked", "near_ties")  # what is stored of strings' sensitivities
TOTALS = ("rechecked", "near_ties", "skipped", "audited", "wrong", "seconds")


def measured(shape: TransformerConfig, init: Scheme, seed: int, strings: Bits, **options: Unpack[Options]) -> Flips:
    """The sensitivity of these strings under the transformer of a shape, an initialisation and a seed."""
    from flipscope.models.transformer import (
        Transformer,
    )  # imported late, since PyTorch takes a while and the sizes are checked first
    from flipscope.probes.sensitivity import sensitivities

    return sensitivities(Transformer(shape, scheme=init, seed=seed), strings, **options)


@dataclass(frozen=True)
class Draw(lab.Trial):
    """Some strings of one data set, evaluated by one random transformer.

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
        """The seed of the model's shape and weights."""
        return _drawn(INITS.index(self.init), self.data_set, self.model, self.widest)[0]

    @property
    def shape(self) -> TransformerConfig:
        """The model's layers, heads and widths."""
        return _drawn(INITS.index(self.init), self.data_set, self.model, self.widest)[1]

    def strings(self) -> NDArray[np.uint8]:
        """The strings to evaluate."""
        (stream,) = generators(seed_of(INITS.index(self.init), self.data_set), 1)
        return random_strings(stream, self.first + self.count, self.length)[self.first :]

    @property
    def cost(self) -> float:
        """About how many seconds it takes on one core."""
        computed = SCREEN_OVERHEAD + self.count * (SEEN_THROUGH + 1 / self.length) if self.screened else self.count
        return computed * flip_work(self.shape, self.length) / SPEED

    @property
    def memory(self) -> int:
        """Bytes for a string and its flips."""
        return flip_memory(self.shape, self.length)

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """The sensitivities of the strings, how their signs were computed, and how many strings have output 1."""
        from flipscope.models.transformer import Transformer  # imported late, as above
        from flipscope.probes.sensitivity import sensitivities

        model, strings = Transformer(self.shape, scheme=self.init, seed=self.seed), self.strings()
        measured_strings = sensitivities(model, strings, heuristic=self.screened, progress=progress)
        signs = {name: getattr(measured_strings, name) for name in SIGNS}
        guesses = {name: getattr(measured_strings.screening, name, 0) for name in ("skipped", "audited", "wrong")}
        ones = int(measured_strings.answers.sum())
        return {"config": self.shape.as_dict(), **signs, **guesses, "ones": ones}


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
    """How many models a scale draws, and how many strings are measured of each."""

    data_sets: int
    models: int  # of each data set and initialisation
    length: int
    strings: tuple[int, int]  # fewest and most per model
    seconds: float  # a model gets as many strings as take this long without the screen; costlier ones are screened
    piece: tuple[int, float]  # fewest strings of a trial, and the seconds up to which it may have more
    widest: int = WIDEST
    screened: int = 0  # models of all initialisations that are too costly, as the random shapes have it
    first_data_set: int = 0

    def __post_init__(self) -> None:
        if self.strings[0] > self.strings[1]:
            raise InputError(f"strings={self.strings} are the fewest and the most a model is asked, in this order")

    def draws(self, kind: type[Draw], init: Init, data_set: int, model: int, screen: bool) -> list[Draw]:
        """The trials of one model; without `screen` even costly models are computed flip by flip."""
        whole = kind(init, data_set, model, self.length, self.widest, 0, 1, False)
        least, most = self.strings
        affordable = int(self.seconds / whole.cost)
        count = min(max(affordable, least), most)
        fewest, seconds = self.piece
        parts = max(1, min(math.ceil(count * whole.cost / seconds), count // fewest))
        ends = np.linspace(0, count, parts + 1).astype(int).tolist()
        whole = replace(whole, screened=screen and affordable < count)
        return [replace(whole, first=first, count=last - first) for first, last in itertools.pairwise(ends)]

    def all_draws(self, kind: type[Draw] = Draw, screen: bool = True) -> list[Draw]:
        """The trials of a scale."""
        data_sets = range(self.first_data_set, self.first_data_set + self.data_sets)
        drawn = itertools.product(INITS, data_sets, range(self.models))
        return [draw for chosen in drawn for draw in self.draws(kind, *chosen, screen)]


def joined(pieces: lab.Rows) -> lab.Row:
    """One model, from those of its pieces that are done; `constant` if its strings and all their flips agree."""
    pieces.sort(key=lambda piece: int(piece["first"]))
    first, shape = pieces[0], TransformerConfig.from_dict(pieces[0]["config"])
    counts, length = np.concatenate(pieces.column("counts")), first["length"]
    return {
        **{name: first[name] for name in ("init", "data_set", "model", "seed", "length", "path", "screened")},
        **{name: getattr(shape, name) for name in ("layers", "heads", "width")},
        "ffn_multiple": shape.hidden_width // shape.width,
        **columns(counts, length),
        "constant": "ones" in first and not counts.any() and pieces.total("ones") in (0, len(counts)),
        "largest": int(counts.max()),
        **{name: pieces.total(name) for name in TOTALS if name in first},
    }


def models_of(results: Sequence[lab.Result]) -> lab.Rows:
    """One row per model, by initialisation."""
    rows = lab.Rows(
        {**each.trial.content(), **each.outcome, "seed": each.trial.seed, "seconds": each.seconds}  # type: ignore[attr-defined]
        for each in results
    )
    models = (pieces for _, inits in rows.each("init", INITS) for _, pieces in inits.by("data_set", "model"))
    return lab.Rows(map(joined, models))


def mean_profile(rows: lab.Rows) -> list[float]:
    """The share of strings at each sensitivity, every transformer with the same weight."""
    shares = [np.array(row["profile"]) / row["strings"] for row in rows]
    return [float(share) for share in np.mean(shares, axis=0)] if shares else []


def mixed(rows: lab.Rows) -> lab.Rows:
    """Models of several initialisations in the random order of their seeds, on which intervals of a mean depend."""
    return lab.Rows(sorted(rows, key=lambda row: int(row["seed"])))


def average_bins(rows: lab.Rows) -> list[float]:
    """The share of transformers by average sensitivity, in bins of one bit."""
    averages = [int(row["average_sensitivity"]) for row in rows]
    return [float(share) for share in np.bincount(averages, minlength=rows[0]["length"] + 1) / len(rows)]


def panels_by_init(table: lab.Rows, heights: Callable[[lab.Rows], list[float]], x: str, y: str) -> list[lab.Panel]:
    """Bars on a log scale for each initialisation, beside the N/2 of a random function."""
    panels = []
    for colour, (init, rows) in enumerate(table.each("init", INITS)):
        if rows:
            title = f"{init.replace('_', ' ').capitalize()}, {len(rows)} transformers"
            bars = lab.bars(title, heights(rows), colour=colour)
            panels.append(spectrum_panel(title, x, y, [bars], rows[0]["length"] / 2))
    return panels


def by_setting(table: lab.Rows) -> list[tuple[str, lab.Rows]]:
    """The models of each depth, of each width, and of each FFN multiple."""
    return [
        (f"{name} = {value}", models) for column, name in SETTINGS.items() for value, models in mixed(table).by(column)
    ]


def breakdown(table: lab.Rows) -> lab.Figure:
    """Share of strings of sensitivity 0 and average sensitivity by each setting."""
    length, panels = table[0]["length"], []
    measures = (
        ("zero_share", "share with s(x) = 0", 1.0, 1.05),
        ("average_sensitivity", "mean s(x)", length, length / 1.8),
    )
    for (column, name), (measure, y, end, top) in itertools.product(SETTINGS.items(), measures):
        groups = list(mixed(table).by(column))
        by_group = [mean_from_samples(rows.column(measure), 0, end) for _, rows in groups]
        means = lab.estimates("mean over models", list(range(len(groups))), by_group, "points")
        rules = [lab.Rule(length / 2, "random function")] if end > 1 else []
        places = [str(value) for value, _ in groups]
        panels.append(lab.Panel("", name, y, [means], categories=places, y_range=(0, top), rules=rules))
    caption = "Means over the transformers of each depth, width and FFN multiple, all initialisations together."
    return lab.Figure("random-init-breakdown", "Insensitivity by depth, width and FFN", caption, panels, where="§6")


def figures_by_init(table: lab.Rows) -> list[lab.Figure]:
    """Figures: spectra and average sensitivities by initialisation, spectra without constants, and both by setting."""
    every = "Share of the strings at each sensitivity, on a log scale. Every transformer counts the same."
    bits = "Share of the transformers by average sensitivity, in bins of one bit, on a log scale to show the tail."
    apart = "The same spectra, of the transformers that are not constant as far as their strings and flips show."
    top = panels_by_init(table, mean_profile, "sensitivity", "share of strings")
    bottom = panels_by_init(table, average_bins, "average sensitivity", "share of transformers")
    varied = panels_by_init(table.where(constant=False), mean_profile, "sensitivity", "share of strings")
    figure = partial(lab.Figure, same_axes=True)
    figures = [
        figure("random-init-spectra", "Sensitivity spectra", every, top, where="Figs 3 and 4, top"),
        figure("random-init-averages", "Average sensitivities", bits, bottom, where="Figs 3 and 4, bottom"),
        figure("random-init-apart", "Sensitivity spectra, constants apart", apart, varied, where="§6"),
    ]
    return [*(figure for figure in figures if figure.panels), breakdown(table)]


def columns(counts: NDArray[np.int64], length: int) -> lab.Row:
    """Columns computed from the sensitivities of a model's strings; `relative` is the average in units of N/2."""
    return {
        **spectrum(counts, length),
        "relative": 2 * float(counts.mean()) / length,
        "zero_share": float(np.mean(counts == 0)),
        "near_share": float(np.mean(counts <= NEAR * length)),
    }
