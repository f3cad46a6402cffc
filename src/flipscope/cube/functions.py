"""Boolean functions on {0,1}^n: built from anything, evaluated lazily, combined freely; and the zoo.

Parity here is the exclusive or: 1 when the number of ones is odd. (Paper 000 calls the complement Parity; every
sensitivity is the same.) Majority is 1 when more than half of the bits are 1.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import Bits, Words, as_array, pack, unpack
from flipscope.basics.checks import shown
from flipscope.basics.errors import InputError
from flipscope.basics.progress import Progress
from flipscope.cube import structure
from flipscope.cube.blocks import table_words
from flipscope.cube.notation import notation
from flipscope.cube.structure import MAX_TABLE_BITS, Call, Const, Gate, Leaf, Node, Oracle, Symmetric, Table

MAX_BITS = 10_000
_PROBES = 64  # fixed strings whose values make the hash
_DECIDABLE_BITS = 26  # equality of unstructured functions compares truth tables up to here


class BooleanFunction:
    """A function from {0,1}^n to {0,1}.

    It comes from an expression (`parse`), a name of the zoo, a callable or a table, and is called on one string or on
    rows of them. `~ & | ^` combine functions; `flipscope.describe` and the rest of `flipscope.cube` measure them.

    >>> f = BooleanFunction.from_table([0, 1, 1, 1])
    >>> g = BooleanFunction.from_callable(lambda bits: bits[:, 0] & bits[:, 1], n=2)
    >>> (f ^ g)([[0, 1], [1, 1]]).tolist()
    [1, 0]
    """

    __slots__ = ("cache", "n", "node")

    def __init__(self, n: int, node: Node) -> None:
        self.n = checked_bits(n)
        if not isinstance(node, Const | Leaf | Gate):
            raise InputError(f"{shown(node)} is not a node; use parse, from_table, from_callable or symmetric.")
        self.node = node
        self.cache: dict[str, Any] = {}  # exact answers, computed once
        if node.support and node.support[-1] >= n:
            raise InputError(f"the function reads position {node.support[-1] + 1} but has only n = {n} bits.")

    # ------------------------------------------------------------ building

    @staticmethod
    @checked_arguments
    def from_callable(function: Oracle, n: int, name: str = "the callable") -> BooleanFunction:
        """The function computed by a callable on 0/1 arrays of shape (strings, n), called lazily."""
        if not callable(function):
            raise InputError(f"{function!r} is not callable; give a function of 0/1 arrays of shape (strings, n).")
        n = checked_bits(n)
        return BooleanFunction(n, Leaf(Call(n, function, name), tuple(range(n))))

    @staticmethod
    def from_table(table: int | bytes | ArrayLike, n: int | None = None) -> BooleanFunction:
        """The function with this truth table, position 1 least significant.

        An integer holds the value on string i in bit i; bytes hold eight values each, the first in the lowest bit; an
        array holds 2^n values 0/1. An integer without n takes the least n it fits.
        """
        n = None if n is None else checked_bits(n)
        if isinstance(table, (int, np.integer)) and not isinstance(table, (bool, np.bool_)):
            return _from_integer(int(table), n)
        if isinstance(table, (bytes, bytearray)):
            values = np.unpackbits(np.frombuffer(bytes(table), np.uint8), bitorder="little")
            if n is not None and n < 3 and len(table) == 1:
                values = values[: 1 << n]
        else:
            array = as_array(table, "the truth table")
            if array.ndim != 1:
                raise InputError(f"a truth table must have one axis; this one has shape {array.shape}.")
            values = structure.checked_values(array, len(array), "the truth table")
        width = max(1, len(values).bit_length() - 1)
        if len(values) != 1 << width:
            raise InputError(f"a truth table must have length 2^n with n >= 1; this one has length {len(values)}.")
        if n is not None and n != width:
            raise InputError(f"a truth table of n = {n} bits must have length 2^{n}; this one has {len(values)}.")
        return BooleanFunction.from_words(pack(values), width)

    @staticmethod
    def from_words(words: Words, n: int) -> BooleanFunction:
        """The function with this packed truth table of n bits (64 values per word, repeated when n < 6)."""
        n = _checked_table_bits(n)
        given = as_array(words, "the packed table")
        if given.dtype != np.uint64 or given.shape != (max(1, 1 << n >> 6),):
            raise InputError(
                f"a packed table of n = {n} bits is an array of {max(1, 1 << n >> 6)} words of type uint64; "
                f"this one has shape {given.shape} and type {given.dtype}."
            )
        array = given.copy()
        if n < 6 and not np.array_equal(array, pack(unpack(array)[: 1 << n])):
            raise InputError(f"a packed table of n = {n} bits must repeat its {1 << n} values to fill the word.")
        return BooleanFunction(n, Leaf(Table(n, array), tuple(range(n))))

    @staticmethod
    def symmetric(values: ArrayLike) -> BooleanFunction:
        """The function of the number of ones: values[w] on strings with w ones, so n = len(values) - 1."""
        array = as_array(values, "the value vector")
        if array.ndim != 1 or len(array) < 2:
            raise InputError("a symmetric function needs a vector of n + 1 >= 2 values, one for each number of ones.")
        vector = structure.checked_values(array, len(array), "the value vector")
        n = checked_bits(len(vector) - 1)
        return BooleanFunction(n, structure.apply(Symmetric(vector), [structure.variable(i) for i in range(n)]))

    @staticmethod
    @checked_arguments
    def junta(inner: BooleanFunction, positions: Sequence[int], n: int) -> BooleanFunction:
        """``inner`` applied to these positions of a string of n bits."""
        return inner.extend(n, positions)

    @staticmethod
    def constant(value: int, n: int) -> BooleanFunction:
        """The constant 0 or 1 on n bits."""
        return BooleanFunction(n, Const(_checked_bit(value, "a constant is")))

    @staticmethod
    def variable(index: int, n: int) -> BooleanFunction:
        """The bit at this position (0-based) of a string of n bits."""
        return BooleanFunction(n, structure.variable(checked_index(index, checked_bits(n))))

    # ------------------------------------------------------------ values

    @property
    def support(self) -> tuple[int, ...]:
        """The positions the function may depend on."""
        return self.node.support

    def __call__(self, bits: ArrayLike) -> Bits:
        """Values on an array of strings whose last axis is the position."""
        array = as_array(bits, "the strings")
        if array.ndim == 0 or array.shape[-1] != self.n:
            raise InputError(f"strings of {self.n} bits are needed; the array has shape {array.shape}.")
        if array.dtype == np.uint8:
            wrong = bool(array.size) and int(array.max()) > 1
        elif array.dtype == np.bool_:
            wrong = False
        else:
            wrong = array.dtype.kind not in "iuf" or not bool(((array == 0) | (array == 1)).all())
        if wrong:
            raise InputError("strings are arrays of 0 and 1; another value was found.")
        return structure.evaluate(self.node, array.astype(np.uint8, copy=False))

    @checked_arguments
    def table_words(self, progress: Progress | None = None) -> Words:
        """The packed truth table over all n <= 30 bits."""
        words = table_words(self.node, progress, positions=tuple(range(_checked_table_bits(self.n))))
        kernel = getattr(self.node, "kernel", None)
        own = isinstance(kernel, Table) and words is kernel.words
        return words.copy() if own else words  # what the caller writes to it must not change the function

    def table(self) -> Bits:
        """The truth table as 2^n values 0/1."""
        return unpack(self.table_words())[: 1 << self.n]

    # ------------------------------------------------------------ algebra

    def __invert__(self) -> BooleanFunction:
        return BooleanFunction(self.n, structure.negate(self.node))

    def __and__(self, other: BooleanFunction) -> BooleanFunction:
        return self._with(other, structure.and_kernel(2))

    def __or__(self, other: BooleanFunction) -> BooleanFunction:
        return self._with(other, structure.or_kernel(2))

    def __xor__(self, other: BooleanFunction) -> BooleanFunction:
        return self._with(other, structure.xor_kernel(2))

    def _with(self, other: BooleanFunction, kernel: Symmetric) -> BooleanFunction:
        if not isinstance(other, BooleanFunction):
            return NotImplemented
        if other.n != self.n:
            raise InputError(f"functions of {self.n} and {other.n} bits do not combine; extend one of them first.")
        return BooleanFunction(self.n, structure.apply(kernel, [self.node, other.node]))

    @checked_arguments
    def compose(self, inners: Sequence[BooleanFunction]) -> BooleanFunction:
        """This function of the inner functions' values: x -> f(g_1(x), ..., g_n(x))."""
        if not all(isinstance(inner, BooleanFunction) for inner in inners):
            raise InputError("inner functions must be BooleanFunctions; make fixed bits with .constant(value, n).")
        if len(inners) != self.n:
            raise InputError(f"a function of {self.n} bits composes with {self.n} inner functions, not {len(inners)}.")
        if len({inner.n for inner in inners}) != 1:
            raise InputError("inner functions must all have the same number of bits; extend the shorter ones.")
        return BooleanFunction(inners[0].n, structure.substitute(self.node, lambda p: inners[p].node))

    @checked_arguments
    def restrict(self, fixed: Mapping[int, int]) -> BooleanFunction:
        """The function of the remaining bits, in order, after fixing positions (0-based) to bits."""
        what = "a position is fixed to"
        values = {checked_index(position, self.n): _checked_bit(bit, what) for position, bit in fixed.items()}
        free = [position for position in range(self.n) if position not in values]
        if not free:
            raise InputError("a restriction must leave at least one bit free; evaluate the function instead.")
        new = {position: place for place, position in enumerate(free)}
        return BooleanFunction(
            len(free),
            structure.substitute(self.node, lambda p: Const(values[p]) if p in values else structure.variable(new[p])),
        )

    @checked_arguments
    def permute(self, order: Sequence[int]) -> BooleanFunction:
        """The function x -> f(x[order[0]], x[order[1]], ...)."""
        where = [checked_index(position, self.n) for position in order]
        if sorted(where) != list(range(self.n)):
            raise InputError(f"a permutation of {self.n} positions lists each of 0..{self.n - 1} once.")
        return self.extend(self.n, where)

    @checked_arguments
    def extend(self, n: int, positions: Iterable[int] | None = None) -> BooleanFunction:
        """The same function inside n bits, reading these positions (the first ones unless given)."""
        n = checked_bits(n)
        where = list(range(self.n)) if positions is None else [checked_index(p, n) for p in positions]
        if n < self.n:
            raise InputError(f"a function of {self.n} bits does not fit inside n = {n}.")
        if len(where) != self.n or len(set(where)) != self.n:
            raise InputError(f"{self.n} different positions are needed, got {len(set(where))}.")
        return BooleanFunction(n, structure.substitute(self.node, lambda p: structure.variable(where[p])))

    # ------------------------------------------------------------ identity

    def __eq__(self, other: object) -> bool:
        """Whether both have the same n and the same value on every string."""
        if not isinstance(other, BooleanFunction):
            return NotImplemented
        if self is other:
            return True
        if self.n != other.n or self._fingerprint() != other._fingerprint():
            return False
        answer = _same_structure(self.node, other.node)
        if answer is not None:
            return answer
        positions = tuple(sorted({*self.support, *other.support}))
        if len(positions) <= _DECIDABLE_BITS:
            here, there = (table_words(node, positions=positions) for node in (self.node, other.node))
            return bool(np.array_equal(here, there))
        raise InputError(
            f"equality over {len(positions)} relevant bits without a common structure cannot be decided exactly; "
            "compare values on sampled strings instead."
        )

    def __hash__(self) -> int:
        return hash((self.n, self._fingerprint()))

    def _fingerprint(self) -> bytes:
        """Values on fixed strings: equal for equal functions, however they are built."""
        if "fingerprint" not in self.cache:
            strings = np.random.Generator(np.random.PCG64(self.n)).integers(0, 2, (_PROBES, self.n), np.uint8)
            self.cache["fingerprint"] = np.packbits(self(strings)).tobytes()
        return cast(bytes, self.cache["fingerprint"])

    def __repr__(self) -> str:
        return f"BooleanFunction(n={self.n}): {notation(self.node)}"

    # ------------------------------------------------------------ what it is like

    def degree(self) -> int:
        """The size of the largest set with a non-zero Fourier coefficient; InputError where it is out of reach.

        >>> BooleanFunction.from_table([0, 1, 1, 0]).degree()
        2
        """
        from flipscope.cube import spectrum

        return spectrum.degree(self)

    def influences(self) -> list[float]:
        """For each position the share of strings on which flipping it changes the value, exactly.

        >>> BooleanFunction.from_table([0, 0, 0, 1]).influences()
        [0.5, 0.5]
        """
        from flipscope.cube import sensitivity

        return [float(influence) for influence in sensitivity.influences(self)]

    def sensitivity_profile(self) -> list[int]:
        """How many strings have sensitivity 0, 1, ..., n, exactly; `flipscope.describe` estimates where it must.

        >>> BooleanFunction.from_table([0, 0, 0, 1]).sensitivity_profile()
        [1, 2, 1]
        """
        from flipscope.cube import sensitivity

        return sensitivity.profile(self)

    @checked_arguments
    def save(self, path: str | Path) -> None:
        """Write the function to a file (whole or not at all); a callable is saved as its truth table."""
        from flipscope.cube import storage

        storage.save(self, Path(path))

    @staticmethod
    @checked_arguments
    def load(path: str | Path) -> BooleanFunction:
        """Read a function written by ``save``."""
        from flipscope.cube import storage

        return storage.load(Path(path))


