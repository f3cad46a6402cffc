"""Learning from queries: the large Fourier coefficients wherever they are, and all those of low degree."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import Bits, index_bits
from flipscope.basics.checks import check_confidence, check_count
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate, Floats, proportions
from flipscope.basics.seeds import Seed, generators, random_strings
from flipscope.cube.estimate import DEFAULT_BATCH_ROWS, Queries, Range
from flipscope.cube.structure import Oracle

_LEVEL_BITS = 8  # positions decided at once, as long as the work fits into memory
_LEVEL_CELLS = 1 << 22
_MAX_TERMS = 2_000_000


@dataclass(frozen=True)
class HeavyCoefficients:
    """The sets with a large coefficient, their estimates (which hold together), and the cost."""

    coefficients: dict[tuple[int, ...], Estimate]
    threshold: float
    confidence: float
    queries: int


@dataclass(frozen=True)
class LowDegreeHypothesis:
    """A polynomial of low degree learned from random strings; calling it predicts 0/1 values by its sign.

    ``terms`` lists the sets as rows of positions, padded with n. All estimated coefficients, also those left
    out by pruning, are within ``half_width`` of the true ones with the stated confidence.
    """

    n: int
    degree: int
    terms: NDArray[np.int64]
    coefficients: Floats
    half_width: float
    confidence: float
    samples: int
    queries: int

    def real(self, bits: Bits) -> Floats:
        """The polynomial at strings of shape (m, n), in the -1/1 form."""
        strings = np.asarray(bits)
        if strings.ndim != 2 or strings.shape[1] != self.n:
            raise InputError(f"strings must have shape (m, {self.n}), not {strings.shape}")
        if not bool(np.all((strings == 0) | (strings == 1))):
            raise InputError("strings must hold only 0 and 1")
        out = np.zeros(len(strings))
        # Row n is the constant 1, which pads the terms of lower degree.
        signs = np.ones((self.n + 1, len(strings)), np.float32)
        signs[: self.n] -= 2 * strings.T
        block = max(1, _LEVEL_CELLS // max(1, len(strings)))
        for start in range(0, len(self.terms), block):
            columns = self.terms[start : start + block].T
            product = signs[columns[0]]
            for column in columns[1:]:
                product *= signs[column]
            out += self.coefficients[start : start + block] @ product
        return out

    def __call__(self, bits: Bits) -> Bits:
        return (self.real(bits) < 0).astype(np.uint8)


@checked_arguments
def goldreich_levin(
    oracle: Oracle,
    n: int,
    threshold: float,
    confidence: float = 0.95,
    seed: Seed = 0,
    *,
    max_queries: int = 50_000_000,
    batch_rows: int = DEFAULT_BATCH_ROWS,
) -> HeavyCoefficients:
    """All sets with |f^(S)| >= threshold and none below half of it, with probability ``confidence``.

    The search tree of Kushilevitz and Mansour: a node fixes which of the first k positions are in S, its
    weight is the sum of f^(S)^2 below it, and only nodes that may weigh threshold^2 are kept, so at most a
    multiple of 1 / threshold^2 at any level. Takes about (n / 8) / threshold^3 queries, up to constants and
    logarithms.
    """
    queries = Queries(oracle, n, None, batch_rows)
    confidence = check_confidence(confidence)
    if not 0 < threshold <= 1:
        raise InputError(f"threshold must lie between 0 (excluded) and 1, not {threshold}")
    budget = check_count("max_queries", max_queries)
    error = (1 - confidence) / 2  # half for the search, half for the final estimates
    # At most 1 / threshold^2 sets are to be kept, each at no more than n levels.
    groups, size = _level_samples(threshold, error * threshold**2 / n)
    for_search, for_estimates = generators(seed, 2)
    prefixes = np.zeros((1, 0), np.uint8)
    _spend(queries, -(-n // _LEVEL_BITS) * groups * size, budget, threshold)
    while prefixes.shape[1] < n:
        _spend(queries, groups * size, budget, threshold)
        width = min(_LEVEL_BITS, n - prefixes.shape[1])
        while width > 1 and (len(prefixes) * groups << width) > 1 << 26:
            width -= 1
        prefixes = _next_level(queries, prefixes, width, groups, size, threshold, for_search)
        if len(prefixes) == 0:
            return HeavyCoefficients({}, threshold, confidence, queries.asked)
    # Hoeffding: every coefficient within threshold / 4, so that 3/4 of the threshold tells the two kinds
    # apart.
    samples = math.ceil(32 * math.log(2 * len(prefixes) / error) / threshold**2)
    _spend(queries, samples, budget, threshold)
    estimates = _coefficients(queries, prefixes, samples, confidence, for_estimates)
    heavy_sets = {
        tuple(np.flatnonzero(prefix).tolist()): estimate
        for prefix, estimate in zip(prefixes, estimates, strict=True)
        if abs(estimate.value) >= 0.75 * threshold
    }
    by_size = sorted(heavy_sets.items(), key=lambda item: (-abs(item[1].value), item[0]))
    return HeavyCoefficients(dict(by_size), threshold, confidence, queries.asked)


@checked_arguments
def low_degree_learner(
    oracle: Oracle,
    n: int,
    degree: int,
    samples: int = 10_000,
    seed: Seed = 0,
    *,
    confidence: float = 0.95,
    prune: bool = False,
    value_range: Range | None = None,
    batch_rows: int = DEFAULT_BATCH_ROWS,
) -> LowDegreeHypothesis:
    """The polynomial of all coefficients up to a degree, estimated (Linial, Mansour and Nisan).

    Takes one query per sample. If f has weight at most e above the degree, the polynomial is within
    e + terms * half_width^2 of f in mean square, and a Boolean f differs from the predicted sign on at most
    that share of the strings. To ``prune`` is to leave out the coefficients that could be zero, which brings
    this down to e + 4 * (coefficients that are not zero) * half_width^2: better for sparse spectra, worse for
    dense ones.
    """
    queries = Queries(oracle, n, value_range, batch_rows)
    degree, samples = check_count("degree", degree, 0), check_count("samples", samples)
    confidence = check_confidence(confidence)
    degree = min(degree, n)
    count = sum(math.comb(n, k) for k in range(degree + 1))
    if count > _MAX_TERMS:
        raise InputError(f"degree {degree} on {n} bits has more than {_MAX_TERMS} coefficients; choose a lower degree")
    (rng,) = generators(seed, 1)
    terms = _all_terms(n, degree)
    sums = np.zeros(count)
    rows = max(1, _LEVEL_CELLS // max(n, 64))
    for start in range(0, samples, rows):
        strings = random_strings(rng, min(rows, samples - start), n)
        sums += _character_sums(1 - 2 * strings.astype(np.float32), queries.signs(strings), n, degree)
    low, high = queries.value_range or (-1.0, 1.0)
    spread = 2 * max(abs(low), abs(high))
    # Hoeffding, for all coefficients together.
    half_width = spread * math.sqrt(math.log(2 * count / (1 - confidence)) / (2 * samples))
    coefficients = sums / samples
    if prune:
        kept = np.abs(coefficients) > half_width
        terms, coefficients = terms[kept], coefficients[kept]
    return LowDegreeHypothesis(n, degree, terms, coefficients, half_width, confidence, samples, queries.asked)


def _level_samples(threshold: float, error: float) -> tuple[int, int]:
    """How many groups of how many samples make a node of weight threshold^2 or more pass with this error.

    A node passes with an estimate of half of threshold^2. Its estimate is the mean over the groups of a pair
    statistic of mean w, variance at most w (1 + 4 / size) + 2 / (size (size - 1)) and values above -1 / (size
    - 1), so that Bernstein's inequality bounds the chance of falling so low; w = threshold^2 is the hardest
    case.
    """
    weight = threshold**2
    size = 2 + math.ceil(math.sqrt(2 / weight))
    variance = weight * (1 + 4 / size) + 2 / (size * (size - 1))
    drop, reach = weight / 2, weight + 1 / (size - 1)
    groups = math.ceil(2 * math.log(1 / error) * (variance + drop * reach / 3) / drop**2)
    return groups, size


def _next_level(
    queries: Queries,
    prefixes: Bits,
    width: int,
    groups: int,
    size: int,
    threshold: float,
    rng: np.random.Generator,
) -> Bits:
    """The children of the prefixes, ``width`` positions longer, whose estimated weight is large enough.

    The weight of S on the first k positions is E_z[F_z(S)^2], F_z(S) = E_x[f(x z) chi_S(x)] over the first k
    bits x. A group shares one z; the mean product of two different samples of a group is an unbiased estimate
    of F_z(S)^2.
    """
    decided, n = prefixes.shape[1], queries.n
    depth = decided + width
    children = index_bits(0, 1 << width, width)
    table, place = _signs(children, children), 1 << np.arange(width)
    weights = np.zeros((len(prefixes), len(children)))
    # Blocks bound the memory for the strings and for the sums below.
    block = max(1, min(_LEVEL_CELLS // (size * n), _LEVEL_CELLS // (max(size, len(prefixes)) << width)))
    for start in range(0, groups, block):
        count = min(block, groups - start)
        strings = np.repeat(random_strings(rng, count, n), size, axis=0)
        strings[:, :depth] = random_strings(rng, count * size, depth)
        values = queries.signs(strings).astype(np.float32)
        parents = _signs(strings[:, :decided], prefixes) * values[:, None]
        ends = table[strings[:, decided:depth] @ place]
        sums = parents.reshape(count, size, -1).transpose(0, 2, 1) @ ends.reshape(count, size, -1)
        weights += np.square(sums, out=sums).sum(axis=0)
    weights = (weights / groups - size) / (size * (size - 1))
    parent, child = np.nonzero(weights >= threshold**2 / 2)
    most = math.ceil(32 / threshold**2)
    if len(parent) > most:  # far more than can weigh enough: keep the heaviest, and memory bounded
        heaviest = np.sort(np.argsort(-weights[parent, child], kind="stable")[:most])
        parent, child = parent[heaviest], child[heaviest]
    return np.concatenate((prefixes[parent], children[child]), axis=1)


def _coefficients(
    queries: Queries, sets: Bits, samples: int, confidence: float, rng: np.random.Generator
) -> list[Estimate]:
    unequal = np.zeros(len(sets), np.int64)
    rows = max(1, min(queries.rows, _LEVEL_CELLS // len(sets)))
    for start in range(0, samples, rows):
        strings = random_strings(rng, min(rows, samples - start), queries.n)
        signs = _signs(strings, sets) * queries.signs(strings).astype(np.float32)[:, None]
        unequal += np.count_nonzero(signs < 0, axis=0)
    shares = proportions(unequal, samples, confidence, queries=queries.asked)
    return [share.scaled(-2.0, 1.0) for share in shares]


def _signs(strings: Bits, sets: Bits) -> NDArray[np.float32]:
    """chi_S(x) for every string (row) and every set (column), the sets as 0/1 rows."""
    # Counts of at most 2^24 are exact in float32, and a float product is by far the fastest way to get them.
    odd = (strings.astype(np.float32) @ sets.astype(np.float32).T).astype(np.int32) & 1
    return 1 - 2 * odd.astype(np.float32)


def _all_terms(n: int, degree: int) -> NDArray[np.int64]:
    """All sets of at most ``degree`` positions as rows padded with n, by size and then in order."""
    blocks = []
    for size in range(degree + 1):
        sets = np.full((math.comb(n, size), max(1, degree)), n, np.int64)
        if size:
            flat = itertools.chain.from_iterable(itertools.combinations(range(n), size))
            sets[:, :size] = np.fromiter(flat, np.int64, sets.shape[0] * size).reshape(-1, size)
        blocks.append(sets)
    return np.concatenate(blocks)


def _character_sums(signs: NDArray[np.float32], values: Floats, n: int, degree: int) -> Floats:
    """Sum over the strings of f(x) chi_S(x) for every set of ``_all_terms``, in its order."""
    weighted = values.astype(np.float32)
    parts: list[Floats] = [np.array([values.sum()])]
    for size in range(1, degree + 1):
        rest: list[Floats] = []
        # All sets that begin with the same size - 1 positions are one product with the positions after them.
        for head in itertools.combinations(range(n), size - 1):
            after = head[-1] + 1 if head else 0
            if after < n:
                product = weighted * signs[:, list(head)].prod(axis=1)
                rest.append((product @ signs[:, after:]).astype(np.float64))
        parts.append(np.concatenate(rest))
    return np.concatenate(parts)


def _spend(queries: Queries, planned: int, budget: int, threshold: float) -> None:
    if queries.asked + planned > budget:
        raise InputError(
            f"finding coefficients of {threshold} takes more than max_queries ({budget}) queries;"
            " raise the threshold or max_queries"
        )
