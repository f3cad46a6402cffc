"""Sets of images for classification: digits, MNIST, Fashion-MNIST, CIFAR-10, SVHN.

`digits` comes with scikit-learn. The others are read from the folder that the user names; docs/data.md lists the files.
Fashion-MNIST is also found where Debian's package dataset-fashion-mnist installs it.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8
from numpy.typing import NDArray

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.basics.opening import check_inside
from flipscope.data.finding import check_reference, data_folder, kept, not_found, places, reference, split_reference
from flipscope.data.image_files import Form, Parts, cifar_forms, idx_form, npz_form, svhn_form

DEBIAN = Path("/usr/share/datasets")  # of dataset-fashion-mnist
DIGITS = "digits"
_DIGITS_TEST = 360
_DIGITS_SPLIT = 0x64696769  # seed of the order in which scikit-learn's digits are split


class AnotherSet(InputError):
    """The files are those of a known set with another name."""


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images [image, row, column, channel] from 0 to 255 with their classes; grey images have one channel.

    `digest` identifies the content: the same images and labels in the same order have the same digest in every format.
    """

    name: str
    digest: str
    classes: int
    x_train: UInt8[np.ndarray, "train row column channel"]
    y_train: Int64[np.ndarray, " train"]
    x_test: UInt8[np.ndarray, "test row column channel"]
    y_test: Int64[np.ndarray, " test"]

    @property
    def reference(self) -> str:
        """The text by which trials and recipes name this content, such as digits@724490bf47248ce4."""
        return reference(self.name, self.digest)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and channels of an image."""
        rows, columns, channels = self.x_train.shape[1:]
        return rows, columns, channels

    @functools.cached_property
    def mean(self) -> tuple[float, ...]:
        """The mean of each channel over the training set, pixels scaled to 0 to 1."""
        return tuple(float(shares @ _LEVELS) for shares in self._levels)

    @functools.cached_property
    def std(self) -> tuple[float, ...]:
        """The standard deviation of each channel over the training set, pixels scaled to 0 to 1."""
        return tuple(
            float(np.sqrt(shares @ (_LEVELS - mean) ** 2)) for shares, mean in zip(self._levels, self.mean, strict=True)
        )

    @functools.cached_property
    def _levels(self) -> list[NDArray[np.float64]]:
        """For each channel the shares of the 256 levels in the training set, from which moments are exact."""
        channels = np.moveaxis(self.x_train, -1, 0)
        return [np.bincount(each.ravel(), minlength=256) / each.size for each in channels]


_LEVELS = np.arange(256) / 255.0


@dataclass(frozen=True)
class ImageKind:
    """What a set of this name must be like, and where its files may be."""

    name: str
    shape: tuple[int, int, int]
    train: int  # images of the complete set
    test: int
    subfolders: tuple[str, ...]
    files: str  # what to look for, in words
    digest: str | None = None  # of the complete set, where it is known
    sums: Mapping[str, str] = field(default_factory=dict)  # published MD5 sums of its files by name
    classes: int = 10

    def is_published(self, form: Form, digest: str) -> bool | None:
        """Whether the files are the published ones, by the digest of their content or their sums; None if not known."""
        if digest == self.digest:
            return True
        if all(file.name in self.sums for file in form.files):
            return all(_md5(file) == self.sums[file.name] for file in form.files)
        return None

    def forms(self, folder: Path) -> list[Form]:
        """The files of the set in the folder or its subfolders, in every format found, original ones first."""
        found: list[Form | None] = []
        for place in places(folder, self.subfolders):
            if self.name in ("mnist", "fashion-mnist"):
                found.append(idx_form(place))
            elif self.name == "cifar-10":
                found += cifar_forms(place)
            else:
                found.append(svhn_form(place))
        found += [npz_form(place, self.name) for place in places(folder, self.subfolders)]
        there = [form for form in found if form is not None]
        for file in (file for form in there for file in form.files):
            check_inside(file, folder)
        return there


_IDX = "train-images-idx3-ubyte, train-labels-idx1-ubyte and the two of t10k, .gz or not,"

KINDS: dict[str, ImageKind] = {
    kind.name: kind
    for kind in (
        ImageKind(
            "mnist",
            (28, 28, 1),
            60_000,
            10_000,
            ("mnist", "MNIST", "MNIST/raw"),
            f"{_IDX} or mnist.npz",
            "0ca25098011d851a9c1e34617f769a224ad1d0376acfbdabfc4476287a2eaa85",
        ),
        ImageKind(
            "fashion-mnist",
            (28, 28, 1),
            60_000,
            10_000,
            ("fashion-mnist", "fashion_mnist", "FashionMNIST", "FashionMNIST/raw"),
            f"{_IDX} or fashion-mnist.npz",
            "c85e7078a78cd512aa3ff3581a2abe3c4fe692df179dc143eb92d447183fc2cc",
        ),
        ImageKind(
            "cifar-10",
            (32, 32, 3),
            50_000,
            10_000,
            ("cifar-10", "cifar10", "cifar-10-batches-bin", "cifar-10-batches-py"),
            "cifar-10-binary.tar.gz, cifar-10-python.tar.gz, the batches in one of them, or cifar-10.npz",
            sums={
                "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
                "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
                "data_batch_1": "c99cafc152244af753f735de768cd75f",
                "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
                "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
                "data_batch_4": "634d18415352ddfa80567beed471001a",
                "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
                "test_batch": "40351d587109b95175f43aff81a1287e",
            },
        ),
        ImageKind(
            "svhn",
            (32, 32, 3),
            73_257,
            26_032,
            ("svhn", "SVHN"),
            "train_32x32.mat and test_32x32.mat, or svhn.npz",
            sums={
                "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
                "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
            },
        ),
    )
}
IMAGE_SETS = (DIGITS, *KINDS)


@checked_arguments
def load_images(name: str, folder: str | Path | None = None) -> ImageSet:
    """The image set of this name, from a folder or from that of the environment variable FLIPSCOPE_DATA.

    The names are digits, mnist, fashion-mnist, cifar-10 and svhn. A reference, such as an ImageSet has, gives the same
    set or an InputError if another is found. Arrays are read-only, since sets are kept in memory for the next caller.
    """
    plain, _ = split_reference(name)
    if plain not in IMAGE_SETS:
        raise InputError(f"name={name!r} is not one of the image sets {', '.join(IMAGE_SETS)}")
    found = _digits() if plain == DIGITS else _kept(KINDS[plain], data_folder(folder))
    check_reference(name, found.reference)
    return found


def read_images(kind: ImageKind, form: Form) -> ImageSet:
    """The set in these files, once all of it is known to be what its name says."""
    checked = []
    for part, (images, labels) in zip(("training", "test"), form.read(), strict=True):
        checked.append(_checked(kind, f"the {part} set in {form.files[0]}", images, labels))
    (x_train, y_train), (x_test, y_test) = checked
    found = image_set(kind.name, kind.classes, ((x_train, y_train), (x_test, y_test)))
    for other in KINDS.values():
        if other is not kind and found.digest == other.digest:
            raise AnotherSet(f"{form.files[0].parent} holds {other.name} and not {kind.name}: the digests say so")
    return found


def image_set(name: str, classes: int, parts: Parts) -> ImageSet:
    """A set of these arrays under their digest."""
    digest = hashlib.sha256()
    for each in (array for part in parts for array in part):
        each.setflags(write=False)
        digest.update(f"{each.dtype.str} {each.shape}\n".encode())
        digest.update(np.ascontiguousarray(each).data)
    (x_train, y_train), (x_test, y_test) = parts
    return ImageSet(name, digest.hexdigest(), classes, x_train, y_train, x_test, y_test)


def _form(kind: ImageKind, folder: Path | None) -> Form:
    """The files of a set, from Debian's folder where none is named."""
    if folder is None and kind.name == "fashion-mnist" and (DEBIAN / kind.name).is_dir():
        folder = DEBIAN
    found = [] if folder is None else kind.forms(folder)
    if not found:
        raise not_found(kind.name, folder, kind.files)
    return found[0]


