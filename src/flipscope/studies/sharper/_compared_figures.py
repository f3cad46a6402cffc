"""The figure of `bound-comparison`."""

from __future__ import annotations

import flipscope.lab as lab
from flipscope.studies.sharper._compared import LENGTH, SAMPLES

SHOWN = {  # column, label, dashed
    "truncated": ("PAC-Bayes, truncated", False),
    "mended": ("PAC-Bayes, analytic", False),
    "careful_groups": ("PAC-Bayes, a σ per parameter", False),
    "mcallester": ("McAllester, losses up to 1", False),
    "catoni": ("Catoni, losses up to 1", False),
    "template": ("covering template, constant 1", True),
    "scaled": ("covering template, printed value", True),
}
CAPTION = (
    "Tilings by pairs, ω = T / 2, D = 2, Σ = 0.01 where losses are sub-Gaussian. Covering templates have not the "
    "published constant, which is lost: it is 1, or what gives the printed value at T = 20 and a million samples."
)


def drawn(table: lab.Rows, title: str) -> lab.Figure:
    """All bounds against m and against T, and where the covering template becomes the smaller one."""
    formulas, noisy = table.where(kind="formulas"), table.where(kind="measured")
    panels = [
        _bounds(f"T = {LENGTH}", "samples", "samples m", formulas.where(length=LENGTH), noisy.where(length=LENGTH)),
        _bounds("m = 10^6", "length", "length T", formulas.where(samples=SAMPLES), noisy.where(samples=SAMPLES)),
    ]
    crossings = formulas.where(samples=SAMPLES).having("crossover")
    series = [
        lab.Series(said, crossings.column("length"), [10**each for each in crossings.column(name)], colour=colour)
        for name, said, colour in (
            ("crossover", SHOWN["template"][0], list(SHOWN).index("template")),
            ("crossover_scaled", SHOWN["scaled"][0], list(SHOWN).index("scaled")),
        )
    ]
    where = "samples from which covering is smaller"
    panels.append(lab.Panel("crossover with the truncated bound", "length T", where, series, x_log=True, y_log=True))
    return lab.Figure("bound-comparison", title, CAPTION, panels, columns=3, where="E.3")


def _bounds(title: str, x: str, label: str, formulas: lab.Rows, noisy: lab.Rows) -> lab.Panel:
    series = [
        lab.line(formulas, x, name, said, band=False, colour=colour, dashed=dashed)
        for colour, (name, (said, dashed)) in enumerate(SHOWN.items())
    ]
    if noisy:
        series.append(lab.line(noisy, x, "semi", "PAC-Bayes, semi-analytic", colour=len(SHOWN)))
    rules = [lab.Rule(1.0, "vacuous above")]
    return lab.Panel(title, label, "bound", series, x_log=True, y_log=True, rules=rules)
