"""Figures as data: what to draw, not how. `report` makes an interactive picture of them, and files for papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from flipscope.errors import InputError

Kind = Literal["line", "points", "bars", "steps"]
KINDS: tuple[Kind, ...] = ("line", "points", "bars", "steps")
Values = Sequence[float | None]  # None leaves a gap


@dataclass(frozen=True)
class Series:
    """Points that belong together. `low` and `high` are intervals: a band around a line, whiskers elsewhere.

    Series of one `colour` number look alike in every panel of a figure; without one they are numbered in order.
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

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"the series {self.label!r} is of kind {self.kind!r}, not one of {', '.join(KINDS)}")
        for name in ("y", "low", "high", "hover"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.x):
                raise InputError(f"the series {self.label!r} has {len(self.x)} x and {len(values)} {name}")
        if (self.low is None) != (self.high is None):
            raise InputError(f"the series {self.label!r} has only one end of its intervals")


@dataclass(frozen=True)
class Rule:
    """A straight line at one value of an axis, such as the N/2 of a random function."""

    value: float
    label: str
    axis: Literal["x", "y"] = "y"


@dataclass(frozen=True)
class Panel:
    """One pair of axes. `categories` name the whole numbers 0, 1, 2 … of the x axis."""

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


@dataclass(frozen=True)
class Figure:
    """One or more panels with a caption; `name` is the file name of its exports."""

    name: str
    title: str
    caption: str
    panels: Sequence[Panel]
    columns: int = 2
    where: str = ""  # the figure of the paper it corresponds to
