"""Figures of every kind."""

from __future__ import annotations

from typing import Any

from flipscope.figures import KINDS, AnyPanel, Figure, ImagePanel, Panel, Rule, Series, TextPanel


def panel(*series: Series, **options: Any) -> Panel:
    return Panel("a panel", "the x", "the y", series, **options)


def figure(*panels: AnyPanel, **options: Any) -> Figure:
    return Figure("a-figure", "A figure", "Its caption.", panels, **options)


def every_kind(log: bool = False) -> Figure:
    x, y = [1, 2, 3, 4], [1.0, None, 3.0, 2.0]
    low, high = [0.5, None, 2.0, 0.0], [2.0, None, 4.0, 3.0]
    plain = [kind for kind in KINDS if kind != "cells"]
    series = [Series(kind, x, y, kind, low, high, dashed=kind == "steps") for kind in plain]
    cells = Series("cells", x, y, "cells", values=[1.0, 2.0, None, 4.0])
    rules = [Rule(2.5, "halfway"), Rule(3.0, "three", "x")]
    logs = {"x_log": log, "y_log": log}
    return figure(panel(*series, **logs, rules=rules), panel(cells, value_label="heat"), panel(Series("none", [], [])))


def images_and_words(**options: Any) -> Figure:
    """An image under four cells, one of them without a value, and a strip of four words."""
    image = ImagePanel("an image", [[0, 0.5], [0.5, 1]], [[0.0, 0.25], [0.5, None]], "share")
    words = TextPanel("a text", ["not", "<b>good</b> &", "\n", "x" * 60], [0.5, 0.75, None, float("nan")], "share")
    return figure(image, words, **options)
