from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from studies.harness import smoke_run

from flipscope.basics.bits import index_bits
from flipscope.basics.errors import InputError
from flipscope.bounds.hardness.flips import Bound
from flipscope.cube.functions import parity
from flipscope.cube.spectrum import RealSpectrum
from flipscope.lab import Row, Rows
from flipscope.models import Transformer, hardness
from flipscope.studies.hardness import blowup_bound
from flipscope.studies.hardness.blowup_bound import FEWEST, FORMS, KINDS, STUDY, Made, gap, made, slack, slacks

CLAIMS = {claim.name: claim for claim in STUDY.claims}


def table(*odd: Row, count: int = FEWEST, **columns: Any) -> Rows:
    usual = {"kind": "trained", "sensitivity": 1.0, **dict.fromkeys(FORMS, 1.0)}
    return Rows([{**usual, "kind": KINDS[i % 4], **columns} for i in range(count)] + [{**usual, **row} for row in odd])


@pytest.mark.parametrize("form", list(FORMS))
def test_one_model_breaks_a_bound(form: str) -> None:
    claim = CLAIMS[f"{FORMS[form][0]}: never exceeded"]
    assert claim.judge(table()).verdict == "reproduced"
    assert claim.judge(table({form: -0.01})).verdict == "contradicted"
    assert claim.judge(table({form: math.nan})).verdict == "undecided"  # which is evidence for nothing
    assert claim.judge(table(count=5)).verdict == "undecided"
    assert claim.judge(table(**{form: None})).verdict == "undecided"


