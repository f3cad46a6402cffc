"""The parts of an experiment: trials to measure, one table, claims that judge it, figures that show it.

A study is a class with a handful of attributes and three or four methods; docs/add-a-study.md builds one. Data
flows one way: `trials` → `Trial.measure` (here, on a pool, on a cluster) → `rows` → claims and `draw`.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import math
import re
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from flipscope.basics.errors import InputError
from flipscope.basics.progress import Progress
from flipscope.figures import Figure
from flipscope.lab import settings as of_settings
from flipscope.lab.rows import Row, Rows
from flipscope.lab.verdict import Judgement, asymptotic

Outcome = Mapping[str, Any]  # what a trial measured: numbers, texts, lists of them, and numpy arrays

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
DEFAULT_MEMORY = 1 << 30
MAX_LISTED = 12  # values of a setting in the words of a scale
ONE = re.compile(r"(?<![\w.,^-])1 ((?:small |learned |random |data )?)(model|seed|function|network|transformer|set)s\b")
UNMEASURED = "the trials {0} do not say how they are measured: define {0}.measure(self, progress)"
NEVER_CONTRADICTED = "a limit theorem, which no measured length can contradict"


@dataclass(frozen=True)
class Trial:
    """One setting, which measures itself: a frozen dataclass of plain values, checked when made, hashed by its content.

    Fields are int, float, str, bool, None, Literal, tuples and unions of these, which have an exact text form. A field
    left at its default is part of the content too, so a changed default is a changed trial. If a study has trials of
    several classes, each class declares its own `tag`, which stays when the class is renamed.
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
        """Raise InputError if fields have the right type but make no sense; a subclass defines the conditions."""

    def measure(self, progress: Progress) -> Outcome:
        """Measure the trial; every class of trials defines this. `progress(done, total)` may be called.

        All randomness must come from the fields.
        """
        raise NotImplementedError(UNMEASURED.format(type(self).__name__))

    def content(self) -> dict[str, Any]:
        """The fields by name, as JSON holds them."""
        return {name: getattr(self, name) for name in _fields(type(self))}

    @property
    def hash(self) -> str:
        """A hash that is the same for equal trials on every machine, and different for others."""
        return digest({"tag": self.tag, "content": self.content()})

    @property
    def memory(self) -> int:
        """Upper bound on the memory in bytes; the runner starts no trial that does not fit beside the running ones."""
        return DEFAULT_MEMORY

    @property
    def cost(self) -> float:
        """Duration relative to the other trials of the study; the longest start first."""
        return 1.0


@dataclass(frozen=True)
class Result:
    """A measured trial."""

    trial: Trial
    outcome: Outcome
    seconds: float


class _Several(tuple[Any, ...]):
    """Values that are listed without brackets; the middle of a long list is omitted."""

    __slots__ = ()

    def __str__(self) -> str:
        shown = [*self[:3], "…", self[-1]] if len(self) > MAX_LISTED else self
        return ", ".join(map(str, shown))


def _several(value: Any) -> Any:
    return _Several(value) if isinstance(value, tuple) else value


@dataclass(frozen=True)
class Scale:
    """How much of a study is run: the approximate minutes on two cores, the settings, and a description.

    Names in braces stand for the settings, so the description always matches them:
    ``Scale(2, Plan(models=24, lengths=(16, 256)), "{models} models, N up to {lengths[1]}")``.
    """

    minutes: float
    settings: Any  # a mapping, or a dataclass, that `trials` reads
    words: str
    looks: int = 1  # number of looks declared in advance; they share the error

    @property
    def note(self) -> str:
        """The description with the values of the settings."""
        text = self.words.format(**{name: _several(value) for name, value in of_settings.named(self.settings).items()})
        return ONE.sub(r"1 \1\2", text)


def scales(words: str, common: Mapping[str, Any] | None = None, **plans: tuple[float, Any]) -> dict[str, Scale]:
    """Scales by name from their minutes and settings, with a common description; `common` are shared settings."""
    return {
        name: Scale(minutes, {**settings, **common} if common else settings, words)
        for name, (minutes, settings) in plans.items()
    }


@dataclass(frozen=True)
class Deviation:
    """A deviation of a study from its paper, or a place where the paper contradicts itself or is silent."""

    what: str
    paper: str  # what the paper has there
    ours: str
    why: str


