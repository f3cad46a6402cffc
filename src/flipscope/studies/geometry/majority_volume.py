"""How large the region of parameters around a trained recogniser is: Majority against First and Parity (Conj 5.5).

The conjecture is about all lengths at once. At a single length the region of every recognised language has positive
measure, so what can be measured is how fast it shrinks with the length, and for which language faster. The study
compares the radii up to which half of the perturbations of a trained model still recognise its language.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

import flipscope.lab as lab
from flipscope.basics.bits import index_bits
from flipscope.basics.estimates import proportions
from flipscope.cube.functions import first, majority, parity
from flipscope.data.languages import LabelledStrings
from flipscope.models.presets import recognizer
from flipscope.models.transformer import Transformer
from flipscope.probes.perturbation import half_radius, survivors
from flipscope.probes.recognition import recognition
from flipscope.studies.geometry.shared import mean_at_least
from flipscope.training.fit import Epoch, fit

MARGIN = 0.1  # of recognition (Def 2.8)
LOSS = 0.02  # all models are trained until their loss is below this, so that their logits are comparable
TRAINING: dict[str, Any] = {
    "batch": 32, "learning_rate": 1e-3, "max_epochs": None, "stop_after": None, "decay_after": None,
}  # fmt: skip
WIDTH, LAYERS = 16, 2
RADII = tuple(float(radius) for radius in np.geomspace(0.003, 1.0, 12))
FEWEST = 3  # models of both languages
LANGUAGES = {"majority": majority, "first": first, "parity": parity}


@dataclass(frozen=True)
class Region(lab.Trial):
    """A model to train on all strings of a length, and then to perturb."""

    language: Literal["majority", "first", "parity"]
    length: int
    seed: int
    perturbations: int
    max_steps: int

    @property
    def cost(self) -> float:
        """Strings that are evaluated, in training and for every perturbed model."""
        perturbed = len(RADII) * self.perturbations * 2**self.length
        return float(self.length * (perturbed + 3 * self.max_steps * min(TRAINING["batch"], 2**self.length)))

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        f = LANGUAGES[self.language](self.length)
        bits = index_bits(0, 1 << f.n, f.n)
        strings = LabelledStrings(bits, f(bits))
        model = Transformer(recognizer(WIDTH, LAYERS, eps=0.0), seed=self.seed)  # with eps > 0 it would become constant
        fitted = fit(model, strings, strings, seed=self.seed, max_steps=self.max_steps, until=_learned, **TRAINING)
        trained, survived = recognition(model, f, MARGIN), []
        stream = np.random.default_rng(np.random.SeedSequence((self.seed, self.length)))
        for number, radius in enumerate(RADII if trained.recognized else ()):
            kept = survivors(model, f, MARGIN, radius, self.perturbations, stream, fixed=["embedding"])
            survived.append(kept)
            progress(number + 1, len(RADII))
        return {"recognised": trained.recognized, "steps": fitted.steps, "survived": survived}


def _learned(epoch: Epoch) -> bool:
    return epoch.validation_loss < LOSS and epoch.validation_accuracy == 1.0


def _quotients(table: lab.Rows, other: str) -> lab.Rows:
    """log of Majority's half radius over the other language's, for each length and seed with both."""
    return lab.Rows(
        {"length": n, "seed": a["seed"], "log": float(np.log(a["half_radius"])) - float(np.log(b["half_radius"]))}
        for n, models in table.having("half_radius").by("length")
        for a, b in lab.matched(models.where(language="majority"), models.where(language=other), "seed")
    )


def judge_larger(table: lab.Rows, other: str) -> lab.Judgement:
    """Whether the radius of Majority is larger, at the longest length that enough models of both learned."""
    for length, rows in reversed(list(_quotients(table, other).by("length"))):
        if len(rows) >= FEWEST:
            name = f"log of the quotient of half radii, Majority over {other.capitalize()}, N = {length}"
            return mean_at_least(rows.column("log"), 0.0, name, fewest=FEWEST, unit="pairs of models")
    return lab.Judgement.without("too few models of both languages", f"at least {FEWEST} seeds that learn both")


def judge_slower(table: lab.Rows, other: str) -> lab.Judgement:
    """Whether the radius of Majority falls more slowly with N than that of the other language."""
    name = f"slope against N of log(half radius of Majority / that of {other.capitalize()})"
    judge = partial(lab.mean_slope, fewest=FEWEST, unit="seeds that learn both")
    return judge(_quotients(table, other), "length", "log", lab.at_least, 0.0, name)


class MajorityVolume(lab.Study):
    """Whether more parameters around a trained model recognise Majority than First or Parity."""

    name, paper = "majority-volume", "000"
    title = "Share of parameter perturbations under which a trained model stays a recogniser, by language and N"
    sample_sizes = ("perturbations",)
    scales = lab.scales(
        "{seeds} recognisers of width 16 per language, N in {lengths}, {perturbations} perturbations per radius",
        common={"first_seed": 0},
        smoke=(0.1, {"lengths": (4,), "seeds": 1, "perturbations": 20, "steps": 250}),
        laptop=(8, {"lengths": (4, 5, 6, 7, 8, 10), "seeds": 5, "perturbations": 60, "steps": 8000}),
        paper=(900, {"lengths": (4, 5, 6, 7, 8, 10, 12, 14), "seeds": 20, "perturbations": 400, "steps": 200_000}),
    )
    deviations = lab.deviations(
        ("experiment", "a conjecture, nothing measured", "perturbed models", "positive measure cannot be observed"),
        ("lengths", "all at once", "each by itself, and the trend", "no model can be tested on all"),
        (
            "lengths, seeds, perturbations, steps (up to laptop)",
            "not stated",
            "fewer than at scale paper",
            "to take minutes",
        ),
        ("margin", "some xi > 0", f"{MARGIN:g}", "not stated; logits are trained to the same loss"),
        ("model", "the recogniser, eps = 0", "the same, width 16, 2 layers", "sizes are not stated"),
        (
            "training",
            "not stated",
            "Adam, rate 1e-3, batches of 32 until a loss of 0.02",
            "Parity is not learned at 3e-3",
        ),
        (
            "symbols and positions",
            "not in theta (Eq 16)",
            "symbols trained, then held",
            "random ones may be nearly equal",
        ),
        ("compared with", "nothing", "First and Parity", "their regions have measure 0 (Cors 5.1, 5.4)"),
    )
    claims = tuple(
        lab.Claim(name.format(other.capitalize()), "Conj 5.5", statement, criterion, partial(judge, other=other), True)
        for name, statement, criterion, judge in (
            (
                "Majority: a larger region than {}",
                "with its many strings of sensitivity 0, Majority has a larger region of parameters",
                "mean over seeds of the log quotient of the radii at which half of the perturbations survive, above 0",
                judge_larger,
            ),
            (
                "Majority: a region that shrinks more slowly than {}'s",
                "the region keeps positive measure as N grows, while that of the other language does not",
                "mean over seeds of the slope of that log quotient against N, above 0",
                judge_slower,
            ),
        )
        for other in ("parity", "first")
    )

    def trials(self, scale: str) -> list[Region]:
        plan = self.scales[scale].settings
        seeds = range(plan["first_seed"], plan["first_seed"] + plan["seeds"])
        chosen = itertools.product(LANGUAGES, plan["lengths"], seeds)
        return [Region(*setting, plan["perturbations"], plan["steps"]) for setting in chosen]  # type: ignore[arg-type]

    def row(self, trial: Region, outcome: lab.Outcome) -> lab.Row:
        survived = outcome["survived"]
        radius = half_radius(RADII, survived, trial.perturbations) if survived else None
        return {**super().row(trial, outcome), "half_radius": radius}

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        panels = []
        for length, models in table.by("length"):
            series = []
            for colour, (language, rows) in enumerate(models.where(recognised=True).each("language", LANGUAGES)):
                if rows:
                    shares = proportions(np.sum(rows.column("survived"), axis=0), rows.total("perturbations"))
                    label = f"{language.capitalize()}, {len(rows)} models"
                    series.append(lab.estimates(label, RADII, shares, colour=colour))
            panels.append(lab.Panel(f"N = {length}", "radius r", "share that still recognises", series, x_log=True))
        caption = "Perturbations uniform in the cube of radius r, of theta (Eq 16); intervals of the pooled share."
        return [lab.Figure("majority-volume", self.title, caption, panels, where="Conj 5.5")]


STUDY = MajorityVolume()
