"""A study on a data set of the user, for the tests of runners; a module of its own, since workers import it by name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from lab.example_studies import CLAIMS

from flipscope.basics.progress import Progress
from flipscope.data.images import load_images
from flipscope.lab import Outcome, Scale, Study, Trial, data_set


@dataclass(frozen=True)
class Brightness(Trial):
    """The brightness of the training images of one class."""

    data: str
    label: int

    @property
    def memory(self) -> int:
        return 1 << 28

    def measure(self, progress: Progress) -> Outcome:
        found = load_images(self.data)
        chosen = found.x_train[found.y_train == self.label]
        return {"value": float(np.mean(chosen / 255.0)) if len(chosen) else 0.5, "pid": os.getpid()}


class Bright(Study):
    """How bright the images of each class are."""

    name = "bright"
    paper = "000"
    title = "A study of images for tests"
    scales = {"smoke": Scale(0.1, {"set": "svhn"}, "ten classes of {set}")}
    claims = CLAIMS

    def trials(self, scale: str) -> Sequence[Brightness]:
        reference = data_set(self.scales[scale].settings["set"])
        return [Brightness(reference, label) for label in range(10)]


STUDY = Bright()
