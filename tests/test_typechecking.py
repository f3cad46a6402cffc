"""Annotations are checked while tests run: what does not fit and is not refused is an error."""

from __future__ import annotations

import pytest
import torch
import typechecking
from jaxtyping import TypeCheckError

from flipscope.basics.errors import InputError
from flipscope.data.languages import draw
from flipscope.flips.deltas import Pairs, sparse_pays


def test_an_argument_that_does_not_fit_is_an_error() -> None:
    assert sparse_pays(torch.zeros((2, 3), dtype=torch.bool), 8)
    with pytest.raises(TypeCheckError):
        sparse_pays(torch.zeros(3, dtype=torch.bool), 8)
    two, three = torch.zeros(2, dtype=torch.long), torch.zeros(3, dtype=torch.long)
    with pytest.raises(TypeCheckError):  # of a dataclass too, and of shapes that do not fit together
        Pairs(1, two, three, torch.zeros((2, 4)))


def test_what_a_function_refuses_it_refuses_in_its_own_words() -> None:
    with pytest.raises(InputError, match="must be a whole number"):
        draw(lambda bits: bits[:, 0], "three")  # type: ignore[arg-type]


def test_the_first_calls_of_every_test_are_checked() -> None:
    fitting, bad = torch.zeros((2, 3), dtype=torch.bool), torch.zeros(3, dtype=torch.bool)
    typechecking.pytest_runtest_setup()
    for _ in range(typechecking.CALLS - 1):
        sparse_pays(fitting, 8)
    with pytest.raises(TypeCheckError):
        sparse_pays(bad, 8)
    sparse_pays(bad, 8)
    typechecking.pytest_runtest_setup()
    with pytest.raises(TypeCheckError):
        sparse_pays(bad, 8)
