from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from studies.harness import smoke_run

import flipscope
from flipscope.adapters.subject import Subject
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import seed_of
from flipscope.lab import Claim, Result, Rows
from flipscope.models.config import TransformerConfig
from flipscope.models.transformer import Transformer
from flipscope.studies.geometry.random_init import STUDY
from flipscope.studies.geometry.random_models import INITS, Draw, columns
from flipscope.studies.geometry.shared import flip_work

STRINGS, AVERAGES, MEAN, SETTINGS, VARIED = STUDY.claims
NUMBERS = itertools.count()
SMALL = Draw("xavier_uniform", 6, 0, 20, 32, 0, 12, False)  # a sensitive one


def _ignore(done: int, total: int) -> None:
    pass


def _model(init: str, counts: list[int], **fields: Any) -> dict[str, Any]:
    """A row as `summarise` makes it, of a model with these sensitivities."""
    found = np.array(counts)
    row = {
        **{"init": init, "length": 100, "screened": False, "layers": 2, "width": 32, "ffn_multiple": 4},
        **columns(found, 100),
        "constant": not found.any(),
        "seed": seed_of(next(NUMBERS)),
        **dict.fromkeys(("rechecked", "near_ties", "skipped", "audited", "wrong"), 0),
    }
    return row | fields


def _table(models: int, counts: list[int], **fields: Any) -> Rows:
    return Rows(_model(init, counts, **fields) for init in INITS for _ in range(models))


def _verdict(claim: Claim, table: Rows) -> str:
    return claim.judge(table).verdict


@pytest.mark.parametrize("scale", ["smoke", "demo", "laptop"])
def test_the_note_of_a_scale_says_how_many_are_screened(scale: str) -> None:
    models = {(trial.init, trial.data_set, trial.model): trial.screened for trial in STUDY.trials(scale)}
    assert STUDY.scales[scale].note.partition(" slow models")[0].endswith(f"; {sum(models.values()):,}")


def test_smoke_gives_one_row_a_model_and_honest_verdicts() -> None:
    table, judgements, figures = smoke_run(STUDY)
    assert [row["init"] for row in table] == [init for init in INITS for _ in range(3)]
    assert len({row["seed"] for row in table}) == len(table)
    for row in table:
        assert sum(row["profile"]) == row["strings"] >= 20
        assert row["average_sensitivity"] == pytest.approx(
            np.dot(range(row["length"] + 1), row["profile"]) / row["strings"]
        )
        assert row["zero_share"] == row["profile"][0] / row["strings"]
        assert row["width"] <= 64
        assert row["screened"] or row["skipped"] == row["audited"] == 0
    assert any(row["screened"] and row["audited"] for row in table)
    # Three models of each initialisation cannot decide anything, whatever they show.
    assert {judgement.verdict for _, judgement in judgements} == {"undecided"}
    assert all(row["zero_share"] == 1 for row in table if row["constant"])
    assert {"constant as far as seen" in line for line in STUDY.provenance(table)} == {True, False}
    assert [len(figure.panels) for figure in figures] == [
        4,
        4,
        len({row["init"] for row in table.where(constant=False)}),
        6,
    ]


def test_pieces_of_a_model_are_the_model() -> None:
    whole = SMALL.measure(_ignore)
    pieces = [dataclasses.replace(SMALL, first=first, count=count) for first, count in ((5, 7), (0, 5))]
    parts = [Result(piece, piece.measure(_ignore), 1.0) for piece in pieces]
    (row,) = STUDY.summarise(parts)
    assert row["profile"] == np.bincount(whole["counts"], minlength=21).tolist()
    assert (row["strings"], row["seconds"]) == (12, 2.0)
    assert sum(part.outcome["ones"] for part in parts) == whole["ones"]
    counts = np.concatenate([parts[1].outcome["counts"], parts[0].outcome["counts"]])
    assert counts.tolist() == whole["counts"].tolist()


def test_what_is_measured_is_the_sensitivity_of_the_stated_model() -> None:
    found = SMALL.measure(_ignore)
    model = Transformer(TransformerConfig.from_dict(found["config"]), scheme="xavier_uniform", seed=SMALL.seed)
    plain = flipscope.sensitivity(Subject(model, precision="float64"), SMALL.strings(), path="general")
    assert found["counts"].tolist() == plain.tolist()
    assert plain.any()
    with torch.no_grad():
        logits = model.eval()(torch.from_numpy(SMALL.strings())).double().numpy()
    assert found["ones"] == (logits > 0).sum()


def test_a_model_is_constant_only_if_all_strings_and_flips_have_one_answer() -> None:
    outcome = SMALL.measure(_ignore)
    zeros = {**outcome, "counts": np.zeros(12, np.int64)}
    for ones, expected in ((0, True), (12, True), (5, False)):
        (row,) = STUDY.summarise([Result(SMALL, {**zeros, "ones": ones}, 1.0)])
        assert row["constant"] is expected
    (row,) = STUDY.summarise([Result(SMALL, {**zeros, "counts": np.eye(12, dtype=np.int64)[0], "ones": 12}, 1.0)])
    assert row["constant"] is False


