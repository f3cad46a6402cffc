"""Sensitivity, influences, noise stability and coefficients from queries alone, for any number of bits.

An oracle is any function of a 0/1 array of shape (m, n) that returns m values, such as a BooleanFunction.
Every result is an Estimate with an interval, and says how many queries it cost. Either ask for a number of
``samples`` (the interval is then "fixed", or "anytime" on request), or for a ``precision``: sampling stops as
soon as half the width of the interval is at most that, or when ``max_queries`` are spent, and the interval is
"anytime", since stopping looked at the data. The same seed gives the same strings whatever ``batch_rows`` is,
and a longer run begins with the shorter one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from flipscope.basics.arguments import Keyword, checked_arguments
from flipscope.basics.bits import Bits, as_array
from flipscope.basics.checks import (
    check_confidence,
    check_count,
    check_positions,
    check_positive,
    check_validity,
    shown,
)
from flipscope.basics.errors import InputError, blamed_on
from flipscope.basics.estimates import (
    Estimate,
    Floats,
    Validity,
    mean_from_samples,
    profile_from_counts,
    proportion_bounds,
    proportions,
)
from flipscope.basics.limits import check_work
from flipscope.basics.progress import Progress
from flipscope.basics.seeds import Seed, generators, random_strings
from flipscope.cube.structure import Oracle

__all__ = [
    "Estimate",
    "Estimates",
    "Queries",
    "Sampling",
    "average_sensitivity",
    "estimate_function",
    "fourier_coefficient",
    "influences",
    "mean_from_samples",
    "noise_sensitivity",
    "noise_stability",
    "profile",
    "profile_from_counts",
    "proportions",
]

Range: TypeAlias = tuple[float, float]

DEFAULT_SAMPLES = 10_000
DEFAULT_MAX_QUERIES = 10_000_000
DEFAULT_BATCH_ROWS = 1 << 16
_BATCH_CELLS = 1 << 24  # no batch of strings takes more bytes than this, unless a single string does
_FIRST_LOOK = 64
_LOOK_GROWTH = 1.25  # the next look comes after a quarter more samples, so at most a quarter is wasted


class Sampling(TypedDict, total=False):
    """The keywords that every estimator takes."""

    samples: Annotated[int | None, Keyword(None, "how many to draw; 10,000 unless a precision is given")]
    precision: Annotated[float | None, Keyword(None, "draw until the interval is at most this far to either side")]
    max_queries: Annotated[int, Keyword(DEFAULT_MAX_QUERIES, "of the function, for a precision")]
    confidence: Annotated[float, Keyword(0.95, "with which the interval holds")]
    validity: Annotated[Validity, Keyword("fixed", "or 'anytime', which a precision needs: at every number of samples")]
    seed: Annotated[Seed, Keyword(0, "of the random strings")]
    batch_rows: Annotated[int, Keyword(DEFAULT_BATCH_ROWS, "strings asked in one call, at most")]
    progress: Annotated[Progress | None, Keyword(None, "called with (samples done, samples in all)")]


@dataclass(frozen=True)
class Estimates:
    """Estimates for a Boolean function from one set of uniformly drawn strings and all their neighbours.

    The intervals of ``profile`` (shares K_k / 2^n) hold together, and so do those of ``influences``; every
    other interval holds by itself. The largest sensitivity seen is only a lower bound of the maximum over all
    strings, the smallest only an upper bound of the minimum. ``mean`` is the share of strings with value 1.
    """

    n: int
    strings: int
    queries: int
    confidence: float
    profile: list[Estimate]
    average_sensitivity: Estimate
    max_observed_sensitivity: int
    min_observed_sensitivity: int
    zero_share: Estimate
    influences: list[Estimate]
    noise_stability: dict[float, Estimate]
    mean: Estimate


class Queries:
    """An oracle that is queried in batches of bounded size; ``asked`` counts the queries, and values are checked.

    Without a ``value_range`` the values must be 0 or 1; with one they are numbers between its ends.
    """

    @checked_arguments
    def __init__(
        self,
        oracle: Oracle,
        n: int,
        value_range: Range | None = None,
        batch_rows: int = DEFAULT_BATCH_ROWS,
    ) -> None:
        self.n = check_count("n", n)
        length = getattr(oracle, "n", self.n)
        if isinstance(length, int) and length != self.n:
            raise InputError(f"the function has {length} bits but n is {self.n}; give the same number")
        if not callable(oracle):
            raise InputError(f"the oracle must be callable on an array of strings, not {type(oracle).__name__}")
        self.value_range = None if value_range is None else _check_range(value_range)
        self.rows = max(1, min(check_count("batch_rows", batch_rows), _BATCH_CELLS // self.n))
        self.asked = 0
        self._oracle = oracle

    def bits(self, strings: Bits) -> Bits:
        """The 0/1 values of a Boolean oracle on strings of shape (m, n)."""
        out = np.empty(len(strings), np.uint8)
        for start in range(0, len(strings), self.rows):
            values = self._ask(strings[start : start + self.rows])
            if not bool(np.all((values == 0) | (values == 1))):
                wrong = values[(values != 0) & (values != 1)][0]
                raise InputError(f"the oracle returned {wrong}; a Boolean function returns 0 or 1")
            out[start : start + self.rows] = values
        return out

    def signs(self, strings: Bits) -> Floats:
        """(-1)**value of a Boolean oracle, the value itself of a real one, on strings of shape (m, n)."""
        if self.value_range is None:
            return np.where(self.bits(strings) == 1, -1.0, 1.0)
        low, high = self.value_range
        out = np.empty(len(strings), np.float64)
        for start in range(0, len(strings), self.rows):
            values = self._ask(strings[start : start + self.rows])
            if not bool(np.all((values >= low) & (values <= high))):
                wrong = values[~((values >= low) & (values <= high))][0]
                raise InputError(f"the oracle returned {wrong}, outside the value_range [{low}, {high}]")
            out[start : start + self.rows] = values
        return out

    def changes(self, strings: Bits) -> tuple[Bits, Bits]:
        """Values on the strings, and for each string and position 1 where flipping it changes the value.

        Asks n + 1 queries per string and never builds more than one batch of neighbours.
        """
        width = self.n + 1
        values = np.empty(len(strings) * width, np.uint8)
        for start in range(0, values.size, self.rows):
            flat = np.arange(start, min(start + self.rows, values.size))
            neighbours = strings[flat // width]
            position = flat % width - 1  # -1 stands for the string itself
            flipped = np.flatnonzero(position >= 0)
            neighbours[flipped, position[flipped]] ^= 1
            values[start : start + self.rows] = self.bits(neighbours)
        table = values.reshape(-1, width)
        return table[:, 0], table[:, 1:] ^ table[:, :1]

    def _ask(self, strings: Bits) -> NDArray[Any]:
        with blamed_on("the oracle"):
            values = as_array(self._oracle(strings), "the oracle")
        self.asked += len(strings)
        if values.shape != (len(strings),):
            raise InputError(
                f"the oracle returned an array of shape {values.shape} for {len(strings)} strings;"
                f" it must return one value per string, shape ({len(strings)},)"
            )
        if values.dtype.kind not in "biuf":
            raise InputError(f"the oracle returned values of type {values.dtype}; it must return numbers")
        if values.dtype.kind == "f" and bool(np.isnan(values).any()):
            raise InputError("the oracle returned NaN; it must return a number for every string")
        return values


@dataclass
class _Plan:
    """How many samples to draw, when to look, and how sure to be."""

    size: int
    precision: float | None
    confidence: float
    validity: Validity
    seed: Seed
    block: int
    progress: Progress | None

    @classmethod
    def of(cls, queries: Queries, each: int, options: Sampling) -> _Plan:
        """The plan by the caller's options, when one sample costs ``each`` queries."""
        unknown = sorted(set(options) - set(Sampling.__annotations__))
        if unknown:
            raise TypeError(f"unknown keyword {unknown[0]!r}; known are {', '.join(Sampling.__annotations__)}")
        samples, precision = options.get("samples"), options.get("precision")
        validity: Validity = options.get("validity", "fixed" if precision is None else "anytime")
        check_validity(validity)
        budget = check_count("max_queries", options.get("max_queries", DEFAULT_MAX_QUERIES))
        if precision is None:
            size = check_count("samples", DEFAULT_SAMPLES if samples is None else samples)
            check_work(size * each * queries.n, f"{shown(size)} samples", "give fewer, or a precision instead")
        else:
            if samples is not None:
                raise InputError("give either samples or precision, not both; max_queries limits the latter")
            if validity == "fixed":
                raise InputError('stopping at a precision needs validity="anytime"')
            check_positive("precision", precision)
            size = budget // each
            if size == 0:
                raise InputError(f"max_queries is {budget} but one sample already takes {each} queries")
        return cls(
            size,
            precision,
            check_confidence(options.get("confidence", 0.95)),
            validity,
            options.get("seed", 0),
            max(1, queries.rows // each),
            options.get("progress"),
        )

    def run(self, draw: Callable[[int], None], half_width: Callable[[], float]) -> int:
        """Draw until the plan is fulfilled; the number of samples drawn."""
        done = 0
        for look in self._looks():
            while done < look:
                count = min(self.block, look - done)
                draw(count)
                done += count
                if self.progress is not None:
                    self.progress(done, self.size)
            if self.precision is not None and half_width() <= self.precision:
                break
        return done

    def _looks(self) -> Iterator[int]:
        # Fixed in advance, so that where sampling stops does not depend on the batches.
        look = self.size if self.precision is None else _FIRST_LOOK
        while look < self.size:
            yield look
            look = math.ceil(look * _LOOK_GROWTH)
        yield self.size

    def proportions(
        self, queries: Queries, cells: int, scale: float, draw: Callable[[int], NDArray[np.int64]]
    ) -> list[Estimate]:
        """Estimates of ``cells`` probabilities; ``draw`` counts the successes in a number of further samples."""
        hits = np.zeros(cells, np.int64)
        trials = 0

        def more(count: int) -> None:
            nonlocal trials
            hits[:] += draw(count)
            trials += count

        def half_width() -> float:
            low, high = proportion_bounds(hits, trials, (1 - self.confidence) / cells, self.validity)
            return scale * float((high - low).max()) / 2

        self.run(more, half_width)
        return proportions(hits, trials, self.confidence, self.validity, queries.asked)

    def mean(self, queries: Queries, low: float, high: float, draw: Callable[[int], Floats]) -> Estimate:
        """Estimate of the mean of samples in [low, high]."""
        parts: list[Floats] = []

        def estimate() -> Estimate:
            # Rounding may carry a sample a last digit over the end of its range.
            joined = np.clip(np.concatenate(parts), low, high)
            return mean_from_samples(joined, low, high, self.confidence, self.validity, queries.asked)

        self.run(lambda count: parts.append(draw(count)), lambda: estimate().half_width)
        return estimate()


@checked_arguments
def average_sensitivity(
    oracle: Oracle, n: int, *, value_range: Range | None = None, **sampling: Unpack[Sampling]
) -> Estimate:
    """Estimate of as(f), from single random flips of random strings (2 queries per sample).

    For real values this is the mean of sum_i |f(x) - f(x with bit i flipped)|^2 / 4, so that a function with
    values -1 and 1 has the average sensitivity of the Boolean function it stands for.
    """
    queries = Queries(oracle, n, value_range, sampling.get("batch_rows", DEFAULT_BATCH_ROWS))
    plan = _Plan.of(queries, 2, sampling)
    for_strings, for_flips = generators(plan.seed, 2)

    def differences(count: int) -> Floats:
        strings = random_strings(for_strings, count, n)
        before = queries.signs(strings)
        strings[np.arange(count), for_flips.integers(0, n, size=count)] ^= 1
        return before - queries.signs(strings)

    if queries.value_range is None:
        # n times the probability that a random flip of a random string changes the value.
        flip = plan.proportions(queries, 1, n, lambda count: np.count_nonzero(differences(count), keepdims=True))
        return flip[0].scaled(n)
    largest = n * (queries.value_range[1] - queries.value_range[0]) ** 2 / 4
    return plan.mean(queries, 0.0, largest, lambda count: n * differences(count) ** 2 / 4)


@checked_arguments
def profile(oracle: Oracle, n: int, **sampling: Unpack[Sampling]) -> list[Estimate]:
    """Estimates of the shares K_0 / 2^n, ..., K_n / 2^n that hold together (n + 1 queries per string)."""
    queries = Queries(oracle, n, None, sampling.get("batch_rows", DEFAULT_BATCH_ROWS))
    plan = _Plan.of(queries, n + 1, sampling)
    (for_strings,) = generators(plan.seed, 1)

    def histogram(count: int) -> NDArray[np.int64]:
        _, changes = queries.changes(random_strings(for_strings, count, n))
        return np.bincount(changes.sum(axis=1, dtype=np.int64), minlength=n + 1)

    return plan.proportions(queries, n + 1, 1.0, histogram)


@checked_arguments
def influences(oracle: Oracle, n: int, **sampling: Unpack[Sampling]) -> list[Estimate]:
    """Estimates of the influence of each position that hold together (n + 1 queries per string)."""
    queries = Queries(oracle, n, None, sampling.get("batch_rows", DEFAULT_BATCH_ROWS))
    plan = _Plan.of(queries, n + 1, sampling)
    (for_strings,) = generators(plan.seed, 1)

    def changed(count: int) -> NDArray[np.int64]:
        _, changes = queries.changes(random_strings(for_strings, count, n))
        hits: NDArray[np.int64] = changes.sum(axis=0, dtype=np.int64)
        return hits

    return plan.proportions(queries, n, 1.0, changed)


@checked_arguments
def noise_stability(
    oracle: Oracle, n: int, rho: float, *, value_range: Range | None = None, **sampling: Unpack[Sampling]
) -> Estimate:
    """Estimate of Stab_rho(f) = E[f(x) f(y)], x and y rho-correlated, f in -1/1 form (2 queries per sample)."""
    chance = (1 - _check_rho(rho)) / 2
    queries = Queries(oracle, n, value_range, sampling.get("batch_rows", DEFAULT_BATCH_ROWS))
    plan = _Plan.of(queries, 2, sampling)
    for_strings, for_noise = generators(plan.seed, 2)

    def products(count: int) -> Floats:
        strings = random_strings(for_strings, count, n)
        before = queries.signs(strings)
        strings ^= for_noise.random((count, n)) < chance
        return before * queries.signs(strings)

    if queries.value_range is None:
        # 1 - 2 P(f(x) != f(y))
        unequal = plan.proportions(queries, 1, 2.0, lambda count: np.count_nonzero(products(count) < 0, keepdims=True))
        return unequal[0].scaled(-2.0, 1.0)
    low, high = queries.value_range
    corners = (low * low, low * high, high * high)
    return plan.mean(queries, min(corners), max(corners), products)


@checked_arguments
def noise_sensitivity(oracle: Oracle, n: int, delta: float, **sampling: Unpack[Sampling]) -> Estimate:
    """Estimate of NS_delta(f), the probability that flipping each bit with chance delta changes the value."""
    if isinstance(delta, bool) or not 0 <= delta <= 1:
        raise InputError(f"delta is the chance of a flip and must lie between 0 and 1, not {delta}")
    precision = sampling.get("precision")
    if precision is not None:
        sampling["precision"] = 2 * precision  # NS = (1 - Stab) / 2
    return noise_stability(oracle, n, 1 - 2 * delta, **sampling).scaled(-0.5, 0.5)


@checked_arguments
def fourier_coefficient(
    oracle: Oracle,
    n: int,
    positions: Sequence[int],
    *,
    value_range: Range | None = None,
    **sampling: Unpack[Sampling],
) -> Estimate:
    """Estimate of the coefficient f^(S) = E[f(x) chi_S(x)], S the 0-based positions, f in its -1/1 form."""
    queries = Queries(oracle, n, value_range, sampling.get("batch_rows", DEFAULT_BATCH_ROWS))
    chosen = list(check_positions(positions, queries.n))
    plan = _Plan.of(queries, 1, sampling)
    (for_strings,) = generators(plan.seed, 1)

    def products(count: int) -> Floats:
        strings = random_strings(for_strings, count, n)
        return queries.signs(strings) * characters(strings, chosen)

    if queries.value_range is None:
        unequal = plan.proportions(queries, 1, 2.0, lambda count: np.count_nonzero(products(count) < 0, keepdims=True))
        return unequal[0].scaled(-2.0, 1.0)
    low, high = queries.value_range
    if not chosen:
        return plan.mean(queries, low, high, products)
    largest = max(abs(low), abs(high))
    return plan.mean(queries, -largest, largest, products)


@checked_arguments
def estimate_function(
    oracle: Oracle,
    n: int,
    strings: int = DEFAULT_SAMPLES,
    seed: Seed = 0,
    confidence: float = 0.95,
    progress: Progress | None = None,
    *,
    rhos: Sequence[float] = (),
    batch_rows: int = DEFAULT_BATCH_ROWS,
) -> Estimates:
    """Every estimate for a Boolean function that uniformly drawn strings and their neighbours give.

    Takes n + 1 queries per string, and one more for the noise stability at each of ``rhos``.
    """
    queries = Queries(oracle, n, None, batch_rows)
    strings = check_count("strings", strings)
    chances = [(1 - _check_rho(rho)) / 2 for rho in rhos]
    each = n + 1 + len(chances)
    plan = _Plan.of(queries, each, {"samples": strings, "confidence": confidence, "seed": seed, "progress": progress})
    for_strings, for_noise = generators(plan.seed, 2)
    sensitivities: list[NDArray[np.int64]] = []
    changed = np.zeros(n, np.int64)
    unequal = np.zeros(len(chances), np.int64)
    ones = 0

    def draw(count: int) -> None:
        nonlocal ones
        drawn = random_strings(for_strings, count, n)
        values, changes = queries.changes(drawn)
        sensitivities.append(changes.sum(axis=1, dtype=np.int64))
        changed[:] += changes.sum(axis=0, dtype=np.int64)
        ones += int(values.sum(dtype=np.int64))
        if chances:
            # The same noise serves every rho: each estimate stands by itself, and they move together.
            noise = for_noise.random((count, n))
            for index, chance in enumerate(chances):
                unequal[index] += np.count_nonzero(queries.bits(drawn ^ (noise < chance)) != values)

    plan.run(draw, lambda: math.inf)
    joined = np.concatenate(sensitivities)
    spent, size = queries.asked, plan.size

    def share(count: int) -> Estimate:
        return proportions([count], size, confidence, queries=spent)[0]

    return Estimates(
        n=n,
        strings=size,
        queries=spent,
        confidence=plan.confidence,
        profile=profile_from_counts(joined, n, confidence, queries=spent),
        average_sensitivity=mean_from_samples(joined, 0, n, confidence, queries=spent),
        max_observed_sensitivity=int(joined.max()),
        min_observed_sensitivity=int(joined.min()),
        zero_share=share(int(np.count_nonzero(joined == 0))),
        influences=proportions(changed, size, confidence, queries=spent),
        noise_stability={
            float(rho): share(int(count)).scaled(-2.0, 1.0) for rho, count in zip(rhos, unequal, strict=True)
        },
        mean=share(ones),
    )


def characters(strings: Bits, positions: Sequence[int]) -> Floats:
    """chi_S(x) = (-1)**(number of ones of x on S) for each string."""
    odd = strings[:, list(positions)].sum(axis=1, dtype=np.int64) & 1
    return np.where(odd == 1, -1.0, 1.0)


def _check_rho(rho: float) -> float:
    if isinstance(rho, bool) or not -1 <= rho <= 1:
        raise InputError(f"rho is a correlation and must lie between -1 and 1, not {rho}")
    return float(rho)


def _check_range(value_range: Range) -> Range:
    low, high = (float(end) for end in value_range)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"value_range must be two finite numbers with low < high, not {value_range}")
    return low, high
