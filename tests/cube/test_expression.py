"""The expression language: meaning against an independent evaluator, precedence, sizes, error messages."""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from repetitions import repeated

from flipscope.basics.errors import InputError
from flipscope.cube import functions
from flipscope.cube.expression import MAX_NESTING, MAX_SYMBOLS, MAX_TEXT, ExpressionError, parse
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.structure import Leaf, Symmetric

Bits = tuple[int, ...]


def strings(n: int) -> list[Bits]:
    return list(itertools.product((0, 1), repeat=n))


def values(text: str, n: int | None = None) -> list[int]:
    """The values of an expression on all strings, x1 slowest."""
    function = parse(text, n)
    return [int(value) for value in function(np.array(strings(function.n), np.uint8))]


# ---------------------------------------------------------------- an evaluator of its own


@dataclass(frozen=True)
class Term:
    """A piece of an expression: an operator, call, variable or constant, with a meaning of its own."""

    kind: str  # an operator sign, "call", "variable", "constant", "range" or "zoo"
    parts: tuple[Term, ...] = ()
    value: int = 0  # of a constant, a variable's index, or the number that thr and tribes take first
    name: str = ""
    last: int = 0  # of a range
    meaning: Callable[[Bits], int] | None = None  # of a zoo function
    size: int = 0  # bits that a variable or zoo function needs


TIGHTNESS = {"<->": 1, "->": 2, "|": 3, "^": 4, "&": 5, "~": 6}
OTHER_SIGNS = {"<->": "↔", "->": "→", "|": "∨", "^": "⊕", "&": "∧", "~": "¬"}


def evaluate(term: Term, bits: Bits) -> int:
    if term.kind == "constant":
        return term.value
    if term.kind == "variable":
        return bits[term.value - 1]
    if term.kind == "zoo":
        assert term.meaning is not None
        return int(term.meaning(bits[: term.size]))
    inner: list[int] = []
    for part in term.parts:
        if part.kind == "range":
            inner += bits[part.value - 1 : part.last]
        else:
            inner.append(evaluate(part, bits))
    if term.kind == "call":
        return int(CALLS[term.name](term.value, inner))
    if term.kind == "~":
        return 1 - inner[0]
    if term.kind == "->":
        answer = inner[-1]
        for premise in reversed(inner[:-1]):
            answer = int(answer if premise else 1)
        return answer
    answer = inner[0]
    for other in inner[1:]:
        answer = {"&": answer & other, "|": answer | other, "^": answer ^ other, "<->": int(answer == other)}[term.kind]
    return answer


