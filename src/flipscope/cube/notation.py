"""A Boolean function in words: as an expression, where it has one that is short enough to read.

>>> from flipscope.cube.expression import parse
>>> notation(parse("majority(5) ^ x6 & ~x7").node)
'xor(maj(x1..x5), and(x6, ~x7))'
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flipscope.basics.bits import unpack
from flipscope.basics.wording import count_text
from flipscope.cube.structure import Call, Const, Gate, Kernel, Leaf, Node, Symmetric, Table

MAX_TEXT = 100  # characters
MAX_TABLE_BITS = 6  # of a truth table that is written out
_RANGE = 3  # neighbours that become a range


def notation(node: Node) -> str:
    """The function as an expression (`cube.expression`); what has none is named by its kind and its bits."""
    text = _expression(node)
    if text is not None and len(text) <= MAX_TEXT:
        return text
    if isinstance(node, Gate):  # its kernel is a function of the parts, not of the bits
        what = f"gate of {count_text(len(node.children), 'part')}"
    else:
        what = type(node.kernel if isinstance(node, Leaf) else node).__name__.lower()
    return f"{what} on {count_text(len(node.support), 'bit')}"


def _expression(node: Node) -> str | None:
    """The expression of any length, or None."""
    if isinstance(node, Const):
        return str(node.value)
    if isinstance(node, Leaf):
        in_order = node.positions == tuple(range(len(node.positions)))
        return _applied(node.kernel, _variables(node.positions), len(node.positions), in_order)
    parts = [_expression(child) for child in node.children]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or sum(map(len, known)) > MAX_TEXT:
        return None
    return _applied(node.kernel, ", ".join(known), len(known), False)


def _applied(kernel: Kernel, arguments: str, count: int, in_order: bool) -> str | None:
    """A kernel applied to so many arguments, which are the first bits if they are in order."""
    if isinstance(kernel, Call):
        if kernel.origin is None or not in_order:
            return None
        name, given = kernel.origin
        return f"{name}({', '.join(f'seed={value}' if key == 'seed' else str(value) for key, value in given.items())})"
    if isinstance(kernel, Table):
        if not in_order or kernel.arity > MAX_TABLE_BITS:
            return None
        values = unpack(kernel.words)[: 1 << kernel.arity]
        number = sum(int(bit) << place for place, bit in enumerate(values))
        return f"table({number:#x}, n={kernel.arity})"
    return _symmetric(kernel, arguments, count, in_order)


def _symmetric(kernel: Symmetric, arguments: str, count: int, in_order: bool) -> str | None:
    values = kernel.values
    if count == 1 and values[0] != values[1]:
        return arguments if values[1] else f"~{arguments}"
    if kernel.kind:
        return f"~xor({arguments})" if kernel.kind == "xnor" else f"{kernel.kind}({arguments})"
    changes = np.flatnonzero(np.diff(values))
    if len(changes) == 1:
        least, negated = int(changes[0]) + 1, bool(values[0])
        plain = f"maj({arguments})" if least == count // 2 + 1 else f"thr({least}, {arguments})"
        if least == count:
            plain = f"and({arguments})"
        elif least == 1:
            plain = f"or({arguments})"
        return f"~{plain}" if negated else plain
    return f"symmetric({', '.join(map(str, values))})" if in_order else None


def _variables(positions: Sequence[int]) -> str:
    """The variables at these positions, with neighbours as ranges."""
    texts, begin = [], 0
    while begin < len(positions):
        end = begin
        while end + 1 < len(positions) and positions[end + 1] == positions[end] + 1:
            end += 1
        first, last = positions[begin] + 1, positions[end] + 1
        if end - begin + 1 >= _RANGE:
            texts.append(f"x{first}..x{last}")
        else:
            texts += [f"x{position + 1}" for position in positions[begin : end + 1]]
        begin = end + 1
    return ", ".join(texts)
