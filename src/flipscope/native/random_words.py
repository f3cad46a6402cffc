"""Random words by their number: output k of SplitMix64 (Steele, Lea and Flood, 2014) started at a seed.

So a draw depends neither on where a block of draws begins nor on who makes it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float64, njit, uint8, uint64, void

from flipscope.native.compiled import compiled

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_BLOCK = 64  # bytes that are looked at together


@njit(inline="always")  # type: ignore[untyped-decorator]
def word(seed: Any, number: Any) -> Any:
    """Output ``number`` of the generator, from 1 on."""
    found = seed + number * _GOLDEN
    found = (found ^ (found >> uint64(30))) * _MIX1
    found = (found ^ (found >> uint64(27))) * _MIX2
    return found ^ (found >> uint64(31))


@compiled(void(uint64, uint8, float64, uint64[::1]))
def coins(seed: Any, edge: Any, rest: Any, out: Any) -> None:
    """Fill bytes with 0, with probability (edge + rest) / 256, or 1, each by itself.

    A random byte below ``edge`` gives 0 and one above it 1. For ``edge`` itself another word decides, so that the
    probability is exact.
    """
    count = out.shape[0]
    for k in range(count):
        out[k] = word(seed, uint64(k + 1))
    coin = out.view(np.uint8)
    for first in range(0, coin.shape[0], _BLOCK):
        some = coin[first : first + _BLOCK]
        doubtful = False
        for k in range(some.shape[0]):
            doubtful |= some[k] == edge
        if not doubtful:
            for k in range(some.shape[0]):
                some[k] = some[k] > edge
            continue
        for k in range(some.shape[0]):
            if some[k] == edge:
                number = float64(word(seed, uint64(count + first + k + 1)) >> uint64(11)) * 2.0**-53
                some[k] = number >= rest
            else:
                some[k] = some[k] > edge
