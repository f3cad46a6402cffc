"""Verdicts from intervals: reproduced, contradicted, or undecided if the interval contains the limit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Literal

from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate, proportions
from flipscope.basics.wording import number_text
from flipscope.lab import looks

Verdict = Literal["reproduced", "contradicted", "undecided"]
VERDICTS: tuple[Verdict, ...] = ("reproduced", "contradicted", "undecided")
MOST_SAMPLES = 10**7  # no remedy suggests more


@dataclass(frozen=True)
class Seen:
    """The status of a judgement: which look it is and at what error, or why it decides nothing.

    >>> Seen("look", 3, 0.05 / 12).text
    'look 3, at 99.6 %'
    """

    standing: Literal["look", "interim", "exploratory"]
    number: int = 0
    error: float = looks.ALPHA
    reason: str = ""

    @property
    def text(self) -> str:
        """The status as a short text; "" for the first look at the usual error."""
        if self.standing == "look":
            first = self.number == 1 and self.error == looks.ALPHA
            return "" if first else f"look {self.number}, at {100 * (1 - self.error):.3g} %"
        return "interim" if self.standing == "interim" else f"exploratory: {self.reason}"

    def as_json(self) -> dict[str, Any]:
        """The status as a JSON object."""
        told = {"standing": self.standing, "number": self.number or None, "confidence": 1 - self.error}
        return {**told, "reason": self.reason}


@dataclass(frozen=True)
class Judgement:
    """A verdict with the number behind it, its interval and its limit; None where there is no number.

    A claim that rests on several numbers has them all as `parts`, and shows the one that decides.

    >>> Judgement("reproduced", "share of strings", 0.98, 0.97, 0.99, limit="≥ 0.9").as_json()["limit"]
    '≥ 0.9'
    """

    verdict: Verdict
    quantity: str  # description of the measured quantity
    measured: float | None
    low: float | None
    high: float | None
    note: str = ""  # one short reason, if the number needs one
    limit: str = ""  # the limit it is compared with, such as "≥ 0.9"
    remedy: str = ""  # what would decide an undecided claim
    parts: tuple[Judgement, ...] = ()
    seen: Seen | None = None  # None for a judgement of no stored plan

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise InputError(f"verdict={self.verdict!r} is not one of {', '.join(VERDICTS)}")
        for value in (self.measured, self.low, self.high):
            if value is not None and math.isnan(value):
                raise InputError(f"the judgement of {self.quantity} holds NaN: leave the number out instead")

    @classmethod
    def without(cls, reason: str, remedy: str = "") -> Judgement:
        """An undecided judgement for lack of data."""
        return cls("undecided", reason, None, None, None, remedy=remedy)

    def left_open(self, note: str, remedy: str = "") -> Judgement:
        """The same judgement as undecided, with this reason."""
        return replace(self, verdict="undecided", note=note, remedy=remedy)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Judgement:
        """The judgement from the result of `as_json`, without its look; ValueError or KeyError if it is invalid.

        >>> found = Judgement("reproduced", "share of strings", 0.98, 0.97, 0.99, limit="≥ 0.9")
        >>> Judgement.from_json(found.as_json()) == found
        True
        """
        numbers = {name: document[name] for name in ("measured", "low", "high")}
        words = {name: document[name] for name in ("verdict", "quantity", "note", "limit", "remedy")}
        parts = document["parts"]
        if not all(value is None or type(value) in (int, float) for value in numbers.values()):
            raise ValueError("a number of a judgement is no number")
        if not all(isinstance(text, str) for text in words.values()) or not isinstance(parts, list):
            raise ValueError("a text of a judgement is no text")
        return cls(**numbers, **words, parts=tuple(map(cls.from_json, parts)))

    def as_json(self) -> dict[str, Any]:
        """The judgement as a JSON object, without infinities, which JSON does not have."""
        numbers = {"measured": self.measured, "low": self.low, "high": self.high}
        finite = {name: value if value is None or math.isfinite(value) else None for name, value in numbers.items()}
        words = {name: getattr(self, name) for name in ("verdict", "quantity", "limit", "note", "remedy")}
        look = None if self.seen is None else self.seen.as_json()
        return {**finite, **words, "parts": [part.as_json() for part in self.parts], "look": look}


def at_most(found: Estimate, limit: float, quantity: str, note: str = "", unit: str = "samples") -> Judgement:
    """Whether the quantity is at most the limit; `unit` names one sample.

    >>> at_most(Estimate(0.5, 0.4, 0.6, 0.95, 100), 0.7, "share of strings").verdict
    'reproduced'
    """
    return between(found, -math.inf, limit, quantity, note, unit)


def at_least(found: Estimate, limit: float, quantity: str, note: str = "", unit: str = "samples") -> Judgement:
    """Whether the quantity is at least the limit; `unit` names one sample.

    >>> judged = at_least(Estimate(0.5, 0.4, 0.6, 0.95, 100), 0.45, "share of strings", unit="models")
    >>> judged.verdict, judged.remedy
    ('undecided', 'about 300 more models')
    """
    return between(found, limit, math.inf, quantity, note, unit)


def between(
    found: Estimate, lowest: float, highest: float, quantity: str, note: str = "", unit: str = "samples"
) -> Judgement:
    """Whether the quantity lies in a range: the whole interval must, or none of it, for a decision.

    >>> judged = between(Estimate(0.5, 0.4, 0.6, 0.95, 100), 0.1, 0.3, "share of strings")
    >>> judged.verdict, judged.limit
    ('contradicted', 'from 0.1 to 0.3')
    """
    verdict: Verdict = "undecided"
    if lowest <= found.low and found.high <= highest:
        verdict = "reproduced"
    elif found.high < lowest or highest < found.low:
        verdict = "contradicted"
    limit = f"≤ {number_text(highest)}" if lowest == -math.inf else f"≥ {number_text(lowest)}"
    if math.isfinite(lowest) and math.isfinite(highest):
        limit = f"from {number_text(lowest)} to {number_text(highest)}"
    remedy = _more(found, [end for end in (lowest, highest) if math.isfinite(end)], unit)
    return Judgement(
        verdict, quantity, found.value, found.low, found.high, note, limit, remedy if verdict == "undecided" else ""
    )


def consistent_with(
    found: Estimate, value: float, tolerance: float, quantity: str, note: str = "", unit: str = "samples"
) -> Judgement:
    """Whether the quantity equals a value: the interval must contain it and extend at most `tolerance` from it.

    An interval without the value contradicts; one that contains it but extends further than `tolerance` leaves the
    claim undecided.

    >>> consistent_with(Estimate(0.5, 0.4, 0.6, 0.95, 100), 0.55, 0.2, "share of strings").verdict
    'reproduced'
    """
    remedy = ""
    if not found.low <= value <= found.high:
        verdict: Verdict = "contradicted"
    else:
        reach = max(value - found.low, found.high - value)
        verdict = "reproduced" if reach <= tolerance else "undecided"
        if verdict == "undecided":
            remedy = _samples_text(found.samples, reach / tolerance * _wider_next(found), unit)
    limit = f"{number_text(value)} ± {number_text(tolerance)}"
    return Judgement(verdict, quantity, found.value, found.low, found.high, note, limit, remedy)


def never(
    violations: int,
    cases: int,
    quantity: str,
    note: str = "",
    confidence: float | None = None,
    unknown: int = 0,
) -> Judgement:
    """Whether something never happens: a single case contradicts; the interval is that of its share.

    `unknown` is the number of further cases that gave no number (NaN); if no case contradicts, they leave the claim
    undecided.

    >>> judged = never(1, 100, "share of models above the bound")
    >>> judged.verdict, judged.measured, judged.note
    ('contradicted', 0.01, '1 of 100 cases')
    >>> never(0, 100, "share of models above the bound", unknown=2).verdict
    'undecided'
    """
    if cases == 0:
        return Judgement.without(f"{quantity}: no case was tried" + (f", {unknown} gave no number" if unknown else ""))
    share = proportions([violations], cases, looks.confidence() if confidence is None else confidence)[0]
    verdict: Verdict = "contradicted" if violations else "reproduced"
    said = f"{violations} of {cases} cases" + (f"; {note}" if note else "")
    judged = Judgement(verdict, quantity, share.value, share.low, share.high, said, "never")
    if unknown and not violations:
        return judged.left_open(f"{said}; {unknown} more gave no number", "numbers for these cases")
    return judged


def all_of(parts: Sequence[Judgement]) -> Judgement:
    """The decisive one of several judgements that a claim requires, with all of them as its parts.

    One contradiction contradicts the claim; one undecided part leaves it undecided. Of equal verdicts the first is
    shown. Intervals that must hold simultaneously need a smaller error each: the caller divides it among them.

    >>> judged = all_of([never(0, 50, "first"), never(1, 50, "second")])
    >>> judged.verdict, judged.quantity, len(judged.parts)
    ('contradicted', 'second', 2)
    """
    if not parts:
        return Judgement.without("nothing was judged")
    order: tuple[Verdict, ...] = ("contradicted", "undecided", "reproduced")
    decisive = min(parts, key=lambda part: order.index(part.verdict))
    leaves = [leaf for part in parts for leaf in (part.parts or (part,))]
    return decisive if len(leaves) == 1 else replace(decisive, parts=tuple(leaves))


def asymptotic(found: Judgement) -> Judgement:
    """The same judgement, undecided if contradicted: measured lengths cannot contradict a limit theorem.

    >>> judged = asymptotic(never(1, 10, "violations"))
    >>> judged.verdict, judged.remedy
    ('undecided', 'longer strings')
    """
    if found.verdict != "contradicted":
        return found
    note = "the theorem may set in at a longer length"
    return found.left_open(f"{found.note}; {note}" if found.note else note, "longer strings")


def _more(found: Estimate, limits: Sequence[float], unit: str) -> str:
    """How many more samples would separate the next look's interval from the nearest limit at the same value."""
    inside = [limit for limit in limits if found.low <= limit <= found.high]
    if not inside:
        return ""
    limit = min(inside, key=lambda end: abs(end - found.value))
    distance = abs(limit - found.value)
    reach = found.value - found.low if limit < found.value else found.high - found.value
    if not distance or not math.isfinite(reach):
        return ""
    return _samples_text(found.samples, reach / distance * _wider_next(found), unit)


def _wider_next(found: Estimate) -> float:
    """The factor by which the interval would be wider at the next look, at which more samples would be judged."""
    error = 1 - found.confidence
    if error <= 0:  # computed, not sampled
        return 1.0
    now, then = (NormalDist().inv_cdf(1 - each / 2) for each in (error, looks.following_error(error)))
    return then / now if now > 0 else 1.0


def _samples_text(samples: int, narrower: float, unit: str) -> str:
    """The additional samples for a narrower interval, to one significant digit; "" if there are too many."""
    more = samples * (min(narrower, MOST_SAMPLES) ** 2 - 1)
    if not 0 < more <= MOST_SAMPLES:
        return ""
    size = 10 ** max(0, math.floor(math.log10(more)))
    return f"about {math.ceil(more / size) * size:,} more {unit}"
