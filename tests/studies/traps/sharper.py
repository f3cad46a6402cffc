"""Traps for the studies of paper 002, and beside them tables on which their claims do come out."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from studies.traps.trap import Trap

from flipscope.cube.fourier_sums import random_sum
from flipscope.lab import Claim, Rows
from flipscope.probes.components import chance, find_components
from flipscope.studies.sharper import (
    bound_comparison,
    cot_parity,
    fourier_testers,
    generalization_gap,
    low_sharpness,
    perturbed_sharpness,
    read_the_weights,
)
from flipscope.studies.sharper.fourier_testers import TAILS, learned_row
from flipscope.studies.sharper.low_sharpness import Flatness, with_ratios
from flipscope.studies.sharper.perturbed_sharpness import SOME, Perturbed, rows_by_noise
from flipscope.studies.sharper.read_the_weights import Readable

STUDIES = (
    bound_comparison.STUDY,
    cot_parity.STUDY,
    fourier_testers.STUDY,
    generalization_gap.STUDY,
    low_sharpness.STUDY,
    perturbed_sharpness.STUDY,
    read_the_weights.STUDY,
)


# ---------------------------------------------------------------- bound-comparison

PRINTED = {"gradient_bound": 15_524, "norm_bound": 1_303.93, "sigma": 2.27e-3}


def _bounds(
    truncated: float = -1 / 3, template: float = -0.5, *, semi: float = 0.24, trained: float = 0.9, **more: Any
) -> Rows:
    """Bounds that fall with these powers of m, and semi-analytic ones at a million samples and at 8,192."""
    found = Rows()
    for length in (10, 20):
        for samples in (8_192, 10**6, 10**8, 10**10):
            about = {"kind": "formulas", "length": length, "samples": samples, "certified": 0.9, "groups": 0.9}
            own = {"truncated": 24.0 * samples**truncated, "template": 3_000.0 * samples**template}
            crossing = {"crossover": 9.0, "crossover_scaled": 8.0, "needed_released": 13.1, "needed_mended": 9.3}
            found.append({**about, **PRINTED, **own, **(crossing if samples == 10**6 else {}), **more})
    for seed, noise in enumerate((-1e-4, -5e-5, 0.0, 5e-5, 1e-4)):
        for samples, value in ((10**6, semi), (8_192, trained)):
            about = {"kind": "measured", "length": 20, "samples": samples, "seed": seed}
            found.append({**about, "semi": value + noise, "semi_same": value + noise})
    return found


BOUND_COMPARISON = [
    Trap("bound-comparison", claim, what, table, expected)  # type: ignore[arg-type]
    for claim, what, table, expected in (
        (
            "the numbers of E.3",
            "L as the released plots have it, a square root of an older one",
            partial(_bounds, norm_bound=math.sqrt(1_303.93)),
            "contradicted",
        ),
        (
            "the semi-analytic bound is 0.327",
            "the truncated bound, 0.239, with a little noise",
            partial(_bounds, semi=0.239),
            "contradicted",
        ),
        (
            "PAC-Bayes is below the covering-number bound",
            "covering numbers give less at these samples already, though above 1.01 is printed",
            partial(_bounds, template=-0.75),
            "contradicted",
        ),
        (
            "the covering-number bound wins in the end",
            "a smaller constant alone: both bounds fall by the same power of m, the template lies below",
            partial(_bounds, template=-1 / 3),
            "contradicted",
        ),
        (
            "the semi-analytic bound says something at 8,192 samples",
            "it does at a million samples, and not at 8,192",
            partial(_bounds, trained=1.19),
            "contradicted",
        ),
        (
            "the analytic bound needs 2e9 samples",
            "one set of constants needs a hundred times as many, the other a hundredth",
            partial(_bounds, needed_released=11.3, needed_mended=7.3),
            "contradicted",
        ),
        ("non-vacuous with a certified Σ", "Σ = 1/2 makes it 3.24", partial(_bounds, certified=3.24), "contradicted"),
        (
            "a σ per parameter says something at 8,192 samples",
            "it says something at a million samples only",
            lambda: Rows({**row, "groups": 1.7 if row["samples"] < 10**6 else 0.1} for row in _bounds()),
            "contradicted",
        ),
    )
]


# ---------------------------------------------------------------- cot-parity


def _models(right: dict[tuple[str, int], tuple[float, ...]], attention: float = 0.9) -> list[dict[str, Any]]:
    """A model for each share of right parities, by way and length."""
    return [
        {"way": way, "length": length, "seed": seed, "right": round(20_000 * each), "asked": 20_000}
        | {"attention": attention + 0.005 * (seed % 3) if way == "steps" else None}
        for (way, length), shares in right.items()
        for seed, each in enumerate(shares)
    ]


def _cot(
    chains: tuple[float, ...] = (1.0,) * 10,
    passes: tuple[float, ...] = (0.5,) * 10,
    *,
    few: int = 3,
    attention: float = 0.9,
    **bounds: Callable[[int], float],
) -> Rows:
    """Chains and passes at T = 20, chains that learn and passes that do at shorter lengths, and bounds by T."""
    right = {(way, length): (1.0,) * few for way in ("steps", "one-pass") for length in (4, 8, 12, 16)}
    models = _models({**right, ("steps", 20): chains, ("one-pass", 20): passes}, attention)
    laws: dict[str, Callable[[int], float]] = {
        "core_pass": lambda n: n**3.0,
        "core_chain": lambda n: 1.0,
        "log_chain": lambda n: math.log(7 + 3 * n) - 100,
        "needed_network": lambda n: 50 + 20.0 * n,
    } | bounds
    lengths = (3, 4, 6, 8, 12, 16, 20, 32, 64)
    computed = [{"bits": n} | {name: law(n) for name, law in laws.items()} for n in lengths]
    written = [{"written": n, "wrong": 0, "wrong_anywhere": 0, "strings": 1 << n} for n in (4, 8)]
    return Rows([*models, *computed, *written])


def _odd_step() -> Rows:
    return Rows({**row, "wrong_anywhere": 1} if row.get("written") == 8 else row for row in _cot())


def _uniform_attention() -> Rows:
    """What a head that pays alike to all tokens pays to those of a step's own place."""
    return Rows(
        {**row, "attention": sum(2 / (row["length"] + step) for step in range(1, row["length"] + 1)) / row["length"]}
        if row.get("way") == "steps"
        else row
        for row in _cot()
    )


