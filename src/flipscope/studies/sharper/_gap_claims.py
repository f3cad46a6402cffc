"""Judges of the gap: by degree, by sparsity, against the bound, with layer norms, with large batches.

A curve is the gap of one function of each class along an axis: functions of different classes are drawn and learned
independently, so that curves are, and their slopes and bends are averaged with Student's interval. Functions that were
not learned are on no curve; how many these are is said. What is claimed of curves is decided, either way, by no less
than half of all curves, from several places across the axis. Curves are compared with one another only where they are
whole: high degrees are those that are not learned, and without them a curve is another one.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

import flipscope.lab as lab
from flipscope.basics.estimates import Estimate
from flipscope.lab.judges import ROUNDING
from flipscope.studies.sharper._gap import CONSTANT, DELTA, LEVEL

POINTS = 3  # of a curve, to have a slope
BENT = 4  # of a curve, to have a bend
FEWEST = 3  # curves, or functions of every class
ACROSS = 3  # sparsities of curves by degree, degrees of curves by sparsity
CLASSES = 8  # that a seed has learned, to be put in order
FUNCTIONS = 10  # whose bound says something
ORDER = 0.5  # rank correlation from which the order is called the same
RANGE = (0.01, 0.1)  # of Sigma (App. A)
MOST = 0.9  # share that is called all but a few
AXES = {"degree": "sparsity", "sparsity": "degree"}  # along it, and across


def curves(table: lab.Rows, axis: str) -> lab.Rows:
    """The slope of the gap along an axis, for every curve, and its bend, twice the square's coefficient, or None."""
    across, places = AXES[axis], len(table.values(axis))
    found = []
    for (place, seed), rows in table.where(learned=True).by(across, "seed"):
        if len(rows) >= POINTS:
            x, y = np.array(rows.column(axis), np.float64), np.array(rows.column("gap"), np.float64)
            size, wide = float(np.abs(y).max()), float(np.ptp(x))
            bend = _cut(2 * float(np.polyfit(x, y, 2)[0]), size / wide**2) if len(rows) >= BENT else None
            slope = _cut(float(np.polyfit(x, y, 1)[0]), size / wide)
            found.append({across: place, "seed": seed, "slope": slope, "bend": bend, "whole": len(rows) == places})
    return lab.Rows(found)


def _cut(value: float, size: float) -> float:
    """0 for what is left over from rounding: the signs of these agree, and would decide."""
    return value if abs(value) > ROUNDING * size else 0.0


def _possible(table: lab.Rows, axis: str) -> int:
    """How many curves there are if all functions are learned."""
    return len({(row[AXES[axis]], row["seed"]) for row in table})


def _unless_partial(judged: lab.Judgement, own: lab.Rows, axis: str, possible: int, across: int) -> lab.Judgement:
    """The same judgement, but decided by half of all curves at least, from so many places across the axis."""
    named = {"degree": "degrees", "sparsity": "sparsities"}[AXES[axis]]
    places = len(own.values(AXES[axis])) if own else 0
    counts = ((len(own), math.ceil(possible / 2), "curves"), (places, across, f"{named} with curves"))
    for count, fewest, what in counts:
        if count < fewest and judged.verdict != "undecided":
            return judged.left_open(f"too few {what}: {count}", f"at least {fewest} {what}")
    return judged


def grows(axis: str, arm: str = "classes", *, superlinear: bool = False, across: int = ACROSS) -> lab.Judge:
    """A judge: the gap rises along an axis, and with `superlinear` bends upwards as well."""

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = table.where(arm=arm)
        found, possible = curves(rows, axis), _possible(rows, axis)
        note = f"{len(rows.where(learned=True))} of {len(rows)} functions learned"
        confidence = lab.confidence(1 + superlinear)

        def mean(column: str, points: int) -> lab.Judgement:
            own, quantity = found.having(column), f"{column} of the gap by {axis}"
            if len(own) < FEWEST:
                reason = f"{quantity}: {len(own)} curves of {points} learned functions"
                return lab.Judgement.without(reason, f"at least {FEWEST}, or more steps")
            estimate = lab.student_mean(own.column(column), confidence)
            judged = lab.at_least(estimate, 0.0, quantity, f"{len(own)} curves; {note}", "curves")
            # A gap that is the same everywhere, as in a table of zeros, does not grow.
            if judged.verdict == "reproduced" and not estimate.low > 0:
                return judged.left_open("no growth at all")
            return _unless_partial(judged, own, axis, possible, across)

        slope = mean("slope", POINTS)
        return lab.all_of([mean("bend", BENT), slope]) if superlinear else slope

    return judge


