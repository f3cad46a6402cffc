"""What an experiment is: trials to measure, one table, claims that judge it, figures that show it.

A study is a class with a handful of attributes and three or four methods; docs/add-a-study.md builds one. Data
flows one way: `trials` → `measure` (here, on a pool, on a cluster) → `rows` → claims and `draw`.
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from flipscope.basics.errors import InputError
from flipscope.basics.progress import Progress
from flipscope.lab.figures import Figure
from flipscope.lab.rows import Row, Rows
from flipscope.lab.verdict import Judgement, asymptotic

Outcome = Mapping[str, Any]  # what a trial measured: numbers, texts, lists of them, and numpy arrays

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
DEFAULT_MEMORY = 1 << 30
NEVER_CONTRADICTED = "a limit theorem, which no measured length can contradict"


@dataclass(frozen=True)
class Trial:
    """One setting to measure: a frozen dataclass of plain values, checked when made, and hashed by its content.

    Fields are int, float, str, bool, None, Literal, tuples and unions of these: what can be written down exactly.
    A field left at its default is part of the content too, so a changed default is a changed trial. Where a study has
    trials of several classes, each class declares a `tag` of its own, which stays when the class is renamed.
    """

    tag: ClassVar[str] = ""

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
        return digest({"tag": self.tag, "content": self.content()})

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


class _Several(tuple[Any, ...]):
    """Values that are told one after the other, without brackets."""

    __slots__ = ()

    def __str__(self) -> str:
        return ", ".join(map(str, self))


def _several(value: Any) -> Any:
    return _Several(value) if isinstance(value, tuple) else value


@dataclass(frozen=True)
class Scale:
    """How much of a study is run: about how many minutes that takes on two cores, its settings, and the same in words.

    Names in braces stand for the settings, so that the words cannot be wrong:
    ``Scale(2, Plan(models=24, lengths=(16, 256)), "{models} models, N up to {lengths[1]}")``.
    """

    minutes: float
    settings: Any  # a mapping, or a dataclass, that `trials` reads
    words: str
    looks: int = 1  # how many times its claims will be judged, declared in advance; they share the error

    @property
    def note(self) -> str:
        """What is run, in words."""
        return self.words.format(**{name: _several(value) for name, value in _named(self.settings).items()})


def _named(settings: Any) -> Mapping[str, Any]:
    """The settings of a scale by name."""
    if isinstance(settings, Mapping):
        return settings
    return {field.name: getattr(settings, field.name) for field in fields(settings)}


def _leaves(settings: Any, prefix: str = "") -> dict[str, Any]:
    """The settings of a scale, those inside others with both names."""
    found: dict[str, Any] = {}
    for name, value in _named(settings).items():
        inside = isinstance(value, Mapping) or (dataclasses.is_dataclass(value) and not isinstance(value, type))
        found |= _leaves(value, f"{prefix}{name}.") if inside else {f"{prefix}{name}": value}
    return found


def scales(words: str, **plans: tuple[float, Any]) -> dict[str, Scale]:
    """Scales by name, each its minutes and settings, that differ in nothing else."""
    return {name: Scale(minutes, settings, words) for name, (minutes, settings) in plans.items()}


@dataclass(frozen=True)
class Deviation:
    """Where a study departs from its paper, or where the paper contradicts itself or says nothing."""

    what: str
    paper: str  # what the paper has there; "silent" where it says nothing
    ours: str
    why: str


def deviations(*each: tuple[str, str, str, str]) -> tuple[Deviation, ...]:
    """Departures, each as what, the paper's, ours, and why."""
    return tuple(Deviation(*one) for one in each)


@dataclass(frozen=True)
class Claim:
    """What a paper says, how it is judged, and the judge, who looks at the table only."""

    name: str  # which says by itself what is claimed
    source: str  # in the paper, such as "Fig 4"
    statement: str  # what the paper says, in other words
    criterion: str  # which number is compared with what
    judge: Callable[[Rows], Judgement]
    exploratory: bool = False  # not a claim of the paper, but a question it leaves open
    asymptotic: bool = False  # a limit theorem: what was measured at some lengths cannot contradict it
    anytime: bool = False  # its intervals hold at every sample size at once, so that more seeds cost it nothing
    formerly: tuple[str, ...] = ()  # names it had before, under which looks may be kept
    decided_from: str | None = None  # the smallest scale that can decide it, "" if none does; None: any may

    def __post_init__(self) -> None:
        if self.asymptotic:
            object.__setattr__(self, "criterion", f"{self.criterion}; {NEVER_CONTRADICTED}")

    def judged(self, table: Rows) -> Judgement:
        """What the table says of it."""
        found = self.judge(table)
        return asymptotic(found) if self.asymptotic else found


