from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipscope.basics.errors import InputError
from flipscope.data.modular import modular_addition


@given(st.integers(2, 12), st.floats(0.2, 0.8), st.integers(0, 5))
def test_every_pair_is_on_one_side_with_its_sum(modulus: int, share: float, seed: int) -> None:
    found = modular_addition(modulus, share, seed)
    train, test = ({tuple(pair) for pair in each.bits.tolist()} for each in (found.train, found.test))
    assert len(train) == len(found.train.bits) == round(share * modulus**2)
    assert not train & test
    assert train | test == {(a, b) for a in range(modulus) for b in range(modulus)}
    for each in (found.train, found.test):
        assert each.labels.tolist() == [(a + b) % modulus for a, b in each.bits.tolist()]
    assert found.mirrored.tolist() == [(b, a) in train for a, b in found.test.bits.tolist()]


def test_the_seed_gives_the_split() -> None:
    first, again, other = (modular_addition(11, 0.5, seed).train.bits for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 0.001, float("nan")])
def test_a_side_without_pairs_is_refused(share: float) -> None:
    with pytest.raises(InputError, match="leave pairs to train on and to test"):
        modular_addition(5, share)
