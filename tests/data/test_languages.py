from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipscope.basics.errors import InputError
from flipscope.cube import functions
from flipscope.cube.functions import BooleanFunction
from flipscope.data.languages import SIZES, LabelledStrings, draw, random_language


def words(data: LabelledStrings) -> list[bytes]:
    return [string.tobytes() for string in data.bits]


def test_default_sizes_are_the_papers() -> None:
    splits = draw(functions.majority(100), 100, seed=3)
    assert {name: len(split) for name, split in splits.items()} == {"train": 10_000, "validation": 1_000, "test": 1_000}
    assert list(splits) == list(SIZES)
    for split in splits.values():
        assert split.n == 100
        assert split.bits.dtype == split.labels.dtype == np.uint8
        assert np.array_equal(split.labels, split.bits.sum(axis=1) > 50)
        # Strings as they come: a tie is 0, hence a little less than half of the labels are 1.
        assert abs(split.ones / len(split) - 0.46) < 0.06
    assert abs(splits["train"].bits.mean(axis=0) - 0.5).max() < 0.03


@given(n=st.integers(1, 9), seed=st.integers(0, 2**40), data=st.data())
def test_no_string_twice_even_when_the_cube_is_used_up(n: int, seed: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(1, max(1, 2**n - 1)))
    sizes = {"train": first, "test": max(1, 2**n - first)}
    splits = draw(functions.parity(n), n, sizes, seed)
    everything = list(itertools.chain.from_iterable(words(split) for split in splits.values()))
    assert len(set(everything)) == len(everything) == sum(sizes.values())


@pytest.mark.parametrize("n", [21, 70])
def test_splits_are_disjoint_and_streams_distinct(n: int) -> None:
    splits = draw(functions.first(n), n, {"a": 300, "b": 300, "c": 300}, seed=1)
    assert len({word for split in splits.values() for word in words(split)}) == 900