class Study(ABC):
    """An experiment: a subclass fills in what is declared here, and must be importable by its module and name."""

    name: ClassVar[str]  # as in `flipscope run NAME`
    paper: ClassVar[str]  # such as "000"
    title: ClassVar[str]  # one line
    figures: ClassVar[tuple[str, ...]] = ()  # of the paper, such as "Fig 3 left"
    scales: ClassVar[Mapping[str, Scale]]  # "smoke" (seconds), "demo" (a minute), "laptop" (the default), "paper"
    claims: ClassVar[tuple[Claim, ...]]
    deviations: ClassVar[tuple[Deviation, ...]] = ()
    revision: ClassVar[int] = 1  # raise it when results change for a reason that is not in the code
    withdrawn: ClassVar[Mapping[int, str]] = {}  # revisions whose trials were wrong, with the defect: no look counts

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

    def summarise(self, results: Sequence[Result]) -> Rows:
        """One tidy table of all results, with None where a row lacks a column.

        It has the `rows` of each trial; override this only where one row needs the outcomes of several trials.
        """
        rows = [row for result in results for row in self.rows(result.trial, result.outcome)]
        names = dict.fromkeys(name for row in rows for name in row)
        return Rows({name: row.get(name) for name in names} for row in rows)

    def rows(self, trial: Any, outcome: Outcome) -> Iterable[Row]:
        """The rows of one trial: its `row`, unless overridden by a study whose trials give several rows or none."""
        return [self.row(trial, outcome)]

    def row(self, trial: Any, outcome: Outcome) -> Row:
        """What the table holds of one trial: its fields and what it measured, arrays as lists."""
        found = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in outcome.items()}
        return {**trial.content(), **found}

    def draw(self, table: Rows) -> Sequence[Figure]:
        """The figures that show the table."""
        return ()

    def provenance(self, table: Rows) -> Sequence[str]:
        """How the numbers came about, such as what was screened or computed again: said once per study."""
        return ()

    def checked_trials(self, scale: str) -> list[Trial]:
        """The trials of a scale, after making sure of the scale's name and that no trial is there twice."""
        if scale not in self.scales:
            raise InputError(f"the study {self.name} has no scale {scale!r}; it has {', '.join(self.scales)}")
        trials = list(self.trials(scale))
        tagged: dict[str, type[Trial]] = {}
        for kind in {type(trial): None for trial in trials}:
            if (other := tagged.setdefault(kind.tag, kind)) is not kind:
                raise InputError(
                    f"the trials {other.__name__} and {kind.__name__} of the study {self.name} have the same tag "
                    f"{kind.tag!r}: declare another in one of them, such as tag = {kind.__name__.lower()!r}"
                )
        if len({trial.hash for trial in trials}) != len(trials):
            raise InputError(f"the study {self.name} has the same trial twice at scale {scale}")
        return trials

    def differences(self, scale: str) -> list[tuple[str, Any, Any]]:
        """The settings in which a scale differs from the scale "paper": name, value there, value here."""
        if "paper" not in self.scales:
            return []
        theirs, ours = (_leaves(self.scales[name].settings) for name in ("paper", scale))
        names = dict.fromkeys([*theirs, *ours])
        return [(name, theirs.get(name), ours.get(name)) for name in names if theirs.get(name) != ours.get(name)]

    def judge(self, table: Rows) -> list[tuple[Claim, Judgement]]:
        """Each claim with what the table says of it; a judge without data to judge by leaves it undecided."""
        if not table:
            return [(claim, Judgement.without("no trial is done")) for claim in self.claims]
        return [(claim, claim.judged(table)) for claim in self.claims]


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
