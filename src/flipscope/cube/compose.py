"""One walk over a function's structure, for every exact analysis.

An analysis has methods for a constant, a symmetric function and a truth table, and one to combine parts that share no
variable; ``analyse`` finds where each applies. A function without usable structure becomes a truth table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from flipscope.basics.bits import Bits, Words, index_bits
from flipscope.basics.errors import InputError
from flipscope.basics.progress import Progress
from flipscope.cube.blocks import table_words
from flipscope.cube.structure import Call, Const, Gate, Leaf, Node, Symmetric, and_kernel, apply, or_kernel, xor_kernel

Answer = TypeVar("Answer")

MAX_GATE_INPUTS = 12  # a gate that is not and/or/xor is combined by running over its 2^k inputs


class NotExact(InputError):
    """No exact method fits this function; the sentence says which limit it exceeds."""


@runtime_checkable
class Analysis(Protocol[Answer]):
    """The interface of an exact analysis."""

    max_table_bits: int
    name: str

    def constant(self, value: int) -> Answer: ...

    def symmetric(self, values: Bits, positions: tuple[int, ...]) -> Answer: ...

    def table(self, words: Words, positions: tuple[int, ...]) -> Answer: ...

    def combine(self, outer: Bits, parts: Sequence[Answer]) -> Answer:
        """The answer for a gate with truth vector ``outer`` (length 2^k) over k parts that share no variable."""
        ...


def analyse(node: Node, analysis: Analysis[Answer], progress: Progress | None = None) -> Answer:
    """The analysis' answer for this node over the variables of its support."""
    if isinstance(node, Const):
        return analysis.constant(node.value)
    if isinstance(node, Leaf):
        if isinstance(node.kernel, Symmetric):
            return analysis.symmetric(node.kernel.values, node.positions)
        return _tabulate(node, analysis, progress)
    if isinstance(node.kernel, Symmetric) and node.kernel.kind:
        return _associative(node, analysis, progress)
    if _disjoint(node.children) and node.kernel.arity <= MAX_GATE_INPUTS and not isinstance(node.kernel, Call):
        outer = node.kernel.evaluate(index_bits(0, 1 << node.kernel.arity, node.kernel.arity))
        return analysis.combine(outer, [analyse(child, analysis, progress) for child in node.children])
    return _tabulate(node, analysis, progress)


def _tabulate(node: Node, analysis: Analysis[Answer], progress: Progress | None) -> Answer:
    width = len(node.support)
    if width > analysis.max_table_bits:
        raise NotExact(
            f"{analysis.name} of {width} bits without a closed form would need a truth table, and those are kept to "
            f"{analysis.max_table_bits} bits; sample instead (--strings M, or flipscope.cube.estimate)."
        )
    return analysis.table(table_words(node, progress), node.support)


def _associative(gate: Gate, analysis: Analysis[Answer], progress: Progress | None) -> Answer:
    """And, or, xor: children are grouped into components that share no variable, and the components folded."""
    assert isinstance(gate.kernel, Symmetric)
    kind = gate.kernel.kind
    if len(gate.children) == 1:  # a negated callable
        return _tabulate(gate, analysis, progress)
    make = {"and": and_kernel, "or": or_kernel}.get(kind, xor_kernel)
    answers = []
    for group in components(gate.children):
        joined = apply(make(len(group)), group)
        shared = isinstance(joined, Gate) and len(group) > 1
        answers.append(_tabulate(joined, analysis, progress) if shared else analyse(joined, analysis, progress))
    outer = make(2).evaluate(index_bits(0, 4, 2))
    while len(answers) > 1:  # pairwise, as a balanced tree: the long integers stay short for longest
        paired = [analysis.combine(outer, answers[i : i + 2]) for i in range(0, len(answers) - 1, 2)]
        answers = paired + answers[2 * len(paired) :]
    return analysis.combine(np.array([1, 0], np.uint8), answers) if kind == "xnor" else answers[0]


def _disjoint(children: Sequence[Node]) -> bool:
    union = set().union(*(child.support for child in children))
    return len(union) == sum(len(child.support) for child in children)


def components(children: Sequence[Node]) -> list[list[Node]]:
    """The children grouped so that two groups share no variable, in order of first appearance."""
    owner: dict[int, int] = {}
    groups: dict[int, list[Node]] = {}
    for number, child in enumerate(children):
        touched = sorted({owner[position] for position in child.support if position in owner})
        merged = [node for old in touched for node in groups.pop(old)] + [child]
        target = touched[0] if touched else number
        groups[target] = merged
        for node in merged if len(touched) > 1 else [child]:
            owner.update(dict.fromkeys(node.support, target))
    return [groups[key] for key in sorted(groups)]
