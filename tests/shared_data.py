"""Real data for tests, which are not part of the repository: in ../shared/data, or where a variable says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(os.environ.get("FLIPSCOPE_TEST_DATA") or Path(__file__).parents[2] / "shared" / "data")
needs_shared_data = pytest.mark.skipif(
    not (FOLDER / "vision_tiny.npz").is_file(), reason=f"the real data of these tests are not in {FOLDER}"
)
TINY = {"mnist": "mnist", "fashion-mnist": "fashion_mnist", "cifar-10": "cifar10", "svhn": "svhn"}


def tiny(name: str) -> dict[str, Any]:
    """400 training and 200 test images of a set, by x_train, y_train, x_test, y_test."""
    with np.load(FOLDER / "vision_tiny.npz") as arrays:
        return {each: arrays[f"{TINY[name]}_{each}"] for each in ("x_train", "y_train", "x_test", "y_test")}
