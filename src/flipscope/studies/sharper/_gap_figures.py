"""Figures of the gap: measured and bounded by degree and sparsity (Fig 1), layer norms, batches, Sigma."""

from __future__ import annotations

import flipscope.lab as lab
from flipscope.studies.sharper._gap import CONSTANT, LEVEL

APART = 0.06  # degrees between the marks of two sparsities, so that all intervals are seen


def figures(table: lab.Rows, title: str) -> list[lab.Figure]:
    """All figures of which there are rows."""
    found = [_by_class(table.where(arm=arm), title, words) for arm, words in (("classes", ""), ("long", "-long"))]
    return [figure for figure in [*found, _ablations(table)] if figure is not None]


def _by_class(table: lab.Rows, title: str, suffix: str) -> lab.Figure | None:
    """Fig 1: the bound and the gap by degree, a colour for each sparsity."""
    if not table:
        return None
    bounded, measured = [], []
    for colour, (sparsity, rows) in enumerate(table.by("sparsity")):
        name = f"sparsity {sparsity}"
        if semi := rows.having("semi"):
            bounded.append(lab.line(semi, "degree", "semi", name, "mean", band=False, colour=colour))
        bounded.append(
            lab.line(rows, "degree", "truncated", f"{name}, without P", "mean", band=False, colour=colour, dashed=True)
        )
        measured += _gaps(rows, name, colour, APART * (colour - 1.5))
    length, samples = table[0]["length"], table[0]["samples"]
    rules = [lab.Rule(LEVEL, "vacuous above"), lab.Rule(CONSTANT, "loss of the best constant")]
    panels = [
        lab.Panel("bound", "degree D", "bound on the loss", bounded, y_log=True, rules=rules),
        lab.Panel("measured", "degree D", "gap: loss on all strings less on its own", measured),
    ]
    caption = (
        f"T = {length}, {samples:,} strings. Left: the bound of Thm 2 with P measured, dashed without it. Right: mean "
        "over learned functions with Student's 95 % intervals, where there are two of them."
    )
    return lab.Figure(f"generalization-gap{suffix}", title, caption, panels, where="Fig 1")


def _gaps(rows: lab.Rows, name: str, colour: int, shift: float) -> list[lab.Series]:
    """The mean gap of learned functions by degree, and the gaps of the others."""
    groups = [(degree, own.column("gap")) for degree, own in rows.where(learned=True).by("degree")]
    series = []
    if groups:
        found = [lab.student_mean(gaps) if len(gaps) > 1 else None for _, gaps in groups]
        series.append(
            lab.Series(
                name,
                [degree + shift for degree, _ in groups],
                [sum(gaps) / len(gaps) for _, gaps in groups],
                "points",
                [gaps[0] if each is None else each.low for each, (_, gaps) in zip(found, groups, strict=True)],
                [gaps[0] if each is None else each.high for each, (_, gaps) in zip(found, groups, strict=True)],
                colour=colour,
                hover=[f"D = {degree}, {len(gaps)} functions" for degree, gaps in groups],
            )
        )
    return series


def _ablations(table: lab.Rows) -> lab.Figure | None:
    """With layer norms and without, of the same functions; steps until learned in small and large batches."""
    panels = []
    if normed := table.where(arm="norm"):
        plain = table.where(lambda row: row["sparsity"] in normed.column("sparsity"), arm="classes")
        series = [
            *_gaps(plain, "no norm, as in the paper", 0, -APART),
            *_gaps(normed, "with layer norms", 1, APART),
        ]
        said = f"sparsity {', '.join(map(str, normed.values('sparsity')))}"
        panels.append(lab.Panel(said, "degree D", "gap: loss on all strings less on its own", series))
    if large := table.where(arm="batch"):
        degrees = large.values("degree")
        plain = table.where(lambda row: row["degree"] in degrees, arm="classes")
        shown = []
        for colour, rows in enumerate((plain, large)):
            for learned, words in ((True, "learned"), (False, "not learned in all steps")):
                own = rows.where(learned=learned)
                if own:
                    name = f"batches of {own[0]['batch']}, {words}"
                    x = [row["sparsity"] + 0.3 * (colour - 0.5) for row in own]
                    shown.append(lab.Series(name, x, own.column("taken"), "points", colour=2 * colour + (not learned)))
        panels.append(lab.Panel(f"degree {degrees[-1]}", "sparsity", "steps", shown, y_log=True))
    if not panels:
        return None
    caption = "Left: mean over learned functions with Student's 95 % intervals. Right: a point per function."
    return lab.Figure("generalization-gap-ablations", "Layer norms and large batches", caption, panels, where="App. A")
