from __future__ import annotations

import math

import pytest

from flipscope.basics.estimates import Estimate, proportions
from flipscope.lab.judges import (
    Quotient,
    bound_holds,
    compare_groups,
    for_each,
    for_every,
    larger_mean,
    log_slope,
    mean_of,
    mean_slope,
    more_often,
    mostly,
    never_exceeds,
    of_models,
    rates,
    rates_below,
    share,
    share_of,
    share_where,
    slopes,
    student_mean,
    unless_few,
    weakest_first,
    with_fewest,
)
from flipscope.lab.looks import confidence, error_of, judging
from flipscope.lab.rows import Rows
from flipscope.lab.verdict import Judgement, Verdict, asymptotic, at_least, at_most, consistent_with

VALUES = Rows({"n": n, "value": value} for n, value in ((4, 0.9), (8, 0.5), (16, 0.1)))


def _estimate(value: float, reach: float = 0.1, samples: int = 10) -> Estimate:
    return Estimate(value, value - reach, value + reach, 0.95, samples)


def _judge(group: int, rows: Rows, confidence: float) -> Judgement:
    return at_least(_estimate(rows[0]["value"], 1 - confidence), 0.4, f"value at {group}")


def _with(verdict: Verdict, note: str = "") -> Judgement:
    return Judgement(verdict, "q", 1.0, 0.5, 1.5, note)


# ---------------------------------------------------------------- groups


def test_every_group_must_hold_and_shares_the_error() -> None:
    found = for_each(VALUES.by("n"), _judge)
    assert (found.verdict, found.quantity) == ("contradicted", "value at 16")
    assert found.note == "holds for 2 of 3 groups"
    assert [part.verdict for part in found.parts] == ["reproduced", "reproduced", "contradicted"]
    assert found.low == pytest.approx(0.1 - 0.05 / 3)
    assert for_each(VALUES.where(n=4).by("n"), _judge).low == pytest.approx(0.85)
    assert for_each(VALUES.by("n"), _judge, intervals=2, besides=1).low == pytest.approx(0.1 - 0.05 / 7)


def test_a_group_without_rows_leaves_the_claim_open_and_keeps_its_part_of_the_error() -> None:
    groups = VALUES.each("n", (4, 8, 32))
    found = for_each(groups, _judge, missing="no model is done")
    assert (found.verdict, found.quantity) == ("undecided", "32: no model is done")
    assert found.parts[0].low == pytest.approx(0.9 - 0.05 / 3)
    assert for_each(VALUES.each("n", (16, 32)), _judge).verdict == "contradicted"
    for none in ([], VALUES.each("n", (5, 6))):
        assert for_each(none, _judge, missing="no model is done").quantity == "no model is done"


def test_the_weakest_is_shown_if_asked_for() -> None:
    good = VALUES.where(lambda row: row["value"] > 0.4)
    assert for_each(good.by("n"), _judge).quantity == "value at 4"
    assert for_each(good.by("n"), _judge, sort=True).quantity == "value at 8"


def test_few_groups_reproduce_nothing_but_can_contradict() -> None:
    good = VALUES.where(lambda row: row["value"] > 0.4)
    found = for_each(good.by("n"), _judge, fewest=3, what="models")
    assert (found.verdict, found.note, found.remedy) == ("undecided", "too few models: 2", "at least 3 models")
    assert for_each(VALUES.where(n=16).by("n"), _judge, fewest=3).verdict == "contradicted"


def test_weakest_first_looks_at_the_side_of_the_limit() -> None:
    above = [at_least(_estimate(value), 0.0, str(value)) for value in (0.5, 0.3, 0.4)]
    assert [part.quantity for part in weakest_first(above)] == ["0.3", "0.4", "0.5"]
    below = [at_most(_estimate(value), 1.0, str(value)) for value in (0.5, 0.3, 0.4)]
    assert [part.quantity for part in weakest_first(below)] == ["0.5", "0.4", "0.3"]
    unknown = Judgement.without("none")
    assert weakest_first([*above, unknown])[0] is unknown


def _group(value: float, models: int, other: float | None = None) -> Rows:
    """So many models of two groups, all at this value, or those of the second at another."""
    values = {"a": value, "b": value if other is None else other}
    return Rows({"init": init, "y": values[init]} for init in values for _ in range(models))


