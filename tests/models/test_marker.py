from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from flipscope.basics.errors import InputError
from flipscope.models import Transformer, TransformerConfig, encoder, mingpt, recognizer
from flipscope.models import marker as marker_module
from flipscope.models.marker import MarkerLogits, dropout_mask, reads_marker
from flipscope.models.modes import first_derivatives
from flipscope.models.readout import logits_for

GPT = mingpt(7, width=16, heads=4, dropout=0.2)
CONFIGS = {
    "mingpt": GPT,
    "marker first": dataclasses.replace(GPT, marker="cls", readout="first", causal=False),
    "marker first, sees itself only": dataclasses.replace(GPT, marker="cls", readout="first"),
    "not itself": dataclasses.replace(GPT, causal=False, mask_self=True),
    "wide heads": dataclasses.replace(GPT, head_size=5, outputs=1),
    "no bias": dataclasses.replace(GPT, qkv_bias=False, affine=False),
    "no MLP, tanh": dataclasses.replace(GPT, mlp_layers=0, head="tanh", embedding_norm=True),
}
OTHERS = {
    "post": dataclasses.replace(encoder(12, 1, 2), dropout=0.2),
    "once, heads summed": dataclasses.replace(recognizer(10, 1, 2, eps=1e-3), dropout=0.2),
    "no norm": dataclasses.replace(encoder(12, 1, 2), norm="none"),
    "eps 0": dataclasses.replace(GPT, eps=0.0),
}


