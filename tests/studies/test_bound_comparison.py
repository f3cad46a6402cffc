from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from studies.harness import smoke_run

from flipscope.basics.errors import InputError
from flipscope.bounds.pac_bayes import class_bound
from flipscope.bounds.pac_bayes.norm_based import edelman_bound, edelman_template, printed_constant, template_norms
from flipscope.lab import Rows
from flipscope.studies.sharper.bound_comparison import STUDY, Formulas, tiling

NUMBERS, SEMI, TIGHTER, CROSSOVER, TRAINED, NEEDED, CERTIFIED, GROUPS = STUDY.claims


def _ignore(done: int, total: int) -> None:
    pass


E3 = {"kind": "formulas", "length": 20, "samples": 1_000_000, **Formulas(20, 1_000_000).measure(_ignore)}
SMALL = {"kind": "formulas", "length": 20, "samples": 8_192, **Formulas(20, 8_192).measure(_ignore)}


def test_the_numbers_of_the_paper() -> None:
    assert E3["gradient_bound"] == 15_524
    assert E3["norm_bound"] == pytest.approx(1303.9294, abs=1e-4)
    assert E3["sigma"] == pytest.approx(2.2657e-3, abs=1e-7)
    assert E3["truncated"] == pytest.approx(0.2391, abs=5e-5)
    assert SMALL["truncated"] == pytest.approx(1.186, abs=5e-4)
    assert E3["needed_truncated"] == pytest.approx(math.log10(13_664))
    assert E3["scaled"] == pytest.approx(1.01)
    assert NUMBERS.judge(Rows([E3])).verdict == "reproduced"
    for odd in ({"gradient_bound": 15_525}, {"norm_bound": 1303.94}, {"sigma": 2.28e-3}):
        assert NUMBERS.judge(Rows([{**E3, **odd}])).verdict == "contradicted"
    assert NUMBERS.judge(Rows([SMALL])).verdict == "undecided"


