"""Covering numbers of linear maps, with constants, and of networks composed of such maps.

ln N is the natural logarithm of the least number of functions of which, on N given vectors, one is within eps of each
function of the class. For x -> A x rows are those of A, B_inf is the largest and B_1 the sum of their l2 norms:

    a row:       ln N <= 36 r^2 ln(2 ceil(4 r + 2) N + 1),                     r = B_1 B_2 / eps                (A.10)
    d_2 rows:    d_2 times a row of norm B_inf at eps / sqrt(d_2)                                               (4.5)
    or by B_1:   ln N <= 144 r^2 ln(2 ceil(8 r + 2) N + 1) + 2 d_2 ln 2,       r = B_1 B_X / eps                (4.5')

(A.10) is Zhang's theorem. For (4.5') row i has norm at most B_1 (k_i + 1) / d_2 with k_i = floor(d_2 ||row i|| / B_1),
which sum to d_2 at most, and is covered at eps sqrt((k_i + 1) / 2 d_2); there are fewer than 4^d_2 such k. The printed
proof has B_inf for B_1 in k_i, which can sum to d_2^2.

A network is covered map by map. If map i is covered at distance x_i and its error reaches the output multiplied by
beta_i, the whole is covered at eps = sum of beta_i x_i, and ln N is the sum of those of the maps; A.8 shares eps among
them. Cor 4.4, Lem A.11 and A.12, Thm A.17 and 4.6 differ in their maps only (`attention`).

Capacities of deep networks are beyond floats, so that everything has a form in logarithms: `log_` gives ln ln N.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import as_numbers
from flipscope.basics.checks import check_count, check_not_negative, check_positive
from flipscope.basics.errors import InputError
from flipscope.bounds.covering.norms import MatrixNorms
from flipscope.bounds.numerics import safe_exp, safe_log

Form = Literal["rows", "sums", "best"]  # (4.5), (4.5'), or the least of these and a mixture of both
FORMS: tuple[Form, ...] = ("rows", "sums", "best")
ROW, SUM = 36.0, 144.0  # the constants of A.10 and (4.5')
Logs = NDArray[np.float64]

NET_SHARE = 0.05  # of eps, for positions that are trained: their part of ln N hardly depends on it
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
    return safe_exp(log_row_cover(log_ratio, log_count).item())


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
        return safe_exp(log_matrix_cover("rows", outputs, _log_ratio(largest, radius, eps), log_count).item())
    assert total is not None
    return safe_exp(log_matrix_cover("sums", outputs, _log_ratio(total, radius, eps), log_count).item())


@checked_arguments
def split_error(alphas: ArrayLike, betas: ArrayLike, total: float) -> tuple[float, Logs]:
    """A.8: the least sum of alpha_i / x_i^2 with sum of beta_i x_i = total, and the x_i it takes; all positive.

    >>> least, x = split_error([1.0, 8.0], [1.0, 1.0], 3.0)
    >>> round(least, 9), x.round(9).tolist()
    (3.0, [1.0, 2.0])
    """
    first, second = (as_numbers(each, "alphas and betas") for each in (alphas, betas))
    if not first.size or first.shape != second.shape or not ((first > 0).all() and (second > 0).all()):
        raise InputError("alphas and betas must be positive numbers, one of each per term: leave out terms that are 0")
    log_least, log_parts = log_split(np.log(first), np.log(second), math.log(check_positive("total", total)))
    return safe_exp(float(log_least)), np.exp(log_parts)


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


def _counted(log_ratio: Logs, factor: float, log_count: ArrayLike) -> Logs:
    """ln(2 ceil(factor r + 2) N + 1)."""
    # Rounding of logarithms must not turn a whole number into the next one.
    small = np.log(np.ceil((factor * np.exp(np.minimum(log_ratio, _LARGE)) + 2) * (1 - 1e-12)))
    pieces = np.where(log_ratio < _LARGE, small, math.log(factor) + log_ratio)
    return np.asarray(np.logaddexp(math.log(2) + pieces + np.asarray(log_count), 0.0))


def _log_ratio(norm: float, radius: float, eps: float) -> float:
    check_positive("eps", eps)
    for name, value in (("norm", norm), ("radius", radius)):
        check_not_negative(name, value)
    product = norm * radius / eps
    return safe_log(product)


# ---------------------------------------------------------------- networks: a list of linear maps


@dataclass(frozen=True)
class Map:
    """A linear map that is covered."""

    what: str
    norms: MatrixNorms
    log_radius: float  # ln of the largest norm of the vectors it is applied to
    log_weight: float  # ln beta: the factor by which its error reaches the output
    once: bool = False  # applied to one vector per string, and not to T + 1

    def log_norm(self, form: Form) -> float:
        """ln of d_2 B_inf B_X for "rows", of B_1 B_X for "sums", constants left out."""
        norm = self.norms.outputs * self.norms.largest if form == "rows" else self.norms.total
        return safe_log(norm) + self.log_radius

    def log_alpha(self, form: Form) -> float:
        """ln alpha: its ln N is alpha / x^2 at distance x, but for a logarithm of x."""
        return math.log(ROW if form == "rows" else SUM) + 2 * self.log_norm(form)

    def log_size(self, form: Form, log_distance: ArrayLike, log_samples: float, log_vectors: float) -> Logs:
        """ln ln N at these distances, by Lem 4.5."""
        norm = self.norms.largest if form == "rows" else self.norms.total
        count = log_samples if self.once else log_vectors
        return log_matrix_cover(
            form, self.norms.outputs, safe_log(norm) + self.log_radius - np.asarray(log_distance), count
        )


@dataclass(frozen=True)
class Net:
    """Vectors that are covered one by one, each by (1 + 2 B / x)^d balls of radius x in d dimensions."""

    vectors: int
    width: int
    radius: float
    log_weight: float


@dataclass(frozen=True)
class Cover:
    """The maps that are covered, and the largest absolute value A of the class's functions."""

    maps: tuple[Map, ...]
    log_largest: float
    net: Net | None = None

    @property
    def largest(self) -> float:
        """A: the largest absolute value of the class's functions."""
        return safe_exp(self.log_largest)

    def log_order(self, form: Form = "rows") -> float:
        """ln of the paper's order: ln N "<~" order ln(m (T + 1)) / eps^2, with 1 for the constant that "<~" hides."""
        if not self.maps:
            return -math.inf
        return min(
            3 * float(np.logaddexp.reduce([(each.log_norm(kind) + each.log_weight) * 2 / 3 for each, kind in choice]))
            for choice in _ways(self.maps, form)
        )

    def order(self, eps: float, count: int, form: Form = "rows") -> float:
        """The paper's order at eps for ``count`` vectors in all: no bound, since constants are left out."""
        factor = math.log(check_count("count", count)) / check_positive("eps", eps) ** 2
        return safe_exp(self.log_order(form) + safe_log(factor))

    def log_size(self, log_eps: ArrayLike, log_samples: float, length: int, form: Form = "best") -> Logs:
        """ln ln N at distance eps on that many strings of this length, with all constants: a bound."""
        eps = np.asarray(log_eps, np.float64)
        log_vectors = log_samples + math.log(length + 1)
        net_size = np.full(eps.shape, -np.inf)
        maps = [each for each in self.maps if each.log_norm("sums") + each.log_weight > -math.inf]
        share = 0.0
        if self.net is not None and self.net.radius:
            share = math.log1p(-NET_SHARE)
            ratio = math.log(2 * self.net.radius) + self.net.log_weight - math.log(NET_SHARE) - eps
            net_size = math.log(self.net.vectors * self.net.width) + np.log(np.logaddexp(0.0, ratio))
        if not maps:
            return np.asarray(net_size)
        betas = np.array([each.log_weight for each in maps])
        sizes = []
        for choice in _ways(maps, form):
            _, distances = log_split(np.array([each.log_alpha(kind) for each, kind in choice]), betas, eps + share)
            parts = [
                each.log_size(kind, distance, log_samples, log_vectors)
                for (each, kind), distance in zip(choice, distances, strict=True)
            ]
            sizes.append(np.logaddexp.reduce([net_size, *parts]))
        return np.asarray(np.min(sizes, axis=0))

    def size(self, eps: float, samples: int, length: int, form: Form = "best") -> float:
        """ln N at distance eps; infinite where floats end."""
        log_samples = math.log(check_count("samples", samples))
        log_size = self.log_size(math.log(check_positive("eps", eps)), log_samples, check_count("length", length), form)
        return safe_exp(log_size.item())


def _ways(maps: Sequence[Map], form: Form) -> list[list[tuple[Map, Form]]]:
    """The choices of a form for each map, of which the one with the smallest result counts.

    Taking the better form for each map is best up to logarithms, and may be slightly worse than one form for all.
    """
    if form not in FORMS:
        raise InputError(f"form={form!r} is not one of {', '.join(FORMS)}")
    if form != "best":
        return [[(each, form) for each in maps]]
    mixed: list[tuple[Map, Form]] = [
        (each, "rows" if each.log_alpha("rows") <= each.log_alpha("sums") else "sums") for each in maps
    ]
    return [mixed, *_ways(maps, "rows"), *_ways(maps, "sums")]
