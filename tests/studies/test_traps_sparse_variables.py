"""No claim of paper 003 falls for its trap, and each can be reproduced."""

from __future__ import annotations

import pytest
from studies.traps.sparse_variables import GOOD, STUDIES, TRAPS
from studies.traps.trap import Trap

from flipscope.lab import judging
from flipscope.studies.sparse_variables import sparse_and

CLAIMS = {(study.name, claim.name): claim for study in STUDIES for claim in study.claims}
# Judged by numbers that are computed and not sampled: their intervals are the least and the largest.
COMPUTED = ("log T", "ln^3 T", "Lem 4.5 as printed", "norms of at most 1")


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_and, "RESAMPLES", 60)


def test_every_claim_has_a_trap() -> None:
    assert {(trap.study, trap.claim) for trap in TRAPS} == set(CLAIMS)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: f"{trap.study}: {trap.claim}: {trap.what}")
def test_the_judge_does_not_fall_for_it(trap: Trap) -> None:
    judged = CLAIMS[trap.study, trap.claim].judged(trap.table())
    assert trap.expected != "reproduced"
    assert judged.verdict == trap.expected, judged


@pytest.mark.parametrize(("study", "name"), CLAIMS)
def test_every_claim_can_be_reproduced_and_its_interval_follows_the_look(study: str, name: str) -> None:
    claim, table = CLAIMS[study, name], GOOD[name]()
    judged = claim.judged(table)
    assert judged.verdict == "reproduced", judged
    with judging(0.005):
        later = claim.judged(table)
    for first, second in zip(judged.parts or (judged,), later.parts or (later,), strict=True):
        assert None not in (first.low, first.high, second.low, second.high)
        if study != "capacity" or not name.startswith(COMPUTED):
            assert second.high - second.low > first.high - first.low, first.quantity  # type: ignore[operator]
