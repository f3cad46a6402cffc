"""Judges of sharpness against the length: slopes, and PARITY beside the others."""

from __future__ import annotations

import flipscope.lab as lab
from flipscope.basics.estimates import Estimate
from flipscope.studies.hardness._shared import OTHERS, kept, slope, slope_judge

LONG_WIDTH = 4  # of the models of E1b, which no model of E1 has
DRIFT = 0.25  # flat: changes by less over all lengths of the paper; a quarter of what PARITY must reach
FLAT, LONG_FLAT = DRIFT / (30 - 4), DRIFT / (512 - 4)  # per bit
NEAR_ONE, FROM = (0.9, 1.1), 28  # PARITY reaches its bound of 1 near n = 30


def per_bit(rows: lab.Rows, confidence: float) -> Estimate | None:
    """The regression of sharpness on n."""
    return slope(rows.column("sharpness"), rows.column("length"), confidence=confidence)


def short(table: lab.Rows) -> lab.Rows:
    """The models of E1."""
    return table.where(lambda row: row["width"] != LONG_WIDTH)


def judge_above(table: lab.Rows) -> lab.Judgement:
    """PARITY against each other function at the largest length at which two models of PARITY are kept."""
    ours = kept(short(table))
    lengths = [n for n, rows in ours.where(function="parity").by("length") if len(rows) > 1]
    if not lengths:
        return lab.Judgement.without("at no length two models of PARITY are kept", "more steps or seeds")
    longest = ours.where(length=lengths[-1])

    def one(other: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
        name = f"sharpness of parity less that of {other}, n = {lengths[-1]}"
        parity = longest.where(function="parity")
        return lab.larger_mean(parity, rows, "sharpness", name, confidence=confidence, unit="models")

    return lab.for_each(longest.each("function", OTHERS), one, what="comparisons", sort=True)


def judge_rises(table: lab.Rows) -> lab.Judgement:
    """The slope of PARITY is above what counts as flat."""
    judge = slope_judge(per_bit, lab.at_least, [FLAT], "sharpness per bit")
    return lab.for_each(short(table).each("function", ["parity"]), judge)


def judge_flat(table: lab.Rows) -> lab.Judgement:
    """The slopes of the others are within what counts as flat."""
    judge = slope_judge(per_bit, lab.between, [-FLAT, FLAT], "sharpness per bit")
    return lab.for_each(short(table).each("function", OTHERS), judge, what="functions")


def judge_long(table: lab.Rows) -> lab.Judgement:
    """The same of E1b."""
    judge = slope_judge(per_bit, lab.between, [-LONG_FLAT, LONG_FLAT], "sharpness per bit of long strings")
    return lab.for_each(table.where(width=LONG_WIDTH).each("function", OTHERS), judge, what="functions")


def judge_one(table: lab.Rows) -> lab.Judgement:
    """PARITY is near 1, neither below nor above, at lengths near 30."""
    near = kept(short(table)).where(lambda row: row["length"] >= FROM, function="parity")
    missing = f"{len(near)} models of PARITY with n from {FROM} on are kept"
    if len(near) < 2:
        return lab.Judgement.without(missing, "the scale paper")
    found = lab.student_mean(near.column("sharpness"))
    return lab.between(found, *NEAR_ONE, f"mean sharpness of parity, n from {FROM} on", unit="models")
