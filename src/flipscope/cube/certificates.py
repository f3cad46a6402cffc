"""Block sensitivity and certificate complexity of small truth tables, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, uint8

from flipscope.cube.compiled import compiled
from flipscope.cube.structure import Bits


@compiled(int64(uint8[::1]))
def _block_sensitivity(table: Any) -> Any:
    """best[mask] = most disjoint sensitive blocks inside mask, for one string at a time."""
    size = len(table)
    best = np.zeros(size, np.int64)
    overall = 0
    for x in range(size):
        for mask in range(1, size):
            lowest = mask & -mask
            rest = mask ^ lowest
            most = best[rest]  # the lowest bit is in no block
            part = rest
            while True:  # every block that holds the lowest bit: lowest | part
                block = lowest | part
                if table[x ^ block] != table[x] and best[mask ^ block] + 1 > most:
                    most = best[mask ^ block] + 1
                if part == 0:
                    break
                part = (part - 1) & rest
            best[mask] = most
        overall = max(overall, best[size - 1])
    return overall


@compiled(int64(uint8[::1]))
def _certificate_complexity(table: Any) -> Any:
    """free[x] = most bits that may be left open around x with the value unchanged."""
    size = len(table)
    constant = np.ones((size, size), np.uint8)  # constant[mask, x]: f does not change on the subcube mask around x
    most_free = np.zeros(size, np.int64)
    for mask in range(1, size):
        lowest = mask & -mask
        rest = mask ^ lowest
        bits = 0
        left = mask
        while left:
            bits += 1
            left &= left - 1
        for x in range(size):
            y = x ^ lowest
            if constant[rest, x] and constant[rest, y] and table[x] == table[y]:
                if bits > most_free[x]:
                    most_free[x] = bits
            else:
                constant[mask, x] = 0
    n = 0
    while (1 << n) < size:
        n += 1
    return n - most_free.min()


def block_sensitivity(table: Bits) -> int:
    """bs(f) of a 0/1 table of length 2^n."""
    return int(_block_sensitivity(np.ascontiguousarray(table, np.uint8)))


def certificate_complexity(table: Bits) -> int:
    """C(f) of a 0/1 table of length 2^n."""
    return int(_certificate_complexity(np.ascontiguousarray(table, np.uint8)))
