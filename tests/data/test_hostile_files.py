"""Files that are damaged on purpose: each is refused in one sentence, soon and with little memory."""

from __future__ import annotations

import os
import pickle
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from data.image_sets import binary_batch, cifar_batches, random_set, write_cifar, write_npz, write_svhn
from data.limited import Limited

from flipscope.basics.errors import InputError
from flipscope.data.checking import check_data
from flipscope.data.images import load_images
from flipscope.data.texts import load_texts

if not sys.platform.startswith("linux"):
    pytest.skip("limits of memory are those of Linux", allow_module_level=True)
pillow = pytest.importorskip("PIL.Image")

GIBIBYTES = 2 << 10  # pieces of a mebibyte: more than the readers here are given


@pytest.fixture(scope="module")
def reader() -> Iterator[Limited]:
    with Limited() as found:
        yield found


def zeros(mebibytes: int, before: bytes = b"") -> bytes:
    """Bytes and then so many zeros as a stream of zlib, which is a thousandth of that; its checksum is missing."""
    packer = zlib.compressobj(9)
    start = packer.compress(before) + packer.flush(zlib.Z_FULL_FLUSH)
    piece = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return start + piece * mebibytes


def gzipped(mebibytes: int, before: bytes) -> bytes:
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + zeros(mebibytes, before)[2:]  # without the header of zlib


def tar_header(name: str, size: bytes, kind: bytes = b"0") -> bytes:
    head = bytearray(512)
    head[: len(name)] = name.encode()
    head[100:124] = b"0000644\x00" + b"0000000\x00" * 2
    head[124 : 124 + len(size)] = size
    head[136:148] = b"00000000000\x00"
    head[156:157] = kind
    head[257:265] = b"ustar\x0000"
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\x00 " % sum(head)
    return bytes(head)


def packed_npz(path: Path, mebibytes: int, before: bytes) -> Path:
    """An .npz whose four arrays are these bytes and then zeros, written without packing that many."""
    raw = zeros(mebibytes, before)[2:] + b"\x03\x00"  # an empty last block
    size = len(before) + (mebibytes << 20)
    with zipfile.ZipFile(path, "w") as file:
        for name in ("x_train.npy", "y_train.npy", "x_test.npy", "y_test.npy"):
            file.writestr(name, raw)
    content, stored = bytearray(path.read_bytes()), struct.pack("<II", len(raw), len(raw))
    at = -1
    for signature, method in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        while (at := content.find(signature, at + 1)) >= 0:
            content[at + method : at + method + 2] = struct.pack("<H", zipfile.ZIP_DEFLATED)
            sizes = content.index(stored, at)
            content[sizes + 4 : sizes + 8] = struct.pack("<I", size)
    path.write_bytes(content)
    return path


