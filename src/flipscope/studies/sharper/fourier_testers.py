"""Testers of degree and sparsity on targets, constructed networks and learned models (Fig 8).

A tester queries a function as a black box, and accepts or rejects that it has at most a degree D, or a sparsity ω. The
first level that is accepted is its result. Targets are random sums of parities, whose class is known.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import flipscope.lab as lab
from flipscope.adapters.outputs import binary_logit
from flipscope.adapters.subject import Model
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate, Floats
from flipscope.basics.seeds import generators, seed_of
from flipscope.bounds.pac_bayes import black_box_bound, class_bound
from flipscope.constructions.fourier import fourier_network, output_error
from flipscope.cube.estimate import Queries, Range
from flipscope.cube.fourier_sums import FourierSum, random_sum
from flipscope.cube.testers import Sweep, degree_mismatches
from flipscope.data.fourier import FourierData
from flipscope.lab import quantities
from flipscope.models.modes import eval_mode
from flipscope.probes.fourier import degree_test, first_degree, first_sparsity, oracle
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
from flipscope.training.recipes.sharper import converged

SAMPLES = 8_192  # samples in the bound of a tested class
ROUNDING = 1e-9  # largest alternating mean of an exact target
TAIL = 1e-3  # energy outside the largest coefficients that the sparsity tester tolerates
TAILS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
TRIALS = (1, 3, 10, 30, 100, 300, 1_000)
TOLERANCE = 0.1  # of a learned model's alternating means: a fifth of the targets' standard deviation
LEARNED_TAIL = 0.04  # twice the loss at which a training ends
MARGIN = 1.0  # by which a learned model may leave the range of its target; beyond, its outputs are cut off
MOST = 64  # coefficients that are counted
RESTRICTIONS = 12
FREE = 10  # free coordinates in restrictions of learned models, whose queries cost more
SPARSITIES = (1, 7, 14, 20)

FEWEST_FUNCTIONS = 8  # of each degree
FEWEST_DEGREES = 5
LARGE = 14  # a sparsity from which on the testers fall short
SHORT = 1.0  # by how much at least, on average
CLOSE = 0.9  # bound of the class that is found over the bound of the true class
COARSE = 1e-2  # a large proximity parameter


# ---------------------------------------------------------------- measurements


@dataclass(frozen=True)
class Target(lab.Trial):
    """A random function of a class, queried as it is."""

    tag = "target"

    length: int
    sparsity: int
    degree: int
    seed: int
    free: int
    trials: int

    @property
    def cost(self) -> float:
        return float(self.sparsity * ((self.trials << (self.degree + 2)) + (RESTRICTIONS << self.free)))

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """The class that the testers find, the bound that follows, and both by trials and by tail."""
        for_function, for_box, for_degree, for_sparsity = generators(_seed(self), 4)
        target = random_sum(self.length, self.sparsity, self.degree, for_function)
        model, ends = _values(target), _range(target)
        try:
            box = black_box_bound(
                model,
                self.length,
                SAMPLES,
                value_range=ends,
                tolerance=ROUNDING,
                trials=self.trials,
                free=self.free,
                tail=TAIL,
                max_degree=self.degree + 2,
                restrictions=RESTRICTIONS,
                seed=for_box,
            )
        except InputError:  # nothing was accepted, or only constants: judged as a result
            box = None
        queries = Queries(oracle(model, "logit"), self.length, ends)
        means = [degree_mismatches(queries, degree, self.trials, for_degree) for degree in range(self.degree + 2)]
        outside = _outside(model, self.length, ends, self.free, for_sparsity)
        return {
            "found_degree": box and box.degree,
            "found_sparsity": box and box.sparsity,
            "queries": box and box.queries,
            "bound": box and box.bound.bound,
            "degrees": [
                first_within([float(np.abs(each[:count]).max()) for each in means], ROUNDING) for count in TRIALS
            ],
            "sparsities": [sparsity_at(outside, tail) for tail in TAILS],
        }


@dataclass(frozen=True)
class Written(lab.Trial):
    """The network with mask 0 of a random function, whose degree is only approximately that of the function."""

    tag = "written"

    length: int
    sparsity: int
    degree: int
    seed: int
    trials: int

    @property
    def cost(self) -> float:
        return 20.0 * (self.trials << (self.degree + 2))

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """The degree of the constructed network, with its output error as tolerance, and without tolerance."""
        for_function, for_degree, for_strict = generators(_seed(self), 3)
        target = random_sum(self.length, self.sparsity, self.degree, for_function)
        network, error = fourier_network(target), output_error(target)
        ends = _range(target, error)
        options: dict[str, Any] = {"values": "logit", "value_range": ends, "trials": self.trials}
        tolerant = first_degree(
            network, self.length, max_degree=self.degree + 1, tolerance=error, seed=for_degree, **options
        )
        strict = degree_test(network, self.length, self.degree, tolerance=ROUNDING, seed=for_strict, **options)
        return {"found_degree": tolerant.value, "error": error, "exactly": strict.accepted, "strict": strict.statistic}


@dataclass(frozen=True)
class Learned(Learning):
    """A model that learned a random function."""

    tag = "learned"

    trials: int = 300

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """The largest alternating mean of each degree, and the energies outside the largest coefficients."""
        trained = lab.trained(self.recipe, progress)
        data = self.recipe.data
        assert isinstance(data, FourierData)
        target = data.target()
        low, high = ends = _range(target, MARGIN)

        def model(bits: Tensor) -> Tensor:
            with torch.no_grad():
                return binary_logit(trained.model(bits)).double().clamp(low, high)

        for_degree, for_sparsity, for_target = generators(_seed(self), 3)
        with eval_mode(trained.model):
            statistics = [
                degree_test(
                    model,
                    self.length,
                    degree,
                    values="logit",
                    value_range=ends,
                    tolerance=high - low,  # no alternating mean is larger, so that no trial rejects
                    trials=self.trials,
                    seed=for_degree,
                ).statistic
                for degree in range(min(self.degree + 2, self.length))
            ]
            outside = _outside(model, self.length, ends, FREE, for_sparsity)
        return {
            "learned": converged(trained),
            "epoch_loss": trained.history[-1].train_loss if trained.history else None,
            "statistics": statistics,
            "outside": outside,
            "target_outside": _outside(_values(target), self.length, ends, FREE, for_target),
        }


def _seed(trial: Target | Written | Learned) -> int:
    """A different seed for each function of each class."""
    return seed_of(trial.seed, trial.length, trial.sparsity, trial.degree)


def _range(target: FourierSum, margin: float = 0.0) -> Range:
    """A range that holds the values of the target, whose coefficients are positive."""
    return -margin - ROUNDING, sum(target.coefficients) + margin + ROUNDING


def _values(target: FourierSum) -> Callable[[Tensor], Floats]:
    return lambda bits: target(bits.numpy().astype(np.uint8))


def _outside(model: Model, length: int, ends: Range, free: int, seed: np.random.Generator) -> list[float]:
    """The largest energy outside the k = 0, 1, … largest coefficients of some restrictions."""
    sweep: Sweep = first_sparsity(
        model,
        length,
        max_sparsity=MOST,
        values="logit",
        value_range=ends,
        free=min(free, length),
        epsilon=1e-15,
        restrictions=RESTRICTIONS,
        seed=seed,
    )
    return [each.statistic for each in sweep.results]


def first_within(statistics: Sequence[float], limit: float) -> int | None:
    """The first level whose statistic is within the limit; None if there is none."""
    return next((place for place, each in enumerate(statistics) if each <= limit), None)


def sparsity_at(outside: Sequence[float], tail: float) -> int | None:
    """The sparsity that is accepted at this tail, minus 1 for the constant and at least 1; None if there is none."""
    many = first_within(outside, tail)
    return None if many is None else max(1, many - 1)


def target_row(row: lab.Row) -> lab.Row:
    """The row of a target with the bound of the class that was found over that of the true one, by tail."""
    length, degree = row["length"], row["found_degree"]
    true = class_bound(row["sparsity"], row["degree"], length, SAMPLES).bound
    ratios = [
        None if sparsity is None or degree is None else class_bound(sparsity, degree, length, SAMPLES).bound / true
        for sparsity in row["sparsities"]
    ]
    return {**row, "kind": "target", "ratio": row["bound"] and row["bound"] / true, "ratios": ratios}


def learned_row(row: lab.Row) -> lab.Row:
    """The row of a model with the degree and the sparsity that are accepted at the tolerances for learned models.

    At so large a tail the tester finds fewer coefficients even of the target; a model is compared with that number.
    """
    return {
        **row,
        "kind": "learned",
        "found_degree": first_within(row["statistics"], TOLERANCE),
        "found_sparsity": sparsity_at(row["outside"], LEARNED_TAIL),
        "wanted_sparsity": sparsity_at(row["target_outside"], LEARNED_TAIL),
    }


# ---------------------------------------------------------------- claims

FUNCTIONS: dict[str, Any] = {"within": None, "fewest": FEWEST_FUNCTIONS, "unit": "functions"}


def _unless_missing(judged: lab.Judgement, rows: lab.Rows, kept: lab.Rows) -> lab.Judgement:
    """The same judgement, undecided where functions were rejected at every level: dropping them would be selection."""
    if len(kept) == len(rows):
        return judged
    return judged.left_open(f"{len(rows) - len(kept)} of {len(rows)} functions were accepted at no level")


def judge_degrees(table: lab.Rows) -> lab.Judgement:
    """Degrees 1 to 5 are found exactly, each for most functions that have it."""

    def most_of(degree: int, rows: lab.Rows, confidence: float) -> lab.Judgement:
        if len(rows) < FEWEST_FUNCTIONS:
            what = f"functions of degree {degree}"
            return lab.Judgement.without(f"too few {what}: {len(rows)}", f"at least {FEWEST_FUNCTIONS} {what}")
        words = f"share of functions of degree {degree} found so"
        return lab.of_models(
            rows, lambda row: row["found_degree"] == degree, "most", words, confidence=confidence, unit="functions"
        )

    by_degree = table.where(kind="target").by("degree")
    return lab.for_each(by_degree, most_of, missing="no target was tested", fewest=FEWEST_DEGREES, what="degrees")


def judge_short(table: lab.Rows) -> lab.Judgement:
    """Large sparsities are found too small, on average, and the largest still larger than the smallest of these.

    The second part excludes a tester that gives the same result for every function.
    """
    rows = table.where(lambda row: row["sparsity"] >= LARGE, kind="target")
    kept = rows.having("found_sparsity")
    missed = lab.Rows({**row, "missed": row["sparsity"] - row["found_sparsity"]} for row in kept)
    mean = lab.mean_of("missed", lab.at_least, SHORT, "mean sparsity that is not found, ω", **FUNCTIONS)
    missing = f"no target of sparsity {LARGE} or more was tested"
    short = lab.for_each(missed.by("sparsity"), mean, missing=missing, besides=1, fewest=2, what="sparsities")
    sparsities = kept.values("sparsity")
    if len(sparsities) < 2:
        return short
    largest, smallest = (kept.where(sparsity=end(sparsities)) for end in (max, min))
    words = f"sparsity found at ω = {max(sparsities)} less that at ω = {min(sparsities)}"
    confidence = lab.confidence(len(sparsities) + 1)
    larger = lab.larger_mean(largest, smallest, "found_sparsity", words, confidence=confidence, unit="functions")
    return _unless_missing(lab.all_of([short, larger]), rows, kept)


def judge_bounds(table: lab.Rows) -> lab.Judgement:
    """The bound of the class that is found is nearly that of the true class, neither smaller nor larger."""

    def close(estimate: Estimate, limit: float, quantity: str, **words: str) -> lab.Judgement:
        return lab.between(estimate, limit, 1 / limit, quantity, **words)

    rows = table.where(kind="target")
    kept = rows.having("ratio")
    mean = lab.mean_of("ratio", close, CLOSE, "bound of the class found over that of the true one, ω", **FUNCTIONS)
    judged = lab.for_each(kept.by("sparsity"), mean, missing="no target was tested", fewest=3, what="sparsities")
    return _unless_missing(judged, rows, kept)


def judge_written(table: lab.Rows) -> lab.Judgement:
    """Networks with mask 0 have their target's degree with a tolerance, and no such degree without."""
    rows = table.where(kind="written")
    missed = sum(row["found_degree"] != row["degree"] for row in rows)
    exact = sum(row["exactly"] for row in rows)
    parts = [
        lab.never(count, len(rows), words, confidence=lab.confidence(2))
        for count, words in (
            (missed, "share found otherwise, the output error as tolerance"),
            (exact, "share of exactly that degree"),
        )
    ]
    return lab.all_of([lab.unless_few(part, len(rows), FEWEST_FUNCTIONS, "networks") for part in parts])


