"""Pictures of `lab.plots.Figure`: files for papers, drawn with matplotlib, and data for the interactive page."""

from __future__ import annotations

import io
import math
import re
import textwrap
import unicodedata
import warnings
from typing import TYPE_CHECKING, Any, Literal

from flipscope.errors import InputError
from flipscope.lab.plots import Figure
from flipscope.report.layout import (
    Axes,
    Marks,
    Numbers,
    axes_of,
    legend_of,
    runs,
    scaled,
    step_places,
    unscaled,
    whisker,
)
from flipscope.report.style import DPI, INK, MARKERS, MUTED, PALETTE, STYLE, UNDATED

if TYPE_CHECKING:
    from matplotlib import axes as drawing
    from matplotlib.lines import Line2D

Format = Literal["svg", "png", "pdf"]
FORMATS: tuple[Format, ...] = ("svg", "png", "pdf")
PANEL = (3.6, 2.6)  # inches; a figure of one column is wider
WIDE = (5.6, 3.2)
DASHES = (0, (4, 2))
DIGITS = 7  # of each number on the page: more than a pixel needs
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# Text is text, also where it holds dollar signs, which matplotlib would read as TeX.
_STYLE = {**STYLE, "text.parse_math": False, "legend.frameon": False, "axes.grid": True, "grid.color": "#e4e7eb"}
_STYLE |= {"grid.linewidth": 0.6, "axes.axisbelow": True, "lines.linewidth": 1.4, "lines.markersize": 3.4}


def render(figure: Figure, format: Format) -> bytes:
    """The figure as a file of this format; the same figure gives the same bytes."""
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    if format not in FORMATS:
        raise InputError(f"format={format!r} is not one of {', '.join(FORMATS)}")
    axes = axes_of(figure)
    columns = max(1, min(figure.columns, len(axes)))
    rows = max(1, math.ceil(len(axes) / columns))
    width, height = WIDE if columns == 1 else PANEL
    named = legend_of(axes)
    handles = len(named) if len(named) > 1 else 0
    across = max(1, int(columns * width * 12 / (6 + max((len(_cut(marks.label)) for marks in named), default=0))))
    lines = math.ceil(handles / across) + (3 * rows if any(map(_crowded, axes)) else 0)
    target = io.BytesIO()
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a box stands for it
        canvas = Canvas(figsize=(columns * width, rows * height + 0.19 * lines), layout="constrained")
        grid = canvas.subplots(rows, columns, squeeze=False).flat
        for place, each in zip(grid, axes, strict=False):
            _draw(place, each, int(width * 14))
        for place in list(grid)[len(axes) :]:
            place.set_axis_off()
        if handles:
            canvas.legend(
                [_handle(marks) for marks in named],
                [_cut(marks.label) for marks in named],
                loc="outside lower center",
                ncols=min(across, handles),
                fontsize=8,
            )
        canvas.savefig(target, format=format, dpi=DPI, metadata=UNDATED[format])
    return target.getvalue()


def chart_data(figure: Figure) -> dict[str, Any]:
    """The figure as JSON for the interactive page: ranges, colours and places decided, None where nothing is."""
    axes = axes_of(figure)
    return {
        "name": figure.name,
        "title": figure.title,
        "columns": max(1, min(figure.columns, len(axes))),
        "legend": [{"label": marks.label, **_look(marks)} for marks in legend_of(axes)],
        "panels": [_panel_data(each) for each in axes],
    }


def alt_text(figure: Figure) -> str:
    """What a reader who does not see the figure is told of it."""
    said = []
    for each in figure.panels:
        labels = list(dict.fromkeys(series.label for series in each.series if series.label))
        named = ", ".join(labels[:8]) + (f" and {len(labels) - 8} more" if len(labels) > 8 else "")
        title = f"{each.title}: " if each.title else ""
        said.append(f"{title}{each.y_label} against {each.x_label}" + (f" for {named}" if named else ""))
    return f"{figure.title}. " + "; ".join(said) + "."


def file_stems(study: str, figures: list[Figure]) -> list[str]:
    """Names for the files of a study's figures: safe on every file system, and none twice."""
    stems: list[str] = []
    for figure in figures:
        plain = re.sub(r"[^a-z0-9_-]+", "-", figure.name.lower()).strip("-_")[:60] or "figure"
        stem = plain if plain.startswith(study) else f"{study}-{plain}"
        count = 2
        while stem in stems:
            stem, count = f"{study}-{plain}-{count}", count + 1
        stems.append(stem)
    return stems


