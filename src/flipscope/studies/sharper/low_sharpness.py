"""Curvature and norm of constructed networks for sums of parities, against learned ones (Fig 2).

Thm 2 assumes that a learner finds networks whose Hessian trace and norm are no larger than those of the network
constructed for the same function. Here both are measured for the same functions, and a learner with the trace in its
loss (Def 1) is compared with one without.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

import flipscope.lab as lab
from flipscope.adapters.parameters import weight_norm
from flipscope.basics.estimates import Estimate
from flipscope.bounds.pac_bayes import gradient_bound, norm_bound
from flipscope.constructions.fourier import fourier_network
from flipscope.data.fourier import FourierData
from flipscope.lab import quantities
from flipscope.probes.curvature import Curvature, curvature
from flipscope.probes.gradients import squared_gradients
from flipscope.studies.sharper.shared import (
    DEGREES,
    LAPTOP,
    LONG,
    PAPER,
    SMOKE,
    Learning,
    functions_of,
    learned_summary,
)
from flipscope.training.recipes.sharper import converged, gap

PENALTY = 1e-4  # beta of Def 1: times a trace of hundreds it is as large as the final loss of a training
TRACED = 1_000  # training strings on which the trace is taken, as in the paper
EIGENVALUES = 3  # at either end
FEWEST = 3  # pairs of trainings with and without a penalty, or classes
MOST = 0.9  # share of functions that counts as all but a few
ORDERS = (1.5, 2.5)  # of magnitude: roughly two
CLASS = ("length", "sparsity", "degree")
COLUMNS = {"trace": "Hessian trace", "norm": "norm"}


# ---------------------------------------------------------------- measurements


@dataclass(frozen=True)
class Flatness(Learning):
    """A function to learn, and the numbers of products for its trace and of Lanczos steps for its eigenvalues."""

    probes: int = 99
    lanczos: int = 0

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """Traces and norms of the learned and of the constructed network."""
        recipe = self.recipe
        trained = lab.trained(recipe, progress)
        assert isinstance(recipe.data, FourierData)
        training_set = recipe.data.strings()
        bits, values = training_set.bits[:TRACED], training_set.labels[:TRACED]
        model, made = trained.transformer, fourier_network(recipe.data.target())
        with torch.no_grad():
            made_values = made(
                torch.from_numpy(bits)
            ).numpy()  # targets for the construction, which with mask 0 does not interpolate f
        learned = _curvature(model, bits, values, self, ("trace",))
        written = _curvature(made, bits, made_values, self) if self.lanczos else None
        assert learned.trace is not None
        outcome: dict[str, Any] = {
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
                outcome[f"{name}top"] = each.eigenvalues.top.values
                outcome[f"{name}bottom"] = each.eigenvalues.bottom.values
                outcome[f"{name}nodes"] = each.density.nodes
                outcome[f"{name}weights"] = each.density.weights * each.parameters
        return outcome


def _curvature(
    model: nn.Module, bits: np.ndarray, values: np.ndarray, trial: Flatness, what: tuple[Any, ...] = ()
) -> Curvature:
    """Numbers of the Hessian, and if the trial has eigenvalues, the extreme ones and their density."""
    what = (*what, "eigenvalues", "density") if trial.lanczos else what
    return curvature(
        model, "mse", (bits, values), what=what, probes=trial.probes, eigenvalues=EIGENVALUES, tolerance=1e-2,
        density_probes=2, density_steps=trial.lanczos or 2, seed=trial.seed,
    )  # fmt: skip


def with_ratios(trial: Flatness, row: lab.Row) -> lab.Row:
    """A row with orders of magnitude between the two networks, where both numbers are positive, and their bounds."""
    ratios = {
        f"{name}_ratio": math.log10(row[f"made_{name}"] / row[name]) if row[name] > 0 else None for name in COLUMNS
    }
    bounds = {
        "trace_bound": 2 * gradient_bound(trial.sparsity, trial.degree),
        "norm_bound": math.sqrt(norm_bound(trial.sparsity, trial.degree, trial.length)),
    }
    return {**row, **ratios, **bounds, "arm": "penalty" if trial.penalty else "classes"}


# ---------------------------------------------------------------- claims


def _of_learned(words: str, test: Callable[[lab.Row], bool | None]) -> lab.Quantity:
    """A share of the functions that were learned without a penalty."""
    return quantities.share(words, test, unit="functions").where("learned functions", arm="classes", learned=True)


def _is_below(column: str) -> Callable[[lab.Row], bool | None]:
    """Whether the column is smaller for the learned network; None where an estimate's interval allows both."""

    def test(row: lab.Row) -> bool | None:
        low, high = (row.get(f"{column}_{end}", row[column]) for end in ("low", "high"))
        if high < row[f"made_{column}"]:
            return True
        return None if low < row[f"made_{column}"] else False

    return test


