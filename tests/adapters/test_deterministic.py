"""Models that are no functions of one string are refused, and honest ones, however they round, are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from flipscope.adapters.subject import Subject
from flipscope.basics.errors import InputError
from flipscope.cube.functions import BooleanFunction
from flipscope.models import Transformer, encoder
from flipscope.probes import fourier
from flipscope.probes.influence import influences
from flipscope.probes.recognition import recognition
from flipscope.probes.sensitivity import logit_changes, sensitivities, sensitivity, sensitivity_profile, truth_table

Step = Callable[["Body", Tensor], Tensor]
STRINGS = np.random.default_rng(0).integers(0, 2, (12, 6)).astype(np.uint8)
REFUSED = "with the other inputs of its batch"


class Body(nn.Module):
    """Two linear maps, put together in some way."""

    def __init__(self, step: Step, length: int = 6) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            self.up, self.down, self.over = nn.Linear(length, 8), nn.Linear(8, 1), nn.LSTM(8, 8)
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        return self.step(self, x)


def _less(of: Callable[[Tensor], Tensor]) -> Step:
    def step(self: Body, x: Tensor) -> Tensor:
        y: Tensor = self.down(self.up(x).tanh())
        return y - of(y)

    return step


BY_CONTENT: dict[str, Step] = {
    "mean": _less(lambda y: y.mean()),
    "a little of the mean": _less(lambda y: 1e-3 * y.mean()),
    "largest": _less(lambda y: y.max()),
    "those before": _less(lambda y: y.cumsum(0)),
    "batch norm": lambda self, x: self.down(F.batch_norm(self.up(x), None, None, training=True)),
    "softmax over strings": lambda self, x: self.down(self.up(x).softmax(dim=0)),
    "strings as time": lambda self, x: self.down(self.over(self.up(x)[:, None])[0][:, 0]),
}
BY_PLACE: dict[str, Step] = {
    "positions of strings": lambda self, x: self.down(self.up(x) + torch.arange(len(x)).to(x)[:, None].sin()),
    "number of strings": _less(lambda y: 0.1 * len(y) + 0 * y),
}


@pytest.mark.parametrize("name", [*BY_CONTENT, *BY_PLACE])
def test_modules_that_look_at_their_batch_are_refused_whatever_it_is(name: str) -> None:
    model = Body({**BY_CONTENT, **BY_PLACE}[name])
    options: Any
    for options in ({}, {"precision": "float64", "batch": 3}, {"precision": "native"}):
        for some in (STRINGS, STRINGS[:1]):
            with pytest.raises(InputError, match=REFUSED):
                sensitivity(Subject(model, **options), some)


@pytest.mark.parametrize("name", BY_CONTENT)
def test_functions_that_look_at_their_batch_are_refused(name: str) -> None:
    model = Body(BY_CONTENT[name])
    with pytest.raises(InputError, match=REFUSED):
        sensitivity(lambda bits: model(bits.float()), STRINGS)


def test_with_one_string_at_a_time_there_is_no_batch_to_look_at() -> None:
    """The message of a refusal says so, too."""
    model = Body(BY_CONTENT["mean"])
    with pytest.raises(InputError, match=r"one string at a time by flipscope\.Subject\(model, batch=1\)"):
        sensitivity(model, STRINGS)
    found = sensitivities(Subject(model, batch=1), STRINGS)
    assert (found.counts.tolist(), found.lowest, found.highest) == ([0] * 12, 0.0, 0.0)  # y - mean(y) of one y


def test_every_measurement_asks_the_same_question() -> None:
    model, table = Body(BY_CONTENT["mean"]), BooleanFunction.from_table(np.arange(64) % 2)
    measurements: list[Callable[[], object]] = [
        lambda: sensitivity_profile(model, 6, strings=5),
        lambda: truth_table(model, 6),
        lambda: logit_changes(model, STRINGS),
        lambda: influences(model, STRINGS),
        lambda: fourier.spectrum(model, 6),
        lambda: fourier.coefficient(model, 6, [0], samples=100),
        lambda: fourier.weight_by_degree(model, 6, samples=100),
        lambda: fourier.degree_test(model, 6, 1),
        lambda: recognition(lambda bits: model(bits.float()), table, 0.1),
        lambda: recognition(Asked(model), table, 0.1),
    ]
    for measure in measurements:
        with pytest.raises(InputError, match=REFUSED):
            measure()


class Asked(nn.Module):
    """A module on bits of any type."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, bits: Tensor) -> Tensor:
        out: Tensor = self.inner(bits.float())
        return out


class Named(Transformer):
    """Not known to be what it is."""


class Routed(nn.Module):
    """Each string goes to one of three experts, all strings of one together: sums round differently with the others."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
            self.gate, self.head = nn.Linear(6, 3), nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            chosen, moved = self.gate(x).argmax(dim=-1), torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                rows = (chosen == number).nonzero()[:, 0]
                moved[rows] = (40 * expert(x[rows])).sin()
            x = x + moved
        out: Tensor = self.head(x)
        return out


HONEST: dict[str, Callable[[], nn.Module]] = {
    "chaotic": lambda: Named(encoder(64, 5, 4), scheme="uniform", seed=3),
    "routed": Routed,
    "batch norm": lambda: nn.Sequential(nn.Linear(6, 40), nn.BatchNorm1d(40), nn.Dropout(), nn.Linear(40, 1)).train(),
    "float32 inside": lambda: Body(lambda self, x: self.down((99 * self.up(x)).sin().float().to(self.down.weight))),
    "none alone": lambda: Body(lambda self, x: self.down(self.up(x)).squeeze()),
    "constant": lambda: Body(lambda self, x: 0 * self.down(self.up(x))),
    "half": lambda: Body(lambda self, x: self.down(self.up(x).tanh())).bfloat16(),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_models_are_not_refused(name: str) -> None:
    for precision in ("native", "auto", "float64"):
        settled = Subject(HONEST[name](), precision=precision).settled()
        with settled.measuring():
            settled.prepare(STRINGS)


def test_models_that_take_one_string_at_a_time() -> None:
    def single(bits: Tensor) -> Tensor:
        assert len(bits) == 1
        return bits[:, 0] - 0.5

    assert sensitivity(Subject(single, batch=1), STRINGS).tolist() == [1] * 12
    with pytest.raises(InputError, match="the model failed on"):
        sensitivity(Subject(single, batch=4), STRINGS)
