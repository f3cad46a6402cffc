from __future__ import annotations

import pytest
from studies.harness import smoke_run

from flipscope.basics.errors import InputError
from flipscope.studies.low_sensitivity.noise_stability import RHOS, STUDY, Every


def test_smoke() -> None:
    table, judgements, figures = smoke_run(STUDY)
    assert len(table) == len(RHOS) * len(STUDY.checked_trials("smoke"))
    found = {claim.name: judgement.verdict for claim, judgement in judgements}
    assert found["Prop 3.2 holds"] == "reproduced"
    assert found["the average sensitivity bounds it as well"] == "reproduced"
    assert found["the degree is at most the square of the sensitivity"] == "reproduced"
    assert found["random functions nearly attain the bound by average sensitivity"] == "undecided"  # three functions
    assert [panel.title for panel in figures[0].panels] == [f"rho = {rho:g}" for rho in RHOS]


def test_all_functions_of_four_bits() -> None:
    found = Every(4).measure(lambda done, total: None)
    place = RHOS.index(0.9)
    means = [found[name][place] for name in ("probability", "printed", "by_degree", "sharper")]
    assert means == pytest.approx([0.092747, 0.361124, 0.164646, 0.094719], abs=5e-7)
    assert found["cases"] == 65_536
    assert found["printed_broken"] == found["sharper_broken"] == [0, 0, 0]


def test_five_bits_are_too_many() -> None:
    with pytest.raises(InputError, match="bits=5 is too large"):
        Every(5)
