"""Capacities of paper 003: known numbers, what the print has instead, norms from matrices, and overflow."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

from flipscope.basics.errors import InputError
from flipscope.bounds.covering import (
    HeadNorms,
    MatrixNorms,
    NetworkNorms,
    chained_bound,
    gap_bound,
    generalization_bound,
    heads_cover,
    linear_cover,
    log_samples_needed,
    matrix_cover,
    network_cover,
    rademacher_bound,
    simple_capacity,
)

ONE = MatrixNorms(64, 1.0, 1.0, 64.0)
HEAD = HeadNorms(ONE, ONE)
COUNT = 10_100


def test_lemma_4_5_in_numbers():
    assert matrix_cover(64, 1.0, 1.0, 10_000, largest=1.0) == pytest.approx(1_980_311.895, abs=5e-4)
    assert matrix_cover(1, 1.0, 1.0, 10_000, largest=1.0) == linear_cover(1.0, 1.0, 1.0, 10_000)
    total = 144 * 9 * math.log(2 * math.ceil(8 * 3 + 2) * 10_000 + 1) + 2 * 64 * math.log(2)
    assert matrix_cover(64, 1.5, 0.5, 10_000, total=1.0) == pytest.approx(total)
    assert matrix_cover(64, 1.0, 1.0, 10_000, largest=1.0, as_printed=True) == pytest.approx(64**2 * math.log(10_000))
    sharper = matrix_cover(64, 1.0, 1.0, 10_000, largest=1.0, total=2.0, as_printed=True)
    assert sharper == pytest.approx(64 * 2 * math.log(10_000))


def test_the_form_of_section_2_forgets_a_logarithm():
    right, printed = (linear_cover(1.0, 1.0, 0.1, 10_000, as_printed=which) for which in (False, True))
    assert printed == pytest.approx(math.log(100 * math.log(1e5)))
    assert printed < right / 1000


@pytest.mark.parametrize(("radius", "value"), [(1.0, 654_177.817), (math.sqrt(2), 3_293_852.155)])
def test_corollary_4_4_in_numbers(radius, value):
    assert heads_cover([HEAD], radius=radius).order(1.0, COUNT) == pytest.approx(value, abs=5e-4)


def test_the_versions_of_corollary_4_4_in_print():
    radius, factor = math.sqrt(2), 64**2 * 2 * math.log(COUNT)
    seconds = {"4.4": 1.0, "proof of 4.4": radius, "A.11": 2 * radius, "A.12": 2.0}
    for version, second in seconds.items():
        found = heads_cover([HEAD], radius=radius, as_printed=version).order(1.0, COUNT)
        assert found == pytest.approx(factor * (1 + second ** (2 / 3)) ** 3)
        assert found < heads_cover([HEAD], radius=radius).order(1.0, COUNT)
    assert heads_cover([HEAD], as_printed=True) == heads_cover([HEAD], as_printed="4.4")
    with pytest.raises(InputError, match=r"as_printed='4\.5' is not one of"):
        heads_cover([HEAD], as_printed="4.5")


def test_positions_add_to_the_radius_and_equal_heads_cost_their_cube():
    plain = heads_cover([HEAD]).order(1.0, COUNT)
    assert heads_cover([HEAD], radius=0.6, positions=0.4).order(1.0, COUNT) == pytest.approx(plain)
    assert heads_cover([HEAD] * 3).order(1.0, COUNT) == pytest.approx(27 * plain)


def test_theorem_a_17_is_the_corollary_with_one_layer_and_no_mix():
    norms = NetworkNorms(((HEAD,),), radius=1.3)
    found = network_cover(norms).log_order()
    without_readout = 2 / 3 * np.log(np.exp(heads_cover([HEAD], radius=1.3).log_order()) ** (1 / 2))
    assert found == pytest.approx(3 * np.logaddexp(0.0, without_readout))


def test_depth_is_exponential_although_all_norms_are_1():
    orders = [network_cover(NetworkNorms.uniform(layers, 64)).log_order() for layers in (1, 2, 3, 4)]
    assert [round(math.exp(order - orders[0])) for order in orders] == [1, 58, 1851, 50_037]
    printed = [simple_capacity(layers, 64, 1.0, COUNT, as_printed=True) for layers in (1, 2, 3, 4)]
    assert len(set(printed)) == 1
    right = [simple_capacity(layers, 64, 1.0, COUNT) for layers in (1, 4)]
    assert round(right[1] / right[0]) == 50_037


def test_the_print_of_theorem_a_17_swaps_the_layers():
    one = HeadNorms(ONE, ONE, ONE)
    large = HeadNorms(dataclasses.replace(ONE, spectral=10.0), ONE, ONE)
    for first, second in ((one, large), (large, one)):
        right = network_cover(NetworkNorms(((first,), (second,)))).log_order()
        swapped = network_cover(NetworkNorms(((second,), (first,))), as_printed=True).log_order()
        assert right == pytest.approx(swapped)  # of equal rows, so that only the spectral norms differ
    readouts = [
        network_cover(NetworkNorms(((one,),), readout=3.0), as_printed=which).log_order() for which in (False, True)
    ]
    assert readouts[0] == pytest.approx(2 * math.log(3) + network_cover(NetworkNorms(((one,),))).log_order())
    assert readouts[1] < readouts[0]


def test_lemma_2_2_in_numbers_and_where_its_formula_fails():
    settings = {"largest": 1.0, "loss_range": 1.0}
    assert generalization_bound(100.0, 10_000, **settings, chaining=1.0) == pytest.approx(1.3455115, abs=5e-8)
    large = generalization_bound(1e7, 1000, **settings)
    assert large == pytest.approx(48 + 2 * math.sqrt(math.log(20) / 2000))
    assert generalization_bound(1e7, 1000, **settings, as_printed=True) < 0
    values = [rademacher_bound(capacity, 100, largest=2.0) for capacity in np.geomspace(1e-3, 1e6, 200)]
    assert all(a <= b for a, b in itertools.pairwise(values))  # a larger class is no less complex


def test_chaining_is_no_tighter_than_the_closed_form_where_both_apply():
    for capacity in (1e-4, 1.0, 100.0, 1e9):
        closed = generalization_bound(capacity, 1000, largest=2.0, loss_range=2.0)
        numeric = chained_bound(
            lambda log_eps, own=capacity: math.log(own) - 2 * log_eps, math.log(1000), largest=2.0, loss_range=2.0
        )
        assert closed * (1 - 1e-9) <= numeric <= 1.03 * closed


def test_a_bound_says_something_from_the_samples_on_that_it_needs():
    cover = network_cover(NetworkNorms.uniform(1, 4))
    found = gap_bound(cover, 10, 1000, "rows", log_failures=3.0)
    assert found.vacuous
    needed = found.log_samples_needed
    assert needed is not None
    enough = gap_bound(cover, 10, math.ceil(math.exp(needed) * 1.001), "rows", log_failures=3.0)
    assert not enough.vacuous
    assert log_samples_needed(lambda log_samples: 1.0, 0.5) is None


def test_capacities_beyond_floats_stay_logarithms():
    norms = NetworkNorms.uniform(20, 64, spectral=1e3, largest=1e3)
    cover = network_cover(norms)
    assert 710 < cover.log_order() < 2_000  # no float64 is above exp(710)
    assert cover.size(1.0, 100, 10) == math.inf
    found = gap_bound(cover, 10, 1000, "best", log_failures=3.0)
    assert math.isfinite(found.value)
    assert found.vacuous
    assert found.log_samples_needed is None or found.log_samples_needed > 710


def test_the_best_form_is_no_larger_in_order_than_either():
    rank_one = MatrixNorms(1000, 3.0, 3.0, 3.0)
    cover = heads_cover([HeadNorms(rank_one, ONE)])
    sizes = {form: cover.size(0.5, 100, 997, form) for form in ("rows", "sums", "best")}
    assert sizes["best"] < min(sizes["rows"], sizes["sums"])


@pytest.mark.parametrize("seed", range(20))
def test_the_best_form_is_never_above_the_smaller_one(seed: int) -> None:
    """Neither in ln N nor in the gap: the better form of each map by itself can be worse than one form for all."""
    rng = np.random.default_rng(seed)

    def norms() -> MatrixNorms:
        outputs = int(rng.integers(1, 100))
        largest = float(10 ** rng.uniform(-2, 1))
        total = float(rng.uniform(largest, outputs * largest))
        return MatrixNorms(outputs, largest, largest, total)

    cover = heads_cover([HeadNorms(norms(), norms()) for _ in range(3)])
    for eps, samples in ((0.01, 100), (1.0, 10**4), (10.0, 10**8)):
        sizes = {form: cover.size(eps, samples, 30, form) for form in ("rows", "sums", "best")}
        assert sizes["best"] <= min(sizes["rows"], sizes["sums"])
    assert cover.log_order("best") <= min(cover.log_order("rows"), cover.log_order("sums"))
    gaps = {form: gap_bound(cover, 30, 10**8, form, log_failures=3.0).value for form in ("rows", "sums", "best")}
    assert gaps["best"] <= min(gaps["rows"], gaps["sums"])


def test_a_map_of_norm_0_costs_nothing():
    zero = MatrixNorms(64, 0.0, 0.0, 0.0)
    without = heads_cover([HeadNorms(zero, ONE)]).size(1.0, 100, 10, "rows")
    assert without == pytest.approx(matrix_cover(64, 1.0, 1.0, 1100, largest=1.0))
    assert heads_cover([HeadNorms(zero, zero)]).size(1.0, 100, 10) == 0


def test_norms_of_matrices_by_name():
    rng = np.random.default_rng(3)
    names = ("W_Q", "W_K", "W_V", "W_C", "2.1.W_Q", "2.1.W_K", "2.1.W_V", "2.1.W_C", "2.2.W_Q", "2.2.W_K", "2.2.W_V")
    matrices = {name: rng.normal(size=(5, 3) if name[-1] != "C" else (3, 5)) for name in (*names, "2.2.W_C")}
    found = NetworkNorms.from_matrices({**matrices, "w": [3.0, 4.0]}, radius=1.5)
    assert [len(heads) for heads in found.layers] == [1, 2]
    assert (found.readout, found.radius) == (5.0, 1.5)
    score = matrices["2.2.W_Q"] @ matrices["2.2.W_K"].T
    rows = np.linalg.norm(score, axis=1)
    assert dataclasses.astuple(found.layers[1][1].score) == pytest.approx(
        (5, np.linalg.norm(score, 2), rows.max(), rows.sum())
    )
    columns = np.linalg.norm(matrices["W_V"], axis=0)
    assert dataclasses.astuple(found.layers[0][0].value) == pytest.approx(
        (3, np.linalg.norm(matrices["W_V"], 2), columns.max(), columns.sum())
    )
    mix = found.layers[0][0].mix
    assert mix is not None
    assert mix.largest == pytest.approx(np.linalg.norm(matrices["W_C"], axis=0).max())


def test_norms_that_were_looked_at_share_the_failure_probability():
    norms = NetworkNorms.uniform(2, 7, spectral=1.3, largest=0.2, readout=0.0)
    rounded, price = norms.rounded_up()
    for before, after in zip(norms.layers, rounded.layers, strict=True):
        for name in ("spectral", "largest", "total"):
            ratio = getattr(after[0].score, name) / getattr(before[0].score, name)
            assert 1 <= ratio <= 2 ** (1 / 8) * (1 + 1e-9)
    assert 0 < rounded.readout < 1e-29
    assert price > 0
    assert sum(1 / (3 * (1 + abs(power)) ** 2) for power in range(-10_000, 10_001)) < 1
    again, _ = rounded.rounded_up()
    assert again == rounded


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: matrix_cover(64, 1.0, 0.0, 100, largest=1.0), "eps=0.0 must be a positive number"),
        (lambda: matrix_cover(64, 1.0, 1.0, 100), "give one"),
        (lambda: matrix_cover(64, 1.0, 1.0, 100, largest=1.0, total=1.0), "give one"),
        (lambda: linear_cover(-1.0, 1.0, 1.0, 100), "norm=-1.0 must be a number of at least 0"),
        (lambda: generalization_bound(1.0, 0, largest=1.0, loss_range=1.0), "samples must be a whole number"),
        (lambda: generalization_bound(-1.0, 5, largest=1.0, loss_range=1.0), "capacity=-1.0"),
        (lambda: generalization_bound(1.0, 5, largest=1.0, loss_range=1.0, delta=1.0), "delta=1.0 must lie"),
        (lambda: heads_cover([]), "no head"),
        (lambda: heads_cover([HEAD]).size(1.0, 5, 5, "columns"), "form='columns' is not one of rows, sums, best"),
        (lambda: NetworkNorms(()), "at least one layer"),
        (lambda: NetworkNorms.from_matrices({"W_X": np.eye(2)}), "'W_X' is not the name of a matrix"),
        (lambda: NetworkNorms.from_matrices({"W_Q": np.eye(2)}), "layer 1 lacks a matrix"),
        (lambda: MatrixNorms.of([[math.nan]]), "must be a matrix of finite numbers"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(wrong, sentence):
    with pytest.raises(InputError, match=sentence.replace("(", r"\(")):
        wrong()
