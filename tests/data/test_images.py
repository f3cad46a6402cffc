from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data.image_sets import (
    idx_bytes,
    python_batch,
    random_set,
    write_cifar,
    write_idx,
    write_npz,
    write_svhn,
)
from shared_data import FOLDER, needs_shared_data, tiny

from flipscope.basics.errors import InputError
from flipscope.data import images
from flipscope.data.images import ImageSet, load_images
from flipscope.data.plain_pickle import read_pickle

Writer = Callable[[Path, dict[str, Any]], None]
WRITERS: dict[str, tuple[str, Writer]] = {
    "idx packed": ("mnist", lambda folder, arrays: write_idx(folder, arrays)),
    "idx plain": ("fashion-mnist", lambda folder, arrays: write_idx(folder, arrays, packed=False)),
    "binary": ("cifar-10", lambda folder, arrays: write_cifar(folder, arrays, "binary")),
    "binary packed": ("cifar-10", lambda folder, arrays: write_cifar(folder, arrays, "binary", packed=True)),
    "python": ("cifar-10", lambda folder, arrays: write_cifar(folder, arrays, "python")),
    "python packed": ("cifar-10", lambda folder, arrays: write_cifar(folder, arrays, "python", packed=True)),
    "mat": ("svhn", write_svhn),
    "mat plain": ("svhn", lambda folder, arrays: write_svhn(folder, arrays, packed=False)),
    "npz": ("svhn", lambda folder, arrays: write_npz(folder / "svhn.npz", arrays)),
    "npz by LZMA": ("mnist", lambda folder, arrays: write_npz(folder / "mnist.npz", arrays, method=zipfile.ZIP_LZMA)),
    "npz by bzip2": ("mnist", lambda folder, arrays: write_npz(folder / "mnist.npz", arrays, method=zipfile.ZIP_BZIP2)),
}


def same(found: ImageSet, arrays: dict[str, Any]) -> None:
    for name, wanted in arrays.items():
        got = getattr(found, name)
        assert got.dtype == (np.uint8 if name.startswith("x") else np.int64)
        np.testing.assert_array_equal(got, wanted[..., None] if wanted.ndim == 3 else wanted)


@pytest.mark.parametrize("form", WRITERS)
def test_every_format_gives_the_same_set(form: str, tmp_path: Path) -> None:
    name, write = WRITERS[form]
    arrays = random_set(name)
    write(tmp_path, arrays)
    found = load_images(name, tmp_path)
    same(found, arrays)
    (tmp_path / "other").mkdir()
    write_npz(tmp_path / "other" / f"{name}.npz", arrays)
    assert load_images(name, tmp_path / "other").digest == found.digest


@needs_shared_data
@pytest.mark.parametrize("form", WRITERS)
def test_real_images_come_back_from_every_format(form: str, tmp_path: Path) -> None:
    name, write = WRITERS[form]
    arrays = tiny(name)
    write(tmp_path, arrays)
    same(load_images(name, tmp_path), arrays)


@needs_shared_data
def test_a_real_subset_is_read_as_it_lies_in_the_folder() -> None:
    found = load_images("mnist", FOLDER)
    assert found.x_train.shape == (10_000, 28, 28, 1)
    assert np.bincount(found.y_train).tolist() == [1_000] * 10
    assert found.mean == pytest.approx([0.1307], abs=0.002)  # the published mean of the complete set
    assert found.std == pytest.approx([0.3081], abs=0.002)


def test_a_set_may_lie_in_a_subfolder_of_its_name(tmp_path: Path) -> None:
    clothes, digits = random_set("fashion-mnist", seed=1), random_set("mnist", seed=2)
    write_idx(tmp_path / "fashion-mnist", clothes)
    write_idx(tmp_path / "MNIST" / "raw", digits, packed=False)
    same(load_images("fashion-mnist", tmp_path), clothes)
    same(load_images("mnist", tmp_path), digits)


