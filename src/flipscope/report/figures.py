"""Figures of Boolean functions: one strip per function, of profile, weight by degree, influences, noise stability."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from flipscope.basics.estimates import Estimate
from flipscope.cube.portrait import Portrait
from flipscope.lab.figures import Figure, Kind, Panel, Rule, Series

MAX_BARS = 200  # of influences; more are drawn as one line
MAX_DECADES = 12  # shares smaller than this are not drawn
MAX_TITLE = 120  # characters that fit above a strip
LINEAR_ABOVE = 0.01  # a linear axis shows shares down to here
_Number = float | Estimate


def function_figure(portraits: Sequence[Portrait]) -> Figure:
    """One strip per function: profile, weight by degree, influences, noise stability."""
    panels = [panel for portrait in portraits for panel in _strip(portrait)]
    names = ", ".join(_title(portrait) for portrait in portraits)
    caption = "Strings by sensitivity, Fourier weight by degree, influences, and stability under noise."
    return Figure("functions", names, caption, panels, columns=4)


def log10_share(count: int, n: int) -> float:
    """log10(count / 2^n) for integers of any size."""
    return math.log10(count) - n * math.log10(2)


def _strip(portrait: Portrait) -> list[Panel]:
    return [_profile(portrait), _weights(portrait), _influences(portrait), _stability(portrait)]


def _title(portrait: Portrait) -> str:
    return portrait.name if len(portrait.name) <= MAX_TITLE else portrait.name[: MAX_TITLE - 1] + "…"


def _series(places: Sequence[float], found: Mapping[float, _Number], kind: Kind) -> Series:
    """What was found at some of the places, with the interval of every estimate."""
    entries = [found.get(place) for place in places]
    values = [entry.value if isinstance(entry, Estimate) else entry for entry in entries]
    ends = [(entry.low, entry.high) if isinstance(entry, Estimate) else (None, None) for entry in entries]
    sampled = any(low is not None for low, _ in ends)
    low, high = ([pair[end] for pair in ends] if sampled else None for end in (0, 1))
    return Series("", places, values, kind, low, high, colour=0)


def _profile(portrait: Portrait) -> Panel:
    shares: dict[float, _Number] = {}
    for s, entry in enumerate(portrait.profile):
        if isinstance(entry, Estimate):
            if entry.value > 10.0**-MAX_DECADES:
                shares[s] = entry
        elif entry and (log := log10_share(entry, portrait.n)) > -MAX_DECADES:
            shares[s] = 10.0**log
    least = min(share.value if isinstance(share, Estimate) else share for share in shares.values())
    right = _last(shares, portrait.n)
    log = least < LINEAR_ABOVE
    average = portrait.average_sensitivity
    value = average.value if isinstance(average, Estimate) else float(average)
    return Panel(
        _title(portrait),
        "sensitivity s(x)",
        "share of strings",
        [_series(range(right + 1), shares, "bars")],
        y_log=log,
        x_range=_padded(right),
        y_range=(least / 4, 4) if log else (0, 1.12),
        rules=[Rule(value, f"average {value:.4g}", "x")],
    )


def _last(places: Mapping[float, object], n: int) -> int:
    """The end of the axis: n, unless everything lies in the first quarter."""
    largest = max(places)
    return n if largest > n / 4 or n < 12 else max(8, math.ceil(1.3 * largest))


def _padded(right: int) -> tuple[float, float]:
    return -0.03 * right - 0.7, 1.03 * right + 0.7


def _weights(portrait: Portrait) -> Panel:
    x, y = "degree |S|", "Fourier weight"
    if portrait.weight_by_degree is None:
        return Panel("no exact spectrum" if portrait.exact else "not estimated", x, y, [])
    kept: dict[float, _Number] = {d: w for d, w in enumerate(portrait.weight_by_degree) if w > 1e-6}
    right = _last(kept, portrait.n)
    series = _series(range(right + 1), kept, "bars")
    return Panel("", x, y, [series], x_range=_padded(right), y_range=(0, 1.05))


def _influences(portrait: Portrait) -> Panel:
    found: dict[float, _Number] = dict(enumerate(portrait.influences, start=1))
    kind: Kind = "bars" if portrait.n <= MAX_BARS else "line"
    series = _series(range(1, portrait.n + 1), found, kind)
    highs = [entry.high if isinstance(entry, Estimate) else entry for entry in portrait.influences]
    top = 1.15 * max(0.05, *highs)
    return Panel("", "position", "influence", [series], x_range=(0, portrait.n + 1), y_range=(0, top))


def _stability(portrait: Portrait) -> Panel:
    x, y = "correlation ρ", "noise stability"
    if portrait.weight_by_degree is not None:
        rhos = [i / 100 for i in range(101)]
        curve: dict[float, _Number] = {
            rho: sum(w * rho**d for d, w in enumerate(portrait.weight_by_degree) if w) for rho in rhos
        }
        series = _series(rhos, curve, "line")
    elif portrait.noise_stability:
        series = _series(list(portrait.noise_stability), dict(portrait.noise_stability), "points")
    else:
        return Panel("no exact spectrum", x, y, [])
    values = [value for value in (*series.y, *(series.low or ())) if value is not None]
    return Panel("", x, y, [series], x_range=(0, 1.02), y_range=(min(-0.05, *values), 1.05))
