from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats
from studies.harness import smoke_run

from flipscope.lab import Rows
from flipscope.studies.sparse_variables.sparse_parity import STUDY, Online, kaplan_meier, transition, trend

ABRUPT, LATER, LONG = STUDY.claims


def _run(length: int, seed: int, at: int | None, ramp: int = 10, steps: int = 3_000) -> dict[str, object]:
    """A training that is at chance, and goes up to 1 within so many steps from `at` on."""
    step = np.arange(10, steps + 1, 10)
    accuracy = np.full(len(step), 0.5) if at is None else np.clip(0.5 + 0.5 * (step - at) / ramp, 0.5, 1)
    last = len(step) if at is None else int(np.argmax(accuracy > 0.99)) + 1
    outcome = {"step": step[:last], "accuracy": accuracy[:last], "loss": 0.69 - 0.6 * (accuracy[:last] - 0.5)}
    outcome |= {"attention_step": step[:last], "attention_mean": accuracy[:last], "attention_most": accuracy[:last]}
    return STUDY.row(Online(length, seed, steps), outcome)


def _table(**times: Sequence[int | None]) -> Rows:
    return Rows(_run(int(name[1:]), seed, at) for name, own in times.items() for seed, at in enumerate(own))


def test_what_a_training_tells() -> None:
    found = _run(10, 0, 300, 100)
    assert found["learned"] == found["taken"] == 400
    assert found["transition"] == pytest.approx((380 - 320) / 380)
    missing = _run(10, 0, None)
    assert (missing["learned"], missing["taken"], missing["transition"]) == (None, 3_000, None)
    sudden = transition({"step": [10, 20], "accuracy": [0.95, 1.0]})  # never at chance
    assert sudden["transition"] == 1.0


def test_as_in_the_paper() -> None:
    table = _table(t10=[300, 320, 350, 360, 380, 400], t15=[900, 950, 990, 1_200, None, None])
    assert [claim.judge(table).verdict for claim in STUDY.claims] == ["reproduced", "reproduced", "undecided"]


def test_slow_transitions_contradict() -> None:
    slow = Rows(_run(10, seed, 10, 1_500 + 50 * seed) for seed in range(6))
    assert ABRUPT.judge(slow).verdict == "contradicted"
    mixed = Rows([*slow[:2], *(_run(10, 9 + seed, 1_000, 10) for seed in range(3))])
    assert ABRUPT.judge(mixed).verdict == "undecided"
    assert ABRUPT.judge(_table(t10=[300, 400])).verdict == "undecided"


def test_the_order_of_lengths() -> None:
    swapped = _table(t15=[300, 320, 350, 360, 380, 400], t10=[900, 950, 990, 1_200, None, None])
    assert LATER.judge(swapped).verdict == "contradicted"
    assert LATER.judge(_table(t10=[300, 900], t15=[320, None])).verdict == "undecided"
    assert LATER.judge(_table(t10=[None, None], t15=[None])).verdict == "undecided"
    assert LATER.judge(_table(t10=[300, 400, 500])).verdict == "undecided"


def test_long_strings() -> None:
    def long(learned: int, count: int, steps: int = 10_000, length: int = 60) -> Rows:
        return Rows(_run(length, seed, 500 if seed < learned else None, steps=steps) for seed in range(count))

    assert LONG.judge(long(0, 10)).verdict == "reproduced"
    assert LONG.judge(long(1, 10)).verdict == "contradicted"
    assert LONG.judge(long(0, 4)).verdict == "undecided"
    for others in (long(0, 10, steps=3_000), long(1, 10, length=50)):
        assert LONG.judge(others).verdict == "undecided"
    assert LATER.judge(long(1, 10)).verdict == "undecided"  # of 50 bits or fewer there is none


def test_trend_of_two_groups_is_the_log_rank_test() -> None:
    stream = np.random.default_rng(0)
    for _ in range(10):
        times = stream.integers(1, 12, 20).astype(float)  # with ties
        seen = stream.random(20) < 0.7
        group = stream.integers(0, 2, 20)
        first, second = (
            stats.CensoredData(uncensored=times[(group == g) & seen], right=times[(group == g) & ~seen]) for g in (0, 1)
        )
        expected = stats.logrank(first, second)
        assert abs(trend(times, seen, group) or 0) == pytest.approx(abs(expected.statistic), rel=1e-9)
    assert trend([1, 2], [False, False], [0, 1]) is None
    assert trend([3, 2, 1], [True] * 3, [1, 2, 3]) < 0  # type: ignore[operator]


def test_kaplan_meier_by_hand() -> None:
    x, y, low, high = kaplan_meier([1, 2, 3, 4], [True, False, True, False])
    assert x == [0, 1, 2, 3, 4]
    assert y == pytest.approx([1, 3 / 4, 3 / 4, 3 / 8, 3 / 8])
    assert all(a <= b <= c for a, b, c in zip(low, y, high, strict=True))
    assert kaplan_meier([5, 5], [False, False])[1] == [1, 1]
    assert kaplan_meier([5, 7], [True, True])[1:3] == ([1, 0.5, 0], [1, kaplan_meier([5, 7], [True, False])[2][1], 0])


def test_the_recipe_is_the_papers() -> None:
    recipe = Online(10, 0, 10_000).recipe
    protocol = recipe.protocol
    assert (protocol.batch, protocol.learning_rate, protocol.weight_decay, protocol.clip) == (2_048, 1e-3, 1e-4, 1.0)
    assert (recipe.model.width, recipe.model.heads, recipe.model.layers) == (64, 16, 1)  # type: ignore[union-attr]


def test_smoke() -> None:
    table, judged, figures = smoke_run(STUDY)
    assert len(table) == 4
    assert {judgement.verdict for _, judgement in judged} == {"undecided"}
    assert [len(figure.panels) for figure in figures] == [2, 2, 1]
    assert len(STUDY.provenance(table)) == 2
    assert STUDY.trials("paper")[0].steps == 10_000
