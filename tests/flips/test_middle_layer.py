"""The compiled layers in float32 against the same layers in float64: as exact as PyTorch's own."""

from __future__ import annotations

import copy
import dataclasses
import itertools

import numpy as np
import pytest
import torch
from flips.exactness import assert_as_exact, in_float64
from numba import float32, njit, void

from flipscope.flips import middle_layer
from flipscope.flips.fast import FastEngine
from flipscope.flips.finish import Finish, Workspace
from flipscope.flips.first_layer import FirstLayer, make_tables
from flipscope.flips.middle_layer import MiddleLayer
from flipscope.flips.mixed_rows import make_mixed_tables, mixable, mixed_states
from flipscope.models.config import TransformerConfig
from flipscope.models.presets import encoder
from flipscope.models.transformer import Transformer
from flipscope.native import lanes as lane_kernels
from flipscope.native import rectified as relu_kernels
from flipscope.native import simd
from flipscope.native import wide as kernels
from flipscope.native.powers import LOG2_E, power_of_two
from flipscope.native.span import TOKENS, Span, SpanType, span_of

BASE = encoder(32, 3, 4, ffn_width=64)
CHOICES: dict[str, dict[str, object]] = {
    "as it is": {},
    "norm once": {"norm": "once"},
    "norm first": {"norm": "pre"},
    "no norm": {"norm": "none"},
    "plain norm": {"affine": False},
    "eps 0": {"eps": 0.0},
    "gelu": {"activation": "gelu"},
    "gelu_tanh": {"activation": "gelu_tanh"},
    "no bias": {"qkv_bias": False},
    "learned scale": {"learned_scale": True},
    "sharp": {"logit_scale": 30.0},
    "odd heads": {"heads": 3, "head_size": 5},
    "full heads": {"heads": 2, "head_size": 32, "combine": "sum"},
    "sum block": {"heads": 2, "head_size": 32, "combine": "sum", "block": "sum", "norm": "once"},
    "width 40": {"width": 40, "ffn_width": 24},
    "relu attention": {"attention": "relu"},
    "linear attention": {"attention": "linear"},
    "causal": {"causal": True},
    "mask self": {"mask_self": True},
}
UNKNOWN = {"relu attention", "linear attention", "causal", "mask self"}  # to the attention kernel


def configured(choice: str) -> TransformerConfig:
    return dataclasses.replace(BASE, **CHOICES[choice])


def near(flips: int, tokens: int, width: int, distance: float) -> tuple[torch.Tensor, torch.Tensor]:
    """States of a string, and those of flips at about this distance, relative to their size."""
    stream = torch.Generator().manual_seed(1)
    base = torch.randn((tokens, width), generator=stream)
    return base, base + distance * torch.randn((flips, tokens, width), generator=stream)


@njit([void(SpanType(lanes, 2), float32[::1], float32[::1]) for lanes in TOKENS])
def powers_of_two(span, x, out):
    for at in range(0, len(x), 2 * span.lanes):
        simd.store_tile(out, at, span.lanes, 0, power_of_two(simd.load_column(span, x, at, span.lanes)))


@pytest.fixture(params=TOKENS)
def powers(request):
    return lambda x, out: powers_of_two(Span(request.param, 2), x, out)