def _is_no_larger(row: lab.Row) -> bool:
    """Whether the degree and sparsity found are no larger than the true ones; False where even these were rejected."""
    pairs = [(row[f"found_{name}"], row[name]) for name in ("degree", "sparsity")]
    return all(tested is not None and tested <= true for tested, true in pairs)


NO_LARGER = quantities.share(
    "share of functions found with no more than their degree and sparsity",
    _is_no_larger,
    fewest=FEWEST_FUNCTIONS * FEWEST_DEGREES,
    unit="functions",
).where("targets", kind="target")


def _loss_by_tail() -> lab.Quantity:
    """The sparsity found at a large proximity parameter minus that at the usual one, for the same functions."""
    fine, coarse = (TAILS.index(tail) for tail in (TAIL, COARSE))

    def accepted(rows: lab.Rows) -> lab.Rows:
        return rows.where(lambda row: None not in (row["sparsities"][fine], row["sparsities"][coarse]))

    def estimate(rows: lab.Rows, confidence: float) -> Estimate | str:
        kept = accepted(rows)
        if len(kept) < FEWEST_FUNCTIONS:
            return f"too few functions: {len(kept)}"
        return lab.student_mean([row["sparsities"][coarse] - row["sparsities"][fine] for row in kept], confidence)

    return lab.Quantity(
        f"sparsity found at ε = {COARSE:g} less that at {TAIL:g}",
        estimate,
        "functions",
        remedy=f"at least {FEWEST_FUNCTIONS} functions",
        after=lambda judged, estimate, rows: _unless_missing(judged, rows, accepted(rows)),
    ).where(f"functions of ω = {LARGE} and more", lambda row: row["sparsity"] >= LARGE, kind="target")


