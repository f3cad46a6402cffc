"""Eight strings at once, one a lane: the same logits as one forward a string."""

from __future__ import annotations

import dataclasses
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from probes.exactness import assert_logits_as_exact

from flipscope.models.config import TransformerConfig, encoder
from flipscope.models.transformer import Transformer
from flipscope.probes import fast, lane_kernels, lanes
from flipscope.probes.fast import FastEngine
from flipscope.probes.finish import Workspace
from flipscope.probes.lanes import ROUNDED_BITS, Lanes
from flipscope.probes.simd import LANES

SCHEMES = ("uniform", "gaussian", "xavier_uniform", "xavier_normal", "pytorch")
BASE = encoder(32, 3, 4, ffn_width=64)


def random_config(seed: int) -> TransformerConfig:
    """A shape with every choice that lanes know."""
    rng = np.random.default_rng(seed)
    pick = lambda *choices: choices[rng.integers(len(choices))]  # noqa: E731
    return TransformerConfig(
        width=pick(8, 16, 24, 40, 64),
        layers=pick(2, 3, 4),
        heads=pick(1, 2, 3, 5),
        head_size=pick(4, 8, 12, 64),
        combine="project",
        block="standard",
        norm=pick("once", "post"),
        attention="softmax",
        causal=False,
        mask_self=False,
        logit_scale=pick(None, None, 30.0),
        qkv_bias=pick(True, False),
        affine=pick(True, False),
        eps=pick(1e-5, 1e-3),
        learned_scale=pick(False, True),
        marker=pick("eos", "cls", "none"),
        readout=pick("last", "first"),
        positions=pick("sinusoidal", "none"),
        ffn_width=pick(8, 24, 64),
        activation="relu",
        head=pick("linear", "tanh"),
        final_norm=pick(False, True),
    )


def neighbours(strings: np.ndarray) -> torch.Tensor:
    """Each string and its flips, flips first [string * (N + 1), N]."""
    length = strings.shape[1]
    near = np.repeat(strings[:, None], length + 1, axis=1)
    near[:, np.arange(length), np.arange(length)] ^= 1
    return torch.from_numpy(near.reshape(-1, length)).long()


def all_logits(engine: FastEngine, strings: np.ndarray) -> torch.Tensor:
    base, flipped = engine.flip_logits(strings)
    return torch.from_numpy(np.concatenate([flipped, base[:, None]], axis=1)).flatten()