CALLS: dict[str, Callable[[int, list[int]], Any]] = {
    "and": lambda _, v: all(v),
    "conjunction": lambda _, v: all(v),
    "or": lambda _, v: any(v),
    "disjunction": lambda _, v: any(v),
    "xor": lambda _, v: sum(v) % 2,
    "parity": lambda _, v: sum(v) % 2,
    "maj": lambda _, v: sum(v) > len(v) - sum(v),
    "majority": lambda _, v: sum(v) > len(v) - sum(v),
    "thr": lambda k, v: sum(v) >= k,
    "threshold": lambda k, v: sum(v) >= k,
    "mux": lambda _, v: v[2] if v[0] else v[1],
    "tribes": lambda width, v: any(all(v[i * width : (i + 1) * width]) for i in range(len(v) // width)),
}


def bits_needed(term: Term) -> int:
    own = {"variable": term.value, "range": term.last, "zoo": term.size}.get(term.kind, 0)
    return max([own, *map(bits_needed, term.parts)])


def render(term: Term, choose: random.Random) -> str:
    """The term as text, with random spacing, letter case, signs and needless parentheses."""

    def space() -> str:
        return choose.choice(["", "", " ", "  ", "\n", "\t "])

    def sign(operator: str) -> str:
        return choose.choice([operator, operator, OTHER_SIGNS[operator]])

    def inside(part: Term, above: int) -> str:
        text = render(part, choose)
        if TIGHTNESS.get(part.kind, 7) < above or choose.random() < 0.15:
            return f"({space()}{text}{space()})"
        return text

    def argument(part: Term, bare: bool) -> str:
        if part.kind == "range":
            return f"x{part.value}{space()}..{space()}X{part.last}"
        if part.kind == "constant" and not bare:
            return f"({part.value})" if choose.random() < 0.5 else ("false", "true")[part.value]
        return render(part, choose)

    if term.kind == "variable":
        return f"{choose.choice('xX')}{term.value}"
    if term.kind == "constant":
        return choose.choice([str(term.value), ("false", "True")[term.value]])
    if term.kind == "zoo":
        return term.name
    if term.kind == "~":
        return sign("~") + space() + inside(term.parts[0], 6)
    if term.kind != "call":
        between = [f"{space()}{sign(term.kind)}{space()}" for _ in term.parts]
        pieces = [inside(part, TIGHTNESS[term.kind] + 1) for part in term.parts]
        return "".join(itertools.chain(*zip(between, pieces, strict=True)))[len(between[0]) :]
    # Bare 0 and 1 are constants only beside something that is not a bare number.
    bare = any(part.kind != "constant" for part in term.parts) or term.name == "mux"
    arguments = [argument(part, bare) for part in term.parts]
    if term.name in ("thr", "threshold", "tribes"):
        arguments.insert(0, str(term.value))
    name = choose.choice([term.name, term.name.upper()])
    return f"{name}{space()}({space()}{f'{space()},{space()}'.join(arguments)}{space()})"


def zoo(name: str, size: int, meaning: Callable[[Bits], Any]) -> Term:
    return Term("zoo", name=name, size=size, meaning=meaning)


ZOO = [
    zoo("parity(4)", 4, lambda b: sum(b) % 2),
    zoo("parity(1)", 1, lambda b: b[0]),
    zoo("XOR(n = 3)", 3, lambda b: sum(b) % 2),
    zoo("majority(5)", 5, lambda b: sum(b) >= 3),
    zoo("maj(4)", 4, lambda b: sum(b) >= 3),
    zoo("first(3)", 3, lambda b: b[0]),
    zoo("conjunction(3)", 3, all),
    zoo("and(0b10)", 2, all),
    zoo("disjunction(0x3)", 3, any),
    zoo("threshold(2, 4)", 4, lambda b: sum(b) >= 2),
    zoo("thr(n=3, k=0)", 3, lambda b: 1),
    zoo("dictator(2, n=4)", 4, lambda b: b[1]),
    zoo("dictator(3, 3)", 3, lambda b: b[2]),
    zoo("tribes(n=5, width=2)", 5, lambda b: (b[0] and b[1]) or (b[2] and b[3])),
    zoo("tribes(4, 1)", 4, any),
    zoo("address(1)", 3, lambda b: b[1 + b[0]]),
    zoo("symmetric(1, 0, 0, 1)", 3, lambda b: len(set(b)) == 1),
    zoo("table(0x96)", 3, lambda b: sum(b) % 2),
    zoo("table(0b0010)", 2, lambda b: b == (1, 0)),
    zoo("table(16, n=3)", 3, lambda b: b == (0, 0, 1)),
    zoo("table(0x1, 3)", 3, lambda b: b == (0, 0, 0)),
]

leaves = st.one_of(
    st.builds(lambda i: Term("variable", value=i), st.integers(1, 6)),
    st.builds(lambda b: Term("constant", value=b), st.integers(0, 1)),
    st.sampled_from(ZOO),
)
ranges = st.tuples(st.integers(1, 6), st.integers(1, 6)).map(
    lambda ends: Term("range", value=min(ends), last=max(ends))
)


def count(parts: Sequence[Term]) -> int:
    return sum(part.last - part.value + 1 if part.kind == "range" else 1 for part in parts)


@st.composite
def calls(draw: st.DrawFn, children: st.SearchStrategy[Term]) -> Term:
    name = draw(st.sampled_from(sorted(CALLS)))
    if name == "mux":
        return Term("call", tuple(draw(st.lists(children, min_size=3, max_size=3))), name=name)
    parts = tuple(draw(st.lists(st.one_of(children, ranges), min_size=1, max_size=4)))
    low, high = (1, count(parts)) if name == "tribes" else (0, count(parts) + 1)
    return Term("call", parts, value=draw(st.integers(low, high)), name=name)


def compound(children: st.SearchStrategy[Term]) -> st.SearchStrategy[Term]:
    chains = st.builds(
        lambda kind, parts: Term(kind, tuple(parts)),
        st.sampled_from(["<->", "->", "|", "^", "&"]),
        st.lists(children, min_size=2, max_size=4),
    )
    return st.one_of(chains, st.builds(lambda part: Term("~", (part,)), children), calls(children))


terms = st.recursive(leaves, compound, max_leaves=12)


@settings(max_examples=repeated(600, 150))
@given(terms, st.integers(0, 2**32))
def test_every_expression_means_what_an_independent_evaluator_says(term: Term, seed: int) -> None:
    text = render(term, random.Random(seed))
    function = parse(text)
    assert function.n == max(1, bits_needed(term))
    expected = [evaluate(term, bits) for bits in strings(function.n)]
    assert values(text) == expected


@settings(max_examples=100)
@given(terms, st.integers(0, 2**32), st.integers(0, 3))
def test_a_given_n_only_adds_bits_that_do_nothing(term: Term, seed: int, more: int) -> None:
    text = render(term, random.Random(seed))
    small = parse(text)
    large = parse(text, small.n + more)
    assert large.n == small.n + more
    assert large == small.extend(small.n + more)


# ---------------------------------------------------------------- operators


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("~x1 & x2", "(~x1) & x2"),
        ("~~~x1", "~x1"),
        ("x1 & x2 ^ x3", "(x1 & x2) ^ x3"),
        ("x1 ^ x2 & x3", "x1 ^ (x2 & x3)"),
        ("x1 ^ x2 | x3", "(x1 ^ x2) | x3"),
        ("x1 | x2 ^ x3", "x1 | (x2 ^ x3)"),
        ("x1 | x2 -> x3", "(x1 | x2) -> x3"),
        ("x1 -> x2 | x3", "x1 -> (x2 | x3)"),
        ("x1 -> x2 -> x3", "x1 -> (x2 -> x3)"),
        ("x1 -> x2 <-> x3", "(x1 -> x2) <-> x3"),
        ("x1 <-> x2 -> x3", "x1 <-> (x2 -> x3)"),
        ("x1 <-> x2 <-> x3", "(x1 <-> x2) <-> x3"),
        ("¬x1 ∧ x2 ⊕ x3 ∨ x4 → x5 ↔ x6", "((((~x1) & x2) ^ x3) | x4 -> x5) <-> x6"),
    ],
)
def test_precedence_and_association(text: str, means: str) -> None:
    assert values(text) == values(means)


