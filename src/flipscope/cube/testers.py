"""Property testers: does a function have a property, or is it far from having it? Black-box queries only.

A one-sided tester never rejects a function that has the property, so a rejection is proof; a function that is
far from the property is rejected with probability at least ``confidence``. What "far" means is said in each
docstring; weights and coefficients are those of the function in its -1/1 form (or of its real values, where a
``value_range`` is given).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import Bits, index_bits
from flipscope.basics.checks import check_confidence, check_count, check_not_negative
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Floats
from flipscope.basics.seeds import Seed, generators, random_strings
from flipscope.cube.estimate import DEFAULT_BATCH_ROWS, DEFAULT_MAX_QUERIES, Queries, Range
from flipscope.cube.structure import Oracle

_BLOCK_TRIALS = 256  # trials queried together; fixed, so that where a tester stops does not depend on the batches
_BLOCK_CELLS = 1 << 22
_LARGEST_FREE = 20


class _OverBudget(InputError):
    """More queries are needed than the caller allows."""


@dataclass(frozen=True)
class TestResult:
    """A tester's decision, the number it rests on, and its cost in queries.

    ``witness`` holds the positions that prove a rejection, where the tester finds any.
    """

    __test__: ClassVar[bool] = False  # not a test case, whatever its name suggests to pytest

    accepted: bool
    statistic: float
    queries: int
    epsilon: float
    confidence: float
    note: str
    witness: tuple[int, ...] = ()


@dataclass(frozen=True)
class Sweep:
    """The first value that a tester accepted (None if it accepted none), with every result on the way."""

    value: int | None
    results: list[TestResult]
    queries: int
    note: str


@checked_arguments
def survival_probability(size: int, degree: int, *, frozen: bool = True) -> float:
    """p(D, d): the probability that a character on D positions survives one trial of the test for degree d.

    That is the chance that each of the d + 1 groups gets an odd number of the D positions when every position
    goes to a uniformly chosen group, with one more group that is never flipped if ``frozen``.
    """
    size, degree = check_count("size", size, 0), check_count("degree", degree, 0)
    groups, still = degree + 1, int(frozen)
    total = sum((-1) ** j * math.comb(groups, j) * (groups - 2 * j + still) ** size for j in range(groups + 1))
    return float(Fraction(total, 2**groups * (groups + still) ** size))


@checked_arguments
def low_degree_test(
    oracle: Oracle,
    n: int,
    degree: int,
    *,
    epsilon: float = 0.1,
    confidence: float = 0.95,
    trials: int | None = None,
    tolerance: float = 1e-9,
    value_range: Range | None = None,
    seed: Seed = 0,
    max_queries: int = DEFAULT_MAX_QUERIES,
    batch_rows: int = DEFAULT_BATCH_ROWS,
) -> TestResult:
    """Whether the degree is at most ``degree``; one-sided, and works for real values.

    Far means Fourier weight of at least ``epsilon`` above the degree. ``trials`` replaces the number of
    trials that the guarantee needs. A trial asks 2^(degree + 1) queries and rejects if its alternating mean
    exceeds ``tolerance`` (which is to cover rounding); the statistic is the largest such mean.
    """
    queries = Queries(oracle, n, value_range, batch_rows)
    degree = check_count("degree", degree, 0)
    epsilon, confidence = _check_epsilon(epsilon), check_confidence(confidence)
    check_not_negative("tolerance", tolerance)
    if degree >= n:
        return TestResult(True, 0.0, 0, epsilon, confidence, f"every function of {n} bits has degree at most {n}")
    if 1 << (degree + 1) > check_count("max_queries", max_queries):  # before any sum over so many groups
        raise _OverBudget(f"degree {degree} takes 2^{degree + 1} queries per trial; raise max_queries ({max_queries})")
    if trials is None:
        trials = _degree_trials(queries, degree, epsilon, confidence, tolerance)
    trials = check_count("trials", trials)
    _check_budget(trials << (degree + 1), max_queries, f"testing degree {degree} with {trials} trials")
    (rng,) = generators(seed, 1)
    largest = 0.0
    block = max(1, min(_BLOCK_TRIALS, _BLOCK_CELLS // (n << (degree + 1))))
    for start in range(0, trials, block):
        means = degree_mismatches(queries, degree, min(block, trials - start), rng)
        largest = max(largest, float(np.abs(means).max()))
        if largest > tolerance:
            note = f"a trial shows a coefficient above degree {degree}"
            return TestResult(False, largest, queries.asked, epsilon, confidence, note)
    note = f"no sign of weight above degree {degree} in {trials} trials"
    return TestResult(True, largest, queries.asked, epsilon, confidence, note)


@checked_arguments
def degree_mismatches(
    queries: Queries, degree: int, trials: int, rng: np.random.Generator, *, frozen: bool = True
) -> Floats:
    """The alternating mean t of each trial: 0 up to this degree, and E[t^2] = sum_A f^(A)^2 p(|A|, degree).

    Every position joins one of degree + 1 groups, or a last one that stays frozen; t is the mean of
    (-1)**|u| f(x with the groups u flipped) over all sets u of groups. Without the frozen group a character
    on D positions could only survive if D and degree + 1 are both even or both odd, and the rest would pass
    unseen.
    """
    groups = degree + 1
    strings = random_strings(rng, trials, queries.n)
    member = rng.integers(0, groups + int(frozen), size=(trials, queries.n))
    patterns = np.zeros((1 << groups, groups + 1), np.uint8)
    patterns[:, :groups] = index_bits(0, 1 << groups, groups)
    points = patterns[:, member] ^ strings
    values = queries.signs(points.reshape(-1, queries.n)).reshape(1 << groups, trials)
    alternating = np.where(patterns.sum(axis=1) & 1, -1.0, 1.0)
    means: Floats = alternating @ values / (1 << groups)
    return means


@checked_arguments
def first_accepted_degree(
    oracle: Oracle,
    n: int,
    *,
    max_degree: int | None = None,
    epsilon: float = 0.1,
    confidence: float = 0.95,
    trials: int | None = None,
    tolerance: float = 1e-9,
    value_range: Range | None = None,
    seed: Seed = 0,
    max_queries: int = DEFAULT_MAX_QUERIES,
    batch_rows: int = DEFAULT_BATCH_ROWS,
) -> Sweep:
    """The first degree 0, 1, 2, ... that the low-degree tester accepts; never more than the true degree.

    The budget ``max_queries`` is for the whole sweep, which ends without a value when it cannot go on.
    """
    n = check_count("n", n)
    top = n if max_degree is None else check_count("max_degree", max_degree, 0)
    results: list[TestResult] = []
    (parent,) = generators(seed, 1)
    left = check_count("max_queries", max_queries)
    for degree in range(top + 1):
        try:
            result = low_degree_test(
                oracle,
                n,
                degree,
                epsilon=epsilon,
                confidence=confidence,
                trials=trials,
                tolerance=tolerance,
                value_range=value_range,
                seed=parent,
                max_queries=left,
                batch_rows=batch_rows,
            )
        except _OverBudget as error:
            return _sweep(results, f"no degree below {degree} was accepted, and {error}")
        results.append(result)
        if result.accepted:
            return _sweep(results, f"degree {degree} is the first that was accepted")
        left -= result.queries
    return _sweep(results, f"no degree up to {top} was accepted")


@checked_arguments
def fourier_sparsity_test(
    oracle: Oracle,
    n: int,
    sparsity: int,
    *,
    free: int = 10,
    epsilon: float = 1e-3,
    confidence: float = 0.95,
    share: float = 0.25,
    restrictions: int | None = None,
    value_range: Range | None = None,
    seed: Seed = 0,
    max_queries: int = DEFAULT_MAX_QUERIES,
    batch_rows: int = DEFAULT_BATCH_ROWS,
) -> TestResult:
    """Whether at most ``sparsity`` Fourier coefficients are not zero; one-sided, and works for real values.

    Each random restriction to ``free`` positions is transformed in full (2^free queries) and rejects if the
    energy outside its ``sparsity`` largest coefficients exceeds ``epsilon``; the statistic is the largest
    such energy. A restriction never has more coefficients than the function, but may have fewer (coefficients
    that agree on the free positions fall together), so a function that is not sparse can pass. Far means that
    at least a ``share`` of all restrictions would reject.
    """
    queries = Queries(oracle, n, value_range, batch_rows)
    sparsity, epsilon = check_count("sparsity", sparsity, 0), _check_epsilon(epsilon)
    outside = _energy_outside(queries, free, confidence, share, restrictions, seed, max_queries)
    return _sparsity_result(outside, sparsity, epsilon, confidence, queries.asked)


@checked_arguments
def first_accepted_sparsity(
    oracle: Oracle,
    n: int,
    *,
    max_sparsity: int = 1000,
    free: int = 10,
    epsilon: float = 1e-3,
    confidence: float = 0.95,
    share: float = 0.25,
    restrictions: int | None = None,
    value_range: Range | None = None,
    seed: Seed = 0,
    max_queries: int = DEFAULT_MAX_QUERIES,
    batch_rows: int = DEFAULT_BATCH_ROWS,
) -> Sweep:
    """The first sparsity 0, 1, 2, ... that the sparsity tester accepts; never more than the true sparsity.

    One set of restrictions serves every value, so the whole sweep costs no more than a single test.
    """
    queries = Queries(oracle, n, value_range, batch_rows)
    epsilon, top = _check_epsilon(epsilon), check_count("max_sparsity", max_sparsity, 0)
    outside = _energy_outside(queries, free, confidence, share, restrictions, seed, max_queries)
    results: list[TestResult] = []
    note = f"no sparsity up to {top} was accepted"
    for sparsity in range(top + 1):
        results.append(_sparsity_result(outside, sparsity, epsilon, confidence, 0))
        if results[-1].accepted:
            note = f"sparsity {sparsity} is the first that was accepted"
            break
    return replace(_sweep(results, note), queries=queries.asked)


@checked_arguments
def linearity_test(
    oracle: Oracle,
    n: int,
    *,
    epsilon: float = 0.1,
    confidence: float = 0.95,
    seed: Seed = 0,
    batch_rows: int = DEFAULT_BATCH_ROWS,
) -> TestResult:
    """Whether f is a parity of some positions: f(x) ^ f(y) = f(x ^ y); one-sided (Blum, Luby and Rubinfeld).

    Far means that every parity differs from f on at least a share ``epsilon`` of the strings: each trial (3
    queries) then fails with probability at least ``epsilon``. The statistic is the share of trials that
    failed.
    """
    queries = Queries(oracle, n, None, batch_rows)
    epsilon, confidence = _check_epsilon(epsilon), check_confidence(confidence)
    trials = _trials(epsilon, confidence)
    (rng,) = generators(seed, 1)
    failed = 0
    block = max(1, _BLOCK_CELLS // n)
    for start in range(0, trials, block):
        size = min(block, trials - start)
        first, second = random_strings(rng, size, n), random_strings(rng, size, n)
        triple = queries.bits(first) ^ queries.bits(second) ^ queries.bits(first ^ second)
        failed += int(np.count_nonzero(triple))
    note = f"{failed} of {trials} triples broke linearity"
    return TestResult(failed == 0, failed / trials, queries.asked, epsilon, confidence, note)


@checked_arguments
def dictator_test(
    oracle: Oracle,
    n: int,
    *,
    epsilon: float = 0.1,
    noise: float = 0.1,
    confidence: float = 0.95,
    seed: Seed = 0,
    batch_rows: int = DEFAULT_BATCH_ROWS,
) -> TestResult:
    """Whether f is a single position x_i; two-sided, right with probability ``confidence`` either way.

    The test is Håstad's. A trial takes the product of f at x, y and x ^ y ^ noise, each at a random one of
    the point (value kept) and its complement (value negated), which removes the coefficients of even size.
    Its mean is the sum of f^(S)^3 (1 - 2 noise)^|S| over odd |S|: 1 - 2 noise for a dictator, at most max((1
    - 2 noise)(1 - 2 epsilon), (1 - 2 noise)^3) if every dictator differs from f on a share ``epsilon`` or
    more.
    """
    queries = Queries(oracle, n, None, batch_rows)
    epsilon, confidence = _check_epsilon(epsilon), check_confidence(confidence)
    if not 0 < noise < 0.5:
        raise InputError(f"noise must lie strictly between 0 and 0.5, not {noise}")
    kept = 1 - 2 * noise
    others = max(kept * (1 - 2 * min(epsilon, 0.5)), kept**3)
    # Hoeffding for products in [-1, 1]: a deviation of half the gap has probability <= exp(-trials gap^2 /
    # 8).
    trials = max(1, math.ceil(8 * math.log(1 / (1 - confidence)) / (kept - others) ** 2))
    (rng,) = generators(seed, 1)
    total = 0.0
    block = max(1, _BLOCK_CELLS // n)
    for start in range(0, trials, block):
        size = min(block, trials - start)
        first, second = random_strings(rng, size, n), random_strings(rng, size, n)
        third = first ^ second ^ (rng.random((size, n)) < noise)
        product = np.ones(size)
        for points in (first, second, third):
            coin = random_strings(rng, size, 1)
            product *= queries.signs(points ^ coin) * (1 - 2.0 * coin[:, 0])
        total += float(product.sum())
    mean = total / trials
    note = f"mean product {mean:.4f}; a dictator has {kept:.4f}, all far functions at most {others:.4f}"
    return TestResult(mean >= (kept + others) / 2, mean, queries.asked, epsilon, confidence, note)


@checked_arguments
def junta_test(
    oracle: Oracle,
    n: int,
    size: int,
    *,
    epsilon: float = 0.1,
    confidence: float = 0.95,
    seed: Seed = 0,
    batch_rows: int = DEFAULT_BATCH_ROWS,
) -> TestResult:
    """Whether f depends on at most ``size`` positions; one-sided, with the positions found as the witness.

    Far means that every function of ``size`` positions differs from f on at least a share ``epsilon`` of the
    strings. Then, whatever positions S are already known, two random strings that agree on S have different
    values with probability at least ``epsilon``, and a binary search between them finds one more relevant
    position.
    """
    queries = Queries(oracle, n, None, batch_rows)
    size = check_count("size", size, 0)
    epsilon, confidence = _check_epsilon(epsilon), check_confidence(confidence)
    if size >= n:
        return TestResult(True, 0.0, 0, epsilon, confidence, f"every function of {n} bits depends on at most {n}")
    trials = _finding_trials(size + 1, epsilon, confidence)
    (rng,) = generators(seed, 1)
    relevant: list[int] = []
    left, block = trials, 8
    while left > 0 and len(relevant) <= size:
        block = min(left, block)
        first, second = random_strings(rng, block, n), random_strings(rng, block, n)
        second[:, relevant] = first[:, relevant]
        unequal = np.flatnonzero(queries.bits(first) != queries.bits(second))
        if unequal.size == 0:
            left -= block
            block = max(1, min(2 * block, _BLOCK_CELLS // n))
            continue
        # The trials after the first success did not know the new position: they do not count.
        left -= int(unequal[0]) + 1
        relevant.append(_relevant_position(queries, first[unequal[0]], second[unequal[0]]))
    accepted = len(relevant) <= size
    note = f"found {len(relevant)} relevant positions" + (f" in {trials} trials" if accepted else "")
    return TestResult(accepted, float(len(relevant)), queries.asked, epsilon, confidence, note, tuple(sorted(relevant)))


def _relevant_position(queries: Queries, first: Bits, second: Bits) -> int:
    """A position that matters, found by halving the difference of two strings of unequal value."""
    value = queries.bits(first[None])[0]
    apart = np.flatnonzero(first != second)
    while apart.size > 1:
        half = apart[: apart.size // 2]
        middle = first.copy()
        middle[half] ^= 1
        if queries.bits(middle[None])[0] != value:
            apart = half
        else:
            first, apart = middle, apart[apart.size // 2 :]
    return int(apart[0])


def _degree_trials(queries: Queries, degree: int, epsilon: float, confidence: float, tolerance: float) -> int:
    # p(D, d) does not fall as D grows (the words of D letters with w odd letters out of N have the generating
    # function sinh^w cosh^(N-w), and cosh^2 - sinh^2 = 1), so the worst character has d + 1 positions. A mean
    # t lies in [-m, m], m the largest absolute value, hence P(|t| > tolerance) >= (E[t^2] - tolerance^2) /
    # m^2.
    ends = queries.value_range or (-1.0, 1.0)
    largest = max(abs(ends[0]), abs(ends[1]))
    chance = (epsilon * survival_probability(degree + 1, degree) - tolerance**2) / largest**2
    if chance <= 0:
        raise InputError(f"tolerance {tolerance} hides a weight of {epsilon} above degree {degree}; make it smaller")
    return _trials(chance, confidence)


def _trials(chance: float, confidence: float) -> int:
    """How many trials see an event of this chance at least once with the stated confidence."""
    return 1 if chance >= 1 else max(1, math.ceil(math.log(1 - confidence) / math.log1p(-chance)))


def _finding_trials(finds: int, chance: float, confidence: float) -> int:
    """How many trials of this chance succeed at least ``finds`` times with the stated confidence."""
    from scipy.special import bdtr

    high = finds
    while bdtr(finds - 1, high, chance) > 1 - confidence:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if middle >= finds and bdtr(finds - 1, middle, chance) <= 1 - confidence:
            high = middle
        else:
            low = middle
    return high


def _energy_outside(
    queries: Queries,
    free: int,
    confidence: float,
    share: float,
    restrictions: int | None,
    seed: Seed,
    max_queries: int,
) -> Floats:
    """Energy outside the k = 0, 1, ... largest coefficients of random restrictions, one restriction per row."""
    from flipscope.cube.spectrum import walsh_hadamard

    free = min(check_count("free", free), queries.n)
    if free > _LARGEST_FREE:
        raise InputError(f"free is {free}; at most {_LARGEST_FREE} positions can be transformed in full")
    confidence = check_confidence(confidence)
    if not 0 < share < 1:
        raise InputError(f"share must lie strictly between 0 and 1, not {share}")
    count = _trials(share, confidence) if restrictions is None else check_count("restrictions", restrictions)
    _check_budget(count << free, max_queries, f"transforming {count} restrictions to {free} positions")
    cube = index_bits(0, 1 << free, free)
    outside = np.zeros((count, len(cube) + 1))
    for row, rng in enumerate(generators(seed, count)):
        positions = np.sort(rng.permutation(queries.n)[:free])
        coefficients = walsh_hadamard(_on_subcube(queries, rng, positions, cube)) / len(cube)
        outside[row, :-1] = np.cumsum(np.sort(coefficients**2))[::-1]
    return outside


def _on_subcube(queries: Queries, rng: np.random.Generator, positions: NDArray[np.int64], cube: Bits) -> Floats:
    """Values on all settings of the positions, the others fixed at random."""
    base = random_strings(rng, 1, queries.n)
    values = np.empty(len(cube))
    for start in range(0, len(cube), queries.rows):
        part = cube[start : start + queries.rows]
        points = np.repeat(base, len(part), axis=0)
        points[:, positions] = part
        values[start : start + queries.rows] = queries.signs(points)
    return values


def _sparsity_result(outside: Floats, sparsity: int, epsilon: float, confidence: float, asked: int) -> TestResult:
    largest = float(outside[:, min(sparsity, outside.shape[1] - 1)].max())
    accepted = largest <= epsilon
    seen = "no restriction" if accepted else "a restriction"
    note = f"{seen} of {len(outside)} has energy above {epsilon} outside its {sparsity} largest coefficients"
    return TestResult(accepted, largest, asked, epsilon, confidence, note)


def _sweep(results: list[TestResult], note: str) -> Sweep:
    value = len(results) - 1 if results and results[-1].accepted else None
    return Sweep(value, results, sum(result.queries for result in results), note)


def _check_epsilon(epsilon: float) -> float:
    if isinstance(epsilon, bool) or not 0 < epsilon <= 1:
        raise InputError(f"epsilon must lie between 0 (excluded) and 1, not {epsilon}")
    return float(epsilon)


def _check_budget(planned: int, max_queries: int, what: str) -> None:
    if planned > check_count("max_queries", max_queries):
        raise _OverBudget(f"{what} takes {planned} queries; raise max_queries ({max_queries})")
