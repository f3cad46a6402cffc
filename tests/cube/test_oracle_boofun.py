"""The same answers as an independent package, boofun, on small functions."""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import numpy as np
import pytest

from flipscope.cube import functions, sensitivity, spectrum
from flipscope.cube.functions import BooleanFunction

# boofun warns of its own compilations; its answers are what matters here.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("_boofun")]


@pytest.fixture(scope="module")
def _boofun() -> None:
    """boofun without numba, for which it compiles its functions at every import."""
    with mock.patch.dict(sys.modules, {"numba": None}):
        pytest.importorskip("boofun")


def of_boofun(f: BooleanFunction) -> Any:
    """boofun numbers strings as we do: variable 0 is the least significant bit of a table's index."""
    import boofun

    return boofun.create(f.table().astype(bool))


def examples(n: int) -> list[BooleanFunction]:
    seeded = [functions.random(n, seed) for seed in range(4)]
    makers = (functions.parity, functions.majority, functions.tribes, functions.conjunction, functions.first)
    zoo = [make(n) for make in makers]
    juntas = [functions.random_junta(max(1, n // 2), n, seed) for seed in range(3)]
    return [*seeded, *zoo, *juntas, functions.random_symmetric(n, 1), BooleanFunction.constant(1, n)]


def test_both_number_variables_alike() -> None:
    f = of_boofun(BooleanFunction.from_table([0, 1, 0, 1, 0, 1, 0, 1]))
    assert np.asarray(f.influences()).tolist() == [1, 0, 0]


@pytest.mark.parametrize("n", range(1, 9))
def test_boofun_agrees(n: int) -> None:
    for ours in examples(n):
        theirs = of_boofun(ours)
        assert [float(i) for i in sensitivity.influences(ours)] == pytest.approx(list(theirs.influences()))
        assert float(sensitivity.average_sensitivity(ours)) == pytest.approx(theirs.total_influence())
        assert sensitivity.max_sensitivity(ours) == theirs.sensitivity()
        coefficients = spectrum.coefficients(ours)
        for index, value in enumerate(theirs.fourier()):
            chosen = tuple(j for j in range(n) if (index >> j) & 1)
            assert float(coefficients.get(chosen, 0)) == pytest.approx(value, abs=1e-12)
        assert spectrum.degree(ours) == theirs.degree()
        assert spectrum.sparsity(ours) == theirs.sparsity()
        assert spectrum.noise_stability(ours, 0.6) == pytest.approx(theirs.noise_stability(0.6))
        weights = theirs.spectral_weight_by_degree()
        assert spectrum.weight_floats(ours) == pytest.approx([weights.get(d, 0.0) for d in range(n + 1)], abs=1e-12)


@pytest.mark.parametrize("n", range(1, 5))
def test_boofun_agrees_on_blocks_and_certificates(n: int) -> None:
    from boofun.analysis.block_sensitivity import max_block_sensitivity
    from boofun.analysis.certificates import max_certificate_size

    for ours in examples(n):
        theirs = of_boofun(ours)
        assert sensitivity.block_sensitivity(ours) == max_block_sensitivity(theirs)
        assert sensitivity.certificate_complexity(ours) == max_certificate_size(theirs)
