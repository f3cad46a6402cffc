"""Upper bounds for the Fourier construction of sparsity omega and degree D on T bits: L, G_u and P.

L(omega, D, T)         its squared norm ||Theta||^2 (Thm 10)
G_u(omega, D)          its squared gradient |grad f|^2 (Thms 5, 13 and 14)
P(sigma; omega, D, T)  the increase of the trace of the loss's Hessian by a perturbation (Thm 17)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count, check_probability
from flipscope.basics.errors import InputError
from flipscope.bounds.pac_bayes.inequalities import check_sigma

LONGEST = 10**9  # the longest strings that are accepted


def check_class(sparsity: int, degree: int, length: int | None = None) -> None:
    """Raise InputError unless there are functions of this sparsity and degree on strings of this length."""
    check_count("sparsity", sparsity)
    check_count("degree", degree)
    if length is None:
        return
    if check_count("length", length, 2) > LONGEST:
        raise InputError(f"length must be at most {LONGEST:,}: give shorter strings")
    if degree > length:
        raise InputError(f"degree={degree} is more than length={length}: a set has no more positions than there are")
    if sparsity > length:
        raise InputError(
            f"sparsity={sparsity} is more than length={length}: the construction has one position for each set"
        )
    if degree == length and sparsity > 1:  # else there are at least as many sets as positions
        raise InputError(f"sparsity={sparsity} is too large: there is one set of {degree} in {length} positions")


# ---------------------------------------------------------------- L: squared norms


class NormBlocks(dict[str, float]):
    """Squared norms by parameter, and the degree and length of the class they are of.

    >>> norm_blocks(10, 2, 20).degree, norm_blocks(10, 2, 20).length
    (2, 20)
    """

    def __init__(self, norms: dict[str, float], degree: int, length: int) -> None:
        super().__init__(norms)
        self.degree = degree
        self.length = length


@checked_arguments
def norm_blocks(sparsity: int, degree: int, length: int) -> NormBlocks:
    """The squared norm of each parameter of `flipscope.models.FourierNetwork`, bounded.

    The coefficients are to be positive, of norm 1 and at least T^-4. ||b||^2 is at most 4(D+1) in all, although its
    largest entry is 1 + 3/4D and not 1, as the paper has it.

    >>> norm_blocks(10, 2, 20)["down"]
    192.0
    """
    check_class(sparsity, degree, length)
    log = math.log(length)
    norms = {
        "query_key": 4 * sparsity * degree * log**2,
        "value": 1.0,
        "up": 4.0 * (degree + 1),
        "bias": 4.0 * (degree + 1),
        "down": 16.0 * degree**2 * (degree + 1),
        "read_query_key": 4 * sparsity * log**2,
        "read_value": float(sparsity),
    }
    return NormBlocks(norms, degree, length)


@checked_arguments
def norm_bound(sparsity: int, degree: int, length: int) -> float:
    """L(omega, D, T) = 16 D^2 (D+1) + 8 (D+1) + 1 + omega + 4 omega (D+1) log^2 T (Thm 10).

    >>> round(norm_bound(10, 2, 20), 3)
    1303.929
    """
    return math.fsum(norm_blocks(sparsity, degree, length).values())


@checked_arguments
def steps_norm_bound(length: int) -> float:
    """An upper bound on ||Theta||^2 of the network with steps (App. G): 218 + 8 T log^2 T, D being 2.

    The paper takes L(1, 2, T). But attention between equal codes needs T entries in both query-key matrices, not one:
    from T = 5 on the network that App. G describes has a larger norm than L(1, 2, T).

    >>> steps_norm_bound(20) > norm_bound(1, 2, 20)
    True
    """
    blocks = norm_blocks(1, 2, length)
    same = 4 * length * math.log(length) ** 2
    return math.fsum({**blocks, "query_key": same, "read_query_key": same}.values())


@checked_arguments
def older_norm(sparsity: int, degree: int, length: int) -> float:
    """The square root that the authors' plots have instead of L, from an older construction with an attention sink.

    Fig 1 seems to be drawn with it: it makes the truncated bound 0.361 instead of 1.186 at omega = 10, D = 2, T = 20
    and 8192 samples.

    >>> round(older_norm(10, 2, 20), 3)
    36.74
    """
    check_class(sparsity, degree, length)
    sink = 4 * math.log(length) ** 2 * (sparsity * degree + length + 1 - sparsity)
    return math.sqrt(21 + 16 * degree**2 * (degree + 1) + 8 * (degree + 1) + sink)


# ---------------------------------------------------------------- G_u: squared gradients


@checked_arguments
def gradient_bound(sparsity: int, degree: int) -> int:
    """G_u = 4 + 4 omega (2 + D + 32 D^2 + 32 D^3); the trace of the Hessian of the loss is at most 2 G_u (Thm 5).

    The paper leaves out how the logits of the second layer depend on the rows of F that are 0. Measured gradients, with
    mask=0, are nevertheless below G_u by a factor of 4 or more.

    >>> gradient_bound(10, 2)
    15524
    """
    check_class(sparsity, degree)
    return 4 + 4 * sparsity * (2 + degree + 32 * degree**2 + 32 * degree**3)


@checked_arguments
def gradient_blocks(sparsity: int, degree: int) -> dict[str, int]:
    """The squared gradient of each parameter of `flipscope.models.FourierNetwork`, bounded as its formulas say.

    With respect to the first layer's attention it is 0, since the MLP is flat around every k/D. Sums of positions that
    stand for no set are left out, as in `gradient_bound`.

    >>> sum(gradient_blocks(10, 2).values())
    4042
    """
    check_class(sparsity, degree)
    mlp = 16 * sparsity * degree**2 * (degree + 1)
    return {
        "query_key": 0,
        "value": 0,
        "up": mlp,
        "bias": mlp,
        "down": 4 * sparsity * (degree + 1),
        "read_query_key": 8 * sparsity,
        "read_value": 2,
    }


@checked_arguments
def gradient_sum(sparsity: int, degree: int) -> int:
    """The same as one number: 2 + 12 omega + 4 omega D + 32 omega D^2 (D+1), tighter than G_u.

    >>> gradient_sum(10, 2)
    4042
    """
    return sum(gradient_blocks(sparsity, degree).values())


# ---------------------------------------------------------------- P: perturbed traces
#
# From Tr Hess L = 2 |grad f|^2 + 2 (f - y) Tr Hess f follows P = 2 G_p (2 sqrt(G_u) + G_p) + |Theta| T_p (H_u + H_p),
# with G_p for the gradient (Thm 30), T_p for the output (Thm 24), H_u and H_p for the Hessian of f (Thms 18 and 31) and
# |Theta| parameters. The constants are those of the authors' notebook; the printed ones are not known. A strict
# derivation has twice the last term, and two terms of G_p lack a sigma: `strict` and `mend` put that right.


@dataclass(frozen=True)
class Perturbation:
    """P and its parts."""

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
    """The largest sigma at which no neuron flips at a position of a set, except with probability `failure`.

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
    check_probability("failure", failure)
    others = length + 1 - degree
    room = 1 / (4 * degree) - others / (degree * length**2 + others)
    if room <= 0:
        return 0.0
    square = 2 * length + 8
    g = (math.sqrt(64 + 4 * square * room) - 8) / (2 * square)
    d = length + 2
    count = 2 * d**2 + 4 * (degree + 1) * (d + 1)
    return g / math.sqrt(2 * math.log(2 * count / failure))
