"""Photographs with ImageNet classes, in a folder of the user: imagenet_sample/NNNN.jpg, where NNNN is the class.

They are read as bytes [image, row, column, channel] and are to be measured, not trained on. The digest is that of the
files and their names, since decoders of JPEG differ in the last bit.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt8

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError, reason
from flipscope.data.finding import check_reference, data_folder, kept, not_found, reference, split_reference

PHOTOS = "imagenet-sample"
SIDE = 224  # pixels of a photograph, as ImageNet's networks read them
CLASSES = 1_000
_FOLDERS = ("imagenet-sample", "imagenet_sample")
_NAME = re.compile(r"(\d{4})(?:[-_]\w+)?\.(?:jpg|jpeg|png)", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class PhotoSet:
    """Photographs with the numbers of their ImageNet classes, in the order of their file names."""

    digest: str
    labels: Int64[np.ndarray, " image"]
    files: tuple[Path, ...]

    @property
    def reference(self) -> str:
        """The text by which trials name this content."""
        return reference(PHOTOS, self.digest)

    @functools.cached_property
    def images(self) -> UInt8[np.ndarray, "image row column channel"]:
        """The pixels of all photographs, 224 x 224.

        Those of another size are resized to have that as their shorter side, and cut to their middle.
        """
        try:
            pillow = importlib.import_module("PIL.Image")
        except ImportError:
            raise InputError("photographs need Pillow: pip install 'flipscope[vision]'") from None
        found = []
        for file in self.files:
            try:
                with pillow.open(file) as image:
                    found.append(_square(image.convert("RGB"), pillow.Resampling.BILINEAR))
            except Exception as error:
                raise InputError(f"{file} cannot be read as an image: {reason(error)}") from error
        images = np.stack(found)
        images.setflags(write=False)
        return images


@checked_arguments
def load_photos(name: str = PHOTOS, folder: str | Path | None = None) -> PhotoSet:
    """The photographs in a folder of data sets, or in that of FLIPSCOPE_DATA; `name` may be a reference.

    A file is called after the class of its image, such as 0207.jpg, or 0207_b.jpg for a second one.
    """
    if split_reference(name)[0] != PHOTOS:
        raise InputError(f"name={name!r} is not {PHOTOS}, the only set of photographs")
    place = data_folder(folder)
    files = photo_files(place)
    if not files:
        raise not_found(PHOTOS, place, "JPEG files that are called after their class, such as 0207.jpg,")
    found = kept(PHOTOS, files, lambda: _listed(files))
    check_reference(name, found.reference)
    return found


def photo_files(folder: Path | None) -> list[Path]:
    """The photographs of a folder of data sets by name; none where it has no subfolder of them."""
    for place in [] if folder is None else [folder / each for each in _FOLDERS]:
        if place.is_dir() and (files := sorted(each for each in place.iterdir() if _NAME.fullmatch(each.name))):
            return files
    return []


def _listed(files: list[Path]) -> PhotoSet:
    """The files with their classes and the digest of all of them."""
    digest, labels = hashlib.sha256(), []
    for file in files:
        label = int(file.name[:4])
        if label >= CLASSES:
            raise InputError(f"{file} is called after the class {label}, and those of ImageNet are 0 to {CLASSES - 1}")
        try:
            content = file.read_bytes()
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror}") from error
        digest.update(f"{file.name} {len(content)}\n".encode() + content)
        labels.append(label)
    return PhotoSet(digest.hexdigest(), np.array(labels, np.int64), tuple(files))


def _square(image: object, how: object) -> UInt8[np.ndarray, "row column channel"]:
    """The middle of an image of Pillow, its shorter side resized to SIDE."""
    width, height = image.size  # type: ignore[attr-defined]
    if (width, height) != (SIDE, SIDE):
        scale = SIDE / min(width, height)
        width, height = max(SIDE, round(width * scale)), max(SIDE, round(height * scale))
        left, top = (width - SIDE) // 2, (height - SIDE) // 2
        image = image.resize((width, height), how).crop((left, top, left + SIDE, top + SIDE))  # type: ignore[attr-defined]
    return np.asarray(image, np.uint8)
