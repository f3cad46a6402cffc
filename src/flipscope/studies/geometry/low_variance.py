"""How improbable a small variance is: Lem E.2 by Monte Carlo, and the tail of the blowup at eps = 0 (Lem 4.2)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

import flipscope.lab as lab
from flipscope.basics.seeds import generators, random_strings
from flipscope.bounds.geometry import blowup_tail, low_variance_bound, printed_low_variance_bound
from flipscope.models.init import initialise
from flipscope.models.presets import recognizer
from flipscope.models.transformer import Transformer
from flipscope.probes.blowup import blowup

Centre = Literal["zero", "random"]
CENTRES: tuple[Centre, ...] = get_args(Centre)
BLOCK = 1 << 16  # vectors drawn at once
WIDTHS, RATIOS = (2, 3, 4, 5, 6, 8, 12, 16, 32), (0.2, 0.5, 0.8, 0.95)  # D, and sqrt(D) eta over rho
SHAPES, LENGTH = ((3, 1), (4, 1), (6, 1), (4, 2)), 16  # width and layers of the models, and of the strings
TAIL, FEWEST, SLACK = 0.01, 20, 0.8  # share of models in the tail, at least so many; part of D - 1 to reach
LEVELS = (0.5, 0.9, 0.99, 0.999)  # quantiles where the tail is held against its bound


@dataclass(frozen=True)
class Variance(lab.Trial):
    """Vectors y + Z, Z uniform in [-rho, rho]^D; eta = ratio rho / sqrt(D), so the printed bound is ratio^(D-1)."""

    width: int
    ratio: float
    rho: float
    centre: Centre
    seed: int
    samples: int

    @property
    def cost(self) -> float:
        return self.width * self.samples / 1e5  # numbers to draw, in units of a blowup trial's model


@dataclass(frozen=True)
class Tail(lab.Trial):
    """The blowup of random recognisers at eps = 0, parameters uniform in [-1, 1], on one random string each."""

    width: int
    layers: int
    seed: int
    models: int

    @property
    def cost(self) -> float:
        return float(self.models)


def _shapes(table: lab.Rows) -> list[tuple[tuple[int, int], lab.Rows]]:
    return list(table.having("largest").by("width", "layers"))


def _exponent(shape: tuple[int, int], rows: lab.Rows, confidence: float) -> lab.Judgement:
    values, name = rows.pooled("largest"), f"tail exponent over D - 1, D = {shape[0]}, L = {shape[1]}"
    if (kept := int(TAIL * len(values))) < FEWEST:
        return lab.Judgement.without(f"{name}: too few models", f"at least {FEWEST / TAIL:,.0f} models per shape")
    found = lab.tail_exponent(values, kept, confidence).scaled(1 / (shape[0] - 1))
    return lab.at_least(found, SLACK, name, unit="models")


def _judge_tail(table: lab.Rows) -> lab.Judgement:
    quotients, tails = [], [(shape, rows.pooled("largest")) for shape, rows in _shapes(table)]
    for shape, values in tails:
        for level in map(float, np.quantile(values, LEVELS)):
            share = lab.share(sum(z > level for z in values), len(values), 1 - 0.05 / (len(LEVELS) * len(tails)))
            bound = blowup_tail(*shape, LENGTH, 1.0, level)
            quotients.append(lab.Quotient("D = {}, L = {}".format(*shape), share.scaled(1 / bound)))
    judged = lab.bound_holds(quotients, "probability over bound", fewest=1, missing="no blowup was measured")
    return lab.unless_few(judged, min((len(values) for _, values in tails), default=0), 100, "models per shape")


class LowVariance(lab.Study):
    """Whether a random last bias keeps the layer norm's variance away from 0."""

    name, paper, figures = "low-variance", "000", ("Fig 2",)
    title = "P(variance < eta^2) under random biases against its bound; tail of the blowup at eps = 0"
    scales = lab.scales(
        "D in {widths}, {samples:,} vectors per setting; {blocks:,} times {models:,} models of (D, L) in {shapes}",
        smoke=(0.1, {"widths": (2, 5), "samples": 4_000, "shapes": SHAPES[:1], "blocks": 3, "models": 50}),
        demo=(0.2, {"widths": WIDTHS[:6], "samples": 200_000, "shapes": SHAPES[:1], "blocks": 4, "models": 500}),
        laptop=(2, {"widths": WIDTHS[:-1], "samples": 10**6, "shapes": SHAPES, "blocks": 12, "models": 1000}),
        paper=(900, {"widths": WIDTHS, "samples": 10**8, "shapes": SHAPES, "blocks": 1000, "models": 250}),
    )
    deviations = (
        lab.Deviation("experiment", "silent: lemmas", "Monte Carlo, random models", "both state what can be counted"),
        lab.Deviation("bound of Lem E.2", "(sqrt(D) eta/rho)^(D-1)", "that, and a corrected one", "false for D < 5"),
        lab.Deviation("constant of Lem 4.2", "in O(.)", "derived (docs/geometry.md)", "no number breaks an O(.)"),
        lab.Deviation("randomness", "last biases", "all parameters, in [-1, 1]", "as § 6 draws them; the case rho = 1"),
    )
    claims = (
        lab.Claim(
            "printed bound on small variance",
            "Lem E.2 as printed",
            "P(variance(y + Z) < eta^2) <= (sqrt(D) eta/rho)^(D-1)",
            "estimated probability over the bound, all intervals together at 95 %; broken if one lies above 1",
            lab.rates_below("hits", "samples", "printed", "D = {width}", fewest=8),
        ),
        lab.Claim(
            "corrected bound on small variance",
            "Lem E.2, corrected",
            "the same with the volumes of its proof put right (docs/geometry.md)",
            "as above",
            lab.rates_below("hits", "samples", "corrected", "D = {width}", fewest=8),
            exploratory=True,
        ),
        lab.Claim(
            "light tail of the blowup",
            "Lem 4.2",
            "at eps = 0 a random transformer's blowup exceeds t with probability of order t^-(D-1) at most",
            f"Hill's exponent of the {100 * TAIL:g} % largest is at least {SLACK} (D-1), for all shapes together",
            lambda table: lab.for_each(_shapes(table), _exponent, missing="no blowup was measured"),
        ),
        lab.Claim(
            "explicit tail bound of the blowup",
            "Lem 4.2",
            "the same with the constants that its O(.) hides",
            "share of models beyond four quantiles over the bound there; broken if one interval exceeds 1",
            _judge_tail,
        ),
    )

    def trials(self, scale: str) -> list[lab.Trial]:
        plan = self.scales[scale].settings
        variances = itertools.product(plan["widths"], RATIOS, (0.1, 1.0), CENTRES)
        tails = itertools.product(plan["shapes"], range(plan["blocks"]))
        return [
            *(Variance(*setting, 0, plan["samples"]) for setting in variances),
            *(Tail(width, layers, seed, plan["models"]) for (width, layers), seed in tails),
        ]

    def measure(self, trial: Variance | Tail, progress: lab.Progress) -> lab.Outcome:
        if isinstance(trial, Tail):
            model = Transformer(recognizer(trial.width, trial.layers, eps=0.0)).double()
            drawn = ((initialise(model, "uniform", stream), stream) for stream in generators(trial.seed, trial.models))
            found = (blowup(model, random_strings(stream, 1, LENGTH)) for model, stream in drawn)
            return {"largest": np.array([each.tau.max() - 1 for each in found])}  # the largest z anywhere in a model
        (stream,) = generators(trial.seed, 1)
        eta, hits, rho = trial.ratio * trial.rho / math.sqrt(trial.width), 0, trial.rho
        centre = np.zeros(trial.width) if trial.centre == "zero" else stream.uniform(-rho, rho, trial.width) / 2
        for start in range(0, trial.samples, BLOCK):
            count = min(BLOCK, trial.samples - start)
            vectors = stream.uniform(-rho, rho, (count, trial.width)) + centre
            hits += int(np.count_nonzero(vectors.var(axis=1) < eta**2))
            progress(start + count, trial.samples)
        return {"eta": eta, "hits": hits}

    def row(self, trial: Variance | Tail, outcome: lab.Outcome) -> lab.Row:
        if isinstance(trial, Tail):
            return super().row(trial, outcome)
        at = trial.width, outcome["eta"], trial.rho
        bounds = {"printed": printed_low_variance_bound(*at), "corrected": low_variance_bound(*at)}
        return {**super().row(trial, outcome), **bounds}

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        shown = lab.rates(table, "hits", "samples", "printed").where(centre="zero", rho=1.0).by("ratio")
        points = [
            lab.estimates(f"sqrt(D) eta/rho = {ratio}", rows.column("width"), rows.column("quotient"), "points")
            for ratio, rows in shown
        ]
        tails = [
            lab.survival("D = {}, L = {}".format(*shape), rows.pooled("largest")) for shape, rows in _shapes(table)
        ]
        rules = [lab.Rule(1.0, "the bound")]
        left = lab.Panel("Lem E.2 as printed, y = 0", "width D", "probability / bound", points, rules=rules)
        right = lab.Panel("Blowup at eps = 0", "t", "share of models with max z > t", tails, x_log=True, y_log=True)
        caption = "Left: a quotient above 1 breaks the lemma as printed. Right: lines of slope -(D-1) are predicted."
        return [lab.Figure("low-variance", self.title, caption, (left, right), where="Lem E.2, Lem 4.2")]


STUDY = LowVariance()
