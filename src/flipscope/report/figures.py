"""Figures of Boolean functions, drawn with matplotlib and written as SVG, PDF or PNG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flipscope.cube.estimate import Estimate
from flipscope.cube.portrait import Portrait
from flipscope.errors import InputError
from flipscope.report.files import check_target, replacing
from flipscope.report.style import ACCENT, DPI, INK, MUTED, SECOND, STYLE, UNDATED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".svg", ".pdf", ".png")
MAX_BARS = 200  # more are drawn as thin lines, which matplotlib does in one piece
MAX_DECADES = 12  # shares smaller than this are not drawn
MAX_TITLE = 120  # characters that fit above a strip
LINEAR_ABOVE = 0.01  # a linear axis shows shares down to here


def function_figure(portraits: Sequence[Portrait]) -> Figure:
    """One strip a function: profile, weight by degree, influences, noise stability."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(11, 2.6 * len(portraits)), layout="constrained")
        strips = figure.subfigures(len(portraits), 1, squeeze=False)[:, 0]
        for strip, portrait in zip(strips, portraits, strict=True):
            name = portrait.name if len(portrait.name) <= MAX_TITLE else portrait.name[: MAX_TITLE - 1] + "…"
            strip.suptitle(name, x=0.01, ha="left", fontsize=10, fontweight="bold", color=INK)
            axes = strip.subplots(1, 4)
            for axis, draw in zip(axes, (_draw_profile, _draw_weights, _draw_influences, _draw_stability), strict=True):
                draw(axis, portrait)
    return figure


def log10_share(count: int, n: int) -> float:
    """log10(count / 2^n) for integers of any size."""
    return math.log10(count) - n * math.log10(2)


def _draw_profile(axis: Axes, portrait: Portrait) -> None:
    shares = {}
    for s, entry in enumerate(portrait.profile):
        log = math.log10(entry.value) if isinstance(entry, Estimate) and entry.value else None
        if not isinstance(entry, Estimate) and entry:
            log = log10_share(entry, portrait.n)
        if log is not None and log > -MAX_DECADES:
            shares[s] = 10.0**log
    _draw_bars(axis, shares)
    _draw_intervals(axis, {s: portrait.profile[s] for s in shares})
    least = min(shares.values())
    if least < LINEAR_ABOVE:
        axis.set_yscale("log")
        axis.set_ylim(least / 4, 4)
    else:
        axis.set_ylim(0, 1.12)
    average = portrait.average_sensitivity
    value = average.value if isinstance(average, Estimate) else average
    _limit(axis, shares, portrait.n)
    right = value > 0.6 * axis.get_xlim()[1]
    axis.axvline(value, color=SECOND, linewidth=1.2)
    axis.annotate(
        f"average {value:.4g}",
        (value, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if right else 4, -8),
        textcoords="offset points",
        ha="right" if right else "left",
        color=SECOND,
        fontsize=8,
    )
    axis.set_xlabel("sensitivity s(x)")
    axis.set_ylabel("share of strings")


def _draw_bars(axis: Axes, heights: dict[int, float]) -> None:
    span = max(heights)
    if len(heights) <= MAX_BARS:
        # A single bar among hundreds of places must still be seen.
        axis.bar(list(heights), list(heights.values()), width=0.8 if span <= 60 else span / 90, color=ACCENT)
    else:
        axis.vlines(list(heights), 0, list(heights.values()), color=ACCENT, linewidth=1)


def _draw_intervals(axis: Axes, entries: Mapping[int, float | Estimate]) -> float:
    """Draw the interval of every estimate among the entries; returns the highest end, 0 if there are none."""
    found = {place: entry for place, entry in entries.items() if isinstance(entry, Estimate)}
    highs = [entry.high for entry in found.values()]
    axis.vlines(list(found), [entry.low for entry in found.values()], highs, color=INK, linewidth=0.7)
    return max(highs, default=0.0)


def _limit(axis: Axes, places: Iterable[int], n: int) -> None:
    """All of 0..n, unless everything lies in the first quarter."""
    largest = max(places)
    right = n if largest > n / 4 or n < 12 else max(8, math.ceil(1.3 * largest))
    axis.set_xlim(-0.03 * right - 0.7, 1.03 * right + 0.7)
    axis.locator_params(axis="x", integer=True)


def _draw_weights(axis: Axes, portrait: Portrait) -> None:
    axis.set_xlabel("degree |S|")
    axis.set_ylabel("Fourier weight")
    if portrait.weight_by_degree is None:
        _say(axis, "no exact spectrum" if portrait.exact else "not estimated")
        return
    kept = {d: w for d, w in enumerate(portrait.weight_by_degree) if w > 1e-6}
    _draw_bars(axis, kept)
    _limit(axis, kept, portrait.n)
    axis.set_ylim(0, 1.05)


def _draw_influences(axis: Axes, portrait: Portrait) -> None:
    values = [x.value if isinstance(x, Estimate) else x for x in portrait.influences]
    places = range(1, portrait.n + 1)
    top = max(0.05, *values)
    if portrait.n <= MAX_BARS:
        axis.bar(places, values, width=0.9, color=ACCENT)
        top = max(top, _draw_intervals(axis, dict(zip(places, portrait.influences, strict=True))))
    else:
        axis.plot(places, values, color=ACCENT, linewidth=1)
    axis.set_xlim(0, portrait.n + 1)
    axis.locator_params(axis="x", integer=True)
    axis.set_ylim(0, top * 1.15)
    axis.set_xlabel("position")
    axis.set_ylabel("influence")


def _draw_stability(axis: Axes, portrait: Portrait) -> None:
    axis.axhline(0, color=MUTED, linewidth=0.6)
    if portrait.weight_by_degree is not None:
        rhos = [i / 100 for i in range(101)]
        curve = [sum(w * rho**d for d, w in enumerate(portrait.weight_by_degree) if w) for rho in rhos]
        axis.plot(rhos, curve, color=ACCENT)
    elif portrait.noise_stability:
        for rho, value in portrait.noise_stability.items():
            if isinstance(value, Estimate):
                axis.vlines(rho, value.low, value.high, color=INK, linewidth=0.7)
                axis.plot([rho], [value.value], "o", color=ACCENT, markersize=3)
    else:
        _say(axis, "no exact spectrum")
    axis.set_xlim(0, 1.02)
    axis.set_xlabel("correlation ρ")
    axis.set_ylabel("noise stability")
    axis.set_ylim(min(-0.05, axis.get_ylim()[0]), 1.05)


def _say(axis: Axes, text: str) -> None:
    axis.set_xticks([])
    axis.set_yticks([])
    axis.text(0.5, 0.5, text, transform=axis.transAxes, ha="center", va="center", color=MUTED)


def checked_target(path: str | Path) -> Path:
    """The path as one that a figure can be written to: known format, existing folder."""
    target = Path(path)
    if target.suffix.lower() not in FORMATS:
        raise InputError(f"a figure's name must end in {', '.join(FORMATS)}; {target.name!r} does not.")
    check_target(target, "figure")
    return target


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write the figure in the format its name ends with, whole or not at all; returns the path."""
    import matplotlib

    target = checked_target(path)
    with replacing(target, "figure") as temporary, matplotlib.rc_context(STYLE):
        figure.savefig(temporary, dpi=DPI, metadata=UNDATED[target.suffix.lower()[1:]])
    return target
