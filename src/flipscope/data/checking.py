"""What a folder of data sets holds: which sets, whether they are what they claim, and what training and test share."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.data import images, photos, texts
from flipscope.data.finding import data_folder
from flipscope.data.image_files import Form
from flipscope.data.images import ImageSet
from flipscope.data.text_files import TextPairs
from flipscope.data.texts import TextSet


@dataclass(frozen=True)
class SetCheck:
    """One data set of a folder, in one format; `problem` is the reason why it cannot be used, if there is one."""

    name: str
    format: str
    files: tuple[str, ...] = ()
    problem: str = ""
    sizes: dict[str, int] = field(default_factory=dict)  # examples of each part
    class_counts: dict[str, list[int]] = field(default_factory=dict)
    complete: bool | None = None  # whether the parts have the sizes of the published set; None where there is none
    published: bool | None = None  # whether it is the published set by its digest; None where that is not known
    reference: str = ""
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The check by names of its fields."""
        return asdict(self)


@checked_arguments
def check_data(folder: str | Path) -> list[SetCheck]:
    """A check of every data set in the folder and its subfolders, in each format in which it is there."""
    where = data_folder(folder)
    assert where is not None
    return [*_image_checks(where), *_photo_checks(where), *_text_checks(where)]


def _image_checks(folder: Path) -> Iterator[SetCheck]:
    for kind in images.KINDS.values():
        try:
            forms = kind.forms(folder)
        except InputError as error:
            yield SetCheck(kind.name, "files", problem=str(error))
            continue
        for form in forms:
            files = tuple(str(file.relative_to(folder)) for file in form.files)
            try:
                found = images.read_images(kind, form)
            except images.AnotherSet:
                continue  # of the same file names: it is listed under its own name
            except InputError as error:
                yield SetCheck(kind.name, form.format, files, str(error))
                continue
            yield _image_check(kind, form, files, found, bare=form.files[0].parent == folder)


def _image_check(
    kind: images.ImageKind, form: Form, files: tuple[str, ...], found: ImageSet, *, bare: bool
) -> SetCheck:
    sizes = {"train": len(found.y_train), "test": len(found.y_test)}
    published = kind.is_published(form, found.digest)
    notes = [_shared_images(found)]
    if bare and form.format == "idx" and not published:
        notes.append("MNIST and Fashion-MNIST have the same file names: a subfolder of its name would tell which it is")
    return SetCheck(
        kind.name,
        form.format,
        files,
        sizes=sizes,
        class_counts={
            part: np.bincount(labels, minlength=kind.classes).tolist()
            for part, labels in (("train", found.y_train), ("test", found.y_test))
        },
        complete=sizes == {"train": kind.train, "test": kind.test},
        published=published,
        reference=found.reference,
        notes=tuple(notes),
    )


def _shared_images(found: ImageSet) -> str:
    known = set(_row_digests(found.x_train))
    shared = sum(each in known for each in _row_digests(found.x_test))
    return f"{_of(shared, len(found.x_test))} test images are among the training images"


def _row_digests(pixels: UInt8[np.ndarray, "image row column channel"]) -> Iterator[bytes]:
    return (hashlib.blake2b(each.tobytes(), digest_size=16).digest() for each in pixels)


def _photo_checks(folder: Path) -> Iterator[SetCheck]:
    files = photos.photo_files(folder)
    if not files:
        return
    names = tuple(str(file.relative_to(folder)) for file in files)
    readable = importlib.util.find_spec("PIL") is not None
    try:
        found = photos.load_photos(folder=folder)
        if readable:
            len(found.images)  # reads them all
    except InputError as error:
        yield SetCheck(photos.PHOTOS, "JPEG", names, str(error))
        return
    note = "All of them can be read as images"
    if not readable:
        note = "Whether they can be read as images is not checked without Pillow: pip install 'flipscope[vision]'"
    yield SetCheck(
        photos.PHOTOS,
        "JPEG",
        names,
        sizes={"photographs": len(files)},
        reference=found.reference,
        notes=(f"Photographs of {len(np.unique(found.labels)):,} of {photos.CLASSES:,} classes", note),
    )


def _text_checks(folder: Path) -> Iterator[SetCheck]:
    for kind in texts.KINDS.values():
        try:
            files = kind.files(folder)
        except InputError as error:
            yield SetCheck(kind.name, "TSV", problem=str(error))
            continue
        if not files:
            continue
        names = tuple(str(file.relative_to(folder)) for file in files.values())
        try:
            found = texts.read_texts(kind, files)
        except InputError as error:
            yield SetCheck(kind.name, "TSV", names, str(error))
            continue
        yield _text_check(kind, names, found)


def _text_check(kind: texts.TextKind, names: tuple[str, ...], found: TextSet) -> SetCheck:
    parts: dict[str, TextPairs] = {"train": found.train}
    parts |= {part: pairs for part in ("dev", "test") if (pairs := getattr(found, part)) is not None}
    sizes = {part: len(pairs) for part, pairs in parts.items()}
    notes = [note for part in ("dev", "test") if part in parts for note in _shared_sentences(found.train, part, parts)]
    if found.left_out:
        notes.append(f"{found.left_out:,} rows lack columns and are left out")
    return SetCheck(
        kind.name,
        "TSV",
        names,
        sizes=sizes,
        class_counts={part: np.bincount(pairs.labels, minlength=2).tolist() for part, pairs in parts.items()},
        complete=tuple(sizes.values()) == kind.sizes,
        reference=found.reference,
        notes=tuple(notes),
    )


def _shared_sentences(train: TextPairs, part: str, parts: dict[str, TextPairs]) -> list[str]:
    known, pairs = set(train.sentences), parts[part]
    known_pairs = {frozenset(each) for each in zip(train.first, train.second, strict=True)}
    both = list(zip(pairs.first, pairs.second, strict=True))
    some = sum(one in known or other in known for one, other in both)
    whole = sum(frozenset(each) in known_pairs for each in both)
    return [
        f"{_of(some, len(pairs))} {part} pairs have a sentence of the training set; {_of(whole, len(pairs))} are in it "
        "as a pair, in either order"
    ]


def _of(count: int, total: int) -> str:
    return f"{count:,} of {total:,}"