@pytest.mark.parametrize("seed", range(150))
def test_flips_by_the_definition(seed):
    config = random_config(seed)
    model = Transformer(config, scheme=SCHEMES[seed % 5], seed=seed).eval()
    length = 1 + seed % 34
    strings = np.random.default_rng(seed).integers(0, 2, (-(-60 // length), length), np.uint8)
    engine = FastEngine(model)
    assert engine._lanes is not None
    bits = neighbours(strings)
    assert_logits_as_exact(all_logits(engine, strings), model, bits)
    assert_logits_as_exact(torch.from_numpy(engine.logits(bits.numpy().astype(np.uint8))), model, bits)


@pytest.mark.parametrize("length", [100, 103])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_strings_as_long_as_the_papers(length, scheme):
    model = Transformer(encoder(64, 3, 4), scheme=scheme, seed=2).eval()
    strings = np.random.default_rng(0).integers(0, 2, (2, length), np.uint8)
    assert_logits_as_exact(all_logits(FastEngine(model), strings), model, neighbours(strings))


@pytest.mark.parametrize("numbers", [1, 33 * 32 * LANES, 70 * 32 * LANES])
def test_groups_in_several_parts_are_the_same(numbers, monkeypatch):
    engine = FastEngine(Transformer(BASE, scheme="gaussian", seed=4))
    strings = np.random.default_rng(1).integers(0, 2, (2, 31), np.uint8)  # four groups with room for 33 tokens
    together = all_logits(engine, strings)
    monkeypatch.setattr(lanes, "STATES_NUMBERS", numbers)
    assert torch.equal(all_logits(engine, strings), together)


@pytest.mark.parametrize("marker", ["eos", "cls", "none"])
def test_a_dominating_key_is_taken_out_without_cancellation(marker):
    """Attention so hard that every token has one key: without it, the weights of all others are far below rounding."""
    config = dataclasses.replace(BASE, logit_scale=300.0, marker=marker)
    model = Transformer(config, scheme="gaussian", seed=1).eval()
    strings = np.random.default_rng(1).integers(0, 2, (4, 30), np.uint8)
    assert_logits_as_exact(all_logits(FastEngine(model), strings), model, neighbours(strings))


def test_several_threads_give_the_same():
    model = Transformer(BASE, scheme="gaussian", seed=4).eval()
    strings = np.random.default_rng(1).integers(0, 2, (20, 41), np.uint8)
    alone, plain = all_logits(FastEngine(model), strings), FastEngine(model).logits(strings)
    torch.set_num_threads(2)
    assert torch.equal(all_logits(FastEngine(model), strings), alone)
    np.testing.assert_array_equal(FastEngine(model).logits(strings), plain)


@pytest.mark.parametrize("strings", [1, 7, 8, 9, 31])
def test_a_string_has_the_same_logit_in_any_lane(strings):
    """But for the rounding: which keys are negligible depends on all strings of a group."""
    engine = FastEngine(Transformer(BASE, scheme="xavier_normal", seed=4))
    bits = np.random.default_rng(1).integers(0, 2, (31, 12), np.uint8)
    np.testing.assert_allclose(engine.logits(bits)[:strings], engine.logits(bits[:strings]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(engine.logits(bits[::-1])[::-1], engine.logits(bits), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("token", [0, 12, 13])
def test_nan_stays_in_its_lane(token):
    model = Transformer(BASE, scheme="xavier_normal", seed=4).eval()
    x = torch.randn((20, 14, 32), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        loops = Lanes(model, Workspace())
        before = loops.plain(x, 13)
        x[11, token, 5] = torch.nan
        after = loops.plain(x, 13)
    others = torch.arange(20) != 11
    assert torch.equal(before[others], after[others])
    assert after[11].isnan().all()


def test_nan_of_a_flip_stays_in_its_lane():
    config = dataclasses.replace(BASE, positions="learned", max_length=21)
    model = Transformer(config, scheme="xavier_normal", seed=4).eval()
    engine = FastEngine(model)
    strings = np.zeros((1, 20), np.uint8)
    before = engine.flip_logits(strings)
    with torch.inference_mode():
        engine._tables.scores[:, 2 * 6 + 1] = torch.nan  # the other bit at position 6, as query and as key
        engine._tables.scores[:, :, 2 * 6 + 1] = torch.nan
        engine._lanes.prepare(engine._tables)
    base, flipped = engine.flip_logits(strings)
    others = np.arange(20) != 6
    np.testing.assert_array_equal(base, before[0])
    np.testing.assert_array_equal(flipped[:, others], before[1][:, others])
    assert np.isnan(flipped[0, 6])


@pytest.mark.parametrize("spread", [0.1, 3.0, 30.0, 3000.0])
def test_what_is_left_out_of_attention_is_below_rounding(spread):
    tokens = 50
    scores = spread * np.random.default_rng(3).normal(size=(52, lane_kernels.TOKENS, LANES)).astype(np.float32)
    weights = np.exp2((scores[:tokens] - scores[:tokens].max(axis=0)).astype(np.float64))
    total = weights.sum(axis=0)
    found, keys = scores.copy().ravel(), np.zeros(tokens, np.int64)
    top = scores[:tokens].max(axis=0).ravel()
    least = np.float32(ROUNDED_BITS + np.log2(tokens))
    count = lane_kernels._numerators(found, top, tokens, least, keys)
    kept = keys[:count]
    assert (np.diff(kept) > 0).all()
    np.testing.assert_allclose(found.reshape(-1, lane_kernels.TOKENS, LANES)[:count], weights[kept], 2e-7, 2**-120)
    np.testing.assert_allclose(top.reshape(-1, LANES), 1 / total, rtol=1e-6)
    left_out = np.delete(weights, kept, axis=0).sum(axis=0) / total
    assert left_out.max() < 2.0**-ROUNDED_BITS
    assert (count < tokens / 2) if spread == 3000 else (count == tokens or spread == 30)


def test_a_key_whose_logit_is_nan_is_not_left_out():
    scores = np.zeros((4, lane_kernels.TOKENS, LANES), np.float32)
    scores[2] = -1000
    scores[2, 1, 5] = np.nan
    scores[3] = -1000
    top, keys = np.zeros(lane_kernels.TOKENS * LANES, np.float32), np.zeros(4, np.int64)
    count = lane_kernels._numerators(scores.ravel(), top, 4, np.float32(30), keys)
    assert [*keys[:count]] == [0, 1, 2]
    broken = np.zeros((lane_kernels.TOKENS, LANES), bool)
    broken[1, 5] = True
    np.testing.assert_array_equal(np.isnan(top).reshape(broken.shape), broken)


def test_between_deltas_and_lanes(monkeypatch):
    """Where deltas may pay, the few tokens that change decide: either way gives the same logits."""
    monkeypatch.setattr(fast, "NEVER_SPARSE", 0)
    model = Transformer(encoder(64, 3, 2), scheme="gaussian", seed=3).eval()
    strings = np.random.default_rng(0).integers(0, 2, (3, 40), np.uint8)
    for few in (False, True):
        monkeypatch.setattr(fast, "sparse_pays", lambda _changed, _width, few=few: few)
        engine = FastEngine(model)
        by_lanes = Mock(side_effect=engine._by_lanes)
        monkeypatch.setattr(engine, "_by_lanes", by_lanes)
        assert_logits_as_exact(all_logits(engine, strings), model, neighbours(strings))
        assert by_lanes.call_count == (0 if few else 3)


def test_what_lanes_are_not_for():
    sums = {"heads": 2, "head_size": 32, "combine": "sum"}
    others: tuple[dict[str, object], ...] = (
        {"layers": 1},
        {"mlp_layers": 1},
        {"mlp_layers": 2},
        {"norm": "pre"},
        {"norm": "none"},
        {"eps": 0.0},
        {"activation": "gelu"},
        {"attention": "relu"},
        {"causal": True},
        {"mask_self": True},
        {"width": 36},
        {"ffn_width": 36},
        {"heads": 3, "head_size": 5},
        {"width": 2 * lanes.WIDEST},
        sums,
    )
    for fields in others:
        assert not lanes.supports(Transformer(dataclasses.replace(BASE, **fields), seed=0)), fields
    assert not lanes.supports(Transformer(BASE, seed=0, dtype=torch.float64))
    assert lanes.supports(Transformer(BASE, seed=0))
