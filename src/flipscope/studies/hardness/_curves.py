"""Curves of trainings against the steps after convergence."""

from __future__ import annotations

import numpy as np

import flipscope.lab as lab

SHARE = 1 / 4  # of the runs that must be measured at a step for a curve to be drawn there
CURVES = {"loss": "loss", "sharpness": "sharpness", "blowup": "blowup", "norm": "weight norm"}


def aligned(table: lab.Rows, column: str) -> lab.Rows:
    """The curve of each run that converged against the steps after that, where a quarter of them are measured."""
    runs = table.having("converged")
    rows = lab.Rows(
        {"after": step - run["converged"], "value": value}
        for run in runs
        for step, value in zip(run["step"], run[column], strict=True)
        if np.isfinite(value)
    )
    return lab.Rows(row for _, own in rows.by("after") if len(own) >= SHARE * len(runs) for row in own)


def panels(table: lab.Rows) -> list[lab.Panel]:
    """The four curves, one line for each weight decay."""
    return [
        lab.Panel(
            "",
            "steps after convergence",
            label,
            [
                lab.line(rows, "after", "value", f"weight decay {decay:g}", "geometric" if log else "mean")
                for decay, own in table.by("weight_decay")
                if (rows := aligned(own, column))
            ],
            y_log=log,
            rules=[lab.Rule(0.0, "converged", axis="x")],
        )
        for column, label in CURVES.items()
        for log in [column == "blowup"]
    ]


def path(table: lab.Rows) -> lab.Panel:
    """Norm against blowup after convergence, coloured by the step: means over runs."""
    series = []
    for decay, own in table.by("weight_decay"):
        norm = lab.line(aligned(own, "norm"), "after", "value", "", "mean", band=False)
        blowup = lab.line(aligned(own, "blowup"), "after", "value", "", "geometric", band=False)
        places = [place for place, after in enumerate(norm.x) if after is not None and after >= 0]
        x, y, steps = ([each[place] for place in places] for each in (blowup.y, norm.y, norm.x))
        if places:
            series.append(lab.Series(f"weight decay {decay:g}", x, y, "points", values=steps))
    label = "steps after convergence"
    return lab.Panel("", "blowup", "weight norm", series, x_log=True, value_label=label)