@checked_arguments
def gate(values: ArrayLike, children: Sequence[BooleanFunction]) -> BooleanFunction:
    """The symmetric function of the children's values: values[w] where w of them are 1."""
    if not children:
        raise InputError("a gate needs at least one input.")
    outer = BooleanFunction.symmetric(values)
    return outer.compose(children)


# ---------------------------------------------------------------- checks


def checked_bits(n: Any) -> int:
    """n as an int between 1 and MAX_BITS, or a clear error."""
    number = checked_whole(n, "the number of bits")
    if not 1 <= number <= MAX_BITS:
        raise InputError(f"the number of bits must be between 1 and {MAX_BITS}; n = {shown(number)} is not.")
    return number


def checked_whole(number: Any, what: str) -> int:
    """The number as an int, or a clear error that names what it is."""
    try:
        if not isinstance(number, bool):
            return operator.index(number)
    except (TypeError, ValueError, RuntimeError):  # tensors have reasons of their own
        pass
    raise InputError(f"{what} must be a whole number, not {shown(number)}.")


def _checked_table_bits(n: Any) -> int:
    number = checked_bits(n)
    if number > MAX_TABLE_BITS:
        raise InputError(f"a truth table is kept to n <= {MAX_TABLE_BITS} bits; n = {number} is too many.")
    return number