def test_means_of_groups() -> None:
    least, most = mean_of("y", at_least, 0.9, "mean"), mean_of("y", at_most, 0.5, "mean", within=(0, 2), unit="runs")
    for judge, good, bad in ((least, 1.0, 0.6), (most, 0.0, 0.9)):
        found = for_each(_group(good, 60).by("init"), judge)
        assert (found.verdict, found.quantity, found.measured) == ("reproduced", "mean, a", pytest.approx(good))
        found = for_each(_group(good, 60, bad).by("init"), judge)
        assert (found.verdict, found.quantity, found.measured) == ("contradicted", "mean, b", pytest.approx(bad))
        assert for_each(_group(bad, 60).by("init"), judge).verdict == "contradicted"
    assert for_each(_group(0.9, 60).by("init"), least).verdict == "undecided"
    # Even if all lie at the end, (0.025/2)^(1/n) must be below the distance of the limit, 1/10 or 1/4 of the range.
    few = for_each(_group(1.0, 5).by("init"), least)
    assert (few.verdict, few.remedy) == ("undecided", "at least 42 models in each group")
    few = for_each(_group(0.0, 5).by("init"), most)
    assert (few.verdict, few.remedy) == ("undecided", "at least 16 runs in each group")


@pytest.mark.parametrize("within", [None, (0, 1)])
def test_a_mean_of_what_is_not_a_number_decides_nothing(within: tuple[float, float] | None) -> None:
    judge = mean_of("y", at_least, 0.9, "mean", within=within, unit="runs")
    rows = Rows([*_group(1.0, 60), {"init": "b", "y": math.nan}])
    found = for_each(rows.by("init"), judge)
    assert (found.verdict, found.quantity) == ("undecided", "mean, b: 1 of 61 runs have no number")
    assert for_each(Rows([*_group(0.5, 60, 1.0), *rows[-1:]]).by("init"), judge).verdict == "contradicted"  # by group a


def test_the_ends_of_a_mean_are_part_of_its_interval() -> None:
    narrow, wide = (mean_of("y", at_most, 0.5, "mean", within=(0, end)) for end in (1, 100))
    rows = _group(0.0, 20)
    assert (for_each(rows.by("init"), narrow).verdict, for_each(rows.by("init"), wide).verdict) == (
        "reproduced",
        "undecided",
    )


def test_shares_of_groups() -> None:
    least = share_where(lambda row: row["y"] < 1, at_least, 0.9, "share")
    most = share_where(lambda row: row["y"] < 1, at_most, 0.1, "share", unit="runs")
    for judge, good, bad in ((least, 0.0, 2.0), (most, 2.0, 0.0)):
        assert for_each(_group(good, 60).by("init"), judge).verdict == "reproduced"
        found = for_each(_group(good, 60, bad).by("init"), judge)
        assert (found.verdict, found.quantity) == ("contradicted", "share, b")
    (rows,) = (own for _, own in _group(0.0, 50).where(init="a").by("init"))
    found = least("a", Rows([*rows, {"init": "a", "y": 2.0}]), 0.9)
    assert (found.measured, found.low) == (pytest.approx(50 / 51), share(50, 51, 0.9).low)
    for judge, value, unit in ((least, 0.0, "models"), (most, 2.0, "runs")):
        few = for_each(_group(value, 5).by("init"), judge)
        assert (few.verdict, few.remedy) == ("undecided", f"at least 42 {unit} in each group")
        assert for_each(_group(value, 42).by("init"), judge).verdict == "reproduced"
        assert for_each(_group(value, 41).by("init"), judge).verdict == "undecided"


# ---------------------------------------------------------------- bounds


def test_a_bound_is_broken_by_one_interval_above_it() -> None:
    places = [Quotient("D = 2", _estimate(0.9)), Quotient("D = 3", _estimate(0.85))]
    held = bound_holds(places, "q", fewest=2, missing="none")
    assert (held.verdict, held.measured, held.limit) == ("reproduced", 0.9, "≤ 1")
    assert held.note == "largest at D = 2; 2 places, broken nowhere"
    broken = bound_holds([*places, Quotient("D = 4", _estimate(1.2))], "q", fewest=9, missing="none")
    assert (broken.verdict, broken.note) == ("contradicted", "largest at D = 4; 3 places, broken at D = 4")
    assert bound_holds(places, "q", fewest=3, missing="none").verdict == "undecided"
    assert bound_holds([], "q", fewest=1, missing="none").quantity == "none"