def test_powers_of_two_are_off_by_little_more_than_rounding(powers):
    x = -np.random.default_rng(0).exponential(30, 80_000).astype(np.float32)
    x = np.concatenate([x[x >= -125], np.linspace(-1, 0, 8001, dtype=np.float32)])
    x = np.append(x[: len(x) // 32 * 32 - 32], np.zeros(32, np.float32))
    out = np.empty_like(x)
    powers(x, out)
    exact = np.exp2(x.astype(np.float64))
    assert np.abs(out / exact - 1).max() < 1.6e-7
    assert (out[-32:] == 1).all()
    whole = -np.arange(96, dtype=np.float32)
    powers(whole, out[:96])
    np.testing.assert_array_equal(out[:96], np.exp2(whole))


def test_powers_of_far_numbers_and_nan(powers):
    x = np.zeros(32, np.float32)
    x[:8] = [-126, -1e30, -np.inf, np.nan, 0, -125, -50, -3e38]
    out = np.empty_like(x)
    powers(x, out)
    assert np.isnan(out[3])
    assert (out[[0, 1, 2, 5, 7]] == 2.0**-125).all()
    assert out[4] == 1


@pytest.mark.parametrize("tokens", [16, 31, 33])
@pytest.mark.parametrize(("heads", "size"), [(1, 1), (3, 5), (4, 8)])
@pytest.mark.parametrize("scale", [0.3, 20.0])
def test_attention_by_the_definition(tokens, heads, size, scale, span):
    stream = torch.Generator().manual_seed(tokens * size)
    query, key, value = torch.randn((3, 5, heads, tokens, size), generator=stream)
    bias = scale * torch.randn((heads, size), generator=stream)
    query = query * scale
    inner, rows = heads * size, 5 * tokens
    columns = LOG2_E * query.permute(1, 3, 0, 2).reshape(inner, rows).contiguous()
    both = torch.cat([x.transpose(1, 2).reshape(rows, inner) for x in (key, value)], dim=1).contiguous()
    out = torch.full((inner, rows), torch.nan)
    for first, last in ((0, 2), (2, 5)):
        kernels.softmax_attention(
            span,
            columns.numpy(),
            both.numpy(),
            (LOG2_E * bias).flatten().numpy(),
            out.numpy(),
            tokens,
            heads,
            first,
            last,
        )
    found = out.unflatten(0, (heads, size)).unflatten(2, (5, tokens)).permute(2, 0, 3, 1)

    def attended(dtype: torch.dtype) -> torch.Tensor:
        scores = (query.to(dtype) + bias.to(dtype)[:, None]) @ key.to(dtype).transpose(-2, -1)
        return scores.softmax(dim=-1) @ value.to(dtype)

    assert_as_exact(found, attended(torch.float32), attended(torch.float64))


@pytest.mark.parametrize("choice", CHOICES)
def test_a_middle_layer_is_as_exact_as_the_blocks_own(choice, monkeypatch):
    monkeypatch.setattr(middle_layer, "PART_ROWS", 3 * 20)  # three strings, then the rest
    # Too few flips for blocks of lanes, and some more than whole blocks.
    for scheme, flips in itertools.product(("gaussian", "xavier_normal"), (5, 41)):
        model = Transformer(configured(choice), scheme=scheme, seed=4).eval()
        base, states = near(flips, 20, model.config.width, 0.1)
        with torch.inference_mode():
            plain, exact = model.blocks[1](states), in_float64(model).blocks[1](states.double())
            layer = MiddleLayer(model.blocks[1], Workspace())
            assert layer.compiled == (choice not in UNKNOWN)
            found = layer(states.clone(), base)
        assert_as_exact(found, plain, exact)


def test_float64_and_short_strings_go_pytorchs_way():
    for dtype, tokens in ((torch.float64, 20), (torch.float32, simd.BLOCK - 1)):
        model = Transformer(BASE, seed=4, dtype=dtype).eval()
        states = torch.randn((2, tokens, 32), dtype=dtype, generator=torch.Generator().manual_seed(1))
        with torch.inference_mode():
            found = MiddleLayer(model.blocks[1], Workspace())(states, states[0])
            torch.testing.assert_close(found, model.blocks[1](states))


def test_several_threads_give_the_same():
    model = Transformer(BASE, seed=4).eval()
    base, states = near(45, 20, 32, 0.1)
    with torch.inference_mode():
        alone = MiddleLayer(model.blocks[1], Workspace())(states.clone(), base)
        torch.set_num_threads(2)
        torch.testing.assert_close(MiddleLayer(model.blocks[1], Workspace())(states.clone(), base), alone)


@pytest.mark.parametrize("where", [0, 19])
@pytest.mark.parametrize("flips", [2, 32])
def test_nan_is_not_swallowed(where, flips):
    model = Transformer(BASE, seed=4).eval()
    base, states = near(flips, 20, 32, 0.1)
    states[1, where, 3] = torch.nan
    with torch.inference_mode():
        found = MiddleLayer(model.blocks[1], Workspace())(states, base)
    assert found[torch.arange(flips) != 1].isfinite().all()
    assert found[1].isnan().all()  # every row attends to the broken one


def normalised_by_kernels(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Layer norms of sixteen rows with gain 2 and shift 1 by each of the compiled norms, eps 1e-5."""
    width = x.shape[1]
    gain, shift, zero = np.full(width, 2, np.float32), np.ones(width, np.float32), np.zeros(width, np.float32)
    by_rows = x.numpy().copy()
    kernels.add_and_normalise(by_rows, np.zeros_like(by_rows), zero, gain, shift, 1e-5)
    found = {"rows": by_rows}
    for span in map(span_of, TOKENS):
        turned, blocks = x.T.reshape(1, -1).contiguous().numpy().copy(), np.empty((16, width), np.float32)
        relu_kernels.put_blocks(span, turned, zero, gain, shift, 1e-5, np.arange(16).reshape(1, 16), blocks, 0, 1)
        found[f"blocks of {span}"] = blocks
        lanes = x[: span.lanes].T.repeat(span.tokens, 1, 1).flatten().numpy().copy()
        lane_kernels.normalise(span, lanes, 0, width, gain, shift, 1e-5)
        for rows in lanes.reshape(span.tokens, width, span.lanes):
            found[f"lanes of {span}"] = rows.T.copy()
    return {name: torch.from_numpy(array) for name, array in found.items()}


@pytest.mark.parametrize("constant", [1.1, -33.3, 1234.567, 1.1e6])
@pytest.mark.parametrize("width", [8, 64, 512])
def test_rows_of_equal_numbers_become_zero(constant, width):
    for name, found in normalised_by_kernels(torch.full((16, width), constant)).items():
        assert (found == 1).all(), name


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e5])
@pytest.mark.parametrize("width", [8, 64, 512])
def test_norms_of_rows_far_from_zero_are_as_exact_as_pytorchs(offset, width):
    x = offset + torch.randn((16, width), generator=torch.Generator().manual_seed(1))
    layer = torch.nn.functional.layer_norm
    exact = 2 * layer(x.double(), (width,), eps=1e-5) + 1
    plain = 2 * layer(x, (width,), eps=1e-5) + 1
    for name, found in normalised_by_kernels(x).items():
        rounding = max(float((plain - exact).abs().max()), 2.0**-22)
        assert float((found - exact[: len(found)]).abs().max()) <= 5 * rounding, name


def test_a_variance_that_overflows_is_not_swallowed():
    x = torch.randn((16, 32), generator=torch.Generator().manual_seed(1))
    for name, found in normalised_by_kernels(1e25 * x).items():
        assert found.isnan().all(), name


def test_rectifying_keeps_nan():
    bias, z = np.array([1, -1, 0.5], np.float32), np.ones(2, np.float32)
    x = np.array([[-2, 3, np.nan], [0, 0, -0.5]], np.float32)
    expected = np.array([[0, 2, np.nan], [1, 0, 0]], np.float32)
    first, second, third = x.copy(), x.copy(), x.copy()
    kernels.rectify(first, bias)
    kernels.scale_and_rectify(second, z, bias, True)
    kernels.scale_and_rectify(third, 2 * z, bias, False)
    np.testing.assert_array_equal(first, expected)
    np.testing.assert_array_equal(second, expected)
    np.testing.assert_array_equal(third, 2 * x + bias)


MIXED = ("as it is", "norm once", "plain norm", "gelu", "gelu_tanh", "no bias", "sharp", "relu attention", "causal")


@pytest.mark.parametrize("choice", MIXED)
@pytest.mark.parametrize(("scheme", "marker"), [("gaussian", "eos"), ("xavier_normal", "cls")])
@pytest.mark.parametrize("flips", [[0, 3, 4, 7, 11, 12, 18, 19], [*range(20)]], ids=["few", "all"])
def test_the_first_layer_from_mixtures(choice, scheme, marker, flips, monkeypatch):
    monkeypatch.setattr("flipscope.flips.mixed_rows.PART_ROWS", 3 * len(flips))  # three tokens at a time
    config = dataclasses.replace(configured(choice), marker=marker, readout="last")
    model = Transformer(config, scheme=scheme, seed=2).eval()
    string = torch.from_numpy(np.random.default_rng(0).integers(0, 2, 20))
    flips = torch.tensor(flips)
    near = string.repeat(len(flips), 1)
    near[torch.arange(len(flips)), flips] ^= 1
    exact = in_float64(model)
    with torch.inference_mode():
        block, tables = model.blocks[0], make_tables(model, 20)
        assert mixable(block)
        first = FirstLayer(block, tables, string)
        found = mixed_states(make_mixed_tables(block, tables, Finish(block, Workspace())), first, flips)
        plain, true = block(model.embed(near)), exact.blocks[0](exact.embed(near))
    assert_as_exact(found, plain, true)


def test_what_mixtures_are_not_for():
    many = {"width": 128, "heads": 32}
    for fields in ({"norm": "pre"}, {"eps": 0.0}, {"ffn_width": 40}, {"heads": 16, "head_size": 2}, many):
        assert not mixable(Transformer(dataclasses.replace(BASE, **fields), seed=0).blocks[0])
    assert not mixable(Transformer(BASE, seed=0, dtype=torch.float64).blocks[0])


@pytest.mark.usefixtures("both_kinds_of_loops")
@pytest.mark.parametrize("choice", CHOICES)
def test_logits_are_as_exact_as_the_plain_forwards(choice):
    for seed, scheme in enumerate(("gaussian", "xavier_normal")):
        model = Transformer(configured(choice), scheme=scheme, seed=seed).eval()
        strings = np.random.default_rng(seed).integers(0, 2, (2, 25), np.uint8)
        near = torch.from_numpy(np.concatenate([row ^ np.eye(25, dtype=np.uint8) for row in strings])).long()
        with torch.inference_mode():
            plain, exact = model(near), in_float64(model)(near)
        if not plain.isfinite().all():
            continue  # attention without softmax or norm can overflow float32
        found = FastEngine(model, deltas=False).flip_logits(strings)[1]
        assert_as_exact(torch.from_numpy(found).flatten(), plain, exact)


@pytest.mark.usefixtures("both_kinds_of_loops")
@pytest.mark.parametrize("choice", CHOICES)
def test_plain_logits_are_as_exact_as_the_models(choice):
    for layers, marker, readout in ((1, "eos", "last"), (1, "cls", "first"), (3, "eos", "last"), (3, "cls", "first")):
        config = dataclasses.replace(configured(choice), layers=layers, marker=marker, readout=readout)
        model = Transformer(config, scheme="xavier_normal", seed=layers).eval()
        strings = np.random.default_rng(layers).integers(0, 2, (40, 25), np.uint8)
        bits = torch.from_numpy(strings).long()
        with torch.inference_mode():
            plain, exact = model(bits), in_float64(model)(bits)
        found = FastEngine(model).logits(strings)
        assert_as_exact(torch.from_numpy(found), plain, exact)


@pytest.mark.usefixtures("both_kinds_of_loops")
def test_memory_is_kept_from_string_to_string():
    engine = FastEngine(Transformer(BASE, scheme="gaussian", seed=1), deltas=False)
    strings = np.random.default_rng(3).integers(0, 2, (3, 30), np.uint8)
    together = copy.deepcopy(engine.flip_logits(strings))
    alone = [engine.flip_logits(strings[row : row + 1])[1][0] for row in (2, 1, 0)]
    np.testing.assert_array_equal(together[1], alone[::-1])
    engine.flip_logits(strings[:, :18])
    np.testing.assert_array_equal(engine.flip_logits(strings)[1], together[1])
