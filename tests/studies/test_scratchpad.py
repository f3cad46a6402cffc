from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from studies.harness import smoke_run

from flipscope.basics.resampling import regression_slope
from flipscope.basics.seeds import generators
from flipscope.data.lengths import LengthsData
from flipscope.lab import Rows
from flipscope.models.seq2seq import Seq2Seq
from flipscope.models.seq2seq_config import Seq2SeqConfig
from flipscope.studies.hardness.scratchpad import MEASURED, STUDY, Scratchpad, blowups
from flipscope.training.recipes.hardness import scratchpad_recipe

SHARPNESS, ENCODER, DECODER, ENCODER_ALL, DECODER_ALL, NORM = STUDY.claims
BLOWUPS = (ENCODER, DECODER, ENCODER_ALL, DECODER_ALL)


def _table(exponent: float = 0.0, rise: float = 0.0, noise: float = 0.01, **other: Any) -> Rows:
    """Three models at each of five lengths, of which everything but sharpness grows like a power of n."""
    rows = Rows()
    for length in (4, 8, 16, 24, 32):
        for seed in range(3):
            values = {name: length**exponent * np.exp(noise * (seed - 1)) for name in MEASURED}
            values |= {f"{name}_start": 1.0 for name in MEASURED}
            sharpness = 0.2 + rise * (length - 4) / 28 + noise * (seed - 1)
            about = {**Scratchpad(length, seed, 100, 64).content(), "kept": True, "tokens": 1.0}
            rows.append({**about, **values, "sharpness": sharpness, **other})
    return rows


@pytest.mark.parametrize(
    ("rise", "noise", "verdict"),
    [(0.0, 0.01, "reproduced"), (-0.15, 0.01, "reproduced"), (0.5, 0.01, "contradicted"), (0.1, 0.05, "undecided")],
)
def test_sharpness_is_judged_by_its_rise_over_all_lengths(rise: float, noise: float, verdict: str) -> None:
    judged = SHARPNESS.judge(_table(rise=rise, noise=noise))
    assert judged.verdict == verdict
    assert judged.measured == pytest.approx(rise, abs=5 * noise)


@pytest.mark.parametrize("claim", [*BLOWUPS, NORM], ids=lambda claim: claim.name)
@pytest.mark.parametrize(
    ("exponent", "noise", "verdict"),
    [(0.0, 0.01, "reproduced"), (0.5, 0.01, "contradicted"), (0.1, 0.2, "undecided")],
)
def test_blowup_and_norm_are_judged_by_their_exponent(claim: Any, exponent: float, noise: float, verdict: str) -> None:
    judged = claim.judge(_table(exponent, noise=noise))
    assert judged.verdict == verdict
    assert judged.measured == pytest.approx(exponent, abs=2 * noise)


def test_growth_that_is_there_before_training_does_not_count() -> None:
    """Of untrained networks the largest 1 / std grows with the number of positions it is taken over."""
    rows = Rows()
    for place, length in enumerate((4, 8, 16, 32)):
        for number in range(3):
            seed = 10 * place + number
            recipe = scratchpad_recipe(length, seed)
            assert isinstance(recipe.model, Seq2SeqConfig)
            assert isinstance(recipe.data, LengthsData)
            model = recipe.model.network(seed=seed)
            inputs = torch.from_numpy(recipe.data.draw_inputs(32, generators(seed, 1)[0]))
            found = blowups(model, inputs)
            noise = np.exp(0.01 * np.sin(7 * seed))  # a training that changes next to nothing
            started = {f"{name}_start": value for name, value in found.items()}
            trained = {name: value * noise for name, value in found.items()}
            about = {**Scratchpad(length, seed, 100, 64).content(), "kept": True, "tokens": 1.0}
            rows.append({**about, **trained, **started})
    grown = regression_slope(np.log(rows.column("encoder")), np.log(rows.column("length")))
    assert grown is not None
    assert grown.low > 0, "which was taken for growth that training brings"
    assert grown.value > 0.1, "the limit of the claim"
    for claim in BLOWUPS:
        judged = claim.judge(rows)
        assert judged.verdict == "reproduced"
        assert abs(judged.measured or 0) < 0.02
    more = Rows({**row, **{name: row[name] * row["length"] ** 0.5 for name in found}} for row in rows)
    assert {claim.judge(more).verdict for claim in BLOWUPS} == {"contradicted"}


