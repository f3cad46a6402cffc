"""Every probe is tested on one thread: the suite runs its workers side by side; and what fixtures they share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from flipscope.probes import lanes
from flipscope.probes.span import TOKENS, Span, span_of


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=[0, lanes.WIDEST], ids=["wide", "narrow"])
def both_kinds_of_loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once as if every model were too wide for lanes."""
    monkeypatch.setattr(lanes, "WIDEST", request.param)


@pytest.fixture(params=TOKENS, ids=lambda lanes: f"{lanes} lanes")
def span(request: pytest.FixtureRequest) -> Span:
    """Every width, whatever the processor's: the compiler splits a vector for which there is no register."""
    return span_of(request.param)