def _as_target(name: str, column: str, tolerance: str, *, least: int = 0) -> lab.Quantity:
    """The share of learned models for which the testers find the same as for the target.

    The target's value must be above `least`, the smallest that the testers find for any function, even a constant.
    """
    where = "models that learned their target" + (f", with a {name} above {least}" if least else "")
    return quantities.share(
        f"share with their target's {name} {tolerance}", lambda row: row[f"found_{name}"] == row[column]
    ).where(where, lambda row: row[column] is not None and row[column] > least, kind="learned", learned=True)


CLAIMS = (
    lab.Claim("the degree is found for most functions", "Fig 8 left",
              "for most functions the first accepted degree is the true one",
              "share of functions whose first accepted degree is the true one, for each degree from 1 to 5: at "
              "least a half", judge_degrees, decided_from="laptop"),
    lab.Claim("large sparsities are found too small", "Fig 8 right",
              "for large sparsities the first accepted sparsity is below the true one",
              f"ω less the mean sparsity found, ω = {LARGE} and more, ε = {TAIL:g}: at least 1; and more is found "
              "at the largest ω than at the smallest of these", judge_short, decided_from="laptop"),
    lab.claim("most functions are found no larger than they are", "App. H",
              "testers usually accept at or below the true level", NO_LARGER >= 0.5,
              decided_from="laptop"),
    lab.claim("a larger ε finds less", "App. H",
              "the shortfall is larger for larger proximity parameters", _loss_by_tail() <= -SHORT,
              decided_from="laptop"),
    lab.Claim("the bound of the class that is found is close", "App. H",
              "left open: whether the shortfall of the testers matters for the bound",
              f"truncated bound of the class found over that of the true class, by sparsity: from {CLOSE:g} to "
              f"1/{CLOSE:g}", judge_bounds, exploratory=True, decided_from="laptop"),
    lab.Claim("written-down networks need a tolerance", "App. B",
              "left open: with mask 0, positions without a set keep some weight, so that no degree is exact",
              "degree found with the output error as tolerance: the target's; with none: never", judge_written,
              exploratory=True, decided_from="laptop"),
    lab.claim("learned models have their target's degree", "App. H",
              "left open: whether testers cope with functions that are learned only approximately",
              _as_target("degree", "degree", f"at tolerance {TOLERANCE:g}") >= 0.5,
              exploratory=True, decided_from="laptop"),
    lab.claim("learned models have their target's sparsity", "App. H", "left open, as for the degree",
              _as_target("sparsity", "wanted_sparsity", f"at ε = {LEARNED_TAIL:g}", least=1) >= 0.5,
              exploratory=True, decided_from="laptop"),
)  # fmt: skip