def deviations(*each: tuple[str, str, str, str]) -> tuple[Deviation, ...]:
    """Deviations from tuples of what, the paper's choice, ours, and why."""
    return tuple(Deviation(*one) for one in each)


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, its criterion, and its judge, a function of the table only."""

    name: str  # short and self-explanatory
    source: str  # place in the paper, such as "Fig 4"
    statement: str  # what the paper says, in other words
    criterion: str  # the comparison that judges the claim, as text
    judge: Callable[[Rows], Judgement]
    exploratory: bool = False  # not a claim of the paper, but a question it leaves open
    asymptotic: bool = False  # a limit theorem, which measurements at some lengths cannot contradict
    anytime: bool = False  # its intervals hold at every sample size at once, so that more seeds cost it nothing
    decided_from: str | None = None  # the smallest scale that can decide it, "" if none does; None: any may

    def __post_init__(self) -> None:
        if self.asymptotic:
            object.__setattr__(self, "criterion", f"{self.criterion}; {NEVER_CONTRADICTED}")

    def judged(self, table: Rows) -> Judgement:
        """The judgement of the claim by the table."""
        found = self.judge(table)
        return asymptotic(found) if self.asymptotic else found


class Study(ABC):
    """An experiment: a subclass defines the members declared here, and must be importable by module and name."""

    name: ClassVar[str]  # as in `flipscope run NAME`
    paper: ClassVar[str]  # such as "000"
    title: ClassVar[str]  # one line
    figures: ClassVar[tuple[str, ...]] = ()  # of the paper, such as "Fig 3 left"
    scales: ClassVar[Mapping[str, Scale]]  # "smoke" (seconds), "demo" (a minute), "laptop" (the default), "paper"
    claims: ClassVar[tuple[Claim, ...]]
    deviations: ClassVar[tuple[Deviation, ...]] = ()
    revision: ClassVar[int] = 1  # raise it when results change for a reason that is not in the code
    sample_sizes: ClassVar[tuple[str, ...]] = ()  # sample sizes beside those recognised by their names
    base_seed: ClassVar[str] = "first_seed"  # the setting that holds the first seed
    withdrawn: ClassVar[Mapping[int, str]] = {}  # revisions whose trials were wrong, with the defect: no look counts

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        name = getattr(cls, "name", None)
        if name is not None and NAME.fullmatch(name) is None:
            raise InputError(f"the study name {name!r} is not made of lower-case words, digits and single hyphens")

    @abstractmethod
    def trials(self, scale: str) -> Sequence[Trial]:
        """The trials of this scale."""

    def summarise(self, results: Sequence[Result]) -> Rows:
        """One tidy table of all results, with None where a row lacks a column.

        It consists of the `rows` of each trial; override this only if a row needs the outcomes of several trials.
        """
        rows = [row for result in results for row in self.rows(result.trial, result.outcome)]
        names = dict.fromkeys(name for row in rows for name in row)
        return Rows({name: row.get(name) for name in names} for row in rows)

    def rows(self, trial: Any, outcome: Outcome) -> Iterable[Row]:
        """The rows of one trial: its `row`, unless overridden by a study whose trials give several rows or none."""
        return [self.row(trial, outcome)]

    def row(self, trial: Any, outcome: Outcome) -> Row:
        """The table's row of one trial: its fields and its measurements, arrays as lists."""
        found = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in outcome.items()}
        return {**trial.content(), **found}

    def draw(self, table: Rows) -> Sequence[Figure]:
        """The figures that show the table."""
        return ()

    def provenance(self, table: Rows) -> Sequence[str]:
        """Sentences on how the numbers were computed, such as what was screened or computed again."""
        return ()

    def scale_name(
        self, scale: str, settings: Mapping[str, Any] | None = None, seed: int | None = None, *, from_text: bool = False
    ) -> str:
        """The name of a scale with some settings changed, such as "laptop+length=14"; InputError if invalid.

        `scale` may have changed settings itself. `settings` are values by name, with `from_text` as texts; `seed` is
        the first seed.
        """
        base, texts = of_settings.split_name(scale)
        if base not in self.scales:
            raise InputError(f"the study {self.name} has no scale {base!r}; it has {', '.join(self.scales)}")
        values = self._checked(base, dict(map(of_settings.split_change, texts)), from_text=True)
        values |= self._checked(base, settings or {}, from_text=from_text)
        if seed is not None:
            if all(self.base_seed not in of_settings.leaves(each.settings) for each in self.scales.values()):
                raise InputError(f"the study {self.name} has no setting for its first seed, so a seed cannot be given")
            values |= self._checked(base, {self.base_seed: seed}, from_text=False)
        own = of_settings.leaves(self.scales[base].settings)
        order = list(dict.fromkeys([*own, *sorted(values)]))
        changed = [name for name in order if name in values and values[name] != own.get(name, of_settings.MISSING)]
        return of_settings.name_of(base, {name: values[name] for name in changed})

    def _checked(self, base: str, given: Mapping[str, Any], *, from_text: bool) -> dict[str, Any]:
        plans = {name: scale.settings for name, scale in self.scales.items()}
        return of_settings.checked(self.name, plans, base, given, seed_setting=self.base_seed, from_text=from_text)

    def changes(self, scale: str) -> dict[str, tuple[Any, Any]]:
        """The settings changed in the name of a scale, each with the study's value and the changed one."""
        base, texts = of_settings.split_name(scale)
        own = of_settings.leaves(self.scales[base].settings)
        given = self._checked(base, dict(map(of_settings.split_change, texts)), from_text=True)
        return {
            name: (own.get(name), value) for name, value in given.items() if value != own.get(name, of_settings.MISSING)
        }

    def plan(self, scale: str) -> Scale:
        """The scale of this name, with its settings as they are changed."""
        base, texts = of_settings.split_name(scale)
        if not texts:
            return self.scales[base]
        values = {name: value for name, (_, value) in self.changes(scale).items()}
        return replace(self.scales[base], settings=of_settings.changed(self.scales[base].settings, values))

    def look_scale(self, scale: str) -> str:
        """The scale whose looks a judgement at this one continues: the same without changed sample sizes."""
        base, _ = of_settings.split_name(scale)
        changes = self.changes(scale)
        return of_settings.name_of(
            base, {name: value for name, (_, value) in changes.items() if not self.is_sample_size(name, value)}
        )

    def sample_settings(self, scale: str) -> dict[str, Any]:
        """The settings of a scale that only determine the number of draws or their seeds."""
        settings = of_settings.leaves(self.plan(scale).settings)
        return {name: value for name, value in settings.items() if self.is_sample_size(name, value)}

    def is_sample_size(self, name: str, value: Any) -> bool:
        """Whether a setting only determines the number of draws or their seeds, not what is measured."""
        return name in (*self.sample_sizes, self.base_seed) or of_settings.is_sample_size(name, value)

    def checked_trials(self, scale: str) -> list[Trial]:
        """The trials of a scale, after checking the scale's name, changed settings, and that no trial occurs twice."""
        name = self.scale_name(scale)
        trials = self._made(name)
        tagged: dict[str, type[Trial]] = {}
        for kind in {type(trial): None for trial in trials}:
            if kind.measure is Trial.measure:
                raise InputError(f"the study {self.name}: {UNMEASURED.format(kind.__name__)}")
            if (other := tagged.setdefault(kind.tag, kind)) is not kind:
                raise InputError(
                    f"the trials {other.__name__} and {kind.__name__} of the study {self.name} have the same tag "
                    f"{kind.tag!r}: declare another in one of them, such as tag = {kind.__name__.lower()!r}"
                )
        hashes = {trial.hash for trial in trials}
        if len(hashes) != len(trials):
            raise InputError(f"the study {self.name} has the same trial twice at scale {scale}")
        self._check_effect(name, hashes)
        return trials

    def _made(self, scale: str) -> list[Trial]:
        """The trials of a scale; exceptions caused by changed settings become an InputError."""
        base, changes = of_settings.split_name(scale)
        if not changes:
            return list(self.trials(base))
        changed = copy.copy(self)  # this copy has the changed settings under the name of the base scale
        vars(changed)["scales"] = {**self.scales, base: self.plan(scale)}
        said = f"the study {self.name} with {', '.join(changes)}"
        try:
            trials = list(changed.trials(base))
        except InputError as error:
            raise InputError(f"{said} makes no sense: {error}") from error
        except Exception as error:
            raise InputError(f"{said} makes no trials: {type(error).__name__}: {error}") from error
        if not trials:
            raise InputError(f"{said} has no trial to measure")
        return trials

    def _check_effect(self, scale: str, hashes: set[str]) -> None:
        """Raise InputError for a changed setting without which the trials would be the same."""
        base, changes = of_settings.split_name(scale)
        for change in changes:
            without = "+".join([base, *(each for each in changes if each != change)])
            try:
                same = {trial.hash for trial in self._made(without)} == hashes
            except InputError:  # the other changes make sense only together with this one
                continue
            if same:
                raise InputError(f"the study {self.name} measures the same with and without {change}: leave it out")

    def differences(self, scale: str) -> list[tuple[str, Any, Any]]:
        """The settings in which a scale differs from the scale "paper": name, value there, value here."""
        if "paper" not in self.scales:
            return []
        theirs, ours = (of_settings.leaves(self.plan(name).settings) for name in ("paper", scale))
        names = dict.fromkeys([*theirs, *ours])
        return [(name, theirs.get(name), ours.get(name)) for name in names if theirs.get(name) != ours.get(name)]

    def judge(self, table: Rows) -> list[tuple[Claim, Judgement]]:
        """Each claim with its judgement by the table; a judge without data leaves its claim undecided."""
        if not table:
            return [(claim, Judgement.without("no trial is done")) for claim in self.claims]
        return [(claim, claim.judged(table)) for claim in self.claims]


def digest(content: Mapping[str, Any]) -> str:
    """SHA-256 of a JSON document, independent of the order of its names."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


_KNOWN: dict[type[Trial], dict[str, Any]] = {}


def _fields(kind: type[Trial]) -> dict[str, Any]:
    """The fields of a kind of trial with their types."""
    if kind not in _KNOWN:  # resolving the types takes longer than everything else when a trial is made
        hints = typing.get_type_hints(kind)
        _KNOWN[kind] = {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return _KNOWN[kind]


def _fits(value: object, kind: Any) -> bool:
    """Whether a value is of this type and has an exact text form."""
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
