"""Traps for the claims of the geometry studies (paper 000), and tables that do reproduce them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial

import numpy as np
from studies import geometry_tables as made
from studies import trained
from studies.traps.trap import Trap

from flipscope.cube.few_bits import all_tables, measures
from flipscope.lab import Claim, registry
from flipscope.lab.rows import Rows
from flipscope.lab.verdict import Verdict
from flipscope.studies.geometry.length_limits import Limit
from flipscope.studies.geometry.prior_volume import fewer_ones
from flipscope.studies.geometry.random_functions import POISSON

NAMES = (
    *("random-init", "median-threshold", "trained-profiles", "sparse-profiles", "random-languages", "influence-decay"),
    *("low-variance", "blowup-tail", "zero-strings", "random-functions", "majority-volume", "prior-volume"),
    *("function-count", "length-limits", "length-trained"),
)
STUDIES = tuple(map(registry.find, NAMES))
Table = Callable[[], Rows]
TRAPS: list[Trap] = []
_GOOD: dict[tuple[str, str], Table] = {}  # by study and claim


def good(study: str, claim: Claim) -> Rows:
    """A table on which the claim is reproduced."""
    return _GOOD[study, claim.name]()


def _claim(study: str, name: str, good: Table, *traps: tuple[str, Table, Verdict]) -> None:
    """A claim, a table that reproduces it, and its traps: what each is, its table, and what is to be said to it."""
    _GOOD[study, name] = good
    TRAPS.extend(Trap(study, name, *trap) for trap in traps)


def _with(table: Table, **columns: object) -> Rows:
    return Rows({**row, **columns} for row in table())


# ---------------------------------------------------------------- random-init

NO_FLIP, EVERY_SECOND = [0] * 100, [50] * 100  # sensitivities of a constant, and of a random function, at N = 100
_claim(
    "random-init",
    "most strings are insensitive",
    partial(made.random_models, 80, NO_FLIP),
    ("random functions", partial(made.random_models, 80, EVERY_SECOND), "contradicted"),
    ("three constants of each initialisation", partial(made.random_models, 3, NO_FLIP), "undecided"),
    (
        "strings that a screen guessed to be insensitive, wrongly in the audit",
        partial(made.random_models, 80, NO_FLIP, screened=True, skipped=10_000, audited=100, wrong=2),
        "undecided",
    ),
)
_claim(
    "random-init",
    "average sensitivities cluster at 0",
    partial(made.random_models, 80, NO_FLIP),
    (
        "a quarter of the models at 9 of 100: no cluster, though nothing is in the tail",
        lambda: Rows([*made.random_models(60, NO_FLIP), *made.random_models(20, [9] * 100)]),
        "contradicted",
    ),
)
_claim(
    "random-init",
    "random transformers are far below a random function",
    partial(made.random_models, 80, NO_FLIP),
    ("random functions", partial(made.random_models, 80, EVERY_SECOND), "contradicted"),
)
_claim(
    "random-init",
    "every depth, width and FFN is insensitive",
    partial(made.random_models, 80, NO_FLIP),
    (
        "insensitive but for one width",
        lambda: Rows([*made.random_models(60, NO_FLIP), *made.random_models(20, EVERY_SECOND, width=64)]),
        "contradicted",
    ),
)
_claim(
    "random-init",
    "models that are not constant are far below a random function",
    partial(made.random_models, 20, [5] * 100),
    ("constants", partial(made.random_models, 80, NO_FLIP), "undecided"),
    (
        "constants beside random functions",
        lambda: Rows([*made.random_models(60, NO_FLIP), *made.random_models(8, EVERY_SECOND)]),
        "contradicted",
    ),
)

# ---------------------------------------------------------------- median-threshold

_claim(
    "median-threshold",
    "around the median: far below a random function",
    partial(made.random_models, 60, [8] * 100),
    ("random functions", partial(made.random_models, 60, EVERY_SECOND), "contradicted"),
)
_claim(
    "median-threshold",
    "around the median: most strings are insensitive",
    partial(made.random_models, 80, NO_FLIP),
    (
        "every string at 8 of 100, far below a random function",
        partial(made.random_models, 60, [8] * 100),
        "contradicted",
    ),
    ("four models of each initialisation", partial(made.random_models, 4, NO_FLIP), "undecided"),
)

# ---------------------------------------------------------------- trained-profiles, sparse-profiles, random-languages

FLAT = {0: 1.0}  # every string at sensitivity 0: the spectrum of a constant
MAJORITY = {0: 0.84, 45: 0.08, 60: 0.08}


def _models(language: str, accuracy: float, spectrum: dict[int, float], relevant: int = 0, count: int = 8) -> Rows:
    return Rows(trained.row(language, accuracy, spectrum, relevant, seed) for seed in range(count))


def _untrained() -> Rows:
    """What networks are that were never trained: at chance, and constant."""
    languages = ("first", "majority", "parity", "sparse_majority", "sparse_parity")
    return Rows(row for language in languages for row in _models(language, 0.5, FLAT))


def _learned(parity: dict[int, float], accuracy: float = 0.5) -> Rows:
    """First and Majority are learned, and models of Parity are like this."""
    return Rows(
        [*_models("first", 1.0, {1: 1.0}), *_models("majority", 1.0, MAJORITY), *_models("parity", accuracy, parity)]
    )


def _sparse(parity: dict[int, float], accuracy: float = 1.0, majority: dict[int, float] | None = None) -> Rows:
    """Sparse majorities of 20 bits are learned, with their own spectrum unless another is given."""
    own = majority or {0: 0.66, 8: 0.17, 12: 0.17}
    models = trained.models("sparse_parity", parity, 20, 8)
    return Rows([*_models("sparse_majority", accuracy, own, 20), *models])


for language, name, spectrum in (("first", "First", {1: 1.0}), ("majority", "Majority", MAJORITY)):
    _claim(
        "trained-profiles",
        f"{name} is learned",
        partial(_models, language, 1.0, spectrum),
        ("untrained networks", _untrained, "contradicted"),
        ("three models that all learn it", partial(_models, language, 1.0, spectrum, count=3), "undecided"),
    )
_claim(
    "trained-profiles",
    "First: spectrum at 1",
    partial(_models, "first", 1.0, {1: 1.0}),
    ("constants", partial(_models, "first", 1.0, FLAT), "contradicted"),
    ("untrained networks", _untrained, "undecided"),
)
_claim(
    "trained-profiles",
    "Majority: spectrum at 0 and N/2",
    partial(_models, "majority", 1.0, MAJORITY),
    ("constants, of which 0.84 of the strings are right", partial(_models, "majority", 1.0, FLAT), "contradicted"),
    ("untrained networks", _untrained, "undecided"),
)
_claim(
    "trained-profiles",
    "every model learns First or Majority",
    partial(_learned, {50: 1.0}),
    (
        "one stuck training among 17",
        lambda: Rows([*_learned({50: 1.0}), trained.row("majority", 0.8, MAJORITY, seed=9)]),
        "contradicted",
    ),
    ("models of First alone", partial(_models, "first", 1.0, {1: 1.0}), "undecided"),
)
_claim(
    "trained-profiles",
    "Parity is not learned",
    partial(_learned, {50: 1.0}),
    ("untrained networks, which are at chance on anything", _untrained, "undecided"),
    ("models that learn it", partial(_learned, {100: 1.0}, 1.0), "contradicted"),
)
_claim(
    "trained-profiles",
    "Parity: a wrong profile",
    partial(_learned, {50: 1.0}),
    ("untrained networks, whose profile is not Parity's either", _untrained, "undecided"),
    ("models with Parity's own profile", partial(_learned, {100: 1.0}, 1.0), "contradicted"),
)
_claim(
    "trained-profiles",
    "Parity: strings of higher sensitivity",
    lambda: Rows(
        [
            *_models("first", 1.0, {1: 1.0}),
            *_models("majority", 1.0, MAJORITY),
            *trained.models("parity", {70: 0.9, 80: 0.1}),
        ]
    ),
    ("untrained networks", _untrained, "undecided"),
    ("models of Parity that are constant", partial(_learned, FLAT), "contradicted"),
)
_claim(
    "sparse-profiles",
    "sparse majorities are learned",
    partial(_sparse, {14: 1.0}),
    ("untrained networks", _untrained, "contradicted"),
    (
        "three models that all learn it",
        partial(_models, "sparse_majority", 1.0, {0: 0.66, 10: 0.34}, 20, 3),
        "undecided",
    ),
)
_claim(
    "sparse-profiles",
    "sparse majorities mirror Majority",
    partial(_sparse, {14: 1.0}),
    ("constants", partial(_sparse, {14: 1.0}, majority=FLAT), "contradicted"),
    ("untrained networks", _untrained, "undecided"),
)
_claim(
    "sparse-profiles",
    "sparse parities mirror Parity",
    partial(_sparse, {14: 0.9, 30: 0.1}),
    ("untrained networks", _untrained, "undecided"),
    ("no model of a sparse majority learns it either", partial(_sparse, {14: 0.9, 30: 0.1}, 0.5), "undecided"),
    ("models with the parity's own profile", partial(_sparse, {20: 1.0}), "contradicted"),
)
_claim(
    "random-languages",
    "random languages that are not learned: sensitivities at 0",
    partial(_models, "random", 0.6, FLAT, count=60),
    (
        "models that fail with the sensitivity of random functions",
        partial(_models, "random", 0.6, {20: 1.0}),
        "contradicted",
    ),
    ("models that learn", partial(_models, "random", 1.0, FLAT, count=60), "undecided"),
)
_claim(
    "random-languages",
    "random languages that are learned: the bias persists",
    partial(_models, "random", 1.0, {4: 1.0}, count=60),
    ("random functions", partial(_models, "random", 1.0, {20: 1.0}, count=60), "contradicted"),
    ("models that fail, which are insensitive untrained", partial(_models, "random", 0.6, FLAT, count=60), "undecided"),
)

# ---------------------------------------------------------------- influence-decay, blowup-tail, low-variance

for column in ("mean", "largest"):
    _claim(
        "influence-decay",
        f"{column} influence falls like 1/N",
        partial(made.influences, -1.0),
        ("a fall like N^-0.5, which says nothing of longer strings", partial(made.influences, -0.5), "undecided"),
        ("the right fall, but at eps = 0", partial(made.influences, -1.0, eps=0.0), "undecided"),
    )
    _claim(
        "influence-decay",
        f"{column} influence falls like 1/N at eps = 0 too",
        partial(made.influences, -1.0, eps=0.0),
        ("a fall like N^-0.5", partial(made.influences, -0.5, eps=0.0), "contradicted"),
        ("the right fall, but at eps > 0", partial(made.influences, -1.0), "undecided"),
    )
_claim(
    "influence-decay",
    "influence stays below the explicit constant over N",
    partial(made.influences, -1.0),
    ("influences above the bound", partial(made.influences, -1.0, bound=1e-9), "contradicted"),
    ("bounds beyond what is possible, which nothing can break", partial(made.influences, -1.0, bound=9.0), "undecided"),
)
_claim(
    "influence-decay",
    "blowup stays below its bound",
    partial(made.influences, -1.0),
    ("blowups just above (1 + 1)^2", partial(made.influences, -1.0, beta=4.1), "contradicted"),
    ("eps = 0, where there is no bound", partial(made.influences, -1.0, eps=0.0), "undecided"),
)
_claim(
    "blowup-tail",
    "light tail of the blowup",
    partial(made.blowups, 4, 4.0),
    ("a tail of half the exponent", partial(made.blowups, 4, 1.5), "contradicted"),
    ("the right tail in too few models", partial(made.blowups, 4, 4.0, 1000), "undecided"),
)
_claim(
    "blowup-tail",
    "explicit tail bound of the blowup",
    partial(made.blowups, 4, 3.0),
    ("the right exponent, but a hundred times as large", partial(made.blowups, 4, 3.0, factor=100.0), "contradicted"),
    ("99 models, none of them large", partial(made.blowups, 4, 30.0, 99), "undecided"),
)
for name, bound, law in (
    ("printed bound on small variance", "printed", "cube"),
    ("corrected bound on small variance", "corrected", "cube"),
    ("bound on small variance under Gaussian biases", "gaussian", "gaussian"),
):
    _claim(
        "low-variance",
        name,
        partial(made.variances, 0.9, bound, law),  # type: ignore[arg-type]
        ("a probability 5 % above the bound", partial(made.variances, 1.05, bound, law), "contradicted"),  # type: ignore[arg-type]
        ("too few settings", lambda bound=bound, law=law: Rows(made.variances(0.9, bound, law)[:7]), "undecided"),
    )

# ---------------------------------------------------------------- zero-strings, random-functions


def _rising(n: int) -> float:
    return 0.5


def _polynomial(n: int) -> float:
    return min(1.0, n**2 / 2.0**n)


PARITIES = cache(partial(made.networks, 64, lambda n: 0.0))  # as many as the laptop scale has
_claim(
    "zero-strings",
    "random transformers: the share of strings of sensitivity 0 does not vanish",
    partial(made.networks, 64, _rising),
    ("every model is Parity", PARITIES, "contradicted"),
    ("a share that falls like 1/N", partial(made.networks, 64, lambda n: min(1.0, 24 / n)), "contradicted"),
)
for name in ("strings of sensitivity 0", "strings of low sensitivity"):
    _claim(
        "zero-strings",
        f"random transformers: more {name} than the threshold",
        partial(made.networks, 64, _rising),
        ("every model is Parity, at lengths that may be too short", PARITIES, "undecided"),
        ("three models", partial(made.networks, 3, _rising), "undecided"),
    )
_claim(
    "zero-strings",
    "models that are not constant: the share does not vanish",
    partial(made.networks, 64, _rising),
    ("every model is Parity", PARITIES, "contradicted"),
    ("every model is constant", partial(made.networks, 64, lambda n: 1.0), "undecided"),
)
_claim(
    "zero-strings",
    "the number of strings of sensitivity 0 grows exponentially",
    partial(made.networks, 20, _rising),
    ("every model is Parity: there are none at any length", PARITIES, "contradicted"),
    ("growth like N^2", partial(made.networks, 20, _polynomial, lengths=(6, 8, 10, 12, 14, 16)), "contradicted"),
    ("constants but at one length", partial(made.networks, 20, lambda n: 0.5 if n == 8 else 1.0), "undecided"),
)
NONE = math.exp(-1)
_claim(
    "random-functions",
    "random functions: strings of sensitivity 0 follow Poisson(1)",
    partial(made.zeros_of_functions, POISSON, 4000),
    (
        "a geometric law with as many functions that have none",
        partial(made.zeros_of_functions, [NONE * (1 - NONE) ** k for k in range(40)], 4000),
        "contradicted",
    ),
    ("too few functions", partial(made.zeros_of_functions, POISSON, 50), "undecided"),
)

# ---------------------------------------------------------------- prior-volume, function-count


def _tilted(length: int, measure: str = "zero_strings", by: float = 2.0) -> np.ndarray:
    """Probabilities that rise with a measure among functions with as many ones."""
    every = all_tables(length)
    values, ones = getattr(measures(every, length), measure).astype(float), fewer_ones(every, length)
    largest = np.array([values[ones == number].max() for number in range(ones.max() + 1)])
    return np.exp2(by * (values - largest[ones]))


def _one_drawing(other: str) -> Rows:
    """Majority is met often, but with one drawing of the symbols only."""
    rows = made.prior(_tilted, draws=1000)
    return Rows({**row, "majority": 900 if number == 0 else 0, other: 1} for number, row in enumerate(rows))


LIKES = cache(partial(made.prior, partial(_tilted, by=8.0), (3, 4)))
BLIND = ("labels blind to the cube, with a random bias", cache(made.blind_prior))
_claim(
    "prior-volume",
    "functions with the most strings of sensitivity 0 fill the larger part",
    LIKES,
    (*BLIND, "contradicted"),
)
_claim(
    "prior-volume",
    "probability rises with K_0",
    LIKES,
    (*BLIND, "undecided"),
    ("a probability that falls with K_0", partial(made.prior, partial(_tilted, by=-1.0), (3, 4)), "contradicted"),
    ("one function only, met by all draws", partial(made.prior, lambda n: np.eye(1 << (1 << n))[1]), "undecided"),
)
_claim(
    "prior-volume",
    "K_0 tells probability better than average sensitivity",
    partial(made.prior, partial(_tilted, by=1.0), (3, 4)),
    (*BLIND, "undecided"),
    (
        "a probability that falls with average sensitivity",
        partial(made.prior, partial(_tilted, measure="average_sensitivity", by=-2.0), (3, 4)),
        "contradicted",
    ),
    (
        "a probability that rises with average sensitivity, and so less against K_0",
        partial(made.prior, partial(_tilted, measure="average_sensitivity", by=2.0), (3, 4)),
        "contradicted",
    ),
)
for other in ("parity", "first"):
    _claim(
        "prior-volume",
        f"{other.capitalize()} is not met",
        partial(_with, LIKES, **{other: 0}),
        (*BLIND, "undecided"),
        (
            "so few draws that none would be expected",
            partial(_with, partial(made.prior, _tilted, draws=100), **{other: 0}),
            "undecided",
        ),
        ("it is met, at a length that may be too short", partial(_with, LIKES, **{other: 9}), "undecided"),
    )
    _claim(
        "prior-volume",
        f"Majority is more probable than {other.capitalize()}",
        partial(made.prior, partial(_tilted, by=1.0)),
        ("labels blind to the cube, with a random bias", partial(made.blind_prior, (3, 4)), "undecided"),
        ("Majority met often, with one drawing of the symbols", partial(_one_drawing, other), "undecided"),
        ("the other function is favoured", partial(made.prior, partial(_tilted, by=-1.0)), "contradicted"),
    )
for name in ("functions grow fewer", "recognisers of more than constants grow rarer"):
    _claim(
        "function-count",
        f"eps > 0: {name} faster than at eps = 0",
        partial(made.recognised, {1.0: -0.3, 0.0: -0.2}),
        (
            "the same fall at eps = 0, where Cor 3.4 does not apply",
            partial(made.recognised, {1.0: -0.2, 0.0: -0.2}),
            "undecided",
        ),
        ("a faster fall at eps = 0", partial(made.recognised, {1.0: -0.2, 0.0: -0.3}), "contradicted"),
        ("a fall at eps > 0, with nothing to compare it with", partial(made.recognised, {1.0: -0.3}), "undecided"),
    )

# ---------------------------------------------------------------- majority-volume, length-limits, length-trained

for other in ("parity", "first"):
    against = other.capitalize()
    _claim(
        "majority-volume",
        f"Majority: a larger region than {against}",
        partial(made.half_radii, lambda language, n: 0.3 if language == "majority" else 0.1),
        ("regions of one size", partial(made.half_radii, lambda language, n: 0.3), "undecided"),
        (
            "a smaller region",
            partial(made.half_radii, lambda language, n: 0.1 if language == "majority" else 0.3),
            "contradicted",
        ),
        (
            "three pairs of models with one and the same quotient",
            partial(made.half_radii, lambda language, n: 0.3 if language == "majority" else 0.1, seeds=3, noise=0.0),
            "undecided",
        ),
    )
    _claim(
        "majority-volume",
        f"Majority: a region that shrinks more slowly than {against}'s",
        partial(made.half_radii, lambda language, n: 0.3 if language == "majority" else 2.0**-n),
        (
            "a larger region that shrinks as fast: an intercept alone",
            partial(made.half_radii, lambda language, n: (3 if language == "majority" else 1) * 2.0**-n),
            "undecided",
        ),
        (
            "a region that shrinks faster",
            partial(made.half_radii, lambda language, n: 2.0**-n if language == "majority" else 0.3),
            "contradicted",
        ),
    )


def _by_length(trial: Limit) -> float:
    """Models that last longer the shorter the strings they were trained on, Majority known at short ones only."""
    return 0.0 if trial.language == "majority" and trial.length > 20 else 4.0 if trial.length == 20 else 1.0


BROKEN = partial(made.lasting, lambda trial: 1.5)
UNTRAINED = (
    "untrained models, right at no length",
    partial(made.longer_strings, lambda trial, factor: 0.5),
    "undecided",
)
LASTS = ("models that last to 4 N", partial(made.lasting, lambda trial: 4.0), "undecided")
for name in ("eps > 0: First breaks", "eps = 0: First breaks"):
    _claim("length-limits", name, BROKEN, UNTRAINED, LASTS)
_claim(
    "length-limits",
    "eps > 0: Majority breaks earlier than at eps = 0",
    partial(made.lasting, lambda trial: 1.25 if trial.eps else 2.0 if trial.seed == 1 else 4.0, lengths=(10, 20, 40)),
    ("models that break at eps = 0 as well", BROKEN, "undecided"),
    UNTRAINED,
    LASTS,
)
_claim(
    "length-limits",
    "eps = 0: Majority lasts longer than First",
    partial(made.lasting, lambda trial: 2.0 if trial.language == "majority" and trial.seed else 1.25),
    ("languages known at other lengths, which alone differ", partial(made.lasting, _by_length, seeds=6), "undecided"),
    ("no difference", BROKEN, "undecided"),
    (
        "First lasts longer",
        partial(made.lasting, lambda trial: 2.0 if trial.language == "first" else 1.25),
        "contradicted",
    ),
)
_claim(
    "length-limits",
    "First breaks earlier with a larger eps",
    partial(made.lasting, lambda trial: 2.0 if trial.eps < 1 and trial.seed else 1.25),
    ("no difference", BROKEN, "undecided"),
    (
        "the larger eps lasts longer",
        partial(made.lasting, lambda trial: 2.0 if trial.eps == 1 else 1.25),
        "contradicted",
    ),
)
_claim(
    "length-trained",
    "trained anew at the longest length, First is lost",
    partial(made.trained_anew, lambda trial: 250 if trial.length == 40 else 500),
    ("every model recognises it", partial(made.trained_anew, lambda trial: 500), "contradicted"),
    (
        "lost at a shorter length only",
        partial(made.trained_anew, lambda trial: 500 if trial.length == 40 else 0),
        "contradicted",
    ),
    ("half of the models recognise it", partial(made.trained_anew, lambda trial: 500 * (trial.seed % 2)), "undecided"),
)
