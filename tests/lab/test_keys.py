"""Keys: an edit of what a study measures changes them, and no edit that changes no number does."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flipscope.basics.errors import InputError
from flipscope.lab.keys import code_version, revision_of, sources_digest, trial_key
from flipscope.lab.study import Study

HELPERS = '''"""Helpers."""
OTHER = 7


def scaled(value):
    """Say it."""
    return value * 3


def moved(value):
    return value + 3


class Base:
    offset = 1
'''
STUDY = '''"""A study."""
from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import ClassVar

import flipscope.lab as lab
from flipscope.cube.functions import parity
from flipscope.lab.study import Claim, Scale, Study, Trial
from flipscope.lab.verdict import Judgement
from keyed.helpers import moved, scaled

FACTOR = 2
TABLE = {"one": 1}
TABLE["two"] = 2
ENTERED = []
try:
    ROOT = math.isqrt(16)
except ValueError:
    ROOT = 5


def entered(function):
    ENTERED.append(function)
    return function


@entered
def _plus(value):
    return value + 100


def reported(value):
    return value


@dataclass(frozen=True)
class Setting(Trial):
    tag: ClassVar[str] = "setting"

    seed: int

    def check(self):
        if self.seed < 0:
            raise ValueError(f"the seed {self.seed} is negative")

    @property
    def twice(self):
        return 2 * self.seed

    @property
    def cost(self):
        return 11.0


@dataclass(frozen=True)
class Other(Trial):
    tag: ClassVar[str] = "other"

    seed: int = 1


@dataclass
class Pair:
    first: float
    second: float = 1.0


def used(value, power=1):
    # a comment
    total = 0
    for part in range(3):
        total += part
    if value > 10**9:
        raise ValueError(f"the value {value} is too large")
    assert power, "it needs a power"
    near = [scaled for scaled in (1, 2)]
    pair = Pair(total, near[0])
    return FACTOR * scaled(value) ** power + ROOT + TABLE["two"] + pair.first / pair.second


def unused(value):
    return value


def _inner(value):  # has the name of a method
    return value - 1


class Base(Study):
    shift = 4

    def _inner(self, trial):
        return used(trial.twice, power=1) + self.offset + _inner(0)

    def measure(self, trial, progress):
        return {"base": self.shift}


class Mine(Base):
    """What it is."""

    name = "mine"
    paper = "none"
    title = "mine"
    scales = {"smoke": Scale(0.1, {}, "one")}
    claims = ()
    offset = 5

    def trials(self, scale):
        return [Setting(1)]

    def measure(self, trial: Setting, progress):
        """Measure it."""
        if isinstance(trial, Other):
            return {}
        most = max(ENTERED, key=lambda each: each(1))
        return {"value": self._inner(trial), **super().measure(trial, progress), "most": most(1)}

    def summarise(self, results):
        return [dict(result.outcome) for result in results]

    def draw(self, table):
        return unused(table), reported(value=1)


STUDY = Mine()

if __name__ == "__main__":
    print(STUDY)
'''

Build = Callable[..., Study]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """Writes the package anew with texts replaced, and gives its study."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def make(*changes: tuple[str, str], module: str = "study", helpers: str = "helpers") -> Study:
        for name in [name for name in sys.modules if name.partition(".")[0] == "keyed"]:
            del sys.modules[name]
        folder = tmp_path / "keyed"
        folder.mkdir(exist_ok=True)
        files = {f"{helpers}.py": HELPERS, f"{module}.py": STUDY.replace("helpers", helpers), "__init__.py": ""}
        for file, text in files.items():
            for before, after in changes:
                text = text.replace(before, after)
            (folder / file).write_text(text)
        assert not changes or any(before in HELPERS + STUDY for before, _ in changes)
        importlib.invalidate_caches()
        study: Study = importlib.import_module(f"keyed.{module}").STUDY
        return study

    yield make
    for name in [name for name in sys.modules if name.partition(".")[0] == "keyed"]:
        del sys.modules[name]


