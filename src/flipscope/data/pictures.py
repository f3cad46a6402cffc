"""Photographs and drawings in files as they are seen: upright, eight bits a channel, nothing transparent."""

from __future__ import annotations

import importlib
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from flipscope.basics.errors import InputError, reason
from flipscope.basics.opening import content

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
MOST_PIXELS = 1 << 26  # of a picture: more than those of any camera that one carries
# Pillow guesses the format from the content and would start Ghostscript for a PostScript file of any name.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_WHITE = 65_535  # of 16 bits; Pillow scales other whole numbers of PGM to that
_BITS, _BLACK_IS_ZERO, _ORIENTATION = 258, 262, 274  # tags of TIFF and of EXIF


def pillow() -> Any:
    """Pillow, or an InputError that says how to install it."""
    try:
        return importlib.import_module("PIL.Image")
    except ImportError:
        raise InputError("images need Pillow: pip install 'flipscope[vision]'") from None


def check_pixels(size: tuple[int, int], what: str) -> None:
    """Raise InputError if a picture has more pixels than one can have."""
    width, height = size
    if width * height > MOST_PIXELS:
        raise InputError(f"{what} of {width:,} x {height:,} pixels is too large: {MOST_PIXELS:,} pixels are the most")


def read_picture(file: Path, *, grey: bool = False, known: bytes | None = None) -> Any:
    """The picture in a file as an image of Pillow, in one grey channel or in red, green and blue.

    `known` is the content of the file where that has been read. Sixteen bits become eight; Pillow itself does so for
    colours. What has no single meaning is refused: pixels that are partly transparent, and numbers of unknown scale.
    """
    library, ops = pillow(), importlib.import_module("PIL.ImageOps")
    raw = content(file) if known is None else known
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow, about size and about odd metadata
            with library.open(io.BytesIO(raw), formats=_FORMATS) as image:
                check_pixels(image.size, f"{file}: a picture")
                upright = ops.exif_transpose(_eight_bits(library, image, file))
                if upright.has_transparency_data:
                    upright = upright.convert("RGBA")
                    if upright.getextrema()[3][0] < 255:
                        raise InputError(
                            f"{file} is partly transparent, so that its colours depend on what is behind it: save it "
                            "on a background"
                        )
                    upright = upright.convert("RGB")
                return upright.convert("L" if grey else "RGB")
    except InputError:
        raise
    except library.UnidentifiedImageError:
        raise InputError(
            f"{file} cannot be read as an image: it is damaged, or none of {', '.join(_FORMATS)}"
        ) from None
    except Exception as error:  # Pillow's readers raise almost anything on damaged bytes
        raise InputError(f"{file} cannot be read as an image: {reason(error)}") from error


def _eight_bits(library: Any, image: Any, file: Path) -> Any:
    """The image itself, or one of eight bits if its pixels are longer whole numbers or fractions from 0 to 1."""
    if image.mode not in ("F", "I") and not image.mode.startswith("I;16"):
        return image
    pixels, white = np.asarray(image, np.float32), 1.0 if image.mode == "F" else float(_WHITE)
    tags = getattr(image, "tag_v2", None)  # of TIFF, whose numbers can mean anything
    odd = tags is not None and (tags.get(_BLACK_IS_ZERO) != 1 or image.mode == "I" or tags.get(_BITS) == (12,))
    if odd or "transparency" in image.info:  # a shade that stands for nothing
        raise InputError(f"{file} has grey pixels of an unusual kind: save it with 8 or 16 bits, 0 being black")
    low, high = float(pixels.min()), float(pixels.max())
    if not (low >= 0 and high <= white):  # nor NaN
        raise InputError(f"{file} has pixels from {low:g} to {high:g}: save it with fractions from 0 to 1, or 8 bits")
    found = library.fromarray(np.rint(pixels * (255 / white)).astype(np.uint8))
    found.getexif()[_ORIENTATION] = image.getexif().get(_ORIENTATION, 1)
    return found
