"""Pictures are read as they are seen, whatever the format, or not at all."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data.limited import token_inputs

from flipscope.basics.errors import InputError
from flipscope.data.photos import load_photos

pillow = pytest.importorskip("PIL.Image")

RAMP = (np.arange(64 * 64).reshape(64, 64) * 16).astype(np.uint16)
SEEN = np.rint(RAMP / 257).astype(np.uint8)


def pixels(file: Path, *, grey: bool = False) -> Any:
    """The only image of a folder [row, column, channel], as `flipscope tokens` reads it, from 0 to 255."""
    (found,) = token_inputs(images=str(file.parent), patch=1, grey=grey)
    return np.rint(np.moveaxis(found, 0, 2) * 255)


def png(bits: int, kind: int, rows: list[bytes]) -> bytes:
    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 64, bits, kind, 0, 0, 0))
    packed = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", ["png", "tif", "big-endian tif", "pgm", "float tif", "colours"])
def test_more_than_eight_bits_keep_their_grey(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"a.{kind.split()[-1]}"
    if kind == "pgm":
        file.write_bytes(b"P5 64 64 65535\n" + RAMP.astype(">u2").tobytes())
    elif kind == "float tif":
        pillow.fromarray((RAMP / 65535).astype(np.float32)).save(file)
    elif kind == "colours":
        file = tmp_path / "a.png"
        file.write_bytes(png(16, 2, [np.repeat(row[:, None], 3, axis=1).astype(">u2").tobytes() for row in RAMP]))
    elif kind == "big-endian tif":
        entries = ((256, 3, 64), (257, 3, 64), (258, 3, 16), (259, 3, 1), (262, 3, 1), (273, 4, 122), (279, 4, 8192))
        tags = b"".join(
            struct.pack(">HHI", tag, code, 1)
            + (struct.pack(">HH", value, 0) if code == 3 else struct.pack(">I", value))
            for tag, code, value in entries
        )
        content = b"MM\0*" + struct.pack(">I", 8) + struct.pack(">H", 7) + tags + bytes(4)
        file.write_bytes(content.ljust(122, b"\0") + RAMP.astype(">u2").tobytes())
    else:
        pillow.fromarray(RAMP).save(file)
    for found in (pixels(file), pixels(file, grey=True)):
        assert np.abs(found.astype(int) - SEEN[..., None]).max() <= 1  # Pillow cuts colours off and does not round


@pytest.mark.parametrize("kind", ["plain", "16 bits"])
def test_a_picture_is_turned_as_its_camera_was(kind: str, tmp_path: Path) -> None:
    white_above = np.zeros((64, 64), np.uint8)
    white_above[:32] = 255
    image = pillow.fromarray(white_above if kind == "plain" else (white_above * 257.0).astype(np.uint16))
    exif = pillow.Exif()
    exif[0x0112] = 6  # the camera was turned: the top is on the right
    image.save(tmp_path / "a.png", exif=exif)
    found = pixels(tmp_path / "a.png")
    assert found[:, 32:].min() == 255
    assert found[:, :32].max() == 0


def test_what_is_behind_a_transparent_picture_is_not_guessed(tmp_path: Path) -> None:
    colours = np.full((64, 64, 4), 255, np.uint8)
    colours[..., 1:3] = 7
    pillow.fromarray(colours).save(tmp_path / "a.png")
    assert (pixels(tmp_path / "a.png") == [255, 7, 7]).all()
    colours[5, 5, 3] = 254
    pillow.fromarray(colours).save(tmp_path / "a.png")
    with pytest.raises(InputError, match=r"a\.png is partly transparent"):
        pixels(tmp_path / "a.png")
    palette = pillow.new("P", (4, 4), 3)
    palette.putpalette([0, 0, 0] * 4)
    palette.save(tmp_path / "a.png", transparency=3)
    with pytest.raises(InputError, match=r"a\.png is partly transparent"):
        pixels(tmp_path / "a.png")


@pytest.mark.parametrize("array", [RAMP.astype(np.float32), np.full((4, 4), np.nan, np.float32), -(RAMP / 65535)])
def test_numbers_that_are_no_grey_are_refused(array: Any, tmp_path: Path) -> None:
    pillow.fromarray(array.astype(np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(InputError, match=r"a\.tif has pixels from .* fractions from 0 to 1"):
        pixels(tmp_path / "a.tif")


def test_whole_numbers_of_unknown_scale_are_refused(tmp_path: Path) -> None:
    pillow.fromarray(RAMP.astype(np.int32)).save(tmp_path / "a.tif")
    with pytest.raises(InputError, match=r"a\.tif has grey pixels of an unusual kind"):
        pixels(tmp_path / "a.tif")
    (tmp_path / "a.tif").unlink()
    pillow.fromarray(RAMP).save(tmp_path / "a.png", transparency=16)
    with pytest.raises(InputError, match=r"a\.png has grey pixels of an unusual kind"):
        pixels(tmp_path / "a.png")


def test_a_file_that_is_postscript_starts_no_interpreter(tmp_path: Path) -> None:
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 64 64\n%%EndComments\nshowpage\n%%EOF\n"
    for folder in (tmp_path / "images", tmp_path / "imagenet_sample"):
        folder.mkdir()
        (folder / "0001.jpg").write_bytes(script)
    started = tmp_path / "gs"
    started.write_text(f"#!/bin/sh\necho started >> {tmp_path}/log\nexit 1\n")
    started.chmod(0o755)
    code = (
        "import sys; from pathlib import Path; from data.limited import READERS, outcome\n"
        "for reader, folder in (('images', 'images'), ('photos', '.')):\n"
        "    print(outcome(READERS[reader], Path(folder)))"
    )
    paths = os.pathsep.join([*sys.path, str(Path(__file__).parents[1])])
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.count("0001.jpg cannot be read as an image: it is damaged, or none of BMP, GIF") == 2
    assert not (tmp_path / "log").exists()


def test_photographs_that_change_after_they_were_listed_are_not_taken_for_them(tmp_path: Path) -> None:
    (tmp_path / "imagenet_sample").mkdir()
    file = tmp_path / "imagenet_sample" / "0001.png"
    pillow.new("RGB", (300, 200), (200, 10, 90)).save(file)
    listed = load_photos(folder=tmp_path)
    pillow.new("RGB", (300, 200), (20, 10, 90)).save(file)
    with pytest.raises(InputError, match="have changed meanwhile: load them again"):
        _ = listed.images
    assert load_photos(folder=tmp_path).images[0, 0, 0].tolist() == [20, 10, 90]
