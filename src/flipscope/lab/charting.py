"""Panels drawn from the rows of a table: one column against another, a line for each value of a third.

    chart(rows, "length", "sharpness", by="function")                 one panel, a line for each function
    charts(rows, "length", "sharpness", by="function", facet="width")     a panel for each width

Lines show the centre of all rows at each x, with a band from the smallest to the largest value or with the interval of
the mean. Rows that should be shown but not averaged, such as models that did not learn, are drawn `apart` as points.
Other panels are composed of series (`flipscope.lab.series`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from flipscope.figures import Kind, Panel, Series
from flipscope.lab.judges import student_mean
from flipscope.lab.rows import Row, Rows
from flipscope.lab.series import Centre, estimates, line, means

Band = Literal["range", "interval", "none"]
Labels = Mapping[Any, str] | str  # by value of the column, or a format such as "{} layers"


def chart(
    rows: Rows,
    x: str,
    y: str,
    by: str | None = None,
    *,
    labels: Labels = "{}",
    order: Sequence[Any] | None = None,
    kind: Kind = "line",
    centre: Centre = "mean",
    band: Band = "range",
    ends: tuple[float, float] | None = None,
    apart: Rows | None = None,
    apart_label: str = "not kept",
    hover: Callable[[Row], str] | None = None,
    extra: Sequence[Series] = (),
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    **look: Any,
) -> Panel:
    """A panel of column y against column x, with a series for each value of the column `by`.

    `order` lists the values of `by` to draw; each has the same colour in every panel, with or without rows. A mapping
    of `labels` defines such an order too. The `centre` of the rows at each x is drawn as a line or as points (`kind`)
    with a `band`; the interval of a mean is Student's, or one for values between two `ends`. Rows without a number in y
    are omitted, and so are rows that are not positive if the centre is "geometric". Rows in `apart` are drawn as single
    points with the text of `hover`; `extra` are further series, and `look` is passed to `Panel`.

    >>> rows = Rows({"layers": layers, "n": n, "y": layers * n} for layers in (1, 2) for n in (10, 20))
    >>> [(each.label, each.y) for each in chart(rows, "n", "y", by="layers", labels="{} layers").series]
    [('1 layers', [10.0, 20.0]), ('2 layers', [20.0, 40.0])]
    """
    shown = order if order is not None else list(labels) if isinstance(labels, Mapping) else None
    drawn = rows.where(lambda row: _drawable(row.get(y), centre))
    series: list[Series] = []
    groups = [(None, drawn)] if by is None else drawn.each(by, shown) if shown is not None else list(drawn.by(by))
    for number, (value, own) in enumerate(groups):
        if own:
            label = y_label or y if value is None else _label(labels, value)
            colour = number if shown is not None else None
            series.append(_series(own, x, y, label, kind, centre, band, ends, colour))
    if apart is not None and (points := apart.having(y)):
        said = None if hover is None else [hover(row) for row in points]
        place = len(groups) if shown is not None else None
        series.append(Series(apart_label, points.column(x), points.column(y), "points", colour=place, hover=said))
    return Panel(title, x_label or x, y_label or y, [*series, *extra], **look)


def charts(
    rows: Rows, x: str, y: str, by: str | None = None, *, facet: str, titles: Labels = "{}", **look: Any
) -> list[Panel]:
    """A `chart` for each value of the column `facet`, or for the keys of `titles`; `look` is passed to `chart`.

    >>> rows = Rows({"eps": eps, "n": n, "y": n + eps} for eps in (0.0, 1.0) for n in (10, 20))
    >>> [panel.title for panel in charts(rows, "n", "y", facet="eps", titles="eps = {:g}")]
    ['eps = 0', 'eps = 1']
    """
    groups = rows.each(facet, titles) if isinstance(titles, Mapping) else list(rows.by(facet))
    return [chart(own, x, y, by, title=_label(titles, value), **look) for value, own in groups if own]


def _series(
    rows: Rows,
    x: str,
    y: str,
    label: str,
    kind: Kind,
    centre: Centre,
    band: Band,
    ends: tuple[float, float] | None,
    colour: int | None,
) -> Series:
    if band == "interval" and ends is not None:
        return means(rows, x, y, label, ends, kind=kind, colour=colour)
    if band == "interval":
        found = {place: student_mean(own.column(y), 0.95) for place, own in rows.by(x) if len(own) > 1}
        return estimates(label, list(found), list(found.values()), kind, colour=colour)
    return line(rows, x, y, label, centre, band=band == "range", kind=kind, colour=colour)


def _drawable(value: Any, centre: Centre) -> bool:
    """Whether a value can be drawn: a number, and positive if logarithms are averaged."""
    if value is None or math.isnan(value):
        return False
    return 0 < value < math.inf if centre == "geometric" else True


def _label(labels: Labels, value: Any) -> str:
    return labels.format(value) if isinstance(labels, str) else labels[value]
