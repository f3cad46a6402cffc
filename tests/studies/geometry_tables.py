"""Tables of the geometry studies as runs would give them, from laws that are known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flipscope.basics.seeds import seed_of
from flipscope.bounds.geometry import blowup_bound
from flipscope.cube.few_bits import all_tables
from flipscope.lab import Result, Row, Rows
from flipscope.studies.geometry import (
    blowup_tail,
    influence_decay,
    length_limits,
    length_trained,
    low_variance,
    prior_volume,
    random_functions,
    zero_strings,
)
from flipscope.studies.geometry.length_limits import LONGER, Limit
from flipscope.studies.geometry.length_trained import Anew
from flipscope.studies.geometry.majority_volume import Region
from flipscope.studies.geometry.prior_volume import Volume
from flipscope.studies.geometry.random_models import INITS, columns
from flipscope.studies.geometry.recognised_lengths import LANGUAGES

NUMBERS = itertools.count()


# ---------------------------------------------------------------- random models: random-init, median-threshold


def random_model(init: str, counts: Sequence[int], **fields: Any) -> Row:
    """A row as `summarise` makes it, of a model with these sensitivities at N = 100."""
    found = np.array(counts)
    row = {
        **{"init": init, "length": 100, "screened": False, "layers": 2, "width": 32, "ffn_multiple": 4},
        **columns(found, 100),
        "constant": not found.any(),
        "seed": seed_of(next(NUMBERS)),
        **dict.fromkeys(("rechecked", "near_ties", "skipped", "audited", "wrong"), 0),
    }
    return row | fields


def random_models(models: int, counts: Sequence[int], **fields: Any) -> Rows:
    """So many of each initialisation."""
    return Rows(random_model(init, counts, **fields) for init in INITS for _ in range(models))


# ---------------------------------------------------------------- zero-strings, random-functions


def network(seed: int, length: int, share: float, shape: int = 0, rest: float = 1.0, asked: int = 1000) -> Result:
    """A model with this share of strings of sensitivity 0, the others at a part of N, as if it had been measured."""
    trial = zero_strings.Network(*zero_strings.SHAPES[shape], seed, length, asked)
    zeros = round(share * trial.asked)
    profile = np.zeros(length + 1, int)
    profile[0] = zeros
    profile[round(rest * length)] += trial.asked - zeros
    return Result(trial, {"profile": profile.tolist(), "constant": zeros == trial.asked, "near_ties": 0}, 0.0)


def networks(
    models: int,
    share: Callable[[int], float],
    shapes: int = len(zero_strings.SHAPES),
    lengths: tuple[int, ...] = (6, 8, 12, 16, 24, 40, 100),
    rest: float = 1.0,
) -> Rows:
    """Models whose share of such strings is a function of the length."""
    numbers = [(shape, seed, length) for shape in range(shapes) for seed in range(models) for length in lengths]
    found = [network(seed, length, share(length), shape, rest) for shape, seed, length in numbers]
    return zero_strings.STUDY.summarise(found)


def zeros_of_functions(law: Sequence[float], of: int, bits: int = 16) -> Rows:
    """So many functions, whose numbers of strings of sensitivity 0 have this law as nearly as whole numbers can."""
    ends = np.rint(np.cumsum(law) / np.sum(law) * of).astype(int)
    zeros = np.repeat(np.arange(len(law)), np.diff(ends, prepend=0))
    return random_functions.STUDY.summarise([Result(random_functions.Functions(bits, 0, of), {"zeros": zeros}, 0.0)])


# ---------------------------------------------------------------- influence-decay, blowup-tail, low-variance


def influences(slope: float, noise: float = 0.01, models: int = 12, eps: float = 1.0, **other: Any) -> Rows:
    """Models whose influences are about N^slope."""
    stream, rows = np.random.default_rng(0), Rows()
    for seed in range(models):
        own = slope + noise * stream.normal()
        for length in (16, 32, 64):
            sizes = {"mean": length**own, "largest": 2 * length**own, "bound": 3.0, "diameter": 5.0, "beta": 1.5}
            limit = blowup_bound(influence_decay.LAYERS, eps) if eps else None
            trial = influence_decay.Decay(eps, 1.0, length, seed, 2)
            rows.append({**trial.content(), **sizes, "beta_bound": limit, **other})
    return rows


def blowups(width: int, exponent: float, models: int = 10_000, layers: int = 1, factor: float = 1.0) -> Rows:
    """Blowups with a tail of this exponent."""
    largest = factor * (np.random.default_rng(width).pareto(exponent, models) + 1)
    trial = blowup_tail.Tail(width, layers, 0, models)
    return blowup_tail.STUDY.summarise([Result(trial, {"largest": largest}, 0.0)])


def variance(width: int, ratio: float, over: float, bound: str = "printed", law: low_variance.Law = "cube") -> Row:
    """A million vectors, of which so many times as many hit as a bound allows."""
    trial = low_variance.Variance(width, ratio, 1.0, "zero", law, 0, 10**6)
    allowed = low_variance.STUDY.row(trial, {"hits": 0})[bound]
    return low_variance.STUDY.row(trial, {"hits": round(over * 10**6 * allowed)})


def variances(over: float, bound: str = "printed", law: low_variance.Law = "cube") -> Rows:
    """Ten settings of width 3 at which so many times as many hit as a bound allows."""
    return Rows(variance(3, 0.3 + 0.01 * number, over, bound, law) for number in range(10))


# ---------------------------------------------------------------- prior-volume, function-count


def sample(length: int, symbols: int, draws: int, tables: np.ndarray, counts: np.ndarray) -> Result:
    """What a drawing of the symbols gives whose recognisers compute these functions so often."""
    found = {"tables": tables, "counts": counts, "recognised": counts // 2, "near_ties": 0, "asked_again": 0}
    return Result(Volume(length, 0.0, symbols, draws), found, 0.0)


def prior(
    weights: Callable[[int], np.ndarray], lengths: Sequence[int] = (3,), draws: int = 100_000, symbols: int = 10
) -> Rows:
    """Samples whose functions have these probabilities, up to a factor, at each length up to 4."""
    stream, results = np.random.default_rng(0), []
    for length, number in itertools.product(lengths, range(symbols)):
        chances = weights(length)
        counts = stream.multinomial(draws, chances / chances.sum())
        met = counts > 0
        results.append(sample(length, number, draws, all_tables(length)[met], counts[met]))
    return prior_volume.STUDY.summarise(results)


def blind_prior(lengths: Sequence[int] = (3, 4, 5), draws: int = 20_000, symbols: int = 10) -> Rows:
    """Samples of labels that are drawn one by one with a random bias, blind to which strings are neighbours."""
    stream, results = np.random.default_rng(1), []
    for length, number in itertools.product(lengths, range(symbols)):
        labels = stream.random((draws, 1 << length)) < stream.random((draws, 1))
        words = (labels.astype(np.uint64) << np.arange(1 << length, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)
        results.append(sample(length, number, draws, *np.unique(words, return_counts=True)))
    return prior_volume.STUDY.summarise(results)


def recognised(slopes: dict[float, float], symbols: int = 10, noise: float = 0.02) -> Rows:
    """What is recognised at each eps, its logarithm in a straight line against N but for some noise."""
    stream = np.random.default_rng(0)
    return Rows(
        {"length": n, "eps": eps, "symbols": s, "rarefied": y, "more": y, "share_more": y / 10**5}
        for s in range(symbols)
        for n in range(2, 7)
        for eps, slope in slopes.items()
        for y in [1000 * math.exp(slope * n + noise * stream.normal())]
    )


# ---------------------------------------------------------------- majority-volume, length-limits, length-trained


def half_radii(
    radius: Callable[[str, int], float], lengths: tuple[int, ...] = (4, 6, 8), seeds: int = 5, noise: float = 0.02
) -> Rows:
    """Models whose half radius is a function of language and length, but for some noise."""
    stream = np.random.default_rng(0)
    return Rows(
        {
            **Region(language, length, seed, 60, 8000).content(),  # type: ignore[arg-type]
            "half_radius": radius(language, length) * math.exp(noise * stream.normal()),
        }
        for language in ("majority", "first", "parity")
        for length in lengths
        for seed in range(seeds)
    )


def longer_strings(
    shares: Callable[[Limit, float], float], seeds: int = 3, lengths: tuple[int, ...] = (20, 40)
) -> Rows:
    """What a run gives if a model of a trial has such a share right at so many times its length."""
    rows = Rows()
    for setting in itertools.product(LANGUAGES, (0.0, 1e-3, 1.0), lengths, range(seeds)):
        trial = Limit(*setting, 16, 500)
        correct = [round(500 * shares(trial, factor)) for factor in LONGER]
        tested = [round(trial.length * factor) for factor in LONGER]
        counts = {"correct": correct, "wrong": [500 - each for each in correct], "undefined": [0] * len(LONGER)}
        bound = 9.0 if trial.eps else None
        outcome = {"tested": tested, **counts, "epochs_used": 3, "log10_bound": bound}
        rows.append(length_limits.STUDY.row(trial, outcome))
    return rows


def lasting(last: Callable[[Limit], float], **options: Any) -> Rows:
    """Models that are right up to so many times their length, and at chance beyond."""
    return longer_strings(lambda trial, factor: 1.0 if factor <= last(trial) else 0.5, **options)


def trained_anew(correct: Callable[[Anew], int], seeds: int = 4, eps: tuple[float, ...] = (0.0, 1e-3, 1.0)) -> Rows:
    """What a run gives if a model of a trial has so many of 500 strings right."""
    trials = [Anew(*setting, 16, 500) for setting in itertools.product(LANGUAGES, eps, (20, 40), range(seeds))]
    counts = [{"correct": correct(trial), "wrong": 500 - correct(trial), "undefined": 0} for trial in trials]
    found = zip(trials, counts, strict=True)
    return Rows(length_trained.STUDY.row(trial, {**each, "epochs_used": 3}) for trial, each in found)
