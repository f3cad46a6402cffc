"""Kinds of data beyond the uniform strings of one Boolean function (`flipscope.training.recipe.StringData`).

    RealData      a real-valued function: the mean of the bits, or a weighted sum of Boolean functions
    TableData     a truth table written down, learned from all of its rows or from a random subset of them
    LengthsData   strings of all lengths from one to another, answered at the end, or at every position
    SparseData    a gate of a few hidden bits among many (`flipscope.training.sparse_sets`)

Each is a frozen record that JSON can hold, under its name in BY_NAME. `validation_sets`, `source` and `draw_inputs` are
what training asks of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float32
from numpy.typing import ArrayLike

from flipscope.basics.bits import Bits, index_bits
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import random_strings
from flipscope.cube.functions import BooleanFunction, checked_bits
from flipscope.data.languages import draw
from flipscope.data.real import RealFunction
from flipscope.training.batches import Batch, Drawn, Examples, Inputs, Labelled
from flipscope.training.sparse_sets import SparseData

Answer = Literal["string", "prefixes", "scratchpad"]
START = 2  # the symbol that a scratchpad begins with; 0 and 1 are the bits
MAX_TABLE_BITS = 20
_FRESH, _VALIDATION, _ROWS, _ORDER = 0x66726573, 0x76616C69, 0x726F7773, 0x6F726472  # streams of their own


# ---------------------------------------------------------------- real-valued functions


@dataclass(frozen=True, kw_only=True)
class RealData:
    """Uniformly random strings with the values of a real-valued function (`flipscope.data.real`).

    `train` strings are drawn once, or fresh ones for every batch where it is None.
    """

    inputs: ClassVar[Inputs] = "bits"
    answer: ClassVar[Answer] = "string"
    function: str
    length: int
    train: int | None = None
    validation: int = 1_000
    seed: int = 0

    def __post_init__(self) -> None:
        RealFunction(self.function, self.length)
        for name in ("train", "validation"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_count("seed", self.seed, 0)

    def _sets(self) -> dict[str, Labelled]:
        sizes = {"train": self.train} if self.train is not None else {}
        blank = draw(
            lambda bits: np.zeros(len(bits), np.uint8), self.length, {**sizes, "validation": self.validation}, self.seed
        )
        return {name: Examples(strings.bits, self.values(strings.bits)) for name, strings in blank.items()}

    def values(self, bits: Bits) -> Float32[np.ndarray, " string"]:
        """The function's values on these strings."""
        return RealFunction(self.function, self.length)(bits)

    def validation_sets(self) -> list[Labelled]:
        """What is asked after each epoch."""
        return [self._sets()["validation"]]

    def source(self, batch: int, steps: int, seed: int) -> Labelled | Iterable[Batch]:
        """A fixed set, or fresh batches."""
        if self.train is not None:
            return self._sets()["train"]
        f = RealFunction(self.function, self.length)

        def fresh(stream: np.random.Generator) -> Batch:
            bits = random_strings(stream, batch, self.length)
            return bits, f(bits)

        return Drawn(fresh, steps, np.random.default_rng([self.seed, seed, _FRESH]))

    def draw_inputs(self, count: int, stream: np.random.Generator) -> Bits:
        """Random inputs like those of the training."""
        return random_strings(stream, count, self.length)


# ---------------------------------------------------------------- truth tables


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
    """A table with the labels of the rows that are trained on, and those of fair coins everywhere else."""
    values, rows = data.values(), data.rows()
    other = np.random.default_rng([check_count("seed", seed, 0), _ORDER]).integers(0, 2, values.size, dtype=np.uint8)
    other[rows] = values[rows]
    return table_text(other)


def _check_table_bits(n: int) -> None:
    if not 1 <= check_count("length", n) <= MAX_TABLE_BITS:
        raise InputError(f"length={n} must be at most {MAX_TABLE_BITS} bits for a table written down")


@dataclass(frozen=True, kw_only=True)
class TableData:
    """The rows of a truth table (`table_text`): all of them, or a random `subset` of so many, drawn once.

    The rows of the subset are distinct, as in the hardness paper's code; with replacement=True some come twice. A
    batch is drawn from it anew at every step, each row uniformly and with replacement; with order="shuffled" an epoch
    goes once through it. What is trained on is the validation set as well.
    """

    inputs: ClassVar[Inputs] = "bits"
    answer: ClassVar[Answer] = "string"
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
        """Strings of a fixed set that is gone through, None where batches are drawn."""
        return None if self.order == "drawn" else len(self.rows())

    @property
    def function(self) -> str:
        """What a list of models says of it."""
        rows = "all rows" if self.subset is None else f"{self.subset:,} rows"
        return f"table {self.table[:8]}… of {self.length} bits, {rows}"

    def values(self) -> Bits:
        """The labels of all 2^n strings, position 1 being the least significant bit of the index."""
        return np.unpackbits(
            np.frombuffer(bytes.fromhex(self.table), np.uint8), bitorder="little", count=1 << self.length
        )

    def rows(self) -> np.ndarray:
        """The indices of the strings that are trained on."""
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
        """What is asked after each epoch: the strings that are trained on."""
        return [self.strings()]

    def source(self, batch: int, steps: int, seed: int) -> Labelled | Iterable[Batch]:
        """A fixed set, or batches that are drawn from it."""
        known = self.strings()
        if self.order == "shuffled":
            return known

        def drawn(stream: np.random.Generator) -> Batch:
            chosen = stream.integers(0, len(known.bits), batch)
            return known.bits[chosen], known.labels[chosen]

        return Drawn(drawn, steps, np.random.default_rng([self.seed, seed, _ORDER]))

    def draw_inputs(self, count: int, stream: np.random.Generator) -> Bits:
        """Random strings of the whole cube."""
        return random_strings(stream, count, self.length)


