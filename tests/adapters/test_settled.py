"""How often and on how much a model is asked, whatever it is and whatever is measured of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import flipscope
from flipscope import Subject
from flipscope.adapters.batches import fast_batch
from flipscope.adapters.settled import Settled
from flipscope.basics.errors import InputError

FIXED_CALLS, FIXED_ROWS = 7, 95  # three trial calls; a sample in float64 and its perturbed part; the fewest audits


class Counted(nn.Module):
    """Notes the number of strings of every call, those of its copies too."""

    rows: ClassVar[list[int]] = []

    def __init__(self, length: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Linear(length, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x: Tensor) -> Tensor:
        Counted.rows.append(len(x))
        out: Tensor = self.network(x)
        return out


def strings(count: int, length: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 2, (count, length)).astype(np.uint8)


MEASUREMENTS: dict[str, Callable[[Any, np.ndarray], object]] = {
    "sensitivity": flipscope.sensitivity,
    "profile": lambda model, given: flipscope.sensitivity_profile(model, given.shape[1], strings=len(given)),
    "influences": flipscope.influences,
}


@pytest.mark.parametrize("name", MEASUREMENTS)
@pytest.mark.parametrize(("count", "length"), [(1, 1), (6, 8), (40, 20), (1000, 20), (300, 100)])
def test_few_calls_and_few_rows(name: str, count: int, length: int) -> None:
    model = Counted(length)
    Counted.rows.clear()
    MEASUREMENTS[name](model, strings(count, length))
    needed = count * (length + 1)
    assert sum(Counted.rows) <= 1.1 * needed + FIXED_ROWS
    assert len(Counted.rows) <= FIXED_CALLS + needed / 2000
    Counted.rows.clear()
    MEASUREMENTS[name](Subject(lambda bits: model(bits.float()), output="logit"), strings(count, length))
    assert sum(Counted.rows) <= needed + 18


def test_a_truth_table_asks_each_string_once() -> None:
    model = Counted(12)
    Counted.rows.clear()
    flipscope.sensitivity_profile(model, 12, exhaustive=True)
    assert sum(Counted.rows) <= 1.1 * 4096 + FIXED_ROWS


def test_the_trial_is_of_other_sizes_than_the_strings() -> None:
    for length in range(1, 12):
        Counted.rows.clear()
        Subject(Counted(length), precision="native").values(strings(3, length))
        *trial, own = Counted.rows
        assert own == 3
        assert len(trial) == 3
        assert length not in trial
        assert trial[0] > trial[1] == trial[2]


def test_batches_are_as_large_as_a_cache_or_the_limit() -> None:
    cpu = torch.device("cpu")
    assert fast_batch([[8 * 1000], [5 * 1000]], (8, 5), 1, cpu, 1 << 30) == (4 << 20) // 1000
    assert fast_batch([[8 * 1000], [5 * 1000]], (8, 5), 1, cpu, 1 << 16) == (1 << 16) // 4000
    assert fast_batch([[8 * 10**7], [5 * 10**7]], (8, 5), 1, cpu, 1 << 30) == 16  # fewer would be overhead only
    assert fast_batch([[64, 8], [64, 5]], (8, 5), 4, cpu, 1 << 30) == 8192  # what does not grow is no reason
    assert fast_batch([[8], [5, 5]], (8, 5), 4, cpu, 1 << 30) == 1024  # other operations were seen: unknown


def test_a_model_is_measured_as_it_is_now() -> None:
    """A subject that is kept does not keep the numbers of the model it is of."""
    model = nn.Linear(4, 1)
    subject = Subject(model, precision="float64")
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 0, 0, 0]]))
        model.bias.fill_(-0.5)
        before = flipscope.sensitivities(subject, strings(5, 4)).flipped.tolist()
        model.weight.copy_(torch.tensor([[0, 0, 0, 1.0]]))
    after = flipscope.sensitivities(subject, strings(5, 4)).flipped.tolist()
    assert (before, after) == ([5, 0, 0, 0], [0, 0, 0, 5])


def test_a_copy_that_does_not_fit_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flipscope.basics.limits.machine_memory", lambda: 100)
    with pytest.raises(InputError, match=r"a copy of the model in float64 would take .*: say precision='native'"):
        flipscope.sensitivity(nn.Linear(8, 4), strings(2, 8))


def test_settled_models_are_told_apart() -> None:
    wide = Settled(Subject(nn.Linear(3, 1).double()))
    assert (wide.precision, wide.is_copy, wide.may_overflow) == ("float64", False, False)
    narrow = Settled(Subject(nn.Linear(3, 1)))
    copied = narrow.converted(torch.float64)
    assert (narrow.precision, copied.precision, copied.is_copy) == ("float32", "float64 copy of float32 weights", True)
    before = copy.deepcopy(copied.module.state_dict())
    with copied.perturbed(0.1) as moved:
        assert moved is copied
        assert not torch.equal(moved.module.weight, before["weight"])
    assert torch.equal(copied.module.weight, before["weight"])
