"""Whatever the text, the parser gives a function or one sentence, with bounded work and within bounded memory."""

from __future__ import annotations

import random
import re
import sys
import tracemalloc
from types import FrameType

import numpy as np
import pytest
from repetitions import repeated

from flipscope.basics.errors import InputError
from flipscope.cube.expression import ExpressionError, parse
from flipscope.cube.functions import BooleanFunction

VALID = [
    "x1",
    "maj(x1..x5) ^ x6",
    "majority(5) ^ x6 & ~x7",
    "(x1 -> x2) <-> (~x2 -> ~x1)",
    "thr(2, x1..x4, x7) | mux(x1, x2 & x3, 0)",
    "tribes(2, x1..x6) -> parity(x1, x2, 1)",
    "tribes(n=20, width=3) ^ tribes(20)",
    "sparse_parity(3, n=40, seed=1)",
    "sparse_majority(5, n=100) & first(7)",
    "dictator(3, n=10) | conjunction(4) | disjunction(0x5)",
    "threshold(3, 9) ^ address(2) ^ random(8, seed=5)",
    "random_symmetric(30, seed=2) & random_junta(4, 12, seed=3)",
    "symmetric(0, 1, 1, 0) <-> table(0x96) <-> table(150, n=3) <-> table(0b0110)",
    "true & ~false | and(x1, x2) ^ or(x3, xor(x4, x5))",
    "¬x1 ∧ x2 ⊕ x3 ∨ x4 → x5 ↔ x6",
    "((((x1 ^ x2) ^ x3) ^ x4) ^ x5)",
    "~~~~(x10000 & maj(x9000..x9999))",
    "parity(1000) ^ x1",
]
TOKENS = [
    *"~&|^()(),=.-<>!+01 \n",
    *[
        "x1",
        "x2",
        "x3",
        "x12",
        "x0",
        "x10000",
        "x10001",
        "x1..x5",
        "x9..x2",
        "..",
        "->",
        "<->",
        "5",
        "0x9f",
        "0b01",
    ],
    *["maj", "parity", "thr", "and", "or", "xor", "mux", "tribes", "majority", "first", "dictator", "table"],
    *[
        "symmetric",
        "random",
        "sparse_parity",
        "address",
        "true",
        "false",
        "n",
        "seed",
        "width",
        "n=4",
        "seed=0",
    ],
    *[
        "maj(",
        "parity(",
        "thr(2,",
        "mux(",
        "majority(5)",
        "table(0x96)",
        "random(6)",
        "not",
        "¬",
        "∧",
        "∨",
        "⊕",
        "→",
        "↔",
    ],
]
WORDS = re.compile(r"\w+|\W")


def random_text(choose: random.Random, depth: int = 0) -> str:
    """A text that follows the grammar, though its numbers may not fit."""

    def part() -> str:
        return random_text(choose, depth + 1)

    kind = choose.randrange(3 if depth > 5 else 9)
    if kind <= 1:
        return f"x{choose.randrange(1, 15)}"
    if kind == 2:
        return choose.choice(["0", "1", "true", "parity(6)", "maj(7)", "first(3)", "table(0x1e)", "x1000"])
    if kind == 3:
        return "~" * choose.randrange(1, 4) + part()
    if kind == 4:
        return f"({part()})"
    if kind <= 6:
        return choose.choice(["&", "|", "^", "->", "<->", " & ", " ^ "]).join(
            part() for _ in range(choose.randrange(2, 5))
        )
    name = choose.choice(["maj", "parity", "thr", "and", "or", "xor", "mux", "tribes"])
    first = f"{choose.randrange(1, 3)}, " if name in ("thr", "tribes") else ""
    arguments = [part() for _ in range(3 if name == "mux" else choose.randrange(2, 5))]
    if name != "mux":
        arguments[0] = choose.choice([arguments[0], "x2..x6"])
    return f"{name}({first}{', '.join(arguments)})"


