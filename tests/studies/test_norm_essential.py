from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from studies.harness import smoke_run

from flipscope.basics.bits import index_bits
from flipscope.lab import Judgement, Rows
from flipscope.models.presets import hardness
from flipscope.models.transformer import Transformer
from flipscope.probes.blowup import blowup
from flipscope.studies.hardness.norm_essential import (
    BOUNDED,
    LARGE,
    STUDY,
    VARIANTS,
    Variant,
    Variation,
    either,
    longest_learned,
    matrices_norm,
)
from flipscope.training.recipes.hardness import hardness_recipe

LEARNS, ESSENTIAL, BLOWUP, WEIGHTS = STUDY.claims


def _rows(variant: Variant, learned: int, matrices: float = 20.0, *, seeds: int = 8, n: int = 10, **more: Any) -> Rows:
    """Models of a variant, so many of which learned."""
    return Rows(
        STUDY.row(
            Variation(variant, n, seed, 64, 128, 4_000),
            {"accuracy": 1.0 if seed < learned else 0.5, "error": 0.0, "kept": seed < learned}
            | {"norm": 25.0, "matrices": matrices + 0.1 * (seed % 3)}
            | {"log10_beta": 2.0 + n / 10, "log10_beta_start": 1.0, **more},
        )
        for seed in range(seeds)
    )


def test_smoke_gives_one_row_a_model_and_decides_nothing() -> None:
    table, judgements, figures = smoke_run(STUDY)
    assert len(table) == len(VARIANTS) * 2
    assert set(table.where(variant="none").column("log10_beta")) == {0.0}
    assert all(0 < row["log10_beta"] <= 4 * 0.302 for row in table.where(variant="large eps"))  # at most 2^4
    assert all(row["matrices"] < row["norm"] for row in table.where(variant="post"))
    assert all(row["matrices"] == row["norm"] for row in table.where(variant="none"))
    assert {judgement.verdict for _, judgement in judgements} == {"undecided"}
    assert [len(figure.panels) for figure in figures] == [3]
    assert "of 2 none" in STUDY.provenance(table)[0]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_read_and_measured_alike(variant: Variant) -> None:
    """The forward that trains computes the last layer where it is read only; values and gradients are the whole's."""
    trial = Variation(variant, 5, 0, 8, 16, 10)
    strings = torch.randint(0, 2, (6, 5))
    found = []
    for whole in (False, True):
        model = Transformer(trial.config, seed=1).double()
        answers = model.read(model.states(strings)[-1]) if whole else model(strings)
        answers.square().sum().backward()
        found.append([answers, *(p.grad for p in model.parameters() if p.grad is not None)])
    assert len(found[0]) == len(found[1]) > 10
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert len(blowup(model, strings).names) == (0 if variant == "none" else 4)


def test_the_paper_variant_is_the_recipe_of_other_studies() -> None:
    trial = Variation("post", 6, 2, 16, 32, 50)
    assert trial.recipe == hardness_recipe("parity", 6, 2, width=16, batch=32, steps=50)
    large = dataclasses.replace(trial, variant="large eps")
    assert large.recipe.model == dataclasses.replace(hardness(6, 16), eps=LARGE)


def test_the_norm_of_the_matrices_does_not_see_gains() -> None:
    plain, other = (Transformer(hardness(4, 8), seed=3) for _ in range(2))
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            if "norm" in name or "position" in name:
                parameter.add_(5.0)
    assert matrices_norm(plain) == matrices_norm(other) > 0


def test_learned() -> None:
    assert LEARNS.judge(_rows("post", 8)).verdict == "reproduced"
    assert LEARNS.judge(_rows("post", 5)).verdict == "undecided"
    assert LEARNS.judge(_rows("post", 0)).verdict == "contradicted"
    assert LEARNS.judge(Rows([*_rows("post", 8, n=4), *_rows("post", 0)])).verdict == "contradicted"  # the largest n
    assert LEARNS.judge(_rows("pre", 8)).verdict == "undecided"


def _essential(eps: tuple[int, float], none: tuple[int, float]) -> Judgement:
    pairs = zip(BOUNDED, (eps, none), strict=True)
    return ESSENTIAL.judge(Rows([*_rows("post", 8), *(row for name, given in pairs for row in _rows(name, *given))]))


