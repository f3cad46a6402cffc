"""The figure of `bound-comparison`."""

from __future__ import annotations

import flipscope.lab as lab
from flipscope.studies.sharper._compared import LENGTH, SAMPLES

SHOWN = {  # column, label, dashed
    "truncated": ("PAC-Bayes, truncated", False),
    "semi": ("PAC-Bayes, semi-analytic", False),
    "mended": ("PAC-Bayes, analytic", False),
    "groups": ("PAC-Bayes, a σ per parameter", False),
    "template": ("covering template, constant 1", True),
    "scaled": ("covering template, printed value", True),
}
BOUNDED = {
    "truncated": ("sub-Gaussian, Σ = 0.01", True),
    "certified": ("sub-Gaussian, Σ = 1/2", False),
    "mcallester": ("McAllester", False),
    "catoni": ("Catoni", False),
}
CAPTION = (
    "Tilings by pairs, ω = T / 2, D = 2, Σ = 0.01 where losses are sub-Gaussian. Covering templates have not the "
    "published constant, which is lost: it is 1, or what gives the printed value at T = 20 and a million samples."
)


def drawn(table: lab.Rows, title: str) -> list[lab.Figure]:
    """All bounds against m and T, where the covering template becomes the smaller one, and bounds of bounded losses."""
    formulas, noisy = table.where(kind="formulas"), table.where(kind="measured")
    by_samples = lab.Rows([*formulas.where(length=LENGTH), *noisy.where(length=LENGTH)])
    by_length = lab.Rows([*formulas.where(samples=SAMPLES), *noisy.where(samples=SAMPLES)])
    at, million = f"T = {LENGTH}", "m = 10^6"
    panels = [
        _bounds(at, "samples", "samples m", by_samples, SHOWN),
        _bounds(million, "length", "length T", by_length, SHOWN),
    ]
    crossings = formulas.where(samples=SAMPLES).having("crossover")
    series = [
        lab.Series(SHOWN[name][0], crossings.column("length"), [10**each for each in crossings.column(column)],
                   colour=list(SHOWN).index(name), dashed=True)
        for name, column in (("template", "crossover"), ("scaled", "crossover_scaled"))
    ]  # fmt: skip
    panels.append(lab.Panel("covering below truncated", "length T", "samples m, from here on", series, True, True))
    bounded = [
        _bounds(at, "samples", "samples m", by_samples, BOUNDED),
        _bounds(million, "length", "length T", by_length, BOUNDED),
    ]
    said = "With Σ = 0.01, as the paper estimates it, and for losses cut off at 1: all without the perturbation term."
    return [
        lab.Figure("bound-comparison", title, CAPTION, panels, columns=3, where="E.3"),
        lab.Figure("bound-comparison-bounded", "PAC-Bayes bounds of bounded losses", said, bounded, where="E.2"),
    ]


def _bounds(title: str, x: str, label: str, rows: lab.Rows, shown: dict[str, tuple[str, bool]]) -> lab.Panel:
    series = [
        lab.line(rows.having(name), x, name, said, band=False, colour=colour, dashed=dashed)
        for colour, (name, (said, dashed)) in enumerate(shown.items())
        if rows.having(name)
    ]
    return lab.Panel(title, label, "bound", series, x_log=True, y_log=True, rules=[lab.Rule(1.0, "vacuous above")])