def test_the_folder_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = random_set("svhn")
    write_svhn(tmp_path, arrays)
    monkeypatch.setenv("FLIPSCOPE_DATA", str(tmp_path))
    same(load_images("svhn"), arrays)
    monkeypatch.setenv("FLIPSCOPE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="nowhere does not exist on this machine: name one with --data DIR"):
        load_images("svhn")


def test_fashion_mnist_is_found_where_debian_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Path("/usr/share/datasets") == images.DEBIAN
    monkeypatch.setattr(images, "DEBIAN", tmp_path)
    monkeypatch.delenv("FLIPSCOPE_DATA", raising=False)
    arrays = random_set("fashion-mnist")
    with pytest.raises(InputError, match="no folder of data sets is named"):
        load_images("fashion-mnist")
    write_idx(tmp_path / "fashion-mnist", arrays)
    same(load_images("fashion-mnist"), arrays)
    with pytest.raises(InputError, match="no folder of data sets is named"):
        load_images("mnist")  # which Debian does not have, and whose files have the same names


def test_digits_need_no_files_and_are_split_the_same_way_each_time() -> None:
    pytest.importorskip("sklearn")
    found = load_images("digits")
    assert found.x_train.shape == (1_437, 8, 8, 1)
    assert found.x_test.shape == (360, 8, 8, 1)
    assert found.x_train.max() == 255
    assert found.digest == "724490bf47248ce40b71903f4a378ebdf79edb2da405dda87db6ebb4fa3cdbff"


def test_mean_and_std_are_those_of_the_training_pixels(tmp_path: Path) -> None:
    arrays = random_set("cifar-10")
    write_npz(tmp_path / "cifar10.npz", arrays)
    found = load_images("cifar-10", tmp_path)
    pixels = arrays["x_train"] / 255
    np.testing.assert_allclose(found.mean, pixels.mean(axis=(0, 1, 2)))
    np.testing.assert_allclose(found.std, pixels.std(axis=(0, 1, 2)))


def test_a_set_is_read_again_only_when_its_files_have_changed(tmp_path: Path) -> None:
    file = tmp_path / "svhn.npz"
    write_npz(file, random_set("svhn", seed=1))
    first = load_images("svhn", tmp_path)
    assert load_images("svhn", tmp_path) is first
    assert not first.x_train.flags.writeable
    write_npz(file, random_set("svhn", seed=2))
    os.utime(file, ns=(1, 1))
    assert load_images("svhn", tmp_path).digest != first.digest


def test_a_known_set_under_the_name_of_another_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx(tmp_path, random_set("mnist"))
    digest = load_images("mnist", tmp_path).digest
    monkeypatch.setitem(images.KINDS, "mnist", dataclasses.replace(images.KINDS["mnist"], digest=digest))
    with pytest.raises(InputError, match="holds mnist and not fashion-mnist"):
        load_images("fashion-mnist", tmp_path)


# ---------------------------------------------------------------- what is refused


def cut(file: Path, by: int = 40) -> None:
    file.write_bytes(file.read_bytes()[:-by])


BROKEN: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "gz cut off": ("idx packed", lambda folder: cut(folder / "train-images-idx3-ubyte.gz"), "is damaged or cut off"),
    "idx cut off": ("idx plain", lambda folder: cut(folder / "t10k-labels-idx1-ubyte", 1), "is damaged or cut off"),
    "no idx": (
        "idx plain",
        lambda folder: (folder / "train-images-idx3-ubyte").write_bytes(b"images"),
        "is not an idx file",
    ),
    "idx of floats": (
        "idx plain",
        lambda folder: (folder / "train-images-idx3-ubyte").write_bytes(b"\0\0\x0d\x01\0\0\0\x01abcd"),
        "bytes .0x08. are read",
    ),
    "idx too long": (
        "idx plain",
        lambda folder: (folder / "train-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(20, np.uint8)) + b"x"),
        "is longer than its header says",
    ),
    "idx of a huge size": (
        "idx plain",
        lambda folder: (folder / "train-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x03" + b"\xff" * 12),
        "would become larger than 512 MiB in memory",
    ),
    "idx missing": (
        "idx packed",
        lambda folder: (folder / "t10k-labels-idx1-ubyte.gz").unlink(),
        "but not t10k-labels-idx1-ubyte: the set is incomplete",
    ),
    "binary cut off": ("binary", lambda folder: cut(folder / "data_batch_3.bin"), "are no rows of 3,073"),
    "archive cut off": (
        "binary packed",
        lambda folder: cut(folder / "cifar-10-binary.tar.gz", 5_000),
        "cifar-10-binary.tar.gz is damaged or cut off|lacks",
    ),
    "pickle cut off": ("python", lambda folder: cut(folder / "test_batch"), "cannot be read to its end"),
    "another pickle": (
        "python",
        lambda folder: (folder / "data_batch_1").write_bytes(pickle.dumps({"data": [1], "labels": [2]})),
        "its data are not rows of 3,072 bytes",
    ),
    "mat cut off": ("mat", lambda folder: cut(folder / "train_32x32.mat"), "train_32x32.mat is damaged or cut off"),
    "npz cut off": ("npz", lambda folder: cut(folder / "svhn.npz"), "svhn.npz is damaged or cut off"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_refused_in_one_sentence(case: str, tmp_path: Path) -> None:
    form, damage, message = BROKEN[case]
    name, write = WRITERS[form]
    write(tmp_path, random_set(name))
    damage(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        load_images(name, tmp_path)
    assert "\n" not in str(caught.value)


WRONG: dict[str, tuple[str, Callable[[dict[str, Any]], object], str]] = {
    "labels": (
        "cifar-10",
        lambda arrays: arrays["y_test"].__setitem__(0, 10),
        "the test set in .* has the label 10, and those of cifar-10 are 0 to 9",
    ),
    "sizes": (
        "mnist",
        lambda arrays: arrays.update(x_train=arrays["x_train"][:, :27]),
        "images of 27 x 28 x 1, and those of mnist are 28 x 28 x 1",
    ),
    "counts": (
        "mnist",
        lambda arrays: arrays.update(y_train=arrays["y_train"][1:]),
        r"20 images and labels of shape \(19,\): one each is expected",
    ),
    "types": (
        "svhn",
        lambda arrays: arrays.update(x_test=arrays["x_test"] / 255),
        "images of type float64",
    ),
    "empty": (
        "svhn",
        lambda arrays: arrays.update(x_test=arrays["x_test"][:0], y_test=arrays["y_test"][:0]),
        "one each is expected",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_set_that_is_not_what_its_name_says_is_refused(case: str, tmp_path: Path) -> None:
    name, change, message = WRONG[case]
    arrays = random_set(name)
    change(arrays)
    write_npz(tmp_path / f"{name}.npz", arrays)
    with pytest.raises(InputError, match=message):
        load_images(name, tmp_path)


def test_labels_of_svhn_are_digits_only(tmp_path: Path) -> None:
    arrays = random_set("svhn")
    arrays["y_train"][3] = 11
    write_svhn(tmp_path, arrays)
    with pytest.raises(InputError, match="labels that are not 1 to 10"):
        load_images("svhn", tmp_path)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no files of cifar-10: put cifar-10-binary"):
        load_images("cifar-10", tmp_path)
    with pytest.raises(InputError, match="is not one of the image sets digits, mnist, fashion-mnist, cifar-10, svhn"):
        load_images("imagenet", tmp_path)
    np.savez(tmp_path / "mnist.npz", x_train=np.zeros(3))
    with pytest.raises(InputError, match="lacks the array y_train"):
        load_images("mnist", tmp_path)
    write_npz(tmp_path / "mnist_subset.npz", random_set("mnist"))
    with pytest.raises(InputError, match="several files of mnist"):
        load_images("mnist", tmp_path)


# ---------------------------------------------------------------- pickles


@pytest.mark.parametrize("protocol", range(5))
def test_pickles_of_every_protocol_that_python_writes_are_read(protocol: int) -> None:
    rows = np.arange(2 * 3_072, dtype=np.uint8).reshape(2, -1)
    batch = read_pickle(python_batch(rows, np.array([3, 1]), protocol), "batch")
    assert batch[b"labels"] == [3, 1]
    np.testing.assert_array_equal(batch[b"data"], rows)


def test_texts_of_python_2_are_read_as_bytes() -> None:
    """CIFAR-10's own batches: protocol 2 of Python 2, where text and pixels are byte strings."""
    content = (
        b"\x80\x02}q\x01(U\x06labelsq\x02]q\x03(K\x06K\teU\x04dataq\x04cnumpy.core.multiarray\n_reconstruct\nq\x05"
    )
    content += (
        b"cnumpy\nndarray\nq\x06K\x00\x85q\x07U\x01bq\x08\x87q\tRq\n(K\x01K\x01K\x03\x86q\x0bcnumpy\ndtype\nq\x0c"
    )
    content += b"U\x02u1q\rK\x00K\x01\x87q\x0eRq\x0f(K\x03U\x01|q\x10NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
    content += b"U\x03a\xffbq\x11tbu."
    found = read_pickle(content, "batch")
    assert found[b"labels"] == [6, 9]
    assert found[b"data"].tolist() == [[97, 255, 98]]


class Runs:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/flipscope-was-here",)


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        ({b"labels": Runs()}, "its pickle names posix system, which is not read"),
        ({b"labels": np.array([1.5])}, "array of numpy's type 'f8'"),
        ({b"labels": np.array(["text"])}, "array of numpy's type 'U4'"),
        ({b"labels": [[1]]}, "a list of something else than numbers and texts"),
        ({b"labels": {1, 2}}, "has the instruction EMPTY_SET"),
        ({b"labels": (1, 2)}, "neither a number, a text nor an array"),
        ([1, 2], "holds no dict"),
    ],
)
def test_pickles_that_do_more_are_refused(thing: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_pickle(pickle.dumps(thing, 4), "batch")
    assert not Path("/tmp/flipscope-was-here").exists()


def test_every_cut_of_a_pickle_is_refused() -> None:
    content = python_batch(np.zeros((1, 12), np.uint8), np.array([1]))
    for length in range(len(content)):
        with pytest.raises(InputError, match="batch is damaged or cut off"):
            read_pickle(content[:length], "batch")


@pytest.mark.filterwarnings("ignore:invalid escape sequence")  # which a changed byte can bring about
def test_changed_bytes_of_a_pickle_never_raise_anything_else() -> None:
    content = python_batch(np.zeros((1, 12), np.uint8), np.array([1]))
    stream = np.random.default_rng(0)
    for _ in range(500):
        changed = bytearray(content)
        changed[stream.integers(len(content))] = stream.integers(256)
        with contextlib.suppress(InputError):
            read_pickle(bytes(changed), "batch")


def test_a_list_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InputError, match="a list of something else"):
        read_pickle(pickle.dumps({b"labels": loop}, 2), "batch")
