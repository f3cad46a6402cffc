from __future__ import annotations

import pytest
from studies.harness import smoke_run
from studies.trained import check_learned, check_rows, check_spectrum, models, row, verdict

from flipscope.studies.geometry.sparse_profiles import STUDY


def test_learned() -> None:
    check_learned("sparse majorities are learned", "sparse_majority")


@pytest.mark.parametrize(("relevant", "own"), [(20, {0: 0.66, 8: 0.17, 12: 0.17}), (5, {0: 0.38, 3: 0.62})])
def test_spectrum(relevant: int, own: dict[int, float]) -> None:
    check_spectrum("sparse majorities mirror Majority", "sparse_majority", relevant, own)


def test_sparse_parities_mirror_parity() -> None:
    name = "sparse parities mirror Parity"
    majorities = [each for m in (5, 20) for each in models("sparse_majority", {0: 0.5, m // 2 + 1: 0.5}, m)]
    majorities.append(row("sparse_majority", 1.0, {0: 0.66, 8: 0.17, 12: 0.17}, 20, 9))  # one is learned
    twenty = models("sparse_parity", {14: 0.9, 30: 0.1}, 20)
    assert verdict(name, *majorities, *twenty, *models("sparse_parity", {0: 0.7, 9: 0.3}, 5)) == "reproduced"
    assert verdict(name, *majorities, *twenty, *models("sparse_parity", {0: 1.0}, 5)) == "contradicted"  # not higher
    assert verdict(name, *majorities, *twenty, *models("sparse_parity", {5: 1.0}, 5)) == "contradicted"  # its own
    assert verdict(name, *majorities, *twenty, *models("sparse_parity", {9: 1.0}, 5, 1)) == "undecided"
    assert verdict(name, *majorities) == verdict(name, *twenty) == "undecided"


def test_the_laptop_scale_has_the_languages_of_both_figures() -> None:
    assert {trial.relevant for trial in STUDY.trials("laptop")} == {5, 10, 20, 50}


@pytest.mark.slow
def test_smoke() -> None:
    table, judgements, figures = smoke_run(STUDY)
    check_rows(table)
    assert [(row["language"], row["relevant"]) for row in table] == [("sparse_majority", 5), ("sparse_parity", 5)]
    own = table[0]["own_profile"]
    assert (own[0], own[3]) == (0.375, 0.625)  # 12 of 32 strings of 5 bits have no flip that matters, the others 3
    assert len(judgements) == len(STUDY.claims)
    assert len(figures[0].panels) == 2
