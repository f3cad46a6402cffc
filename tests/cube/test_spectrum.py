"""Spectra by closed forms against spectra by truth tables; sparse spectra inside many bits; real functions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from cube import reference
from cube.messages import one_sentence
from cube.strategies import Built, repeated
from hypothesis import given, settings
from hypothesis import strategies as st

from flipscope.cube import functions, sensitivity, spectrum
from flipscope.cube.expression import parse
from flipscope.cube.functions import BooleanFunction, gate
from flipscope.cube.spectrum import RealSpectrum, symmetric_coefficients

RHOS = (-1.0, -0.3, 0.0, 0.5, 0.9, 1.0)


def through_a_table(f: BooleanFunction) -> BooleanFunction:
    """The same function without its structure."""
    return BooleanFunction.from_table(f.table())


def assert_same_spectrum(f: BooleanFunction, g: BooleanFunction) -> None:
    assert spectrum.weight_by_degree(f) == spectrum.weight_by_degree(g)
    assert spectrum.degree(f) == spectrum.degree(g)
    assert spectrum.sparsity(f) == spectrum.sparsity(g)
    assert spectrum.spectral_norm(f) == spectrum.spectral_norm(g)
    for rho in RHOS:
        assert spectrum.noise_stability(f, rho) == pytest.approx(spectrum.noise_stability(g, rho), abs=1e-12)


# ---------------------------------------------------------------- symmetric functions


@pytest.mark.parametrize("n", range(1, 7))
def test_every_value_vector_up_to_six_bits(n: int) -> None:
    sizes = [sum(string) for string in reference.strings(n)]
    for values in itertools.product((0, 1), repeat=n + 1):
        table = [values[size] for size in sizes]
        by_size = symmetric_coefficients(np.array(values, np.uint8))
        assert [by_size[size] for size in sizes] == reference.scaled_coefficients(table)
        f = BooleanFunction.symmetric(values)
        assert spectrum.weight_by_degree(f) == reference.weight_by_degree(table)
        assert_same_spectrum(f, BooleanFunction.from_table(table))


@pytest.mark.parametrize("n", range(7, 15))
def test_random_value_vectors_to_fourteen_bits(n: int) -> None:
    for seed in range(4):
        f = functions.random_symmetric(n, seed)
        g = through_a_table(f)
        assert_same_spectrum(f, g)
        for size in range(n + 1):
            assert spectrum.coefficient(f, range(size)) == spectrum.coefficient(g, range(n - size, n))


def test_majority_of_21_bits() -> None:
    f = functions.majority(21)
    average = Fraction(21 * math.comb(20, 10), 2**20)
    weights = spectrum.weight_by_degree(f)
    assert sensitivity.average_sensitivity(f) == average == sum(d * w for d, w in enumerate(weights))
    assert sum(weights) == 1
    assert weights[::2] == [0] * 11  # an odd function has odd degrees only
    assert spectrum.degree(f) == 21
    assert spectrum.sparsity(f) == 2**20
    assert weights[1] == 21 * Fraction(math.comb(20, 10), 2**20) ** 2
    # O'Donnell 2014, Theorem 5.19: |f^(S)|, |S| = k odd, for majority of n bits.
    for k in range(1, 22, 2):
        half = math.comb(10, (k - 1) // 2)
        expected = Fraction(half, math.comb(20, k - 1)) * Fraction(2, 2**21) * math.comb(20, 10)
        found = spectrum.coefficient(f, range(k))
        assert abs(found) == expected
        assert (found > 0) is (k % 4 == 1)
    assert_same_spectrum(f, through_a_table(f))


def test_noise_stability_of_majority_approaches_the_arcsine_law() -> None:
    """Sheppard's formula: Stab_rho(Maj_n) -> (2 / pi) arcsin(rho), from above for rho > 0."""
    for rho in (0.2, 0.5, 0.9):
        gaps = [
            spectrum.noise_stability(functions.majority(n), rho) - 2 / math.pi * math.asin(rho) for n in (11, 101, 1001)
        ]
        assert gaps[0] > gaps[1] > gaps[2] > 0
        assert gaps[2] < 2e-3


