"""Layers of every kind in float32, by loops and by PyTorch, against float64: as exact as the plain forward pass."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
from flips.exactness import assert_as_exact, in_float64
from numba import float32, njit, void

from flipscope.flips.fast import FastEngine
from flipscope.flips.onednn import OneDnnLinear, with_onednn
from flipscope.models.config import TransformerConfig
from flipscope.models.presets import encoder
from flipscope.models.transformer import Transformer
from flipscope.native import lanes as lane_kernels
from flipscope.native import simd
from flipscope.native.powers import power_of_two
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


def configured(choice: str) -> TransformerConfig:
    return dataclasses.replace(BASE, **CHOICES[choice])


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


def normalised_by_lanes(x: torch.Tensor) -> dict[Span, torch.Tensor]:
    """Layer norms of as many rows as there are lanes, with gain 2 and shift 1, eps 1e-5."""
    width, found = x.shape[1], {}
    gain, shift = np.full(width, 2, np.float32), np.ones(width, np.float32)
    for span in map(span_of, TOKENS):
        lanes = x[: span.lanes].T.repeat(span.tokens, 1, 1).flatten().numpy().copy()
        lane_kernels.normalise(span, lanes, 0, width, gain, shift, np.float32(1e-5))
        for rows in lanes.reshape(span.tokens, width, span.lanes):
            found[span] = torch.from_numpy(rows.T.copy())
    return found


@pytest.mark.parametrize("constant", [1.1, -33.3, 1234.567, 1.1e6])
@pytest.mark.parametrize("width", [8, 64, 512])
def test_rows_of_equal_numbers_become_zero(constant, width):
    for span, found in normalised_by_lanes(torch.full((16, width), constant)).items():
        assert (found == 1).all(), span


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e5])
@pytest.mark.parametrize("width", [8, 64, 512])
def test_norms_of_rows_far_from_zero_are_as_exact_as_pytorchs(offset, width):
    x = offset + torch.randn((16, width), generator=torch.Generator().manual_seed(1))
    layer = torch.nn.functional.layer_norm
    exact = 2 * layer(x.double(), (width,), eps=1e-5) + 1
    plain = 2 * layer(x, (width,), eps=1e-5) + 1
    for span, found in normalised_by_lanes(x).items():
        rounding = max(float((plain - exact).abs().max()), 2.0**-22)
        assert float((found - exact[: len(found)]).abs().max()) <= 5 * rounding, span


def test_a_variance_that_overflows_is_not_swallowed():
    x = torch.randn((16, 32), generator=torch.Generator().manual_seed(1))
    for span, found in normalised_by_lanes(1e25 * x).items():
        assert found.isnan().all(), span


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


@pytest.fixture(name="wide")
def _wide(monkeypatch):
    """A model whose layers are wide enough for oneDNN, on whatever machine."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    return Transformer(dataclasses.replace(BASE, width=260, ffn_width=132), scheme="gaussian", seed=1).eval()


def test_wide_layers_multiplied_by_onednn_are_as_exact_as_the_plain_forwards(wide):
    strings = np.random.default_rng(0).integers(0, 2, (2, 25), np.uint8)
    near = torch.from_numpy(np.concatenate([row ^ np.eye(25, dtype=np.uint8) for row in strings])).long()
    with torch.inference_mode():
        plain, exact = wide(near), in_float64(wide)(near)
    for with_deltas in (False, True):
        engine = FastEngine(wide, deltas=with_deltas)
        assert isinstance(engine.model.blocks[1].mlp.up, OneDnnLinear)
        assert not isinstance(wide.blocks[1].mlp.up, OneDnnLinear)
        found = engine.flip_logits(strings)[1]
        assert_as_exact(torch.from_numpy(found).flatten(), plain, exact)
    assert not isinstance(FastEngine(wide, dtype=torch.float64).model.blocks[1].mlp.up, OneDnnLinear)
    estimates = FastEngine(wide).first_order(strings)  # from derivatives, which oneDNN has none of here
    np.testing.assert_array_equal(estimates, FastEngine(wide, deltas=False).first_order(strings))


def test_onednn_is_for_wide_layers_of_processors_that_gain(monkeypatch):
    for capability, width, replaced in (("AVX512", 128, True), ("AVX512", 127, False), ("AVX2", 128, False)):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda name=capability: name)
        model = torch.nn.Sequential(torch.nn.Linear(width, 128, bias=width > 127))
        with_onednn(model)
        assert isinstance(model[0], OneDnnLinear) == replaced
