"""ImageData: the images of a set as the data of a recipe, with augmentation.

A recipe holds the reference of a set, such as digits@724490bf47248ce4, and the sizes that follow from it, never a
folder. The set is read where a training begins (`flipscope.data.finding.data_in` names the folder).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor
from torch.nn import functional as F

from flipscope.basics.arguments import check_fields, checked_arguments
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.data.batches import Batch, Examples, Inputs, Labelled, Shuffled
from flipscope.data.finding import split_reference
from flipscope.data.images import ImageSet, load_images

_ORDER, _CHOICE = 0x696D6167, 0x63686F73  # set the streams of batches and of the choice of images apart

Scaling = Literal["signs", "standard"]


@dataclass(frozen=True, kw_only=True)
class ImageData:
    """Images with their classes: `train` images of the training set, and `test` of the test set to evaluate on.

    Fewer than all are drawn at random, with the seed. `scaling` says what pixels become: "signs" maps 0 to -1 and 255
    to 1, as the released code of paper 004 does for CIFAR-10; "standard" gives each channel mean 0 and variance 1 over
    the training set. Noise has its variance on this scale.

    With `crop`, each training image is moved by up to so many pixels in both directions, what comes in being black;
    with `flip`, half of them are mirrored.
    """

    inputs: ClassVar[Inputs] = "numbers"
    answer: ClassVar[str] = "string"
    images: str  # the reference of the set
    image_size: int
    channels: int
    classes: int
    train: int
    test: int
    scaling: Scaling = "signs"
    crop: int = 0
    flip: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        for name, smallest in (
            ("image_size", 1), ("channels", 1), ("classes", 2), ("train", 1), ("test", 1), ("crop", 0), ("seed", 0),
        ):  # fmt: skip
            check_count(name, getattr(self, name), smallest)
        if self.crop >= self.image_size:
            raise InputError(f"crop={self.crop} must be less than image_size={self.image_size}")
        if split_reference(self.images)[1] is None:
            raise InputError(f"images={self.images!r} must be the reference of a set: image_data makes it from a name")

    @property
    def function(self) -> str:
        """The name of the set."""
        return self.name

    @property
    def name(self) -> str:
        """The name of the set."""
        return split_reference(self.images)[0]

    @property
    def length(self) -> int:
        """Pixels of an image."""
        return self.image_size**2

    def loaded(self) -> ImageSet:
        """The set; InputError if it is not found, or another one is."""
        found = load_images(self.images)
        for part, wanted, there in (("train", self.train, found.x_train), ("test", self.test, found.x_test)):
            if wanted > len(there):
                raise InputError(f"{part}={wanted:,} is more than the {len(there):,} images of {self.name}")
        return found

    def training_set(self) -> Examples:
        """The training images [image, channel, row, column] on the scale of the model, with their classes."""
        images, labels = self._chosen(self.loaded(), "train")
        return Examples(self.scaled(_as_bytes(images)), torch.from_numpy(labels))

    def test_set(self) -> Examples:
        """The test images on the same scale."""
        images, labels = self._chosen(self.loaded(), "test")
        return Examples(self.scaled(_as_bytes(images)), torch.from_numpy(labels))

    def validation_sets(self) -> list[Labelled]:
        """The test images."""
        return [self.test_set()]

    def source(self, batch: int, steps: int, seed: int) -> ImageBatches:
        """Batches of the training images in a new order each epoch, augmented."""
        images, labels = self._chosen(self.loaded(), "train")
        stream = np.random.default_rng([self.seed, seed, _ORDER])
        return ImageBatches(self, _as_bytes(images), torch.from_numpy(labels), batch, stream)

    def draw_inputs(self, count: int, stream: np.random.Generator) -> Float32[Tensor, "image channel row column"]:
        """Random training images, as the model reads them."""
        images, _ = self._chosen(self.loaded(), "train")
        return self.scaled(_as_bytes(images[stream.integers(0, len(images), count)]))

    def scaled(self, pixels: UInt8[Tensor, "image channel row column"]) -> Float32[Tensor, "image channel row column"]:
        """Pixels from 0 to 255 as numbers on the scale of the model."""
        if self.scaling == "signs":
            return pixels.float() / 127.5 - 1
        mean, std = _moments(self.images)
        return (pixels.float() / 255 - mean) / std

    def _chosen(
        self, found: ImageSet, part: Literal["train", "test"]
    ) -> tuple[UInt8[np.ndarray, "image row column channel"], Int64[np.ndarray, " image"]]:
        """The images and classes of a part that are used."""
        images, labels = (found.x_train, found.y_train) if part == "train" else (found.x_test, found.y_test)
        count = self.train if part == "train" else self.test
        if count == len(images):
            return images, labels.copy()
        stream = np.random.default_rng([self.seed, part == "train", _CHOICE])
        rows = np.sort(stream.permutation(len(images))[:count])
        return images[rows], labels[rows]


class ImageBatches(Shuffled):
    """Batches of images, cropped and mirrored at random, and put on the scale of the model."""

    def __init__(
        self, data: ImageData, pixels: UInt8[Tensor, "image channel row column"], labels: Tensor, batch: int,
        stream: np.random.Generator,
    ) -> None:  # fmt: skip
        super().__init__(Examples(pixels, labels), batch, stream, "numbers")
        self._data = data

    def _plan(self, stream: np.random.Generator) -> Sequence[Tensor]:
        """Rows with, for each, the shift down and right and whether it is mirrored: [image, 4]."""
        rows = stream.permutation(len(self._bits))
        if not self._data.crop and not self._data.flip:
            return list(torch.from_numpy(rows).split(self.batch))
        shifts = stream.integers(-self._data.crop, self._data.crop + 1, (len(rows), 2))
        mirrored = stream.integers(0, 2, len(rows)) * self._data.flip
        return list(torch.from_numpy(np.column_stack([rows, shifts, mirrored])).split(self.batch))

    def _batch(self, rows: Tensor) -> Batch:
        if rows.ndim == 1:
            return self._data.scaled(self._bits[rows]), self._labels[rows]
        rows, down, right, mirrored = rows.unbind(dim=1)
        return self._data.scaled(augmented(self._bits[rows], down, right, mirrored.bool())), self._labels[rows]

    def fingerprint(self) -> str:
        plain = super().fingerprint()
        return f"{plain} {self._data.scaling} {self._data.crop} {self._data.flip}"


def augmented(
    images: UInt8[Tensor, "image channel row column"],
    down: Int64[Tensor, " image"],
    right: Int64[Tensor, " image"],
    mirrored: Tensor,
) -> UInt8[Tensor, "image channel row column"]:
    """Images moved down and right by so many pixels, zeros coming in, and then mirrored left to right.

    >>> image = torch.tensor([[[[1, 2], [3, 4]]]], dtype=torch.uint8)
    >>> augmented(image, torch.tensor([1]), torch.tensor([0]), torch.tensor([True])).tolist()
    [[[[0, 0], [2, 1]]]]
    """
    count, channels, size, across = images.shape
    most = int(torch.stack([down, right]).abs().max())
    padded = F.pad(images, (most, most, most, most))
    place = torch.arange(across)
    columns = torch.where(mirrored[:, None], across - 1 - place, place) + (most - right)[:, None]  # [image, column]
    rows = torch.arange(size) + (most - down)[:, None]  # [image, row]
    number, channel = torch.arange(count)[:, None, None, None], torch.arange(channels)[:, None, None]
    return padded[number, channel, rows[:, None, :, None], columns[:, None, None, :]]


@functools.lru_cache(maxsize=4)
def _moments(images: str) -> tuple[Float32[Tensor, "channel 1 1"], Float32[Tensor, "channel 1 1"]]:
    """Mean and standard deviation of each channel of a set, which is given by its reference."""
    found = load_images(images)
    mean, std = (torch.tensor(each, dtype=torch.float32)[:, None, None] for each in (found.mean, found.std))
    return mean, std


def _as_bytes(images: np.ndarray) -> UInt8[Tensor, "image channel row column"]:
    """Images [image, row, column, channel] in the order of PyTorch."""
    return torch.from_numpy(np.moveaxis(images, -1, 1).copy())  # sets are read-only


@checked_arguments
def image_data(
    name: str,
    *,
    train: int | None = None,
    test: int | None = None,
    scaling: Scaling = "signs",
    crop: int = 0,
    flip: bool = False,
    seed: int = 0,
) -> ImageData:
    """The data of a recipe on the image set of this name or reference; all its images unless fewer are asked for."""
    found = load_images(name)
    rows, columns, channels = found.shape
    if rows != columns:
        raise InputError(f"the images of {name} have {rows} x {columns} pixels, and the models read square ones")
    return ImageData(
        images=found.reference,
        image_size=rows,
        channels=channels,
        classes=found.classes,
        train=len(found.x_train) if train is None else train,
        test=len(found.x_test) if test is None else test,
        scaling=scaling,
        crop=crop,
        flip=flip,
        seed=seed,
    )
