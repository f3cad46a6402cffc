"""Block sensitivity and certificate complexity of small truth tables, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, uint8

from flipscope.basics.bits import Bits
from flipscope.native.compiled import compiled


@compiled(int64(uint8[::1]))
def _block_sensitivity(table: Any) -> Any:
    """best[mask] = most disjoint sensitive blocks inside mask, for one string at a time.

    Only minimal sensitive blocks matter, those without a smaller one inside; they are kept by their lowest bit.
    """
    size = len(table)
    best = np.zeros(size, np.int64)
    holds = np.zeros(size, np.uint8)  # whether the mask holds a sensitive block
    blocks = np.empty((64, size), np.int64)
    overall = 0
    for x in range(size):
        number = np.zeros(64, np.int64)
        for mask in range(1, size):
            inside = False
            left = mask
            while left:
                inside |= holds[mask ^ (left & -left)] != 0
                left &= left - 1
            place = 0
            while not (mask >> place) & 1:
                place += 1
            holds[mask] = inside or table[x ^ mask] != table[x]
            if holds[mask] and not inside:
                blocks[place, number[place]] = mask
                number[place] += 1
        for mask in range(1, size):
            place = 0
            while not (mask >> place) & 1:
                place += 1
            most = best[mask & (mask - 1)]  # the lowest bit is in no block
            for b in range(number[place]):
                block = blocks[place, b]
                if block & ~mask == 0:
                    most = max(most, best[mask ^ block] + 1)
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
