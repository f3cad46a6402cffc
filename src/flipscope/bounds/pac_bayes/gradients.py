"""G_u(omega, D): what |grad f|^2 of the Fourier construction cannot exceed (Thms 5, 13 and 14)."""

from __future__ import annotations

from flipscope.basics.arguments import checked_arguments
from flipscope.bounds.pac_bayes.checks import check_class


@checked_arguments
def gradient_bound(sparsity: int, degree: int) -> int:
    """G_u = 4 + 4 omega (2 + D + 32 D^2 + 32 D^3); the trace of the Hessian of the loss is at most 2 G_u (Thm 5).

    The paper leaves out how the logits of the second layer depend on the rows of F that are 0. What is measured, with
    mask=0, is below G_u by a factor of 4 or more all the same.

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