# ---------------------------------------------------------------- figures


def _spread(rows: lab.Rows, x: str, y: str, label: str, colour: int) -> lab.Series:
    """The mean of y at each x with one standard deviation on either side, as the paper draws it."""
    groups = {place: np.array(functions.column(y), np.float64) for place, functions in rows.having(y).by(x)}
    middle = [float(each.mean()) for each in groups.values()]
    reach = [float(each.std()) for each in groups.values()]
    low, high = ([a + sign * b for a, b in zip(middle, reach, strict=True)] for sign in (-1, 1))
    return lab.Series(label, list(groups), middle, "points", low, high, colour=colour)


def _truth(rows: lab.Rows, column: str) -> lab.Series:
    places = np.linspace(min(rows.values(column)), max(rows.values(column)), 101).tolist()  # many have no marks
    return lab.Series("true", places, places, dashed=True, colour=1)


def _figure_of_classes(targets: lab.Rows, title: str) -> lab.Figure:
    """Fig 8: degree and sparsity found for targets against the true ones."""
    panels = [
        lab.Panel(
            "",
            f"true {words}",
            f"first {words} accepted",
            [_truth(targets, name), _spread(targets, name, f"found_{name}", "found", 0)],
        )
        for name, words in (("degree", "degree D"), ("sparsity", "sparsity ω"))
    ]
    caption = "Means over all functions of a degree, or of a sparsity, with one standard deviation on either side."
    return lab.Figure("fourier-testers", title, caption, panels, where="Fig 8")


