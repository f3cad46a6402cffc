"""Figures of `sparse-and`: success by strings, the critical number by length, curves of two trainings."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

import flipscope.lab as lab
from flipscope.studies.sparse_variables._chain import FITTED, floor, halfway
from flipscope.studies.sparse_variables._critical import growth_of, smallest_above_half
from flipscope.training.recipes.sparse_variables import SUCCESS

LAWS = {"log": "a + b log T", "power": "power of T", "linear": "a + b T"}


def success_panel(table: lab.Rows) -> lab.Panel:
    """The share of trainings that succeed by the number of strings, with the fitted curve of each length."""
    found, series = growth_of(table), []
    for colour, (length, rows) in enumerate(table.where(kind="training").by("length")):
        groups = list(rows.by("samples"))
        shares = [lab.share_of(own, lambda row: bool(row["success"]), 0.68) for _, own in groups]
        hover = [f"T = {length}, m = {m}: {sum(own.column('success'))} of {len(own)}" for m, own in groups]
        places = [m for m, _ in groups]
        series.append(lab.estimates(f"T = {length}", places, shares, "points", colour=colour, hover=hover))
        if found is not None:
            x = np.geomspace(min(places), max(places), 100)
            middle = found.critical[length].value
            y = 1 / (1 + np.exp(-(np.log(x) - math.log(middle)) / found.width))
            series.append(lab.Series(f"T = {length}", x.tolist(), y.tolist(), colour=colour))
    rule = lab.Rule(0.5, "one half")
    return lab.Panel("", "strings m", "share that succeed", series, x_log=True, y_range=(0, 1), rules=[rule])


def critical_panel(table: lab.Rows) -> lab.Panel:
    """The critical number of strings by length: measured, by three laws, a floor, and the learner of triples."""
    found, rows = growth_of(table), table.where(kind="training")
    lengths = rows.values("length")
    series = []
    if found is not None:
        places = list(found.critical)
        values = list(found.critical.values())
        series.append(lab.estimates("half succeed (logistic fit)", places, values, "points", colour=0))
        for number, law in enumerate(LAWS):
            x, y = _drawn(law, places, found.laws[law])
            series.append(lab.Series(f"{LAWS[law]}, fitted", x, y, dashed=law != "log", colour=2 + number))
    rule = {length: each for length in lengths if (each := smallest_above_half(rows.where(length=length))) is not None}
    if rule:
        series.append(lab.estimates("least m above one half", list(rule), list(rule.values()), "points", colour=1))
    learner = {
        length: place
        for length, own in table.where(kind="learner").by("length")
        if (place := halfway(own.column("samples"), [row["hits"] / row["of"] for row in own])) is not None
    }
    if learner:
        series.append(lab.Series("one triple is left", list(learner), list(learner.values()), colour=5))
    series.append(lab.Series("floor log2 C(T, 3) / H(1/8)", lengths, [floor(length) for length in lengths], colour=6))
    return lab.Panel("", "length T", "strings m", series, x_log=True)


def _drawn(law: str, lengths: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """A law of two numbers, which its first and last value give, between these."""
    (first, last), (low, high) = (lengths[0], lengths[-1]), (values[0], values[-1])
    x = np.geomspace(first, last, 50)
    part = (x - first) / (last - first) if law == "linear" else np.log(x / first) / math.log(last / first)
    y = low * (high / low) ** part if law == "power" else low + (high - low) * part
    return x.tolist(), y.tolist()


def curve_figure(table: lab.Rows) -> lab.Figure | None:
    """Losses and accuracy of the trainings whose curves were kept."""
    panels = []
    for row in table.where(kind="curve"):
        place = f"T = {row['length']}, m = {row['samples']}"
        names = (
            ("set_loss", "training set"),
            ("batch_loss", "batches, with dropout"),
            ("validation_loss", "validation"),
        )
        losses = [
            lab.Series(label, row["curve_step"], [max(value, 1e-7) for value in row[f"curve_{name}"]], colour=colour)
            for colour, (name, label) in enumerate(names)
        ]
        limit = lab.Rule(FITTED, f"{FITTED:g}")
        panels.append(lab.Panel(place, "steps", "loss", losses, y_log=True, rules=[limit]))
        accuracy = lab.Series("validation", row["curve_step"], row["curve_validation_accuracy"], colour=2)
        rules = [lab.Rule(SUCCESS, f"{SUCCESS:g}"), lab.Rule(0.875, "always 0")]
        panels.append(lab.Panel(place, "steps", "accuracy", [accuracy], rules=rules))
    caption = "One training of each. One that learns its strings by heart stays near the accuracy of always 0."
    return lab.Figure("sparse-and-curves", "Two trainings", caption, panels, where="Fig 2 right") if panels else None
