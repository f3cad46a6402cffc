"""What a change of weights or of the input changes of attention: Cor A.7, Lem 4.3 and A.13-A.16 of paper 003.

Each function is the right side of an inequality. The paper's constant of softmax is C = 2:

    ||softmax(a) - softmax(b)||_1 <= C ||a - b||_inf

C = 1 holds, too, and is sharp: the Jacobian takes h to p_i (h_i - p.h), and the l1 norm of that is the mean absolute
deviation of h under p, which is 1 at most where ||h||_inf is. Rows of Z have norms up to r, which is 1 in the paper;
with other radii C r^2 stands where it has C.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.bounds.covering.linear import Logs

SOFTMAX = 2.0  # Cor A.7
SHARP_SOFTMAX = 1.0


@checked_arguments
def softmax_change(logit_change: float, softmax: float = SOFTMAX) -> float:
    """A.7: what the l1 norm of the change of attention weights cannot exceed, from the largest change of a logit.

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
    """Lem 4.3: what a general head's output cannot move by more than, in l2.

    ``score_change`` is the largest change of a score, ``value_change`` the largest l2 norm of the change of phi_in at a
    position: the norm is over columns of the transpose, which the print leaves out.

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
    """A.14: ||W_V|| (1 + 2 C r^2 ||W_Q W_K'||), by which attention makes a change of its input larger at most.

    >>> input_factor(1.0, 1.0), input_factor(1.0, 1.0, softmax=1.0)
    (5.0, 3.0)
    """
    return value_norm * (1 + 2 * checked_softmax(softmax) * radius**2 * score_norm)


@dataclass(frozen=True)
class LayerChange:
    """How much the matrices of a head move what they are applied to: the largest ||(W - its change)' z|| over rows."""

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
    """A.15: what a layer's output cannot move by more than, at any row; over several heads it adds up.

    >>> layer_change(LayerChange(mix=0.1), 1.0, mix_norm=1.0, value_norm=1.0, score_norm=1.0)
    5.1
    """
    inner = attention_change(value_norm, change.score, change.value, radius=radius, softmax=softmax)
    carried = input_factor(value_norm, score_norm, radius=radius, softmax=softmax) * input_change
    return change.mix + lipschitz * mix_norm * (inner + carried)


@checked_arguments
def readout_change(readout_norm: float, state_change: float, own_change: float) -> float:
    """A.16: ||w|| times the change of [CLS], and that of w at it.

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
    """The constant of softmax, after making sure that it is one that holds."""
    if not (math.isfinite(softmax) and softmax >= SHARP_SOFTMAX):
        raise InputError(f"softmax={softmax} is no Lipschitz constant of softmax: give 2, the paper's, or 1")
    return float(softmax)
