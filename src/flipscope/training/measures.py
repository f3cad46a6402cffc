"""Measurements for the log of a training (`flipscope.training.named`).

Each is a function of the surrounding training (`Around`) and of its own settings, and returns the function that
measures a model. Strings are drawn once, from the measurement's own seed: every step is measured on the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from flipscope.adapters.parameters import length, usual
from flipscope.adapters.subject import Subject
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate
from flipscope.basics.registry import Registry
from flipscope.models.transformer import Transformer
from flipscope.probes import blowup as blowups
from flipscope.probes import sharpness as sharpnesses
from flipscope.probes.sensitivity import sensitivity_profile
from flipscope.training.fit import answered
from flipscope.training.named import Around
from flipscope.training.sparse_measures import hidden_attention, training_set
from flipscope.training.token_measures import at_levels

_STREAM = 0x6D656173  # separates these strings from others drawn with the same seeds


def validation(around: Around) -> Callable[[nn.Module], dict[str, float]]:
    """Loss and accuracy on the validation set at the current step."""

    def measure(model: nn.Module) -> dict[str, float]:
        loss, accuracy = answered(model, around.validation, around.aim)
        return {"loss": loss, "accuracy": accuracy}

    return measure


def norm(around: Around, positions: bool = False) -> Callable[[nn.Module], float]:
    """The Euclidean norm of all parameters, without those of learned positions unless asked for."""
    return lambda model: length(usual(model, positions=positions).values())  # NaN if the model diverges


def blowup(around: Around, strings: int = 256, seed: int = 0) -> Callable[[nn.Module], dict[str, float]]:
    """The blowup (Eq 18) of random strings, and for our encoders the hardness paper's stand-in: means over strings."""
    inputs = _inputs(around, strings, seed)

    def measure(model: nn.Module) -> dict[str, float]:
        found = {"beta": float(blowups.blowup(model, inputs).beta.mean())}
        if isinstance(model, Transformer) and model.config.norm != "none":
            found["proxy"] = float(blowups.hardness_proxy(model, inputs).mean())
        return found

    return measure


def sensitivity(around: Around, strings: int = 200, seed: int = 0) -> Callable[[nn.Module], Estimate]:
    """The average sensitivity of the model's answer, with the threshold of the training's labels."""
    if around.inputs != "bits":
        raise InputError(f"sensitivity counts flips of bits, and this model reads {around.inputs}")
    check_count("strings", strings)

    def measure(model: nn.Module) -> Estimate:
        subject = Subject(model, threshold=around.aim.threshold)
        found = sensitivity_profile(subject, around.length, strings=strings, seed=seed).average_sensitivity
        assert isinstance(found, Estimate)  # a plain number only if all strings are evaluated
        return found

    return measure


def sharpness(
    around: Around, strings: int = 256, std: float = 0.02, draws: int = 100, seed: int = 0
) -> Callable[[nn.Module], Estimate]:
    """The average-direction sharpness of `flipscope.probes.sharpness`, on random strings."""
    inputs = _inputs(around, strings, seed)
    return lambda model: sharpnesses.sharpness(model, inputs, std=std, draws=draws, seed=seed).value


def _inputs(around: Around, strings: int, seed: int) -> Tensor:
    stream = np.random.default_rng([check_count("seed", seed, 0), _STREAM])
    return torch.as_tensor(around.draw(check_count("strings", strings), stream), device="cpu")


MEASUREMENTS: Registry[Callable[..., Any]] = Registry(
    "measurement",
    {
        "validation": validation,
        "norm": norm,
        "blowup": blowup,
        "sensitivity": sensitivity,
        "sharpness": sharpness,
        "training_set": training_set,
        "hidden_attention": hidden_attention,
        "token_sensitivity": at_levels,
    },
    extensible=True,
)
