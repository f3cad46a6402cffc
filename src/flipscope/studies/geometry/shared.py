"""Shared by several geometry studies: the work of a measurement, spectra, and how signs were computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import flipscope.lab as lab
from flipscope.basics.estimates import Estimate
from flipscope.models.config import TransformerConfig


def flip_work(shape: TransformerConfig, length: int) -> float:
    """Multiply-adds of the forward passes of a string and all its flips."""
    tokens = length + 1
    token = shape.width * (4 * shape.width + 2 * shape.hidden_width) + 2 * tokens * shape.width
    return float(tokens * tokens * shape.layers * token)


def flip_memory(shape: TransformerConfig, length: int) -> int:
    """Bytes of the parameters in float32, float64 and while drawn, and of the activations of a string and its flips."""
    parameters = shape.layers * shape.width * (4 * shape.width + 2 * shape.hidden_width)
    activations = (length + 1) ** 2 * (8 * shape.width + 2 * shape.hidden_width) * 4
    return (1 << 29) + 16 * parameters + activations


def spectrum(counts: NDArray[np.int64], length: int) -> dict[str, Any]:
    """The number of a model's strings, their mean sensitivity, and how many strings have each sensitivity."""
    profile = np.bincount(counts, minlength=length + 1).tolist()
    return {"strings": len(counts), "average_sensitivity": float(counts.mean()), "profile": profile}


def spectrum_panel(title: str, x: str, y: str, series: Sequence[lab.Series], rule: float | None = None) -> lab.Panel:
    """Bars of shares on a log scale, whose axis ends below the smallest of them; a rule marks random functions."""
    smallest = min((height for each in series for height in each.y if height), default=1.0)
    rules = [] if rule is None else [lab.Rule(rule, "random function", axis="x")]
    ends = (-1.0, float(max((len(each.x) for each in series), default=1)))
    return lab.Panel(title, x, y, series, y_log=True, x_range=ends, y_range=(smallest / 2, 1.5), rules=rules)


def mean_at_least(
    values: Sequence[float], limit: float, quantity: str, *, fewest: int, unit: str, confidence: float | None = None
) -> lab.Judgement:
    """Whether the mean of independent values is at least a limit, by Student's interval; too few decide nothing.

    Equal values give that interval no width, however few they are: then there must be enough of them for the sign test
    to decide.
    """
    if len(values) < fewest:
        return lab.Judgement.without(f"{quantity}: too few {unit}: {len(values)}", f"at least {fewest} {unit}")
    mean = lab.student_mean(values, confidence)
    judged = lab.at_least(mean, limit, quantity, unit=unit)
    if mean.low == mean.high and (mean.value == limit or 2.0 ** (1 - len(values)) > 1 - mean.confidence):
        return judged.left_open(f"all {unit} are equal, and too few to tell", f"more {unit}")
    return judged


def screen_error(table: lab.Rows) -> tuple[Estimate | None, float]:
    """The rate of wrong guesses of the screen, and how much too small they could make the averages."""
    if table.total("skipped") == 0:
        return None, 0.0
    rate = lab.share(table.total("wrong"), table.total("audited"))
    return rate, table[0]["length"] * rate.high * table.total("skipped") / _flips(table.where(screened=True))


def how_measured(table: lab.Rows) -> list[str]:
    """How many signs were computed again, how many are too close to call, and how reliable the screen is."""
    again = f", {table.total('rechecked'):,} computed again in float64" if table.having("rechecked") else ""
    sentences = [f"{table.total('near_ties'):,} signs too close to call{again}"]
    screened = table.where(screened=True)
    rate, hidden = screen_error(screened)
    if rate is not None:
        guessed = screened.total("skipped") / _flips(screened)
        sentences += [
            f"{len(screened)} of {len(table)} models screened, where {guessed:.0%} of the flips were guessed",
            f"of {rate.samples:,} audited guesses {screened.total('wrong')} were wrong (at most {rate.high:.2g} of "
            f"all), which could hide {hidden:.2g} of an average",
        ]
    return sentences


def _flips(table: lab.Rows) -> int:
    return sum(row["strings"] * row["length"] for row in table)
