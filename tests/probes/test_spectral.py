"""Traces, eigenvalues and densities of matrices that are known, against numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from flipscope.basics.errors import InputError
from flipscope.basics.resampling import student_mean
from flipscope.probes import extreme_eigenvalues
from flipscope.probes.extreme_eigenvalues import extremes
from flipscope.probes.spectral import Traces, dense, exact_traces, hutchinson, hutchpp, lanczos, signs
from flipscope.probes.spectral_density import spectral_density


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
    for start in (0, 1, 63, 64, 200):
        assert signs(4, 2, 300, start=start).tolist() == signs(4, 2, 500)[start : start + 300].tolist()


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


def test_eigenvalues_that_do_not_converge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extreme_eigenvalues, "_VECTORS", 1)
    bulk = np.random.default_rng(0).normal(size=(500, 500))
    with pytest.raises(InputError, match="did not converge"):
        extremes(Matrix(bulk + bulk.T), 3, 1e-9, 0, 1)
    with pytest.raises(InputError, match="eigenvalues=4"):
        extremes(random_matrix(3, 3), 4, 1e-3, 0, 10)


class Rounded(Matrix):
    """Products with the rounding of float32."""

    def products(self, rows: np.ndarray) -> np.ndarray:
        return super().products(rows).astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("size", [50, 200])
def test_rounding_that_hides_the_residuals_is_told(size: int) -> None:
    matrix = Rounded(random_matrix(size, size).numbers)
    with pytest.raises(InputError, match="rounding keeps the eigenvalues from converging to tolerance=1e-10"):
        extremes(matrix, 2, 1e-10, 0, 100)
    top, _ = extremes(matrix, 2, 1e-5, 0, 100)
    assert top.values == pytest.approx(np.linalg.eigvalsh(matrix.numbers)[:-3:-1], rel=1e-6)


def with_eigenvalues(values: np.ndarray, seed: int) -> np.ndarray:
    vectors = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values), len(values))))[0]
    found: np.ndarray = (vectors * values) @ vectors.T
    return (found + found.T) / 2


def check_ends(matrix: Matrix, count: int, tolerance: float, seed: int, rounding: float = 1e-12) -> None:
    """Each value at most `tolerance` inside of the true one of its rank, and never outside."""
    truth = np.linalg.eigvalsh(matrix.numbers)
    norm = np.abs(truth).max()
    top, bottom = extremes(matrix, count, tolerance, seed, 300)
    for inside in (truth[::-1][:count] - top.values, bottom.values - truth[:count]):
        assert inside.max() <= (tolerance + rounding) * norm
        assert inside.min() >= -rounding * norm
    for end in (top, bottom):
        assert end.residuals.max() <= tolerance * norm
        assert end.vectors.T @ end.vectors == pytest.approx(np.eye(count), abs=1e-10)
        left = matrix.numbers @ end.vectors - end.vectors * end.values
        assert np.linalg.norm(left, axis=0) == pytest.approx(end.residuals, abs=2 * rounding * norm)


@settings(max_examples=40)
@given(
    st.integers(97, 160),
    st.integers(1, 6),
    st.integers(1, 12),
    st.integers(0, 2**32),
    st.sampled_from([1e-2, 1e-3, 1e-8]),
)
def test_repeated_eigenvalues_count_as_often_as_they_occur(
    size: int, count: int, distinct: int, seed: int, tolerance: float
) -> None:
    stream = np.random.default_rng(seed)
    values = stream.choice(stream.normal(size=distinct) * stream.choice([0, 1, 10], size=distinct), size)
    check_ends(Matrix(with_eigenvalues(values, seed)), count, tolerance, seed)


@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("name", ["zero", "identity", "rank one", "low rank", "kronecker", "pair", "bulk"])
def test_extremes_of_matrices_that_hide_some(name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    size, stream = 200, np.random.default_rng(5)
    factor, bulk = stream.normal(size=(size, 40)), stream.normal(size=(size, size))
    covariance = np.cov(stream.normal(size=(20, 60)))
    pair = np.zeros((size, size))  # (1, -1, 0, ...) and (1, 1, 0, ...), to which signs are orthogonal half of the time
    pair[0, 1] = pair[1, 0] = 5
    matrices = {
        "zero": np.zeros((size, size)),
        "identity": np.eye(size),
        "rank one": np.outer(factor[0], factor[0]).repeat(5, axis=0).repeat(5, axis=1),
        "low rank": factor[:, :4] @ factor[:, :4].T,
        "kronecker": np.kron(covariance, np.eye(10)),
        "pair": pair,
        "bulk": bulk + bulk.T,
    }
    for vectors in (extreme_eigenvalues._VECTORS, 1):  # also with as many restarts as there can be
        monkeypatch.setattr(extreme_eigenvalues, "_VECTORS", vectors)
        for seed in range(5):
            check_ends(Matrix(matrices[name]), count, 1e-3, seed)
            check_ends(Rounded(matrices[name]), count, 1e-3, seed, 1e-5)


def test_an_edge_without_gaps_is_not_overlooked() -> None:
    # Nothing sticks out, so that Ritz values come near the edge long before they are at it.
    matrix = Matrix(with_eigenvalues(np.sort(np.random.default_rng(0).uniform(-1, 1, 400)), 0))
    for seed in range(10):
        check_ends(matrix, 2, 1e-2, seed)


@settings(max_examples=60)
@given(st.integers(3, 60), st.integers(0, 2**32), st.integers(2, 12), st.floats(-3, 3))
def test_the_share_above_a_threshold_lies_between_the_bounds_of_its_quadrature(
    size: int, seed: int, steps: int, threshold: float
) -> None:
    stream = np.random.default_rng(seed)
    values = stream.normal(size=size) * stream.choice([0, 1], size=size)
    start = stream.normal(size=size)
    found = lanczos(Matrix(np.diag(values)), start, steps)
    low, high = found.share_above(threshold)
    assume(np.abs(values - threshold).min() > 1e-6)  # rounding does not decide on which side it is
    truth = np.square(start[values > threshold]).sum() / np.square(start).sum()
    assert low - 1e-9 <= truth <= high + 1e-9
    assert low - 1e-9 <= found.weights[found.nodes > threshold].sum() <= high + 1e-9
    if found.complete:
        assert high - low < 1e-9


def test_bounds_of_shares_are_close_in_a_gap() -> None:
    values = np.concatenate([np.zeros(900), np.random.default_rng(0).uniform(0, 1, 80), np.linspace(5, 9, 20)])
    found = lanczos(Matrix(np.diag(values)), np.random.default_rng(1).normal(size=1000), 40)
    low, high = found.share_above(3.0)
    assert high - low < 1e-6


@pytest.mark.parametrize("threshold", [-0.5, 0.3, 4.0, 8.8])
def test_intervals_of_shares_cover_as_often_as_they_say(threshold: float) -> None:
    values = np.concatenate([np.zeros(150), np.random.default_rng(0).uniform(-1, 1, 40), np.linspace(5, 9, 10)])
    matrix, repeats, hits = Matrix(np.diag(values)), 120, 0
    for seed in range(repeats):
        found = spectral_density(matrix, 2, 20, seed, 0.9, 1e-10).share_above(threshold)
        assert 0 <= found.low <= found.value <= found.high <= 1
        hits += found.low <= np.mean(values > threshold) <= found.high
    assert stats.binom.cdf(hits, repeats, 0.9) > 1e-3


def test_intervals_of_mean_eigenvalues_cover_as_often_as_they_say() -> None:
    matrix = random_matrix(200, 200, 3)
    truth, repeats, hits = np.trace(matrix.numbers) / 200, 200, 0
    for seed in range(repeats):
        found = spectral_density(matrix, 4, 5, seed, 0.9, 1e-10).mean
        hits += found.low <= truth <= found.high
    assert stats.binom.cdf(hits, repeats, 0.9) > 1e-3
    assert stats.binom.sf(hits - 1, repeats, 0.95) > 1e-3


def test_shares_of_powers_of_ten_and_of_nothing() -> None:
    values = np.array([90.0, 5.0, 0.5, 0.0, -0.05, -30.0] * 20)
    found = spectral_density(Matrix(np.diag(values)), 3, 20, 0, 0.95, 1e-10)
    rows = found.by_powers_of_ten()
    assert [low for low, _, _ in rows] == sorted((low for low, _, _ in rows), reverse=True)
    assert sum(share.value for _, _, share in rows) == pytest.approx(1)
    for low, high, share in rows:
        assert share.low <= np.mean((values > low) & (values <= high)) <= share.high
    assert found.share_above(101.0).high < 1 / 120
    assert found.share_above(-31.0).low > 1 - 1 / 120
    for value in (10.0, -10.0):
        ranges = spectral_density(Matrix(value * np.eye(9)), 2, 3, 0, 0.95, 1e-10).by_powers_of_ten()
        assert sum(share.value for _, _, share in ranges) == pytest.approx(1)
    nothing = spectral_density(Matrix(np.zeros((5, 5))), 2, 3, 0, 0.95, 1e-10)
    assert nothing.mean.value == 0
    assert nothing.share_above(1e-9).value == 0
    assert nothing.share_above(1e-9).high < 1 / 5
    assert nothing.share_above(-1e-9).low > 4 / 5
    with pytest.raises(InputError, match="ascending"):
        found.share_between(1.0, 0.0)


@pytest.mark.parametrize("rounding", [1e-10, 1e-6])
def test_every_range_of_eigenvalues_has_its_interval(rounding: float) -> None:
    """Also those in which nothing was seen, and 0 has a range of its own."""
    values = np.concatenate([np.zeros(60), np.random.default_rng(0).uniform(-1, 1, 35), [90.0, 5.0, 0.5, -0.05, -30.0]])
    for steps in (2, 4, 20, 100):
        found = spectral_density(Matrix(np.diag(values)), 3, steps, 0, 0.95, rounding)
        rows = found.by_powers_of_ten()
        assert [high for _, high, _ in rows[1:]] == [low for low, _, _ in rows[:-1]]
        (zero,) = (share for low, high, share in rows if low < 0 < high)
        for low, high, share in rows:
            inside = (values > low) & (values <= high)
            assert share.low <= inside.mean() <= share.high
            assert low * high < 0 or not (values[inside] == 0).any()
        drawn = found.plot().panels[0]
        (series,) = drawn.series
        assert [*zip(series.low, series.high, strict=True)] == [(share.low, share.high) for *_, share in rows[::-1]]
        assert len(drawn.categories) == len(rows)
        assert series.kind == "points"
        if steps == 2:  # too few to know much: nothing was seen of most ranges
            assert sum(share.value == 0 and share.high > 0.5 for *_, share in rows) > 5
        if steps == 100:
            assert zero.low > 0.4


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e170, 1e300])
def test_the_scale_of_a_matrix_changes_nothing_but_the_scale(scale: float) -> None:
    numbers = with_eigenvalues(np.random.default_rng(1).normal(size=120), 0)
    plain, scaled = Matrix(numbers), Matrix(scale * numbers)
    for found, wanted in zip(extremes(scaled, 4, 1e-6, 0, 100), extremes(plain, 4, 1e-6, 0, 100), strict=True):
        assert found.values == pytest.approx(scale * wanted.values, rel=1e-9)
        assert (found.residuals <= 1e-6 * scale * np.abs(numbers).sum()).all()
    density, wanted = (spectral_density(each, 3, 10, 0, 0.95, 1e-10) for each in (scaled, plain))
    assert density.nodes == pytest.approx(scale * wanted.nodes, rel=1e-9)
    for threshold in (-1.0, 0.0, 0.3):
        there, here = density.share_above(scale * threshold), wanted.share_above(threshold)
        assert (there.value, there.low, there.high) == pytest.approx((here.value, here.low, here.high), abs=1e-9)
    assert density.mean.high - density.mean.value == pytest.approx(scale * (wanted.mean.high - wanted.mean.value))


@settings(max_examples=25)
@given(st.integers(2, 60), st.integers(0, 2**32), st.integers(2, 20))
def test_quadrature_has_the_moments_of_the_matrix(size: int, seed: int, steps: int) -> None:
    matrix, start = random_matrix(size, max(1, size // 2), seed), signs(seed, 0, size)
    found = lanczos(matrix, start, steps)
    nodes, weights = found.nodes, found.weights
    assert weights.sum() == pytest.approx(1)
    vector = start / np.linalg.norm(start)
    norm = np.abs(np.linalg.eigvalsh(matrix.numbers)).max()
    for power in range(4):  # k steps integrate polynomials up to degree 2k - 1
        if power <= 2 * steps - 1:
            exact = vector @ np.linalg.matrix_power(matrix.numbers / norm, power) @ vector
            assert weights @ (nodes / norm) ** power == pytest.approx(exact, abs=1e-9)


def test_all_steps_give_all_eigenvalues() -> None:
    matrix = random_matrix(12, 12, 1)
    found = lanczos(matrix, np.random.default_rng(0).normal(size=12), 100)
    assert found.nodes == pytest.approx(np.linalg.eigvalsh(matrix.numbers), abs=1e-9)
    assert found.complete
