"""The spectral density of a symmetric matrix by stochastic Lanczos quadrature, with intervals.

A probe is a Gaussian vector v. The share of its square in the eigenspaces of r of n eigenvalues is that of r of n
independent squared normals for every matrix: Beta(r / 2, (n - r) / 2). The mean over k probes is very nearly
Beta(k r / 2, k (n - r) / 2), which has the same mean and hardly more variance, so this determines which r are likely.
The uncertainty of a probe's quadrature (`Quadrature.share_above`) is added on either side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float64
from scipy.optimize import brentq
from scipy.special import betainc, betaincc

from flipscope.basics.checks import check_positive
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate
from flipscope.basics.resampling import student_mean
from flipscope.figures import Figure, Panel
from flipscope.figures.panels import series_of
from flipscope.figures.results import Result
from flipscope.probes.spectral import Operator, Quadrature, lanczos

_POWERS = 6  # powers of ten in a table of shares
_PROBES = 4  # kind of the random streams, beside those of `spectral` and `curvature`


@dataclass(frozen=True, eq=False, repr=False)
class Density(Result):
    """The spectral density: eigenvalues `nodes` with the share `weights` of all, which sum to 1 over all probes."""

    quadratures: tuple[Quadrature, ...]  # one per probe
    size: int  # number of eigenvalues
    steps: int
    confidence: float
    rounding: float  # rounding error of products with the matrix, relative to its norm

    @property
    def probes(self) -> int:
        """The number of probes."""
        return len(self.quadratures)

    @property
    def products(self) -> int:
        """The number of products of the matrix with a vector: one for each node."""
        return len(self.nodes)

    @cached_property
    def nodes(self) -> Float64[np.ndarray, " node"]:
        """The nodes of all probes, concatenated."""
        return np.concatenate([each.nodes for each in self.quadratures])

    @cached_property
    def weights(self) -> Float64[np.ndarray, " node"]:
        """The share of all eigenvalues that each node stands for."""
        out: Float64[np.ndarray, " node"] = np.concatenate([each.weights for each in self.quadratures]) / self.probes
        return out

    @property
    def mean(self) -> Estimate:
        """The mean eigenvalue, tr H / parameters, with Student's interval over the probes."""
        return student_mean([float(each.nodes @ each.weights) for each in self.quadratures], self.confidence)

    def at(self, points: Float64[np.ndarray, " point"], width: float) -> Float64[np.ndarray, " point"]:
        """The density at some points, with every node smoothed by a Gaussian of this standard deviation."""
        check_positive("width", width)
        away = (np.asarray(points, np.float64)[:, None] - self.nodes) / width
        out: Float64[np.ndarray, " point"] = (
            np.exp(-np.square(away) / 2) @ self.weights / (width * math.sqrt(2 * math.pi))
        )
        return out

    def share_above(self, threshold: float) -> Estimate:
        """The share of eigenvalues above the threshold; the interval allows for those that rounding may have moved."""
        return self.share_between(threshold, math.inf)

    def share_between(self, low: float, high: float) -> Estimate:
        """The share of eigenvalues above `low` and not above `high`."""
        if not low <= high:
            raise InputError(f"low={low} and high={high} must be numbers in ascending order")
        ends = [[self._above(each, end) for end in (low, high)] for each in self.quadratures]
        least = float(np.mean([max(above[0] - beyond[1], 0.0) for above, beyond in ends]))
        most = min(float(np.mean([above[1] - beyond[0] for above, beyond in ends])), 1.0)
        value = float(self.weights[(self.nodes > low) & (self.nodes <= high)].sum())
        bottom, top = self._likely(least, most)
        return Estimate(value, min(bottom, value), max(top, value), self.confidence, self.probes)

    @property
    def zero(self) -> float:
        """Absolute value up to which an eigenvalue may be 0 but for rounding."""
        return 3 * self._blur

    def by_powers_of_ten(self) -> list[tuple[float, float, Estimate]]:
        """Shares of eigenvalues (above, not above) by size, from the most positive ones to the most negative.

        The range in the middle, from -`zero` to `zero`, has the eigenvalues that are 0 as far as rounding lets us tell.
        """
        top = math.floor(math.log10(self._norm or 1.0)) + 1  # 10^top is more than any eigenvalue seen
        powers = [10.0**power for power in range(top, top - _POWERS, -1)]
        edges = [each for each in powers if each > self.zero] + [self.zero]
        up = list(zip(edges[1:], edges[:-1], strict=True))
        ranges = [*up, (-self.zero, self.zero), *((-outer, -inner) for inner, outer in reversed(up))]
        return [(low, high, self.share_between(low, high)) for low, high in ranges]

    def summary(self) -> dict[str, object]:
        """The main numbers by label."""
        return {
            "eigenvalues": f"{self.size:,}, from {self.nodes.min():.4g} to {self.nodes.max():.4g} seen",
            "mean eigenvalue": self.mean,
            "share above 0": self.share_above(0.0),
            "measured": f"{self.probes} random starts, {self.steps} Lanczos steps",
        }

    def plot(self) -> Figure:
        """The shares of eigenvalues by size."""
        caption = (
            "Share of the eigenvalues by powers of ten, from the most negative to the most positive, with 0 up to "
            "rounding in the middle. A range in which none was seen may have as many as its interval says."
        )
        return Figure("density", "Spectral density", caption, [self.panel()], columns=1)

    def panel(self, title: str = "") -> Panel:
        """The same as a panel."""
        shares = [share for _, _, share in reversed(self.by_powers_of_ten())]
        series = series_of(range(len(shares)), dict(enumerate(shares)), "points")
        return Panel(title, "eigenvalues", "share", [series], categories=list(reversed(self.range_names())))

    def range_names(self) -> list[str]:
        """The ranges of `by_powers_of_ten` in words."""

        def said(edge: float) -> str:
            return f"{float(f'{edge:.2g}'):g}"  # powers of ten in full, the edge of the range for 0 in two digits

        ranges = self.by_powers_of_ten()
        return ["0" if low < 0 < high else f"{said(low)} to {said(high)}" for low, high, _ in ranges]

    def as_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        order = np.argsort(self.nodes)
        shares = [{"above": low, "to": high, **share.as_json()} for low, high, share in self.by_powers_of_ten()]
        return {
            "nodes": self.nodes[order].tolist(),
            "weights": self.weights[order].tolist(),
            "mean": self.mean.as_json(),
            "shares": shares,
            "probes": self.probes,
            "steps": self.steps,
            "products": self.products,
        }

    def _above(self, each: Quadrature, threshold: float) -> tuple[float, float]:
        """A lower and an upper bound of a probe's share above the threshold, allowing for rounding."""
        if math.isinf(threshold):
            return (0.0, 0.0) if threshold > 0 else (1.0, 1.0)
        return each.share_above(threshold + self._blur)[0], each.share_above(threshold - self._blur)[1]

    @cached_property
    def _norm(self) -> float:
        return float(np.abs(self.nodes).max())

    @property
    def _blur(self) -> float:
        """How far rounding may have moved an eigenvalue."""
        return self.rounding * (self._norm or 1.0)

    def _likely(self, least: float, most: float) -> tuple[float, float]:
        """The shares of eigenvalues for which a mean over probes of at least `least`, at most `most`, is likely."""
        half, error = self.probes * self.size / 2, (1 - self.confidence) / 2
        ends = (1e-6 / half, 1 - 1e-6 / half)  # far less than one eigenvalue, but large enough for SciPy
        seen = np.clip([least, most], ends[0], ends[1])

        def at_least(share: float) -> float:
            return float(betaincc(half * share, half * (1 - share), seen[0])) - error

        def at_most(share: float) -> float:
            return float(betainc(half * share, half * (1 - share), seen[1])) - error

        low = 0.0 if least <= ends[0] or at_least(ends[0]) >= 0 else float(brentq(at_least, *ends))
        high = 1.0 if most >= ends[1] or at_most(ends[1]) >= 0 else float(brentq(at_most, *ends))
        return min(low, least), max(high, most)


def spectral_density(
    matrix: Operator, probes: int, steps: int, seed: int, confidence: float, rounding: float
) -> Density:
    """The density from a number of probes; probe k depends only on the seed and k."""
    starts = (
        np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_PROBES, number))).normal(size=matrix.size)
        for number in range(probes)
    )
    found = tuple(lanczos(matrix, start, steps) for start in starts)
    return Density(found, matrix.size, steps, confidence, rounding)
