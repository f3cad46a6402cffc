"""The history of a claim: its recorded looks, and whether a judgement is one of them, the next, or none.

A look is identified by its numbers, not by its wording or code: a judgement of the same trials with the same outcomes
that compares the same numbers with the same limits is the same look, however the study was refactored.

    same trials, same numbers           the recorded look, at its original error
    trials that no look has used        the next look, whatever the criterion
    more trials, the same criterion     the next look; it must give the old numbers on the trials of every earlier one
    same trials, measured differently   the next look
    another criterion on old trials     exploratory: chosen after seeing them, it decides nothing
    trials of a look left out           exploratory, for the same reason

Looks at trials withdrawn for a stated defect (`Study.withdrawn`) do not count and are shown with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flipscope.lab.looks import ALPHA, error_of, judging
from flipscope.lab.rows import Rows
from flipscope.lab.study import Claim, digest
from flipscope.lab.verdict import Judgement, Seen

_ALIKE = 1e-6  # relative tolerance for numbers from the same outcomes, perhaps computed on another processor


@dataclass(frozen=True)
class Look:
    """A recorded judgement of a claim on every planned trial."""

    claim: str
    number: int  # from 1; for an exploratory look, the number of the next look
    exploratory: bool
    error: float
    trials: frozenset[str]  # hashes of their contents
    data: str  # digest of the trials with their outcomes
    revision: int  # of the study
    code: str  # version of the study
    judgement: Mapping[str, Any]  # as JSON
    made: str = ""  # when it was stored, ISO 8601

    @property
    def key(self) -> str:
        """The storage key beside study and scale: each counted number is used once."""
        rest = [self.data, self.judgement] if self.exploratory else []
        return digest({"claim": self.claim, "number": self.number, "revision": self.revision, "rest": rest})


@dataclass(frozen=True)
class Data:
    """All trials of a plan: digests of outcomes by the trial's hash, and a function that tabulates some of them."""

    outcomes: Mapping[str, str]
    table: Callable[[frozenset[str]], Rows]

    @property
    def trials(self) -> frozenset[str]:
        """Hashes of all trials."""
        return frozenset(self.outcomes)

    def of(self, trials: frozenset[str]) -> str:
        """The digest of some trials with their outcomes."""
        return digest({trial: self.outcomes[trial] for trial in trials})


def look_at(
    claim: Claim,
    data: Data,
    earlier: Sequence[Look],
    *,
    declared: int = 1,
    withdrawn: Mapping[int, str] | None = None,
    revision: int = 1,
    code: str = "",
) -> tuple[Judgement, Look | None]:
    """Judge the claim on every planned trial; returns the judgement, and the look if it is a new one.

    `earlier` are the recorded looks at the claim, in any order; `declared` is the number of looks that the scale
    announced in advance; `withdrawn` maps revisions of the study whose trials were discarded to the reason.
    """
    whole, table = data.of(data.trials), data.table(data.trials)
    valid = [look for look in earlier if look.revision not in (withdrawn or {})]
    counted = sorted((look for look in valid if not look.exploratory), key=lambda look: look.number)
    number = counted[-1].number + 1 if counted else 1

    def judged(error: float, rows: Rows) -> Judgement:
        with judging(error, error_of(number, declared)):
            return claim.judged(rows)

    for look in [*counted, *(look for look in valid if look.exploratory)]:
        if look.data == whole:
            found = judged(look.error, table)
            if alike(found.as_json(), look.judgement):
                reason = "" if not look.exploratory else _why_exploratory(counted, data, judged)
                return _standing(found, look, reason), None
    reason = _why_exploratory(counted, data, judged)
    error = error_of(number, declared)
    if claim.anytime and not reason and all(look.trials < data.trials for look in counted):
        error = ALPHA  # the intervals hold at every sample size at once
    with judging(error, error_of(number + (not reason), declared)):
        found = claim.judged(table)
    new = Look(claim.name, number, bool(reason), error, data.trials, whole, revision, code, found.as_json())
    return _standing(found, new, reason), new


def _why_exploratory(counted: Sequence[Look], data: Data, judged: Callable[[float, Rows], Judgement]) -> str:
    """Why a judgement of these trials decides nothing; "" if it is a proper look."""
    for look in counted:
        if not look.trials & data.trials:
            continue
        if not look.trials <= data.trials:
            return f"some trials of look {look.number} were left out: new seeds would decide"
        if data.of(look.trials) != look.data:
            continue  # measured again with other results: the next look
        try:
            same = alike(judged(look.error, data.table(look.trials)).as_json(), look.judgement)
        except Exception:  # a judge that fails on earlier trials is a different judge
            same = False
        if not same:
            return f"the criterion changed after look {look.number} at these trials: new seeds would decide"
    return ""


def _standing(found: Judgement, look: Look, reason: str) -> Judgement:
    """The judgement with its look; an exploratory one is undecided, with a note of what it would be."""
    if not look.exploratory:
        return replace(found, seen=Seen("look", look.number, look.error))
    seen = Seen("exploratory", look.number, look.error, reason)
    return _undecided(found, seen, "" if found.verdict == "undecided" else f"by this rule it would be {found.verdict}")


def _undecided(found: Judgement, seen: Seen, note: str) -> Judgement:
    """The judgement and its parts as undecided, with this note before its own and without a remedy."""
    parts = tuple(replace(part, verdict="undecided") for part in found.parts)
    notes = "; ".join(text for text in (note, found.note) if text)
    return replace(found, verdict="undecided", note=notes, remedy="", parts=parts, seen=seen)


def alike(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two judgements, as JSON, compare the same numbers with the same limits, whatever the wording."""
    ours, theirs = (sorted(map(_numbers, _leaves(each))) for each in (first, second))
    return len(ours) == len(theirs) and all(map(_close, ours, theirs))


def _leaves(judgement: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return judgement["parts"] or [judgement]


def _numbers(judgement: Mapping[str, Any]) -> tuple[str, str, float, float, float]:
    numbers = (judgement[name] for name in ("measured", "low", "high"))
    low, middle, high = (math.inf if number is None else float(number) for number in numbers)
    return judgement["verdict"], judgement["limit"], low, middle, high


def _close(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    numbers = zip(first[2:], second[2:], strict=True)
    return first[:2] == second[:2] and all(math.isclose(a, b, rel_tol=_ALIKE, abs_tol=1e-12) for a, b in numbers)


def interim(judgement: Judgement, done: int, of: int) -> Judgement:
    """The judgement of part of the planned trials: undecided, with the verdict so far as a note.

    >>> found = interim(Judgement("reproduced", "share", 0.9, 0.8, 1.0, limit="≥ 0.5"), 3, 10)
    >>> found.verdict, found.note
    ('undecided', '3 of 10 trials, reproduced so far')
    """
    so_far = "" if judgement.verdict == "undecided" else f", {judgement.verdict} so far"
    return _undecided(judgement, Seen("interim"), f"{done:,} of {of:,} trials{so_far}")
