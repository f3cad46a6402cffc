"""The Walsh-Hadamard transform, compiled: out[S] = sum over x of a[x] (-1)^(number of positions of S that are 1 in x).

Eight-fold butterflies from the longest stride down, piece by piece, so that all but the first passes stay in cache; the
three shortest strides are done on eight neighbours at once, or, for a packed truth table, read from a table of 256.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import float32, float64, int32, int64, njit, uint8, uint64, void
from numpy.typing import NDArray

from flipscope.basics.bits import Words
from flipscope.native.compiled import Function, compiled, compiled_by, in_parallel, popcount

BLOCK = 1 << 15  # elements transformed together once they fit the second-level cache
_TYPES = (float32[::1], float64[::1], int32[::1], int64[::1])


def _of_each_type(signature: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Decorator: compile for the type of number that the first argument has."""
    return compiled_by(lambda a: a.dtype.name, {t.dtype.name: signature(t) for t in _TYPES})


@njit  # type: ignore[untyped-decorator]
def _pass8(a: Any, stride: Any, first: Any, last: Any) -> None:
    """Three levels at once (strides 4s, 2s, s) on columns first..last of the 8 rows of length ``stride``."""
    r0, r1, r2, r3 = (
        a[:stride],
        a[stride : 2 * stride],
        a[2 * stride : 3 * stride],
        a[3 * stride : 4 * stride],
    )
    b = a[4 * stride :]
    r4, r5, r6, r7 = (
        b[:stride],
        b[stride : 2 * stride],
        b[2 * stride : 3 * stride],
        b[3 * stride : 4 * stride],
    )
    c0, c1, c2, c3 = r0[first:last], r1[first:last], r2[first:last], r3[first:last]
    c4, c5, c6, c7 = r4[first:last], r5[first:last], r6[first:last], r7[first:last]
    for i in range(last - first):
        x0, x1, x2, x3 = c0[i] + c4[i], c1[i] + c5[i], c2[i] + c6[i], c3[i] + c7[i]
        x4, x5, x6, x7 = c0[i] - c4[i], c1[i] - c5[i], c2[i] - c6[i], c3[i] - c7[i]
        y0, y1, y2, y3 = x0 + x2, x1 + x3, x0 - x2, x1 - x3
        y4, y5, y6, y7 = x4 + x6, x5 + x7, x4 - x6, x5 - x7
        c0[i], c1[i], c2[i], c3[i] = y0 + y1, y0 - y1, y2 + y3, y2 - y3
        c4[i], c5[i], c6[i], c7[i] = y4 + y5, y4 - y5, y6 + y7, y6 - y7


_columns = _of_each_type(lambda t: void(t, int64, int64, int64))(_pass8.py_func)


@njit  # type: ignore[untyped-decorator]
def _pass2(a: Any, stride: Any) -> None:
    """One level at this stride."""
    for start in range(0, len(a), 2 * stride):
        near, far = a[start : start + stride], a[start + stride : start + 2 * stride]
        for i in range(stride):
            x, y = near[i], far[i]
            near[i], far[i] = x + y, x - y


