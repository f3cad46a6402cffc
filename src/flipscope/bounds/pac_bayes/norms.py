"""L(omega, D, T): what ||Theta||^2 of the Fourier construction cannot exceed (Thm 10), matrix by matrix."""

from __future__ import annotations

import math

from flipscope.basics.arguments import checked_arguments
from flipscope.bounds.pac_bayes.checks import check_class


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
    """What ||Theta||^2 of the network with steps (App. G) cannot exceed: 218 + 8 T log^2 T, D being 2.

    The paper takes L(1, 2, T). But attention between equal codes is T entries in both query-key matrices and not one:
    from T = 5 on the network that App. G describes has a larger norm than L(1, 2, T).

    >>> steps_norm_bound(20) > norm_bound(1, 2, 20)
    True
    """
    blocks = norm_blocks(1, 2, length)
    same = 4 * length * math.log(length) ** 2
    return math.fsum({**blocks, "query_key": same, "read_query_key": same}.values())


@checked_arguments
def older_norm(sparsity: int, degree: int, length: int) -> float:
    """The square root that the authors' plots have in the place of L: of an older construction with an attention sink.

    Fig 1 seems to be drawn with it: it makes the truncated bound 0.361 instead of 1.186 at omega = 10, D = 2, T = 20
    and 8192 samples.

    >>> round(older_norm(10, 2, 20), 3)
    36.74
    """
    check_class(sparsity, degree, length)
    sink = 4 * math.log(length) ** 2 * (sparsity * degree + length + 1 - sparsity)
    return math.sqrt(21 + 16 * degree**2 * (degree + 1) + 8 * (degree + 1) + sink)