GAP = "a chain of thought learns where one pass fails"
CHAIN = "a chain of thought learns at every length"
COT_PARITY = [
    Trap("cot-parity", claim, what, table, expected)  # type: ignore[arg-type]
    for claim, what, table, expected in (
        (GAP, "networks that are not trained: both ways are at chance", partial(_cot, (0.5,) * 10), "contradicted"),
        (GAP, "both ways learn", partial(_cot, passes=(1.0,) * 10), "contradicted"),
        (GAP, "three seeds each way, as it is claimed", partial(_cot, (1.0,) * 3, (0.5,) * 3), "undecided"),
        (GAP, "three seeds each way, the other way round", partial(_cot, (0.5,) * 3, (1.0,) * 3), "undecided"),
        (GAP, "half of the chains are stuck", partial(_cot, (1.0,) * 5 + (0.5,) * 5), "undecided"),
        (
            CHAIN,
            "networks that are not trained",
            lambda: Rows({**row, "right": 10_000} if row.get("way") else row for row in _cot()),
            "contradicted",
        ),
        (CHAIN, "none at the longest length, all at shorter ones", partial(_cot, (0.5,) * 4), "undecided"),
        (
            CHAIN,
            "a single model at each length, and none learned",
            lambda: Rows(_models({("steps", n): (0.5,) for n in (4, 8, 12, 16, 20)})),
            "undecided",
        ),
        ("the network written down is right", "right at the end, and once not on the way", _odd_step, "contradicted"),
        (
            "the exponent of one pass is T/2 times that of the chain",
            "a constant: 40 times at every T, which is more than T/2 up to T = 64",
            partial(_cot, core_pass=lambda n: 40.0),
            "contradicted",
        ),
        (
            "the bound of one pass grows exponentially",
            "a bound that is a power of T",
            partial(_cot, core_pass=lambda n: 5 * math.log(n)),
            "contradicted",
        ),
        (
            "the bound of the chain grows linearly",
            "an intercept: 10^6 + T^2 has an exponent near 0 at these lengths",
            partial(_cot, log_chain=lambda n: math.log(10**6 + n**2)),
            "contradicted",
        ),
        (
            "the exponent of one pass is T times that of the chain",
            "a constant: 80 times at every T",
            partial(_cot, core_pass=lambda n: 80.0),
            "contradicted",
        ),
        (
            "the chain needs no more than linearly many samples",
            "an intercept: 10^5 + T^2",
            partial(_cot, needed_network=lambda n: 10.0**5 + n**2),
            "contradicted",
        ),
        (
            "chains attend as the network written down does",
            "a head that pays alike to every token",
            _uniform_attention,
            "contradicted",
        ),
        (
            "chains attend as the network written down does",
            "chains that did not learn",
            lambda: Rows({**row, "right": 10_000} if row.get("way") else row for row in _cot()),
            "undecided",
        ),
    )
]


