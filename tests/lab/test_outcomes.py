"""Outcomes as documents and arrays: what goes in comes out."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from repetitions import repeated

from flipscope.basics.errors import InputError
from flipscope.lab.store import outcomes

TEXT = st.text(st.characters(exclude_categories=()), max_size=8)  # lone surrogates too
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers().map(lambda n: n << 20_000), st.floats(), TEXT, st.just("!x")
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=10
)
NAMES = st.text(max_size=8) | st.sampled_from(["!float", "!", "!!x", "", "a/b", "naïve\0"])
ARRAYS = st.sampled_from(sorted(outcomes.TYPES)).flatmap(
    lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
)


def through(outcome: dict[str, Any]) -> dict[str, Any]:
    """The outcome after being written and read."""
    document, arrays = outcomes.split(outcome)
    return outcomes.join(document, outcomes.unpacked(outcomes.packed(arrays)))


def same(one: Any, other: Any) -> bool:
    """Equal in value and type, NaN being equal to NaN and 0 not to -0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or (one == other and str(one) == str(other))
    return bool(one == other)


@settings(max_examples=repeated(150, 50))
@given(st.dictionaries(NAMES, VALUES | ARRAYS, max_size=5))
def test_outcomes_come_back_exactly(outcome: dict[str, Any]) -> None:
    assert same(through(outcome), outcome)


@pytest.mark.parametrize(
    "value", [{"!float": "nan"}, {"!int": "0x1"}, {"!array": ["bool", []]}, {"!!float": 1}, {"!": {"!": math.inf}}]
)
def test_tags_of_ones_own_are_not_taken_for_ours(value: Any) -> None:
    assert same(through({"x": value, "!array": [value]}), {"x": value, "!array": [value]})


def test_numbers_of_numpy_become_those_of_python() -> None:
    class Colour(IntEnum):
        RED = 3

    given_ = {
        "a": np.float32(0.1),
        "b": np.int64(-5),
        "c": np.bool_(True),
        "d": np.str_("é"),
        "e": Colour.RED,
        "t": (1,),
    }
    wanted = {"a": float(np.float32(0.1)), "b": -5, "c": True, "d": "é", "e": 3, "t": [1]}
    assert same(through(given_), wanted)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6)[::-2],
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(3, dtype=">i4"),
        np.broadcast_to(np.float32(1), (3, 2)),
        np.zeros((0, 3), bool),
        np.array(2.5),
        np.array([np.nan, -0.0, np.inf]),
    ],
)
def test_any_memory_layout(array: np.ndarray) -> None:
    found = through({"x": array})["x"]
    np.testing.assert_array_equal(found, array)
    assert found.shape == array.shape
    assert found.dtype == array.dtype.newbyteorder("=")
    assert found.flags.writeable


class Circle(list):  # type: ignore[type-arg]
    def __init__(self) -> None:
        self.append(self)


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ({"x": [np.zeros(2)]}, ["outcome 'x'[0]", "array inside"]),
        ({"x": {"y": np.zeros(2)}}, ["outcome 'x'['y']", "array inside"]),
        ({"x": 1j}, ["'x'", "complex"]),
        ({"x": np.longdouble(1) / 3}, ["'x'", "longdouble"]),
        ({"x": b"y"}, ["'x'", "bytes"]),
        ({"x": {1, 2}}, ["'x'", "set"]),
        ({"x": object()}, ["'x'", "object"]),
        ({"x": {1: 2}}, ["'x'", "name 1"]),
        ({3: 4}, ["name 3"]),
        ({3: np.zeros(1)}, ["name 3"]),
        ({"x": np.array(["a"])}, ["'x'", "<U1"]),
        ({"x": np.array([None])}, ["'x'", "object"]),
        ({"x": np.zeros(1, complex)}, ["'x'", "complex128"]),
        ({"x": np.ma.masked_array([1, 2], [True, False])}, ["'x'", "mask"]),
        ({"__metadata__": np.zeros(1)}, ["__metadata__", "rename"]),
        ({"\ud800": np.zeros(1)}, ["Unicode", "rename"]),
        ({"x": Circle()}, ["'x'", "holds itself"]),
        ([1, 2], ["dict", "list"]),
    ],
)
def test_what_cannot_be_stored_is_named(outcome: Any, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        outcomes.split(outcome)
    assert all(word in str(caught.value) for word in words), caught.value
    assert "\n" not in str(caught.value)


def test_scalars_leave_lists_and_arrays_out() -> None:
    document, _ = outcomes.split({"n": 1, "f": math.nan, "l": [1], "d": {}, "a": np.zeros(2), "s": "t", "none": None})
    assert list(outcomes.scalars(document)) == ["n", "f", "s", "none"]


def test_equal_arrays_have_equal_bytes() -> None:
    one = outcomes.packed({"a": np.arange(3), "b": np.zeros(2)})
    assert one == outcomes.packed({"b": np.zeros(2), "a": np.arange(3)})
    assert one != outcomes.packed({"a": np.arange(3, dtype=np.int32), "b": np.zeros(2)})
    with pytest.raises(ValueError, match=r"\S"):
        outcomes.unpacked(one[:-1])


def test_arrays_that_no_database_holds_are_an_error_of_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "LARGEST_ARRAYS", 100)
    outcomes.split({"x": np.zeros(12)})
    with pytest.raises(InputError, match="the arrays of an outcome have 104 bytes, more than 100: store fewer"):
        outcomes.split({"x": np.zeros(12), "y": np.zeros(1)})
