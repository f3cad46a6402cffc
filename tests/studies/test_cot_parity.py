from __future__ import annotations

import dataclasses
from math import log
from typing import Any

import pytest
import torch
from studies.harness import smoke_run

from flipscope.basics.bits import index_bits
from flipscope.data.steps import Way
from flipscope.lab import Rows
from flipscope.models.config import TransformerConfig
from flipscope.models.transformer import Transformer
from flipscope.studies.sharper.cot_parity import (
    BOUNDS,
    STUDY,
    Bounded,
    Learned,
    Written,
    same_place_attention,
)

GAP, CHAIN, WRITTEN, HALF, ONE_PASS, LINEAR, WHOLE, SAMPLES, ATTENTION = STUDY.claims


def _models(way: Way, length: int, *right: int, attention: float = 0.9) -> list[dict[str, Any]]:
    """A model for each number of right parities, of 4,000."""
    own = {"asked": 4_000, "epochs": [], "losses": [], "seconds": 1.0}
    own |= {"attention": attention} if way == "steps" else {}
    return [
        STUDY.row(Learned(way, length, seed, 1_500, 128, 1e-3), {"right": count, **own})
        for seed, count in enumerate(right)
    ]


def _model(trial: Learned) -> Transformer:
    config = trial.recipe.model
    assert isinstance(config, TransformerConfig)
    return Transformer(config)


def _table(*rows: list[dict[str, Any]]) -> Rows:
    return Rows(row for own in rows for row in own)


GOOD, BAD = (4_000, 3_998, 4_000), (2_010, 1_980, 2_050)
TEN, NONE = (*GOOD, *GOOD, *GOOD, 3_999), (*BAD, *BAD, *BAD, 2_000)


def test_the_gap_is_found_at_one_length() -> None:
    easy = [_models("steps", 8, *TEN), _models("one-pass", 8, *TEN)]
    hard = [_models("steps", 20, *TEN), _models("one-pass", 20, *NONE)]
    found = GAP.judge(_table(*easy, *hard))
    assert (found.verdict, found.note) == ("reproduced", "10 of 10 models; so at T = 20")
    assert len(found.parts) == 4
    assert GAP.judge(_table(*easy)).verdict == "contradicted"
    neither = [_models("steps", 20, *NONE), _models("one-pass", 20, *NONE)]
    assert GAP.judge(_table(*neither)).verdict == "contradicted"
    assert GAP.judge(_table(*neither, *hard[:1])).verdict == "undecided"  # one chain in two


def test_one_stuck_chain_does_not_contradict_and_is_shown() -> None:
    chains, passes = _models("steps", 20, *TEN[:9], 2_000), _models("one-pass", 20, *NONE)
    found = GAP.judge(_table(chains, passes))
    assert (found.verdict, found.note) == ("reproduced", "9 of 10 models; so at T = 20")
    lengths = [_models("steps", n, *GOOD) for n in (4, 8, 12)] + [_models("steps", 16, 4_000, 2_020, 4_000)]
    found = CHAIN.judge(_table(*lengths, chains))
    assert found.verdict == "reproduced"
    assert found.note == "20 of 22 models; not learned: T = 16, seed 1; T = 20, seed 9"


@pytest.mark.parametrize(("chain", "single"), [(GOOD, BAD), (BAD, GOOD), (GOOD, GOOD), (BAD, BAD)])
def test_few_seeds_decide_neither_way(chain: tuple[int, ...], single: tuple[int, ...]) -> None:
    few = _table(_models("steps", 20, *chain), _models("one-pass", 20, *single))
    assert GAP.judge(few).verdict == CHAIN.judge(few).verdict == "undecided"
    assert GAP.judge(few).remedy == "at least 7 each way"


def test_the_gap_needs_both_ways_at_the_longest_length() -> None:
    chain, single = _models("steps", 20, *TEN), _models("one-pass", 20, *NONE)
    assert GAP.judge(_table(chain)).verdict == "undecided"
    assert GAP.judge(_table(chain, _models("one-pass", 20, *TEN))).verdict == "contradicted"
    longer = [_models("steps", 30, *GOOD), _models("one-pass", 30, *GOOD)]
    assert GAP.judge(_table(chain, single, *longer)).verdict == "undecided"
    assert GAP.judge(Rows()).verdict == "undecided"


