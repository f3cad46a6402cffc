"""How improbable a small variance is under random biases: Lem E.2 by Monte Carlo."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

import flipscope.lab as lab
from flipscope.basics.seeds import generators
from flipscope.bounds.geometry import low_variance_bound, printed_low_variance_bound

Centre = Literal["zero", "random"]
CENTRES: tuple[Centre, ...] = get_args(Centre)
BLOCK = 1 << 16  # vectors drawn at once
WIDTHS, RATIOS = (2, 3, 4, 5, 6, 8, 12, 16, 32), (0.2, 0.5, 0.8, 0.95)  # D, and sqrt(D) eta over rho


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
        return float(self.width * self.samples)


class LowVariance(lab.Study):
    """Whether a random last bias keeps the layer norm's variance away from 0."""

    name, paper, figures = "low-variance", "000", ("Fig 2",)
    title = "P(variance < eta^2) under random biases against its bound"
    scales = lab.scales(
        "D in {widths}, {samples:,} vectors per setting",
        smoke=(0.1, {"widths": (2, 5), "samples": 4_000}),
        demo=(0.1, {"widths": WIDTHS[:6], "samples": 200_000}),
        laptop=(0.2, {"widths": WIDTHS[:-1], "samples": 10**6}),
        paper=(25, {"widths": WIDTHS, "samples": 10**8}),
    )
    deviations = lab.deviations(
        ("experiment", "silent: a lemma", "Monte Carlo", "it states what can be counted"),
        ("bound of Lem E.2", "(sqrt(D) eta/rho)^(D-1)", "that, and a corrected one", "false for D < 5"),
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
    )

    def trials(self, scale: str) -> list[Variance]:
        plan = self.scales[scale].settings
        settings = itertools.product(plan["widths"], RATIOS, (0.1, 1.0), CENTRES)
        return [Variance(*setting, 0, plan["samples"]) for setting in settings]

    def measure(self, trial: Variance, progress: lab.Progress) -> lab.Outcome:
        (stream,) = generators(trial.seed, 1)
        eta, hits, rho = trial.ratio * trial.rho / math.sqrt(trial.width), 0, trial.rho
        centre = np.zeros(trial.width) if trial.centre == "zero" else stream.uniform(-rho, rho, trial.width) / 2
        for start in range(0, trial.samples, BLOCK):
            count = min(BLOCK, trial.samples - start)
            vectors = stream.uniform(-rho, rho, (count, trial.width)) + centre
            hits += int(np.count_nonzero(vectors.var(axis=1) < eta**2))
            progress(start + count, trial.samples)
        return {"eta": eta, "hits": hits}

    def row(self, trial: Variance, outcome: lab.Outcome) -> lab.Row:
        at = trial.width, outcome["eta"], trial.rho
        bounds = {"printed": printed_low_variance_bound(*at), "corrected": low_variance_bound(*at)}
        return {**super().row(trial, outcome), **bounds}

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        shown = lab.rates(table, "hits", "samples", "printed").where(centre="zero", rho=1.0).by("ratio")
        points = [
            lab.estimates(f"sqrt(D) eta/rho = {ratio}", rows.column("width"), rows.column("quotient"), "points")
            for ratio, rows in shown
        ]
        rules = [lab.Rule(1.0, "the bound")]
        panel = lab.Panel("Lem E.2 as printed, y = 0", "width D", "probability / bound", points, rules=rules)
        caption = "A quotient above 1 breaks the lemma as printed."
        return [lab.Figure("low-variance", self.title, caption, [panel], columns=1, where="Lem E.2")]


STUDY = LowVariance()