# ---------------------------------------------------------------- fourier-testers


def _asked(
    degree: Callable[[int], int | None] = lambda d: d,
    sparsity: Callable[[int], int | None] = lambda s: round(0.8 * s) if s > 10 else s,
    *,
    functions: int = 8,
    fall: int = 1,
    ratio: float = 0.97,
) -> Rows:
    """What a tester finds of functions of each degree and sparsity, and how it falls with a larger tail."""
    found = Rows()
    for true, d, seed in ((s, d, seed) for s in (1, 7, 14, 20) for d in (1, 2, 3, 4, 5) for seed in range(functions)):
        own = sparsity(true)
        row = {"kind": "target", "sparsity": true, "degree": d, "seed": seed, "found_degree": degree(d)}
        falling = [None if own is None else max(1, own - fall * place) for place in range(len(TAILS))]
        wobble = 0.002 * (seed % 3 - 1)
        found.append(
            {**row, "found_sparsity": own, "sparsities": falling, "ratio": None if own is None else ratio + wobble}
        )
    return found


def _written(found: int = 3, exactly: bool = False) -> Rows:
    return Rows({"kind": "written", "degree": 3, "found_degree": found, "exactly": exactly} for _ in range(10))


def _constant_models(sparsities: tuple[int, ...] = (1,)) -> Rows:
    """Models that give the same answer to all strings, of targets of these sparsities; as if they had learned them."""
    found = Rows()
    for sparsity in sparsities:
        for seed in range(30):
            target = [0.25 * (sparsity + 1 - k) / (sparsity + 1) if k <= sparsity else 0.0 for k in range(sparsity + 2)]
            outcome = {"statistics": [0.0] * 4, "outside": [0.0] * 5, "target_outside": target, "learned": True}
            found.append(learned_row({"degree": 3, "sparsity": sparsity, "seed": seed, **outcome}))
    return found


def _true_models() -> Rows:
    outside = [0.25, 0.2, 0.15, 0.1, 0.0]
    outcome = {"statistics": [0.5, 0.4, 0.3, 0.0], "outside": outside, "target_outside": outside, "learned": True}
    return Rows(learned_row({"degree": 3, "sparsity": 3, "seed": seed, **outcome}) for seed in range(30))


def _half_of(table: Rows, **odd: Any) -> Rows:
    return Rows({**row, **odd} if row["seed"] % 2 else row for row in table)