def checked_index(index: Any, n: int) -> int:
    """A 0-based position inside n bits, or a clear error."""
    number = checked_whole(index, "a position")
    if not 0 <= number < n:
        raise InputError(f"position {shown(number)} is outside 0..{n - 1}.")
    return number


def _checked_bit(bit: Any, what: str) -> int:
    if not isinstance(bit, int | float | np.number | np.bool_) or bit not in (0, 1):
        raise InputError(f"{what} 0 or 1, not {shown(bit)}.")
    return int(bit)


def _checked_seed(seed: Any) -> int:
    number = checked_whole(seed, "a seed")
    if number < 0:
        raise InputError("a seed must not be negative.")
    return number


def _from_integer(table: int, n: int | None) -> BooleanFunction:
    if table < 0:
        raise InputError(f"a truth table as an integer must not be negative; {shown(table)} is.")
    width = max(1, (max(1, table.bit_length()) - 1).bit_length()) if n is None else _checked_table_bits(n)
    if table.bit_length() > 1 << width:
        raise InputError(f"the integer has {table.bit_length()} bits, more than the 2^{width} values of n = {width}.")
    raw = table.to_bytes(max(1, 1 << _checked_table_bits(width) >> 3), "little")
    values = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")
    return BooleanFunction.from_words(pack(values[: 1 << width]), width)


