"""Parity in steps: no step is ever wrong, and what the network's norm really is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from flipscope.basics.bits import index_bits
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import random_strings
from flipscope.bounds.pac_bayes import norm_bound, steps_norm_bound
from flipscope.constructions.chain_of_thought import parity_steps, write_steps
from flipscope.constructions.fourier import fourier_network
from flipscope.cube.fourier_sums import parse_sum


@pytest.mark.parametrize("length", [4, 5, 7, 16])
def test_every_step_is_the_parity_so_far(length: int) -> None:
    exhaustive = length <= 7
    bits = index_bits(0, 1 << length, length) if exhaustive else random_strings(np.random.default_rng(0), 20, length)
    written = write_steps(parity_steps(length), torch.from_numpy(bits)).numpy()
    np.testing.assert_array_equal(written, np.cumsum(bits, axis=1) % 2)


@pytest.mark.parametrize("length", [4, 5, 8, 20])
def test_its_norm_is_below_its_own_bound_and_above_the_papers(length: int) -> None:
    norm = parity_steps(length).squared_norm()
    assert norm <= steps_norm_bound(length)
    assert (norm > norm_bound(1, 2, length)) == (length >= 5)


def test_a_network_that_writes_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="parity_steps"):
        write_steps(fourier_network(parse_sum("x1x2", 4)), torch.zeros(1, 4))
    with pytest.raises(InputError, match=r"\[string, 6\]"):
        write_steps(parity_steps(6), torch.zeros(1, 5))
    with pytest.raises(InputError, match="length"):
        parity_steps(3)
