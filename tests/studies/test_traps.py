"""No claim of any study falls for its trap, and each can be reproduced."""

from __future__ import annotations

import pytest
from studies.traps import geometry, hardness, low_sensitivity, sharper, sparse_variables
from studies.traps.trap import Trap

from flipscope.lab import judging, registry
from flipscope.studies.sparse_variables import sparse_and

PAPERS = (geometry, hardness, low_sensitivity, sharper, sparse_variables)
TRAPS = [trap for paper in PAPERS for trap in paper.TRAPS]
CLAIMS = {(study.name, claim.name): claim for paper in PAPERS for study in paper.STUDIES for claim in study.claims}
GOOD = {study.name: paper.good for paper in PAPERS for study in paper.STUDIES}
# Judged by numbers that are computed and not sampled: their intervals are the least and the largest.
COMPUTED = ("log T", "ln^3 T", "Lem 4.5 as printed", "norms of at most 1")


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_and, "RESAMPLES", 60)


def test_every_claim_of_every_study_has_a_trap() -> None:
    assert {(trap.study, trap.claim) for trap in TRAPS} == set(CLAIMS)
    assert {study for study, _ in CLAIMS} == set(registry.names())


@pytest.mark.parametrize("paper", [low_sensitivity, sharper], ids=["004", "002"])
def test_every_claim_of_these_papers_has_a_trap_that_contradicts_it(paper: object) -> None:
    claims = {(study.name, claim.name) for study in paper.STUDIES for claim in study.claims}  # type: ignore[attr-defined]
    traps = paper.TRAPS  # type: ignore[attr-defined]
    assert {(trap.study, trap.claim) for trap in traps if trap.expected == "contradicted"} == claims


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: f"{trap.study}: {trap.claim}: {trap.what}")
def test_the_judge_does_not_fall_for_it(trap: Trap) -> None:
    assert trap.expected != "reproduced"
    judged = CLAIMS[trap.study, trap.claim].judged(trap.table())
    assert judged.verdict == trap.expected, judged


@pytest.mark.parametrize("place", CLAIMS, ids=": ".join)
def test_every_claim_can_be_reproduced_and_its_interval_follows_the_look(place: tuple[str, str]) -> None:
    (study, name), claim = place, CLAIMS[place]
    table = GOOD[study](study, claim)
    judged = claim.judged(table)
    assert judged.verdict == "reproduced", judged
    with judging(0.005):
        later = claim.judged(table)
    for first, second in zip(judged.parts or (judged,), later.parts or (later,), strict=True):
        if first.low is None or first.high is None or first.low == first.high or name.startswith(COMPUTED):
            continue
        assert second.low is not None
        assert second.high is not None
        assert second.high - second.low > first.high - first.low, first.quantity
