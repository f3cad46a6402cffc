"""Intervals of token sensitivity hold as often as they say, whatever the inputs are like: 1,000 measurements each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from flipscope.adapters.disturbing import Change, Layout
from flipscope.probes.token_actions import Rows
from flipscope.probes.token_site import TokenSite
from flipscope.probes.tokens import _Meter, _Plan

REPETITIONS, CONFIDENCE = 1000, 0.95
LONGEST = 60


class Simulated(TokenSite):
    """Stands for a model whose answer changes with a given probability for each token."""

    def __init__(self, chances: NDArray[np.float64], rng: np.random.Generator) -> None:
        self.count, self.chances, self.rng = len(chances), chances, rng
        self.batch, self.answers = 1 << 20, np.zeros(len(chances), np.int64)
        self.layout = Layout.of((chances.shape[1],))
        self.settled: Any = self
        self._next = None
        self.rows: Rows = np.zeros((0, 3), np.int64)

    def values(self, index: NDArray[np.int64], change: Change, start: int = 0) -> NDArray[np.float64]:
        return self.chances[self.rows[:, 0], self.rows[:, 1]]

    def chosen(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        return (self.rng.random(len(values)) < values).astype(np.int64)

    # What is done to a token: nothing.

    def prepared(self, rows: Rows) -> tuple[None, NDArray[np.bool_]]:
        return None, np.ones(len(rows), bool)

    def change(self, rows: Rows, drawn: Any) -> Change:
        self.rows = rows
        return torch.clone

    def said(self) -> dict[str, Any]:
        return {}


def few_sensitive(rng: np.random.Generator, count: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """One input in twenty reacts to half of its disturbances."""
    chances = np.where(rng.random((count, 1)) < 0.05, 0.5, 0.0)
    return np.repeat(chances, 8, axis=1), np.full(count, 8)


def longer_is_worse(rng: np.random.Generator, count: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Texts of 2 to 60 tokens; the longer, the more sensitive."""
    lengths = rng.integers(2, LONGEST + 1, count)
    return np.repeat(lengths[:, None] / (2 * LONGEST), LONGEST, axis=1), lengths


def few_words(rng: np.random.Generator, count: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Texts of 2 to 60 tokens that depend on their first word only: 9 times in 10 if it is disturbed."""
    lengths = rng.integers(2, LONGEST + 1, count)
    chances = np.zeros((count, LONGEST))
    chances[:, 0] = 0.9
    return chances, lengths


SIZES = np.arange(2, LONGEST + 1)
POPULATIONS = {
    "5 % sensitive": (few_sensitive, 0.025, 0.025),
    "longer is worse": (longer_is_worse, SIZES.mean() / 120, (SIZES**2).mean() / SIZES.mean() / 120),
    "few words": (few_words, (0.9 / SIZES).mean(), 0.9 / SIZES.mean()),
}


ALL, ONE = _Plan(draws=1, tokens=None, precision=None), _Plan(draws=1, tokens=1, precision=None)
STOPS, NEVER_STOPS = (_Plan(draws=1, tokens=None, precision=half_width) for half_width in (0.25, 1e-6))


@pytest.mark.parametrize(
    ("name", "plan", "count"),
    [
        ("5 % sensitive", ALL, 60),
        ("longer is worse", ALL, 60),
        ("few words", ALL, 60),
        ("5 % sensitive", ONE, 60),
        ("longer is worse", STOPS, 100),  # after 40 to 80 inputs with one token
        ("few words", NEVER_STOPS, 20),  # four passes over the inputs, with ever more tokens
    ],
)
def test_intervals_hold(name: str, plan: _Plan, count: int) -> None:
    draw, definition, pooled = POPULATIONS[name]
    rng = np.random.default_rng(5)
    held = np.zeros(2)
    for seed in range(REPETITIONS):
        chances, lengths = draw(rng, count)
        valid = np.arange(chances.shape[1]) < lengths[:, None]
        site = Simulated(chances, rng)
        meter = _Meter(site, site, valid, plan, seed, None, 0)
        error, _ = meter.run(CONFIDENCE)
        if plan.precision is not None:
            one = meter._interval(meter._order, error)
            held += one.low <= definition <= one.high
            continue
        both = meter.estimates(error, CONFIDENCE, "fixed")
        held += [each.low <= truth <= each.high for each, truth in zip(both, (definition, pooled), strict=True)]
    assert (held / REPETITIONS >= CONFIDENCE - 0.01).all()
