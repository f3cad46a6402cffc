"""Networks that are written down and networks that are learned for the same sums of parities: curvature and norm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

import flipscope.lab as lab
from flipscope.bounds.pac_bayes import gradient_bound, norm_bound
from flipscope.constructions.fourier import fourier_network
from flipscope.data.fourier import FourierData
from flipscope.models.parameters import weight_norm
from flipscope.probes.curvature import Curvature, curvature
from flipscope.probes.gradients import squared_gradients
from flipscope.studies.sharper._learned import Learning, recipe_of
from flipscope.training.recipes.sharper import converged, gap

TRACED = 1_000  # training strings on which the trace is taken, as in the paper
EIGENVALUES = 3  # at either end
SHOWN = 1e-3  # share of the largest eigenvalue from which the spectrum's figure begins
FEWEST = 3  # pairs of trainings with and without a penalty, or classes
MOST = 0.9  # share of functions that is called all but a few
ORDERS = (1.5, 2.5)  # of magnitude: roughly two
CLASS = ("length", "sparsity", "degree")
COLUMNS = {"trace": "Hessian trace", "norm": "norm"}


@dataclass(frozen=True)
class Flatness(Learning):
    """A function that is learned: its trace by so many products, its eigenvalues by so many steps of Lanczos."""

    probes: int = 99
    lanczos: int = 0


def measured(trial: Flatness, progress: lab.Progress) -> dict[str, Any]:
    """Traces and norms of the learned network and of the one that is written down."""
    recipe = recipe_of(trial)
    trained = lab.trained(recipe, progress)
    assert isinstance(recipe.data, FourierData)
    known = recipe.data.strings()
    bits, values = known.bits[:TRACED], known.labels[:TRACED]
    model, made = trained.transformer, fourier_network(recipe.data.target())
    with torch.no_grad():
        own = made(torch.from_numpy(bits)).numpy()  # with mask 0 it does not interpolate f, but itself
    learned = _curvature(model, bits, values, trial, ("trace",))
    written = _curvature(made, bits, own, trial) if trial.lanczos else None
    assert learned.trace is not None
    found: dict[str, Any] = {
        "learned": converged(trained),
        "gap": gap(recipe, model).value.value,
        "loss": learned.loss,
        "trace": learned.trace.value.value,
        "trace_low": learned.trace.value.low,
        "trace_high": learned.trace.value.high,
        "gradients": squared_gradients(model, bits).gauss_newton_trace,
        "norm": weight_norm(model, positions=True),
        "made_trace": squared_gradients(made, bits).gauss_newton_trace,
        "made_norm": math.sqrt(made.squared_norm()),
    }
    for name, each in (("", learned), ("made_", written)):
        if each is not None and each.eigenvalues is not None and each.density is not None:
            found[f"{name}top"] = each.eigenvalues.top.values
            found[f"{name}bottom"] = each.eigenvalues.bottom.values
            found[f"{name}nodes"] = each.density.nodes
            found[f"{name}weights"] = each.density.weights * each.parameters
    return found


def _curvature(
    model: nn.Module, bits: np.ndarray, values: np.ndarray, trial: Flatness, what: tuple[Any, ...] = ()
) -> Curvature:
    """What is asked of the Hessian, and where the trial wants eigenvalues their ends and their density."""
    what = (*what, "eigenvalues", "density") if trial.lanczos else what
    return curvature(
        model, "mse", (bits, values), what=what, probes=trial.probes, eigenvalues=EIGENVALUES, tolerance=1e-2,
        density_probes=2, density_steps=trial.lanczos or 2, seed=trial.seed,
    )  # fmt: skip


def row_of(trial: Flatness, row: lab.Row) -> lab.Row:
    """A row with orders of magnitude between the two networks, where both numbers are positive."""
    ratios = {
        f"{name}_ratio": math.log10(row[f"made_{name}"] / row[name]) if row[name] > 0 else None for name in COLUMNS
    }
    limits = {
        "trace_bound": 2 * gradient_bound(trial.sparsity, trial.degree),
        "norm_bound": math.sqrt(norm_bound(trial.sparsity, trial.degree, trial.length)),
    }
    return {**row, **ratios, **limits, "arm": "penalty" if trial.penalty else "classes"}


# ---------------------------------------------------------------- judges


def _learned(table: lab.Rows, arm: str = "classes") -> lab.Rows:
    return table.where(arm=arm, learned=True)


def larger(column: str) -> lab.Judge:
    """A judge: the network that is written down is the larger one for all but a few functions."""

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = _learned(table)
        if not rows:
            return lab.Judgement.without("no function was learned", "more steps")
        said = f"share of functions with a larger {COLUMNS[column]} of the construction"
        answers = [_below(row, column) for row in rows]
        judged = lab.mostly(answers, MOST, said, missing="", unit="functions")
        return lab.with_fewest(judged, lab.share(0, len(answers)), 1 - MOST, "functions")

    return judge


def _below(row: lab.Row, column: str) -> bool | None:
    """Whether what is learned has less of it than the construction; None where an estimate's interval holds both."""
    low, high = (row.get(f"{column}_{end}", row[column]) for end in ("low", "high"))
    if high < row[f"made_{column}"]:
        return True
    return None if low < row[f"made_{column}"] else False


