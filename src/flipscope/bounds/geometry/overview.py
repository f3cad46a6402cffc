"""Every constant and bound of paper 000 for one model: its value, whether it says something, and from which length on.

A bound says something where it is below the trivial bound: for an influence the diameter of the activations, for a
probability 1, for a number of functions that of all functions, for a threshold of strings 2^N. Otherwise it is vacuous.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_positive, shown
from flipscope.basics.errors import InputError
from flipscope.bounds.geometry.constants import Constants, check_length
from flipscope.bounds.geometry.families import Threshold
from flipscope.bounds.geometry.influence import (
    constant_from,
    layerwise_influence_bound,
    log_influence_constant,
    log_uniform_constant,
    uniform_influence_bound,
)
from flipscope.bounds.geometry.limits import log_cube_factor, log_stable_from, theorem_from
from flipscope.bounds.geometry.parameters import cube_diameter, lipschitz_bound, log2_function_count
from flipscope.bounds.geometry.variance import blowup_level, blowup_tail, stable_logit_bound
from flipscope.bounds.numerics import safe_exp
from flipscope.models.config import TransformerConfig

if TYPE_CHECKING:
    from flipscope.flips.engine import Bits
    from flipscope.models.transformer import Transformer

_WHOLE = 34.0  # ln of the largest length that is shown as a whole number


@dataclass(frozen=True)
class Row:
    """One result: what it bounds, its value, and whether that says something at the given length."""

    result: str
    what: str
    value: float | None  # None if it is infinite, or beyond floats: see log10
    log10: float | None
    says_something: bool | None  # None where an assumption of the result fails
    log_from: float | None  # ln of a length from which on it does; None if none is known
    note: str

    def as_json(self) -> dict[str, Any]:
        """For the JSON document of ``flipscope bounds``."""
        exact = self.log_from is not None and self.log_from < _WHOLE
        return {
            "result": self.result,
            "what": self.what,
            "value": self.value,
            "log10": self.log10,
            "says_something": self.says_something,
            "from_length": math.ceil(math.exp(self.log_from or 0.0) * (1 - 1e-12)) if exact else None,
            "log10_from_length": None if self.log_from is None else self.log_from / math.log(10),
            "note": self.note,
        }


@dataclass(frozen=True)
class Summary:
    """What paper 000 says of a model at one length; ``fails`` names the assumption that keeps most from holding."""

    length: int
    width: int
    layers: int
    margin: float
    radius: float | None
    eps: float
    parameters: int | None  # M of section 2.4
    fails: str | None
    rows: tuple[Row, ...]

    def as_json(self) -> dict[str, Any]:
        """The JSON document of ``flipscope bounds``."""
        return {
            "length": self.length,
            "width": self.width,
            "layers": self.layers,
            "margin": self.margin,
            "radius": self.radius,
            "eps": self.eps,
            "parameters": self.parameters,
            "assumption_that_fails": self.fails,
            "bounds": [row.as_json() for row in self.rows],
        }


@checked_arguments
def summary(
    model: Transformer,
    length: int,
    strings: Bits,
    *,
    margin: float = 0.1,
    radius: float | None = None,
    failure: float = 0.01,
) -> Summary:
    """Every constant and bound of the paper for this model at this length.

    For Lem 2.9 the blowup is measured on ``strings`` of that length. Theta is [-radius, radius]^M, by
    default the smallest such cube that holds the model. A model other than the recogniser of Eqs 7-14 gets what holds
    for every model with layer norms, and a sentence on what keeps the rest from holding.
    """
    check_length(length)
    check_positive("margin", margin)
    config = getattr(model, "config", None)
    if not isinstance(config, TransformerConfig):
        raise InputError(f"model must be a Transformer, not {shown(model)}")
    shape: dict[str, Any] = {
        "length": length,
        "width": config.width,
        "layers": config.layers,
        "margin": margin,
        "eps": config.eps,
    }
    try:
        constants = Constants.of(model)
    except InputError as error:
        return Summary(**shape, radius=None, parameters=None, fails=str(error), rows=_of_any(model, strings))
    if radius is None:
        numbers = [p for name, p in model.named_parameters() if not name.startswith("embedding.")]
        radius = max(float(p.detach().abs().max()) for p in numbers) or 1.0
    cube = Constants.cube(model, radius)
    rows = [
        _blowup(constants),
        *_influences(model, constants, length, strings),
        _constant(constants, length, margin),
        *_close(cube, radius, length, margin),
        *_random(cube, radius, length, margin, failure),
    ]
    return Summary(**shape, radius=radius, parameters=constants.parameters, fails=None, rows=tuple(rows))


# ---------------------------------------------------------------- the rows


def _row(
    result: str, what: str, value: float, says: bool | None, log_from: float | None, note: str, log: float | None = None
) -> Row:
    """A row; ``log`` is the natural logarithm of a value that floats may not hold."""
    if log is None:
        log = math.log(value) if value > 0 else -math.inf
    kept = value if math.isfinite(value) else None
    if log_from is not None and not math.isfinite(log_from):
        log_from = None
    return Row(result, what, kept, log / math.log(10) if math.isfinite(log) else None, says, log_from, note)


def _blowup(constants: Constants) -> Row:
    layers = len(constants.layers)
    log = layers * math.log1p(constants.norm_lipschitz) if constants.eps else math.inf
    value = safe_exp(log)
    note = (
        "at every length" if constants.eps else "eps = 0: nothing bounds the blowup of all strings, only that of most"
    )
    return _row(
        "Lem 3.2", "blowup beta of any string", value, bool(constants.eps), 0.0 if constants.eps else None, note, log
    )


def _influences(model: Transformer, constants: Constants, length: int, strings: Bits) -> list[Row]:
    from flipscope.probes.blowup import neighbourhood

    places = sorted({0, length // 2, length - 1})
    near = neighbourhood(model, strings, places)
    pairs = [(near.tau[:, 0], near.tau[:, 1 + flip]) for flip in range(len(places))]
    layered = max(float(np.max(layerwise_influence_bound(constants, length, *pair))) for pair in pairs)
    constant = log_influence_constant(constants)
    with np.errstate(divide="ignore"):
        blowups = max(float((np.log(a).sum(axis=-1) + np.log(b).sum(axis=-1)).max()) for a, b in pairs)
    start = constant + blowups - math.log(constants.diameter)
    seen = f"blowups of {len(strings)} strings and {len(places)} flips of each; must be below {constants.diameter:.4g}"
    log = constant + blowups - math.log(length)
    product, inside = safe_exp(log), log < math.log(constants.diameter)
    uniform = uniform_influence_bound(constants, length)
    limit = log_uniform_constant(constants) - (math.log(constants.readout) if constants.readout else -math.inf)
    everywhere = (
        f"on every string; must be below {constants.diameter:.4g}"
        if constants.eps
        else "eps = 0: there is no such bound"
    )
    if not constants.readout:
        limit = math.inf
    return [
        _row("Lem 2.9", "C_infl", safe_exp(constant), inside, max(start, 0.0), "constant of the next line", constant),
        _row("Lem 2.9", "influence on y^L at EOS, by Eq 19", product, inside, max(start, 0.0), seen, log),
        _row("Lem 2.9", "the same layer by layer", layered, layered < constants.diameter, max(start, 0.0), seen),
        _row(
            "Cor 3.3",
            "influence on y^L at EOS",
            uniform,
            uniform < constants.diameter,
            max(limit - math.log(constants.diameter), 0.0),
            everywhere,
        ),
    ]


def _constant(constants: Constants, length: int, margin: float) -> Row:
    log = log_uniform_constant(constants)
    start = constant_from(constants, margin)
    note = f"from there on it computes a constant with margin {margin:g}"
    if not constants.eps:
        note = "eps = 0: the corollary needs eps > 0"
    log_from = math.log(start) if math.isfinite(start) else log - math.log(2 * margin)
    return _row("Cor 3.4", "C(theta, eps)", safe_exp(log), length >= start, log_from, note, log)


def _close(cube: Constants, radius: float, length: int, margin: float) -> list[Row]:
    lipschitz = lipschitz_bound(cube)
    spread = 2 * cube.readout * cube.radii[-1]  # the largest difference of two logits
    note = "eps = 0: the lemma needs eps > 0"
    if cube.eps:
        note = f"for parameters closer than {spread / lipschitz:.3g}; Theta has diameter "
        note += f"{cube_diameter(radius, cube.parameters):.4g}"
    rows = [_row("Lem 3.1", "C_Lip", lipschitz, bool(cube.eps), 0.0 if cube.eps else None, note)]
    diameter = cube_diameter(radius, cube.parameters)
    count = log2_function_count(lipschitz, diameter, margin, cube.parameters)
    finite = math.isfinite(count)
    start = math.floor(math.log2(count)) + 1 if finite and count > 1 else 1
    counted = "log2 of the number of functions; must be below 2^N" if finite else note
    says = finite and (length > 1023 or count < 2.0**length)
    rows.append(_row("Prop 3.5", "log2 |F_N|", count, says, math.log(start) if finite else None, counted))
    return rows


def _random(cube: Constants, radius: float, length: int, margin: float, failure: float) -> list[Row]:
    """Results for parameters that are uniform in the cube, eps = 0 included."""
    layers = len(cube.layers)
    threshold = Threshold(cube.width, layers)
    slope = threshold.exponent + 5  # (D-1)/2L
    if slope <= 1:
        note = f"(D-1)/2L = {slope:.4g}, and no zeta is between 2L/(D-1) and 1"
        names = ("Lem 4.2", "Cor 4.3, Lem 4.4", "Thm 4.5", "Cor 4.6")
        return [_row(name, "parameters uniform in Theta", math.inf, None, None, note) for name in names]
    start = theorem_from(cube, radius, margin, failure)
    zeta = (1 / slope + 1) / 2 if start is None or start.zeta >= 1 else start.zeta
    tail = blowup_tail(cube.width, layers, length, radius, blowup_level(length, layers, zeta), neighbours=length)
    stable = stable_logit_bound(cube, length, zeta)
    rows = [
        _row(
            "Lem 4.2",
            "P(some tau > 1 + N^(zeta/2L)), one string and all its flips",
            tail,
            tail < 1,
            _tail_from(cube, radius, zeta),
            f"zeta = {zeta:.4g}; must be below 1",
        ),
        _row(
            "Cor 4.3, Lem 4.4",
            "change of the logit otherwise",
            stable,
            stable < 2 * margin,
            log_stable_from(cube, zeta, margin),
            f"must be below 2 xi = {2 * margin:g}",
            None if math.isfinite(stable) else math.inf,
        ),
    ]
    needs = f"(D-1)/2L = {slope:.4g}; more than 3 is needed for a single string"
    if start is None:
        return [
            *rows,
            *(_row(name, "strings of sensitivity 0", 0.0, False, None, needs) for name in ("Thm 4.5", "Cor 4.6")),
        ]
    promised = max(threshold.at(length), 1.0)
    log = max(threshold.log2_at(length), 0.0) * math.log(2)
    says = math.log(length) >= start.log_length
    note = (
        f"N^{threshold.exponent:.4g}, at least 1; from there on with probability {1 - failure:g}, almost surely later"
    )
    families = "Parity, First, dictators and sparse parities fail"
    return [
        *rows,
        _row("Thm 4.5", "strings of sensitivity 0", promised, says, start.log_length, note, log),
        _row("Cor 4.6", "K_0(N) that is too small", promised, says, start.log_length, families, log),
    ]


def _tail_from(cube: Constants, radius: float, zeta: float) -> float:
    """A length from which on Lem 4.2 is below 1 for a string and all its flips, in logarithms."""
    layers = len(cube.layers)
    excess = (cube.width - 1) * zeta / (2 * layers) - 2  # L (N+1)^2 A N^(-(D-1) zeta/2L) <= 4 L A N^(-excess)
    if excess <= 0:
        return math.inf
    return max(0.0, (math.log(4 * layers) + log_cube_factor(cube.width, radius)) / excess)


def _of_any(model: Transformer, strings: Bits) -> tuple[Row, ...]:
    """The result for every model whose layer norms can be read."""
    from flipscope.probes.blowup import blowup

    if model.config.norm == "none":
        note = "there is no layer norm, so nothing amplifies: tau and beta are not defined"
        return (_row("Lem 3.2", "blowup beta of any string", math.inf, None, None, note),)
    measured = blowup(model, strings)
    finite = math.isfinite(measured.bound)
    met = f"{float(measured.beta.max()):.4g} was met on {measured.strings} strings"
    note = f"product over its {len(measured.eps)} norms; {met}"
    return (_row("Lem 3.2", "blowup beta of any string", measured.bound, finite, 0.0 if finite else None, note),)
