from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flipscope.errors import InputError
from flipscope.lab import version
from flipscope.lab.study import Study

HELPERS = '''"""Helpers."""
from .deep import deepest


def scaled(value):
    """Say it."""
    return value * deepest()
'''
DEEP = "def deepest():\n    return 3\n"
PLOTTING = "def drawn(table):\n    return ()\n"
STUDY = '''"""A study."""
from __future__ import annotations

from dataclasses import dataclass

from flipscope.cube.functions import parity
from flipscope.lab.study import Claim, Scale, Study, Trial
from flipscope.lab.verdict import Judgement

from PACKAGE.helpers import scaled
from PACKAGE.plotting import drawn

FACTOR = 2


@dataclass(frozen=True)
class Setting(Trial):
    seed: int

    @property
    def twice(self):
        return 2 * self.seed


def used(value):
    # a comment
    return FACTOR * scaled(value)


def unused(value):
    return value


class Mine(Study):
    """What it is."""

    name = "mine"
    paper = "none"
    title = "mine"
    scales = {"smoke": Scale(0.1, {}, "one")}
    claims = ()
    offset = 5

    def trials(self, scale):
        return [Setting(1)]

    def measure(self, trial, progress):
        """Measure it."""
        return {"value": self._inner(trial)}

    def _inner(self, trial):
        return used(trial.twice) + self.offset

    def summarise(self, results):
        return [dict(result.outcome) for result in results]

    def draw(self, table):
        return drawn(unused(table))


STUDY = Mine()
'''
_numbers = itertools.count()


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Study]]:
    """Builds the package anew with texts replaced, under a name of its own, and gives its study."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(*changes: tuple[str, str]) -> Study:
        # The same name each time, since names are part of the version; modules of before are forgotten.
        folder = tmp_path / "versioned"
        folder.mkdir(exist_ok=True)
        texts = {"helpers.py": HELPERS, "deep.py": DEEP, "plotting.py": PLOTTING, "study.py": STUDY, "__init__.py": ""}
        for file, text in texts.items():
            changed = text.replace("PACKAGE", "versioned")
            for before, after in changes:
                changed = changed.replace(before, after)
            (folder / file).write_text(changed)
        for name in [name for name in sys.modules if name.partition(".")[0] == "versioned"]:
            del sys.modules[name]
        importlib.invalidate_caches()
        for cached in (version._parsed, version._source, version._module, version._class_version):
            cached.cache_clear()
        sys.dont_write_bytecode = True
        study: Study = importlib.import_module("versioned.study").STUDY
        return study

    before = sys.dont_write_bytecode
    yield make
    sys.dont_write_bytecode = before


def test_the_same_code_has_the_same_version(build: Callable[..., Study]) -> None:
    assert version.code_version(build()) == version.code_version(build())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# a comment", "# another comment\n    # and one more"),
        ('"""Measure it."""', '"""Measure it, said better."""'),
        ('"""Helpers."""', ""),
        ('"""Say it."""', '"""Say it twice."""'),
        ("def unused(value):\n    return value", "def unused(value):\n    return 7"),
        ("return drawn(unused(table))", "return ()"),
        ("def drawn(table):\n    return ()", "def drawn(table):\n    return [1]"),
        ("[dict(result.outcome) for result in results]", "[]"),
        ('"one"', '"a single one"'),
        ('title = "mine"', 'title = "yours"'),
    ],
)
def test_what_does_not_change_results_keeps_the_version(build: Callable[..., Study], before: str, after: str) -> None:
    assert version.code_version(build()) == version.code_version(build((before, after)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("FACTOR = 2", "FACTOR = 3"),
        ("FACTOR * scaled", "FACTOR + scaled"),
        ("return value * deepest()", "return value + deepest()"),
        ("return 3", "return 4"),
        ("2 * self.seed", "3 * self.seed"),
        ("seed: int", "seed: int = 0"),
        ("offset = 5", "offset = 6"),
        ("+ self.offset", "- self.offset"),
        ('{"value": self._inner(trial)}', '{"value": -self._inner(trial)}'),
        ("claims = ()", "claims = ()\n    revision = 2"),
    ],
)
def test_what_changes_results_changes_the_version(build: Callable[..., Study], before: str, after: str) -> None:
    assert version.code_version(build()) != version.code_version(build((before, after)))


def test_flipscope_modules_count_where_measure_reaches_them(
    build: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    using = ("return value * deepest()", "from flipscope.cube.functions import majority; return majority(3).n")
    seen: list[str] = []
    plain = version._whole

    def spy(module: str, own: str, found: dict[str, str]) -> None:
        seen.append(module)
        plain(module, own, found)

    monkeypatch.setattr(version, "_whole", spy)
    version.code_version(build())
    assert set(seen) == {"versioned.helpers", "versioned.deep"}  # parity is imported and not used
    seen.clear()
    version.code_version(build(using))
    assert {"flipscope.cube.functions", "flipscope.cube.structure"} <= set(seen)
    assert not any(name.startswith(("flipscope.lab", "flipscope.errors")) for name in seen)


def test_the_key_tells_studies_trials_and_code_apart(build: Callable[..., Study]) -> None:
    study = build()
    (trial,) = study.trials("smoke")
    key = version.trial_key(study, trial)
    assert key == version.trial_key(study, trial, version.code_version(study))
    assert key != version.trial_key(study, type(trial)(2), None)
    assert key != version.trial_key(study, trial, "other")


def test_a_study_inside_a_function_is_refused(build: Callable[..., Study]) -> None:
    kind = type(build())

    class Hidden(kind):  # type: ignore[misc, valid-type]
        pass

    with pytest.raises(InputError, match="must stand at the top of its module"):
        version.code_version(Hidden())