def test_rates_against_bounds() -> None:
    rows = Rows({"d": d, "hits": hits, "samples": 1000, "bound": 0.5} for d, hits in ((2, 400), (3, 440)))
    rows.append({"d": 9, "hits": 3, "bound": None})
    first, second = rates(rows, "hits", "samples", "bound")
    assert first["quotient"] == proportions([400], 1000, 1 - 0.05 / 2)[0].scaled(2)
    assert second["quotient"].value == pytest.approx(0.88)
    judge = rates_below("hits", "samples", "bound", "D = {d}", fewest=2)
    assert judge(rows).verdict == "reproduced"
    assert judge(Rows(rows[:1])).verdict == "undecided"
    assert judge(Rows([*rows, {"d": 4, "hits": 600, "samples": 1000, "bound": 0.5}])).note.endswith("broken at D = 4")
    assert judge(Rows()).verdict == "undecided"


def test_a_column_never_exceeds_its_bound() -> None:
    judge = never_exceeds("beta", "bound")
    rows = Rows([{"beta": 1.0, "bound": 2.0}, {"beta": 5.0, "bound": None}, {"beta": 2.0 * (1 + 1e-12), "bound": 2.0}])
    found = judge(rows)
    assert (found.verdict, found.note) == ("reproduced", "0 of 2 cases; largest quotient 1")
    assert judge(Rows([*rows, {"beta": 2.01, "bound": 2.0}])).verdict == "contradicted"
    for odd in ({"beta": float("nan"), "bound": 2.0}, {"beta": 1.0, "bound": float("nan")}):
        assert judge(Rows([*rows, odd])).verdict == judge(Rows([odd])).verdict == "undecided"
        assert judge(Rows([*rows, odd, {"beta": 2.01, "bound": 2.0}])).verdict == "contradicted"
    assert judge(rows.where(bound=None)).verdict == "undecided"


def test_a_bound_above_what_is_possible_is_not_judged() -> None:
    judge = never_exceeds("y", "bound", possible="most", fewest=3)
    telling = Rows({"y": 1.0, "bound": 2.0, "most": 5.0} for _ in range(3))
    vacuous = Rows({"y": 9.0, "bound": 5.0, "most": 5.0} for _ in range(4))
    found = judge(Rows([*telling, *vacuous]))
    assert (found.verdict, found.note) == (
        "reproduced",
        "0 of 3 cases; largest quotient 0.5; in 4 of 7 cases the bound says nothing",
    )
    assert judge(Rows([*telling[:2], *vacuous])).note == "too few cases that can fail: 2"
    assert judge(Rows([{**telling[0], "y": 3.0}, *vacuous])).verdict == "contradicted"
    assert (judge(vacuous).verdict, judge(vacuous).measured) == ("undecided", None)
    for column in ("y", "bound", "most"):  # what is not a number does not say nothing: it is no evidence
        odd = Rows([*telling, {**telling[0], column: math.nan}])
        assert (judge(odd).verdict, judge(odd).note[:6]) == ("undecided", "0 of 3")
        assert judge(odd).note.endswith("1 more gave no number")


# ---------------------------------------------------------------- what is left open


def test_too_few_cases_take_back_a_reproduction_only() -> None:
    good, bad = _with("reproduced"), _with("contradicted")
    assert unless_few(good, 3, 3, "models") is good
    assert unless_few(good, 2, 3, "models").remedy == "at least 3 models"
    assert unless_few(bad, 2, 3, "models") is bad


def test_an_asymptotic_theorem_is_not_contradicted() -> None:
    found = asymptotic(_with("contradicted", "N = 8"))
    assert (found.verdict, found.note) == ("undecided", "N = 8; the theorem may set in at a longer length")
    assert found.remedy == "longer strings"
    assert asymptotic(_with("contradicted")).note == "the theorem may set in at a longer length"
    for verdict in ("reproduced", "undecided"):
        assert asymptotic(_with(verdict)).verdict == verdict  # type: ignore[arg-type]


