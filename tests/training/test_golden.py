"""The numbers of short trainings, trained again and compared with the golden ones."""

from __future__ import annotations

import json

import pytest
from training.golden import CHANGED, FILE, RECIPES, differences, measured

from flipscope.training.recipe import REVISION

GOLDEN = json.loads(FILE.read_text("utf-8"))


def test_every_kind_of_recipe_has_golden_numbers() -> None:
    assert list(GOLDEN["trainings"]) == list(RECIPES)
    assert GOLDEN["revision"] == REVISION, "write the file anew with `python -m tests.training.golden`"


@pytest.mark.parametrize("name", RECIPES)
def test_numbers_are_the_golden_ones(name: str) -> None:
    found = differences(GOLDEN["trainings"][name], measured(name))
    assert not found, "\n".join([f"{CHANGED} ({name})", *found])
