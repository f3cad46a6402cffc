"""Every bound of paper 001 for one model: its value, whether it says something, and what was measured beside it."""

from __future__ import annotations

import copy
import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64

from flipscope.basics.errors import InputError
from flipscope.bounds.geometry.summary import Row
from flipscope.bounds.hardness.constants import Constants
from flipscope.bounds.hardness.flips import (
    Bound,
    average_bound,
    flip_bound,
    log_constant,
    log_least_blowup,
    product_bound,
)
from flipscope.bounds.hardness.layerwise import Measured, layerwise_bound, measure
from flipscope.bounds.hardness.perturbation import expected_sensitivity, sensitivity_exponent

if TYPE_CHECKING:
    from flipscope.flips.engine import Bits
    from flipscope.models.transformer import Transformer

NOISE = 0.02  # the standard deviation of the paper's perturbations
MAX_FOCUS = 64  # positions up to which the attention of x is used: the work grows with their third power
_AT_ONCE = 64  # flips of a string


@dataclass(frozen=True)
class Summary:
    """What paper 001 says of a model at one length; ``fails`` tells why it says nothing of it."""

    length: int
    fails: str | None
    span: float | None  # what no two outputs can differ by more than
    measured: float | None  # the largest s(x, T) of the strings
    measured_mean: float | None
    rows: tuple[Row, ...]

    def as_json(self) -> dict[str, Any]:
        """The part of the JSON document of ``flipscope bounds`` that is about paper 001."""
        return {
            "assumption_that_fails": self.fails,
            "output_span": self.span,
            "measured_sensitivity": {"largest": self.measured, "mean": self.measured_mean},
            "bounds": [row.as_json() for row in self.rows],
        }


def summary(model: Transformer, length: int, strings: Bits) -> Summary:
    """Every bound of paper 001 for this model at this length, with the blowups and sensitivities of the strings.

    A model that the derivation does not cover gets the sentence that says why.
    """
    try:
        own = Constants.of(model, length)
    except InputError as error:
        return Summary(length, str(error), None, None, None, ())
    measured = list(measure(model, strings, attention=own.positions <= MAX_FOCUS))
    seen = string_sensitivities(model, strings)
    rows = (*_every_string(own), *_by_blowup(own, measured), *_random(own))
    return Summary(length, None, own.span, float(seen.max()), float(seen.mean()), rows)


def string_sensitivities(model: Transformer, strings: Bits) -> Float64[np.ndarray, " string"]:
    """s(x, T) = sum over i of |T(x) - T(x^i)|^2 / 4 of the real-valued output, in float64."""
    import torch

    wide = copy.deepcopy(model).double().eval()
    flips = np.eye(strings.shape[1], dtype=np.uint8)
    found = []
    with torch.no_grad():
        for x in strings:
            parts = np.array_split(np.concatenate([x[None], x ^ flips]), math.ceil((len(x) + 1) / _AT_ONCE))
            logits = [wide(torch.from_numpy(part.astype(np.int64)).to(wide.head.weight.device)) for part in parts]
            out = torch.cat(logits).cpu().numpy()
            found.append(float(((out[1:] - out[0]) ** 2).sum()) / 4)
    return np.array(found)


# ---------------------------------------------------------------- one result after the other


def _row(result: str, what: str, log: float, says: bool | None, note: str, log_from: float | None = None) -> Row:
    value = math.exp(log) if log < 709 else None
    power = log / math.log(10) if math.isfinite(log) else None
    start = log_from if log_from is not None and math.isfinite(log_from) else None
    return Row(result, what, value, power, says, start, note)


def _told(bound: Bound) -> str:
    """How far a bound is from what holds anyway."""
    if not math.isfinite(bound.log):
        return "infinite" if bound.log > 0 else "the output does not depend on the bits"
    side = "above" if bound.vacuous else "below"
    return f"{abs(bound.orders):.3g} powers of ten {side} n span^2 / 4, which holds anyway"


def _every_string(own: Constants) -> list[Row]:
    """A4: what holds without layer norm, or for eps > 0."""
    found = flip_bound(own)
    start = max(found.log_constant - found.log_span, 0.0) if found.log_span > -math.inf else None
    why = "eps = 0: only blowup bounds it" if own.norms and not own.eps else "on every string; must be below the span"
    return [
        _row("Fact 1", "|T(x) - T(x^i)|, bit i not read", found.log_other, not found.vacuous, why, start),
        _row(
            "Fact 1",
            "s(x, T) of any string",
            found.sensitivity.log,
            not found.sensitivity.vacuous,
            _told(found.sensitivity),
        ),
    ]


def _by_blowup(own: Constants, measured: list[Measured]) -> list[Row]:
    """A5: what follows from the blowups of the strings."""
    logs = [each.log_blowup for each in measured]
    product, mean = product_bound(own, max(logs)), average_bound(own, logs)
    layered, focused = (
        max((layerwise_bound(own, each) for each in some), key=lambda bound: bound.log)
        for some in ([dataclasses.replace(each, focus=()) for each in measured], measured)
    )
    constant = log_constant(own)
    needed = log_least_blowup(own, own.length)
    largest = max(logs) / math.log(10)
    strings = f"{len(measured)} strings"
    note = f"the largest blowup of {strings} is 10^{largest:.3g}"
    return [
        _row("Thm 4", "C, from the weights", constant, not product.vacuous, note),
        _row("Thm 4", "s(x, T), by C and blowup", product.log, not product.vacuous, _told(product)),
        _row("Thm 4", "the same layer by layer", layered.log, not layered.vacuous, _told(layered)),
        *(
            [_row("Thm 4", "and with the attention of x", focused.log, not focused.vacuous, _told(focused))]
            if own.positions <= MAX_FOCUS
            else []
        ),
        _row("Cor 5", "as_n(T), by C and mean squared blowup", mean.log, not mean.vacuous, f"{strings}; {_told(mean)}"),
        _row("Cor 5", "blowup that s(x, T) = n needs", needed, needed > 0, "below 1 it asks for nothing"),
    ]


def _random(own: Constants) -> list[Row]:
    """A7: what holds with random biases."""
    what = f"E as_n(T) with N(m, {NOISE}^2) biases before norms"
    try:
        found = expected_sensitivity(own, NOISE)
    except InputError as error:
        return [_row("Thm 7", what, math.inf, None, str(error))]
    power = sensitivity_exponent(own.width, own.norms)
    return [_row("Thm 7", what, found.log, not found.vacuous, f"grows as n^{power:.3g} at most; {_told(found)}")]
