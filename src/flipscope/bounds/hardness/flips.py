"""How much one flipped bit can change a transformer: A4 and A5, Theorem 4 and Corollary 5 of paper 001 re-derived.

Everything is in natural logarithms, since the constants of models of ordinary size are far beyond floats. With x^i the
string x with bit i flipped, M positions, and tau_k(x) = 1 + the largest 1 / sqrt(variance + eps) at norm k,

    |T(x) - T(x^i)| <= C Blowup(x) (1/M + [i is read]),       Blowup(x) = product of all tau_k(x)             (5)
    s(x, T) <= C^2 Blowup(x)^2 J / 4,     J = 1 + 3/n, or n / M^2 where a marker is read                      (6)
    as_n(T) <= C^2 J E[Blowup^2] / 4                                                                          (7)

and on every string, with 1/sqrt(eps) for each norm, |T(x) - T(x^i)| <= C'/M where i is not read              (8)

The derivation and the equations are in docs/hardness-bounds.md. `layerwise` has sharper versions, layer by layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import as_numbers
from flipscope.basics.checks import check_not_negative
from flipscope.basics.errors import InputError
from flipscope.bounds.hardness.constants import Constants, Step
from flipscope.bounds.numerics import safe_exp, safe_log

Numbers = NDArray[np.float64] | np.float64  # numpy turns arrays without dimension into scalars

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Bound:
    """A bound on a sensitivity, in logarithms, beside the trivial one that follows from the range of the output."""

    log: float  # of the bound
    log_trivial: float  # of the trivial bound n span^2 / 4

    @property
    def value(self) -> float:
        """The bound itself; infinite where floats end."""
        return safe_exp(self.log)

    @property
    def vacuous(self) -> bool:
        """Whether it is not below the trivial bound."""
        return self.log >= self.log_trivial - _ROUNDING

    @property
    def orders(self) -> float:
        """log10 of its ratio to the trivial bound; negative where it says something."""
        same = self.log == self.log_trivial or abs(self.log - self.log_trivial) < _ROUNDING
        return 0.0 if same else (self.log - self.log_trivial) / math.log(10)

    def as_json(self) -> dict[str, float | bool | None]:
        """Its numbers for a JSON document."""
        numbers = {"log10": self.log / math.log(10), "orders_above_trivial": self.orders}
        return {name: value if math.isfinite(value) else None for name, value in numbers.items()} | {
            "vacuous": self.vacuous
        }


@checked_arguments
def log_constant(constants: Constants, *, every_length: bool = False) -> float:
    """ln C of Eq 5; -inf where both bits have the same vector or nothing is read.

    C holds at the constants' length; with ``every_length`` the bound exp(r) replaces M g, and C holds at all lengths at
    which the vectors of the positions are no larger.
    """
    log = safe_log(constants.readout) + safe_log(constants.gap)
    for step in constants.steps:
        stay, _, spread = _factors(step, constants, every_length)
        branch = _add(stay, spread)
        if step.norm == "before":
            log += max(safe_log(step.keep), math.log(2) + branch)
        else:
            log += _add(safe_log(step.keep), branch) + (math.log(2) if step.norm == "after" else 0.0)
    return log


@checked_arguments
def log_places(constants: Constants) -> float:
    """ln J of Eq 6: the sum over i of (1/M + [i is read])^2."""
    n, m = constants.length, constants.positions
    return math.log((n - 1) / m**2 + (1 + 1 / m) ** 2 if constants.reads_bit else n / m**2)


@checked_arguments
def log_trivial(constants: Constants) -> float:
    """ln of n span^2 / 4, a bound on s(x, T) that follows from the range of T alone."""
    return math.log(constants.length) + 2 * safe_log(constants.span) - math.log(4)


@checked_arguments
def product_bound(constants: Constants, log_blowup: float) -> Bound:
    """Eq 6: an upper bound on s(x, T), from ln Blowup(x) alone, which is 0 for a model without norms.

    >>> from flipscope.models import Transformer, hardness
    >>> own = Constants.of(Transformer(hardness(6, width=8)), 6)
    >>> product_bound(own, math.log(10.0)).vacuous
    True
    """
    log = 2 * (log_constant(constants) + _blowups(log_blowup).item()) + log_places(constants) - math.log(4)
    return Bound(log, log_trivial(constants))


@checked_arguments
def average_bound(constants: Constants, log_blowups: ArrayLike) -> Bound:
    """Eq 7: an upper bound on as_n(T), from the logarithms of the blowups of all strings.

    From some strings drawn at random it is only an estimate of the bound.
    """
    return product_bound(constants, log_mean_square(log_blowups) / 2)


@checked_arguments
def log_mean_square(log_blowups: ArrayLike) -> float:
    """ln E[Blowup^2] over the strings whose ln Blowup these are."""
    logs = _blowups(log_blowups).ravel()
    return max(0.0, float(np.logaddexp.reduce(2 * logs)) - math.log(len(logs)))  # below 0 by rounding only


@checked_arguments
def log_least_blowup(constants: Constants, sensitivity: float) -> float:
    """The least ln Blowup(x) with which these weights can have s(x, T) = ``sensitivity``, by Eq 6.

    Given as_n(T) instead, it is the least ln of sqrt(E[Blowup^2]), by Eq 7. Below 0, which ln Blowup never is, the
    bound requires nothing; it is infinite where no blowup is enough.

    >>> from flipscope.models import Transformer, hardness
    >>> own = Constants.of(Transformer(hardness(6, width=8)), 6)
    >>> bound = product_bound(own, 3.0)
    >>> round(log_least_blowup(own, bound.value), 6)
    3.0
    """
    if not check_not_negative("sensitivity", sensitivity):
        return -math.inf
    constant = log_constant(constants)
    if constant == -math.inf:
        return math.inf
    return (math.log(4 * sensitivity) - log_places(constants)) / 2 - constant


@dataclass(frozen=True)
class FlipBound:
    """Eq 8: an upper bound on |T(x) - T(x^i)| for all strings, in logarithms."""

    log_other: float  # where bit i is not read
    log_read: float  # where it is; -inf if a marker is read
    log_constant: float  # ln C': the first is at most C'/M, at every length
    log_span: float  # of the trivial bound
    sensitivity: Bound  # the bound on s(x, T) for all strings

    @property
    def vacuous(self) -> bool:
        """Whether the bound for a bit that is not read is above the trivial bound."""
        return self.log_other >= self.log_span


@checked_arguments
def flip_bound(constants: Constants) -> FlipBound:
    """A4: the O(1/n) bound on |T(x) - T(x^i)| of a model without norms, or with eps > 0; infinite for eps = 0.

    >>> import dataclasses
    >>> from flipscope.models import Transformer, hardness
    >>> bare = dataclasses.replace(hardness(100, width=8), norm="none")
    >>> found = flip_bound(Constants.of(Transformer(bare, scheme="gaussian"), 100))
    >>> found.log_other <= found.log_constant - math.log(100)
    True
    """
    with_norms = -math.log(constants.eps) / 2 if constants.eps else math.inf
    flipped, other = _through(constants, with_norms)
    _, limit = _through(constants, with_norms, every_length=True)
    n, m = constants.length, constants.positions
    readout = safe_log(constants.readout)
    log_other = readout + other - math.log(m)
    log_read = readout + _add(flipped, other - math.log(m)) if constants.reads_bit else -math.inf
    rest = n - constants.reads_bit
    total = _add(2 * log_other + math.log(rest) if rest else -math.inf, 2 * log_read) - math.log(4)
    bound = Bound(total, log_trivial(constants))
    return FlipBound(log_other, log_read, readout + limit, safe_log(constants.span), bound)


@checked_arguments
def head_change(step: Step, head: int, positions: int, own: float, other: float, *, same: bool) -> float:
    """As in Lemma 9: an upper bound on the change of one head's output at one row when one bit is flipped (Eq 4).

    ``own`` bounds the change of the head's input z at the flipped position, ``other`` that at every other; ``same``
    says whether the row is the flipped one. In a first layer without norm before attention own = gap and other = 0, and
    the change is O(1/M) unless ``same``.
    """
    one = step.heads[head]
    reach, most = step.reach(one), max(own, other)
    top = share(reach, positions)
    total = own + (positions - 1) * other
    # The mean of the changes under weights of at most g that sum to 1: the larger ones come first.
    mean = min(most, other + top * (own - other)) if own >= other else min(most, top * (total - own) + own)
    bent = min(mean, bend(top) * total)
    moved = mean + reach * bent + step.radius**2 * one.score * (own if same else other)
    return one.weight * min(moved, 2 * step.radius)


def share(reach: float, positions: int) -> float:
    """g: the largest attention weight of one of M positions where logits are within ``reach`` of each other."""
    return 1 / (1 + (positions - 1) * math.exp(-reach))


def bend(top: float) -> float:
    """The largest a (1 - a) of any weight a <= top."""
    return top * (1 - top) if top < 0.5 else 0.25


# ---------------------------------------------------------------- sub-layer by sub-layer


def _factors(step: Step, constants: Constants, every_length: bool) -> tuple[float, float, float]:
    """Logarithms of p, q and q* of Eq 4, summed over the heads; of the Lipschitz constant and nothing for an MLP."""
    if not step.heads:
        return safe_log(step.branch), -math.inf, -math.inf
    m = constants.positions
    stay = math.fsum(head.weight * step.radius**2 * head.score for head in step.heads)
    even, spread = [], []
    for head in step.heads:
        reach = step.reach(head)
        even.append(safe_log(head.weight * (1 + reach)))
        top = share(reach, m)
        at_length = safe_log(head.weight * m * (top + reach * bend(top)))
        spread.append(even[-1] + reach if every_length else max(at_length, even[-1]))
    return safe_log(stay), float(np.logaddexp.reduce(even)), float(np.logaddexp.reduce(spread))


def _through(constants: Constants, log_norm: float, *, every_length: bool = False) -> tuple[float, float]:
    """Logarithms of t and u after the last step: a change is at most t + u/M where the bit was flipped, else u/M."""
    flipped, other = safe_log(constants.gap), -math.inf
    for step in constants.steps:
        stay, even, spread = _factors(step, constants, every_length)
        keep = safe_log(step.keep)
        before = log_norm if step.norm == "before" else 0.0
        after = log_norm if step.norm == "after" else 0.0
        even = _scaled(before, _add(stay, even))
        moved = _add(_scaled(_add(keep, even), other), _scaled(_scaled(before, spread), flipped))
        flipped = _scaled(after, _scaled(_add(keep, _scaled(before, stay)), flipped))
        other = _scaled(after, moved)
    return flipped, other


def _scaled(factor: float, change: float) -> float:
    """The logarithm of a product, where a change of 0 stays 0 even for an infinite factor."""
    return -math.inf if change == -math.inf or factor == -math.inf else factor + change


def _add(a: float, b: float) -> float:
    """The logarithm of a sum."""
    if a == math.inf or b == math.inf:
        return math.inf
    return float(np.logaddexp(a, b))


def _blowups(log_blowups: ArrayLike) -> NDArray[np.float64]:
    """The numbers as floats, after checking that they can be logarithms of blowups."""
    logs = as_numbers(log_blowups, "the logarithms of blowups")
    if logs.size == 0 or not (logs >= 0).all():
        raise InputError("the logarithms of blowups must be numbers of at least 0, one or more: a blowup is at least 1")
    return logs
