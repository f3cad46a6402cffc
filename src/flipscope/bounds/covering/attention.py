"""Covers of attention heads and of deep attention networks, from how a change of weights changes the output.

Changes are Cor A.7, Lem 4.3 and A.13-A.16 of paper 003; heads are Thm 4.2, Cor 4.4, Lem A.11 and A.12; networks are
Thm A.17 and its simple form, Thm 4.6. The paper's constant of softmax is C = 2:

    ||softmax(a) - softmax(b)||_1 <= C ||a - b||_inf

C = 1 holds, too, and is sharp: the Jacobian takes h to p_i (h_i - p.h), and the l1 norm of that is the mean absolute
deviation of h under p, which is 1 at most where ||h||_inf is. Rows of Z have norms up to r, which is 1 in the paper;
with other radii C r^2 stands where it has C.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count, check_positive
from flipscope.basics.errors import InputError
from flipscope.bounds.covering.covers import Cover, Logs, Map, Net
from flipscope.bounds.covering.norms import HeadNorms, MatrixNorms, NetworkNorms
from flipscope.bounds.numerics import safe_exp, safe_log

SOFTMAX = 2.0  # Cor A.7
SHARP_SOFTMAX = 1.0

Printed = Literal[False, "4.4", "proof of 4.4", "A.11", "A.12"]

_SHARES = 1 / (1 + np.exp(-np.linspace(-12, 12, 481)))  # of eps, for the scores; each gives a bound

# ---------------------------------------------------------------- effects of a change of weights or of the input
#
# Each function is the right side of an inequality.


@checked_arguments
def softmax_change(logit_change: float, softmax: float = SOFTMAX) -> float:
    """A.7: an upper bound on the l1 norm of the change of attention weights, from the largest change of a logit.

    >>> softmax_change(0.25)
    0.5
    """
    return min(2.0, checked_softmax(softmax) * logit_change)


@checked_arguments
def head_change(
    score_change: float,
    value_change: float,
    *,
    bound_in: float,
    radius: float = 1.0,
    lipschitz_out: float = 1.0,
    norm_constant: float = SOFTMAX,
) -> float:
    """Lem 4.3: an upper bound on the change of a general head's output, in l2.

    ``score_change`` is the largest change of a score, ``value_change`` the largest l2 norm of the change of phi_in at a
    position: the norm is over columns of the transpose, which the paper leaves out.

    >>> head_change(0.1, 0.2, bound_in=3.0)
    0.8
    """
    return lipschitz_out * (norm_constant * bound_in * radius * score_change + value_change)


@checked_arguments
def attention_change(
    value_norm: float, score_change: float, value_change: float, *, radius: float = 1.0, softmax: float = SOFTMAX
) -> float:
    """A.13: the same for softmax attention with other weights, largest over rows.

    ``score_change`` is the largest ||(W_Q W_K' - its change) z||, ``value_change`` that of ||(W_V - its change)' z||.

    >>> attention_change(3.0, 0.1, 0.2)
    0.8
    """
    return head_change(
        radius * score_change, value_change, bound_in=value_norm, radius=radius, norm_constant=checked_softmax(softmax)
    )


@checked_arguments
def input_factor(value_norm: float, score_norm: float, *, radius: float = 1.0, softmax: float = SOFTMAX) -> float:
    """A.14: ||W_V|| (1 + 2 C r^2 ||W_Q W_K'||), the largest factor by which attention amplifies a change of its input.

    >>> input_factor(1.0, 1.0), input_factor(1.0, 1.0, softmax=1.0)
    (5.0, 3.0)
    """
    return value_norm * (1 + 2 * checked_softmax(softmax) * radius**2 * score_norm)


@dataclass(frozen=True)
class LayerChange:
    """How much changes of a head's matrices change their outputs: the largest ||(W - its change)' z|| over rows."""

    mix: float = 0.0  # of W_C
    score: float = 0.0  # of W_Q W_K'
    value: float = 0.0  # of W_V


@checked_arguments
def layer_change(
    change: LayerChange,
    input_change: float,
    *,
    mix_norm: float,
    value_norm: float,
    score_norm: float,
    lipschitz: float = 1.0,
    radius: float = 1.0,
    softmax: float = SOFTMAX,
) -> float:
    """A.15: an upper bound on the change of a layer's output at any row; for several heads the bounds add up.

    >>> layer_change(LayerChange(mix=0.1), 1.0, mix_norm=1.0, value_norm=1.0, score_norm=1.0)
    5.1
    """
    inner = attention_change(value_norm, change.score, change.value, radius=radius, softmax=softmax)
    carried = input_factor(value_norm, score_norm, radius=radius, softmax=softmax) * input_change
    return change.mix + lipschitz * mix_norm * (inner + carried)


@checked_arguments
def readout_change(readout_norm: float, state_change: float, own_change: float) -> float:
    """A.16: ||w|| times the change of [CLS], plus the change of w at it.

    >>> readout_change(2.0, 0.5, 0.25)
    1.25
    """
    return readout_norm * state_change + own_change


@checked_arguments
def log_amplifications(log_factors: Sequence[float] | Logs, *, as_printed: bool = False) -> Logs:
    """A.17: ln alpha_i of each layer, from ln Lambda_i: the error of layer i passes the layers after it.

    ``as_printed`` is the product over the layers before it instead.

    >>> np.exp(log_amplifications(np.log([2.0, 3.0, 5.0]))).round(9).tolist()
    [15.0, 5.0, 1.0]
    >>> np.exp(log_amplifications(np.log([2.0, 3.0, 5.0]), as_printed=True)).round(9).tolist()
    [1.0, 2.0, 6.0]
    """
    logs = np.asarray(log_factors, np.float64)
    if as_printed:
        return np.concatenate([[0.0], np.cumsum(logs[:-1])])
    return np.concatenate([np.cumsum(logs[:0:-1])[::-1], [0.0]])


def checked_softmax(softmax: float | Literal[1, 2]) -> float:
    """The constant of softmax, after checking that it is valid."""
    if not (math.isfinite(softmax) and softmax >= SHARP_SOFTMAX):
        raise InputError(f"softmax={softmax} is no Lipschitz constant of softmax: give 2, the paper's, or 1")
    return float(softmax)


# ---------------------------------------------------------------- one layer of heads


@checked_arguments
def attention_cover(
    score_cover: Callable[[float], float],
    value_cover: Callable[[float], float],
    eps: float,
    *,
    bound_in: float,
    radius: float = 1.0,
    lipschitz_out: float = 1.0,
    norm_constant: float = SOFTMAX,
) -> float:
    """Thm 4.2: ln N of a general head at distance eps, from ln N of its scores and of phi_in as functions of eps.

    >>> from flipscope.bounds.covering import matrix_cover
    >>> def linear(eps: float) -> float:
    ...     return matrix_cover(4, 1.0, eps, 1_000, largest=1.0)
    >>> attention_cover(linear, linear, 1.0, bound_in=1.0) > linear(1.0)
    True
    """
    check_positive("eps", eps)
    pull = norm_constant * lipschitz_out * bound_in * radius
    check_positive("norm_constant * lipschitz_out * bound_in * radius", pull)
    return min(
        score_cover(share * eps / pull) + value_cover((1 - share) * eps / lipschitz_out)
        for share in map(float, _SHARES)
    )


@checked_arguments
def heads_cover(
    heads: Sequence[HeadNorms],
    *,
    radius: float = 1.0,
    positions: float = 0.0,
    lipschitz: float = 1.0,
    softmax: float = SOFTMAX,
    readout: float = 1.0,
    as_printed: Printed | bool = False,
) -> Cover:
    """The sum of heads sigma(W_V' X' softmax(X W_QK' x_tau)) without W_C: Cor 4.4 for one, A.12 for several.

    ``positions``, B_P of A.11, is added to the radius B_X. For vectors of at most that norm the order is

        (d L_sigma B_X)^2 [sum over heads of (B_V^inf)^(2/3) + (2 B_QK^inf B_V B_X^2)^(2/3)]^3

    ``readout``, B_w of F_scalar, is the norm of a fixed w that reads the head: its class is covered at eps where that
    of the head is at eps / B_w.

    For the second term the paper prints B_QK B_V in Cor 4.4 (``as_printed="4.4"``, or True), that times B_X in its
    proof, 2 times that in A.11, and 2 B_QK B_V in A.12.

    >>> from flipscope.bounds.covering import MatrixNorms
    >>> one = MatrixNorms(64, 1.0, 1.0, 64.0)
    >>> round(heads_cover([HeadNorms(one, one)]).order(1.0, 10_100), 3)
    654177.817
    >>> round(heads_cover([HeadNorms(one, one)], radius=2**0.5).order(1.0, 10_100), 3)
    3293852.155
    """
    if not heads:
        raise InputError("no head was given: give the norms of at least one")
    reach, read = radius + positions, safe_log(check_positive("readout", readout))
    passed = {
        False: checked_softmax(softmax) * reach**2,
        "4.4": 1.0,
        "proof of 4.4": reach,
        "A.11": 2 * reach,
        "A.12": 2.0,
    }
    version: Printed = "4.4" if as_printed is True else as_printed
    if version not in passed:
        raise InputError(f"as_printed={as_printed!r} is not one of 4.4, proof of 4.4, A.11, A.12")
    maps = []
    for number, head in enumerate(heads, 1):
        pulled = safe_log(lipschitz) + safe_log(head.value.spectral) + safe_log(passed[version])
        maps.append(Map(f"W_V of head {number}", head.value, safe_log(reach), safe_log(lipschitz) + read))
        maps.append(Map(f"W_Q W_K' of head {number}", head.score, safe_log(reach), pulled + read))
    largest = readout * lipschitz * reach * sum(head.value.spectral for head in heads)
    return Cover(tuple(maps), safe_log(largest))


# ---------------------------------------------------------------- deep networks (§ 4.3)  An error of layer i passes
# through the layers after it, each of which amplifies it by at most Lambda_j, and then w:  Lambda_j = sum over heads of
# L_sigma B_C B_V (1 + 2 C r_j^2 B_QK),      alpha_i = product of Lambda_j, j > i eps = B_w sum_i alpha_i sum over heads
# of (x_C + L_sigma B_C (C r_i^2 B_V x_QK + x_V)) + x_w  r_1 is B_X, r_i is 1 after a projection on the unit ball, and
# inputs of W_C have norm L_sigma. With C = 2, B_X = 1 and one head the order is  B_w^2 (1 + sum_i alpha_i^(2/3) [(d L
# B_C^inf)^(2/3) + (2 d L B_C B_V B_QK^inf)^(2/3) + (k L B_C B_V^inf)^(2/3)])^3  where L is L_sigma. The paper prints
# the product over j < i, B_w at the first term only, and inputs of W_C of norm 1. So Lambda is 5 where all norms are 1,
# and the bound grows as 25^L: norms of at most 1 do not avoid that.  Beyond the paper: without projections r_i grows
# from layer to layer, the class being cut off at what its functions never exceed; an MLP before w is one more sequence
# of maps, of [W b] on (x, 1); and T positions that are trained are covered one by one, which costs T d ln(1 + 2 B_P /
# x_P).


@checked_arguments
def network_cover(norms: NetworkNorms, *, softmax: float = SOFTMAX, as_printed: bool = False) -> Cover:
    """Thm A.17: the cover of all networks of at most these norms; ``as_printed`` is the printed one.

    >>> unit = [network_cover(NetworkNorms.uniform(layers, 64)).log_order() for layers in (1, 2, 3, 4)]
    >>> [round(math.exp(order - unit[0])) for order in unit]
    [1, 58, 1851, 50037]
    """
    radii = [1.0] * (len(norms.layers) + 1) if as_printed else _radii(norms)
    factors = [
        safe_log(layer_factor(heads, norms.lipschitz, radius, softmax))
        for heads, radius in zip(norms.layers, radii, strict=False)
    ]
    alphas = log_amplifications(factors, as_printed=as_printed)
    after, reads = _mlp(norms, radii[-1])  # ln of the factor after the last layer, and the maps there
    weight = 0.0 if as_printed else safe_log(norms.readout) + after
    maps = []
    for number, (heads, radius, alpha) in enumerate(zip(norms.layers, radii, alphas, strict=False), 1):
        for place, head in enumerate(heads, 1):
            name = f"layer {number}, head {place}: "
            mix = 1.0 if head.mix is None else head.mix.spectral
            passed = weight + float(alpha) + safe_log(norms.lipschitz) + safe_log(mix)
            score = passed + safe_log(softmax) + safe_log(head.value.spectral) + 2 * safe_log(radius)
            if head.mix is not None:
                inner = 1.0 if norms.normalised or as_printed else head.value.spectral * radius
                seen = inner * (1.0 if as_printed else norms.lipschitz)
                maps.append(Map(f"{name}W_C", head.mix, safe_log(seen), weight + float(alpha)))
            maps.append(Map(f"{name}W_Q W_K'", head.score, safe_log(radius), score))
            maps.append(Map(f"{name}W_V", head.value, safe_log(radius), passed))
    net = None
    if norms.trained_positions is not None and not as_printed:
        net = Net(*norms.trained_positions, weight + float(alphas[0]) + factors[0])
    return Cover((*maps, *reads), reads[-1].log_radius + safe_log(norms.readout), net)


@checked_arguments
def layer_factor(
    heads: Sequence[HeadNorms], lipschitz: float = 1.0, radius: float = 1.0, softmax: float = SOFTMAX
) -> float:
    """Lambda: the largest factor by which a layer amplifies an error of its input.

    >>> layer_factor(NetworkNorms.uniform(1, 8).layers[0])
    5.0
    """
    return lipschitz * sum(
        (1.0 if head.mix is None else head.mix.spectral)
        * input_factor(head.value.spectral, head.score.spectral, radius=radius, softmax=softmax)
        for head in heads
    )


@checked_arguments
def simple_capacity(
    layers: int,
    width: int,
    eps: float,
    count: int,
    *,
    spectral: float = 1.0,
    largest: float = 1.0,
    readout: float = 1.0,
    radius: float = 1.0,
    lipschitz: float = 1.0,
    as_printed: bool = False,
) -> float:
    """Thm 4.6: the order of Thm A.17 where all spectral norms are C_2 and all rows have norm C_inf.

    ``as_printed`` is (C_2 L_sigma)^(2 L) (d B_X B_w C_inf / eps)^2 ln N, with 2 L for the exponent O(L).

    >>> simple_capacity(4, 64, 1.0, 10_100, as_printed=True) == simple_capacity(1, 64, 1.0, 10_100, as_printed=True)
    True
    """
    check_count("layers", layers)
    if as_printed:
        power = 2 * layers * (safe_log(spectral) + safe_log(lipschitz))
        factor = (width * radius * readout * largest / check_positive("eps", eps)) ** 2 * math.log(count)
        return safe_exp(power + safe_log(factor))
    norms = NetworkNorms.uniform(
        layers, width, spectral=spectral, largest=largest, readout=readout, radius=radius, lipschitz=lipschitz
    )
    return network_cover(norms).order(eps, count)


def _radii(norms: NetworkNorms) -> list[float]:
    """The largest norm of a row before each layer and after the last."""
    radii = [norms.radius]
    for heads in norms.layers:
        most = norms.lipschitz * sum(
            (1.0 if head.mix is None else head.mix.spectral) * head.value.spectral * radii[-1] for head in heads
        )
        radii.append(1.0 if norms.normalised else most)
    return radii


def _mlp(norms: NetworkNorms, radius: float) -> tuple[float, list[Map]]:
    """ln of the product of the MLP's spectral norms, and its maps with that of w, which comes last."""
    later = np.cumsum([safe_log(each.spectral) for each in norms.mlp][::-1])[::-1]
    maps = []
    for number, each in enumerate(norms.mlp):
        rest = float(later[number + 1]) if number + 1 < len(norms.mlp) else 0.0
        seen = math.hypot(radius, 1.0)
        maps.append(Map(f"MLP layer {number + 1}", each, safe_log(seen), safe_log(norms.readout) + rest, once=True))
        radius = each.spectral * seen
    readout = MatrixNorms(1, norms.readout, norms.readout, norms.readout)
    return (float(later[0]) if norms.mlp else 0.0), [*maps, Map("w", readout, safe_log(radius), 0.0, once=True)]
