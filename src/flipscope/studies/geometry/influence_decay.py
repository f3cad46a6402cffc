"""Influence of one bit on the EOS activation against the length (Cor 3.3), and the blowup bound (Lem 3.2)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flipscope.lab as lab
from flipscope.adapters.subject import Subject
from flipscope.basics.seeds import generators, random_strings
from flipscope.bounds.geometry import Constants, blowup_bound, uniform_influence_bound
from flipscope.lab import quantities
from flipscope.models.init import initialise
from flipscope.models.presets import recognizer
from flipscope.models.transformer import Transformer
from flipscope.probes.blowup import blowup
from flipscope.probes.influence import influences

WIDTH, LAYERS = 8, 2
STEEPEST = -0.85  # the interval of a slope must end below this; the theory has -1
WEIGHTS = (0.1, 0.25, 1.0)  # uniform in [-scale, scale]; at 0.1 the bound is small enough to say something
FEWEST = 20  # fewest cases in which the bound says something
EPS = (0.0, 1e-5, 1e-2, 1.0)
LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048)


@dataclass(frozen=True)
class Decay(lab.Trial):
    """One random recogniser on strings of one length."""

    eps: float
    scale: float
    length: int
    seed: int
    strings: int

    @property
    def cost(self) -> float:
        """Length + 1 forward passes with quadratic attention per string, and a constant overhead."""
        return float(self.strings * (self.length + 100) ** 3)

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        model = Transformer(recognizer(WIDTH, LAYERS, eps=self.eps), scheme="uniform", seed=self.seed)
        initialise(model, "uniform", self.seed, scale=self.scale)
        (stream,) = generators(self.seed, 1)
        strings = random_strings(stream, self.strings, self.length)
        last = f"blocks.{LAYERS - 1}"  # computed at the EOS position only, since only that is read
        sizes_of_change = influences(Subject(model, precision="float64"), strings, of=last, progress=progress)
        beta = float(blowup(model.double(), strings).beta.max())
        constants = Constants.of(model)
        bound = uniform_influence_bound(constants, self.length) if self.eps > 0 else None
        sizes = {"mean": float(sizes_of_change.mean()), "largest": float(sizes_of_change.max()), "beta": beta}
        return {**sizes, "bound": bound, "diameter": constants.diameter}


def by_setting(rows: lab.Rows) -> list[tuple[str, lab.Rows]]:
    """The models of each eps and size of weights, by name."""
    return [(f"eps = {eps:g}, weights up to {scale:g}", models) for (eps, scale), models in rows.by("eps", "scale")]


def falls_like_1_over_n(column: str, *, positive: bool = True) -> quantities.Criterion:
    """The criterion on the slope of a column against N, for each size of weights and every eps > 0, or for eps = 0."""
    slope = quantities.slope(
        quantities.Column(f"{column} influence", lambda row: row[column]), "length", log=True, per="seed"
    ).where("models with eps > 0" if positive else "models with eps = 0", lambda row: (row["eps"] > 0) == positive)
    each = slope.grouped("for each eps and size of weights", by_setting, weakest_first=False)
    longest = each.noting(lambda rows: f"lengths up to {max(rows.column('length'))}")
    return longest <= STEEPEST


def by_length(table: lab.Rows, title: str, order: Sequence[float]) -> lab.Figure:
    """Panels of influences by size of weights, and of measured / bound; a line for each eps, colours in this order."""

    look: Any = {"by": "eps", "labels": "eps = {:g}", "order": order, "centre": "geometric", "x_label": "N"}
    look |= {"x_log": True, "y_log": True}
    panels = []
    for column in ("mean", "largest"):
        titles = f"{column} over positions, weights up to {{:g}}"
        label = "influence on the EOS activation"
        panels += lab.charts(table, "length", column, facet="scale", titles=titles, y_label=label, **look)
    telling = table.having("bound").where(lambda row: row["bound"] < row["diameter"])
    for name, rows, column, bound in (
        ("largest influence, where its bound says something", telling, "largest", "bound"),
        ("largest blowup beta", table.having("beta_bound"), "beta", "beta_bound"),
    ):
        parts = lab.Rows({**row, "part": row[column] / row[bound]} for row in rows)
        rules = [lab.Rule(1.0, "the bound")]
        panels.append(lab.chart(parts, "length", "part", title=name, y_label="measured / bound", rules=rules, **look))
    caption = "Geometric mean over models; bands from the smallest to the largest model."
    return lab.Figure("influence-decay", title, caption, panels, columns=3, where="Cor 3.3, Lem 3.2")


class InfluenceDecay(lab.Study):
    """Whether one bit of a long string matters less the longer it is."""

    name, paper = "influence-decay", "000"
    title = "Influence of one bit on the EOS activation against N, with eps > 0 and eps = 0"
    scales = lab.scales(
        "{models} recognisers of width 8 and 2 layers for each eps in {eps} and 3 sizes of weights, N in {lengths}",
        common={"first_seed": 0},
        smoke=(0.1, {"models": 6, "lengths": (8, 16, 32), "eps": (0.0, 1.0), "strings": 1}),
        laptop=(4, {"models": 24, "lengths": LENGTHS[:5], "eps": EPS, "strings": 2}),
        paper=(30_000, {"models": 60, "lengths": LENGTHS, "eps": EPS, "strings": 10}),
    )
    deviations = lab.deviations(
        ("experiment", "a theorem, nothing measured", "random recognisers", "the theorem is asymptotic"),
        ("eps = 0", "no bound", "two questions of our own", "to show the effect of eps > 0"),
        (
            "models, lengths, strings (up to laptop)",
            "not stated",
            "fewer and shorter than at scale paper",
            "to take minutes",
        ),
        ("eps (smoke)", "positive", "0 and 1 only", "to take seconds"),
        ("weights up to 0.1", "not stated", "beside 0.25 and 1", "for larger ones the bound is vacuous at these N"),
    )
    claims = (
        lab.claim(
            "mean influence falls like 1/N",
            "Cor 3.3",
            "with eps > 0, the influence of a bit on the EOS activation is O(1/N)",
            falls_like_1_over_n("mean"),
            asymptotic=True,
        ),
        lab.claim(
            "largest influence falls like 1/N",
            "Cor 3.3",
            "the same at every position, hence also for the most influential one, once N is large enough",
            falls_like_1_over_n("largest"),
            asymptotic=True,
        ),
        lab.claim(
            "influence stays below the explicit constant over N",
            "Cor 3.3",
            "the constant depends on weights and eps, not on the string or N",
            quantities.never_exceeds("largest", "bound", possible="diameter", fewest=FEWEST).saying(
                "the largest influence on any string, where its bound is below the largest possible influence: never "
                "above the bound"
            ),
        ),
        lab.claim(
            "blowup stays below its bound",
            "Lem 3.2",
            "with eps > 0 the blowup is at most (1 + 1/sqrt(eps))^L",
            quantities.never_exceeds("beta", "beta_bound").saying(
                "the largest beta of any string: never above its bound"
            ),
        ),
        *(
            lab.claim(
                f"{column} influence falls like 1/N at eps = 0 too",
                "none: Cor 3.3 without its condition",
                "over the lengths measured, the influence in random models falls as if eps were positive",
                falls_like_1_over_n(column, positive=False),
                exploratory=True,
            )
            for column in ("mean", "largest")
        ),
    )

    def trials(self, scale: str) -> list[Decay]:
        plan = self.scales[scale].settings
        seeds = range(plan["first_seed"], plan["first_seed"] + plan["models"])
        settings = itertools.product(plan["eps"], WEIGHTS, plan["lengths"], seeds)
        return [Decay(*setting, plan["strings"]) for setting in settings]

    def row(self, trial: Decay, outcome: lab.Outcome) -> lab.Row:
        bound = blowup_bound(LAYERS, trial.eps) if trial.eps > 0 else None
        return {**super().row(trial, outcome), "beta_bound": bound}

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return [by_length(table, self.title, EPS)]


STUDY = InfluenceDecay()
