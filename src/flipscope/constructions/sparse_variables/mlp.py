"""An MLP with prescribed values at given points, constant around each of them (Lemmas B.7 and B.8)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from flipscope.basics.errors import InputError
from flipscope.basics.limits import check_memory

_HINGES = ((2, 1), (1, -1), (-1, -1), (-2, 1))  # psi = (u+2)_+ - (u+1)_+ - (u-1)_+ + (u-2)_+ of u = (x - x_i)/delta
_PRINTED = ((1, 2, 1), (1, 1, -1), (-1, 2, -1), (-1, 1, 1))  # (u+2)_+ - (u+1)_+ - (-u+2)_+ + (-u+1)_+, which is 0 at 0


@dataclass(frozen=True, eq=False)
class MLP:
    """Weights [inputs, outputs] with the biases in a last row, as the paper has them; `output` has none."""

    layers: tuple[Float64[np.ndarray, "_ _"], ...]
    output: Float64[np.ndarray, " hidden"]

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return tuple(layer.shape[1] for layer in self.layers)

    def __call__(self, x: Float64[np.ndarray, "string number"]) -> Float64[np.ndarray, " string"]:
        """Its output on rows."""
        for layer in self.layers:
            x = np.maximum(x @ layer[:-1] + layer[-1], 0)
        return np.asarray(x @ self.output)


def truncation_bound(tokens: int, selected: int, gap: float) -> float:
    """Lemma B.7: how far, in l1, a softmax is from that over the selected tokens alone, with logits `gap` above.

    The bound 2 (n - s)/(s e^R + n - s) is attained where all differences equal the gap; the paper's 2 (n - s)/(s e^R)
    is larger.

    >>> round(truncation_bound(17, 3, math.log(128)), 6)
    0.070352
    """
    others = tokens - selected
    return 2 * others / (selected * math.exp(gap) + others)


def value_network(
    centres: Float64[np.ndarray, "centre number"],
    values: Float64[np.ndarray, " centre"],
    delta: float,
    *,
    layers: int = 3,
    as_printed: bool = False,
) -> MLP:
    """The network whose output is values[i] wherever all coordinates are within delta of centres[i] (Lemma B.8).

    Centres are 4 delta apart in some coordinate. With layers=2, for one coordinate, bumps are summed without W_2.
    as_printed takes the paper's four ReLUs, which are 0 at the centre.

    >>> net = value_network(np.array([[-1.0], [0.0], [1.0]]), np.array([1.0, 0.0, 1.0]), 0.25)
    >>> net(np.array([[-1.2], [0.1], [0.8]])).round(12).tolist(), net.hidden
    ([1.0, 0.0, 1.0], (12, 6))
    """
    count, width = centres.shape
    if layers == 2 and width != 1:
        raise InputError(f"layers=2 is for one coordinate, not {width}: take layers=3")
    need = 8 * (4 * count * width + 1) * 2 * count if layers == 3 else 8 * 4 * count
    check_memory(need, f"an MLP for {count:,} cases", "give a function of fewer bits")
    hinges = _PRINTED if as_printed else tuple((1, shift, sign) for shift, sign in _HINGES)
    first = np.zeros((width + 1, 4, count, width))
    for place, (slope, shift, _) in enumerate(hinges):
        for j in range(width):
            first[j, place, :, j] = slope / delta
            first[width, place, :, j] = -slope * centres[:, j] / delta + shift
    signs = np.array([sign for *_, sign in hinges], np.float64)
    flat = first.reshape(width + 1, -1)
    if layers == 2:
        return MLP((flat,), np.outer(signs, values).ravel())
    # nu_delta(sum of bumps - width): 1 where every coordinate is near its centre, 0 where one is far from it.
    second = np.zeros((4, count, width, 2, count))
    index = np.arange(count)
    second[:, index, :, :, index] = (signs / delta)[None, :, None, None]
    biases = np.repeat([1 - width / delta, -width / delta], count)
    matrix = np.concatenate([second.reshape(-1, 2 * count), biases[None]])
    return MLP((flat, matrix), np.concatenate([values, -values]).astype(np.float64))
