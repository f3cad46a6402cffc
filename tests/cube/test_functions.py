"""Boolean functions: every construction, what is refused and how, and structures that could blow up but do not."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from cube.messages import one_sentence
from cube.reference import strings

from flipscope.basics.errors import InputError
from flipscope.cube import functions, polynomials, sensitivity, spectrum
from flipscope.cube.expression import parse
from flipscope.cube.functions import MAX_BITS, BooleanFunction, gate
from flipscope.cube.structure import MAX_DEPTH, post_order

B = BooleanFunction
LONG = 10**5000  # more digits than Python writes out


def and_oracle(bits: np.ndarray) -> np.ndarray:
    return bits.all(axis=-1)


# ---------------------------------------------------------------- construction


def test_an_integer_table_takes_the_least_n_it_fits() -> None:
    assert [B.from_table(number).n for number in (0, 1, 2, 3, 4, 15, 16, 255, 256, 2**64 - 1, 2**64)] == [
        *(1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7)
    ]
    assert B.from_table(0b0110).table().tolist() == [0, 1, 1, 0]
    assert B.from_table(0b10, 3).table().tolist() == [0, 1, 0, 0, 0, 0, 0, 0]
    assert B.from_table(np.int64(6)) == functions.parity(2)


def test_bytes_hold_eight_values_each_lowest_bit_first() -> None:
    assert B.from_table(bytes([0b10010110])) == functions.parity(3)
    assert B.from_table(bytes([0b0110]), 2) == functions.parity(2)
    assert B.from_table(bytearray([0, 128])).table().tolist() == [0] * 15 + [1]


@pytest.mark.parametrize("values", [[0, 1, 1, 0], (False, True, True, False), np.array([0.0, 1.0, 1.0, 0.0])])
def test_any_array_of_zeros_and_ones_is_a_table(values: Any) -> None:
    assert B.from_table(values) == functions.parity(2)


def test_position_one_is_the_least_significant_bit() -> None:
    f = B.from_table([0, 1, 0, 1, 0, 1, 0, 1])
    assert f == B.variable(0, 3)
    assert f([1, 0, 0]) == 1
    assert f([0, 1, 1]) == 0


def test_batches_of_every_shape() -> None:
    whole = np.array(strings(4), np.uint8)
    table = functions.random(4, 3).table()
    for f in (
        functions.random(4, 3),
        B.from_table(table),
        ~functions.random(4, 3),
        functions.random(4, 3) & B.constant(1, 4),
        functions.majority(4),
        B.constant(1, 4),
        functions.gate([0, 1, 1, 0], [functions.majority(4), functions.random(4, 3), functions.first(4)]),
    ):
        values = f(whole)
        assert values.shape == (16,)
        assert values.dtype == np.uint8
        assert f(whole.reshape(2, 4, 2, 4)).tolist() == values.reshape(2, 4, 2).tolist()
        assert [int(f(row)) for row in whole] == values.tolist()
        assert f(whole[:0]).shape == (0,)
        assert f(whole.astype(bool)).tolist() == f(whole.astype(float)).tolist() == f(whole.tolist()).tolist()
        assert f(np.asfortranarray(whole)).tolist() == values.tolist()
        assert f(np.repeat(whole, 2, axis=1)[:, ::2]).tolist() == values.tolist()


def test_a_callable_sees_0_1_arrays_of_shape_strings_by_n_and_is_called_lazily() -> None:
    seen: list[tuple[int, ...]] = []

    def oracle(bits: np.ndarray) -> np.ndarray:
        assert bits.dtype == np.uint8
        assert bits.flags.c_contiguous
        seen.append(bits.shape)
        return bits[:, 0] ^ bits[:, 2]

    f = B.from_callable(oracle, 3)
    g = (f & functions.first(3)).permute([2, 0, 1])
    assert seen == []
    assert g(np.zeros((2, 5, 3), np.uint8)).shape == (2, 5)
    assert seen == [(10, 3)]
    assert f == B.from_table([0, 1, 0, 1, 1, 0, 1, 0])


def test_a_callable_that_writes_to_its_input_harms_nobody() -> None:
    def destructive(bits: np.ndarray) -> np.ndarray:
        value = bits[:, 0].copy()
        bits[:] = 0
        return value

    f = B.from_callable(destructive, 3)
    rows = np.ones((4, 3), np.uint8)
    assert f(rows).tolist() == [1, 1, 1, 1]
    assert rows.all()
    both = f & B.from_callable(and_oracle, 3)
    assert both(rows).tolist() == [1, 1, 1, 1]
    assert both.table().tolist() == [0] * 7 + [1]


def test_arrays_given_and_taken_are_copies() -> None:
    values = np.array([0, 1, 1, 0], np.uint8)
    symmetric, table = np.array([0, 1, 0], np.uint8), np.full(2, 5, np.uint64)
    fs = (B.from_table(values), B.symmetric(symmetric), B.from_words(table, 7))
    before = [f.table().tolist() for f in fs]
    values[:], symmetric[:], table[:] = 1, 1, 0
    for f in fs:
        f.table_words()[:] = 0
        f.table()[:] = 0
    assert [f.table().tolist() for f in fs] == before


def test_copies_and_pickles_are_equal() -> None:
    f = (functions.majority(5) & B.from_table(0xBEEF1234, 5)) ^ functions.first(5)
    assert copy.deepcopy(f) == f
    assert pickle.loads(pickle.dumps(f)) == f


def test_repr_names_the_kind_and_the_size() -> None:
    assert repr(functions.majority(5)) == "BooleanFunction(n=5): maj(x1..x5)"
    assert repr(B.constant(1, 3)) == "BooleanFunction(n=3): 1"
    assert repr(B.from_table(2, 3)) == "BooleanFunction(n=3): table(0x2, n=3)"
    assert repr(functions.random(3)) == "BooleanFunction(n=3): random(3, seed=0)"
    assert repr(parse("maj(x1..x5) ^ x6")) == "BooleanFunction(n=6): xor(x6, maj(x1..x5))"
    assert repr(~functions.random(3)) == "BooleanFunction(n=3): ~random(3, seed=0)"
    assert repr(functions.first(9)) == "BooleanFunction(n=9): x1"
    assert repr(B.from_callable(lambda bits: bits[:, 0], 4)) == "BooleanFunction(n=4): call on 4 bits"
    assert repr(B.from_table(np.arange(256) % 3 == 0)) == "BooleanFunction(n=8): table on 8 bits"
    assert len(repr(functions.random_symmetric(500))) < 120


def test_constants_and_repeated_variables_fold() -> None:
    x, y = B.variable(0, 9), B.variable(1, 9)
    assert (x ^ y ^ x).support == (1,)
    assert (x & y & x).support == (0, 1)
    assert (x ^ x).support == ()
    assert (x & B.constant(0, 9)).support == ()
    assert functions.parity(9).restrict({8: 1}) == ~functions.parity(8)
    assert functions.conjunction(9).restrict({3: 0}).support == ()
    assert functions.majority(9).compose([x] * 9) == x
    assert functions.threshold(0, 4) == B.constant(1, 4)
    assert functions.threshold(5, 4) == B.constant(0, 4)


# ---------------------------------------------------------------- the zoo


def test_zoo_by_seed_is_reproducible_and_varied() -> None:
    for make in (functions.sparse_parity, functions.sparse_majority, functions.random_junta):
        assert make(3, 12, seed=5) == make(3, 12, seed=5)
        assert len({make(3, 12, seed=s).support for s in range(20)}) > 10
        assert len(make(3, 12, seed=5).support) == 3
    for make in (functions.random, functions.random_symmetric):
        assert make(40, seed=7) == make(40, seed=7)
        assert len({make(40, seed=s) for s in range(20)}) == 20


def split_mix(word: int) -> int:
    word = (word + 0x9E3779B97F4A7C15) % 2**64
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
    return word ^ word >> 31


def agreement(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x == y for x, y in zip(a, b, strict=False))


def test_a_seed_of_another_length_gives_another_random_function() -> None:
    """Of n and n + 1 bits with one seed, the values on common strings agree half of the time, not always."""
    seeds, n = range(100), 8
    for make in (functions.random, functions.random_symmetric):
        tables = [[make(n + more, seed).table()[: 2**n].tolist() for seed in seeds] for more in (0, 1, 2)]
        if make is functions.random_symmetric:  # one value for each number of ones
            tables = [[[table[2**ones - 1] for ones in range(n + 1)] for table in every] for every in tables]
        total = sum(map(len, tables[0]))
        for other in tables[1:]:
            same = sum(map(agreement, tables[0], other))
            assert abs(same - total / 2) < 3 * math.sqrt(total)  # six standard deviations


def test_positions_of_another_length_are_drawn_anew() -> None:
    for make in (functions.sparse_parity, functions.sparse_majority, functions.random_junta):
        pairs = np.array([(make(1, 1000, s).support[0], make(1, 2000, s).support[0] / 2) for s in range(100)])
        assert abs(np.corrcoef(pairs.T)[0, 1]) < 0.5
        assert len({(make(3, 50, s).support, make(3, 51, s).support) for s in range(5)}) == 5
        kept = sum(len({*make(3, 50, s).support} & {*make(4, 50, s).support}) for s in range(50))
        assert kept < 50 * 3 / 2  # a quarter of a position is expected, not three


def test_random_juntas_of_another_length_have_another_function() -> None:
    def inner(n: int, seed: int) -> list[int]:
        f = functions.random_junta(5, n, seed)
        return f.restrict({p: 0 for p in range(n) if p not in f.support}).table().tolist()

    same = sum(agreement(inner(9, seed), inner(10, seed)) for seed in range(40))
    assert abs(same - 40 * 16) < 3 * math.sqrt(40 * 32)


@pytest.mark.parametrize("n", [1, 5, 6, 7, 11])
@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_random_values_are_a_published_hash_of_length_seed_and_string(n: int, seed: int) -> None:
    start = split_mix(split_mix(n) ^ seed)
    assert functions.random(n, seed).table().tolist() == [split_mix(start ^ x) >> 63 for x in range(2**n)]


def test_every_bit_of_a_long_seed_counts() -> None:
    start = split_mix(split_mix(split_mix(9) ^ 3) ^ 64)
    assert functions.random(9, 2**70 + 3).table().tolist() == [split_mix(start ^ x) >> 63 for x in range(2**9)]
    assert functions.random(9, 2**64) != functions.random(9, 0)


def test_random_values_of_long_strings_chain_the_hash() -> None:
    rows = np.random.default_rng(1).integers(0, 2, (20, 150), np.uint8)
    for row, value in zip(rows, functions.random(150, seed=9)(rows), strict=True):
        state = split_mix(split_mix(150) ^ 9)
        for first in range(0, 150, 64):
            state = split_mix(state ^ sum(int(bit) << j for j, bit in enumerate(row[first : first + 64])))
        assert value == state >> 63


def test_random_functions_of_many_bits_are_the_same_in_batches_and_alone() -> None:
    f = functions.random(130, seed=3)
    rows = np.random.default_rng(0).integers(0, 2, (500, 130), np.uint8)
    values = f(rows)
    assert [int(f(row)) for row in rows[:20]] == values[:20].tolist()
    assert 180 < values.sum() < 320
    last = rows.copy()
    last[:, 129] ^= 1
    assert 180 < (f(last) != values).sum() < 320


def test_tribes_without_a_width_are_nearly_balanced() -> None:
    for n in (10, 100, 1000):
        f = functions.tribes(n)
        share = sensitivity.count_ones(f) / 2**n
        assert abs(share - 0.5) < 0.2


def test_address_names_a_data_bit_least_significant_first() -> None:
    f = functions.address(2)
    for k in range(4):
        data = [int(j == k) for j in range(4)]
        assert f([k & 1, k >> 1, *data]) == 1
        assert f([k & 1, k >> 1, *[1 - d for d in data]]) == 0


# ---------------------------------------------------------------- equality


def test_equality_across_constructions_at_any_size() -> None:
    assert functions.majority(5000) == B.symmetric(np.arange(5001) > 2500)
    flipped = [~B.variable(p, 9) for p in range(9)]
    assert functions.majority(9) == ~functions.majority(9).compose(flipped)
    assert functions.sparse_majority(5, 1000, 3) == B.junta(
        functions.majority(5), functions.sparse_majority(5, 1000, 3).support[::-1], 1000
    )
    assert functions.conjunction(1000) != B.constant(0, 1000)
    assert functions.parity(999).extend(1000) != functions.parity(1000)
    assert functions.first(10) != functions.first(11)
    assert functions.tribes(1000) == functions.tribes(1000)
    assert functions.random(500, 1) == functions.random(500, 1)
    assert functions.random(500, 1) != functions.random(500, 2)
    assert (functions.random(40, 1) & functions.majority(40)) == (functions.majority(40) & functions.random(40, 1))


def test_equality_that_cannot_be_decided_says_so() -> None:
    f, g = (B.from_callable(lambda bits: np.zeros(len(bits)), 40) for _ in range(2))
    assert f == f
    with one_sentence("40 relevant bits"):
        _ = f == g
    assert (f == "f") is False


# ---------------------------------------------------------------- bad input


def ragged() -> list[list[int]]:
    return [[0, 1], [1]]


BAD_SIZES: list[Any] = [0, -1, 1.5, "3", None, MAX_BITS + 1, LONG, -LONG, float("nan"), [3]]


@pytest.mark.parametrize("n", BAD_SIZES, ids=lambda n: "long" if n in (LONG, -LONG) else str(n))
def test_a_bad_number_of_bits_is_refused_everywhere(n: Any) -> None:
    makers: list[Callable[[], object]] = [
        lambda: B.from_callable(and_oracle, n),
        lambda: B.constant(0, n),
        lambda: B.variable(0, n),
        lambda: B.from_words(np.zeros(1, np.uint64), n),
        lambda: functions.first(1).extend(n),
        lambda: B.junta(functions.first(1), [0], n),
        lambda: functions.dictator(0, n),
        lambda: functions.tribes(n),
        lambda: functions.tribes(n, 1),
        lambda: functions.sparse_parity(1, n),
        lambda: functions.sparse_majority(1, n),
        lambda: functions.random_junta(1, n),
        lambda: functions.threshold(0, n),
        *(
            lambda make=make: make(n)  # type: ignore[misc]
            for make in (
                functions.parity,
                functions.majority,
                functions.first,
                functions.conjunction,
                functions.disjunction,
                functions.random,
                functions.random_symmetric,
                functions.address,
            )
        ),
    ]
    if n is not None:
        makers += [lambda: B.from_table(1, n), lambda: B.from_table(b"\1", n), lambda: B.from_table([0, 1], n)]
    for make in makers:
        with one_sentence():
            make()


# Each is evaluated as it stands, so that a failing one is named by its own text.
BAD_CONSTRUCTIONS = [
    "B.from_table([0, 1, 1])",
    "B.from_table([])",
    "B.from_table([1])",
    'B.from_table(b"")',
    'B.from_table(b"abc")',
    "B.from_table([0, 1, 1, 0], 3)",
    "B.from_table([0, 1, 2, 0])",
    "B.from_table([0, 1, np.nan, 0])",
    "B.from_table([0, 1, 0.5, 0])",
    'B.from_table(["0", "1"])',
    "B.from_table([[0, 1], [1, 0]])",
    "B.from_table(ragged())",
    'B.from_table("0110")',
    "B.from_table(None)",
    "B.from_table(True)",
    "B.from_table(-1)",
    "B.from_table(-LONG)",
    "B.from_table(16, 2)",
    "B.from_table(2, 31)",
    "B.from_words(np.zeros(2, np.uint64), 6)",
    "B.from_words(np.zeros(1, np.int64), 6)",
    "B.from_words(np.array([1.5]), 6)",
    "B.from_words(np.array([0b10], np.uint64), 1)",
    "B.from_words(np.zeros((1, 1), np.uint64), 6)",
    "B.from_words(np.zeros(1, np.uint64), 31)",
    "B.symmetric([0])",
    "B.symmetric([])",
    "B.symmetric([0, 2])",
    "B.symmetric([0, np.nan])",
    'B.symmetric("01")',
    "B.symmetric([[0, 1]])",
    "B.symmetric(ragged())",
    "B.symmetric(np.zeros(MAX_BITS + 2))",
    "B.constant(2, 3)",
    'B.constant("1", 3)',
    "B.constant(np.array([0, 1]), 3)",
    "B.variable(3, 3)",
    "B.variable(-1, 3)",
    "B.variable(0.0, 3)",
    "B.variable(LONG, 3)",
    "B.from_callable(3, 3)",
    "B.from_callable(None, 3)",
    "functions.threshold(-1, 3)",
    "functions.threshold(5, 3)",
    "functions.threshold(1.5, 3)",
    'functions.threshold("2", 3)',
    "functions.threshold(LONG, 3)",
    "functions.address(13)",
    "functions.address(2.0)",
    "functions.tribes(5, 6)",
    "functions.tribes(5, 0)",
    "functions.tribes(5, 1.5)",
    "functions.dictator(5, 5)",
    "functions.sparse_parity(6, 5)",
    "functions.sparse_parity(0, 5)",
    "functions.sparse_parity(1.5, 5)",
    "functions.sparse_parity(2, 5, seed=-1)",
    "functions.sparse_majority(2, 5, seed=1.5)",
    "functions.random(5, seed=-1)",
    'functions.random(5, seed="a")',
    "functions.random_symmetric(5, seed=None)",
    "functions.random_junta(2, 5, seed=2.5)",
    "gate([0, 1], [])",
    "gate([0, 1, 1], [functions.first(3)])",
    "gate([0, 2], [functions.first(3)])",
    "gate([0, 1, 1], [functions.first(3), functions.first(4)])",
    "gate([0, 1, 1], [functions.first(3), 1])",
]
BAD_USES = [
    "f & functions.first(4)",
    "f | functions.first(4)",
    "f ^ functions.first(4)",
    "f.compose([functions.first(2)] * 2)",
    "f.compose([functions.first(2)] * 4)",
    "f.compose([functions.first(2), functions.first(2), functions.first(3)])",
    "f.compose([0, 1, 0])",
    "f.restrict({0: 1, 1: 1, 2: 0})",
    "f.restrict({3: 1})",
    "f.restrict({-1: 1})",
    "f.restrict({0: 2})",
    'f.restrict({0: "1"})',
    "f.restrict({0: np.array([0, 1])})",
    "f.restrict({0.5: 1})",
    "f.permute([0, 1])",
    "f.permute([0, 1, 1])",
    "f.permute([0, 1, 3])",
    "f.permute([0, 1, 2, 0])",
    'f.permute([0, 1, "2"])',
    "f.permute([0.0, 1.0, 2.0])",
    "f.extend(2)",
    "f.extend(5, [0, 1])",
    "f.extend(5, [0, 1, 1])",
    "f.extend(5, [0, 1, 5])",
    "f.extend(5, [0, 1, 2, 3])",
    "f.extend(5, [0, 1, None])",
    "f([0, 1])",
    "f([0, 1, 1, 0])",
    "f(1)",
    'f("011")',
    'f(["0", "1", "1"])',
    "f([0, 1, 2])",
    "f([0, 1, -1])",
    "f([0, 1, 0.5])",
    "f([0, 1, np.nan])",
    "f([0, 1, None])",
    "f(np.array([0, 1, 3], np.uint8))",
    "f([[0, 1, 1], [0, 1]])",
    "sensitivity.string_sensitivity(f, [0, 1])",
    "sensitivity.string_sensitivity(f, [0, 1, 0.5])",
    "sensitivity.string_sensitivity(f, [0, 1, 256])",
    "spectrum.coefficient(f, [3])",
    'spectrum.coefficient(f, ["0"])',
    "spectrum.noise_stability(f, 1.01)",
    'spectrum.noise_stability(f, float("nan"))',
    'spectrum.noise_stability(f, "1")',
    "spectrum.noise_sensitivity(f, -0.1)",
    'spectrum.noise_sensitivity(f, float("nan"))',
    "spectrum.noise_sensitivity(f, None)",
    "spectrum.level_inequality(f, 1.5)",
    "spectrum.level_inequality(f, 0)",
    "spectrum.level_inequality(f, 100)",
]
MAKERS = ["functions.parity(3)", "functions.random(3, 1)", "B.from_table(7, 3)"]


@pytest.mark.parametrize("text", BAD_CONSTRUCTIONS)
def test_bad_constructions_are_refused_in_one_sentence(text: str) -> None:
    with one_sentence():
        eval(text)


@pytest.mark.parametrize("text", BAD_USES)
def test_bad_uses_are_refused_in_one_sentence(text: str) -> None:
    for maker in MAKERS:
        with one_sentence():
            eval(text, globals(), {"f": eval(maker)})


def raising(bits: np.ndarray) -> np.ndarray:
    raise KeyError("no such thing. And\nmore")


@pytest.mark.parametrize(
    ("oracle", "said"),
    [
        (lambda bits: np.full(len(bits), 2), "returned 2"),
        (lambda bits: np.full(len(bits), np.nan), "returned nan"),
        (lambda bits: np.full(len(bits), 0.5), "returned 0.5"),
        (lambda bits: np.full(len(bits), -1), "returned -1"),
        (lambda bits: bits, "shape"),
        (lambda bits: bits[1:, 0], "shape"),
        (lambda bits: bits[:, :1], "shape"),
        (lambda bits: 1, "shape"),
        (lambda bits: None, "shape"),
        (lambda bits: ["1"] * len(bits), "type"),
        (lambda bits: [None] * len(bits), "type"),
        (lambda bits: [[0], [0, 1]], "rows"),
        (raising, "KeyError"),
        (lambda bits: bits[:, 7], "IndexError"),
        (lambda: 0, "TypeError"),
    ],
)
def test_a_callable_that_misbehaves_is_named_in_one_sentence(oracle: Callable[..., Any], said: str) -> None:
    f = B.from_callable(oracle, 3, name="my oracle")
    for use in (
        lambda: f([0, 1, 1]),
        lambda: f.table(),
        lambda: sensitivity.profile(f),
        lambda: spectrum.degree(~f),
        lambda: hash(f & functions.first(3)),
        lambda: f.restrict({0: 1}).table(),
        lambda: sensitivity.string_sensitivity(f, [0, 1, 1]),
    ):
        with one_sentence(f"my oracle.*{said}"):
            use()


def test_a_sum_with_something_else_is_a_type_error() -> None:
    for other in (1, None, "f", [0, 1]):
        for combine in (lambda f, x: f & x, lambda f, x: f | x, lambda f, x: f ^ x):
            with pytest.raises(TypeError):
                combine(functions.first(3), other)


def test_tables_beyond_30_bits_are_refused_before_anything_is_computed() -> None:
    with one_sentence("n <= 30"):
        functions.majority(31).table()
    with one_sentence("sample instead"):
        sensitivity.profile(functions.random(31))
    with one_sentence("sample instead"):
        spectrum.degree(functions.random(29))
    with one_sentence("12 relevant bits"):
        sensitivity.block_sensitivity(functions.parity(13))
    with one_sentence("20 relevant bits"):
        spectrum.coefficients(functions.majority(21))


# ---------------------------------------------------------------- structures that could blow up


def size(f: BooleanFunction) -> int:
    return len(post_order(f.node))


def edges(f: BooleanFunction) -> int:
    return sum(len(getattr(node, "children", ())) for node in post_order(f.node))


STEPS: dict[str, Callable[..., BooleanFunction]] = {
    "f & f": lambda f, g, h: f & f,
    "f | f": lambda f, g, h: f | f,
    "f ^ f ^ g": lambda f, g, h: (f ^ f) ^ g,
    "(f & g) & (f & h)": lambda f, g, h: (f & g) & (f & h),
    "(f ^ g) ^ (f ^ h)": lambda f, g, h: (f ^ g) ^ (f ^ h),
    "f ^ (f & g)": lambda f, g, h: f ^ (f & g),
    "(f & g) | (f & h)": lambda f, g, h: (f & g) | (f & h),
    "(f | g) ^ (f & h)": lambda f, g, h: (f | g) ^ (f & h),
    "~f & ~f": lambda f, g, h: ~f & ~f,
    "~f ^ f ^ h": lambda f, g, h: ~f ^ f ^ h,
    "maj(f, g, f)": lambda f, g, h: gate([0, 0, 1, 1], [f, g, f]),
    "one of (f, f ^ g, h)": lambda f, g, h: gate([0, 1, 0, 0], [f, f ^ g, h]),
    "table of (f, g, f)": lambda f, g, h: B.from_table(0b01101011, 3).compose([f, g, f]),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_sixty_uses_of_the_same_part_stay_small_and_right(step: Callable[..., BooleanFunction]) -> None:
    g, h = functions.majority(5).extend(8, [1, 2, 3, 4, 5]), functions.random(8, 3)

    def grown(levels: int) -> tuple[BooleanFunction, B]:
        f = functions.random(8, 1) & functions.parity(8)
        table = B.from_table(f.table())
        for _ in range(levels):
            f = step(f, g, h)
            table = B.from_table(step(table, B.from_table(g.table()), B.from_table(h.table())).table())
        return f, table

    f, table = grown(60)
    assert size(f) < 1000
    assert edges(f) < 20_000
    assert f.table().tolist() == table.table().tolist()
    assert f == table
    assert f == grown(60)[0]
    assert sensitivity.profile(f) == sensitivity.profile(table)
    assert f.restrict({0: 1}) == table.restrict({0: 1})
    assert f.permute(range(8)) == table


def chain(levels: int) -> BooleanFunction:
    f, g, h = functions.random(9, 1), functions.majority(9), functions.random(9, 2)
    for level in range(levels):
        f = f & g if level % 2 else f | h
    return f


def below(frames: int, what: Callable[[], Any]) -> Any:
    """Call something with this much of Python's stack already in use."""
    return what() if frames == 0 else below(frames - 1, what)


