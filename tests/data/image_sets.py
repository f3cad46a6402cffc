"""Writes image sets in their standard formats, from arrays."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import savemat

SHAPES = {"mnist": (28, 28), "fashion-mnist": (28, 28), "cifar-10": (32, 32, 3), "svhn": (32, 32, 3)}


def random_set(name: str, train: int = 20, test: int = 10, seed: int = 0) -> dict[str, Any]:
    stream = np.random.default_rng([seed, len(name)])
    found: dict[str, Any] = {}
    for part, count in (("train", train), ("test", test)):
        found[f"x_{part}"] = stream.integers(0, 256, (count, *SHAPES[name]), dtype=np.uint8)
        found[f"y_{part}"] = stream.integers(0, 10, count, dtype=np.uint8)
    return found


def idx_bytes(array: Any) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_idx(folder: Path, arrays: dict[str, Any], *, packed: bool = True) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, prefix in (("train", "train"), ("test", "t10k")):
        for kind, letter in (("images-idx3", "x"), ("labels-idx1", "y")):
            content = idx_bytes(arrays[f"{letter}_{part}"])
            name = f"{prefix}-{kind}-ubyte" + (".gz" if packed else "")
            (folder / name).write_bytes(gzip.compress(content) if packed else content)


def cifar_batches(arrays: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Five training batches and the test batch, pixels channel by channel."""
    rows = {part: arrays[f"x_{part}"].transpose(0, 3, 1, 2).reshape(len(arrays[f"x_{part}"]), -1) for part in
            ("train", "test")}  # fmt: skip
    parts = zip(np.array_split(rows["train"], 5), np.array_split(arrays["y_train"], 5), strict=True)
    found = {f"data_batch_{number}": part for number, part in enumerate(parts, start=1)}
    return {**found, "test_batch": (rows["test"], arrays["y_test"])}


def binary_batch(rows: Any, labels: Any) -> bytes:
    content: bytes = np.concatenate([labels[:, None].astype(np.uint8), rows], axis=1).tobytes()
    return content


def python_batch(rows: Any, labels: Any, protocol: int = 2) -> bytes:
    batch = {b"batch_label": b"a batch", b"labels": [int(each) for each in labels], b"data": rows, b"filenames": [b"a"]}
    return pickle.dumps(batch, protocol)


def write_cifar(folder: Path, arrays: dict[str, Any], version: str, *, packed: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    make, suffix = (binary_batch, ".bin") if version == "binary" else (python_batch, "")
    contents = {f"{name}{suffix}": make(*part) for name, part in cifar_batches(arrays).items()}
    if not packed:
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        return
    with tarfile.open(folder / f"cifar-10-{version}.tar.gz", "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"cifar-10-batches/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def write_svhn(folder: Path, arrays: dict[str, Any], *, packed: bool = True) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        labels = np.where(arrays[f"y_{part}"] == 0, 10, arrays[f"y_{part}"])[:, None]
        images = arrays[f"x_{part}"].transpose(1, 2, 3, 0)
        savemat(folder / f"{part}_32x32.mat", {"X": images, "y": labels}, do_compression=packed)


def write_npz(file: Path, arrays: dict[str, Any], *, method: int | None = None) -> None:
    np.savez(file, **arrays)
    if method is not None:  # of packing, such as zipfile.ZIP_LZMA, which numpy reads and does not write
        with zipfile.ZipFile(file) as plain:
            members = {name: plain.read(name) for name in plain.namelist()}
        with zipfile.ZipFile(file, "w", method) as packed:
            for name, content in members.items():
                packed.writestr(name, content)
