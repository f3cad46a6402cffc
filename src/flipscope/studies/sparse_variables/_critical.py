"""The number of strings at which half of the trainings succeed, by length, and laws of its growth, with uncertainty.

A training succeeds with probability 1 / (1 + exp(-b (ln m - ln g(T)))). The critical number g is free at each length,
or follows a law of two parameters, so that log-likelihoods compare laws as AIC does:

    log      g = a (1 + r ln(T / T_0))
    linear   g = a (1 + r (T / T_0 - 1))
    power    g = a T^alpha

An exponent below 1 says that g / T falls, which an intercept alone brings about: g = 38 + 0.3 T has one of 0.6. Whether
growth slows down is seen from the strings that each further bit costs: the slope of g between the two longest lengths,
less that between the two shortest.

Chains are drawn again to tell the uncertainty. That a staircase chooses m by what came before is no part of the
likelihood, and need not be: the choice depends on outcomes only, and not on g.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

import flipscope.lab as lab
from flipscope.basics.estimates import Estimate

FEWEST_LENGTHS, FEWEST_CHAINS = 3, 2
FEWEST_EACH = 3  # successes, and failures, at every length: else its critical number is anywhere
RESAMPLES = 200
_RATES = np.concatenate([[0.0], np.geomspace(0.05, 20, 60)])  # r of the laws
_RIDGE = 1e-3  # keeps a separated likelihood finite
_LARGEST = 30.0

Group = tuple[int, int, int]  # length, start, chain
Trainings = tuple[tuple[Group, int, bool], ...]  # group, strings, success


@dataclass(frozen=True)
class Growth:
    """What the trainings say of the critical number of strings; `laws` are its values at the lengths, by law."""

    critical: Mapping[int, Estimate]
    exponent: Estimate  # alpha of the power law
    bend: Estimate  # strings per further bit between the two longest lengths, less between the two shortest
    log_over_linear: Estimate  # differences of log-likelihoods
    log_over_power: Estimate
    laws: Mapping[str, tuple[float, ...]]
    width: float  # 1 / b


def growth_of(table: lab.Rows) -> Growth | None:
    """The fits of a table's trainings.

    None with fewer than 3 lengths, with fewer than 2 chains or 3 successes and 3 failures at one of them, or where
    successes do not rise with m.
    """
    rows = table.where(kind="training")
    found = _resampled(tuple(((r["length"], r["start"], r["chain"]), r["samples"], bool(r["success"])) for r in rows))
    if found is None:
        return None
    confidence = lab.confidence()
    quantile = float(stats.t.ppf((1 + confidence) / 2, found.freedom))
    exponent, log_linear, log_power, bend, *logs = (
        Estimate(value, value - quantile * error, value + quantile * error, confidence, found.chains)
        for value, error in zip(found.values.tolist(), found.errors.tolist(), strict=True)
    )
    critical = {
        length: Estimate(math.exp(log.value), math.exp(log.low), math.exp(log.high), log.confidence, log.samples)
        for length, log in zip(found.lengths, logs, strict=True)
    }
    width = 1 / float(found.fits["free"][0][0, -1])
    return Growth(
        critical, exponent, bend, log_linear, log_power, _laws(found.fits, found.lengths, found.centres), width
    )


@dataclass(frozen=True, eq=False)
class _Resampled:
    """The numbers of `_numbers` with their standard errors over chains, and what they were computed from."""

    values: np.ndarray
    errors: np.ndarray
    freedom: int
    chains: int
    lengths: Sequence[int]
    centres: Sequence[float]  # mean of ln m at each length, from which the fits measure: far from 0 they lose digits
    fits: Fits


@functools.lru_cache(maxsize=16)
def _resampled(trainings: Trainings) -> _Resampled | None:
    chains: dict[tuple[int, int], dict[int, list[tuple[int, int, bool]]]] = {}
    for (length, start, chain), samples, success in trainings:
        chains.setdefault((length, start), {}).setdefault(chain, []).append((length, samples, success))
    lengths = sorted({length for length, _ in chains})
    fewest = min((len(own) for own in chains.values()), default=0)
    outcomes = {length: [won for (own, _, _), _, won in trainings if own == length] for length in lengths}
    each = min((min(sum(own), len(own) - sum(own)) for own in outcomes.values()), default=0)
    if len(lengths) < FEWEST_LENGTHS or fewest < FEWEST_CHAINS or each < FEWEST_EACH:
        return None
    all_rows = [row for own in chains.values() for chain in own.values() for row in chain]
    centres = [float(np.mean([math.log(m) for own, m, _ in all_rows if own == length])) for length in lengths]
    fits = _fits(all_rows, lengths, centres)
    whole = _numbers(fits, lengths, centres)
    if not np.isfinite(whole).all():
        return None
    stream = np.random.default_rng(0)
    drawn = []
    for _ in range(RESAMPLES):
        rows: list[tuple[int, int, bool]] = []
        for own in chains.values():
            names = list(own)
            rows += [row for place in stream.integers(0, len(names), len(names)) for row in own[names[place]]]
        drawn.append(_numbers(_fits(rows, lengths, centres, fits), lengths, centres))
    numbers = np.array(drawn)
    numbers = numbers[np.isfinite(numbers).all(axis=1)]
    if len(numbers) < 0.9 * RESAMPLES:
        return None
    count = sum(len(own) for own in chains.values())
    # Of k chains, resampling sees a variance that is (k - 1) / k of the true one; few chains have Student's tails.
    errors = numbers.std(axis=0, ddof=1) * math.sqrt(fewest / (fewest - 1))
    return _Resampled(whole, errors, count - len(chains), count, lengths, centres, fits)


def _counts(rows: Sequence[tuple[int, int, bool]]) -> tuple[np.ndarray, ...]:
    """Lengths, strings, trainings and successes, of each length and number of strings."""
    groups: dict[tuple[int, int], list[bool]] = {}
    for length, samples, success in rows:
        groups.setdefault((length, samples), []).append(success)
    places = np.array(list(groups), np.float64)
    hits = np.array([sum(own) for own in groups.values()], np.float64)
    return places[:, 0], places[:, 1], np.array([len(own) for own in groups.values()], np.float64), hits


Fits = Mapping[str, tuple[np.ndarray, np.ndarray]]  # coefficients [fit, column] and log-likelihoods [fit], by law


def _fits(
    rows: Sequence[tuple[int, int, bool]], lengths: Sequence[int], centres: Sequence[float], near: Fits | None = None
) -> Fits:
    """The fits with a critical number that is free at each length, and by each law at each of its rates."""
    length, samples, trials, hits = _counts(rows)
    own = np.log(samples) - np.array(centres)[np.searchsorted(lengths, length)]
    x, middle = np.log(samples) - np.mean(centres), np.log(length) - np.mean(np.log(lengths))
    columns = {
        "free": np.column_stack([length[:, None] == np.array(lengths), own])[None].astype(np.float64),
        "power": np.stack([np.ones_like(x), middle, x], axis=1)[None],
    }
    for law in ("log", "linear"):
        shape = np.log1p(_RATES[:, None] * _rise(law, length, lengths[0]))
        columns[law] = np.stack([np.ones_like(shape), x - shape], axis=2)
    return {law: logistic(each, trials, hits, None if near is None else near[law][0]) for law, each in columns.items()}


def _rise(law: str, length: np.ndarray, first: float) -> np.ndarray:
    return np.log(length / first) if law == "log" else length / first - 1


def _numbers(fits: Fits, lengths: Sequence[int], centres: Sequence[float]) -> np.ndarray:
    """Exponent, both differences of log-likelihoods, the bend, and ln of g at each length; NaN where there is none."""
    (free, _), (power, _) = fits["free"], fits["power"]
    if free[0, -1] <= 0 or power[0, -1] <= 0:
        return np.full(3 + free.shape[1], np.nan)
    log, linear, of_power = (float(fits[law][1].max()) for law in ("log", "linear", "power"))
    compared = [-power[0, 1] / power[0, 2], log - linear, log - of_power]
    logs = np.array(centres) - free[0, :-1] / free[0, -1]
    slopes = np.diff(np.exp(logs)) / np.diff(np.array(lengths, np.float64))
    return np.array([*compared, slopes[-1] - slopes[0], *logs])


def _laws(fits: Fits, lengths: Sequence[int], centres: Sequence[float]) -> dict[str, tuple[float, ...]]:
    """The critical numbers by each law."""
    wanted, centre = np.array(lengths, np.float64), float(np.mean(centres))
    found: dict[str, tuple[float, ...]] = {}
    for law in ("log", "linear"):
        best = int(np.argmax(fits[law][1]))
        start, slope = fits[law][0][best]
        rise = 1 + _RATES[best] * _rise(law, wanted, wanted[0])
        found[law] = tuple((math.exp(centre - start / slope) * rise).tolist())
    start, rise, slope = fits["power"][0][0]
    middle = np.log(wanted) - np.mean(np.log(lengths))
    found["power"] = tuple(np.exp(centre - (start + rise * middle) / slope).tolist())
    return found


def logistic(
    columns: np.ndarray, trials: np.ndarray, hits: np.ndarray, start: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Logistic regressions side by side: coefficients [fit, column] and log-likelihoods [fit], by Newton's method.

    A small ridge keeps the answer finite where successes and failures are separated. A start near the answer, such as
    that of the whole data for a part of it, saves steps.

    >>> x = np.array([[1.0, -1.0], [1.0, 1.0]])
    >>> found, _ = logistic(x[None], np.array([1000.0, 1000.0]), np.array([250.0, 750.0]))
    >>> bool(np.allclose(found, [[0, math.log(3)]], atol=0.001))
    True
    """
    beta = np.zeros((len(columns), columns.shape[2])) if start is None else start.copy()
    ridge = _RIDGE * np.eye(columns.shape[2])
    turned = columns.transpose(0, 2, 1)
    for _ in range(40):
        chance = 1 / (1 + np.exp(-np.clip((columns @ beta[..., None])[..., 0], -_LARGEST, _LARGEST)))
        slope = turned @ (hits - trials * chance)[..., None] - _RIDGE * beta[..., None]
        weights = trials * chance * (1 - chance) + 1e-9
        step = np.linalg.solve((turned * weights[:, None]) @ columns + ridge, slope)[..., 0]
        beta += np.clip(step, -3, 3)
        if np.abs(step).max() < 1e-5:
            break
    eta = np.clip((columns @ beta[..., None])[..., 0], -_LARGEST, _LARGEST)
    fits = (hits * eta - trials * np.logaddexp(0, eta)).sum(axis=1)
    return beta, fits


