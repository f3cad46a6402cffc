"""Random sums of few parities: their values, and strings that are drawn independently."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from flipscope.basics.errors import InputError
from flipscope.data.fourier import FourierData

DATA = FourierData(length=8, sparsity=3, degree=2, train=64, seed=1)


def test_labels_are_the_sum_and_strings_are_drawn_independently() -> None:
    known, [asked] = DATA.strings(), DATA.validation_sets()
    for each in (known, asked):
        assert each.labels.dtype == np.float32
        np.testing.assert_allclose(each.labels, DATA.target()(each.bits), rtol=1e-6)
    assert len(np.unique(known.bits, axis=0)) < 64  # of 256 strings: with replacement
    assert (DATA.strings().bits == known.bits).all()
    assert (DATA.target().degree, DATA.target().sparsity) == (2, 3)


def test_every_class_and_seed_has_functions_and_strings_of_its_own() -> None:
    for other in ({"seed": 2}, {"sparsity": 4}, {"degree": 3}):
        changed = dataclasses.replace(DATA, **other)
        assert changed.target().sets != DATA.target().sets
        assert not (changed.strings().bits == DATA.strings().bits).all()


def test_fresh_strings() -> None:
    fresh = dataclasses.replace(DATA, train=None)
    batches = list(fresh.source(16, 2, 0))  # type: ignore[arg-type]
    assert [bits.shape for bits, _ in batches] == [(16, 8), (16, 8)]
    assert (batches[0][1] == fresh.values(batches[0][0])).all()
    with pytest.raises(InputError, match="no fixed set"):
        fresh.strings()
