from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from studies.harness import smoke_run

import flipscope
from flipscope.basics.seeds import seed_of
from flipscope.lab import Claim, Result, Rows
from flipscope.models.config import TransformerConfig
from flipscope.models.transformer import Transformer
from flipscope.studies.geometry.median_threshold import STUDY, AroundMedian
from flipscope.studies.geometry.random_models import INITS, MEDIAN, columns

MEAN, STRINGS = STUDY.claims
SMALL = AroundMedian("xavier_uniform", 6, 0, 20, 32, 0, 6, False)


def _ignore(done: int, total: int) -> None:
    pass


def _table(models: int, counts: list[int]) -> Rows:
    """As `summarise` makes it, of so many models of each initialisation with these sensitivities."""

    def model(init: int, number: int) -> dict[str, Any]:
        row = {"init": INITS[init], "length": 100, "screened": False, "seed": seed_of(init, number)}
        return {**row, **columns(np.array(counts), 100), "rechecked": 0, "near_ties": 0}

    return Rows(model(init, number) for init in range(len(INITS)) for number in range(models))


def _verdict(claim: Claim, table: Rows) -> str:
    return claim.judge(table).verdict


def test_smoke_gives_one_row_a_model_and_decides_nothing() -> None:
    table, judgements, figures = smoke_run(STUDY)
    assert [row["init"] for row in table] == [init for init in INITS for _ in range(2)]
    for row in table:
        assert sum(row["profile"]) == row["strings"] >= 4
        assert (row["screened"], row["constant"]) == (False, False)  # no flip is guessed, no model is constant
        assert row["width"] <= 64
    assert {judgement.verdict for _, judgement in judgements} == {"undecided"}
    assert [len(figure.panels) for figure in figures] == [8]
    assert [line for line in STUDY.provenance(table) if "too close to call" in line]


def test_the_median_leaves_half_of_the_strings_above_it() -> None:
    found = SMALL.measure(_ignore)
    model = Transformer(TransformerConfig.from_dict(found["config"]), scheme=SMALL.init, seed=SMALL.seed)
    with torch.no_grad():
        logits = model.eval()(torch.from_numpy(dataclasses.replace(SMALL, count=MEDIAN).strings())).numpy()
    assert (logits > found["median"]).sum() == MEDIAN // 2 == 200
    subject = flipscope.Subject(model, threshold=found["median"], precision="float64")
    plain = flipscope.sensitivity(subject, SMALL.strings(), path="general")
    assert found["counts"].tolist() == plain.tolist()
    assert plain.any()


def test_pieces_are_joined_in_the_order_of_their_strings() -> None:
    pieces = [dataclasses.replace(SMALL, first=first, count=count) for first, count in ((2, 4), (0, 2))]
    parts = [Result(piece, piece.measure(_ignore), 1.0) for piece in pieces]
    (row,) = STUDY.summarise(parts)
    counts = np.concatenate([part.outcome["counts"] for part in parts])
    assert (row["strings"], row["seconds"], row["profile"]) == (6, 2.0, np.bincount(counts, minlength=21).tolist())


def test_what_is_measured_is_not_screened() -> None:
    for scale in ("smoke", "laptop"):
        trials = STUDY.trials(scale)
        assert not any(trial.screened for trial in trials)
        assert {trial.init for trial in trials} == set(INITS)
    assert all(trial.count >= 4 for trial in trials)


def test_claims_do_not_profit_from_constants() -> None:
    for sensitivity, verdicts in (
        (0, ("reproduced", "reproduced")),
        (8, ("reproduced", "contradicted")),
        (50, ("contradicted", "contradicted")),
    ):
        table = _table(60, [sensitivity] * 100)
        assert (_verdict(MEAN, table), _verdict(STRINGS, table)) == verdicts
    assert MEAN.judge(_table(60, [8] * 100)).measured == pytest.approx(0.16)  # of N/2 = 50


def test_few_models_and_a_missing_initialisation_leave_the_claims_open() -> None:
    few, without = _table(3, [0] * 100), _table(60, [0] * 100).where(lambda row: row["init"] != "gaussian")
    for claim, models in ((MEAN, 18), (STRINGS, 49)):
        assert _verdict(claim, few) == "undecided"
        assert claim.judge(few).remedy == f"at least {models} models in each group"
        found = claim.judge(without)
        assert (found.verdict, found.quantity) == ("undecided", "gaussian: no models")
