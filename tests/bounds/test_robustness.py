"""The certificate: its intervals contain every flip's logit, whatever the model; and it bites where it is said to."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from flips.exactness import in_longdouble, longer_than_float64
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from flipscope.basics.errors import InputError
from flipscope.bounds.robustness.certificate import (
    Certificate,
    _OneString,
    certified,
    flip_intervals,
    logit_bounds,
    same_side,
    supports,
)
from flipscope.bounds.robustness.steps import _BEND, _SLOPE_SPREAD, Dense, Feed, Move, Norm, head_steps, tail_steps
from flipscope.flips import screen
from flipscope.flips.engine import GeneralEngine
from flipscope.flips.first_layer import seen_by_attention
from flipscope.models.config import TransformerConfig
from flipscope.models.init import SCHEMES, initialise
from flipscope.models.presets import encoder, fourier, hardness, mingpt, recognizer
from flipscope.models.transformer import Transformer


def draw(count, length, seed=0):
    return np.random.default_rng(seed).integers(0, 2, (count, length), np.uint8)


def truth(model, strings):
    """Logits of the strings and of their flips by plain forwards in float64."""
    engine = GeneralEngine(model, dtype=torch.float64)
    near = strings[:, None] ^ np.eye(strings.shape[1], dtype=np.uint8)
    return engine.logits(strings), engine.logits(near.reshape(-1, strings.shape[1])).reshape(strings.shape)


def check_sound(model, strings):
    """The share of the flips whose interval is of use, after making sure that all intervals hold."""
    base, flipped = truth(model, strings)
    found, low, high = flip_intervals(model, strings)
    np.testing.assert_allclose(found, base, rtol=1e-8, atol=1e-9)
    assert not np.isnan(low).any()
    assert not np.isnan(high).any()
    assert (low <= flipped).all()
    assert (flipped <= high).all()
    for threshold in (0.0, float(np.median(base)), float(np.quantile(flipped, 0.9))):
        sure = same_side(found, low, high, threshold, 0.0)
        assert not (sure & ((flipped > threshold) != (base > threshold)[:, None])).any()
    return float((np.isfinite(low) & np.isfinite(high)).mean())


SMALL = {"width": 8, "layers": 2, "heads": 2, "ffn_width": 12, "max_length": 16}
VARIANTS: dict[str, dict[str, object]] = {
    "post": {},
    "post, bare": {"affine": False},
    "post, eps 0": {"eps": 0.0},
    "pre": {"norm": "pre"},
    "pre, final norm": {"norm": "pre", "final_norm": True},
    "pre, gelu": {"norm": "pre", "activation": "gelu"},
    "once": {"norm": "once"},
    "none": {"norm": "none"},
    "none, gelu tanh": {"norm": "none", "activation": "gelu_tanh"},
    "post, gelu": {"activation": "gelu"},
    "sum once": {"norm": "once", "block": "sum"},
    "sum pre": {"norm": "pre", "block": "sum"},
    "sum none": {"norm": "none", "block": "sum"},
    "heads summed": {"head_size": 8, "combine": "sum", "qkv_bias": False},
    "cls, first": {"marker": "cls", "readout": "first"},
    "cls, last": {"marker": "cls"},
    "no marker": {"marker": "none"},
    "no marker, first": {"marker": "none", "readout": "first"},
    "causal": {"causal": True},
    "causal, no marker": {"causal": True, "marker": "none", "norm": "pre"},
    "causal, first": {"causal": True, "marker": "none", "readout": "first"},
    "mask self": {"mask_self": True},
    "tanh head": {"head": "tanh", "final_norm": True},
    "learned scale": {"learned_scale": True, "logit_scale": 2.0},
    "learned positions": {"positions": "learned", "embedding_norm": True},
    "appended positions": {"positions": "learned", "join": "concatenate", "position_width": 3},
    "one MLP": {"mlp_layers": 1},
    "no MLP": {"mlp_layers": 0, "norm": "none"},
    "no MLP, pre": {"mlp_layers": 0, "norm": "pre"},
}


def variant(name, **more):
    return TransformerConfig(**{**SMALL, **VARIANTS[name], **more})


@pytest.mark.parametrize("name", VARIANTS)
def test_intervals_hold_for_every_choice(name):
    finite = []
    for scheme, scale in zip(SCHEMES, (1.0, 1.0, 0.2, 0.5, 2.0), strict=True):
        model = initialise(Transformer(variant(name)), scheme, seed=3, scale=scale)
        finite.append(check_sound(model, draw(2, 9, seed=1)))
    assert max(finite) > 0.9  # and say something


@pytest.mark.parametrize("config", [recognizer(8, 2, 2), recognizer(6, 2, 1, eps=1e-3), hardness(9, 16), fourier(9)])
def test_intervals_hold_for_the_papers_models(config):
    for seed, scheme in enumerate(SCHEMES):
        check_sound(Transformer(config, scheme=scheme, seed=seed), draw(3, 9, seed))


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(sorted(VARIANTS)),
    scheme=st.sampled_from(SCHEMES),
    scale=st.floats(-2.5, 1.2).map(lambda power: 10.0**power),
    width=st.sampled_from([2, 4, 8, 16]),
    length=st.integers(2, 14),
    seed=st.integers(0, 2**32),
)
def test_intervals_hold_for_any_model(name, scheme, scale, width, length, seed):
    given_width = "head_size" in VARIANTS[name] or "position_width" in VARIANTS[name]
    config = variant(name) if given_width else variant(name, width=width)
    model = initialise(Transformer(config), scheme, seed=seed, scale=scale)
    if model.embedding.norm is None:
        check_sound(model, draw(2, length, seed))


def test_intervals_hold_where_attention_is_so_sharp_that_weights_vanish():
    """Weights that float64 rounds to 0 may come back, if the logits can move far enough."""
    for seed in range(6):
        model = initialise(Transformer(encoder(16, 2, 2)), "gaussian", seed=seed, scale=4.0)
        check_sound(model, draw(3, 20, seed))


@longer_than_float64
@pytest.mark.parametrize("part", ["attention.output", "mlp.down"])
@pytest.mark.parametrize("shift", [0.0, 1e4, 1e8, 1e10])
def test_intervals_hold_for_exact_arithmetic_where_float64_does_not(shift, part):
    """A norm takes a large shift away, but not its rounding; and attention is so sharp that little else moves."""
    strings, useful = draw(2, 10), []
    for seed in range(4):
        config = dataclasses.replace(encoder(8, 2, 1), logit_scale=100.0)
        model = Transformer(config, scheme="gaussian", seed=seed, dtype=torch.float64).eval()
        with torch.no_grad():
            for block in model.blocks:
                block.get_submodule(part).bias.add_(shift)
        near = (strings[:, None] ^ np.eye(10, dtype=np.uint8)).reshape(-1, 10)
        base, flipped = in_longdouble(model, strings), in_longdouble(model, near).reshape(strings.shape)
        found, low, high = flip_intervals(model, strings)
        assert ((low <= flipped) & (flipped <= high)).all()
        half = high / 2 - low / 2
        assert (np.abs(found - base) <= half.min(axis=1)).all()
        useful.append(half[np.isfinite(half)])
    if shift <= 1e4:  # as narrow as the rounding of float64 lets it be
        assert np.median(np.concatenate(useful)) < (1e-4 if shift else 1e-7)


@torch.no_grad()
def test_a_key_with_nearly_all_weight_is_flipped():
    """Its value less the average of all cancels then, and the others' average must be had in another way."""
    for seed in range(8):
        model = initialise(Transformer(variant("appended positions")), "uniform", seed=seed, scale=10**0.5)
        strings = draw(2, 3, seed)
        check_sound(model, strings)
        weights, string = Certificate(model).weights, torch.from_numpy(strings[0]).long()
        one = _OneString(weights, string)
        near = [_OneString(weights, some).brought for some in string ^ torch.eye(3, dtype=torch.long)]
        moved = (torch.stack(near) - one.brought).norm(dim=2).masked_fill(one._known(), 0.0)
        _, sizes, _ = one._first_attention(torch.zeros((1, *one.brought.shape), dtype=torch.float64))
        assert bool((moved <= sizes + 1e-12).all())
        torch.testing.assert_close(sizes, moved, rtol=1e-3, atol=1e-2)


