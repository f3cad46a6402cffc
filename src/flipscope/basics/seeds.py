"""Randomness: generators from a seed, seeds from numbers, uniformly random strings."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from flipscope.basics.bits import Bits
from flipscope.basics.checks import check_count
from flipscope.basics.limits import check_memory

Seed: TypeAlias = int | np.random.Generator


def generators(seed: Seed, count: int) -> list[np.random.Generator]:
    """Independent generators from one seed, one for each kind of random draw."""
    if isinstance(seed, np.random.Generator):
        return seed.spawn(count)
    return np.random.default_rng(check_count("seed", seed, 0)).spawn(count)


def seed_of(*numbers: int) -> int:
    """A seed for each sequence of numbers, unlike those of neighbouring sequences."""
    # The length goes in as well: SeedSequence does not tell (1, 2) from (1, 2, 0).
    state = np.random.SeedSequence((len(numbers), *numbers)).generate_state(1, np.uint64)[0]
    return int(state >> np.uint64(1))


def seed_number(seed: int | np.random.Generator) -> int:
    """The seed itself, or 63 bits of the generator."""
    return int(seed.integers(2**63)) if isinstance(seed, np.random.Generator) else check_count("seed", seed, 0)


def random_strings(rng: np.random.Generator, count: int, n: int) -> Bits:
    """Uniform strings of shape (count, n); drawing them in several calls gives the same strings."""
    check_strings_fit(count, n)
    # Whole 64-bit words per string: narrower draws would throw away bits at the end of each call.
    words = rng.integers(0, 1 << 64, size=(count, -(-n // 64)), dtype=np.uint64)
    return np.unpackbits(words.astype("<u8").view(np.uint8), axis=1, count=n, bitorder="little")


def check_strings_fit(count: int, n: int) -> None:
    """Raise InputError if `count` strings, one byte per bit, and the words they are drawn as do not fit into memory."""
    need = count * (n + 16 * -(-n // 64))
    check_memory(need, f"{count:,} strings of {n:,} bits", "give fewer or shorter ones")