def mutated(choose: random.Random) -> str:
    """A valid text with symbols or characters lost, doubled, swapped, replaced or put in from another."""
    text = choose.choice([choose.choice(VALID), random_text(choose)])
    for _ in range(choose.choice([1, 1, 2, 4])):
        symbols = WORDS.findall(text) if choose.random() < 0.6 else list(text)
        if not symbols:
            break
        i, j = sorted((choose.randrange(len(symbols)), choose.randrange(len(symbols))))
        kind = choose.randrange(6)
        if kind == 0:
            del symbols[i]
        elif kind == 1:
            symbols[i:i] = symbols[i:j]
        elif kind == 2:
            symbols[i], symbols[j] = symbols[j], symbols[i]
        elif kind == 3:
            symbols[i] = choose.choice([*TOKENS, str(choose.randrange(-5, 50)), chr(choose.randrange(0x3000))])
        elif kind == 4:
            symbols[i:i] = WORDS.findall(choose.choice(VALID))[: choose.randrange(1, 9)]
        else:
            del symbols[choose.choice([i, j]) :]
        text = "".join(symbols)
    return text


def soup(choose: random.Random) -> str:
    """Symbols of the language in no order."""
    return choose.choice(["", " "]).join(choose.choices(TOKENS, k=choose.randrange(1, 40)))


def characters(choose: random.Random) -> str:
    """Any characters at all: controls, combining marks, lone surrogates, digits of other scripts."""
    blocks = [
        (0, 0x80),
        (0x80, 0x800),
        (0x660, 0x66A),
        (0x300, 0x370),
        (0x2000, 0x2300),
        (0xD800, 0xE000),
        (0, 0x110000),
    ]
    return "".join(chr(choose.randrange(*choose.choice(blocks))) for _ in range(choose.randrange(30)))


def deep(choose: random.Random) -> str:
    """Nesting, sometimes far too deep and sometimes never closed."""
    depth = choose.choice([5, 60, 64, 65, 300, 3000])
    opening = choose.choice(["(", "~(", "~", "maj(x1,", "(x1&x2|", "(x1->", "mux(x1,x2,"])
    closing = ")" if "(" in opening else ""
    inside = choose.choice(["x1", "1", "", "parity(20)"])
    return opening * depth + inside + closing * (depth - choose.choice([0, 0, 0, 1, -1]))


def giant(choose: random.Random) -> str:
    """Numbers that are far too large, at every place where a number may stand."""
    sizes = [
        "9" * choose.randrange(1, 40),
        "9" * 2000,
        "0x" + "f" * choose.choice([9, 64, 5000]),
        "10000",
        "10001",
    ]
    places = [
        "x#",
        "#",
        "maj(x1..x#)",
        "parity(#)",
        "majority(5, #)",
        "random(#)",
        "random(9, seed=#)",
        "table(#)",
    ]
    places += [
        "table(#, n=6)",
        "table(1, n=#)",
        "tribes(#)",
        "tribes(9, #)",
        "tribes(#, x1..x9)",
        "thr(#, x1..x9)",
    ]
    places += [
        "address(#)",
        "dictator(#, n=#)",
        "dictator(1, n=#)",
        "sparse_parity(3, #)",
        "sparse_majority(#, 5)",
    ]
    places += ["random_junta(#, #)", "symmetric(0, #)", "x1 ^ #"]
    return choose.choice(places).replace("#", choose.choice(sizes))


MAKERS = [mutated, mutated, mutated, mutated, random_text, random_text, soup, characters, deep, giant]


def check_message(error: InputError) -> None:
    """One sentence, the text, the caret: three lines that fit a terminal and can be printed."""
    assert type(error) is ExpressionError
    sentence, line, caret = str(error).splitlines()
    assert re.fullmatch(r"\S.*[^.]\.", sentence), sentence
    assert not re.search(r"[.!?]\s", sentence), sentence
    assert len(sentence) < 250
    assert len(line) < 80
    assert caret.strip() == "^"
    str(error).encode()


def outcome(text: str) -> BooleanFunction | None:
    """The function, or None after an error whose message is as it should be."""
    try:
        return parse(text)
    except InputError as error:
        check_message(error)
        return None


