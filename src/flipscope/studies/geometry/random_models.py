"""Random transformers of App. F.1: their shapes, their seeds, the strings they are asked, their cost."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Literal, Unpack, get_args

import numpy as np
from numpy.typing import NDArray

import flipscope.lab as lab
from flipscope.basics.bits import Bits
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import generators, random_strings, seed_of
from flipscope.models.config import TransformerConfig
from flipscope.models.shapes import random_shape
from flipscope.studies.geometry._shared import flip_memory, flip_work, spectrum

if TYPE_CHECKING:
    from flipscope.models.init import Scheme
    from flipscope.probes.results import Flips
    from flipscope.probes.sensitivity import Options

Init = Literal["uniform", "gaussian", "xavier_uniform", "xavier_normal"]
INITS: tuple[Init, ...] = get_args(Init)
WIDEST = 1024  # of App. F.1's shapes
SPEED = 3.8e10  # multiply-adds a second of one core, for `cost` and the budgets below
# What a screened measurement computes at least, in strings with all their flips: the pilot strings and the audit.
SCREEN_OVERHEAD = 5
NEAR = 1 / 20  # of N: sensitivity near 0
SEEN_THROUGH = 0.1  # share of the models on which the screen can skip nothing


def measured(shape: TransformerConfig, init: Scheme, seed: int, strings: Bits, **options: Unpack[Options]) -> Flips:
    """The sensitivity of these strings under the transformer of a shape, an initialisation and a seed."""
    from flipscope.models.transformer import Transformer  # not before sizes have been checked: PyTorch takes a while
    from flipscope.probes.sensitivity import sensitivities

    return sensitivities(Transformer(shape, scheme=init, seed=seed), strings, **options)


@dataclass(frozen=True)
class Draw(lab.Trial):
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
    centred: int = 0  # of these strings, asked again with the threshold at the median logit; there nothing is skipped

    def check(self) -> None:
        if min(self.data_set, self.model, self.first) < 0 or min(self.length, self.count) < 1 or self.widest < 16:
            raise InputError(f"{self} needs numbers from 0 on, a length, a count, and room for the least width, 16")
        if not 0 <= self.centred <= self.count or (self.centred and self.count < 2):
            raise InputError(f"{self} needs at least two strings for a median, and at most as many centred as asked")

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
        return (computed + self.centred) * flip_work(self.shape, self.length) / SPEED

    @property
    def memory(self) -> int:
        """What a string and its flips take."""
        return flip_memory(self.shape, self.length)


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
    centred: tuple[int, int, float]  # strings with the median threshold: fewest and most a model, seconds as above
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
        few, many, short = self.centred
        centred = min(max(int(short / whole.cost), few), many, ends[1])
        whole = replace(whole, screened=affordable < count)
        return [
            replace(whole, first=first, count=last - first, centred=0 if first else centred)
            for first, last in itertools.pairwise(ends)
        ]


def spectra(trial: Draw, progress: lab.Progress) -> lab.Outcome:
    """The sensitivities of the strings, how many are answered 1, and sensitivities with the median threshold.

    The median is that of the logits of the trial's strings, midway between two of them.
    """
    from flipscope.flips.engine import open_engine  # as above
    from flipscope.models.transformer import Transformer
    from flipscope.probes.sensitivity import sensitivities

    model, strings = Transformer(trial.shape, scheme=trial.init, seed=trial.seed), trial.strings()
    found = sensitivities(model, strings, heuristic=trial.screened, progress=progress)
    logits = open_engine(model).logits(strings)
    signs = {name: getattr(found, name) for name in ("counts", "path", "precision", "rechecked", "near_ties")}
    guesses = {name: getattr(found.screening, name, 0) for name in ("skipped", "audited", "wrong")}
    outcome = {"config": trial.shape.as_dict(), **signs, **guesses, "ones": int((logits > 0).sum())}
    if trial.centred:
        median = float(np.median(logits[: 2 * (len(logits) // 2)]))
        again = sensitivities(model, strings[: trial.centred], threshold=median)
        outcome |= {"centred_counts": again.counts, "centred_near_ties": again.near_ties}
    return outcome


def joined(pieces: lab.Rows) -> lab.Row:
    """One model, of however many of its pieces are there; constant as far as its strings and all their flips show."""
    pieces.sort(key=lambda piece: int(piece["first"]))
    first, shape = pieces[0], TransformerConfig.from_dict(pieces[0]["config"])
    counts, length = np.concatenate(pieces.column("counts")), first["length"]
    centred = first.get("centred_counts")
    return {
        **{name: first[name] for name in ("init", "data_set", "model", "seed", "length", "path", "screened")},
        **{name: getattr(shape, name) for name in ("layers", "heads", "width")},
        "ffn_multiple": shape.hidden_width // shape.width,
        **_columns(counts, length),
        "constant": not counts.any() and pieces.total("ones") in (0, len(counts)),
        "largest": int(counts.max()),
        **{name: pieces.total(name) for name in ("rechecked", "near_ties", "skipped", "audited", "wrong", "seconds")},
        **({} if centred is None else {f"centred_{key}": value for key, value in _columns(centred, length).items()}),
        "centred_near_ties": first.get("centred_near_ties", 0),
    }


def mixed(rows: lab.Rows) -> lab.Rows:
    """Models of several initialisations in the random order of their seeds: intervals of a mean bet on the order."""
    return lab.Rows(sorted(rows, key=lambda row: int(row["seed"])))


def _columns(counts: NDArray[np.int64], length: int) -> lab.Row:
    found = {"zero_share": float(np.mean(counts == 0)), "near_share": float(np.mean(counts <= NEAR * length))}
    return {**spectrum(counts, length), **found}
