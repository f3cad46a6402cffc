from __future__ import annotations

import pytest
from studies.harness import smoke_run

from flipscope.data.token_sets import TokenSets
from flipscope.studies.low_sensitivity.sparse_or_frequent import (
    DECISIVE,
    FREQUENT_FIRST,
    SPARSE_FIRST,
    STUDY,
    Learned,
    strongest,
)


def test_smoke() -> None:
    table, judgements, figures = smoke_run(STUDY)
    found = {claim.name: judgement.verdict for claim, judgement in judgements}
    assert (
        found["the predictors have the printed sensitivities"] == "contradicted"
    )  # (1, 32, 7, 36) cannot have its value
    assert found["with 33 words the last printed value is right"] == "reproduced"
    assert found["it relies on sparse tokens where these are less sensitive"] == "undecided"
    assert [figure.where for figure in figures] == ["Fig 2", "Figs 3, 9"]
    wrong = [row for row in table.having("printed") if abs(row["exact"] - row["printed"]) > 5e-5]
    assert [(row["frequent"], row["words"], row["feature"]) for row in wrong] == [(32, 36, "sparse")]
    for row in table.where(source="trained"):
        assert row["attention_sparse"][-1] + row["attention_frequent"][-1] + row["attention_irrelevant"][-1] == (
            pytest.approx(1)
        )


def test_each_printed_setting_has_the_feature_that_is_less_sensitive() -> None:
    for settings, less in ((SPARSE_FIRST, "sparse"), (FREQUENT_FIRST, "frequent"), (DECISIVE, "frequent")):
        for setting in settings:
            sets = TokenSets(*setting)
            other = "frequent" if less == "sparse" else "sparse"
            assert sets.sensitivity(less) < sets.sensitivity(other)  # type: ignore[arg-type]


def test_the_further_settings_are_decisive() -> None:
    """There the stronger signal is the more sensitive feature; in the printed ones it is never so."""
    names = ("sparse", "frequent", "surplus", "words", "vocabulary")
    found = {
        setting: strongest({**dict(zip(names, setting, strict=True)), "length": 50})
        for setting in (*SPARSE_FIRST, *FREQUENT_FIRST, *DECISIVE)
    }
    assert [found[setting] for setting in SPARSE_FIRST] == ["sparse"] * 3
    assert [found[setting] for setting in FREQUENT_FIRST] == ["frequent", "frequent", None]
    assert [found[setting] for setting in DECISIVE] == ["sparse"] * 2


def test_laptop_trials() -> None:
    trained = [trial for trial in STUDY.trials("laptop") if isinstance(trial, Learned)]
    assert len(trained) == 8 * 5
    assert {trial.seed for trial in trained} == set(range(1_000, 1_005))
    assert {(trial.train, trial.test, trial.batch, trial.length) for trial in trained} == {(1_000, 500, 100, 50)}
