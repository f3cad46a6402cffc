"""A7: under random biases blowup is rare, and the average sensitivity of a transformer is far below n.

Right before a layer norm after attention or after an MLP a bias is added, that of the output projection or of the MLP's
second layer. If these biases are N(m, sigma^2 I), for any m, 1 / sqrt(variance + eps) exceeds a level B at one of K
norms and M positions with a probability of at most K M V_(d-1) (sqrt(d) / B sigma sqrt(2 pi))^(d-1), by the Gaussian
form of Lem E.2 in paper 000; so that for every B, with C of Eq 5, which does not depend on these biases,

    E as_n(T) <= C^2 J (1 + B)^(2K) / 4 + n span^2 / 4 times that probability                                  (12)

Only x is measured in Eq 6, hence no union over its neighbours. With the best B the right side grows as n to the power
4 K / (d - 1 + 2 K), where C and the span do not grow; B = n^(2/(d-1)), up to logarithms, gives 4 K / (d - 1).

On a sphere. Let Delta be uniform on the sphere of radius rho in p dimensions, as in the definition of sharpness. The
linear read-out, of 2 or more parameters, is among them and no norm depends on it. Given all of Delta except the
read-out and the mean-zero part of one bias, these two together are uniform on a sphere of some radius R, and the
density of the bias part is at most a multiple of R^-(d-1). The mean over R makes Gamma(p/2) / Gamma((p-d+1)/2) (rho
sqrt(pi))^-(d-1) of it, which is no more than the density of a Gaussian with sigma = rho / sqrt(p) at its top: with this
sigma the bound on the probability holds. (12) does not, since C moves with the other parameters.
"""

from __future__ import annotations

import math

import numpy as np

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count, check_positive
from flipscope.basics.errors import InputError
from flipscope.bounds.geometry.variance import gaussian_blowup_tail
from flipscope.bounds.hardness.constants import Constants
from flipscope.bounds.hardness.flips import Bound, log_constant, log_places, log_trivial

_LEVELS = np.exp(np.linspace(-7, 70, 2000))  # of B; Eq 12 holds for each


@checked_arguments
def blowup_tail(width: int, norms: int, positions: int, sigma: float, level: float) -> float:
    """An upper bound on the probability that some 1 / sqrt(variance + eps) of x exceeds ``level``.

    ``norms`` is K, two for each layer of `hardness()`; sigma is the standard deviation of the biases before them,
    whatever their means and all other parameters are, and rho / sqrt(p) for perturbations on a sphere.

    >>> 0 < blowup_tail(128, 4, 30, 0.02, 1000.0) < 1e-50
    True
    """
    # The lemma of paper 000 counts layers of one norm, and one position more than there are bits.
    check_count("positions", positions)
    return gaussian_blowup_tail(width, check_count("norms", norms), max(positions - 1, 1), sigma, level)


@checked_arguments
def sphere_sigma(radius: float, parameters: int) -> float:
    """rho / sqrt(p): the sigma for perturbations uniform on a sphere of this radius in `parameters` dimensions.

    >>> round(sphere_sigma(8.93, 199_425), 4)
    0.02
    """
    return check_positive("radius", radius) / math.sqrt(check_count("parameters", parameters, 2))


@checked_arguments
def sensitivity_exponent(width: int, norms: int) -> float:
    """4 K / (d - 1): E as_n(T) is at most n to this power, up to logarithms, with B = n^(2/(d-1)).

    For one norm a layer it is 4 L / (d - 1), for `hardness()` 8 L / (d - 1).

    >>> round(sensitivity_exponent(128, 4), 3)
    0.126
    """
    return 4 * check_count("norms", norms) / (check_count("width", width, 2) - 1)


@checked_arguments
def expected_sensitivity(constants: Constants, sigma: float) -> Bound:
    """Eq 12: an upper bound on E as_n(T) where the biases before the norms are N(m, sigma^2 I), all else being fixed.

    It holds for every m. C does not depend on these biases; a model in which a norm has none before it is refused.
    """
    check_positive("sigma", sigma)
    if not constants.biased_norms:
        raise InputError(
            "the bound on random biases needs a bias of its own before every norm: use norm='post' or 'once', "
            "combine='project' and no final norm"
        )
    return expected_bound(
        2 * log_constant(constants) + log_places(constants) - math.log(4),
        log_trivial(constants),
        constants.width,
        constants.norms,
        constants.positions,
        sigma,
    )


@checked_arguments
def expected_bound(log_product: float, log_most: float, width: int, norms: int, positions: int, sigma: float) -> Bound:
    """Eq 12 from its parts: the logarithms of C^2 J / 4 and of n span^2 / 4, and the shape of the model."""
    tails = [_log_tail(width, norms, positions, sigma, level) for level in _LEVELS]
    both = np.logaddexp(log_product + 2 * norms * np.log1p(_LEVELS), log_most + np.array(tails))
    return Bound(float(min(both.min(), log_most)), log_most)


def _log_tail(width: int, norms: int, positions: int, sigma: float, level: float) -> float:
    return math.log(blowup_tail(width, norms, positions, sigma, level))