def _same_structure(a: Node, b: Node) -> bool | None:
    """True or False where the structure decides, None where it does not."""
    if a is b:
        return True
    if isinstance(a, Const) or isinstance(b, Const):
        # A symmetric leaf is never constant: those that are were folded when they were built.
        return False if any(isinstance(x, Leaf) and isinstance(x.kernel, Symmetric) for x in (a, b)) else None
    if isinstance(a, Leaf) and isinstance(b, Leaf):
        first, second = a.kernel, b.kernel
        if isinstance(first, Symmetric) and isinstance(second, Symmetric):
            # A symmetric function that is not constant depends on every one of its variables.
            return a.support == b.support and bool(np.array_equal(first.values, second.values))
        if isinstance(first, Table) and isinstance(second, Table) and a.positions == b.positions:
            return bool(np.array_equal(first.words, second.words))
    numbers: dict[Any, int] = {}  # what a node is made of -> its number: equal numbers are equal functions
    number: dict[int, int] = {}
    for node in (*structure.post_order(a), *structure.post_order(b)):
        number[id(node)] = numbers.setdefault(_identity(node, number), len(numbers))
    return True if number[id(a)] == number[id(b)] else None


def _identity(node: Node, number: Mapping[int, int]) -> Any:
    """What makes a node what it is, with its children given by their numbers."""
    if isinstance(node, Const):
        return node.value
    inputs = node.positions if isinstance(node, Leaf) else tuple(number[id(c)] for c in node.children)
    kernel: Any = node.kernel
    if isinstance(kernel, Symmetric):
        return type(node), "symmetric", kernel.values.tobytes(), tuple(sorted(inputs))
    if isinstance(kernel, Table):
        return type(node), "table", kernel.words.tobytes(), inputs
    origin = kernel.origin and (kernel.origin[0], tuple(sorted(kernel.origin[1].items())))
    return type(node), "call", origin or id(kernel.function), inputs


