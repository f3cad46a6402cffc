"""What a measurement of token sensitivity returns: which tokens changed the answer of which input, and estimates."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_confidence
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate, Validity, mean_from_samples, proportion_bounds
from flipscope.basics.wording import count_text
from flipscope.figures import AnyPanel, Figure, ImagePanel, Panel, Series, TextPanel
from flipscope.figures.panels import histogram_panel, influences_panel
from flipscope.figures.results import Result, as_json

How: TypeAlias = Literal["noise", "replace", "flip"]
Side: TypeAlias = Literal["left", "right"]

_SHOWN_INPUTS, _SHOWN_TOKENS = 40, 400  # of a heat map
PICTURES = 6  # inputs that are drawn themselves, as images or words


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Disturbance:
    """What was done to each token, and where."""

    how: How
    at: str | None  # the module whose output was changed; None is the model's input
    variance: float | None = None  # of the noise on each number
    std: float | None = None
    rms: float | None = None  # root mean square of the numbers of the tokens that were counted
    norm_before: str | None = None  # the norm whose output was disturbed
    norm_after: str | None = None  # the norm that reads what was disturbed
    normalised: bool = False  # whether the noise was multiplied by the root mean square of each token
    vocabulary: int | None = None  # number of tokens to replace from
    whole_variance: float | None = None  # of the noise on all tokens at once

    @property
    def relative_std(self) -> float | None:
        """Standard deviation of the noise over the root mean square of the tokens."""
        if self.std is None or self.rms is None or self.normalised:
            return self.std if self.normalised else None
        return self.std / self.rms if self.rms else None

    @property
    def rms_disturbed(self) -> float | None:
        """The root mean square of a disturbed token, on average over the noise."""
        if self.std is None or self.rms is None:
            return None
        return math.hypot(self.rms, self.std * (self.rms if self.normalised else 1))

    def __str__(self) -> str:
        place = "the input" if self.at is None else f"the output of {self.at}"
        if self.how == "flip":
            return f"flipped in {place}"
        if self.how == "replace":
            return f"replaced in {place} by one of {self.vocabulary:,}"
        units = " in units of each token's RMS" if self.normalised else ""
        relative = "" if self.relative_std is None else f", sigma/RMS {self.relative_std:.3g}"
        return f"noise of variance {self.variance:.4g}{units} on {place}{relative}"

    @property
    def norms(self) -> str:
        """Where the noise enters, seen from the norms around it, and what it does to the size of tokens."""
        if self.norm_before is None and self.norm_after is None:
            where = "no norm next to it"
        else:
            sides = {"after": self.norm_before, "before": self.norm_after}
            where = " and ".join(f"{side} the norm {name}" for side, name in sides.items() if name is not None)
        sizes = "" if self.rms is None else f"; tokens of RMS {self.rms:.3g} have {self.rms_disturbed:.3g} with noise"
        return where + sizes

    def as_json(self) -> dict[str, Any]:
        """All fields, and the relative size of the noise."""
        names = [each.name for each in dataclasses.fields(self)] + ["relative_std", "rms_disturbed"]
        return {name: as_json(getattr(self, name)) for name in names}


@dataclass(frozen=True, eq=False)
class FirstOrder:
    """A first-order estimate of the same, from one gradient per input, and its error on the rows that were sampled."""

    changed: Float64[np.ndarray, "input token"]  # probability that the answer changes; NaN where there is no token
    definition: float  # the mean over inputs of their means, all tokens counted
    error: Estimate  # of sampled minus first-order, on the tokens that were drawn; clustered by input

    def __str__(self) -> str:
        side = "above" if self.error.value >= 0 else "below"
        return f"{self.definition:.4g}; sampled is {abs(self.error.value):.2g} {side} it, +-{self.error.half_width:.2g}"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TokenSensitivity(Result):
    """How often disturbing one token changes a model's answer (Def 4.1 of the low-sensitivity paper).

    ``definition`` is the mean over inputs of the mean over their tokens, ``pooled`` the mean over all tokens of all
    inputs. Their intervals hold for inputs like these, drawn independently: the tokens of one input are one sample.
    """

    changed: Float64[np.ndarray, "input token"]  # share of the draws that changed the answer; NaN where there is none
    drawn: Int64[np.ndarray, "input token"]  # number of draws
    valid: Bool[np.ndarray, "input token"]  # which tokens count: not padding
    answers: Int64[np.ndarray, " input"]  # of the undisturbed inputs
    definition: Estimate
    pooled: Estimate
    whole: Estimate | None  # the same for noise on all tokens at once
    disturbance: Disturbance
    rows: int  # disturbed inputs that the model was run on
    reached: bool | None  # whether the interval of `definition` is as narrow as `precision` demands
    aligned: Side  # how positions of inputs of different length are compared
    seed: int
    words: Sequence[Sequence[str]] | None = None  # of each input, where it is a text
    images: Float32[np.ndarray, "image ..."] | None = None  # the first inputs, where they are images
    first_order: FirstOrder | None = None  # what the gradient says, beside what was sampled
    cells: Int64[np.ndarray, "row column"] | None = None  # the token that each pixel of them belongs to

    @property
    def per_input(self) -> Float64[np.ndarray, " input"]:
        """The share of disturbances that changed the answer of each input; NaN for inputs without any."""
        return per_input(self.changed, self.drawn)

    @checked_arguments
    def by_position(self, align: Side | None = None, confidence: float | None = None) -> list[Estimate]:
        """The sensitivity to each position, first to last, with intervals that hold together.

        With align="right", the default for texts, position -1 is each input's last token; with "left" position 0 is its
        first. Positions that were never drawn are left out at the ends; one in between is unknown, from 0 to 1.
        """
        confidence = self.definition.confidence if confidence is None else check_confidence(confidence)
        shares = aligned(self.changed, self.valid, self.aligned if align is None else align)
        return positions(shares, confidence, self.definition.validity)

    @checked_arguments
    def minus(self, other: TokenSensitivity) -> Estimate:
        """The difference of two models' sensitivities, by the definition, on the same inputs and the same noise.

        Differences of inputs lie in [-1, 1]; where the models are alike they are small, and so is the interval.
        """
        mine, theirs = self._compared(), other._compared()
        if mine.keys() != theirs.keys() or any(not np.array_equal(mine[name], theirs[name]) for name in mine):
            different = [name for name in mine if not np.array_equal(mine[name], theirs[name])]
            raise InputError(
                f"the two results differ in {', '.join(different)}: measure both models on the same inputs with the "
                "same settings and seed"
            )
        known = self.drawn.sum(axis=1) > 0
        differences = (self.per_input - other.per_input)[known]
        estimate = self.definition
        return mean_from_samples(differences, -1, 1, estimate.confidence, estimate.validity)

    def _compared(self) -> dict[str, Any]:
        done = self.disturbance
        return {
            "how": done.how,
            "variance": -1.0 if done.variance is None else done.variance,
            "tokens": self.drawn,
            "seed": self.seed,
        }

    def summary(self) -> dict[str, object]:
        """The values that are read first."""
        counts = self.valid.sum(axis=1)
        low, high = int(counts.min()), int(counts.max())
        tokens = count_text(high, "token") if low == high else f"{low} to {high} tokens"
        found: dict[str, object] = {
            "token sensitivity": self.definition,
            "pooled over tokens": self.pooled,
        }
        if self.whole is not None:
            found["all tokens at once"] = self.whole
        if self.first_order is not None:
            found["first-order estimate"] = str(self.first_order)
        found["disturbance"] = str(self.disturbance)
        if self.disturbance.how == "noise" and self.disturbance.at is not None:
            found["norms"] = self.disturbance.norms
        found["inputs"] = f"{len(self.answers):,} with {tokens}, {count_text(self.rows, 'disturbed row')}"
        if self.reached is False:
            found["precision"] = "not reached with these inputs: give more"
        return found

    def plot(self) -> Figure:
        """How the inputs differ, the sensitivity to each position, and which tokens of the first inputs matter."""
        known = self.per_input[self.drawn.sum(axis=1) > 0]
        histogram = histogram_panel(known, "token sensitivity of an input", self.definition.value)
        panels: list[AnyPanel] = [
            dataclasses.replace(histogram, y_label="share of inputs"),
            dataclasses.replace(influences_panel(self.by_position()), y_label="token sensitivity"),
        ]
        pictures = self._pictures()
        if not pictures and 1 < self.valid.shape[1] <= _SHOWN_TOKENS:
            pictures.append(self._cells())
        ends = " (inputs end at the same position)" if self.aligned == "right" else ""
        caption = (
            "Share of disturbances of one token that change the answer: of each input, by position"
            f"{ends}, and for each token of the first inputs."
        )
        return Figure("tokens", "Token sensitivity", caption, [*panels, *pictures])

    def _pictures(self) -> list[AnyPanel]:
        """The first inputs themselves, as images or words, coloured by what their tokens change."""
        found: list[AnyPanel] = []
        for number in range(min(PICTURES, len(self.answers))):
            title, shares = f"input {number}, answer {self.answers[number]}", self.changed[number]
            if self.images is not None and self.cells is not None:
                image = self.images[number]
                panel: AnyPanel = ImagePanel(title, image, shares, "changed", self.cells, value_range=(0, 1))
            elif self.words is not None:
                own = self.words[number]
                values = [*shares.tolist(), *[None] * len(own)][: len(own)]
                panel = TextPanel(title, own, values, "changed", value_range=(0, 1))
            else:
                return []
            found.append(panel)
        return found

    def _cells(self) -> Panel:
        """A heat map of the first inputs and their tokens."""
        shown = self.changed[:_SHOWN_INPUTS]
        inputs, tokens = np.nonzero(~np.isnan(shown))
        values = shown[inputs, tokens]
        hover = [
            f"input {i}, token {t}: {value:.3g}"
            for i, t, value in zip(inputs.tolist(), tokens.tolist(), values.tolist(), strict=True)
        ]
        cells = Series("", tokens.tolist(), inputs.tolist(), "cells", values=values.tolist(), hover=hover)
        return Panel("", "token", "input", [cells])

    def as_json(self) -> dict[str, Any]:
        """The JSON document of ``flipscope tokens``."""
        found = super().as_json()
        for name in ("valid", "images", "cells"):
            del found[name]
        return found | {"per_input": as_json(self.per_input), "by_position": as_json(self.by_position())}


def per_input(
    changed: Float64[np.ndarray, "input token"], drawn: Int64[np.ndarray, "input token"]
) -> Float64[np.ndarray, " input"]:
    """The share of all draws of each input that changed its answer; NaN where there are no draws."""
    total = drawn.sum(axis=1)
    hits = (np.nan_to_num(changed) * drawn).sum(axis=1)
    # Rounding may make a share of 1 a little more.
    found: Float64[np.ndarray, " input"] = np.where(total > 0, np.minimum(hits / np.maximum(total, 1), 1.0), np.nan)
    return found


def audited(
    guess: Float64[np.ndarray, "input token"],
    changed: Float64[np.ndarray, "input token"],
    drawn: Int64[np.ndarray, "input token"],
    valid: Bool[np.ndarray, "input token"],
    confidence: float,
    validity: Validity,
) -> FirstOrder:
    """The first-order estimate with its error, from the same tokens as were drawn."""
    counted = np.where(valid, guess, np.nan)
    known = drawn.sum(axis=1) > 0
    gaps = per_input(changed, drawn)[known] - per_input(guess, drawn)[known]
    error = mean_from_samples(gaps, -1, 1, confidence, validity)
    return FirstOrder(counted, float(np.nanmean(counted, axis=1).mean()), error)


def aligned(
    changed: Float64[np.ndarray, "input token"], valid: Bool[np.ndarray, "input token"], side: Side
) -> Float64[np.ndarray, "input position"]:
    """The same numbers with each input's tokens moved to one side, without what lies between them."""
    found = np.full((len(changed), max(1, int(valid.sum(axis=1).max()))), np.nan)
    for row, (shares, own) in enumerate(zip(changed, valid, strict=True)):
        kept = shares[own]
        found[row, slice(len(kept)) if side == "left" else slice(found.shape[1] - len(kept), None)] = kept
    return found


