"""Paper 000 on how much one flipped bit changes a recogniser: Lem 2.9, Lem 3.2, Cor 3.3 and Cor 3.4.

The paper leaves its constants inside O(.) or to "the architecture and Theta"; those below are derived here. With
delta_w = ||y_w(x) - y_w(x')|| at the layer's input, x' = x with bit n flipped, R >= ||y_w||, and for each head
k = ||K^T Q||, v = ||V||, the change of one layer at position j goes through three steps.

Softmax. The attention logits (Eq 8a) of a row differ by at most r = 2 k R^2, so each of the N + 1 weights (Eq 8b) is at
most g = 1 / (1 + N exp(-r)), also for logits on the way from those of x' to those of x. Along that way the head's
output (Eq 8c) moves by V y_w - V y_w' weighted, and by the covariance, under the weights, of V y' with the change of
the logits, of which (y_w - y_w')^T K^T Q y_j is small at most positions and the rest is linear in y':

    ||c_j - c_j'|| <= v (g (1 + 2 k R^2) sum_w delta_w + k R^2 delta_j)

MLP and residual (Eqs 9, 10). ||d_j - d_j'|| <= delta_j + ||W2|| ||W1|| sum_heads ||c_j - c_j'||.

Layer norm (Eq 13). y = sqrt(D) times a part of the unit vector along (P d, sqrt(D eps)), whose length is sqrt(D) / z.
Unit vectors along a and b differ by at most 2 ||a - b|| / (||a|| + ||b||) (Dunkl and Williams), hence

    ||y_j - y_j'|| <= h ||d_j - d_j'||,   h = 2 z z' / (z + z')   <= 1 / sqrt(eps)   and   <= tau tau' / 4.

Write own for a bound on delta at position n and other for one everywhere else, and let

    p = ||W2|| ||W1|| sum_heads v k R^2,    q = (N + 1) ||W2|| ||W1|| sum_heads v (1 + 2 k R^2) g.

With own = t + u / (N + 1) and other = u / (N + 1), t and u start as ||e(0) - e(1)|| and 0, and a layer makes of them

    t  ->  h (1 + p) t,        u  ->  h ((1 + p + q) u + q t).

q grows with N to q* = ||W2|| ||W1|| sum_heads v (1 + 2 k R^2) exp(r), and t + u is multiplied by h (1 + p + q): this
is Eq 19 with the constant of `log_influence_constant`. The bounds are far above the truth until N is beyond exp(r),
which for weights of ordinary size is far.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import as_numbers
from flipscope.basics.checks import check_count, check_not_negative, check_positive
from flipscope.basics.errors import InputError
from flipscope.bounds.geometry.constants import Constants, LayerConstants, check_length
from flipscope.bounds.numerics import safe_log

Numbers = NDArray[np.float64] | np.float64  # numpy turns arrays without dimension into scalars


@checked_arguments
def log_influence_constant(constants: Constants) -> float:
    """The natural logarithm of C_infl in Lem 2.9 (derived here); -inf if both bits have the same vector.

    C_infl = ||e(0) - e(1)|| product over the layers of (1 + p + q*) / 4.
    """
    kept, spread = _log_limits(constants)
    return float(np.logaddexp(kept, spread)) - len(constants.layers) * math.log(4)


@checked_arguments
def influence_bound(
    constants: Constants, length: int, beta: ArrayLike, beta_flipped: ArrayLike, *, same: bool = False
) -> Numbers:
    """Lem 2.9: an upper bound on ||y^L(x) - y^L(x')|| at any one position, given the two blowups (Eq 18).

    C_infl beta(x) beta(x') / N at every position but the flipped one, EOS for example, and C_infl beta(x) beta(x')
    (1 + 1/N) at that one (`same`). The form is the paper's, the constant is derived here.
    """
    place = 1 / check_length(length) + same
    first, second = _blowup("beta", beta), _blowup("beta_flipped", beta_flipped)
    try:
        both = np.log(first) + np.log(second)
    except ValueError:
        shapes = f"beta of shape {first.shape} and beta_flipped of shape {second.shape}"
        raise InputError(f"{shapes} do not match: give each as [string, flip]") from None
    with np.errstate(over="ignore"):
        return np.exp(log_influence_constant(constants) + both + math.log(place))


@checked_arguments
def layerwise_influence_bound(
    constants: Constants, length: int, tau: ArrayLike, tau_flipped: ArrayLike, *, same: bool = False
) -> Numbers:
    """Lem 2.9 layer by layer (derived here), from tau [..., layer] (Eq 17) of both strings.

    Never above `influence_bound` of the products of tau, and useful at smaller N.
    """
    sides = [_blowup(name, side) for name, side in (("tau", tau), ("tau_flipped", tau_flipped))]
    layers = len(constants.layers)
    for name, side in zip(("tau", "tau_flipped"), sides, strict=True):
        if side.ndim == 0 or side.shape[-1] != layers:
            raise InputError(f"{name} of shape {side.shape} must have {layers} layers as its last axis")
    with np.errstate(divide="ignore"):
        norms = 2 / (1 / (sides[0] - 1) + 1 / (sides[1] - 1))  # the harmonic mean of z and z'
    return _through_layers(constants, check_length(length), norms, same)


@checked_arguments
def blowup_bound(layers: int, eps: float) -> float:
    """Lem 3.2: beta is at most (1 + 1/sqrt(eps))^L; infinite if eps is 0.

    `probes.blowup.Blowup.bound` is the same for a measured model, with any norms.
    """
    check_not_negative("eps", eps)
    factor = 1 + (1 / math.sqrt(eps) if eps else math.inf)
    try:
        return factor ** check_count("layers", layers)
    except OverflowError:
        return math.inf


@checked_arguments
def uniform_influence_bound(constants: Constants, length: int, *, same: bool = False) -> float:
    """Cor 3.3: an upper bound on the influence of a bit on an activation y^L, for all strings of this length.

    For eps > 0 it is O(1/N) except at the flipped position (`same`); for eps = 0 it is infinite. Eq 24 has the order
    only, the constant is derived here: the recursion above with 1/sqrt(eps) for every h.
    """
    norms = np.full(len(constants.layers), constants.norm_lipschitz)
    return float(_through_layers(constants, check_length(length), norms, same))


@checked_arguments
def log_uniform_constant(constants: Constants) -> float:
    """The natural logarithm of C(theta, eps) in Eq 46: no flip changes T by more than C/N (derived here).

    C = ||w|| u after the last layer, with q* for q; no smaller than N times ||w|| `uniform_influence_bound` at any N.
    """
    if not constants.eps:
        return math.inf
    _, spread = _log_limits(constants)
    return safe_log(constants.readout) + spread + len(constants.layers) * math.log(constants.norm_lipschitz)


@checked_arguments
def constant_from(constants: Constants, margin: float) -> float:
    """Cor 3.4: the length from which on a recogniser with this margin computes a constant function.

    The least N > C / 2 margin of Eq 46, a whole number; infinite if eps is 0 or if it is beyond the range of floats.
    """
    exponent = log_uniform_constant(constants) - math.log(2 * check_positive("margin", margin))
    return math.floor(math.exp(exponent)) + 1 if exponent < 709 else math.inf


# ---------------------------------------------------------------- layer by layer


def _blowup(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """The values as floats, after checking that they can be blowups."""
    numbers = as_numbers(values, name)
    if not (numbers >= 1).all():
        raise InputError(f"{name} must be at least 1 everywhere, as every blowup is")
    return numbers


def _heads(layer: LayerConstants, radius: float) -> list[tuple[float, float]]:
    """||W2|| ||W1|| v and r = 2 k R^2 of each head."""
    pairs = zip(layer.value, layer.score, strict=True)
    return [(layer.mlp * value, 2 * score * radius**2) for value, score in pairs]


def _through_layers(constants: Constants, length: int, norms: NDArray[np.float64], same: bool) -> Numbers:
    """The bound `own` or `other` after the last layer, for Lipschitz constants [..., layer] of the norms."""
    kept: Numbers = np.full(norms.shape[:-1], constants.gap)  # t
    spread: Numbers = np.zeros_like(kept)  # u
    for i, (layer, radius) in enumerate(zip(constants.layers, constants.radii[:-1], strict=True)):
        heads = _heads(layer, radius)
        p = sum(weight * reach / 2 for weight, reach in heads)
        # (N + 1) g = (N + 1) / (1 + N exp(-r)), which does not overflow
        q = sum(weight * (1 + reach) * (length + 1) / (1 + length * math.exp(-reach)) for weight, reach in heads)
        with np.errstate(over="ignore"):
            inside = (1 + p) * kept, (1 + p + q) * spread + q * kept
            kept, spread = (_product(norms[..., i], change) for change in inside)
    return kept + spread / (length + 1) if same else spread / (length + 1)


def _product(factor: Numbers, change: Numbers) -> Numbers:
    """factor * change, where a change of 0 stays 0 even for an infinite factor."""
    return np.multiply(factor, change, out=np.zeros(np.broadcast_shapes(factor.shape, change.shape)), where=change > 0)


def _log_limits(constants: Constants) -> tuple[float, float]:
    """Logarithms of t and u after the last layer, with q* for q and 1 for every h."""
    kept, spread = safe_log(constants.gap), -math.inf
    for layer, radius in zip(constants.layers, constants.radii[:-1], strict=True):
        heads = _heads(layer, radius)
        stay = math.log1p(sum(weight * reach / 2 for weight, reach in heads))
        # In logarithms, since exp(r) overflows for weights of ordinary size.
        q = float(np.logaddexp.reduce([safe_log(weight * (1 + reach)) + reach for weight, reach in heads]))
        spread = float(np.logaddexp(np.logaddexp(stay, q) + spread, q + kept))
        kept += stay
    return kept, spread
