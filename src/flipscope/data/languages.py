"""Labelled strings of a language: a training set, and validation and test sets that share no string with it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import UInt8
from numpy.typing import ArrayLike

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import Bits, as_array
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError, blamed_on
from flipscope.basics.seeds import generators, random_strings
from flipscope.cube.functions import BooleanFunction, checked_bits
from flipscope.cube.structure import checked_values

SIZES: Mapping[str, int] = {"train": 10_000, "validation": 1_000, "test": 1_000}  # App. F.2

_CUBE_BITS = 20  # up to here a split walks through the whole cube in random order instead of drawing strings
_BLOCK = 1 << 14  # strings labelled together at most
_TRIES = 1_000  # strings drawn per string kept, before a balanced split is given up


@dataclass(frozen=True, eq=False, init=False)
class LabelledStrings:
    """Strings [string, position] and the label 0 or 1 of each, kept as copies in uint8 that cannot be written to."""

    bits: UInt8[np.ndarray, "string position"]
    labels: UInt8[np.ndarray, " string"]

    def __init__(self, bits: ArrayLike, labels: ArrayLike) -> None:
        bits = as_array(bits, "bits")
        if bits.ndim != 2 or 0 in bits.shape:
            raise InputError(f"bits of shape {bits.shape} must be [string, position], with one string or more")
        flat = checked_values(bits.ravel(), bits.size, "bits")
        labels = as_array(labels, "labels")
        if labels.shape != (len(bits),):
            raise InputError(f"labels of shape {labels.shape} must be one per string, here ({len(bits)},)")
        for name, array in (
            ("bits", flat.reshape(bits.shape)),
            ("labels", checked_values(labels, len(bits), "labels")),
        ):
            copied = array.astype(np.uint8, copy=True)
            copied.flags.writeable = False
            object.__setattr__(self, name, copied)

    def __len__(self) -> int:
        return len(self.bits)

    @property
    def n(self) -> int:
        """Bits of a string."""
        return int(self.bits.shape[1])

    @property
    def ones(self) -> int:
        """Number of strings with label 1."""
        return int(self.labels.sum())


@checked_arguments
def draw(
    language: BooleanFunction | Callable[[Bits], Any],
    n: int,
    sizes: Mapping[str, int] = SIZES,
    seed: int | np.random.Generator = 0,
    *,
    balanced: bool = False,
) -> dict[str, LabelledStrings]:
    """Splits of uniformly random strings of n bits with the language's labels, one for each entry of `sizes`.

    No string occurs twice, neither in a split nor in two, so that all sizes together may be 2^n at most. Each split
    has a random stream of its own: the first is the same whatever the sizes of those after it. `balanced` keeps as
    many strings of label 1 as of label 0 in every split (one more of label 0 if its size is odd); the paper takes the
    strings as they come.
    """
    n = checked_bits(n)
    if not callable(language):
        raise InputError(f"language must be a function of strings, not {type(language).__name__}")
    if isinstance(language, BooleanFunction) and language.n != n:
        raise InputError(f"n={n} is not the length of the language, which has {language.n} bits: give the same")
    if not sizes:
        raise InputError("sizes is empty: name one split or more, such as {'train': 1000}")
    counts = {name: check_count(f"the size of {name!r}", size) for name, size in sizes.items()}
    _check_room(sum(counts.values()), n)

    def label(bits: Bits) -> Bits:
        with blamed_on("the language"):
            return checked_values(language(bits), len(bits), "the language")

    seen: set[bytes] = set()
    streams = generators(seed, len(counts))
    return {
        name: _fill(label, n, count, stream, seen, balanced)
        for (name, count), stream in zip(counts.items(), streams, strict=True)
    }


def random_language(n: int, count: int, seed: int | np.random.Generator = 0) -> LabelledStrings:
    """`count` different uniformly random strings, each labelled by a fair coin (App. F.2)."""
    n, count = checked_bits(n), check_count("count", count)
    _check_room(count, n)
    (root,) = generators(seed, 1)
    # The length is part of both seeds: otherwise strings and labels of n + 1 bits would repeat those of n.
    strings, coins = (np.random.default_rng((n, int(word))) for word in root.integers(2**63, size=2))
    bits = _fill(lambda some: np.zeros(len(some), np.uint8), n, count, strings, set(), balanced=False).bits
    return LabelledStrings(bits, coins.integers(0, 2, count, dtype=np.uint8))


def _check_room(count: int, n: int) -> None:
    """Raise InputError if there are fewer than `count` strings of n bits."""
    if count > 1 << n:
        raise InputError(f"{count} different strings of n={n} bits do not exist (there are {1 << n}): ask for fewer")


def _fill(
    label: Callable[[Bits], Bits], n: int, count: int, stream: np.random.Generator, seen: set[bytes], balanced: bool
) -> LabelledStrings:
    """The first `count` strings of the stream that were not seen before, and half of each label if balanced."""
    room = [count - count // 2, count // 2] if balanced else [count, count]  # strings of each label still wanted
    kept: list[Bits] = []
    labels: list[int] = []
    for bits in _candidates(n, stream, limit=count * _TRIES if balanced else None):
        for string, key, value in zip(bits, np.packbits(bits, axis=1), label(bits).tolist(), strict=True):
            word = key.tobytes()
            if room[value] == 0 or word in seen:
                continue
            seen.add(word)
            kept.append(string)
            labels.append(value)
            room[value] -= 1
            if len(kept) == count:
                return LabelledStrings(np.array(kept), np.array(labels, np.uint8))
    missing = 0 if room[0] else 1
    raise InputError(
        f"balanced=True needs {room[missing]} more strings of label {missing} than were found: ask for fewer, "
        "or say balanced=False"
    )


def _candidates(n: int, stream: np.random.Generator, limit: int | None) -> Iterator[Bits]:
    """Blocks of uniform strings: all of the cube once, in random order, or draws until about `limit` of them."""
    if n <= _CUBE_BITS:
        order = stream.permutation(1 << n)
        for start in range(0, len(order), _BLOCK):
            part = order[start : start + _BLOCK, None]
            yield (part >> np.arange(n) & 1).astype(np.uint8)
        return
    for _ in itertools.count() if limit is None else range(0, limit, _BLOCK):
        yield random_strings(stream, _BLOCK, n)