DEGREES = "the degree is found for most functions"
LARGER = "most functions are found no larger than they are"
SHORT = "large sparsities are found too small"
FOURIER_TESTERS = [
    Trap("fourier-testers", claim, what, table, expected)  # type: ignore[arg-type]
    for claim, what, table, expected in (
        (DEGREES, "a tester that says 1 of every function", partial(_asked, lambda d: 1), "contradicted"),
        (DEGREES, "one degree less for half of the functions",
         lambda: Rows({**row, "found_degree": row["degree"] - row["seed"] % 2} for row in _asked()), "undecided"),
        (DEGREES, "one function of each class", partial(_asked, functions=1), "undecided"),
        (LARGER, "a tester that accepts one level too late", partial(_asked, lambda d: d + 1), "contradicted"),
        (LARGER, "a tester that accepts nothing", partial(_asked, lambda d: None, lambda s: None), "contradicted"),
        (SHORT, "a tester that says 1 of every function", partial(_asked, sparsity=lambda s: 1), "undecided"),
        (SHORT, "a tester that finds every sparsity", partial(_asked, sparsity=lambda s: s), "contradicted"),
        (SHORT, "half of the functions are not accepted at all, and would be dropped",
         lambda: _half_of(_asked(), found_sparsity=None), "undecided"),
        ("a larger ε finds less", "the same at every ε", partial(_asked, fall=0), "contradicted"),
        ("a larger ε finds less", "half of the functions are not accepted at all, and would be dropped",
         lambda: _half_of(_asked(), sparsities=[None] * len(TAILS)), "undecided"),
        ("the bound of the class that is found is close", "a class too large: twice the bound",
         partial(_asked, ratio=2.0), "contradicted"),
        ("the bound of the class that is found is close", "half of the functions have no bound, and would be dropped",
         lambda: _half_of(_asked(), ratio=None), "undecided"),
        ("written-down networks need a tolerance", "networks that are exact", partial(_written, exactly=True),
         "contradicted"),
        ("written-down networks need a tolerance", "a tolerance so large that any degree passes", partial(_written, 0),
         "contradicted"),
        ("learned models have their target's degree", "models that are constant", _constant_models, "contradicted"),
        ("learned models have their target's sparsity", "constant models of targets with one parity: 1 is the least "
         "that can be found", _constant_models, "undecided"),
        ("learned models have their target's sparsity", "constant models, most of targets with one parity",
         partial(_constant_models, (1, 1, 1, 5)), "contradicted"),
    )
]  # fmt: skip


# ---------------------------------------------------------------- generalization-gap

CLASSES = [(sparsity, degree) for sparsity in (1, 4, 7, 10) for degree in (1, 2, 3, 4, 5)]


def _gaps(gap: Callable[[int, int], float], *, arm: str = "classes", noise: float = 1e-4, **more: Any) -> Rows:
    """A function of each class and seed with this gap, in one arm of the study."""
    drawn = np.random.default_rng(0).normal(scale=noise, size=(3, 11, 6))
    return Rows(
        {"sparsity": s, "degree": d, "seed": seed, "length": 10, "arm": arm, "learned": True, "batch": 256, "heads": 1}
        | {"gap": gap(s, d) + float(drawn[seed, s, d]), "semi": 0.1 * s * d**3, "subgaussian": 0.05, **more}
        for s, d in CLASSES
        for seed in range(3)
    )


def _growing(s: int, d: int) -> float:
    return 1e-3 * s**2 * d**2


def _survivors() -> Rows:
    """The gap of every function falls with the degree, but high degrees are learned at one sparsity only."""
    return Rows({**row, "learned": row["sparsity"] == 1 or row["degree"] < 3} for row in _gaps(lambda s, d: -0.01 * d))


def _bounded(gap: float, bound: float) -> Rows:
    return Rows({**row, "semi": bound, "gap": gap} for row in _gaps(_growing))


