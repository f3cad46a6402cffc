from __future__ import annotations

import math

import pytest

from flipscope.basics.estimates import Estimate, mean_from_samples
from flipscope.lab.charting import chart, charts
from flipscope.lab.judges import student_mean
from flipscope.lab.rows import Rows
from flipscope.lab.series import bars, estimates, line, means, points, survival

TABLE = Rows(
    {"n": n, "eps": eps, "seed": seed, "y": y}
    for n, eps, seed, y in ((8, 1.0, 0, 4.0), (4, 1.0, 0, 1.0), (4, 1.0, 1, 9.0), (4, 0.5, 0, 0.0), (4, 0.5, 1, 5.0))
)


def test_a_line_has_its_centre_and_a_band_to_the_ends() -> None:
    found = line(TABLE.where(eps=1.0), "n", "y", "mean", colour=3)
    assert (list(found.x), found.colour) == ([4, 8], 3)
    assert list(found.y) == pytest.approx([3.0, 4.0])
    assert (found.low, found.high) == ([1.0, 4.0], [9.0, 4.0])
    assert list(line(TABLE.where(eps=1.0), "n", "y", "median", "median").y) == [5.0, 4.0]


def test_a_geometric_mean_leaves_out_what_has_no_logarithm() -> None:
    small, large = chart(TABLE, "n", "y", by="eps", labels="eps = {:g}", centre="geometric").series
    assert (small.label, large.label) == ("eps = 0.5", "eps = 1")
    assert list(small.y) == pytest.approx([5.0])
    assert chart(TABLE, "n", "y", by="eps", centre="median").series[0].low == [0.0]
    infinite = Rows([*TABLE.where(eps=0.5), {"n": 4, "eps": 0.5, "y": math.inf}])
    assert list(chart(infinite, "n", "y", by="eps", centre="geometric").series[0].y) == pytest.approx([5.0])


def test_an_order_gives_each_value_its_colour_whatever_else_is_there() -> None:
    order = (0.0, 0.5, 1.0)
    assert [each.colour for each in chart(TABLE, "n", "y", by="eps").series] == [None, None]
    assert [each.colour for each in chart(TABLE, "n", "y", by="eps", order=order).series] == [1, 2]
    assert [each.colour for each in chart(TABLE.where(eps=1.0), "n", "y", by="eps", order=order).series] == [2]


def test_rows_without_a_number_are_left_out_and_rows_apart_are_points() -> None:
    rows = Rows([*TABLE.where(eps=1.0), {"n": 4, "eps": 1.0, "y": None}, {"n": 4, "eps": 1.0, "y": math.nan}])
    line_of_rows, apart = chart(
        rows, "n", "y", apart=TABLE.where(eps=0.5), hover=lambda row: f"y = {row['y']:g}"
    ).series
    assert list(line_of_rows.y) == [5.0, 4.0]
    assert (apart.kind, list(apart.x), list(apart.y), apart.hover) == ("points", [4, 4], [0.0, 5.0], ["y = 0", "y = 5"])


def test_a_band_can_be_the_interval_of_the_mean() -> None:
    (shown,) = chart(TABLE.where(eps=1.0), "n", "y", band="interval").series
    expected = student_mean([1.0, 9.0], 0.95)
    assert (list(shown.x), shown.low, shown.high) == ([4], [expected.low], [expected.high])  # one row has no interval
    bounded = mean_from_samples([1.0, 9.0], 0, 10)
    (within,) = chart(TABLE.where(eps=1.0), "n", "y", band="interval", ends=(0, 10)).series
    assert within.low is not None
    assert (list(within.x), within.low[0]) == ([4, 8], bounded.low)
    assert chart(TABLE, "n", "y", band="none").series[0].low is None


def test_charts_have_a_panel_for_each_value() -> None:
    panels = charts(TABLE, "n", "y", facet="eps", titles="eps = {:g}", x_label="N")
    assert [(panel.title, panel.x_label, len(panel.series)) for panel in panels] == [
        ("eps = 0.5", "N", 1),
        ("eps = 1", "N", 1),
    ]
    assert [panel.title for panel in charts(TABLE, "n", "y", facet="eps", titles={1.0: "one", 2.0: "two"})] == ["one"]


def test_estimates_show_their_intervals() -> None:
    found = estimates("share", [1, 2], [Estimate(0.5, 0.4, 0.7, 0.95, 9), Estimate(1, 0.9, 1, 0.95, 9)], "points")
    assert (found.y, found.low, found.high, found.kind) == ([0.5, 1], [0.4, 0.9], [0.7, 1], "points")


def test_means_have_the_intervals_of_bounded_samples() -> None:
    rows = Rows({"n": n, "share": share} for n, share in ((8, 0.5), (4, 1.0), (4, 0.0)))
    found, expected = means(rows, "n", "share", "mean"), mean_from_samples([1.0, 0.0], 0, 1)
    assert (list(found.x), list(found.y)) == ([4, 8], [0.5, 0.5])
    assert found.low is not None
    assert found.low[0] == expected.low
    wider = means(rows, "n", "share", "mean", (-1, 1))
    assert wider.low is not None
    assert wider.low[0] < 0


def test_a_bar_of_height_0_is_not_drawn() -> None:
    found = bars("share", [0.5, 0.0, 0.25])
    assert (list(found.x), list(found.y), found.kind) == ([0, 1, 2], [0.5, None, 0.25], "bars")
    assert found.hover == ["0: 0.5", "1: 0", "2: 0.25"]


def test_the_tail_of_samples() -> None:
    found = survival("tail", [1.0, 4.0, 2.0, 3.0])
    assert (list(found.x), list(found.y), found.kind) == ([4.0, 3.0], [0.25, 0.5], "steps")
    assert list(survival("tail", [1.0, 4.0], 1.0).y) == [0.5, 1.0]
    assert list(survival("tail", [7.0]).x) == [7.0]


def test_points_of_groups() -> None:
    rows = Rows({"n": n, "y": n / 2, "right": right} for right in (False, True) for n in (10, 20))
    found = points(rows, "n", "y", "right", lambda row: f"N = {row['n']}", {True: "learned", False: "not"})
    assert [(each.label, each.colour, each.kind) for each in found] == [("learned", 0, "points"), ("not", 1, "points")]
    assert found[0].hover == ["N = 10", "N = 20"]
    (alone,) = points(rows.where(right=False), "n", "y", "right", str, {True: "learned", False: "not"})
    assert (alone.label, alone.colour) == ("not", 1)  # the colour that it has beside others
