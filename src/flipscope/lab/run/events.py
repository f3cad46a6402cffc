"""The events that a runner reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Started:
    """A trial was given to a worker."""

    key: str
    worker: str


@dataclass(frozen=True)
class Advanced:
    """A share, from 0 to 1, of a running trial is done."""

    key: str
    share: float


@dataclass(frozen=True)
class Finished:
    """A trial was measured: its duration, the attempt, and the machine if it is another one."""

    key: str
    outcome: Any
    seconds: float
    attempts: int
    machine: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Failed:
    """A trial raised an exception or cannot be run; the text is a traceback or a sentence."""

    key: str
    traceback: str
    seconds: float
    attempts: int


@dataclass(frozen=True)
class Retried:
    """A trial was lost with its worker and waits for another one."""

    key: str
    reason: str


@dataclass(frozen=True)
class Idle:
    """Nothing happened for a while; the caller can do other work."""


Event = Started | Advanced | Finished | Failed | Retried | Idle
