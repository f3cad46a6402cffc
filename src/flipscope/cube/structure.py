"""How a Boolean function is built: constants, leaves (a kernel on variables), gates (a kernel on other nodes).

Keeping the structure is what makes exact answers possible far beyond 30 bits: a symmetric leaf on 10,000 bits has a
closed form, a junta is a leaf on few positions, and a gate whose children share no variable composes their answers.

Truth tables are packed: bit ``i`` of word ``w`` is the value on the string with index ``64 * w + i``, where position 0
is the least significant bit of the index. A table of fewer than six variables is repeated to fill its one word, so
that every loop may treat it as a function of six variables that ignores the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flipscope.basics.bits import Bits, Words, as_array, pack
from flipscope.basics.errors import InputError

Oracle: TypeAlias = Callable[[Bits], Any]

MAX_DEPTH = 200  # an analysis descends two Python frames per level, on top of the caller's own
RESTRICT_BLOCK = 1 << 20  # values of a restricted table that are gathered together
MAX_TABLE_BITS = 30  # 2^30 values are 128 MiB packed


# ---------------------------------------------------------------- kernels: functions of a few inputs


@dataclass(frozen=True, eq=False)
class Symmetric:
    """A function of the number of ones: ``values[w]`` on every string with ``w`` ones."""

    values: Bits

    @property
    def arity(self) -> int:
        return len(self.values) - 1

    def evaluate(self, bits: Bits) -> Bits:
        return np.asarray(self.values[bits.sum(axis=-1, dtype=np.int64)])

    def negated(self) -> Symmetric:
        return Symmetric(1 - self.values)

    @cached_property
    def kind(self) -> str:
        """One of "and", "or", "xor", "xnor" (odd and even number of ones), or "" for any other vector."""
        values, arity = self.values, self.arity
        if arity and values.sum() == 1 and values[-1]:
            return "and"
        if arity and values.sum() == arity and not values[0]:
            return "or"
        if np.array_equal(values, np.arange(arity + 1) % 2):
            return "xor"
        if np.array_equal(values, (np.arange(arity + 1) + 1) % 2):
            return "xnor"
        return ""


@dataclass(frozen=True, eq=False)
class Table:
    """A packed truth table on ``arity`` bits."""

    arity: int
    words: Words

    def evaluate(self, bits: Bits) -> Bits:
        index = np.zeros(bits.shape[:-1], np.int64)
        for j in range(self.arity):
            index |= bits[..., j].astype(np.int64) << j
        return self.lookup(index)

    def lookup(self, index: NDArray[np.int64]) -> Bits:
        """Values on the strings with these indices."""
        shifted = self.words[index >> 6] >> (index & 63).astype(np.uint64)
        return np.asarray(shifted & np.uint64(1), np.uint8)

    def negated(self) -> Table:
        return Table(self.arity, ~self.words)


@dataclass(frozen=True, eq=False)
class Call:
    """A user's callable on 0/1 arrays of shape (strings, arity), checked at every call."""

    arity: int
    function: Oracle
    name: str = "the callable"
    origin: tuple[str, dict[str, int]] | None = None  # the zoo function and arguments that made it, if one did
    by_index: Callable[[Words], Bits] | None = None  # the same from string indices, where that is faster

    def evaluate(self, bits: Bits) -> Bits:
        flat = np.array(bits.reshape(-1, self.arity), order="C")  # a copy: the callable may write to it
        try:
            values = self.function(flat)
        except InputError:
            raise
        except Exception as error:
            reason = " ".join(f"{type(error).__name__} {error}".split()).replace(". ", ", ").rstrip(".")
            raise InputError(f"{self.name} failed on {len(flat)} strings with {reason}.") from error
        return checked_values(values, len(flat), self.name).reshape(bits.shape[:-1])


Kernel: TypeAlias = Symmetric | Table | Call