NOISY = {
    "majority": functions.majority(101),
    "parity": functions.parity(1000),
    "even parity": ~functions.parity(6),
    "conjunction": functions.conjunction(20),
    "random table": functions.random(9, 4),
    "table": BooleanFunction.from_table(0b10010111, 3),
    "junta": functions.sparse_majority(7, 5000),
    "parts": parse("maj(x1..x5) ^ tribes(3, x6..x14) ^ x15"),
    "gate of parts": parse("maj(x1 & x2, x3 ^ x4, maj(x5..x7), x8, x9)"),
    "cancelled parts": parse("maj(x1..x3) ^ ~maj(x1..x3) ^ (x4 & x5)"),
    "constant": BooleanFunction.constant(1, 4),
}
CHANCES = (0.0, 1e-300, 1e-17, 1e-8, 0.01, 0.3, 0.5 - 2**-54, 0.5, 0.5 + 2**-53, 0.8, 1 - 1e-8, 1 - 2**-53, 1.0)


@pytest.mark.parametrize("name", NOISY)
def test_noise_sensitivity_keeps_its_digits_at_every_chance(name: str) -> None:
    """Against the sum of W_d (1 - (1 - 2 delta)^d) / 2 in fractions, where nothing is rounded."""
    f = NOISY[name]
    weights = [(d, weight) for d, weight in enumerate(spectrum.weight_by_degree(f)) if weight]
    for delta in CHANCES:
        rho = 1 - 2 * Fraction(delta)
        expected = float(sum((weight * (1 - rho**d) / 2 for d, weight in weights), Fraction(0)))
        assert spectrum.noise_sensitivity(f, delta) == pytest.approx(expected, rel=1e-13, abs=0)


def test_noise_sensitivity_of_few_flips_is_average_sensitivity_times_their_chance() -> None:
    for f in (functions.majority(101), functions.parity(10_000), functions.random(8, 1).extend(2000)):
        for delta in (1e-300, 1e-17):
            expected = float(sensitivity.average_sensitivity(f)) * delta
            assert spectrum.noise_sensitivity(f, delta) == pytest.approx(expected, rel=1e-12, abs=0)


def test_weights_of_thousands_of_bits_stay_exact() -> None:
    f = functions.majority(2001)
    weights = spectrum.weight_floats(f)
    assert math.fsum(weights) == pytest.approx(1, abs=1e-12)
    known = spectrum.weights(f)
    assert known.mean**2 + sum(known.squares.values()) == 4**known.bits
    total = Fraction(sum(d * s for d, s in known.squares.items()), 4**known.bits)
    assert total == sensitivity.average_sensitivity(f)
    assert spectrum.degree(functions.parity(10_000)) == 10_000
    assert spectrum.noise_stability(functions.parity(1000), 0.999) == pytest.approx(0.999**1000)


# ---------------------------------------------------------------- juntas and disjoint parts


@pytest.mark.parametrize("seed", range(6))
def test_a_sparse_spectrum_inside_a_thousand_bits(seed: int) -> None:
    inner = functions.random(5, seed)
    positions = np.random.default_rng(seed).permutation(1000)[:5].tolist()
    f = inner.extend(1000, positions)
    expected = {
        tuple(sorted(positions[p] for p in chosen)): value
        for chosen, value in reference.coefficients(inner.table().tolist()).items()
    }
    assert spectrum.coefficients(f) == expected
    assert spectrum.weight_by_degree(f)[:6] == spectrum.weight_by_degree(inner)
    assert spectrum.weight_by_degree(f)[6:] == [0] * 995
    for chosen, value in expected.items():
        assert spectrum.coefficient(f, chosen) == value
        outside = next(p for p in range(1000) if p not in positions)
        assert spectrum.coefficient(f, [*chosen, outside]) == 0


def test_sparse_parity_has_one_coefficient_at_any_n() -> None:
    f = functions.sparse_parity(7, 9000, seed=4)
    assert spectrum.coefficients(f) == {f.support: 1}
    assert spectrum.coefficients(~f) == {f.support: -1}
    assert spectrum.coefficient(f, f.support[:-1]) == 0


