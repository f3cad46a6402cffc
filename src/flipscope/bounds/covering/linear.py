"""Covers of linear maps, with constants: Lem A.10 (Zhang's theorem) and 4.5 of paper 003, and how errors share (A.8).

ln N is the natural logarithm of the least number of functions of which, on N given vectors, one is within eps of each
function of the class. Rows are those of the matrix A of x -> A x, B_inf the largest and B_1 the sum of their l2 norms:

    a row:       ln N <= 36 r^2 ln(2 ceil(4 r + 2) N + 1),                     r = B_1 B_2 / eps                (A.10)
    d_2 rows:    d_2 times a row of norm B_inf at eps / sqrt(d_2)                                               (4.5)
    or by B_1:   ln N <= 144 r^2 ln(2 ceil(8 r + 2) N + 1) + 2 d_2 ln 2,       r = B_1 B_X / eps                (4.5')

For (4.5') row i has norm at most B_1 (k_i + 1) / d_2 with k_i = floor(d_2 ||row i|| / B_1), which sum to d_2 at most,
and is covered at eps sqrt((k_i + 1) / 2 d_2); there are fewer than 4^d_2 such k. The printed proof has B_inf for B_1 in
k_i, which can sum to d_2^2.

Capacities of deep networks are beyond floats, so that everything has a form in logarithms: `log_` gives ln ln N.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import as_numbers
from flipscope.basics.checks import check_count, check_not_negative, check_positive
from flipscope.basics.errors import InputError

Form = Literal["rows", "sums", "best"]  # (4.5), (4.5'), or the least of these and a mixture of both
FORMS: tuple[Form, ...] = ("rows", "sums", "best")
ROW, SUM = 36.0, 144.0  # the constants of A.10 and (4.5')
Logs = NDArray[np.float64]

_LARGE = 34.0  # from which on ceil(r) is r in floats


@checked_arguments
def linear_cover(norm: float, radius: float, eps: float, count: int, *, as_printed: bool = False) -> float:
    """A.10: ln N of x -> v.x, ||v|| <= norm, at distance eps on ``count`` vectors of length at most ``radius``.

    ``as_printed`` is the form of section 2, with constant 1, which bounds N and not ln N: its logarithm is returned.

    >>> round(linear_cover(1.0, 1.0, 1.0, 10_000), 3)
    421.029
    """
    log_ratio = _log_ratio(norm, radius, eps)
    log_count = math.log(check_count("count", count))
    if as_printed:
        inner = log_ratio + log_count
        return 2 * log_ratio + math.log(inner) if inner > 0 else -math.inf
    return expm(log_row_cover(log_ratio, log_count).item())


@checked_arguments
def matrix_cover(
    outputs: int,
    radius: float,
    eps: float,
    count: int,
    *,
    largest: float | None = None,
    total: float | None = None,
    as_printed: bool = False,
) -> float:
    """Lem 4.5: ln N of x -> A x, at l2 distance eps on ``count`` vectors; A has ``outputs`` rows.

    With ``largest``, B_inf, it is (4.5), with ``total``, B_1, (4.5'). ``as_printed`` has 1 for all constants:
    (d_2 B_inf B_X / eps)^2 ln N, and with both norms the sharper d_2 B_inf B_1 (B_X / eps)^2 ln N of its remark.

    >>> round(matrix_cover(64, 1.0, 1.0, 10_000, largest=1.0), 3)
    1980311.895
    >>> matrix_cover(64, 1.0, 1.0, 10_000, total=1.0) < 3_000
    True
    """
    check_count("outputs", outputs)
    log_count = math.log(check_count("count", count))
    if (largest is None) == (total is None) and not (as_printed and total is not None):
        raise InputError("a cover of a matrix takes either the largest norm of a row or the sum of all: give one")
    if as_printed:
        if largest is None:
            raise InputError("the printed form of Lem 4.5 takes the largest norm of a row: give it")
        other = outputs * largest if total is None else total
        return outputs * largest * other * (radius / check_positive("eps", eps)) ** 2 * log_count
    if largest is not None:
        return expm(log_matrix_cover("rows", outputs, _log_ratio(largest, radius, eps), log_count).item())
    assert total is not None
    return expm(log_matrix_cover("sums", outputs, _log_ratio(total, radius, eps), log_count).item())


@checked_arguments
def split_error(alphas: ArrayLike, betas: ArrayLike, total: float) -> tuple[float, Logs]:
    """A.8: the least sum of alpha_i / x_i^2 with sum of beta_i x_i = total, and the x_i it takes; all positive.

    >>> least, x = split_error([1.0, 8.0], [1.0, 1.0], 3.0)
    >>> round(least, 9), x.round(9).tolist()
    (3.0, [1.0, 2.0])
    """
    first, second = (as_numbers(each, "alphas and betas") for each in (alphas, betas))
    if not first.size or first.shape != second.shape or not ((first > 0).all() and (second > 0).all()):
        raise InputError("alphas and betas must be as many positive numbers: leave out what is 0")
    log_least, log_parts = log_split(np.log(first), np.log(second), math.log(check_positive("total", total)))
    return expm(float(log_least)), np.exp(log_parts)


# ---------------------------------------------------------------- in logarithms


def log_row_cover(log_ratio: ArrayLike, log_count: ArrayLike) -> Logs:
    """ln of the right side of A.10 from ln r and ln N; -inf where r is 0."""
    ratio = np.asarray(log_ratio, np.float64)
    return np.asarray(math.log(ROW) + 2 * ratio + np.log(_counted(ratio, 4.0, log_count)))


def log_matrix_cover(form: Form, outputs: int, log_ratio: ArrayLike, log_count: ArrayLike) -> Logs:
    """ln of the right side of Lem 4.5 from ln r and ln N, where r has B_inf for "rows" and B_1 for "sums"."""
    ratio = np.asarray(log_ratio, np.float64)
    if form == "rows":
        return np.asarray(math.log(outputs) + log_row_cover(ratio + math.log(outputs) / 2, log_count))
    main = math.log(SUM) + 2 * ratio + np.log(_counted(ratio, 8.0, log_count))
    return np.asarray(np.logaddexp(main, math.log(2 * outputs * math.log(2))))


def log_split(log_alphas: Logs, log_betas: Logs, log_total: ArrayLike) -> tuple[Logs, Logs]:
    """A.8 in logarithms: ln of the least sum, and of the x_i along a first axis."""
    gamma = np.logaddexp.reduce(log_alphas / 3 + 2 * log_betas / 3)
    total = np.asarray(log_total, np.float64)
    ratios = (log_alphas - log_betas).reshape(-1, *[1] * total.ndim) / 3
    return np.asarray(3 * gamma - 2 * total), total - gamma + ratios


def expm(log: float) -> float:
    """exp, infinite where floats end."""
    return math.exp(log) if log < 709 else math.inf


def _counted(log_ratio: Logs, factor: float, log_count: ArrayLike) -> Logs:
    """ln(2 ceil(factor r + 2) N + 1)."""
    # A whole number that comes out of logarithms a little larger is still that number.
    small = np.log(np.ceil((factor * np.exp(np.minimum(log_ratio, _LARGE)) + 2) * (1 - 1e-12)))
    pieces = np.where(log_ratio < _LARGE, small, math.log(factor) + log_ratio)
    return np.asarray(np.logaddexp(math.log(2) + pieces + np.asarray(log_count), 0.0))


def _log_ratio(norm: float, radius: float, eps: float) -> float:
    check_positive("eps", eps)
    for name, value in (("norm", norm), ("radius", radius)):
        check_not_negative(name, value)
    product = norm * radius / eps
    return math.log(product) if product else -math.inf