def test_models_that_are_not_kept_are_counted_and_say_nothing() -> None:
    table = _table()
    table += [{**row, "kept": False, "tokens": 0.9, **dict.fromkeys(MEASURED, 9.0)} for row in table.where(length=32)]
    for claim in STUDY.claims:
        judged = claim.judge(table)
        assert judged.verdict == "reproduced"
        assert judged.note == "n from 4 to 32"
        assert judged.measured == pytest.approx(claim.judge(_table()).measured)
    assert "n = 32: 3 of 6" in STUDY.provenance(table)[0]
    assert {series.label for panel in STUDY.draw(table)[0].panels for series in panel.series} >= {"not kept"}


def test_two_lengths_or_no_kept_model_decide_nothing() -> None:
    for table in (_table().where(lambda row: row["length"] <= 8), _table(kept=False)):
        assert {claim.judge(table).verdict for claim in STUDY.claims} == {"undecided"}


def test_smoke() -> None:
    table, judgements, figures = smoke_run(STUDY)
    assert len(table) == len(STUDY.checked_trials("smoke"))
    assert all(row["kept"] == (row["tokens"] > 0.999) for row in table)
    assert all(row["sharpness_low"] < row["sharpness"] < row["sharpness_high"] for row in table)
    assert len(judgements) == 6
    assert [len(figure.panels) for figure in figures] == [4, 2]


def test_blowup_is_that_of_the_definition() -> None:
    """Over the norms of one side, the decoder's third ones too, the product of the largest 1 / std; and the paper's."""
    trial = Scratchpad(3, 1, 2, 5, draws=2)
    found = trial.measure(lambda done, total: None)
    recipe = trial.recipe
    model = recipe.train().model
    assert isinstance(model, Seq2Seq)
    assert isinstance(recipe.data, LengthsData)
    [stream] = generators(1, 1)
    inputs = torch.from_numpy(recipe.data.draw_inputs(5, stream))
    for part, norms in (("encoder", 4), ("decoder", 6)):
        seen: list[torch.Tensor] = []
        own = [module for name, module in model.named_modules() if name.startswith(f"{part}.") and ".norm" in name]
        assert len(own) == norms
        hooks = [module.register_forward_pre_hook(lambda _, given, seen=seen: seen.append(given[0])) for module in own]
        with torch.no_grad():
            model(inputs)
        for hook in hooks:
            hook.remove()
        inverse = [1 / each.std(dim=-1) for each in seen]
        product = torch.stack([each.amax(dim=1) for each in inverse]).prod(dim=0)
        assert found[part] == pytest.approx(float(product.mean()), rel=1e-4)
        layers = [inverse[: norms // 2][:2], inverse[norms // 2 :][:2]]  # two norms of each of two layers
        paper = torch.stack([*(each.amax(dim=1) for each in layers[0]), *(each[:, -1] for each in layers[1])])
        assert found[f"{part}_paper"] == pytest.approx(float(paper.prod(dim=0).mean()), rel=1e-4)


def test_every_scale_constructs() -> None:
    assert {scale: len(STUDY.checked_trials(scale)) for scale in STUDY.scales} == {
        "smoke": 6,
        "laptop": 15,
        "paper": 300,
    }
    lengths = sorted({trial.content()["length"] for trial in STUDY.checked_trials("paper")})
    assert lengths[:3] == [4, 39, 74]
    seeds = [trial.content()["seed"] for trial in STUDY.checked_trials("laptop")]
    assert seeds == list(range(1_000, 1_015)), "one for each model, that no earlier run has looked at"
    assert lengths[-1] == 1024
