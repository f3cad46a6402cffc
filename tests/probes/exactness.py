"""What "as exact as PyTorch" means in the tests of the compiled loops."""

from __future__ import annotations

import torch

from flipscope.models.transformer import Transformer


def in_float64(model: Transformer) -> Transformer:
    exact = Transformer(model.config, seed=None, dtype=torch.float64)
    exact.load_state_dict({name: tensor.double() for name, tensor in model.state_dict().items()}, assign=True)
    return exact.eval()


def assert_as_exact(found: torch.Tensor, plain: torch.Tensor, exact: torch.Tensor) -> None:
    """The error against float64 is at most ten times that of plain float32, or of one rounding."""
    rounding = max(float((plain - exact).abs().max()), float(exact.abs().max()) * 2.0**-24)
    assert float((found - exact).abs().max()) <= 10 * rounding


def assert_logits_as_exact(found: torch.Tensor, model: Transformer, bits: torch.Tensor) -> None:
    """The error against float64 is at most twenty times that of plain float32, or of weights rounded once more.

    The second counts where few logits are compared: plain float32 may be lucky, and differs from machine to machine.
    """
    moved, stream = in_float64(model), torch.Generator().manual_seed(0)
    with torch.inference_mode():
        exact = in_float64(model)(bits)
        for weights in moved.parameters():
            weights.mul_(1 + 2.0**-24 * torch.randn(weights.shape, generator=stream, dtype=torch.float64))
        errors = [(other - exact).abs().max() for other in (model(bits), moved(bits))]
    scale = max(*map(float, errors), float(exact.abs().max()) * 2.0**-24)
    assert float((found - exact).abs().max()) <= 20 * scale
