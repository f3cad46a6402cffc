"""Strings and truth tables as arrays: bytes 0 and 1, or 64 values per word.

Bit ``i`` of word ``w`` of a packed table is the value on the string with index ``64 * w + i``, where position 0 is the
least significant bit of the index.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flipscope.basics.checks import shown
from flipscope.basics.errors import InputError

Bits: TypeAlias = NDArray[np.uint8]


Words: TypeAlias = NDArray[np.uint64]


# Values of positions 0..5 on the 64 strings inside one word.
LOW_PATTERNS: tuple[int, ...] = (
    0xAAAAAAAAAAAAAAAA,
    0xCCCCCCCCCCCCCCCC,
    0xF0F0F0F0F0F0F0F0,
    0xFF00FF00FF00FF00,
    0xFFFF0000FFFF0000,
    0xFFFFFFFF00000000,
)


FULL_WORD = 0xFFFFFFFFFFFFFFFF


def pack(values: Bits) -> Words:
    """Packed words of a 0/1 vector of length 2^k; fewer than 64 values are repeated to fill one word."""
    if values.size < 64:
        values = np.tile(values, 64 // values.size)
    return np.packbits(values, bitorder="little").view("<u8").astype(np.uint64, copy=False)


def unpack(words: Words) -> Bits:
    """The 0/1 vector held by packed words, 64 values per word."""
    return np.unpackbits(np.ascontiguousarray(words, dtype="<u8").view(np.uint8), bitorder="little")


def index_bits(start: int, count: int, width: int) -> Bits:
    """The strings with indices start .. start + count - 1 as a 0/1 array of shape (count, width)."""
    index = np.arange(start, start + count, dtype=np.uint64)
    columns = [((index >> np.uint64(j)) & np.uint64(1)).astype(np.uint8) for j in range(width)]
    return np.stack(columns, axis=-1) if columns else np.zeros((count, 0), np.uint8)


def as_array(values: Any, name: str) -> NDArray[Any]:
    """The values as a numpy array, those of a torch tensor too; InputError where that is impossible."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InputError(f"{name}: some values are masked; fill them or leave them out.")
    try:
        # A tensor, handled without importing torch: detached, and copied from its device.
        return np.asarray(values.detach().cpu().numpy() if hasattr(values, "detach") else values)
    except (ValueError, OverflowError):
        raise InputError(f"{name}: rows of different lengths do not make an array.") from None
    except (TypeError, RuntimeError):  # a sparse tensor, say, or one of a type that numpy does not have
        raise InputError(f"{name}: {shown(values)} cannot be read as an array; give plain numbers.") from None


def as_numbers(values: Any, name: str) -> NDArray[np.float64]:
    """The values as float64; InputError where they are not numbers."""
    array = as_array(values, name)
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} of type {array.dtype} must be numbers")
    return array.astype(np.float64)


def check_strings(strings: object) -> Bits:
    """One or more strings as an array of bits; InputError that says what is wrong with them."""
    if hasattr(strings, "detach") or isinstance(strings, np.ma.MaskedArray):
        strings = as_array(strings, "strings")
    try:
        array = np.asarray(strings)
    except (ValueError, TypeError, OverflowError):
        array = np.empty((1,), object)
    if array.dtype.kind not in "biuf":
        raise InputError("strings must be rows of 0 and 1 that all have the same length: measure each length apart")
    if array.size == 0:
        raise InputError(f"strings of shape {array.shape} are empty: give at least one string of at least one bit")
    if array.ndim != 2:
        raise InputError(f"strings of shape {array.shape} must have two axes, [string, position]")
    wrong = array[(array != 0) & (array != 1)]
    if wrong.size:
        raise InputError(f"strings contain {wrong[0]}, but bits are 0 and 1")
    return array.astype(np.uint8)