@pytest.mark.parametrize(
    ("loose", "tight"),
    [
        ("x1 & x2 ^ x3", "x1 & (x2 ^ x3)"),
        ("x1 ^ x2 | x3", "x1 ^ (x2 | x3)"),
        ("x1 | x2 -> x3", "x1 | (x2 -> x3)"),
        ("x1 -> x2 -> x3", "(x1 -> x2) -> x3"),
        ("x1 -> x2 <-> x3", "x1 -> (x2 <-> x3)"),
    ],
)
def test_parentheses_change_the_meaning(loose: str, tight: str) -> None:
    assert values(loose) != values(tight)


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("x1 -> x2", [1, 1, 0, 1]),
        ("x1 <-> x2", [1, 0, 0, 1]),
        ("x1 ^ x2", [0, 1, 1, 0]),
        ("x1 & x2", [0, 0, 0, 1]),
        ("x1 | x2", [0, 1, 1, 1]),
        ("mux(x1, x2, ~x2)", [0, 1, 1, 0]),
        ("maj(x1, x2)", [0, 0, 0, 1]),
    ],
)
def test_truth_tables(text: str, table: list[int]) -> None:
    assert values(text) == table


@pytest.mark.parametrize("sign", ["&", "|", "^", "<->", "->"])
def test_a_long_chain_is_one_gate(sign: str) -> None:
    function = parse(f" {sign} ".join(f"x{i}" for i in range(1, 5001)))
    assert function.n == len(function.support) == 5000
    assert function.node.depth <= 2
    if sign in "&|^":
        assert isinstance(function.node, Leaf)
        assert isinstance(function.node.kernel, Symmetric)
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2, (20, 5000), dtype=np.uint8)
    bits[:4] = 1
    bits[1, 7] = bits[2, 4999] = bits[4] = 0
    expected = {
        "&": bits.all(axis=1),
        "|": bits.any(axis=1),
        "^": bits.sum(axis=1) % 2,
        "<->": 1 - bits.sum(axis=1) % 2,
        "->": bits[:, -1] | ~bits[:, :-1].all(axis=1),
    }[sign]
    assert function(bits).tolist() == expected.astype(int).tolist()


