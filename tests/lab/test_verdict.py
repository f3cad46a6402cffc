from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate
from flipscope.lab.verdict import Judgement, all_of, at_least, at_most, between, consistent_with, never


def _estimate(low: float, value: float, high: float) -> Estimate:
    return Estimate(value, low, high, 0.95, 10)


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [((0, 1, 2), "reproduced"), ((0, 1, 3), "reproduced"), ((2, 3, 4), "undecided"), ((4, 5, 6), "contradicted")],
)
def test_at_most_three(ends: tuple[float, float, float], verdict: str) -> None:
    assert at_most(_estimate(*ends), 3, "q").verdict == verdict


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [((4, 5, 6), "reproduced"), ((3, 3, 3), "reproduced"), ((2, 3, 4), "undecided"), ((0, 1, 2), "contradicted")],
)
def test_at_least_three(ends: tuple[float, float, float], verdict: str) -> None:
    assert at_least(_estimate(*ends), 3, "q").verdict == verdict


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ((1, 1.5, 2), "reproduced"),
        ((0, 1.5, 2), "undecided"),
        ((1, 2, 3), "undecided"),
        ((-5, 0, 5), "undecided"),
        ((-2, -1, 0.5), "contradicted"),
        ((2.5, 3, 4), "contradicted"),
    ],
)
def test_between_one_and_two(ends: tuple[float, float, float], verdict: str) -> None:
    assert between(_estimate(*ends), 1, 2, "q").verdict == verdict


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ((-1.1, -1, -0.9), "reproduced"),
        ((-2, -1, 0), "undecided"),
        ((-0.9, -0.8, -0.7), "contradicted"),
        ((-1.0, -0.9, -0.8), "reproduced"),
        ((-1.0, -0.9, -0.7), "undecided"),
    ],
)
def test_consistent_with_minus_one(ends: tuple[float, float, float], verdict: str) -> None:
    assert consistent_with(_estimate(*ends), -1, 0.2 + 1e-12, "q").verdict == verdict


def test_never_once_is_reproduced_and_one_case_contradicts() -> None:
    clean = never(0, 100, "bound broken")
    assert (clean.verdict, clean.measured, clean.low) == ("reproduced", 0.0, 0.0)
    assert clean.high is not None
    assert 0.03 < clean.high < 0.04  # 1 - 0.025^(1/100)
    broken = never(1, 100, "bound broken", "at N = 8")
    assert (broken.verdict, broken.note) == ("contradicted", "1 of 100 cases; at N = 8")
    assert never(0, 0, "bound broken").verdict == "undecided"


def test_the_weakest_part_decides() -> None:
    good, open_, bad = (Judgement(v, v, 1.0, 0.0, 2.0) for v in ("reproduced", "undecided", "contradicted"))
    assert all_of([good, good]).verdict == "reproduced"
    assert all_of([good, open_]).quantity == "undecided"
    found = all_of([good, open_, bad])
    assert found.verdict == "contradicted"
    assert found.parts == (good, open_, bad)
    assert all_of([found, good]).parts == (good, open_, bad, good)  # flat, however they were put together
    assert all_of([good]) is good
    assert all_of([]).verdict == "undecided"


def test_nan_and_unknown_words_are_refused() -> None:
    with pytest.raises(InputError, match="NaN"):
        Judgement("undecided", "q", math.nan, None, None)
    with pytest.raises(InputError, match="perhaps"):
        Judgement("perhaps", "q", None, None, None)  # type: ignore[arg-type]


def test_json_has_no_infinity() -> None:
    told = at_least(_estimate(1, 2, math.inf), 0, "q", "n").as_json()
    assert told == {
        "measured": 2,
        "low": 1,
        "high": None,
        "verdict": "reproduced",
        "quantity": "q",
        "limit": "≥ 0",
        "note": "n",
        "remedy": "",
        "parts": [],
        "look": None,
    }


@pytest.mark.parametrize(
    ("found", "remedy"),
    [
        (
            at_most(_estimate(0, 2, 4), 3, "q", unit="models"),
            "about 30 more models",
        ),  # half the distance: 4 times as many
        (at_least(_estimate(2, 4, 6), 3, "q"), "about 30 more samples"),
        (consistent_with(_estimate(-0.2, 0, 0.2), 0, 0.1, "q"), "about 30 more samples"),
        (at_most(_estimate(2, 3, 4), 3, "q"), ""),  # at the limit itself no number decides
        (at_most(_estimate(0, 1, 2), 3, "q"), ""),
        (at_most(_estimate(4, 5, 6), 3, "q"), ""),
        (between(_estimate(0, 2, 2.5), 1, 9, "q"), "about 30 more samples"),
    ],
)
def test_an_undecided_claim_says_what_would_decide_it(found: Judgement, remedy: str) -> None:
    assert found.remedy == remedy


def test_limits_are_said() -> None:
    found = _estimate(0, 1, 2)
    said = [
        at_most(found, -0.85, "q"),
        between(found, 0, 3, "q"),
        consistent_with(found, 1, 0.5, "q"),
        never(0, 9, "q"),
    ]
    assert [each.limit for each in said] == ["≤ −0.85", "from 0 to 3", "1 ± 0.5", "never"]


ordered = st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3).map(sorted)


@given(ordered, st.floats(-1e6, 1e6))
def test_a_wider_interval_never_decides_otherwise(ends: list[float], limit: float) -> None:
    narrow = at_most(_estimate(*ends), limit, "q").verdict
    wide = at_most(_estimate(ends[0] - 1, ends[1], ends[2] + 1), limit, "q").verdict
    assert wide in (narrow, "undecided")


@given(ordered, st.floats(-1e6, 1e6))
def test_at_most_and_at_least_never_both_contradict(ends: list[float], limit: float) -> None:
    found = _estimate(*ends)
    assert {at_most(found, limit, "q").verdict, at_least(found, limit, "q").verdict} != {"contradicted"}
