"""How influences and blowups fall with the length, and what part of their bounds they are: the figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flipscope.lab as lab


def by_length(table: lab.Rows, title: str, order: Sequence[float]) -> lab.Figure:
    """Panels for each size of weights, and of the parts of the bounds; a line for each eps, colours in this order."""

    def panel(name: str, y: str, rows: lab.Rows, column: str, **look: Any) -> lab.Panel:
        lines = lab.lines(rows, "length", column, "eps", "eps = {:g}", order=order)
        return lab.Panel(name, "N", y, lines, x_log=True, y_log=True, **look)

    panels = [
        panel(f"{column} over positions, weights up to {size:g}", "influence on the EOS activation", rows, column)
        for column in ("mean", "largest")
        for size, rows in table.by("scale")
    ]
    telling = table.having("bound").where(lambda row: row["bound"] < row["diameter"])
    for name, rows, column, bound in (
        ("largest influence, where its bound says something", telling, "largest", "bound"),
        ("largest blowup beta", table.having("beta_bound"), "beta", "beta_bound"),
    ):
        parts = lab.Rows({**row, "part": row[column] / row[bound]} for row in rows)
        panels.append(panel(name, "measured / bound", parts, "part", rules=[lab.Rule(1.0, "the bound")]))
    caption = "Geometric mean over models; bands from the smallest to the largest model."
    return lab.Figure("influence-decay", title, caption, panels, columns=3, where="Cor 3.3, Lem 3.2")
