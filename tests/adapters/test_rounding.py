"""What a module in float64 rounds to inside is seen, whatever way it goes; what is exact is not taken for a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flipscope.adapters.rounding import coarsest_type
from flipscope.models import Transformer, encoder, fourier, mingpt, recognizer


class Net(nn.Module):
    def __init__(self, step: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 1)
            self.other = [nn.Linear(8, 1)]  # in a list: not converted with the rest
        self.step = step

    def forward(self, bits: Tensor) -> Tensor:
        return self.step(self, bits)


def inside(model: nn.Module) -> torch.dtype | None:
    first, second = (torch.randint(0, 2, (3, 8), generator=torch.Generator().manual_seed(i)) for i in range(2))
    wide = model.double().eval()
    with torch.no_grad():
        return coarsest_type(lambda: wide(first), lambda: wide(second))


def _copied(self: Any, bits: Tensor) -> Tensor:
    hidden = torch.zeros(len(bits), 16)
    hidden[:] = self.up(bits.double())
    out: Tensor = self.down(hidden.double())
    return out


LOSSES: dict[str, tuple[Callable[[Any, Tensor], Tensor], torch.dtype]] = {
    "float": (lambda self, x: self.down(self.up(x.double()).float().double()), torch.float32),
    "at the end": (lambda self, x: self.down(self.up(x.double())).float(), torch.float32),
    "softmax": (
        lambda self, x: self.down(self.up(x.double()).softmax(-1, dtype=torch.float32).double()),
        torch.float32,
    ),
    "half": (lambda self, x: self.down(self.up(x.double()).float().half().double()), torch.float16),
    "written into": (_copied, torch.float32),
    "quotient of whole numbers": (lambda self, x: self.down(self.up(x.double())) + x.sum(1, True) / 3, torch.float32),
    "a module left behind": (lambda self, x: self.other[0](x.float()), torch.float32),
}
EXACT: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "float64": lambda self, x: self.down(self.up(x.double()).tanh()),
    "bits as floats": lambda self, x: self.down(self.up(x.float().double())),
    "half a whole number": lambda self, x: self.down(self.up(x.double())) + 0.5 * x.sum(1, True),
    "constants": lambda self, x: self.down(self.up(x.double()) + torch.linspace(0, 1, 16) / 3),
    "masks": lambda self, x: self.down(self.up(x.double()) * (x[:, :1] > 0).float().masked_fill(x[:, :1] > 0, 2.0)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str) -> None:
    step, dtype = LOSSES[name]
    assert inside(Net(step)) == dtype


@pytest.mark.parametrize("name", EXACT)
def test_no_losses(name: str) -> None:
    assert inside(Net(EXACT[name])) is None


@pytest.mark.parametrize("config", [encoder(16, 2, 2), mingpt(8, width=16), fourier(8, 4), recognizer(8)])
def test_our_transformers_lose_nothing(config: Any) -> None:
    assert inside(Transformer(config)) is None
