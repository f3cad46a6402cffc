"""Parity step by step: what is read and asked for, and what a model writes by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from flipscope.basics.errors import InputError
from flipscope.training.batches import Examples
from flipscope.training.step_sets import START, StepsData, write_steps


class Perfect(nn.Module):
    """What a trained model is to do: the bit of this step plus what was written last."""

    def __init__(self, length: int, wrong_at: int | None = None) -> None:
        super().__init__()
        self.length, self.wrong_at = length, wrong_at

    def forward(self, read: Tensor) -> Tensor:
        step = read.shape[1] - self.length
        last = torch.where(read[:, -1] == START, 0, read[:, -1])
        right = (read[:, step - 1] + last) % 2
        return (1 - right if step == self.wrong_at else right).double()


def test_a_step_is_asked_from_what_was_written() -> None:
    bits = np.array([[1, 0, 1, 1], [0, 1, 1, 1]], np.uint8)
    data = StepsData(length=4, way="steps")
    first, last = data.examples(bits, 1), data.examples(bits, 4)
    assert first.bits.tolist() == [[1, 0, 1, 1, START], [0, 1, 1, 1, START]]
    assert first.labels.tolist() == [1, 0]
    assert last.bits.tolist() == [[1, 0, 1, 1, START, 1, 1, 0], [0, 1, 1, 1, START, 0, 1, 0]]
    assert last.labels.tolist() == [1, 1]
    whole = StepsData(length=4, way="one-pass").examples(bits, 4)
    assert whole.bits.tolist() == first.bits.tolist()
    assert whole.labels.tolist() == last.labels.tolist()


def test_every_step_is_drawn_and_is_right() -> None:
    data = StepsData(length=3, way="steps", validation=10)
    batches = list(data.source(5, 40, 0))  # type: ignore[arg-type]
    assert {inputs.shape for inputs, _ in batches} == {(5, 4), (5, 5), (5, 6)}
    model = Perfect(3)
    for found in [Examples(*batch) for batch in batches] + data.validation_sets():
        assert model(torch.from_numpy(found.bits).long()).tolist() == found.labels.tolist()
    assert {inputs.shape for inputs, _ in StepsData(length=3, way="one-pass").source(5, 9, 0)} == {(5, 4)}  # type: ignore[union-attr,misc]
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