def _panel_data(axes: Axes) -> dict[str, Any]:
    panel = axes.panel
    return {
        "title": panel.title,
        "xLabel": panel.x_label,
        "yLabel": panel.y_label,
        "xLog": panel.x_log,
        "yLog": panel.y_log,
        "xRange": axes.x_range,
        "yRange": axes.y_range,
        "categories": None if panel.categories is None else [str(each) for each in panel.categories],
        "rules": [{"value": float(rule.value), "label": rule.label, "axis": rule.axis} for rule in axes.rules],
        "series": [
            {
                "label": marks.label,
                **_look(marks),
                "marked": marks.marked,
                "offset": marks.offset,
                "width": marks.width,
                "x": _short(marks.x),
                "y": _short(marks.y),
                "low": None if marks.low is None else _short(marks.low),
                "high": None if marks.high is None else _short(marks.high),
                "hover": marks.hover,
            }
            for marks in axes.marks
        ],
    }


def _look(marks: Marks) -> dict[str, Any]:
    return {
        "key": f"{marks.number} {marks.label}",
        "kind": marks.kind,
        "colour": marks.number % len(PALETTE),
        "marker": marks.number % len(MARKERS),
        "dashed": marks.dashed,
    }


def _short(values: Numbers) -> Numbers:
    return [None if value is None else float(f"{value:.{DIGITS}g}") for value in values]


