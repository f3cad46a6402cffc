"""Influence of one bit on the EOS activation against the length (Cor 3.3), and the blowup bound (Lem 3.2)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import flipscope.lab as lab
from flipscope.basics.seeds import generators, random_strings
from flipscope.bounds.geometry import Constants, blowup_bound, uniform_influence_bound
from flipscope.models.init import initialise
from flipscope.models.presets import recognizer
from flipscope.models.transformer import Transformer
from flipscope.probes.blowup import blowup
from flipscope.probes.influence import influences
from flipscope.studies.geometry._decay import by_length

WIDTH, LAYERS = 8, 2
STEEPEST = -0.85  # -1, and how far above it the interval of a slope may reach
WEIGHTS = (0.1, 0.25, 1.0)  # uniform in [-scale, scale]; at 0.1 the constant is small enough to say something
FEWEST = 20  # cases in which the constant must say something
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
        """Length + 1 forwards with quadratic attention per string, and what a short one takes all the same."""
        return float(self.strings * (self.length + 100) ** 3)


def falls_like_1_over_n(column: str, *, positive: bool = True) -> lab.Judge:
    """A judge of the slope of a column against N, for each size of weights and every eps > 0, or for eps = 0."""

    def one(setting: tuple[float, float], rows: lab.Rows, confidence: float) -> lab.Judgement:
        name = f"slope of the {column} influence, eps = {setting[0]:g}, weights up to {setting[1]:g}"
        found = lab.log_slope(rows, "length", column, confidence=confidence)
        if found is None:
            return lab.Judgement.without(f"{name}: fewer than 5 models with 3 lengths", "more models")
        return lab.at_most(found, STEEPEST, name, f"lengths up to {max(rows.column('length'))}", "models")

    return lambda table: lab.for_each(table.where(lambda row: (row["eps"] > 0) == positive).by("eps", "scale"), one)


class InfluenceDecay(lab.Study):
    """Whether one bit of a long string matters less the longer it is."""

    name, paper = "influence-decay", "000"
    title = "Influence of one bit on the EOS activation against N, with eps > 0 and eps = 0"
    scales = lab.scales(
        "{models} recognisers of width 8 and 2 layers for each eps in {eps} and 3 sizes of weights, N in {lengths}",
        smoke=(0.1, {"models": 6, "lengths": (8, 16, 32), "eps": (0.0, 1.0), "strings": 1}),
        laptop=(4, {"models": 24, "lengths": LENGTHS[:5], "eps": EPS, "strings": 2}),
        paper=(30_000, {"models": 60, "lengths": LENGTHS, "eps": EPS, "strings": 10}),
    )
    deviations = lab.deviations(
        ("experiment", "silent: a theorem, nothing measured", "random recognisers", "the theorem is asymptotic"),
        ("eps = 0", "no bound", "two questions of our own", "to show what eps > 0 is good for"),
        ("models, lengths, strings (up to laptop)", "silent", "fewer and shorter than at scale paper", "minutes"),
        ("eps (smoke)", "positive", "0 and 1 only", "seconds"),
        ("weights up to 0.1", "silent", "beside 0.25 and 1", "for larger ones the constant says nothing at these N"),
    )
    claims = (
        lab.Claim(
            "mean influence falls like 1/N",
            "Cor 3.3",
            "with eps > 0, the influence of a bit on the EOS activation is O(1/N)",
            f"log-log slope of the mean over positions, averaged over models: at most {STEEPEST:g}",
            falls_like_1_over_n("mean"),
            asymptotic=True,
        ),
        lab.Claim(
            "largest influence falls like 1/N",
            "Cor 3.3",
            "the same at every position, so for the most influential one too, once N is large enough",
            f"the same of the largest over positions and strings: at most {STEEPEST:g}",
            falls_like_1_over_n("largest"),
            asymptotic=True,
        ),
        lab.Claim(
            "influence stays below the explicit constant over N",
            "Cor 3.3",
            "the constant depends on weights and eps, not on the string or N",
            "the largest influence on any string against the bound, where that is below the largest possible influence",
            lab.never_exceeds("largest", "bound", possible="diameter", fewest=FEWEST),
        ),
        lab.Claim(
            "blowup stays below its bound",
            "Lem 3.2",
            "with eps > 0 the blowup is at most (1 + 1/sqrt(eps))^L",
            "the largest beta of any string against the bound",
            lab.never_exceeds("beta", "beta_bound"),
        ),
        *(
            lab.Claim(
                f"{column} influence falls like 1/N at eps = 0 too",
                "none: Cor 3.3 without its condition",
                "of random models the influence falls as if eps were positive, over the lengths measured",
                f"log-log slope as above, at eps = 0: at most {STEEPEST:g}",
                falls_like_1_over_n(column, positive=False),
                exploratory=True,
            )
            for column in ("mean", "largest")
        ),
    )

    def trials(self, scale: str) -> list[Decay]:
        plan = self.scales[scale].settings
        settings = itertools.product(plan["eps"], WEIGHTS, plan["lengths"], range(plan["models"]))
        return [Decay(*setting, plan["strings"]) for setting in settings]

    def measure(self, trial: Decay, progress: lab.Progress) -> lab.Outcome:
        model = Transformer(recognizer(WIDTH, LAYERS, eps=trial.eps), scheme="uniform", seed=trial.seed)
        initialise(model, "uniform", trial.seed, scale=trial.scale)
        (stream,) = generators(trial.seed, 1)
        strings = random_strings(stream, trial.strings, trial.length)
        last = f"blocks.{LAYERS - 1}"  # computed at the EOS position only, since only that is read
        found = influences(model, strings, of=last, precision="float64", progress=progress)
        beta = float(blowup(model.double(), strings).beta.max())
        constants = Constants.of(model)
        bound = uniform_influence_bound(constants, trial.length) if trial.eps > 0 else None
        sizes = {"mean": float(found.mean()), "largest": float(found.max()), "beta": beta}
        return {**sizes, "bound": bound, "diameter": constants.diameter}

    def row(self, trial: Decay, outcome: lab.Outcome) -> lab.Row:
        bound = blowup_bound(LAYERS, trial.eps) if trial.eps > 0 else None
        return {**super().row(trial, outcome), "beta_bound": bound}

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return [by_length(table, self.title, EPS)]


STUDY = InfluenceDecay()
