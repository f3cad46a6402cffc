"""Activations of compiled loops, against PyTorch in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numba import njit
from torch.nn import functional as F

from flipscope.native.activations import KINDS, gelu, gelu_tanh, rectified
from flipscope.native.simd import eights, load, store


def applied(activation: Any, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    @njit  # type: ignore[untyped-decorator]
    def loop(x: Any, out: Any) -> None:
        of = eights()
        for k in range(0, len(x), 8):
            store(out, k, activation(load(of, x, k)))

    out = np.empty_like(x)
    loop(x, out)
    return out


RIGHT: dict[str, tuple[Any, Callable[[torch.Tensor], torch.Tensor]]] = {
    "relu": (rectified, F.relu),
    "gelu": (gelu, F.gelu),
    "gelu_tanh": (gelu_tanh, lambda x: F.gelu(x, approximate="tanh")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_to_rounding(kind: str) -> None:
    ours, theirs = RIGHT[kind]
    far = [0.0, -0.0, 1e-30, -1e-30, 50.0, -50.0, 1e4, -1e4, 3e38, -3e38, 1.0, -1.0, 7.0, -7.0, 0.5, np.nan]
    x = np.concatenate([np.linspace(-14, 14, 20_000), far])
    assert len(x) % 8 == 0
    x = x.astype(np.float32)
    found, expected = applied(ours, x).astype(np.float64), theirs(torch.from_numpy(x).double()).numpy()
    assert np.isnan(found[-1])
    error = np.abs(found - expected)[:-1]
    assert (error <= 3e-7 * np.maximum(1, expected[:-1])).all()  # also where large x become small numbers


def test_every_activation_is_here() -> None:
    assert set(RIGHT) == set(KINDS)