def real_table(values: Any) -> NDArray[Any]:
    """The values as a vector of 2^n finite real numbers; InputError where they are not."""
    array = as_array(values, "the table")
    if array.ndim != 1 or array.size == 0 or array.size & (array.size - 1):
        raise InputError(f"a table must have one axis of length 2^n; this one has shape {array.shape}.")
    if array.dtype.kind not in "biuf":
        raise InputError(f"a table must hold real numbers; this one holds values of type {array.dtype}.")
    if not np.isfinite(array).all():
        raise InputError("a table must hold finite numbers; this one holds NaN or infinity.")
    return array


def checked_values(values: Any, count: int, name: str) -> Bits:
    """The oracle's answer as uint8 0/1; InputError where it is not."""
    array = as_array(values, name)
    if array.shape != (count,):
        raise InputError(
            f"{name} returned an array of shape {array.shape} for {count} strings; return one value per string."
        )
    if array.dtype == object or not (np.issubdtype(array.dtype, np.number) or array.dtype == np.bool_):
        raise InputError(f"{name} returned values of type {array.dtype}; return 0 or 1 for every string.")
    bad = ~((array == 0) | (array == 1))
    if bad.any():
        raise InputError(f"{name} returned {array[bad][0]} for a string; return 0 or 1 for every string.")
    return array.astype(np.uint8)


# ---------------------------------------------------------------- nodes: kernels applied to variables or nodes


@dataclass(frozen=True, eq=False)
class Const:
    """The constant 0 or 1."""

    value: int
    depth = 0
    support: tuple[int, ...] = ()
    has_call = False


@dataclass(frozen=True, eq=False)
class Leaf:
    """A kernel applied to distinct variables, in the kernel's order."""

    kernel: Kernel
    positions: tuple[int, ...]
    depth = 1

    @cached_property
    def support(self) -> tuple[int, ...]:
        return tuple(sorted(self.positions))

    @property
    def has_call(self) -> bool:
        return isinstance(self.kernel, Call)


@dataclass(frozen=True, eq=False)
class Gate:
    """A kernel applied to the values of other nodes."""

    kernel: Kernel
    children: tuple[Node, ...]
    depth: int
    support: tuple[int, ...]
    has_call: bool


Node: TypeAlias = Const | Leaf | Gate

_IDENTITY = Symmetric(np.array([0, 1], np.uint8))
_NEGATION = Symmetric(np.array([1, 0], np.uint8))


def variable(position: int) -> Leaf:
    """The node that is the variable at this position."""
    return Leaf(_IDENTITY, (position,))


def zoo_call(
    name: str,
    arguments: dict[str, int],
    arity: int,
    function: Oracle,
    by_index: Callable[[Words], Bits] | None = None,
) -> Leaf:
    """A leaf that computes a zoo function by code, and remembers its name so that it can be saved and compared."""
    return Leaf(Call(arity, function, name, (name, arguments), by_index), tuple(range(arity)))


def _variable_of(node: Node) -> int | None:
    if isinstance(node, Leaf) and isinstance(node.kernel, Symmetric) and node.kernel.arity == 1:
        return node.positions[0] if node.kernel.values[1] and not node.kernel.values[0] else None
    return None


def negate(node: Node) -> Node:
    """The negation of a node."""
    if isinstance(node, Const):
        return Const(1 - node.value)
    if isinstance(node.kernel, Call):
        return Gate(_NEGATION, (node,), node.depth + 1, node.support, True)
    if isinstance(node, Leaf):
        return Leaf(node.kernel.negated(), node.positions)
    if isinstance(node.kernel, Symmetric) and node.kernel.arity == 1:
        return node.children[0]
    return Gate(node.kernel.negated(), node.children, node.depth, node.support, node.has_call)


