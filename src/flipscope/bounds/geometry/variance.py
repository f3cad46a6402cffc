"""Paper 000 on small variances under random last biases: Lem E.2, Lem 4.2, Cor 4.3, on a cube Lem 4.4, and Lem E.8.

Lem E.2 as printed is false for widths 2, 3 and 4. Its proof slices the cube along s (1, ..., 1) and integrates over s
(Eq 61), but that vector has length sqrt(D), so a factor sqrt(D) is lost; and it rounds the volume of a ball of radius
kappa in D - 1 dimensions up to (2 kappa)^(D-1) (Eq 66). With both corrected, V_d being the volume of the unit ball,

    P(variance(y + Z) < eta^2) <= sqrt(D) V_(D-1) (sqrt(D) eta / 2 rho)^(D-1),

with equality to first order as eta -> 0 where the line y + s (1, ..., 1) passes through the cube from end to end. The
quotient to the paper's bound is sqrt(D) V_(D-1) / 2^(D-1): 1.41, 1.36, 1.05, 0.69, 0.40, ... for D = 2, 3, 4, 5, 6, so
the paper's holds from D = 5 on. Thm 4.5 says something only for D > 7 and is not affected.

Gaussian biases (section E.5) need no cubes. If Z is N(0, sigma^2 I) in D dimensions, its projection onto mean-zero
vectors is N(0, sigma^2 I) in D - 1, whose density is nowhere above (sigma sqrt(2 pi))^-(D-1), and the variance of y + Z
is below eta^2 where that projection is in a ball of radius sqrt(D) eta:

    P(variance(y + Z) < eta^2) <= V_(D-1) (sqrt(D) eta / sigma sqrt(2 pi))^(D-1),

with equality to first order as eta -> 0 where y has variance 0. The paper covers the space by cubes instead, and takes
sigma^2 = 1/20M (Lem E.8) so that the constants of all cubes have a finite mean. The tail of the blowup needs no such
condition: it holds for every sigma, hence for the sigma^2 = 1/D of Rem E.9. What remains open in that remark is only
the other half of Lem E.8, one constant in |T(x) - T(x')| = O(N^(zeta-1)) for all parameters instead of one for each.
"""

from __future__ import annotations

import math
import sys

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count, check_positive
from flipscope.basics.errors import InputError
from flipscope.bounds.geometry.constants import Constants, check_length
from flipscope.bounds.geometry.influence import influence_bound

PAPER_HOLDS_FROM = 5  # the least width at which Lem E.2 holds as printed


@checked_arguments
def low_variance_bound(width: int, eta: float, rho: float) -> float:
    """Lem E.2, corrected: an upper bound on P(variance(y + Z) < eta^2), for Z uniform in [-rho, rho]^D and any y."""
    return _probability(_log_low_variance(width, eta, rho))


@checked_arguments
def printed_low_variance_bound(width: int, eta: float, rho: float) -> float:
    """Lem E.2 as the paper prints it (Eq 54): (sqrt(D) eta / rho)^(D-1), no more than 1; false below D = 5."""
    _check(width, eta, rho)
    return _probability((width - 1) * math.log(math.sqrt(width) * eta / rho))


@checked_arguments
def corrected_over_printed(width: int) -> float:
    """sqrt(D) V_(D-1) / 2^(D-1): the corrected bound of Lem E.2 over the printed one, whatever eta and rho.

    >>> [round(corrected_over_printed(width), 2) for width in (2, 3, 4, 5)]
    [1.41, 1.36, 1.05, 0.69]
    """
    d = check_count("width", width, 2) - 1
    return math.sqrt(width) * math.exp(_log_ball(d) - d * math.log(2))


@checked_arguments
def gaussian_low_variance_bound(width: int, eta: float, sigma: float) -> float:
    """Lem E.2 for Gaussian biases: an upper bound on P(variance(y + Z) < eta^2), for Z of law N(0, sigma^2 I), any y.

    >>> round(gaussian_low_variance_bound(2, 0.1, 1.0), 4)  # |Z1 - Z2| < 0.2 has probability 0.1125
    0.1128
    """
    return _probability(_log_gaussian(width, eta, sigma))


