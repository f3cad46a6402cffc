"""Every inequality of paper 003's appendix A, tried on random perturbations; the printed alpha of A.17 breaks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bounds.attention import attended, drawn_head, inner, layer, longest, moved_head, projected, softmax, spectral
from hypothesis import given, settings
from hypothesis import strategies as st

from flipscope.basics.errors import InputError
from flipscope.bounds.covering import (
    HeadNorms,
    LayerChange,
    MatrixNorms,
    attention_change,
    attention_cover,
    head_change,
    heads_cover,
    input_factor,
    layer_change,
    linear_cover,
    log_amplifications,
    matrix_cover,
    rademacher_bound,
    readout_change,
    softmax_change,
    split_error,
)

ROUNDING = 1 + 1e-9
SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.sampled_from([0.01, 0.1, 1.0, 10.0])


@settings(max_examples=60, deadline=None)
@given(SEEDS, SIZES, SIZES, st.sampled_from([1.0, 2.0]))
def test_softmax_moves_no_more_than_its_logits_times_the_constant(seed, size, step, constant):
    rng = np.random.default_rng(seed)
    first = size * rng.normal(size=6)
    second = first + step * rng.choice([-1.0, 1.0], size=6)
    change = np.abs(softmax(first) - softmax(second)).sum()
    assert change <= softmax_change(np.abs(first - second).max(), constant) * ROUNDING


def test_no_constant_of_softmax_is_below_1():
    change = np.abs(softmax(np.array([0.0, 0.0])) - softmax(np.array([1e-3, -1e-3]))).sum()
    assert change > 0.999999 * softmax_change(1e-3, 1.0)
    with pytest.raises(InputError, match=r"softmax=0\.9 is no Lipschitz constant"):
        softmax_change(1e-3, 0.9)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_no_other_split_of_the_error_has_a_smaller_cover(seed):
    rng = np.random.default_rng(seed)
    alphas, betas = np.exp(3 * rng.normal(size=(2, 5)))
    least, own = split_error(alphas, betas, 2.0)
    assert betas @ own == pytest.approx(2.0)
    assert least == pytest.approx((alphas / own**2).sum())
    other = own * np.exp(rng.normal(size=(50, 5)) * 10 ** rng.uniform(-3, 0.5))
    other *= 2.0 / (other @ betas)[:, None]
    assert ((alphas / other**2).sum(axis=1) >= least / ROUNDING).all()


@settings(max_examples=60, deadline=None)
@given(SEEDS, SIZES, SIZES)
def test_the_projection_on_the_unit_ball_contracts(seed, size, step):
    rng = np.random.default_rng(seed)
    first = size * rng.normal(size=(20, 3))
    second = first + step * rng.normal(size=(20, 3))
    moved = np.linalg.norm(projected(first) - projected(second), axis=1)
    assert (moved <= np.linalg.norm(first - second, axis=1) * ROUNDING).all()


def test_covers_of_linear_maps_are_no_smaller_than_packings():
    """Functions that are pairwise more than 2 eps apart need one centre each."""
    rng, count, width, rows = np.random.default_rng(0), 12, 6, 3
    vectors = projected(rng.normal(size=(count, width)))
    for eps in (0.05, 0.1, 0.3):
        weights = projected(rng.normal(size=(400, width)))
        values = weights @ vectors.T
        assert math.log(_packing(np.abs(values[:, None] - values[None]).max(axis=2), 2 * eps)) <= linear_cover(
            1.0, 1.0, eps, count
        )
        matrices = rng.normal(size=(400, rows, width))
        matrices /= np.linalg.norm(matrices, axis=2).max(axis=1)[:, None, None]
        outputs = matrices @ vectors.T  # [matrix, row, vector]
        apart = np.linalg.norm(outputs[:, None] - outputs[None], axis=2).max(axis=2)
        size = math.log(_packing(apart, 2 * eps))
        assert size > 2  # the packing is no trifle
        assert size <= matrix_cover(rows, 1.0, eps, count, largest=1.0)
        assert size <= matrix_cover(rows, 1.0, eps, count, total=float(rows))


def _packing(apart, distance):
    kept: list[int] = []
    for place in range(len(apart)):
        if all(apart[place, other] > distance for other in kept):
            kept.append(place)
    return len(kept)


def test_the_counts_of_lemma_4_5_add_up_for_the_sum_of_norms_and_not_for_the_largest():
    width = 5
    norms = np.ones(width)  # rows of equal norm
    right, printed = (np.floor(width * norms / bound).sum() for bound in (norms.sum(), norms.max()))
    assert right <= width
    assert printed == width**2


@settings(max_examples=40, deadline=None)
@given(SEEDS, SIZES, SIZES, st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([1.0, 2.0]))
def test_attention_moves_no_more_than_lemmas_4_3_and_a_13_allow(seed, size, step, radius, constant):
    rng = np.random.default_rng(seed)
    rows = radius * projected(rng.normal(size=(5, 4)))
    head = drawn_head(rng, size=size)
    other = moved_head(rng, head, step)
    scores, others = (each["W_Q"] @ each["W_K"].T for each in (head, other))
    moved = longest(attended(rows, head) - attended(rows, other))
    value_change = longest(rows @ (head["W_V"] - other["W_V"]))
    bound_in = spectral(head["W_V"])
    score_change = np.abs(rows @ (scores - others) @ rows.T).max()
    general = head_change(score_change, value_change, bound_in=bound_in, radius=radius, norm_constant=constant)
    special = attention_change(
        bound_in, longest(rows @ (scores - others).T), value_change, radius=radius, softmax=constant
    )
    assert moved <= general * ROUNDING
    assert general <= special * ROUNDING


@settings(max_examples=40, deadline=None)
@given(SEEDS, SIZES, SIZES, st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([1.0, 2.0]))
def test_attention_passes_a_change_of_its_input_on_as_lemma_a_14_allows(seed, size, step, radius, constant):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(5, 4))
    other = radius * projected(rows + step * rng.normal(size=(5, 4)))
    rows = radius * projected(rows)
    head = drawn_head(rng, size=size)
    factor = input_factor(spectral(head["W_V"]), spectral(head["W_Q"] @ head["W_K"].T), radius=radius, softmax=constant)
    assert longest(attended(rows, head) - attended(other, head)) <= factor * longest(rows - other) * ROUNDING


def _two_layers(seed):
    """What two layers and their perturbation change, each layer's own change eta, and its Lambda."""
    rng = np.random.default_rng(seed)
    rows = projected(rng.normal(size=(4, 3)))
    heads = [drawn_head(rng, 3, 10 ** rng.uniform(-1, 1)) for _ in range(2)]
    others = [moved_head(rng, head, 10 ** rng.uniform(-3, 0)) for head in heads]
    ours = theirs = rows
    own, factors = [], []
    for head, other in zip(heads, others, strict=True):
        score, moved = (each["W_Q"] @ each["W_K"].T for each in (head, other))
        change = LayerChange(
            mix=longest(inner(theirs, other) @ (head["W_C"] - other["W_C"])),
            score=longest(theirs @ (score - moved).T),
            value=longest(theirs @ (head["W_V"] - other["W_V"])),
        )
        norms = {"mix_norm": spectral(head["W_C"]), "value_norm": spectral(head["W_V"]), "score_norm": spectral(score)}
        before = longest(ours - theirs)
        ours, theirs = layer(ours, head), layer(theirs, other)
        assert longest(ours - theirs) <= layer_change(change, before, **norms) * ROUNDING  # A.15
        own.append(layer_change(change, 0.0, **norms))
        factors.append(layer_change(LayerChange(), 1.0, **norms))
    return longest(ours - theirs), np.array(own), np.log(factors)


