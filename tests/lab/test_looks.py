"""Looks: how often a claim was judged, what that costs, and what cannot be judged any more."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from repetitions import repeated

from flipscope import lab
from flipscope.basics.progress import Progress
from flipscope.lab.context import DATABASE
from flipscope.lab.findings import Findings, findings
from flipscope.lab.history import Data, Look, alike, interim, limits_of, look_at
from flipscope.lab.looks import ALPHA, error_of, judging
from flipscope.lab.rows import Rows
from flipscope.lab.run.driver import run_study
from flipscope.lab.run.runner import InProcess
from flipscope.lab.store.repair import repair, verify
from flipscope.lab.store.store import Store
from flipscope.lab.study import Claim, Outcome, Scale, Study, Trial
from flipscope.lab.verdict import Judgement


def mean_at_least(limit: float) -> Callable[[Rows], Judgement]:
    return lambda table: lab.at_least(lab.student_mean(table.column("value")), limit, "mean value")


def claim(limit: float = 0.0, **options: Any) -> Claim:
    return Claim("mean", "Fig 1", "the mean is positive", "mean", mean_at_least(limit), **options)


def data(values: Iterable[tuple[int, float]]) -> Data:
    """Trials by their seeds, each with a value."""
    known = {str(seed): value for seed, value in values}

    def table(chosen: frozenset[str]) -> Rows:
        return Rows({"seed": seed, "value": value} for seed, value in known.items() if seed in chosen)

    return Data({seed: repr(value) for seed, value in known.items()}, table)


def drawn(seeds: Sequence[int]) -> list[tuple[int, float]]:
    return [(seed, float(np.random.default_rng(seed).normal(0.3))) for seed in seeds]


def looked(judge: Claim, values: Iterable[tuple[int, float]], looks: list[Look], **options: Any) -> Judgement:
    """The judgement; a new look is added to the list."""
    found, new = look_at(judge, data(values), looks, **options)
    looks += [] if new is None else [new]
    return found


# ---------------------------------------------------------------- which look a judgement is


def test_judging_the_same_trials_again_is_the_same_look() -> None:
    looks: list[Look] = []
    first, again = (looked(claim(), drawn(range(8)), looks) for _ in range(2))
    assert first == again
    assert len(looks) == 1
    assert first.seen is not None
    assert (first.seen.standing, first.seen.number, first.seen.error, first.seen.text) == ("look", 1, ALPHA, "")


def test_more_seeds_are_the_next_look_at_a_smaller_error() -> None:
    looks: list[Look] = []
    found = [looked(claim(), drawn(range(count)), looks) for count in (6, 12, 24)]
    assert [each.seen and each.seen.text for each in found] == ["", "look 2, at 99.2 %", "look 3, at 99.6 %"]
    alone = claim().judged(data(drawn(range(24))).table(frozenset(map(str, range(24)))))
    assert found[2].measured == alone.measured
    assert found[2].low is not None
    assert alone.low is not None
    assert found[2].low < alone.low  # judged at the smaller error
    assert looked(claim(), drawn(range(24)), looks) == found[2]  # and so it stays


def test_a_rewording_is_the_same_look_and_a_moved_limit_is_exploratory() -> None:
    looks: list[Look] = []
    first = looked(claim(), drawn(range(8)), looks)
    reworded = Claim(
        "mean", "Fig 1", "other words", "others", lambda t: lab.at_least(lab.student_mean(t.column("value")), 0.0, "y")
    )
    assert looked(reworded, drawn(range(8)), looks).low == first.low
    assert len(looks) == 1
    moved = looked(claim(-0.5), drawn(range(8)), looks)
    assert moved.seen is not None
    assert moved.seen.text == "exploratory: the criterion changed after look 1 at these trials: new seeds would decide"
    assert looked(claim(-0.5), drawn(range(8)), looks) == moved  # kept, and told again in the same words
    # More seeds do not help: they contain the old trials.
    more = looked(claim(-0.5), drawn(range(16)), looks)
    assert more.seen is not None
    assert more.seen.standing == "exploratory"
    # Seeds that no look has used do.
    fresh = looked(claim(-0.5), drawn(range(100, 108)), looks)
    assert fresh.seen is not None
    assert (fresh.seen.standing, fresh.seen.number, fresh.seen.error) == ("look", 2, error_of(2))


def test_an_exploratory_judgement_decides_nothing_and_notes_what_it_would_be() -> None:
    looks: list[Look] = []
    looked(claim(), drawn(range(8)), looks)
    for _ in range(2):  # as it is made, and as it is found again
        moved = looked(claim(-3.0), drawn(range(8)), looks)
        assert (moved.verdict, moved.note) == ("undecided", "by this rule it would be reproduced")
        assert [look.judgement["verdict"] for look in looks] == ["undecided", "reproduced"]


def test_a_changed_choice_of_rows_is_another_criterion() -> None:
    looks: list[Look] = []
    looked(claim(), drawn(range(8)), looks)

    def positive(table: Rows) -> Judgement:
        return lab.at_least(lab.student_mean([v for v in table.column("value") if v > 0]), 0.0, "mean value")

    found = looked(Claim("mean", "Fig 1", "s", "c", positive), drawn(range(16)), looks)
    assert found.seen is not None
    assert found.seen.standing == "exploratory"


def test_trials_of_a_look_cannot_be_left_out() -> None:
    looks: list[Look] = []
    looked(claim(), drawn(range(8)), looks)
    found = looked(claim(), drawn(range(2, 20)), looks)
    assert found.seen is not None
    assert found.seen.text == "exploratory: some trials of look 1 were left out: new seeds would decide"


def test_trials_measured_again_with_other_results_are_the_next_look() -> None:
    looks: list[Look] = []
    looked(claim(), drawn(range(8)), looks)
    found = looked(claim(), [(seed, value + 0.1) for seed, value in drawn(range(8))], looks)
    assert found.seen is not None
    assert (found.seen.standing, found.seen.number) == ("look", 2)


def test_withdrawn_trials_do_not_count() -> None:
    looks: list[Look] = []
    looked(claim(), drawn(range(8)), looks, revision=1)
    found = looked(claim(0.1), drawn(range(8)), looks, revision=2, withdrawn={1: "rows were drawn twice"})
    assert found.seen is not None
    assert (found.seen.standing, found.seen.number, found.seen.error) == ("look", 1, ALPHA)
    assert len({look.key for look in looks}) == 2


def test_declared_looks_share_the_error() -> None:
    looks: list[Look] = []
    found = [looked(claim(), drawn(range(count)), looks, declared=2) for count in (6, 12, 24)]
    assert [each.seen and each.seen.error for each in found] == [ALPHA / 2, ALPHA / 2, ALPHA / 12]


def test_intervals_that_hold_at_any_time_cost_nothing_while_seeds_are_added() -> None:
    def judge(table: Rows) -> Judgement:
        hits = sum(value > 0 for value in table.column("value"))
        return lab.at_least(lab.share(hits, len(table), validity="anytime"), 0.5, "share")

    asked = Claim("mean", "Fig 1", "s", "c", judge, anytime=True)
    looks: list[Look] = []
    found = [looked(asked, drawn(range(count)), looks) for count in (6, 12)]
    assert [each.seen and (each.seen.number, each.seen.error) for each in found] == [(1, ALPHA), (2, ALPHA)]
    other = looked(asked, drawn(range(50, 60)), looks)  # another sample, which that promise says nothing about
    assert other.seen is not None
    assert other.seen.error == error_of(3)


def test_what_makes_two_judgements_alike() -> None:
    one = Judgement("reproduced", "q", 0.5, 0.4, 0.6, limit="≥ 0.3").as_json()

    def same(**changes: Any) -> bool:
        other = {**one, **changes}
        return alike(one, other, limits_of(one), limits_of(other))

    assert same(quantity="other words", note="n", low=0.4 * (1 + 1e-9))
    assert same(limit="≥ 0.30 of all")  # the wording of a limit does not count, its numbers do
    for changes in (
        {"low": 0.41},
        {"limit": "≥ 0.2"},
        {"limit": "≤ 0.3"},
        {"verdict": "undecided"},
        {"measured": None},
    ):
        assert not same(**changes)
    assert not same(parts=[one, one])


def test_a_look_keeps_what_it_rests_on(tmp_path: Path) -> None:
    run(Draws(range(8)), tmp_path)
    with Store(tmp_path) as store:
        ((_, look),) = store.looks("draws")
        hashes = {trial.hash for trial in Draws(range(8)).trials("smoke")}
        assert look.outcomes.keys() == look.trials == hashes
        assert (look.declared, look.limit_by, look.revision) == (1, "", 1)
        assert look.limits == limits_of(look.judgement)
        assert set(look.outcomes.values()) <= {record.digest for record in store.records(store_keys(store))[0].values()}


def store_keys(store: Store) -> list[str]:
    return [row["key"] for row in store.rows("results")]


def test_a_part_of_the_plan_decides_nothing() -> None:
    parts = (Judgement("contradicted", "a", 1.0, 0.5, 1.5),)
    found = interim(Judgement("contradicted", "a", 1.0, 0.5, 1.5, "note", parts=parts), 30, 1000)
    assert (found.verdict, found.note) == ("undecided", "30 of 1,000 trials, contradicted so far; note")
    assert [part.verdict for part in found.parts] == ["undecided"]
    assert found.seen is not None
    assert found.seen.text == "interim"


# ---------------------------------------------------------------- in a results folder


@dataclass(frozen=True)
class Draw(Trial):
    seed: int

    def measure(self, progress: Progress) -> Outcome:
        return {"value": float(np.random.default_rng(self.seed).normal(0.3))}


class Draws(Study):
    """A study whose plan and claims the tests exchange."""

    name = "draws"
    paper = "000"
    title = "A study for tests"
    scales = {"smoke": Scale(0.1, {}, "all of it")}
    claims: ClassVar[tuple[Claim, ...]] = (claim(),)

    def __init__(self, seeds: Sequence[int], limit: float = 0.0) -> None:
        self.seeds, self.claims = seeds, (claim(limit),)  # type: ignore[misc]

    def trials(self, scale: str) -> Sequence[Draw]:
        return [Draw(seed) for seed in self.seeds]


def run(study: Study, folder: Path, limit: int | None = None) -> Findings:
    with Store(folder) as store:
        return run_study(study, "smoke", store, InProcess(), limit=limit)


def standing(found: Findings) -> str:
    ((_, judgement),) = found.judgements
    assert judgement.seen is not None
    return judgement.seen.text


def test_a_run_keeps_its_looks_whatever_is_forgotten(tmp_path: Path) -> None:
    part = run(Draws(range(8)), tmp_path, limit=3)
    assert (standing(part), len(part.looks)) == ("interim", 0)
    first = run(Draws(range(8)), tmp_path)
    assert (standing(first), len(first.looks)) == ("", 1)
    assert len(run(Draws(range(8)), tmp_path).looks) == 1
    with Store(tmp_path) as store:
        assert store.forget_study("draws") == 8
        assert store.prune(lambda study, code: False).results == 0
    assert len(run(Draws(range(8)), tmp_path).looks) == 1  # measured again with the same results
    second = run(Draws(range(16)), tmp_path)
    assert (standing(second), len(second.looks)) == ("look 2, at 99.2 %", 2)
    moved = run(Draws(range(16), limit=-1.0), tmp_path)
    assert standing(moved).startswith("exploratory: the criterion changed after look 1")
    third = run(Draws(range(100, 116), limit=-1.0), tmp_path)
    assert standing(third) == "look 3, at 99.6 %"
    told = third.as_json()["looks"]
    assert [(look["number"], look["exploratory"]) for look in told] == [(1, False), (2, False), (3, True), (3, False)]
    assert told[0]["measured"] == pytest.approx(first.judgements[0][1].measured)
    with Store(tmp_path) as store:
        assert standing(findings(Draws(range(100, 116), limit=-1.0), "smoke", store)) == standing(third)


def test_a_folder_that_cannot_be_written_is_judged_all_the_same(tmp_path: Path) -> None:
    run(Draws(range(8)), tmp_path)
    with Store(tmp_path) as store:
        store.writable = False
        assert standing(findings(Draws(range(8), limit=-1.0), "smoke", store)).startswith("exploratory")
        assert len(store.looks("draws")) == 1


def test_two_processes_do_not_make_the_same_look(tmp_path: Path) -> None:
    run(Draws(range(8)), tmp_path)
    with Store(tmp_path) as store:
        ((_, look),) = store.looks("draws")
        assert not store.add_look("draws", "smoke", look)
        assert store.add_look("draws", "laptop", look)  # of another scale
        assert [scale for scale, _ in store.looks("draws")] == ["smoke", "laptop"]
        assert [each.data for _, each in store.looks("draws", "laptop")] == [look.data]


def test_looks_survive_a_repair_and_are_verified(tmp_path: Path) -> None:
    run(Draws(range(8)), tmp_path)
    assert repair(tmp_path).damaged == 0
    with Store(tmp_path) as store:
        assert len(store.looks("draws")) == 1
        assert not verify(store).damaged
    with closing(sqlite3.connect(tmp_path / DATABASE)) as database:
        database.execute("UPDATE looks SET number = 7")
        database.commit()
    with Store(tmp_path) as store:
        assert [finding.what for finding in verify(store).damaged] == ["look"]
        assert store.looks("draws") == []


# ---------------------------------------------------------------- what three looks cost


def _normal(rng: np.random.Generator, count: int) -> Rows:
    return Rows({"seed": seed, "value": value} for seed, value in enumerate(rng.normal(size=count).tolist()))


def _coins(rng: np.random.Generator, count: int) -> Rows:
    return Rows({"seed": seed, "value": value} for seed, value in enumerate(rng.integers(0, 2, 4 * count).tolist()))


def _lines(rng: np.random.Generator, count: int) -> Rows:
    y = np.exp(rng.normal(size=(count, 3))).tolist()
    return Rows({"seed": s, "n": n, "y": y[s][k]} for s in range(count) for k, n in enumerate((1, 2, 4)))


def _groups(rng: np.random.Generator, count: int) -> Rows:
    values = rng.normal(size=(2, count)).tolist()
    return Rows({"seed": s, "group": g, "value": values[g][s]} for g in (0, 1) for s in range(count))


def _powers(rng: np.random.Generator, count: int) -> Rows:
    return Rows({"seed": s, "value": v} for s, v in enumerate((rng.pareto(2.0, 20 * count) + 1).tolist()))


# One judge of each kind with data for which its claim is just not true: any "reproduced" is an error.
NULLS: dict[str, tuple[Callable[[np.random.Generator, int], Rows], Callable[[Rows], Judgement]]] = {
    "mean": (_normal, mean_at_least(0.0)),
    "share": (_coins, lambda t: lab.at_least(lab.share(sum(t.column("value")), len(t)), 0.5, "q")),
    "bounded mean": (_coins, lambda t: lab.at_least(lab.bounded_mean(t.column("value"), 0, 1), 0.5, "q")),
    "slope": (_lines, lambda t: lab.at_least(lab.log_slope(t, "n", "y"), 0.0, "q")),  # type: ignore[arg-type]
    "difference": (_groups, lambda t: lab.larger_mean(t.where(group=0), t.where(group=1), "value", "q")),
    "tail": (_powers, lambda t: lab.at_least(lab.tail_exponent(t.column("value"), len(t) // 5), 2.0, "q")),
    "most models": (_coins, lambda t: lab.of_models(t, lambda row: row["value"] == 1, "most", "q")),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", NULLS)
def test_three_undeclared_looks_are_wrong_in_at_most_five_per_cent(kind: str) -> None:
    draw, judge = NULLS[kind]
    wrong = careless = 0
    repetitions = repeated(400, 160)
    for repetition in range(repetitions):
        whole = draw(np.random.default_rng([repetition, len(kind)]), 18)
        seeds = len(whole.values("seed"))
        found = []
        for number in (1, 2, 3):
            most = seeds * number // 3
            own = Rows(row for row in whole if row["seed"] < most)
            with judging(error_of(number)):
                found.append(judge(own).verdict == "reproduced")
            careless += found[-1] if number == 1 else judge(own).verdict == "reproduced"
        wrong += any(found)
    assert wrong <= 0.05 * repetitions
    assert careless > wrong  # looks that are not counted go wrong more often
