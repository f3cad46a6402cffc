"""Photographs with ImageNet classes, in a folder of the user: imagenet_sample/NNNN.jpg, where NNNN is the class.

They are read as bytes [image, row, column, channel] and are to be measured, not trained on. The digest is that of the
files and their names, since decoders of JPEG differ in the last bit.
"""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.basics.limits import check_memory
from flipscope.basics.opening import check_inside, content
from flipscope.data.finding import check_reference, data_folder, kept, not_found, reference, split_reference
from flipscope.data.pictures import check_pixels, pillow, read_picture

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
        need = len(self.files) * 3 * SIDE * SIDE * 2  # and a copy
        check_memory(need, f"{len(self.files):,} photographs", "put fewer into the folder")
        digest, found = hashlib.sha256(), []
        for file in self.files:
            known = content(file)
            _add(digest, file, known)
            found.append(_square(read_picture(file, known=known), file))
        if digest.hexdigest() != self.digest:
            raise InputError(f"the photographs of {self.files[0].parent} have changed meanwhile: load them again")
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
    assert place is not None
    found = kept(PHOTOS, files, lambda: _listed(files, place))
    check_reference(name, found.reference)
    return found


def photo_files(folder: Path | None) -> list[Path]:
    """The photographs of a folder of data sets by name; none where it has no subfolder of them."""
    for place in [] if folder is None else [folder / each for each in _FOLDERS]:
        if place.is_dir() and (files := sorted(each for each in place.iterdir() if _NAME.fullmatch(each.name))):
            return files
    return []


def _listed(files: list[Path], folder: Path) -> PhotoSet:
    """The files in a folder of data sets with their classes and the digest of all of them."""
    digest, labels = hashlib.sha256(), []
    for file in files:
        label = int(file.name[:4])
        if label >= CLASSES:
            raise InputError(f"{file} is called after the class {label}, and those of ImageNet are 0 to {CLASSES - 1}")
        _add(digest, file, content(check_inside(file, folder)))
        labels.append(label)
    return PhotoSet(digest.hexdigest(), np.array(labels, np.int64), tuple(files))


def _add(digest: hashlib._Hash, file: Path, known: bytes) -> None:
    digest.update(f"{file.name} {len(known)}\n".encode() + known)


def _square(image: Any, file: Path) -> UInt8[np.ndarray, "row column channel"]:
    """The middle of an image of Pillow, its shorter side resized to SIDE."""
    width, height = image.size
    if (width, height) != (SIDE, SIDE):
        scale = SIDE / min(width, height)
        width, height = max(SIDE, round(width * scale)), max(SIDE, round(height * scale))
        check_pixels((width, height), f"{file}: after resizing, a picture")
        left, top = (width - SIDE) // 2, (height - SIDE) // 2
        image = image.resize((width, height), pillow().Resampling.BILINEAR)
        image = image.crop((left, top, left + SIDE, top + SIDE))
    return np.asarray(image, np.uint8)
