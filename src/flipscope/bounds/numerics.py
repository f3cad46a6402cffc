"""Arithmetic shared by all bounds: logarithms and exponentials that do not overflow, weights as checked arrays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flipscope.basics.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

Matrix = NDArray[np.float64]

_LARGEST_EXPONENT = 709  # of e, in float64


def safe_log(value: float) -> float:
    """The natural logarithm, -inf of 0."""
    return math.log(value) if value else -math.inf


def safe_exp(value: float) -> float:
    """The exponential, infinite beyond the range of floats."""
    return math.exp(value) if value < _LARGEST_EXPONENT else math.inf


def weights(tensor: Tensor, name: str) -> Matrix:
    """The tensor's numbers in float64, or InputError if they are not all finite; ``name`` is for the message."""
    values: Matrix = tensor.detach().double().cpu().numpy()
    if not np.isfinite(values).all():
        raise InputError(f"the weights of {name} contain NaN or infinity: the model is broken")
    return values


def spectral_norm(matrix: Matrix) -> float:
    """The largest singular value."""
    return float(np.linalg.norm(matrix, 2))
