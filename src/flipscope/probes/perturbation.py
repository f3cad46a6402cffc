"""How far the parameters of a model can move before it no longer recognises its language (Def 2.8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import nn

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.cube.functions import BooleanFunction
from flipscope.probes.recognition import recognizes


@checked_arguments
def survivors(
    model: nn.Module,
    f: BooleanFunction,
    margin: float,
    radius: float,
    count: int,
    stream: np.random.Generator,
    *,
    fixed: Iterable[str] = (),
) -> int:
    """The number of perturbations, uniform in a cube, after which the model is still a recogniser with this margin.

    Modules named in `fixed` keep their parameters: fixed=["embedding"] moves the theta of Eq 16, which has neither
    symbols nor positions. The model is restored afterwards.
    """
    held = tuple(f"{name}." for name in fixed)
    moved = [(name, parameter) for name, parameter in model.named_parameters() if not name.startswith(held)]
    for name in held:
        if not any(each.startswith(name) for each, _ in model.named_parameters()):
            raise InputError(f"fixed={name[:-1]!r} is not a module with parameters: see model.named_modules()")
    original = [(parameter, parameter.detach().clone()) for _, parameter in moved]
    kept = 0
    with torch.no_grad():
        for _ in range(count):
            for parameter, value in original:
                step = torch.from_numpy(stream.uniform(-radius, radius, tuple(value.shape)))
                parameter.copy_(value.cpu() + step)  # added in float64, which some devices do not have
            kept += recognizes(model, f, margin)
        for parameter, value in original:
            parameter.copy_(value)
    return kept


@checked_arguments
def half_radius(radii: Sequence[float], survived: Sequence[int], count: int) -> float | None:
    """The radius at which half of `count` perturbations survive, between two tried ones; None beyond all of them."""
    shares = np.minimum.accumulate(np.array(survived) / count)  # a larger cube contains the smaller one
    below = np.flatnonzero(shares < 0.5)
    if not len(below) or below[0] == 0:
        return None
    left, right = int(below[0]) - 1, int(below[0])
    part = float((shares[left] - 0.5) / (shares[left] - shares[right]))
    return float(np.exp((1 - part) * np.log(radii[left]) + part * np.log(radii[right])))
