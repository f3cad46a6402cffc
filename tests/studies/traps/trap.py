"""A table that must not reproduce a claim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flipscope.lab.rows import Rows
from flipscope.lab.verdict import Verdict


@dataclass(frozen=True)
class Trap:
    """What would fool a careless judge of the claim, and what the judge must say to it."""

    study: str
    claim: str
    what: str  # one line
    table: Callable[[], Rows]
    expected: Verdict