# ---------------------------------------------------------------- the zoo


def parity(n: int) -> BooleanFunction:
    """1 when the number of ones is odd."""
    return BooleanFunction.symmetric(np.arange(checked_bits(n) + 1) % 2)


def majority(n: int) -> BooleanFunction:
    """1 when more than half of the bits are 1 (a tie is 0)."""
    return BooleanFunction.symmetric(2 * np.arange(checked_bits(n) + 1) > n)


def first(n: int) -> BooleanFunction:
    """The first bit."""
    return dictator(0, n)


def dictator(index: int, n: int) -> BooleanFunction:
    """The bit at this position (0-based)."""
    return BooleanFunction.variable(index, n)


def conjunction(n: int) -> BooleanFunction:
    """1 on the string of ones only."""
    return threshold(n, n)


def disjunction(n: int) -> BooleanFunction:
    """0 on the string of zeros only."""
    return threshold(1, n)


def threshold(k: int, n: int) -> BooleanFunction:
    """1 when at least k bits are 1."""
    n, k = checked_bits(n), checked_whole(k, "a threshold")
    if not 0 <= k <= n + 1:
        raise InputError(f"a threshold on n = {n} bits is between 0 and {n + 1}; k = {shown(k)} is not.")
    return BooleanFunction.symmetric(np.arange(n + 1) >= k)


def sparse_parity(m: int, n: int, seed: int = 0) -> BooleanFunction:
    """Parity of m positions chosen at random."""
    m = _checked_part(m, n)
    return parity(m).extend(n, _positions(m, n, _stream(seed, m, n)))


def sparse_majority(m: int, n: int, seed: int = 0) -> BooleanFunction:
    """Majority of m positions chosen at random."""
    m = _checked_part(m, n)
    return majority(m).extend(n, _positions(m, n, _stream(seed, m, n)))


