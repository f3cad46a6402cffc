"""flipscope: see what it takes to flip a model's mind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flipscope.basics.lazy import lazily
from flipscope.basics.services import provide

__version__ = "0.1.0"

__all__ = [
    "BooleanFunction",
    "InputError",
    "Subject",
    "Transformer",
    "__version__",
    "blowup",
    "curvature",
    "describe",
    "fourier",
    "influences",
    "load",
    "parse",
    "patches",
    "presets",
    "report",
    "run",
    "sensitivities",
    "sensitivity",
    "sensitivity_profile",
    "sharpness",
    "token_sensitivity",
    "train",
]

if TYPE_CHECKING:
    from flipscope import report
    from flipscope.adapters.disturbing import patches
    from flipscope.adapters.subject import Subject
    from flipscope.basics.errors import InputError
    from flipscope.cube.expression import parse
    from flipscope.cube.functions import BooleanFunction
    from flipscope.cube.portrait import describe
    from flipscope.lab.run.driver import run
    from flipscope.models import presets
    from flipscope.models.checkpoint import load
    from flipscope.models.transformer import Transformer
    from flipscope.probes import fourier
    from flipscope.probes.blowup import blowup
    from flipscope.probes.curvature import curvature
    from flipscope.probes.influence import influences
    from flipscope.probes.sensitivity import sensitivities, sensitivity, sensitivity_profile
    from flipscope.probes.sharpness import sharpness
    from flipscope.probes.tokens import token_sensitivity
    from flipscope.training.train import train

__getattr__, __dir__ = lazily(__name__)

provide("draw a figure", "flipscope.report.drawing:render")