def test_models_are_independent_and_share_the_strings_of_their_data_set() -> None:
    assert seed_of(1, 2) != seed_of(1, 2, 0)
    draws = [Draw(init, data, model, 20, 1024, 0, 4, False) for init in INITS for data in (0, 1) for model in (0, 1)]
    assert len({draw.seed for draw in draws}) == len(draws)
    strings = {(draw.init, draw.data_set, draw.strings().tobytes()) for draw in draws}
    assert len(strings) == len({entry[2] for entry in strings}) == 8


def test_a_trial_refuses_what_makes_no_sense() -> None:
    for wrong in ({"count": 0}, {"first": -1}, {"widest": 8}, {"length": 0}, {"init": "pytorch"}):
        with pytest.raises(InputError):
            dataclasses.replace(SMALL, **wrong)


def test_laptop_asks_at_least_what_it_must() -> None:
    models: dict[tuple[str, int, int], list[Draw]] = defaultdict(list)
    plan = STUDY.scales["laptop"].settings
    for trial in STUDY.trials("laptop"):
        assert trial.length == 100
        assert trial.widest == 512
        models[trial.init, trial.data_set, trial.model].append(trial)
    assert {init: sum(key[0] == init for key in models) for init in INITS} == dict.fromkeys(INITS, 64)
    assert len({(init, data) for init, data, _ in models}) == len(models)  # every model has strings of its own
    asked = []
    for pieces in models.values():
        ends = [piece.first + piece.count for piece in pieces]
        assert [piece.first for piece in pieces] == [0, *ends[:-1]]
        assert len({piece.screened for piece in pieces}) == 1
        assert pieces[0].screened == (ends[-1] == 30 and 30 * _seconds(pieces[0]) > plan.seconds)
        asked.append(ends[-1])
    assert min(asked) == 30
    assert max(asked) > 300
    # More strings where they are cheap.
    dearness = [_seconds(pieces[0]) for pieces in models.values()]
    assert (np.diff(np.array(asked)[np.argsort(dearness)]) <= 0).all()


def _seconds(trial: Draw) -> float:
    return dataclasses.replace(trial, first=0, count=1, screened=False).cost


@pytest.mark.slow
def test_paper_has_the_counts_of_the_paper_and_starts() -> None:
    asked: dict[tuple[str, int, int], int] = defaultdict(int)
    smallest: dict[str, Draw] = {}
    for trial in STUDY.trials("paper"):
        asked[trial.init, trial.data_set, trial.model] += trial.count
        if trial.shape.width < 64:
            smallest.setdefault(trial.init, trial)
    assert len(asked) == 4 * 10 * 50
    assert set(asked.values()) == {10_000}
    for trial in smallest.values():
        assert len(dataclasses.replace(trial, count=2).measure(_ignore)["counts"]) == 2


def test_cost_and_memory_grow_with_the_model() -> None:
    draws = sorted(STUDY.trials("laptop"), key=lambda trial: flip_work(trial.shape, 100))
    assert draws[0].memory < 1 << 30 < draws[-1].memory
    assert draws[-1].cost > dataclasses.replace(draws[-1], count=1).cost
    assert dataclasses.replace(draws[-1], screened=False).cost > 2 * draws[-1].cost


def test_every_model_counts_the_same_however_many_strings_it_was_asked() -> None:
    table = Rows([_model("uniform", [0] * 90 + [7] * 10), _model("uniform", [7] * 1000)])
    spectra, averages, _, _ = STUDY.draw(table)
    heights = spectra.panels[0].series[0].y
    assert heights[0] == pytest.approx(0.45)
    assert heights[7] == pytest.approx(0.55)
    assert [place for place, height in enumerate(heights) if height] == [0, 7]
    assert [place for place, height in enumerate(averages.panels[0].series[0].y) if height] == [0, 7]
    # 10 models in which all strings are near 0, 10 with ten times as many strings that are not: half, not a tenth.
    table = Rows(_table(10, [0] * 100) + _table(10, [90] * 1000))
    assert STRINGS.judge(table).measured == pytest.approx(0.5)


def test_claims_on_most_strings() -> None:
    found = STRINGS.judge(_table(80, [0] * 95 + [5] * 3 + [6] * 2))
    assert (found.verdict, found.measured) == ("reproduced", pytest.approx(0.98))  # 5 of 100 bits is near 0, 6 is not
    # Eight strings of ten are most of them, and not the vast majority.
    assert _verdict(STRINGS, _table(80, [0] * 80 + [50] * 20)) == "contradicted"
    assert _verdict(STRINGS, _table(4, [0] * 100)) == "undecided"
    # One initialisation is enough to contradict, and one without a model to leave it open.
    mixed = Rows(_model(init, [50 if init == "gaussian" else 0] * 100) for init in INITS for _ in range(60))
    found = STRINGS.judge(mixed)
    assert found.verdict == "contradicted"
    assert "gaussian" in found.quantity
    assert _verdict(STRINGS, _table(60, [0] * 100).where(lambda row: row["init"] != "gaussian")) == "undecided"


