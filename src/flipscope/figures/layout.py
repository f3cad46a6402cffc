"""Where everything of a figure stands: numbers of the series, ranges, places of bars, and what can be drawn."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flipscope.basics.errors import InputError
from flipscope.figures import Figure, Note, Panel, Rule, Series, Values

LARGEST = 1e300  # beyond it the width of a range has no float
MARKED = 24  # a line of more points goes without markers
HEADROOM = 0.07  # of the height, for the label of an upright rule
BARS, DODGE = 0.8, 0.5  # share of the room between two places that bars, or points beside each other, take

Numbers = list[float | None]


@dataclass(frozen=True)
class Marks:
    """A series as it is drawn: floats or None, its number, and how far its marks stand beside their x.

    `offset`, `width` and `height` (of bars and cells) are in units of the axis: decades on a logarithmic one.
    """

    label: str
    number: int
    kind: str
    dashed: bool
    x: Numbers
    y: Numbers
    low: Numbers | None
    high: Numbers | None
    hover: list[str] | None
    values: Numbers | None = None
    offset: float = 0.0
    width: float = 0.0
    height: float = 0.0  # of cells

    @property
    def marked(self) -> bool:
        """Whether each point of a line gets its marker."""
        return sum(y is not None for y in self.y) <= MARKED


@dataclass(frozen=True)
class Axes:
    """A panel with everything decided but the ticks."""

    panel: Panel
    marks: list[Marks]
    rules: list[Rule]
    notes: list[Note]
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    @property
    def empty(self) -> bool:
        """Whether nothing is left to draw."""
        pairs = (pair for marks in self.marks for pair in zip(marks.x, marks.y, strict=True))
        return not any(x is not None and y is not None for x, y in pairs)


def axes_of(figure: Figure) -> list[Axes]:
    """The panels of a figure that have axes, ready to be drawn."""
    numbers = _numbers(figure)
    found = [_axes(panel, numbers) for panel in figure.panels if isinstance(panel, Panel)]
    if not figure.same_axes or not found:
        return found
    x_range, y_range = (
        (min(low for low, _ in ranges), max(high for _, high in ranges))
        for ranges in ([each.x_range for each in found], [each.y_range for each in found])
    )
    return [replace(each, x_range=x_range, y_range=y_range) for each in found]


def legend_of(axes: Iterable[Axes]) -> list[Marks]:
    """The first series of each label and number, in order: what the legend names; a panel's title needs no legend."""
    found: dict[tuple[str, int], Marks] = {}
    for each in axes:
        for marks in each.marks:
            if marks.label not in ("", each.panel.title) and marks.values is None:
                found.setdefault((marks.label, marks.number), marks)
    return list(found.values())


def _numbers(figure: Figure) -> dict[str, int]:
    """The number of each label: the one it was given, or the next that is free."""
    series = [each for panel in figure.panels if isinstance(panel, Panel) for each in panel.series]
    numbers: dict[str, int] = {}
    for each in series:
        if each.colour is not None:
            numbers.setdefault(each.label, each.colour)
    taken = {each.colour for each in series if each.colour is not None}
    free = (number for number in range(len(series) + len(taken)) if number not in taken)
    for each in series:
        if each.label not in numbers:
            numbers[each.label] = next(free)
    return numbers


def _axes(panel: Panel, numbers: dict[str, int]) -> Axes:
    marks = [_marks(series, panel, numbers) for series in panel.series]
    marks = _beside(marks, "bars", BARS, panel.x_log)
    if panel.categories is not None:
        marks = _beside(marks, "points", DODGE, panel.x_log)
    marks = [_celled(each, panel) if each.kind == "cells" else each for each in marks]
    logs = {"x": panel.x_log, "y": panel.y_log}
    rules = [rule for rule in panel.rules if drawable(rule.value, logs[rule.axis]) is not None]
    notes = [
        note
        for note in panel.notes
        if drawable(note.x, panel.x_log) is not None and drawable(note.y, panel.y_log) is not None
    ]
    return Axes(panel, marks, rules, notes, _x_range(panel, marks, rules), _y_range(panel, marks, rules))


def _marks(series: Series, panel: Panel, numbers: dict[str, int]) -> Marks:
    number = numbers[series.label] if series.colour is None else series.colour
    # A low end at or below 0 is kept on a logarithmic axis: it reaches to the bottom.
    return Marks(
        series.label,
        number,
        series.kind,
        series.dashed,
        _drawables(series.x, panel.x_log),
        _drawables(series.y, panel.y_log),
        None if series.low is None else _drawables(series.low, False),
        None if series.high is None else _drawables(series.high, False),
        None if series.hover is None else [str(text) for text in series.hover],
        None if series.values is None else _drawables(series.values, panel.value_log),
    )


def _drawables(values: Values, log: bool) -> Numbers:
    return [drawable(value, log) for value in values]