def _shares(arms: tuple[tuple[str, int, int, float], ...], functions: int = 12) -> Rows:
    """Functions of an arm, a batch and some heads, of which this share is learned."""
    return Rows(
        {"sparsity": 1 + seed // 3, "degree": 5, "seed": seed % 3, "arm": arm, "batch": batch, "heads": heads}
        | {"learned": seed < share * functions}
        for arm, batch, heads, share in arms
        for seed in range(functions)
    )


def _batches(small: float, large: float) -> Rows:
    return _shares((("classes", 256, 1, small), ("batch", 512, 1, large)))


def _heads(one: float, several: float) -> Rows:
    return _shares((("heads", 256, 1, one), ("heads", 256, 4, several)))


GAPS = [
    Trap("generalization-gap", claim, what, table, expected)  # type: ignore[arg-type]
    for claim, what, table, expected in (
        ("the gap grows with the degree", "noise", partial(_gaps, lambda s, d: 0.01, noise=0.01), "undecided"),
        ("the gap grows with the degree", "an effect of sparsity alone", partial(_gaps, lambda s, d: 0.01 * s),
         "undecided"),
        ("the gap grows with the degree", "it falls", partial(_gaps, lambda s, d: -0.01 * d), "contradicted"),
        ("the gap grows with the degree", "three curves of fifteen, all of one sparsity, fall", _survivors,
         "undecided"),
        ("super-linear in degree", "a line", partial(_gaps, lambda s, d: 0.01 * d), "undecided"),
        ("super-linear in degree", "it levels off", partial(_gaps, lambda s, d: 0.1 * math.sqrt(d)), "contradicted"),
        ("super-linear in degree", "it bends upwards, and falls", partial(_gaps, lambda s, d: 0.01 * (d - 6) ** 2),
         "contradicted"),
        ("super-linear in sparsity", "a line", partial(_gaps, lambda s, d: 0.01 * s), "undecided"),
        ("super-linear in sparsity", "it levels off", partial(_gaps, lambda s, d: 0.1 * math.sqrt(s)), "contradicted"),
        ("faster at larger sparsity", "a sum of both, which multiplies nothing",
         partial(_gaps, lambda s, d: 0.01 * (s + d)), "undecided"),
        ("faster at larger sparsity", "slower at larger sparsity", partial(_gaps, lambda s, d: 0.1 * d / s),
         "contradicted"),
        ("the bound has the same order", "noise", partial(_gaps, lambda s, d: 0.0, noise=0.01), "undecided"),
        ("the bound has the same order", "the opposite order", partial(_gaps, lambda s, d: -0.01 * s * d**3),
         "contradicted"),
        ("the bound holds", "a bound that a constant keeps, too", partial(_bounded, 0.0, 0.3), "undecided"),
        ("the bound holds", "models that know nothing beyond the training set", partial(_bounded, 0.24, 0.2),
         "contradicted"),
        ("the bound holds", "networks that are not trained have no gap",
         lambda: Rows({**row, "learned": False} for row in _bounded(0.0, 0.2)), "undecided"),
        ("losses are sub-Gaussian with a small constant", "models whose loss is the same on every string",
         lambda: Rows({**row, "subgaussian": 0.0} for row in _gaps(_growing)), "contradicted"),
        ("losses are sub-Gaussian with a small constant", "a constant answer: losses vary by 0.35",
         lambda: Rows({**row, "subgaussian": 0.35} for row in _gaps(_growing)), "contradicted"),
        ("the gap grows with the degree with layer norms, too", "models without layer norms", partial(_gaps, _growing),
         "undecided"),
        ("the gap grows with the degree with layer norms, too", "it falls",
         partial(_gaps, lambda s, d: -0.01 * d, arm="norm"), "contradicted"),
        ("large batches learn less often", "neither learns anything", partial(_batches, 0.0, 0.0), "undecided"),
        ("large batches learn less often", "large batches learn all", partial(_batches, 0.0, 1.0), "contradicted"),
        ("several heads learn what one does not", "both learn all", partial(_heads, 1.0, 1.0), "undecided"),
        ("several heads learn what one does not", "one head learns all", partial(_heads, 1.0, 0.0), "contradicted"),
    )
]  # fmt: skip


# ---------------------------------------------------------------- low-sharpness


def _flat(
    trace: float = 10.0,
    norm: float = 1.0,
    *,
    classes: int = 20,
    functions: int = 3,
    sure: float = 0.1,
    penalty: Callable[[int], float] | None = None,
    **more: Any,
) -> Rows:
    """Learned networks of these traces, estimated to within a part, and norms; those written down have 1000 and 100.

    With a `penalty` there is a second network for each, of which trace and gap are so many times as large.
    """
    found = Rows()
    for number, (sparsity, degree) in enumerate(CLASSES[:classes]):
        for seed in range(functions):
            wide = 1 + 0.05 * math.sin(7 * number + 3 * seed)
            arms = [(0.0, 1.0), *([(1e-4, penalty(number + seed))] if penalty else [])]
            for strength, factor in arms:
                trial = Flatness(sparsity, degree, seed, 10, 512, 64, 1e-3, 100, 0.0, penalty=strength)
                own = trace * wide * factor
                row = {"sparsity": sparsity, "degree": degree, "seed": seed, "length": 10, "learned": True}
                row |= {"trace": own, "trace_low": own - sure * abs(own), "trace_high": own + sure * abs(own)}
                row |= {"norm": norm * wide, "made_trace": 1000.0, "made_norm": 100.0, "gap": 0.01 * wide * factor}
                found.append(with_ratios(trial, {**row, **more}))
    return found


def _coin(place: int) -> float:
    return (0.8, 1.25)[place % 2]


def _few_classes() -> Rows:
    """Two of twenty classes were learned, those of the smallest construction."""
    return Rows({**row, "learned": row["sparsity"] == 1 and row["degree"] < 3} for row in _flat(900.0, 90.0))


LOW_SHARPNESS = [
    Trap("low-sharpness", claim, what, table, expected)  # type: ignore[arg-type]
    for claim, what, table, expected in (
        ("the construction is sharper", "traces a tenth smaller, estimated to within their own size",
         partial(_flat, 900.0, sure=1.0), "undecided"),
        ("the construction is sharper", "what is learned is sharper", partial(_flat, 9_000.0), "contradicted"),
        ("the construction has larger weights", "what is learned has larger ones", partial(_flat, norm=900.0),
         "contradicted"),
        ("the construction has larger weights", "five functions", partial(_flat, classes=5, functions=1), "undecided"),
        *(
            (f"two orders of magnitude in the {column}", what, table, expected)
            for column in ("trace", "norm")
            for what, table, expected in (
                ("four orders", partial(_flat, 0.1, 0.01), "contradicted"),
                ("none", partial(_flat, 1_000.0, 100.0), "contradicted"),
                ("three functions of one class in twenty, as claimed",
                 lambda: Rows({**row, "learned": (row["sparsity"], row["degree"]) == (1, 1)} for row in _flat()),
                 "undecided"),
                ("two classes in twenty, and not as claimed", _few_classes, "undecided"),
            )
        ),
        ("learned networks are dominated", "the norm alone is", partial(_flat, 9_000.0, 1.0), "contradicted"),
        ("learned networks are dominated", "traces estimated to within their own size", partial(_flat, 900.0, sure=1.0),
         "undecided"),
        *(
            (f"a trace in the loss makes the {name} smaller", what, table, expected)
            for name in ("Hessian trace", "gap")
            for what, table, expected in (
                ("now larger, now smaller", partial(_flat, penalty=_coin), "undecided"),
                ("no effect", partial(_flat, penalty=lambda place: 1.0), "undecided"),
                ("larger", partial(_flat, penalty=lambda place: 2 * _coin(place)), "contradicted"),
            )
        ),
    )
]  # fmt: skip


# ---------------------------------------------------------------- perturbed-sharpness


def _noisy(
    change: Callable[[int, float], float], *, noise: str = "std", functions: int = 3, error: float = 0.0
) -> Rows:
    """Networks of degree 2 whose trace changes so by T and sigma, known to within a part of it; and slices."""
    found = Rows()
    for length in (20, 30, 40):
        for sparsity in (1, 7, 14, 20):
            for seed in range(functions):
                trial = Perturbed(length, sparsity, 2, seed, noise, SOME, 10, 4)  # type: ignore[arg-type]
                sigmas = [value if noise == "std" else value**0.5 for value in SOME]
                own = [change(length, sigma) * (1 + 0.01 * seed) for sigma in sigmas]
                outcome = {"base": 100.0, "sigma": sigmas, "change": own, "trace": [100.0 + each for each in own]}
                found += rows_by_noise(trial, {**outcome, "error": [error * each for each in own]})
    return found


def _of(column: str, part: float, noise: str = "std", error: float = 0.0) -> Rows:
    """The change and the trace are this part of a column."""
    return Rows(
        {**row, "change": part * row[column], "trace": part * row[column], "error": error * part * row[column]}
        for row in _noisy(lambda length, sigma: 1.0, noise=noise)
    )


def _half_known() -> Rows:
    """The change grows as T^2; it is known only for the functions in which it does not grow."""

    def one(row: dict[str, Any]) -> dict[str, Any]:
        flat = row["seed"] < 3
        change = row["sigma"] * (1.0 if flat else row["length"] ** 2.0)
        return {**row, "change": change, "error": 0.0 if flat else change}

    return Rows(one(row) for row in _noisy(lambda length, sigma: 1.0, functions=15))


def _slices(degree: int, minima: tuple[int, ...]) -> Rows:
    return Rows({"kind": "slice", "degree": degree, "minima": each} for each in minima)


def _small(length: int, sigma: float) -> float:
    return 1e-3 * sigma


NEVER = (
    "the trace under noise is at most 2 G_u + P",
    "the change is far below its bound",
    "the change is small beside G_u",
)
PERTURBED = [
    Trap("perturbed-sharpness", claim, what, table, expected)  # type: ignore[arg-type]
    for claim, what, table, expected in (
        *((claim, "noise that never reached the networks", partial(_noisy, lambda length, sigma: 0.0), "undecided")
          for claim in NEVER),
        *((claim, "ten functions", lambda: _noisy(_small, functions=1).where(lambda row: row["sparsity"] > 1),
           "undecided") for claim in NEVER),
        (NEVER[0], "above the bound by a tenth", partial(_of, "thm17", 1.1), "contradicted"),
        (NEVER[1], "below the bound, but by a factor of 10 only", partial(_of, "analytic", 0.1), "contradicted"),
        (NEVER[2], "as large as G_u", partial(_of, "gradient", 1.0), "contradicted"),
        (NEVER[2], "below its limit by two standard errors in each of 36 functions",
         partial(_of, "gradient", 0.09, error=0.05), "undecided"),
        ("the change hardly grows with T", "it grows as T does", partial(_noisy, lambda length, sigma: sigma * length),
         "contradicted"),
        ("the change hardly grows with T", "it grows as the bound does", partial(_of, "analytic", 0.1), "contradicted"),
        ("the change hardly grows with T", "known only where it does not grow, in 12 of 60", _half_known,
         "undecided"),
        ("the change is small with the mesh as variances too", "it is small with the mesh as standard deviations",
         partial(_noisy, _small), "undecided"),
        ("the change is small with the mesh as variances too", "as large as G_u",
         partial(_of, "gradient", 1.0, "variance"), "contradicted"),
        ("the loss oscillates along a shift of the MLP's input", "one minimum, as every smooth loss has",
         partial(_slices, 3, (1,) * 12), "contradicted"),
        ("the loss oscillates along a shift of the MLP's input", "degree 1, where nothing has to oscillate",
         partial(_slices, 1, (3,) * 12), "undecided"),
    )
]  # fmt: skip


# ---------------------------------------------------------------- read-the-weights


def _network(
    seed: int, found: tuple[bool, ...], *, turns: int = 3, start: int = 0, loss: float = 0.01
) -> dict[str, Any]:
    outcome = {
        "train_loss": loss,
        "coefficients": [0.8, 0.5, 0.3],
        "learned": [0.8, 0.5, 0.3],
        "rows": [[1] if each else [] for each in found],
        "chance": 0.0174,
        "turns": turns,
        "turns_at_start": start,
    }
    return read_the_weights.STUDY.row(Readable(seed, 20, 3, 3, 8_192, 100), outcome)


def _read(*kinds: tuple[int, tuple[bool, ...]], **more: Any) -> Rows:
    return Rows(_network(seed, found, **more) for count, found in kinds for seed in range(count))


@cache
def _random_matrices() -> Rows:
    """Matrices of random numbers stand for those of networks that learned their functions."""
    found = Rows()
    for seed in range(60):
        sets = random_sum(20, 3, 3, seed=seed).sets
        seen = find_components(np.random.default_rng(seed).normal(size=(20, 20)), sets)
        row = _network(seed, tuple(each.found for each in seen), turns=0)
        found.append({**row, "chance": chance(20, 20, 3)})
    return found


ALL, FIRST, LAST, NO = (True,) * 3, (True, False, False), (False, False, True), (False,) * 3
READ = [
    Trap("read-the-weights", claim, what, table, expected)  # type: ignore[arg-type]
    for claim, what, table, expected in (
        ("most networks have rows for their parities", "matrices of random numbers", _random_matrices, "contradicted"),
        ("most networks have rows for their parities", "every second network", partial(_read, (15, ALL), (15, NO)),
         "undecided"),
        ("most networks have rows for their parities", "networks that did not learn",
         partial(_read, (30, ALL), loss=0.2), "undecided"),
        ("such matches are rare", "all networks have them", partial(_read, (30, ALL)), "contradicted"),
        ("such matches are rare", "networks that did not learn have none", partial(_read, (30, NO), loss=0.2),
         "undecided"),
        ("the MLP oscillates", "it turned as often before the training", partial(_read, (30, ALL), start=3),
         "undecided"),
        ("the MLP oscillates", "one turn, as a single neuron has", partial(_read, (30, ALL), turns=1), "contradicted"),
        ("rows match parities by more than chance", "matrices of random numbers", _random_matrices, "undecided"),
        ("rows match parities by more than chance", "no row ever", partial(_read, (400, NO)), "contradicted"),
        ("the smallest coefficient is the least visible", "now the largest, now the smallest",
         partial(_read, (12, FIRST), (12, LAST)), "undecided"),
        ("the smallest coefficient is the least visible", "the smallest is the most visible",
         partial(_read, (2, FIRST), (20, LAST)), "contradicted"),
        ("the smallest coefficient is the least visible", "all of them are visible", partial(_read, (30, ALL)),
         "undecided"),
    )
]  # fmt: skip

TRAPS: list[Trap] = [*BOUND_COMPARISON, *COT_PARITY, *FOURIER_TESTERS, *GAPS, *LOW_SHARPNESS, *PERTURBED, *READ]


def good(study: str, claim: Claim) -> Rows:
    """A table on which the claim is reproduced."""
    tables: dict[str, Callable[[], Rows]] = {
        "bound-comparison": partial(_bounds, semi=0.327 if "0.327" in claim.name else 0.24),
        "cot-parity": _cot,
        "fourier-testers": _asked,
        "generalization-gap": partial(_gaps, _growing),
        "low-sharpness": partial(_flat, penalty=lambda place: 0.5 * _coin(place)),
        "perturbed-sharpness": partial(_noisy, _small),
        "read-the-weights": partial(_read, (2, LAST), (30, FIRST) if "smallest" in claim.name else (30, ALL)),
    }
    others: dict[str, Callable[[], Rows]] = {
        "written-down networks need a tolerance": _written,
        "learned models have their target's degree": _true_models,
        "learned models have their target's sparsity": _true_models,
        "the bound has the same order": partial(_gaps, lambda s, d: 0.01 * s * d**3),
        "the bound holds": partial(_bounded, 0.01, 0.2),
        "the gap grows with the degree with layer norms, too": partial(_gaps, _growing, arm="norm"),
        "large batches learn less often": partial(_batches, 1.0, 0.0),
        "several heads learn what one does not": partial(_heads, 0.0, 1.0),
        "the change is small with the mesh as variances too": partial(_noisy, _small, noise="variance"),
        "the loss oscillates along a shift of the MLP's input": partial(_slices, 3, (3,) * 12),
        "such matches are rare": partial(_read, (30, NO)),
    }
    return others.get(claim.name, tables[study])()