@pytest.mark.parametrize("outer", [*range(0, 256, 5), 150, 232])
def test_gates_over_disjoint_parts(outer: int) -> None:
    parts = [functions.majority(3), functions.random(4, outer), functions.tribes(4, 2)]
    places = [[0, 10, 2], [1, 3, 4, 9], [5, 8, 7, 6]]
    children = [part.extend(11, place) for part, place in zip(parts, places, strict=True)]
    f = BooleanFunction.from_table(outer, 3).compose(children)
    g = through_a_table(f)
    assert_same_spectrum(f, g)
    for chosen in ([], [0], [0, 1], [10, 9, 8], [5, 6, 7, 8], range(11)):
        assert spectrum.coefficient(f, chosen) == spectrum.coefficient(g, chosen)


def test_parts_far_beyond_any_table() -> None:
    """Majority of three disjoint majorities of 101 bits: the parts are odd, so the outer spectrum is scaled."""
    parts = [functions.majority(101).extend(303, range(101 * i, 101 * i + 101)) for i in range(3)]
    f = gate([0, 0, 1, 1], parts)
    single = spectrum.coefficient(functions.majority(101), [0])
    assert spectrum.coefficient(f, [0]) == single / 2
    assert spectrum.coefficient(f, [0, 101, 202]) == -(single**3) / 2
    assert spectrum.coefficient(f, [0, 101]) == 0
    assert sum(spectrum.weight_by_degree(f)) == 1
    assert spectrum.noise_stability(f, 0.7) == pytest.approx(
        0.75 * (s := spectrum.noise_stability(functions.majority(101), 0.7)) + 0.25 * s**3
    )


def test_bent_functions_are_flat() -> None:
    """The inner product of two halves: every coefficient has the same magnitude."""
    for k in (1, 2, 5, 12, 100):
        pairs = [functions.conjunction(2).extend(2 * k, [2 * i, 2 * i + 1]) for i in range(k)]
        f = gate(np.arange(k + 1) % 2, pairs)
        assert spectrum.sparsity(f) == 4**k
        assert spectrum.spectral_norm(f) == 2**k
        assert spectrum.degree(f) == 2 * k
        assert spectrum.coefficient(f, range(2 * k)) == Fraction((-1) ** k, 2**k)


# ---------------------------------------------------------------- parts that fold to constants or lose variables

FOLDING = [
    "x1 -> x2 -> x1",  # 1 everywhere, which shows only when the parts are joined
    "maj(x1..x3) ^ ~maj(x1..x3) ^ (x4 & x5)",
    "(maj(x1..x3) & ~maj(x1..x3)) | (x4 & x5)",
    "mux(x6, x1 -> x2 -> x1, x4 ^ x5)",
    "maj(x1 -> x2 -> x1, x3 & x4, x5 -> x6 -> x5)",
    "maj(x1..x3) ^ maj(x1..x3)",
    "(x1 | x2) ^ (x2 | x1) ^ x2",
    "(x1 & (x2 | x3)) ^ (x1 & (x2 | x3)) ^ (x2 & x3)",
    "table(0b1100)",  # reads x2 only
    "table(0b1111, n=2) & x3",
]


@pytest.mark.parametrize("text", FOLDING)
def test_every_coefficient_of_functions_that_lose_variables(text: str) -> None:
    f = parse(text)
    table = f.table().tolist()
    expected = reference.coefficients(table)
    for size in range(f.n + 1):
        for chosen in itertools.combinations(range(f.n), size):
            assert spectrum.coefficient(f, chosen) == expected.get(chosen, 0)
    assert_same_spectrum(f, BooleanFunction.from_table(table))
    assert sensitivity.profile(f) == reference.profile(table)
    assert sensitivity.influences(f) == reference.influences(table)


