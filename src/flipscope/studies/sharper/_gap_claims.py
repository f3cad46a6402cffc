"""Judges of the gap: by degree, by sparsity, against the bound, with layer norms, with large batches.

A curve is the gap of one function of each class along an axis: functions of different classes are drawn independently,
so that curves are, and their slopes and bends are averaged with Student's interval. Functions that were not learned are
on no curve; how many these are is said.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

import flipscope.lab as lab
from flipscope.basics.estimates import Estimate
from flipscope.lab.judges import ERROR
from flipscope.studies.sharper._gap import LEVEL

POINTS = 3  # of a curve, to have a slope
BENT = 4  # of a curve, to have a bend
FEWEST = 3  # curves, or functions of every class
CLASSES = 8  # that a seed has learned, to be put in order
ORDER = 0.5  # rank correlation from which the order is called the same
RANGE = (0.01, 0.1)  # of Sigma (App. A)
MOST = 0.9  # share that is called all but a few
AXES = {"degree": "sparsity", "sparsity": "degree"}  # along it, and across


def curves(table: lab.Rows, axis: str) -> lab.Rows:
    """The slope of the gap along an axis, for every curve, and its bend, twice the square's coefficient, or None."""
    across = AXES[axis]
    found = []
    for (place, seed), rows in table.where(learned=True).by(across, "seed"):
        if len(rows) >= POINTS:
            x, y = np.array(rows.column(axis), np.float64), np.array(rows.column("gap"), np.float64)
            bend = 2 * float(np.polyfit(x, y, 2)[0]) if len(rows) >= BENT else None
            found.append({across: place, "seed": seed, "slope": float(np.polyfit(x, y, 1)[0]), "bend": bend})
    return lab.Rows(found)


def _mean(found: lab.Rows, column: str, quantity: str, confidence: float, note: str) -> lab.Judgement:
    """Whether the mean over curves is above 0."""
    own = found.having(column)
    if len(own) < FEWEST:
        points = BENT if column == "bend" else POINTS
        reason = f"{quantity}: {len(own)} curves of {points} learned functions"
        return lab.Judgement.without(reason, f"at least {FEWEST}, or more steps")
    estimate = lab.student_mean(own.column(column), confidence)
    judged = lab.at_least(estimate, 0.0, quantity, f"{len(own)} curves; {note}", "curves")
    # A gap that is the same everywhere, as in a table of zeros, does not grow.
    return judged if estimate.low > 0 or judged.verdict != "reproduced" else judged.left_open("no growth at all")


def grows(axis: str, arm: str = "classes", *, superlinear: bool = False) -> lab.Judge:
    """A judge: the gap rises along an axis, and with `superlinear` bends upwards as well."""

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = table.where(arm=arm)
        found = curves(rows, axis)
        note = f"{len(rows.where(learned=True))} of {len(rows)} functions learned"
        confidence = 1 - ERROR / (1 + superlinear)
        slope = _mean(found, "slope", f"slope of the gap by {axis}", confidence, note)
        if not superlinear:
            return slope
        return lab.all_of([_mean(found, "bend", f"bend of the gap by {axis}", confidence, note), slope])

    return judge


def judge_faster(table: lab.Rows) -> lab.Judgement:
    """Whether the gap rises faster with the degree at larger sparsities: the upper half of them against the lower."""
    found = curves(table.where(arm="classes"), "degree")
    sparsities = table.where(arm="classes").values("sparsity")
    middle = float(np.median(sparsities)) if sparsities else 0.0
    upper, lower = found.where(lambda row: row["sparsity"] > middle), found.where(lambda row: row["sparsity"] < middle)
    said = f"slope of the gap by degree, sparsity above {middle:g} less below"
    if min(len(upper), len(lower)) < FEWEST:
        return lab.Judgement.without(f"{said}: {len(upper)} and {len(lower)} curves", f"at least {FEWEST} of each")
    return lab.larger_mean(upper, lower, "slope", said, unit="curves")


def judge_order(table: lab.Rows) -> lab.Judgement:
    """Whether the bound puts classes in the order of the gap: Spearman's rho of each seed's functions, averaged."""
    rhos = []
    for _, rows in table.where(arm="classes", learned=True).having("semi").by("seed"):
        measured, bounded = rows.column("gap"), rows.column("semi")
        if len(rows) >= CLASSES and np.ptp(measured) > 0 and np.ptp(bounded) > 0:
            rhos.append(float(stats.spearmanr(measured, bounded).statistic))
    said = "rank correlation of gap and bound over classes"
    if len(rhos) < FEWEST:
        return lab.Judgement.without(f"{said}: {len(rhos)} seeds with enough classes", f"at least {FEWEST} seeds")
    return lab.at_least(lab.student_mean(rhos), ORDER, said, f"{len(rhos)} seeds", "seeds")


def judge_bound(table: lab.Rows) -> lab.Judgement:
    """Whether no gap is above the semi-analytic bound of its class, where that is below 1."""
    rows = table.where(learned=True).where(lambda row: row["arm"] in ("classes", "long"))
    return lab.never_exceeds("gap", "semi", "share of functions with a gap above the bound", possible="level",
                             fewest=10)(rows)  # fmt: skip


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
    # Each interval with half of the error: their difference is right for any counts, also for none and all.
    confidence = 1 - ERROR / 2
    ours, theirs = (lab.share_of(rows, lambda row: row["learned"], confidence) for rows in (small, large))
    difference = Estimate(ours.value - theirs.value, ours.low - theirs.high, ours.high - theirs.low, 1 - ERROR,
                              len(large))  # fmt: skip
    sizes = [max(rows.column("batch")) for rows in (small, large)]
    note = f"batches of {sizes[0]}: {ours.value:.2g} learned, of {sizes[1]}: {theirs.value:.2g}"
    judged = lab.at_least(difference, 0.0, "share learned in small batches less in large ones", note, "functions")
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
            "mean slope by degree at the larger half of the sparsities less that at the smaller half: above 0",
            judge_faster,
        ),
        lab.Claim(
            "the bound has the same order",
            "Fig 1",
            "classes with a larger bound have a larger gap",
            f"Spearman's rho of gap and semi-analytic bound over classes, averaged over seeds: at least {ORDER:g}",
            judge_order,
        ),
        lab.Claim(
            "the bound holds",
            "Thm 2",
            "the loss of what is learned is below the bound of its class",
            "learned functions of classes with a semi-analytic bound below 1 whose gap is above it: none",
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
            "the same with layer norms",
            "App. A",
            "with layer norms the results do not change in quality",
            "slope of the gap by degree of models with layer norms, averaged over seeds: above 0",
            grows("degree", "norm"),
        ),
        lab.Claim(
            "large batches learn less often",
            "App. A",
            "the model struggles with degree 5 in batches of more than 256 strings",
            "share of functions of the largest degree learned in small batches less in large ones, same steps: above 0",
            judge_batch,
        ),
    )


def vacuous(table: lab.Rows) -> list[str]:
    """Where the bound says nothing, in words."""
    said = []
    for arm, words in (("classes", ""), ("long", "of the longer strings, ")):
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