# ---------------------------------------------------------------- the zoo, and the number of bits


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("majority(21)", functions.majority(21)),
        ("parity(1000)", functions.parity(1000)),
        ("parity(x1..x1000)", functions.parity(1000)),
        ("first(7)", functions.first(7)),
        ("dictator(3, n=10)", functions.dictator(2, 10)),
        ("sparse_parity(3, n=40, seed=1)", functions.sparse_parity(3, 40, seed=1)),
        ("sparse_parity(3, 40)", functions.sparse_parity(3, 40)),
        ("sparse_majority(5, n=100)", functions.sparse_majority(5, 100)),
        ("conjunction(30)", functions.conjunction(30)),
        ("disjunction(30)", functions.disjunction(30)),
        ("threshold(3, 50)", functions.threshold(3, 50)),
        ("tribes(n=20, width=3)", functions.tribes(20, 3)),
        ("tribes(20)", functions.tribes(20)),
        ("tribes(3, x1..x20)", functions.tribes(20, 3)),
        ("address(3)", functions.address(3)),
        ("random(9, seed=4)", functions.random(9, 4)),
        ("random_symmetric(40, seed=2)", functions.random_symmetric(40, 2)),
        ("random_junta(4, 30, seed=3)", functions.random_junta(4, 30, 3)),
        ("symmetric(0, 1, 1, 0)", BooleanFunction.symmetric([0, 1, 1, 0])),
        ("table(0x" + "3c96" * 4 + ")", BooleanFunction.from_table(0x3C963C963C963C96, 6)),
        ("table(150, n=3)", BooleanFunction.from_table(150, 3)),
    ],
)
def test_zoo_names_make_zoo_functions(text: str, function: BooleanFunction) -> None:
    assert parse(text) == function


@pytest.mark.parametrize(
    ("text", "n", "bits"),
    [
        ("x1", None, 1),
        ("x3", None, 3),
        ("1", None, 1),
        ("x9 ^ x9", None, 9),
        ("majority(5) ^ x6", None, 6),
        ("majority(5) ^ x2", None, 5),
        ("sparse_parity(3, n=40) & x2", None, 40),
        ("maj(x2..x4)", None, 4),
        ("x1", 10_000, 10_000),
        ("majority(5)", 5, 5),
        ("x0000000000000000000000000000003", np.int64(4), 4),
    ],
)
def test_number_of_bits(text: str, n: int | None, bits: int) -> None:
    assert parse(text, n).n == bits


def test_a_zoo_function_inside_a_larger_one_reads_the_first_positions() -> None:
    expected = [int(sum(bits[:5]) >= 3) ^ bits[5] for bits in strings(6)]
    assert values("majority(5) ^ x6") == expected


@pytest.mark.parametrize(
    ("text", "table"),
    [("parity(1)", [0, 1]), ("parity((1))", [1, 1]), ("parity(true)", [1, 1]), ("parity(x1, 1)", [1, 0]),
     ("maj(x1, 1, 0)", [0, 1]), ("mux(0, 1, 0)", [1, 1]), ("thr(1, x1, 0)", [0, 1]), ("thr(0, x1)", [1, 1]),
     ("thr(2, x1)", [0, 0])],
)  # fmt: skip
def test_bare_numbers_are_constants_only_beside_expressions(text: str, table: list[int]) -> None:
    assert values(text, 1) == table


# ---------------------------------------------------------------- errors

