"""The list of named functions, for people: how each is written, what it means, and an example."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One named function."""

    name: str
    usage: str
    meaning: str
    example: str


ZOO = (
    Entry("parity", "parity(n)", "the number of ones is odd", "parity(20)"),
    Entry("majority", "majority(n)", "more than half of the bits are 1", "majority(21)"),
    Entry("first", "first(n)", "the first bit is 1", "first(20)"),
    Entry("dictator", "dictator(position, n)", "the bit at the position is 1", "dictator(3, n=20)"),
    Entry(
        "sparse_parity",
        "sparse_parity(m, n, seed)",
        "the parity of m random bits is odd",
        "sparse_parity(3, n=40)",
    ),
    Entry(
        "sparse_majority",
        "sparse_majority(m, n, seed)",
        "most of m random bits are 1",
        "sparse_majority(5, n=100)",
    ),
    Entry("conjunction", "conjunction(n)", "all bits are 1", "conjunction(10)"),
    Entry("disjunction", "disjunction(n)", "some bit is 1", "disjunction(10)"),
    Entry("threshold", "threshold(k, n)", "at least k bits are 1", "threshold(5, n=20)"),
    Entry("tribes", "tribes(n, width)", "some tribe of neighbours is all 1", "tribes(24)"),
    Entry("address", "address(k)", "the bit that the first k bits name is 1", "address(3)"),
    Entry("random", "random(n, seed)", "a fair coin says so, string by string", "random(16)"),
    Entry(
        "random_symmetric",
        "random_symmetric(n, seed)",
        "a coin for each number of ones says so",
        "random_symmetric(20)",
    ),
    Entry(
        "random_junta",
        "random_junta(m, n, seed)",
        "a random function of m random bits is 1",
        "random_junta(5, n=100)",
    ),
    Entry("symmetric", "symmetric(v0, v1, ...)", "v_w is 1, for w ones", "symmetric(0, 1, 1, 0)"),
    Entry("table", "table(number, n)", "bit i of the number is 1, for string i", "table(0x96)"),
)