@njit  # type: ignore[untyped-decorator]
def _strides_64_to_256(a: Any) -> None:
    """Strides 256, 128 and 64 on every 512 neighbours; being constant, they let the compiler use wide registers."""
    for g in range(len(a) // 512):
        x = a[512 * g : 512 * g + 512]
        for i in range(64):
            x0, x1, x2, x3 = x[i] + x[256 + i], x[64 + i] + x[320 + i], x[128 + i] + x[384 + i], x[192 + i] + x[448 + i]
            x4, x5, x6, x7 = x[i] - x[256 + i], x[64 + i] - x[320 + i], x[128 + i] - x[384 + i], x[192 + i] - x[448 + i]
            y0, y1, y2, y3 = x0 + x2, x1 + x3, x0 - x2, x1 - x3
            y4, y5, y6, y7 = x4 + x6, x5 + x7, x4 - x6, x5 - x7
            x[i], x[64 + i], x[128 + i], x[192 + i] = y0 + y1, y0 - y1, y2 + y3, y2 - y3
            x[256 + i], x[320 + i], x[384 + i], x[448 + i] = y4 + y5, y4 - y5, y6 + y7, y6 - y7


@njit  # type: ignore[untyped-decorator]
def _strides_8_to_32(a: Any) -> None:
    """Strides 32, 16 and 8 on every 64 neighbours."""
    for g in range(len(a) // 64):
        x = a[64 * g : 64 * g + 64]
        for i in range(8):
            x0, x1, x2, x3 = x[i] + x[32 + i], x[8 + i] + x[40 + i], x[16 + i] + x[48 + i], x[24 + i] + x[56 + i]
            x4, x5, x6, x7 = x[i] - x[32 + i], x[8 + i] - x[40 + i], x[16 + i] - x[48 + i], x[24 + i] - x[56 + i]
            y0, y1, y2, y3 = x0 + x2, x1 + x3, x0 - x2, x1 - x3
            y4, y5, y6, y7 = x4 + x6, x5 + x7, x4 - x6, x5 - x7
            x[i], x[8 + i], x[16 + i], x[24 + i] = y0 + y1, y0 - y1, y2 + y3, y2 - y3
            x[32 + i], x[40 + i], x[48 + i], x[56 + i] = y4 + y5, y4 - y5, y6 + y7, y6 - y7


@njit  # type: ignore[untyped-decorator]
def _strides_1_to_4(a: Any) -> None:
    """Strides 1, 2 and 4 on every eight neighbours."""
    for g in range(len(a) // 8):
        i = 8 * g
        x0, x1, x2, x3 = a[i] + a[i + 1], a[i] - a[i + 1], a[i + 2] + a[i + 3], a[i + 2] - a[i + 3]
        x4, x5, x6, x7 = a[i + 4] + a[i + 5], a[i + 4] - a[i + 5], a[i + 6] + a[i + 7], a[i + 6] - a[i + 7]
        y0, y1, y2, y3 = x0 + x2, x1 + x3, x0 - x2, x1 - x3
        y4, y5, y6, y7 = x4 + x6, x5 + x7, x4 - x6, x5 - x7
        a[i], a[i + 1], a[i + 2], a[i + 3] = y0 + y4, y1 + y5, y2 + y6, y3 + y7
        a[i + 4], a[i + 5], a[i + 6], a[i + 7] = y0 - y4, y1 - y5, y2 - y6, y3 - y7


@njit  # type: ignore[untyped-decorator]
def _block(a: Any, shortest: Any) -> None:
    """All levels of a piece that fits the cache."""
    length = len(a)
    while length >= 4096:
        for start in range(0, len(a), length):
            _pass8(a[start : start + length], length // 8, 0, length // 8)
        length //= 8
    # What is left of the length decides how many of the constant-stride passes fit below it.
    target = 512 if length >= 512 else (64 if length >= 64 else (8 if length >= 8 else 1))
    while length > max(target, shortest):
        length //= 2
        _pass2(a, length)
    if length >= 512:
        _strides_64_to_256(a)
    if length >= 64:
        _strides_8_to_32(a)
    if length >= 8 and shortest == 1:
        _strides_1_to_4(a)


@_of_each_type(lambda t: void(t, int64))
def _descend(a: Any, shortest: Any) -> None:
    """All levels of one piece with strides >= ``shortest`` (1 or 8), longest first."""
    size = len(a)
    while size > BLOCK:
        for start in range(0, len(a), size):
            _pass8(a[start : start + size], size // 8, 0, size // 8)
        size //= 8
    for start in range(0, len(a), size):
        _block(a[start : start + size], shortest)


@_of_each_type(lambda t: void(t.dtype[:, ::1], uint8[::1], t))
def _from_bytes(rows: Any, packed: Any, out: Any) -> None:
    """The three shortest strides of a packed table: eight values per byte, from a table of 256."""
    for g in range(len(packed)):
        row = rows[packed[g]]
        eight = out[8 * g : 8 * g + 8]
        for i in range(8):
            eight[i] = row[i]


def transform(a: NDArray[Any]) -> None:
    """Transform a contiguous array of length 2^n in place (float32, float64, int32 or int64)."""
    _levels(a, 1)


def _levels(a: NDArray[Any], shortest: int) -> None:
    if len(a) < 8 * BLOCK:
        _descend(a, shortest)
        return
    stride = len(a) // 8
    in_parallel(lambda first, last: _columns(a, stride, first, last), stride, 1 << 12)

    def piece(first: int, last: int) -> None:
        for row in range(first, last):
            _descend(a[row * stride : (row + 1) * stride], shortest)

    in_parallel(piece, 8, 1)


def transform_table(words: Words, dtype: Any) -> NDArray[Any]:
    """The transform of (-1)^f for a packed truth table of at least six variables, without unpacking it first."""
    signs = 1 - 2 * ((np.arange(256)[:, None] >> np.arange(8)) & 1)
    hadamard = np.array([[(-1) ** (i & j).bit_count() for j in range(8)] for i in range(8)])
    rows = np.ascontiguousarray(signs @ hadamard, dtype=dtype)
    packed = np.ascontiguousarray(words, dtype="<u8").view(np.uint8)
    out = np.empty(8 * len(packed), dtype)
    in_parallel(
        lambda first, last: _from_bytes(rows, packed[first:last], out[8 * first : 8 * last]),
        len(packed),
        1 << 15,
    )
    _levels(out, 8)
    return out


@compiled(void(int32[::1], int64, int64[::1], int64[::1], int64[::1]))
def _by_degree(a: Any, offset: Any, squares: Any, nonzero: Any, magnitudes: Any) -> None:
    """Add each coefficient's square, presence and magnitude to its set's size; ``offset`` is the first set's index."""
    for i in range(len(a)):
        value = int64(a[i])
        if value != 0:
            size = int64(popcount(uint64(offset + i)))
            squares[size] += value * value
            nonzero[size] += 1
            magnitudes[size] += abs(value)


def sums_by_degree(coefficients: NDArray[np.int32]) -> tuple[list[int], list[int], list[int]]:
    """Sums of squares, numbers of non-zero coefficients and sums of magnitudes by degree; exact up to n = 30."""
    total = np.zeros((3, 32), np.int64)
    lock = threading.Lock()

    def work(first: int, last: int) -> None:
        part = np.zeros((3, 32), np.int64)
        _by_degree(coefficients[first:last], first, part[0], part[1], part[2])
        with lock:
            np.add(total, part, out=total)

    in_parallel(work, len(coefficients), 1 << 16)
    return total[0].tolist(), total[1].tolist(), total[2].tolist()
