"""Results of measuring flips: counts or estimates, and an account of how they were measured."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int8, Int64

from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate, Validity, mean_from_samples, profile_from_counts, proportions
from flipscope.basics.wording import time_text
from flipscope.figures import Figure, Panel, Rule, Series
from flipscope.figures.panels import influences_panel, profile_panel
from flipscope.figures.results import Result
from flipscope.flips.screen import Screening

ACCEPT, REJECT, UNDEFINED = 1, 0, -1  # the values of Eq 15


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Measured(Result):
    """How a measurement was made."""

    output: str  # interpretation of the model's outputs, such as "logit" or "probability"
    threshold: float | None  # the answer is 1 where the output is greater; None for several classes
    path: str  # "general" or "fast"
    path_reason: str  # why this path was taken
    precision: str  # number types in which the signs were computed
    margin: float  # signs nearer to the threshold than this were computed again in float64
    tolerance: float  # signs nearer to the threshold than this remain undetermined
    rechecked: int  # signs computed again
    near_ties: int  # undetermined signs, of strings and of flips
    lowest: float  # of all outputs that were seen
    highest: float
    screening: Screening | None  # the flips skipped by heuristic=True, and their audit
    seconds: float

    @property
    def one_sided(self) -> str | None:
        """Why no flip can change an answer here, if all outputs lie on one side of the threshold; else None."""
        if self.threshold is None or self.screening is not None or self.lowest <= self.threshold < self.highest:
            return None
        side = "above" if self.lowest > self.threshold else "not above"
        return (
            f"all outputs, {self.lowest:.4g} to {self.highest:.4g}, are {side} the threshold {self.threshold:g}, so "
            "that no flip changes an answer here: threshold= sets another"
        )

    def said(self) -> dict[str, object]:
        """The account of the measurement for the end of a summary."""
        one_sided = {} if self.one_sided is None else {"note": self.one_sided}
        return {
            **one_sided,
            "precision": f"{self.precision}, {self.near_ties:,} signs undetermined, {time_text(self.seconds)}",
            "path": f"{self.path}: {self.path_reason}",
        }

    def how(self) -> dict[str, Any]:
        """The account of the measurement as a JSON object."""
        told: dict[str, Any] = {
            "output": self.output,
            "threshold": self.threshold,
            "path": self.path,
            "path_reason": self.path_reason,
            "precision": self.precision,
            "margin": self.margin,
            "tolerance": self.tolerance,
            "rechecked": self.rechecked,
            "near_ties": self.near_ties,
            "outputs": [self.lowest, self.highest],
            "one_sided": self.one_sided,
            "seconds": self.seconds,
        }
        if self.screening is not None:
            rate = self.screening.error_rate
            told["screening"] = {
                "flips": self.screening.flips,
                "skipped": self.screening.skipped,
                "audited": self.screening.audited,
                "wrong": self.screening.wrong,
                "error_rate": None if rate is None else rate.as_json(),
            }
        return told


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Flips(Measured):
    """The sensitivity of each of some strings."""

    answers: Int64[np.ndarray, " string"]  # 0 or 1, or the number of the class
    counts: Int64[np.ndarray, " string"]  # s(x) (Def 2.2)
    flipped: Int64[np.ndarray, " position"]  # number of strings on which a flip of each position changes the answer

    @property
    def strings(self) -> int:
        """Number of strings."""
        return len(self.counts)

    @property
    def length(self) -> int:
        """Number of bits of each string."""
        return len(self.flipped)

    def summary(self) -> dict[str, object]:
        """The main numbers by label."""
        ends = f"{self.counts.min()} to {self.counts.max()}" if self.strings else "none"
        mean = float(self.counts.mean()) if self.strings else math.nan
        return {
            "strings": f"{self.strings:,} of length {self.length:,}",
            "sensitivities": f"{ends}, mean {mean:.4g}",
            "insensitive strings": int((self.counts == 0).sum()),
            **self.said(),
        }

    def plot(self) -> Figure:
        """A figure of the number of strings by sensitivity, and of the share on which each position matters."""
        shares = np.bincount(self.counts, minlength=self.length + 1) / max(1, self.strings)
        mean = float(self.counts.mean()) if self.strings else 0.0
        bars = Series("", list(range(self.length + 1)), shares.tolist(), "bars", colour=0)
        rules = [Rule(mean, f"mean {mean:.4g}", "x")]
        panel = Panel("", "sensitivity s(x)", "share of strings", [bars], y_range=(0, 1.12), rules=rules)
        positions = influences_panel((self.flipped / max(1, self.strings)).tolist())
        caption = "Sensitivity of the given strings, and the share of them on which a flip of each position matters."
        return Figure("flips", "Sensitivity of strings", caption, [panel, positions])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AcceptanceFlips(Measured):
    """The effect of flips on acceptance with a margin (Eq 15), for each of some strings.

    A near tie is a logit within ``tolerance`` of xi or of -xi.
    """

    xi: float  # the margin of Eq 15, not that of the signs
    answers: Int8[np.ndarray, " string"]  # 1, 0, or -1 for undefined
    crossed: Int64[np.ndarray, " string"]  # flips from 0 to 1 or back
    changed: Int64[np.ndarray, " string"]  # these, and flips from or to undefined
    undefined: Int64[np.ndarray, " string"]  # flips whose answer is undefined

    @property
    def decided(self) -> Bool[np.ndarray, " string"]:
        """Strings for which they and all their flips have an answer, so that `crossed` and `changed` are Def 2.2."""
        found: Bool[np.ndarray, " string"] = (self.answers != UNDEFINED) & (self.undefined == 0)
        return found

    def summary(self) -> dict[str, object]:
        """The main numbers by label."""
        kinds = {"accepted": ACCEPT, "rejected": REJECT, "undefined": UNDEFINED}
        answers = ", ".join(f"{int((self.answers == value).sum()):,} {name}" for name, value in kinds.items())
        return {
            "strings": f"{len(self.answers):,}: {answers}",
            "margin xi": self.xi,
            "flips that cross": int(self.crossed.sum()),
            "flips that change the answer": int(self.changed.sum()),
            **self.said(),
        }

    def plot(self) -> Figure:
        """A figure of the number of strings by their number of changing or crossing flips."""
        most = int(max(self.changed.max(initial=0), self.crossed.max(initial=0)))
        kinds = {"changed": self.changed, "crossed": self.crossed}
        series = [
            Series(
                name,
                list(range(most + 1)),
                (np.bincount(each, minlength=most + 1) / max(1, len(each))).tolist(),
                "steps",
            )
            for name, each in kinds.items()
        ]
        caption = "Flips that change the answer, from or to undefined too, and those that cross from 0 to 1 or back."
        panel = Panel("", "flips of a string", "share of strings", series)
        return Figure("acceptance", "Flips and acceptance with a margin", caption, [panel], columns=1)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SensitivityProfile(Measured):
    """The sensitivity spectrum of a model on strings of one length, exact or with intervals.

    The intervals of ``profile`` hold simultaneously, and so do those of ``influences``; others hold separately.
    """

    n: int
    strings: int
    exhaustive: bool
    profile: Sequence[int | Estimate]  # K_0..K_n (Def 2.6), or the shares K_k / 2^n
    average_sensitivity: float | Estimate  # Def 2.3
    zero_share: float | Estimate  # K_0 / 2^n
    influences: Sequence[float | Estimate]  # of each bit: the share of strings on which its flip changes the answer
    largest_seen: int  # sensitivity; the maximum over all strings only if exhaustive (Def 2.4)
    smallest_seen: int  # likewise the minimum (Def 2.5)

    def summary(self) -> dict[str, object]:
        """The main numbers by label."""
        return {
            "strings": f"{'all ' if self.exhaustive else ''}{self.strings:,} of length {self.n:,}",
            "average sensitivity": self.average_sensitivity,
            "share of sensitivity 0": self.zero_share,
            "sensitivities seen": f"{self.smallest_seen} to {self.largest_seen}",
            **self.said(),
        }

    def plot(self) -> Figure:
        """The profile and the influences."""
        panels = [
            profile_panel(self.n, self.profile, self.average_sensitivity),
            influences_panel(self.influences),
        ]
        caption = "Strings by sensitivity, with the average, and the influence of each position."
        return Figure("sensitivity", "Sensitivity of a model", caption, panels)

    def as_json(self) -> dict[str, Any]:
        """The JSON document of ``flipscope sensitivity``; a profile entry is a number of strings, as for functions."""
        profile = [entry.as_count_json(self.n) if isinstance(entry, Estimate) else entry for entry in self.profile]
        return {
            "length": self.n,
            "strings": self.strings,
            "exact": self.exhaustive,
            "average_sensitivity": plain(self.average_sensitivity),
            "profile": profile,
            "zero_share": plain(self.zero_share),
            "influences": [plain(influence) for influence in self.influences],
            "largest_seen": self.largest_seen,
            "smallest_seen": self.smallest_seen,
            **self.how(),
        }


def plain(value: float | Estimate) -> Any:
    """An exact number, or the JSON of an estimate."""
    return value.as_json() if isinstance(value, Estimate) else value


def account(how: Measured) -> dict[str, Any]:
    """The fields of the account of a measurement, to pass on to another result."""
    return {field.name: getattr(how, field.name) for field in dataclasses.fields(Measured)}


def joined(parts: Sequence[Flips]) -> Flips:
    """The combined result of strings that were measured in parts."""
    if len({(part.length, part.path) for part in parts}) != 1:
        raise InputError("only strings of one length that were measured on one path can be put together")
    screenings = [part.screening for part in parts if part.screening is not None]
    return Flips(
        output=parts[0].output,
        threshold=parts[0].threshold,
        path=parts[0].path,
        path_reason=parts[0].path_reason,
        precision=" and ".join(sorted({part.precision for part in parts})),
        margin=max(part.margin for part in parts),
        tolerance=max(part.tolerance for part in parts),
        rechecked=sum(part.rechecked for part in parts),
        near_ties=sum(part.near_ties for part in parts),
        lowest=min(part.lowest for part in parts),
        highest=max(part.highest for part in parts),
        answers=np.concatenate([part.answers for part in parts]),
        screening=_joined_screening(screenings) if screenings else None,
        seconds=sum(part.seconds for part in parts),
        counts=np.concatenate([part.counts for part in parts]),
        flipped=np.sum([part.flipped for part in parts], axis=0),
    )


def _joined_screening(parts: Sequence[Screening]) -> Screening:
    audited, wrong = sum(part.audited for part in parts), sum(part.wrong for part in parts)
    return Screening(
        flips=sum(part.flips for part in parts),
        skipped=sum(part.skipped for part in parts),
        audited=audited,
        wrong=wrong,
        error_rate=proportions([wrong], audited)[0] if audited else None,
    )


def estimated(found: Flips, confidence: float = 0.95, validity: Validity = "fixed") -> SensitivityProfile:
    """The sensitivity profile estimated from uniformly random strings."""
    size, n = found.strings, found.length
    return SensitivityProfile(
        n=n,
        strings=size,
        exhaustive=False,
        profile=profile_from_counts(found.counts, n, confidence, validity),
        average_sensitivity=mean_from_samples(found.counts, 0, n, confidence, validity),
        zero_share=proportions([np.count_nonzero(found.counts == 0)], size, confidence, validity)[0],
        influences=proportions(found.flipped, size, confidence, validity),
        largest_seen=int(found.counts.max()),
        smallest_seen=int(found.counts.min()),
        **account(found),
    )
