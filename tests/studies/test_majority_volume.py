from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from studies.harness import smoke_run

from flipscope.lab import Rows
from flipscope.studies.geometry.majority_volume import RADII, STUDY, Region

LARGER_PARITY, LARGER_FIRST, SLOWER_PARITY, SLOWER_FIRST = STUDY.claims


def _table(radius: Any, lengths: tuple[int, ...] = (4, 6, 8), seeds: int = 5, noise: float = 0.02) -> Rows:
    stream = np.random.default_rng(0)
    return Rows(
        {
            **Region(language, length, seed, 60, 8000).content(),  # type: ignore[arg-type]
            "half_radius": radius(language, length) * math.exp(noise * stream.normal()),
        }
        for language in ("majority", "first", "parity")
        for length in lengths
        for seed in range(seeds)
    )


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


@pytest.mark.slow
def test_smoke() -> None:
    table, judgements, figures = smoke_run(STUDY)
    assert {row["language"] for row in table if row["recognised"]} >= {"majority", "first"}
    for row in table:
        assert len(row["survived"]) == (len(RADII) if row["recognised"] else 0)
        if row["recognised"]:
            assert row["survived"][0] >= 15  # of 20, at the smallest radius
            assert row["survived"][-1] <= 10
    assert {judgement.verdict for _, judgement in judgements} == {"undecided"}
    assert {judgement.remedy for _, judgement in judgements} == {"at least 3 seeds that learn both"}
    assert len(figures[0].panels) == 1
