"""Readers of the standard files of image sets: idx, CIFAR-10's two versions, SVHN's .mat, and .npz.

Each reader gives a training and a test set as arrays, or an InputError in one sentence; nothing is half read. What the
arrays must be like (sizes, labels) is checked by `flipscope.data.images`.
"""

from __future__ import annotations

import math
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flipscope.basics import npz
from flipscope.basics.errors import InputError
from flipscope.basics.opening import MOST, content, damaged, opened, too_large
from flipscope.data.finding import first_of
from flipscope.data.plain_pickle import read_pickle

# Images [image, row, column] or [image, row, column, channel] and their labels.
Part: TypeAlias = tuple[NDArray[Any], NDArray[Any]]
Parts: TypeAlias = tuple[Part, Part]  # of training and of test

_BLOCK, _REGULAR = 512, (b"0", b"\0")  # of a tar archive: the size of its blocks, and the types of plain files
# Of a .mat file: bytes before the first element, types of elements, and numpy's names for those that are numbers.
_MAT_HEADER, _MATRIX, _PACKED = 128, 14, 15
_MAT_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_BATCHES = [f"data_batch_{number}" for number in range(1, 6)]


@dataclass(frozen=True)
class Form:
    """The files of an image set as they were found: in which format, and the function that reads them."""

    format: str
    files: tuple[Path, ...]
    read: Callable[[], Parts]


# ---------------------------------------------------------------- idx