def judge_faster(table: lab.Rows) -> lab.Judgement:
    """Whether the gap rises faster with the degree at larger sparsities: the upper half of them against the lower."""
    rows = table.where(arm="classes")
    found, sparsities = curves(rows, "degree").where(whole=True), rows.values("sparsity")
    middle = float(np.median(sparsities)) if sparsities else 0.0
    upper, lower = found.where(lambda row: row["sparsity"] > middle), found.where(lambda row: row["sparsity"] < middle)
    said = f"slope of the gap by degree, sparsity above {middle:g} less below"
    if min(len(upper), len(lower)) < FEWEST:
        reason = f"{said}: {len(upper)} and {len(lower)} curves that are whole"
        return lab.Judgement.without(reason, f"at least {FEWEST} of each, or more steps")
    judged = lab.larger_mean(upper, lower, "slope", said, unit="curves")
    size = max(map(abs, found.column("slope")))
    if judged.measured is not None and not _cut(judged.measured, size):
        return judged.left_open("no difference at all")
    return _unless_partial(judged, found, "degree", _possible(rows, "degree"), ACROSS)


def judge_order(table: lab.Rows) -> lab.Judgement:
    """Whether the bound puts classes in the order of the gap: Spearman's rho of each seed's functions, averaged."""
    rows = table.where(arm="classes").having("semi")
    found = curves(rows, "degree").where(whole=True)
    whole = {(curve["sparsity"], curve["seed"]) for curve in found}
    rhos, seeds = [], []
    for seed, own in rows.where(lambda row: (row["sparsity"], row["seed"]) in whole).by("seed"):
        ends = [np.array(own.column(name), np.float64) for name in ("gap", "semi")]
        if len(own) >= CLASSES and all(_cut(float(np.ptp(each)), float(np.abs(each).max())) for each in ends):
            rhos.append(float(stats.spearmanr(*ends).statistic))
            seeds.append(seed)
    said = "rank correlation of gap and bound over classes"
    if len(rhos) < FEWEST:
        return lab.Judgement.without(f"{said}: {len(rhos)} seeds with enough classes", f"at least {FEWEST} seeds")
    judged = lab.at_least(lab.student_mean(rhos), ORDER, said, f"{len(rhos)} seeds", "seeds")
    used = found.where(lambda curve: curve["seed"] in seeds)
    return _unless_partial(judged, used, "degree", _possible(rows, "degree"), ACROSS)


def judge_bound(table: lab.Rows) -> lab.Judgement:
    """Whether gaps are below the semi-analytic bound of their class but for a share of delta, the theorem's own.

    A bound above the loss of the best constant forbids nothing that a learner would do: such classes do not count.
    """
    rows = table.where(learned=True).where(lambda row: row["arm"] in ("classes", "long")).having("semi")
    bounded = rows.where(lambda row: not row["semi"] >= CONSTANT)
    if len(bounded) < FUNCTIONS:
        least = f"; the least bound is {min(rows.column('semi')):.2g}" if rows else ""
        reason = f"{len(bounded)} learned functions of classes with a bound below {CONSTANT:g}{least}"
        return lab.Judgement.without(reason, "more strings")
    found = lab.share_of(bounded, lambda row: not row["gap"] <= row["semi"])  # NaN is not below anything
    judged = lab.at_most(found, DELTA, "share of functions with a gap above the bound", unit="functions")
    return lab.with_fewest(judged, found, DELTA, "functions")


def judge_sigma(table: lab.Rows) -> lab.Judgement:
    """Whether Sigma, estimated from the losses of learned models, lies in the range that the paper found."""
    rows = table.where(learned=True).where(lambda row: row["arm"] in ("classes", "long"))
    low, high = RANGE
    said = f"share of models with Sigma from {low:g} to {high:g}"
    if not rows:
        return lab.Judgement.without("no function was learned")
    found = lab.share_of(rows, lambda row: low <= row["subgaussian"] <= high)
    judged = lab.at_least(found, MOST, said, f"median {np.median(rows.column('subgaussian')):.3g}", "models")
    return lab.with_fewest(judged, found, 1 - MOST, "models")


def judge_batch(table: lab.Rows) -> lab.Judgement:
    """Whether functions of the largest degree are learned less often with batches above 256, in as many steps."""
    large = table.where(arm="batch")
    if not large:
        return lab.Judgement.without("no function was learned in large batches")
    keys = {(row["sparsity"], row["degree"], row["seed"]) for row in large}
    small = table.where(lambda row: (row["sparsity"], row["degree"], row["seed"]) in keys, arm="classes")
    if not small:
        return lab.Judgement.without("no function was learned in small batches as well")
    sizes = [max(rows.column("batch")) for rows in (small, large)]
    return _more_often(small, large, "share learned in small batches less in large ones",
                       [f"batches of {size}" for size in sizes])  # fmt: skip


def judge_heads(table: lab.Rows) -> lab.Judgement:
    """Whether functions that are hard for one head are learned more often by several, in as many steps."""
    rows = table.where(arm="heads")
    one, several = rows.where(heads=1), rows.where(lambda row: row["heads"] > 1)
    if not one or not several:
        return lab.Judgement.without("no function was learned with one head and with several")
    said = [f"{max(own.column('heads'))} heads" for own in (several, one)]
    return _more_often(several, one, "share learned by several heads less by one", said)