def test_how_loose() -> None:
    claim = CLAIMS["the bound is close, product"]
    close, far, spread = (
        Rows({**row, "product": mean + wide * (-1) ** (i // 4)} for i, row in enumerate(table()))
        for mean, wide in ((1.0, 0.1), (7.0, 0.1), (2.0, 1.0))
    )
    assert [claim.judge(rows).verdict for rows in (close, far, spread)] == ["reproduced", "contradicted", "undecided"]
    assert claim.judge(far).measured == pytest.approx(7.0, abs=0.01)


def test_the_gap() -> None:
    claim = CLAIMS["sharpness is never below the Fourier gap"]
    assert claim.exploratory, "it is true of any two functions, and checks the code only"
    assert "says nothing about transformers" in claim.statement
    own = {"function": "parity", "length": 8, "as": 8.0, "sharpness": 0.6, "gap": 0.4}
    assert claim.judge(table(**own)).verdict == "reproduced"
    assert claim.judge(table({**own, "gap": 0.7}, **own)).verdict == "contradicted"
    for column in ("gap", "sharpness"):
        assert claim.judge(table({**own, column: math.nan}, **own)).verdict == "undecided"
    assert claim.judge(table(count=3, **own)).verdict == claim.judge(table()).verdict == "undecided"
    explains = CLAIMS["the gap explains PARITY's sharpness"]
    for level, expected in ((0.4, "reproduced"), (0.1, "contradicted"), (0.3, "undecided")):
        rows = Rows({**row, "gap": level + 0.01 * (-1) ** i} for i, row in enumerate(table(**own)))
        assert explains.judge(rows).verdict == expected
    assert explains.judge(table(**{**own, "as": 0.1})).verdict == "undecided"  # it was not learned
    for column in ("gap", "sharpness", "as"):
        assert explains.judge(table({**own, column: math.nan}, **own)).verdict == "undecided"


def perturbed(left: float, falls: float, own: float = 1.0, lengths: tuple[int, ...] = (4, 6, 8, 10)) -> Rows:
    """Models of PARITY with this share of its sensitivity, of which perturbations leave a share that falls per bit."""
    return Rows(
        {"kind": "trained", "function": "parity", "length": n, "gap": 0.1, "sharpness": 0.5, "as": own * n}
        | {"as_perturbed": own * n * (left - falls * (n - 4) + 0.01 * (-1) ** seed)}
        for n in lengths
        for seed in range(4)
    )


def test_perturbations_take_sensitivity_away() -> None:
    claim = CLAIMS["perturbed models of PARITY lose their sensitivity"]
    assert claim.judged(perturbed(0.9, 0.05)).verdict == "reproduced"
    assert claim.judged(perturbed(0.9, 0.0)).verdict == "undecided"
    risen = claim.judged(perturbed(0.5, -0.05))
    assert (risen.verdict, risen.remedy) == ("undecided", "longer strings")  # a limit theorem
    assert "no measured length can contradict" in claim.criterion
    lost = Rows(row | {"as": row["as"] * f, "as_perturbed": row["as_perturbed"] * f}
                for row in perturbed(0.9, 0.0) for f in [1.2 - row["length"] / 20])  # fmt: skip
    assert claim.judged(lost).verdict == "undecided"  # less well learned, and nothing is taken away
    assert claim.judged(perturbed(0.9, 0.05, own=0.4)).verdict == "undecided"  # not learned
    assert claim.judged(perturbed(0.9, 0.05, lengths=(4, 10))).verdict == "undecided"


@pytest.mark.parametrize(("length", "eps"), [(4, 1e-5), (8, 1e-3)])
def test_parity_by_hand(length: int, eps: float) -> None:
    model = made(Made("constructed", length, 32, 100.0, eps, "post", 0, 64))
    bits = index_bits(0, 1 << length, length)
    with torch.no_grad():
        answers = model(torch.from_numpy(bits)).numpy()
    assert np.abs(answers - parity(length)(bits)).max() < 0.05
    found = slacks(model, bits)
    assert found["sensitivity"] == pytest.approx(length / 4, rel=0.1)  # answers 0 and 1: a quarter of n
    assert all(found[form] is not None and found[form] > 0 for form in FORMS)  # type: ignore[operator]
    with pytest.raises(InputError, match="width"):
        made(Made("constructed", 40, 32, 100.0, eps, "post", 0, 64))


def test_a_bound_that_is_not_a_number_is_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither as one string among others nor as a bound that does not apply."""
    model = made(Made("random", 4, 8, 1.0, 1e-2, "post", 0, 16))
    bits = index_bits(0, 16, 4)
    bound = blowup_bound.product_bound
    calls = itertools.count()

    def once(*given: Any) -> Bound:
        found = bound(*given)
        return dataclasses.replace(found, log=math.nan) if next(calls) == 5 else found

    monkeypatch.setattr(blowup_bound, "product_bound", once)
    found = slacks(model, bits)
    assert found["product"] is not None
    assert math.isnan(found["product"])
    assert found["layers"] is not None
    assert found["layers"] > 0


def test_an_ascent_comes_nearer() -> None:
    trial = Made("adversarial", 4, 8, 1.0, 1e-2, "post", 0, 16)
    start = made(Made("random", 4, 8, 1.0, 1e-2, "post", 0, 16))
    first = index_bits(0, 16, 4)[:1]
    assert 0 <= slack(made(trial), first) < slack(start, first)


def test_gap_is_made_of_the_same_draws() -> None:
    model = Transformer(hardness(4, width=8), scheme="gaussian", seed=1)
    found = gap(model, 4, 0)
    assert 0 <= found["gap"] <= found["sharpness"]
    with torch.no_grad():
        outputs = 2 * model(torch.from_numpy(index_bits(0, 16, 4))).double().numpy() - 1
    assert found["as"] == pytest.approx(RealSpectrum.of(outputs).average_sensitivity(), rel=1e-4)


def test_nothing_changes() -> None:
    model = Transformer(hardness(4, width=8), seed=1)
    with torch.no_grad():
        model.head.weight.zero_()
    assert slacks(model, index_bits(0, 16, 4))["product"] is None
    assert slack(model, index_bits(0, 1, 4)) == math.inf


def test_trials() -> None:
    trials = STUDY.checked_trials("laptop")
    assert len(trials) == 162 + 24 + 20 + 150
    assert {kind: sum(getattr(t, "kind", "trained") == kind for t in trials) for kind in KINDS} == {
        "random": 162,
        "constructed": 24,
        "adversarial": 20,
        "trained": 150,
    }


def test_smoke() -> None:
    found, judgements, figures = smoke_run(STUDY)
    assert len(found) == 11
    assert all(row[form] is None or row[form] >= 0 for row in found for form in FORMS)
    assert {judged.verdict for claim, judged in judgements if not claim.exploratory} == {"undecided"}
    assert [figure.name for figure in figures] == ["blowup-bound", "fourier-gap"]