def _unless_dropped(judged: lab.Judgement, dropped: int, of: int) -> lab.Judgement:
    """The same judgement, open where values have no logarithm: they are those of the flattest networks."""
    return judged.left_open(f"{dropped} of {of} traces are not positive", "more products") if dropped else judged


def orders(column: str) -> lab.Judge:
    """A judge: it is larger by roughly two orders of magnitude, on average over classes.

    Functions of one class are alike, so that a class is one case; and classes that are learned are the easier ones, so
    that less than half of all that were tried decide nothing, either way.
    """

    def judge(table: lab.Rows) -> lab.Judgement:
        learned = _learned(table)
        rows = learned.having(f"{column}_ratio")
        dropped = len(learned) - len(rows)
        by = [float(np.mean(own.column(f"{column}_ratio"))) for _, own in rows.by(*CLASS)]
        tried = len(list(table.where(arm="classes").by(*CLASS)))
        fewest = max(FEWEST, math.ceil(tried / 2))
        if len(by) < fewest:
            reason = f"{len(by)} of {tried} classes have a function that was learned"
            judged = lab.Judgement.without(reason, f"at least {fewest} classes, or more steps")
            return _unless_dropped(judged, dropped, len(learned))
        note = f"{len(by)} of {tried} classes, from {min(by):.2g} to {max(by):.2g}"
        judged = lab.between(
            lab.student_mean(by), *ORDERS, f"log10 of construction over learned, {COLUMNS[column]}", note, "classes"
        )
        return _unless_dropped(judged, dropped, len(learned))

    return judge


def _dominated(row: lab.Row) -> bool | None:
    """Whether neither norm nor trace is above the construction's; None where the trace's interval holds both."""
    # Written so that NaN is not dominated.
    if not (row["norm"] <= row["made_norm"] and row["trace_low"] <= row["made_trace"]):
        return False
    return True if row["trace_high"] <= row["made_trace"] else None


def judge_dominated(table: lab.Rows) -> lab.Judgement:
    """Whether both trace and norm of what is learned are at most those of the construction, as § 2.2 measures them."""
    answers = [_dominated(row) for row in _learned(table)]
    if not answers:
        return lab.Judgement.without("no function was learned", "more steps")
    said = "share of functions with both dominated"
    judged = lab.mostly(answers, MOST, said, missing="", unit="functions")
    return lab.with_fewest(judged, lab.share(0, len(answers)), 1 - MOST, "functions")


def with_penalty(column: str, quantity: str, *, log: bool) -> lab.Judge:
    """A judge: a column is lower with the trace in the loss than without, for the same functions."""

    def judge(table: lab.Rows) -> lab.Judgement:
        keys = ("sparsity", "degree", "seed", "length")
        plain, penalised = (
            {tuple(row[name] for name in keys): row[column] for row in _learned(table, arm)}
            for arm in ("classes", "penalty")
        )
        both = [(plain[key], penalised[key]) for key in sorted(plain.keys() & penalised.keys())]
        pairs = [(math.log10(a), math.log10(b)) for a, b in both if a > 0 and b > 0] if log else both
        dropped = sum(not value > 0 for pair in both for value in pair) if log else 0
        if len(pairs) < FEWEST:
            reason = f"{quantity}: {len(pairs)} pairs to compare"
            judged = lab.Judgement.without(reason, f"at least {FEWEST} pairs")
            return _unless_dropped(judged, dropped, 2 * len(both))
        found = lab.compare_groups(*zip(*pairs, strict=True), paired=True)
        judged = lab.at_least(found, 0.0, quantity, f"{len(pairs)} functions", "functions")
        if judged.verdict == "reproduced" and not found.low > 0:
            return judged.left_open("no difference at all")
        return _unless_dropped(judged, dropped, 2 * len(both))

    return judge
