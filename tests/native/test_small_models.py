"""The compiled recognisers are those of `Transformer`, whatever block of draws they are computed in."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flipscope.basics.bits import index_bits
from flipscope.models.presets import recognizer
from flipscope.native.phrases import count_phrases
from flipscope.native.small_models import LANES, parameters, truth_tables
from flipscope.probes.prior import _key, _vectors, drawn

GOLDEN = "90f5467bbe6d3205"  # truth tables of 1,000 draws, on which stored results rest


def tabulated(
    shape: tuple[int, int, int, int], eps: float, first: int, count: int, radius: float = 1.0, seed: int = 3
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    width, layers, heads, bits = shape
    tables, margins, logits = np.empty(count, np.uint64), np.empty(count), np.empty((count, 1 << bits))
    vectors = _vectors(recognizer(width, layers, heads, eps=eps), bits, 5)
    truth_tables(_key(seed), first, radius, shape, eps, vectors, tables, margins, logits)
    return tables, margins, logits


@pytest.mark.parametrize(
    ("shape", "eps", "radius"),
    [
        ((8, 2, 1, 4), 0.0, 1.0),
        ((5, 1, 2, 3), 0.0, 1.0),
        ((4, 3, 2, 2), 1.0, 1.0),
        ((7, 2, 2, 6), 1e-5, 2.0),
        ((2, 2, 1, 1), 0.1, 0.5),
    ],
)
def test_logits_are_those_of_the_transformer(shape: tuple[int, int, int, int], eps: float, radius: float) -> None:
    width, layers, heads, bits = shape
    tables, margins, logits = tabulated(shape, eps, 17, 70, radius)
    strings = torch.from_numpy(index_bits(0, 1 << bits, bits))
    for number in range(70):
        model = drawn(recognizer(width, layers, heads, eps=eps), 17 + number, 3, symbols=5, radius=radius)
        with torch.no_grad():
            expected = model(strings).numpy()
        np.testing.assert_allclose(logits[number], expected, atol=1e-9)
        assert [int(tables[number]) >> string & 1 for string in range(1 << bits)] == (logits[number] > 0).tolist()
        assert margins[number] == np.abs(logits[number]).min()


@settings(max_examples=20)
@given(st.integers(0, 10**12), st.integers(1, 3 * LANES), st.integers(0, 2 * LANES))
def test_a_draw_depends_on_its_number_alone(first: int, count: int, before: int) -> None:
    tables, margins, _ = tabulated((4, 2, 1, 2), 0.0, first + before, count)
    longer = tabulated((4, 2, 1, 2), 0.0, first, before + count)
    np.testing.assert_array_equal(tables, longer[0][before:])
    np.testing.assert_array_equal(margins, longer[1][before:])


def test_what_loses_digits_is_given_up() -> None:
    # Of huge weights the softmax picks one key among all vectors, and a string without it has no weight left.
    _, margins, _ = tabulated((4, 1, 1, 3), 0.0, 0, 200, radius=50.0)
    assert 0 < np.isnan(margins).sum() < 200


def test_parameters_are_uniform_and_independent() -> None:
    numbers = np.empty((7, 100_000))
    parameters(_key(1), 0, 2.0, numbers)
    assert numbers.min() >= -2
    assert numbers.max() < 2
    np.testing.assert_allclose(numbers.mean(axis=1), 0, atol=0.02)
    np.testing.assert_allclose(numbers.var(axis=1), 4 / 3, atol=0.03)
    np.testing.assert_allclose(np.corrcoef(numbers), np.eye(7), atol=0.015)
    other = np.empty((7, 100_000))
    parameters(_key(2), 0, 2.0, other)
    assert abs(np.corrcoef(numbers[0], other[0])[0, 1]) < 0.015


def test_tables_stay_what_they_are() -> None:
    tables, _, _ = tabulated((8, 2, 1, 4), 0.0, 0, 1_000, seed=0)
    assert hashlib.sha256(tables.astype("<u8").tobytes()).hexdigest()[:16] == GOLDEN


def phrases(text: str) -> int:
    """Lempel and Ziv's count, from its definition."""
    count = begin = 0
    while begin < len(text):
        size = 1
        while begin + size <= len(text) and text[begin : begin + size] in text[: begin + size - 1]:
            size += 1
        begin, count = begin + size, count + 1
    return count


@given(st.text("01", min_size=1, max_size=64))
def test_phrases(text: str) -> None:
    word = np.array([int(text[::-1], 2)], np.uint64)
    found = np.empty(1, np.int64)
    count_phrases(word, len(text), found)
    assert found[0] == phrases(text)


def test_phrases_of_a_known_string() -> None:  # the example of Kaspar and Schuster (1987): 0.001.10.100.1000.101
    assert phrases("0001101001000101") == 6
