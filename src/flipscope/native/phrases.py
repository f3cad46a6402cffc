"""Lempel and Ziv's count of phrases (1976) of short strings of bits, each in one word."""

from __future__ import annotations

from typing import Any

from numba import int64, uint64, void

from flipscope.native.compiled import compiled


@compiled(void(uint64[::1], int64, int64[::1]))
def count_phrases(words: Any, length: Any, out: Any) -> None:
    """out[i]: phrases of the first `length` bits of word i, read from the least significant one.

    A phrase is the shortest piece that does not begin earlier in the string; the last one may do so.
    """
    for place in range(len(words)):
        word, begin, phrases = words[place], 0, 0
        while begin < length:
            size = 1
            while begin + size <= length:
                mask = (uint64(1) << uint64(size)) - uint64(1) if size < 64 else ~uint64(0)
                piece = (word >> uint64(begin)) & mask
                known = False
                for earlier in range(begin):
                    if (word >> uint64(earlier)) & mask == piece:
                        known = True
                        break
                if not known:
                    break
                size += 1
            begin += size
            phrases += 1
        out[place] = phrases
