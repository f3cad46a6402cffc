"""Strings side by side, one a lane: the same logits as one forward a string, at every width."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest
import torch
from flips.exactness import assert_logits_as_exact, in_float64

from flipscope.flips import choice, lanes
from flipscope.flips.fast import FastEngine
from flipscope.flips.lanes import ROUNDED_BITS, Lanes
from flipscope.models.config import TransformerConfig
from flipscope.models.presets import encoder
from flipscope.models.transformer import Transformer
from flipscope.native import lanes as lane_kernels
from flipscope.native.span import TOKENS, VARIABLE, Span, SpanType

SCHEMES = ("uniform", "gaussian", "xavier_uniform", "xavier_normal", "pytorch")
BASE = encoder(32, 3, 4, ffn_width=64)


def random_config(seed: int) -> TransformerConfig:
    """A shape with every choice that lanes know."""
    rng = np.random.default_rng(seed)
    pick = lambda *choices: choices[rng.integers(len(choices))]  # noqa: E731
    return TransformerConfig(
        width=pick(8, 12, 24, 40, 64),
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
        ffn_width=pick(8, 20, 64),
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


def engines(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> dict[int, FastEngine]:
    """One of each width."""
    found = {}
    for lanes_count in TOKENS:
        monkeypatch.setenv(VARIABLE, str(lanes_count))
        found[lanes_count] = FastEngine(model)
        assert found[lanes_count]._lanes.span.lanes == lanes_count
    return found


def all_logits(engine: FastEngine, strings: np.ndarray) -> torch.Tensor:
    base, flipped = engine.flip_logits(strings)
    return torch.from_numpy(np.concatenate([flipped, base[:, None]], axis=1)).flatten()


@pytest.mark.parametrize("first", [0, 17, 34])
def test_flips_by_the_definition(first, monkeypatch):
    for seed in range(first, first + 17):
        config = random_config(seed)
        model = Transformer(config, scheme=SCHEMES[seed % 5], seed=seed).eval()
        length = 1 + seed % 34
        strings = np.random.default_rng(seed).integers(0, 2, (-(-60 // length), length), np.uint8)
        bits = neighbours(strings)
        made = engines(model, monkeypatch).values()
        flips = [all_logits(engine, strings) for engine in made]
        each = [torch.from_numpy(engine.logits(bits.numpy().astype(np.uint8))) for engine in made]
        assert_logits_as_exact(model, bits, *flips, *each)


@pytest.mark.parametrize(("length", "scheme"), [(100, "gaussian"), (103, "xavier_normal")])
def test_strings_as_long_as_the_papers(length, scheme, monkeypatch):
    model = Transformer(encoder(64, 3, 4), scheme=scheme, seed=2).eval()
    strings = np.random.default_rng(0).integers(0, 2, (2, length), np.uint8)
    found = {lanes: all_logits(engine, strings) for lanes, engine in engines(model, monkeypatch).items()}
    assert_logits_as_exact(model, neighbours(strings), *found.values())
    assert torch.equal(found[8] > 0, found[16] > 0)  # none of these is near to zero


@pytest.mark.parametrize("groups", [0, 1, 2])
def test_groups_in_several_parts_are_the_same(groups, monkeypatch):
    strings = np.random.default_rng(1).integers(0, 2, (2, 39), np.uint8)  # five groups of eight, or three of sixteen
    for lanes_count, engine in engines(Transformer(BASE, scheme="gaussian", seed=4), monkeypatch).items():
        together = all_logits(engine, strings)
        with monkeypatch.context() as patch:
            patch.setattr(lanes, "STATES_NUMBERS", 1 + groups * 42 * 32 * lanes_count)  # room for 42 tokens
            assert torch.equal(all_logits(engine, strings), together)


@pytest.mark.parametrize(
    ("length", "widths"), [(7, [(8, 0, 1)]), (15, [(16, 0, 1)]), (20, [(16, 0, 1), (8, 16, 1)]), (25, [(16, 0, 2)])]
)
def test_what_is_left_of_sixteen_lanes_goes_into_eight(length, widths, monkeypatch):
    engine = engines(Transformer(BASE, scheme="gaussian", seed=4), monkeypatch)[16]
    engine.flip_logits(np.zeros((1, length), np.uint8))
    assert [(span.lanes, first, len(bits)) for span, first, bits in engine._lanes.first.parts] == widths


def test_an_engine_of_another_width_can_be_sent(monkeypatch):
    strings = np.random.default_rng(1).integers(0, 2, (2, 20), np.uint8)
    made = engines(Transformer(BASE, scheme="gaussian", seed=4), monkeypatch)
    monkeypatch.delenv(VARIABLE)
    for lanes_count, engine in made.items():
        sent = pickle.loads(pickle.dumps(engine))
        assert sent._lanes.span == Span(lanes_count, TOKENS[lanes_count])
        assert torch.equal(all_logits(sent, strings), all_logits(engine, strings))


def test_machine_code_of_the_widths_is_kept_apart():
    """numba's cache finds it by the names of the types alone: the width must be in one of them."""
    assert len({str(SpanType(lanes_count, tokens)) for lanes_count, tokens in TOKENS.items()}) == len(TOKENS)


