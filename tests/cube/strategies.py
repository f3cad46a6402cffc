"""Random Boolean functions of every construction, each together with its table made from plain values alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from cube.reference import Table, index_of, strings, tabulate
from hypothesis import strategies as st

from flipscope.cube import functions
from flipscope.cube.functions import BooleanFunction

Draw = st.DrawFn


@dataclass(frozen=True)
class Built:
    """A function and the values that its construction promises."""

    f: BooleanFunction
    table: Table
    how: str

    @property
    def n(self) -> int:
        return self.f.n

    def __repr__(self) -> str:
        digits = "".join(map(str, self.table))
        return f"{self.how} [n={self.n} table {digits if len(digits) <= 64 else hex(int(digits[::-1], 2))}]"


@cache
def tables(n: int) -> st.SearchStrategy[Table]:
    """Any truth table of n bits; sparse and dense ones more often than by chance."""
    size = 2**n
    any_table = st.integers(0, 2**size - 1)
    few = st.lists(st.integers(0, size - 1), max_size=4).map(lambda ones: sum({1 << i for i in ones}))
    flipped = few.map(lambda ones: ones ^ (2**size - 1))
    return st.one_of(any_table, few, flipped).map(lambda number: [(number >> i) & 1 for i in range(size)])


@st.composite
def _from_table(draw: Draw, n: int) -> Built:
    table = draw(tables(n))
    number = sum(bit << i for i, bit in enumerate(table))
    how = draw(st.sampled_from(["array", "integer", "bytes", "words", "callable", "list"]))
    if how == "array":
        f = BooleanFunction.from_table(np.array(table, draw(st.sampled_from(["u1", "i8", "f4", "?"]))))
    elif how == "list":
        f = BooleanFunction.from_table(table, n)
    elif how == "integer":
        f = BooleanFunction.from_table(number, n)
    elif how == "bytes":
        f = BooleanFunction.from_table(number.to_bytes(max(1, 2**n // 8), "little"), n)
    elif how == "words":
        filled = np.array(table * max(1, 64 // 2**n), np.uint8)
        f = BooleanFunction.from_words(np.packbits(filled, bitorder="little").view("<u8").astype(np.uint64), n)
    else:
        values = np.array(table)
        f = BooleanFunction.from_callable(lambda bits: values[bits.astype(int) @ (2 ** np.arange(n))], n)
    return Built(f, table, how)


@st.composite
def _symmetric(draw: Draw, n: int) -> Built:
    values = draw(st.lists(st.integers(0, 1), min_size=n + 1, max_size=n + 1))
    return Built(BooleanFunction.symmetric(values), tabulate(lambda x: values[sum(x)], n), f"symmetric {values}")


@st.composite
def _junta(draw: Draw, n: int) -> Built:
    inner = draw(built(draw(st.integers(1, min(n, 5))), depth=0))
    positions = draw(st.permutations(range(n)))[: inner.n]
    table = tabulate(lambda x: inner.table[index_of(x[p] for p in positions)], n)
    return Built(BooleanFunction.junta(inner.f, positions, n), table, f"junta({inner.how}, {positions})")


@st.composite
def _simple(draw: Draw, n: int) -> Built:
    if draw(st.booleans()):
        value = draw(st.integers(0, 1))
        return Built(BooleanFunction.constant(value, n), [value] * 2**n, f"constant {value}")
    position = draw(st.integers(0, n - 1))
    return Built(BooleanFunction.variable(position, n), tabulate(lambda x: x[position], n), f"variable {position}")


@st.composite
def zoo(draw: Draw, n: int) -> Built:
    """A named function and its definition in words."""
    m, k, seed = draw(st.integers(1, n)), draw(st.integers(0, n + 1)), draw(st.integers(0, 99))
    makers = makers_by_name(n, m, k, seed)
    name = draw(st.sampled_from(sorted(makers)))
    f = makers[name]()
    return Built(f, zoo_values(name, f, m, k), name)


def makers_by_name(n: int, m: int, k: int, seed: int) -> dict[str, Callable[[], BooleanFunction]]:
    """How to make each function of the zoo on n bits."""
    makers = {
        "parity": lambda: functions.parity(n),
        "majority": lambda: functions.majority(n),
        "first": lambda: functions.first(n),
        "dictator": lambda: functions.dictator(m - 1, n),
        "conjunction": lambda: functions.conjunction(n),
        "disjunction": lambda: functions.disjunction(n),
        "threshold": lambda: functions.threshold(k, n),
        "tribes": lambda: functions.tribes(n, m),
        "sparse_parity": lambda: functions.sparse_parity(m, n, seed),
        "sparse_majority": lambda: functions.sparse_majority(m, n, seed),
        "random": lambda: functions.random(n, seed),
        "random_symmetric": lambda: functions.random_symmetric(n, seed),
        "random_junta": lambda: functions.random_junta(m, n, seed),
    }
    return makers | ({"address": lambda: functions.address(n // 3)} if n in (3, 6) else {})


def zoo_values(name: str, f: BooleanFunction, m: int, k: int) -> Table:
    """The values of a zoo function from its definition; of the random ones, from the function itself."""
    n, where = f.n, f.support
    rules = {
        "parity": lambda x: sum(x) % 2 == 1,
        "majority": lambda x: sum(x) > n - sum(x),
        "first": lambda x: x[0],
        "dictator": lambda x: x[m - 1],
        "conjunction": all,
        "disjunction": any,
        "threshold": lambda x: sum(x) >= k,
        "tribes": lambda x: any(all(x[i * m : (i + 1) * m]) for i in range(n // m)),
        "sparse_parity": lambda x: sum(x[p] for p in where) % 2,
        "sparse_majority": lambda x: 2 * sum(x[p] for p in where) > m,
        "address": lambda x: x[2 + x[0] + 2 * x[1]] if n == 6 else x[1 + x[0]],
    }
    if name in rules:
        return tabulate(rules[name], n)
    return [int(value) for value in f(np.array(strings(n), np.uint8))]


# ---------------------------------------------------------------- constructions from others


@st.composite
def _combined(draw: Draw, n: int, depth: int) -> Built:
    a = draw(built(n, depth - 1))
    if draw(st.integers(0, 3)) == 0:
        return Built(~a.f, [1 - v for v in a.table], f"~({a.how})")
    b = a if draw(st.integers(0, 5)) == 0 else draw(built(n, depth - 1))
    sign = draw(st.sampled_from("&|^"))
    pairs = zip(a.table, b.table, strict=True)
    if sign == "&":
        return Built(a.f & b.f, [x & y for x, y in pairs], f"({a.how} & {b.how})")
    if sign == "|":
        return Built(a.f | b.f, [x | y for x, y in pairs], f"({a.how} | {b.how})")
    return Built(a.f ^ b.f, [x ^ y for x, y in pairs], f"({a.how} ^ {b.how})")


@st.composite
def _gate(draw: Draw, n: int, depth: int) -> Built:
    children = draw(st.lists(built(n, depth - 1), min_size=1, max_size=4))
    values = draw(st.lists(st.integers(0, 1), min_size=len(children) + 1, max_size=len(children) + 1))
    table = [values[sum(column)] for column in zip(*(child.table for child in children), strict=True)]
    names = ", ".join(child.how for child in children)
    return Built(functions.gate(values, [child.f for child in children]), table, f"gate({values}, {names})")


@st.composite
def _composed(draw: Draw, n: int, depth: int) -> Built:
    outer = draw(built(draw(st.integers(1, 4)), depth - 1))
    inners = draw(st.lists(built(n, depth - 1), min_size=outer.n, max_size=outer.n))
    columns = zip(*(inner.table for inner in inners), strict=True)
    names = ", ".join(inner.how for inner in inners)
    f = outer.f.compose([inner.f for inner in inners])
    return Built(f, [outer.table[index_of(column)] for column in columns], f"{outer.how} of ({names})")


@st.composite
def _restricted(draw: Draw, n: int, depth: int) -> Built:
    extra = draw(st.integers(1, 2))
    whole = draw(built(n + extra, depth - 1))
    fixed = {p: draw(st.integers(0, 1)) for p in draw(st.permutations(range(n + extra)))[:extra]}
    free = [p for p in range(n + extra) if p not in fixed]

    def value(x: tuple[int, ...]) -> int:
        string = {**fixed, **dict(zip(free, x, strict=True))}
        return whole.table[index_of(string[p] for p in range(n + extra))]

    return Built(whole.f.restrict(fixed), tabulate(value, n), f"{whole.how} at {fixed}")


@st.composite
def _permuted(draw: Draw, n: int, depth: int) -> Built:
    inner = draw(built(n, depth - 1))
    order = draw(st.permutations(range(n)))
    table = tabulate(lambda x: inner.table[index_of(x[p] for p in order)], n)
    return Built(inner.f.permute(order), table, f"{inner.how} permuted {order}")


@st.composite
def _disjoint(draw: Draw, n: int, depth: int) -> Built:
    """A gate over parts that share no variable: where answers compose."""
    cuts = sorted(draw(st.sets(st.integers(1, n - 1), max_size=4))) if n > 1 else []
    bounds = list(zip([0, *cuts], [*cuts, n], strict=True))
    parts = [draw(built(last - first, depth - 1)) for first, last in bounds]
    order = draw(st.permutations(range(n)))
    where = [order[first:last] for first, last in bounds]
    k = len(parts)
    # and, or, xor and their complements have their own way; the others go through all inputs of the gate
    known = [[0] * k + [1], [0] + [1] * k, [i % 2 for i in range(k + 1)]]
    vector = draw(st.one_of(st.sampled_from(known), st.lists(st.integers(0, 1), min_size=k + 1, max_size=k + 1)))
    values = vector if draw(st.booleans()) else [1 - v for v in vector]
    children = [part.f.extend(n, place) for part, place in zip(parts, where, strict=True)]

    def value(x: tuple[int, ...]) -> int:
        ones = (part.table[index_of(x[p] for p in place)] for part, place in zip(parts, where, strict=True))
        return values[sum(ones)]

    names = ", ".join(f"{part.how} on {place}" for part, place in zip(parts, where, strict=True))
    return Built(functions.gate(values, children), tabulate(value, n), f"gate({values}, {names})")


@st.composite
def _overlapping(draw: Draw, n: int) -> Built:
    """And, or, exclusive or of many small parts that share variables here and there."""
    wheres = draw(
        st.lists(st.lists(st.integers(0, n - 1), min_size=1, max_size=3, unique=True), min_size=2, max_size=6)
    )
    inners = [draw(tables(len(where))) for where in wheres]
    k = len(wheres)
    values = draw(st.sampled_from([[0] * k + [1], [0] + [1] * k, [i % 2 for i in range(k + 1)]]))
    parts = [BooleanFunction.from_table(inner).extend(n, where) for inner, where in zip(inners, wheres, strict=True)]

    def value(x: tuple[int, ...]) -> int:
        ones = (inner[index_of(x[p] for p in where)] for inner, where in zip(inners, wheres, strict=True))
        return values[sum(ones)]

    return Built(functions.gate(values, parts), tabulate(value, n), f"gate({values}, tables on {wheres})")


@st.composite
def repeated(draw: Draw, n: int) -> Built:
    """A gate over a part, its twin or complement, and another part: the first may cancel, and lose its variables."""
    order = draw(st.permutations(range(n)))
    size = draw(st.integers(min(2, n), n))
    values = draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    values.append(1 - values[0])  # not constant
    table = tabulate(lambda x: values[sum(x[p] for p in order[:size])], n)
    once, again = (BooleanFunction.symmetric(values).extend(n, order[:size]) for _ in range(2))
    parts = [Built(once, table, f"symmetric {values} on {order[:size]}")]
    if draw(st.booleans()):
        parts.append(Built(~again, [1 - v for v in table], "its complement"))
    else:
        parts.append(Built(again, table, "itself"))
    apart = order[size:] if draw(st.booleans()) else order[size - 1 :]  # or sharing a variable with it
    if apart:
        other = draw(built(len(apart), depth=0))
        placed = tabulate(lambda x: other.table[index_of(x[p] for p in apart)], n)
        parts.append(Built(other.f.extend(n, apart), placed, f"{other.how} on {apart}"))
    whole = _grouped(draw, parts)
    return _grouped(draw, [whole, *parts[1:]]) if draw(st.booleans()) else whole


def _grouped(draw: Draw, children: list[Built]) -> Built:
    """And, or, exclusive or, their complements, and now and then another symmetric function of the children."""
    k = len(children)
    known = [[0] * k + [1], [0] + [1] * k, [i % 2 for i in range(k + 1)]]
    any_vector = st.lists(st.integers(0, 1), min_size=k + 1, max_size=k + 1)
    values = draw(st.sampled_from([*known, [1 - v for v in draw(st.sampled_from(known))], draw(any_vector)]))
    table = [values[sum(column)] for column in zip(*(child.table for child in children), strict=True)]
    names = ", ".join(child.how for child in children)
    return Built(functions.gate(values, [child.f for child in children]), table, f"gate({values}, {names})")


@cache
def built(n: int, depth: int = 2) -> st.SearchStrategy[Built]:
    """A function of n bits by any construction, nested up to this depth."""
    plain = [_from_table(n), _symmetric(n), _simple(n), zoo(n)]
    if depth <= 0:
        return st.one_of(plain)
    nested = [_junta(n), _combined(n, depth), _gate(n, depth), _composed(n, depth), _permuted(n, depth)]
    smaller = [_restricted(n, depth)] if n <= 8 else []  # its table has more bits
    return st.one_of([*plain, *nested, _disjoint(n, depth), _overlapping(n), repeated(n), *smaller])


def any_function(least: int = 1, most: int = 10, depth: int = 2) -> st.SearchStrategy[Built]:
    """A function by any construction, n from ``least`` to ``most``."""
    return st.integers(least, most).flatmap(lambda n: built(n, depth))


def string_arrays(n: int) -> st.SearchStrategy[np.ndarray]:
    """A few strings of n bits as rows."""
    return st.lists(st.sampled_from(strings(n)), min_size=1, max_size=4).map(lambda rows: np.array(rows, np.uint8))