def test_every_length_is_learned() -> None:
    lengths = [_models("steps", n, *GOOD) for n in (8, 12, 16)]
    assert CHAIN.judge(_table(*lengths)).verdict == "reproduced"
    assert CHAIN.judge(_table(*lengths[:2], *lengths[:2])).verdict == "undecided"
    assert CHAIN.judge(_table(*lengths, _models("steps", 20, *BAD))).verdict == "undecided"  # none at T = 20
    assert CHAIN.judge(_table(*(_models("steps", n, *BAD) for n in (8, 12, 16)))).verdict == "contradicted"
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
    table = Rows(
        STUDY.row(trial, trial.measure(lambda done, total: None)) for trial in (Bounded(n, 8_192) for n in BOUNDS)
    )
    found = [claim.judge(table) for claim in (HALF, ONE_PASS, LINEAR, WHOLE, SAMPLES)]
    verdicts = ["reproduced", "reproduced", "contradicted", "contradicted", "contradicted"]
    assert [judged.verdict for judged in found] == verdicts
    assert [judged.quantity for judged in found[2::2]] == [
        "exponent of T in what a bit adds to the bound of the chain",
        "exponent of T in what a bit adds to the samples needed",
    ]
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
    constant = _bounds(core_pass=lambda n: 40.0, core_chain=lambda n: 1.0)
    assert HALF.judge(constant).verdict == WHOLE.judge(constant).verdict == "contradicted"
    linear = _bounds(log_chain=lambda n: log(3 * n - 5) - 100, needed_network=lambda n: n**0.5)
    assert LINEAR.judge(linear).verdict == SAMPLES.judge(linear).verdict == "reproduced"
    falling = _bounds(log_chain=lambda n: -n, needed_network=lambda n: 1 / n)
    assert LINEAR.judge(falling).verdict == SAMPLES.judge(falling).verdict == "reproduced"
    beside = _bounds(log_chain=lambda n: log(10**6 + n**2), needed_network=lambda n: 10**6 + n**2)
    assert LINEAR.judge(beside).verdict == SAMPLES.judge(beside).verdict == "contradicted"
    assert {claim.judge(Rows(linear[:2])).verdict for claim in (HALF, ONE_PASS, LINEAR, SAMPLES)} == {"undecided"}
    for place in range(3):  # wherever it is
        for table, claims in ((strong, (WHOLE, HALF, ONE_PASS)), (linear, (LINEAR, SAMPLES))):
            odd = Rows(dict(row) for row in table)
            odd[place] |= dict.fromkeys(("core_pass", "log_chain", "needed_network"), float("nan"))
            assert {claim.judge(odd).verdict for claim in claims} == {"undecided"}


def test_both_ways_have_the_same_parameters_and_budget() -> None:
    chain, single = (Learned(way, 20, 1, 1_500, 128, 1e-3).recipe for way in ("steps", "one-pass"))
    assert (chain.protocol, chain.seed, chain.init) == (single.protocol, single.seed, single.init)
    assert dataclasses.replace(chain.model, readout="last") == single.model  # type: ignore[type-var]
    assert chain.digest != single.digest
    assert type(chain).from_json(chain.as_json()) == chain


def test_attention_to_the_same_place_by_hand() -> None:
    """A head that pays alike to every token sees 2 of the T + i that step i may look at, the first of T + 1."""
    model = _model(Learned("steps", 4, 0, 1, 1, 1e-3, width=8))
    with torch.no_grad():
        for block in model.blocks:
            block.attention.query.weight.zero_()  # type: ignore[union-attr]
            block.attention.query.bias.zero_()  # type: ignore[union-attr]
    bits = torch.from_numpy(index_bits(0, 16, 4))
    expected = sum(2 / (4 + step) for step in range(1, 5)) / 4
    assert same_place_attention(model, bits) == pytest.approx(expected)


def test_smoke() -> None:
    table, judged, figures = smoke_run(STUDY)
    assert len(table) == 4 + 2 + len(BOUNDS)
    verdicts = {claim.name: judgement.verdict for claim, judgement in judged}
    assert verdicts[GAP.name] == verdicts[CHAIN.name] == "undecided"
    assert verdicts[WRITTEN.name] == "reproduced"
    assert all(len(row["step_errors"]) == row["length"] for row in table.where(way="steps"))
    assert all(0 < row["attention"] < 1 for row in table.where(way="steps"))
    assert [len(figure.panels) for figure in figures] == [2, 2]
    assert len(STUDY.provenance(table)) == 2
    assert len(STUDY.checked_trials("laptop")) == 2 * (4 * 3 + 10) + 5 + len(BOUNDS)
    longest = max(trial.length for trial in STUDY.trials("paper") if isinstance(trial, Learned))
    model = _model(Learned("steps", longest, 0, 1, 1, 1e-3))
    assert model(torch.zeros(1, 2 * longest, dtype=torch.int64)).shape == (1, 2 * longest)
