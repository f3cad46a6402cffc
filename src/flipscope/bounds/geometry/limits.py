"""Paper 000 with the lengths that "sufficiently large" hides: Lem 4.4 on a compact set, and an N_0 for Thm 4.5.

Let the parameters be uniform in the cube [-rho, rho]^M. From N_0 on with C N^(zeta - 1) < 2 xi (proof of Thm 4.5; C of
Cor 4.3, for the cube) no flip of a string crosses from rejected to accepted while all tau are at most N^(zeta/2L) + 1.
That this fails for one of K(N) strings of length N has probability at most

    K(N) L (N+1)^2 A N^(-(D-1) zeta/2L),      A = sqrt(D) V_(D-1) (sqrt(D)/2 rho)^(D-1)      (Lem 4.2 with k = N).

With K(N) the least whole number from N^c up, c = (D-1)/2L - 5, or 1 if c <= 0, the sum over all N >= N_0 is at most

    4 kappa L A (1 + 1/s) N_0^(-s),      s = (D-1) zeta/2L - 3 - max(c, 0),      kappa = 2, or 1 if c <= 0.

Where s > 0 this is below any wanted probability of failure for N_0 large enough. Thm 4.5 itself, almost surely for all
large N, has no N_0 that serves all parameters: Borel and Cantelli give each its own. A larger zeta makes the first N_0
larger and the second smaller, so the best is where they meet.

On a set Theta of the cube that has a share v of its volume, P(E | Theta) <= P(E) / v for every event E. This is Lem 4.4
for every bounded Theta of positive measure, whatever its boundary; the factor 1/v is what the paper's cover by small
cubes is there to avoid, at the price of a constant (1/rho)^(D-1) that grows as the cubes shrink.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_positive
from flipscope.basics.errors import InputError
from flipscope.bounds.geometry.constants import Constants
from flipscope.bounds.geometry.families import Threshold
from flipscope.bounds.geometry.influence import log_influence_constant
from flipscope.bounds.geometry.variance import _log_low_variance

_HALVINGS = 200
_CLOSE = 1e-9  # the least distance of zeta from 1


@dataclass(frozen=True)
class TheoremStart:
    """An N_0 for Thm 4.5, which holds at every N from there on except for a share ``failure`` of the parameters."""

    log_length: float  # ln N_0
    zeta: float
    failure: float


@checked_arguments
def compact_tail(probability: float, log_share: float) -> float:
    """Lem 4.4 for a compact Theta: an upper bound on the probability of an event on Theta.

    ``probability`` bounds that of the event on a cube around Theta, as `blowup_tail` does, and ``log_share`` is the
    logarithm of the share of the cube's volume that Theta has. Theta may be any bounded set of positive measure.

    >>> round(compact_tail(0.01, math.log(1 / 4)), 6)
    0.04
    """
    if not 0 <= probability <= 1:
        raise InputError(f"probability={probability} must be between 0 and 1")
    if not -math.inf < log_share <= 0:
        raise InputError(f"log_share={log_share} must be the logarithm of a share, a number of at most 0")
    if not probability:
        return 0.0
    return math.exp(min(0.0, math.log(probability) - log_share))


@checked_arguments
def log_stable_from(constants: Constants, zeta: float, margin: float) -> float:
    """The logarithm of the N_0 in the proof of Thm 4.5, from which on `stable_logit_bound` is below twice the margin.

    It is 0 if that holds at every length. The constants must hold on the whole of Theta.
    """
    if not 0 < zeta < 1:
        raise InputError(f"zeta={zeta} must be between 0 and 1, both excluded")
    wanted = math.log(2 * check_positive("margin", margin))
    if not constants.readout:
        return 0.0
    constant = math.log(constants.readout) + log_influence_constant(constants)
    layers = len(constants.layers)

    def stable(log_length: float) -> bool:
        step = zeta * log_length / (2 * layers)
        level = step + math.log1p(math.exp(-step))  # of 1 + N^(zeta/2L)
        return constant + 2 * layers * level - log_length < wanted

    # It falls in N, since the blowups together grow as N^zeta at most.
    return _least(stable)


@checked_arguments
def theorem_from(constants: Constants, radius: float, margin: float, failure: float = 0.01) -> TheoremStart | None:
    """An explicit N_0 for Thm 4.5 with parameters uniform in [-radius, radius]^M (derived here); None if none follows.

    For all N >= N_0 at once, with probability at least 1 - failure, there are at least N^c strings (at least one if
    c <= 0, c = (D-1)/2L - 5) of which no flip crosses from rejected to accepted; where the model decides every string,
    these are strings of sensitivity 0. ``constants`` are `Constants.cube(model, radius)`. There is none where (D-1)/2L
    is 3 or less, since the sum of the probabilities does not converge for any zeta.
    """
    check_positive("radius", radius)
    if not 0 < failure < 1:
        raise InputError(f"failure={failure} must be between 0 and 1, both excluded")
    threshold = Threshold(constants.width, len(constants.layers))
    if not threshold.promises_one:
        return None
    slope = threshold.exponent + 5
    least = (3 + max(threshold.exponent, 0.0)) / slope  # s > 0

    def start(zeta: float) -> float:
        summable = log_summable_from(constants, radius, zeta, failure)
        return max(log_stable_from(constants, zeta, margin), summable)

    low, high = least, 1 - _CLOSE
    for _ in range(_HALVINGS):
        zeta = (low + high) / 2
        if not low < zeta < high:
            break
        if log_stable_from(constants, zeta, margin) < log_summable_from(constants, radius, zeta, failure):
            low = zeta
        else:
            high = zeta
    log_length, zeta = min((start(zeta), zeta) for zeta in (low, high))
    return TheoremStart(max(log_length, math.log(threshold.from_length())), zeta, failure)


def log_summable_from(constants: Constants, radius: float, zeta: float, failure: float) -> float:
    """The logarithm of the least N_0 from which on the probabilities of failure sum to at most ``failure``."""
    layers = len(constants.layers)
    threshold = Threshold(constants.width, layers)
    s = (threshold.exponent + 5) * zeta - 3 - max(threshold.exponent, 0.0)
    if s <= 0:
        return math.inf
    factor = math.log((8 if threshold.exponent > 0 else 4) * layers * (1 + 1 / s))
    return max(0.0, (factor + log_cube_factor(constants.width, radius) - math.log(failure)) / s)


def log_cube_factor(width: int, radius: float) -> float:
    """ln A, where the bound of Lem E.2 is A eta^(D-1), not capped at 1."""
    return _log_low_variance(width, 1.0, radius)


def _least(holds: Callable[[float], bool]) -> float:
    """The least number from 0 up at which a monotone condition holds."""
    if holds(0.0):
        return 0.0
    high = 1.0
    while not holds(high):
        high *= 2
        if math.isinf(high):
            return math.inf
    low = high / 2 if high > 1 else 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
