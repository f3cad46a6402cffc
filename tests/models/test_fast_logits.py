from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from models.modified import CHANGES
from torch import Tensor, nn

from flipscope.basics.errors import InputError
from flipscope.models import Block, Transformer, TransformerConfig, encoder, hardness, mingpt, recognizer
from flipscope.models.fast_logits import _is_table_small, logits_for
from flipscope.models.modes import first_derivatives

BASE = encoder(width=12, layers=3, heads=2, ffn_width=20)
CONFIGS = {
    "post": BASE,
    "pre": dataclasses.replace(BASE, norm="pre", final_norm=True),
    "once": dataclasses.replace(BASE, norm="once", affine=False),
    "no norm": dataclasses.replace(BASE, norm="none"),
    "one layer": dataclasses.replace(BASE, layers=1),
    "two layers": dataclasses.replace(BASE, layers=2),
    "read first": dataclasses.replace(BASE, marker="cls", readout="first"),
    "read a bit": dataclasses.replace(BASE, marker="none", readout="first"),
    "read before the end": dataclasses.replace(BASE, marker="eos", readout="first"),
    "causal": dataclasses.replace(BASE, causal=True),
    "causal, read first": dataclasses.replace(BASE, causal=True, readout="first"),
    "not itself": dataclasses.replace(BASE, mask_self=True),
    "relu attention": dataclasses.replace(BASE, attention="relu"),
    "linear attention": dataclasses.replace(BASE, attention="linear", causal=True),
    "no bias": dataclasses.replace(BASE, qkv_bias=False),
    "wide heads": dataclasses.replace(BASE, head_size=9),
    "embedding norm": dataclasses.replace(BASE, embedding_norm=True, head="tanh"),
    "mlp in one layer": dataclasses.replace(BASE, mlp_layers=1),
    "full-rank heads": recognizer(width=10, layers=3, heads=2, eps=1e-3),
    "eps 0": recognizer(width=10, layers=2, heads=2, eps=0.0),
    "appended positions": hardness(7, width=12, layers=2),
    "two outputs": mingpt(7, width=16, layers=2, heads=4, dropout=0.0),
}


def build(config: TransformerConfig, dtype: torch.dtype) -> tuple[Transformer, Tensor]:
    model = Transformer(config, scheme="gaussian", seed=1, dtype=dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.4)  # not saturated: every gradient is of a fair size
    return model, torch.randint(0, 2, (6, 7), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def gradients(model: nn.Module, logits: Tensor) -> dict[str, Tensor]:
    # A different weight for each logit, so that no two strings may be exchanged.
    weights = torch.linspace(-1, 2, logits.numel(), dtype=logits.dtype).view_as(logits)
    model.zero_grad()
    (logits.tanh() * weights).sum().backward()
    return {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        for name, parameter in model.named_parameters()
    }


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_and_gradients_are_the_models(name: str) -> None:
    model, bits = build(CONFIGS[name], torch.float64)
    quick = logits_for(model)
    assert quick is not model
    found, expected = quick(bits), model(bits)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert len(set(expected.flatten().tolist())) > 1
    theirs = gradients(model, expected)
    for parameter, gradient in gradients(model, found).items():
        torch.testing.assert_close(gradient, theirs[parameter], rtol=1e-7, atol=1e-9, msg=parameter)
    assert any(gradient.abs().max() > 1e-3 for gradient in theirs.values())


@pytest.mark.parametrize("name", CONFIGS)
def test_short_strings_without_gradients(name: str) -> None:
    model, bits = build(CONFIGS[name], torch.float64)
    with torch.no_grad():
        for length in range(1, 8):
            if length > 1 or not model.config.mask_self:
                found, expected = logits_for(model)(bits[:, :length]), model(bits[:, :length])
                torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_attention_by_table_is_for_short_strings_without_gradients() -> None:
    block = Transformer(BASE).blocks[0]
    assert isinstance(block, Block)
    with torch.no_grad():
        assert [_is_table_small(block, count) for count in (2, 6, 7)] == [True, True, False]
        causal = Transformer(CONFIGS["causal"]).blocks[0]
        assert isinstance(causal, Block)
        assert not _is_table_small(causal, 2)
    assert not _is_table_small(block, 2)


def test_attention_by_table_with_logits_beyond_the_range_of_exponentials() -> None:
    model, bits = build(hardness(4, width=12, layers=2), torch.float64)
    with torch.no_grad():
        for parameter in model.blocks[0].parameters():
            parameter.mul_(100)
        found = logits_for(model)(bits[:, :4])
        torch.testing.assert_close(found, model(bits[:, :4]), rtol=1e-7, atol=1e-7)
    assert found.isfinite().all()


@pytest.mark.parametrize("name", CONFIGS)
def test_single_precision_as_in_training(name: str) -> None:
    model, bits = build(CONFIGS[name], torch.float32)
    expected = model(bits)
    theirs = gradients(model, expected)
    with first_derivatives():
        found = logits_for(model)(bits)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    for parameter, gradient in gradients(model, found).items():
        torch.testing.assert_close(gradient, theirs[parameter], rtol=1e-4, atol=1e-5, msg=parameter)


def test_one_string_and_other_lengths() -> None:
    model, _ = build(BASE, torch.float64)
    for shape in ((1, 1), (1, 30), (3, 0)):
        bits = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
        torch.testing.assert_close(logits_for(model)(bits), model(bits))


@pytest.mark.parametrize(
    "changes",
    [
        {"readout": "mean"},
        {"readout": "every"},
        {"learned_scale": True},
        {"inputs": "tokens"},
    ],
)
def test_falls_back_to_the_model(changes: dict[str, Any]) -> None:
    model = Transformer(dataclasses.replace(BASE, **changes), seed=0)
    assert logits_for(model) is model


def test_dropout_is_the_models_affair_in_training_only() -> None:
    model, bits = build(dataclasses.replace(BASE, dropout=0.3), torch.float64)
    quick = logits_for(model)
    model.eval()
    torch.testing.assert_close(quick(bits), model(bits), rtol=1e-9, atol=1e-9)
    model.train()
    torch.manual_seed(0)
    found = quick(bits)
    torch.manual_seed(0)
    assert torch.equal(found, model(bits))
    assert not torch.equal(found, quick(bits))


@pytest.mark.parametrize("name", CHANGES)
def test_changed_models_fall_back(name: str) -> None:
    with ExitStack() as undo:
        model = Transformer(BASE, seed=0)
        model = CHANGES[name](model, undo) or model
        assert logits_for(model) is model


def test_other_modules_and_hooks_fall_back() -> None:
    other = nn.Linear(3, 1)
    assert logits_for(other) is other
    model = Transformer(BASE, seed=0)
    handle = model.blocks[1].register_forward_hook(lambda *_: None)
    assert logits_for(model) is model
    handle.remove()
    assert logits_for(model) is not model


def test_refuses_what_the_model_refuses() -> None:
    model, _ = build(BASE, torch.float32)
    with pytest.raises(InputError, match="inputs contain 2"):
        logits_for(model)(torch.tensor([[0, 2, 1]], dtype=torch.uint8))