# ---------------------------------------------------------------- strings of many lengths


def prefix_values(function: str, bits: Bits) -> np.ndarray:
    """The function's value on each prefix of each string, [string, position]; the last is that of the string.

    >>> prefix_values("parity", np.array([[1, 0, 1, 1]], np.uint8)).tolist()
    [[1, 1, 0, 1]]
    """
    if function not in FAMILIES:
        raise InputError(f"function={function!r} is not one of {', '.join(FAMILIES)}, which have every length")
    return FAMILIES[function](bits)


def _majority(bits: Bits) -> Bits:
    return (2 * np.cumsum(bits, axis=1) > np.arange(1, bits.shape[1] + 1)).astype(np.uint8)


def _mean(bits: Bits) -> np.ndarray:
    return (np.cumsum(bits, axis=1) / np.arange(1, bits.shape[1] + 1)).astype(np.float32)


FAMILIES: dict[str, Callable[[Bits], np.ndarray]] = {
    "parity": lambda bits: (np.cumsum(bits, axis=1) & 1).astype(np.uint8),
    "majority": _majority,
    "first": lambda bits: np.repeat(bits[:, :1], bits.shape[1], axis=1),
    "mean": _mean,
}


def scratchpad_inputs(bits: Bits, written: Bits) -> Bits:
    """What a model with a scratchpad reads while it is taught: the bits, START, and all that was to be written but
    the last, [string, 2 * position].

    >>> scratchpad_inputs(np.array([[1, 0, 1]], np.uint8), np.array([[1, 1, 0]], np.uint8)).tolist()
    [[1, 0, 1, 2, 1, 1]]
    """
    start = np.full((len(bits), 1), START, bits.dtype)
    return np.concatenate([bits, start, written[:, :-1]], axis=1)


@dataclass(frozen=True, kw_only=True)
class LengthsData:
    """Fresh uniform strings of every length from `shortest` to `length`, with the values of parity, majority, first or
    mean; all strings of a batch have one length, which is drawn uniformly.

    One length per batch and not per string: nothing is padded, so that no attention is masked and the quick forward
    of training applies; over many steps each length counts as much as with a mixture. Validation has as many strings
    of each length, `validation` in all or one each.

    answer     "string": the value. "prefixes": at each position the value of the string up to there, for a model
               with readout="every". "scratchpad": the same, written down bit by bit by an encoder-decoder
               (`flipscope.models.seq2seq`), which reads the bits, START and what was to be written so far.
    """

    train: ClassVar[int | None] = None
    function: str
    length: int
    shortest: int | None = None  # the same as `length`
    answer: Answer = "string"
    validation: int = 1_000
    seed: int = 0

    def __post_init__(self) -> None:
        checked_bits(self.length)
        if self.function not in FAMILIES:
            prefix_values(self.function, np.zeros((1, 1), np.uint8))
        if self.shortest is not None and check_count("shortest", self.shortest) > self.length:
            raise InputError(f"shortest={self.shortest} must be at most length={self.length}")
        if self.answer not in ("string", "prefixes", "scratchpad"):
            raise InputError(f"answer={self.answer!r} is not one of string, prefixes, scratchpad")
        if self.answer == "scratchpad" and self.function == "mean":
            raise InputError("a scratchpad holds bits, and the mean is no bit: take answer='prefixes'")
        check_count("validation", self.validation)
        check_count("seed", self.seed, 0)

    @property
    def inputs(self) -> Inputs:
        """What the model reads."""
        return "tokens" if self.answer == "scratchpad" else "bits"

    @property
    def lengths(self) -> range:
        """All lengths."""
        return range(self.length if self.shortest is None else self.shortest, self.length + 1)

    def examples(self, bits: Bits) -> Examples:
        """Inputs and labels of these strings."""
        values = prefix_values(self.function, bits)
        if self.answer == "string":
            return Examples(bits, values[:, -1])
        return Examples(scratchpad_inputs(bits, values) if self.answer == "scratchpad" else bits, values)

    def validation_sets(self) -> list[Labelled]:
        """What is asked after each epoch: a set for each length."""
        each = max(1, self.validation // len(self.lengths))
        streams = {n: np.random.default_rng([self.seed, n, _VALIDATION]) for n in self.lengths}
        return [self.examples(random_strings(stream, each, n)) for n, stream in streams.items()]

    def source(self, batch: int, steps: int, seed: int) -> Labelled | Iterable[Batch]:
        """Fresh batches of one length each."""

        def fresh(stream: np.random.Generator) -> Batch:
            n = int(stream.integers(self.lengths.start, self.lengths.stop))
            found = self.examples(random_strings(stream, batch, n))
            return found.bits, found.labels

        return Drawn(fresh, steps, np.random.default_rng([self.seed, seed, _FRESH]))

    def draw_inputs(self, count: int, stream: np.random.Generator) -> Any:
        """Random inputs of the greatest length."""
        return self.examples(random_strings(stream, count, self.length)).bits


BY_NAME: dict[str, type] = {"real": RealData, "table": TableData, "lengths": LengthsData, "sparse": SparseData}
