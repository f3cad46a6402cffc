from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from studies.harness import smoke_run

from flipscope.basics.errors import InputError
from flipscope.bounds.pac_bayes import class_bound
from flipscope.lab import Rows
from flipscope.studies.sharper import fourier_testers
from flipscope.studies.sharper.fourier_testers import (
    STUDY,
    TAILS,
    TRIALS,
    Target,
    learned_row,
    sparsity_at,
)

DEGREES, SHORT, ONE_SIDED, WILTING, BOUNDS, WRITTEN, MODEL_DEGREES, MODEL_SPARSITIES = STUDY.claims


def targets(functions: int = 8, degrees: tuple[int, ...] = (1, 2, 3, 4, 5), **odd: Any) -> Rows:
    """Functions whose degree is found, and 80 % of a large sparsity; `odd` values are functions of sparsity."""
    rows = Rows()
    for sparsity in (1, 7, 14, 20):
        for degree in degrees:
            for seed in range(functions):
                less = round(0.8 * sparsity) if sparsity > 10 else sparsity
                row: dict[str, Any] = {"kind": "target", "sparsity": sparsity, "degree": degree, "seed": seed}
                row |= {"found_degree": degree, "found_sparsity": less, "ratio": 0.95}
                row["sparsities"] = [max(1, less - place) for place in range(len(TAILS))]
                rows.append({**row, **{name: value(sparsity) for name, value in odd.items()}})
    return rows


def test_degrees() -> None:
    assert DEGREES.judge(targets()).verdict == "reproduced"
    wrong = targets()
    wrong[50]["found_degree"] -= 1
    judged = DEGREES.judge(wrong)
    assert judged.verdict == "reproduced"  # of most functions
    assert "31 of 32 functions" in [part.note for part in judged.parts]
    assert DEGREES.judge(targets(found_degree=lambda sparsity: 1)).verdict == "contradicted"
    assert DEGREES.judge(targets(1)).verdict == DEGREES.judge(targets(degrees=(1, 2, 3))).verdict == "undecided"
    assert DEGREES.judge(Rows([{"kind": "written"}])).verdict == "undecided"


def test_large_sparsities() -> None:
    assert SHORT.judge(targets()).verdict == "reproduced"
    assert SHORT.judge(targets(found_sparsity=lambda sparsity: sparsity)).verdict == "contradicted"
    rng = np.random.default_rng(0)
    unsure = targets(found_sparsity=lambda sparsity: float(sparsity - min(sparsity, rng.exponential(1.0))))
    assert SHORT.judge(unsure).verdict == "undecided"
    assert SHORT.judge(targets().where(sparsity=20)).verdict == "undecided"
    assert SHORT.judge(targets(found_sparsity=lambda sparsity: 1)).verdict == "undecided"  # of every function
    some = targets()
    some[-1]["found_sparsity"] = None
    assert SHORT.judge(some).note == "1 of 80 functions were accepted at no level"


def test_one_sided() -> None:
    assert ONE_SIDED.judge(targets()).verdict == "reproduced"
    assert ONE_SIDED.judge(targets(1)).verdict == "undecided"
    for name in ("degree", "sparsity"):
        wrong = Rows({**row, f"found_{name}": row[name] + 1} for row in targets())
        assert ONE_SIDED.judge(wrong).verdict == "contradicted"
        assert ONE_SIDED.judge(Rows(wrong[:20])).verdict == "undecided"
        assert ONE_SIDED.judge(Rows([*wrong[:1], *targets()[1:]])).verdict == "reproduced"


def test_wilting() -> None:
    assert WILTING.judge(targets()).verdict == "reproduced"
    assert WILTING.judge(targets(sparsities=lambda sparsity: [sparsity] * len(TAILS))).verdict == "contradicted"
    assert WILTING.judge(targets().where(sparsity=7)).verdict == "undecided"
    rng = np.random.default_rng(0)
    unsure = targets(2, sparsities=lambda sparsity: [9, 9, 9, 9, 8 + float(rng.normal()), 9, 9])
    assert WILTING.judge(unsure).verdict == "undecided"


def test_bounds() -> None:
    assert BOUNDS.judge(targets(ratio=lambda _: 0.99)).verdict == "reproduced"
    assert BOUNDS.judge(targets(ratio=lambda sparsity: 0.7 if sparsity > 10 else 1.0)).verdict == "contradicted"
    rng = np.random.default_rng(0)
    assert BOUNDS.judge(targets(2, ratio=lambda _: 0.9 + 0.05 * float(rng.normal()))).verdict == "undecided"
    assert BOUNDS.judge(targets(1, ratio=lambda _: 0.95)).verdict == "undecided"
    assert BOUNDS.judge(targets(ratio=lambda _: 1.2)).verdict == "contradicted"  # of a class that is too large
    assert BOUNDS.judge(targets().where(sparsity=1)).verdict == "undecided"


def test_written_networks() -> None:
    def rows(count: int = 10, **odd: Any) -> Rows:
        usual = {"kind": "written", "degree": 3, "found_degree": 3, "exactly": False}
        return Rows([{**usual, **odd}, *({**usual} for _ in range(count - 1))])

    assert WRITTEN.judge(rows()).verdict == "reproduced"
    assert WRITTEN.judge(rows(found_degree=2)).verdict == WRITTEN.judge(rows(exactly=True)).verdict == "contradicted"
    assert WRITTEN.judge(rows(3)).verdict == WRITTEN.judge(targets()).verdict == "undecided"