def _is_dominated(row: lab.Row) -> bool | None:
    """Whether neither norm nor trace is above the construction's; None where the trace's interval allows both."""
    # Written so that NaN counts as not dominated.
    if not (row["norm"] <= row["made_norm"] and row["trace_low"] <= row["made_trace"]):
        return False
    return True if row["trace_high"] <= row["made_trace"] else None


def _unless_dropped(judged: lab.Judgement, dropped: int, of: int) -> lab.Judgement:
    """The same judgement, undecided where values have no logarithm: these are of the flattest networks."""
    return judged.left_open(f"{dropped} of {of} traces are not positive", "more products") if dropped else judged


def orders_of_magnitude(column: str) -> lab.Quantity:
    """By how many orders of magnitude a column is larger for the construction than when learned, averaged over classes.

    Functions of one class are similar, so that a class counts once. Learned classes are the easier ones, so that the
    claim stays undecided if less than half of all classes were learned.
    """
    name = f"{column}_ratio"

    def class_means(rows: lab.Rows) -> tuple[list[float], int]:
        """The mean of each class with a learned function, and how many classes were tried."""
        learned = rows.where(learned=True).having(name)
        return [float(np.mean(functions.column(name))) for _, functions in learned.by(*CLASS)], len(
            list(rows.by(*CLASS))
        )

    def estimate(rows: lab.Rows, confidence: float) -> Estimate | str:
        means, tried = class_means(rows)
        if len(means) < max(FEWEST, math.ceil(tried / 2)):
            return f"{len(means)} of {tried} classes have a function that was learned"
        return lab.student_mean(means, confidence)

    def note(rows: lab.Rows) -> str:
        means, tried = class_means(rows)
        return f"{len(means)} of {tried} classes, from {min(means):.2g} to {max(means):.2g}"

    def unless_dropped(judged: lab.Judgement, estimate: Estimate, rows: lab.Rows) -> lab.Judgement:
        learned = rows.where(learned=True)
        return _unless_dropped(judged, len(learned) - len(learned.having(name)), len(learned))

    return lab.Quantity(
        f"log10 of construction over learned, {COLUMNS[column]}",
        estimate,
        "classes",
        remedy=f"at least half of the classes and {FEWEST} of them, or more steps",
        note=note,
        after=unless_dropped,
    ).where("functions learned without a penalty", arm="classes")


