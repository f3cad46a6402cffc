from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from studies.harness import run

from flipscope.basics.seeds import generators
from flipscope.lab import Rows
from flipscope.models.seq2seq import Seq2Seq
from flipscope.studies.hardness._growth import MEASURED
from flipscope.studies.hardness.scratchpad import STUDY, Scratchpad, recipe_of
from flipscope.training.sets import LengthsData

SHARPNESS, ENCODER, DECODER, NORM = STUDY.claims


def _table(exponent: float = 0.0, rise: float = 0.0, noise: float = 0.01, **other: Any) -> Rows:
    """Three models at each of five lengths, of which everything but sharpness grows like a power of n."""
    rows = Rows()
    for length in (4, 8, 16, 24, 32):
        for seed in range(3):
            values = {name: length**exponent * np.exp(noise * (seed - 1)) for name in MEASURED}
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


@pytest.mark.parametrize("claim", [ENCODER, DECODER, NORM], ids=["encoder", "decoder", "norm"])
@pytest.mark.parametrize(
    ("exponent", "noise", "verdict"),
    [(0.0, 0.01, "reproduced"), (0.5, 0.01, "contradicted"), (0.1, 0.2, "undecided")],
)
def test_blowup_and_norm_are_judged_by_their_exponent(claim: Any, exponent: float, noise: float, verdict: str) -> None:
    judged = claim.judge(_table(exponent, noise=noise))
    assert judged.verdict == verdict
    assert judged.measured == pytest.approx(exponent, abs=2 * noise)


def test_models_that_are_not_kept_are_counted_and_say_nothing() -> None:
    table = _table()
    table += [{**row, "kept": False, "tokens": 0.9, **dict.fromkeys(MEASURED, 9.0)} for row in table.where(length=32)]
    for claim in STUDY.claims:
        judged = claim.judge(table)
        assert judged.verdict == "reproduced"
        assert judged.note == "n from 4 to 32, 15 of 18 models kept"
    assert "n = 32: 3 of 6" in STUDY.provenance(table)[0]
    assert {series.label for panel in STUDY.draw(table)[0].panels for series in panel.series} >= {"not kept"}


def test_two_lengths_or_no_kept_model_decide_nothing() -> None:
    for table in (_table().where(lambda row: row["length"] <= 8), _table(kept=False)):
        assert {claim.judge(table).verdict for claim in STUDY.claims} == {"undecided"}


def test_smoke() -> None:
    table, judgements, figures = run(STUDY, "smoke")
    assert len(table) == len(STUDY.checked_trials("smoke"))
    assert all(row["kept"] == (row["tokens"] > 0.999) for row in table)
    assert all(row["sharpness_low"] < row["sharpness"] < row["sharpness_high"] for row in table)
    assert len(judgements) == 4
    assert len(figures[0].panels) == 4


def test_blowup_is_that_of_the_definition() -> None:
    """The product over the norms of one side, third ones of the decoder too, of the largest 1 / std."""
    trial = Scratchpad(3, 1, 2, 5, draws=2)
    found = STUDY.measure(trial, lambda done, total: None)
    recipe = recipe_of(trial)
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
        product = torch.stack([(1 / each.std(dim=-1)).amax(dim=1) for each in seen]).prod(dim=0)
        assert found[part] == pytest.approx(float(product.mean()), rel=1e-4)


def test_every_scale_constructs() -> None:
    assert {scale: len(STUDY.checked_trials(scale)) for scale in STUDY.scales} == {
        "smoke": 6,
        "laptop": 15,
        "paper": 300,
    }
    lengths = sorted({trial.content()["length"] for trial in STUDY.checked_trials("paper")})
    assert lengths[:3] == [4, 39, 74]
    assert lengths[-1] == 1024