def _draw(place: drawing.Axes, axes: Axes, characters: int) -> None:
    """One panel; `characters` fit into its width."""
    panel = axes.panel
    place.set_title(_wrapped(panel.title, characters), loc="left", fontweight="bold")
    place.set_xlabel(_wrapped(panel.x_label, characters))
    place.set_ylabel(_wrapped(panel.y_label, characters * 2 // 3))
    _set_scales(place, axes)
    for number, rule in enumerate(axes.rules):
        _draw_rule(place, axes, rule.axis, rule.value, _cut(rule.label), number)
    for marks in axes.marks:
        _draw_marks(place, axes, marks)
    if axes.empty:
        place.set(xticks=[], yticks=[])
        place.text(0.5, 0.5, "no data", transform=place.transAxes, ha="center", va="center", color=MUTED)
    place.set_xlim(axes.x_range)
    place.set_ylim(axes.y_range)


def _set_scales(place: drawing.Axes, axes: Axes) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

    panel = axes.panel
    for axis, log, (low, high), name in (
        (place.xaxis, panel.x_log, axes.x_range, "x"),
        (place.yaxis, panel.y_log, axes.y_range, "y"),
    ):
        if log:
            place.set(**{f"{name}scale": "log"})
            decades = math.log10(high) - math.log10(low)
            axis.set_major_locator(LogLocator(subs=(1.0,) if decades > 2 else (1.0, 2.0, 5.0), numticks=8))
            axis.set_minor_locator(NullLocator())
        else:
            axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(FuncFormatter(lambda value, _, log=log: tick_text(value, log)))
    if panel.categories is not None:
        names = [_cut(str(each), 24) for each in panel.categories]
        place.xaxis.set_major_locator(FixedLocator(range(len(names))))
        rotation: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if _crowded(axes) else {}
        place.set_xticks(range(len(names)), names, **rotation)
        place.grid(False, axis="x")


def _crowded(axes: Axes) -> bool:
    """Whether the names of the categories do not fit beside each other."""
    return sum(len(_cut(str(name), 24)) + 2 for name in axes.panel.categories or ()) > 46


def tick_text(value: float, log: bool = False) -> str:
    """A tick's number as people write it, with a power of ten where it is large or small."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else ""
    exponent = math.floor(math.log10(abs(value)) + 1e-9)
    if (-3 if log else -4) <= exponent < (4 if log else 6):
        return f"{value:.6g}".replace("-", "\N{MINUS SIGN}")
    mantissa = f"{value / 10.0**exponent:.4g}".replace("-", "\N{MINUS SIGN}")
    power = f"10{str(exponent).translate(_SUPERSCRIPTS)}"
    return power if mantissa == "1" else f"{mantissa}·{power}"


def _draw_rule(place: drawing.Axes, axes: Axes, axis: str, value: float, label: str, number: int) -> None:
    log, (low, high) = (axes.panel.x_log, axes.x_range) if axis == "x" else (axes.panel.y_log, axes.y_range)
    share = (scaled(value, log) - scaled(low, log)) / (scaled(high, log) - scaled(low, log))
    if not 0 <= share <= 1:
        return
    style: dict[str, Any] = {"color": INK, "linewidth": 0.8, "linestyle": (0, (2, 2)), "zorder": 1.5}
    text: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7.5, "color": INK, "zorder": 4}
    if axis == "y":
        place.axhline(value, **style)
        above = share < 0.92
        place.annotate(label, (1, value), (-2, 2 if above else -2), xycoords=("axes fraction", "data"), ha="right",
                       va="bottom" if above else "top", **text)  # fmt: skip
    else:
        place.axvline(value, **style)
        left = share > 0.6
        place.annotate(label, (value, 1), (-3 if left else 3, -2 - 9 * number), xycoords=("data", "axes fraction"),
                       ha="right" if left else "left", va="top", **text)  # fmt: skip


def _draw_marks(place: drawing.Axes, axes: Axes, marks: Marks) -> None:
    log, colour = axes.panel.x_log, PALETTE[marks.number % len(PALETTE)]
    marker = MARKERS[marks.number % len(MARKERS)]
    dashes: Any = DASHES if marks.dashed else "solid"
    for stretch in runs(marks):
        xs = [unscaled(scaled(marks.x[i] or 0.0, log) + marks.offset, log) for i in stretch]
        ys = [marks.y[i] or 0.0 for i in stretch]
        ends = [whisker(marks, i, axes.y_range[0], axes.panel.y_log) for i in stretch]
        if marks.kind == "line":
            shown = marker if marks.marked or len(stretch) == 1 else None
            place.plot(xs, ys, color=colour, linestyle=dashes, marker=shown)
            lows, highs = ([math.nan if pair is None else pair[end] for pair in ends] for end in (0, 1))
            place.fill_between(xs, lows, highs, color=colour, alpha=0.16, linewidth=0)
            continue
        if marks.kind == "points":
            face = "white" if marks.dashed else colour
            place.plot(xs, ys, marker, color=colour, markerfacecolor=face)
        elif marks.kind == "steps":
            place.plot(*step_places(xs, ys, log), color=colour, linestyle=dashes, solid_joinstyle="miter")
        else:
            _draw_bars(place, axes, marks, [scaled(x, log) for x in xs], ys)
        whiskers = [(x, *pair) for x, pair in zip(xs, ends, strict=True) if pair is not None]
        if whiskers:
            ink = colour if marks.kind == "points" else INK
            place.vlines(*zip(*whiskers, strict=True), color=ink, linewidth=0.9)


def _draw_bars(place: drawing.Axes, axes: Axes, marks: Marks, places: list[float], ys: list[float]) -> None:
    log = axes.panel.x_log
    left = [unscaled(x - marks.width / 2, log) for x in places]
    right = [unscaled(x + marks.width / 2, log) for x in places]
    bottom = axes.y_range[0] if axes.panel.y_log else 0.0
    place.bar(
        left,
        [y - bottom for y in ys],
        [after - before for before, after in zip(left, right, strict=True)],
        bottom,
        align="edge",
        color=PALETTE[marks.number % len(PALETTE)],
        alpha=0.45 if marks.dashed else 1.0,
    )


def _handle(marks: Marks) -> Line2D:
    """What stands for a series in the legend."""
    from matplotlib.lines import Line2D

    colour = PALETTE[marks.number % len(PALETTE)]
    marker = "s" if marks.kind == "bars" else MARKERS[marks.number % len(MARKERS)]
    style: Any = "none" if marks.kind in ("points", "bars") else DASHES if marks.dashed else "solid"
    shown = marker if marks.kind in ("points", "bars") or (marks.kind == "line" and marks.marked) else None
    hollow = marks.dashed and marks.kind == "points"
    alpha = 0.45 if marks.dashed and marks.kind == "bars" else 1.0
    size = 6.0 if marks.kind == "bars" else 4.0
    face = "white" if hollow else colour
    return Line2D(
        [], [], color=colour, linestyle=style, marker=shown, markersize=size, markerfacecolor=face, alpha=alpha
    )


def _plain(text: str) -> str:
    """The text without characters that XML and fonts have no place for."""
    return "".join(each if each == "\n" or unicodedata.category(each)[0] != "C" else " " for each in text)


def _cut(text: str, most: int = 60) -> str:
    plain = _plain(text).replace("\n", " ")
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def _wrapped(text: str, characters: int) -> str:
    lines = textwrap.wrap(_plain(text), characters)
    return "\n".join([*lines[:2], _cut(" ".join(lines[2:]), characters)] if len(lines) > 3 else lines)
