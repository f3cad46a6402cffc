"""The figures of `perturbed-sharpness`."""

from __future__ import annotations

from typing import Any

import flipscope.lab as lab
from flipscope.studies.sharper._perturbations import NOISE, Noise

RANGE = (1e-4, 1e18)  # of traces and their bounds, alike in all panels
WHOLE = "change of the trace / trace without noise"


def figures(table: lab.Rows) -> list[lab.Figure]:
    """Changes against degree, T and size, with the bounds, and slices of the loss."""
    noisy = table.where(kind="perturbed")
    drawn = []
    for noise in NOISE:
        own = noisy.where(noise=noise)
        if own:
            drawn.append(_changes(own, noise))
    std = noisy.where(noise="std")
    if std:
        drawn.append(_bounds(std))
    slices = table.where(kind="slice")
    return [*drawn, _slices(slices)] if slices else drawn


def _changes(own: lab.Rows, noise: Noise) -> lab.Figure:
    """Fig 3 and 4: the ratio by degree, by T and by size of the noise."""
    some, degrees = _three(own.values("value")), _three(own.values("degree"))
    few = own.where(lambda row: row["value"] in some)
    shortest, several = min(own.values("length")), len(own.values("length")) > 1
    label = "σ = {:.2g}" if noise == "std" else "σ² = {:.2g}"
    first = own.where(lambda row: row["length"] == shortest and row["degree"] in degrees)
    at, size = f"T = {shortest}", f"size of the noise, {NOISE[noise]}"
    by_degree = lab.lines(few.where(length=shortest), "degree", "relative", "value", label, order=some)
    by_length = lab.lines(few, "length", "relative", "value", label, order=some)
    by_value = [
        lab.line(rows, "value", "relative", f"D = {degree}", colour=len(some) + place)
        for place, (degree, rows) in enumerate(first.by("degree"))
    ]
    panels = [
        lab.Panel(at, "degree D", WHOLE, by_degree, y_log=True),
        *([lab.Panel("all degrees", "length T", WHOLE, by_length, y_log=True)] if several else []),
        lab.Panel(at, size, WHOLE, by_value, x_log=True, y_log=True),
    ]
    caption = "Geometric means over functions and sparsities, with bands from the least change to the largest."
    title = f"The change of the trace, the size of the noise being {NOISE[noise]}"
    return lab.Figure(f"perturbed-sharpness-{noise}", title, caption, panels, columns=3, where="Figs 3-4")


def _three(values: list[Any]) -> list[Any]:
    """The first, the middle and the last: with more the colours would come twice."""
    return [values[k] for k in sorted({0, len(values) // 2, len(values) - 1})]


def _bounds(std: lab.Rows) -> lab.Figure:
    """What is measured beside P and G_u, at the smallest T, by size of the noise: one panel for each sparsity."""
    shortest = std.where(length=min(std.values("length")))
    degree = shortest.values("degree")[len(shortest.values("degree")) // 2]
    panels = []
    for sparsity, own in shortest.where(degree=degree).by("sparsity"):
        series = [
            lab.line(own, "sigma", "change", "change, measured", colour=0),
            lab.line(own, "sigma", "base", "trace without noise", colour=1, dashed=True),
            lab.line(own, "sigma", "gradient", "G_u", colour=2, dashed=True),
            lab.line(own, "sigma", "analytic", "P of Thm 17, mended", colour=3),
            lab.line(own, "sigma", "released", "P as released", colour=4),
        ]
        rule = [lab.Rule(own[0]["threshold"], "neurons may flip", "x")]
        title = f"ω = {sparsity}, D = {degree}, T = {own[0]['length']}"
        panels.append(lab.Panel(title, "σ", "trace", series, x_log=True, y_log=True, y_range=RANGE, rules=rule))
    caption = "Geometric means over functions, with bands from the least to the largest."
    title = "The change of the trace and its bounds"
    return lab.Figure("perturbed-sharpness-bounds", title, caption, panels, where="§ 2.3")


def _slices(slices: lab.Rows) -> lab.Figure:
    shift, random = [], []
    for colour, (degree, own) in enumerate(slices.by("degree")):
        row = own[0]
        shift.append(lab.Series(f"D = {degree}", row["offset"], row["loss"], colour=colour))
        random.append(lab.Series(f"D = {degree}", row["random_offset"], row["random_loss"][0], colour=colour))
    about = f"ω = {slices[0]['sparsity']}, T = {slices[0]['length']}"
    panels = [
        lab.Panel(about, "shift of the MLP's input", "loss", shift),
        lab.Panel(about, "offset along noise, in σ", "loss", random),
    ]
    caption = (
        "Loss against the network's own outputs, of the first function of each degree: left all biases of the MLP "
    )
    caption += "move together, right all parameters move along one draw of Gaussian noise."
    return lab.Figure("perturbed-sharpness-slices", "Slices of the loss", caption, panels, where="Thm 9")
