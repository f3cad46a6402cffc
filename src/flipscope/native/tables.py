"""The bit-packed sensitivity loops, compiled once for every n, run on every core.

A flip of one of the first six positions is a shift inside a 64-bit word; a flip of a later one exchanges whole words.
The number of sensitive positions is counted for 64 strings at a time in bit-sliced counters: plane p holds bit p of
every string's sensitivity. Integer sums do not depend on how the work is divided among threads.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numba import boolean, int64, njit, uint8, uint64, void
from numpy.typing import NDArray

from flipscope.basics.bits import LOW_PATTERNS, Words
from flipscope.native.compiled import compiled, in_parallel, popcount

RUN = 256  # words handled together: the buffers below stay in the first-level cache
GRAIN = 1 << 12  # words a thread takes at least: below this, starting one costs more than it saves
PLANES = 5  # counters up to 31, enough for 30 bits

_PATTERNS = np.array(LOW_PATTERNS, np.uint64)
_WORDS = uint64[::1]
_LINES = uint64[:, ::1]


@njit  # type: ignore[untyped-decorator]
def _difference(words: Any, j: Any, first: Any, count: Any, out: Any, patterns: Any) -> None:
    """out[b] = word first + b of f(x) xor f(x with position j flipped)."""
    # Slices from zero let the compiler see that no index is negative, which is what makes it use wide registers.
    here = words[first : first + count]
    if j < 6:
        shift = uint64(1 << j)
        pattern = patterns[j]
        for b in range(count):
            out[b] = here[b] ^ (((here[b] & pattern) >> shift) | ((here[b] & ~pattern) << shift))
        return
    stride = 1 << (j - 6)
    if stride >= count:
        there = words[first ^ stride : (first ^ stride) + count]
        for b in range(count):
            out[b] = here[b] ^ there[b]
    elif stride == 1:
        for b in range(count // 2):
            word = here[2 * b] ^ here[2 * b + 1]
            out[2 * b] = word
            out[2 * b + 1] = word
    elif stride == 2:
        for b in range(count // 4):
            even = here[4 * b] ^ here[4 * b + 2]
            odd = here[4 * b + 1] ^ here[4 * b + 3]
            out[4 * b] = even
            out[4 * b + 1] = odd
            out[4 * b + 2] = even
            out[4 * b + 3] = odd
    else:
        for start in range(0, count, 2 * stride):
            near, far = here[start : start + stride], here[start + stride : start + 2 * stride]
            out_near, out_far = out[start : start + stride], out[start + stride : start + 2 * stride]
            for b in range(stride):
                word = near[b] ^ far[b]
                out_near[b] = word
                out_far[b] = word


@njit  # type: ignore[untyped-decorator]
def _count(words: Any, flips: Any, first: Any, count: Any, lines: Any, planes: Any, patterns: Any) -> None:
    """Bit-sliced counters of the sensitive positions, four flips per step by carry-save adders."""
    for p in range(PLANES):
        for b in range(count):
            planes[p, b] = 0
    for j in range(0, flips, 4):
        for row in range(4):
            if j + row < flips:
                _difference(words, j + row, first, count, lines[row], patterns)
            else:
                for b in range(count):
                    lines[row, b] = 0
        for b in range(count):
            one, two = planes[0, b], planes[1, b]
            x, y, z, t = lines[0, b], lines[1, b], lines[2, b], lines[3, b]
            half = one ^ x
            carry = (one & x) | (half & y)
            one = half ^ y
            half = one ^ z
            carry_too = (one & z) | (half & t)
            one = half ^ t
            half = two ^ carry
            four = (two & carry) | (half & carry_too)
            planes[0, b] = one
            planes[1, b] = half ^ carry_too
            plane = planes[2, b]
            planes[2, b] = plane ^ four
            four = plane & four
            plane = planes[3, b]
            planes[3, b] = plane ^ four
            planes[4, b] ^= plane & four


@compiled(void(_WORDS, int64, int64, int64, boolean, int64[::1], _WORDS))
def _profile(words: Any, high: Any, first: Any, last: Any, ones: Any, out: Any, patterns: Any) -> None:
    """Add to out[s] the number of strings of sensitivity s in these words (only those of value 1 if ``ones``)."""
    flips = 6 + high
    lines = np.empty((4, RUN), np.uint64)
    planes = np.empty((PLANES, RUN), np.uint64)
    low = np.empty((8, RUN), np.uint64)
    high_masks = np.empty((4, RUN), np.uint64)
    count = min(RUN, last - first)
    for start in range(first, last, count):
        _count(words, flips, start, count, lines, planes, patterns)
        here = words[start : start + count]
        for b in range(count):
            p0, p1, p2, p3, p4 = planes[0, b], planes[1, b], planes[2, b], planes[3, b], planes[4, b]
            upper, lower = p2 & p1, ~p2 & p1
            low[7, b], low[6, b], low[3, b], low[2, b] = upper & p0, upper & ~p0, lower & p0, lower & ~p0
            upper, lower = p2 & ~p1, ~p2 & ~p1
            low[5, b], low[4, b], low[1, b], low[0, b] = upper & p0, upper & ~p0, lower & p0, lower & ~p0
            keep = here[b] if ones else ~uint64(0)
            upper, lower = keep & p4, keep & ~p4
            high_masks[3, b], high_masks[2, b] = upper & p3, upper & ~p3
            high_masks[1, b], high_masks[0, b] = lower & p3, lower & ~p3
        for s in range(flips + 1):
            mask, top = low[s & 7], high_masks[s >> 3]
            total = uint64(0)
            for b in range(count):
                total += popcount(mask[b] & top[b])
            out[s] += int64(total)


@compiled(void(_WORDS, int64, int64, int64, int64[::1], _WORDS))
def _influences(words: Any, high: Any, first: Any, last: Any, out: Any, patterns: Any) -> None:
    """Add to out[j] the number of strings in these words on which flipping position j changes the value."""
    flips = 6 + high
    line = np.empty(RUN, np.uint64)
    count = min(RUN, last - first)
    for start in range(first, last, count):
        for j in range(flips):
            _difference(words, j, start, count, line, patterns)
            total = uint64(0)
            for b in range(count):
                total += popcount(line[b])
            out[j] += int64(total)


@compiled(int64(_WORDS, int64, int64, int64, int64, boolean, _WORDS))
def _find(words: Any, high: Any, first: Any, last: Any, target: Any, value: Any, patterns: Any) -> Any:
    """Index of the first string of this sensitivity and value in these words, or -1."""
    flips = 6 + high
    lines = np.empty((4, RUN), np.uint64)
    planes = np.empty((PLANES, RUN), np.uint64)
    count = min(RUN, last - first)
    for start in range(first, last, count):
        _count(words, flips, start, count, lines, planes, patterns)
        for b in range(count):
            word = words[start + b] if value else ~words[start + b]
            for p in range(PLANES):
                word &= planes[p, b] if (target >> p) & 1 else ~planes[p, b]
            if word:
                return (start + b) * 64 + int64(popcount(~word & (word - uint64(1))))
    return -1


@compiled(void(_WORDS, int64, int64, int64, uint8[::1], _WORDS))
def _sensitivities(words: Any, high: Any, first: Any, last: Any, out: Any, patterns: Any) -> None:
    """out[x] = sensitivity of the string with index x, for the strings in these words."""
    flips = 6 + high
    lines = np.empty((4, RUN), np.uint64)
    planes = np.empty((PLANES, RUN), np.uint64)
    count = min(RUN, last - first)
    for start in range(first, last, count):
        _count(words, flips, start, count, lines, planes, patterns)
        for b in range(count):
            for i in range(64):
                total = uint64(0)
                for p in range(PLANES):
                    total |= ((planes[p, b] >> uint64(i)) & uint64(1)) << uint64(p)
                out[(start + b) * 64 + i] = uint8(total)


def _high(words: Words) -> int:
    return len(words).bit_length() - 1


def _repeats(width: int) -> int:
    """How often a table of ``width`` variables is repeated inside its one word."""
    return 1 << max(0, 6 - width)


def profile_counts(words: Words, width: int, *, ones: bool = False) -> list[int]:
    """K_0..K_width of a packed table (Def 2.6), only of the strings of value 1 if ``ones``."""
    total = np.zeros(32, np.int64)
    lock = threading.Lock()

    def work(first: int, last: int) -> None:
        part = np.zeros(32, np.int64)
        _profile(words, _high(words), first, last, ones, part, _PATTERNS)
        with lock:
            np.add(total, part, out=total)

    in_parallel(work, len(words), GRAIN)
    return [int(count) // _repeats(width) for count in total[: width + 1]]


def influence_counts(words: Words, width: int) -> list[int]:
    """For each position the number of strings on which flipping it changes the value."""
    total = np.zeros(32, np.int64)
    lock = threading.Lock()

    def work(first: int, last: int) -> None:
        part = np.zeros(32, np.int64)
        _influences(words, _high(words), first, last, part, _PATTERNS)
        with lock:
            np.add(total, part, out=total)

    in_parallel(work, len(words), GRAIN)
    return [int(count) // _repeats(width) for count in total[:width]]


def find_string(words: Words, target: int, value: int) -> int:
    """Index of the first string of this sensitivity and value, or -1."""
    return int(_find(words, _high(words), 0, len(words), target, bool(value), _PATTERNS))


def all_sensitivities(words: Words, width: int) -> NDArray[np.uint8]:
    """The sensitivity of every string, by index."""
    out = np.empty(64 * len(words), np.uint8)
    in_parallel(
        lambda first, last: _sensitivities(words, _high(words), first, last, out, _PATTERNS),
        len(words),
        GRAIN,
    )
    return out[: 1 << width]