def test_the_fewest_samples_are_those_of_the_best_case() -> None:
    for reach in (0.1, 0.25, 0.5):
        few = share(5, 5)
        said = with_fewest(at_least(few, 1 - reach, "q"), few, reach, "models").remedy
        fewest = next(n for n in range(1, 100) if share(n, n).low >= 1 - reach)
        assert said == (f"at least {fewest} models" if fewest > 5 else "")
    enough = share(100, 200)
    undecided = at_least(enough, 0.5, "q", unit="models")
    assert with_fewest(undecided, enough, 0.5, "models") is undecided  # they are many, but tell nothing
    done = at_least(share(50, 50), 0.5, "q")
    assert with_fewest(done, share(50, 50), 0.5, "models") is done


def test_no_one_is_told_to_take_more_samples_than_there_are() -> None:
    near = Estimate(1e-192, -1.0, 1.0, 0.95, 10)
    assert (at_most(near, 0.0, "q").verdict, at_most(near, 0.0, "q").remedy) == ("undecided", "")
    assert consistent_with(near, 0.0, 1e-300, "q").remedy == ""
    assert at_most(_estimate(0.0, 0.2), 0.1, "q", unit="models").remedy == "about 30 more models"


# ---------------------------------------------------------------- numbers


def test_shares() -> None:
    assert share(3, 10) == proportions([3], 10, 0.95)[0]
    assert share_of(VALUES, lambda row: row["value"] > 0.4, 0.9) == proportions([2], 3, 0.9)[0]


def test_slopes_need_three_points() -> None:
    rows = Rows(
        {"seed": seed, "n": n, "y": 3.0 * n ** (-1.0 - seed), "z": 2.0 * n + seed}
        for seed in range(2)
        for n in ((8, 2, 4) if seed else (4, 2, 16))
    )
    assert slopes(rows, "n", "y", log=True) == pytest.approx([-1.0, -2.0])
    assert slopes(rows, "n", "z") == pytest.approx([2.0, 2.0])
    assert slopes(rows.where(lambda row: row["n"] < 16), "n", "z") == pytest.approx([2.0])
    rows.append({"seed": 1, "n": 32, "y": 0.0, "z": 65.0})
    assert slopes(rows, "n", "y", log=True) == pytest.approx([-1.0])  # 0 has no logarithm
    assert slopes(rows, "n", "z") == pytest.approx([2.0, 2.0])


def test_the_mean_slope_needs_five_models() -> None:
    rows = Rows({"seed": seed, "n": n, "y": n ** (-1.0 + 0.01 * seed)} for seed in range(5) for n in (2, 4, 8))
    found = log_slope(rows, "n", "y")
    assert found is not None
    assert (found.value, found.samples) == (pytest.approx(-0.98), 5)
    assert found.low < -0.98 < found.high
    assert log_slope(rows.where(lambda row: row["seed"] < 4), "n", "y") is None
    odd = Rows([*rows, *({"seed": 5, "n": n, "y": math.nan if n == 4 else 1.0} for n in (2, 4, 8))])
    assert [math.isnan(each) for each in slopes(odd, "n", "y", log=True)] == [False] * 5 + [True]
    assert log_slope(odd, "n", "y") is None  # the five others do not speak for all
    judged = mean_slope(odd, "n", "y", at_most, 0.0, "slope", fewest=3)
    assert (judged.verdict, judged.quantity) == ("undecided", "slope: 1 of 6 seeds have no number")


def test_groups_are_compared_paired_or_not() -> None:
    first, second = [1.0, 2.0, 9.0], [0.0, 1.1, 7.9]
    paired, apart = compare_groups(first, second, paired=True), compare_groups(first, second)
    assert paired.value == pytest.approx(apart.value)
    assert paired.low > 0 > apart.low
    assert compare_groups(second, first).value == pytest.approx(-apart.value)
    assert math.isclose(compare_groups([1.0, 1.0], [3.0, 3.0]).high, -2.0)
    with pytest.raises(ValueError, match="zip"):
        compare_groups(first, second[:2], paired=True)


def test_every_row_has_its_part_of_the_error() -> None:
    rows = Rows({"right": right} for right in (100, 99, 70))
    levels: list[float] = []

    def judge(row: dict[str, int], level: float) -> Judgement:
        levels.append(level)
        return at_least(share(row["right"], 100, level), 0.8, f"{row['right']} %")

    assert for_every(Rows(rows[:2]), judge, intervals=2, fewest=2).verdict == "reproduced"
    assert levels == pytest.approx([1 - 0.05 / 4] * 2)
    assert for_every(Rows(rows[:2]), judge, fewest=3, what="models").note == "too few models: 2"
    assert for_every(rows, judge).quantity == "70 %"
    assert for_every(Rows(), judge, missing="nothing learned").quantity == "nothing learned"