def test_rejection_fills_what_is_left_of_a_crowded_cube(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flipscope.data.languages._CUBE_BITS", 0)
    splits = draw(functions.parity(7), 7, {"train": 127, "test": 1}, seed=5)
    assert len(set(words(splits["train"]) + words(splits["test"]))) == 128


@pytest.mark.parametrize("n", [12, 60])
def test_seeds(n: int) -> None:
    f = functions.majority(n)
    sizes = {"train": 50, "test": 20}
    one, same, other = draw(f, n, sizes, 4), draw(f, n, sizes, 4), draw(f, n, sizes, 5)
    for name in sizes:
        assert np.array_equal(one[name].bits, same[name].bits)
        assert np.array_equal(one[name].labels, same[name].labels)
        assert not np.array_equal(one[name].bits, other[name].bits)
    longer = draw(f, n, {"train": 80}, 4)["train"]
    assert np.array_equal(longer.bits[:50], one["train"].bits)
    generator = draw(f, n, sizes, np.random.default_rng(4))
    assert np.array_equal(generator["test"].bits, one["test"].bits)


def test_uniform_over_a_small_cube() -> None:
    counts = np.zeros(8)
    for seed in range(400):
        bits = draw(functions.first(3), 3, {"train": 2, "test": 1}, seed)["test"].bits
        counts[bits[0] @ (1, 2, 4)] += 1
    # Expectation 50, standard deviation 6.6.
    assert counts.min() > 20
    assert counts.max() < 85


@pytest.mark.parametrize(("n", "size"), [(10, 101), (40, 101), (40, 100)])
def test_balanced(n: int, size: int) -> None:
    splits = draw(functions.threshold(n // 2 + 2, n), n, {"train": size, "test": 10}, seed=2, balanced=True)
    assert splits["train"].ones == size // 2
    assert splits["test"].ones == 5
    assert not set(words(splits["train"])) & set(words(splits["test"]))
    assert 0 < splits["train"].labels[:30].sum() < 30  # not one class after the other


def test_callable_language() -> None:
    split = draw(lambda bits: bits[:, 0] & bits[:, 1], 30, {"train": 64}, 0)["train"]
    assert np.array_equal(split.labels, split.bits[:, 0] & split.bits[:, 1])


def test_random_language_has_coins_for_labels() -> None:
    language = random_language(40, 10_000, seed=7)
    assert language.bits.shape == (10_000, 40)
    assert len(set(words(language))) == 10_000
    assert abs(language.ones - 5_000) < 250  # five standard deviations
    assert abs(np.corrcoef(language.bits.T, language.labels)[-1, :-1]).max() < 0.05
    assert np.array_equal(random_language(40, 10_000, seed=7).labels, language.labels)
    assert not np.array_equal(random_language(40, 10_000, seed=8).labels, language.labels)


def test_random_language_of_another_length_is_another_one() -> None:
    short, long = random_language(40, 1_000, seed=7), random_language(41, 1_000, seed=7)
    assert abs(int((short.labels == long.labels).sum()) - 500) < 100  # six standard deviations
    assert abs(float((short.bits == long.bits[:, :40]).mean()) - 0.5) < 0.02


def test_random_language_of_the_whole_cube() -> None:
    assert len(set(words(random_language(5, 32, seed=0)))) == 32


def test_arrays_are_copies_that_cannot_be_written_to() -> None:
    bits = np.zeros((2, 3), np.uint8)
    data = LabelledStrings(bits, np.array([0, 1]))
    bits[0, 0] = 1
    assert data.bits.sum() == 0
    with pytest.raises(ValueError, match="read-only"):
        data.labels[0] = 1
    assert (len(data), data.n, data.ones) == (2, 3, 1)
    assert LabelledStrings([[True, False]], [True]).bits.dtype == np.uint8  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bits", "labels", "message"),
    [
        (np.zeros((0, 3)), np.zeros(0), "bits of shape"),
        (np.zeros((3, 0)), np.zeros(3), "bits of shape"),
        (np.zeros(3), np.zeros(3), "bits of shape"),
        ([[0, 1], [1]], [0, 1], "different lengths"),
        (np.full((2, 2), 2), np.zeros(2), "bits"),
        (np.array([[0.5, 1.0]]), np.zeros(1), "bits"),
        (np.array([[np.nan, 1.0]]), np.zeros(1), "bits"),
        (np.array([["0", "1"]]), np.zeros(1), "bits"),
        (np.zeros((2, 2)), np.zeros(3), "labels of shape"),
        (np.zeros((2, 2)), np.zeros((2, 1)), "labels of shape"),
        (np.zeros((2, 2)), np.array([0, np.nan]), "labels"),
        (np.zeros((2, 2)), np.array([0, 2]), "labels"),
        (np.zeros((2, 2)), np.array([0, -1]), "labels"),
    ],
)
def test_refuses_bad_strings(bits: Any, labels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        LabelledStrings(bits, labels)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "number of bits"),
        ({"n": 9}, "length of the language"),
        ({"language": 3}, "language must be a BooleanFunction or callable"),
        ({"sizes": {}}, "sizes is empty"),
        ({"sizes": {"train": 0}}, "'train'"),
        ({"sizes": {"train": 1.5}}, "'train'"),
        ({"sizes": {"train": True}}, "'train'"),
        ({"sizes": {"train": 200, "test": 57}}, "257 different strings of n=8 bits do not exist"),
        ({"seed": -1}, "seed"),
        ({"language": lambda bits: bits}, "shape"),
        ({"language": lambda bits: np.full(len(bits), np.nan)}, "the language"),
        ({"language": lambda bits: bits[:, 0] + 1}, "the language"),
    ],
)
def test_refuses_bad_draws(arguments: dict[str, Any], message: str) -> None:
    given_ = {"language": functions.parity(8), "n": 8, "sizes": {"train": 10}} | arguments
    with pytest.raises(InputError, match=message):
        draw(**given_)


@pytest.mark.parametrize("n", [8, 100])
def test_refuses_a_balance_that_does_not_exist(n: int) -> None:
    for f, missing in ((functions.conjunction(n), 1), (BooleanFunction.constant(1, n), 0)):
        with pytest.raises(InputError, match=rf"balanced=True needs \d+ more strings of label {missing}"):
            draw(f, n, {"train": 10}, balanced=True)


def test_refuses_more_random_labels_than_strings() -> None:
    with pytest.raises(InputError, match="33 different strings"):
        random_language(5, 33)
    with pytest.raises(InputError, match="count"):
        random_language(5, 0)
