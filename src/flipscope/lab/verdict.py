"""Verdicts: what an interval says of a claim. Reproduced, contradicted, or undecided when it straddles the line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flipscope.cube.intervals import Estimate, proportions
from flipscope.errors import InputError

Verdict = Literal["reproduced", "contradicted", "undecided"]
VERDICTS: tuple[Verdict, ...] = ("reproduced", "contradicted", "undecided")


@dataclass(frozen=True)
class Judgement:
    """A verdict with the number behind it and its interval; None where there is no number."""

    verdict: Verdict
    quantity: str  # what was measured, in words
    measured: float | None
    low: float | None
    high: float | None
    note: str = ""  # what a reader must know to weigh it

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise InputError(f"verdict={self.verdict!r} is not one of {', '.join(VERDICTS)}")
        for value in (self.measured, self.low, self.high):
            if value is not None and math.isnan(value):
                raise InputError(f"the judgement of {self.quantity} holds NaN: leave the number out instead")

    @classmethod
    def without(cls, reason: str) -> Judgement:
        """Undecided, for want of data."""
        return cls("undecided", reason, None, None, None)

    def as_json(self) -> dict[str, Any]:
        """The same for JSON, which has no infinity."""
        numbers = {"measured": self.measured, "low": self.low, "high": self.high}
        finite = {name: value if value is None or math.isfinite(value) else None for name, value in numbers.items()}
        return {**finite, "verdict": self.verdict, "quantity": self.quantity, "note": self.note}


def at_most(found: Estimate, limit: float, quantity: str, note: str = "") -> Judgement:
    """Whether the quantity is at most the limit."""
    return between(found, -math.inf, limit, quantity, note)


def at_least(found: Estimate, limit: float, quantity: str, note: str = "") -> Judgement:
    """Whether the quantity is at least the limit."""
    return between(found, limit, math.inf, quantity, note)


def between(found: Estimate, lowest: float, highest: float, quantity: str, note: str = "") -> Judgement:
    """Whether the quantity lies in a range: the whole interval must, or none of it, for a decision."""
    verdict: Verdict = "undecided"
    if lowest <= found.low and found.high <= highest:
        verdict = "reproduced"
    elif found.high < lowest or highest < found.low:
        verdict = "contradicted"
    return Judgement(verdict, quantity, found.value, found.low, found.high, note)


def consistent_with(found: Estimate, value: float, tolerance: float, quantity: str, note: str = "") -> Judgement:
    """Whether the quantity is a stated value: it must be in the interval, and the interval no wider than said.

    An interval without the value contradicts; one that holds it but reaches further than `tolerance` from it
    says too little, and leaves the claim undecided.
    """
    if not found.low <= value <= found.high:
        verdict: Verdict = "contradicted"
    else:
        verdict = "reproduced" if max(value - found.low, found.high - value) <= tolerance else "undecided"
    return Judgement(verdict, quantity, found.value, found.low, found.high, note)


def never(violations: int, cases: int, quantity: str, note: str = "", confidence: float = 0.95) -> Judgement:
    """Whether something never happens: a single case contradicts; the interval is that of its share."""
    if cases == 0:
        return Judgement.without(f"{quantity}: no case was tried")
    share = proportions([violations], cases, confidence)[0]
    verdict: Verdict = "contradicted" if violations else "reproduced"
    said = f"{violations} of {cases} cases" + (f"; {note}" if note else "")
    return Judgement(verdict, quantity, share.value, share.low, share.high, said)


def all_of(parts: Sequence[Judgement]) -> Judgement:
    """Of several judgements that a claim needs together, the one that decides, with a note of the others.

    One contradiction contradicts the claim, one undecided part leaves it undecided. Intervals that must hold
    together need a smaller error each: the caller divides it among them.
    """
    if not parts:
        return Judgement.without("nothing was judged")
    order: tuple[Verdict, ...] = ("contradicted", "undecided", "reproduced")
    decisive = min(parts, key=lambda part: order.index(part.verdict))
    others = "; ".join(f"{part.quantity}: {_said(part)}" for part in parts if part is not decisive)
    note = "; ".join(text for text in (decisive.note, others) if text)
    return Judgement(decisive.verdict, decisive.quantity, decisive.measured, decisive.low, decisive.high, note)


def _said(part: Judgement) -> str:
    if part.measured is None or part.low is None or part.high is None:
        return part.verdict
    return f"{part.measured:.4g} [{part.low:.4g}, {part.high:.4g}], {part.verdict}"