def build(config: TransformerConfig, size: float = 0.4) -> tuple[Transformer, Tensor]:
    model = Transformer(config, scheme="gaussian", seed=1, dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(size)
    return model, torch.randint(0, 2, (9, 7), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def gradients(model: nn.Module, logits: Tensor) -> dict[str, Tensor]:
    weights = torch.linspace(-1, 2, logits.numel(), dtype=logits.dtype).view_as(logits)
    model.zero_grad()
    (logits.tanh() * weights).sum().backward()
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def assert_same(model: Transformer, ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    assert len(set(theirs.flatten().tolist())) > 1
    expected = gradients(model, theirs)
    assert any(gradient.abs().max() > 1e-3 for gradient in expected.values())
    for name, gradient in gradients(model, ours).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-7, atol=1e-9, msg=name)


@pytest.mark.parametrize("name", [*CONFIGS, *OTHERS])
def test_logits_and_gradients_in_evaluation(name: str) -> None:
    model, bits = build({**CONFIGS, **OTHERS}[name])
    model.eval()
    quick = logits_for(model)
    assert isinstance(quick, MarkerLogits)
    if name == "marker first, sees itself only":  # one answer for all strings
        torch.testing.assert_close(quick(bits), model(bits))
    else:
        assert_same(model, quick(bits), model(bits))
    with torch.no_grad():
        torch.testing.assert_close(quick(bits[:, :3]), model(bits[:, :3]))


class Masks:
    """Masks of one forward, to be used by another in the same order, whatever their shapes."""

    def __init__(self) -> None:
        self.drawn: list[Tensor] = []

    def record(self, x: Tensor, p: float, training: bool, _inplace: bool = False) -> Tensor:
        if not training:
            return x
        self.drawn.append((torch.rand(x.shape, dtype=torch.float64) >= p).to(x) / (1 - p))
        return x * self.drawn[-1]

    def again(self, x: Tensor, p: float, training: bool, _inplace: bool = False) -> Tensor:
        return x * self.drawn.pop(0).reshape(x.shape) if training else x

    def mask(self, shape: tuple[int, ...], _rate: float, _like: Tensor) -> Tensor:
        return self.drawn.pop(0).reshape(shape)


@pytest.mark.parametrize("name", CONFIGS)
def test_with_the_same_masks_of_dropout_training_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, bits = build(CONFIGS[name])
    model.train()
    masks, seen = Masks(), []
    monkeypatch.setattr(nn.functional, "dropout", masks.record)
    theirs = model(bits)
    assert len(masks.drawn) == 4 - (model.config.mlp_count == 0) + (model.config.head == "tanh")
    monkeypatch.setattr(nn.functional, "dropout", masks.again)
    monkeypatch.setattr(marker_module, "dropout_mask", masks.mask)
    monkeypatch.setattr(Transformer, "forward", lambda *_: seen.append(1))  # it must not be called
    with first_derivatives():
        ours = MarkerLogits(model)(bits)
    assert not masks.drawn
    assert not seen
    assert_same(model, ours, theirs)


def test_the_law_of_the_masks() -> None:
    torch.manual_seed(0)
    for rate in (0.1, 0.25, 0.5, 0.003):
        masks = dropout_mask((400_000,), rate, torch.zeros(1))
        assert set(masks.tolist()) == {0.0, float(np.float32(1 / (1 - rate)))}
        zeros = int((masks == 0).sum())
        assert stats.binomtest(zeros, 400_000, rate).pvalue > 1e-4
    # Neighbours are independent: of a pair both are dropped with the square of the rate.
    pairs = (dropout_mask((200_000, 2), 0.3, torch.zeros(1)) == 0).all(dim=1).sum()
    assert stats.binomtest(int(pairs), 200_000, 0.09).pvalue > 1e-4
    # A byte alone cannot say 0.1: 25 and 26 of its 256 values are on either side of it.
    many = int((dropout_mask((4_000_000,), 0.1, torch.zeros(1)) == 0).sum())
    assert abs(many / 4e6 - 0.1) < 6e-4 < min(0.1 - 25 / 256, 26 / 256 - 0.1)


def test_dropout_is_at_work_in_training_only() -> None:
    model, bits = build(GPT)
    quick = MarkerLogits(model.train())
    with first_derivatives():
        torch.manual_seed(3)
        first, second = quick(bits), quick(bits)
        assert not torch.equal(first, second)
        torch.manual_seed(3)
        assert torch.equal(quick(bits), first)
    model.eval()
    assert torch.equal(quick(bits), quick(bits))


def test_the_mean_over_masks_is_that_of_the_model() -> None:
    model, bits = build(GPT)
    model.train()
    torch.manual_seed(0)
    with torch.no_grad(), first_derivatives():
        many = bits[:1].expand(20_000, -1)
        ours, theirs = (ask(many)[:, 0].numpy() for ask in (MarkerLogits(model), model))
    assert stats.ks_2samp(ours, theirs).pvalue > 1e-4


@pytest.mark.parametrize("name", ["post", "once, heads summed", "eps 0"])
def test_in_training_with_dropout_other_blocks_are_called(name: str) -> None:
    _is_the_model(build(OTHERS[name])[0], first_derivatives)


def test_what_is_differentiated_twice_is_the_model() -> None:
    _is_the_model(build(GPT)[0], contextlib.nullcontext)


def _is_the_model(model: Transformer, context: Callable[[], Any]) -> None:
    model.train()
    bits = torch.tensor([[0, 1, 1, 0, 1, 0, 1]] * 3, dtype=torch.uint8)
    with context():
        torch.manual_seed(0)
        ours = MarkerLogits(model)(bits)
        torch.manual_seed(0)
        assert torch.equal(ours, model(bits))


def test_attention_so_sharp_that_exponentials_underflow() -> None:
    model, bits = build(GPT, 6.0)
    model.eval()
    with torch.no_grad():
        found, expected = MarkerLogits(model)(bits), model(bits)
    assert found.isfinite().all()
    torch.testing.assert_close(found, expected)
    calls: list[Any] = []
    handle = model.register_forward_hook(lambda *_: calls.append(1))
    MarkerLogits(model)(bits)
    handle.remove()
    assert calls


def test_single_precision() -> None:
    model, bits = build(GPT)
    model.float().eval()
    found, expected = MarkerLogits(model)(bits), model(bits)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "reads"),
    [({}, True), ({"layers": 2}, False), ({"readout": "first"}, False), ({"marker": "none"}, False),
     ({"attention": "relu"}, False), ({"readout": "mean"}, False), ({"inputs": "tokens"}, False)],
)  # fmt: skip
def test_which_models_have_it(changes: dict[str, Any], reads: bool) -> None:
    assert reads_marker(Transformer(dataclasses.replace(GPT, **changes), seed=0)) == reads


def test_parts_of_a_batch_and_refusals() -> None:
    model, bits = build(GPT)
    quick = MarkerLogits(model.eval())
    assert quick.strings(bits) > MarkerLogits(model.train()).strings(torch.zeros(1, 60_000)) == 16
    with pytest.raises(InputError, match="inputs contain 2"):
        quick(torch.full((1, 3), 2, dtype=torch.uint8))
