"""Panels that pictures of several results share: profiles, influences, weights by degree, ranges by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from flipscope.basics.estimates import Estimate
from flipscope.figures import Kind, Panel, Rule, Series

MAX_BARS = 200  # of influences; more are drawn as one line
MAX_DECADES = 12  # shares smaller than this are not drawn
LINEAR_ABOVE = 0.01  # a linear axis shows shares down to here

Number = float | Estimate


def log10_share(count: int, n: int) -> float:
    """log10(count / 2^n) for integers of any size."""
    return math.log10(count) - n * math.log10(2)


def number_of(value: Number) -> float:
    """The number itself, or an estimate's."""
    return value.value if isinstance(value, Estimate) else float(value)


def series_of(places: Sequence[float], found: Mapping[float, Number], kind: Kind) -> Series:
    """What was found at some of the places, with the interval of every estimate."""
    entries = [found.get(place) for place in places]
    values = [entry.value if isinstance(entry, Estimate) else entry for entry in entries]
    ends = [(entry.low, entry.high) if isinstance(entry, Estimate) else (None, None) for entry in entries]
    sampled = any(low is not None for low, _ in ends)
    low, high = ([pair[end] for pair in ends] if sampled else None for end in (0, 1))
    return Series("", places, values, kind, low, high, colour=0)


def profile_panel(n: int, profile: Sequence[int | Estimate], average: Number, title: str = "") -> Panel:
    """The share of strings of each sensitivity, from counts K_0..K_n or estimated shares, with the average."""
    shares: dict[float, Number] = {}
    for s, entry in enumerate(profile):
        if isinstance(entry, Estimate):
            if entry.value > 10.0**-MAX_DECADES:
                shares[s] = entry
        elif entry and (log := log10_share(entry, n)) > -MAX_DECADES:
            shares[s] = 10.0**log
    least = min(map(number_of, shares.values()))
    right = last_place(shares, n)
    log = least < LINEAR_ABOVE
    value = number_of(average)
    return Panel(
        title,
        "sensitivity s(x)",
        "share of strings",
        [series_of(range(right + 1), shares, "bars")],
        y_log=log,
        x_range=padded(right),
        y_range=(least / 4, 4) if log else (0, 1.12),
        rules=[Rule(value, f"average {value:.4g}", "x")],
    )


def last_place(places: Mapping[float, object], n: int) -> int:
    """The end of the axis: n, unless everything lies in the first quarter."""
    largest = max(places)
    return n if largest > n / 4 or n < 12 else max(8, math.ceil(1.3 * largest))


def padded(right: int) -> tuple[float, float]:
    """The range of an axis of whole numbers from 0 on, with room for the bars at its ends."""
    return -0.03 * right - 0.7, 1.03 * right + 0.7


def weights_panel(n: int, weights: Mapping[int, Number], title: str = "") -> Panel:
    """The Fourier weight of each degree that is known."""
    kept: dict[float, Number] = {degree: weight for degree, weight in weights.items() if number_of(weight) > 1e-6}
    right = last_place(kept or {0: None}, n)
    tops = [each.high if isinstance(each, Estimate) else each for each in kept.values()]
    series = series_of(range(right + 1), kept, "bars")
    top = 1.05 * max(1.0, *tops) if tops else 1.05
    return Panel(title, "degree |S|", "Fourier weight", [series], x_range=padded(right), y_range=(0, top))


def influences_panel(influences: Sequence[Number], title: str = "") -> Panel:
    """The influence of each position, counted from 1."""
    n, found = len(influences), dict(enumerate(influences, start=1))
    kind: Kind = "bars" if n <= MAX_BARS else "line"
    series = series_of(range(1, n + 1), {float(place): each for place, each in found.items()}, kind)
    highs = [entry.high if isinstance(entry, Estimate) else entry for entry in influences]
    top = 1.15 * max(0.05, *highs)
    return Panel(title, "position", "influence", [series], x_range=(0, n + 1), y_range=(0, top))


def histogram_panel(samples: Sequence[float] | np.ndarray, x_label: str, mean: float, bins: int = 20) -> Panel:
    """The distribution of some numbers, with their mean."""
    values = np.asarray(samples, np.float64)
    values = values[np.isfinite(values)]
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    edges = np.linspace(low, high, bins + 1) if low < high else np.array([low - 0.5, low + 0.5])
    counts, _ = np.histogram(values, edges)
    middles = ((edges[:-1] + edges[1:]) / 2).tolist()
    bars = Series("", middles, (counts / max(1, values.size)).tolist(), "bars", colour=0)
    return Panel("", x_label, "share of draws", [bars], rules=[Rule(mean, f"mean {mean:.4g}", "x")])


def ranges_panel(
    names: Sequence[str], middles: Sequence[float], lows: Sequence[float], highs: Sequence[float], y_label: str
) -> Panel:
    """A point with its range for each name; on a logarithmic axis where sizes differ widely."""

    def drawn(values: Sequence[float]) -> list[float | None]:
        return [float(value) if math.isfinite(value) else None for value in values]

    finite = [value for value in (*lows, *highs) if math.isfinite(value)]
    log = bool(finite) and min(finite) > 0 and max(finite) > 50 * min(finite)
    points = Series("", list(range(len(names))), drawn(middles), "points", drawn(lows), drawn(highs), colour=0)
    return Panel("", "", y_label, [points], y_log=log, categories=list(names))


def bars_panel(values: Mapping[str, Number], y_label: str, title: str = "") -> Panel:
    """A bar for each name, with the interval of an estimate."""
    series = series_of(range(len(values)), dict(enumerate(values.values())), "bars")
    return Panel(title, "", y_label, [series], categories=list(values))