def apply(kernel: Kernel, children: Sequence[Node]) -> Node:
    """The kernel applied to the children, simplified: constants folded, nested and/or/xor flattened."""
    if kernel.arity != len(children):
        raise InputError(f"a function of {kernel.arity} bits was given {len(children)} inputs.")
    if isinstance(kernel, Symmetric):
        return _apply_symmetric(kernel, children)
    if isinstance(kernel, Table) and any(isinstance(child, Const) for child in children):
        fixed = {j: child.value for j, child in enumerate(children) if isinstance(child, Const)}
        kept = [child for child in children if not isinstance(child, Const)]
        return apply(restrict_table(kernel, fixed), kept)
    if isinstance(kernel, Table) and kernel.arity == 0:
        return Const(int(kernel.words[0] & np.uint64(1)))
    return _gate(kernel, children)


def _apply_symmetric(kernel: Symmetric, children: Sequence[Node]) -> Node:
    ones = sum(child.value for child in children if isinstance(child, Const))
    kept = [child for child in children if not isinstance(child, Const)]
    values = kernel.values[ones : ones + len(kept) + 1]
    if not values.any() or values.all():
        return Const(int(values[0]))
    if len(kept) == 1:
        return kept[0] if values[1] else negate(kept[0])
    kernel = Symmetric(values)
    if kernel.kind in ("xor", "xnor"):
        return _flatten_xor(kept, flip=kernel.kind == "xnor")
    if kernel.kind in ("and", "or"):
        return _flatten_lattice(kernel.kind, kept)
    return _gate(kernel, kept)


def _acts_as(node: Node, kind: str) -> bool:
    """Whether the node is an and/or/xor of its inputs; one variable alone acts as any of the three."""
    if isinstance(node, Const) or not isinstance(node.kernel, Symmetric):
        return False
    return node.kernel.kind == kind or (kind in ("and", "or", "xor") and _variable_of(node) is not None)


def _flatten_xor(children: Sequence[Node], *, flip: bool) -> Node:
    """Parity of the children (flipped or not): a variable that occurs twice cancels."""
    odd: dict[int, None] = {}
    others: dict[int, Node] = {}  # by identity: a node that occurs twice cancels too
    for child in children:
        flip ^= _acts_as(child, "xnor")
        nested = _acts_as(child, "xor") or _acts_as(child, "xnor")
        for part in child.children if nested and isinstance(child, Gate) else (child,):
            if not (isinstance(part, Leaf) and (_acts_as(part, "xor") or (part is child and nested))):
                if others.pop(id(part), None) is None:
                    others[id(part)] = part
                continue
            for position in part.support:
                if position in odd:
                    del odd[position]
                else:
                    odd[position] = None
    parts = ([Leaf(xor_kernel(len(odd)), tuple(odd))] if odd else []) + list(others.values())
    if not parts:
        return Const(int(flip))
    node = parts[0] if len(parts) == 1 else _gate(xor_kernel(len(parts)), parts)
    return negate(node) if flip else node


def _flatten_lattice(kind: str, children: Sequence[Node]) -> Node:
    """And (or Or) of the children: a variable that occurs twice counts once."""
    seen: dict[int, None] = {}
    others: dict[int, Node] = {}
    for child in children:
        for part in child.children if isinstance(child, Gate) and _acts_as(child, kind) else (child,):
            if isinstance(part, Leaf) and _acts_as(part, kind):
                seen.update(dict.fromkeys(part.support))
            else:
                others[id(part)] = part
    make = and_kernel if kind == "and" else or_kernel
    parts = ([Leaf(make(len(seen)), tuple(seen))] if seen else []) + list(others.values())
    return parts[0] if len(parts) == 1 else _gate(make(len(parts)), parts)


def _gate(kernel: Kernel, children: Sequence[Node]) -> Node:
    variables = [_variable_of(child) for child in children]
    if None not in variables and len(set(variables)) == len(variables):
        return Leaf(kernel, tuple(v for v in variables if v is not None))
    merged = _merged(kernel, children)
    if merged is not None:
        return merged
    depth = 1 + max((child.depth for child in children), default=0)
    if depth > MAX_DEPTH:
        raise InputError(f"the function is nested more than {MAX_DEPTH} deep; build it from a table or a callable.")
    support = tuple(sorted(set().union(*(child.support for child in children))))
    has_call = isinstance(kernel, Call) or any(child.has_call for child in children)
    return Gate(kernel, tuple(children), depth, support, has_call)


