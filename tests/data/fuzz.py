"""Changes good files at random and has them read: whatever comes of it must be a result or a sentence.

`make fuzz MINUTES=60` goes on for so long with ever new changes and keeps each file that a reader stumbles over;
test_fuzz.py makes the same few changes each time. A change is determined by the number of its seed.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import signal
import struct
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from data.image_sets import binary_batch, cifar_batches, idx_bytes, python_batch, random_set
from data.limited import READERS, in_child, outcome
from scipy.io import savemat

SLOW = 5.0  # seconds of computing that a changed file may take; the good ones take milliseconds
TOGETHER = 50  # changed files read by one process

_NUMBERS = (0, 1, 2, 127, 128, 255, 256, 65_535, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63, 2**64 - 1)
_WORDS = (
    b"(",
    b")",
    b"[",
    b"{",
    b"'",
    b"\t",
    b"\n",
    b"\0",
    b"-1",
    b"99999999999",
    b"\xff\xff\xff\xff",
    b"\xe2\x80\xa8",
)


@dataclass(frozen=True)
class Good:
    """A good file: the reader, its place in a folder, and its content before it is packed."""

    reader: str
    place: str
    content: bytes
    pack: Callable[[bytes], bytes] = bytes

    def write(self, folder: Path, stream: np.random.Generator | None = None) -> Path:
        """Write it, changed if there is a stream of random numbers, and return what is to be read."""
        inside = stream is not None and self.pack is not bytes and stream.random() < 0.7
        content = self.pack(changed(self.content, stream) if inside and stream is not None else self.content)
        path = folder / self.place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if inside or stream is None else changed(content, stream))
        return path if self.reader not in ("archive", "images", "photos") else folder


def changed(content: bytes, stream: np.random.Generator) -> bytes:
    """The content with a few random changes."""
    found = bytearray(content)
    for _ in range(int(stream.integers(1, 5))):
        at, kind = int(stream.integers(len(found) + 1)), int(stream.integers(8))
        size = int(min(2 ** stream.integers(8), len(found) - at))
        # Most of what decides anything is at the beginning.
        at = at if stream.random() < 0.5 else at % 256
        if kind == 0:
            found[at : at + 1] = stream.bytes(1)
        elif kind == 1:
            width = int(stream.choice([1, 2, 4, 8]))
            number = _NUMBERS[stream.integers(len(_NUMBERS))] % 256**width
            found[at : at + width] = number.to_bytes(width, "little" if stream.random() < 0.5 else "big")
        elif kind == 2:
            del found[at : at + size]
        elif kind == 3:
            found[at:at] = found[at : at + size]
        elif kind == 4:
            found[at:at] = _WORDS[stream.integers(len(_WORDS))] * int(2 ** stream.integers(10))
        elif kind == 5:
            other = int(stream.integers(len(found) + 1))
            found[at : at + size] = found[other : other + size]
        elif kind == 6 and size:
            found[at] ^= 1 << int(stream.integers(8)) if at < len(found) else 0
        else:
            del found[at:]
    return bytes(found)


def good_files() -> dict[str, Good]:
    """A small good file of every kind that is read."""
    from PIL import Image

    arrays = random_set("cifar-10", 6, 2)
    batches = cifar_batches(arrays)
    binary = {f"{name}.bin": binary_batch(*part) for name, part in batches.items()}
    python = {name: python_batch(*part) for name, part in batches.items()}
    text = "label\tsentence1\tsentence2\n" + "1\tA good day\tgood day\n0\tNo\tYes, \x85 no\n" * 5
    tokenizer = {
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<s>": 3}, "merges": [["a", "b"]]},
        "added_tokens": [],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    }
    found = {
        "idx": Good("idx", "x", idx_bytes(arrays["x_train"][..., 0])),
        "idx, packed": Good("idx", "x.gz", idx_bytes(arrays["y_train"]), _gzip),
        "binary archive": Good("archive", "cifar-10-binary.tar.gz", _tar(binary), _gzip),
        "python archive": Good("archive", "cifar-10-python.tar", _tar(python)),
        "mat": Good("mat", "train_32x32.mat", _mat(arrays)),
        "mat, packed": Good("mat", "train_32x32.mat", _mat(arrays), _packed_mat),
        "npz": Good("npz", "svhn.npz", _npz(arrays)),
        "npz by LZMA": Good("npz", "svhn.npz", _zip(_npy(arrays["x_train"]), arrays, zipfile.ZIP_LZMA)),
        "npz member": Good("npz", "svhn.npz", _npy(arrays["x_train"]), lambda member: _zip(member, arrays)),
        "arrays": Good("arrays", "a.npz", _npy(arrays["x_train"].astype(float)), lambda member: _zip(member, {})),
        "pairs": Good("pairs", "mrpc_train.tsv", text.encode()),
        "tokenizer": Good("tokenizer", "tokenizer.json", json.dumps(tokenizer).encode()),
        **{f"batch, protocol {number}": Good("batch", "p", python_batch(*batches["test_batch"], number))
           for number in (0, 2, 4)},
    }  # fmt: skip
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a picture"
    pixels = Image.fromarray(arrays["x_train"][0])
    for form in ("BMP", "GIF", "JPEG", "MPO", "PNG", "PPM", "TIFF", "WEBP"):
        file = io.BytesIO()
        pixels.save(file, form, **({"exif": exif} if form in ("JPEG", "PNG", "TIFF", "WEBP") else {}))
        found[form] = Good("images", "a.png", file.getvalue())
    for form, array in (("PNG", np.uint16), ("TIFF", np.uint16), ("TIFF", np.float32)):
        file = io.BytesIO()
        Image.fromarray(np.eye(32, dtype=array)).save(file, form)
        found[f"{form} of {np.dtype(array)}"] = Good("photos", "imagenet_sample/0001.png", file.getvalue())
    return found


def failures(good: Good, seeds: Iterator[tuple[int, ...]], folder: Path) -> Iterator[tuple[tuple[int, ...], str]]:
    """The seeds whose changed files end otherwise than with a result or a sentence, and how they end."""
    (folder / "texts.txt").write_text("ab a b\nabab\n")
    together = list(seeds)
    if in_child(lambda: "".join(_said(good, seed, folder) for seed in together)) != "":
        for seed in together:
            said = in_child(lambda one=seed: _said(good, one, folder))
            if said:
                yield seed, said


def _said(good: Good, seed: tuple[int, ...], folder: Path) -> str:
    path = good.write(folder, np.random.default_rng(seed))
    start = time.process_time()
    said = outcome(READERS[good.reader], path)
    taken = time.process_time() - start
    if taken > SLOW:
        return f"raw time of {taken:.1f} s, then {said}"
    sentence = said == "read" or (said.startswith("refused: ") and "\n" not in said)
    return "" if sentence else said


def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, 1)


def _tar(files: Mapping[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"cifar-10-batches/{name}")
            member.size, member.mtime = len(content), 0.5  # which takes an extended header
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def _mat(arrays: Mapping[str, np.ndarray]) -> bytes:
    file = io.BytesIO()
    savemat(file, {"X": arrays["x_train"].transpose(1, 2, 3, 0), "y": arrays["y_train"][:, None] + 1})
    return file.getvalue()


def _packed_mat(content: bytes) -> bytes:
    """The same with each variable packed, as far as there are any."""
    found, rest = content[:128], content[128:]
    while rest:
        end = 8 + struct.unpack_from("<I", rest, 4)[0] if len(rest) >= 8 else len(rest)
        packed = zlib.compress(rest[:end], 1)
        found, rest = found + struct.pack("<II", 15, len(packed)) + packed, rest[end:]
    return found


def _npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array)
    return file.getvalue()


def _zip(member: bytes, others: Mapping[str, np.ndarray], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("x_train.npy", member)
        for name in others.keys() - {"x_train"}:
            archive.writestr(f"{name}.npy", _npy(others[name]))
    return file.getvalue()


def main() -> None:
    """Go on for the time given and keep what readers stumble over."""
    parser = argparse.ArgumentParser(description="Read randomly changed files for some time.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", type=Path, default=Path("fuzz"), help="folder for files that readers stumble over")
    given = parser.parse_args()
    end, done, found, block = time.monotonic() + 60 * given.minutes, 0, Counter[str](), 0
    goods = good_files()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # says what came of it until then
    with tempfile.TemporaryDirectory() as place:
        try:
            while time.monotonic() < end:
                for number, (name, good) in enumerate(goods.items()):
                    folder = Path(place) / str(number)
                    folder.mkdir(exist_ok=True)
                    seeds = ((given.seed, number, k) for k in range(block * TOGETHER, (block + 1) * TOGETHER))
                    for seed, said in failures(good, seeds, folder):
                        found[name] += 1
                        print(f"{name}, seed {seed}: {said}"[:300], flush=True)
                        good.write(given.keep / "-".join(map(str, seed)), np.random.default_rng(seed))
                    done += TOGETHER
                block += 1
        finally:
            used = sum(os.times()[:4]) / 60
            print(f"{done:,} files of {len(goods)} kinds in {used:.0f} minutes of computing, badly read: {dict(found)}")


if __name__ == "__main__":
    main()
