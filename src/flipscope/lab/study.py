"""What an experiment is: trials to measure, one table, claims that judge it, figures that show it.

A study is a class with a handful of attributes and three or four methods; docs/add-a-study.md builds one. Data
flows one way: `trials` → `measure` (here, on a pool, on a cluster) → `summarise` → claims and `draw`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from flipscope.cube.blocks import Progress
from flipscope.errors import InputError
from flipscope.lab.plots import Figure
from flipscope.lab.verdict import Judgement

Outcome = Mapping[str, Any]  # what a trial measured: numbers, texts, lists of them, and numpy arrays
Table = list[dict[str, Any]]  # tidy: one row an observation, the same names in every row

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
DEFAULT_MEMORY = 1 << 30


@dataclass(frozen=True)
class Trial:
    """One setting to measure: a frozen dataclass of plain values, checked when made, and hashed by its content.

    Fields are int, float, str, bool, None, Literal, tuples and unions of these: what can be written down exactly.
    A field left at its default is part of the content too, so a changed default is a changed trial.
    """

    def __post_init__(self) -> None:
        for name, kind in _fields(type(self)).items():
            value = getattr(self, name)
            if not _fits(value, kind):
                raise InputError(f"{type(self).__name__}.{name}={value!r} is not of type {_said(kind)}")
            if kind is float:  # 1, 1.0 and 0.0, -0.0 are equal, so they must be written alike
                object.__setattr__(self, name, float(value) + 0.0)
        self.check()

    def check(self) -> None:
        """Raise InputError where fields are of the right type but make no sense; a subclass says when."""

    def content(self) -> dict[str, Any]:
        """The fields by name, as JSON holds them."""
        return {name: getattr(self, name) for name in _fields(type(self))}

    @property
    def hash(self) -> str:
        """The same for equal trials on every machine, and for no others."""
        return digest({"trial": type(self).__name__, **self.content()})

    @property
    def memory(self) -> int:
        """Bytes it needs at most; the runner starts no trial that does not fit beside those that run."""
        return DEFAULT_MEMORY

    @property
    def cost(self) -> float:
        """How long it takes, relative to the other trials of its study; the longest start first."""
        return 1.0


@dataclass(frozen=True)
class Result:
    """A measured trial."""

    trial: Trial
    outcome: Outcome
    seconds: float


@dataclass(frozen=True)
class Scale:
    """How much of a study is run: what that is, and about how many minutes it takes on two cores."""

    note: str
    minutes: float


@dataclass(frozen=True)
class Claim:
    """What a paper says, how it is judged, and the judge, who looks at the table only."""

    name: str
    where: str  # in the paper, such as "Fig 4"
    says: str  # what the paper says, in other words
    judged: str  # which number is compared with what
    judge: Callable[[Table], Judgement]
    beyond: bool = False  # not a claim of the paper, but a question it leaves open


class Study(ABC):
    """An experiment: a subclass fills in what is declared here, and must be importable by its module and name."""

    name: ClassVar[str]  # as in `flipscope run NAME`
    paper: ClassVar[str]  # such as "000"
    title: ClassVar[str]  # one line
    figures: ClassVar[tuple[str, ...]] = ()  # of the paper, such as "Fig 3 left"
    scales: ClassVar[Mapping[str, Scale]]  # "smoke" (seconds), "laptop" (the default), "paper"
    claims: ClassVar[tuple[Claim, ...]]
    revision: ClassVar[int] = 1  # raise it when results change for a reason that is not in the code

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        name = getattr(cls, "name", None)
        if name is not None and NAME.fullmatch(name) is None:
            raise InputError(f"the study name {name!r} is not made of lower-case words, digits and single hyphens")

    @abstractmethod
    def trials(self, scale: str) -> Sequence[Trial]:
        """What to measure at this scale."""

    @abstractmethod
    def measure(self, trial: Any, progress: Progress) -> Outcome:
        """What one trial gives; everything random comes from the trial. `progress(done, total)` may be called."""

    @abstractmethod
    def summarise(self, results: Sequence[Result]) -> Table:
        """One tidy table of all results, in whatever order they came."""

    def draw(self, table: Table) -> Sequence[Figure]:
        """The figures that show the table."""
        return ()

    def checked_trials(self, scale: str) -> list[Trial]:
        """The trials of a scale, after making sure of the scale's name and that no trial is there twice."""
        if scale not in self.scales:
            raise InputError(f"the study {self.name} has no scale {scale!r}; it has {', '.join(self.scales)}")
        trials = list(self.trials(scale))
        if len({trial.hash for trial in trials}) != len(trials):
            raise InputError(f"the study {self.name} has the same trial twice at scale {scale}")
        return trials

    def judge(self, table: Table) -> list[tuple[Claim, Judgement]]:
        """Each claim with what the table says of it; a judge without data to judge by leaves it undecided."""
        if not table:
            return [(claim, Judgement.without("no trial is done")) for claim in self.claims]
        return [(claim, claim.judge(table)) for claim in self.claims]


def digest(content: Mapping[str, Any]) -> str:
    """SHA-256 of a JSON document, whatever the order of its names."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


_KNOWN: dict[type[Trial], dict[str, Any]] = {}


def _fields(kind: type[Trial]) -> dict[str, Any]:
    """The fields of a kind of trial with their types."""
    if kind not in _KNOWN:  # to find them takes longer than all else that is done when a trial is made
        hints = typing.get_type_hints(kind)
        _KNOWN[kind] = {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return _KNOWN[kind]


def _fits(value: object, kind: Any) -> bool:
    """Whether a value is of this type, and can be written down exactly."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return any(value == allowed and type(value) is type(allowed) for allowed in inner)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in inner)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if len(inner) == 2 and inner[1] is Ellipsis:
            return all(_fits(part, inner[0]) for part in value)
        return len(value) == len(inner) and all(map(_fits, value, inner))
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    if kind in (int, str, bool):
        return type(value) is kind
    if kind is types.NoneType:
        return value is None
    raise InputError(f"a trial cannot hold a field of type {_said(kind)}: use int, float, str, bool, None or tuples")


def _said(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind).replace("typing.", "")