@settings(max_examples=150)
@given(st.integers(2, 5).flatmap(repeated))
def test_every_coefficient_where_parts_come_again_and_cancel(case: Built) -> None:
    expected = reference.scaled_coefficients(case.table)
    for chosen, value in zip(reference.strings(case.n), expected, strict=True):
        positions = [j for j, bit in enumerate(chosen) if bit]
        assert spectrum.coefficient(case.f, positions) == Fraction(value, 2**case.n)
    assert spectrum.weight_by_degree(case.f) == reference.weight_by_degree(case.table)
    assert spectrum.sparsity(case.f) == sum(map(bool, expected))
    assert sensitivity.profile(case.f) == reference.profile(case.table)
    assert sensitivity.influences(case.f) == reference.influences(case.table)


# ---------------------------------------------------------------- the level inequality


def test_the_level_inequality_on_subcubes_and_balls() -> None:
    for f in (functions.conjunction(8), functions.threshold(9, 10), functions.random(9, 2) & functions.conjunction(9)):
        ones = sensitivity.count_ones(f)
        if ones == 0:
            continue
        share = ones / 2**f.n
        for k in range(1, int(2 * math.log(1 / share)) + 1):
            low, bound = spectrum.level_inequality(f, k)
            assert 0 < low <= bound
            assert bound == pytest.approx((2 * math.e / k * math.log(1 / share)) ** k * share**2)


def test_the_level_inequality_of_nearly_constant_functions() -> None:
    low, bound = spectrum.level_inequality(functions.conjunction(5000), 3)
    assert low <= bound
    low, bound = spectrum.level_inequality(~functions.conjunction(300), 1)
    assert 0 < low <= bound
    with one_sentence("constant"):
        spectrum.level_inequality(BooleanFunction.constant(1, 5), 1)


# ---------------------------------------------------------------- real functions


def test_real_spectrum_of_the_mean() -> None:
    n = 6
    mean = np.array([sum((-1) ** bit for bit in string) / n for string in reference.strings(n)])
    known = RealSpectrum.of(mean)
    assert known.n == n
    assert known.degree() == 1
    assert known.sparsity() == n
    assert known.coefficient([3]) == pytest.approx(1 / n)
    assert known.coefficient([]) == pytest.approx(0)
    assert known.coefficient([3, 3]) == known.coefficient([3])
    assert known.average_sensitivity() == pytest.approx(1 / n)
    assert known.noise_stability(0.5) == pytest.approx(0.5 / n)
    assert known.spectral_norm() == pytest.approx(1)
    assert np.allclose(known.table(), mean)


def test_real_spectrum_of_signs_is_the_boolean_one() -> None:
    f = functions.random(7, 3)
    known = RealSpectrum.of(1 - 2.0 * f.table())
    assert known.weight_by_degree().tolist() == spectrum.weight_floats(f)
    assert known.average_sensitivity() == float(sensitivity.average_sensitivity(f))
    assert known.degree() == spectrum.degree(f)
    assert known.sparsity() == spectrum.sparsity(f)
    assert known.spectral_norm() == float(spectrum.spectral_norm(f))
    for rho in RHOS:
        assert known.noise_stability(rho) == pytest.approx(spectrum.noise_stability(f, rho))


def test_real_spectrum_tolerance_and_constants() -> None:
    assert RealSpectrum.of([0.0, 0.0]).degree() == 0
    assert RealSpectrum.of([0.0, 0.0]).sparsity() == 0
    assert RealSpectrum.of([5.0]).coefficient([]) == 5
    nearly = RealSpectrum.of([1.0, 1.0 + 1e-12])
    assert (nearly.degree(), nearly.degree(tolerance=0.0)) == (0, 1)
    for values in ([], [1, 2, 3], [1.0, np.nan], [[1.0, 2.0]], ["a", "b"], [1j, 2]):
        with one_sentence():
            RealSpectrum.of(values)
        with one_sentence():
            sensitivity.real_sensitivity(values)  # type: ignore[arg-type]
    with one_sentence("outside"):
        RealSpectrum.of([1.0, 2.0]).coefficient([1])
    with one_sentence("correlation"):
        RealSpectrum.of([1.0, 2.0]).noise_stability(1.5)
