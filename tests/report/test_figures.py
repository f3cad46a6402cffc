"""Figures of Boolean functions: what is drawn."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from flipscope.basics.estimates import Estimate
from flipscope.cube.expression import parse
from flipscope.cube.portrait import MAX_TITLE, Portrait, exact_portrait, sampled_portrait
from flipscope.figures import Panel
from flipscope.figures.panels import MAX_BARS, log10_share
from flipscope.report.drawing import save_figure
from flipscope.report.figures import function_figure


def exact(text: str) -> Portrait:
    return exact_portrait(parse(text), text)


def panels(portrait: Portrait) -> list[Panel]:
    return list(function_figure([portrait]).panels)


def heights(panel: Panel) -> dict[float | None, float]:
    (series,) = panel.series
    return {x: y for x, y in zip(series.x, series.y, strict=True) if y is not None}


def intervals(panel: Panel) -> int:
    (series,) = panel.series
    return sum(low is not None for low in series.low or ())


@pytest.mark.parametrize("count", [1, 2, 4])
def test_one_strip_a_function(count: int) -> None:
    texts = ["parity(5)", "majority(5)", "first(5)", "tribes(6)"][:count]
    figure = function_figure([exact(text) for text in texts])
    assert [panel.title for panel in figure.panels[::4]] == texts
    labels = ["sensitivity s(x)", "degree |S|", "position", "correlation ρ"]
    assert [panel.x_label for panel in figure.panels] == labels * count


def test_the_numbers_of_majority_are_the_heights_of_the_bars() -> None:
    profile, weights, influences, stability = panels(exact("majority(21)"))
    zero = 1 - 2 * math.comb(21, 10) / 2**21
    assert heights(profile) == pytest.approx({0: zero, 11: 1 - zero})
    assert set(heights(weights)) == set(range(1, 22, 2))
    assert sum(heights(weights).values()) == pytest.approx(1)
    assert heights(influences) == pytest.approx(dict.fromkeys(range(1, 22), math.comb(20, 10) / 2**20))
    curve = list(heights(stability).values())
    assert (curve[0], curve[-1]) == (pytest.approx(0), pytest.approx(1))
    assert curve == sorted(curve)
    assert profile.rules[0].value == pytest.approx(21 * math.comb(20, 10) / 2**20)


def test_small_shares_get_a_logarithmic_axis() -> None:
    assert panels(exact("conjunction(12)"))[0].y_log
    assert not panels(exact("majority(21)"))[0].y_log


def test_samples_are_drawn_with_their_intervals() -> None:
    portrait = sampled_portrait(parse("random(40)"), "random(40)", 200)
    profile, weights, influences, stability = panels(portrait)
    seen = [entry for entry in portrait.profile if isinstance(entry, Estimate) and entry.value > 0]
    assert intervals(profile) == len(seen)
    assert (weights.title, list(weights.series)) == ("not estimated", [])
    assert intervals(influences) == 40
    assert intervals(stability) == len(portrait.noise_stability or {}) == 5
    assert stability.series[0].kind == "points"


def test_no_interval_is_cut_off() -> None:
    portrait = sampled_portrait(parse("random(8)"), "random(8)", 5)
    top = panels(portrait)[2].y_range
    assert top is not None
    assert top[1] > max(entry.high for entry in portrait.influences if isinstance(entry, Estimate))


def test_very_many_influences_are_one_line() -> None:
    assert panels(exact(f"majority({MAX_BARS - 1})"))[2].series[0].kind == "bars"
    assert panels(exact(f"majority({MAX_BARS + 1})"))[2].series[0].kind == "line"


def test_a_missing_spectrum_is_said() -> None:
    portrait = replace(exact("x1 ^ x2"), weight_by_degree=None, noise_stability=None)
    _, weights, _, stability = panels(portrait)
    for panel in (weights, stability):
        assert (panel.title, list(panel.series)) == ("no exact spectrum", [])


@pytest.mark.parametrize("text", ["0", "majority(2000)", "random_junta(3, n=2000)"])
def test_the_unusual_can_be_drawn(text: str, tmp_path: Path) -> None:
    assert save_figure(function_figure([exact(text)]), tmp_path / "f.png").stat().st_size > 1000


def test_a_long_title_is_cut() -> None:
    title = panels(replace(exact("x1"), name="x1 & " * 100 + "x1"))[0].title
    assert len(title) == MAX_TITLE
    assert title.endswith("…")


def test_text_in_svg_stays_text(tmp_path: Path) -> None:
    written = save_figure(function_figure([exact("maj(x1..x3) ^ x4")]), tmp_path / "f.svg").read_text(encoding="utf-8")
    assert "maj(x1..x3) ^ x4" in written
    assert "noise stability" in written


def test_log10_share_needs_no_float() -> None:
    assert log10_share(3, 4) == pytest.approx(math.log10(3 / 16))
    assert log10_share(1 << 9_999, 10_000) == pytest.approx(math.log10(0.5))
