"""Exact numbers of the zoo against formulas known from elsewhere, at sizes no truth table reaches."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from cube import reference

from flipscope.cube import functions, sensitivity, spectrum
from flipscope.cube.functions import BooleanFunction, gate


def apart(parts: list[BooleanFunction]) -> list[BooleanFunction]:
    """The functions side by side on one long string."""
    n, at, out = sum(part.n for part in parts), 0, []
    for part in parts:
        out.append(part.extend(n, range(at, at + part.n)))
        at += part.n
    return out


def assert_same_answers(f: BooleanFunction, g: BooleanFunction) -> None:
    """Every exact answer agrees, and the extreme strings are extreme."""
    assert sensitivity.profile(f) == sensitivity.profile(g)
    assert sensitivity.influences(f) == sensitivity.influences(g)
    assert sensitivity.count_ones(f) == sensitivity.count_ones(g)
    assert spectrum.weight_by_degree(f) == spectrum.weight_by_degree(g)
    assert spectrum.sparsity(f) == spectrum.sparsity(g)
    assert spectrum.spectral_norm(f) == spectrum.spectral_norm(g)
    for h in (f, g):
        assert sensitivity.string_sensitivity(h, sensitivity.argmax_string(h)) == sensitivity.max_sensitivity(g)
        assert sensitivity.string_sensitivity(h, sensitivity.argmin_string(h)) == sensitivity.min_sensitivity(g)


# ---------------------------------------------------------------- the zoo


@pytest.mark.parametrize("n", [1, 2, 31, 1000, 10_000])
def test_parity_is_sensitive_everywhere(n: int) -> None:
    for f in (functions.parity(n), ~functions.parity(n)):
        assert sensitivity.profile(f) == [0] * n + [2**n]
        assert sensitivity.average_sensitivity(f) == n
        assert (sensitivity.min_sensitivity(f), sensitivity.max_sensitivity(f)) == (n, n)
        assert sensitivity.zero_strings(f) == 0
        assert set(sensitivity.influences(f)) == {1}
        assert sensitivity.count_ones(f) == 2 ** (n - 1)
        assert (spectrum.degree(f), spectrum.sparsity(f), spectrum.spectral_norm(f)) == (n, 1, 1)


@pytest.mark.parametrize("n", [3, 5, 21, 101, 999])
def test_majority_of_an_odd_number_of_bits(n: int) -> None:
    """Paper 000, section 2.1: 2 C(N, m+1) strings of sensitivity m + 1 and no other sensitive ones, N = 2m + 1."""
    f, m = functions.majority(n), n // 2
    expected = [0] * (n + 1)
    expected[m + 1] = 2 * math.comb(n, m + 1)
    expected[0] = 2**n - expected[m + 1]
    assert sensitivity.profile(f) == expected
    assert sensitivity.max_sensitivity(f) == m + 1
    assert sensitivity.min_sensitivity(f) == 0
    assert sensitivity.average_sensitivity(f) == Fraction(n * math.comb(n - 1, m), 2 ** (n - 1))
    assert set(sensitivity.influences(f)) == {Fraction(math.comb(n - 1, m), 2 ** (n - 1))}
    assert sensitivity.count_ones(f) == 2 ** (n - 1)
    assert sensitivity.argmax_string(f).sum() in (m, m + 1)
    assert abs(2 * int(sensitivity.argmin_string(f).sum()) - n) > 1


@pytest.mark.parametrize("n", [2, 4, 20, 100, 1000])
def test_majority_of_an_even_number_of_bits(n: int) -> None:
    """Paper 000, section 2.1: C(N, m) balanced strings of sensitivity m, C(N, m+1) of m + 1, N = 2m."""
    f, m = functions.majority(n), n // 2
    expected = [0] * (n + 1)
    expected[m] = math.comb(n, m)
    expected[m + 1] = math.comb(n, m + 1)
    expected[0] = 2**n - expected[m] - expected[m + 1]
    assert sensitivity.profile(f) == expected
    assert sensitivity.max_sensitivity(f) == m + 1
    assert sensitivity.average_sensitivity(f) == sensitivity.average_sensitivity(functions.majority(max(1, n - 1)))


def test_average_sensitivities_of_majority_for_three_to_twelve_bits() -> None:
    known = [1.5, 1.5, 1.875, 1.875, 2.1875, 2.1875, 2.4609375, 2.4609375, 2.70703125, 2.70703125]
    assert [float(sensitivity.average_sensitivity(functions.majority(n))) for n in range(3, 13)] == known


def test_average_sensitivity_of_majority_grows_like_a_square_root() -> None:
    for n in (1001, 9999):
        ratio = float(sensitivity.average_sensitivity(functions.majority(n))) / math.sqrt(2 * n / math.pi)
        assert ratio == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("n", [2, 7, 64, 5000])
def test_conjunction_and_disjunction(n: int) -> None:
    for f in (functions.conjunction(n), functions.disjunction(n), ~functions.conjunction(n)):
        expected = [2**n - n - 1, n] + [0] * (n - 2) + [1]
        assert sensitivity.profile(f) == expected
        assert sensitivity.average_sensitivity(f) == Fraction(2 * n, 2**n)
        assert sensitivity.max_sensitivity(f) == n
    assert sensitivity.argmax_string(functions.conjunction(n)).all()
    assert not sensitivity.argmax_string(functions.disjunction(n)).any()


@pytest.mark.parametrize("n", [1, 5, 100, 10_000])
def test_dictators(n: int) -> None:
    f = functions.dictator(n - 1, n)
    assert sensitivity.profile(f)[:2] == [0, 2**n]
    assert sensitivity.average_sensitivity(f) == 1
    assert sensitivity.influences(f) == [0] * (n - 1) + [1]
    assert spectrum.coefficients(f) == {(n - 1,): 1}
    assert functions.first(n) == functions.dictator(0, n)


@pytest.mark.parametrize(("k", "n"), [(1, 5), (3, 5), (40, 100), (100, 100), (7, 2000)])
def test_thresholds(k: int, n: int) -> None:
    f = functions.threshold(k, n)
    expected = [0] * (n + 1)
    expected[n - k + 1] += math.comb(n, k - 1)
    expected[k] += math.comb(n, k)
    expected[0] += 2**n - sum(expected)
    assert sensitivity.profile(f) == expected
    assert sensitivity.average_sensitivity(f) == Fraction(2 * k * math.comb(n, k), 2**n)


@pytest.mark.parametrize(("width", "tribe_count", "spare"), [(1, 4, 0), (3, 4, 2), (2, 60, 1), (8, 100, 5)])
def test_tribes(width: int, tribe_count: int, spare: int) -> None:
    n = width * tribe_count + spare
    f = functions.tribes(n, width) if spare < width else functions.tribes(width * tribe_count, width).extend(n)
    silent = 2**width - 1  # assignments of one tribe that are not all ones
    assert sensitivity.count_ones(f) == 2**n - silent**tribe_count * 2**spare
    influence = Fraction(2 * silent ** (tribe_count - 1), 2 ** (width * tribe_count))
    assert sensitivity.influences(f)[: n - spare] == [influence] * (n - spare)
    assert sensitivity.influences(f)[n - spare :] == [0] * spare
    # A string of value 0 is sensitive once for every tribe with a single zero; of value 1 only if one tribe decides.
    ways = [0] * (n + 1)
    for almost in range(tribe_count + 1):
        rest = (silent - width) ** (tribe_count - almost) * width**almost
        ways[almost] += math.comb(tribe_count, almost) * rest << spare
    ways[width] += tribe_count * silent ** (tribe_count - 1) << spare
    ways[0] += 2**n - sum(ways)
    assert sensitivity.profile(f) == ways


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_address_functions(k: int) -> None:
    """K_{1+j} = 2^n C(k, j) / 2^k: the data bit always, and each address bit when the bit it leads to differs."""
    f = functions.address(k)
    n = k + 2**k
    expected = [0] + [2**n * math.comb(k, j) // 2**k for j in range(k + 1)] + [0] * (n - k - 1)
    assert sensitivity.profile(f) == expected
    assert sensitivity.average_sensitivity(f) == 1 + Fraction(k, 2)
    assert sensitivity.influences(f) == [Fraction(1, 2)] * k + [Fraction(1, 2**k)] * 2**k
    assert spectrum.degree(f) == k + 1
    assert spectrum.sparsity(f) == 4**k


def test_random_functions_are_half_sensitive() -> None:
    """s(x) is Binomial(n, 1/2) for each string; the average over strings is far tighter."""
    for n in (10, 14, 18):
        average = float(sensitivity.average_sensitivity(functions.random(n, seed=n)))
        # Pairs of neighbours differ independently: n 2^(n-1) fair coins, each counted twice in 2^n strings.
        assert abs(average - n / 2) < 6 * math.sqrt(n / 2 / 2**n)
        assert abs(sensitivity.count_ones(functions.random(n, seed=n)) - 2 ** (n - 1)) < 6 * math.sqrt(2**n) / 2
    profile = sensitivity.profile(functions.random(18, seed=1))
    for s, count in enumerate(profile):
        expected = math.comb(18, s)
        assert abs(count - expected) < 10 * math.sqrt(19 * expected) + 10


def test_sparse_functions_inside_many_bits() -> None:
    f = functions.sparse_majority(5, 100, seed=3)
    assert sensitivity.profile(f)[:4] == [count << 95 for count in (12, 0, 0, 20)]
    assert sensitivity.average_sensitivity(f) == Fraction(15, 8)
    g = functions.sparse_parity(20, 100, seed=3)
    assert sensitivity.profile(g)[20] == 2**100
    h = functions.random_junta(16, 3000, seed=3)
    assert sum(sensitivity.profile(h)) == 2**3000
    assert len(h.support) == 16


def test_a_symmetric_function_of_ten_thousand_bits() -> None:
    f = functions.random_symmetric(10_000, seed=2)
    profile = sensitivity.profile(f)
    assert sum(profile) == 2**10_000
    average = sum(s * count for s, count in enumerate(profile))
    assert sensitivity.average_sensitivity(f) == Fraction(average, 2**10_000)


# ---------------------------------------------------------------- blocks and certificates


def test_blocks_and_certificates_of_all_functions_of_three_bits() -> None:
    for number in range(256):
        f = BooleanFunction.from_table(number, 3)
        table = [(number >> i) & 1 for i in range(8)]
        assert sensitivity.block_sensitivity(f) == reference.block_sensitivity(table)
        assert sensitivity.certificate_complexity(f) == reference.certificate_complexity(table)


def test_a_function_with_more_sensitive_blocks_than_sensitive_bits() -> None:
    """Whether four bits are sorted, up or down: s = 2 and bs = 3 (Ambainis 2006)."""
    table = reference.tabulate(lambda x: list(x) in (sorted(x), sorted(x)[::-1]), 4)
    f = BooleanFunction.from_table(table)
    assert sensitivity.max_sensitivity(f) == 2
    assert sensitivity.block_sensitivity(f) == reference.block_sensitivity(table) == 3
    assert sensitivity.certificate_complexity(f) == reference.certificate_complexity(table) == 3


def test_rows_of_pairs_separate_blocks_from_bits() -> None:
    """Rubinstein 1995: is some row of four 1100 or 0011; of three rows six blocks are sensitive but only four bits."""
    row = BooleanFunction.from_table([int(i in (0b0011, 0b1100)) for i in range(16)])
    f = gate([0, 1, 1, 1], apart([row] * 3))
    assert sensitivity.max_sensitivity(f) == 4
    assert sensitivity.block_sensitivity(f) == 6
    assert sensitivity.certificate_complexity(f) == 6  # two bits per row show that it is neither


def test_blocks_and_certificates_of_the_zoo() -> None:
    for n in (1, 2, 5, 8):
        for make in (functions.parity, functions.conjunction, functions.disjunction):
            assert sensitivity.block_sensitivity(make(n)) == n
            assert sensitivity.certificate_complexity(make(n)) == n
        for f in (functions.dictator(n - 1, n), functions.first(n).extend(5000)):
            assert (sensitivity.block_sensitivity(f), sensitivity.certificate_complexity(f)) == (1, 1)
        constant = BooleanFunction.constant(1, n)
        assert (sensitivity.block_sensitivity(constant), sensitivity.certificate_complexity(constant)) == (0, 0)
    assert sensitivity.certificate_complexity(functions.majority(9)) == 5
    assert sensitivity.block_sensitivity(functions.majority(9)) == 5
    assert sensitivity.certificate_complexity(functions.address(2)) == 3
    assert sensitivity.certificate_complexity(functions.tribes(12, 3)) == 4


# ---------------------------------------------------------------- disjoint parts

SMALL = [functions.majority(3), functions.random(4, 8), functions.tribes(4, 2), functions.address(1)]
VECTORS = {
    "xor": [0, 1, 0, 1, 0],
    "xnor": [1, 0, 1, 0, 1],
    "and": [0, 0, 0, 0, 1],
    "nand": [1, 1, 1, 1, 0],
    "or": [0, 1, 1, 1, 1],
    "nor": [1, 0, 0, 0, 0],
    "threshold": [0, 0, 1, 1, 1],
    "exactly two": [0, 0, 1, 0, 0],
    "not all equal": [0, 1, 1, 1, 0],
}


@pytest.mark.parametrize("values", VECTORS.values(), ids=VECTORS)
def test_compositions_against_their_tables(values: list[int]) -> None:
    f = gate(values, apart(SMALL))
    assert_same_answers(f, BooleanFunction.from_table(f.table()))


def test_nested_compositions_against_their_tables() -> None:
    a, b, c, d = apart(SMALL)
    for f in (
        (a & ~b) ^ (c | ~d),
        ~((a ^ b) & (c ^ d)),
        gate([0, 1, 0, 1, 1], [~a, b, ~c, d]),
        BooleanFunction.from_table(0b10010111, 3).compose([a ^ b, c, ~d]),
        (a | b | c) & d,
        (a ^ b ^ c) | (d & a),  # two parts share variables: these become a table, the rest composes
        (a & b) ^ (a | c) ^ d,
    ):
        assert_same_answers(f, BooleanFunction.from_table(f.table()))


def test_exclusive_or_of_large_parts_adds_sensitivities() -> None:
    parts = [functions.majority(101), functions.tribes(200, 5), functions.conjunction(50), functions.parity(649)]
    f = gate([0, 1, 0, 1, 0], apart(parts))
    assert f.n == 1000
    expected = [1]
    for part in parts:
        expected = polynomial_product(expected, sensitivity.profile(part))
    assert sensitivity.profile(f) == expected
    assert sensitivity.average_sensitivity(f) == sum(sensitivity.average_sensitivity(part) for part in parts)
    assert sensitivity.max_sensitivity(f) == sum(sensitivity.max_sensitivity(part) for part in parts)
    assert spectrum.degree(f) == sum(spectrum.degree(part) for part in parts)
    assert sensitivity.string_sensitivity(f, sensitivity.argmax_string(f)) == sensitivity.max_sensitivity(f)
    assert sensitivity.string_sensitivity(f, sensitivity.argmin_string(f)) == sensitivity.min_sensitivity(f)


def test_conjunction_of_large_parts() -> None:
    parts = [functions.majority(101), functions.majority(51), functions.threshold(3, 60)]
    f = gate([0, 0, 0, 1], apart(parts))
    ones = [sensitivity.count_ones(part) for part in parts]
    assert sensitivity.count_ones(f) == math.prod(ones)
    for i, part in enumerate(parts):
        others = math.prod(ones[:i] + ones[i + 1 :])
        share = Fraction(others, 2 ** (f.n - part.n))
        first = sum(p.n for p in parts[:i])
        assert sensitivity.influences(f)[first] == sensitivity.influences(part)[0] * share
    assert sensitivity.max_sensitivity(f) == 51 + 26 + 3
    assert sum(sensitivity.profile(f)) == 2**f.n
    g = ~gate([1, 1, 1, 0], apart(parts))
    assert sensitivity.profile(g) == sensitivity.profile(f)


def test_hundreds_of_parts() -> None:
    """The 200-fold exclusive or of ands of three: sensitivity is (3 with chance 1/8, 1 with 3/8, else 0), summed."""
    f = gate(np.arange(201) % 2, apart([functions.conjunction(3)] * 200))
    expected = [1]
    for _ in range(200):
        expected = polynomial_product(expected, [4, 3, 0, 1])
    assert sensitivity.profile(f) == expected
    assert sensitivity.average_sensitivity(f) == 200 * Fraction(3, 4)
    assert spectrum.sparsity(f) == 8**200
    assert spectrum.coefficient(f, range(600)) == Fraction(1, 4) ** 200


def polynomial_product(a: list[int], b: list[int]) -> list[int]:
    """Coefficients of the product of two polynomials, term by term."""
    out = [0] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        if x:
            for j, y in enumerate(b):
                out[i + j] += x * y
    return out


def test_gates_over_symmetric_functions_of_the_same_bits_stay_symmetric():
    """Majority xor parity on 101 bits has no truth table; as one value vector it is exact."""
    f = functions.majority(101) ^ functions.parity(101)
    vector = [(2 * ones > 101) ^ (ones % 2) for ones in range(102)]
    assert f == BooleanFunction.symmetric(vector)
    assert sum(sensitivity.profile(f)) == 2**101
    assert (functions.majority(101) ^ functions.majority(101)) == BooleanFunction.constant(0, 101)
    small = functions.majority(7) & ~functions.parity(7)
    strings = np.array([[(index >> j) & 1 for j in range(7)] for index in range(128)], np.uint8)
    expected = (strings.sum(1) > 3) & (strings.sum(1) % 2 == 0)
    np.testing.assert_array_equal(small.table(), expected)
    assert len(small.support) == 7
