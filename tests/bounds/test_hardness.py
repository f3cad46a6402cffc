"""A4 and A5 of paper 001 against every flip of every string, computed by the transformer itself in float64."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from bounds.encoders import changes, configs, cube, drawn, largest, outputs, ratios
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from flipscope.basics.errors import InputError
from flipscope.bounds import hardness as bounds
from flipscope.bounds.hardness import Constants
from flipscope.bounds.hardness.constants import _STEEPEST, Step
from flipscope.models import Transformer, hardness
from flipscope.models.config import TransformerConfig
from flipscope.models.presets import encoder, mingpt, recognizer
from flipscope.probes.blowup import blowup

HOLDS = 1 + 1e-6  # rounding, in near-degenerate norms


def power(lowest: float, highest: float) -> st.SearchStrategy[float]:
    """10 to a power between these."""
    return st.floats(lowest, highest).map(lambda exponent: float(10**exponent))


@settings(max_examples=25)
@given(configs(), st.integers(0, 10**6), power(-2.5, 1), st.one_of(st.just(1.0), power(-6, 2)))
def test_no_flip_of_any_string_does_more_than_the_bounds_say(
    shape: tuple[TransformerConfig, int], seed: int, scale: float, spread: float
) -> None:
    config, n = shape
    assert max(ratios(drawn(config, seed, scale, spread=spread), n).values()) <= HOLDS


@settings(max_examples=25)
@given(configs(), st.integers(0, 10**6), power(-3, 0.5))
def test_flips_on_every_string_without_norms_or_with_eps(
    shape: tuple[TransformerConfig, int], seed: int, scale: float
) -> None:
    config, n = shape
    model = drawn(config, seed, scale)
    own = Constants.of(model, n)
    found = bounds.flip_bound(own)
    if own.norms and not own.eps:
        assert found.log_other == math.inf
        assert found.vacuous
        return
    moved = changes(outputs(model, n), n)
    assert (moved <= own.span * HOLDS).all()
    read = own.read_row - own.first_bit
    for i in range(n):
        log = found.log_read if i == read else found.log_other
        assert moved[:, i].max() <= math.exp(min(log, 700)) * HOLDS + 1e-9 * own.span
    assert (moved**2).sum(axis=1).max() / 4 <= math.exp(min(found.sensitivity.log, 700)) * HOLDS + 1e-9 * own.span**2
    assert found.log_other <= found.log_constant - math.log(own.positions) + 1e-9


def climb(config: TransformerConfig, n: int, form: str, *, seed: int, steps: int) -> float:
    """The largest ratio of measured to bound that a hill climb over all numbers of the model finds."""
    stream = np.random.default_rng(seed)
    model = drawn(config, seed, 0.3)
    best, size = ratios(model, n)[form], 0.5
    for _ in range(steps):
        kept = [parameter.detach().clone() for parameter in model.parameters()]
        with torch.no_grad():
            for parameter in model.parameters():
                move = size * stream.standard_normal(tuple(parameter.shape)) * (stream.random() < 0.5)
                parameter += torch.as_tensor(move) * (parameter.abs() + 0.1)
        now = ratios(model, n)[form]
        assert now <= HOLDS
        if now > best:
            best, size = now, 1.5 * size
        else:
            size *= 0.93
            with torch.no_grad():
                for parameter, old in zip(model.parameters(), kept, strict=True):
                    parameter.copy_(old)
    return best


@pytest.mark.parametrize(("norm", "form"), [("post", "attention"), ("pre", "layers"), ("none", "product")])
def test_climbing_towards_a_violation_comes_near_it_and_finds_none(norm: str, form: str) -> None:
    config = dataclasses.replace(hardness(3, 4, 1, 1), norm=norm, eps=0.01)
    best = climb(config, 3, form, seed=1, steps=40)
    assert best > (0.001 if form == "product" else 0.1), "a climb that stays far below the bound tests nothing"


@pytest.mark.parametrize("n", [2, 12])
def test_hardness_itself_by_exhaustion(n: int) -> None:
    model = Transformer(hardness(n, 8), dtype=torch.float64, seed=3)
    own = Constants.of(model, n)
    assert (own.positions, own.norms, len(own.steps), own.reads_bit) == (n, 4, 4, True)
    moved = changes(outputs(model, n), n)
    picked = slice(0, None, max(1, 2**n // 64))
    for row, found in zip(moved[picked], bounds.measure(model, cube(n)[picked]), strict=True):
        assert largest(row, bounds.flip_changes(own, found)) <= HOLDS
        layered, product = bounds.layerwise_bound(own, found), bounds.product_bound(own, found.log_blowup)
        assert layered.log <= min(product.log, product.log_trivial) + 1e-9
        assert (row**2).sum() / 4 <= layered.value * HOLDS
    logs = [found.log_blowup for found in bounds.measure(model, cube(n)[picked], attention=False)]
    assert np.exp(logs) == pytest.approx(blowup(model, cube(n)[picked]).beta)
    mean = bounds.average_bound(own, logs)
    assert mean.log == pytest.approx(
        2 * bounds.log_constant(own) + math.log(np.exp(2 * np.array(logs)).mean() * (1 + 3 / n) / 4)
    )
    assert math.exp(bounds.log_places(own)) == pytest.approx(1 + 3 / n)
    assert bounds.log_least_blowup(own, mean.value) == pytest.approx(bounds.log_mean_square(logs) / 2)


def test_near_degenerate_norms() -> None:
    """All vectors close to one that a norm does not see, eps = 0: blowups of 10^7, and changes as large as can be."""
    model = drawn(dataclasses.replace(hardness(4, 8, 1, 2), eps=0.0), 5, 1e-8)
    with torch.no_grad():
        assert model.embedding.symbol is not None
        assert model.embedding.position is not None
        model.embedding.symbol.weight.mul_(1e-7).add_(1.0)
        model.embedding.position.weight.mul_(1e-7).add_(1.0)
        model.head.weight.fill_(0.0)[0, 0] = 1.0
    (found,) = bounds.measure(model, cube(4)[:1])
    assert found.log_blowup > math.log(1e6)
    worst = ratios(model, 4)
    assert 0.2 < worst["layers"] <= HOLDS
    assert worst["product"] <= HOLDS


@pytest.mark.parametrize("norm", ["none", "post"])
def test_a_head_that_looks_for_ones(norm: str) -> None:
    """Attention goes by the bits, which are small, and brings what stands at the position: only logits change much."""
    model = drawn(dataclasses.replace(hardness(4, 8, 1, 1), norm=norm), 7, 0.3)
    attention = model.blocks[0].attention
    with torch.no_grad():
        assert model.embedding.symbol is not None
        model.embedding.symbol.weight.mul_(0.01)
        attention.query.bias.mul_(3000.0)
        attention.key.weight[:, 4:] = 0.0  # the half of the positions
        model.blocks[0].mlp.down.weight.mul_(0.01)
    assert max(ratios(model, 4).values()) <= HOLDS
    own = Constants.of(model, 4)
    blind = [
        dataclasses.replace(step, heads=tuple(dataclasses.replace(head, pull=0.0, score=0.0) for head in step.heads))
        for step in own.steps
    ]
    moved = changes(outputs(model, 4), 4)
    found = [dataclasses.replace(each, focus=()) for each in bounds.measure(model, cube(4))]
    without = [bounds.flip_changes(dataclasses.replace(own, steps=tuple(blind)), each) for each in found]
    assert max(map(largest, moved, without)) > 1, "the terms of the logits are needed here"


def test_where_the_bounds_say_something() -> None:
    small = dataclasses.replace(hardness(12, 8, 1, 1), norm="none")
    model = drawn(small, 1, 0.02)
    own = Constants.of(model, 12)
    found = bounds.flip_bound(own)
    assert not found.vacuous
    assert not found.sensitivity.vacuous
    assert found.sensitivity.orders < 0
    assert found.sensitivity.as_json()["vacuous"] is False
    post = drawn(dataclasses.replace(small, norm="post"), 1, 0.02)
    own = Constants.of(post, 12)
    (measured,) = bounds.measure(post, cube(12)[5:6])
    assert not bounds.layerwise_bound(own, measured).vacuous
    large = bounds.product_bound(Constants.of(drawn(hardness(12, 16, 12), 1, 1e3), 12), 3.0)
    assert math.isfinite(large.log), "in logarithms nothing overflows"
    assert large.value == math.inf
    assert large.vacuous
    assert large.orders > 300


def test_the_order_in_n() -> None:
    """A marker is read, positions have no vectors: C'/M is reached in the limit, and J falls as 1/n."""
    config = dataclasses.replace(encoder(8, 2, 2, ffn_width=8), positions="none", norm="none")
    model = drawn(config, 2, 0.1)
    logs = [bounds.flip_bound(Constants.of(model, n)) for n in (10**2, 10**4)]
    assert logs[0].log_other - logs[1].log_other == pytest.approx(math.log(100), abs=0.1)
    assert logs[1].log_other + math.log(10**4 + 1) == pytest.approx(logs[1].log_constant, abs=0.05)
    assert bounds.log_places(Constants.of(model, 10**4)) == pytest.approx(-math.log(10**4), abs=1e-3)
    constants = [bounds.log_constant(Constants.of(model, n), every_length=True) for n in (2, 10**3)]
    assert constants[0] == pytest.approx(constants[1])
    assert bounds.log_constant(Constants.of(model, 2)) <= constants[0] + 1e-9


