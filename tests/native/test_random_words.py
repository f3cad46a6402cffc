"""Random words and coins, against Python's own integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipscope.native.random_words import coins

WORDS = 1 << 64


def word(seed: int, number: int) -> int:
    """Output of SplitMix64 as published."""
    found = (seed + number * 0x9E3779B97F4A7C15) % WORDS
    found = (found ^ found >> 30) * 0xBF58476D1CE4E5B9 % WORDS
    found = (found ^ found >> 27) * 0x94D049BB133111EB % WORDS
    return found ^ found >> 31


def by_definition(seed: int, edge: int, rest: float, words: int) -> list[int]:
    drawn = b"".join(word(seed, k + 1).to_bytes(8, "little") for k in range(words))
    last = [(word(seed, words + k + 1) >> 11) * 2.0**-53 >= rest for k in range(len(drawn))]
    return [int(last[k]) if byte == edge else int(byte > edge) for k, byte in enumerate(drawn)]


@given(
    seed=st.integers(0, WORDS - 1),
    edge=st.sampled_from([0, 1, 25, 128, 254, 255]),
    rest=st.floats(0, 1, exclude_max=True),
    words=st.integers(0, 70),
)
def test_coins(seed: int, edge: int, rest: float, words: int) -> None:
    out = np.empty(words, np.uint64)
    coins(np.uint64(seed), edge, rest, out)
    assert out.view(np.uint8).tolist() == by_definition(seed, edge, rest, words)


@pytest.mark.parametrize(("edge", "rest"), [(0, 0.5), (255, 0.5), (128, 0.0), (25, 0.6)])
def test_the_probability_is_exact_where_a_byte_cannot_say_it(edge: int, rest: float) -> None:
    out = np.empty(1 << 18, np.uint64)
    coins(np.uint64(7), edge, rest, out)
    share, expected = float((out.view(np.uint8) == 0).mean()), (edge + rest) / 256
    assert abs(share - expected) < 5 * (expected * (1 - expected) / (1 << 21)) ** 0.5
