"""Traps for the studies of paper 003, and beside them tables on which their claims do come out."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from studies.traps.trap import Trap

from flipscope.lab import Claim, Result, Rows
from flipscope.studies.sparse_variables import capacity, sparse_and, sparse_constructions, sparse_parity
from flipscope.studies.sparse_variables.capacity import MAPPINGS, RESULTS, Formula, Limit
from flipscope.studies.sparse_variables.sparse_and import Chain
from flipscope.studies.sparse_variables.sparse_constructions import Built
from flipscope.studies.sparse_variables.sparse_parity import Online

STUDIES = (capacity.STUDY, sparse_and.STUDY, sparse_constructions.STUDY, sparse_parity.STUDY)
Tables = dict[str, Callable[[], Rows]]


def _ignore(done: int, total: int) -> None:
    pass


# ---------------------------------------------------------------- sparse-and


@cache
def staircases(law: Callable[[int], float], chains: int = 8, seed: int = 0, fits: bool = True) -> Rows:
    """Trainings that succeed by a logistic law around the critical number of strings."""
    stream, rows = np.random.default_rng(seed), []
    for length in (50, 200, 800):
        for chain in range(chains):
            trial, rung = Chain(length, round(law(length)), chain, 12, 1_000), 0
            for _ in range(12):
                samples = trial.samples(rung)
                won = bool(stream.random() < 1 / (1 + math.exp(-10 * math.log(samples / law(length)))))
                told = {"samples": samples, "success": won, "taken": 300 if won else 1_000, "train_loss": 1e-5}
                rows.append({"kind": "training", **trial.content(), **told, "fits": fits})
                rung += -1 if won else 1
    return Rows(rows)


def logarithm(length: int) -> float:
    """What the theory says."""
    return 49 + 52 * math.log(length / 50)


def intercept(length: int) -> float:
    """Linear growth, of which a part does not depend on the length."""
    return 38 + 0.3 * length


def proportional(length: int) -> float:
    """Strings in proportion to the bits."""
    return 47 * length / 50


def square_root(length: int) -> float:
    """A power that is far from a logarithm."""
    return 49 * (length / 50) ** 0.5


_AND = (
    ("the critical number of strings per bit falls", "exactly proportional to T", proportional, "undecided"),
    ("its growth slows down", "an intercept and linear growth, 38 + 0.3 T", intercept, "undecided"),
    (
        "its growth slows down",
        "each bit costs more than the last, T^1.5",
        lambda n: 49 * (n / 50) ** 1.5,
        "contradicted",
    ),
    ("log T fits better than linear growth", "38 + 0.3 T", intercept, "contradicted"),
    ("log T fits better than linear growth", "no growth at all: both laws are constants", lambda n: 90.0, "undecided"),
    ("log T fits better than a power of T", "the square root of T", square_root, "contradicted"),
)
AND = [
    *(Trap("sparse-and", claim, what, partial(staircases, law), said) for claim, what, law, said in _AND),
    Trap(
        "sparse-and",
        "every training fits its strings",
        "none fits, though all generalise",
        partial(staircases, logarithm, fits=False),
        "contradicted",
    ),
]

# ---------------------------------------------------------------- sparse-parity


def training(length: int, seed: int, at: int | None, ramp: int = 10, steps: int = 3_000) -> dict[str, Any]:
    """A training that is at chance, and goes up to 1 within so many steps from `at` on."""
    step = np.arange(10, steps + 1, 10)
    accuracy = np.full(len(step), 0.5) if at is None else np.clip(0.5 + 0.5 * (step - at) / ramp, 0.5, 1)
    last = len(step) if at is None else int(np.argmax(accuracy > 0.99)) + 1
    return sparse_parity.STUDY.row(Online(length, seed, steps), {"step": step[:last], "accuracy": accuracy[:last]})


def gradual() -> Rows:
    """Accuracy that rises in a straight line from the first step on."""
    return Rows(training(10, seed, 10, 1_500 + 50 * seed) for seed in range(8))


def same_times() -> Rows:
    """The same steps at every length."""
    return Rows(training(length, s, at) for length in (10, 15, 20) for s, at in enumerate((300, 500, 800, 1_200, None)))


def longer_sooner() -> Rows:
    """Longer strings are learned first."""
    return Rows(training(n, s, at + 50 * s) for n, at in ((10, 1_500), (15, 900), (20, 300)) for s in range(6))


def longer_later() -> Rows:
    """As in the paper."""
    return Rows(training(n, s, at + 50 * s) for n, at in ((10, 300), (15, 900), (20, 1_500)) for s in range(6))


def long_strings(learned: int, steps: int) -> Rows:
    """Strings of 60 bits, of which some parities are learned."""
    return Rows(training(60, s, 500 if s < learned else None, steps=steps) for s in range(10))


_LONG = "no parity is learned above T = 50"
PARITY = [
    Trap("sparse-parity", "parity is learned abruptly", "accuracy rises in a straight line", gradual, "contradicted"),
    Trap("sparse-parity", "longer strings take more steps", "the same steps at every length", same_times, "undecided"),
    Trap("sparse-parity", "longer strings take more steps", "longer strings first", longer_sooner, "contradicted"),
    Trap("sparse-parity", _LONG, "one of ten is learned", partial(long_strings, 1, 10_000), "contradicted"),
    Trap("sparse-parity", _LONG, "none is, in too few steps", partial(long_strings, 0, 3_000), "undecided"),
]

# ---------------------------------------------------------------- sparse-constructions

_OURS = {
    "heads approximate their target uniformly": "error",
    "exact after the MLP": "answer_error",
    "every norm is within its bound": "worst_ratio",
    "the certificate is what all strings say": "difference",
}
_SLIPS = "printed forms fail where they are wrong, and only there"


@cache
def constructions(printed: bool) -> Rows:
    """Some forty constructions, with our formulas or the paper's."""
    trials = [
        Built("deterministic", symmetric, single, sparsity, 10, basis, printed, seed)  # type: ignore[arg-type]
        for symmetric in (True, False)
        for single in (True, False)
        for sparsity in (2, 3, 4, 5)
        for basis in ("orthonormal", "tilted")
        for seed in (0, 1)
    ]
    results = [Result(trial, trial.measure(_ignore), 0.0) for trial in trials]
    return sparse_constructions.STUDY.summarise(results)


