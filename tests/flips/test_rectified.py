"""The MLP without the units that are off: the same output, and nothing left out that is on."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flipscope.flips import rectified
from flipscope.flips.finish import Finish, Workspace
from flipscope.flips.rectified import Rectified, blocks_of
from flipscope.models.presets import encoder
from flipscope.models.transformer import Block, Transformer
from flipscope.native.rectified import active_units, possible_units
from flipscope.native.simd import BLOCK
from flipscope.native.span import TOKENS, Span, span_of

SHAPES = [(8, 8), (16, 40), (32, 64), (40, 24), (64, 512), (104, 208)]


def block_of(width: int, hidden: int, scheme: str = "xavier_normal") -> Block:
    return Transformer(encoder(width, 2, 2, ffn_width=hidden), scheme=scheme, seed=width).eval().blocks[0]


def made(block: Block, span: Span | None = None) -> Rectified:
    return Rectified(block, Finish(block, Workspace()), span)


def finished(block: Block, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The layer's output where x is the MLP's input, by the definition."""
    up, up_bias, down, down_bias = (p.detach().to(dtype) for p in block.mlp.parameters())
    gain, shift = (p.detach().to(dtype) for p in block.norm2.parameters())
    x = x.to(dtype)
    y = x + (x @ up.T + up_bias).relu() @ down.T + down_bias
    return torch.nn.functional.layer_norm(y, y.shape[-1:], gain, shift, block.norm2.eps)


def rows(flips: int, tokens: int, width: int, distance: float) -> tuple[torch.Tensor, torch.Tensor]:
    stream = torch.Generator().manual_seed(flips)
    base = torch.randn((tokens, width), generator=stream)
    x = base + distance * torch.randn((flips, tokens, width), generator=stream)
    x[0, 1] = 5 * torch.randn(width, generator=stream)  # one that is far away, as the flipped token itself is
    return base, x


def assert_as_exact(found: torch.Tensor, block: Block, x: torch.Tensor) -> None:
    exact, plain = finished(block, x, torch.float64), finished(block, x, torch.float32)
    assert float((found - exact).abs().max()) <= 5 * max(float((plain - exact).abs().max()), 2.0**-22)


@pytest.mark.parametrize(("width", "hidden"), SHAPES)
@pytest.mark.parametrize("distance", [0.0, 0.03, 2.0])
@pytest.mark.parametrize("scheme", ["uniform", "xavier_normal"])
def test_the_layers_output(width, hidden, distance, scheme, monkeypatch):
    monkeypatch.setattr(rectified, "_PART_BYTES", 64 * width)  # several parts of the units
    monkeypatch.setattr(rectified, "_VALUES_BYTES", 0)  # and several sets of blocks
    block = block_of(width, hidden, scheme)
    for flips in (16, 35, 7):
        base, x = rows(flips, 9, width, distance)
        every = [x.clone() for _ in TOKENS]
        with torch.inference_mode():
            for found, lanes in zip(every, TOKENS, strict=True):
                made(block, span_of(lanes))(found, base)
        assert_as_exact(every[0], block, x)
        assert torch.equal(*every)  # a block has as many rows at each width


@pytest.mark.parametrize(("width", "hidden"), SHAPES)
def test_from_units_that_are_computed_already(width, hidden, monkeypatch):
    monkeypatch.setattr(rectified, "_PART_BYTES", 64 * width)
    block = block_of(width, hidden)
    _, x = rows(35, 9, width, 0.1)
    x = x.transpose(0, 1).flatten(0, 1).contiguous()  # [token flip, width]
    numbers = np.arange(len(x)).reshape(9, 35)
    order = np.random.default_rng(0).permuted(np.tile(np.arange(35), (9, 1)), axis=1)
    every = [x.clone() for _ in TOKENS]
    with torch.inference_mode():
        units = (x @ block.mlp.up.weight.T + block.mlp.up.bias).relu()
        for found, lanes in zip(every, TOKENS, strict=True):
            made(block, span_of(lanes)).add(found, units, blocks_of(numbers, order))
    assert_as_exact(every[0], block, x)
    assert torch.equal(*every)


