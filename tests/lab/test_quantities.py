"""Claims as data: the text and the judge of a criterion are one object, and give what judges by hand give."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flipscope.lab as lab
from flipscope.lab import judges, quantities
from flipscope.lab.looks import judging


def table(rise: float, *, seeds: int = 6, noise: float = 0.1, kinds: tuple[str, ...] = ("a", "b")) -> lab.Rows:
    """Rows whose y rises with n, the seeds of each kind apart."""
    stream = np.random.default_rng(0)
    return lab.Rows(
        {"kind": kind, "seed": seed, "n": n, "y": rise * n + noise * stream.normal(), "kept": seed != 1}
        for kind in kinds
        for seed in range(seeds)
        for n in (4, 8, 16)
    )


def numbers(judged: lab.Judgement) -> list[tuple[Any, ...]]:
    return [(part.verdict, part.measured, part.low, part.high, part.limit) for part in judged.parts or (judged,)]


def test_the_text_says_which_rows_which_groups_and_which_limit() -> None:
    criterion = quantities.mean("y").where("kept models", kept=True).each("kind", ("a", "b")) >= 0.5
    assert criterion.text == "mean y of kept models, for each kind of a, b: at least 0.5"


@pytest.mark.parametrize(
    ("made", "rise", "verdict"),
    [
        (quantities.slope("y", "n") >= 0.5, 1.0, "reproduced"),
        (quantities.slope("y", "n") >= 0.5, 0.0, "contradicted"),
        (quantities.slope("y", "n").between(-0.1, 0.1), 0.0, "reproduced"),
        (quantities.slope("y", "n", per="seed") <= 0.5, 1.0, "contradicted"),
        (quantities.slope("y", "n", per="seed") > 0, 1.0, "reproduced"),
        (quantities.order("n", "y") >= 0.9, 1.0, "reproduced"),
        (quantities.order("n", "y") >= 0.9, -1.0, "contradicted"),
        (quantities.mean("y") <= 1.0, 1.0, "contradicted"),
        (quantities.share("share above 1", lambda row: row["y"] > 1) >= 0.5, 1.0, "reproduced"),
        (quantities.share("share above 1", lambda row: row["y"] > 1) >= 0.5, 0.0, "contradicted"),
    ],
    ids=lambda value: getattr(value, "text", str(value)),
)
def test_each_quantity_can_hold_and_can_fail(made: quantities.Criterion, rise: float, verdict: str) -> None:
    assert made(table(rise)).verdict == verdict


def test_groups_share_the_error_and_have_the_numbers_of_a_judge_by_hand() -> None:
    rows = table(1.0)
    made = quantities.mean("y").each("kind", ("a", "b")) >= 0.5
    by_hand = judges.for_each(
        rows.each("kind", ("a", "b")), judges.mean_of("y", lab.at_least, 0.5, "mean y", within=None), sort=True
    )
    assert numbers(made(rows)) == numbers(by_hand)


def test_a_look_with_a_smaller_error_has_wider_intervals() -> None:
    made, rows = quantities.mean("y") >= 0.5, table(1.0)
    with judging(0.001):
        later = made(rows)
    first = made(rows)
    assert later.low is not None
    assert first.low is not None
    assert later.low < first.low


def test_joined_comparisons_share_the_error_and_one_can_contradict() -> None:
    rows = table(1.0)
    high, low = quantities.mean("y") >= 0.5, quantities.slope("y", "n") <= 0.5
    both = high & low
    assert both.text == f"{high.text}; {low.text}"
    judged = both(rows)
    assert judged.verdict == "contradicted"
    assert len(judged.parts) == 2
    with judging(0.025):
        alone = high(rows)
    assert (judged.parts[0].low, judged.parts[0].high) == (alone.low, alone.high)


def test_a_group_without_rows_leaves_the_claim_undecided() -> None:
    made = quantities.mean("y").each("kind", ("a", "b", "missing")) >= 0.5
    assert made(table(1.0)).verdict == "undecided"
    assert (quantities.mean("y").where("nobody", kind="nobody") >= 0.5)(table(1.0)).verdict == "undecided"


def test_rows_that_do_not_count_still_make_up_groups() -> None:
    """Where no row of a group counts, that group is undecided; rows left out by `where` leave no group."""
    rows = table(1.0)

    def counted(of_group: lab.Rows) -> lab.Rows:
        return of_group.where(kept=True)

    made = quantities.mean("y").counting("kept models", counted).each("kind") >= 0.5
    chosen = quantities.mean("y").where("kept models", kept=True).each("kind") >= 0.5
    assert made.text == chosen.text
    assert numbers(made(rows)) == numbers(chosen(rows))
    lost = lab.Rows({**row, "kept": row["kept"] and row["kind"] == "a"} for row in rows)
    assert chosen(lost).verdict == "reproduced"
    judged = made(lost)
    assert (judged.verdict, len(judged.parts)) == ("undecided", 2)
    assert "no models that count" in judged.quantity


def test_of_equal_verdicts_the_weakest_is_shown_or_the_first() -> None:
    rows = lab.Rows({"kind": kind, "y": level + y} for kind, level in (("a", 5), ("b", 2)) for y in (0.1, 0.2, 0.3))
    assert (quantities.mean("y").each("kind") >= 0)(rows).quantity == "mean y, b"
    assert (quantities.mean("y").each("kind", weakest_first=False) >= 0)(rows).quantity == "mean y, a"


def test_a_line_needs_its_places_and_names_what_is_equal() -> None:
    rows = table(1.0).where(lambda row: row["n"] < 16)
    assert (quantities.slope("y", "n") >= 0.5)(rows).verdict == "reproduced"
    assert (quantities.slope("y", "n", places=3) >= 0.5)(rows).verdict == "undecided"
    assert (quantities.slope("y", "n", places=3) >= 0.5)(table(1.0)).verdict == "reproduced"
    assert (quantities.slope("y", "n", others=["seed"]) >= 0).text == "slope of y over n at equal seed: at least 0"


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_what_has_no_logarithm_is_evidence_for_nothing(value: float) -> None:
    rows = lab.Rows({**row, "y": abs(row["y"])} for row in table(1.0))
    made = quantities.slope("y", "n", log=True) >= 0.5
    assert made(rows).verdict == "reproduced"
    rows[0]["y"] = value
    assert made(rows).verdict == "undecided"


def test_nan_is_evidence_for_nothing() -> None:
    rows = table(1.0)
    rows[0]["y"] = math.nan
    for made in (
        quantities.mean("y") >= 0,
        quantities.slope("y", "n", per="seed") >= 0,
        quantities.slope("y", "n") >= 0,
        quantities.slope("n", "seed", others=["y"]) >= 0,
        quantities.slope("y", "n", log=True) >= 0,
    ):
        judged = made(rows)
        assert judged.verdict == "undecided"
        assert judged.measured is None


def test_a_difference_is_that_of_two_groups_and_can_be_paired() -> None:
    rows = lab.Rows(
        {"kind": kind, "seed": seed, "y": 10 * seed + (kind == "a")} for kind in ("a", "b") for seed in range(8)
    )
    sides = [(kind, lambda row, kind=kind: row["kind"] == kind) for kind in ("a", "b")]
    apart = quantities.difference("y", *sides) > 0
    paired = quantities.difference("y", *sides, paired="seed") > 0
    assert apart(rows).verdict == "undecided"  # the seeds differ by more than the kinds
    assert paired(rows).verdict == "reproduced"
    assert (quantities.difference("y", *reversed(sides), paired="seed") > 0)(rows).verdict == "contradicted"


@pytest.mark.parametrize("level", [1.0, 0.0])
def test_equal_rows_leave_an_interval_no_width_and_decide_nothing(level: float) -> None:
    rows = lab.Rows({"kind": kind, "y": level * (kind == "a")} for kind in ("a", "b") for _ in range(2))
    sides = [(kind, lambda row, kind=kind: row["kind"] == kind) for kind in ("a", "b")]
    assert (quantities.difference("y", *sides) > 0)(rows).verdict == "undecided"


def test_all_most_and_some_models_are_three_claims() -> None:
    rows = lab.Rows({"right": right} for right in [True] * 11 + [False])
    made = (quantities.all_models, quantities.most_models, quantities.some_model)
    assert [each("share", lambda row: row["right"])(rows).verdict for each in made] == [
        "contradicted",
        "reproduced",
        "reproduced",
    ]


def test_a_row_in_doubt_may_pass_or_fail() -> None:
    def judged(passed: int, failed: int, doubtful: int) -> lab.Judgement:
        answers = [True] * passed + [False] * failed + [None] * doubtful
        criterion = quantities.share("share that pass", lambda row: row["answer"]) >= 0.5
        return criterion(lab.Rows({"answer": answer} for answer in answers))

    assert judged(30, 5, 0).verdict == judged(30, 0, 5).verdict == "reproduced"
    assert judged(5, 30, 5).verdict == "contradicted"
    assert judged(10, 0, 30).verdict == judged(0, 10, 30).verdict == "undecided"
    assert judged(30, 0, 5).note == "5 of 35 models in doubt"
    assert numbers(judged(9, 4, 3)) == numbers(
        lab.mostly([True] * 9 + [False] * 4 + [None] * 3, 0.5, "share that pass", missing="")
    )


def test_too_few_rows_have_no_share() -> None:
    criterion = quantities.share("share that pass", lambda row: False, fewest=10) >= 0.5
    assert criterion(lab.Rows({} for _ in range(10))).verdict == "contradicted"
    judged = criterion(lab.Rows({} for _ in range(9)))
    assert (judged.verdict, judged.measured, judged.remedy) == ("undecided", None, "at least 10 models")


def test_a_computed_number_has_no_error() -> None:
    criterion = quantities.computed("bound").where("N = 20", n=20) <= 1
    assert criterion.text == "bound of N = 20: at most 1"
    for value, verdict in ((0.9, "reproduced"), (1.1, "contradicted"), (math.nan, "undecided")):
        judged = criterion(lab.Rows([{"n": 10, "bound": 5.0}, {"n": 20, "bound": value}]))
        assert judged.verdict == verdict
        assert judged.low == judged.high == judged.measured


def test_more_often_counts_the_rows_that_are_named() -> None:
    rows = lab.Rows({"kept": kept, "up": 10 * kept, "down": 10 * (not kept)} for kept in (True, False))
    assert quantities.more_often("share up", "up", "down")(rows).verdict == "undecided"
    kept = ("kept models", lambda row: row["kept"])
    assert quantities.more_often("share up", "up", "down", rows=kept)(rows).verdict == "reproduced"
    assert quantities.more_often("share down", "down", "up", rows=kept)(rows).verdict == "contradicted"


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30), st.floats(0.05, 0.95))
def test_a_mean_within_ends_is_the_judge_of_bounded_means(values: list[float], limit: float) -> None:
    rows = lab.Rows({"y": value} for value in values)
    made = (quantities.mean("y", within=(0, 1)) >= limit)(rows)
    by_hand = lab.at_least(lab.bounded_mean(values, 0, 1), limit, "mean y")
    assert numbers(made) == numbers(by_hand)


def test_a_claim_has_the_text_of_its_judge() -> None:
    criterion = quantities.never_exceeds("y", "bound", fewest=2)
    made = lab.claim("the bound holds", "Thm 1", "y is below its bound", criterion, asymptotic=True)
    assert made.criterion.startswith("y against bound: never above")
    assert made.asymptotic
    assert made.judge(lab.Rows({"y": 1.0, "bound": 2.0} for _ in range(3))).verdict == "reproduced"
    assert made.judge(lab.Rows({"y": 3.0, "bound": 2.0} for _ in range(3))).verdict == "contradicted"


@pytest.mark.parametrize(("seeds", "verdict"), [(3, "undecided"), (5, "undecided"), (6, "reproduced")])
def test_equal_rank_correlations_decide_only_if_a_sign_test_can(seeds: int, verdict: str) -> None:
    rows = lab.Rows({"seed": seed, "n": n, "y": n} for seed in range(seeds) for n in range(4))
    assert (quantities.order("n", "y") >= 0.5)(rows).verdict == verdict
