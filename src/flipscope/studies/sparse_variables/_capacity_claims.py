"""Judges and figures of `capacity`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

import flipscope.lab as lab
from flipscope.basics.estimates import Estimate
from flipscope.basics.resampling import straight_line
from flipscope.studies.sparse_variables._capacities import MAPPINGS, RESULTS, SAMPLES

SHRINKS = 0.75  # of ln(growth per layer), last step over first: 1 for exponentials, 0.26 for powers of L = 1 to 6
POLYLOG = 0.5
CUBE = (2.9, 3.1)
SPREAD = "interval: least and largest of all numbers of relevant bits"
FEWEST = 3  # lengths or depths
FEWEST_MODELS = 20
FEWEST_PAIRS = 1_000
AXES = {"length": "T", "samples": "m", "width": "d", "layers": "L"}
_MORE = "the scale laptop"


def exact(value: float, count: int) -> Estimate:
    """A number that is computed and not sampled."""
    return Estimate(value, value, value, 1.0, count)


def slope(x: ArrayLike, y: ArrayLike) -> float:
    """Of the straight line through points."""
    return float(straight_line(np.asarray(x, np.float64), np.asarray(y, np.float64))[0])


def judge_lengths(table: lab.Rows) -> lab.Judgement:
    """The power of ln(m (T + 1)) in ln N of each result, at norms of 1."""

    def one(result: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
        shallow = rows.where(layers=1)
        if len(shallow) < FEWEST:
            return lab.Judgement.without(f"{result}: {len(shallow)} lengths", f"at least {FEWEST} lengths")
        counts = [math.log(math.log(SAMPLES * (length + 1))) for length in shallow.column("length")]
        found = slope(counts, shallow.column("log_size"))
        return lab.at_most(exact(found, len(shallow)), 1.0, f"power of ln(m (T + 1)) in ln N, {result}", unit="lengths")

    return lab.for_each(
        table.where(kind="formula").each("result", RESULTS), one, what="results", missing="no length was tried"
    )


LAWS: dict[str, Callable[[float], float]] = {"T": float, "ln T": math.log}


def judge_construction(table: lab.Rows, *, form: str, law: str, most: float) -> lab.Judgement:
    """The power of T or of ln T in ln N of the constructions, over numbers of relevant bits."""

    def one(mapping: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
        groups = [own for _, own in rows.by("relevant") if len(own) >= FEWEST]
        powers = [
            slope([math.log(LAWS[law](each)) for each in own.column("length")], own.column(form)) for own in groups
        ]
        if len(powers) < FEWEST:
            return lab.Judgement.without(
                f"{mapping}: {len(powers)} constructions at {FEWEST} lengths", f"at least {FEWEST} constructions"
            )
        return lab.at_most(spread(powers), most, f"power of {law} in ln N, {mapping}", SPREAD, unit="constructions")

    return lab.for_each(
        table.where(kind="constructed").each("mapping", MAPPINGS), one, what="mappings", missing="no construction"
    )


def judge_limit(table: lab.Rows) -> lab.Judgement:
    """The power of ln T in ln N with all constants, where T is beyond all bounds."""

    def one(mapping: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
        if len(rows) < FEWEST:
            return lab.Judgement.without(f"{mapping}: {len(rows)} constructions", f"at least {FEWEST} constructions")
        orders = rows.column("power_of_order")
        note = f"{SPREAD}; without 2 d_2 ln 2, which is linear in T, {min(orders):.3g} to {max(orders):.3g}"
        what = f"power of ln T in ln N, {mapping}"
        return lab.between(spread(rows.column("power")), *CUBE, what, note, unit="constructions")

    return lab.for_each(
        table.where(kind="limit").each("mapping", MAPPINGS), one, what="mappings", missing="no construction"
    )


def spread(values: Sequence[float]) -> Estimate:
    """The mean of numbers that are computed, from the least to the largest."""
    low, high = min(values), max(values)
    return Estimate(float(np.clip(np.mean(values), low, high)), low, high, 1.0, len(values))


def judge_depth(table: lab.Rows) -> lab.Judgement:
    """Whether the growth of Thm A.17's order from one depth to the next comes down to 1, where all norms are 1.

    Of a polynomial in L the logarithm of that growth falls like 1 / L; of an exponential it stays as it is.
    """
    rows = table.where(lambda row: row["layers"] is not None, kind="formula", result="Thm A.17")
    depths = dict(sorted((row["layers"], row["log_order"]) for row in rows))
    if len(depths) < FEWEST:
        return lab.Judgement.without(f"{len(depths)} depths were tried", f"at least {FEWEST} depths")
    places, orders = list(depths), list(depths.values())
    if places != list(range(places[0], places[0] + len(places))):
        return lab.Judgement.without(f"depths {places} have gaps", "every depth")
    steps = np.diff(orders)
    ratios = ", ".join(f"{math.exp(each - orders[0]):,.0f}" for each in orders)
    return lab.at_most(
        exact(float(steps[-1] / steps[0]), len(depths)),
        SHRINKS,
        f"ln of the growth from L = {places[-2]} to {places[-1]}, over that from {places[0]} to {places[1]}",
        f"ratios to L = {places[0]}: {ratios}",
        unit="depths",
    )


def judge_product(table: lab.Rows, *, column: str) -> lab.Judgement:
    """How often a perturbation changes more than A.17 allows."""
    rows = table.where(kind="perturbed")
    pairs = rows.total("pairs")
    if not pairs:
        return lab.Judgement.without("no network was perturbed", _MORE)
    worst = max(rows.column(column.replace("broken", "worst")))
    found = lab.never(rows.total(column), pairs, "share of perturbations", f"largest change over bound {worst:.2g}")
    return lab.unless_few(found, pairs, FEWEST_PAIRS, "pairs")


def judge_holds(table: lab.Rows) -> lab.Judgement:
    """No gap above its bound, of the networks whose bound is below the range of the loss."""
    rows = lab.Rows({**row, "size": abs(row["gap"])} for row in table.where(kind="trained"))
    if not rows:
        return lab.Judgement.without("no network was trained", _MORE)
    return lab.never_exceeds("size", "bound", possible="range", fewest=FEWEST_MODELS)(rows)


def judge_says(table: lab.Rows) -> lab.Judgement:
    """The share of trained networks of which the bound says something."""
    rows = table.where(kind="trained")
    if not rows:
        return lab.Judgement.without("no network was trained", _MORE)
    found = lab.share_of(rows, lambda row: row["bound"] < row["range"])
    ratios = [row["bound"] / abs(row["gap"]) for row in rows if row["gap"]]
    needed = [row["log10_needed"] for row in rows if row["log10_needed"] is not None]
    note = f"bound over gap {np.median(ratios):.3g}" if ratios else "no gap at all"
    if needed:
        note += f", {np.median(rows.column('bound')):.3g} for a range of {np.median(rows.column('range')):.3g}; "
        note += f"it says something from 10^{min(needed):.3g} to 10^{max(needed):.3g} samples on"
    judged = lab.at_least(found, 0.5, "share of networks", note, unit="networks")
    return lab.with_fewest(judged, found, 0.5, "networks")


def judge_gap(table: lab.Rows) -> lab.Judgement:
    """The power of T in the measured gap."""
    rows = _along(table.where(kind="trained"), "length")
    found = lab.log_slope(rows, "length", "gap")
    if found is None:
        return lab.Judgement.without("too few seeds with positive gaps at 3 lengths", "at least 5 seeds")
    return lab.at_most(found, POLYLOG, "power of T in the gap", unit="seeds")


def _along(rows: lab.Rows, axis: str) -> lab.Rows:
    """The networks that differ from the commonest ones in this choice only."""
    others = [name for name in AXES if name != axis and rows]
    usual = {name: max(rows.values(name), key=rows.column(name).count) for name in others}
    return rows.where(**usual)


def claims() -> tuple[lab.Claim, ...]:
    """All of them."""
    return (
        lab.Claim(
            "log T at fixed norms", "Thm 4.2, Cor 4.4, Lem A.11, A.12, Thm 4.6",
            "with norms fixed, covering numbers depend on the length of the context by a logarithm",
            "power of ln(m (T + 1)) in ln N, from the shortest to the longest strings: at most 1", judge_lengths,
        ),
        lab.Claim(
            "log T for the constructions", "Prop 4.7, abstract",
            "sparse functions are in a class whose capacity grows as log T",
            "power of ln T in ln N of the class that holds the construction, by sums of norms: at most 1",
            functools.partial(judge_construction, form="log_sums", law="ln T", most=1.0),
        ),
        lab.Claim(
            "ln^3 T for the constructions", "none: R = ln(8 T / gamma) enters twice",
            "since ||W_Q|| grows as ln T, that capacity grows as ln^3 T",
            "power of ln T in ln N, with all constants, between T = 2^256 and 2^512: from 2.9 to 3.1", exploratory=True,
            judge=judge_limit,
        ),
        lab.Claim(
            "Lem 4.5 as printed keeps that polylogarithmic", "Lem 4.5, Cor 4.4",
            "the factor d_2 B_inf suffices for the constructions, whose width is T + 1 or more",
            f"power of T in ln N by the largest norm of a row: at most {POLYLOG}", exploratory=True,
            judge=functools.partial(judge_construction, form="log_rows", law="T", most=POLYLOG),
        ),
        lab.Claim(
            "norms of at most 1 avoid exponential depth", "§ 4.3, after Thm 4.6",
            "where spectral norms are at most 1 the bound is not exponential in the number of layers",
            "ln of the growth by the deepest layer over ln of that by the first further layer, all norms 1: at most "
            f"{SHRINKS:g} (1 for any exponential, 0.26 for any power of L)", judge_depth,
        ),
        lab.Claim(
            "errors pass the layers before, as printed", "Thm A.17",
            "a change of layer i changes the output by at most alpha_i times its own, a product over j < i",
            f"pairs of networks of two layers that exceed it: none of {FEWEST_PAIRS:,} or more",
            functools.partial(judge_product, column="broken_printed"),
        ),
        lab.Claim(
            "errors pass the layers after", "Lem A.15, Thm A.17 put right",
            "the same with the product over j > i", "as above", functools.partial(judge_product, column="broken"),
        ),
        lab.Claim(
            "no gap above its bound", "Lem 2.2", "the gap between test and training loss is at most the bound",
            f"networks whose bound is below the range of the loss and below the gap: none of {FEWEST_MODELS} or more",
            judge_holds,
            decided_from="",
        ),
        lab.Claim(
            "the bound says something of trained networks", "none: the paper has no constants",
            "at sizes that are trained, the bound is below the range of the loss",
            "share of trained networks for which it is: at least 0.5", judge_says, exploratory=True,
        ),
        lab.Claim(
            "the measured gap hardly grows with T", "none: the paper bounds samples",
            "at a fixed number of strings, a longer context costs little generalization",
            f"power of T in the gap of trained networks, averaged over seeds: at most {POLYLOG}", judge_gap,
            exploratory=True,
        ),
    )  # fmt: skip


def panels(table: lab.Rows) -> list[lab.Figure]:
    """Capacity by length, the constructions, and trained networks."""
    out = []
    formulas = table.where(kind="formula", layers=1)
    if formulas:
        rows = lab.Rows({**row, "size": math.exp(row["log_size"])} for row in formulas)
        curves = lab.lines(rows, "length", "size", "result", order=RESULTS)
        panel = lab.Panel("norms of 1", "T", "ln N at eps = 1", curves, x_log=True, y_log=True)
        text = "The bounds with all constants, d = 64, m = 100. On the right the order of Thm A.17 by depth."
        deep = lab.Rows(
            {**row, "order": math.exp(row["log_order"])} for row in table.where(kind="formula", result="Thm A.17")
        )
        depth = lab.line(deep, "layers", "order", "Thm A.17", band=False)
        by_depth = lab.Panel("all norms 1", "L", "order of ln N", [depth], y_log=True)
        out.append(
            lab.Figure("capacity", "Capacity by length and depth", text, [panel, by_depth], where="Thm 4.2, 4.6")
        )
    made = lab.Rows(
        {**row, "rows": math.exp(row["log_rows"]), "sums": math.exp(row["log_sums"])}
        for row in table.where(kind="constructed", relevant=3)
    )
    if made:
        shown = [_construction(made.where(mapping=mapping), mapping) for mapping in MAPPINGS]
        text = "ln N at eps = 1 of the class that holds the construction for 3 relevant bits, by both forms of Lem 4.5."
        title = "Capacity that the constructions need"
        curves = lab.lines(made, "length", "rows", "mapping", order=MAPPINGS)
        by_row = lab.Panel("by the largest norm of a row", "T", "ln N", curves, x_log=True, y_log=True)
        out.append(lab.Figure("capacity-constructed", title, text, [*shown, by_row], columns=3, where="Prop 4.7"))
    models = table.where(kind="trained")
    if models:
        along = {axis: _along(models, axis) for axis in AXES}
        text = "Networks of § 4.3 trained on an AND of 3 bits: bands are the least and the largest of all seeds."
        title = "Measured gap, its bound, and what holds anyway"
        gaps = [_gaps(rows, axis) for axis, rows in along.items()]
        out.append(lab.Figure("capacity-gap", title, text, gaps, where="Lem 2.2"))
        text = "How many training strings it takes until the bound of these networks is below the range of the loss."
        needed = [_needed(rows, axis) for axis, rows in along.items()]
        out.append(lab.Figure("capacity-needed", "How vacuous the bound is", text, needed, where="Lem 2.2"))
    return out


def _construction(rows: lab.Rows, title: str) -> lab.Panel:
    """The capacity by sums of norms, between the curves of ln T and of ln^3 T through its first point."""
    curves = [lab.line(rows, "length", "sums", "sum of norms", band=False, colour=2)]
    lengths = rows.values("length")
    for power in (1, 3):
        scale = rows.where(length=lengths[0])[0]["sums"] / math.log(lengths[0]) ** power
        guide = [scale * math.log(length) ** power for length in lengths]
        name = "ln T" if power == 1 else "ln³ T"
        curves.append(lab.Series(f"{name}, through the first", lengths, guide, dashed=True, colour=2 + power))
    return lab.Panel(f"{title}, by sums of norms", "T", "ln N", curves, x_log=True, y_log=True)


def _gaps(rows: lab.Rows, axis: str) -> lab.Panel:
    labels = {"gap": "measured gap", "bound": "bound", "range": "range of the loss"}
    series = [
        lab.line(lab.Rows(row for row in rows if row[name] > 0), axis, name, label, colour=number)
        for number, (name, label) in enumerate(labels.items())
    ]
    return lab.Panel("", AXES[axis], "loss", series, x_log=axis != "layers", y_log=True)


def _needed(rows: lab.Rows, axis: str) -> lab.Panel:
    series = [lab.line(rows.having("log10_needed"), axis, "log10_needed", "needed", "mean", colour=1)]
    return lab.Panel("", AXES[axis], "log10 of training strings", series, x_log=axis != "layers")