@given(st.integers(1, 60), st.integers(1, 12))
def test_every_row_is_in_one_block(flips, tokens):
    numbers = np.arange(flips * tokens).reshape(flips, tokens).T
    order = np.random.default_rng(flips).permuted(np.tile(np.arange(flips), (tokens, 1)), axis=1)
    blocks = blocks_of(numbers, order)
    assert blocks.shape[1] == BLOCK
    assert len(blocks) == tokens * (flips // BLOCK) + -(-tokens * (flips % BLOCK) // BLOCK)
    inside, counts = np.unique(blocks, return_counts=True)
    assert inside.tolist() == list(range(flips * tokens))
    assert counts.sum() - len(counts) < BLOCK  # only the last block has lanes to spare
    whole = blocks[: tokens * (flips // BLOCK)] % tokens
    assert (whole == whole[:, :1]).all()  # one token a block
    assert (
        np.take_along_axis(numbers, order, 1)[:, : flips // BLOCK * BLOCK].ravel() == blocks[: len(whole)].ravel()
    ).all()


@pytest.mark.parametrize("distance", [0.0, 0.01, 0.1, 1.0])
def test_units_that_may_be_on_are_all_found_and_few_others(distance):
    block = block_of(64, 512)
    base, x = rows(32, 9, 64, distance)
    engine = made(block)
    numbers = np.arange(32 * 9).reshape(32, 9).T
    away = (x - base).norm(dim=-1).flatten().numpy()
    blocks = blocks_of(numbers, away[numbers].argsort(axis=1))
    token, radius = blocks % 9, away[blocks] * np.float32(1.0001) + np.float32(1e-4)
    with torch.inference_mode():
        inside = (base @ engine.up.T + engine.up_bias).numpy()
        on = ((x.flatten(0, 1).double() @ engine.up.T.double() + engine.up_bias) > 0).numpy()
    units, starts = np.empty((len(blocks), 513), np.int64), np.zeros((len(blocks), 2), np.int64)
    possible_units(inside, engine.norms.numpy(), radius, token, units, 512, starts, 0, len(blocks))
    for rows_of_block, chosen, (_, count) in zip(blocks, units, starts, strict=True):
        needed = np.flatnonzero(on[rows_of_block].any(axis=0))
        assert set(needed) <= set(chosen[:count])
    share = starts[:, 1].mean() / 512
    assert share <= {0.0: 0.55, 0.01: 0.58, 0.1: 0.85, 1.0: 1.0}[distance]


def test_active_units_are_those_that_are_on(span):
    hidden = np.random.default_rng(0).standard_normal((40, 24)).astype(np.float32).clip(0)
    hidden[:, 3] = 0
    hidden[7, 5] = np.nan
    blocks = np.stack([np.arange(16), np.arange(16, 32), np.full(16, 7)])
    values, active = np.zeros((3, 25 * BLOCK), np.float32), np.zeros((3, 25), np.int64)
    starts = np.zeros((3, 4), np.int64)
    active_units(span, hidden, blocks, values, active, 8, starts, 0, 3)
    for number, chosen in enumerate(blocks):
        on = np.flatnonzero((hidden[chosen] != 0).any(axis=0))
        assert active[number, : starts[number, -1]].tolist() == on.tolist()
        np.testing.assert_array_equal(values[number].reshape(-1, BLOCK)[: len(on)], hidden[chosen][:, on].T)
        assert starts[number].tolist() == [int((on < at).sum()) for at in (0, 8, 16, 24)]


def test_what_it_is_not_for():
    base = encoder(32, 2, 2, ffn_width=64)
    for fields in ({"activation": "gelu"}, {"norm": "pre"}, {"eps": 0.0}, {"ffn_width": 60}):
        config = dataclasses.replace(base, **fields)
        assert not Rectified.supports(Transformer(config, seed=0).blocks[0])
    assert not Rectified.supports(Transformer(base, seed=0, dtype=torch.float64).blocks[0])
    assert Rectified.supports(Transformer(base, seed=0).blocks[0])
