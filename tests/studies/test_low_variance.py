from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from studies.harness import smoke_run

from flipscope.bounds.geometry import corrected_over_printed
from flipscope.lab import Result, Rows, judging, share
from flipscope.studies.geometry.low_variance import SHOWN, STUDY, Centre, Law, Variance, in_cylinder

PRINTED, CORRECTED, GAUSSIAN = STUDY.claims


def _variance(width: int, ratio: float, hits: int, samples: int = 10**6, law: Law = "cube") -> dict[str, Any]:
    return STUDY.row(Variance(width, ratio, 1.0, "zero", law, 0, samples), {"hits": hits})


def _quiet(count: int) -> list[dict[str, Any]]:
    """Settings in which the bounds say something, and nothing was met."""
    return [_variance(3, 0.3 + 0.01 * number, 0) for number in range(count)]


def test_smoke_breaks_the_printed_lemma_up_to_width_4() -> None:
    table, judgements, figures = smoke_run(STUDY)
    assert len(table) == len(STUDY.checked_trials("smoke"))
    found = {claim.name: judgement for claim, judgement in judgements}
    assert found[PRINTED.name].verdict == "contradicted"
    assert "broken at D = 2, D = 4" in found[PRINTED.name].note
    assert [found[claim.name].verdict for claim in (CORRECTED, GAUSSIAN)] == ["reproduced"] * 2
    assert [figure.name for figure in figures] == ["low-variance"]  # no width 3, no picture


def test_probabilities_are_counted_right() -> None:
    # D = 2: the variance of (a, b) is (a - b)^2 / 4, so P(variance < eta^2) = P(|a - b| < 2 eta).
    eta, draws = 0.5 / math.sqrt(2), 200_000
    exact = {"cube": 1 - (1 - eta) ** 2, "gaussian": math.erf(eta)}
    exact["cylinder"] = exact["cube"] / (2 * eta)  # the corrected bound is 2 eta
    for law, probability in exact.items():
        found = Variance(2, 0.5, 1.0, "zero", law, 0, draws).measure(lambda done, total: None)  # type: ignore[arg-type]
        assert found["hits"] / draws == pytest.approx(probability, abs=0.005)


@pytest.mark.parametrize(("width", "ratio"), [(2, 0.9), (3, 0.3), (4, 0.7), (6, 0.8)])
@pytest.mark.parametrize("centre", ["zero", "random"])
def test_the_cylinder_gives_the_probability_that_the_cube_gives(width: int, ratio: float, centre: Centre) -> None:
    draws, quiet = 200_000, lambda done, total: None
    cube, cylinder = (
        share(Variance(width, ratio, 1.0, centre, law, 3, draws).measure(quiet)["hits"], draws, 0.9999)
        for law in ("cube", "cylinder")
    )
    factor = corrected_over_printed(width) * ratio ** (width - 1)
    assert cylinder.low * factor <= cube.high
    assert cube.low <= cylinder.high * factor
    assert cube.half_width < 0.2 * cube.value


@given(st.integers(2, 9), st.floats(0.05, 0.95), st.integers(0, 2**20))
def test_points_of_the_cylinder_have_a_small_variance(width: int, ratio: float, seed: int) -> None:
    stream = np.random.default_rng(seed)
    centre = stream.uniform(-2, 2, width)
    points = in_cylinder(stream, 50, centre, ratio, 1.0)
    assert ((points + centre).var(axis=1) <= ratio**2 / width * (1 + 1e-9)).all()
    assert (np.abs(points.mean(axis=1)) <= 1 + np.abs(centre.mean())).all()


@pytest.mark.parametrize(
    ("hits", "printed", "sharp"),
    [
        (0.1, "reproduced", "reproduced"),
        (0.999, "undecided", "reproduced"),  # an interval that reaches beyond 1
        (1.001, "undecided", "reproduced"),
        (1.02, "contradicted", "contradicted"),
    ],
)
def test_only_an_interval_above_the_bound_breaks_it(hits: float, printed: str, sharp: str) -> None:
    # The printed bound is 0.5, the corrected one 0.707, which is sharp.
    assert PRINTED.judge(Rows([_variance(2, 0.5, round(hits * 500_000)), *_quiet(7)])).verdict == printed
    assert CORRECTED.judge(Rows([_variance(2, 0.5, round(hits * 707_107)), *_quiet(7)])).verdict == sharp


def test_an_interval_that_reaches_far_beyond_a_sharp_bound_leaves_it_open() -> None:
    allowed = round(10**6 * _variance(3, 0.09, 0)["corrected"])  # about 11,000 hits, and as many are met
    table = Rows([_variance(3, 0.09, allowed), *_quiet(7)])
    assert CORRECTED.judge(table).verdict == "reproduced"
    with judging(1e-9):
        found = CORRECTED.judge(table)
    assert (found.verdict, found.remedy) == ("undecided", "more samples there")
    assert "reach beyond the bound" in found.note


def test_one_broken_setting_is_enough_and_is_named() -> None:
    found = PRINTED.judge(Rows([_variance(8, 0.95, 0), _variance(3, 0.5, 340_000)]))
    assert found.verdict == "contradicted"
    assert "broken at D = 3" in found.note
    assert CORRECTED.judge(Rows([_variance(3, 0.5, 330_000), *_quiet(7)])).verdict == "reproduced"  # its bound is 0.34
    assert GAUSSIAN.judge(Rows([_variance(2, 0.5, 440_000, law="gaussian")])).verdict == "contradicted"  # 0.399


def test_a_bound_that_a_count_cannot_exceed_is_not_judged() -> None:
    capped = Rows(_variance(2, 0.75 + 0.01 * number, 10**6) for number in range(20))  # the corrected bound is 1
    assert CORRECTED.judge(capped).verdict == "undecided"
    rare = Rows(_variance(16, 0.2 + 0.01 * number, 0) for number in range(20))  # no hit is allowed, and none was met
    assert {claim.judge(rare).verdict for claim in STUDY.claims} == {"undecided"}
    wide = Rows(_variance(5, 0.2 + 0.01 * number, 10**6, law="cylinder") for number in range(20))  # 0.69 at most
    assert PRINTED.judge(wide).verdict == "undecided"


def test_few_settings_show_no_bound_to_hold() -> None:
    assert CORRECTED.judge(Rows(_quiet(7))).verdict == "undecided"
    assert CORRECTED.judge(Rows(_quiet(8))).verdict == "reproduced"


def test_the_picture_has_the_cube_and_the_cylinder() -> None:
    trial = Variance(3, 0.5, 1.0, "zero", "cylinder", 0, 2_000)
    table = STUDY.summarise([Result(trial, trial.measure(lambda done, total: None), 0.0)])
    (panel,) = STUDY.draw(table)[1].panels
    edges, inside, outside = panel.series
    assert sum(value is None for value in edges.y) == 12
    assert len(inside.x) + len(outside.x) == SHOWN
    assert len(inside.x) > len(outside.x) > 0


def test_every_scale_constructs() -> None:
    assert {scale: len(STUDY.checked_trials(scale)) for scale in STUDY.scales} == {
        "smoke": 180,
        "demo": 360,
        "laptop": 480,
        "paper": 540,
    }
