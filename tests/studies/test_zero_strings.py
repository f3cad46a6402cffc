from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from studies.geometry_tables import network, networks
from studies.harness import smoke_run

from flipscope.basics.errors import InputError
from flipscope.bounds.geometry import Threshold
from flipscope.cube.sensitivity import profile
from flipscope.lab import Claim, Rows, share
from flipscope.models.transformer import Transformer
from flipscope.probes.sensitivity import truth_table
from flipscope.studies.geometry import zero_strings
from flipscope.studies.geometry.zero_strings import MAX_EXACT, PARTS, SHAPES, STUDY, Network, over_threshold

SHARES, THRESHOLD, LOW, VARIED, GROWTH = STUDY.claims


def _ignore(done: int, total: int) -> None:
    pass


def _verdict(claim: Claim, table: Rows) -> str:
    return claim.judged(table).verdict


def test_smoke_counts_and_has_honest_verdicts() -> None:
    table, judgements, figures = smoke_run(STUDY)
    plan = STUDY.scales["smoke"].settings
    assert len(table) == len(SHAPES) * plan["models"] * len(plan["lengths"])
    assert len({tuple(row) for row in map(sorted, table)}) == 1  # the same names in every row
    assert all(row["zeros"] == row["profile"][0] and sum(row["profile"]) == row["asked"] for row in table)
    assert [row["exact"] for row in table[:3]] == [True, True, False]
    # Three models of each shape cannot decide anything, whatever they show.
    assert {judgement.verdict for _, judgement in judgements} == {"undecided"}
    assert [len(figure.panels) for figure in figures] == [3]


def test_a_seed_is_one_model_at_every_length_and_another_of_every_shape() -> None:
    trials = [Network(*shape, seed, length, 10) for shape in SHAPES for seed in (0, 1) for length in (8, 40)]
    assert len({trial.model_seed for trial in trials}) == len(SHAPES) * 2
    with pytest.raises(InputError):
        dataclasses.replace(trials[0], strings=0)


def test_exhaustive_and_sampled_counts_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Network(*SHAPES[1], 1, 8, 400)
    exact = trial.measure(_ignore)
    model = Transformer(trial.config, scheme="uniform", seed=trial.model_seed)
    assert exact["profile"] == profile(truth_table(model, 8))
    assert 0 < exact["profile"][0] < 256
    assert exact["constant"] is False
    monkeypatch.setattr(zero_strings, "MAX_EXACT", 4)
    sampled = trial.measure(_ignore)
    shares = np.cumsum(sampled["profile"]) / 400, np.cumsum(exact["profile"]) / 256
    assert np.abs(shares[0] - shares[1]).max() < 5 * math.sqrt(0.25 / 400)


def test_a_model_is_called_constant_only_if_all_answers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two far-apart halves of the strings with different answers: every sampled string has sensitivity 0.
    trial = Network(*SHAPES[0], 0, 24, 30)

    def none_flips(model: Any, strings: Any, **options: Any) -> Any:
        return type("Found", (), {"counts": np.zeros(len(strings), int), "near_ties": 0})

    class Halves(Transformer):
        def forward(self, bits: Any) -> Any:
            return bits[:, 0].float() - 0.5

    class Same(Transformer):
        def forward(self, bits: Any) -> Any:
            return bits[:, 0].float() + 0.5

    monkeypatch.setattr("flipscope.probes.sensitivity.sensitivities", none_flips)
    for kind, expected in ((Halves, False), (Same, True)):
        monkeypatch.setattr("flipscope.models.transformer.Transformer", kind)
        assert trial.measure(_ignore) == {"profile": [30] + 24 * [0], "constant": expected, "near_ties": 0}


def test_claim_that_the_share_does_not_vanish() -> None:
    assert _verdict(SHARES, networks(40, lambda n: 0.8)) == "reproduced"
    assert _verdict(SHARES, networks(80, lambda n: 0.0)) == "contradicted"
    assert _verdict(SHARES, networks(3, lambda n: 0.8)) == "undecided"
    # Still well above the floor, but it falls like 1/N.
    assert _verdict(SHARES, networks(60, lambda n: 1.0 if n < 24 else 24 / n)) == "contradicted"
    assert _verdict(SHARES, networks(40, lambda n: 0.8, lengths=(8, 16))) == "undecided"
    # One sampled length shows no change, and a shape without models nothing at all.
    assert _verdict(SHARES, networks(40, lambda n: 0.8, lengths=(8, 24))) == "undecided"
    assert _verdict(SHARES, networks(40, lambda n: 0.8, shapes=3)) == "undecided"


def test_claim_on_models_that_are_not_constant() -> None:
    assert _verdict(VARIED, networks(40, lambda n: 0.8)) == "reproduced"
    assert _verdict(VARIED, networks(80, lambda n: 0.001)) == "contradicted"
    assert _verdict(VARIED, networks(12, lambda n: 0.12)) == "undecided"
    # A shape in which too few models vary leaves it open, however the others come out; but it can contradict.
    good = networks(40, lambda n: 0.8, shapes=3)
    few = Rows(row for row in networks(9, lambda n: 0.8) if row["preset"] == "encoder")
    found = VARIED.judge(Rows(good + few))
    assert found.verdict == "undecided"
    assert [part.verdict for part in found.parts].count("reproduced") == 3
    assert any("too few models that vary, encoder" in part.note for part in found.parts)
    assert _verdict(VARIED, good) == "undecided"
    constant = networks(40, lambda n: 1.0)
    assert _verdict(SHARES, constant) == "reproduced"
    assert _verdict(VARIED, constant) == "undecided"