def test_an_undecided_claim_says_how_many_models_it_takes_at_least() -> None:
    # Of n models at the end of the range, (error/2)^(1/n) = 1 - reach: error 0.05/4 or 0.05/5, reach 1/10 or 1/4.
    few = _table(3, [0] * 100)
    remedies = [claim.judge(few).remedy for claim in (STRINGS, AVERAGES, MEAN)]
    assert remedies == [f"at least {models} models in each group" for models in (49, 51, 18)]
    assert AVERAGES.judge(_table(51, [0] * 100)).verdict == "reproduced"
    assert _verdict(AVERAGES, _table(50, [0] * 100)) == "undecided"
    assert _verdict(STRINGS, _table(48, [0] * 100)) == "undecided"
    assert _verdict(STRINGS, _table(56, [0] * 100)) == "reproduced"
    assert _verdict(MEAN, _table(17, [0] * 100)) == "undecided"
    assert _verdict(MEAN, _table(20, [0] * 100)) == "reproduced"  # a bet never risks everything, so two more


def test_claims_on_averages() -> None:
    assert _verdict(AVERAGES, _table(60, [0] * 100)) == "reproduced"
    assert _verdict(AVERAGES, _table(20, [1] * 100)) == "contradicted"
    assert _verdict(AVERAGES, _table(3, [0] * 100)) == "undecided"
    # A quarter of the models at 9 are not in the cluster, though not in the tail either; at 10 they are in the tail.
    for average in (9, 10):
        assert _verdict(AVERAGES, Rows(_table(60, [0] * 100) + _table(20, [average] * 100))) == "contradicted"


def test_an_average_that_is_not_a_number_is_not_in_the_cluster() -> None:
    odd = Rows({**row, "relative": float("nan")} for row in _table(60, [0] * 100))
    assert _verdict(AVERAGES, odd) == "contradicted"


def test_claim_on_every_depth_width_and_ffn() -> None:
    good = Rows(_table(15, [0] * 100) + _table(15, [0] * 100, layers=6, width=512, ffn_multiple=8))
    assert _verdict(SETTINGS, good) == "reproduced"
    found = SETTINGS.judge(Rows(good + _table(15, [20] * 100, width=64)))  # all wrong at one width, few at others
    assert (found.verdict, "D = 64" in found.quantity) == ("contradicted", True)
    assert _verdict(SETTINGS, Rows(good + _table(1, [0] * 100, layers=3))) == "undecided"
    # Initialisations that differ come in the order of the table, which must not matter.
    table = Rows(_model(init, [20 * INITS.index(init)] * 100) for init in INITS for _ in range(20))
    assert SETTINGS.judge(table) == SETTINGS.judge(Rows(reversed(table)))
    assert VARIED.judge(table) == VARIED.judge(Rows(reversed(table)))


def test_claim_on_models_that_are_not_constant() -> None:
    constant = _table(60, [0] * 100)
    assert _verdict(MEAN, constant) == "reproduced"
    assert _verdict(VARIED, constant) == "undecided"  # nothing follows from constants
    assert _verdict(VARIED, Rows(constant + _table(6, [5] * 100))) == "reproduced"
    assert _verdict(VARIED, Rows(constant + _table(6, [50] * 100))) == "contradicted"
    assert _verdict(VARIED, Rows(constant + _table(1, [5] * 100))) == "undecided"


def test_claims_on_the_mean() -> None:
    assert _verdict(MEAN, _table(24, [0] * 100)) == "reproduced"
    assert _verdict(MEAN, _table(24, [50] * 100)) == "contradicted"
    assert _verdict(MEAN, _table(10, [0] * 100)) == "undecided"
    found = MEAN.judge(_table(24, [5] * 100))
    assert found.measured == pytest.approx(0.1)  # in units of N/2 = 50


def test_a_screen_that_guesses_wrong_decides_nothing() -> None:
    good = _table(60, [0] * 100, screened=True, skipped=10_000, audited=100)
    bad = _table(60, [0] * 100, screened=True, skipped=10_000, audited=100, wrong=2)
    for claim in (STRINGS, AVERAGES, MEAN, SETTINGS):
        assert _verdict(claim, good) == "reproduced"
        found = claim.judge(bad)
        assert found.verdict == "undecided"
        assert "the screen could hide" in found.note
    said = STUDY.provenance(good)
    assert "240 of 240 models screened, where 100% of the flips were guessed" in said
    assert any("of 24,000 audited guesses 480 were wrong" in line for line in STUDY.provenance(bad))
    assert STUDY.provenance(_table(2, [0, 0]))[:1] == ["0 signs too close to call, 0 computed again in float64"]
    unaudited = _table(60, [0] * 100)
    unaudited.append(_model("uniform", [0] * 100, screened=True, skipped=10_000, audited=50))
    assert _verdict(MEAN, unaudited) == "undecided"
