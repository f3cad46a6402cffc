"""Outcomes and their array files: what goes in comes out, and what is damaged is noticed."""

from __future__ import annotations

import errno
import math
import os
import time
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from repetitions import repeated

from flipscope.basics.errors import InputError
from flipscope.lab.store import outcomes
from flipscope.lab.store.arrays import ArrayFiles, LostArrays

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


def through(outcome: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The outcome after being written and read."""
    document, arrays = outcomes.split(outcome)
    files = ArrayFiles(folder)
    return outcomes.join(document, files.read(files.write(arrays)[0]))


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
def test_outcomes_come_back_exactly(tmp_path_factory: pytest.TempPathFactory, outcome: dict[str, Any]) -> None:
    folder = tmp_path_factory.getbasetemp() / "arrays-of-many"
    folder.mkdir(exist_ok=True)
    assert same(through(outcome, folder), outcome)


@pytest.mark.parametrize(
    "value", [{"!float": "nan"}, {"!int": "0x1"}, {"!array": ["bool", []]}, {"!!float": 1}, {"!": {"!": math.inf}}]
)
def test_tags_of_ones_own_are_not_taken_for_ours(value: Any, tmp_path: Path) -> None:
    assert same(through({"x": value, "!array": [value]}, tmp_path), {"x": value, "!array": [value]})


def test_numbers_of_numpy_become_those_of_python(tmp_path: Path) -> None:
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
    assert same(through(given_, tmp_path), wanted)


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
def test_any_memory_layout(array: np.ndarray, tmp_path: Path) -> None:
    found = through({"x": array}, tmp_path)["x"]
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


# ---------------------------------------------------------------- files


@pytest.fixture
def files(tmp_path: Path) -> ArrayFiles:
    return ArrayFiles(tmp_path)


def test_equal_arrays_share_a_file(files: ArrayFiles) -> None:
    one = files.write({"a": np.arange(3), "b": np.zeros(2)})
    two = files.write({"b": np.zeros(2), "a": np.arange(3)})
    assert one == two
    assert list(files.names()) == [one[0]]
    assert files.path(one[0]).stat().st_size == one[1]
    assert files.path(one[0]).parent.name == one[0][:2]
    assert files.write({"a": np.arange(3, dtype=np.int32), "b": np.zeros(2)}) != one


def test_every_flipped_bit_is_noticed(files: ArrayFiles) -> None:
    name, size = files.write({"a": np.arange(4, dtype=np.uint8)})
    path = files.path(name)
    content = path.read_bytes()
    for place in range(size):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert not files.intact(name)
        with pytest.raises(InputError, match="is damaged") as caught:
            files.read(name)
        assert str(path) in str(caught.value)
    path.write_bytes(content)
    assert files.intact(name)


@pytest.mark.parametrize("cut", [0, 1, 8, 40, -1])
def test_a_cut_off_file_is_noticed(files: ArrayFiles, cut: int) -> None:
    name, _ = files.write({"a": np.arange(40)})
    files.path(name).write_bytes(files.path(name).read_bytes()[:cut])
    assert not files.intact(name)
    with pytest.raises(LostArrays, match="is damaged"):
        files.read(name)


def test_a_missing_file_is_named(files: ArrayFiles) -> None:
    name, _ = files.write({"a": np.arange(40)})
    files.path(name).unlink()
    assert not files.intact(name)
    with pytest.raises(LostArrays, match=f"{name}.safetensors is missing"):
        files.read(name)


def test_writing_again_mends(files: ArrayFiles) -> None:
    name, _ = files.write({"a": np.arange(40)})
    files.path(name).write_bytes(b"rubbish")
    assert files.write({"a": np.arange(40)})[0] == name
    assert files.intact(name)


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_nothing_half_written(
    files: ArrayFiles, call: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space"):
        files.write({"a": np.arange(40)})
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_writes_in_small_bites(files: ArrayFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:7]))
    name, _ = files.write({"a": np.arange(40)})
    np.testing.assert_array_equal(files.read(name)["a"], np.arange(40))


def test_only_old_parts_are_leftovers(files: ArrayFiles, tmp_path: Path) -> None:
    files.write({"a": np.arange(3)})
    folder = next(tmp_path.iterdir())
    for age in (0, 3000, 4000):
        part = folder / f".{age}.safetensors.part"
        part.touch()
        os.utime(part, (time.time() - age,) * 2)
    assert [path.name for path in files.leftovers()] == [".4000.safetensors.part"]