SAME = {
    "comment": ("# a comment", "# another comment\n    # and one more"),
    "docstring": ('"""Measure it."""', '"""Measure it, said better."""'),
    "docstring removed": ('        """Measure it."""\n', ""),
    "docstring of the class": ('"""What it is."""', '"""What it is not."""'),
    "annotation": ("trial: Setting", "trial: Other"),
    "annotation of a result": ("def measure(self, trial, progress):", "def measure(self, trial, progress) -> dict:"),
    "annotation of a local": ("total = 0", "total: int = 0"),
    "annotation without a value": ("    total = 0", "    total: int\n    total = 0"),
    "annotation of a constant": ("FACTOR = 2", "FACTOR: int = 2"),
    "layout": ("        total += part", "        total += (\n            part\n        )\n"),
    "message": ("is too large", "is much too large"),
    "message with other values": ("the value {value} is too large", "{FACTOR} and {value}"),
    "message of an assertion": ("it needs a power", "say a power"),
    "local": ("total", "sum_of_parts"),
    "parameter": ("progress", "report"),
    "loop variable": ("part", "each_part"),
    "parameter that is named in calls": ("power", "exponent"),
    "lambda": ("lambda each: each(1)", "lambda one: one(1)"),
    "function": ("used(", "applied("),
    "function that a decorator enters": ("_plus", "_hundred_more"),
    "decorator": ("entered", "put_in"),
    "constant": ("FACTOR", "WEIGHT"),
    "constant bound twice": ("ROOT", "BASE_ROOT"),
    "table": ("TABLE", "NUMBERS"),
    "class": ("Pair", "Couple"),
    "class of trials": ("Setting", "Configured"),
    "class of the study": ("Mine", "Ours"),
    "base class": ("Base", "Common"),
    "member": ("_inner", "_at_the_heart"),
    "constant of the study": ("offset", "addend"),
    "import under another name": ("import moved, scaled", "import moved, scaled as scaled"),
    "figure": ("return unused(table), reported(value=1)", "return ()"),
    "what only figures use": ("def unused(value):\n    return value", "def unused(value):\n    return 7"),
    "summary": ("[dict(result.outcome) for result in results]", "[]"),
    "words of a scale": ('"one")', '"a single one")'),
    "title": ('title = "mine"', 'title = "yours"'),
    "claims": ("claims = ()", "claims = (1,)[:0]"),
    "check of a trial": ("if self.seed < 0", "if self.seed < -1"),
    "cost of a trial": ("11.0", "12.0"),
    "unused import": ("from flipscope.cube.functions import parity\n", ""),
    "imported code": ("value * 3", "value * 4"),  # watched by golden numbers
    "main guard": ("print(STUDY)", "print(STUDY, FACTOR)"),
    "new unused function": ("STUDY = Mine()", "def more():\n    return 1\n\n\nSTUDY = Mine()"),
}
OTHER = {
    "constant": ("FACTOR = 2", "FACTOR = 3"),
    "operator": ("FACTOR * scaled", "FACTOR + scaled"),
    "loop": ("range(3)", "range(4)"),
    "condition of an error": ("10**9", "10**8"),
    "condition of an assertion": ("assert power,", "assert not power,"),
    "kind of an error": ('raise ValueError(f"the value', 'raise TypeError(f"the value'),
    "method of a trial": ("2 * self.seed", "3 * self.seed"),
    "constant of the study": ("offset = 5", "offset = 6"),
    "constant of a base class": ("shift = 4", "shift = 5"),
    "function with the name of a method": ("value - 1", "value - 2"),
    "use of a constant": ("+ self.offset", "- self.offset"),
    "what is measured": ('"value": self._inner(trial)', '"value": -self._inner(trial)'),
    "name of what is measured": ('"value": self._inner', '"other": self._inner'),
    "method of a base class": ('{"base": self.shift}', '{"base": -self.shift}'),
    "revision": ("claims = ()", "claims = ()\n    revision = 2"),
    "another imported function": ("FACTOR * scaled(value)", "FACTOR * moved(value)"),
    "another function under the same name": ("import moved, scaled", "import moved as scaled, scaled as moved"),
    "first of two bindings": ("math.isqrt(16)", "math.isqrt(25)"),
    "last of two bindings": ("ROOT = 5", "ROOT = 6"),
    "a second binding": ("TABLE = {", "FACTOR = 9\nTABLE = {"),
    "entry of a table": ('TABLE["two"] = 2', 'TABLE["two"] = 3'),
    "function that a decorator enters": ("value + 100", "value + 101"),
    "default of a parameter": ("(value, power=1)", "(value, power=2)"),
    "argument": ("used(trial.twice, power=1)", "used(trial.twice, power=2)"),
    "order of fields": ("    first: float\n    second: float = 1.0", "    second: float\n    first: float = 1.0"),
    "locals exchanged": ("total += part", "part += total"),
    "tag that is asked for": ('tag: ClassVar[str] = "other"', 'tag: ClassVar[str] = "another"'),
}