def one_worse(column: str) -> Rows:
    """Good constructions, and one of which the certificate, the answers, a norm or the enumeration is off."""
    rows = constructions(False)
    broken = {"error": 1.01 * rows[0]["limit"], "answer_error": 1e-6, "worst_ratio": 1.01, "difference": 1e-6}
    return Rows([{**rows[0], column: broken[column]}, *rows[1:]])


def as_if_printed() -> Rows:
    """Our own constructions under the name of the paper's."""
    return Rows({**row, "printed": True} for row in constructions(False))


CONSTRUCTIONS = [
    *(
        Trap("sparse-constructions", claim, "one of many is off by a hair", partial(one_worse, column), "contradicted")
        for claim, column in _OURS.items()
    ),
    Trap("sparse-constructions", _SLIPS, "formulas without a slip", as_if_printed, "contradicted"),
]

# ---------------------------------------------------------------- capacity


def by_length(size: Callable[[float], float]) -> Rows:
    """ln N of each result at norms of 1, by the length."""
    places = [2**power for power in range(4, 18)]
    own = {"kind": "formula", "layers": 1}
    return Rows({**own, "result": each, "length": n, "log_size": math.log(size(n))} for each in RESULTS for n in places)


def made(size: Callable[[float], float]) -> Rows:
    """ln N of constructions, by the length."""
    return Rows(
        {"kind": "constructed", "mapping": mapping, "length": n, "relevant": bits}
        | {name: math.log(bits * size(n)) for name in ("log_sums", "log_rows")}
        for mapping in MAPPINGS
        for n in (16, 256, 4096, 65536)
        for bits in (2, 3, 4)
    )


def deep(order: Callable[[float], float]) -> Rows:
    """The order of Thm A.17, by the depth."""
    own = {"kind": "formula", "result": "Thm A.17", "length": 16}
    return Rows({**own, "layers": layers, "log_order": order(layers)} for layers in range(1, 7))


def in_the_limit(power: float | None) -> Rows:
    """The power of ln T at lengths beyond all bounds; None: as it is."""
    own = [{"mapping": each, **Limit(each, bits).measure(_ignore)} for each in MAPPINGS for bits in (2, 3, 4)]
    return Rows({"kind": "limit", **row, **({} if power is None else {"power": power})} for row in own)


