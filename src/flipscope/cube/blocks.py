"""Packed truth tables of nodes, 64 strings per operation, streamed in blocks so that memory stays small."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from flipscope.basics.bits import FULL_WORD, Words, index_bits, pack, unpack
from flipscope.basics.errors import InputError
from flipscope.basics.limits import cores
from flipscope.basics.progress import Progress
from flipscope.cube.structure import MAX_TABLE_BITS, Const, Gate, Leaf, Node, Symmetric, Table, post_order

BLOCK_WORDS = 1 << 13  # 64 KiB of packed values: a gate's operands stay in cache
CALL_BLOCK_WORDS = 1 << 9  # 32,768 strings per call of the user's function
NODE_WORDS = 1 << 24  # words of all nodes of a block together, 128 MiB: many nodes make the blocks shorter


def table_words(node: Node, progress: Progress | None = None, positions: tuple[int, ...] | None = None) -> Words:
    """The packed truth table of a node over these positions (its support unless given): variable j is the j-th."""
    positions = node.support if positions is None else positions
    width = len(positions)
    if width > MAX_TABLE_BITS:
        raise InputError(
            f"a truth table over {width} relevant bits does not fit (at most {MAX_TABLE_BITS}); sample instead."
        )
    whole = _as_table(node, positions)
    if whole is not None:
        return whole
    total = max(1, 1 << width >> 6)
    words = np.empty(total, np.uint64)
    step = _block_words(node)
    starts = range(0, total, step)

    def fill(start: int) -> int:
        count = min(step, total - start)
        words[start : start + count] = block(node, positions, start, count)
        return count

    done = 0
    for count in _run(fill, starts, parallel=not node.has_call and total > 4 * step):
        done += count
        if progress is not None:
            progress(done * 64, total * 64)
    return words


def _block_words(node: Node) -> int:
    """How many words of the table to compute together, so that everything a block holds stays small."""
    nodes = post_order(node)
    room = NODE_WORDS // len(nodes)
    if node.has_call:  # its strings are unpacked, one byte per bit
        widest = max(current.kernel.arity for current in nodes if not isinstance(current, Const))
        room = min(room, CALL_BLOCK_WORDS, (1 << 20) // widest)
    return max(64, min(room, BLOCK_WORDS))


def _run(fill: Callable[[int], int], starts: range, *, parallel: bool) -> Iterator[int]:
    # A user's callable is called from one thread only: it may not be safe to call from two.
    if not parallel:
        yield from map(fill, starts)
        return
    with ThreadPoolExecutor(cores()) as pool:
        yield from pool.map(fill, starts)


def _as_table(node: Node, positions: tuple[int, ...]) -> Words | None:
    """The words of a leaf that already is a table over these positions in order."""
    if isinstance(node, Leaf) and isinstance(node.kernel, Table) and node.positions == positions:
        return node.kernel.words
    return None


def block(node: Node, positions: tuple[int, ...], start: int, count: int) -> Words:
    """Words start .. start + count - 1 of the node's packed truth table over these positions."""
    place = {position: j for j, position in enumerate(positions)}
    width = len(place)
    index = np.arange(start, start + count, dtype=np.uint64)

    def leaf_words(leaf: Leaf) -> Words:
        columns = [place[position] for position in leaf.positions]
        if isinstance(leaf.kernel, Symmetric):
            return _symmetric_words(leaf.kernel, columns, index)
        if isinstance(leaf.kernel, Table):
            return _gathered_words(leaf.kernel, columns, index)
        if leaf.kernel.by_index is not None and columns == list(range(width)) and width >= 6:
            return pack(leaf.kernel.by_index(np.arange(start * 64, (start + count) * 64, dtype=np.uint64)))
        bits = index_bits(start * 64, count * 64, max(width, 6))[:, columns]
        return pack(leaf.kernel.evaluate(bits))

    done: dict[int, Words] = {}
    for current in post_order(node):
        if isinstance(current, Const):
            done[id(current)] = np.full(count, FULL_WORD if current.value else 0, np.uint64)
        elif isinstance(current, Leaf):
            done[id(current)] = leaf_words(current)
        else:
            done[id(current)] = gate_words(current, [done[id(child)] for child in current.children])
    return done[id(node)]


def _symmetric_words(kernel: Symmetric, columns: list[int], index: Words) -> Words:
    """The number of ones is (ones among high columns: one number per word) + (ones among low ones: a pattern)."""
    low = [j for j in columns if j < 6]
    high_mask = sum(1 << (j - 6) for j in columns if j >= 6)
    inside = index_bits(0, 64, 6)[:, low].sum(axis=-1, dtype=np.int64)
    high_count = len(columns) - len(low)
    words = np.array([pack(kernel.values[ones + inside])[0] for ones in range(high_count + 1)], np.uint64)
    return np.asarray(words[np.bitwise_count(index & np.uint64(high_mask))])


def _gathered_words(kernel: Table, columns: list[int], index: Words) -> Words:
    """A table whose variables stand anywhere: gather its bits, 64 strings per word."""
    base = np.zeros(len(index), np.int64)
    inside = np.zeros(64, np.int64)
    within = index_bits(0, 64, 6).astype(np.int64)
    for j, column in enumerate(columns):
        if column < 6:
            inside |= within[:, column] << j
        else:
            base |= ((index >> np.uint64(column - 6)) & np.uint64(1)).astype(np.int64) << j
    return pack(kernel.lookup((base[:, None] | inside[None, :]).reshape(-1)))


def gate_words(gate: Gate, inputs: list[Words]) -> Words:
    """The kernel applied to packed children."""
    kernel = gate.kernel
    if not isinstance(kernel, Symmetric):
        return pack(kernel.evaluate(np.stack([unpack(words) for words in inputs], axis=-1)))
    if kernel.kind == "":
        return _counted_words(kernel, inputs)
    fold = {"and": np.bitwise_and, "or": np.bitwise_or}.get(kernel.kind, np.bitwise_xor)
    result = inputs[0].copy()
    for words in inputs[1:]:
        fold(result, words, out=result)
    return ~result if kernel.kind == "xnor" else result


def _counted_words(kernel: Symmetric, inputs: list[Words]) -> Words:
    """Bit-sliced counter: plane p holds bit p of the number of children that are one."""
    planes = [np.zeros_like(inputs[0]) for _ in range(kernel.arity.bit_length())]
    for words in inputs:
        carry = words
        for p, plane in enumerate(planes):
            planes[p], carry = plane ^ carry, plane & carry
    result = np.zeros_like(inputs[0])
    for ones in np.flatnonzero(kernel.values):
        match = np.full_like(result, FULL_WORD)
        for p, plane in enumerate(planes):
            match &= plane if (int(ones) >> p) & 1 else ~plane
        result |= match
    return result
