"""How often intervals hold: at least the nominal confidence, less one point, over hundreds of repetitions.

The truths are formulas or sums over all strings, written out here. Anytime intervals are also stopped at the
worst moment there is: the first at which they miss the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from repetitions import repeated

from flipscope.basics.estimates import Estimate, Validity, mean_from_samples, profile_from_counts, proportion_bounds
from flipscope.cube.estimate import (
    average_sensitivity,
    estimate_function,
    fourier_coefficient,
    influences,
    noise_stability,
    profile,
)

# With 400 repetitions a coverage of 0.85 instead of 0.9 is found with a probability of 98 %, and one of 0.8, which
# intervals of half the error have, surely.
REPETITIONS = repeated(1000, 400)
CONFIDENCE = 0.9  # lower than usual, so that intervals that are too narrow show

Oracle = Callable[[Any], Any]


def parity(bits: Any) -> Any:
    return bits.sum(axis=1, dtype=np.int64) & 1


def majority(bits: Any) -> Any:
    return (2 * bits.sum(axis=1, dtype=np.int64) > bits.shape[1]).astype(np.uint8)


def conjunction(bits: Any) -> Any:
    """AND of three positions, whatever the number of bits."""
    return bits[:, :3].all(axis=1)


def dictator(bits: Any) -> Any:
    return bits[:, 2]


TABLE = np.random.default_rng(11).integers(0, 2, 256, dtype=np.uint8)
PLACE = 1 << np.arange(8)


def scattered(bits: Any) -> Any:
    """A random function of 8 bits: many different sensitivities and influences."""
    return TABLE[bits @ PLACE]


CHANGES = np.stack([TABLE[np.arange(256) ^ (1 << i)] != TABLE for i in range(8)], axis=1)

# function, n, exact average sensitivity
AVERAGES: dict[str, tuple[Oracle, int, float]] = {
    "parity": (parity, 9, 9.0),
    "majority": (majority, 9, 9 * math.comb(8, 4) / 2**8),
    "conjunction": (conjunction, 12, 3 / 4),
    "dictator": (dictator, 30, 1.0),
    "scattered": (scattered, 8, CHANGES.sum() / 256),
}


def majority_profile(n: int) -> NDArray[np.float64]:
    """Two middle layers of strings have sensitivity (n + 1) / 2, all others 0 (n odd)."""
    shares = np.zeros(n + 1)
    shares[(n + 1) // 2] = 2 * math.comb(n, n // 2) / 2**n
    shares[0] = 1 - shares[(n + 1) // 2]
    return shares


PROFILES: dict[str, tuple[Oracle, int, NDArray[np.float64]]] = {
    "parity": (parity, 5, np.eye(6)[5]),
    "majority": (majority, 9, majority_profile(9)),
    "conjunction": (conjunction, 7, np.array([4, 3, 0, 1, 0, 0, 0, 0]) / 8),
    "scattered": (scattered, 8, np.bincount(CHANGES.sum(axis=1), minlength=9) / 256),
}
INFLUENCES: dict[str, tuple[Oracle, int, NDArray[np.float64]]] = {
    "majority": (majority, 7, np.full(7, math.comb(6, 3) / 2**6)),
    "conjunction": (conjunction, 7, np.array([1, 1, 1, 0, 0, 0, 0]) / 4),
    "scattered": (scattered, 8, CHANGES.mean(axis=0)),
}


def holds(estimate: Estimate, truth: float) -> bool:
    return bool(estimate.low <= truth <= estimate.high)


def all_hold(estimates: list[Estimate], truths: NDArray[np.float64]) -> bool:
    return all(holds(estimate, truth) for estimate, truth in zip(estimates, truths, strict=True))


def coverage(hits: Callable[[int], bool], repetitions: int = REPETITIONS) -> float:
    return sum(hits(seed) for seed in range(repetitions)) / repetitions


@pytest.mark.parametrize("name", AVERAGES)
def test_average_sensitivity_at_a_fixed_size(name: str) -> None:
    oracle, n, truth = AVERAGES[name]
    told = coverage(
        lambda seed: holds(average_sensitivity(oracle, n, samples=150, confidence=CONFIDENCE, seed=seed), truth)
    )
    assert told >= CONFIDENCE - 0.01


@pytest.mark.parametrize("name", ["majority", "conjunction"])
def test_average_sensitivity_when_sampling_stops_by_itself(name: str) -> None:
    oracle, n, truth = AVERAGES[name]
    told = coverage(
        lambda seed: holds(average_sensitivity(oracle, n, precision=n / 7, confidence=CONFIDENCE, seed=seed), truth)
    )
    assert told >= CONFIDENCE - 0.01


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_hold_for_all_counts_together(name: str) -> None:
    oracle, n, truths = PROFILES[name]
    told = coverage(lambda seed: all_hold(profile(oracle, n, samples=60, confidence=CONFIDENCE, seed=seed), truths))
    assert told >= CONFIDENCE - 0.01


def test_profiles_hold_together_when_sampling_stops_by_itself() -> None:
    oracle, n, truths = PROFILES["scattered"]
    told = coverage(lambda seed: all_hold(profile(oracle, n, precision=0.22, confidence=CONFIDENCE, seed=seed), truths))
    assert told >= CONFIDENCE - 0.01


@pytest.mark.parametrize("name", INFLUENCES)
def test_influences_hold_together(name: str) -> None:
    oracle, n, truths = INFLUENCES[name]
    told = coverage(lambda seed: all_hold(influences(oracle, n, samples=60, confidence=CONFIDENCE, seed=seed), truths))
    assert told >= CONFIDENCE - 0.01


def test_influences_hold_together_when_sampling_stops_by_itself() -> None:
    oracle, n, truths = INFLUENCES["scattered"]
    told = coverage(
        lambda seed: all_hold(influences(oracle, n, precision=0.22, confidence=CONFIDENCE, seed=seed), truths)
    )
    assert told >= CONFIDENCE - 0.01


@pytest.mark.parametrize(
    ("oracle", "n", "rho", "truth"),
    [
        (parity, 3, 0.8, 0.8**3),
        (dictator, 9, -0.4, -0.4),
        (majority, 3, 0.6, 3 / 4 * 0.6 + 1 / 4 * 0.6**3),  # coefficients 1/2, 1/2, 1/2 and -1/2
    ],
    ids=["parity", "dictator", "majority"],
)
def test_noise_stability(oracle: Oracle, n: int, rho: float, truth: float) -> None:
    told = coverage(
        lambda seed: holds(noise_stability(oracle, n, rho, samples=120, confidence=CONFIDENCE, seed=seed), truth)
    )
    assert told >= CONFIDENCE - 0.01


@pytest.mark.parametrize(
    ("oracle", "n", "positions", "truth"),
    [(majority, 3, (0, 1, 2), -0.5), (conjunction, 9, (0, 2), -0.25)],
    ids=["majority", "conjunction"],
)
@pytest.mark.parametrize("validity", ["fixed", "anytime"])
def test_coefficients(oracle: Oracle, n: int, positions: tuple[int, ...], truth: float, validity: Validity) -> None:
    plan: dict[str, Any] = {"samples": 120} if validity == "fixed" else {"precision": 0.28}
    told = coverage(
        lambda seed: holds(fourier_coefficient(oracle, n, positions, confidence=CONFIDENCE, seed=seed, **plan), truth)
    )
    assert told >= CONFIDENCE - 0.01


def test_every_part_of_the_combined_estimate() -> None:
    stability = _stability(0.7)
    truths = CHANGES.mean(axis=0), np.bincount(CHANGES.sum(axis=1), minlength=9) / 256
    held = np.zeros(6)
    for seed in range(REPETITIONS):
        told = estimate_function(scattered, 8, 50, seed, CONFIDENCE, rhos=(0.7,))
        held += [
            all_hold(told.influences, truths[0]),
            all_hold(told.profile, truths[1]),
            holds(told.average_sensitivity, CHANGES.sum() / 256),
            holds(told.zero_share, truths[1][0]),
            holds(told.noise_stability[0.7], stability),
            holds(told.mean, TABLE.mean()),
        ]
    assert np.all(held / REPETITIONS >= CONFIDENCE - 0.01)


def _stability(rho: float) -> float:
    """E[f(x) f(y)] over all pairs of strings, by definition."""
    index = np.arange(256)
    apart = np.bitwise_count(index[:, None] ^ index)
    chance = ((1 - rho) / 2) ** apart * ((1 + rho) / 2) ** (8 - apart) / 256
    signs = 1 - 2.0 * TABLE
    return float(signs @ chance @ signs)


def _middle_layers(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    """Sensitivities of majority(101) on random strings, over 101: 0 or 51/101."""
    return np.where(np.isin(rng.binomial(101, 0.5, size), (50, 51)), 51 / 101, 0.0)


BOUNDED: dict[str, tuple[Callable[[np.random.Generator, int], NDArray[np.float64]], float]] = {
    "coin": (lambda rng, size: rng.binomial(1, 0.5, size) * 1.0, 0.5),
    "rare": (lambda rng, size: rng.binomial(1, 0.03, size) * 1.0, 0.03),
    "common": (lambda rng, size: rng.binomial(1, 0.97, size) * 1.0, 0.97),
    "majority": (_middle_layers, 51 / 101 * 2 * math.comb(101, 50) / 2**101),
    "uniform": (lambda rng, size: rng.random(size), 0.5),
    "skewed": (lambda rng, size: rng.random(size) ** 8, 1 / 9),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_bounded_means_at_a_fixed_size(name: str) -> None:
    draw, truth = BOUNDED[name]
    rng = np.random.default_rng(1)
    told = coverage(lambda _: holds(mean_from_samples(draw(rng, 60), 0, 1, CONFIDENCE), truth))
    assert told >= CONFIDENCE - 0.01


@pytest.mark.parametrize("name", ["coin", "rare", "majority", "skewed"])
def test_bounded_means_stopped_at_the_worst_moment(name: str) -> None:
    draw, truth = BOUNDED[name]
    rng = np.random.default_rng(2)

    def never_misses(_: int) -> bool:
        samples = draw(rng, 100)
        return all(
            holds(mean_from_samples(samples[:size], 0, 1, CONFIDENCE, "anytime"), truth) for size in (5, 25, 100)
        )

    assert coverage(never_misses) >= CONFIDENCE - 0.01


@pytest.mark.parametrize("chance", [0.5, 0.2, 0.02, 0.999])
def test_proportions_stopped_at_the_worst_moment(chance: float) -> None:
    rng = np.random.default_rng(3)
    hits = np.cumsum(rng.random((1000, 400)) < chance, axis=1)
    looks = np.unique(np.geomspace(1, 400, 40).astype(int))
    trials = np.broadcast_to(looks, (1000, looks.size))
    low, high = proportion_bounds(hits[:, looks - 1], trials, 1 - CONFIDENCE, "anytime")
    never_missed = np.all((low <= chance) & (chance <= high), axis=1)
    assert never_missed.mean() >= CONFIDENCE - 0.01


def test_fixed_intervals_fail_at_the_worst_moment() -> None:
    """The reason for two validities: a fixed interval, watched until it misses, misses far too often."""
    rng = np.random.default_rng(4)
    hits = np.cumsum(rng.random((1000, 400)) < 0.5, axis=1)
    trials = np.broadcast_to(np.arange(1, 401), hits.shape)
    low, high = proportion_bounds(hits, trials, 1 - CONFIDENCE, "fixed")
    never_missed = np.all((low <= 0.5) & (high >= 0.5), axis=1)
    assert never_missed.mean() < CONFIDENCE - 0.15
    last = (low[:, -1] <= 0.5) & (high[:, -1] >= 0.5)
    assert last.mean() >= CONFIDENCE - 0.01


def test_separate_intervals_would_not_hold_together() -> None:
    """The reason for simultaneous intervals: nine separate ones miss somewhere more often than one may."""
    _, n, truths = PROFILES["scattered"]
    rng = np.random.default_rng(5)
    together = separate = 0
    for _ in range(REPETITIONS):
        counts = rng.choice(n + 1, size=200, p=truths)
        together += all_hold(profile_from_counts(counts, n, CONFIDENCE), truths)
        low, high = proportion_bounds(np.bincount(counts, minlength=n + 1), 200, 1 - CONFIDENCE, "fixed")
        separate += bool(np.all((low <= truths) & (truths <= high)))
    assert together / REPETITIONS >= CONFIDENCE - 0.01
    assert separate / REPETITIONS < CONFIDENCE - 0.1
