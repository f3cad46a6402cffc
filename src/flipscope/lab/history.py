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
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    outcomes: Mapping[str, str]  # digests of the trials' outcomes, by the hashes of the trials
    revision: int  # of the study
    judgement: Mapping[str, Any]  # as JSON
    limits: Sequence[Sequence[float]]  # the numbers of the limit of each part of the judgement
    declared: int = 1  # the number of looks that the scale announced in advance
    drawn: Mapping[str, Any] = field(default_factory=dict)  # the settings that only determine the sample
    limit_by: str = ""  # whose limit it is
    made: str = ""  # when it was stored, ISO 8601

    @property
    def trials(self) -> frozenset[str]:
        """Hashes of its trials."""
        return frozenset(self.outcomes)

    @property
    def data(self) -> str:
        """The digest of its trials with their outcomes."""
        return digest(self.outcomes)

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

    def of(self, trials: frozenset[str]) -> dict[str, str]:
        """The outcomes of some trials."""
        return {trial: self.outcomes[trial] for trial in trials}


def look_at(
    claim: Claim,
    data: Data,
    earlier: Sequence[Look],
    *,
    declared: int = 1,
    withdrawn: Mapping[int, str] | None = None,
    revision: int = 1,
    drawn: Mapping[str, Any] | None = None,
) -> tuple[Judgement, Look | None]:
    """Judge the claim on every planned trial; returns the judgement, and the look if it is a new one.

    `earlier` are the recorded looks at the claim, in any order; `declared` is the number of looks that the scale
    announced in advance; `withdrawn` maps revisions of the study whose trials were discarded to the reason; `drawn` are
    the settings that only determine the sample.
    """
    table = data.table(data.trials)
    valid = [look for look in earlier if look.revision not in (withdrawn or {})]
    counted = sorted((look for look in valid if not look.exploratory), key=lambda look: look.number)
    number = counted[-1].number + 1 if counted else 1

    def judged(error: float, rows: Rows) -> Judgement:
        with judging(error, error_of(number, declared)):
            return claim.judged(rows)

    for look in [*counted, *(look for look in valid if look.exploratory)]:
        if look.outcomes == data.outcomes:
            found = judged(look.error, table)
            if alike(found.as_json(), look.judgement, limits_of(found.as_json()), look.limits):
                reason = "" if not look.exploratory else _why_exploratory(counted, data, judged)
                return _standing(found, look, reason), None
    reason = _why_exploratory(counted, data, judged)
    error = error_of(number, declared)
    if claim.anytime and not reason and all(look.trials < data.trials for look in counted):
        error = ALPHA  # the intervals hold at every sample size at once
    with judging(error, error_of(number + (not reason), declared)):
        found = claim.judged(table)
    document = found.as_json()
    new = Look(
        claim.name,
        number,
        bool(reason),
        error,
        dict(data.outcomes),
        revision,
        document,
        limits_of(document),
        declared,
        dict(drawn or {}),
    )
    return _standing(found, new, reason), new


def _why_exploratory(counted: Sequence[Look], data: Data, judged: Callable[[float, Rows], Judgement]) -> str:
    """Why a judgement of these trials decides nothing; "" if it is a proper look."""
    for look in counted:
        if not look.trials & data.trials:
            continue
        if not look.trials <= data.trials:
            return f"some trials of look {look.number} were left out: new seeds would decide"
        if data.of(look.trials) != look.outcomes:
            continue  # measured again with other results: the next look
        try:
            document = judged(look.error, data.table(look.trials)).as_json()
            same = alike(document, look.judgement, limits_of(document), look.limits)
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


Limits = Sequence[Sequence[float]]

_NUMBER = re.compile(r"(?<![\w.])[-−]?\d[\d,]*(?:\.\d+)?(?:e[-+−]?\d+)?")


def limits_of(judgement: Mapping[str, Any]) -> list[list[float]]:
    """The numbers in the limit of each part of a judgement, which is JSON; a bound on one side is a range.

    >>> limits_of({"parts": [], "limit": "from 0.1 to 2e−3"}), limits_of({"parts": [], "limit": "never"})
    ([[0.1, 0.002]], [[]])
    >>> limits_of({"parts": [{"limit": "≤ 1,000"}, {"limit": "≥ −0.5"}]})
    [[-inf, 1000.0], [-0.5, inf]]
    """
    return [_range(part["limit"]) for part in _leaves(judgement)]


def _range(limit: str) -> list[float]:
    numbers = [float(number.replace("−", "-").replace(",", "")) for number in _NUMBER.findall(limit)]
    if limit.startswith("≤"):
        return [-math.inf, *numbers]
    return [*numbers, math.inf] if limit.startswith("≥") else numbers


def alike(first: Mapping[str, Any], second: Mapping[str, Any], first_limits: Limits, second_limits: Limits) -> bool:
    """Whether two judgements, as JSON, compare the same numbers with the same limits, whatever the wording."""
    ours, theirs = (
        sorted(map(_numbers, _leaves(judgement), limits))
        for judgement, limits in ((first, first_limits), (second, second_limits))
    )
    return len(ours) == len(theirs) and all(map(_close, ours, theirs))


def _leaves(judgement: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return judgement["parts"] or [judgement]


def _numbers(judgement: Mapping[str, Any], limit: Sequence[float]) -> tuple[str, tuple[float, ...]]:
    """The verdict, then the limit and what is compared with it."""
    values = (judgement[name] for name in ("low", "measured", "high"))
    return judgement["verdict"], (*limit, *(math.inf if value is None else float(value) for value in values))


def _close(first: tuple[str, tuple[float, ...]], second: tuple[str, tuple[float, ...]]) -> bool:
    if first[0] != second[0] or len(first[1]) != len(second[1]):
        return False
    return all(math.isclose(a, b, rel_tol=_ALIKE, abs_tol=1e-12) for a, b in zip(first[1], second[1], strict=True))


def interim(judgement: Judgement, done: int, of: int) -> Judgement:
    """The judgement of part of the planned trials: undecided, with the verdict so far as a note.

    >>> found = interim(Judgement("reproduced", "share", 0.9, 0.8, 1.0, limit="≥ 0.5"), 3, 10)
    >>> found.verdict, found.note
    ('undecided', '3 of 10 trials, reproduced so far')
    """
    so_far = "" if judgement.verdict == "undecided" else f", {judgement.verdict} so far"
    return _undecided(judgement, Seen("interim"), f"{done:,} of {of:,} trials{so_far}")
