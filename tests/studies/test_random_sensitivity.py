from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from studies.harness import smoke_run

from flipscope.basics.bits import index_bits
from flipscope.basics.errors import InputError
from flipscope.lab import Rows
from flipscope.studies.hardness.random_sensitivity import NORMS, STUDY, Start, exact, initialised, sampled

LINEAR, BELOW, SLOW = STUDY.claims


def _table(
    ratio: float, sign: float, models: int = 20, lengths: tuple[int, ...] = (4, 8, 16), power: float = 0
) -> Rows:
    """Models whose as / Var grows like n^power, and whose answers have this average sensitivity."""
    return Rows(
        STUDY.row(
            Start(norm, n, seed, 16, 0),
            {"real": ratio * (n / lengths[0]) ** power + 0.001 * (seed % 3), "variance": 1.0, "sign": sign},
        )
        for norm in NORMS
        for n in lengths
        for seed in range(models)
    )


def _noisy(column: str, value: float, around: float) -> Rows:
    """The same with half of the models so much above, and half below."""
    rows = _table(1.0, 1.0)
    return Rows({**row, column: value + around * (-1) ** number} for number, row in enumerate(rows))


def test_smoke_gives_one_row_a_model_and_decides_nothing() -> None:
    table, judgements, figures = smoke_run(STUDY)
    assert len(table) == 3 * (3 * 3 + 1)
    assert all(row["ratio"] > 0.99 for row in table.where(strings=0))  # the mean degree of what varies is at least 1
    assert all(row["sign"] >= 1 for row in table.where(strings=0))  # the least of a balanced function
    assert {judgement.verdict for _, judgement in judgements} == {"undecided"}
    assert [len(figure.panels) for figure in figures] == [2]


def test_judges_of_means() -> None:
    for claim, column, limit in ((LINEAR, "ratio", 1.1), (BELOW, "way", 0.5)):
        assert claim.judge(_table(1.02, 1.1)).verdict == "reproduced"
        assert claim.judge(_noisy(column, limit, 0.1)).verdict == "undecided"
        assert claim.judge(_table(1.02, 1.1, models=5)).verdict == "undecided"
    assert LINEAR.judge(_table(1.2, 1.1)).verdict == "contradicted"
    assert BELOW.judge(_table(1.0, 3.0)).verdict == "contradicted"  # at 4 bits a random function has 2


def test_one_length_decides() -> None:
    high = _table(1.02, 1.1) + _table(1.3, 1.1, lengths=(32,)).where(norm="pre")
    judged = LINEAR.judge(Rows(high))
    assert (judged.verdict, judged.quantity) == ("contradicted", "mean as / Var of the output, pre, n = 32")


def test_growth_is_judged_per_bit() -> None:
    assert SLOW.judge(_table(1.0, 1.0, power=0.0)).verdict == "reproduced"
    assert SLOW.judge(_table(1.0, 1.0, power=0.9)).verdict == "contradicted"
    assert SLOW.judge(_table(1.0, 1.0, models=4)).verdict == "undecided"
    assert SLOW.judge(_table(1.0, 1.0, lengths=(4, 8))).verdict == "undecided"
    linear = Rows({**row, "ratio": 5 + 0.2 * row["length"] + 0.01 * row["seed"]} for row in _table(1.0, 1.0))
    assert SLOW.judge(linear).verdict == "contradicted"  # though an intercept makes its exponent 0.3


def test_slopes_are_of_seeds_at_all_lengths() -> None:
    """Seeds that have short strings only say nothing of long ones."""
    flat = _table(1.0, 1.0, lengths=(4, 6, 8), models=20)
    steep = Rows({**row, "ratio": row["length"] / 4} for row in _table(1.0, 1.0, lengths=(4, 6, 8, 64), models=6))
    both = Rows([*steep, *flat.where(lambda row: row["seed"] >= 6)])
    assert round(SLOW.judge(both).measured or 0, 6) == 0.25


def test_constant_models_are_counted_and_say_nothing() -> None:
    constant = Rows(
        STUDY.row(Start(norm, n, seed, 16, 0), {"real": 0.0, "variance": 0.0, "sign": 0.0})
        for norm in NORMS
        for n in (4, 8, 16)
        for seed in range(20, 40)
    )
    assert {claim.judge(constant).verdict for claim in STUDY.claims} == {"undecided"}
    both = Rows([*_table(1.02, 1.1), *constant])
    assert {claim.judge(both).verdict for claim in STUDY.claims} == {"reproduced"}
    assert STUDY.provenance(both)[0].startswith("180 of 360 models")


def test_exact_is_the_definition() -> None:
    trial = Start("pre", 5, 3, 8, 0)
    with torch.no_grad():
        logits = initialised(trial)(torch.from_numpy(index_bits(0, 32, 5))).numpy()
    flips = np.arange(32)[:, None] ^ (1 << np.arange(5))
    answers = logits > np.median(logits)
    found = exact(trial)
    assert found["real"] == pytest.approx(np.square(logits[:, None] - logits[flips]).sum(axis=1).mean() / 4)
    assert found["variance"] == pytest.approx(logits.var())
    assert found["sign"] == (answers[:, None] != answers[flips]).sum(axis=1).mean()


def test_samples_agree_with_all_strings() -> None:
    for norm in NORMS:
        trial = Start(norm, 7, 1, 16, 0)
        found = sampled(dataclasses.replace(trial, strings=100), lambda done, total: None)
        for name, value in exact(trial).items():
            assert found[name] == pytest.approx(value, rel=0.15), (norm, name)


def test_known_numbers() -> None:
    """Ten models of the paper's width with PyTorch's start: 1.04, 1.01 and 1.05 at 4, 6 and 8 bits for other seeds."""
    for n in (4, 6, 8):
        rows = [STUDY.row(trial, exact(trial)) for trial in (Start("post", n, seed, 128, 0) for seed in range(10))]
        assert 1.0 <= np.mean([row["ratio"] for row in rows]) < 1.1, n
        assert np.mean([row["sign"] for row in rows]) < 2


def test_two_bits_are_refused() -> None:
    with pytest.raises(InputError, match="length=2"):
        Start("post", 2, 0, 8, 0)
