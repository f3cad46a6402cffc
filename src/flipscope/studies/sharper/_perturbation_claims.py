"""How `perturbed-sharpness` is judged."""

from __future__ import annotations

import numpy as np

import flipscope.lab as lab
from flipscope.studies.sharper._perturbations import Noise

FAR = 0.01  # "far below": two orders of magnitude
SMALL = 0.1  # "small beside G_u"
FEWEST, FEWEST_LINES = 20, 10


def _noisy(table: lab.Rows, noise: Noise) -> lab.Rows:
    return table.where(kind="perturbed", noise=noise)


def _fractions(rows: lab.Rows, of: str, part: float) -> lab.Rows:
    return lab.Rows({**row, "limit": part * row[of]} for row in rows)


def judge_theorem(table: lab.Rows) -> lab.Judgement:
    """No trace above 2 G_u + P where no neuron flips."""
    rows = _noisy(table, "std").where(valid=True)
    return lab.never_exceeds("trace", "thm17", "share of traces above 2 G_u + P", fewest=FEWEST)(rows)


def judge_far(table: lab.Rows) -> lab.Judgement:
    """No change above a hundredth of P where no neuron flips."""
    rows = _fractions(_noisy(table, "std").where(valid=True), "analytic", FAR)
    return lab.never_exceeds("change", "limit", f"share of changes above {FAR:g} P", fewest=FEWEST)(rows)


def judge_small(noise: Noise) -> lab.Judge:
    """No change above a tenth of G_u, whatever the size of the noise."""

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = _fractions(_noisy(table, noise), "gradient", SMALL)
        return lab.never_exceeds("change", "limit", f"share of changes above {SMALL:g} G_u", fewest=FEWEST)(rows)

    return judge


def judge_lengths(table: lab.Rows) -> lab.Judgement:
    """The exponent of T in the change is below that in P: their difference, of each function and averaged."""
    found = []
    for _, own in _noisy(table, "std").by("sparsity", "degree", "seed"):
        pairs = [
            [lab.slopes(rows, "length", column, log=True) for column in ("change", "analytic")]
            for _, rows in own.by("value")
        ]
        differences = [measured[0] - analytic[0] for measured, analytic in pairs if measured and analytic]
        if differences:  # those of one function's sizes of noise have the same directions: one number of all
            found.append(float(np.mean(differences)))
    if len(found) < FEWEST_LINES:
        remedy = f"at least {FEWEST_LINES} functions at 3 lengths"
        return lab.Judgement.without(f"too few functions at 3 lengths: {len(found)}", remedy)
    quantity = "exponent of T in the change minus that in P"
    return lab.at_most(lab.student_mean(found), 0.0, quantity, unit="functions")


def judge_slices(table: lab.Rows) -> lab.Judgement:
    """Most networks of degree 2 or more have more than one minimum along the shift."""
    rows = table.where(lambda row: row["kind"] == "slice" and row["degree"] > 1)
    answers = [row["minima"] > 1 for row in rows]
    quantity = "share of functions of degree 2 or more with several minima"
    return lab.mostly(answers, 0.5, quantity, missing="no slice of degree 2 or more", unit="functions")
