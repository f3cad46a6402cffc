"""A cover of a class of networks as the list of linear maps that are covered, each with what its error becomes.

If map i is covered at distance x_i and its error reaches the output multiplied by beta_i, the whole is covered at
eps = sum of beta_i x_i, and ln N is the sum of those of the maps; A.8 shares eps among them. Cor 4.4, Lem A.11 and
A.12, Thm A.17 and 4.6 differ in their maps only (`heads`, `networks`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from flipscope.basics.checks import check_count, check_positive
from flipscope.basics.errors import InputError
from flipscope.bounds.covering.linear import FORMS, ROW, SUM, Form, Logs, expm, log_matrix_cover, log_split
from flipscope.bounds.covering.norms import MatrixNorms

NET_SHARE = 0.05  # of eps, for positions that are trained: their part of ln N hardly depends on it


@dataclass(frozen=True)
class Map:
    """A linear map that is covered."""

    what: str
    norms: MatrixNorms
    log_radius: float  # ln of the largest norm of the vectors it is applied to
    log_weight: float  # ln beta: what one of its error becomes at the output
    once: bool = False  # applied to one vector per string, and not to T + 1

    def log_norm(self, form: Form) -> float:
        """ln of d_2 B_inf B_X for "rows", of B_1 B_X for "sums", constants left out."""
        own = self.norms.outputs * self.norms.largest if form == "rows" else self.norms.total
        return log(own) + self.log_radius

    def log_alpha(self, form: Form) -> float:
        """ln alpha: its ln N is alpha / x^2 at distance x, but for a logarithm of x."""
        return math.log(ROW if form == "rows" else SUM) + 2 * self.log_norm(form)

    def log_size(self, form: Form, log_distance: ArrayLike, log_samples: float, log_vectors: float) -> Logs:
        """ln ln N at these distances, by Lem 4.5."""
        norm = self.norms.largest if form == "rows" else self.norms.total
        count = log_samples if self.once else log_vectors
        return log_matrix_cover(form, self.norms.outputs, log(norm) + self.log_radius - np.asarray(log_distance), count)


@dataclass(frozen=True)
class Net:
    """Vectors of so many coordinates that are covered one by one: (1 + 2 B / x)^d balls of radius x for each."""

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
        """A: no function of the class is larger anywhere."""
        return expm(self.log_largest)

    def log_order(self, form: Form = "rows") -> float:
        """ln of the paper's order: ln N "<~" order ln(m (T + 1)) / eps^2, with constant 1 for what "<~" hides."""
        if not self.maps:
            return -math.inf
        return min(
            3 * float(np.logaddexp.reduce([(each.log_norm(own) + each.log_weight) * 2 / 3 for each, own in taken]))
            for taken in _ways(self.maps, form)
        )

    def order(self, eps: float, count: int, form: Form = "rows") -> float:
        """The paper's order at eps for ``count`` vectors in all: no bound, since constants are left out."""
        factor = math.log(check_count("count", count)) / check_positive("eps", eps) ** 2
        return expm(self.log_order(form) + log(factor))

    def log_size(self, log_eps: ArrayLike, log_samples: float, length: int, form: Form = "best") -> Logs:
        """ln ln N at distance eps on so many strings of this length, with all constants: a bound."""
        eps = np.asarray(log_eps, np.float64)
        log_vectors = log_samples + math.log(length + 1)
        found = np.full(eps.shape, -np.inf)
        maps = [each for each in self.maps if each.log_norm("sums") + each.log_weight > -math.inf]
        share = 0.0
        if self.net is not None and self.net.radius:
            share = math.log1p(-NET_SHARE)
            ratio = math.log(2 * self.net.radius) + self.net.log_weight - math.log(NET_SHARE) - eps
            found = math.log(self.net.vectors * self.net.width) + np.log(np.logaddexp(0.0, ratio))
        if not maps:
            return np.asarray(found)
        betas = np.array([each.log_weight for each in maps])
        sizes = []
        for taken in _ways(maps, form):
            _, distances = log_split(np.array([each.log_alpha(own) for each, own in taken]), betas, eps + share)
            parts = [
                each.log_size(own, distance, log_samples, log_vectors)
                for (each, own), distance in zip(taken, distances, strict=True)
            ]
            sizes.append(np.logaddexp.reduce([found, *parts]))
        return np.asarray(np.min(sizes, axis=0))

    def size(self, eps: float, samples: int, length: int, form: Form = "best") -> float:
        """ln N at distance eps; infinite where floats end."""
        log_samples = math.log(check_count("samples", samples))
        found = self.log_size(math.log(check_positive("eps", eps)), log_samples, check_count("length", length), form)
        return expm(found.item())


def _ways(maps: Sequence[Map], form: Form) -> list[list[tuple[Map, Form]]]:
    """The forms that maps may be covered in, of which the least counts.

    The better one for each map is better but for logarithms: it may be worse than one form for all.
    """
    if form not in FORMS:
        raise InputError(f"form={form!r} is not one of {', '.join(FORMS)}")
    if form != "best":
        return [[(each, form) for each in maps]]
    mixed: list[tuple[Map, Form]] = [
        (each, "rows" if each.log_alpha("rows") <= each.log_alpha("sums") else "sums") for each in maps
    ]
    return [mixed, *_ways(maps, "rows"), *_ways(maps, "sums")]


def log(value: float) -> float:
    """The natural logarithm, -inf of 0."""
    return math.log(value) if value else -math.inf