def plain_npz(path: Path, content: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name in ("x_train.npy", "y_train.npy", "x_test.npy", "y_test.npy"):
            file.writestr(name, content)
    return path


def mat(content: bytes, packed: int) -> bytes:
    """A file of MATLAB 5 with one packed variable, followed by so many mebibytes of zeros."""
    raw = zeros(packed, content)
    return b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + struct.pack("<II", 15, len(raw)) + raw


def mat_array(mebibytes: int) -> bytes:
    """The variable X up to its numbers, which are zeros."""
    parts = struct.pack("<IIII", 6, 8, 9, 0) + struct.pack("<II4i", 5, 16, 32, 32, 3, mebibytes)
    parts += struct.pack("<HH4s", 1, 1, b"X") + struct.pack("<II", 2, mebibytes << 20)
    return struct.pack("<II", 14, len(parts) + (mebibytes << 20)) + parts


def written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def picture(path: Path, size: tuple[int, int] = (64, 64)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pillow.new("RGB", size).save(path)
    return path


def waiting(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    return path


def endless_archive(folder: Path) -> Path:
    """An archive whose second header has the size -512, so that the next header is itself."""
    content = tar_header("data_batch_1.bin", b"00000000000\x00") + tar_header("x", b"\xff" * 10 + b"\xfe\x00")
    return written(folder / "cifar-10-binary.tar", content).parent


def outside_archive(folder: Path) -> Path:
    arrays = random_set("cifar-10")
    content = b""
    for name, part in cifar_batches(arrays).items():
        batch = binary_batch(*part)
        content += tar_header(f"../{name}.bin", b"%011o\x00" % len(batch)) + batch + bytes(-len(batch) % 512)
    return written(folder / "cifar-10-binary.tar", content).parent


def batch_of(label: int) -> bytes:
    return pickle.dumps({b"data": np.zeros((2, 3_072), np.uint8), b"labels": [label, 1]}, protocol=2)


NESTED = b"\x80\x02})q\x00" + b"h\x00\x86q\x00" * 60  # a dict, and a tuple of two tuples of two tuples and so on
TEXT = b"X" + struct.pack("<I", 200_000) + b"a" * 200_000
COPIES = (
    b"\x80\x02c_codecs\nencode\nq\x01" + TEXT + b"X\x06\x00\x00\x00latin1\x86q\x02" + b"h\x01h\x02R" * 10_000 + b"."
)
BRACKETS = b"\x93NUMPY\x01\x00" + struct.pack("<H", 5_000) + b"(" * 5_000
SPACES = b"\x93NUMPY\x02\x00" + struct.pack("<I", GIBIBYTES << 20)

# For each file what reads it, what writes it into a folder and returns what is to be read, and what is said of it.
CASES: dict[str, tuple[str, Callable[[Path], Path], str]] = {
    "a pickle that hashes for ever": (
        "batch",
        lambda folder: written(folder / "p", NESTED + b"K\x01s."),
        "is damaged or cut off",
    ),
    "a pickle that names something for ever": (
        "batch",
        lambda folder: written(folder / "p", b"\x80\x04" + NESTED[3:] + b"h\x00\x93."),
        "is damaged or cut off",
    ),
    "a pickle of many marks": (
        "batch",
        lambda folder: written(folder / "p", b"\x80\x02" + b"(" * 100_000 + b"t" * 100_000 + b"."),
        "its pickle holds no dict",
    ),
    "a pickle of too many instructions": (
        "batch",
        lambda folder: written(folder / "p", b"\x80\x02" + b"N" * 1_000_001 + b"."),
        "has more than 1,000,000 instructions",
    ),
    "a pickle with a memo of 2^31 places": (
        "batch",
        lambda folder: written(folder / "p", b"\x80\x02}r\xff\xff\xff\x7f."),
        "its data are not rows of 3,072 bytes",
    ),
    "a pickle that copies": (
        "batch",
        lambda folder: written(folder / "p", COPIES),
        "copies its texts again and again",
    ),
    "a label beyond 64 bits": (
        "batch",
        lambda folder: written(folder / "p", batch_of(2**70)),
        "its labels are not a list of numbers from 0 to 9",
    ),
    "a packed pickle of gigabytes": (
        "archive",
        lambda folder: (
            written(
                folder / "cifar-10-python.tar.gz",
                gzipped(GIBIBYTES, tar_header("data_batch_1", b"%011o\x00" % (GIBIBYTES << 20))),
            ).parent
        ),
        "would become larger than 512 MiB in memory",
    ),
    "an extended header of gigabytes": (
        "archive",
        lambda folder: (
            written(
                folder / "cifar-10-binary.tar.gz",
                gzipped(GIBIBYTES, tar_header("x", b"%011o\x00" % (GIBIBYTES << 20), b"x")),
            ).parent
        ),
        "would become larger than 512 MiB in memory",
    ),
    "an archive without end": ("archive", endless_archive, "is damaged or cut off"),
    "an archive that leads out of its folder": (
        "archive",
        outside_archive,
        "'../data_batch_1.bin', outside the folder of the archive",
    ),
    "a packed array of gigabytes": (
        "mat",
        lambda folder: written(folder / "train_32x32.mat", mat(mat_array(GIBIBYTES), GIBIBYTES)),
        "would become larger than 512 MiB in memory",
    ),
    "an .npz with a header of gigabytes": (
        "npz",
        lambda folder: packed_npz(folder / "svhn.npz", GIBIBYTES, SPACES),
        "is damaged or cut off",
    ),
    "an .npz with a header of brackets": (
        "npz",
        lambda folder: plain_npz(folder / "svhn.npz", BRACKETS),
        "is damaged or cut off",
    ),
    "arrays with a header of gigabytes": (
        "arrays",
        lambda folder: packed_npz(folder / "a.npz", GIBIBYTES, SPACES),
        "cannot be read as a file of arrays",
    ),
    "arrays with a header of brackets": (
        "arrays",
        lambda folder: plain_npz(folder / "a.npz", BRACKETS),
        "cannot be read as a file of arrays",
    ),
    "idx of 65 dimensions": (
        "idx",
        lambda folder: written(folder / "x", b"\0\0\x08\x41" + struct.pack(">65I", *[1] * 65) + b"\0"),
        "has 65 dimensions",
    ),
    "idx of 0 x 2^32 x 2^32": (
        "idx",
        lambda folder: written(folder / "x", b"\0\0\x08\x03" + struct.pack(">3I", 0, 2**32 - 1, 2**32 - 1)),
        "is empty",
    ),
    "a long photograph": (
        "photos",
        lambda folder: picture(folder / "imagenet_sample" / "0001.png", (60_000, 1)).parent.parent,
        "of 13,440,000 x 224 pixels is too large",
    ),
    "a pipe among photographs": (
        "photos",
        lambda folder: waiting(folder / "imagenet_sample" / "0001.jpg").parent.parent,
        "is not a file but a pipe or a device",
    ),
    "a pipe among images": (
        "images",
        lambda folder: waiting(folder / "a.png").parent,
        "is not a file but a pipe or a device",
    ),
    "a picture too large": (
        "images",
        lambda folder: picture(folder / "a.png", (9_000, 9_000)).parent,
        "a picture of 9,000 x 9,000 pixels is too large",
    ),
    "an image made too large": (
        "images of 20,000",
        lambda folder: picture(folder / "a.png").parent,
        "a picture of 20,000 x 20,000 pixels is too large",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_in_one_sentence_soon_and_with_little_memory(case: str, reader: Limited, tmp_path: Path) -> None:
    name, write, message = CASES[case]
    path = write(tmp_path)
    said = reader(name, path)
    assert said.startswith("refused: ")
    assert message in said
    assert tmp_path.name in said or "--size" in said
    assert "\n" not in said


def test_good_files_of_every_kind_are_read_within_the_same_limits(reader: Limited, tmp_path: Path) -> None:
    arrays = random_set("cifar-10")
    write_cifar(tmp_path / "binary", arrays, "binary", packed=True)
    write_cifar(tmp_path / "python", arrays, "python", packed=True)
    write_svhn(tmp_path, random_set("svhn"))
    write_npz(tmp_path / "arrays.npz", arrays)
    picture(tmp_path / "photos" / "imagenet_sample" / "0001.png", (300, 200))
    for name, path in (
        ("archive", "binary"),
        ("archive", "python"),
        ("mat", "train_32x32.mat"),
        ("npz", "arrays.npz"),
        ("arrays", "arrays.npz"),
        ("photos", "photos"),
        ("images", "photos/imagenet_sample"),
    ):
        assert reader(name, tmp_path / path) == "read"


# ---------------------------------------------------------------- links


@pytest.mark.parametrize("case", ["photograph", "image", "set", "folder", "text", "circle"])
def test_links_that_leave_the_folder_are_refused(case: str, tmp_path: Path, reader: Limited) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    folder.mkdir()
    found = ""
    if case in ("photograph", "image", "circle"):
        there = picture(outside / "0001.png")
        link = folder / "imagenet_sample" / "0001.png"
        link.parent.mkdir()
        link.symlink_to(link if case == "circle" else there)
        found = reader("photos", folder) if case == "photograph" else reader("images", link.parent)
    elif case == "text":
        written(outside / "t", b"label\tsentence1\tsentence2\n1\tA\tB\n")
        (folder / "mrpc_train.tsv").symlink_to(outside / "t")
        with pytest.raises(InputError) as caught:
            load_texts("mrpc", folder)
        found = str(caught.value)
        assert check_data(folder)[0].problem == found
    else:
        outside.mkdir()
        write_npz(outside / "svhn.npz", random_set("svhn"))
        (folder / ("svhn" if case == "folder" else "svhn.npz")).symlink_to(
            outside if case == "folder" else outside / "svhn.npz"
        )
        with pytest.raises(InputError) as caught:
            load_images("svhn", folder)
        found = str(caught.value)
    assert "is a symbolic link that leads out of" in found


def test_links_within_the_folder_and_to_it_are_followed(tmp_path: Path) -> None:
    write_npz(written(tmp_path / "real" / "sets" / "a", b"").parent / "svhn.npz", random_set("svhn"))
    (tmp_path / "real" / "svhn").symlink_to("sets")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert load_images("svhn", tmp_path / "link").digest == load_images("svhn", tmp_path / "real" / "sets").digest