def drawable(value: Any, log: bool = False) -> float | None:
    """The value as a float that has a place on the axis, or None."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if not abs(number) <= LARGEST or (log and number <= 1 / LARGEST):
        return None
    return number


def scaled(value: float, log: bool) -> float:
    """Where a value stands on its axis."""
    return math.log10(value) if log else value


def unscaled(place: float, log: bool) -> float:
    """The value at a place of the axis."""
    return 10.0 ** max(-307.0, min(307.0, place)) if log else place


def _beside(marks: list[Marks], kind: str, room: float, log: bool) -> list[Marks]:
    """Series of a kind that meet at the same x stand beside each other; those that never meet do not."""
    group = [each for each in marks if each.kind == kind]
    places = [{scaled(x, log) for x in each.x if x is not None} for each in group]
    everywhere = set().union(*places)
    if not everywhere:
        return marks
    meeting = sum(map(len, places)) > len(everywhere)
    count = len(group) if meeting else 1
    width = room * _least_gap(everywhere, log) / count
    slots = {id(each): (slot - (count - 1) / 2) * width if meeting else 0.0 for slot, each in enumerate(group)}
    return [
        each if each.kind != kind else replace(each, offset=slots[id(each)], width=width if kind == "bars" else 0.0)
        for each in marks
    ]


def _celled(marks: Marks, panel: Panel) -> Marks:
    """Cells that touch their neighbours."""
    width, height = (
        _least_gap({scaled(value, log) for value in values if value is not None}, log)
        for values, log in ((marks.x, panel.x_log), (marks.y, panel.y_log))
    )
    return replace(marks, width=width, height=height)


def _least_gap(places: set[float], log: bool) -> float:
    """The room that each of these places has."""
    gaps = [after - before for before, after in itertools.pairwise(sorted(places))]
    return min(gaps, default=0.1 if log else 1.0)


def _given(panel: Panel, given: tuple[float, float], log: bool, axis: str) -> tuple[float, float]:
    low, high = (drawable(end, log) for end in given)
    if low is None or high is None or not low < high:
        kind = "logarithmic " if log else ""
        raise InputError(f"the panel {panel.title!r} has {axis}_range={given}, which is no range of a {kind}axis")
    return low, high


def _only_cells(marks: list[Marks]) -> bool:
    """Whether there are cells and nothing else: they fill the axes."""
    return {each.kind for each in marks if any(x is not None for x in each.x)} == {"cells"}


def _x_range(panel: Panel, marks: list[Marks], rules: list[Rule]) -> tuple[float, float]:
    if panel.x_range is not None:
        return _given(panel, panel.x_range, panel.x_log, "x")
    if panel.categories is not None:
        return -0.6, len(panel.categories) - 0.4
    places = [rule.value for rule in rules if rule.axis == "x"]
    for each in marks:
        half = (0.5 if each.kind == "cells" else 0.6) * each.width
        shifts = (each.offset - half, each.offset + half)
        points = [scaled(x, panel.x_log) for x in each.x if x is not None]
        places += [unscaled(point + shift, panel.x_log) for point in points for shift in shifts]
    if _only_cells(marks):
        return min(places), max(places)
    return _padded(places, panel.x_log, 0.03)


def _y_range(panel: Panel, marks: list[Marks], rules: list[Rule]) -> tuple[float, float]:
    if panel.y_range is not None:
        return _given(panel, panel.y_range, panel.y_log, "y")
    low, high = _free_range(panel, marks, rules)
    upright = sum(rule.axis == "x" and rule.label != "" for rule in rules)
    if not upright or _only_cells(marks):
        return low, high
    bottom, top = scaled(low, panel.y_log), scaled(high, panel.y_log)
    return low, unscaled(top + upright * HEADROOM * (top - bottom), panel.y_log)


def _free_range(panel: Panel, marks: list[Marks], rules: list[Rule]) -> tuple[float, float]:
    """What the y axis has to show."""
    places = [rule.value for rule in rules if rule.axis == "y"]
    for each in marks:
        ends = [*each.y, *(each.low or ()), *(each.high or ())]
        places += [place for place in (drawable(end, panel.y_log) for end in ends) if place is not None]
        halves = (-each.height / 2, each.height / 2) if each.height else ()
        middles = [scaled(y, panel.y_log) for y in each.y if y is not None]
        places += [unscaled(middle + half, panel.y_log) for middle in middles for half in halves]
    if _only_cells(marks):
        return min(places), max(places)
    bars = any(each.kind == "bars" for each in marks)
    if panel.y_log or not places:
        return _padded(places, panel.y_log, 0.06)
    low, high = min(places), max(places)
    # Bars stand on 0; and an axis that would start near 0 starts there.
    if low >= 0 and (bars or low < 0.3 * high):
        return 0.0, high * 1.06 or 1.0
    if bars and high <= 0:
        return low * 1.06, 0.0
    return _padded(places, False, 0.06)


def _padded(places: Sequence[float], log: bool, share: float) -> tuple[float, float]:
    """From the least to the largest value, with a margin."""
    if not places:
        return (1.0, 10.0) if log else (0.0, 1.0)
    low, high = scaled(min(places), log), scaled(max(places), log)
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # a single value stands in the middle
        margin = 0.5 if log else abs(low) * 0.1 or 0.5
    else:
        margin = share * (high - low)
    return unscaled(low - margin, log), unscaled(high + margin, log)


def whisker(marks: Marks, index: int, bottom: float, log: bool) -> tuple[float, float] | None:
    """The ends of the interval of a point as they are drawn; one that reaches 0 on a log axis ends at the bottom."""
    if marks.low is None or marks.high is None or marks.x[index] is None or marks.y[index] is None:
        return None
    low, high = marks.low[index], marks.high[index]
    if low is None or high is None or (log and high <= 0):
        return None
    return (bottom if log and low <= 0 else low), high
