"""Transformers of every shape that the bounds of paper 001 cover, and what flips do to them, by their own forward."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from flipscope.bounds.hardness import Constants, flip_changes, measure, product_bound
from flipscope.models import Transformer, hardness
from flipscope.models.config import TransformerConfig


def cube(n: int) -> np.ndarray:
    """All strings [string, position]; string k has bit i where k has 2^i."""
    return (np.arange(1 << n)[:, None] >> np.arange(n) & 1).astype(np.uint8)


def outputs(model: Transformer, n: int) -> np.ndarray:
    """T(x) of all strings."""
    with torch.no_grad():
        found: np.ndarray = model(torch.from_numpy(cube(n).astype(np.int64))).numpy()
    return found


def changes(values: np.ndarray, n: int) -> np.ndarray:
    """|T(x) - T(x^i)| as [string, i]."""
    index = np.arange(1 << n)
    return np.stack([np.abs(values - values[index ^ 1 << i]) for i in range(n)], axis=1)


def drawn(config: TransformerConfig, seed: int, scale: float, *, spread: float = 1.0) -> Transformer:
    """A model in float64 with all numbers Gaussian; ``spread`` is that of the vectors of symbols and positions."""
    model = Transformer(config, dtype=torch.float64)
    stream = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            size = spread if name.startswith("embedding") else scale
            if "norm" in name and name.endswith("weight"):
                size = 1.0
            parameter.copy_(torch.as_tensor(size * stream.standard_normal(tuple(parameter.shape))))
    return model


def ratios(model: Transformer, n: int) -> dict[str, float]:
    """The largest measured change, or sensitivity, over its bound, of all strings: above 1 the bound is false."""
    values = outputs(model, n)
    moved = changes(values, n)
    own = Constants.of(model, n)
    # What rounding makes of an output: it is amplified by norms as changes are, and shows only in tiny changes.
    moved = np.where(moved <= 1e-9 * (np.abs(values).max() + own.span), 0.0, moved)
    worst = {"attention": 0.0, "layers": 0.0, "product": 0.0}
    for k, found in enumerate(measure(model, cube(n))):
        bare = dataclasses.replace(found, focus=())
        worst["attention"] = max(worst["attention"], largest(moved[k], flip_changes(own, found)))
        worst["layers"] = max(worst["layers"], largest(moved[k], flip_changes(own, bare)))
        sensitivity = float((moved[k] ** 2).sum()) / 4
        bound = product_bound(own, found.log_blowup)
        if sensitivity:
            worst["product"] = max(worst["product"], float(np.exp(np.log(sensitivity) - bound.log)))
    return worst


def largest(measured: np.ndarray, bound: np.ndarray) -> float:
    """The largest quotient, where 0 / 0 is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(measured > 0, measured / bound, 0.0).max())


@st.composite
def configs(draw: st.DrawFn, norms: tuple[str, ...] = ("post", "pre", "none", "once")) -> tuple[TransformerConfig, int]:
    """A configuration, and a length for it."""
    n = draw(st.integers(2, 4))
    width = draw(st.sampled_from([4, 8]))
    layers = draw(st.integers(1, 3))
    concatenated = draw(st.booleans())
    changed: dict[str, Any] = {
        "norm": draw(st.sampled_from(norms)),
        "eps": draw(st.sampled_from([0.0, 1e-5, 1e-2, 1.0])),
        "affine": draw(st.booleans()),
        "final_norm": draw(st.booleans()),
        "marker": draw(st.sampled_from(["none", "eos", "cls"])),
        "readout": draw(st.sampled_from(["first", "last"])),
        "activation": draw(st.sampled_from(["relu", "gelu", "gelu_tanh"])),
        "qkv_bias": draw(st.booleans()),
        "learned_scale": draw(st.booleans()),
        "mlp_layers": draw(st.integers(0, layers)),
        "join": "concatenate" if concatenated else "add",
        "position_width": width // 2 if concatenated else None,
        "positions": draw(st.sampled_from(["learned", "sinusoidal"])),
    }
    if draw(st.booleans()):
        changed |= {"combine": "sum", "head_size": width}
    return dataclasses.replace(hardness(n, width, layers, draw(st.sampled_from([1, 2]))), **changed), n