@pytest.mark.parametrize("marker", ["eos", "cls", "none"])
def test_a_dominating_key_is_taken_out_without_cancellation(marker):
    """Attention so hard that every token has one key: without it, the weights of all others are far below rounding."""
    config = dataclasses.replace(BASE, logit_scale=300.0, marker=marker)
    model = Transformer(config, scheme="gaussian", seed=1).eval()
    strings = np.random.default_rng(1).integers(0, 2, (4, 30), np.uint8)
    assert_logits_as_exact(model, neighbours(strings), all_logits(FastEngine(model), strings))


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
def test_nan_stays_in_its_lane(token, span):
    model = Transformer(BASE, scheme="xavier_normal", seed=4).eval()
    x = torch.randn((20, 14, 32), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        loops = Lanes(model, span)
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


def test_keys_far_from_zero_and_near_to_each_other(monkeypatch):
    """What all keys have in common changes no weight: neither may it overflow, nor cost digits."""
    model = Transformer(BASE, scheme="xavier_normal", seed=4).eval()
    strings = np.random.default_rng(1).integers(0, 2, (2, 21), np.uint8)
    bits = neighbours(strings)
    with torch.no_grad():
        exact = in_float64(model)(bits)
        for block in model.blocks:
            block.attention.key.bias += 300.0
    for engine in engines(model, monkeypatch).values():
        np.testing.assert_allclose(all_logits(engine, strings).numpy(), exact.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("broken", [False, True])
def test_centred_keys_and_what_bounds_their_logits(span, broken):
    tokens, room, size, lanes_count = 5, 6, 8, span.lanes
    rng = np.random.default_rng(0)
    key = (rng.normal(size=(8, size, lanes_count)) + 100).astype(np.float32)
    query = rng.normal(size=(room, size, lanes_count)).astype(np.float32)
    query[tokens:] = 1e30  # what stands in spare room is nobody's business
    if broken:
        key[3, 2, 1] = query[2, 4, 6] = np.nan
    before = np.einsum("tdl,udl->tul", query[:tokens], key[:tokens], dtype=np.float64)
    found, flat = key.copy().ravel(), query.ravel()
    bound = lane_kernels._centre_keys(span, found, 8, flat, tokens, size)
    centred = found.reshape(key.shape)
    after = np.einsum("tdl,udl->tul", query[:tokens], centred[:tokens], dtype=np.float64)
    np.testing.assert_allclose(after - after[:, :1], before - before[:, :1], rtol=0, atol=1e-3)
    assert np.array_equal(centred[tokens:], np.repeat(centred[tokens - 1 : tokens], 3, axis=0), equal_nan=True)
    whole = [lane for lane in range(lanes_count) if not broken or lane not in (1, 6)]
    most = np.abs(after[..., whole]).max()
    assert most <= bound <= 10 * most
    middle = (key[:tokens].max(axis=0) + key[:tokens].min(axis=0)) / 2
    np.testing.assert_allclose(centred[:tokens][..., whole], (key[:tokens] - middle)[..., whole], rtol=0, atol=2e-5)


@pytest.mark.parametrize("size", [4, lane_kernels.SMALL, 12])
@pytest.mark.parametrize("tokens", [3, 4, 9])
def test_numerators_of_moderate_logits(tokens, size, span):
    filled, first = -(-tokens // lane_kernels.UNITS) * lane_kernels.UNITS, span.tokens
    rng = np.random.default_rng(0)
    key = rng.normal(size=(filled, size, span.lanes)).astype(np.float32)
    query = rng.normal(size=(2 * span.tokens, size, span.lanes)).astype(np.float32)
    found, shares = np.zeros(filled * span.tokens * span.lanes, np.float32), np.ones(first * span.lanes, np.float32)
    lane_kernels._moderate_numerators(span, query.ravel(), first, key.ravel(), tokens, size, found, shares)
    logits = np.einsum("tdl,udl->utl", query[first:], key[:tokens], dtype=np.float64)
    np.testing.assert_allclose(found.reshape(filled, first, -1)[:tokens], np.exp2(logits), rtol=1e-5)
    np.testing.assert_allclose(shares.reshape(first, -1), 1 / np.exp2(logits).sum(axis=0), rtol=1e-5)


def ends_of(scores: np.ndarray) -> np.ndarray:
    """The largest logit of each token, and the smallest of the first one, as the kernel leaves them."""
    return np.concatenate([scores.max(axis=0), scores[:, 0].min(axis=0)[None]]).ravel()


@pytest.mark.parametrize("spread", [0.1, 3.0, 30.0, 3000.0])
def test_what_is_left_out_of_attention_is_below_rounding(spread, span):
    tokens = 50
    scores = spread * np.random.default_rng(3).normal(size=(52, span.tokens, span.lanes)).astype(np.float32)
    weights = np.exp2((scores[:tokens] - scores[:tokens].max(axis=0)).astype(np.float64))
    total = weights.sum(axis=0)
    found, keys = scores.copy().ravel(), np.zeros(tokens, np.int64)
    ends = ends_of(scores[:tokens])
    least = np.float32(ROUNDED_BITS + np.log2(tokens))
    count = lane_kernels._numerators(span, found, ends, tokens, least, keys)
    kept = keys[:count]
    assert (np.diff(kept) > 0).all()
    np.testing.assert_allclose(found.reshape(scores.shape)[:count], weights[kept], 2e-7, 2**-120)
    np.testing.assert_allclose(ends[: -span.lanes].reshape(total.shape), 1 / total, rtol=1e-6)
    left_out = np.delete(weights, kept, axis=0).sum(axis=0) / total
    assert left_out.max() < 2.0**-ROUNDED_BITS
    most = tokens / 2 if span.lanes == 8 else tokens - 1  # of more numbers, more are the largest of their row
    assert (count <= most) if spread == 3000 else (count == tokens or spread == 30)


def test_a_small_weight_of_a_large_value_is_not_left_out(span, monkeypatch):
    """e^-30 is far below what rounding swallows of weights, but the value of ones is 1e13."""
    config = dataclasses.replace(encoder(16, 3, 1, ffn_width=8), positions="none", logit_scale=1.0)
    model = Transformer(config, scheme="xavier_normal", seed=0).eval()
    strings = np.random.default_rng(0).integers(0, 2, (2 * span.lanes, 12), np.uint8)  # spare lanes would keep all keys
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.zero_()
        # Norms leave these as they are, but for their length.
        for symbol in range(3):
            model.embedding.symbol.weight[symbol, 2 * symbol : 2 * symbol + 2] = torch.tensor([1.0, -1.0])
        attention = model.blocks[1].attention
        attention.query.bias[0], attention.key.weight[0, :4:2] = 1.0, -30 / 8**0.5
        attention.value.weight[0, 2], attention.output.weight[6, 0] = 1e13, 1.0
        model.head.weight[0, 6] = 1.0
        exact = in_float64(model)(torch.from_numpy(strings).long())
    assert float(exact.min()) > 0.5  # without that weight it would be 0
    monkeypatch.setenv(VARIABLE, str(span.lanes))
    engine = FastEngine(model)
    assert engine._lanes is not None
    np.testing.assert_allclose(engine.logits(strings), exact.numpy(), rtol=1e-4)
    np.testing.assert_allclose(engine.flip_logits(strings)[0], exact.numpy(), rtol=1e-4)


@pytest.mark.parametrize("zero", [False, True])
def test_bits_between_the_sizes_of_a_coordinate(span, zero):
    tokens, room, size = 5, 6, 8
    values = np.random.default_rng(0).normal(size=(room, size, span.lanes)).astype(np.float32)
    values[tokens:] = 1e30  # what stands in spare room is nobody's business
    values[:, 3] = 0.0  # nor is a coordinate that all tokens have 0 of
    if zero:
        values[2, 5, 1] = 0.0
    packed = values.reshape(room, -1, lane_kernels.UNITS, span.lanes).transpose(1, 0, 2, 3)
    found = lane_kernels._bits_of_values(span, np.ascontiguousarray(packed).ravel(), tokens, size)
    sizes = np.delete(np.abs(values[:tokens]), 3, axis=1)
    if zero:
        assert found == np.inf
    else:
        assert found == pytest.approx(np.log2((sizes.max(axis=0) / sizes.min(axis=0)).max()), rel=1e-5)


def test_a_key_whose_logit_is_nan_is_not_left_out(span):
    scores = np.zeros((4, span.tokens, span.lanes), np.float32)
    scores[2] = -1000
    scores[2, 1, 5] = np.nan
    scores[3] = -1000
    keys, ends = np.zeros(4, np.int64), np.zeros((span.tokens + 1) * span.lanes, np.float32)
    ends[-span.lanes :] = -1000
    count = lane_kernels._numerators(span, scores.ravel(), ends, 4, np.float32(30), keys)
    assert [*keys[:count]] == [0, 1, 2]
    broken = np.zeros((span.tokens, span.lanes), bool)
    broken[1, 5] = True
    np.testing.assert_array_equal(np.isnan(ends[: -span.lanes]).reshape(broken.shape), broken)


@pytest.mark.parametrize("nan_at", [None, 0, 1, 2, 3, 5])
def test_the_smallest_logit_says_no_more_than_all_of_them(nan_at, span):
    """Where it is too small, or NaN stands beside it, every key is looked at."""
    size, keys, block = 4, 8, span.tokens * span.lanes
    query, key = np.zeros((span.tokens, size, span.lanes), np.float32), np.zeros((keys, size, span.lanes), np.float32)
    query[:, 0], key[:, 0] = 1, 2
    key[4, 0] = -1000
    if nan_at is not None:
        key[nan_at, 0, 3] = np.nan
    scores, ends = np.zeros(keys * block, np.float32), np.zeros(block + span.lanes, np.float32)
    lane_kernels._scores(span, query.ravel(), 0, key.ravel(), keys, size, scores, ends)
    assert (ends[block:] == -1000).all()
    kept = np.zeros(keys, np.int64)
    assert lane_kernels._numerators(span, scores, ends, keys, np.float32(30), kept) == keys - 1
    assert 4 not in kept[: keys - 1]


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
        {"ffn_width": 34},
        {"heads": 3, "head_size": 5},
        {"width": 2 * choice.WIDEST},
        sums,
    )
    for fields in others:
        assert not choice.has_loops(dataclasses.replace(BASE, **fields), torch.float32), fields
    assert not choice.has_loops(BASE, torch.float64)
    assert choice.has_loops(BASE, torch.float32)