def decrease_by_penalty(column: str, words: str, *, log: bool) -> lab.Quantity:
    """By how much a column is lower with the trace in the loss than without, for the same functions."""

    def pairs(rows: lab.Rows) -> list[tuple[float, float]]:
        """The column without and with the penalty, of each function that was learned both ways."""
        keys = ("sparsity", "degree", "seed", "length")
        plain, penalised = (
            {tuple(row[name] for name in keys): row[column] for row in rows.where(arm=arm)}
            for arm in ("classes", "penalty")
        )
        return [(plain[key], penalised[key]) for key in sorted(plain.keys() & penalised.keys())]

    def comparable(rows: lab.Rows) -> list[tuple[float, float]]:
        if not log:
            return pairs(rows)
        return [(math.log10(a), math.log10(b)) for a, b in pairs(rows) if a > 0 and b > 0]

    def estimate(rows: lab.Rows, confidence: float) -> Estimate | str:
        kept = comparable(rows)
        if len(kept) < FEWEST:
            return f"{len(kept)} pairs to compare"
        return lab.compare_groups(*zip(*kept, strict=True), paired=True, confidence=confidence)

    def unless_dropped(judged: lab.Judgement, estimate: Estimate, rows: lab.Rows) -> lab.Judgement:
        dropped = sum(not value > 0 for pair in pairs(rows) for value in pair) if log else 0
        return _unless_dropped(judged, dropped, 2 * len(pairs(rows)))

    return lab.Quantity(
        f"{words}, without the penalty less with it",
        estimate,
        "functions",
        remedy=f"at least {FEWEST} pairs",
        note=lambda rows: f"{len(comparable(rows))} functions",
        after=unless_dropped,
    ).where("the same learned functions", learned=True)


CLAIMS = (
    *(
        lab.claim(
            f"the construction {words}",
            "Fig 2",
            f"the {column} of the constructed network is well above that of learned ones",
            (
                _of_learned(f"share with a larger {COLUMNS[column]} of the construction", _is_below(column)) >= MOST
            ).saying(
                "share of learned functions for which it is larger, by the interval of an estimated trace: at least "
                f"{MOST:g}"
            ),
        )
        for column, words in (("trace", "is sharper"), ("norm", "has larger weights"))
    ),
    *(
        lab.claim(
            f"two orders of magnitude in the {column}",
            "Remark 3, Fig 2",
            "the two differ by roughly a factor of 100",
            orders_of_magnitude(column)
            .between(*ORDERS)
            .saying(
                "log10 of construction over learned, averaged over classes, if half of them are learned or more: from "
                f"{ORDERS[0]:g} to {ORDERS[1]:g}"
            ),
        )
        for column in ("trace", "norm")
    ),
    lab.claim(
        "learned networks are dominated",
        "Remark 3, § 2.2",
        "the assumption of Thm 2 as tested in § 2.2: neither trace nor norm exceeds that of the construction",
        (_of_learned("share of functions with both dominated", _is_dominated) >= MOST).saying(
            f"share of learned functions of which both hold, the trace without noise by its interval: at least {MOST:g}"
        ),
    ),
    *(
        lab.claim(
            f"a trace in the loss makes the {name} smaller",
            "Def 1",
            "left open: what a learner that penalises sharpness finds",
            (decrease_by_penalty(column, words, log=log) > 0.0).saying(
                f"{words}, without the penalty less with it, of the same functions: above 0"
            ),
            exploratory=True,
        )
        for column, name, words, log in (
            ("trace", "Hessian trace", "log10 of the Hessian trace", True),
            ("gap", "gap", "gap", False),
        )
    ),
)


# ---------------------------------------------------------------- figures

SPECTRA = 4  # functions whose eigenvalues are drawn
SHOWN = 1e-3  # share of the largest eigenvalue at which the spectrum's figure begins


def _figure_by_class(rows: lab.Rows, title: str, suffix: str) -> lab.Figure:
    """Fig 2: trace and norm by degree, a colour for each sparsity, the construction dashed."""
    panels = []
    for column, name in COLUMNS.items():
        series = []
        for colour, (sparsity, group) in enumerate(rows.by("sparsity")):
            label = f"sparsity {sparsity}"
            written = lab.line(group, "degree", f"made_{column}", f"{label}, written down", band=False, colour=colour,
                               dashed=True)  # fmt: skip
            series += [written, lab.line(group.where(_positive(column)), "degree", column, label, colour=colour)]
        panels.append(lab.Panel("", "degree D", name, series, y_log=True))
    caption = (
        f"T = {rows[0]['length']}. Solid: learned networks, geometric means with bands to the least and largest; "
        f"dashed: the networks that are written down for the same functions.{_absent(rows)}"
    )
    return lab.Figure(f"low-sharpness{suffix}", title, caption, panels, where="Fig 2")


