"""How `perturbed-sharpness` is judged."""

from __future__ import annotations

import math
from statistics import NormalDist

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

    All sizes of a function have the same directions. A limit inside an interval, which is that of random signs, all of
    them valid together, is neither broken nor kept. A network that no size of noise changes was given none.
    """
    functions = [own for _, own in rows.by("length", "sparsity", "degree", "seed") if any(own.column("change"))]
    reach = NormalDist().inv_cdf((1 + lab.confidence(len(functions))) / 2)  # standard errors
    cases, doubtful = lab.Rows(), 0
    for own in functions:
        each = [
            {"low": row[column] - reach * row["error"], "high": row[column] + reach * row["error"]}
            | {"limit": part * row[of]}
            for row in own
        ]
        cases.append(max(each, key=_worst))
        doubtful += any(case["high"] > case["limit"] for case in each)
    judged = lab.never_exceeds("low", "limit", quantity, fewest=FEWEST)(cases)
    if judged.verdict != "reproduced" or not doubtful:
        return judged
    said = f"{doubtful} of {len(cases)} functions have an interval that holds the limit"
    return judged.left_open(said, "more signs")


def _worst(case: dict[str, float]) -> tuple[bool, bool, float]:
    """The order of a function's sizes: one that breaks the limit, one that is not a number, then the largest."""
    quotient = case["low"] / case["limit"]
    unknown = math.isnan(quotient)
    return quotient > 1, unknown, 0.0 if unknown else quotient


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

    Rows in which signs leave a quarter of the change or more have no say, nor have those where neurons may flip. What
    is left is chosen by its change, so that less than half of all classes and seeds decide nothing.
    """
    valid = _noisy(table, "std").where(valid=True)
    sure = valid.where(lambda row: CERTAIN * row["error"] < row["change"])
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
    possible = len(list(valid.by("sparsity", "degree", "seed")))
    fewest = max(FEWEST_LINES, math.ceil(possible / 2))
    if len(own) < fewest:
        reason = f"too few classes and seeds with a change that is sure at 3 lengths: {len(own)} of {possible}"
        return lab.Judgement.without(reason, f"at least {fewest} of them, or more signs")
    said = "exponent of T in the change"
    return lab.all_of(
        [
            lab.at_most(lab.student_mean(found, lab.confidence(2)), limit, quantity, unit="classes and seeds")
            for found, limit, quantity in ((own, GROWTH, said), (less, 0.0, f"{said} minus that in P"))
        ]
    )


def judge_slices(table: lab.Rows) -> lab.Judgement:
    """Most networks of degree 2 or more have more than one minimum along the shift."""
    rows = table.where(lambda row: row["kind"] == "slice" and row["degree"] > 1)
    answers = [row["minima"] > 1 for row in rows]
    quantity = "share of functions of degree 2 or more with several minima"
    return lab.mostly(answers, 0.5, quantity, missing="no slice of degree 2 or more", unit="functions")
