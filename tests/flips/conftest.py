"""What the tests of the engines share."""

from __future__ import annotations

import pytest

from flipscope.flips import choice
from flipscope.native.span import TOKENS, Span, span_of


@pytest.fixture(params=[0, choice.WIDEST], ids=["wide", "narrow"])
def both_kinds_of_loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once as if every model were too wide for lanes."""
    monkeypatch.setattr(choice, "WIDEST", request.param)


@pytest.fixture(params=TOKENS, ids=lambda lanes: f"{lanes} lanes")
def span(request: pytest.FixtureRequest) -> Span:
    """Every width, whatever the processor's: the compiler splits a vector for which there is no register."""
    return span_of(request.param)
