"""Parities in the rows of a matrix: by hand, against chance, and bad input."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from flipscope.basics.errors import InputError
from flipscope.probes.components import chance, find_components, found_by_chance


def test_a_set_is_found_where_its_columns_are_the_brightest() -> None:
    matrix = np.zeros((4, 6))
    matrix[1, [0, 2, 5]] = [3.0, 2.0, 2.5]
    matrix[3, [0, 2, 5]] = [1.0, 2.0, 1.5]
    matrix[2, [1, 3, 4]] = [9.0, 9.0, 0.1]
    first, second, third = find_components(matrix, [(5, 0, 2), (1, 3, 4), (0, 1, 2)])
    assert (first.positions, first.rows, first.found) == ((0, 2, 5), (1, 3), True)
    assert second.rows == (2,)
    assert (third.rows, third.found) == ((), False)


def test_the_rank_is_the_share_of_all_sets_that_are_seen_as_well() -> None:
    matrix = np.random.default_rng(0).normal(size=(5, 7))
    standard = (matrix - matrix.mean(1, keepdims=True)) / matrix.std(1, keepdims=True)
    sets = list(itertools.combinations(range(7), 3))
    scores = [standard[:, list(each)].mean(axis=1).max() for each in sets]
    for each, score, found in zip(sets, scores, find_components(matrix, sets), strict=True):
        assert found.positions == each
        assert found.rank == pytest.approx(np.mean([other >= score - 1e-12 for other in scores]))


def test_the_rank_of_a_large_class_is_drawn() -> None:
    matrix = np.random.default_rng(1).normal(size=(3, 40))
    matrix[0, :6] += 20
    assert math.comb(40, 6) > 20_000
    planted, other = find_components(matrix, [range(6), range(30, 36)])
    assert (planted.rows, planted.rank) == ((0,), 1 / 20_001)
    assert other.rank > 0.01


def test_chance() -> None:
    counts = found_by_chance(10, 6, [(0, 1), (2, 3), (1, 2, 3)], draws=4_000)
    expected = 2 * chance(10, 6, 2) + chance(10, 6, 3)
    assert counts.mean() == pytest.approx(expected, abs=0.05)
    assert chance(10, 6, 2) == pytest.approx(1 - (14 / 15) ** 10)
    assert found_by_chance(10, 6, [(0, 1)], draws=50, seed=3).tolist() == (
        found_by_chance(10, 6, [(0, 1)], draws=50, seed=3).tolist()
    )


def test_bad_input() -> None:
    with pytest.raises(InputError, match="must be finite numbers"):
        find_components(np.array([[np.nan, 1.0]]), [(0,)])
    with pytest.raises(InputError, match="at least one of 2 positions, and not all"):
        find_components(np.zeros((1, 2)), [(0, 1)])
    with pytest.raises(InputError, match="position 5 does not exist"):
        find_components(np.zeros((1, 2)), [(5,)])