OPERAND = "a variable like x1, a function like maj(x1, x2, x3), a number, '(' or '~'"
OPERATOR = "an operator (& ^ | -> <->)"

ERRORS = [
    # text, and below the caret the sentence
    ("", 0, "the expression is empty; expected something like maj(x1, x2) ^ x3."),
    (" \n ", 0, "the expression is empty; expected something like maj(x1, x2) ^ x3."),
    ("x1 ^  ", 4, f"the expression ends too early; expected {OPERAND}."),
    ("x1 ^ x2 x3", 8, f"unexpected 'x3'; expected {OPERATOR} or the end."),
    ("x1 & & x2", 5, f"unexpected '&'; expected {OPERAND}."),
    ("x1 @ x2", 3, f"unexpected '@'; expected {OPERATOR} or the end."),
    ("()", 1, f"unexpected ')'; expected {OPERAND}."),
    ("(x1 & x2", 0, "this '(' is never closed; expected a ')' for it."),
    ("(x1) & ((x2) | x3", 7, "this '(' is never closed; expected a ')' for it."),
    ("(x1 & (x2 | x3", 6, "this '(' is never closed; expected a ')' for it."),
    ("maj(x1, (x2)", 3, "this '(' is never closed; expected a ')' for it."),
    ("x1) & x2", 2, f"this ')' closes nothing; expected {OPERATOR} or the end."),
    ("(x1, x2)", 3, f"unexpected ','; expected {OPERATOR} or ')'."),
    ("maj(x1 x2)", 7, f"unexpected 'x2'; expected {OPERATOR}, '..', ',' or ')'."),
    ("maj(x1,)", 7, f"unexpected ')'; expected {OPERAND}."),
    ("x1 & x0", 5, "there is no variable 'x0'; variables start at x1."),
    ("x10001", 0, "there is no variable 'x10001'; expected x1 to x10000."),
    ("x1 | x" + "9" * 50, 5, "there is no variable 'x9999999999999999999…'; expected x1 to x10000."),
    ("maj(x5..x1)", 4, "the range 'x5..x1' runs down; expected its smaller end first."),
    ("maj(x1..x0)", 8, "there is no variable 'x0'; variables start at x1."),
    ("maj(x1..5)", 8, "unexpected '5'; expected a variable like x5."),
    ("maj(x1..x3 & x4)", 11, "unexpected '&'; expected ',' or ')'."),
    ("x1..x3", 2,
     f"a range must be an argument by itself, as in maj(x1..x5); expected {OPERATOR} or the end."),
    ("majorty(5)", 0, "unknown name 'majorty'; perhaps majority was meant."),
    ("x1 ^ prity(x2, x3)", 5, "unknown name 'prity'; perhaps parity was meant."),
    ("xyzzy(5)", 0, "unknown name 'xyzzy'; expected a variable or a function such as maj."),
    ("x1 & y2", 5, "unknown name 'y2'; expected a variable, written x1, x2 and so on."),
    ("x1x2", 0, "unknown name 'x1x2'; expected a variable or a function such as maj."),
    ("not x1", 0, "unknown name 'not'; expected the sign ~ in its place."),
    ("x1 and x2", 3, f"write & instead of 'and'; expected {OPERATOR} or the end."),
    ("!x1", 0, f"write ~ instead of '!'; expected {OPERAND}."),
    ("maj ^ x1", 0, "maj has no arguments; expected maj(x1, x2, ...) or maj(n)."),
    ("parity()", 0, "parity has no arguments; expected parity(x1, x2, ...) or parity(n)."),
    ("true(x1)", 0, "true is a constant; expected an operator after it, not arguments."),
    ("5 ^ x1", 0, "'5' is not a constant; expected 0 or 1."),
    ("parity(x1, 5)", 11, "'5' is not a constant; expected 0 or 1."),
    ("thr(4, x1..x2)", 4, "the threshold of thr is '4'; expected a number from 0 to 3."),
    ("thr(x1, x2)", 4, "thr needs a number first; expected thr(k, x1, x2, ...)."),
    ("thr(2)", 0, "thr lacks n; expected thr(k, x1, x2, ...) or thr(k, n)."),
    ("tribes(0, x1)", 7, "the width of tribes is '0'; expected a number from 1 to 1."),
    ("mux(x1, x2)", 0, "mux has 2 arguments; expected three, mux(select, if0, if1)."),
    ("first(x1)", 6, "first takes numbers, not expressions; expected first(n)."),
    ("maj(x1, n=3)", 8, "maj takes no 'n' with expressions; expected maj(x1, x2, ...)."),
    ("dictator(1, m=3)", 12, "dictator has no argument 'm'; expected dictator(position, n)."),
    ("dictator(1, n=3, n=4)", 17, "n is given twice; expected dictator(position, n)."),
    ("dictator(1, 2, n=3)", 15, "n is given twice; expected dictator(position, n)."),
    ("dictator(n=3, 1)", 14, "numbers given by name come last; expected a name for this one too."),
    ("dictator(1, n)", 12, "n is the name of a number in a call; expected '=' and the number after it."),
    ("dictator(1, n 3)", 12, "n is the name of a number in a call; expected '=' and the number after it."),
    ("dictator(1, n=x3)", 14, "unexpected 'x3'; expected a number from 0 on."),
    ("dictator(1, n=-3)", 14, "numbers cannot be negative; expected a number from 0 on."),
    ("parity(x1, -3)", 11, f"numbers cannot be negative; expected {OPERAND}."),
    ("dictator(3)", 0, "dictator lacks n; expected dictator(position, n)."),
    ("dictator(0, n=3)", 0, "position 0 is not one of the n = 3 bits; expected 1 to 3."),
    ("parity(1, 2)", 10, "parity has too many numbers; expected parity(x1, x2, ...) or parity(n)."),
    ("table(0x123)", 6,
     "the digits of '0x123' do not say the number of bits; expected n as well, as in table(150, n=3)."),
    ("table(0b1)", 6,
     "the digits of '0b1' do not say the number of bits; expected n as well, as in table(150, n=3)."),
    ("table(1, n=27)", 11, "n of table is '27'; expected a number from 1 to 26."),
    ("table(1, n=26) ^ table(1, n=1)", 23, "the tables are too large; expected at most 2^26 values in all."),
    ("symmetric(0, 2)", 13, "a value of symmetric is '2'; expected a number from 0 to 1."),
    ("symmetric(0, 1, n=1)", 16, "symmetric has no argument 'n'; expected symmetric(0, 1, 1, 0)."),
    ("random(3, seed=0x8000000000000000)", 15,
     "seed of random is '0x8000000000000000'; expected a number from 0 to 9223372036854775807."),
    ("9" * 1001, 0, "the number is too long; expected at most 1000 decimal digits."),
]  # fmt: skip


