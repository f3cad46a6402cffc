from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from studies.harness import smoke_run

from flipscope.lab import Rows
from flipscope.studies.sparse_variables.sparse_constructions import (
    FEWEST,
    STUDY,
    Built,
    some_function,
    tilted,
)

CLAIMS = {claim.name: claim for claim in STUDY.claims}
OURS = {
    "heads approximate their target uniformly": "error",
    "exact after the MLP": "answer_error",
    "every norm is within its bound": "worst_ratio",
    "the certificate is what all strings say": "difference",
}
GOOD = {
    "printed": False,
    "error": 0.1,
    "limit": 0.25,
    "answer_error": 1e-15,
    "exact_limit": 1e-9,
    "worst_ratio": 1.0,
    "one": 1.0,
    "difference": 1e-16,
    "rounding": 1e-12,
}
PRINTED = "printed forms fail where they are wrong, and only there"
CASES: list[dict[str, Any]] = [
    {"mapping": "deterministic", "route": "select", "basis": "orthonormal", "error": 1.0},
    {"mapping": "deterministic", "route": "mean", "basis": "tilted", "error": 0.4},
    {"mapping": "deterministic", "route": "mean", "basis": "orthonormal", "error": 0.1},
]


def _ignore(done: int, total: int) -> None:
    pass


def printed(case: int = -1, count: int = 5, **changes: Any) -> Rows:
    """The rows of a table that shows all slips; one row of a case may have other numbers."""
    usual = {"printed": True, "sparsity": 4, "limit": 0.25, "answer_error": 2.0, "ratio W_1": 1.25}
    rows = [{**usual, **each} for each in CASES for _ in range(count)]
    if case >= 0:
        rows[case * count].update(changes)
    return Rows(rows)


@pytest.mark.parametrize(("name", "column"), OURS.items())
def test_one_construction_contradicts_and_few_decide_nothing(name: str, column: str) -> None:
    judge = CLAIMS[name].judge
    good = Rows([GOOD] * FEWEST)
    assert judge(good).verdict == "reproduced"
    assert judge(Rows([*good, {**GOOD, column: 1.01}])).verdict == "contradicted"
    assert judge(Rows(good[1:])).verdict == "undecided"
    assert judge(Rows([*good[1:], {**GOOD, "printed": True}])).verdict == "undecided"  # which do not count
    assert judge(Rows([*good, {"printed": False, "refused": "no gap", "error": None}])).verdict == "reproduced"


def test_a_norm_that_is_not_a_number_is_the_worst() -> None:
    outcome = {"ratio W_Q": 0.5, "ratio W_K": float("nan"), "error": 0.1, "limit": 0.25}
    row = STUDY.row(Built("deterministic", True, True, 3, 16, "orthonormal", False, 0), outcome)
    assert np.isnan(row["worst_ratio"])


def test_each_slip_must_show() -> None:
    judge = CLAIMS[PRINTED].judge
    assert judge(printed()).verdict == "reproduced"
    assert judge(printed(count=4)).verdict == "undecided"
    for case, changes in (
        (0, {"error": 0.2}),
        (1, {"error": 0.2}),
        (2, {"answer_error": 0.0}),
        (2, {"ratio W_1": 0.9}),
        (2, {"error": 0.3}),
    ):
        assert judge(printed(case, **changes)).verdict == "contradicted"
    assert judge(Rows()).verdict == "undecided"


def test_smoke() -> None:
    table, judged, figures = smoke_run(STUDY)
    verdicts = {claim.name: found.verdict for claim, found in judged}
    assert all(verdicts[name] == "reproduced" for name in OURS)
    assert verdicts[PRINTED] == "undecided"  # one tilted basis with s >= 3 is too few
    assert len(table) == 140
    assert [len(figure.panels) for figure in figures] == [4, 4]
    assert sum(int(text.split()[0]) for text in STUDY.provenance(table)) == len(table.having("refused"))


def test_a_known_number_and_the_tilted_basis() -> None:
    trial = Built("deterministic", True, True, 3, 16, "orthonormal", False, 0)
    assert trial.measure(_ignore)["error"] == pytest.approx(27 / (3 * 8 * 16 / (2 / 3) + 14))
    f = some_function(trial)
    vectors = tilted(f, 0.1)
    own = vectors[list(f.positions)] @ vectors[list(f.positions)].T
    np.testing.assert_allclose(own, [[1, 0.1, -0.1], [0.1, 1, -0.1], [-0.1, -0.1, 1]], atol=1e-15)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1)


def test_frobenius_norms_of_the_mlp_are_kept_as_measured() -> None:
    # Prop 4.7 has orders of them only: O(poly(s)) for symmetric functions, O(2^s poly(s)) for others.
    sizes = (2, 4, 6, 8)
    symmetric = [Built("deterministic", True, True, s, 12, "orthonormal", False, 0).measure(_ignore) for s in sizes]
    general = [Built("deterministic", False, False, s, 12, "orthonormal", False, 0).measure(_ignore) for s in sizes]
    assert [round(each["frobenius W_2"]) for each in symmetric] == [21, 56, 100, 151]
    assert [round(each["frobenius W_2"]) for each in general] == [19, 62, 171, 434]
