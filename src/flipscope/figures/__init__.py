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
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from flipscope.basics.checks import shown
from flipscope.basics.errors import InputError
from flipscope.basics.services import service

Kind = Literal["line", "points", "bars", "steps", "cells"]
KINDS: tuple[Kind, ...] = ("line", "points", "bars", "steps", "cells")
Values = Sequence[float | None]  # None leaves a gap
MOST_SAID = 8  # panels that a description names
_CHANNELS = ((), (1,), (3,), (4,))  # the fourth, opacity, is not drawn
_LUMINANCE = np.array([0.2126, 0.7152, 0.0722])  # of red, green and blue


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


@dataclass(frozen=True, eq=False)
class ImagePanel:
    """An image under cells that are coloured by their values, such as the sensitivity to each patch.

    `image` is [row, column], [row, column, channel] or, as PyTorch has it, [channel, row, column]; it is drawn in grey,
    for the colours are those of the cells. `values` [row, column] are cells that divide the image evenly. With `cells`,
    which gives the number of the cell that each pixel belongs to (-1 for none), they are one value for each cell. A
    value of None or NaN leaves its cell uncoloured. `hover` has a text for each value, in the same order.

    >>> panel = ImagePanel("a digit", np.zeros((8, 8)), [[0.0, 0.5], [1.0, None]], "sensitivity")
    >>> panel.image.dtype, panel.values
    (dtype('uint8'), [0.0, 0.5, 1.0, None])
    >>> panel.cells[:, 5]
    array([1, 1, 1, 1, 3, 3, 3, 3])
    """

    title: str
    image: Any
    values: Any
    value_label: str = ""
    cells: Any = None
    hover: Sequence[str] | None = None
    value_range: tuple[float, float] | None = None
    names: Sequence[str] = field(init=False)  # of the cells

    def __post_init__(self) -> None:
        image = grey_image(self.image, self.title)
        values = np.asarray(self.values, np.float64)
        rows, columns = image.shape
        if self.cells is None:
            if values.ndim != 2 or 0 in values.shape or values.shape[0] > rows or values.shape[1] > columns:
                raise InputError(
                    f"the panel {self.title!r} has values of shape {values.shape} for an image of {rows} x {columns} "
                    "pixels: give one value for each cell, [row, column], or say by `cells` where the cells are"
                )
            down, across = (
                np.arange(size) * parts // size for size, parts in zip(image.shape, values.shape, strict=True)
            )
            cells = down[:, None] * values.shape[1] + across
            names = [f"row {row + 1}, column {column + 1}" for row, column in np.ndindex(*values.shape)]
        else:
            cells = np.asarray(self.cells)
            if cells.shape != image.shape or cells.dtype.kind not in "iu":
                raise InputError(
                    f"the panel {self.title!r} has cells={shown(cells)}: give a whole number for each of the "
                    f"{rows} x {columns} pixels"
                )
            if values.ndim != 1 or cells.max() >= len(values):
                raise InputError(
                    f"the panel {self.title!r} has values of shape {values.shape} for cells up to {int(cells.max())}: "
                    "give one value for each cell"
                )
            names = [f"cell {number + 1}" for number in range(len(values))]
        if self.hover is not None and len(self.hover) != values.size:
            raise InputError(f"the panel {self.title!r} has {values.size} values and {len(self.hover)} hover")
        made = {"image": image, "cells": cells, "names": names, "values": finite_or_none(values.ravel().tolist())}
        for name, value in made.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class TextPanel:
    """A text as a strip of words, each on a background that is coloured by its value; the strip wraps.

    A value of None or NaN leaves its word without a background. `hover` has a text for each word.

    >>> TextPanel("a review", ["not", "good"], [0.75, 0.5], "sensitivity").words
    ['not', 'good']
    """

    title: str
    words: Sequence[str]
    values: Values
    value_label: str = ""
    hover: Sequence[str] | None = None
    value_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for name in ("values", "hover"):
            given = getattr(self, name)
            if given is not None and len(given) != len(self.words):
                raise InputError(f"the panel {self.title!r} has {len(self.words)} words and {len(given)} {name}")
        object.__setattr__(self, "values", finite_or_none(self.values))


AnyPanel = Panel | ImagePanel | TextPanel


def finite_or_none(values: Iterable[Any]) -> list[float | None]:
    """The values as floats, None for what is no finite number."""
    floats = (None if value is None else float(value) for value in values)
    return [None if value is None or not math.isfinite(value) else value for value in floats]


def grey_image(image: Any, name: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The image in shades of grey, [row, column] from 0 to 255.

    Whole numbers from 0 to 255 and other numbers from 0 to 1 are taken as they are; where some lie outside, as in
    images that were normalised, the least becomes black and the largest white.
    """
    found = np.asarray(image)
    if found.ndim == 3 and found.shape[0] in (1, 3) and found.shape[2] not in (1, 3, 4):
        found = np.moveaxis(found, 0, 2)
    if (
        found.ndim not in (2, 3)
        or found.size == 0
        or found.dtype.kind not in "biuf"
        or found.shape[2:] not in _CHANNELS
    ):
        raise InputError(
            f"the image of the panel {name!r} is {shown(image)}: give numbers [row, column], [row, column, channel] or "
            "[channel, row, column], with 1 or 3 channels"
        )
    whole = found.dtype == np.uint8
    numbers = found.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise InputError(f"the image of the panel {name!r} has NaN or infinite pixels")
    if numbers.ndim == 3:
        numbers = numbers[..., 0] if numbers.shape[2] == 1 else numbers[..., :3] @ _LUMINANCE
    low, high = (0.0, 255.0) if whole else (0.0, 1.0)
    if numbers.min() < low or numbers.max() > high * (1 + 1e-6):
        low, high = float(numbers.min()), float(numbers.max())
    grey: np.ndarray[Any, np.dtype[np.uint8]] = np.round(
        255 * np.clip((numbers - low) / (high - low or 1.0), 0, 1)
    ).astype(np.uint8)
    return grey


@dataclass(frozen=True)
class Figure:
    """One or more panels with a caption; `name` is the file name of its exports.

    With `same_axes` all panels have the ranges that hold all of them (small multiples). The module has an example.
    """

    name: str
    title: str
    caption: str
    panels: Sequence[AnyPanel]
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
            if not isinstance(each, Panel):
                said.append(_alt_text(each))
                continue
            labels = list(dict.fromkeys(series.label for series in each.series if series.label))
            named = ", ".join(labels[:8]) + (f" and {len(labels) - 8} more" if len(labels) > 8 else "")
            title = f"{each.title}: " if each.title else ""
            said.append(f"{title}{each.y_label} against {each.x_label}" + (f" for {named}" if named else ""))
        more = f"; and {len(said) - MOST_SAID} more panels" if len(said) > MOST_SAID else ""
        return f"{self.title}. " + "; ".join(said[:MOST_SAID]) + more + "."

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


def _alt_text(panel: ImagePanel | TextPanel) -> str:
    """What a picture of values shows: how many there are, and the largest."""
    parts, kind = (panel.words, "words") if isinstance(panel, TextPanel) else (panel.names, "cells of an image")
    largest = sorted(
        ((value, name) for value, name in zip(panel.values, parts, strict=True) if value is not None),
        key=lambda pair: -pair[0],
    )[:3]
    named = ", ".join(f"{name} ({value:.3g})" for value, name in largest)
    title = f"{panel.title}: " if panel.title else ""
    return f"{title}{panel.value_label or 'values'} of {len(parts)} {kind}" + (f", largest at {named}" if named else "")


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
