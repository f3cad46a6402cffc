"""How `fourier-testers` is judged."""

from __future__ import annotations

from typing import Any

import flipscope.lab as lab
from flipscope.basics.estimates import Estimate
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
    """Degrees 1 to 5 are found exactly, each for most functions that have it."""

    def one(degree: int, rows: lab.Rows, confidence: float) -> lab.Judgement:
        if len(rows) < FEWEST_FUNCTIONS:
            return _few(len(rows), f"functions of degree {degree}")
        quantity = f"share of functions of degree {degree} found so"
        return lab.of_models(
            rows, lambda row: row["found_degree"] == degree, "most", quantity, confidence=confidence, unit="functions"
        )

    rows = _targets(table)
    return lab.for_each(rows.by("degree"), one, missing="no target was asked", fewest=DEGREES, what="degrees")


def _few(count: int, what: str, fewest: int = FEWEST_FUNCTIONS) -> lab.Judgement:
    return lab.Judgement.without(f"too few {what}: {count}", f"at least {fewest} {what}")


def _unless_missing(judged: lab.Judgement, rows: lab.Rows, kept: lab.Rows) -> lab.Judgement:
    """The same judgement, open where some functions were rejected at every level: to drop them chooses by outcome."""
    if len(kept) == len(rows):
        return judged
    return judged.left_open(f"{len(rows) - len(kept)} of {len(rows)} functions were accepted at no level")


def judge_short(table: lab.Rows) -> lab.Judgement:
    """Large sparsities are found too small, on average, and the largest still larger than the smallest of these.

    A tester that says the same of every function would fall short, too.
    """
    rows = _targets(table).where(lambda row: row["sparsity"] >= LARGE)
    kept = rows.having("found_sparsity")
    missed = lab.Rows({**row, "missed": row["sparsity"] - row["found_sparsity"]} for row in kept)
    one = lab.mean_of("missed", lab.at_least, SHORT, "mean sparsity that is not found, ω", **FUNCTIONS)
    missing = f"no target of sparsity {LARGE} or more was asked"
    short = lab.for_each(missed.by("sparsity"), one, missing=missing, besides=1, fewest=2, what="sparsities")
    known = kept.values("sparsity")
    if len(known) < 2:
        return short
    largest, smallest = (kept.where(sparsity=end(known)) for end in (max, min))
    said = f"sparsity found at ω = {max(known)} less that at ω = {min(known)}"
    confidence = lab.confidence(len(known) + 1)
    told = lab.larger_mean(largest, smallest, "found_sparsity", said, confidence=confidence, unit="functions")
    return _unless_missing(lab.all_of([short, told]), rows, kept)


def judge_one_sided(table: lab.Rows) -> lab.Judgement:
    """Degree and sparsity of most functions are found no larger than they are."""
    rows, fewest = _targets(table), FEWEST_FUNCTIONS * DEGREES
    if len(rows) < fewest:
        return _few(len(rows), "functions", fewest)

    def within(row: lab.Row) -> bool:
        found = [(row[f"found_{name}"], row[name]) for name in ("degree", "sparsity")]
        return all(own is not None and own <= true for own, true in found)  # None: even the true one was rejected

    return lab.of_models(rows, within, "most", "share of functions found no larger than they are", unit="functions")


def judge_wilting(table: lab.Rows) -> lab.Judgement:
    """A larger proximity parameter leaves less of a large sparsity."""
    rows = _targets(table).where(lambda row: row["sparsity"] >= LARGE)
    places = [TAILS.index(tail) for tail in (TAIL, COARSE)]
    kept = rows.where(lambda row: None not in [row["sparsities"][place] for place in places])
    if len(kept) < FEWEST_FUNCTIONS:
        return _few(len(kept), "functions")
    fine, coarse = ([row["sparsities"][place] for row in kept] for place in places)
    quantity = f"sparsity found at ε = {COARSE:g} less that at {TAIL:g}"
    judged = lab.at_most(lab.compare_groups(coarse, fine, paired=True), -SHORT, quantity, unit="functions")
    return _unless_missing(judged, rows, kept)


def judge_bounds(table: lab.Rows) -> lab.Judgement:
    """The bound of the class that is found is nearly that of the true class, neither smaller nor larger."""

    def close(found: Estimate, limit: float, quantity: str, **words: str) -> lab.Judgement:
        return lab.between(found, limit, 1 / limit, quantity, **words)

    rows = _targets(table)
    kept = rows.having("ratio")
    one = lab.mean_of("ratio", close, CLOSE, "bound of the class found over that of the true one, ω", **FUNCTIONS)
    judged = lab.for_each(kept.by("sparsity"), one, missing="no target was asked", fewest=3, what="sparsities")
    return _unless_missing(judged, rows, kept)


def judge_written(table: lab.Rows) -> lab.Judgement:
    """Networks with mask 0 have their target's degree with a tolerance, and no such degree without."""
    rows = table.where(kind="written")
    missed = sum(row["found_degree"] != row["degree"] for row in rows)
    exactly = sum(row["exactly"] for row in rows)
    parts = [
        lab.never(count, len(rows), quantity, confidence=lab.confidence(2))
        for count, quantity in (
            (missed, "share found otherwise, the output error as tolerance"),
            (exactly, "share of exactly that degree"),
        )
    ]
    return lab.all_of([lab.unless_few(part, len(rows), FEWEST_FUNCTIONS, "networks") for part in parts])


def judge_learned(column: str, true: str, *, least: int = 0) -> lab.Judge:
    """Most models that learned their target have its degree, or its sparsity, as far as the testers say.

    What a target has must be above the `least` that the testers can say of anything, a constant too.
    """

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = table.where(lambda row: row[true] is not None and row[true] > least, kind="learned", learned=True)
        answers = [row[column] is not None and row[column] == row[true] for row in rows]
        said = true.removeprefix("wanted_")
        missing = "no model is learned" + (f" of a target with a {said} above {least}" if least else "")
        return lab.mostly(answers, 0.5, f"share of models with their target's {said}", missing=missing)

    return judge
