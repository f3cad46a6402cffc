"""Figures of learned and written-down networks: trace and norm by class (Fig 2), eigenvalues."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import flipscope.lab as lab
from flipscope.studies.sharper._flatness import COLUMNS, SHOWN

SPECTRA = 4  # functions whose eigenvalues are drawn


def figures(table: lab.Rows, title: str) -> list[lab.Figure]:
    """All figures of which there are rows."""
    rows = table.where(arm="classes", learned=True)
    classes = [_by_class(own, title, "" if not place else f"-{length}")
               for place, (length, own) in enumerate(rows.by("length"))]  # fmt: skip
    found = [_spectra(table), _penalised(table)]
    return [*classes, *(figure for figure in found if figure is not None)]


def _by_class(rows: lab.Rows, title: str, suffix: str) -> lab.Figure:
    """Fig 2: trace and norm by degree, a colour for each sparsity, the construction dashed."""
    panels = []
    for column, name in COLUMNS.items():
        series = []
        for colour, (sparsity, own) in enumerate(rows.by("sparsity")):
            said = f"sparsity {sparsity}"
            written = lab.line(own, "degree", f"made_{column}", f"{said}, written down", band=False, colour=colour,
                               dashed=True)  # fmt: skip
            series += [written, lab.line(own.where(_positive(column)), "degree", column, said, colour=colour)]
        panels.append(lab.Panel("", "degree D", name, series, y_log=True))
    caption = (
        f"T = {rows[0]['length']}. Solid: learned networks, geometric means with bands to the least and largest; "
        f"dashed: the networks that are written down for the same functions.{_absent(rows)}"
    )
    return lab.Figure(f"low-sharpness{suffix}", title, caption, panels, where="Fig 2")


def _positive(column: str) -> Callable[[lab.Row], bool]:
    return lambda row: bool(row[column] > 0)  # an estimated trace may be below 0, which a log scale cannot show


def _absent(rows: lab.Rows) -> str:
    """How many traces are not shown, in words."""
    missing = len(rows) - len(rows.where(_positive("trace")))
    return f" {missing} of {len(rows)} estimated traces are not positive, and not shown." if missing else ""


def _spectra(table: lab.Rows) -> lab.Figure | None:
    """How many eigenvalues lie above each value, of some functions."""
    rows = table.where(arm="classes", learned=True).having("nodes")
    chosen = [rows[place] for place in np.unique(np.linspace(0, len(rows) - 1, SPECTRA).astype(int))] if rows else []
    if not chosen:
        return None
    panels = []
    for row in chosen:
        series = [
            _above("learned", row["nodes"], row["weights"], 0, dashed=False),
            _above("written down", row["made_nodes"], row["made_weights"], 1, dashed=True),
        ]
        said = f"D = {row['degree']}, sparsity {row['sparsity']}"
        panels.append(lab.Panel(said, "eigenvalue", "eigenvalues above it", series, x_log=True, y_log=True))
    caption = "Of the Hessian of the training loss, by stochastic Lanczos quadrature: estimates, less certain below 1."
    return lab.Figure("low-sharpness-spectra", "Eigenvalues of the Hessian", caption, panels, same_axes=True)


def _above(label: str, nodes: list[float], weights: list[float], colour: int, *, dashed: bool) -> lab.Series:
    """The number of eigenvalues from each on, down to a small part of the largest."""
    order = np.argsort(nodes)[::-1]
    values, counts = np.array(nodes)[order], np.cumsum(np.array(weights)[order])
    kept = values > SHOWN * values[0]
    return lab.Series(label, values[kept].tolist(), counts[kept].tolist(), "steps", colour=colour, dashed=dashed)


def _penalised(table: lab.Rows) -> lab.Figure | None:
    """Trace and gap of the same functions with the trace in the loss and without."""
    penalised = table.where(arm="penalty", learned=True)
    keys = [(row["sparsity"], row["degree"], row["seed"]) for row in penalised]
    plain = table.where(lambda row: (row["sparsity"], row["degree"], row["seed"]) in keys, arm="classes", learned=True)
    plain = plain.where(length=penalised[0]["length"]) if penalised else plain
    if not penalised or not plain:
        return None
    panels = []
    for column, name, log in (("trace", "Hessian trace", True), ("gap", "gap", False)):
        shown = [
            (rows.where(_positive(column)) if log else rows, words)
            for rows, words in ((plain, "weight decay only"), (penalised, "trace in the loss"))
        ]
        series = [
            lab.Series(
                words, [row["degree"] + 0.1 * (colour - 0.5) for row in rows], rows.column(column), "points",
                colour=colour, hover=[f"sparsity {row['sparsity']}, seed {row['seed']}" for row in rows],
            )
            for colour, (rows, words) in enumerate(shown)
            if rows
        ]  # fmt: skip
        panels.append(lab.Panel("", "degree D", name, series, y_log=log))
    caption = (
        "The low-sharpness learner: a point per function, with the Hessian's trace in the loss and without."
        + _absent(lab.Rows([*plain, *penalised]))
    )
    return lab.Figure("low-sharpness-learner", "A learner that avoids sharpness", caption, panels, where="Def 1")