def test_larger_means() -> None:
    def rows(*values: float) -> Rows:
        return Rows({"y": value} for value in values)

    low, high = rows(1.0, 2.0, 1.5), rows(8.0, 9.0, 8.5)
    assert larger_mean(high, low, "y", "q").verdict == "reproduced"
    assert larger_mean(low, high, "y", "q").verdict == "contradicted"
    assert larger_mean(low, rows(1.1, 2.1, 1.4), "y", "q").verdict == "undecided"
    assert larger_mean(rows(3.0, 3.0), rows(3.0, 3.0), "y", "q").verdict == "undecided"  # equal is not larger
    # Without spread an interval has no width; four against four is what ranks alone can decide.
    assert larger_mean(rows(3.0, 3.0), rows(1.0, 1.0), "y", "q").verdict == "undecided"
    assert larger_mean(rows(*[3.0] * 4), rows(*[1.0] * 4), "y", "q").verdict == "reproduced"
    few = larger_mean(high, rows(1.0), "y", "q", unit="models")
    assert (few.verdict, few.remedy) == ("undecided", "at least 2 models of each")


def test_answers_in_doubt_widen_the_interval() -> None:
    sure = mostly([True] * 30 + [False] * 2, 0.5, "q", missing="none")
    assert (sure.verdict, sure.measured, sure.note) == ("reproduced", 30 / 32, "0 of 32 models in doubt")
    assert (sure.low, sure.high) == (share(30, 32).low, share(30, 32).high)
    doubt = mostly([True] * 10 + [None] * 22, 0.5, "q", missing="none", unit="runs")
    assert (doubt.verdict, doubt.note) == ("undecided", "22 of 32 runs in doubt")
    assert (doubt.low, doubt.high) == (share(10, 32).low, share(32, 32).high)
    assert mostly([True] * 2 + [None] * 3 + [False] * 40, 0.5, "q", missing="none").verdict == "contradicted"
    assert mostly([], 0.5, "q", missing="none").quantity == "none"


def test_means_without_ends_have_student_s_interval() -> None:
    judge = mean_of("y", at_least, 0.0, "rho", within=None, fewest=5, unit="drawings")

    def rows(middle: float, spread: float, models: int = 5) -> Rows:
        return Rows({"n": 3, "y": middle + spread * (place - (models - 1) / 2)} for place in range(models))

    found = for_each(rows(0.5, 0.1).by("n"), judge)
    assert (found.verdict, found.quantity, found.measured) == ("reproduced", "rho, 3", pytest.approx(0.5))
    assert for_each(rows(-0.5, 0.1).by("n"), judge).verdict == "contradicted"
    assert for_each(rows(0.5, 5.0).by("n"), judge).verdict == "undecided"
    few = for_each(rows(0.5, 0.1, 4).by("n"), judge)
    assert (few.verdict, few.quantity, few.remedy) == ("undecided", "too few drawings, 3: 4", "at least 5 drawings")


def test_the_mean_of_slopes_is_judged() -> None:
    def rows(slope: float, noise: float, seeds: int = 5) -> Rows:
        own = [slope + noise * (-1) ** seed * seed for seed in range(seeds)]
        return Rows({"seed": seed, "n": n, "y": own[seed] * n} for seed in range(seeds) for n in (2, 4, 8))

    def verdict(table: Rows) -> str:
        return mean_slope(table, "n", "y", at_most, 0.0, "slope", fewest=3).verdict

    assert [verdict(rows(slope, 0.01)) for slope in (-1.0, 1.0)] == ["reproduced", "contradicted"]
    assert verdict(rows(-1.0, 5.0)) == "undecided"
    few = mean_slope(rows(-1.0, 0.01, 2), "n", "y", at_most, 0.0, "slope", fewest=3)
    assert (few.verdict, few.remedy) == ("undecided", "at least 3 seeds")
    assert verdict(rows(-1.0, 0.01).where(lambda row: row["n"] < 8)) == "undecided"  # two points are no line