# ---------------------------------------------------------------- one norm, one head


def test_the_lemma_on_layer_norm_under_gradient_ascent() -> None:
    """||LN z - LN z'|| <= 2 min(N, N') ||P(z - z')||; the ascent comes near 2 and not above."""
    torch.manual_seed(0)
    z, w = (torch.randn(64, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    best = 0.0
    climber = torch.optim.Adam([z, w], lr=0.05)
    for _ in range(400):
        a, b = (v - v.mean(dim=1, keepdim=True) for v in (z, w))
        n, m = (torch.rsqrt(v.square().mean(dim=1) + 1e-3) for v in (a, b))
        moved = (a * n[:, None] - b * m[:, None]).norm(dim=1)
        ratio = moved / (torch.minimum(n, m) * (a - b).norm(dim=1))
        best = max(best, float(ratio.detach().max()))
        climber.zero_grad()
        (-ratio.log().sum()).backward()
        climber.step()
    assert 1.9 < best <= 2


@settings(max_examples=30)
@given(st.integers(2, 8), st.integers(1, 2), st.integers(0, 10**6), power(-2, 1), st.booleans())
def test_one_head_of_the_first_layer(n: int, heads: int, seed: int, scale: float, marked: bool) -> None:
    config = dataclasses.replace(hardness(n, 4, 1, heads), norm="none", marker="eos" if marked else "none")
    model = drawn(config, seed, scale)
    own = Constants.of(model, n)
    (step,) = (each for each in own.steps if each.heads)
    attention = model.blocks[0].attention
    x = np.random.default_rng(seed).integers(0, 2, n)
    strings = torch.from_numpy(np.concatenate([x[None], x ^ np.eye(n, dtype=np.int64)]))
    with torch.no_grad():
        state = model.embed(strings)
        query, key, value = (attention.split(p(state)) for p in (attention.query, attention.key, attention.value))
        mixed = attention.weights(attention.scores(query, key)) @ value  # [string, head, row, size]
        size = config.key_width
        for head in range(heads):
            brought = mixed[:, head] @ attention.output.weight[:, head * size : (head + 1) * size].T
            moved = (brought[1:] - brought[0]).norm(dim=-1).numpy()  # [flip, row]
            far = bounds.head_change(step, head, own.positions, own.gap, 0.0, same=False)
            near = bounds.head_change(step, head, own.positions, own.gap, 0.0, same=True)
            same = np.eye(n, own.positions, dtype=bool)
            assert moved[same].max() <= near * HOLDS
            assert not (~same).any() or moved[~same].max() <= far * HOLDS


@pytest.mark.parametrize(("activation", "approximate"), [("gelu", "none"), ("gelu_tanh", "tanh")])
def test_the_steepest_slope_of_gelu(activation: str, approximate: str) -> None:
    x = torch.linspace(-8, 8, 100_001, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(F.gelu(x, approximate=approximate).sum(), x)
    assert 0.998 * _STEEPEST[activation] < float(slope.abs().max()) < _STEEPEST[activation]


def attend(z: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Softmax attention over z [run, position, size] with the logits z . c."""
    weights = (z @ c[:, :, None])[..., 0].softmax(dim=1)
    return (weights[:, None] @ z)[:, 0]


@pytest.mark.parametrize("positions", [2, 5])
def test_the_lemma_on_one_head_under_gradient_ascent(positions: int) -> None:
    """Eq 4 at a row that is not flipped, with z on both sides in the ball and c_j as large as chi."""
    torch.manual_seed(1)
    runs, size, radius = 48, 3, 1.5
    free = torch.randn(runs, positions + 1, size, dtype=torch.float64, requires_grad=True)
    pull = (4 * torch.randn(runs, size, dtype=torch.float64)).requires_grad_(True)
    climber = torch.optim.Adam([free, pull], lr=0.03)
    best = 0.0
    for _ in range(400):
        ball = radius * free / torch.clamp(free.norm(dim=2, keepdim=True), min=1.0)
        z, other = ball[:, :-1], torch.cat([ball[:, -1:], ball[:, 1:-1]], dim=1)
        moved = (attend(z, pull) - attend(other, pull)).norm(dim=1)
        reach = 2 * radius * pull.norm(dim=1)
        top = 1 / (1 + (positions - 1) * torch.exp(-reach))
        bend = torch.where(top < 0.5, top * (1 - top), 0.25)
        ratio = moved / ((top + reach * bend) * (z[:, 0] - other[:, 0]).norm(dim=1))
        best = max(best, float(ratio.detach().max()))
        climber.zero_grad()
        (-ratio.log().sum()).backward()
        climber.step()
    assert 0.4 < best <= 1


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("config", "match"),
    [
        (recognizer(8), "block='sum'"),
        (mingpt(8, heads=2), "causal=True, outputs=2"),
        (dataclasses.replace(hardness(8, 8), attention="linear"), "attention='linear'"),
        (dataclasses.replace(hardness(8, 8), readout="mean"), "readout='mean'"),
        (dataclasses.replace(hardness(8, 8), mask_self=True), "mask_self=True"),
    ],
)
def test_what_the_derivation_does_not_cover_is_refused(config: TransformerConfig, match: str) -> None:
    with pytest.raises(InputError, match=match):
        Constants.of(Transformer(config), 8)


def test_bad_input_is_refused() -> None:
    model = Transformer(hardness(4, 8))
    own = Constants.of(model, 4)
    calls: list[tuple[Any, str]] = [
        (lambda: Constants.of(model, 5), "length=5"),
        (lambda: Constants.of(model, 0), "length"),
        (lambda: bounds.product_bound(own, -1.0), "at least 1"),
        (lambda: bounds.product_bound(own, math.nan), "at least 1"),
        (lambda: bounds.average_bound(own, []), "at least 1"),
        (lambda: bounds.log_least_blowup(own, -1.0), "sensitivity="),
        (lambda: bounds.flip_changes(own, bounds.Measured((), ())), "0 norms were measured"),
    ]
    for call, match in calls:
        with pytest.raises(InputError, match=match):
            call()
    with torch.no_grad():
        model.head.weight[0, 0] = math.nan
    with pytest.raises(InputError, match="head contain NaN"):
        Constants.of(model, 4)
    model = Transformer(hardness(4, 8))
    model.head.register_forward_hook(lambda *_: None)
    with pytest.raises(InputError, match="build a new one"):
        Constants.of(model, 4)


def test_a_model_that_reads_no_bits() -> None:
    model = drawn(hardness(4, 8), 1, 0.3)
    with torch.no_grad():
        assert model.embedding.symbol is not None
        model.embedding.symbol.weight[1] = model.embedding.symbol.weight[0]
    own = Constants.of(model, 4)
    (found,) = bounds.measure(model, cube(4)[:1])
    assert bounds.layerwise_bound(own, found).value == 0
    assert bounds.product_bound(own, 1.0).value == 0
    assert bounds.log_least_blowup(own, 1.0) == math.inf
    assert bounds.log_least_blowup(own, 0.0) == -math.inf
    assert isinstance(own.steps[0], Step)
