"""How `perturbed-sharpness` is judged."""

from __future__ import annotations

import math

import numpy as np

import flipscope.lab as lab
from flipscope.studies.sharper._perturbations import Noise

FAR = 0.01  # "far below": two orders of magnitude
SMALL = 0.1  # "small beside G_u"
GROWTH = 0.5  # "not there in reality": the largest exponent of T
CERTAIN = 4  # a change so many times its standard error has an exponent
FEWEST, FEWEST_LINES = 20, 10


def _noisy(table: lab.Rows, noise: Noise) -> lab.Rows:
    return table.where(kind="perturbed", noise=noise)


def _never(rows: lab.Rows, column: str, of: str, part: float, quantity: str) -> lab.Judgement:
    """Whether a column is never above this part of another: one case per function, its worst size of noise.

    All sizes of a function have the same directions. What is within two standard errors of the limit, the signs'
    alone, neither breaks it nor keeps it.
    """
    cases, doubtful = lab.Rows(), 0
    for _, own in rows.by("length", "sparsity", "degree", "seed"):
        each = [
            {"low": row[column] - 2 * row["error"], "high": row[column] + 2 * row["error"], "limit": part * row[of]}
            for row in own
        ]
        cases.append(max(each, key=_worst))
        doubtful += any(case["high"] > case["limit"] for case in each)
    judged = lab.never_exceeds("low", "limit", quantity, fewest=FEWEST)(cases)
    if judged.verdict != "reproduced" or not doubtful:
        return judged
    return judged.left_open(f"{doubtful} of {len(cases)} functions are within two standard errors", "more signs")


def _worst(case: dict[str, float]) -> float:
    quotient = case["low"] / case["limit"]
    return math.inf if math.isnan(quotient) else quotient


def judge_theorem(table: lab.Rows) -> lab.Judgement:
    """No trace above 2 G_u + P where no neuron flips."""
    rows = _noisy(table, "std").where(valid=True)
    return _never(rows, "trace", "thm17", 1.0, "share of functions with a trace above 2 G_u + P")


def judge_far(table: lab.Rows) -> lab.Judgement:
    """No change above a hundredth of P where no neuron flips."""
    rows = _noisy(table, "std").where(valid=True)
    return _never(rows, "change", "analytic", FAR, f"share of functions with a change above {FAR:g} P")


def judge_small(noise: Noise) -> lab.Judge:
    """No change above a tenth of G_u, whatever the size of the noise."""

    def judge(table: lab.Rows) -> lab.Judgement:
        quantity = f"share of functions with a change above {SMALL:g} G_u"
        return _never(_noisy(table, noise), "change", "gradient", SMALL, quantity)

    return judge


def judge_lengths(table: lab.Rows) -> lab.Judgement:
    """The exponent of T in the change is below that in P, and small: of each class and seed, averaged.

    Rows in which signs leave a quarter of the change or more have no say, nor have those where neurons may flip.
    """
    sure = _noisy(table, "std").where(lambda row: row["valid"] and CERTAIN * row["error"] < row["change"])
    less, own = [], []
    for _, rows in sure.by("sparsity", "degree", "seed"):
        pairs = [
            [lab.slopes(at, "length", column, log=True) for column in ("change", "analytic")]
            for _, at in rows.by("value")
        ]
        known = [(measured[0], analytic[0]) for measured, analytic in pairs if measured and analytic]
        if known:  # those of one function's sizes of noise have the same directions: one number of all
            own.append(float(np.mean([measured for measured, _ in known])))
            less.append(float(np.mean([measured - analytic for measured, analytic in known])))
    if len(own) < FEWEST_LINES:
        remedy = f"at least {FEWEST_LINES} of them"
        return lab.Judgement.without(f"too few classes and seeds at 3 lengths: {len(own)}", remedy)
    said = "exponent of T in the change"
    return lab.all_of(
        [
            lab.at_most(lab.student_mean(found, 0.975), limit, quantity, unit="classes and seeds")
            for found, limit, quantity in ((own, GROWTH, said), (less, 0.0, f"{said} minus that in P"))
        ]
    )


def judge_slices(table: lab.Rows) -> lab.Judgement:
    """Most networks of degree 2 or more have more than one minimum along the shift."""
    rows = table.where(lambda row: row["kind"] == "slice" and row["degree"] > 1)
    answers = [row["minima"] > 1 for row in rows]
    quantity = "share of functions of degree 2 or more with several minima"
    return lab.mostly(answers, 0.5, quantity, missing="no slice of degree 2 or more", unit="functions")