def test_the_template_is_what_it_says() -> None:
    norms = template_norms(10, 2, 20)
    assert norms["query_key"] == pytest.approx(math.sqrt(22) * 2 * math.log(20) * math.sqrt(20))
    total = sum(each ** (2 / 3) for each in norms.values()) ** 3
    assert edelman_template(10, 2, 20, 10**6) == pytest.approx(math.sqrt(total * math.log(20 * 22e6) / 1e6))
    assert edelman_template(10, 2, 20, 10**6, printed_constant()) == pytest.approx(1.01)
    at = round(10 ** E3["crossover"])
    for samples, lower in ((at - at // 100, False), (at + at // 100, True)):
        assert (edelman_template(10, 2, 20, samples) < class_bound(10, 2, 20, samples).bound) == lower
    assert edelman_bound(10, 2, 20, 10**26) < edelman_bound(10, 2, 20, 10**22) < edelman_bound(10, 2, 20, 10**6)
    with pytest.raises(InputError, match="constant"):
        edelman_template(10, 2, 20, 10**6, 0.0)


def test_other_bounds_stand_in_their_order() -> None:
    assert E3["tight"] < E3["truncated"] < E3["mended"] < E3["released"]
    assert E3["groups"] < E3["truncated"]
    assert E3["groups"] < class_bound(10, 2, 20, 1_000_000, tight=True, sigma=E3["threshold"]).bound
    assert E3["certified"] == pytest.approx(E3["truncated"] * 2_500 ** (1 / 3), rel=1e-3)
    assert E3["mcallester"] > 1  # nothing is said of losses up to 1
    many = Formulas(20, 10**12).measure(_ignore)
    assert many["mcallester"] == pytest.approx(many["certified"], rel=1e-3)
    assert many["catoni"] < many["certified"]
    assert many["mended"] == pytest.approx(class_bound(10, 2, 20, 10**12, form="analytic", mend=True).bound)


def noisy(semi: float, spread: float = 1e-4, seeds: int = 5, samples: int = 1_000_000) -> list[dict[str, Any]]:
    about = {"kind": "measured", "length": 20, "samples": samples}
    values = [semi + spread * each for each in np.linspace(-1, 1, seeds)]
    return [{**about, "seed": seed, "semi": value, "semi_same": value} for seed, value in enumerate(values)]


def test_measured_bounds() -> None:
    assert SEMI.judge(Rows(noisy(0.327))).verdict == "reproduced"
    assert SEMI.judge(Rows(noisy(0.24))).verdict == "contradicted"
    assert SEMI.judge(Rows(noisy(0.327, 0.01))).verdict == "undecided"
    assert SEMI.judge(Rows(noisy(0.327, seeds=2))).verdict == "undecided"
    assert TRAINED.judge(Rows(noisy(0.9, samples=8_192))).verdict == "reproduced"
    assert TRAINED.judge(Rows(noisy(1.2, samples=8_192))).verdict == "contradicted"
    assert TRAINED.judge(Rows(noisy(1.0, samples=8_192))).verdict == "undecided"
    assert TRAINED.judge(Rows(noisy(0.9))).verdict == "undecided"


def test_which_is_smaller() -> None:
    assert TIGHTER.judge(Rows([E3, *noisy(0.24)])).verdict == "reproduced"
    assert TIGHTER.judge(Rows([E3, *noisy(1.5)])).verdict == "contradicted"
    assert TIGHTER.judge(Rows([{**E3, "truncated": 1.5}, *noisy(0.24)])).verdict == "contradicted"
    assert TIGHTER.judge(Rows([{**E3, "template": 0.2}, *noisy(0.24)])).verdict == "contradicted"
    assert TIGHTER.judge(Rows([E3])).verdict == TIGHTER.judge(Rows([E3, *noisy(1.0, 0.1)])).verdict == "undecided"


def test_crossover() -> None:
    def sweep(truncated: float, template: float, crossover: float | None = 9.0, most: int = 10) -> Rows:
        return Rows(
            {"kind": "formulas", "length": length, "samples": 10**k, "crossover": crossover, "crossover_scaled": 8.0}
            | {"truncated": 10 ** (truncated * k), "template": 10 ** (template * k)}
            for length in (10, 20)
            for k in range(6, most)
        )

    judged = CROSSOVER.judge(sweep(-1 / 3, -0.49))
    assert judged.verdict == "reproduced"
    assert "at T = 20 from 10^9.00 samples on" in judged.note
    assert CROSSOVER.judge(sweep(-0.4, -0.49)).verdict == "contradicted"
    assert CROSSOVER.judge(sweep(-1 / 3, -1 / 3)).verdict == "contradicted"
    assert CROSSOVER.judge(sweep(-1 / 3, -0.49, None)).verdict == "contradicted"
    assert CROSSOVER.judge(sweep(-1 / 3, -0.49, most=8)).verdict == "undecided"
    names = ("crossover", "crossover_scaled")
    partial = Rows({name: row[name] for name in row if name not in names} for row in sweep(-1 / 3, -0.49))
    assert CROSSOVER.judge(partial).verdict == "undecided"


@pytest.mark.parametrize(
    ("released", "mended", "verdict"),
    [(13.1, 7.8, "contradicted"), (13.1, 9.3, "reproduced"), (9.3, 7.8, "reproduced"), (None, None, "undecided")],
)
def test_samples_of_the_analytic_bound(released: float | None, mended: float | None, verdict: str) -> None:
    row = {**E3, "needed_released": released, "needed_mended": mended}
    assert NEEDED.judge(Rows([row])).verdict == verdict


def test_bounds_below_one() -> None:
    for claim, row, column in ((CERTIFIED, E3, "certified"), (GROUPS, SMALL, "groups")):
        assert claim.judge(Rows([{**row, column: 0.9}])).verdict == "reproduced"
        assert claim.judge(Rows([{**row, column: 1.1}])).verdict == "contradicted"
        assert claim.judge(Rows([{**row, "length": 10}])).verdict == "undecided"


def test_smoke() -> None:
    table, judged, figures = smoke_run(STUDY)
    verdicts = {claim.name: judgement.verdict for claim, judgement in judged}
    assert verdicts[NUMBERS.name] == verdicts[CROSSOVER.name] == verdicts[TIGHTER.name] == "reproduced"
    assert verdicts[TRAINED.name] == "contradicted"
    for row in table.where(kind="measured", samples=1_000_000):
        assert row["semi_same"] == pytest.approx(E3["truncated"] + E3["sigma"] ** 2 * row["perturbation"])
    assert [len(figure.panels) for figure in figures] == [3, 2]
    assert "0.2391" in STUDY.provenance(table)[1]
    assert tiling(20).sets[9] == (18, 19)
    with pytest.raises(InputError, match="even"):
        Formulas(7, 100)


def test_every_scale_constructs() -> None:
    assert {scale: len(STUDY.checked_trials(scale)) for scale in STUDY.scales} == {
        "smoke": 11,
        "laptop": 87,
        "paper": 102,
    }
