"""What "as exact as PyTorch" means in the tests of the compiled loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from flipscope.models.transformer import Transformer

longer_than_float64 = pytest.mark.skipif(
    float(np.finfo(np.longdouble).eps) > 2.0**-60, reason="numpy's longest numbers are no longer than float64 here"
)


def in_float64(model: Transformer) -> Transformer:
    exact = Transformer(model.config, seed=None, dtype=torch.float64)
    exact.load_state_dict({name: tensor.double() for name, tensor in model.state_dict().items()}, assign=True)
    return exact.eval()


def assert_as_exact(found: torch.Tensor, plain: torch.Tensor, exact: torch.Tensor) -> None:
    """The error against float64 is at most ten times that of plain float32, or of one rounding."""
    rounding = max(float((plain - exact).abs().max()), float(exact.abs().max()) * 2.0**-24)
    assert float((found - exact).abs().max()) <= 10 * rounding


def assert_logits_as_exact(model: Transformer, bits: torch.Tensor, *every: torch.Tensor) -> None:
    """The errors against float64 are at most twenty times that of plain float32, or of weights rounded once more.

    The second counts where few logits are compared: plain float32 may be lucky, and differs from machine to machine.
    """
    moved, stream = in_float64(model), torch.Generator().manual_seed(0)
    with torch.inference_mode():
        exact = in_float64(model)(bits)
        for weights in moved.parameters():
            weights.mul_(1 + 2.0**-24 * torch.randn(weights.shape, generator=stream, dtype=torch.float64))
        errors = [(other - exact).abs().max() for other in (model(bits), moved(bits))]
    scale = max(*map(float, errors), float(exact.abs().max()) * 2.0**-24)
    for found in every:
        assert float((found - exact).abs().max()) <= 20 * scale


def in_longdouble(model: Transformer, bits: np.ndarray) -> np.ndarray:
    """The logits of an encoder or recognizer, Eqs 7-14 once more in numpy, with eleven more bits than float64."""
    config, long = model.config, np.longdouble
    numbers = {name: tensor.double().numpy().astype(long) for name, tensor in model.state_dict().items()}

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ numbers[f"{name}.weight"].T + numbers.get(f"{name}.bias", long(0))

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(axis=-1, keepdims=True)
        y = centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + long(config.eps))
        return y * numbers.get(f"{name}.weight", long(1)) + numbers.get(f"{name}.bias", long(0))

    ends = np.full((len(bits), 1), 2)
    tokens = np.concatenate([bits.astype(np.int64), ends], axis=1)
    x = numbers["embedding.symbol.weight"][tokens] + model.embedding.positions(tokens.shape[1]).numpy().astype(long)
    for number in range(config.layers):
        block = f"blocks.{number}"
        query, key, value = (
            linear(f"{block}.attention.{name}", x).reshape(*x.shape[:2], config.heads, -1).transpose(0, 2, 1, 3)
            for name in ("query", "key", "value")
        )
        scores = query * long(config.scale) @ key.transpose(0, 1, 3, 2)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = weights / weights.sum(axis=-1, keepdims=True) @ value  # [string, head, token, size]
        if config.block == "sum":
            y, fed = x, mixed.sum(axis=1)
        else:
            joined = mixed.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)
            y = fed = norm(f"{block}.norm1", x + linear(f"{block}.attention.output", joined))
        x = norm(f"{block}.norm2", y + linear(f"{block}.mlp.down", np.maximum(linear(f"{block}.mlp.up", fed), 0)))
    logits: np.ndarray = linear("head", x[:, -1])[:, 0]
    return logits