@checked_arguments
def blowup_tail(width: int, layers: int, length: int, rho: float, level: float, *, neighbours: int = 0) -> float:
    """Lem 4.2: an upper bound on the probability that some tau^l exceeds 1 + level, on x or one of its flips.

    The last biases phi2 of all layers are uniform in cubes of radius rho around any points, independent of all other
    parameters, which may be fixed or random; eps is at least 0. `neighbours` is the k of the paper, the number of flips
    of x that are considered (Eq 28). Union bound over L layers, k + 1 strings and N + 1 positions, each by Lem E.2 with
    eta = 1 / level: the paper's proof, with the factors that its O(.) hides.
    """
    places = _log_places(layers, length, neighbours)
    return _probability(places + _log_low_variance(width, 1 / check_positive("level", level), rho))


@checked_arguments
def gaussian_blowup_tail(
    width: int, layers: int, length: int, sigma: float, level: float, *, neighbours: int = 0
) -> float:
    """Lem E.8: the same for last biases of law N(m, sigma^2 I) with any m, independent of all other parameters.

    sigma = 1 / sqrt(gamma D) is the paper's: gamma = 20 M / D in the lemma, and 1 in Rem E.9, Xavier's law for a square
    matrix. `stable_logit_bound` of the drawn model's constants is what then holds of its logits (Eq 124).

    >>> gaussian_blowup_tail(32, 2, 100, 1 / math.sqrt(32), 30.0, neighbours=100) < 1e-9
    True
    """
    places = _log_places(layers, length, neighbours)
    return _probability(places + _log_gaussian(width, 1 / check_positive("level", level), sigma))


@checked_arguments
def blowup_level(length: int, layers: int, zeta: float) -> float:
    """N^(zeta / 2L), the level of Eq 30: below it for every layer, beta <= (1 + level)^L (Eq 94)."""
    if not 0 < zeta < 1:
        raise InputError(f"zeta={zeta} must be between 0 and 1, both excluded")
    return float(check_length(length) ** (zeta / (2 * check_count("layers", layers))))


@checked_arguments
def stable_logit_bound(constants: Constants, length: int, zeta: float) -> float:
    """Cor 4.3: an upper bound on |T(x) - T(x')| while every tau of x and x' is at most 1 + N^(zeta / 2L).

    O(N^(zeta - 1)); the constant, ||w|| C_infl, is derived here and must hold on the whole cube: `constants.perturbed(
    rho)` around one model, or `Constants.cube(model, rho)` for parameters uniform in [-rho, rho]^M, which is Lem 4.4
    for this Theta. That the condition fails has probability at most `blowup_tail(width, layers, length, rho,
    blowup_level(length, layers, zeta), neighbours=k)`, for k flips at once. Tends to 0 for zeta > 2L / (D - 1) only.
    """
    layers = len(constants.layers)
    beta = (1 + blowup_level(length, layers, zeta)) ** layers
    return constants.readout * float(influence_bound(constants, length, beta, beta))


def _check(width: int, eta: float, rho: float) -> None:
    check_count("width", width, 2)
    check_positive("eta", eta)
    check_positive("rho", rho)


def _log_places(layers: int, length: int, neighbours: int) -> float:
    """The logarithm of the number of variances: layers times strings times positions."""
    strings = check_count("neighbours", neighbours, 0) + 1
    return math.log(check_count("layers", layers) * strings * (check_length(length) + 1))


def _log_ball(dimension: int) -> float:
    """The logarithm of the volume of the unit ball."""
    return dimension / 2 * math.log(math.pi) - math.lgamma(dimension / 2 + 1)


def _log_low_variance(width: int, eta: float, rho: float) -> float:
    _check(width, eta, rho)
    d = width - 1
    return math.log(width) / 2 + _log_ball(d) + d * math.log(math.sqrt(width) * eta / (2 * rho))


def _log_gaussian(width: int, eta: float, sigma: float) -> float:
    check_positive("sigma", sigma)
    _check(width, eta, 1.0)
    d = width - 1
    return _log_ball(d) + d * math.log(math.sqrt(width) * eta / (sigma * math.sqrt(2 * math.pi)))


def _probability(logarithm: float) -> float:
    """exp of the logarithm, from 0 to 1; one too small for floats is rounded up, as a bound must be."""
    return max(math.exp(min(logarithm, 0.0)), sys.float_info.min)
