"""Figures of the gap: measured and bounded by degree and sparsity (Fig 1), layer norms, batches, heads."""

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
    bounded, measured, middle = [], [], (len(table.values("sparsity")) - 1) / 2
    for colour, (sparsity, rows) in enumerate(table.by("sparsity")):
        name = f"sparsity {sparsity}"
        if semi := rows.having("semi"):
            bounded.append(lab.line(semi, "degree", "semi", name, "mean", band=False, colour=colour))
        bounded.append(
            lab.line(rows, "degree", "truncated", f"{name}, without P", "mean", band=False, colour=colour, dashed=True)
        )
        measured += _gaps(rows, name, colour, APART * (colour - middle))
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
    """With layer norms and without, of the same functions; steps until learned by size of batches and by heads."""
    panels, absent = [], 0
    if normed := table.where(arm="norm"):
        plain = table.where(lambda row: row["sparsity"] in normed.column("sparsity"), arm="classes")
        series = [
            *_gaps(plain, "no norm, as in the paper", 0, -APART),
            *_gaps(normed, "with layer norms", 1, APART),
        ]
        said = f"sparsity {', '.join(map(str, normed.values('sparsity')))}"
        panels.append(lab.Panel(said, "degree D", "gap: loss on all strings less on its own", series))
    if large := table.where(arm="batch"):
        keys = {(row["sparsity"], row["degree"]) for row in large}
        plain = table.where(lambda row: (row["sparsity"], row["degree"]) in keys, arm="classes")
        groups = [(f"batches of {rows[0]['batch']}", rows) for rows in (plain, large) if rows]
        said = f"degree {', '.join(map(str, large.values('degree')))}"
        panels.append(lab.Panel(said, "sparsity", "steps", _steps(groups, "sparsity", 0.3), y_log=True))
        absent += len(_without_steps(plain)) + len(_without_steps(large))
    if several := table.where(arm="heads"):
        groups = [("1 head" if heads == 1 else f"{heads} heads", rows) for heads, rows in several.by("heads")]
        classes = [f"T = {length}, D = {degree}, sparsity {sparsity}"
                   for (length, degree, sparsity), _ in several.by("length", "degree", "sparsity")]  # fmt: skip
        panels.append(lab.Panel("; ".join(classes), "function", "steps", _steps(groups, "seed", 0.2), y_log=True))
        absent += len(_without_steps(several))
    if not panels:
        return None
    caption = (
        "Gaps: mean over learned functions with Student's 95 % intervals. Steps: a point per function, until it was "
        "learned or at the limit." + (f" {absent} that took no step are not shown." if absent else "")
    )
    title = "Layer norms, large batches, several heads"
    return lab.Figure("generalization-gap-ablations", title, caption, panels, where="App. A")


def _without_steps(rows: lab.Rows) -> lab.Rows:
    """Trainings that ended before their first step, such as diverged ones: a log scale cannot show them."""
    return rows.where(lambda row: row["taken"] <= 0)


def _steps(groups: list[tuple[str, lab.Rows]], x: str, apart: float) -> list[lab.Series]:
    """The steps that each function took, groups beside one another, those that were not learned in another colour."""
    shown = []
    for place, (name, rows) in enumerate(groups):
        for learned, words in ((True, "learned"), (False, "not learned")):
            own = rows.where(lambda row: row["taken"] > 0, learned=learned)
            if own:
                at = [row[x] + apart * (place - 0.5) for row in own]
                colour = 2 * place + (not learned)
                shown.append(lab.Series(f"{name}, {words}", at, own.column("taken"), "points", colour=colour))
    return shown
