"""Figures in Vega-Lite: what is drawn, in which colours, and that Vega itself takes it."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
import vl_convert
from figures.some_figures import every_kind, figure, panel
from report.colours import contrast, least_difference

from flipscope.basics.errors import InputError
from flipscope.figures import Figure, Note, Rule, Series, histogram
from flipscope.figures.text import number_text
from flipscope.figures.vegalite import (
    COLOURS,
    DASH,
    DASHES,
    MEDIA_TYPE,
    PALETTES,
    SHAPES,
    STROKE,
    specification,
    theme,
)


def layers(drawn: Figure, place: int = 0, mark: str | None = None) -> list[dict[str, Any]]:
    found = specification(drawn)["concat"][place]["layer"]
    return [layer for layer in found if mark is None or layer["mark"]["type"] == mark]


def rows(drawn: Figure, mark: str) -> list[dict[str, Any]]:
    return [row for layer in layers(drawn, 0, mark) for row in layer["data"]["values"]]


def texts(drawn: Figure) -> str:
    return str(vl_convert.vegalite_to_svg(specification(drawn), config=theme("paper")))


def test_points_lines_bars_and_intervals_stand_where_they_should() -> None:
    x, y, low, high = [1, 2, 3], [1.0, None, 3.0], [0.5, None, 2.0], [2.0, None, 4.0]
    assert [(row["x"], row["y"]) for row in rows(figure(panel(Series("s", x, y))), "line")] == [
        (1, 1),
        (2, None),
        (3, 3),
    ]
    points = figure(panel(Series("s", x, y, "points", low, high)))
    assert [(row["x"], row["y"]) for row in rows(points, "point") if row] == [(1, 1), (3, 3)]
    assert [(row["x"], row["l"], row["h"]) for row in rows(points, "rule")] == [(1, 0.5, 2), (3, 2, 4)]
    bars = rows(figure(panel(Series("s", x, y, "bars"))), "rect")
    assert [(row["x"], row["x2"], row["y"], row["y2"]) for row in bars] == [(0.6, 1.4, 1, 0), (2.6, 3.4, 3, 0)]
    band = rows(figure(panel(Series("s", x, y, low=low, high=high))), "area")
    assert [(row["l"], row["h"]) for row in band] == [(0.5, 2), (None, None), (2, 4)]


def test_bars_on_a_logarithmic_axis_stand_on_its_bottom() -> None:
    bars = rows(figure(panel(Series("s", [1, 2], [0.1, 1], "bars"), y_log=True, y_range=(0.01, 2))), "rect")
    assert [row["y2"] for row in bars] == [0.01, 0.01]


def test_points_on_the_edge_of_the_axes_stand_there_whole_and_those_beyond_are_left_out() -> None:
    drawn = figure(panel(Series("s", [1, 2, 3, 4], [0.0, 1.0, 1.01, -0.01], "points"), y_range=(0, 1)))
    assert [(row["x"], row["y"]) for row in rows(drawn, "point") if row] == [(1, 0), (2, 1)]
    assert not any(layer["mark"].get("clip") for layer in layers(drawn, 0, "point"))


def test_labels_of_upright_rules_stand_beneath_each_other_above_the_data() -> None:
    rules = [Rule(0.5, "level"), Rule(2, "one", "x"), Rule(3, "two", "x")]
    drawn = specification(figure(panel(Series("s", [1, 4], [0.5, 1.0]), rules=rules)))["concat"][0]
    said = {layer["mark"]["text"]: layer["encoding"] for layer in drawn["layer"] if layer["mark"]["type"] == "text"}
    assert (said["one"]["y"]["value"], said["two"]["y"]["value"]) == (2, 13)
    bare = figure(panel(Series("s", [1, 4], [0.5, 1.0])))
    heights = [
        next(
            layer["encoding"]["y"]["scale"]["domain"]
            for layer in each["layer"]
            if "scale" in layer["encoding"].get("y", {})
        )
        for each in (drawn, specification(bare)["concat"][0])
    ]
    assert heights[0][1] > heights[1][1]
    assert heights[0][0] == heights[1][0]


def test_the_scale_of_values_is_written_as_the_axes_are() -> None:
    valued = Series("s", [1, 2], [1, 2], "points", values=[0, 6000])
    layer = layers(figure(panel(valued, value_label="steps")), 0, "point")[-1]
    assert layer["encoding"]["fill"]["legend"]["labelExpr"] == number_text(False)
    assert "6000" in texts(figure(panel(valued, value_label="steps")))


def test_the_scale_of_values_ends_at_round_numbers() -> None:
    valued = Series("s", [1, 2], [1, 2], "cells", values=[5.769e-9, 0.997547])
    shown = {text for text in ("5.769", "0.997547", ">0.5<", ">1<") if text in texts(figure(panel(valued)))}
    assert shown == {">0.5<", ">1<"}


def test_a_bar_among_thousands_is_still_seen() -> None:
    values = [None] * 5000
    values[7] = 1.0
    (bar,) = rows(figure(panel(Series("s", list(range(5000)), values, "bars"))), "rect")
    assert bar["x2"] - bar["x"] > 30


def test_cells_carry_their_values_and_labels() -> None:
    drawn = figure(panel(Series("c", [0, 1], [0, 0], "cells", values=[1.5, None]), value_label="heat"))
    assert [(row["v"], row["value"]) for row in rows(drawn, "rect")] == [(1.5, "1.5"), (None, "")]
    assert "heat" in texts(drawn)
    with pytest.raises(InputError, match="need values for their colours"):
        Series("c", [0], [0], "cells")
    with pytest.raises(InputError, match="only points and cells can show"):
        Series("c", [0], [0], "line", values=[1])


def test_a_histogram_counts_what_lies_between_its_edges() -> None:
    made = histogram("h", [0.5, 0.6, 1.5, None, 9], [0, 1, 2])
    assert (made.x, made.y, made.kind) == ([0.5, 1.5], [0.5, 0.25], "bars")
    assert histogram("h", [0.5], [0, 1], share=False).y == [1]


def test_what_is_said_of_a_point() -> None:
    series = Series("s", [1], [2.0], "points", [1.5], [2.5], hover=["a note"])
    (row,) = [row for row in rows(figure(panel(series)), "point") if row]
    assert (row["title"], row["at"], row["is"], row["note"]) == ("s", "1", "2 [1.5, 2.5]", "a note")
    named = figure(panel(Series("s", [0], [-1.0], "points"), categories=["First"]))
    (row,) = [row for row in rows(named, "point") if row]
    assert (row["at"], row["is"]) == ("First", "−1")


def test_series_of_one_label_and_two_colours_are_two() -> None:
    drawn = figure(panel(Series("a", [0], [0], colour=0), Series("a", [1], [1], colour=3)))
    names = {row["s"] for row in rows(drawn, "line")}
    assert len(names) == 2
    assert {name.strip("\N{ZERO WIDTH SPACE}") for name in names} == {"a"}


def test_the_legend_lets_choose_and_is_left_out_where_it_tells_nothing() -> None:
    two = layers(figure(panel(Series("a", [0], [0]), Series("b", [0], [1]))))
    (held,) = [layer["params"] for layer in two if "params" in layer]
    assert held[0]["bind"] == "legend"
    assert not any("params" in layer for layer in layers(figure(panel(Series("a", [0], [0])))))


def test_dashed_lines_are_dashed_in_every_panel_and_in_the_legend() -> None:
    plain, bound = Series("a", [0, 1], [0, 1], colour=1), Series("bound", [0, 1], [1, 2], dashed=True, colour=0)
    open_points = Series("open", [0, 1], [2, 1], "points", dashed=True, colour=2)
    drawn = figure(panel(plain), panel(bound, open_points))
    every = [layer for place in (0, 1) for layer in layers(drawn, place)]
    looks = {"strokeDash": [[1, 0], DASH, [1, 0]], "shape": [SHAPES[1], DASHES, SHAPES[2]]}
    for channel, expected in looks.items():  # panels share a scale, whichever of them has the dashed line
        found = [layer["encoding"][channel] for layer in every if channel in layer["encoding"]]
        scales = [each["scale"] for each in found if each["scale"] is not None]
        assert scales
        assert all(each["domain"] == ["a", "bound", "open"] and each["range"] == expected for each in scales)
    # The edge of a symbol is never dashed, and a dashed line keeps its markers.
    assert all(layer["encoding"].get("strokeDash", {}).get("legend") is None for layer in every)
    assert [row["m"] for layer in every for row in layer["data"]["values"] if "m" in row] == [SHAPES[0]] * 2
    texts(drawn)  # Vega takes it


def test_the_legend_shows_a_stroke_where_lines_have_no_markers() -> None:
    many = [float(x) for x in range(200)]
    long, stairs = Series("long", many, many, colour=0), Series("stairs", [0, 1], [0, 1], "steps", colour=1)
    curve, points = Series("both", many, many, colour=2), Series("both", [0, 1], [2, 1], "points", colour=2)
    drawn = figure(panel(long, stairs, curve), panel(points, Series("few", [0, 1], [1, 2], colour=3)))
    [shape] = {
        tuple(layer["encoding"]["shape"]["scale"]["range"])
        for place in (0, 1)
        for layer in layers(drawn, place)
        if "shape" in layer["encoding"]
    }
    assert shape == (STROKE, STROKE, SHAPES[2], SHAPES[3])
    [target] = [
        layer for layer in layers(drawn, 0) if layer["mark"].get("opacity") == 0 and "tooltip" in layer["encoding"]
    ]
    assert "shape" not in target  # a stroke has no inside to point at
    texts(drawn)


def test_ticks_of_less_than_a_decade() -> None:
    short = panel(Series("a", [50.0, 400.0], [1.0, 2.0], "points"), x_log=True)
    [ticks] = [
        layer["encoding"]["x"]["axis"]["values"]
        for layer in layers(figure(short))
        if "values" in (layer["encoding"].get("x", {}).get("axis") or {})
    ]
    assert ticks == [50, 70, 100, 200, 300, 400]


def test_every_kind_names_everything_and_is_taken_by_vega() -> None:
    for log in (False, True):
        said = texts(every_kind(log))
        for text in ("a panel", "the x", "the y", "line", "points", "bars", "steps", "halfway", "three", "no data"):
            assert text in said


def test_lines_that_look_alike_are_not_joined() -> None:
    seeds = [Series("seeds" if seed == 0 else "", [0, 1], [seed, seed], colour=0) for seed in range(3)]
    paths = re.findall(r'<path d="([^"]*)"[^>]*stroke-dasharray="1,0"', figure(panel(*seeds)).svg())
    assert [path.count("L") for path in paths] == [1, 1, 1]
    bands = [Series(each.label, each.x, each.y, low=each.y, high=each.y, colour=0) for each in seeds]
    assert {row["k"] for row in rows(figure(panel(*bands)), "area")} == {0, 1, 2}


def test_notes_rules_and_categories_are_written() -> None:
    names = ["First", "Majority", "a very long name of a language that has to be cut somewhere"]
    series = Series("s", [0, 1, 2], [1, 2, 3], "points")
    said = texts(figure(panel(series, categories=names, notes=[Note(1, 2, "here")], rules=[Rule(99, "outside")])))
    assert "First" in said
    assert "a very long name of a l…" in said
    assert "here" in said
    many = [f"corruption {number}" for number in range(20)]
    crowded = texts(figure(panel(Series("s", range(20), range(20), "points"), categories=many)))
    assert all(name in crowded for name in many)
    inside = figure(panel(series, rules=[Rule(9, "outside")], y_range=(0, 4)))
    assert "outside" not in texts(inside)


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
        (1e120, True, "10¹²⁰"),
        (1e-15, True, "10⁻¹⁵"),
        (1000, True, "1000"),
    ],
)
def test_ticks_are_said_as_people_write_them(value: float, log: bool, text: str) -> None:
    expression = number_text(log)
    data = [{"value": value}]
    spec = {
        "data": {"values": data},
        "transform": [{"calculate": expression, "as": "said"}],
        "mark": "text",
        "encoding": {"text": {"field": "said"}},
    }
    assert f">{text}<" in vl_convert.vegalite_to_svg(spec)


@pytest.mark.parametrize("ends", [(5.4, 9.3), (1.01, 1.9), (1e-7, 1.3e-7), (6e200, 8e200), (0.9, 11), (3.0, 3.00001)])
def test_a_logarithmic_axis_has_ticks_however_short(ends: tuple[float, float]) -> None:
    short = panel(Series("a", [1.0, 2.0], list(ends), "points"), y_log=True)
    axes = [layer["encoding"]["y"].get("axis") or {} for layer in layers(figure(short)) if "y" in layer["encoding"]]
    [ticks] = [axis["values"] for axis in axes if "values" in axis]
    assert 3 <= len(ticks) == len(set(ticks)) <= 8
    assert ends[0] / 1.2 <= min(ticks) < max(ticks) <= ends[1] * 1.2


def test_colours_differ_for_every_eye_and_from_the_ground() -> None:
    grounds = {"paper": "#ffffff", "light": "#ffffff", "dark": "#14181d"}
    for place, palette in PALETTES.items():
        assert least_difference(palette) > 15
        assert all(contrast(colour, grounds[place]) > 3 for colour in palette)
    assert least_difference(("#ff0000", "#008000")) < 55  # what the measure is worth: red and green lose most of 150
    assert math.lcm(COLOURS, len(SHAPES)) == 42  # so many series look different


def test_a_figure_shows_itself_in_a_notebook() -> None:
    shown = every_kind()._repr_mimebundle_()
    json.dumps(shown, allow_nan=False)
    assert shown["text/plain"] == "A figure. Its caption."
    assert vl_convert.vegalite_to_svg(shown[MEDIA_TYPE]).startswith("<svg")
