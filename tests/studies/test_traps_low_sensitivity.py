"""No claim of paper 004 falls for its trap, and each can be reproduced."""

from __future__ import annotations

import pytest
from studies.traps.low_sensitivity import STUDIES, TRAPS, good
from studies.traps.trap import Trap

from flipscope.lab import Claim, judging

CLAIMS = {(study.name, claim.name): claim for study in STUDIES for claim in study.claims}


def test_every_claim_has_a_trap() -> None:
    assert {(trap.study, trap.claim) for trap in TRAPS} == set(CLAIMS)


def test_every_claim_can_be_contradicted() -> None:
    assert {(trap.study, trap.claim) for trap in TRAPS if trap.expected == "contradicted"} == set(CLAIMS)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: f"{trap.study}: {trap.claim}: {trap.what}")
def test_the_judge_does_not_fall_for_it(trap: Trap) -> None:
    assert trap.expected != "reproduced"
    judged = CLAIMS[trap.study, trap.claim].judged(trap.table())
    assert judged.verdict == trap.expected, judged


@pytest.mark.parametrize(
    ("study", "claim"), [(key[0], claim) for key, claim in CLAIMS.items()], ids=[": ".join(key) for key in CLAIMS]
)
def test_every_claim_can_be_reproduced_and_its_interval_follows_the_look(study: str, claim: Claim) -> None:
    table = good(study, claim)
    judged = claim.judged(table)
    assert judged.verdict == "reproduced", judged
    with judging(0.005):
        later = claim.judged(table)
    for first, second in zip(judged.parts or (judged,), later.parts or (later,), strict=True):
        if first.low is None or first.high is None or first.low == first.high:  # formulas have no interval
            continue
        assert second.low is not None
        assert second.high is not None
        assert second.high - second.low > first.high - first.low, first.quantity
