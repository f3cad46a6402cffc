"""P(sigma; omega, D, T): what a perturbation can add to the trace of the loss's Hessian (Thm 17), and how far it holds.

From Tr Hess L = 2 |grad f|^2 + 2 (f - y) Tr Hess f follows P = 2 G_p (2 sqrt(G_u) + G_p) + |Theta| T_p (H_u + H_p),
with G_p for the gradient (Thm 30), T_p for the output (Thm 24), H_u and H_p for the Hessian of f (Thms 18 and 31) and
|Theta| parameters. The constants are those of the authors' notebook; the printed ones are not known. A strict
derivation has twice the last term, and two terms of G_p lack a sigma: `strict` and `mend` put that right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count
from flipscope.bounds.pac_bayes.checks import check_class, check_delta, check_sigma
from flipscope.bounds.pac_bayes.gradients import gradient_bound


@dataclass(frozen=True)
class Perturbation:
    """P and what it is made of."""

    gradient: float  # G_p
    output: float  # T_p
    hessian: float  # H_u
    hessian_change: float  # H_p
    parameters: int
    value: float  # P


@checked_arguments
def perturbation_term(
    sigma: float,
    sparsity: int,
    degree: int,
    length: int,
    *,
    width: int | None = None,
    mend: bool = False,
    strict: bool = False,
) -> Perturbation:
    """P with all its parts; beyond `flip_threshold` its derivation does not hold.

    `width` is d, the coordinates of a token, T + 2 by default. `mend` puts a sigma into the two terms of G_p that have
    none: with them P does not vanish with sigma.

    >>> found = perturbation_term(1e-5, 1, 1, 50)
    >>> 1e-10 * (gradient_bound(1, 1) + found.value)
    0.07327617350512963
    """
    check_sigma("sigma", sigma)
    check_class(sparsity, degree, length)
    d = length + 2 if width is None else check_count("width", width)
    w, D, log = float(sparsity), float(degree), math.log(length)
    root2 = math.sqrt(2)
    missing = sigma if mend else 1.0
    g_p = (
        128 * root2 * sigma * D**2 * w**0.5 * log
        + 192 * sigma * w**0.5 * D**2
        + 128 * root2 * D**2 * w**2 * log * missing
        + 64 * root2 * d * D**2 * w**2 * log * missing
        + 128 * sigma * d * w**2 * D**1.5 * log
        + 1024 * sigma * D**3.5 * w**1.5 * log
        + 8 * sigma * D**0.5 * w**0.5 * log * d
        + 256 * sigma * D**2.5 * w**2 * d
        + 32 * sigma * D**0.5 * w**2 * d**2
    )
    t_p = 128 * sigma * D**2 * w * log + sigma * math.sqrt(2 * d) + 32 * sigma * w**0.5 * D**2
    h_u = (
        8 * (D + 1)
        + 6 * (D + 1) * w**0.5
        + 2 * math.sqrt(3 * length * (D + 1))
        + math.sqrt(48 * length * (D + 1) * D)
        + 3 * D * math.sqrt(12 * length * (D + 1))
        + (8 * root2 + 2) * D * math.sqrt(d * length)
        + 8 * root2 * d * D * w**0.5
        + 6 * root2 * d**1.5 * D
    )
    h_p = sigma * (
        768 * root2 * D**2 * w**1.5 * d * log
        + 256 * w**1.5 * d**2 * D**1.5 * log
        + 1024 * D**3.5 * w**1.5 * log
        + 512 * D**2.5 * w**1.5 * d**2 * log
        + 1536 * D**3.5 * w**2.5 * d**0.5 * log**2
        + 768 * D**2 * w**2.5 * d * log**2
        + 16 * w**2 * d**2.5 * log
    )
    count = notebook_parameters(d, degree)
    last = count * t_p * (h_u + h_p) * (2 if strict else 1)
    value = 2 * g_p * (2 * math.sqrt(gradient_bound(sparsity, degree)) + g_p) + last
    return Perturbation(g_p, t_p, h_u, h_p, count, value)


def notebook_parameters(width: int, degree: int) -> int:
    """|Theta| as the notebook counts: 3 (d+1)^2 + (d+1) + (8d+6)(D+1); its blocks have (8d+12)(D+1).

    >>> notebook_parameters(20, 2)
    1842
    """
    return 3 * (width + 1) ** 2 + (width + 1) + (8 * width + 6) * (degree + 1)


@checked_arguments
def flip_threshold(degree: int, length: int, failure: float = 0.01) -> float:
    """The largest sigma for which, but for a chance of `failure`, no neuron flips at a position that stands for a set.

    Beyond it the condition of Lemma 22 fails, and with it the analytic P. The paper's own number is not known; this one
    is derived anew, for one-hot positions and all strings at once. Let g bound all N Gaussians of W_1, V_1, U and b:
    g = sigma sqrt(2 log(2N / failure)). Logits of the first layer move by 4g at most, its weights by 8g in all, the
    mean of bits by 4g + 2g, the other coordinates by 2g each, and so the input of a neuron by
    g (1 + 6g) + 6g + 2 (T+1) g^2 + g = 8 g + (2T + 8) g^2, which is to stay below the distance of the mean to the end
    of its plateau, 1/4D - (T+1-D) / (D T^2 + T+1-D). Nothing is said of other positions (Remark 23).

    >>> 0.002 < flip_threshold(2, 20) < 0.0025
    True
    """
    check_class(1, degree, length)
    check_delta(failure)
    others = length + 1 - degree
    room = 1 / (4 * degree) - others / (degree * length**2 + others)
    if room <= 0:
        return 0.0
    square = 2 * length + 8
    g = (math.sqrt(64 + 4 * square * room) - 8) / (2 * square)
    d = length + 2
    count = 2 * d**2 + 4 * (degree + 1) * (d + 1)
    return g / math.sqrt(2 * math.log(2 * count / failure))