def tribes(n: int, width: int | None = None) -> BooleanFunction:
    """1 when some tribe of ``width`` neighbours is all ones; bits left over belong to no tribe.

    Without a width, the one that makes the function closest to balanced.
    """
    n = checked_bits(n)
    if width is None:
        width = min(range(1, min(n, 40) + 1), key=lambda w: abs((1 - 0.5**w) ** (n // w) - 0.5))
    width = _checked_part(width, n)
    ones = structure.and_kernel(width)
    groups = [
        structure.apply(ones, [structure.variable(p) for p in range(start, start + width)])
        for start in range(0, n - width + 1, width)
    ]
    return BooleanFunction(n, structure.apply(structure.or_kernel(len(groups)), groups))


def address(k: int) -> BooleanFunction:
    """The bit of the last 2^k that the first k bits name (least significant first)."""
    k = checked_whole(k, "the number of address bits")
    if not 1 <= k <= 12:
        raise InputError(f"an address has between 1 and 12 bits; k = {shown(k)} does not.")

    def lookup(bits: Bits) -> Bits:
        index = (bits[:, :k].astype(np.int64) << np.arange(k)).sum(axis=-1)
        return np.asarray(bits[np.arange(len(bits)), k + index])

    n = k + (1 << k)
    return BooleanFunction(n, structure.zoo_call("address", {"k": k}, n, lookup))


def random(n: int, seed: int = 0) -> BooleanFunction:
    """A uniformly random function, the same for the same seed on any machine: every value is a hash of the string."""
    n, seed = checked_bits(n), _checked_seed(seed)
    state = np.zeros(1, np.uint64)
    # The length is hashed as well: else the function of n bits would be the one of n + 1 whose last bit is 0.
    for word in (n, *(seed >> low & (2**64 - 1) for low in range(0, max(1, seed.bit_length()), 64))):
        state = _mix(state ^ np.uint64(word))
    start = state[0]

    def value(bits: Bits) -> Bits:
        padded = np.zeros((len(bits), -(-n // 64) * 64), np.uint8)
        padded[:, :n] = bits
        words = np.packbits(padded, axis=-1, bitorder="little").view("<u8")
        state = np.full(len(bits), start, np.uint64)
        for column in range(words.shape[1]):
            state = _mix(state ^ words[:, column])
        return (state >> np.uint64(63)).astype(np.uint8)

    def by_index(index: Words) -> Bits:
        return (_mix(start ^ index) >> np.uint64(63)).astype(np.uint8)

    return BooleanFunction(n, structure.zoo_call("random", {"n": n, "seed": seed}, n, value, by_index))


def random_symmetric(n: int, seed: int = 0) -> BooleanFunction:
    """A symmetric function with a uniformly random value vector."""
    n = checked_bits(n)
    return BooleanFunction.symmetric(_stream(seed, n).integers(0, 2, n + 1))


def random_junta(m: int, n: int, seed: int = 0) -> BooleanFunction:
    """A uniformly random function of m positions chosen at random."""
    m = _checked_part(m, n)
    stream = _stream(seed, m, n)
    positions = _positions(m, n, stream)
    return random(m, int(stream.integers(2**63))).extend(n, positions)


def _checked_part(m: int, n: int) -> int:
    number = checked_whole(m, "the number of positions")
    if not 1 <= number <= checked_bits(n):
        raise InputError(f"{shown(number)} positions of n = {n} bits cannot be chosen; choose 1 to {n}.")
    return number


def _stream(seed: int, *sizes: int) -> np.random.Generator:
    """A random stream for each seed and sizes: with the seed alone, neighbouring sizes would get similar functions."""
    return np.random.default_rng((*map(operator.index, sizes), _checked_seed(seed)))


def _positions(m: int, n: int, stream: np.random.Generator) -> list[int]:
    return sorted(int(position) for position in stream.choice(n, size=m, replace=False))


def _mix(words: Words) -> Words:
    """A bijective scrambling of 64-bit words (the finaliser of SplitMix64)."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return cast(Words, words ^ (words >> np.uint64(31)))
