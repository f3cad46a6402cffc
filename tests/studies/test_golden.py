"""The numbers of every study, measured again and compared with the golden ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from studies.golden import CHANGED, FOLDER, Golden, compared, differences

from flipscope.lab import registry
from flipscope.lab.context import kept_in
from flipscope.lab.store.store import Store


def test_every_study_has_golden_numbers() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.json")) == sorted(registry.names())


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A folder of trained models: several studies measure the same ones, which are then trained once, as in a run."""
    folder = tmp_path_factory.mktemp("models")
    with Store(folder):
        yield str(folder)


@pytest.mark.parametrize("name", sorted(registry.names()))
def test_numbers_are_the_golden_ones(name: str, models: str) -> None:
    study, golden = registry.find(name), Golden.read(name)
    assert golden.revision == study.revision, f"write the golden of {name} anew: its revision was raised"
    with kept_in(models):
        found = differences(study, golden)
    assert not found, "\n".join([CHANGED.format(name), *found])


@pytest.mark.parametrize(
    ("before", "after", "alike"),
    [
        (1.0, 1.004, True),
        (1.0, 1.006, False),
        (0.0, 1e-13, True),
        (0.0, 1e-9, False),
        (3, 3, True),
        (3, 4, False),
        (3, 3.0, False),
        (True, False, False),
        (float("nan"), float("nan"), True),
        (float("inf"), 1e300, False),
        ([1.0, 2.0], [1.0, 2.001], True),
        ([1.0, 2.0], [1.0], False),
        (np.array([1, 2]), np.array([1, 2]), True),
        (np.array([1, 2]), np.array([1, 3]), False),
        (np.array([1, 2]), np.array([[1, 2]]), False),
        (np.array([1.0]), np.array([1.0], "float32"), False),
        (None, 0.0, False),
        ({"a": 1.0}, {"a": 1.001}, True),
        ({"a": 1.0}, {"b": 1.0}, False),
    ],
)
def test_what_counts_as_the_same_number(before: object, after: object, alike: bool) -> None:
    found = compared({"seed": 1}, {"value": before}, {"value": after}, 0.005)
    assert bool(found) != alike
    assert alike or found[0].startswith('{"seed": 1}: value was ')


def test_columns_may_have_tolerances_of_their_own() -> None:
    own = {"count": {"absolute": 2}, "rate": {"relative": 0.1, "absolute": 0.01}, "seconds": "any"}
    before = {"count": 10, "rate": 1.0, "seconds": 3.0, "rest": 1.0}
    assert not compared({}, before, {"count": 12, "rate": 1.09, "seconds": 9.0, "rest": 1.0}, 0.005, own)
    found = compared({}, before, {"count": 13, "rate": 1.2, "seconds": 9.0, "rest": 1.1}, 0.005, own)
    assert [line.split()[1] for line in found] == ["count", "rate", "rest"]
    assert not compared({}, {"loss": [1.0, 2.0, 3.0]}, {"loss": [1.0, 2.001, 9.0]}, 0.005, {"loss": {"first": 2}})
    assert compared({}, {"loss": [1.0, 2.0, 3.0]}, {"loss": [1.0, 2.1, 3.0]}, 0.005, {"loss": {"first": 2}})
    assert compared({}, before, {"count": 10, "rate": 1.0, "seconds": 3.0}) == ["{}: the column rest is missing"]