def _mean(rows: lab.Rows, column: str, label: str, places: tuple[float, ...], colour: int) -> lab.Series:
    """The mean at each place over the functions for which some level was accepted there."""
    by_place = zip(*(row[column] for row in rows), strict=True)
    kept = [[each for each in values if each is not None] for values in by_place]
    return lab.Series(label, places, [sum(each) / len(each) if each else None for each in kept], colour=colour)


def _figure_by_trials(targets: lab.Rows) -> lab.Figure:
    """The degree found, by the number of trials of the tester."""
    series = [
        _mean(functions, "degrees", f"D = {degree}", TRIALS, colour)
        for colour, (degree, functions) in enumerate(targets.by("degree"))
    ]
    panel = lab.Panel("", "trials of the degree tester", "first degree accepted", series, x_log=True)
    caption = "Means over functions. Fewer trials stand for a larger proximity parameter."
    return lab.Figure("fourier-testers-trials", "The degree found, by trials", caption, [panel], 1, where="App. H")


def _figure_by_epsilon(targets: lab.Rows) -> lab.Figure:
    """The sparsity and the bound of the class found, by the energy that the sparsity tester tolerates."""
    panels = []
    for column, label in (("sparsities", "first sparsity accepted"), ("ratios", "bound / bound of the true class")):
        series = [
            _mean(functions, column, f"ω = {sparsity}", TAILS, colour)
            for colour, (sparsity, functions) in enumerate(targets.by("sparsity"))
        ]
        panels.append(lab.Panel("", "ε of the sparsity tester", label, series, x_log=True))
    caption = "Means over functions. Right: the truncated bound is too small where the sparsity is."
    title = "The sparsity found and its bound, by ε"
    return lab.Figure("fourier-testers-epsilon", title, caption, panels, where="App. H")