@pytest.mark.parametrize("name", ["degree", "sparsity"])
def test_learned_models(name: str) -> None:
    claim = MODEL_DEGREES if name == "degree" else MODEL_SPARSITIES

    def rows(right: int, wrong: int, learned: bool = True) -> Rows:
        usual = {"kind": "learned", "learned": learned, "degree": 3, "sparsity": 5, "wanted_sparsity": 3}
        found = [3] * right + [4] * (wrong // 2) + [None] * (wrong - wrong // 2)
        return Rows({**usual, f"found_{name}": each} for each in found)

    assert claim.judge(rows(30, 5)).verdict == "reproduced"
    assert claim.judge(rows(5, 30)).verdict == "contradicted"
    assert claim.judge(rows(10, 10)).verdict == "undecided"
    assert claim.judge(rows(30, 0, learned=False)).verdict == "undecided"


def test_one_parity_is_found_of_a_constant_too() -> None:
    usual = {"kind": "learned", "learned": True, "found_sparsity": 1, "wanted_sparsity": 1}
    judged = MODEL_SPARSITIES.judge(Rows([usual] * 30))
    assert (judged.verdict, judged.quantity) == (
        "undecided", "no models: models that learned their target, with a sparsity above 1",
    )  # fmt: skip


def test_what_is_found_follows_from_the_statistics() -> None:
    outcome = {"statistics": [0.5, 0.3, 0.05, 0.01], "outside": [0.5, 0.25, 0.05, 0.03, 0.0], "learned": True}
    outcome["target_outside"] = [0.5, 0.2, 0.03, 0.0]
    row = learned_row({"degree": 2, **outcome})
    assert (row["found_degree"], row["found_sparsity"]) == (2, 2)  # of 3 coefficients one is the constant
    assert row["wanted_sparsity"] == 1
    assert learned_row({**outcome, "statistics": [0.5]})["found_degree"] is None
    assert (sparsity_at([0.5, 0.0], 0.1), sparsity_at([0.5, 0.4], 0.1)) == (1, None)


def test_a_model_that_is_its_target_has_its_sparsity() -> None:
    outside = [0.25, 0.1, 0.05, 0.03, 0.0]  # 4 coefficients, of which the tail overlooks 1
    outcome = {"statistics": [0.5, 0.0], "outside": outside, "target_outside": outside, "learned": True}
    rows = Rows(learned_row({"degree": 1, "sparsity": 3, **outcome}) for _ in range(30))
    assert MODEL_SPARSITIES.judge(rows).verdict == MODEL_DEGREES.judge(rows).verdict == "reproduced"


def test_nothing_found_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Rows({**row, "found_degree": None, "found_sparsity": None, "ratio": None} for row in targets())
    assert DEGREES.judge(wrong).verdict == ONE_SIDED.judge(wrong).verdict == "contradicted"

    def nothing(*_: Any, **__: Any) -> None:
        raise InputError("the testers found no degree")

    monkeypatch.setattr(fourier_testers, "black_box_bound", nothing)
    trial = Target(8, 2, 2, seed=1, free=6, trials=20)
    row = STUDY.row(trial, trial.measure(lambda done, total: None))
    assert row["found_degree"] is row["found_sparsity"] is row["ratio"] is None
    assert set(row["ratios"]) == {None}


def test_a_target_of_twenty_bits() -> None:
    trial = Target(20, 7, 3, seed=1, free=8, trials=300)
    outcome = trial.measure(lambda done, total: None)
    assert outcome["found_degree"] == 3
    assert 5 <= outcome["found_sparsity"] <= 7
    assert outcome["degrees"][TRIALS.index(300)] == 3
    assert outcome["sparsities"] == sorted(outcome["sparsities"], reverse=True)
    row = STUDY.row(trial, outcome)
    true = class_bound(7, 3, 20, 8_192).bound
    assert row["ratio"] == pytest.approx(outcome["bound"] / true)
    assert 0.7 < row["ratio"] <= 1
    assert row["ratios"] == sorted(row["ratios"], reverse=True)


def test_smoke() -> None:
    table, judged, figures = smoke_run(STUDY)
    assert {kind: len(rows) for kind, rows in table.by("kind")} == {"learned": 4, "target": 8, "written": 4}
    assert len(judged) == 8
    assert all(row["found_degree"] == row["degree"] for row in table.where(kind="target"))
    written = table.where(kind="written")
    assert all(row["found_degree"] == row["degree"] and not row["exactly"] for row in written)
    for row in table.where(kind="learned"):
        assert row["outside"] == sorted(row["outside"], reverse=True)
    names = [figure.name.removeprefix("fourier-testers") for figure in figures]
    assert names == ["", "-trials", "-epsilon"]
    models = Rows({**row, "learned": True} if row["kind"] == "learned" else row for row in table)
    assert [figure.name for figure in STUDY.draw(models)[3:]] == [
        "fourier-testers-learned",
        "fourier-testers-tolerance",
    ]
    assert "0 of 4 functions were learned" in STUDY.provenance(table)[0]


def test_every_scale_constructs() -> None:
    assert {scale: len(STUDY.checked_trials(scale)) for scale in STUDY.scales} == {
        "smoke": 16,
        "laptop": 275,
        "paper": 540,
    }