def test_essential_if_not_learned_or_with_larger_weights() -> None:
    assert _essential((0, 20.0), (0, 20.0)).verdict == "reproduced"
    assert _essential((8, 25.0), (8, 25.0)).verdict == "reproduced"
    assert _essential((0, 20.0), (8, 25.0)).verdict == "reproduced"
    assert len(_essential((0, 20.0), (8, 25.0)).parts) == 4
    assert _essential((8, 15.0), (8, 15.0)).verdict == "contradicted"  # learned, with smaller weights
    assert _essential((0, 20.0), (8, 15.0)).verdict == "contradicted"  # one of them suffices
    assert _essential((8, 20.0), (0, 20.0)).verdict == "undecided"  # learned, with weights of the same size
    assert _essential((3, 15.0), (0, 20.0)).verdict == "undecided"  # some learned


def test_without_the_paper_variant_nothing_is_essential() -> None:
    failed = Rows([*_rows("post", 0), *_rows("none", 0), *_rows("large eps", 0)])
    assert longest_learned(failed) is None
    assert ESSENTIAL.judge(failed).verdict == "undecided"
    short = Rows([*failed, *(row for name in ("post", *BOUNDED) for row in _rows(name, 3, n=4, seeds=3))])
    assert longest_learned(short) == 4
    assert "n = 4" in ESSENTIAL.judge(short).quantity


def test_either() -> None:
    said = {name: Judgement(name, name, 0.0, 0.0, 0.0) for name in ("reproduced", "contradicted", "undecided")}
    for first, second, expected in (
        ("reproduced", "contradicted", "reproduced"),
        ("contradicted", "undecided", "undecided"),
        ("contradicted", "contradicted", "contradicted"),
    ):
        assert either(said[first], said[second]).verdict == either(said[second], said[first]).verdict == expected


def _growing(slope: float, control: float) -> Rows:
    """Blowup and weights that grow by so much per bit, and the start's and the paper's model's by so much."""
    return Rows(
        {**row, "log10_beta": slope * n + wiggle, "log10_beta_start": control * n}
        | {"matrices": 20 + (control if name == "post" else slope) * n + wiggle * (name != "post")}
        for n in (4, 6, 8)
        for name in ("post", *BOUNDED)
        for row in _rows(name, 8, n=n)
        for wiggle in [0.03 * n * (-1) ** row["seed"]]
    )


@pytest.mark.parametrize(("slope", "expected"), [(0.2, "reproduced"), (0.0, "undecided"), (-0.2, "contradicted")])
def test_growth_with_the_length(slope: float, expected: str) -> None:
    rows = _growing(slope, 0.0)
    assert BLOWUP.judge(rows).verdict == WEIGHTS.judge(rows).verdict == expected
    few = Rows({**row, "learned": row["seed"] < 2} for row in rows)
    assert BLOWUP.judge(few).verdict == WEIGHTS.judge(few).verdict == "undecided"


def test_growth_is_beyond_a_control() -> None:
    """What the untrained model, or the paper's with its norms, does as well is no sign of what PARITY needs."""
    for control, expected in ((0.2, "undecided"), (0.4, "contradicted"), (0.1, "reproduced")):
        rows = _growing(0.2, control)
        assert BLOWUP.judge(rows).verdict == WEIGHTS.judge(rows).verdict == expected
    alone = Rows(row for row in _growing(0.2, 0.0) if row["variant"] != "post" or row["length"] == 4)
    assert WEIGHTS.judge(alone).verdict == "undecided"  # without the control at these lengths


def test_the_start_is_measured_on_the_same_strings() -> None:
    trial = Variation("post", 4, 1_003, 8, 16, 3)
    found = trial.measure(lambda done, total: None)
    start = Transformer(trial.config, seed=1_003)
    strings = index_bits(0, 16, 4)
    assert found["log10_beta_start"] == pytest.approx(float(np.log10(blowup(start, strings).beta).mean()))
    assert found["log10_beta_start"] != found["log10_beta"]
    assert {each.seed for each in STUDY.trials("laptop")} == set(range(1_000, 1_008))