def _figure_of_models(learned: lab.Rows) -> lab.Figure:
    """Of learned models: first accepted degree and sparsity, by length."""
    panels = []
    for name, words in (("degree", "degree D"), ("sparsity", "sparsity ω")):
        series = [_truth(learned, name)]
        series += [
            _spread(models, name, f"found_{name}", f"found, T = {length}", 2 * colour)
            for colour, (length, models) in enumerate(learned.having(f"found_{name}").by("length"))
        ]
        panels.append(lab.Panel("", f"{words} of the target", f"first {words} accepted", series))
    caption = "Models that learned their target, with tolerances for what they learned nearly; one standard deviation."
    return lab.Figure("fourier-testers-learned", "The class of learned models", caption, panels, where="App. H")


def _right_degree(row: lab.Row, limit: float) -> bool:
    return bool(first_within(row["statistics"], limit) == row["degree"])


def _right_sparsity(row: lab.Row, limit: float) -> bool:
    """Whether the model has as many coefficients as its target has at the same tail."""
    wanted = sparsity_at(row["target_outside"], limit)
    return wanted is not None and sparsity_at(row["outside"], limit) == wanted


def _figure_by_tolerance(learned: lab.Rows) -> lab.Figure:
    """How many learned models are found in the class of their target, by the tolerance of the testers."""
    panels = []
    for name, right, label, judged in (
        ("degree", _right_degree, "tolerance of the degree tester", TOLERANCE),
        ("sparsity", _right_sparsity, "ε of the sparsity tester", LEARNED_TAIL),
    ):
        limits = np.geomspace(judged / 20, judged * 10, 24).tolist()
        series = [
            lab.Series(
                f"T = {length}",
                limits,
                [float(np.mean([right(row, each) for row in models])) for each in limits],
                colour=colour,
            )
            for colour, (length, models) in enumerate(learned.by("length"))
        ]
        rules = [lab.Rule(judged, "judged", "x")]
        y_label = f"share with their target's {name}"
        panels.append(lab.Panel("", label, y_label, series, x_log=True, y_range=(0, 1), rules=rules))
    caption = (
        "A model that learned its target nearly is of no low degree, and of no low sparsity, exactly: it takes a "
        "tolerance. Right: the sparsity is compared with what the tester says of the target at the same ε."
    )
    return lab.Figure("fourier-testers-tolerance", "Learned models, by tolerance", caption, panels, where="App. H")


# ---------------------------------------------------------------- the study