def changes(broken: int, pairs: int = 4_000) -> Rows:
    """Pairs of networks, of which some change more than is allowed."""
    worst = {"worst": 0.9, "worst_printed": 2.0}
    return Rows([{"kind": "perturbed", "pairs": pairs, "broken": broken, "broken_printed": broken, **worst}])


def models(**odd: Any) -> Rows:
    """Trained networks, of which the bound says something."""
    usual = {"kind": "trained", "length": 50, "samples": 100, "width": 32, "layers": 1, "log10_needed": 16.0}
    return Rows({**usual, "seed": seed, "gap": 0.4, "bound": 0.9, "range": 2.0, **odd} for seed in range(30))


def gaps(power: float) -> Rows:
    """Gaps that grow like a power of the length."""
    return Rows(
        {**row, "length": n, "gap": 0.1 * n ** (power + 0.02 * row["seed"] / 30)}
        for n in (20, 50, 100, 200)
        for row in models()
    )


_FIXED, _MADE, _CUBE = "log T at fixed norms", "log T for the constructions", "ln^3 T for the constructions"
_ROWS, _DEPTH = "Lem 4.5 as printed keeps that polylogarithmic", "norms of at most 1 avoid exponential depth"
_BEFORE, _AFTER = "errors pass the layers before, as printed", "errors pass the layers after"
_GAP, _SAYS = "no gap above its bound", "the bound says something of trained networks"
_HARDLY = "the measured gap hardly grows with T"
CAPACITY = [
    Trap("capacity", _FIXED, "a small power, T^0.14", partial(by_length, lambda n: n**0.14), "contradicted"),
    Trap("capacity", _MADE, "ln^3 T", partial(made, lambda n: math.log(n) ** 3), "contradicted"),
    Trap("capacity", _CUBE, "with its constants ln N grows like T", partial(in_the_limit, None), "contradicted"),
    Trap("capacity", _ROWS, "T^2 ln T", partial(made, lambda n: n**2 * math.log(n)), "contradicted"),
    Trap("capacity", _DEPTH, "a slow exponential, 1.6^L", partial(deep, lambda n: n * math.log(1.6)), "contradicted"),
    *(
        Trap("capacity", claim, "one pair of 4,000 exceeds it", partial(changes, 1), "contradicted")
        for claim in (_BEFORE, _AFTER)
    ),
    Trap("capacity", _GAP, "gaps above half the bounds", partial(models, gap=1.0), "contradicted"),
    Trap("capacity", _GAP, "bounds that exceed the range of the loss", partial(models, bound=90.0), "undecided"),
    Trap("capacity", _SAYS, "bounds that exceed the range of the loss", partial(models, bound=90.0), "contradicted"),
    Trap("capacity", _HARDLY, "gaps in proportion to T", partial(gaps, 1.0), "contradicted"),
]

TRAPS = [*AND, *PARITY, *CONSTRUCTIONS, *CAPACITY]


def own_formulas() -> Rows:
    """What the formulas give at norms of 1."""
    trials = [Formula(result, 2**power) for result in RESULTS for power in range(4, 18)]
    return Rows({"kind": "formula", **trial.content(), **trial.measure(_ignore)} for trial in trials)


_GOOD: Tables = {
    **dict.fromkeys((claim.name for claim in sparse_and.STUDY.claims), partial(staircases, logarithm, 16)),
    "parity is learned abruptly": longer_later,
    "longer strings take more steps": longer_later,
    _LONG: partial(long_strings, 0, 10_000),
    **dict.fromkeys(_OURS, partial(constructions, False)),
    _SLIPS: partial(constructions, True),
    _FIXED: own_formulas,
    _MADE: partial(made, lambda n: math.log(n) ** 0.9),
    _CUBE: partial(in_the_limit, 3.0),
    _ROWS: partial(made, lambda n: math.log(n) ** 0.9),
    _DEPTH: partial(deep, lambda n: 3 * math.log(n)),
    _BEFORE: partial(changes, 0),
    _AFTER: partial(changes, 0),
    _GAP: models,
    _SAYS: models,
    _HARDLY: partial(gaps, 0.1),
}


def good(study: str, claim: Claim) -> Rows:
    """A table on which the claim is reproduced."""
    return _GOOD[claim.name]()
