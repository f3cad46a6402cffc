"""Figures as data: what to draw, not how.

`figures.vegalite` makes a Vega-Lite specification of a figure; `report` draws it, on its page and in files for papers.
In a notebook a figure shows itself, and so does every result (`figures.results`).

    >>> line = Series("squares", [1, 2, 3], [1, 4, 9], low=[0.5, 3, 8], high=[1.5, 5, 10])
    >>> figure = Figure("squares", "Squares", "A parabola.", [Panel("", "number", "square", [line])])
    >>> sorted(figure.specification())[:2]
    ['$schema', 'columns']
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from flipscope.basics.errors import InputError
from flipscope.basics.services import service

Kind = Literal["line", "points", "bars", "steps", "cells"]
KINDS: tuple[Kind, ...] = ("line", "points", "bars", "steps", "cells")
Values = Sequence[float | None]  # None leaves a gap


@dataclass(frozen=True)
class Series:
    """Points that belong together. `low` and `high` are intervals: a band around a line, whiskers elsewhere.

    Series of one `colour` number look alike in every panel of a figure; without one they are numbered in order.
    `values` are shown by a scale of colours: of points, or of the cells of a heatmap, whose middles x and y are.

    >>> Series("squares", [1, 2, 3], [1, 4, 9], "points").kind
    'points'
    """

    label: str
    x: Values
    y: Values
    kind: Kind = "line"
    low: Values | None = None
    high: Values | None = None
    dashed: bool = False
    colour: int | None = None
    hover: Sequence[str] | None = None  # what to say of each point
    values: Values | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"the series {self.label!r} is of kind {self.kind!r}, not one of {', '.join(KINDS)}")
        for name in ("y", "low", "high", "hover", "values"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.x):
                raise InputError(f"the series {self.label!r} has {len(self.x)} x and {len(values)} {name}")
        if (self.low is None) != (self.high is None):
            raise InputError(f"the series {self.label!r} has only one end of its intervals")
        if self.kind == "cells" and self.values is None:
            raise InputError(f"the series {self.label!r} is of cells, which need values for their colours")
        if self.values is not None and self.kind not in ("points", "cells"):
            raise InputError(f"the series {self.label!r} has values, which only points and cells can show as colours")


@dataclass(frozen=True)
class Rule:
    """A straight line at one value of an axis, such as the N/2 of a random function.

    >>> Rule(50, "random function").axis
    'y'
    """

    value: float
    label: str
    axis: Literal["x", "y"] = "y"


@dataclass(frozen=True)
class Note:
    """A few words at a place of the panel, given in the units of its axes.

    >>> Note(10, 0.5, "N/2").text
    'N/2'
    """

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Panel:
    """One pair of axes. `categories` name the whole numbers 0, 1, 2 … of the x axis, `value_label` the colours.

    >>> panel = Panel("", "N", "share", [Series("", [10, 20], [0.1, 0.2])], rules=[Rule(0.15, "limit")])
    >>> len(panel.series), panel.y_log
    (1, False)
    """

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    x_log: bool = False
    y_log: bool = False
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    rules: Sequence[Rule] = ()
    categories: Sequence[str] | None = None
    notes: Sequence[Note] = ()
    value_label: str = ""
    value_log: bool = False


@dataclass(frozen=True)
class Figure:
    """One or more panels with a caption; `name` is the file name of its exports.

    With `same_axes` all panels have the ranges that hold all of them (small multiples). The module has an example.
    """

    name: str
    title: str
    caption: str
    panels: Sequence[Panel]
    columns: int = 2
    where: str = ""  # the figure of the paper it corresponds to
    same_axes: bool = False

    def specification(self) -> dict[str, Any]:
        """The figure in Vega-Lite, with its colours: for a notebook, or to be changed by hand."""
        from flipscope.figures.vegalite import complete

        return complete(self)

    def svg(self) -> str:
        """The drawing as a document of its own, on white."""
        drawn: bytes = service("draw a figure")(self, "svg")
        return drawn.decode()

    def png(self, pixels_per_inch: float = 144) -> bytes:
        """The drawing as pixels, by default for a screen."""
        drawn: bytes = service("draw a figure")(self, "png", pixels_per_inch)
        return drawn

    def alt_text(self) -> str:
        """A description for readers who do not see the figure."""
        said = []
        for each in self.panels:
            labels = list(dict.fromkeys(series.label for series in each.series if series.label))
            named = ", ".join(labels[:8]) + (f" and {len(labels) - 8} more" if len(labels) > 8 else "")
            title = f"{each.title}: " if each.title else ""
            said.append(f"{title}{each.y_label} against {each.x_label}" + (f" for {named}" if named else ""))
        return f"{self.title}. " + "; ".join(said) + "."

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, Any]:
        """What a notebook shows: interactive where it knows this version of Vega-Lite, and else the drawing."""
        from flipscope.figures.vegalite import MEDIA_TYPE

        forms: dict[str, Callable[[], Any]] = {
            MEDIA_TYPE: self.specification,
            "image/svg+xml": self.svg,
            "image/png": lambda: base64.b64encode(self.png()).decode(),
            "text/plain": lambda: f"{self.title}. {self.caption}",
        }
        return {
            kind: made()
            for kind, made in forms.items()
            if (not include or kind in include) and kind not in (exclude or ())
        }


def histogram(label: str, samples: Values, edges: Sequence[float], *, share: bool = True, **look: Any) -> Series:
    """The share of the samples, or their number, between each two neighbours of the edges, as bars.

    >>> found = histogram("sensitivity", [0, 0, 1, 2], [-0.5, 0.5, 1.5, 2.5])
    >>> found.x, found.y
    ([0.0, 1.0, 2.0], [0.5, 0.25, 0.25])
    """
    found = np.asarray([value for value in samples if value is not None], np.float64)
    counts, places = np.histogram(found, np.asarray(edges, np.float64))
    heights = counts / max(1, len(found)) if share else counts
    middles = (places[:-1] + places[1:]) / 2
    hover = [f"{low:g} to {high:g}: {count:,}" for low, high, count in zip(places, places[1:], counts, strict=False)]
    return Series(label, middles.tolist(), heights.tolist(), "bars", hover=hover, **look)
