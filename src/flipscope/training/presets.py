"""Default models and training settings, available without PyTorch."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from flipscope.basics.errors import InputError
from flipscope.models.config import TransformerConfig
from flipscope.models.presets import encoder, fourier, hardness, mingpt, recognizer

PRESETS: Mapping[str, Callable[..., TransformerConfig]] = {
    "encoder": encoder,
    "recognizer": recognizer,
    "hardness": hardness,
    "fourier": fourier,
    "mingpt": mingpt,
}
STEPS, BATCH, LEARNING_RATE = 1_000, 64, 3e-3
_SMALLER = {"encoder": {"width": 32, "layers": 2, "heads": 2}}  # than the paper's: learns majority(40) in seconds


def configured(model: str | TransformerConfig, length: int, sizes: Mapping[str, int | float]) -> TransformerConfig:
    """The configuration of a preset for strings of this length, with these sizes; or the given configuration."""
    if isinstance(model, TransformerConfig):
        if sizes:
            raise InputError(f"{next(iter(sizes))} is for a preset: the configuration that was given has its own")
        return model
    if model not in PRESETS:
        raise InputError(f"model={model!r} is not one of {', '.join(PRESETS)}")
    taken = inspect.signature(PRESETS[model]).parameters
    chosen: dict[str, Any] = {**_SMALLER.get(model, {}), **({"length": length} if "length" in taken else {})}
    rest: dict[str, Any] = {}
    for name, value in sizes.items():
        if name in taken:
            chosen[name] = value
        elif name in ("ffn_width", "dropout"):
            rest[name] = value
        else:
            raise InputError(
                f"{name}={value} is not a choice of the preset {model}: leave it out, or take another preset"
            )
    return dataclasses.replace(PRESETS[model](**chosen), **rest)
