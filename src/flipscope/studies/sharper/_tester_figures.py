"""The figures of `fourier-testers`."""

from __future__ import annotations

import numpy as np

import flipscope.lab as lab
from flipscope.studies.sharper._testers import LEARNED_TAIL, TAILS, TOLERANCE, TRIALS, first_within, found_at


def drawn(table: lab.Rows, title: str) -> list[lab.Figure]:
    """What is found against what is true, by how much is asked, and of learned models."""
    targets, learned = table.where(kind="target"), table.where(kind="learned", learned=True)
    figures = []
    if targets:
        figures += [_found(targets, title), _trials(targets), _epsilon(targets)]
    return [*figures, _learned(learned), _tolerances(learned)] if learned else figures


def _spread(rows: lab.Rows, x: str, y: str, label: str, colour: int) -> lab.Series:
    """The mean of y at each x with one standard deviation on either side, as the paper draws it."""
    groups = {place: np.array(own.column(y), np.float64) for place, own in rows.having(y).by(x)}
    middle = [float(each.mean()) for each in groups.values()]
    reach = [float(each.std()) for each in groups.values()]
    low, high = ([a + sign * b for a, b in zip(middle, reach, strict=True)] for sign in (-1, 1))
    return lab.Series(label, list(groups), middle, "points", low, high, colour=colour)


def _truth(rows: lab.Rows, column: str) -> lab.Series:
    places = np.linspace(min(rows.values(column)), max(rows.values(column)), 101).tolist()  # many have no marks
    return lab.Series("true", places, places, dashed=True, colour=1)


def _found(targets: lab.Rows, title: str) -> lab.Figure:
    panels = [
        lab.Panel("", f"true {said}", f"first {said} accepted", [_truth(targets, name), series])
        for name, said in (("degree", "degree D"), ("sparsity", "sparsity ω"))
        for series in [_spread(targets, name, f"found_{name}", "found", 0)]
    ]
    caption = "Means over all functions of a degree, or of a sparsity, with one standard deviation on either side."
    return lab.Figure("fourier-testers", title, caption, panels, where="Fig 8")


def _mean(rows: lab.Rows, column: str, label: str, places: tuple[float, ...], colour: int) -> lab.Series:
    """The mean over functions at each place, of those for which something was accepted there."""
    by_place = zip(*(row[column] for row in rows), strict=True)
    kept = [[each for each in values if each is not None] for values in by_place]
    return lab.Series(label, places, [sum(each) / len(each) if each else None for each in kept], colour=colour)


def _trials(targets: lab.Rows) -> lab.Figure:
    series = [
        _mean(own, "degrees", f"D = {degree}", TRIALS, colour)
        for colour, (degree, own) in enumerate(targets.by("degree"))
    ]
    panel = lab.Panel("", "trials of the degree tester", "first degree accepted", series, x_log=True)
    caption = "Means over functions. Fewer trials stand for a larger proximity parameter."
    return lab.Figure("fourier-testers-trials", "The degree found, by trials", caption, [panel], 1, where="App. H")


def _epsilon(targets: lab.Rows) -> lab.Figure:
    """Sparsity, and the bound of the class found, by the energy that the sparsity tester lets pass."""
    panels = []
    for column, said in (("sparsities", "first sparsity accepted"), ("ratios", "bound / bound of the true class")):
        series = [
            _mean(own, column, f"ω = {sparsity}", TAILS, colour)
            for colour, (sparsity, own) in enumerate(targets.by("sparsity"))
        ]
        panels.append(lab.Panel("", "ε of the sparsity tester", said, series, x_log=True))
    caption = "Means over functions. Right: the truncated bound is too small where the sparsity is."
    title = "The sparsity found and its bound, by ε"
    return lab.Figure("fourier-testers-epsilon", title, caption, panels, where="App. H")


def _learned(learned: lab.Rows) -> lab.Figure:
    """Of learned models: first accepted degree and sparsity, by length."""
    panels = []
    for name, said in (("degree", "degree D"), ("sparsity", "sparsity ω")):
        series = [_truth(learned, name)]
        series += [
            _spread(own, name, f"found_{name}", f"found, T = {length}", 2 * colour)
            for colour, (length, own) in enumerate(learned.having(f"found_{name}").by("length"))
        ]
        panels.append(lab.Panel("", f"{said} of the target", f"first {said} accepted", series))
    caption = "Models that learned their target, with tolerances for what they learned nearly; one standard deviation."
    return lab.Figure("fourier-testers-learned", "The class of learned models", caption, panels, where="App. H")


def _right_degree(row: lab.Row, limit: float) -> bool:
    return bool(first_within(row["statistics"], limit) == row["degree"])


def _right_sparsity(row: lab.Row, limit: float) -> bool:
    """Whether the model has as many coefficients as its target has at the same tail."""
    wanted = found_at(row["target_outside"], limit)
    return wanted is not None and found_at(row["outside"], limit) == wanted


def _tolerances(learned: lab.Rows) -> lab.Figure:
    """How many learned models are found in the class of their target, by what the testers are to overlook."""
    panels = []
    for true, right, label, ours in (
        ("degree", _right_degree, "tolerance of the degree tester", TOLERANCE),
        ("sparsity", _right_sparsity, "ε of the sparsity tester", LEARNED_TAIL),
    ):
        limits = np.geomspace(ours / 20, ours * 10, 24).tolist()
        series = [
            lab.Series(
                f"T = {length}",
                limits,
                [float(np.mean([right(row, each) for row in own])) for each in limits],
                colour=colour,
            )
            for colour, (length, own) in enumerate(learned.by("length"))
        ]
        rules = [lab.Rule(ours, "judged", "x")]
        said = f"share with their target's {true}"
        panels.append(lab.Panel("", label, said, series, x_log=True, y_range=(0, 1), rules=rules))
    caption = "A model that learned its target nearly is of no low degree, and of no low sparsity, exactly: it takes a "
    caption += "tolerance. Right: the sparsity is compared with what the tester says of the target at the same ε."
    return lab.Figure("fourier-testers-tolerance", "Learned models, by tolerance", caption, panels, where="App. H")