def test_depth_is_limited_by_a_clear_error_and_the_limit_itself_works(tmp_path: Any) -> None:
    with one_sentence("deep"):
        chain(100_000)
    deep = chain(MAX_DEPTH - 1)
    assert deep.node.depth == MAX_DEPTH
    same = B.from_table(deep.table())
    path = tmp_path / "deep.npz"

    def everything() -> None:
        assert deep == chain(MAX_DEPTH - 1)
        assert deep == same
        assert deep(np.zeros((3, 9), np.uint8)).shape == (3,)
        assert sensitivity.profile(deep) == sensitivity.profile(same)
        assert ~~deep == deep
        deep.save(path)
        assert B.load(path) == same
        assert deep.permute(range(9)) == same
        with one_sentence("deep"):
            _ = deep & functions.first(9) | functions.random(9, 4)

    below(300, everything)


def test_depth_over_disjoint_parts_is_analysed_without_a_table() -> None:
    n = 3 * MAX_DEPTH
    f = functions.first(n)
    for level in range(MAX_DEPTH - 2):
        part = functions.majority(3).extend(n, [3 * level + 1, 3 * level + 2, 3 * level + 3])
        f = f & part if level % 2 else f | part
    assert f.node.depth > MAX_DEPTH - 3
    profile = below(300, lambda: sensitivity.profile(f))
    assert sum(profile) == 2**n
    assert below(300, lambda: spectrum.degree(f)) == 3 * (MAX_DEPTH - 2) + 1
    assert spectrum.coefficient(f, []) == 1 - 2 * sensitivity.count_ones(f) / sensitivity.Fraction(2**n)