def test_a_vector_of_zero_variance_leaves_nothing_certified():
    config = TransformerConfig(width=4, layers=2, norm="once", eps=0.0, affine=False, positions="none")
    model = Transformer(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.head.bias.fill_(1.0)
    _, low, high = flip_intervals(model, draw(2, 5))
    assert not np.isnan(low).any()
    assert not np.isnan(high).any()
    assert (low <= 1).all()
    assert (high >= 1).all()


def trained(length=16, steps=60):
    """A model that has learned to tell the first bit."""
    model = Transformer(encoder(16, 2, 2), scheme="xavier_normal", seed=2)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    stream = np.random.default_rng(0)
    for _ in range(steps):
        bits = torch.from_numpy(stream.integers(0, 2, (64, length)))
        loss = F.binary_cross_entropy_with_logits(model(bits), bits[:, 0].float())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


def test_intervals_hold_for_a_trained_model_and_find_its_one_bit():
    model, strings = trained(), draw(6, 16, seed=5)
    check_sound(model, strings)
    base, flipped = truth(model, strings)
    assert ((flipped > 0) != (base > 0)[:, None])[:, 0].all()
    assert not certified(model, strings)[:, 0].any()


def test_it_bites():
    """At PyTorch's and at Xavier's initialisation nearly all flips are certified, even beside a threshold."""
    for scheme in ("pytorch", "xavier_normal"):
        model, strings = Transformer(encoder(32, 2, 4), scheme=scheme, seed=2), draw(2, 100)
        base = flip_intervals(model, strings)[0]
        threshold = float(base.min()) - (0.05 if scheme == "pytorch" else 0.5)
        assert certified(model, strings, threshold=threshold).mean() > 0.9


def test_the_intervals_shrink_with_the_square_of_the_length():
    """A flip is felt by 1/N of every token's attention; the width is of second order in that."""
    model = Transformer(encoder(16, 2, 2), scheme="pytorch", seed=1)
    widths = []
    for length in (40, 160):
        _, low, high = flip_intervals(model, draw(2, length))
        widths.append(float(np.median(high - low)))
    assert widths[1] < widths[0] / 8


def test_bounds_are_the_farther_ends():
    model, strings = Transformer(encoder(16, 2, 2), scheme="xavier_normal", seed=1), draw(3, 30)
    base, flipped = truth(model, strings)
    _, low, high = flip_intervals(model, strings)
    bounds = logit_bounds(model, strings)
    assert (np.abs(flipped - base[:, None]) <= bounds).all()
    np.testing.assert_allclose(bounds, np.maximum(base[:, None] - low, high - base[:, None]), rtol=1e-6)


def test_a_margin_must_be_kept_on_both_sides():
    model, strings = Transformer(encoder(16, 2, 2), seed=1), draw(2, 40)
    base, low, high = flip_intervals(model, strings)
    assert certified(model, strings).all()
    farthest = float(max(abs(base).max(), abs(low).max(), abs(high).max()))
    assert not certified(model, strings, margin=farthest).any()


@pytest.mark.parametrize(
    "config",
    [
        encoder(8, 1, 2),
        encoder(8, 3, 2),
        dataclasses.replace(encoder(8, 2, 2), attention="relu"),
        dataclasses.replace(encoder(8, 2, 2), attention="linear"),
        dataclasses.replace(encoder(8, 2, 2), readout="mean"),
        mingpt(9, width=8, layers=2, heads=2),
    ],
)
def test_other_models_have_no_certificate(config):
    model = Transformer(config)
    assert not supports(model)
    with pytest.raises(InputError, match="two layers with softmax"):
        Certificate(model)


# ---------------------------------------------------------------- the parts, each against what really happens


@pytest.mark.parametrize("name", ["post", "pre", "once", "sum once", "none, gelu tanh", "heads summed", "causal"])
@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_every_part_of_the_bound_holds(name, scale):
    """Of single tokens, of the last row and of single hidden units: what is too small there, sums may hide."""
    for seed in range(4):
        model = initialise(Transformer(variant(name, causal=name == "causal")), "xavier_normal", seed=seed, scale=scale)
        check_parts(Certificate(model).weights, torch.from_numpy(draw(1, 10, seed)[0]).long())


def at_most(found, bound):
    bound = bound.nan_to_num(nan=torch.inf, posinf=torch.inf)  # after an overflow nothing is known, as in `interval`
    assert bool((found <= bound * (1 + 1e-9) + 1e-12).all())


@torch.no_grad()
def check_parts(c, string):
    model, count = c.model, len(string)
    one = _OneString(c, string)
    row, here = one._row()
    _, gradients, points = one._read_out(row, here)
    by_head = torch.einsum("fw,hws->fhs", gradients[0], c.out_weight)
    kappa = one._kappa(row, by_head)
    pull = torch.einsum("fhs,hsw->fhw", by_head, c.value_weight)
    slope = one._slope(row, kappa, pull)
    tokens = one._other_tokens(row, slope)
    near = string ^ torch.eye(count, dtype=torch.long)
    states, base = (seen_by_attention(c.last, model.states(some)[1]) for some in (near, string[None]))
    moved = (states - base).masked_fill(one._known()[..., None], 0.0)  # E, [flip, token, width]
    at_most(moved.norm(dim=2), tokens.radius)
    at_most(((moved * slope).sum(dim=2) - tokens.linear).abs(), tokens.remainder)
    scores = torch.einsum("ftw,hw->fht", moved, row.absorbed[-1])
    at_most((scores - tokens.scores).abs(), tokens.score_remainder)
    second, move = one._second_order(row, kappa, pull, tokens)
    attention = c.last.attention
    brought = attention(states, slice(one.read, one.read + 1))[:, 0]  # what the last row really brings
    change = brought - row.brought[:-1]
    at_most(change.norm(dim=1), move.radius)
    query, key = (
        attention.split(attention.query(states[:, one.read : one.read + 1])),
        attention.split(attention.key(states)),
    )
    visible = attention.visible(states, slice(one.read, one.read + 1))
    weights = attention.weights(attention.scores(query, key), visible)[:, :, 0]  # [flip, head, token]
    by_values = torch.einsum("fht,ftw,hvw->fv", weights, moved, c.folded)
    at_most((change - by_values - move.known).norm(dim=1), move.ball)
    first = tokens.linear.sum(dim=1)
    bound = tokens.remainder.sum(dim=1) + one._gradient_change(row, kappa, pull, tokens) + second
    at_most(((gradients[0][:-1] * change).sum(dim=1) - first).abs(), bound)
    fed = next(step for step in c.outer if isinstance(step, Feed))
    before, after = points[0][:-1], points[0][:-1] + change
    norm = c.last.norm1 if model.config.norm == "post" else fed.inner.norm if fed.inner is not None else None
    if norm is not None:
        before, after = norm(before), norm(after)
    at_most(((after - before) @ fed.mlp.up.weight.T).abs(), one._units(points[0][:-1], move))


# ---------------------------------------------------------------- the steps


def blocks():
    for name in ("post", "pre", "pre, gelu", "once", "post, gelu", "none, gelu tanh", "sum once", "post, eps 0"):
        model = Transformer(variant(name), scheme="gaussian", seed=4, dtype=torch.float64).requires_grad_(False)
        for step in tail_steps(model.blocks[0]):
            yield f"{name}: {type(step).__name__}", step
    head = Transformer(variant("tanh head"), scheme="gaussian", seed=4, dtype=torch.float64).requires_grad_(False)
    for step in head_steps(norm=head.final_norm, dense=head.dense):
        yield f"head: {type(step).__name__}", step


@pytest.mark.parametrize("step", [pytest.param(step, id=name) for name, step in blocks()])
def test_steps_move_no_farther_than_they_say(step):
    """Random moves of many lengths, and those that go where the remainder is large."""
    stream = torch.Generator().manual_seed(1)
    w = torch.randn((5, 8), generator=stream, dtype=torch.float64)
    x = torch.randn((5, 8), generator=stream, dtype=torch.float64)
    start = step(w, x)
    slopes = torch.randn((2, *start.shape), generator=stream, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian
    exact = torch.stack([jacobian(lambda v, row=row: step(v[None], x[row][None])[0], w[row]) for row in range(5)])
    torch.testing.assert_close(step.pull(w, slopes), torch.einsum("srv,rvw->srw", slopes, exact))
    worst = 0.0
    for power in np.linspace(-4, 1.5, 23):
        e = torch.randn((300, 5, 8), generator=stream, dtype=torch.float64)
        e[:100] -= e[:100].mean(dim=-1, keepdim=True)
        e[100:150] = w - w.mean(dim=-1, keepdim=True)
        e[150:200] = -e[100:150]
        e[100:200] += 0.3 * torch.randn((100, 5, 8), generator=stream, dtype=torch.float64)
        e *= 10**power / e.norm(dim=-1, keepdim=True)
        radius = torch.full((1, 5), 10**power, dtype=torch.float64)
        change = step(w + e, x) - start
        first = torch.einsum("rvw,erw->erv", exact, e)
        along = torch.einsum("srv,erv->ser", slopes, first).abs()
        left = torch.einsum("srv,erv->ser", slopes, change - first).abs()
        assert bool((change.norm(dim=-1) <= step.radius(w, radius) * (1 + 1e-9)).all())
        unknown = step.remainder(w, slopes, Move(radius, torch.full((2, 1, 5), torch.inf, dtype=torch.float64)))
        assert bool((left <= unknown * (1 + 1e-6) + 1e-12).all())
        told = step.remainder(w, slopes, Move(e.norm(dim=-1), along))
        assert bool((left <= told * (1 + 1e-6) + 1e-12).all())
        worst = max(worst, float((left / unknown.clamp(min=1e-12)).max()))
    assert worst > 0.02  # not far from what happens


def test_a_known_move_of_units_is_believed():
    model = Transformer(variant("post"), scheme="gaussian", seed=4, dtype=torch.float64).requires_grad_(False)
    step = next(step for step in tail_steps(model.blocks[0]) if isinstance(step, Feed))
    stream = torch.Generator().manual_seed(1)
    w, e = (torch.randn((200, 8), generator=stream, dtype=torch.float64) for _ in range(2))
    slopes = torch.randn((1, 200, 8), generator=stream, dtype=torch.float64)
    units = (e @ step.mlp.up.weight.T).abs()
    move = Move(e.norm(dim=1)[None], torch.full((1, 1, 200), torch.inf, dtype=torch.float64), units)
    bound = step.remainder(w, slopes, move)[0, 0]
    first = torch.einsum("rw,rw->r", step.pull(w, slopes)[0], e)
    left = ((step(w + e, w) - step(w, w)) * slopes[0]).sum(dim=1) - first
    assert bool((left.abs() <= bound + 1e-12).all())
    loose = step.remainder(w, slopes, dataclasses.replace(move, units=None))[0, 0]
    assert bool((bound <= loose + 1e-12).all())
    assert float(bound.sum()) < 0.7 * float(loose.sum())


@pytest.mark.parametrize("form", ["gelu", "gelu_tanh"])
def test_slopes_and_bends_of_activations(form):
    """On a grid so fine that nothing between its points exceeds the bounds, whose room is larger than the steps."""
    u = torch.linspace(-12, 12, 240_001, dtype=torch.float64).requires_grad_(True)
    value = F.gelu(u, approximate="tanh" if form == "gelu_tanh" else "none")
    (slope,) = torch.autograd.grad(value.sum(), u, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), u)
    slope = slope.detach()
    assert 0.6 < float((slope - 0.5).abs().max()) < _SLOPE_SPREAD[form] - 1e-3
    assert 0.79 < float(bend.abs().max()) < _BEND[form] - 1e-3


def test_types_of_steps():
    model = Transformer(variant("tanh head")).double().requires_grad_(False)
    assert [type(step) for step in tail_steps(model.blocks[0])] == [Norm, Feed, Norm]
    assert [type(step) for step in head_steps(norm=model.final_norm, dense=model.dense)] == [Norm, Dense]
    assert math.isclose(
        float(Norm(model.final_norm).radius(torch.eye(8)[:1].double(), torch.tensor([[1e9]]))), 2 * 8**0.5
    )


# ---------------------------------------------------------------- in the probe


@pytest.fixture
def _patient(monkeypatch):
    """Time stands still, so that no proof takes too long."""
    monkeypatch.setattr(screen, "clock", lambda: 0.0)
