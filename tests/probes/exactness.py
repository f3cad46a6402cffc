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
