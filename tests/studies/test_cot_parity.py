from __future__ import annotations

import dataclasses
from math import log
from typing import Any

import pytest
import torch
from studies.harness import run

from flipscope.basics.bits import index_bits
from flipscope.lab import Rows
from flipscope.models.transformer import Transformer
from flipscope.studies.sharper._steps import (
    Bounded,
    Learned,
    Written,
    bounded,
    model_of,
    recipe_of,
    same_place_attention,
)
from flipscope.studies.sharper.cot_parity import BOUNDS, STUDY
from flipscope.training.step_sets import Way

GAP, CHAIN, WRITTEN, HALF, ONE_PASS, LINEAR, WHOLE, SAMPLES, ATTENTION = STUDY.claims


def _models(way: Way, length: int, *right: int, attention: float = 0.9) -> list[dict[str, Any]]:
    """A model for each number of right parities, of 4,000."""
    own = {"asked": 4_000, "epochs": [], "losses": [], "seconds": 1.0}
    own |= {"attention": attention} if way == "steps" else {}
    return [
        STUDY.row(Learned(way, length, seed, 1_500, 128, 1e-3), {"right": count, **own})
        for seed, count in enumerate(right)
    ]


def _table(*rows: list[dict[str, Any]]) -> Rows:
    return Rows(row for own in rows for row in own)


GOOD, BAD = (4_000, 3_998, 4_000), (2_010, 1_980, 2_050)


def test_the_gap_is_found_at_one_length() -> None:
    easy = [_models("steps", 8, *GOOD), _models("one-pass", 8, *GOOD)]
    hard = [_models("steps", 20, *GOOD), _models("one-pass", 20, *BAD)]
    found = GAP.judge(_table(*easy, *hard))
    assert (found.verdict, found.note) == ("reproduced", "so at T = 20")
    assert len(found.parts) == 12
    assert GAP.judge(_table(*easy)).verdict == "contradicted"
    neither = [_models("steps", 20, *BAD), _models("one-pass", 20, *BAD)]
    assert GAP.judge(_table(*neither)).verdict == "contradicted"


def test_the_gap_needs_all_seeds_and_both_ways() -> None:
    chain, single = _models("steps", 20, *GOOD), _models("one-pass", 20, *BAD)
    assert GAP.judge(_table(chain[:2], single[:2])).verdict == "undecided"
    assert GAP.judge(_table(chain)).verdict == "undecided"
    assert GAP.judge(_table(_models("steps", 20, 4_000, 4_000, 2_000), single)).verdict == "contradicted"
    assert GAP.judge(_table(chain, _models("one-pass", 20, 2_000, 2_000, 4_000))).verdict == "contradicted"
    assert GAP.judge(_table(_models("steps", 20, 4_000, 4_000, 3_962), single)).verdict == "undecided"
    assert GAP.judge(Rows()).verdict == "undecided"


def test_every_length_is_learned() -> None:
    lengths = [_models("steps", n, *GOOD) for n in (8, 12, 16)]
    assert CHAIN.judge(_table(*lengths)).verdict == "reproduced"
    assert CHAIN.judge(_table(*lengths[:2])).verdict == "undecided"
    assert CHAIN.judge(_table(*lengths, _models("steps", 20, 3_900))).verdict == "contradicted"
    assert CHAIN.judge(_table(*lengths, _models("steps", 20, 3_962))).verdict == "undecided"
    assert CHAIN.judge(_table(_models("one-pass", 20, *BAD))).verdict == "undecided"


def test_one_error_of_the_written_network_contradicts() -> None:
    def rows(*wrong: int) -> Rows:
        outcomes = [{"wrong": 0, "wrong_anywhere": each, "strings": 256} for each in wrong]
        return Rows(STUDY.row(Written(8 + place), outcome) for place, outcome in enumerate(outcomes))

    assert WRITTEN.judge(rows(0, 0)).verdict == "reproduced"
    assert WRITTEN.judge(rows(0, 1)).verdict == "contradicted"
    assert WRITTEN.judge(Rows()).verdict == "undecided"


def test_attention_of_chains_that_learned() -> None:
    def table(share: float, *right: int) -> Rows:
        models = _models("steps", 8, *right, attention=share)
        return Rows({**row, "attention": share + 0.01 * row["seed"]} for row in models)

    assert ATTENTION.judge(table(0.9, *GOOD)).verdict == "reproduced"
    assert ATTENTION.judge(table(0.1, *GOOD)).verdict == "contradicted"
    assert ATTENTION.judge(table(0.49, *GOOD)).verdict == "undecided"
    assert ATTENTION.judge(table(0.9, *BAD)).verdict == "undecided"


