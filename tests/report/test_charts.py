"""Pictures of figures: what is drawn where, the same bytes every time, and nothing that cannot be drawn."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from report.colours import contrast, least_difference

from flipscope.errors import InputError
from flipscope.lab.plots import KINDS, Figure, Kind, Panel, Rule, Series
from flipscope.report.charts import FORMATS, Format, alt_text, chart_data, file_stems, render, tick_text
from flipscope.report.layout import axes_of, legend_of, runs, step_places, whisker
from flipscope.report.style import MARKERS, PALETTE

MAGIC = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}


def panel(*series: Series, **options: Any) -> Panel:
    return Panel("a panel", "the x", "the y", series, **options)


def figure(*panels: Panel, **options: Any) -> Figure:
    return Figure("a-figure", "A figure", "Its caption.", panels, **options)


def every_kind(log: bool = False) -> Figure:
    x, y = [1, 2, 3, 4], [1.0, None, 3.0, 2.0]
    low, high = [0.5, None, 2.0, 0.0], [2.0, None, 4.0, 3.0]
    series = [Series(kind, x, y, kind, low, high, dashed=kind == "steps") for kind in KINDS]
    rules = [Rule(2.5, "halfway"), Rule(3.0, "three", "x")]
    return figure(panel(*series, x_log=log, y_log=log, rules=rules), panel(Series("none", [], [])))


def texts(svg: bytes) -> str:
    return " ".join(
        "".join(node.itertext()) for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("text")
    )


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("log", [False, True])
def test_every_kind_in_every_format_the_same_twice(format: Format, log: bool) -> None:
    first, second = (render(every_kind(log), format) for _ in range(2))
    assert first.startswith(MAGIC[format])
    assert first == second
    assert not re.search(rb"CreationDate|dc:date", first)


def test_another_format_is_refused() -> None:
    with pytest.raises(InputError, match="format='gif' is not one of svg, png, pdf"):
        render(every_kind(), "gif")  # type: ignore[arg-type]


def test_a_drawing_says_its_labels_legend_rules_and_gaps() -> None:
    said = texts(render(every_kind(), "svg"))
    for text in ("a panel", "the x", "the y", "line", "points", "bars", "steps", "halfway", "three", "no data"):
        assert text in said


def test_categories_are_named() -> None:
    names = ["First", "Majority", "a very long name of a language that has to be cut somewhere"]
    said = texts(render(figure(panel(Series("s", [0, 1, 2], [1, 2, 3], "points"), categories=names)), "svg"))
    assert "First" in said
    assert "a very long name of a l…" in said


@pytest.mark.parametrize("text", ["$\\frac{1", "a $x^2$ b", "\x00\x1b[31m", "漢字 🎲", "<b>&amp;</b>", "x" * 500, ""])
def test_any_text_can_be_drawn(text: str) -> None:
    drawn = Figure(
        text,
        text,
        text,
        [Panel(text, text, text, [Series(text, [1], [1]), Series("b", [1], [2])], rules=[Rule(1, text)])],
    )
    said = texts(render(drawn, "svg"))  # which is XML
    if text.startswith(("$", "a $", "<b>")):
        assert text in said
    assert render(drawn, "pdf").startswith(b"%PDF")


def test_more_series_than_colours_and_no_panels() -> None:
    many = figure(panel(*(Series(f"series {i}", [0, 1], [i, i + 1]) for i in range(50))))
    assert "series 49" in texts(render(many, "svg"))
    looks = {(each["colour"], each["marker"]) for each in chart_data(many)["legend"]}
    assert len(looks) == len(PALETTE) * len(MARKERS) == 42
    assert render(figure(), "svg").startswith(b"<?xml")
    assert chart_data(figure())["panels"] == []


def test_stems_are_safe_and_different() -> None:
    names = ["spectra", "../../etc/passwd", "spectra", "", "Größe 1", "random-init-averages", "x" * 200]
    stems = file_stems("random-init", [Figure(name, "", "", []) for name in names])
    assert stems[0] == "random-init-spectra"
    assert stems[5] == "random-init-averages"
    assert len(set(stems)) == len(names)
    assert all(re.fullmatch(r"random-init-[a-z0-9-]{1,64}", stem) for stem in stems)


def test_the_alternative_text_says_what_is_against_what() -> None:
    assert alt_text(every_kind()) == (
        "A figure. a panel: the y against the x for line, points, bars, steps; a panel: the y against the x for none."
    )
    many = figure(panel(*(Series(str(i), [0], [0]) for i in range(11))))
    assert alt_text(many).endswith("for 0, 1, 2, 3, 4, 5, 6, 7 and 3 more.")


# ---------------------------------------------------------------- layout


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
    values = [math.nan, math.inf, -math.inf, None, 10**400, "text", np.float32(2), np.int64(3), -1, 0]
    x = list(range(1, 11))
    linear = axes_of(figure(panel(Series("s", x, values))))[0].marks[0]  # type: ignore[arg-type]
    assert linear.y == [None] * 6 + [2, 3, -1, 0]
    assert runs(linear) == [[6, 7, 8, 9]]
    logarithmic = axes_of(figure(panel(Series("s", x, values), y_log=True)))[0].marks[0]  # type: ignore[arg-type]
    assert logarithmic.y == [None] * 6 + [2, 3, None, None]


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
        (Series("s", [0, 100], [9, 10]), {"rules": [Rule(11, "r"), Rule(200, "r", "x")]}, (-6, 206), (8.88, 11.12)),
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
        chart_data(figure(panel(Series("s", [1], [1]), **options)))


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


def test_steps_change_halfway() -> None:
    assert step_places([0, 2, 4], [5, 6, 7], False) == ([-1, 1, 1, 3, 3, 5], [5, 5, 6, 6, 7, 7])
    assert step_places([3], [1], False) == ([2.5, 3.5], [1, 1])
    assert step_places([1, 100], [1, 2], True)[0] == pytest.approx([0.1, 10, 10, 1000])


NUMBERS = st.one_of(st.none(), st.floats(), st.integers(-(10**320), 10**320))


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), max_size=6), st.sampled_from(KINDS), st.booleans())
@example([(1e300, 1e300, 1e-299, 1e300), (1e-299, 1e-299, 1e-299, 1)], "line", True)
@example([(1e300, 1e300, 1e300, 1e300), (-1e300, -1e300, 1, 1)], "bars", False)
def test_whatever_the_numbers_the_data_are_json_and_inside_the_axes(
    rows: Sequence[tuple[Any, Any, Any, Any]], kind: Kind, log: bool
) -> None:
    x, y, low, high = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
    drawn = figure(panel(Series("s", x, y, kind, low, high), Series("t", x, y, "bars"), x_log=log, y_log=log))
    data = chart_data(drawn)
    json.dumps(data, allow_nan=False)
    axes = axes_of(drawn)[0]
    for values, (start, end) in ((axes.marks[0].x, axes.x_range), (axes.marks[0].y, axes.y_range)):
        assert math.isfinite(start)
        assert math.isfinite(end)
        assert start < end
        assert all(start <= value <= end for value in values if value is not None)


# ---------------------------------------------------------------- numbers and colours


@pytest.mark.parametrize(
    ("value", "log", "text"),
    [
        (0, False, "0"),
        (-1.5, False, "−1.5"),
        (100_000, False, "100000"),
        (10_000, True, "10⁴"),
        (20_000, True, "2·10⁴"),
        (0.001, True, "0.001"),
        (1e-4, True, "10⁻⁴"),
        (-2.5e-7, False, "−2.5·10⁻⁷"),
        (1000, True, "1000"),
        (math.inf, False, ""),
    ],
)
def test_ticks_are_said_as_people_write_them(value: float, log: bool, text: str) -> None:
    assert tick_text(value, log) == text


def test_colours_differ_for_every_eye_and_from_the_paper() -> None:
    assert least_difference(PALETTE) > 15
    assert least_difference(("#ff0000", "#008000")) < 55  # what the measure is worth: red and green lose most of 150
    assert all(contrast(colour, "#ffffff") > 3 for colour in PALETTE)
