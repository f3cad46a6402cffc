"""The network for a sum of parities: exact where it is said to be, its norm and gradient below the theorems' bounds."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flipscope.basics.bits import index_bits
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import random_strings
from flipscope.bounds.pac_bayes import gradient_blocks, gradient_bound, norm_blocks, norm_bound
from flipscope.constructions.fourier import (
    attention_error,
    check_network,
    fourier_network,
    gradient_scale,
    norm_scale,
    output_error,
    projection_width,
    rescaled,
    seen_counts,
)
from flipscope.cube.fourier_sums import FourierSum, parse_sum, random_sum
from flipscope.models.checkpoint import load, save
from flipscope.probes.gradients import squared_gradients

STRINGS = random_strings(np.random.default_rng(0), 16, 20)
# T, omega, D; the error of attention that App. B's formula allows; about the output's error without a mask.
TABLE = [
    ((5, 3, 2), 0.0741, 0.110),
    ((12, 6, 4), 0.0154, 0.048),
    ((20, 10, 2), 0.0232, 0.027),
    ((20, 20, 5), 0.0079, 0.0021),
    ((40, 14, 3), 0.0079, 0.0155),
]


@pytest.mark.parametrize(("sizes", "attention", "output"), TABLE)
def test_the_table_of_errors(sizes: tuple[int, int, int], attention: float, output: float) -> None:
    length, sparsity, degree = sizes
    f = random_sum(length, sparsity, degree, seed=1)
    assert attention_error(length, degree) == pytest.approx(attention, abs=5e-5)
    exact = check_network(fourier_network(f, mask=40), f, strings=500)
    assert exact.output < 1e-12
    assert exact.parity < 1e-12
    paper = check_network(fourier_network(f), f, strings=500)
    assert paper.attention <= attention_error(length, degree) + 1e-12
    assert paper.parity < 1e-12
    assert output / 2 < paper.output <= output_error(f) + 1e-12
    assert check_network(fourier_network(f, readout="linear"), f, strings=500).output < 1e-12


@pytest.mark.parametrize(("degree", "sparsity"), [*itertools.product((1, 2, 3, 4, 5), (1, 7, 14, 20))])
def test_the_classes_of_the_paper(degree: int, sparsity: int) -> None:
    f = random_sum(20, sparsity, degree, seed=degree)
    assert check_network(fourier_network(f, mask=40), f, strings=100).output < 1e-12
    network = fourier_network(f)
    assert check_network(network, f, strings=100).output <= output_error(f) + 1e-12
    squares = {name: float(each.detach().square().sum()) for name, each in network.named_parameters()}
    for name, bound in norm_blocks(sparsity, degree, 20).items():
        assert squares[name] <= bound + 1e-9, name
    assert network.squared_norm() <= norm_bound(sparsity, degree, 20)
    gradients = squared_gradients(network, STRINGS)
    assert gradients.total.max() <= gradient_bound(sparsity, degree) / 4
    # What the paper leaves out, positions without a set and their logits, is in the first layer's gradient and in F's.
    for name, bound in gradient_blocks(sparsity, degree).items():
        most = gradients.by_name[name].max()
        assert most <= bound if name in ("up", "bias", "read_query_key", "read_value") else True, name
        assert most <= 1 if name in ("query_key", "value") else True, name


def test_a_large_mask_breaks_the_bound_on_the_gradient() -> None:
    f = random_sum(20, 7, 1, seed=1)
    assert squared_gradients(fourier_network(f, mask=40), STRINGS).total.max() > gradient_bound(7, 1)


@st.composite
def mixed(draw: st.DrawFn) -> FourierSum:
    length = draw(st.integers(4, 7))
    every = [s for k in range(1, length + 1) for s in itertools.combinations(range(length), k)]
    sets = draw(st.lists(st.sampled_from(every), min_size=1, max_size=length, unique=True))
    weight = st.floats(-3, 3).filter(lambda value: abs(value) > 1e-3)
    return FourierSum(length, tuple(sets), tuple(draw(weight) for _ in sets))


@given(mixed())
@settings(max_examples=25, deadline=None)
def test_mixed_degrees_and_signs_are_exact_on_all_strings(f: FourierSum) -> None:
    assert check_network(fourier_network(f, mask=40), f).output < 1e-12
    assert check_network(fourier_network(f, readout="linear"), f).output < 1e-12
    found = check_network(fourier_network(f), f)
    assert found.exhaustive
    assert found.output <= output_error(f) + 1e-12


def test_a_check_finds_a_wrong_network() -> None:
    f = parse_sum("x1x2 + 0.5*x3x4", 6)
    other = parse_sum("x1x2 + 0.5*x3x5", 6)
    assert check_network(fourier_network(f, mask=40), other).output == pytest.approx(0.5)
    network = fourier_network(f, mask=40)
    with torch.no_grad():
        network.bias[0] += 0.1
    assert check_network(network, f).parity > 0.05


def test_rescaling_keeps_the_function_and_lowers_norm_and_gradient() -> None:
    network = fourier_network(random_sum(20, 10, 2, seed=2))
    scale = norm_scale(network)
    assert scale == pytest.approx(1.634, abs=5e-4)
    better = rescaled(network, scale)
    bits = torch.from_numpy(STRINGS)
    torch.testing.assert_close(better(bits), network(bits), rtol=0, atol=1e-13)
    assert network.squared_norm() - better.squared_norm() == pytest.approx(1073.5 - 1023.4, abs=0.1)
    for other in (0.98 * scale, 1.02 * scale):
        assert rescaled(network, other).squared_norm() > better.squared_norm()
    before, after = (float(squared_gradients(each, STRINGS).total.mean()) for each in (network, better))
    assert after < 0.7 * before
    best = gradient_scale(network, STRINGS)
    least = float(squared_gradients(rescaled(network, best), STRINGS).total.mean())
    for other in (0.95 * best, 1.05 * best):
        assert float(squared_gradients(rescaled(network, other), STRINGS).total.mean()) > least
    assert norm_scale(fourier_network(random_sum(20, 20, 5, seed=2))) == pytest.approx(2.454, abs=5e-4)


def test_trapezoids_that_no_string_needs_can_go() -> None:
    f = random_sum(12, 4, 4, seed=3)
    strings = index_bits(0, 1 << 12, 12)
    few = strings[strings.sum(axis=1) <= 3]
    grid = seen_counts(f, few)
    assert grid == {4: (0, 1, 2, 3)}
    whole, smaller = fourier_network(f, mask=40), fourier_network(f, mask=40, grid=grid)
    assert smaller.config.neurons == 16 < whole.config.neurons
    assert smaller.squared_norm() < whole.squared_norm()
    with torch.no_grad():
        assert np.abs(smaller(torch.from_numpy(few)).numpy() - f(few)).max() < 1e-12
        ones = np.ones((1, 12), np.uint8)
        assert abs(float(smaller(torch.from_numpy(ones))) - float(f(ones)[0])) > 0.1  # where it was never to be right


def test_random_projections_are_better_the_wider_they_are() -> None:
    f = random_sum(8, 3, 2, seed=1)
    errors = [
        np.mean([check_network(fourier_network(f, code_width=width, seed=s), f).attention for s in range(3)])
        for width in (8, 64, 256)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert projection_width(20) == 20
    assert fourier_network(f, code_width=64).config.width == 65


def test_a_construction_is_saved_and_read(tmp_path: Path) -> None:
    f = parse_sum("0.6*x1x2x3 - 0.8*x4x5", 8)
    save(fourier_network(f, mask=40), tmp_path / "f.safetensors", {"function": str(f)})
    network = load(tmp_path / "f.safetensors")
    assert check_network(network, f).output < 1e-12  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "length", "options", "said"),
    [
        ("x1 + x2 + x3 + x1x2 + x1x3", 4, {}, "5 sets need as many positions"),
        ("x1", 3, {}, "4 positions or more"),
        ("x1x2", 5, {"mask": -1.0}, "mask"),
        ("x1x2", 5, {"mask": 40.0, "readout": "linear"}, "does not have"),
        ("x1x2", 5, {"grid": {2: (3,)}}, "counts from 0 to 2"),
        ("x1x2", 5, {"grid": {1: (0,)}}, "at least one"),
        ("x1x2", 5, {"code_width": 0}, "code_width"),
    ],
)
def test_what_cannot_be_built_is_refused(text: str, length: int, options: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        fourier_network(parse_sum(text, length), **options)  # type: ignore[arg-type]