def work(text: str) -> int:
    """How many calls and returns a text takes: the same on every machine, unlike its seconds."""
    events = 0

    def tick(frame: FrameType, event: str, argument: object) -> None:
        nonlocal events
        events += 1

    before = sys.getprofile()
    sys.setprofile(tick)
    try:
        outcome(text)
    finally:
        sys.setprofile(before)
    return events


def test_thousands_of_texts_give_a_value_or_a_sentence() -> None:
    choose = random.Random(20240229)
    rng = np.random.default_rng(7)
    valued = 0
    texts = repeated(3_000, 1_200)
    for number in range(texts):
        function = outcome(MAKERS[number % len(MAKERS)](choose))
        if function is not None:
            valued += 1
            values = function(rng.integers(0, 2, (4, function.n), dtype=np.uint8))
            assert values.shape == (4,)
            assert set(values.tolist()) <= {0, 1}
    assert 0.2 * texts < valued < 0.8 * texts  # both outcomes are well represented


def test_small_texts_are_little_work() -> None:
    choose = random.Random(20240301)
    texts = [MAKERS[number % len(MAKERS)](choose) for number in range(repeated(1_000, 300))]
    assert max(map(work, texts)) < 2_000_000


# Texts that press against one limit each, or that would be slow or large without it.
HEAVY = {
    "chain": "^".join(f"x{i}" for i in range(1, 10_001)),
    "repeated variable": "|".join(["x1"] * 10_990),
    "negated variables": "&".join(["~x1"] * 7_300),
    "constants": "|".join(["0"] * 10_990),
    "error at the end": "^".join(["x1"] * 10_970) + " ^ )",
    "implications": "->".join(f"x{i}" for i in range(1, 5_001)),
    "many gates": "^".join(["(x1&~x2)"] * 1_100),
    "many selections": "^".join(["mux(x1,0,x2)"] * 1_000),
    "many zoo functions": "^".join(["sparse_parity(1,9999)"] * 1_200),
    "constant zoo functions": "^".join(["threshold(0,9999)"] * 3_000),
    "wide and deep": "(" * 60 + "parity(9000)" + "&x1)|x2)" * 30 + " ^ parity(9000)",
    "nested chains": "(" * 60 + "parity(9000)" + "^x1)^x2)" * 30 + " ^ parity(9000)",
    "negated again and again": "(1^" * 60 + "table(1, n=26)" + ")" * 60,
    "tables": "^".join(["table(1, n=20)"] * 65),
    "long table": "table(0x" + "a5" * 32_768 + ")",
    "long vector": "symmetric(" + ",".join(["0", "1"] * 5_000) + ")",
    "ranges": "|".join(["maj(x1..x10000)"] * 2_000),
    "random functions": "^".join(f"random(10000, seed={i})" for i in range(1_000)),
    "parentheses": "(" * 10_000 + "x1" + ")" * 10_000,
    "signs": "~" * 21_990 + "x1",
    "digits": "9" * 100_000,
    "seed": "random(3, seed=0x" + "f" * 90_000 + ")",
    "name": "a" * 90_000,
    "spaces": " " * 99_990 + "x1",
    "dots": "maj(" + "." * 20_000 + ")",
    "length": "x1 & " * 10**6,
}


LARGEST = [
    "chain",
    "many zoo functions",
    "wide and deep",
    "nested chains",
    "tables",
    "negated again and again",
]
LARGEST += ["random functions", "ranges", "long vector"]


@pytest.mark.parametrize("name", LARGEST)
def test_memory_is_bounded(name: str) -> None:
    parse("x1")  # the parser itself is made once and stays
    tracemalloc.start()
    try:
        outcome(HEAVY[name])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200 * 2**20


@pytest.mark.parametrize("name", HEAVY)
def test_heavy_texts_are_bounded_work(name: str) -> None:
    parse("x1")
    assert work(HEAVY[name]) < 6_000_000  # about half a second; benchmarks/cube.py tells the seconds
