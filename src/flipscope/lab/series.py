"""Series of figures, made from the rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from flipscope.basics.estimates import Estimate, mean_from_samples
from flipscope.figures import Kind, Series
from flipscope.lab.rows import Row, Rows

Centre = Literal["geometric", "mean", "median"]


def line(
    rows: Rows, x: str, y: str, label: str, centre: Centre = "geometric", *, band: bool = True, **look: Any
) -> Series:
    """One line: the centre of y at each x, with a band from smallest to largest; `look` is passed to `Series`.

    >>> found = line(Rows([{"n": 10, "y": 1.0}, {"n": 10, "y": 3.0}]), "n", "y", "mean of y", "mean")
    >>> found.y, found.low, found.high
    ([2.0], [1.0], [3.0])
    """
    groups = {place: np.array(own.column(y), np.float64) for place, own in rows.by(x)}
    if centre == "geometric":
        middle = [float(np.exp(np.mean(np.log(values)))) for values in groups.values()]
    else:
        middle = [float(np.mean(own) if centre == "mean" else np.median(own)) for own in groups.values()]
    low, high = ([float(end(values)) for values in groups.values()] if band else None for end in (min, max))
    return Series(label, list(groups), middle, low=low, high=high, **look)


def means(rows: Rows, x: str, y: str, label: str, ends: tuple[float, float] = (0, 1), **look: Any) -> Series:
    """The mean of y at each x with its interval; `ends` are the smallest and largest possible y.

    >>> found = means(Rows({"n": 10, "y": y} for y in (0.4, 0.5, 0.6)), "n", "y", "share")
    >>> found.x, found.low[0] < 0.5 < found.high[0]
    ([10], True)
    """
    found = {place: mean_from_samples(own.column(y), *ends) for place, own in rows.by(x)}
    return estimates(label, list(found), list(found.values()), **look)


def points(
    rows: Rows, x: str, y: str, by: str, say: Callable[[Row], str], labels: Mapping[Any, str] | None = None
) -> list[Series]:
    """A point per row, one colour for each value of a column, in the order of `labels` if given; `say` describes a row.

    Values of `labels` have the same colour in every panel, with or without rows.

    >>> rows = Rows({"n": n, "y": n / 2, "kind": kind} for kind in ("a", "b") for n in (10, 20))
    >>> [(each.label, each.y) for each in points(rows, "n", "y", "kind", lambda row: f"N = {row['n']}")]
    [('a', [5.0, 10.0]), ('b', [5.0, 10.0])]
    """
    groups = rows.by(by) if labels is None else rows.each(by, labels)
    return [
        Series(
            str(value) if labels is None else labels[value],
            own.column(x),
            own.column(y),
            "points",
            colour=colour,
            hover=[say(row) for row in own],
        )
        for colour, (value, own) in enumerate(groups)
        if own
    ]


def bars(label: str, heights: Iterable[float], **look: Any) -> Series:
    """A bar at each of 0, 1, 2 … and none where the height is 0, which a log scale cannot show.

    >>> bars("profile", [0.5, 0.0, 0.5]).y
    [0.5, None, 0.5]
    """
    shown = [float(height) for height in heights]
    hover = [f"{place}: {height:.3g}" for place, height in enumerate(shown)]
    return Series(label, list(range(len(shown))), [height or None for height in shown], "bars", hover=hover, **look)


def survival(label: str, samples: Sequence[float], upper: float = 0.5, **look: Any) -> Series:
    """The tail of a distribution: for each of the `upper` part of the samples, the share that is at least as large.

    >>> tail = survival("blowup", [1.0, 4.0, 2.0, 3.0])
    >>> tail.x, tail.y
    ([4.0, 3.0], [0.25, 0.5])
    """
    largest = np.sort(samples)[::-1][: max(1, int(upper * len(samples)))]
    shares = np.arange(1, len(largest) + 1) / len(samples)
    return Series(label, largest.tolist(), shares.tolist(), "steps", **look)


def estimates(label: str, x: Sequence[float], found: Sequence[Estimate], kind: Kind = "line", **look: Any) -> Series:
    """A series of estimates with their intervals.

    >>> estimates("share", [10], [Estimate(0.5, 0.4, 0.6, 0.95, 100)], "points").high
    [0.6]
    """
    low, high = [estimate.low for estimate in found], [estimate.high for estimate in found]
    return Series(label, x, [estimate.value for estimate in found], kind, low, high, **look)