def _more_often(first: lab.Rows, second: lab.Rows, quantity: str, names: list[str]) -> lab.Judgement:
    """Whether a larger share of the first rows was learned."""
    # Each interval with half of the error: their difference is right for any counts, also for none and all.
    shares = [lab.share_of(rows, lambda row: row["learned"], lab.confidence(2)) for rows in (first, second)]
    ours, theirs = shares
    ends = (ours.low - theirs.high, ours.high - theirs.low)
    difference = Estimate(ours.value - theirs.value, *ends, lab.confidence(), len(second))
    note = ", ".join(f"{name}: {share.value:.2g} learned" for name, share in zip(names, shares, strict=True))
    judged = lab.at_least(difference, 0.0, quantity, note, "functions")
    return judged if difference.low > 0 or judged.verdict != "reproduced" else judged.left_open("no difference at all")


def claims() -> tuple[lab.Claim, ...]:
    """What the paper says of the gap."""
    return (
        lab.Claim(
            "the gap grows with the degree",
            "Fig 1 right",
            "functions of a higher degree generalise worse",
            "slope of the gap by degree, over functions of one sparsity, averaged over sparsities and seeds: above 0",
            grows("degree"),
        ),
        *(
            lab.Claim(
                f"super-linear in {axis}",
                "§ 2.1, Fig 1",
                f"the gap increases with {axis}, and faster than linearly",
                f"slope and second derivative of a parabola through the gap by {axis}, averaged over curves: above 0",
                grows(axis, superlinear=True),
            )
            for axis in ("degree", "sparsity")
        ),
        lab.Claim(
            "faster at larger sparsity",
            "§ 2.1",
            "the two multiply: with more parities the gap grows faster with the degree",
            "mean slope by degree at the larger half of the sparsities less that at the smaller half, of curves "
            "with all degrees: above 0",
            judge_faster,
        ),
        lab.Claim(
            "the bound has the same order",
            "Fig 1",
            "classes with a larger bound have a larger gap",
            f"Spearman's rho of gap and semi-analytic bound over classes, averaged over seeds, of curves with "
            f"all degrees: at least {ORDER:g}",
            judge_order,
        ),
        lab.Claim(
            "the bound holds",
            "Thm 2",
            "the loss of what is learned is below the bound of its class, with probability 1 - delta",
            f"share of learned functions with a gap above the semi-analytic bound of their class, where that is below "
            f"{CONSTANT:g}, the loss of the best constant: at most {DELTA:g}",
            judge_bound,
        ),
        lab.Claim(
            "losses are sub-Gaussian with a small constant",
            "App. A",
            "Sigma of trained models, estimated from their losses, falls between 0.01 and 0.1",
            f"share of learned models with Sigma from {RANGE[0]:g} to {RANGE[1]:g}: at least {MOST:g}",
            judge_sigma,
        ),
        lab.Claim(
            "the gap grows with the degree with layer norms, too",
            "App. A",
            "with layer norms the results do not change in quality",
            "slope of the gap by degree of models with layer norms, averaged over seeds: above 0",
            grows("degree", "norm", across=1),
        ),
        lab.Claim(
            "large batches learn less often",
            "App. A",
            "the model struggles with degree 5 in batches of more than 256 strings",
            "share of functions of the largest degree learned in small batches less in large ones, same steps: above 0",
            judge_batch,
        ),
        lab.Claim(
            "several heads learn what one does not",
            "App. A",
            "left open: which model learns classes that one head does not within minutes",
            "share of functions of T = 20, D = 2, sparsity 7 learned by four heads less by one, same steps: above 0",
            judge_heads,
            exploratory=True,
        ),
    )


def vacuous(table: lab.Rows) -> list[str]:
    """Where the bound says nothing, in words."""
    said = []
    for arm, words in (("classes", ""), ("long", "of the longer strings ")):
        rows = table.where(arm=arm).having("semi")
        classes = {(row["sparsity"], row["degree"]): row for row in rows}
        below = [f"D = {d}, sparsity {s}: {row['semi']:.2f}" for (s, d), row in sorted(classes.items())
                 if row["semi"] < LEVEL]  # fmt: skip
        if classes:
            said.append(
                f"semi-analytic bound below 1 in {len(below)} of {len(classes)} classes {words}"
                + (f"({'; '.join(below)})" if below else "and vacuous in all")
            )
    own = table.where(learned=True).having("own_bound")
    if own:
        tight = own.where(lambda row: row["own_bound"] < LEVEL)
        said.append(
            f"with Sigma as estimated for each model in the place of 0.01 the truncated bound is below 1 for "
            f"{len(tight)} of {len(own)} models"
        )
    return said
