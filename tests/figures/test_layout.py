"""Where everything of a figure stands, and that nothing is drawn that has no place."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from figures.some_figures import figure, panel
from hypothesis import example, given
from hypothesis import strategies as st

from flipscope.basics.errors import InputError
from flipscope.figures import KINDS, Kind, Rule, Series
from flipscope.figures.layout import axes_of, legend_of, whisker
from flipscope.figures.vegalite import specification


def test_a_label_has_one_number_in_all_panels() -> None:
    drawn = figure(
        panel(Series("a", [0], [0]), Series("b", [0], [0], colour=0), Series("c", [0], [0])),
        panel(Series("c", [0], [0]), Series("a", [0], [0]), Series("b", [0], [0])),
    )
    numbers = [{marks.label: marks.number for marks in axes.marks} for axes in axes_of(drawn)]
    assert numbers == [{"a": 1, "b": 0, "c": 2}] * 2
    assert [marks.label for marks in legend_of(axes_of(drawn))] == ["a", "b", "c"]


def test_a_title_needs_no_legend() -> None:
    assert legend_of(axes_of(figure(panel(Series("a panel", [0], [0]), Series("", [0], [0]))))) == []


def test_what_has_no_place_on_the_axis_is_a_gap() -> None:
    values = [math.nan, math.inf, -math.inf, None, 10**400, np.float32(2), np.int64(3), -1, 0]
    x = list(range(1, 10))
    linear = axes_of(figure(panel(Series("s", x, values))))[0].marks[0]  # type: ignore[arg-type]
    assert linear.y == [None] * 5 + [2, 3, -1, 0]
    logarithmic = axes_of(figure(panel(Series("s", x, values), y_log=True)))[0].marks[0]  # type: ignore[arg-type]
    assert logarithmic.y == [None] * 5 + [2, 3, None, None]


def test_whiskers_that_reach_zero_end_at_the_bottom_of_a_logarithmic_axis() -> None:
    series = Series("s", [1, 2, 3], [1, 2, 3], "points", [0, 1, math.nan], [2, 3, 4])
    axes = axes_of(figure(panel(series, y_log=True)))[0]
    assert [whisker(axes.marks[0], i, 0.25, True) for i in range(3)] == [(0.25, 2), (1, 3), None]
    assert whisker(axes.marks[0], 0, 0.25, False) == (0, 2)


@pytest.mark.parametrize(
    ("series", "options", "x_range", "y_range"),
    [
        (Series("s", [0, 10], [1, 2], "bars"), {"x_range": (0, 10)}, (0, 10), (0, 2.12)),
        (Series("s", [0, 10], [-1, -2], "bars"), {"x_range": (0, 10)}, (0, 10), (-2.12, 0)),
        (Series("s", [0, 100], [0.1, 1]), {}, (-3, 103), (0, 1.06)),
        (Series("s", [0, 100], [9, 10]), {"rules": [Rule(11, "r"), Rule(200, "", "x")]}, (-6, 206), (8.88, 11.12)),
        (Series("s", [0, 100], [9, 10]), {"rules": [Rule(11, "r"), Rule(200, "r", "x")]}, (-6, 206), (8.88, 11.2768)),
        (Series("s", [5], [5]), {}, (4.5, 5.5), (4.5, 5.5)),
        (Series("s", [5], [-5]), {}, (4.5, 5.5), (-5.5, -4.5)),
        (Series("s", [1, 100], [1, 1]), {"x_log": True, "y_log": True}, (10**-0.06, 10**2.06), (10**-0.5, 10**0.5)),
        (Series("s", [], []), {"y_log": True}, (0, 1), (1, 10)),
        (Series("s", [0], [1], "points", [0.5], [1.5]), {"categories": "ab"}, (-0.6, 1.6), (0.44, 1.56)),
        (Series("s", [0], [0], "bars"), {"categories": "a"}, (-0.6, 0.6), (0, 1)),
    ],
)
def test_ranges_hold_what_is_drawn(
    series: Series, options: dict[str, Any], x_range: tuple[float, float], y_range: tuple[float, float]
) -> None:
    axes = axes_of(figure(panel(series, **options)))[0]
    assert axes.x_range == pytest.approx(x_range)
    assert axes.y_range == pytest.approx(y_range)


@pytest.mark.parametrize(
    "options",
    [
        {"x_range": (1, 1)},
        {"y_range": (2, 1)},
        {"y_range": (0, 1), "y_log": True},
        {"x_range": (0, math.nan)},
    ],
)
def test_a_range_that_is_none_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"the panel 'a panel' has [xy]_range=\(.*, which is no range of a"):
        axes_of(figure(panel(Series("s", [1], [1]), **options)))


def test_bars_that_meet_stand_beside_each_other() -> None:
    meeting = axes_of(figure(panel(*(Series(name, [0, 2], [1, 1], "bars") for name in "ab"))))[0].marks
    assert [(each.offset, each.width) for each in meeting] == [(-0.4, 0.8), (0.4, 0.8)]
    apart = axes_of(figure(panel(Series("a", [0], [1], "bars"), Series("b", [1], [1], "bars"))))[0].marks
    assert [(each.offset, each.width) for each in apart] == [(0, 0.8), (0, 0.8)]
    decades = axes_of(figure(panel(Series("a", [1, 10, 100], [1, 1, 1], "bars"), x_log=True)))[0].marks
    assert decades[0].width == pytest.approx(0.8)


def test_points_stand_beside_each_other_only_at_categories() -> None:
    series = [Series(name, [0, 1], [1, 1], "points") for name in "ab"]
    assert [each.offset for each in axes_of(figure(panel(*series)))[0].marks] == [0, 0]
    beside = axes_of(figure(panel(*series, categories="xy")))[0].marks
    assert [(each.offset, each.width) for each in beside] == [(-0.125, 0), (0.125, 0)]


NUMBERS = st.one_of(st.none(), st.floats(), st.integers(-(10**320), 10**320))


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), max_size=6), st.sampled_from(KINDS), st.booleans())
@example([(1e300, 1e300, 1e-299, 1e300), (1e-299, 1e-299, 1e-299, 1)], "line", True)
@example([(1e300, 1e300, 1e300, 1e300), (-1e300, -1e300, 1, 1)], "bars", False)
def test_whatever_the_numbers_the_data_are_json_and_inside_the_axes(
    rows: Sequence[tuple[Any, Any, Any, Any]], kind: Kind, log: bool
) -> None:
    x, y, low, high = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
    values = y if kind == "cells" else None
    first = Series("s", x, y, kind, low, high, values=values)
    drawn = figure(panel(first, Series("t", x, y, "bars"), x_log=log, y_log=log))
    json.dumps(specification(drawn), allow_nan=False)
    axes = axes_of(drawn)[0]
    for values, (start, end) in ((axes.marks[0].x, axes.x_range), (axes.marks[0].y, axes.y_range)):
        assert math.isfinite(start)
        assert math.isfinite(end)
        assert start < end
        assert all(start <= value <= end for value in values if value is not None)


def test_cells_touch_and_fill_the_axes() -> None:
    cells = Series("c", [0, 1, 0, 1], [2, 2, 4, 4], "cells", values=[1, 2, 3, 4])
    axes = axes_of(figure(panel(cells)))[0]
    assert (axes.marks[0].width, axes.marks[0].height) == (1, 2)
    assert (axes.x_range, axes.y_range) == ((-0.5, 1.5), (1, 5))


def test_small_multiples_have_the_same_axes() -> None:
    panels = (panel(Series("s", [0, 10], [1, 2])), panel(Series("s", [5, 20], [-3, 1])))
    apart, same = axes_of(figure(*panels)), axes_of(figure(*panels, same_axes=True))
    assert apart[0].x_range != apart[1].x_range
    assert same[0].x_range == same[1].x_range == (apart[0].x_range[0], apart[1].x_range[1])
    assert same[0].y_range == same[1].y_range == (apart[1].y_range[0], apart[0].y_range[1])


def test_a_rule_alone_has_axes_around_it() -> None:
    for series in ([], [Series("c", [], [], "cells", values=[])]):
        axes = axes_of(figure(panel(*series, rules=[Rule(1.0, "the bound"), Rule(2.0, "x", "x")])))[0]
        assert axes.y_range == pytest.approx((0.9, 1.114))  # with room for the label of the upright one
        assert axes.x_range == (1.8, 2.2)
    json.dumps(specification(figure(panel(rules=[Rule(1.0, "the bound")]))), allow_nan=False)
