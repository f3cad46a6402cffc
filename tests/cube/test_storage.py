"""Functions on disk: every kind comes back, damage of any sort is one sentence, and nothing half-written is left."""

from __future__ import annotations

import errno
import io
import json
import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cube.messages import one_sentence
from waiting import answered

from flipscope.basics import npz
from flipscope.basics.errors import InputError
from flipscope.cube import functions, sensitivity, storage
from flipscope.cube.functions import BooleanFunction, gate
from flipscope.cube.structure import post_order

B = BooleanFunction


def odd_oracle(bits: np.ndarray) -> np.ndarray:
    return bits[:, ::2].sum(axis=1) % 3 == 1


def shared(levels: int) -> BooleanFunction:
    """A function of 2^levels paths but only a few nodes a level."""
    f, g, h = functions.random(8, 1), functions.majority(8), functions.random(8, 2)
    for _ in range(levels):
        f = (f & g) | (f & h)
    return f


KINDS: dict[str, Callable[[], BooleanFunction]] = {
    "zero": lambda: B.constant(0, 5),
    "one": lambda: B.constant(1, 10_000),
    "variable": lambda: B.variable(7, 9),
    "table of one bit": lambda: B.from_table([1, 0]),
    "table": lambda: B.from_table(np.random.default_rng(0).integers(0, 2, 1 << 11)),
    "table out of order": lambda: B.from_table(0x1B3F, 4).extend(50, [40, 3, 2, 49]),
    "symmetric": lambda: functions.random_symmetric(10_000),
    "symmetric of seven bits": lambda: functions.random_symmetric(7, 2),
    "symmetric of eight bits": lambda: functions.random_symmetric(8, 2),
    "callable": lambda: B.from_callable(odd_oracle, 9),
    "callable out of order": lambda: B.from_callable(odd_oracle, 5).extend(100, [70, 3, 2, 99, 0]),
    "negated callable": lambda: ~B.from_callable(odd_oracle, 9),
    "restricted callable": lambda: B.from_callable(odd_oracle, 9).restrict({0: 1, 8: 1}),
    "callable of constants": lambda: B.from_callable(odd_oracle, 2).compose([B.constant(1, 4), B.constant(0, 4)]),
    "callable of functions": lambda: B.from_callable(odd_oracle, 3).compose([functions.random(6, i) for i in range(3)]),
    "random": lambda: functions.random(300, seed=2**65),
    "restricted random": lambda: functions.random(64, seed=4).restrict({5: 1, 60: 0}),
    "random junta": lambda: functions.random_junta(6, 2000, seed=4),
    "address": lambda: functions.address(12),
    "tribes": lambda: functions.tribes(1000),
    "gate": lambda: gate([0, 1, 0, 0, 1], [functions.random(6, i) for i in range(4)]),
    "composition": lambda: B.from_table(0xCA, 3).compose(
        [functions.parity(7), functions.address(2).extend(7), functions.first(7)]
    ),
    "negated gate": lambda: ~(functions.majority(6) & functions.random(6)),
    "shared parts": lambda: shared(60),
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_every_kind_comes_back(make: Callable[[], BooleanFunction], tmp_path: Path) -> None:
    f, path = make(), tmp_path / "f.npz"
    f.save(path)
    g = BooleanFunction.load(str(path))
    assert g.n == f.n
    assert g.support == f.support
    rows = np.random.default_rng(1).integers(0, 2, (200, f.n), np.uint8)
    assert np.array_equal(g(rows), f(rows))
    if len(f.support) <= 20:
        assert g == f
        assert sensitivity.profile(g) == sensitivity.profile(f)
    assert hash(g) == hash(f)
    g.save(path)
    assert np.array_equal(BooleanFunction.load(path)(rows), f(rows))
    assert [left.name for left in tmp_path.iterdir()] == ["f.npz"]


def test_structure_survives_so_large_functions_stay_exact(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    for f in (functions.majority(9999), functions.tribes(300), functions.random(500), functions.sparse_parity(9, 5000)):
        f.save(path)
        assert BooleanFunction.load(path) == f
    shared(60).save(path)
    assert len(post_order(BooleanFunction.load(path).node)) == len(post_order(shared(60).node))
    assert path.stat().st_size < 100_000


def test_an_existing_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    path.write_bytes(b"something else")
    path.chmod(stat.S_IRUSR)
    functions.majority(5).save(path)
    assert BooleanFunction.load(path) == functions.majority(5)


# ---------------------------------------------------------------- what cannot be written


def test_a_callable_of_too_many_bits_cannot_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    with one_sentence("31 bits"):
        B.from_callable(odd_oracle, 31).save(path)
    with one_sentence("40 bits"):
        (B.from_callable(odd_oracle, 40) & functions.first(40)).save(path)
    assert list(tmp_path.iterdir()) == []


def test_a_callable_that_fails_while_saving_leaves_nothing(tmp_path: Path) -> None:
    with one_sentence("returned 2"):
        B.from_callable(lambda bits: np.full(len(bits), 2), 8).save(tmp_path / "f.npz")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_directory_and_a_directory_in_the_way(tmp_path: Path) -> None:
    with one_sentence("the folder does not exist"):
        functions.first(3).save(tmp_path / "nowhere" / "f.npz")
    (tmp_path / "f.npz").mkdir()
    with one_sentence("cannot be written"):
        functions.first(3).save(tmp_path / "f.npz")
    with one_sentence("cannot be written"):
        functions.first(3).save(tmp_path / ("x" * 300))
    assert [left.name for left in tmp_path.iterdir()] == ["f.npz"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="permissions do not bind this user")
def test_a_read_only_directory(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with one_sentence("Permission denied"):
        functions.first(3).save(tmp_path / "f.npz")
    tmp_path.chmod(stat.S_IRWXU)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("where", "what", "error"),
    [
        (Path, "replace", PermissionError(errno.EACCES, "Permission denied")),
        (storage.os, "fsync", OSError(errno.EIO, "Input/output error")),
        (storage.np, "savez_compressed", OSError(errno.ENOSPC, "No space left on device")),
        (Path, "touch", PermissionError(errno.EACCES, "Permission denied")),
    ],
)
def test_a_failing_disk_is_one_sentence_and_the_old_file_stays(
    where: Any, what: str, error: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f.npz"
    functions.majority(5).save(path)

    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(where, what, fail)
        with one_sentence(str(error.strerror)):
            functions.first(5).save(path)
    assert [left.name for left in tmp_path.iterdir()] == ["f.npz"]
    assert BooleanFunction.load(path) == functions.majority(5)


def test_an_interrupted_save_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(storage.np, "savez_compressed", interrupt)
    with pytest.raises(KeyboardInterrupt):
        functions.first(5).save(tmp_path / "f.npz")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- what cannot be read


def saved(f: BooleanFunction, path: Path) -> bytes:
    f.save(path)
    return path.read_bytes()


@pytest.fixture
def rich() -> BooleanFunction:
    parts = [functions.random(7, 1), functions.majority(7), B.from_table(0xDEADBEEF, 5).extend(7)]
    return gate([0, 1, 1, 0], parts) | functions.conjunction(7)


def test_a_file_cut_anywhere_is_not_whole(rich: BooleanFunction, tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    whole = saved(rich, path)
    for length in [*range(0, 64), *range(64, len(whole), 17), len(whole) - 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        with one_sentence("not a complete flipscope function file"):
            BooleanFunction.load(path)


def test_a_changed_byte_is_an_error_or_harmless(rich: BooleanFunction, tmp_path: Path) -> None:
    """Checksums guard the contents; bytes they do not cover may change without harm, but never the function."""
    path = tmp_path / "f.npz"
    whole = saved(rich, path)
    rng, errors = np.random.default_rng(0), 0
    for place in [*range(0, len(whole), 5)]:
        damaged = bytearray(whole)
        damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            assert BooleanFunction.load(path) == rich
        except ValueError:
            with one_sentence():
                BooleanFunction.load(path)
            errors += 1
    assert errors > len(whole) // 5 // 3


def archive(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def described(structure: Any, **arrays: Any) -> bytes:
    text = structure if isinstance(structure, bytes) else json.dumps(structure).encode()
    return archive(structure=np.frombuffer(text, np.uint8), **arrays)


def plain_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("hello.txt", "hello")
        file.writestr("structure", "not an array")
    return buffer.getvalue()


def one_array() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(5))
    return buffer.getvalue()


def node(**spec: Any) -> Any:
    return {"version": 1, "n": 3, "nodes": [spec]}


PARITY = np.packbits(np.array([0, 1, 0, 1], np.uint8))
FOREIGN: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "text": lambda: b"maj(x1..x5)\n" * 50,
    "another zip": plain_zip,
    "one array": one_array,
    "pickle": lambda: b"\x80\x04K\x01.",
    "arrays without structure": lambda: archive(words=np.zeros(3)),
    "objects": lambda: archive(structure=np.array([{"a": 1}], object)),
    "not json": lambda: described(b"{]"),
    "not text": lambda: described(b"\xff\xfe\x00"),
    "a list": lambda: described([1, 2]),
    "a number": lambda: described(3),
    "no version": lambda: described({"n": 3, "nodes": []}),
    "version as text": lambda: described({"version": "1", "n": 3, "nodes": []}),
    "no nodes": lambda: described({"version": 1, "n": 3, "nodes": []}),
    "nodes that are numbers": lambda: described({"version": 1, "n": 3, "nodes": [3]}),
    "nodes that are text": lambda: described({"version": 1, "n": 3, "nodes": "const"}),
    "no array": lambda: described(node(kernel={"symmetric": "array0", "arity": 3}, positions=[0, 1, 2])),
    "wrong arity": lambda: described(node(kernel={"symmetric": "a", "arity": 30}, positions=[0, 1, 2]), a=PARITY),
    "too few positions": lambda: described(node(kernel={"symmetric": "a", "arity": 3}, positions=[0, 1]), a=PARITY),
    "position outside": lambda: described(node(kernel={"symmetric": "a", "arity": 3}, positions=[0, 1, 5]), a=PARITY),
    "position negative": lambda: described(node(kernel={"symmetric": "a", "arity": 3}, positions=[0, 1, -1]), a=PARITY),
    "positions as text": lambda: described(node(kernel={"symmetric": "a", "arity": 3}, positions="012"), a=PARITY),
    "child of itself": lambda: described(node(kernel={"symmetric": "a", "arity": 3}, children=[0, 0, 0]), a=PARITY),
    "values of another type": lambda: described(
        node(kernel={"symmetric": "a", "arity": 3}, positions=[0, 1, 2]), a=np.array([1.5])
    ),
    "table too short": lambda: described(
        node(kernel={"table": "a", "arity": 9}, positions=list(range(9))), a=np.zeros(3, np.uint64)
    ),
    "table of floats": lambda: described(node(kernel={"table": "a", "arity": 3}, positions=[0, 1, 2]), a=np.zeros(1)),
    "table not repeated": lambda: described(
        node(kernel={"table": "a", "arity": 3}, positions=[0, 1, 2]), a=np.array([7], np.uint64)
    ),
    "unknown zoo": lambda: described(node(kernel={"zoo": "open", "arguments": {"file": "x"}}, positions=[0, 1, 2])),
    "zoo arguments": lambda: described(node(kernel={"zoo": "random", "arguments": {"n": -1}}, positions=[0, 1, 2])),
    "zoo names": lambda: described(node(kernel={"zoo": "random", "arguments": {"m": 1}}, positions=[0, 1, 2])),
    "n too small": lambda: described(
        {**node(kernel={"symmetric": "a", "arity": 3}, positions=[0, 1, 2]), "n": 2}, a=PARITY
    ),
    "n zero": lambda: described({"version": 1, "n": 0, "nodes": [{"const": 1}]}),
    "n missing": lambda: described({"version": 1, "nodes": [{"const": 1}]}),
    "deep json": lambda: described(b'{"version":1,"n":3,"nodes":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_foreign_files_are_one_sentence(content: Callable[[], bytes], tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    path.write_bytes(content())
    with one_sentence():
        BooleanFunction.load(path)


def test_a_newer_format_asks_for_an_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    path.write_bytes(described({"version": storage.VERSION + 1, "n": 3, "nodes": [{"from": "the future"}]}))
    with one_sentence("newer flipscope"):
        BooleanFunction.load(path)


def test_a_random_function_of_the_first_format_was_another_one(tmp_path: Path) -> None:
    """Its name and seed are kept, not its values, and format 1 meant other values by them."""
    path = tmp_path / "f.npz"
    spec = node(kernel={"zoo": "random", "arguments": {"n": 3, "seed": 1}}, positions=[0, 1, 2])
    path.write_bytes(described(spec))
    with one_sentence("older flipscope"):
        BooleanFunction.load(path)
    path.write_bytes(described({**spec, "version": storage.VERSION}))
    assert BooleanFunction.load(path) == functions.random(3, 1)
    path.write_bytes(described(node(kernel={"zoo": "address", "arguments": {"k": 1}}, positions=[0, 1, 2])))
    assert BooleanFunction.load(path) == functions.address(1)


def test_what_is_described_by_hand_is_read(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    path.write_bytes(described(node(kernel={"symmetric": "a", "arity": 3}, positions=[0, 1, 2]), a=PARITY))
    assert BooleanFunction.load(path) == functions.parity(3)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "f.npz")
    found = answered(lambda: BooleanFunction.load(tmp_path / "f.npz"))
    assert isinstance(found, InputError)
    assert "is not a file but a pipe" in str(found)


def test_a_table_of_another_size_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f.npz"
    words = np.zeros(1 << 14, np.uint64)
    path.write_bytes(described(node(kernel={"table": "a", "arity": 10}, positions=list(range(10))), a=words))
    unpacked = []
    real = npz.Arrays.__getitem__
    monkeypatch.setattr(npz.Arrays, "__getitem__", lambda own, name: unpacked.append(name) or real(own, name))
    with one_sentence("is not a complete flipscope function file"):
        BooleanFunction.load(path)
    assert unpacked == ["structure"]


def test_missing_files_and_directories(tmp_path: Path) -> None:
    with one_sentence("does not exist"):
        BooleanFunction.load(tmp_path / "nothing.npz")
    with one_sentence("does not exist"):
        BooleanFunction.load(tmp_path / "no" / "where.npz")
    with one_sentence():
        BooleanFunction.load(tmp_path)
