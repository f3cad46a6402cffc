from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from repetitions import repeated
from studies.harness import smoke_run

from flipscope.basics.errors import InputError
from flipscope.lab import Rows
from flipscope.studies.sparse_variables import sparse_and
from flipscope.studies.sparse_variables.sparse_and import (
    STUDY,
    Chain,
    Learner,
    floor,
    growth_of,
    halfway,
    only_one_triple,
    smallest_above_half,
)

PER_BIT, SLOWER, LOG, POWER, FITS = STUDY.claims
LENGTHS = (50, 200, 800)


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_and, "RESAMPLES", 60)


def _table(
    law: Callable[[int], float], chains: int = 12, trainings: int = 16, width: float = 0.1, seed: int = 0
) -> Rows:
    """Staircases of trainings that succeed by a logistic law around the critical number of strings."""
    stream, rows = np.random.default_rng(seed), []
    for length in LENGTHS:
        for chain in range(chains):
            trial, rung = Chain(length, round(law(length)), chain, trainings, 1_000), 0
            for number in range(trainings):
                samples = trial.samples(rung)
                chance = 1 / (1 + math.exp(-math.log(samples / law(length)) / width))
                won = bool(stream.random() < chance)
                taken = 300 if won else 1_000
                row = {"samples": samples, "success": won, "taken": taken, "train_loss": 1e-5, "fits": True}
                rows.append({"kind": "training", **trial.content(), **row, "number": number})
                rung += -1 if won else 1
    return Rows(rows)


def _log(length: int) -> float:
    return 47 + 40 * math.log(length / 50)


def _linear(length: int) -> float:
    return 47 * length / 50


def _verdicts(table: Rows) -> list[str]:
    return [claim.judge(table).verdict for claim in STUDY.claims]


def test_log_growth_is_seen() -> None:
    table = _table(_log)
    assert _verdicts(table) == ["reproduced"] * 5
    found = growth_of(table)
    assert found is not None
    for length in LENGTHS:
        assert found.critical[length].low < _log(length) < found.critical[length].high
        assert found.laws["log"][LENGTHS.index(length)] == pytest.approx(_log(length), rel=0.1)
    assert found.width == pytest.approx(0.1, rel=0.3)


def test_growth_that_contradicts() -> None:
    linear = _table(lambda length: 47 * (length / 50) ** 1.3)
    assert PER_BIT.judge(linear).verdict == "contradicted"
    assert SLOWER.judge(_table(lambda length: 47 * (length / 50) ** 2)).verdict == "contradicted"
    assert LOG.judge(_table(_linear)).verdict == "contradicted"
    assert POWER.judge(_table(lambda length: 47 * (length / 50) ** 0.8, chains=24)).verdict == "contradicted"


def test_growth_that_decides_nothing() -> None:
    assert PER_BIT.judge(_table(_linear)).verdict == "undecided"
    assert SLOWER.judge(_table(_linear)).verdict == "undecided"
    assert LOG.judge(_table(lambda length: 60.0)).verdict == "undecided"  # both laws are a constant
    assert POWER.judge(_table(_log, chains=2)).verdict == "undecided"


def test_an_intercept_alone_is_not_growth_that_slows_down() -> None:
    tables = repeated(25, 10)
    said = [
        (PER_BIT.judge(table).verdict, SLOWER.judge(table).verdict)
        for table in (_table(lambda length: 38 + 0.3 * length, seed=seed) for seed in range(tables))
    ]
    assert said.count(("reproduced", "reproduced")) <= tables // 10  # one in forty is expected
    assert all(per_bit == "reproduced" for per_bit, _ in said)  # strings per bit do fall


def test_the_plan_for_a_laptop_sees_a_logarithm() -> None:
    plan = STUDY.scales["laptop"].settings
    size = {"chains": plan["chains"], "trainings": plan["trainings"]}
    found = [SLOWER.judge(_table(lambda n: 49 + 52 * math.log(n / 50), seed=seed, **size)).verdict for seed in range(8)]
    assert found.count("reproduced") >= 6


def _only(table: Rows, **equal: Any) -> list[str]:
    return _verdicts(Rows({**row, **equal} for row in table))[:4]


def test_without_lengths_chains_or_both_outcomes_nothing_is_decided() -> None:
    table = _table(_log, chains=2)
    two = table.where(lambda row: row["length"] <= 200)
    for few in (two, table.where(chain=0)):
        assert [claim.judge(few).verdict for claim in STUDY.claims[:4]] == ["undecided"] * 4
    for won in (True, False):
        assert _only(table, success=won) == ["undecided"] * 4


def test_trainings_that_do_not_fit() -> None:
    table = _table(_log, chains=2)
    broken = Rows([*table, {**table[0], "taken": 1_000, "fits": False, "train_loss": 0.3}])
    assert FITS.judge(broken).verdict == "contradicted"
    assert "0.3" in FITS.judge(broken).note
    early = Rows({**row, "taken": 300, "fits": False} for row in table)
    assert FITS.judge(early).verdict == "undecided"  # they were stopped
    assert FITS.judge(Rows(table.where(success=False)[:5])).verdict == "undecided"