BREAKS = 921  # a seed at which the printed product is broken


def test_the_error_of_a_layer_passes_the_layers_after_it():
    for seed in range(300):
        moved, own, factors = _two_layers(seed)
        assert moved <= np.exp(log_amplifications(factors)) @ own * ROUNDING, seed


def test_the_printed_product_over_the_layers_before_is_broken():
    moved, own, factors = _two_layers(BREAKS)
    assert moved > 1.5 * np.exp(log_amplifications(factors, as_printed=True)) @ own
    assert moved <= np.exp(log_amplifications(factors)) @ own


@settings(max_examples=30, deadline=None)
@given(SEEDS, SIZES)
def test_the_read_out_moves_no_more_than_lemma_a_16_allows(seed, step):
    rng = np.random.default_rng(seed)
    state, weight = rng.normal(size=(2, 4))
    other, moved = (each + step * rng.normal(size=4) for each in (state, weight))
    bound = readout_change(np.linalg.norm(weight), np.linalg.norm(state - other), abs((weight - moved) @ other))
    assert abs(weight @ state - moved @ other) <= bound * ROUNDING


@pytest.mark.parametrize(("width", "radius", "eps"), [(3, 1.0, 1.0), (16, 1.4, 0.3), (4, 0.5, 2.0)])
def test_theorem_4_2_with_covers_of_matrices_is_corollary_4_4(width, radius, eps):
    score, value = MatrixNorms(width, 2.0, 1.5, 3.0), MatrixNorms(width, 0.7, 0.6, 1.0)
    samples, length = 50, 9
    general = attention_cover(
        lambda own: matrix_cover(width, radius, own / radius, samples * (length + 1), largest=1.5),
        lambda own: matrix_cover(width, radius, own, samples * (length + 1), largest=0.6),
        eps,
        bound_in=0.7,
        radius=radius,
    )
    special = heads_cover([HeadNorms(score, value)], radius=radius).size(eps, samples, length, "rows")
    # The one searches shares on a grid, the other takes A.8's, which leaves logarithms out.
    assert 0.999 * general <= special <= 1.03 * general


@pytest.mark.parametrize("count", [4, 64])
def test_no_linear_class_is_more_complex_than_its_cover_says(count):
    """R of ||v|| <= 1 is the mean norm of a random sum over m, by hand."""
    rng = np.random.default_rng(1)
    vectors = projected(5 * rng.normal(size=(count, 3)))
    complexity = np.linalg.norm(rng.choice([-1.0, 1.0], size=(2000, count)) @ vectors, axis=1).mean() / count
    capacity = max(eps**2 * linear_cover(1.0, 1.0, eps, count) for eps in np.geomspace(0.01, 1, 30))
    assert 0.3 / math.sqrt(count) < complexity <= rademacher_bound(capacity, count, largest=1.0)
    one = rademacher_bound(0.01, count, largest=1.0)
    assert one < 12.0  # a small capacity says something
