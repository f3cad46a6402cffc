from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from studies.harness import run

from flipscope.cube.functions import first
from flipscope.lab.study import Table
from flipscope.models.config import encoder
from flipscope.models.transformer import Transformer
from flipscope.studies.geometry.majority_volume import RADII, STUDY, Region, _survivors, half_radius

LARGER_PARITY, LARGER_FIRST, SLOWER_PARITY, SLOWER_FIRST = STUDY.claims


def _table(radius: Any, lengths: tuple[int, ...] = (4, 6, 8), seeds: int = 5, noise: float = 0.02) -> Table:
    stream = np.random.default_rng(0)
    return [
        {
            **Region(language, length, seed, 60, 400).content(),  # type: ignore[arg-type]
            "half_radius": radius(language, length) * math.exp(noise * stream.normal()),
        }
        for language in ("majority", "first", "parity")
        for length in lengths
        for seed in range(seeds)
    ]


def test_larger_and_slower() -> None:
    table = _table(lambda language, length: {"majority": 0.3, "first": 0.3, "parity": 2.0**-length}[language])
    assert LARGER_PARITY.judge(table).verdict == "reproduced"
    assert SLOWER_PARITY.judge(table).verdict == "reproduced"
    assert LARGER_FIRST.judge(table).verdict == "undecided"
    assert SLOWER_FIRST.judge(table).verdict == "undecided"


def test_smaller_and_faster() -> None:
    table = _table(lambda language, length: {"majority": 2.0**-length, "first": 0.3, "parity": 0.3}[language])
    assert LARGER_PARITY.judge(table).verdict == "contradicted"
    assert SLOWER_FIRST.judge(table).verdict == "contradicted"


def test_the_longest_length_that_both_learned_counts() -> None:
    table = _table(lambda language, length: 0.3 if language == "majority" or length == 8 else 0.1)
    assert LARGER_PARITY.judge(table).verdict == "undecided"  # equal at N = 8
    for row in table:
        if (row["language"], row["length"]) == ("parity", 8):
            row["half_radius"] = None
    found = LARGER_PARITY.judge(table)
    assert found.verdict == "reproduced"
    assert "N = 6" in found.quantity
    assert SLOWER_PARITY.judge(table).verdict == "undecided"  # two lengths are left


def test_half_radius_is_where_half_survive() -> None:
    count = 100
    survived = [100] * 5 + [75, 25] + [0] * 5
    assert half_radius(survived, count) == pytest.approx(math.sqrt(RADII[5] * RADII[6]))
    assert half_radius([100] * 12, count) is None
    assert half_radius([10] * 12, count) is None
    wobbling = [100] * 5 + [40, 60] + [0] * 5  # the larger cube holds the smaller one: 60 is chance
    found = half_radius(wobbling, count)
    assert found is not None
    assert RADII[4] < found < RADII[5]


def test_survivors_leave_the_model_as_it_was() -> None:
    f = first(3)
    model = Transformer(encoder(width=8, layers=1, heads=1, ffn_width=8))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert _survivors(model, f, 0.1, 3, np.random.default_rng(0)) == 0  # it never recognised First
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


@pytest.mark.slow
def test_smoke() -> None:
    table, judgements, figures = run(STUDY, "smoke")
    assert {row["language"] for row in table if row["recognised"]} >= {"majority", "first"}
    for row in table:
        assert len(row["survived"]) == (len(RADII) if row["recognised"] else 0)
        if row["recognised"]:
            assert row["survived"][0] >= 15  # of 20, at the smallest radius
            assert row["survived"][-1] <= 10
    assert {judgement.verdict for _, judgement in judgements} == {"undecided"}
    assert len(figures[0].panels) == 1
