"""The Walsh-Hadamard transform: every element type, against the definition, inverted, on one thread and on several."""

from __future__ import annotations

import numpy as np
import pytest
from cube import reference
from cube.messages import one_sentence
from hypothesis import given, settings
from hypothesis import strategies as st
from repetitions import repeated

from flipscope.basics import bits
from flipscope.cube.spectrum import inverse_walsh_hadamard, table_coefficients, walsh_hadamard
from flipscope.native import compiled, walsh

TYPES = [np.float32, np.float64, np.int32, np.int64]


def whole_numbers(n: int, dtype: type) -> np.ndarray:
    """Small whole numbers, on which every type is exact."""
    return np.random.default_rng(n).integers(-4, 5, 1 << n).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", range(11))
def test_transform_is_the_definition(n: int, dtype: type) -> None:
    values = whole_numbers(n, dtype)
    out = values.copy()
    walsh.transform(out)
    assert out.dtype == dtype
    assert np.array_equal(out, reference.characters(n) @ values.astype(np.int64))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [11, 12, 13, 14, 15, 16, 17, 18, 19])
def test_long_transforms_agree_level_by_level(n: int, dtype: type) -> None:
    values = whole_numbers(n, dtype)
    out = values.copy()
    walsh.transform(out)
    assert np.array_equal(out, reference.fast_hadamard(values.astype(np.int64)))


def test_the_two_references_agree() -> None:
    for n in range(9):
        values = whole_numbers(n, np.int64)
        assert np.array_equal(reference.fast_hadamard(values), reference.characters(n) @ values)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [0, 1, 5, 8, 15, 18, 20])
def test_twice_is_the_length_times_the_table(n: int, dtype: type) -> None:
    values = np.random.default_rng(n).integers(-1, 2, 1 << n).astype(dtype)
    out = values.copy()
    walsh.transform(out)
    walsh.transform(out)
    # float32 holds 2^20 times these exactly; sums on the way stay below 2^24.
    assert np.array_equal(out / (1 << n), values)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 18, 19, 20])
def test_a_packed_table_is_transformed_like_its_signs(n: int, dtype: type) -> None:
    values = np.random.default_rng(n).integers(0, 2, 1 << n, np.uint8)
    signs = (1 - 2 * values.astype(np.int64)).astype(dtype)
    walsh.transform(signs)
    out = walsh.transform_table(bits.pack(values), dtype)
    assert out.dtype == dtype
    assert np.array_equal(out, signs)


@pytest.mark.parametrize("n", range(9))
def test_coefficients_of_packed_tables_of_any_size(n: int) -> None:
    values = np.random.default_rng(n).integers(0, 2, 1 << n, np.uint8)
    out = table_coefficients(bits.pack(values), n)
    assert out.tolist() == reference.scaled_coefficients(values.tolist())


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_the_number_of_threads_changes_nothing(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).integers(0, 2, 1 << 19, np.uint8)
    signs = 1 - 2 * values.astype(np.int64)
    expected = reference.fast_hadamard(signs)
    monkeypatch.setattr(compiled, "cores", lambda: workers)
    out = walsh.transform_table(bits.pack(values), np.int32)
    assert np.array_equal(out, expected)
    floats = signs.astype(np.float64)
    walsh.transform(floats)
    assert np.array_equal(floats, expected)
    sizes = np.bitwise_count(np.arange(1 << 19, dtype=np.uint64))
    squares, nonzero, magnitudes = walsh.sums_by_degree(out)
    assert squares[:20] == [int((expected[sizes == d] ** 2).sum()) for d in range(20)]
    assert nonzero[:20] == [int((expected[sizes == d] != 0).sum()) for d in range(20)]
    assert magnitudes[:20] == [int(np.abs(expected[sizes == d]).sum()) for d in range(20)]
    assert sum(squares) == 1 << 38


@settings(max_examples=repeated(200, 60))
@given(st.integers(0, 7).flatmap(lambda n: st.lists(st.integers(-(2**40), 2**40), min_size=2**n, max_size=2**n)))
def test_integers_are_transformed_exactly(values: list[int]) -> None:
    out = walsh_hadamard(values)
    assert out.dtype == np.int64
    assert out.tolist() == (reference.characters(len(values).bit_length() - 1) @ np.array(values)).tolist()


@settings(max_examples=repeated(200, 60))
@given(
    st.integers(0, 7).flatmap(
        lambda n: st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=2**n, max_size=2**n)
    )
)
def test_floats_are_transformed_and_inverted(values: list[float]) -> None:
    table = np.array(values)
    out = walsh_hadamard(table)
    scale = np.abs(table).sum() + 1e-300
    assert np.abs(out - reference.characters(len(values).bit_length() - 1) @ table).max() <= 1e-13 * scale
    assert np.abs(inverse_walsh_hadamard(out / len(table)) - table).max() <= 1e-13 * scale
    single = walsh_hadamard(table.astype(np.float32))
    assert single.dtype == np.float32
    assert np.abs(single - out).max() <= 1e-5 * scale + 1e-30


def test_the_input_is_left_alone_and_may_have_any_layout() -> None:
    values = np.arange(16)
    expected = reference.characters(4) @ values
    for given_values in (values, values.astype(np.float32), values.astype(float), values.astype(np.uint8)):
        before = given_values.copy()
        assert walsh_hadamard(given_values).tolist() == expected.tolist()
        assert np.array_equal(given_values, before)
        assert walsh_hadamard(given_values[::-1][::-1]).tolist() == expected.tolist()
        assert walsh_hadamard(np.repeat(given_values, 2)[::2]).tolist() == expected.tolist()
        assert walsh_hadamard(given_values[::-1]).tolist() == (reference.characters(4) @ values[::-1]).tolist()
    assert walsh_hadamard(np.array([True, False])).tolist() == [1, 1]
    assert walsh_hadamard([3]).tolist() == [3]


@pytest.mark.parametrize(
    "values",
    [
        [],
        [1, 2, 3],
        3,
        [[1, 2], [3, 4]],
        [[1, 2], [3]],
        ["a", "b"],
        [1j, 0],
        [1.0, np.nan],
        [1.0, np.inf],
        [None, 1],
        np.array([-(2**63), 0]),
        np.array([2**62, 0]),
        np.array([2**64 - 1, 0], np.uint64),
    ],
)
def test_bad_tables_are_refused_in_one_sentence(values: object) -> None:
    with one_sentence():
        walsh_hadamard(values)  # type: ignore[arg-type]


def test_the_largest_integers_that_fit() -> None:
    assert walsh_hadamard(np.array([2**61, -(2**61)])).tolist() == [0, 2**62]
    assert walsh_hadamard(np.array([2**62 - 1, 2**62 - 1])).tolist() == [2**63 - 2, 0]