def _checked(kind: ImageKind, where: str, images: NDArray[Any], labels: NDArray[Any]) -> tuple[Any, Any]:
    """Images as uint8 NHWC and labels as int64; InputError unless they fit the set and each other."""
    if images.ndim == 3:
        images = images[..., None]
    if images.dtype != np.uint8 or images.ndim != 4:
        raise InputError(f"{where} has images of type {images.dtype} and shape {images.shape}, and bytes are expected")
    if images.shape[1:] != kind.shape:
        size, wanted = (" x ".join(map(str, each)) for each in (images.shape[1:], kind.shape))
        raise InputError(f"{where} has images of {size}, and those of {kind.name} are {wanted}")
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) != len(images) or len(images) == 0:
        raise InputError(f"{where} has {len(images):,} images and labels of shape {labels.shape}: one each is expected")
    if labels.min() < 0 or labels.max() >= kind.classes:
        wrong = labels[(labels < 0) | (labels >= kind.classes)][0]
        raise InputError(f"{where} has the label {wrong}, and those of {kind.name} are 0 to {kind.classes - 1}")
    return np.ascontiguousarray(images), labels.astype(np.int64)


def _md5(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _kept(kind: ImageKind, folder: Path | None) -> ImageSet:
    form = _form(kind, folder)
    return kept(kind.name, form.files, lambda: read_images(kind, form))


@functools.cache
def _digits() -> ImageSet:
    """scikit-learn's 1,797 digits, 8 x 8, in one fixed split; its levels 0 to 16 are scaled to 0 to 255."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise InputError("the set digits comes with scikit-learn: pip install 'flipscope[vision]'") from error
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(_DIGITS_SPLIT).permutation(len(images))
    pixels = np.rint(images.reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
    test, train = order[:_DIGITS_TEST], order[_DIGITS_TEST:]
    parts = [(pixels[rows], labels[rows].astype(np.int64)) for rows in (train, test)]
    return image_set(DIGITS, 10, (parts[0], parts[1]))
