"""Gates of a few hidden bits: their labels, where the bits are, noise and balance."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from flipscope.basics.errors import InputError
from flipscope.data.sparse import SparseData, balanced_share, gate_function
from flipscope.training.recipes.sparse_variables import sparse_data


@pytest.mark.parametrize("gate", ["and", "or", "majority", "parity", "x1 & ~x2 | x3"])
def test_labels_are_the_gate_of_hidden_bits(gate: str) -> None:
    data = sparse_data(gate, 20, 3, samples=200)
    known = data.strings()
    f = gate_function(gate, 3).extend(20, data.positions())
    assert (known.labels == f(known.bits)).all()
    [validation] = data.validation_sets()
    assert (validation.labels == f(validation.bits)).all()
    assert 0 < known.labels.mean() < 1
    assert not (validation.bits[:200] == known.bits).all()


def test_seeds_hide_other_bits_uniformly() -> None:
    places = np.concatenate([SparseData(length=10, seed=seed).positions() for seed in range(400)])
    counts = np.bincount(places, minlength=10)
    assert counts.sum() == 1_200
    assert 80 < counts.min() <= counts.max() < 165


def test_noise_is_in_training_labels_only() -> None:
    data = sparse_data("parity", 20, 0, samples=4_000, noise=0.2, validation=500)
    known = data.strings()
    wrong = (known.labels != data.values(known.bits)).mean()
    assert 0.16 < wrong < 0.24
    [validation] = data.validation_sets()
    assert (validation.labels == data.values(validation.bits)).all()
    fresh = next(iter(dataclasses.replace(data, samples=None).source(4_000, 1, 0)))  # type: ignore[arg-type]
    assert 0.16 < (fresh[1] != data.values(fresh[0])).mean() < 0.24


def test_balanced_inputs() -> None:
    assert balanced_share("and", 3) == pytest.approx(2 ** (-1 / 3), abs=1e-12)
    assert balanced_share("or", 2) == pytest.approx(1 - 2**-0.5, abs=1e-12)
    assert balanced_share("majority", 3) == 0.5
    data = sparse_data("and", 30, 0, samples=20_000, balanced=True)
    assert 0.48 < data.strings().labels.mean() < 0.52
    with pytest.raises(InputError, match="cannot be balanced"):
        balanced_share("(x1 ^ x2) & x3 & (x1 | x2)", 3)