def smallest_above_half(rows: lab.Rows, seed: int = 0) -> Estimate | None:
    """The paper's rule: the least m at which more than half succeed, and a standard error of 50 resamples around it."""
    groups = [(m, np.array(own.column("success"), bool)) for m, own in rows.by("samples")]
    value = next((m for m, won in groups if won.mean() > 0.5), None)
    if value is None:
        return None
    stream, again = np.random.default_rng(seed), []
    for _ in range(50):
        shares = [(m, stream.choice(won, len(won)).mean()) for m, won in groups]
        again.append(next((m for m, share in shares if share > 0.5), groups[-1][0]))
    error = float(np.std(again, ddof=1))
    return Estimate(value, value - error, value + error, 0.68, len(rows))


# ---------------------------------------------------------------- judges


def _judged(table: lab.Rows) -> Growth | lab.Judgement:
    found = growth_of(table)
    if found is not None:
        return found
    need = (
        f"{FEWEST_LENGTHS} lengths with {FEWEST_CHAINS} chains, {FEWEST_EACH} successes and {FEWEST_EACH} failures each"
    )
    return lab.Judgement.without("the critical number of strings cannot be told", need)


def judge_per_bit(table: lab.Rows) -> lab.Judgement:
    """The exponent of a power law is below 1, so that g / T falls."""
    found = _judged(table)
    if isinstance(found, lab.Judgement):
        return found
    return lab.at_most(found.exponent, 1.0, "exponent of the critical m in T", unit="chains")


def judge_slower(table: lab.Rows) -> lab.Judgement:
    """Each further bit costs fewer strings when strings are long than when they are short."""
    found = _judged(table)
    if isinstance(found, lab.Judgement):
        return found
    ends = list(found.critical)
    said = f"strings per further bit, from T = {ends[-2]} to {ends[-1]} less from {ends[0]} to {ends[1]}"
    return lab.at_most(found.bend, 0.0, said, unit="chains")


def _better(found: Estimate, quantity: str) -> lab.Judgement:
    judged = lab.at_least(found, 0.0, quantity, unit="chains")
    return judged if found.low > 0 or judged.verdict != "reproduced" else judged.left_open("both fit equally well")


def judge_log(table: lab.Rows) -> lab.Judgement:
    """log T is likelier than linear growth."""
    found = _judged(table)
    if isinstance(found, lab.Judgement):
        return found
    return _better(found.log_over_linear, "log-likelihood of log T less that of linear growth")


def judge_power(table: lab.Rows) -> lab.Judgement:
    """log T is likelier than a power of T."""
    found = _judged(table)
    if isinstance(found, lab.Judgement):
        return found
    return _better(found.log_over_power, "log-likelihood of log T less that of a power of T")
