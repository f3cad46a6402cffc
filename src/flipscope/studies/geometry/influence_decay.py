"""Influence of one bit on the EOS activation against the length (Cor 3.3), and the blowup bound (Lem 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flipscope.bounds.geometry import Constants, blowup_bound, uniform_influence_bound
from flipscope.cube.blocks import Progress
from flipscope.cube.estimate import generators, random_strings
from flipscope.cube.intervals import Estimate
from flipscope.lab.plots import Figure, Panel, Series
from flipscope.lab.resample import student_mean
from flipscope.lab.study import Claim, Outcome, Result, Scale, Study, Table, Trial
from flipscope.lab.verdict import Judgement, all_of, at_most, never
from flipscope.models.config import recognizer
from flipscope.models.init import initialise
from flipscope.models.transformer import Transformer
from flipscope.probes import blowup, flips

WIDTH, LAYERS = 8, 2
TOLERANCE = 0.15  # how far above -1 the interval of a slope may reach
SCALES = (0.25, 1.0)  # weights uniform in [-scale, scale]


@dataclass(frozen=True)
class Decay(Trial):
    """One random recogniser on strings of one length."""

    eps: float
    scale: float
    length: int
    seed: int
    strings: int

    @property
    def cost(self) -> float:
        """Length + 1 forwards with quadratic attention a string, and what a short one takes all the same."""
        return float(self.strings * (self.length + 100) ** 3)


def _slopes(table: Table, eps: float, scale: float, column: str) -> list[float]:
    """The log-log slope against N of each model."""
    found = []
    rows = [row for row in table if row["eps"] == eps and row["scale"] == scale]
    for seed in sorted({row["seed"] for row in rows}):
        own = sorted((row["length"], row[column]) for row in rows if row["seed"] == seed)
        if len(own) >= 3 and all(value > 0 for _, value in own):
            lengths, values = zip(*own, strict=True)
            found.append(float(np.polyfit(np.log(lengths), np.log(values), 1)[0]))
    return found


def _slope(table: Table, eps: float, scale: float, column: str, error: float) -> Estimate | None:
    slopes = _slopes(table, eps, scale, column)
    return student_mean(slopes, 1 - error) if len(slopes) >= 5 else None


def _asymptotic(found: Judgement) -> Judgement:
    """A theorem on lengths without bound is not contradicted by short ones: undecided then, and said why."""
    if found.verdict != "contradicted":
        return found
    note = f"{found.note}: slower there, and the theorem speaks of all lengths from some unknown one on"
    return Judgement("undecided", found.quantity, found.measured, found.low, found.high, note)


def _judge_slope(column: str, words: str) -> Any:
    def judge(table: Table) -> Judgement:
        settings = sorted({(row["eps"], row["scale"]) for row in table if row["eps"] > 0})
        longest = max(row["length"] for row in table)
        parts = []
        for eps, scale in settings:
            name = f"slope of the {words}, eps = {eps:g}, weights up to {scale:g}"
            found = _slope(table, eps, scale, column, 0.05 / len(settings))
            if found is None:
                parts.append(Judgement.without(f"{name}: fewer than 5 models with 3 lengths"))
            else:
                parts.append(_asymptotic(at_most(found, -1.0 + TOLERANCE, name, f"lengths up to {longest}")))
        return all_of(parts)

    return judge


def _judge_blowup(table: Table) -> Judgement:
    cases = [row for row in table if row["eps"] > 0]
    broken = sum(row["beta"] > row["beta_bound"] * (1 + 1e-9) for row in cases)
    tightest = max((row["beta"] / row["beta_bound"] for row in cases), default=0.0)
    return never(broken, len(cases), "share of models and lengths that break it", f"largest quotient {tightest:.3g}")


def _judge_bound(table: Table) -> Judgement:
    cases = [row for row in table if row["eps"] > 0]
    broken = sum(row["largest"] > row["bound"] * (1 + 1e-9) for row in cases)
    return never(broken, len(cases), "share of models and lengths that break it")


class InfluenceDecay(Study):
    """Whether one bit of a long string matters less the longer it is."""

    name = "influence-decay"
    paper = "000"
    title = "Influence of one bit on the EOS activation against N, with eps > 0 and eps = 0"
    scales = {
        "smoke": Scale("6 recognisers, N up to 32", 0.1),
        "laptop": Scale(f"24 recognisers of width {WIDTH}, {LAYERS} layers, 4 eps, 2 weight scales, N up to 256", 2),
        "paper": Scale("60 recognisers, N up to 2048 (the paper proves this and measures nothing)", 20_000),
    }
    claims = (
        Claim(
            "mean influence falls like 1/N",
            "Cor 3.3",
            "with eps > 0, the influence of a bit on the EOS activation is O(1/N)",
            f"log-log slope of the mean over positions, averaged over models: at most {TOLERANCE - 1:g}",
            _judge_slope("mean", "mean influence"),
        ),
        Claim(
            "so does the largest",
            "Cor 3.3",
            "the same at every position, so for the most influential one too, once N is large enough",
            f"the same of the largest over positions: at most {TOLERANCE - 1:g}",
            _judge_slope("largest", "largest influence"),
        ),
        Claim(
            "explicit constant",
            "Cor 3.3",
            "the constant depends on weights and eps, not on the string or N",
            "the largest influence against the bound with the constants of the weights",
            _judge_bound,
        ),
        Claim(
            "blowup bounded",
            "Lem 3.2",
            "with eps > 0 the blowup is at most (1 + 1/sqrt(eps))^L",
            "the largest beta of any string against the bound",
            _judge_blowup,
        ),
    )

    def trials(self, scale: str) -> list[Decay]:
        settings: dict[str, tuple[tuple[int, ...], tuple[float, ...], int, int]] = {
            "smoke": ((8, 16, 32), (0.0, 1.0), 6, 1),
            "laptop": ((16, 32, 64, 128, 256), (0.0, 1e-5, 1e-2, 1.0), 24, 2),
            "paper": ((16, 32, 64, 128, 256, 512, 1024, 2048), (0.0, 1e-5, 1e-2, 1.0), 60, 10),
        }
        lengths, all_eps, seeds, strings = settings[scale]
        return [
            Decay(eps, size, length, seed, strings)
            for eps in all_eps
            for size in SCALES
            for length in lengths
            for seed in range(seeds)
        ]

    def measure(self, trial: Decay, progress: Progress) -> Outcome:
        model = Transformer(recognizer(WIDTH, LAYERS, eps=trial.eps), scheme="uniform", seed=trial.seed)
        initialise(model, "uniform", trial.seed, scale=trial.scale)
        (stream,) = generators(trial.seed, 1)
        strings = random_strings(stream, trial.strings, trial.length)
        last = f"blocks.{LAYERS - 1}"  # computed at the EOS position only, since only that is read
        found = flips.influences(model, strings, of=last, precision="float64", progress=progress)
        beta = blowup.measure(model.double(), strings).beta
        bound = uniform_influence_bound(Constants.of(model), trial.length) if trial.eps > 0 else None
        return {
            "mean": float(found.mean()),
            "largest": float(found.max(axis=1).mean()),
            "beta": float(beta.max()),
            "bound": bound,
        }

    def summarise(self, results: Sequence[Result]) -> Table:
        return [
            {
                **result.trial.content(),
                **result.outcome,
                "beta_bound": blowup_bound(LAYERS, result.trial.content()["eps"]),
            }
            for result in results
        ]

    def draw(self, table: Table) -> list[Figure]:
        names = {"mean": "mean over positions", "largest": "largest over positions", "beta": "largest blowup beta"}
        panels = []
        for column, name in names.items():
            for size in sorted({row["scale"] for row in table}):
                series = [_line(table, eps, size, column) for eps in sorted({row["eps"] for row in table})]
                quantity = "blowup" if column == "beta" else "influence on the EOS activation"
                panels.append(Panel(f"{name}, weights up to {size:g}", "N", quantity, series, x_log=True, y_log=True))
        caption = "Geometric mean over models; bands from the smallest to the largest model."
        return [Figure("influence-decay", self.title, caption, panels, where="Cor 3.3, Lem 3.2")]


def _line(table: Table, eps: float, size: float, column: str) -> Series:
    rows = [row for row in table if row["eps"] == eps and row["scale"] == size and 0 < row[column] < np.inf]
    lengths = sorted({row["length"] for row in rows})
    values = [[row[column] for row in rows if row["length"] == length] for length in lengths]
    middle = [float(np.exp(np.mean(np.log(found)))) for found in values]
    low, high = ([float(pick(found)) for found in values] for pick in (min, max))
    return Series(f"eps = {eps:g}", lengths, middle, low=low, high=high)


STUDY = InfluenceDecay()