def _merged(kernel: Kernel, children: Sequence[Node]) -> Node | None:
    """A gate over symmetric functions of the same variables is itself a symmetric function of them."""
    first = children[0]
    if isinstance(kernel, Call) or not isinstance(first, Leaf):
        return None
    vectors = []
    for child in children:
        if not isinstance(child, Leaf) or not isinstance(child.kernel, Symmetric) or child.support != first.support:
            return None
        vectors.append(child.kernel.values)
    values = kernel.evaluate(np.stack(vectors, axis=-1))  # one value for each number of ones
    if values.all() or not values.any():
        return Const(int(values[0]))
    return Leaf(Symmetric(values), first.positions)


def and_kernel(arity: int) -> Symmetric:
    """And of ``arity`` bits."""
    return Symmetric((np.arange(arity + 1) == arity).astype(np.uint8))


def or_kernel(arity: int) -> Symmetric:
    """Or of ``arity`` bits."""
    return Symmetric((np.arange(arity + 1) > 0).astype(np.uint8))


def xor_kernel(arity: int) -> Symmetric:
    """Parity of ``arity`` bits: 1 when the number of ones is odd."""
    return Symmetric((np.arange(arity + 1) % 2).astype(np.uint8))


def restrict_table(table: Table, fixed: Mapping[int, int]) -> Table:
    """The table on the remaining bits, in order, after fixing some."""
    free = [j for j in range(table.arity) if j not in fixed]
    base = sum(value << j for j, value in fixed.items())
    size = 1 << len(free)
    words = []
    for start in range(0, size, RESTRICT_BLOCK):
        new = np.arange(start, min(start + RESTRICT_BLOCK, size), dtype=np.int64)
        index = np.full(len(new), base, np.int64)
        for place, j in enumerate(free):
            index |= ((new >> place) & 1) << j
        words.append(pack(table.lookup(index)))
    return Table(len(free), np.concatenate(words))


def post_order(node: Node) -> list[Node]:
    """Every node below this one and itself, children first, each once however often it is shared."""
    order: list[Node] = []
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(node, False)]
    while stack:
        current, ready = stack.pop()
        if ready:
            order.append(current)
        elif id(current) not in seen:
            seen.add(id(current))
            stack.append((current, True))
            if isinstance(current, Gate):
                stack.extend((child, False) for child in reversed(current.children))
    return order


def substitute(node: Node, replacement: Callable[[int], Node]) -> Node:
    """The node with every variable replaced by another node."""
    done: dict[int, Node] = {}
    for current in post_order(node):
        if isinstance(current, Const):
            done[id(current)] = current
        elif isinstance(current, Leaf):
            done[id(current)] = apply(current.kernel, [replacement(p) for p in current.positions])
        else:
            done[id(current)] = apply(current.kernel, [done[id(child)] for child in current.children])
    return done[id(node)]


def evaluate(node: Node, bits: Bits) -> Bits:
    """Values of the node on an array of strings (last axis = position)."""
    done: dict[int, Bits] = {}
    for current in post_order(node):
        if isinstance(current, Const):
            done[id(current)] = np.full(bits.shape[:-1], current.value, np.uint8)
        elif isinstance(current, Leaf):
            width = len(current.positions)
            whole = width == bits.shape[-1] and current.positions == tuple(range(width))
            done[id(current)] = current.kernel.evaluate(bits if whole else bits[..., list(current.positions)])
        else:
            inputs = np.stack([done[id(child)] for child in current.children], axis=-1)
            done[id(current)] = current.kernel.evaluate(inputs)
    return done[id(node)]
