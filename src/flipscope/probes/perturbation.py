"""How far the parameters of a model may move until it no longer recognises its language (Def 2.8)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from flipscope.cube.functions import BooleanFunction
from flipscope.probes.recognition import recognition


def survivors(
    model: nn.Module, f: BooleanFunction, margin: float, radius: float, count: int, stream: np.random.Generator
) -> int:
    """Of so many perturbations of all parameters, uniform in a cube, those that leave a recogniser with this margin.

    The model is left as it was.
    """
    original = [(parameter, parameter.detach().clone()) for parameter in model.parameters()]
    kept = 0
    with torch.no_grad():
        for _ in range(count):
            for parameter, value in original:
                parameter.copy_(value + torch.from_numpy(stream.uniform(-radius, radius, tuple(value.shape))))
            kept += recognition(model, f, margin).recognized
        for parameter, value in original:
            parameter.copy_(value)
    return kept


def half_radius(radii: Sequence[float], survived: Sequence[int], count: int) -> float | None:
    """The radius at which half of `count` perturbations survive, between two tried ones; None beyond all of them."""
    shares = np.minimum.accumulate(np.array(survived) / count)  # a larger cube holds the smaller one
    below = np.flatnonzero(shares < 0.5)
    if not len(below) or below[0] == 0:
        return None
    left, right = int(below[0]) - 1, int(below[0])
    part = float((shares[left] - 0.5) / (shares[left] - shares[right]))
    return float(np.exp((1 - part) * np.log(radii[left]) + part * np.log(radii[right])))
