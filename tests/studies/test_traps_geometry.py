"""Judges of the geometry studies against tables that would fool a careless one."""

from __future__ import annotations

import pytest
from studies.traps.geometry import REPRODUCED, TRAPS
from studies.traps.trap import Trap

from flipscope.lab import Claim, Rows, judging, registry

STUDIES = (
    *("random-init", "median-threshold", "trained-profiles", "sparse-profiles", "random-languages", "influence-decay"),
    *("low-variance", "blowup-tail", "zero-strings", "random-functions", "majority-volume", "prior-volume"),
    *("function-count", "length-limits", "length-trained"),
)
CLAIMS = {(name, claim.name): claim for name in STUDIES for claim in registry.find(name).claims}


def _judged(claim: Claim, table: Rows) -> str:
    return claim.judged(table).verdict


def test_every_claim_has_a_trap_and_a_table_that_reproduces_it() -> None:
    assert {(trap.study, trap.claim) for trap in TRAPS} == set(CLAIMS) == set(REPRODUCED)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: f"{trap.study}: {trap.claim}: {trap.what}")
def test_no_judge_falls_for_its_trap(trap: Trap) -> None:
    assert trap.expected != "reproduced"
    assert _judged(CLAIMS[trap.study, trap.claim], trap.table()) == trap.expected


@pytest.mark.parametrize("place", REPRODUCED, ids=": ".join)
def test_each_claim_can_be_reproduced_and_its_interval_follows_the_error(place: tuple[str, str]) -> None:
    claim, table = CLAIMS[place], REPRODUCED[place]()
    assert _judged(claim, table) == "reproduced"
    with judging(0.05):
        usual = claim.judged(table)
    with judging(1e-9):
        strict = claim.judged(table)
    ends = [found.high - found.low for found in (usual, strict) if found.high is not None and found.low is not None]
    assert len(ends) < 2 or ends[0] <= ends[1]
    assert usual != strict