@pytest.mark.parametrize(("text", "at", "sentence"), ERRORS, ids=[repr(text[:30]) for text, _, _ in ERRORS])
def test_an_error_says_what_was_wrong_and_where(text: str, at: int, sentence: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert (caught.value.sentence, caught.value.at) == (sentence, at)
    assert isinstance(caught.value, InputError)
    lines = str(caught.value).split("\n")
    assert lines[0] == sentence
    assert len(lines) == 3


@pytest.mark.parametrize(
    "text",
    ["parity(0)", "parity(10001)", "threshold(5, 3)", "sparse_parity(4, 3)", "address(30)", "symmetric(0)",
     "table(150, n=2)", "tribes(4, width=5)", "random(0)", "random_junta(0, 4)"],
)  # fmt: skip
def test_what_a_zoo_function_refuses_is_shown_at_its_place(text: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(f"x1 ^ {text}")
    assert caught.value.at == 5 + (6 if text.startswith("table") else 0)
    assert caught.value.sentence.endswith(".")


@pytest.mark.parametrize(("text", "n", "at", "needs"), [("x1 ^ x5 ^ x5", 3, 5, 5), ("x1 & majority(9)", 8, 5, 9)])
def test_an_n_that_is_too_small_is_refused_where_more_is_needed(text: str, n: int, at: int, needs: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text, n)
    assert caught.value.sentence == f"n = {n} is too small; this needs {needs} bits."
    assert caught.value.at == at


@pytest.mark.parametrize("n", [0, -1, 10_001, 2.5, "3"])
def test_an_n_that_is_no_number_of_bits_is_refused(n: Any) -> None:
    with pytest.raises(InputError, match="number of bits"):
        parse("x1", n)


@pytest.mark.parametrize("text", [None, 5, b"x1", ["x1"]])
def test_what_is_not_a_string_is_refused(text: Any) -> None:
    with pytest.raises(InputError, match="an expression is a string such as 'x1 \\^ x2', not a"):
        parse(text)


def shown(text: str, at: int) -> list[str]:
    return str(ExpressionError("wrong.", text, at)).split("\n")


def test_the_caret_stands_under_the_place() -> None:
    assert shown("x1 @ x2", 3) == ["wrong.", "  x1 @ x2", "     ^"]
    assert shown("x1 &", 4) == ["wrong.", "  x1 &", "      ^"]
    assert shown("x1\n\t@", 4) == ["wrong.", "  x1  @", "      ^"]
    assert shown("漢 @", 2) == ["wrong.", "  漢 @", "     ^"]
    assert shown("e\u0301\x1b\ud800 @", 5) == ["wrong.", "  e\ufffd\ufffd\ufffd @", "       ^"]


def test_a_long_text_is_shown_around_the_caret() -> None:
    text = "x1 ^ " * 200 + "@" + " ^ x1" * 200
    _, line, caret = shown(text, 1000)
    assert line[caret.index("^")] == "@"
    assert line.startswith("  …")
    assert line.endswith("…")
    assert len(line) < 80
    start, end = shown(text, 2), shown(text, len(text))
    assert start[1].startswith("  x1 ^")
    assert start[2] == "    ^"
    assert end[1].endswith("x1")
    assert len(end[2]) == len(end[1]) + 1


def test_an_error_survives_pickling() -> None:
    error = ExpressionError("wrong.", "x1 @", 3)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.at) == (str(error), 3)


# ---------------------------------------------------------------- limits


def nested(inside: str, depth: int) -> str:
    return "(" * depth + inside + ")" * depth


def test_nesting_is_limited_at_the_parenthesis_that_is_one_too_many() -> None:
    assert parse(nested("x1", MAX_NESTING)) == parse("x1")
    for depth in (MAX_NESTING + 1, 10_000):
        with pytest.raises(ExpressionError, match="parentheses are nested too deeply") as caught:
            parse(nested("x1", depth))
        assert caught.value.at == MAX_NESTING


def test_gates_in_gates_are_limited_whatever_they_are_written_with() -> None:
    text = "x1"
    for _ in range(MAX_NESTING - 1):
        text = f"~(x1 <-> x2 | x3 ^ x4 & {text})"
    with pytest.raises(ExpressionError, match="operations are nested too deeply; expected at most 64 levels"):
        parse(text)


def test_signs_without_parentheses_nest_without_limit_of_their_own() -> None:
    assert parse("~" * 10_000 + "x1") == parse("x1")
    assert parse("~" * 10_001 + "x1") == parse("~x1")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x" * (MAX_TEXT + 1), "characters; expected at most 100000"),
        ("x1&" * MAX_SYMBOLS + "x1", "too many names, numbers and signs; expected at most 22000"),
        ("maj(x1..x10000, x1..x10000, x1)", "too large; expected at most 20000 variables"),
        ("parity(10000) & majority(9999)", "too large; expected at most 20000 variables"),
        (" & ".join(["threshold(0, 9999)"] * 9), "too large; expected at most 20000 variables"),
        (" | ".join(["(x1 ^ x2 & x3)"] * 1000), "too large; expected at most 20000 variables"),
    ],
)
def test_size_is_limited(text: str, sentence: str) -> None:
    with pytest.raises(ExpressionError, match=sentence):
        parse(text)


def test_the_largest_chain_and_range_fit() -> None:
    chain = parse(" ^ ".join(f"x{i}" for i in range(1, 10_001)))
    assert chain == parse("parity(x1..x10000)") == functions.parity(10_000)
