"""Every bound of paper 001 for one model: its value, whether it says something, and the measured value beside it."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float64

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import check_strings
from flipscope.basics.errors import InputError
from flipscope.bounds.geometry.overview import Row
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


@dataclass(frozen=True)
class Summary:
    """What paper 001 says of a model at one length; ``fails`` is the reason where it says nothing."""

    length: int
    fails: str | None
    span: float | None  # the largest possible difference of two outputs
    measured: float | None  # the largest s(x, T) of the strings
    measured_mean: float | None
    forms: dict[str, Bound]  # bounds on s(x, T), or on its mean, by the form they have
    rows: tuple[Row, ...]

    def as_json(self) -> dict[str, Any]:
        """The part of the JSON document of ``flipscope bounds`` that is about paper 001."""
        return {
            "assumption_that_fails": self.fails,
            "output_span": self.span,
            "measured_sensitivity": {"largest": self.measured, "mean": self.measured_mean},
            "sensitivity_bounds": {name: bound.as_json() for name, bound in self.forms.items()},
            "bounds": [row.as_json() for row in self.rows],
        }


@checked_arguments
def summary(model: Transformer, length: int, strings: Bits) -> Summary:
    """Every bound of paper 001 for this model at this length, with the blowups and sensitivities of the strings.

    For a model that the derivation does not cover, ``fails`` is a sentence that says why.
    """
    try:
        constants = Constants.of(model, length)
    except InputError as error:
        return Summary(length, str(error), None, None, None, {}, ())
    strings = check_strings(strings)
    if strings.shape[1] != length:
        raise InputError(
            f"the strings have {strings.shape[1]} bits and length is {length}: give strings of that length"
        )
    measured = list(measure(model, strings, attention=constants.positions <= MAX_FOCUS))
    seen = string_sensitivities(model, strings)
    forms = _forms(constants, measured)
    return Summary(
        length, None, constants.span, float(seen.max()), float(seen.mean()), forms, _rows(constants, measured, forms)
    )


def string_sensitivities(model: Transformer, strings: Bits) -> Float64[np.ndarray, " string"]:
    """s(x, T) = sum over i of |T(x) - T(x^i)|^2 / 4 of the real-valued output, in float64."""
    from flipscope.adapters.subject import Subject
    from flipscope.flips.engine import open_engine

    # The fast path takes a while to load, which pays off on long strings only.
    path: Literal["auto", "general"] = "general" if strings.shape[1] <= MAX_FOCUS else "auto"
    settled = Subject(model, precision="float64").settled()
    with settled.measuring():
        before, after = open_engine(settled, path=path).flip_logits(strings)
    out: Float64[np.ndarray, " string"] = ((after - before[:, None]) ** 2).sum(axis=1) / 4
    return out


# ---------------------------------------------------------------- the rows


def _row(result: str, what: str, log: float, says: bool | None, note: str, log_from: float | None = None) -> Row:
    value = math.exp(log) if log < 709 else None
    power = log / math.log(10) if math.isfinite(log) else None
    start = log_from if log_from is not None and math.isfinite(log_from) else None
    return Row(result, what, value, power, says, start, note)


def _distance_text(bound: Bound) -> str:
    """How far a bound is from the trivial bound, as text."""
    if not math.isfinite(bound.log):
        return "infinite" if bound.log > 0 else "the output does not depend on the bits"
    if not bound.orders:
        return "no better than n span^2 / 4, which holds anyway"
    side = "above" if bound.vacuous else "below"
    return f"{abs(bound.orders):.3g} powers of ten {side} n span^2 / 4, which holds anyway"


def _forms(constants: Constants, measured: list[Measured]) -> dict[str, Bound]:
    """Every bound on a sensitivity: the largest over the strings, and the bound on their mean."""

    def largest(some: list[Measured]) -> Bound:
        return max((layerwise_bound(constants, each) for each in some), key=lambda bound: bound.log)

    logs = [each.log_blowup for each in measured]
    forms = {
        "every_string": flip_bound(constants).sensitivity,
        "product": product_bound(constants, max(logs)),
        "layers": largest([dataclasses.replace(each, focus=()) for each in measured]),
    }
    if all(each.focus for each in measured):
        forms["attention"] = largest(measured)
    forms["mean"] = average_bound(constants, logs)
    if constants.biased_norms:
        forms["random_biases"] = expected_sensitivity(constants, NOISE)
    return forms


def _rows(constants: Constants, measured: list[Measured], forms: dict[str, Bound]) -> tuple[Row, ...]:
    """A row for each form, with the constants behind it."""
    flip = flip_bound(constants)
    start = max(flip.log_constant - flip.log_span, 0.0) if flip.log_span > -math.inf else None
    infinite = constants.norms and not constants.eps
    why = "eps = 0: only blowup bounds it" if infinite else "on every string; must be below the span"
    needed = log_least_blowup(constants, constants.length)
    largest = max(each.log_blowup for each in measured) / math.log(10)
    strings = f"{len(measured)} strings"
    rows = [
        _row("Fact 1", "|T(x) - T(x^i)|, bit i not read", flip.log_other, not flip.vacuous, why, start),
        _row(
            "Thm 4",
            "C, from the weights",
            log_constant(constants),
            not forms["product"].vacuous,
            f"the largest blowup of {strings} is 10^{largest:.3g}",
        ),
        _row("Cor 5", "blowup that s(x, T) = n needs", needed, needed > 0, "below 1 it asks for nothing"),
    ]
    names = {
        "every_string": ("Fact 1", "s(x, T) of any string", ""),
        "product": ("Thm 4", "s(x, T), by C and blowup", ""),
        "layers": ("Thm 4", "s(x, T), layer by layer", ""),
        "attention": ("Thm 4", "s(x, T), with the attention of x, too", ""),
        "mean": ("Cor 5", "as_n(T), by C and mean squared blowup", f"{strings}; "),
        "random_biases": (
            "Thm 7",
            f"E as_n(T) with N(m, {NOISE}^2) biases before norms",
            f"grows as n^{sensitivity_exponent(constants.width, max(constants.norms, 1)):.3g} at most; ",
        ),
    }
    for name, bound in forms.items():
        result, what, first = names[name]
        rows.append(_row(result, what, bound.log, not bound.vacuous, first + _distance_text(bound)))
    return tuple(sorted(rows, key=lambda row: ("Fact 1", "Thm 4", "Cor 5", "Thm 7").index(row.result)))
