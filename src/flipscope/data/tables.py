"""Explicit truth tables, learned from all of their rows or from a random subset of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from flipscope.basics.bits import Bits, index_bits
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import random_strings
from flipscope.cube.functions import BooleanFunction
from flipscope.data.batches import Batch, Drawn, Examples, Inputs, Labelled

MAX_TABLE_BITS = 20
_ROWS, _ORDER = 0x726F7773, 0x6F726472  # one random stream for each purpose


def table_text(values: ArrayLike | BooleanFunction) -> str:
    """A truth table of 2^n values 0 or 1 as text: hexadecimal bytes, index 0 in the lowest bit of the first.

    >>> table_text([0, 1, 1, 0, 1, 0, 0, 1])
    '96'
    """
    labels = values.table() if isinstance(values, BooleanFunction) else np.asarray(values)
    if labels.ndim != 1 or labels.size < 2 or labels.size & (labels.size - 1) or not np.isin(labels, (0, 1)).all():
        raise InputError("a truth table must have 2^n values, each 0 or 1")
    return np.packbits(labels.astype(np.uint8), bitorder="little").tobytes().hex()


def random_table(n: int, seed: int) -> str:
    """The table of a uniformly random Boolean function of n bits."""
    _check_table_bits(n)
    stream = np.random.default_rng([check_count("seed", seed, 0), n])
    return table_text(stream.integers(0, 2, 1 << n, dtype=np.uint8))


def completed_table(data: TableData, seed: int) -> str:
    """A table with the labels of the training rows, and fair coins everywhere else."""
    values, rows = data.values(), data.rows()
    other = np.random.default_rng([check_count("seed", seed, 0), _ORDER]).integers(0, 2, values.size, dtype=np.uint8)
    other[rows] = values[rows]
    return table_text(other)


def _check_table_bits(n: int) -> None:
    if not 1 <= check_count("length", n) <= MAX_TABLE_BITS:
        raise InputError(f"length={n} must be at most {MAX_TABLE_BITS} bits for an explicit table")


@dataclass(frozen=True, kw_only=True)
class TableData:
    """The rows of a truth table (`table_text`): all of them, or `subset` random ones, drawn once.

    The rows of the subset are distinct, as in the hardness paper's code; with replacement=True some come twice. A
    batch is drawn from it anew at every step, each row uniformly and with replacement; with order="shuffled" an epoch
    goes once through it. What is trained on is the validation set as well.
    """

    inputs: ClassVar[Inputs] = "bits"
    answer: ClassVar[str] = "string"
    table: str
    length: int
    subset: int | None = None
    replacement: bool = False
    order: Literal["drawn", "shuffled"] = "drawn"
    seed: int = 0

    def __post_init__(self) -> None:
        _check_table_bits(self.length)
        check_count("seed", self.seed, 0)
        if self.order not in ("drawn", "shuffled"):
            raise InputError(f"order={self.order!r} is not one of drawn, shuffled")
        try:
            size = len(bytes.fromhex(self.table))
        except ValueError as error:
            raise InputError("table must be hexadecimal digits: make it by table_text") from error
        if size != max(1, (1 << self.length) // 8):
            raise InputError(f"table has {size} bytes, and {self.length} bits have {1 << self.length:,} labels")
        if self.subset is not None:
            check_count("subset", self.subset)
            if not self.replacement and self.subset > 1 << self.length:
                raise InputError(f"subset={self.subset} rows of 2^{self.length} do not exist: ask for fewer")

    @property
    def train(self) -> int | None:
        """The number of strings of a shuffled set; None where batches are drawn."""
        return None if self.order == "drawn" else len(self.rows())

    @property
    def function(self) -> str:
        """What is learned, in words, for lists of models."""
        rows = "all rows" if self.subset is None else f"{self.subset:,} rows"
        return f"table {self.table[:8]}… of {self.length} bits, {rows}"

    def values(self) -> Bits:
        """The labels of all 2^n strings, position 1 being the least significant bit of the index."""
        return np.unpackbits(
            np.frombuffer(bytes.fromhex(self.table), np.uint8), bitorder="little", count=1 << self.length
        )

    def rows(self) -> np.ndarray:
        """The indices of the training strings."""
        if self.subset is None:
            return np.arange(1 << self.length)
        stream = np.random.default_rng([self.seed, _ROWS])
        if self.replacement:
            return stream.integers(0, 1 << self.length, self.subset)
        return stream.permutation(1 << self.length)[: self.subset]

    def strings(self) -> Labelled:
        """The strings that are trained on, with their labels."""
        rows = self.rows()
        return Examples(index_bits(0, 1 << self.length, self.length)[rows], self.values()[rows])

    def validation_sets(self) -> list[Labelled]:
        """The training strings, on which the model is evaluated after each epoch."""
        return [self.strings()]

    def source(self, batch: int, steps: int, seed: int) -> Labelled | Iterable[Batch]:
        """A fixed set, or batches that are drawn from it."""
        fixed = self.strings()
        if self.order == "shuffled":
            return fixed

        def drawn(stream: np.random.Generator) -> Batch:
            chosen = stream.integers(0, len(fixed.bits), batch)
            return fixed.bits[chosen], fixed.labels[chosen]

        return Drawn(drawn, steps, np.random.default_rng([self.seed, seed, _ORDER]))

    def draw_inputs(self, count: int, stream: np.random.Generator) -> Bits:
        """Random strings of the whole cube."""
        return random_strings(stream, count, self.length)