def _positive(column: str) -> Callable[[lab.Row], bool]:
    return lambda row: bool(row[column] > 0)  # an estimated trace may be negative, which a log scale cannot show


def _absent(rows: lab.Rows) -> str:
    """How many traces are not shown, in words."""
    missing = len(rows) - len(rows.where(_positive("trace")))
    return f" {missing} of {len(rows)} estimated traces are not positive, and not shown." if missing else ""


def _figure_of_spectra(table: lab.Rows) -> lab.Figure | None:
    """How many eigenvalues lie above each value, of some functions."""
    rows = table.where(arm="classes", learned=True).having("nodes")
    chosen = [rows[place] for place in np.unique(np.linspace(0, len(rows) - 1, SPECTRA).astype(int))] if rows else []
    if not chosen:
        return None
    panels = []
    for row in chosen:
        series = [
            _above("learned", row["nodes"], row["weights"], 0, dashed=False),
            _above("written down", row["made_nodes"], row["made_weights"], 1, dashed=True),
        ]
        title = f"D = {row['degree']}, sparsity {row['sparsity']}"
        panels.append(lab.Panel(title, "eigenvalue", "eigenvalues above it", series, x_log=True, y_log=True))
    caption = "Of the Hessian of the training loss, by stochastic Lanczos quadrature: estimates, less certain below 1."
    return lab.Figure("low-sharpness-spectra", "Eigenvalues of the Hessian", caption, panels, same_axes=True)


def _above(label: str, nodes: list[float], weights: list[float], colour: int, *, dashed: bool) -> lab.Series:
    """The number of eigenvalues above each value, down to a small part of the largest."""
    order = np.argsort(nodes)[::-1]
    values, counts = np.array(nodes)[order], np.cumsum(np.array(weights)[order])
    kept = values > SHOWN * values[0]
    return lab.Series(label, values[kept].tolist(), counts[kept].tolist(), "steps", colour=colour, dashed=dashed)


def _figure_of_penalties(table: lab.Rows) -> lab.Figure | None:
    """Trace and gap of the same functions with the trace in the loss and without."""
    penalised = table.where(arm="penalty", learned=True)
    keys = [(row["sparsity"], row["degree"], row["seed"]) for row in penalised]
    plain = table.where(lambda row: (row["sparsity"], row["degree"], row["seed"]) in keys, arm="classes", learned=True)
    plain = plain.where(length=penalised[0]["length"]) if penalised else plain
    if not penalised or not plain:
        return None
    panels = []
    for column, name, log in (("trace", "Hessian trace", True), ("gap", "gap", False)):
        shown = [
            (rows.where(_positive(column)) if log else rows, words)
            for rows, words in ((plain, "weight decay only"), (penalised, "trace in the loss"))
        ]
        series = [
            lab.Series(
                words, [row["degree"] + 0.1 * (colour - 0.5) for row in rows], rows.column(column), "points",
                colour=colour, hover=[f"sparsity {row['sparsity']}, seed {row['seed']}" for row in rows],
            )
            for colour, (rows, words) in enumerate(shown)
            if rows
        ]  # fmt: skip
        panels.append(lab.Panel("", "degree D", name, series, y_log=log))
    caption = (
        "The low-sharpness learner: a point per function, with the Hessian's trace in the loss and without."
        + _absent(lab.Rows([*plain, *penalised]))
    )
    return lab.Figure("low-sharpness-learner", "A learner that avoids sharpness", caption, panels, where="Def 1")


# ---------------------------------------------------------------- the study


