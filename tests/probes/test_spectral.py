"""Traces, eigenvalues and densities of matrices that are known, against numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from flipscope.basics.errors import InputError
from flipscope.basics.resampling import student_mean
from flipscope.probes.spectral import Traces, dense, exact_traces, extremes, hutchinson, hutchpp, lanczos, signs


class Matrix:
    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers, self.asked = numbers, 0

    @property
    def size(self) -> int:
        return len(self.numbers)

    def products(self, rows: np.ndarray) -> np.ndarray:
        self.asked += len(rows)
        return rows @ self.numbers.T


def random_matrix(size: int, rank: int, seed: int = 0) -> Matrix:
    stream = np.random.default_rng(seed)
    factor = stream.normal(size=(size, rank))
    return Matrix((factor * stream.normal(size=rank)) @ factor.T)


def total(found: Traces) -> float:
    return float(found.base.sum() + (found.draws.sum(axis=1).mean() if len(found.draws) else 0.0))


@settings(max_examples=25)
@given(st.integers(1, 40), st.integers(0, 2**32), st.data())
def test_an_exact_trace_by_blocks(size: int, seed: int, data: st.DataObject) -> None:
    matrix = random_matrix(size, size, seed)
    cuts = data.draw(st.sets(st.integers(1, size - 1), max_size=4)) if size > 1 else set()
    starts = [0, *sorted(cuts)]
    found = exact_traces(matrix, starts)
    assert found.base == pytest.approx(np.add.reduceat(np.diag(matrix.numbers), starts), rel=1e-12)
    assert matrix.asked == size
    assert dense(matrix) == pytest.approx(matrix.numbers)


def test_hutchpp_is_exact_on_a_low_rank_and_hutchinson_is_not() -> None:
    matrix = random_matrix(300, 10, 3)
    truth = np.trace(matrix.numbers)
    found = hutchpp(matrix, [0], 36, seed=1)
    assert total(found) == pytest.approx(truth, rel=1e-10)
    assert np.abs(found.draws).max() < 1e-8 * abs(truth)
    assert matrix.asked == 36
    assert abs(total(hutchpp(matrix, [0], 12, seed=1)) / truth - 1) > 1e-6  # four columns do not hold ten directions
    assert abs(total(hutchinson(matrix, [0], 36, seed=1)) / truth - 1) > 1e-3


@pytest.mark.parametrize("method", [hutchinson, hutchpp])
def test_the_blocks_of_an_estimate_are_those_of_the_matrix(method: object) -> None:
    matrix = random_matrix(60, 60, 5)
    starts = [0, 7, 31]
    truth = np.add.reduceat(np.diag(matrix.numbers), starts)
    found = [method(matrix, starts, 12, seed) for seed in range(200)]  # type: ignore[operator]
    values = np.array([each.base + each.draws.mean(axis=0) for each in found])
    assert np.all(np.abs(values.mean(axis=0) - truth) < 4.5 * values.std(axis=0) / math.sqrt(200))


@pytest.mark.parametrize("method", [hutchinson, hutchpp])
def test_the_interval_covers_as_often_as_it_says(method: object) -> None:
    matrix = random_matrix(80, 80, 7)
    truth, repeats, hits = np.trace(matrix.numbers), 150, 0
    for seed in range(repeats):
        found = method(matrix, [0], 36, seed)  # type: ignore[operator]
        value = student_mean(found.draws.sum(axis=1).tolist(), 0.9).scaled(1.0, float(found.base.sum()))
        hits += value.low <= truth <= value.high
    assert stats.binom.cdf(hits, repeats, 0.85) > 1e-3
    assert stats.binom.sf(hits - 1, repeats, 0.95) > 1e-3


def test_probes_depend_on_seed_and_number_alone() -> None:
    matrix = random_matrix(50, 50)
    few, many = (hutchinson(matrix, [0], count, 4).draws for count in (7, 40))
    assert few.tolist() == many[:7].tolist()
    assert len({signs(4, k, 50).tobytes() for k in range(40)} | {signs(4, k, 50, 1).tobytes() for k in range(40)}) == 80
    assert set(np.unique(signs(0, 0, 1001))) == {-1.0, 1.0}


@pytest.mark.parametrize("size", [1, 5, 96, 97, 300])
def test_both_ends_of_the_spectrum(size: int) -> None:
    matrix = random_matrix(size, size, 11)
    truth = np.linalg.eigvalsh(matrix.numbers)
    count = min(3, size)
    top, bottom = extremes(matrix, count, 1e-8, 0, 1000)
    norm = np.abs(truth).max()
    assert top.values == pytest.approx(truth[::-1][:count], abs=1e-9 * norm)
    assert bottom.values == pytest.approx(truth[:count], abs=1e-9 * norm)
    for end in (top, bottom):
        assert end.residuals.max() <= 1e-7 * norm
        assert matrix.numbers @ end.vectors == pytest.approx(end.values * end.vectors, abs=1e-6 * norm)


def test_a_lower_end_of_many_zeros_converges() -> None:
    # Of a matrix of low rank nearly all eigenvalues are 0, against which no error is relatively small.
    factor = np.random.default_rng(0).normal(size=(400, 6))
    matrix = Matrix(factor @ factor.T)
    top, bottom = extremes(matrix, 2, 1e-4, 0, 300)
    truth = np.linalg.eigvalsh(matrix.numbers)
    assert top.values == pytest.approx(truth[::-1][:2], rel=1e-6)
    assert bottom.values == pytest.approx([0, 0], abs=1e-4 * truth[-1])
    assert max(top.residuals.max(), bottom.residuals.max()) <= 1e-4 * truth[-1]


def test_eigenvalues_that_do_not_converge_and_a_matrix_of_zeros() -> None:
    with pytest.raises(InputError, match="did not converge"):
        extremes(random_matrix(2000, 2000), 3, 1e-12, 0, 1)
    with pytest.raises(InputError, match="linear"):
        extremes(Matrix(np.zeros((200, 200))), 1, 1e-3, 0, 10)
    with pytest.raises(InputError, match="eigenvalues=4"):
        extremes(random_matrix(3, 3), 4, 1e-3, 0, 10)


@settings(max_examples=25)
@given(st.integers(2, 60), st.integers(0, 2**32), st.integers(2, 20))
def test_quadrature_has_the_moments_of_the_matrix(size: int, seed: int, steps: int) -> None:
    matrix, start = random_matrix(size, max(1, size // 2), seed), signs(seed, 0, size)
    nodes, weights = lanczos(matrix, start, steps)
    assert weights.sum() == pytest.approx(1)
    vector = start / np.linalg.norm(start)
    norm = np.abs(np.linalg.eigvalsh(matrix.numbers)).max()
    for power in range(4):  # k steps integrate polynomials up to degree 2k - 1
        if power <= 2 * steps - 1:
            exact = vector @ np.linalg.matrix_power(matrix.numbers / norm, power) @ vector
            assert weights @ (nodes / norm) ** power == pytest.approx(exact, abs=1e-9)


def test_all_steps_give_all_eigenvalues() -> None:
    matrix = random_matrix(12, 12, 1)
    nodes, weights = lanczos(matrix, np.random.default_rng(0).normal(size=12), 100)
    assert nodes == pytest.approx(np.linalg.eigvalsh(matrix.numbers), abs=1e-9)
    assert len(weights) == 12
