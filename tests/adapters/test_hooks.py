from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from flipscope.adapters.hooks import watching
from flipscope.probes.influence import influences


def test_inputs_and_outputs_are_seen_in_order_and_no_longer_than_asked() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    seen: list[tuple[str, str, tuple[int, ...]]] = []

    def tell(way: str) -> Any:
        return lambda name, part, value: seen.append((way, name, tuple(value.shape)))

    with watching({"0": model[0], "2": model[2]}, inputs=tell("in"), outputs=tell("out")):
        model(torch.zeros(5, 2))
    assert seen == [("in", "0", (5, 2)), ("out", "0", (5, 3)), ("in", "2", (5, 3)), ("out", "2", (5, 1))]
    model(torch.zeros(5, 2))
    assert len(seen) == 4
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model)


def test_hooks_are_gone_after_an_error() -> None:
    model = nn.Linear(2, 1)

    def broken(name: str, part: nn.Module, value: Any) -> None:
        raise ValueError("no")

    before = torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(ValueError, match="no"), watching({"": model}, outputs=broken):
        model(torch.zeros(1, 2))
    assert not model._forward_hooks
    assert torch.backends.mha.get_fastpath_enabled() == before


class Read(nn.Module):
    """PyTorch's own encoder, fused in evaluation mode, when it calls none of its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(2, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        self.head = nn.Linear(8, 1)

    def forward(self, bits: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.embed(bits))[:, 0])[:, 0]


def test_parts_of_fused_layers_are_seen() -> None:
    torch.manual_seed(0)
    model = Read().eval()
    assert influences(model, [[0, 1, 1]], of="layer.linear1").shape == (1, 3)