class LowSharpness(lab.Study):
    """Whether learned networks are flatter and smaller than the construction, as Thm 2 assumes."""

    name, paper, figures = "low-sharpness", "002", ("Fig 2",)
    title = "Hessian trace and weight norm: learned networks and the construction"
    scales = lab.scales(
        "{functions} functions of each class, D in {degrees}, sparsity in {sparsities}, {probes} products",
        smoke=(0.1, {"training": SMOKE, "degrees": (1, 2), "sparsities": (1,), "functions": 1, "long": None}
               | {"penalised": (1,), "probes": 6, "lanczos": 4}),
        laptop=(10, {"training": LAPTOP, "degrees": DEGREES, "sparsities": (1, 4, 7, 10), "functions": 3, "long": LONG}
                | {"penalised": (1, 2, 3), "probes": 60, "lanczos": 40}),
        paper=(200_000, {"training": PAPER, "degrees": DEGREES, "sparsities": (1, 7, 14, 20), "functions": 11}
               | {"long": None, "penalised": DEGREES, "probes": 999, "lanczos": 100}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("functions, sparsity, training, T, long arm (laptop)", "11 of each class, T = 20",
         "those of generalization-gap", "models are shared"),
        ("penalised degrees, products (probes), Lanczos steps (laptop)", "1 to 5, 999, 100 (paper scale)",
         "1 to 3, 60, 40", "to take minutes"),
        ("construction", "mask not stated", "mask 0: the network of Thms 10 and 13", "the one that is bounded"),
        ("its loss", "of the targets", "of its own outputs", "with mask 0 it interpolates these; Thm 5 is exact there"),
        ("trace", "Hutchinson", "Hutch++; 2 mean |grad f|^2 for the construction", "less noise"),
        ("strings", f"{TRACED:,} of the training", f"the same; all {LAPTOP['samples']} (laptop)", "there are no more"),
        ("not converged", "drawn again", "recorded and counted, not judged", "a redraw hides hard ones"),
        ("two orders of magnitude", "roughly", f"log10 from {ORDERS[0]:g} to {ORDERS[1]:g}", "no range is given"),
        ("domination", "of the trace under noise, loss 0", "of the trace without noise, loss < 0.02",
         "as section 2.2 measures it"),
        ("low-sharpness learner", "idealised", f"the trace in the loss, strength {PENALTY:g}", "ours; sparsity 1"),
    )  # fmt: skip
    claims = CLAIMS

    def trials(self, scale: str) -> list[Flatness]:
        plan = self.scales[scale].settings
        degrees, sparsities, probes = plan["degrees"], plan["sparsities"], plan["probes"]
        functions = functions_of(sparsities, degrees, plan["functions"])
        some = [each for each in functions if each["sparsity"] == sparsities[0] and each["degree"] in plan["penalised"]]
        penalised = plan["training"] | {"penalty": PENALTY}
        arms = [(plan["training"], functions, (sparsities[0], sparsities[-1])), (penalised, some, ())]
        if plan["long"]:
            arms.append((plan["training"] | plan["long"], functions_of((1,), degrees, plan["functions"]), ()))
        return [
            Flatness(
                **(training | each),
                probes=probes,
                lanczos=plan["lanczos"] if each["seed"] == 0 and each["sparsity"] in spectra else 0,
            )
            for training, chosen, spectra in arms
            for each in chosen
        ]

    def row(self, trial: Flatness, outcome: lab.Outcome) -> lab.Row:
        return with_ratios(trial, super().row(trial, outcome))

    def provenance(self, table: lab.Rows) -> list[str]:
        names = (("classes", "weight decay"), ("penalty", "trace in the loss"))
        return [f"{words}: {learned_summary(rows)}" for arm, words in names if (rows := table.where(arm=arm))]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        by_length = table.where(arm="classes", learned=True).by("length")
        classes = [
            _figure_by_class(rows, self.title, f"-{length}" if place else "")
            for place, (length, rows) in enumerate(by_length)
        ]
        others = [_figure_of_spectra(table), _figure_of_penalties(table)]
        return [*classes, *(figure for figure in others if figure is not None)]


STUDY = LowSharpness()
