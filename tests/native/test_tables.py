"""The compiled loops on packed words, bit for bit against plain numpy on unpacked values, on one thread and several."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flipscope.basics import bits
from flipscope.cube import blocks, functions, sensitivity, structure
from flipscope.cube.functions import BooleanFunction, gate
from flipscope.native import compiled
from flipscope.native import tables as kernels

SIZES = range(17)


def plain_sensitivities(values: np.ndarray) -> np.ndarray:
    """s(x) of every string by gathering its neighbours, one position after the other."""
    index = np.arange(len(values))
    total = np.zeros(len(values), np.int64)
    for j in range(len(values).bit_length() - 1):
        total += values != values[index ^ (1 << j)]
    return total


def plain_influences(values: np.ndarray) -> list[int]:
    index = np.arange(len(values))
    return [int((values != values[index ^ (1 << j)]).sum()) for j in range(len(values).bit_length() - 1)]


def tables(n: int) -> list[np.ndarray]:
    """Random, biased, constant, parity and single-string tables."""
    rng = np.random.default_rng(n)
    index = np.arange(1 << n, dtype=np.uint64)
    parity = (np.bitwise_count(index) & 1).astype(np.uint8)
    biased = (rng.random(1 << n) < 0.03).astype(np.uint8)
    one = (index == (1 << n) - 1).astype(np.uint8)
    return [rng.integers(0, 2, 1 << n, np.uint8), biased, 0 * parity, 1 + 0 * parity, parity, 1 - parity, one]


def check(values: np.ndarray) -> None:
    n = len(values).bit_length() - 1
    words = bits.pack(values)
    expected = plain_sensitivities(values)
    assert np.array_equal(kernels.all_sensitivities(words, n), expected)
    assert kernels.profile_counts(words, n) == np.bincount(expected, minlength=n + 1).tolist()
    only_ones = np.bincount(expected[values == 1], minlength=n + 1).tolist()
    assert kernels.profile_counts(words, n, ones=True) == only_ones
    assert kernels.influence_counts(words, n) == plain_influences(values)
    for value in (0, 1):
        for target in range(n + 1):
            hits = np.flatnonzero((expected == target) & (values == value))
            assert kernels.find_string(words, target, value) == (hits[0] if len(hits) else -1)


@pytest.mark.parametrize("n", SIZES)
def test_kernels_agree_with_numpy(n: int) -> None:
    for values in tables(n):
        check(values)


@pytest.mark.parametrize("workers", [2, 3, 7])
@pytest.mark.parametrize("n", [14, 16, 17])
def test_divided_among_threads_the_answers_are_the_same(monkeypatch: pytest.MonkeyPatch, n: int, workers: int) -> None:
    used: set[int] = set()
    work = kernels._profile

    def noted(*arguments: object) -> None:
        used.add(threading.get_ident())
        work(*arguments)

    monkeypatch.setattr(compiled, "cores", lambda: workers)
    monkeypatch.setattr(kernels, "GRAIN", kernels.RUN // 4 if n == 14 else kernels.RUN)
    monkeypatch.setattr(kernels, "_profile", noted)
    check(tables(n)[0])
    check(tables(n)[1])
    assert threading.get_ident() not in used  # every piece went to a worker


@pytest.mark.parametrize("n", [20, 22])
def test_large_tables_agree_with_numpy(n: int) -> None:
    values = np.random.default_rng(n).integers(0, 2, 1 << n, np.uint8)
    words = bits.pack(values)
    expected = plain_sensitivities(values)
    assert np.array_equal(kernels.all_sensitivities(words, n), expected)
    assert kernels.profile_counts(words, n) == np.bincount(expected, minlength=n + 1).tolist()
    assert kernels.profile_counts(words, n, ones=True) == np.bincount(expected[values == 1], minlength=n + 1).tolist()
    assert kernels.influence_counts(words, n) == plain_influences(values)
    top = int(expected.max())
    first = np.flatnonzero((expected == top) & (values == 1))
    assert kernels.find_string(words, top, 1) == (first[0] if len(first) else -1)


def test_a_rare_string_at_the_very_end_of_a_large_table_is_found() -> None:
    n = 20
    values = np.zeros(1 << n, np.uint8)
    values[-1] = 1
    words = bits.pack(values)
    assert kernels.find_string(words, n, 1) == (1 << n) - 1
    assert kernels.find_string(words, 1, 0) == (1 << n) - 1 - (1 << (n - 1))
    assert kernels.profile_counts(words, n)[:2] == [(1 << n) - n - 1, n]


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 16])
@pytest.mark.parametrize("grain", [1, 4, 64])
@pytest.mark.parametrize("size", [1, 2, 63, 64, 128, 129, 1000, 4096])
def test_pieces_cover_the_range_once_at_multiples_of_the_grain(
    monkeypatch: pytest.MonkeyPatch, workers: int, grain: int, size: int
) -> None:
    monkeypatch.setattr(compiled, "cores", lambda: workers)
    lock, pieces = threading.Lock(), []

    def work(first: int, last: int) -> None:
        with lock:
            pieces.append((first, last))

    compiled.in_parallel(work, size, grain)
    pieces.sort()
    assert [number for piece in pieces for number in range(*piece)] == list(range(size))
    assert all(first % grain == 0 for first, _ in pieces)
    if workers == 1 or size <= 2 * grain:
        assert pieces == [(0, size)]
    else:
        assert len(pieces) > 1


def test_an_error_in_a_thread_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "cores", lambda: 3)

    def work(first: int, last: int) -> None:
        if first:
            raise RuntimeError("a piece failed")

    with pytest.raises(RuntimeError, match="a piece failed"):
        compiled.in_parallel(work, 100, 1)


# ---------------------------------------------------------------- packing and blocks


@settings(max_examples=100)
@given(st.integers(0, 10).flatmap(lambda n: st.lists(st.integers(0, 1), min_size=2**n, max_size=2**n)))
def test_packing_puts_string_i_at_bit_i_and_repeats_short_tables(values: list[int]) -> None:
    words = bits.pack(np.array(values, np.uint8))
    assert words.dtype == np.uint64
    whole = sum(int(word) << (64 * w) for w, word in enumerate(words))
    length = max(64, len(values))
    assert [(whole >> i) & 1 for i in range(length)] == values * (length // len(values))
    assert bits.unpack(words).tolist() == values * (length // len(values))


@pytest.mark.parametrize(("start", "count", "width"), [(0, 8, 3), (5, 10, 4), (64, 64, 7), (1 << 29, 5, 30), (0, 1, 0)])
def test_index_bits_lists_strings_lowest_position_first(start: int, count: int, width: int) -> None:
    rows = bits.index_bits(start, count, width)
    assert rows.shape == (count, width)
    assert rows.tolist() == [[(i >> j) & 1 for j in range(width)] for i in range(start, start + count)]


def assorted(n: int) -> list[BooleanFunction]:
    """Functions that take every way through the block evaluation."""
    rng = np.random.default_rng(n)
    order = rng.permutation(n).tolist()
    table = BooleanFunction.from_table(rng.integers(0, 2, 1 << min(n, 10)))
    inside = table.extend(n, order[: table.n])
    call = BooleanFunction.from_callable(lambda bits: bits[:, : n // 2 + 1].sum(axis=1) % 3 == 1, n)
    mixed = [inside, functions.majority(n).permute(order), functions.first(n), call, functions.random(n, 5)]
    return [
        *mixed,
        call.permute(order),
        functions.random(n, 5).permute(order),
        gate([0, 1, 1, 0, 1, 0], mixed),
        gate([1, 0, 1, 0, 1, 0], mixed),
        gate([1, 0, 0, 0, 0, 0], mixed),
        BooleanFunction.from_table(0xB39A11E4, 5).compose(mixed),
        ~call & (inside | functions.parity(n)),
        BooleanFunction.constant(1, n),
    ]


@pytest.mark.parametrize("n", [1, 2, 5, 6, 7, 9, 13, 16])
def test_tables_by_blocks_are_the_values_string_by_string(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = bits.index_bits(0, 1 << n, n)
    for f in assorted(n):
        assert np.array_equal(f.table(), f(rows)), f
    # Many small blocks, several threads.
    monkeypatch.setattr(blocks, "BLOCK_WORDS", 64)
    monkeypatch.setattr(blocks, "CALL_BLOCK_WORDS", 64)
    monkeypatch.setattr(blocks, "cores", lambda: 3)
    for f in assorted(n):
        assert np.array_equal(f.table(), f(rows)), f


def test_a_callable_is_asked_in_chunks_from_one_thread_with_progress() -> None:
    chunks: list[int] = []
    threads: set[int] = set()
    told: list[tuple[int, int]] = []

    def oracle(bits: np.ndarray) -> np.ndarray:
        chunks.append(len(bits))
        threads.add(threading.get_ident())
        return bits[:, -1]

    f = BooleanFunction.from_callable(oracle, 18)
    words = f.table_words(progress=lambda done, total: told.append((done, total)))
    assert sum(chunks) == 1 << 18
    assert max(chunks) <= 1 << 15
    assert threads == {threading.get_ident()}
    assert [done for done, _ in told] == np.cumsum(chunks).tolist()
    assert {total for _, total in told} == {1 << 18}
    assert np.array_equal(bits.unpack(words), np.arange(1 << 18) >> 17)


def test_blocks_shrink_when_there_is_much_to_hold() -> None:
    narrow = functions.random(20, 1)
    restricted = functions.random(9000, 1).restrict(dict.fromkeys(range(20, 9000), 1))
    wide = gate(np.arange(4001) > 7, [functions.majority(3).extend(20, [i % 18, i % 18 + 1, 19]) for i in range(4000)])
    assert blocks._block_words(narrow.node) == blocks.CALL_BLOCK_WORDS
    assert blocks._block_words(restricted.node) * 64 * 9000 <= 1 << 27
    assert blocks._block_words(wide.node) * 4000 <= blocks.NODE_WORDS
    assert sensitivity.count_ones(functions.majority(20)) == int(functions.majority(20).table().sum())


@pytest.mark.parametrize("arity", [7, 10, 22])
def test_restricted_tables_by_pieces(arity: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(arity).integers(0, 2, 1 << arity, np.uint8)
    table = structure.Table(arity, bits.pack(values))
    fixed = {1: 1, arity - 1: 0}
    index = np.arange(1 << arity)
    expected = values[((index >> 1) & 1 == 1) & (index >> (arity - 1) == 0)]
    for block in (structure.RESTRICT_BLOCK, 256):
        monkeypatch.setattr(structure, "RESTRICT_BLOCK", block if arity < 20 else 1 << 18)
        found = structure.restrict_table(table, fixed)
        assert found.arity == arity - 2
        assert np.array_equal(bits.unpack(found.words)[: 1 << (arity - 2)], expected)
