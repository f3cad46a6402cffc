"""Figures of random transformers: spectra under each initialisation, and insensitivity by depth, width and FFN."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

import flipscope.lab as lab
from flipscope.studies.geometry._shared import spectrum_panel
from flipscope.studies.geometry.random_models import INITS, mixed

KINDS = ("all, threshold 0", "not constant, threshold 0", "all, threshold at the median")


def spectra_figures(table: lab.Rows) -> list[lab.Figure]:
    """Spectra and averages of all models; then spectra of those that vary, and with the median threshold."""
    spectra, averages, apart, half = [], [], [], table[0]["length"] / 2
    for init, rows in sorted(table.by("init"), key=lambda group: INITS.index(group[0])):
        name, colour = init.replace("_", " ").capitalize(), INITS.index(init)
        title, constant = f"{name}, {len(rows)} transformers", sum(rows.column("constant"))
        shares = _mean_profile(rows, "")
        bins = np.bincount([int(row["average_sensitivity"]) for row in rows], minlength=len(shares)) / len(rows)
        shown = [lab.bars(title, heights, colour=colour) for heights in (shares, bins)]
        spectra.append(spectrum_panel(title, "sensitivity", "share of strings", shown[:1], half))
        averages.append(spectrum_panel(title, "average sensitivity", "share of transformers", shown[1:], half))
        groups = (rows, rows.where(constant=False), rows.having("centred_strings"))
        lines = [
            lab.Series(kind, list(range(len(shares))), _points(_mean_profile(own, prefix)), "points", colour=place)
            for place, (kind, own, prefix) in enumerate(zip(KINDS, groups, ("", "", "centred_"), strict=True))
            if own
        ]
        head = f"{name}: {constant} of {len(rows)} constant"
        apart.append(spectrum_panel(head, "sensitivity", "share of strings", lines, half))
    every = "Share of the strings at each sensitivity, on a log scale. Every transformer counts the same."
    bits = "Share of the transformers by average sensitivity, in bins of one bit, on a log scale to show the tail."
    others = (
        "The same spectra, of the transformers that are not constant as far as their strings and flips show, and of "
        "all with the threshold at the median of their own logits."
    )
    top, bottom, middle = "Sensitivity spectra", "Distribution of average sensitivities", "Spectra, constants apart"
    return [
        lab.Figure("random-init-spectra", top, every, spectra, where="Figs 3 and 4, top"),
        lab.Figure("random-init-averages", bottom, bits, averages, where="Figs 3 and 4, bottom"),
        lab.Figure("random-init-apart", middle, others, apart, where="§6"),
    ]


def breakdown(table: lab.Rows, settings: Mapping[str, str]) -> lab.Figure:
    """Share of strings of sensitivity 0 and average sensitivity by each setting; both thresholds."""
    table = mixed(table)
    centred, half, panels = table.having("centred_strings"), table[0]["length"] / 2, []
    for column, name in settings.items():
        for measure, y, end in (
            ("zero_share", "share with s(x) = 0", 1),
            ("average_sensitivity", "mean s(x)", 2 * half),
        ):
            series = [
                lab.means(rows, column, prefix + measure, label, (0, end), kind="points", colour=place)
                for place, (label, rows, prefix) in enumerate(
                    (("threshold 0", table, ""), ("threshold at the median", centred, "centred_"))
                )
                if rows
            ]
            rules = [lab.Rule(half, "random function")] if end > 1 else []
            top = 1 if end == 1 else half * 1.1
            panels.append(lab.Panel("", name, y, series, x_log=column != "layers", y_range=(0, top), rules=rules))
    caption = "Means over the transformers of each depth, width and FFN multiple, all initialisations together."
    return lab.Figure("random-init-breakdown", "Insensitivity by depth, width and FFN", caption, panels, where="§6")


def _mean_profile(rows: lab.Rows, prefix: str) -> list[float]:
    """The share of strings at each sensitivity, every transformer counted the same."""
    shares = [np.array(row[prefix + "profile"]) / row[prefix + "strings"] for row in rows]
    return list(np.mean(shares, axis=0)) if shares else []


def _points(heights: list[float]) -> list[float | None]:
    return [float(height) or None for height in heights]
