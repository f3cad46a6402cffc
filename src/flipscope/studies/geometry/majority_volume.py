"""How large the region of parameters around a trained recogniser is: Majority against First and Parity (Conj 5.5).

The conjecture speaks of all lengths at once. At a single length the region of every recognised language has positive
measure, so what can be measured is how fast it shrinks with the length, and for which language faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import nn

from flipscope.cube.blocks import Progress
from flipscope.cube.functions import BooleanFunction, first, majority, parity
from flipscope.cube.intervals import proportions
from flipscope.cube.structure import index_bits
from flipscope.data.languages import LabelledStrings
from flipscope.lab.plots import Figure, Panel, Series
from flipscope.lab.resample import student_mean
from flipscope.lab.study import Claim, Outcome, Result, Scale, Study, Table, Trial
from flipscope.lab.verdict import Judgement, at_least
from flipscope.models.config import encoder
from flipscope.models.margin import recognition
from flipscope.models.transformer import Transformer
from flipscope.training.fit import fit

MARGIN = 0.1  # of recognition (Def 2.8)
LOSS = 0.02  # all models are trained until their loss is below this, so that none has larger logits than another
RADII = tuple(float(radius) for radius in np.geomspace(0.003, 1.0, 12))
LANGUAGES = {"majority": majority, "first": first, "parity": parity}


@dataclass(frozen=True)
class Region(Trial):
    """A model to train on all strings of a length, and then to perturb."""

    language: Literal["majority", "first", "parity"]
    length: int
    seed: int
    perturbations: int
    max_epochs: int

    @property
    def cost(self) -> float:
        """Strings to ask, while training and of every perturbed model."""
        return float(2**self.length * self.length * (3 * self.max_epochs + len(RADII) * self.perturbations))


def _all_strings(f: BooleanFunction) -> LabelledStrings:
    bits = index_bits(0, 1 << f.n, f.n)
    return LabelledStrings(bits, f(bits))


def _survivors(model: nn.Module, f: BooleanFunction, radius: float, count: int, stream: np.random.Generator) -> int:
    """Of so many perturbations of all parameters, uniform in a cube, those that leave a recogniser (Def 2.8)."""
    original = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    kept = 0
    with torch.no_grad():
        for _ in range(count):
            for name, parameter in model.named_parameters():
                noise = torch.from_numpy(stream.uniform(-radius, radius, tuple(parameter.shape)))
                parameter.copy_(original[name] + noise)
            kept += recognition(model, f, MARGIN).recognized
        for name, parameter in model.named_parameters():
            parameter.copy_(original[name])
    return kept


def half_radius(survived: Sequence[int], count: int) -> float | None:
    """The radius at which half of the perturbations survive, between two tried ones; None beyond all of them."""
    shares = np.minimum.accumulate(np.array(survived) / count)  # a larger cube holds the smaller one
    below = np.flatnonzero(shares < 0.5)
    if not len(below) or below[0] == 0:
        return None
    right = int(below[0])
    left, high, low = right - 1, shares[right - 1], shares[right]
    part = float((high - 0.5) / (high - low))
    return float(np.exp((1 - part) * np.log(RADII[left]) + part * np.log(RADII[right])))


def _radii(table: Table, language: str, length: int) -> dict[int, float]:
    """log of the half radius, by seed."""
    rows = [row for row in table if (row["language"], row["length"]) == (language, length)]
    return {row["seed"]: float(np.log(row["half_radius"])) for row in rows if row["half_radius"] is not None}


def _judge_larger(table: Table, other: str) -> Judgement:
    """Whether Majority survives larger perturbations than the other language, at the longest length of both."""
    lengths = sorted({row["length"] for row in table}, reverse=True)
    for length in lengths:
        ours, theirs = _radii(table, "majority", length), _radii(table, other, length)
        both = sorted(set(ours) & set(theirs))
        if len(both) >= 3:
            found = student_mean([ours[seed] - theirs[seed] for seed in both])
            name = f"log of the quotient of half radii, Majority over {other.capitalize()}, N = {length}"
            return at_least(found, 0.0, name, f"{len(both)} pairs of trained models")
    return Judgement.without("fewer than three models of both languages were trained to recognise them")


def _judge_slower(table: Table, other: str) -> Judgement:
    """Whether the radius of Majority falls more slowly with N than that of the other language."""
    lengths = sorted({row["length"] for row in table})
    differences = []
    for seed in sorted({row["seed"] for row in table}):
        points = [
            (length, _radii(table, "majority", length)[seed] - _radii(table, other, length)[seed])
            for length in lengths
            if seed in _radii(table, "majority", length) and seed in _radii(table, other, length)
        ]
        if len(points) >= 3:
            x, y = zip(*points, strict=True)
            differences.append(float(np.polyfit(x, y, 1)[0]))
    if len(differences) < 3:
        return Judgement.without("fewer than three seeds have both languages trained at three lengths")
    name = f"slope against N of log(half radius of Majority / that of {other.capitalize()})"
    return at_least(student_mean(differences), 0.0, name, f"{len(differences)} seeds")


def _claim(name: str, says: str, judged: str, judge: object) -> Claim:
    return Claim(name, "Conj 5.5", says, judged, judge, beyond=True)  # type: ignore[arg-type]


class MajorityVolume(Study):
    """Whether more parameters around a trained model recognise Majority than First or Parity."""

    name = "majority-volume"
    paper = "000"
    title = "Share of parameter perturbations that keep a trained model a recogniser, by language and N"
    scales = {
        "smoke": Scale("one model each, N = 4", 0.1),
        "laptop": Scale("5 models of width 16 a language, N = 4, 6, 8, 10", 8),
        "paper": Scale("20 models a language, N = 4 to 14 (the paper states a conjecture and measures nothing)", 600),
    }
    claims = tuple(
        _claim(
            f"a larger region than {other.capitalize()}",
            f"Majority's many strings of sensitivity 0 go with a larger region of parameters; here: than {other}'s",
            "mean over seeds of the log quotient of the radii at which half of the perturbations survive, above 0",
            partial(_judge_larger, other=other),
        )
        for other in ("parity", "first")
    ) + tuple(
        _claim(
            f"shrinks more slowly than {other.capitalize()}'s",
            "the region keeps positive measure as N grows, while that of the other language loses it",
            "mean over seeds of the slope of that log quotient against N, above 0",
            partial(_judge_slower, other=other),
        )
        for other in ("parity", "first")
    )

    def trials(self, scale: str) -> list[Region]:
        lengths, seeds, perturbations, epochs = {
            "smoke": ((4,), 1, 20, 200),
            "laptop": ((4, 6, 8, 10), 5, 60, 400),
            "paper": ((4, 6, 8, 10, 12, 14), 20, 400, 2000),
        }[scale]
        return [
            Region(language, length, seed, perturbations, epochs)  # type: ignore[arg-type]
            for language in LANGUAGES
            for length in lengths
            for seed in range(seeds)
        ]

    def measure(self, trial: Region, progress: Progress) -> Outcome:
        f = LANGUAGES[trial.language](trial.length)
        strings = _all_strings(f)
        model = Transformer(encoder(width=16, layers=2, heads=2, ffn_width=32), seed=trial.seed)
        fitted = fit(
            model,
            strings,
            strings,
            batch=64,
            learning_rate=3e-3,
            seed=trial.seed,
            max_epochs=trial.max_epochs,
            stop_after=None,
            decay_after=None,
            until=lambda epoch: epoch.validation_loss < LOSS and epoch.validation_accuracy == 1.0,
        )
        found = recognition(model, f, MARGIN)
        survived = []
        stream = np.random.default_rng(np.random.SeedSequence((trial.seed, trial.length)))
        for number, radius in enumerate(RADII if found.recognized else ()):
            survived.append(_survivors(model, f, radius, trial.perturbations, stream))
            progress(number + 1, len(RADII))
        return {"recognised": found.recognized, "epochs": len(fitted.history), "survived": survived}

    def summarise(self, results: Sequence[Result]) -> Table:
        rows = []
        for result in results:
            trial, survived = result.trial.content(), result.outcome["survived"]
            radius = half_radius(survived, trial["perturbations"]) if survived else None
            rows.append({**trial, **result.outcome, "half_radius": radius})
        return rows

    def draw(self, table: Table) -> list[Figure]:
        lengths = sorted({row["length"] for row in table})
        panels = []
        for length in lengths:
            series = []
            for colour, language in enumerate(LANGUAGES):
                rows = [
                    row for row in table if row["survived"] and (row["language"], row["length"]) == (language, length)
                ]
                if not rows:
                    continue
                total = sum(row["perturbations"] for row in rows)
                hits = np.sum([row["survived"] for row in rows], axis=0)
                found = proportions(hits, total)
                low, high = [e.low for e in found], [e.high for e in found]
                label = f"{language.capitalize()}, {len(rows)} models"
                series.append(Series(label, RADII, [e.value for e in found], low=low, high=high, colour=colour))
            panels.append(Panel(f"N = {length}", "radius r", "share that still recognises", series, x_log=True))
        caption = "Perturbations uniform in the cube of radius r, of all parameters; intervals of the pooled share."
        return [Figure("majority-volume", self.title, caption, panels, where="Conj 5.5")]


STUDY = MajorityVolume()
