"""How `fourier-testers` is judged."""

from __future__ import annotations

from typing import Any

import flipscope.lab as lab
from flipscope.studies.sharper._testers import TAIL, TAILS

FEWEST_FUNCTIONS = 8  # of each degree
DEGREES = 5
LARGE = 14  # a sparsity from which on the testers fall short
SHORT = 1.0  # by how much at least, on average
CLOSE = 0.9
COARSE = 1e-2
FUNCTIONS: dict[str, Any] = {"within": None, "fewest": FEWEST_FUNCTIONS, "unit": "functions"}


def _targets(table: lab.Rows) -> lab.Rows:
    return table.where(kind="target")


def judge_degrees(table: lab.Rows) -> lab.Judgement:
    """Degrees 1 to 5 are found exactly, every time."""

    def one(degree: int, rows: lab.Rows, confidence: float) -> lab.Judgement:
        missed = sum(row["found_degree"] != degree for row in rows)
        quantity = f"share of functions of degree {degree} found otherwise"
        judged = lab.never(missed, len(rows), quantity, confidence=confidence)
        return lab.unless_few(judged, len(rows), FEWEST_FUNCTIONS, f"functions of degree {degree}")

    rows = _targets(table)
    return lab.for_each(rows.by("degree"), one, missing="no target was asked", fewest=DEGREES, what="degrees")


def judge_short(table: lab.Rows) -> lab.Judgement:
    """Large sparsities are found too small, on average."""
    rows = _targets(table).where(lambda row: row["sparsity"] >= LARGE).having("found_sparsity")
    missed = lab.Rows({**row, "missed": row["sparsity"] - row["found_sparsity"]} for row in rows)
    one = lab.mean_of("missed", lab.at_least, SHORT, "mean sparsity that is not found, ω", **FUNCTIONS)
    missing = f"no target of sparsity {LARGE} or more was asked"
    return lab.for_each(missed.by("sparsity"), one, missing=missing, fewest=2, what="sparsities")


def judge_one_sided(table: lab.Rows) -> lab.Judgement:
    """Nothing is ever found larger than it is."""
    rows = _targets(table)
    above = sum(
        any(row[f"found_{name}"] is None or row[f"found_{name}"] > row[name] for name in ("degree", "sparsity"))
        for row in rows  # None: even the true one was rejected
    )
    judged = lab.never(above, len(rows), "share of functions found larger than they are")
    return lab.unless_few(judged, len(rows), FEWEST_FUNCTIONS * DEGREES, "functions")


def judge_wilting(table: lab.Rows) -> lab.Judgement:
    """A larger proximity parameter leaves less of a large sparsity."""
    rows = _targets(table).where(
        lambda row: (
            row["sparsity"] >= LARGE and None not in (row["sparsities"][TAILS.index(tail)] for tail in (TAIL, COARSE))
        )
    )
    if len(rows) < FEWEST_FUNCTIONS:
        return lab.Judgement.without(f"too few functions: {len(rows)}", f"at least {FEWEST_FUNCTIONS} functions")
    fine, coarse = ([row["sparsities"][TAILS.index(tail)] for row in rows] for tail in (TAIL, COARSE))
    quantity = f"sparsity found at ε = {COARSE:g} less that at {TAIL:g}"
    return lab.at_most(lab.compare_groups(coarse, fine, paired=True), -SHORT, quantity, unit="functions")


def judge_bounds(table: lab.Rows) -> lab.Judgement:
    """The bound of the class that is found is nearly that of the true class."""
    quantity = "bound of the class found over that of the true one, ω"
    one = lab.mean_of("ratio", lab.at_least, CLOSE, quantity, **FUNCTIONS)
    return lab.for_each(
        _targets(table).having("ratio").by("sparsity"), one, missing="no target was asked", what="sparsities"
    )


def judge_written(table: lab.Rows) -> lab.Judgement:
    """Networks with mask 0 have their target's degree with a tolerance, and no such degree without."""
    rows = table.where(kind="written")
    missed = sum(row["found_degree"] != row["degree"] for row in rows)
    exactly = sum(row["exactly"] for row in rows)
    parts = [
        lab.never(missed, len(rows), "share found otherwise, the output error as tolerance"),
        lab.never(exactly, len(rows), "share of exactly that degree"),
    ]
    return lab.all_of([lab.unless_few(part, len(rows), FEWEST_FUNCTIONS, "networks") for part in parts])


def judge_learned(column: str, true: str) -> lab.Judge:
    """Most models that learned their target have its degree, or its sparsity, as far as the testers say."""

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = table.where(kind="learned", learned=True)
        answers = [row[column] is not None and row[column] == row[true] for row in rows]
        said = true.removeprefix("wanted_")
        return lab.mostly(answers, 0.5, f"share of models with their target's {said}", missing="no model is learned")

    return judge
