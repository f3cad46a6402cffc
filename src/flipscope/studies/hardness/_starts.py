"""Transformers as they are initialised: the hardness paper's model, and how sensitive it is before any training."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np

import flipscope.lab as lab
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import generators, random_strings, seed_of
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.sensitivity import average_sensitivity
from flipscope.models.presets import hardness
from flipscope.models.transformer import Transformer
from flipscope.probes.fourier import oracle, spectrum
from flipscope.probes.sensitivity import logit_changes

Norm = Literal["post", "pre", "none"]
NORMS: dict[Norm, str] = {"post": "norm after each sub-layer", "pre": "norm before each sub-layer", "none": "no norm"}
MIDDLE = 1_000  # strings that give median and variance where not all are asked: half of them, and their opposites


@dataclass(frozen=True)
class Start(lab.Trial):
    """A transformer as it is initialised; `strings` are asked with all their flips, 0 stands for the whole cube."""

    norm: Norm
    length: int
    seed: int
    width: int
    strings: int

    def check(self) -> None:
        if self.length < 3:
            raise InputError(f"length={self.length} must be at least 3: of fewer bits n/2 is the least there is")

    @property
    def cost(self) -> float:
        """Tokens that are computed."""
        return self.length * (self.strings * (self.length + 1) + MIDDLE if self.strings else 2.0**self.length)


def built(trial: Start) -> Transformer:
    """The hardness paper's model with PyTorch's initialisation, in float64."""
    config = dataclasses.replace(hardness(trial.length, trial.width), norm=trial.norm)
    return Transformer(config, scheme="pytorch", seed=seed_of(trial.length, trial.seed)).eval().double()


def exact(trial: Start) -> lab.Outcome:
    """From the answers to all strings."""
    found = spectrum(built(trial), trial.length)
    around = BooleanFunction.from_table((found.logits > np.median(found.logits)).astype(np.uint8))
    weights = found.real.weight_by_degree()
    numbers = (found.real.average_sensitivity(), float(weights[1:].sum()), float(average_sensitivity(around)))
    return dict(zip(("real", "variance", "sign"), numbers, strict=True))


def sampled(trial: Start, progress: lab.Progress) -> lab.Outcome:
    """From random strings and all their flips; median and variance from strings of their own.

    With each of these goes its opposite, so that every bit is as often 0 as 1: where outputs come in two clusters, as
    those of a model that follows one bit, the median is then between them, as that of all strings is.
    """
    model = built(trial)
    for_middle, for_flips = generators(seed_of(trial.length, trial.seed, 1), 2)
    ask = oracle(model, "logit")
    half = random_strings(for_middle, MIDDLE // 2, trial.length)
    logits = ask(np.concatenate([half, 1 - half]))
    median = float(np.median(logits))
    strings = random_strings(for_flips, trial.strings, trial.length)
    changes = logit_changes(model, strings, precision="float64", progress=progress)
    here = ask(strings)[:, None]
    changed = (here > median) != (here + changes > median)
    real = float(np.square(changes).sum(axis=1).mean()) / 4
    return {"real": real, "variance": float(logits.var()), "sign": float(changed.sum(axis=1).mean())}
