"""Laws that hold for every Boolean function, over random functions of every construction with up to 10 bits.

The fast answers are compared with ``cube.reference``, which computes each quantity from its definition alone.
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from cube import reference
from cube.reference import index_of, strings
from cube.strategies import Built, any_function, built, string_arrays
from hypothesis import example, given, settings
from hypothesis import strategies as st
from repetitions import repeated

from flipscope.cube import functions, sensitivity, spectrum
from flipscope.cube.expression import parse
from flipscope.cube.functions import BooleanFunction

few, some, many = (settings(max_examples=repeated(*counts)) for counts in ((100, 40), (250, 80), (800, 160)))


def two_of_equal_length(most: int = 8) -> st.SearchStrategy[tuple[Built, Built]]:
    return st.integers(1, most).flatmap(lambda n: st.tuples(built(n), built(n)))


def three_of_equal_length(most: int = 6) -> st.SearchStrategy[tuple[BooleanFunction, ...]]:
    return st.integers(1, most).flatmap(lambda n: st.tuples(*[built(n, 1).map(lambda one: one.f)] * 3))


# ---------------------------------------------------------------- fast = definition


@many
@given(any_function())
def test_values_and_sensitivity_are_those_of_the_definition(case: Built) -> None:
    f, table, n = case.f, case.table, case.n
    assert f(np.array(strings(n), np.uint8)).tolist() == table
    assert f.table().tolist() == table
    expected = reference.sensitivities(table)
    assert sensitivity.all_sensitivities(f).tolist() == expected
    assert sensitivity.profile(f) == reference.profile(table)
    assert sensitivity.zero_strings(f) == expected.count(0)
    assert sensitivity.count_ones(f) == sum(table)
    assert sensitivity.average_sensitivity(f) == reference.average_sensitivity(table)
    assert sensitivity.influences(f) == reference.influences(table)
    assert sensitivity.max_sensitivity(f) == max(expected)
    assert sensitivity.min_sensitivity(f) == min(expected)
    assert expected[index_of(sensitivity.argmax_string(f))] == max(expected)
    assert expected[index_of(sensitivity.argmin_string(f))] == min(expected)
    relevant = {j for j, influence in enumerate(reference.influences(table)) if influence}
    assert relevant <= set(f.support)


@many
@given(any_function(most=7))
@example(Built(parse("maj(x1..x5) ^ x6"), [], "maj(x1..x5) ^ x6"))
def test_what_is_shown_as_symmetric_is_a_function_of_the_number_of_ones(case: Built) -> None:
    if "symmetric on" not in repr(case.f):
        return
    every = np.array(strings(case.n), np.uint8)
    ones = every[:, list(case.f.support)].sum(axis=1)
    values = case.f(every)
    assert all(len(set(values[ones == count].tolist())) == 1 for count in set(ones.tolist())), repr(case.f)


@many
@given(any_function(most=8))
def test_the_spectrum_is_that_of_the_definition(case: Built) -> None:
    f, table, n = case.f, case.table, case.n
    expected = reference.coefficients(table)
    assert spectrum.coefficients(f) == expected
    assert spectrum.weight_by_degree(f) == reference.weight_by_degree(table)
    assert spectrum.weight_floats(f) == [float(w) for w in reference.weight_by_degree(table)]
    assert spectrum.degree(f) == max(len(chosen) for chosen in expected)
    assert spectrum.sparsity(f) == len(expected)
    assert spectrum.spectral_norm(f) == sum(abs(value) for value in expected.values())
    assert sum(value**2 for value in expected.values()) == 1
    assert sum(spectrum.weight_by_degree(f)) == 1  # Parseval, exactly
    signs = 1 - 2 * f.table().astype(np.int64)
    scaled = spectrum.walsh_hadamard(signs)
    assert scaled.tolist() == reference.scaled_coefficients(table)
    assert spectrum.inverse_walsh_hadamard(scaled / 2**n).tolist() == signs.tolist()


@some
@given(st.data(), any_function(most=8))
def test_single_coefficients_and_single_strings(data: st.DataObject, case: Built) -> None:
    f, table, n = case.f, case.table, case.n
    expected, sensitive = reference.coefficients(table), reference.sensitivities(table)
    for _ in range(4):
        chosen = data.draw(st.sets(st.integers(0, n - 1)))
        assert spectrum.coefficient(f, chosen) == expected.get(tuple(sorted(chosen)), 0)
    rows = data.draw(string_arrays(n))
    assert f(rows).tolist() == [table[index_of(row)] for row in rows]
    assert sensitivity.string_sensitivity(f, rows).tolist() == [sensitive[index_of(row)] for row in rows]


@some
@given(any_function(most=6), st.floats(-1, 1), st.floats(0, 1))
def test_noise_stability_is_the_sum_over_all_pairs(case: Built, rho: float, delta: float) -> None:
    f, table = case.f, case.table
    assert spectrum.noise_stability(f, rho) == pytest.approx(reference.noise_stability(table, rho), abs=1e-12)
    assert spectrum.noise_sensitivity(f, delta) == pytest.approx(reference.noise_sensitivity(table, delta), abs=1e-12)


@some
@given(any_function(most=5))
def test_blocks_and_certificates_are_those_of_the_definition(case: Built) -> None:
    assert sensitivity.block_sensitivity(case.f) == reference.block_sensitivity(case.table)
    assert sensitivity.certificate_complexity(case.f) == reference.certificate_complexity(case.table)


@few
@given(st.integers(0, 6).flatmap(lambda n: st.lists(st.floats(-8, 8), min_size=2**n, max_size=2**n)))
def test_real_functions_obey_the_definitions_too(values: list[float]) -> None:
    n = len(values).bit_length() - 1
    table = np.array(values)
    by_definition = reference.characters(n) @ table / 2**n
    known = spectrum.RealSpectrum.of(values)
    assert np.allclose(known.coefficients, by_definition, atol=1e-12)
    assert np.allclose(known.table(), table, atol=1e-12)
    assert known.weight_by_degree().sum() == pytest.approx(np.mean(table**2), abs=1e-10)
    changes = (table[reference.neighbours(n)] - table[:, None]) ** 2
    assert np.allclose(sensitivity.real_sensitivity(table), changes.sum(axis=1))
    # The identity as(f) = sum |S| f^(S)^2 holds for real values with a quarter of the squared differences.
    assert known.average_sensitivity() == pytest.approx(changes.sum() / 2**n / 4, abs=1e-9)


# ---------------------------------------------------------------- identities and inequalities


@many
@given(any_function())
def test_average_sensitivity_from_three_sides_and_totals(case: Built) -> None:
    f, n = case.f, case.n
    average = sensitivity.average_sensitivity(f)
    counts = sensitivity.profile(f)
    assert len(counts) == n + 1
    assert sum(counts) == 2**n
    assert average == Fraction(sum(s * count for s, count in enumerate(counts)), 2**n)
    assert average == sum(sensitivity.influences(f))
    weights = spectrum.weight_by_degree(f)
    assert average == sum(size * weight for size, weight in enumerate(weights))
    assert sum(weights) == 1
    positive = [s for s, count in enumerate(counts) if count]
    assert (positive[0], positive[-1]) == (sensitivity.min_sensitivity(f), sensitivity.max_sensitivity(f))
    assert spectrum.coefficient(f, []) == 1 - Fraction(2 * sensitivity.count_ones(f), 2**n)
    assert spectrum.degree(f) <= sensitivity.max_sensitivity(f) ** 2  # Huang 2019
    assert average <= spectrum.degree(f)
    assert spectrum.spectral_norm(f) ** 2 <= spectrum.sparsity(f)
    share = Fraction(min(sensitivity.count_ones(f), 2**n - sensitivity.count_ones(f)), 2**n)
    assert average >= 4 * share * (1 - share)  # Poincare
    if share:
        assert float(average) >= 2 * share * math.log2(1 / share) - 1e-9  # edge-isoperimetric


@some
@given(any_function(most=7))
def test_measures_of_complexity_are_ordered(case: Built) -> None:
    s, bs = sensitivity.max_sensitivity(case.f), sensitivity.block_sensitivity(case.f)
    certificate, degree = sensitivity.certificate_complexity(case.f), spectrum.degree(case.f)
    assert s <= bs <= certificate <= s * bs  # the last by Nisan 1989
    assert degree <= certificate**2
    assert bs <= degree**2  # Tal 2013
    assert certificate <= case.n


@some
@given(any_function(), st.floats(0, 1), st.floats(0, 1))
def test_noise_stability_grows_with_the_correlation(case: Built, a: float, b: float) -> None:
    f = case.f
    low, high = sorted((a, b))
    assert spectrum.noise_stability(f, low) <= spectrum.noise_stability(f, high) + 1e-12
    assert spectrum.noise_stability(f, 1) == pytest.approx(1, abs=1e-12)
    assert spectrum.noise_stability(f, 0) == pytest.approx(float(spectrum.coefficient(f, []) ** 2), abs=1e-15)
    assert abs(spectrum.noise_stability(f, -low)) <= spectrum.noise_stability(f, low) + 1e-12
    assert spectrum.noise_sensitivity(f, 0) == pytest.approx(0, abs=1e-12)
    assert spectrum.noise_sensitivity(f, a / 2) == pytest.approx(0.5 - spectrum.noise_stability(f, 1 - a) / 2)
    # Its slope at 1 is the average sensitivity; by convexity every chord from there is flatter.
    if low < 1:
        chord = (1 - spectrum.noise_stability(f, low)) / (1 - low)
        assert chord <= float(sensitivity.average_sensitivity(f)) + 1e-6 / (1 - low)


@some
@given(any_function())
def test_the_level_inequality_holds(case: Built) -> None:
    ones = sensitivity.count_ones(case.f)
    share = min(ones, 2**case.n - ones) / 2**case.n
    if not 0 < share < math.exp(-0.5):  # it says nothing of constants and of functions that are nearly balanced
        case = Built(functions.conjunction(case.n + 1), [], "conjunction")
        share = 0.5 ** (case.n)
    for level in range(1, int(2 * math.log(1 / share)) + 1):
        low, bound = spectrum.level_inequality(case.f, level)
        weights = spectrum.weight_by_degree(case.f)
        assert low == pytest.approx(share**2 + float(sum(weights[1 : level + 1])) / 4)
        assert low <= bound * (1 + 1e-12)


# ---------------------------------------------------------------- what operations do to the numbers


@some
@given(any_function())
def test_negation_changes_values_and_nothing_else(case: Built) -> None:
    f, g = case.f, ~case.f
    assert g.table().tolist() == [1 - value for value in case.table]
    assert sensitivity.profile(g) == sensitivity.profile(f)
    assert sensitivity.influences(g) == sensitivity.influences(f)
    assert sensitivity.count_ones(g) == 2**case.n - sensitivity.count_ones(f)
    assert spectrum.coefficients(g) == {chosen: -value for chosen, value in spectrum.coefficients(f).items()}
    assert spectrum.weight_by_degree(g) == spectrum.weight_by_degree(f)
    assert ~g == f
    assert g != f
    assert (f ^ g) == BooleanFunction.constant(1, case.n)


@some
@given(st.data(), any_function(least=2, most=8))
def test_restriction_fixes_bits_and_averages_out(data: st.DataObject, case: Built) -> None:
    f, n = case.f, case.n
    position = data.draw(st.integers(0, n - 1))
    zero, one = f.restrict({position: 0}), f.restrict({position: 1})
    rest = [p for p in range(n) if p != position]
    for bit, part in ((0, zero), (1, one)):
        expected = [value for x, value in zip(strings(n), case.table, strict=True) if x[position] == bit]
        assert part.table().tolist() == expected
    halves = zip(sensitivity.influences(zero), sensitivity.influences(one), strict=True)
    whole = sensitivity.influences(f)
    assert [whole[p] for p in rest] == [(a + b) / 2 for a, b in halves]
    # Shannon's expansion; and the derivative's mean is the influence.
    variable = BooleanFunction.variable(position, n)
    low, high = zero.extend(n, rest), one.extend(n, rest)
    assert (variable & high) | (~variable & low) == f
    assert Fraction(sensitivity.count_ones(low ^ high), 2**n) == whole[position]
    assert sensitivity.max_sensitivity(zero) <= sensitivity.max_sensitivity(f)
    assert spectrum.degree(zero) <= spectrum.degree(f)
    assert f.restrict({}) == f


@some
@given(st.data(), any_function(most=8))
def test_permuting_positions_permutes_the_answers(data: st.DataObject, case: Built) -> None:
    f, n = case.f, case.n
    order = data.draw(st.permutations(range(n)))
    g = f.permute(order)
    assert sensitivity.profile(g) == sensitivity.profile(f)
    influences = sensitivity.influences(g)
    assert [influences[p] for p in order] == sensitivity.influences(f)
    moved = {tuple(sorted(order[p] for p in s)): value for s, value in spectrum.coefficients(f).items()}
    assert spectrum.coefficients(g) == moved
    assert g.permute(np.argsort(order)) == f


@some
@given(st.data(), any_function(most=7))
def test_irrelevant_bits_only_repeat(data: st.DataObject, case: Built) -> None:
    f, n = case.f, case.n
    m = data.draw(st.integers(n, 40))
    positions = data.draw(st.permutations(range(m)))[:n]
    g = f.extend(m, positions)
    assert sensitivity.profile(g) == [count << (m - n) for count in sensitivity.profile(f)] + [0] * (m - n)
    assert sensitivity.average_sensitivity(g) == sensitivity.average_sensitivity(f)
    influences = sensitivity.influences(g)
    assert [influences[p] for p in positions] == sensitivity.influences(f)
    assert sum(influences) == sum(sensitivity.influences(f))
    moved = {tuple(sorted(positions[p] for p in s)): value for s, value in spectrum.coefficients(f).items()}
    assert spectrum.coefficients(g) == moved
    for string, wanted in (
        (sensitivity.argmax_string(g), sensitivity.max_sensitivity(f)),
        (sensitivity.argmin_string(g), sensitivity.min_sensitivity(f)),
    ):
        assert string.shape == (m,)
        assert sensitivity.string_sensitivity(g, string).tolist() == [wanted]
    others = dict.fromkeys(sorted(set(range(m)) - set(positions)), 1)
    assert g.restrict(others) == f.permute(np.argsort(np.argsort(positions)))


@some
@given(three_of_equal_length())
def test_the_algebra_is_boolean(three: tuple[BooleanFunction, ...]) -> None:
    f, g, h = three
    zero, one = BooleanFunction.constant(0, f.n), BooleanFunction.constant(1, f.n)
    assert ~(f & g) == ~f | ~g
    assert ~(f | g) == ~f & ~g
    assert f & (g | h) == (f & g) | (f & h)
    assert f & (g ^ h) == (f & g) ^ (f & h)
    assert f ^ g == (f & ~g) | (~f & g)
    assert (f ^ g) ^ g == f
    assert f & (f | g) == f
    assert (f & f, f | f, f & one, f | zero, f ^ zero) == (f, f, f, f, f)
    assert (f ^ f, f & ~f, f & zero) == (zero, zero, zero)
    assert (f | ~f, f ^ ~f, f | one) == (one, one, one)
    assert (f & g) & h == f & (g & h)
    assert (f | g) | h == h | (f | g)
    assert functions.gate([0, 0, 1, 1], three) == (f & g) | (f & h) | (g & h)
    assert functions.gate([0, 1, 0, 1], three) == f ^ g ^ h


@some
@given(two_of_equal_length())
def test_equality_is_equality_of_values_and_hashes_follow(pair: tuple[Built, Built]) -> None:
    a, b = pair
    assert (a.f == b.f) is (a.table == b.table)
    for case in pair:
        again = BooleanFunction.from_table(case.table)
        assert case.f == again
        assert hash(case.f) == hash(again)
    changed = list(a.table)
    changed[len(changed) // 3] ^= 1
    assert a.f != BooleanFunction.from_table(changed)
    assert a.f != a.table
    assert len({a.f, BooleanFunction.from_table(a.table), ~a.f}) == 2


@some
@given(st.data(), st.integers(1, 4), st.integers(1, 7))
def test_composition_composes(data: st.DataObject, k: int, n: int) -> None:
    outer = data.draw(built(k, 1))
    inners = [data.draw(built(n, 1)) for _ in range(k)]
    f = outer.f.compose([inner.f for inner in inners])
    rows = np.array(strings(n), np.uint8)
    assert f(rows).tolist() == outer.f(np.stack([inner.f(rows) for inner in inners], axis=-1)).tolist()
    variables = [BooleanFunction.variable(p, k) for p in range(k)]
    assert outer.f.compose(variables) == outer.f
    bits = [data.draw(st.integers(0, 1)) for _ in range(k)]
    fixed = outer.f.compose([BooleanFunction.constant(bit, n) for bit in bits])
    assert fixed == BooleanFunction.constant(outer.table[index_of(bits)], n)
    assert sensitivity.profile(fixed)[0] == 2**n


@some
@given(st.integers(1, 5).flatmap(lambda n: st.tuples(built(n, 1), st.integers(1, 5).flatmap(lambda m: built(m, 1)))))
def test_answers_of_disjoint_parts_compose(parts: tuple[Built, Built]) -> None:
    (a, b), n = parts, parts[0].n + parts[1].n
    f, g = a.f.extend(n), b.f.extend(n, range(a.n, n))
    # Exclusive or: sensitivities add, coefficients multiply.
    assert sensitivity.average_sensitivity(f ^ g) == (
        sensitivity.average_sensitivity(a.f) + sensitivity.average_sensitivity(b.f)
    )
    assert sensitivity.profile(f ^ g) == np.convolve(reference.profile(a.table), reference.profile(b.table)).tolist()
    assert spectrum.degree(f ^ g) == spectrum.degree(a.f) + spectrum.degree(b.f)
    assert spectrum.sparsity(f ^ g) == spectrum.sparsity(a.f) * spectrum.sparsity(b.f)
    assert spectrum.spectral_norm(f ^ g) == spectrum.spectral_norm(a.f) * spectrum.spectral_norm(b.f)
    assert sensitivity.count_ones(f & g) == sum(a.table) * sum(b.table)
    assert spectrum.noise_stability(f ^ g, 0.4) == pytest.approx(
        spectrum.noise_stability(a.f, 0.4) * spectrum.noise_stability(b.f, 0.4)
    )


@few
@given(case=any_function())
def test_saving_and_loading_gives_the_same_function(tmp_path_factory: pytest.TempPathFactory, case: Built) -> None:
    path: Path = tmp_path_factory.getbasetemp() / "function.npz"
    case.f.save(path)
    again = BooleanFunction.load(path)
    assert again == case.f
    assert hash(again) == hash(case.f)
    assert again.table().tolist() == case.table
    assert sensitivity.profile(again) == reference.profile(case.table)
    assert [left.name for left in path.parent.iterdir() if left.name.startswith("function")] == ["function.npz"]