def positions(shares: Float64[np.ndarray, "input position"], confidence: float, validity: Validity) -> list[Estimate]:
    """An estimate for each position from the first to the last that was drawn; the intervals hold together."""
    known = np.flatnonzero((~np.isnan(shares)).any(axis=0))
    columns = shares[:, known[0] : known[-1] + 1]
    error = (1 - confidence) / columns.shape[1]
    drawn = ~np.isnan(columns)
    counts = drawn.sum(axis=0)
    values = np.where(counts > 0, np.nansum(columns, axis=0) / np.maximum(counts, 1), 0.5)
    low, high = np.zeros(len(values)), np.ones(len(values))
    if np.isin(columns[drawn], (0, 1)).all():  # one draw of each token: all positions at once
        some = counts > 0
        hits = np.nansum(columns, axis=0)[some]
        low[some], high[some] = proportion_bounds(hits, counts[some], error, validity)
    else:
        for place in np.flatnonzero(counts):
            one = mean_from_samples(columns[drawn[:, place], place], 0, 1, 1 - error, validity)
            low[place], high[place] = one.low, one.high
    return [
        Estimate(float(value), float(a), float(b), confidence, int(count), validity)
        for value, a, b, count in zip(values, np.minimum(low, values), np.maximum(high, values), counts, strict=True)
    ]