def test_claim_on_the_threshold_judges_the_theorem_s_models_only() -> None:
    bound = Threshold(32, 2)
    table = networks(40, lambda n: 0.5)
    assert _verdict(THRESHOLD, table) == "reproduced"
    assert THRESHOLD.judged(table).high == 1
    assert [row["log2_threshold"] for row in table[:2]] == [bound.log2_at(6), bound.log2_at(8)]
    # No such string in the sample: nothing is known of the number, and an asymptotic theorem is not contradicted.
    found = THRESHOLD.judged(networks(40, lambda n: 0.0))
    assert (found.verdict, found.measured) == ("undecided", 0.0)
    assert "longer length" in found.note
    other = table.where(lambda row: "D=16" in row["shape"] or row["eps"] > 0)
    assert _verdict(THRESHOLD, other) == "undecided"


def test_exactly_one_string_is_one_and_not_none() -> None:
    # N = 4, one string of sensitivity 0: log2 of their number is 0, the threshold 4^2.75 is far above it.
    (row,) = STUDY.summarise([network(0, 4, 1 / 16)])
    assert row["zeros"] == 1
    assert row["log2_zeros"] == 0
    assert over_threshold(row, None, 0.95) == pytest.approx(-Threshold(32, 2).log2_at(4))
    (none,) = STUDY.summarise([network(0, 4, 0.0)])
    assert over_threshold(none, None, 0.95) is None


def test_of_a_sample_the_lower_end_of_its_interval_counts() -> None:
    (row,) = STUDY.summarise([network(0, 100, 0.5, asked=100)])
    usual, strict = (over_threshold(row, None, confidence) for confidence in (0.95, 0.999))
    assert usual == pytest.approx(100 + math.log2(share(50, 100, 0.95).low) - Threshold(32, 2).log2_at(100))
    assert strict is not None
    assert strict < usual


def test_claim_on_strings_of_low_sensitivity() -> None:
    (row,) = STUDY.summarise([network(0, 16, 1 / 4, rest=0.5)])
    promised = [Threshold(32, 2).log2_at(16, round(part * 16)) for part in PARTS]
    counts = [2**16, 2**16, 2**14, 2**14]  # of sensitivity at most 12, 8, 4, 0
    assert [over_threshold(row, part, 0.95) for part in PARTS] == pytest.approx(
        [math.log2(count) - bound for count, bound in zip(counts, promised, strict=True)]
    )
    assert _verdict(LOW, networks(40, lambda n: 0.5)) == "reproduced"
    assert len(LOW.judged(networks(40, lambda n: 0.5)).parts) == len(PARTS)
    # Parity, and a function whose strings all have sensitivity N/2: all k fail, or those from N/2 on.
    for rest, failing in ((1.0, 4), (0.5, 2)):
        found = LOW.judged(networks(40, lambda n: 0.0, rest=rest))
        assert (found.verdict, found.measured) == ("undecided", 0.0)
        assert "longer length" in found.note
        assert sum(part.measured == 0 for part in found.parts) == failing
    assert _verdict(LOW, networks(3, lambda n: 0.5)) == "undecided"


def test_claim_on_growth() -> None:
    assert _verdict(GROWTH, networks(20, lambda n: 0.5)) == "reproduced"
    lengths = (6, 8, 10, 12, 14, 16)
    assert _verdict(GROWTH, networks(20, lambda n: min(1.0, n**2 / 2.0**n), lengths=lengths)) == "contradicted"
    assert _verdict(GROWTH, networks(1, lambda n: 0.5, shapes=2)) == "undecided"
    # A sample that saw no such string does not say how many there are: the lengths counted through do.
    assert _verdict(GROWTH, networks(20, lambda n: 0.5 if n <= MAX_EXACT else 0.0)) == "reproduced"
    assert _verdict(GROWTH, networks(20, lambda n: 0.0)) == "contradicted"
    # Constants have 2^N of them: a model that varies at one length only, or at three, says nothing.
    for varies in ((), (8,), (6, 8, 12)):
        found = GROWTH.judge(networks(20, lambda n, varies=varies: 0.5 if n in varies else 1.0))
        assert (found.verdict, found.quantity[:15]) == ("undecided", "no model varies")


def test_every_model_a_parity_contradicts_what_can_be_contradicted() -> None:
    plan = STUDY.scales["laptop"].settings
    parities = networks(plan["models"], lambda n: 0.0, lengths=plan["lengths"])
    found = {claim: claim.judged(parities).verdict for claim in STUDY.claims}
    assert [found[claim] for claim in (SHARES, VARIED, GROWTH)] == ["contradicted"] * 3
    for claim in (THRESHOLD, LOW):
        assert found[claim] == "undecided"
        assert claim.asymptotic
        assert "which no measured length can contradict" in claim.criterion


def test_scales_construct() -> None:
    for scale in STUDY.scales:
        plan, networks = STUDY.scales[scale].settings, STUDY.trials(scale)
        assert len(networks) == len(SHAPES) * plan["models"] * len(plan["lengths"])
    assert {Threshold(width, layers).exponent > 0 for _, width, layers, _ in SHAPES} == {True, False}
    assert networks[0].length == 4
    assert sum(networks[0].measure(_ignore)["profile"]) == 16
    assert networks[0].cost < networks[1].cost < networks[13].cost
