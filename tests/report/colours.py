"""How different colours are, for eyes of every kind."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np


def linear(colour: str) -> np.ndarray[Any, Any]:
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(first: str, second: str) -> float:
    """The contrast of two colours, as WCAG defines it."""
    dark, light = sorted(float(linear(each) @ [0.2126, 0.7152, 0.0722]) for each in (first, second))
    return (light + 0.05) / (dark + 0.05)


def perceived(colour: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """CIE L*a*b*, in which distances are differences that people see."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(colour, 0, 1) / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


# How colours look without one kind of cone, in linear RGB (Machado, Oliveira and Fernandes 2009).
EYES = [
    np.eye(3),
    np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
]


def least_difference(colours: Sequence[str]) -> float:
    pairs = itertools.combinations(colours, 2)
    return min(
        float(np.linalg.norm(perceived(eye @ linear(a)) - perceived(eye @ linear(b)))) for a, b in pairs for eye in EYES
    )