def _bounds(**columns: Any) -> Rows:
    """Rows of bounds with these functions of T in place of the right numbers."""
    return Rows({"bits": n} | {name: f(n) for name, f in columns.items()} for n in (4, 8, 16))


def test_bounds_are_judged_by_their_numbers() -> None:
    table = Rows(STUDY.row(trial, bounded(trial)) for trial in (Bounded(n, 8_192) for n in BOUNDS))
    found = [claim.judge(table) for claim in (HALF, ONE_PASS, LINEAR, WHOLE, SAMPLES)]
    verdicts = ["reproduced", "reproduced", "contradicted", "contradicted", "contradicted"]
    assert [judged.verdict for judged in found] == verdicts
    assert found[3].note == "at T = 3, of 9 lengths"  # G_u(1, 3) = 4632 < 3 * 1556 = 4668
    at_20 = table.where(bits=20)[0]
    assert (at_20["needed_chain"], at_20["needed_network"]) == (3_244, 16_471)
    assert at_20["log_chain"] == pytest.approx(-3.797e6, rel=1e-3)
    assert at_20["log_pass_best"] == pytest.approx(3.44e9, rel=1e-3)


def test_other_bounds_are_judged_otherwise() -> None:
    weak = _bounds(core_pass=lambda n: n**0.5, core_chain=lambda n: 1.0)
    assert HALF.judge(weak).verdict == ONE_PASS.judge(weak).verdict == "contradicted"
    strong = _bounds(core_pass=lambda n: n**2.0, core_chain=lambda n: 1.0)
    assert WHOLE.judge(strong).verdict == "reproduced"
    linear = _bounds(log_chain=lambda n: log(3 * n) - 100, needed_network=lambda n: n**0.5)
    assert LINEAR.judge(linear).verdict == SAMPLES.judge(linear).verdict == "reproduced"
    assert {claim.judge(Rows(linear[:2])).verdict for claim in (HALF, ONE_PASS, LINEAR, SAMPLES)} == {"undecided"}
    for place in range(3):  # wherever it is
        for table, claims in ((strong, (WHOLE, HALF, ONE_PASS)), (linear, (LINEAR, SAMPLES))):
            odd = Rows(dict(row) for row in table)
            odd[place] |= dict.fromkeys(("core_pass", "log_chain", "needed_network"), float("nan"))
            assert {claim.judge(odd).verdict for claim in claims} == {"undecided"}


def test_both_ways_have_the_same_parameters_and_budget() -> None:
    chain, single = (recipe_of(Learned(way, 20, 1, 1_500, 128, 1e-3)) for way in ("steps", "one-pass"))
    assert (chain.protocol, chain.seed, chain.init) == (single.protocol, single.seed, single.init)
    assert dataclasses.replace(chain.model, readout="last") == single.model  # type: ignore[type-var]
    assert chain.digest != single.digest
    assert type(chain).from_json(chain.as_json()) == chain


def test_attention_to_the_same_place_by_hand() -> None:
    """A head that pays alike to every token sees 2 of the T + i that step i may look at, the first of T + 1."""
    model = Transformer(model_of(Learned("steps", 4, 0, 1, 1, 1e-3, width=8)))
    with torch.no_grad():
        for block in model.blocks:
            block.attention.query.weight.zero_()  # type: ignore[union-attr]
            block.attention.query.bias.zero_()  # type: ignore[union-attr]
    bits = torch.from_numpy(index_bits(0, 16, 4))
    expected = sum(2 / (4 + step) for step in range(1, 5)) / 4
    assert same_place_attention(model, bits) == pytest.approx(expected)


def test_smoke() -> None:
    table, judged, figures = run(STUDY, "smoke")
    assert len(table) == 4 + 2 + len(BOUNDS)
    verdicts = {claim.name: judgement.verdict for claim, judgement in judged}
    assert verdicts[GAP.name] in ("undecided", "contradicted")
    assert verdicts[WRITTEN.name] == "reproduced"
    assert all(len(row["step_errors"]) == row["length"] for row in table.where(way="steps"))
    assert all(0 < row["attention"] < 1 for row in table.where(way="steps"))
    assert [len(figure.panels) for figure in figures] == [2, 2]
    assert len(STUDY.provenance(table)) == 2
    assert len(STUDY.checked_trials("laptop")) == 30 + 5 + len(BOUNDS)
    longest = max(trial.length for trial in STUDY.trials("paper") if isinstance(trial, Learned))
    model = Transformer(model_of(Learned("steps", longest, 0, 1, 1, 1e-3)))
    assert model(torch.zeros(1, 2 * longest, dtype=torch.int64)).shape == (1, 2 * longest)