def idx_form(folder: Path) -> Form | None:
    """The four idx files of MNIST and Fashion-MNIST, packed or not; None where there is none of them."""
    stems = [f"{part}-{kind}" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
    names = [[f"{stem}-ubyte", f"{stem}-ubyte.gz", f"{stem.replace('-idx', '.idx')}-ubyte"] for stem in stems]
    files = _all_or_none(folder, names)
    if files is None:
        return None

    def read() -> Parts:
        images, labels, more_images, more_labels = (read_idx(file) for file in files)
        return (images, labels), (more_images, more_labels)

    return Form("idx", files, read)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The bytes of an idx file, `.gz` or plain, as an array of the shape that its header gives."""
    with opened(path) as file:
        head = file.read(4)
        if len(head) < 4 or head[:2] != b"\0\0":
            raise InputError(f"{path} is not an idx file: it does not begin with two zero bytes")
        if head[2] != 8:
            raise InputError(f"{path} holds numbers of idx type {head[2]:#04x}, and bytes (0x08) are read")
        if head[3] not in (1, 3):
            raise InputError(f"{path} has {head[3]} dimensions, and images have 3 and labels 1")
        sizes = file.read(4 * head[3])
        if len(sizes) < 4 * head[3]:
            raise damaged(path)
        shape = tuple(int(each) for each in np.frombuffer(sizes, ">u4"))
        if 0 in shape:
            raise InputError(f"{path} is empty: its header gives the sizes {', '.join(map(str, shape))}")
        need = math.prod(shape)
        pixels = file.read(need)
        longer = file.read(1)
    if len(pixels) < need:
        raise damaged(path)
    if longer:
        raise InputError(f"{path} is longer than its header says: {need:,} bytes should follow it")
    return np.frombuffer(pixels, np.uint8).reshape(shape)


# ---------------------------------------------------------------- CIFAR-10


def cifar_forms(folder: Path) -> list[Form]:
    """CIFAR-10's binary and Python versions, each as separate files or as the archive that is downloaded."""
    found = []
    for version, suffix, read_batch in (("binary", ".bin", read_cifar_binary), ("python", "", read_cifar_python)):
        names = [f"{each}{suffix}" for each in (*_BATCHES, "test_batch")]
        title = f"CIFAR-10 {version} version"
        files = _all_or_none(folder, [[name] for name in names])
        if files is not None:
            found.append(Form(title, files, _cifar_reader(read_batch, files)))
        archive = first_of(folder, [f"cifar-10-{version}.tar.gz", f"cifar-10-{version}.tar"])
        if archive is not None:
            found.append(Form(f"{title}, packed", (archive,), _cifar_archive_reader(read_batch, archive, names)))
    return found


def _cifar_reader(read_batch: Callable[[bytes, str], Part], files: Iterable[Path]) -> Callable[[], Parts]:
    def read() -> Parts:
        return _joined(read_batch(content(file), str(file)) for file in files)

    return read


def _cifar_archive_reader(
    read_batch: Callable[[bytes, str], Part], archive: Path, names: list[str]
) -> Callable[[], Parts]:
    def read() -> Parts:
        contents = _members(archive, names)
        return _joined(read_batch(contents[name], f"{name} in {archive}") for name in names)

    return read


def read_cifar_binary(content: bytes, where: str) -> Part:
    """The images and labels of a batch of the binary version: rows of a label and 3,072 pixels, channel by channel."""
    row = 1 + 3 * 32 * 32
    if len(content) == 0 or len(content) % row:
        raise InputError(
            f"{where} is cut off or no batch of CIFAR-10: its {len(content):,} bytes are no rows of {row:,}"
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, row)
    return _cifar_images(rows[:, 1:]), rows[:, 0]


def read_cifar_python(content: bytes, where: str) -> Part:
    """The images and labels of a batch of the Python version, read without unpickling."""
    batch = {key.decode("latin-1") if isinstance(key, bytes) else key: value for key, value in
             read_pickle(content, where).items()}  # fmt: skip
    data, labels = batch.get("data"), batch.get("labels")
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3 * 32 * 32:
        raise InputError(f"{where} is not a batch of CIFAR-10: its data are not rows of 3,072 bytes")
    if not isinstance(labels, list) or not all(type(each) is int and 0 <= each < 10 for each in labels):
        raise InputError(f"{where} is not a batch of CIFAR-10: its labels are not a list of numbers from 0 to 9")
    return _cifar_images(data), np.array(labels, np.int64)


def _cifar_images(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _joined(batches: Iterable[Part]) -> Parts:
    """All batches but the last as the training set, the last as the test set."""
    *train, test = batches
    return (np.concatenate([images for images, _ in train]), np.concatenate([labels for _, labels in train])), test


def _members(archive: Path, names: list[str]) -> dict[str, bytes]:
    """The files of these names in a tar archive; nothing is unpacked to disk.

    The headers are read here, because `tarfile` believes them: it reads extended headers of any size and goes back for
    a negative one. The names of these files need no extended headers, which are skipped like other files.
    """
    found: dict[str, bytes] = {}
    with opened(archive) as file:
        while len(header := file.read(_BLOCK)) == _BLOCK and any(header):
            place = header[:100].partition(b"\0")[0].decode("latin-1")
            digits = header[124:136].strip(b" \0")
            if not re.fullmatch(b"[0-7]{1,11}", digits):
                raise damaged(archive)
            size = int(digits, 8)
            padding = -size % _BLOCK
            name = place.rpartition("/")[2]
            if name in names and header[156:157] in _REGULAR:
                if place.startswith("/") or ".." in place.split("/"):
                    raise InputError(f"{archive} has a file {place!r}, outside the folder of the archive")
                if name in found:
                    raise InputError(f"{archive} has two files {name}")
                found[name] = file.read(size)
                if len(found[name]) < size:
                    raise damaged(archive)
                size = 0
            file.skip(size + padding)
    missing = [name for name in names if name not in found]
    if missing:
        raise InputError(f"{archive} lacks {', '.join(missing)}: it is cut off, or not the archive of CIFAR-10")
    return found


# ---------------------------------------------------------------- SVHN


def svhn_form(folder: Path) -> Form | None:
    """SVHN's cropped digits, train_32x32.mat and test_32x32.mat; None where there is neither."""
    files = _all_or_none(folder, [["train_32x32.mat"], ["test_32x32.mat"]])
    return None if files is None else Form("SVHN .mat", files, lambda: (read_svhn(files[0]), read_svhn(files[1])))


def read_svhn(path: Path) -> Part:
    """The images and labels of a .mat file of SVHN; the digit 0, which has label 10 there, gets label 0."""
    found = _mat_arrays(path, ("X", "y"))
    images, labels = found.get("X"), found.get("y")
    if images is None or labels is None or images.ndim != 4:
        raise InputError(f"{path} is not a file of SVHN: it lacks images X [row, column, channel, image] or labels y")
    labels = labels.reshape(-1)
    if labels.dtype.kind not in "iu" or not np.isin(labels, np.arange(1, 11)).all():
        raise InputError(f"{path} has labels that are not 1 to 10, as those of SVHN are")
    return np.ascontiguousarray(images.transpose(3, 0, 1, 2)), labels.astype(np.int64) % 10


def _mat_arrays(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """The arrays of numbers with these names in a .mat file of version 5.

    It is read here, because `scipy.io.loadmat` unpacks any amount and ends the process on some damaged files.
    """
    raw = content(path)
    if raw[124:128] not in (b"\0\1IM", b"\1\0MI"):
        raise InputError(f"{path} is not a file of MATLAB 5, which SVHN's are")
    order = "<" if raw[126:128] == b"IM" else ">"
    found, left = {}, MOST
    for kind, data in _mat_elements(memoryview(raw)[_MAT_HEADER:], order, path):
        if kind == _PACKED:
            kind, data = _unpacked_element(data, order, path, left)
            left -= len(data)
        # A variable has its flags, its sizes, its name and, if it is an array of real numbers, these.
        parts = list(islice(_mat_elements(data, order, path), 5)) if kind == _MATRIX else []
        name = bytes(parts[2][1]).decode("latin-1") if len(parts) == 4 else ""
        if name not in names or parts[3][0] not in _MAT_NUMBERS:
            continue
        try:
            numbers = np.frombuffer(parts[3][1], order + _MAT_NUMBERS[parts[3][0]])
            sizes = np.frombuffer(parts[1][1], f"{order}i4").tolist()
            if min(sizes) < 0:  # -1 would be any size for numpy
                raise damaged(path)
            found[name] = numbers.reshape(sizes, order="F")
        except ValueError:
            raise damaged(path) from None
    return found


def _mat_elements(raw: memoryview, order: str, path: Path) -> Iterator[tuple[int, memoryview]]:
    """The type and the content of each element; one of up to four bytes has its size beside its type."""
    at = 0
    while at < len(raw):
        if len(raw) - at < 8:
            raise damaged(path)
        kind, size = struct.unpack_from(f"{order}II", raw, at)
        start, end = at + 8, at + 8 + size + (-size % 8 if kind != _PACKED else 0)
        if kind >> 16:
            kind, size, start, end = kind & 0xFFFF, kind >> 16, at + 4, at + 8
        data = raw[start : min(start + size, end)]
        if len(data) < size:
            raise damaged(path)
        yield kind, data
        at = end


def _unpacked_element(packed: memoryview, order: str, path: Path, most: int) -> tuple[int, memoryview]:
    """The type and the content of the one element that is packed here."""
    unpacker = zlib.decompressobj()
    try:
        head = unpacker.decompress(packed, 8)
        kind, size = struct.unpack(f"{order}II", head.ljust(8, b"\0"))
        if size > most:
            raise too_large(path, MOST)
        data = unpacker.decompress(unpacker.unconsumed_tail, size) if size else b""
    except zlib.error:
        raise damaged(path) from None
    if len(data) < size:
        raise damaged(path)
    return kind, memoryview(data)


# ---------------------------------------------------------------- .npz

_NAMES = ("x_train", "y_train", "x_test", "y_test")


def npz_form(folder: Path, name: str) -> Form | None:
    """A file such as fashion-mnist.npz or fashion_mnist_subset.npz; None where there is none."""
    wanted = {_squeezed(name), f"{_squeezed(name)}subset"}
    files = sorted(each for each in folder.glob("*.npz") if _squeezed(each.stem) in wanted)
    if len(files) > 1:
        raise InputError(f"{folder} has several files of {name}, {files[0].name} and {files[1].name}: leave one")
    return Form(".npz", (files[0],), lambda: read_npz(files[0])) if files else None


def read_npz(path: Path) -> Parts:
    """The arrays x_train, y_train, x_test and y_test of a file."""
    try:
        with npz.opened(path, MOST) as arrays:
            missing = [name for name in _NAMES if name not in arrays.names]
            if missing:
                raise InputError(f"{path} lacks the array {missing[0]}: it must have {', '.join(_NAMES)}")
            arrays.check(*_NAMES)
            x_train, y_train, x_test, y_test = (arrays[name] for name in _NAMES)
    except InputError:
        raise
    except npz.DAMAGE:
        raise damaged(path) from None
    return (x_train, y_train), (x_test, y_test)


def _squeezed(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


# ---------------------------------------------------------------- files


def _all_or_none(folder: Path, names: list[list[str]]) -> tuple[Path, ...] | None:
    """For each entry the file with one of its names; None where no entry has one."""
    found = [first_of(folder, each) for each in names]
    if all(each is None for each in found):
        return None
    missing = [each[0] for each, file in zip(names, found, strict=True) if file is None]
    if missing:
        present = next(file for file in found if file is not None)
        raise InputError(f"{folder} has {present.name} but not {', '.join(missing)}: the set is incomplete")
    return tuple(file for file in found if file is not None)
