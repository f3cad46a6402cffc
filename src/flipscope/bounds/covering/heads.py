"""Attention heads: Thm 4.2 for any cover of scores and values, and Cor 4.4, Lem A.11 and A.12 for softmax attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_positive
from flipscope.basics.errors import InputError
from flipscope.bounds.covering.changes import SOFTMAX, checked_softmax
from flipscope.bounds.covering.covers import Cover, Map, log
from flipscope.bounds.covering.norms import HeadNorms

Printed = Literal[False, "4.4", "proof of 4.4", "A.11", "A.12"]

_SHARES = 1 / (1 + np.exp(-np.linspace(-12, 12, 481)))  # of eps, for the scores; each gives a bound


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

    Of the second term the print has B_QK B_V in Cor 4.4 (``as_printed="4.4"``, or True), that times B_X in its proof, 2
    times that in A.11, and 2 B_QK B_V in A.12.

    >>> from flipscope.bounds.covering import MatrixNorms
    >>> one = MatrixNorms(64, 1.0, 1.0, 64.0)
    >>> round(heads_cover([HeadNorms(one, one)]).order(1.0, 10_100), 3)
    654177.817
    >>> round(heads_cover([HeadNorms(one, one)], radius=2**0.5).order(1.0, 10_100), 3)
    3293852.155
    """
    if not heads:
        raise InputError("no head was given: give the norms of at least one")
    reach, read = radius + positions, log(check_positive("readout", readout))
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
        pulled = log(lipschitz) + log(head.value.spectral) + log(passed[version])
        maps.append(Map(f"W_V of head {number}", head.value, log(reach), log(lipschitz) + read))
        maps.append(Map(f"W_Q W_K' of head {number}", head.score, log(reach), pulled + read))
    largest = readout * lipschitz * reach * sum(head.value.spectral for head in heads)
    return Cover(tuple(maps), log(largest))