def test_the_papers_rule() -> None:
    rows = Rows(
        {"samples": m, "success": won}
        for m, wins in ((50, 1), (60, 2), (70, 3))
        for won in [True] * wins + [False] * (4 - wins)
    )
    found = smallest_above_half(rows)
    assert found is not None
    assert found.value == 70
    assert smallest_above_half(rows.where(samples=50)) is None


def test_a_staircase_goes_down_after_a_success_and_up_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Chain(12, 20, 0, 5, 10, validation=100, width=8, heads=2)
    wins = iter([False, False, True, True, False])

    class Line:
        steps, train_loss, validation_loss = 10, 0.1, 0.2

        def __init__(self, won: bool) -> None:
            self.validation_accuracy = 1.0 if won else 0.99  # which is not above 0.99

    class Fitted:
        steps, log = 10, ({"step": 0, "training_set.loss": 1e-5, "training_set.accuracy": 1.0},)

        def __init__(self) -> None:
            self.history = [Line(next(wins))]

    def trained(recipe: Any, _progress: Any) -> Any:
        asked.append((recipe.data.samples, recipe.seed))
        return type("Trained", (), {"fitted": Fitted()})()

    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(sparse_and.lab, "trained", trained, raising=False)
    found = trial.measure(lambda done, total: None)
    assert [samples for samples, _ in asked] == [20, 22, 24, 22, 20]
    assert found["samples"].tolist() == [20, 22, 24, 22, 20]
    assert found["success"].tolist() == [False, False, True, True, False]
    assert found["fits"].all()
    assert len({seed for _, seed in asked}) == 5


def test_recipes_take_other_gates_noise_and_balance() -> None:
    trial = Chain(30, 40, 0, 1, 10, gate="x1 & ~x2 | x3", noise=0.1, balanced=True, stop=False)
    recipe = trial.recipe(40, 0)
    assert recipe.protocol.goal is None
    assert recipe.data.noise == 0.1  # type: ignore[union-attr]
    with pytest.raises(InputError, match="ratio"):
        Chain(30, 40, 0, 1, 10, ratio=0.9)


def _brute_force(length: int, samples: int, stream: np.random.Generator) -> bool:
    bits = stream.integers(0, 2, (samples, length))
    labels = bits[:, :3].all(axis=1)
    agree = [t for t in itertools.combinations(range(length), 3) if (bits[:, t].all(axis=1) == labels).all()]
    return len(agree) == 1


def test_the_learner_of_consistent_triples_is_that_of_all_triples() -> None:
    draws: Sequence[int] = range(400)
    for length, samples in ((8, 16), (12, 24)):
        streams = (
            [np.random.default_rng([1, seed]) for seed in draws],
            [np.random.default_rng([2, seed]) for seed in draws],
        )
        ours = sum(only_one_triple(length, samples, stream) for stream in streams[0])
        theirs = sum(_brute_force(length, samples, stream) for stream in streams[1])
        assert 40 < theirs < 360
        assert abs(ours - theirs) < 5 * math.sqrt(400 * 0.5)
    assert not only_one_triple(1_000, 4, np.random.default_rng(0))
    found = Learner(100, (28, 50), 200).measure(lambda done, total: None)["hits"]
    assert found[0] < 80 < 120 < found[1]


def test_floor_and_halfway() -> None:
    assert floor(100) == pytest.approx(math.log2(161_700) / 0.5435644, rel=1e-6)
    assert halfway([1, 2], [0.6, 0.7]) is None


def test_smoke() -> None:
    table, judged, figures = smoke_run(STUDY)
    assert {row["kind"] for row in table} == {"training", "curve", "learner"}
    assert {judgement.verdict for _, judgement in judged} == {"undecided"}
    assert [figure.name for figure in figures] == ["sparse-and-success", "sparse-and-critical", "sparse-and-curves"]
    assert STUDY.provenance(table)
    assert len(STUDY.trials("paper")) == 11 * 16 * 5 + 2 + 11


def test_figures_of_a_full_table() -> None:
    curve = {name: [1.0, 0.5] for name in ("batch_loss", "set_loss", "validation_loss", "validation_accuracy")}
    extra = {"kind": "curve", "length": 400, "samples": 100, "curve_step": [10, 20]}
    learner = [{"kind": "learner", "length": t, "samples": m, "hits": m, "of": 60} for t in LENGTHS for m in (20, 40)]
    rows = Rows([*_table(_log, 4), {**extra, **{f"curve_{k}": v for k, v in curve.items()}}, *learner])
    success, critical, curves = STUDY.draw(rows)
    assert len(success.panels[0].series) == 2 * len(LENGTHS)
    assert len(critical.panels[0].series) == 7
    assert len(curves.panels) == 2