class FourierTesters(lab.Study):
    """Whether the class of a function is found by queries alone."""

    name, paper, figures = "fourier-testers", "002", ("Fig 8",)
    title = "Degree and sparsity by property testers"
    sample_sizes = ("written", "trials")
    scales = lab.scales(
        "{functions} functions of {length} bits of each degree in {degrees} and sparsity in {sparsities}, {written} "
        "networks written down for each, {models} learned models for each sparsity in {learned}",
        smoke=(0.1, {"length": 8, "degrees": (1, 2), "sparsities": (1, 3), "functions": 2, "written": 1, "models": 1}
               | {"learned": (1, 2), "training": SMOKE, "long": None, "free": 6, "trials": 50}),
        laptop=(27, {"length": 20, "degrees": DEGREES, "sparsities": SPARSITIES, "functions": 8, "written": 2}
                | {"models": 3, "learned": (1, 4, 7, 10), "training": LAPTOP, "long": LONG, "free": 12}
                | {"trials": 1_000}),
        paper=(200_000, {"length": 20, "degrees": DEGREES, "sparsities": SPARSITIES, "functions": 8, "written": 8}
               | {"models": 11, "learned": SPARSITIES, "training": PAPER, "long": None, "free": 16, "trials": 1_000}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("degree tester", "d + 2 points, interpolation", "2^(d+1) points, one group frozen (B11)", "for real values"),
        (
            "its proximity, confidence",
            "lost",
            "1,000 trials for each degree, of learned models 300",
            "tolerance is 1e-9",
        ),
        (
            "sparsity tester",
            "free coordinates, ε, δ lost",
            f"12 of 20 free (paper scale 16, learned 10), 12 restrictions, ε = {TAIL:g}",
            "not stated",
        ),
        ("sparsity", "of the indicators", "of characters, less 1 for the constant", "indicators have a constant term"),
        ("written-down networks", "not tested", "mask 0, tolerance: their output error", "of no low degree exactly"),
        ("most, usually", "said of both testers", "of at least half of the functions", "no numbers are given"),
        ("learned models", "named, not shown", "those of generalization-gap", "testers are for black boxes"),
        (
            "their training, models, learned sparsities, long arm (laptop)",
            "length 20, 8,192 samples, lr, steps, dropout as there; 11 of 1, 7, 14, 20; none",
            "length 10, 512 samples, lr 1e-3, 4,000 steps, no dropout; 3 of 1, 4, 7, 10; length 20 at sparsity 1",
            "minutes",
        ),
        ("networks written (laptop)", "8 of each class (paper scale)", "2", "to take minutes"),
        ("their range", "not stated", "the target's and 1 more; outputs beyond are cut off", "no norm bounds them"),
        ("their tolerances", "not stated", f"{TOLERANCE:g} for degree, ε = {LEARNED_TAIL:g}", "loss ends at 0.02"),
    )
    claims = CLAIMS

    def trials(self, scale: str) -> list[lab.Trial]:
        plan = self.scales[scale].settings
        length, degrees, trials = plan["length"], plan["degrees"], plan["trials"]
        classes = list(itertools.product(plan["sparsities"], degrees))
        targets = [
            Target(length, *one, seed, plan["free"], trials) for one in classes for seed in range(plan["functions"])
        ]
        written = [Written(length, *one, seed, trials) for one in classes for seed in range(plan["written"])]
        models = [plan["training"] | place for place in functions_of(plan["learned"], degrees, plan["models"])]
        if plan["long"]:
            models += [plan["long"] | place for place in functions_of((1,), degrees, plan["models"])]
        return [*targets, *written, *(Learned(**each) for each in models)]

    def row(self, trial: Target | Written | Learned, outcome: lab.Outcome) -> lab.Row:
        row = super().row(trial, outcome)
        if isinstance(trial, Written):
            return {**row, "kind": "written"}
        return target_row(row) if isinstance(trial, Target) else learned_row(row)

    def provenance(self, table: lab.Rows) -> list[str]:
        return [f"models, others are not judged: {learned_summary(table.where(kind='learned'))}"]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        figures = []
        if targets := table.where(kind="target"):
            figures += [
                _figure_of_classes(targets, self.title),
                _figure_by_trials(targets),
                _figure_by_epsilon(targets),
            ]
        if learned := table.where(kind="learned", learned=True):
            figures += [_figure_of_models(learned), _figure_by_tolerance(learned)]
        return figures


STUDY = FourierTesters()