@pytest.mark.parametrize("edit", SAME.values(), ids=SAME)
def test_what_does_not_change_results_keeps_the_key(build: Build, edit: tuple[str, str]) -> None:
    assert _key(build(edit)) == _key(build())


@pytest.mark.parametrize("edit", OTHER.values(), ids=OTHER)
def test_what_changes_results_changes_the_key(build: Build, edit: tuple[str, str]) -> None:
    assert _key(build(edit)) != _key(build())


def _key(study: Study) -> str:
    (trial,) = study.checked_trials("smoke")
    return trial_key(study, trial)


def test_modules_may_move(build: Build) -> None:
    assert _key(build(module="renamed", helpers="aids")) == _key(build())


def test_a_definition_that_is_named_by_text_counts(build: Build) -> None:
    """As a recipe names a term of one's own."""
    by_text = ('"most": most(1)', '"most": "keyed.study:reported"')
    changed = ("def reported(value):\n    return value", "def reported(value):\n    return -value")
    assert _key(build(by_text)) != _key(build(by_text, changed))
    assert _key(build()) == _key(build(changed))


def test_a_base_class_in_another_file_may_use_every_member(build: Build) -> None:
    apart = ("class Mine(Base):", "from lab.example_studies import Example\n\n\nclass Mine(Example, Base):")
    unused = ("offset = 5", "offset = 5\n    unused = 1")
    assert _key(build(unused)) == _key(build())
    assert _key(build(apart, unused)) != _key(build(apart))
    assert _key(build(apart, ('title = "mine"', 'title = "yours"'))) == _key(build(apart))


def test_the_fields_of_a_trial_count_through_its_content(build: Build) -> None:
    """And where measuring code may make one itself."""
    new_field = ("    seed: int\n\n    def check", "    seed: int\n    size: int = 2\n\n    def check")
    assert code_version(build(new_field)) == code_version(build())
    assert _key(build(new_field)) != _key(build())
    default = ("seed: int = 1", "seed: int = 2")
    assert _key(build(default)) != _key(build())  # of a class that `measure` names


def test_the_key_tells_studies_trials_and_code_apart(build: Build) -> None:
    study = build()
    (trial,) = study.trials("smoke")
    key = trial_key(study, trial)
    assert key == trial_key(study, trial, code_version(study))
    assert key != trial_key(study, type(trial)(2))
    assert key != trial_key(study, trial, "other")
    assert key != _key(build(('name = "mine"', 'name = "yours"')))


def test_the_code_version_begins_with_the_revision(build: Build) -> None:
    assert revision_of(code_version(build())) == 1
    assert revision_of(code_version(build(("claims = ()", "claims = ()\n    revision = 12")))) == 12
    assert revision_of("0" * 64) is None


def test_a_study_inside_a_function_is_refused(build: Build) -> None:
    kind = type(build())

    class Hidden(kind):  # type: ignore[misc, valid-type]
        pass

    with pytest.raises(InputError, match="must stand at the top of its module"):
        code_version(Hidden())


def test_the_digest_of_sources_sees_every_edit(build: Build) -> None:
    build()
    first = sources_digest.__wrapped__("keyed")
    build(("# a comment", "# another comment"))
    assert sources_digest.__wrapped__("keyed") != first
    build()
    assert sources_digest.__wrapped__("keyed") == first