def test_thousands_of_children() -> None:
    n, rng = 14, np.random.default_rng(0)
    wheres = [rng.choice(n, 3, replace=False) for _ in range(2500)]
    children = [functions.majority(3).extend(n, where) for where in wheres]
    rows = np.array(strings(n), np.uint8)
    votes = sum(rows[:, where].sum(axis=1) >= 2 for where in wheres)
    assert np.array_equal(gate(np.arange(2501) > 1250, children).table(), votes > 1250)
    assert np.array_equal(gate(np.arange(2501) % 2, children).table(), votes % 2)
    assert np.array_equal(gate(np.arange(2501) > 0, children).table(), votes > 0)
    whole = gate(np.arange(2501) % 3 == 0, children)
    assert whole(rows[:50]).tolist() == (votes[:50] % 3 == 0).tolist()
    wide = gate(np.arange(MAX_BITS + 1) > 7, [B.variable(p % 10, 10) for p in range(MAX_BITS)])
    assert wide == ~functions.threshold(1, 10) ^ B.constant(1, 10)


def test_compositions_that_would_take_minutes_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve parts of many different sensitivities, under a gate without a closed form."""
    monkeypatch.setattr(polynomials, "MAX_WORK", 5e8)

    def twelve(make: Callable[[int], BooleanFunction]) -> BooleanFunction:
        parts = [make(i) for i in range(12)]
        n = sum(part.n for part in parts)
        places = [range(i * n // 12, (i + 1) * n // 12) for i in range(12)]
        values = [0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 1, 0]
        return gate(values, [part.extend(n, place) for part, place in zip(parts, places, strict=True)])

    with one_sentence("sample instead"):
        sensitivity.profile(twelve(lambda i: functions.random_symmetric(400, i)))
    with one_sentence("sample instead"):
        spectrum.degree(twelve(lambda i: functions.majority(401)))
    with one_sentence("sample instead"):
        spectrum.degree(functions.random_symmetric(9000, 1))
    fine = twelve(lambda i: functions.majority(5))
    assert sum(sensitivity.profile(fine)) == 2**60
    assert sum(spectrum.weight_by_degree(fine)) == 1


def test_input_errors_are_value_errors() -> None:
    assert issubclass(InputError, ValueError)


@pytest.mark.parametrize(
    "text",
    [
        *("x3", "~x1", "x1 & x2 | x4", "x1 <-> x2", "maj(x1..x5) ^ x6", "~maj(x1..x4)", "thr(2, x2..x6)", "1"),
        *("symmetric(0, 1, 0, 1, 1)", "table(0x96)", "mux(x1, x2, x3)", "tribes(12)", "address(2)", "~random(4)"),
        *("sparse_parity(5, 40)", "maj(x1, x3, x4, x5, x9) & ~x2", "thr(2, x1, ~x2, x3 & x4)"),
    ],
)
def test_the_expression_in_a_repr_is_the_function(text: str) -> None:
    f = parse(text)
    assert parse(repr(f).partition(": ")[2], f.n) == f


def test_a_function_tells_its_degree_influences_and_profile() -> None:
    f = parse("maj(x1..x3) ^ x5")
    table = f.table()
    flips = np.stack([table != table[np.arange(32) ^ (1 << i)] for i in range(5)])  # by the definition
    assert f.influences() == flips.mean(axis=1).tolist() == [0.5, 0.5, 0.5, 0.0, 1.0]
    assert f.sensitivity_profile() == np.bincount(flips.sum(axis=0), minlength=6).tolist()
    assert f.degree() == 4
