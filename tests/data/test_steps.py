"""Parity step by step: what is read and asked for, and what a model writes by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from flipscope.basics.errors import InputError
from flipscope.data.batches import Examples
from flipscope.data.steps import START, StepsData, write_steps


class Perfect(nn.Module):
    """What a trained model is to do: at a bit the bit; at a step its bit plus what was written last."""

    def __init__(self, length: int, wrong_at: int | None = None) -> None:
        super().__init__()
        self.length, self.wrong_at = length, wrong_at

    def forward(self, read: Tensor) -> Tensor:
        bits, written = read[:, : self.length], read[:, self.length :]
        last = torch.where(written == START, 0, written)
        steps = (bits[:, : written.shape[1]] + last) % 2
        if self.wrong_at is not None and written.shape[1] >= self.wrong_at:
            steps[:, self.wrong_at - 1] ^= 1
        return torch.cat([bits, steps], dim=1).double()


class Last(nn.Module):
    """A model that answers once for each string."""

    def forward(self, read: Tensor) -> Tensor:
        return read[:, -1].double()


def test_steps_follow_from_what_was_written() -> None:
    bits = np.array([[1, 0, 1, 1], [0, 1, 1, 1]], np.uint8)
    chain = StepsData(length=4, way="steps").examples(bits)
    assert chain.bits.tolist() == [[1, 0, 1, 1, START, 1, 1, 0], [0, 1, 1, 1, START, 0, 1, 0]]
    assert chain.labels[:, 4:].tolist() == [[1, 1, 0, 1], [0, 1, 0, 1]]
    assert chain.labels[:, :4].tolist() == bits.tolist()
    whole = StepsData(length=4, way="one-pass").examples(bits)
    assert whole.bits.tolist() == chain.bits[:, :5].tolist()
    assert whole.labels.tolist() == [1, 1]


def test_what_is_drawn_is_right() -> None:
    data = StepsData(length=3, way="steps", validation=10)
    assert (data.answer, StepsData(length=3, way="one-pass").answer) == ("steps", "string")
    model = Perfect(3)
    batches: Any = data.source(5, 4, 0)
    for found in [Examples(*batch) for batch in batches] + data.validation_sets():
        assert model(torch.from_numpy(found.bits).long()).tolist() == found.labels.tolist()
    assert data.draw_inputs(2, np.random.default_rng(0)).shape == (2, 6)


def test_a_model_goes_on_from_its_own_errors() -> None:
    bits = torch.randint(0, 2, (700, 5), generator=torch.Generator().manual_seed(0))
    parities = bits.cumsum(dim=1) % 2
    assert torch.equal(write_steps(Perfect(5), bits), parities)
    wrong = write_steps(Perfect(5, wrong_at=2), bits)
    assert torch.equal(wrong[:, :1], parities[:, :1])
    assert torch.equal(wrong[:, 1:], 1 - parities[:, 1:])  # never put right


def test_bad_input() -> None:
    with pytest.raises(InputError, match="way='both' is not one of steps, one-pass"):
        StepsData(length=4, way="both")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="bits must be a torch tensor"):
        write_steps(Perfect(3), torch.zeros(3))
    for wrong in (torch.full((2, 3), START), torch.full((2, 3), 0.7)):
        with pytest.raises(InputError, match="bits must be integers 0 and 1"):
            write_steps(Perfect(3), wrong)
    with pytest.raises(InputError, match="say readout='every'"):
        write_steps(torch.nn.Linear(4, 1, dtype=torch.long) if False else Last(), torch.zeros((2, 3), dtype=torch.long))