def test_what_is_met_more_often() -> None:
    judge = more_often("a", "b", "share of a", unit="draws")

    def found(a: int, b: int) -> Judgement:
        return for_each(Rows([{"n": 4, "a": a, "b": 0}, {"n": 4, "a": 0, "b": b}]).by("n"), judge)

    assert [found(*pair).verdict for pair in ((50, 2), (2, 50), (5, 5), (0, 0))] == [
        "reproduced",
        "contradicted",
        "undecided",
        "undecided",
    ]
    assert found(30, 10).measured == 0.75
    assert (found(0, 0).measured, found(0, 0).remedy) == (None, "more draws")


# ---------------------------------------------------------------- looks


def test_judges_take_the_error_of_the_look() -> None:
    values, hits = [1.0, 2.0, 4.0], Rows({"y": y} for y in (0.2, 0.9, 0.4) * 9)
    first = [student_mean(values), share(3, 9), compare_groups(values, [0.0, 1.0]), log_slope(_lines(), "n", "y")]
    with judging(error_of(2)):
        second = [student_mean(values), share(3, 9), compare_groups(values, [0.0, 1.0]), log_slope(_lines(), "n", "y")]
        wide = for_each([("a", hits)], mean_of("y", at_least, 0.5, "q"))
    narrow = for_each([("a", hits)], mean_of("y", at_least, 0.5, "q"))
    for before, after in zip(first, second, strict=True):
        assert before is not None
        assert after is not None
        assert after.confidence == pytest.approx(1 - 0.05 / 6)
        assert after.low < before.low < before.high < after.high
    assert wide.low is not None
    assert narrow.low is not None
    assert wide.low < narrow.low
    assert confidence() == 0.95  # as before


def _lines() -> Rows:
    return Rows({"seed": seed, "n": n, "y": n ** (1 + seed / 9)} for seed in range(5) for n in (1, 2, 4))


def test_all_looks_together_stay_within_one_and_a_half_times_the_first() -> None:
    assert sum(error_of(look) for look in range(1, 2000)) < 0.075
    assert sum(error_of(look, declared=4) for look in range(1, 5)) == pytest.approx(0.05)


def test_what_would_decide_is_told_at_the_level_of_the_next_look() -> None:
    found = student_mean([0.0, 1.0, 2.0, 3.0, 4.0, 5.0] * 4)
    with judging(0.05, following=0.05):
        same = at_least(found, 2.4, "q")
    with judging(0.05, following=0.05 / 6):
        later = at_least(found, 2.4, "q")
    assert (same.remedy, later.remedy) == ("about 2,000 more samples", "about 3,000 more samples")


def test_all_most_and_some_models_are_three_claims() -> None:
    one_stuck = Rows({"y": y} for y in [1.0] * 9 + [0.5])

    def learned(row: dict[str, float]) -> bool:
        return row["y"] > 0.9

    said = {how: of_models(one_stuck, learned, how, "q") for how in ("all", "most", "some")}  # type: ignore[arg-type]
    assert {how: judged.verdict for how, judged in said.items()} == {
        "all": "contradicted",
        "most": "reproduced",
        "some": "reproduced",
    }
    assert said["most"].note == "9 of 10 models"
    three = of_models(Rows({"y": y} for y in (1.0, 1.0, 0.5)), learned, "most", "q")
    assert (three.verdict, three.note, three.remedy) == ("undecided", "2 of 3 models", "at least 6 models")
    none = [of_models(Rows({"y": 0.5} for _ in range(count)), learned, "some", "q").verdict for count in (10, 100)]
    assert none == ["undecided", "contradicted"]
    assert of_models(Rows(), learned, "some", "q").verdict == "undecided"


def test_a_bound_is_reproduced_only_by_whole_intervals() -> None:
    places = [Quotient("N = 8", Estimate(0.99, 0.976, 1.011, 0.95, 100))]
    judged = bound_holds(places, "q", fewest=1, missing="none")
    assert (judged.verdict, judged.remedy) == ("undecided", "more samples there")
    sharp = bound_holds(places, "q", fewest=1, missing="none", sharp=0.05)
    assert (sharp.verdict, sharp.limit) == ("reproduced", "≤ 1, to within 0.05 as it is sharp")
    above = [Quotient("N = 8", Estimate(1.02, 1.01, 1.03, 0.95, 100))]
    assert bound_holds(above, "q", fewest=1, missing="none", sharp=0.05).verdict == "contradicted"
