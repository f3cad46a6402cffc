from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flipscope.basics.errors import InputError
from flipscope.lab import registry, sources, version
from flipscope.lab.study import Study

HELPERS = '''"""Helpers."""
from .deep import deepest


def scaled(value):
    """Say it."""
    return value * deepest()
'''
DEEP = "def deepest():\n    return 3\n"
MORE = """
REGISTRY = []


def registered(function):
    REGISTRY.append(function)
    return function


def one():
    return "one says"


def nobody_asks():
    return 0


class Base:
    value = "Base says"


class Kind(Base):
    other = "Kind says"


TABLE = {"one": one}
entered_elsewhere = REGISTRY


@registered
def _entered():
    return "_entered says"
"""
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
        texts = {
            "helpers.py": HELPERS,
            "deep.py": DEEP,
            "more.py": MORE,
            "plotting.py": PLOTTING,
            "study.py": STUDY,
            "__init__.py": "",
        }
        for file, text in texts.items():
            changed = text.replace("PACKAGE", "versioned")
            for before, after in changes:
                changed = changed.replace(before, after)
            (folder / file).write_text(changed)
        for name in [name for name in sys.modules if name.partition(".")[0] == "versioned"]:
            del sys.modules[name]
        importlib.invalidate_caches()
        version.clear_caches()
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


def reached(study: Study) -> set[str]:
    """The modules of which something is reached."""
    reach = version.Reach("versioned")
    version._start(type(study), reach)
    return {name.partition(":")[0] for name in reach.found()}


def test_flipscope_modules_count_where_measure_reaches_them(build: Callable[..., Study]) -> None:
    using = ("return value * deepest()", "from flipscope.cube.functions import majority; return majority(3).n")
    # parity is imported and not used
    assert reached(build()) == {"versioned.study", "versioned.helpers", "versioned.deep"}
    seen = reached(build(using))
    assert {"flipscope.cube.functions", "flipscope.cube.structure"} <= seen
    assert not any(name.startswith(("flipscope.lab", "flipscope.basics.errors")) for name in seen)


@pytest.mark.parametrize(
    ("using", "name"),
    [
        ("import versioned.more; return versioned.more.one()", "one"),
        ("from versioned import more; return more.one()", "one"),
        ("from . import more as other; return other.one()", "one"),
        ("from .more import Kind; return Kind().value", "Kind"),
        ("from .more import Kind; return Kind().value", "Base"),  # by way of the class
        ("from .more import TABLE; return TABLE['one']()", "one"),  # by way of the constant
        ("from . import more; return getattr(more, 'o' + 'ne')()", "one"),  # a module by itself: anything of it
        ("from .more import entered_elsewhere; return 1", "_entered"),  # a decorator may enter it anywhere
    ],
)
def test_names_are_followed_through_modules(build: Callable[..., Study], using: str, name: str) -> None:
    def version_with(*changes: tuple[str, str]) -> str:
        return version.code_version(build(("return value * deepest()", using), *changes))

    plain = version_with()
    assert version_with((f"{name} says", f"{name} says not")) != plain
    assert version_with(("def nobody_asks():", "def nobody_asks(x):")) == plain or "getattr" in using


STUDIES = [registry.find(name) for name in sorted(registry.names())]


def test_names_that_are_imported_together_are_followed(build: Callable[..., Study]) -> None:
    star = ("from .deep import deepest", "from .deep import deepest\nfrom .more import *")
    using = ("return value * deepest()", "return one()")
    plain = version.code_version(build(star, using))
    assert version.code_version(build(star, using, ("one says", "one says not"))) != plain
    assert version.code_version(build(star, using, ("Kind says", "Kind says not"))) == plain


def versions_after(monkeypatch: pytest.MonkeyPatch, change: Callable[[Path, str], str]) -> dict[str, str]:
    """The versions of flipscope's studies if its sources were changed like this."""
    monkeypatch.setattr(sources, "read", lambda path: change(path, path.read_text("utf-8")))
    version.clear_caches()
    found = {study.name: version.code_version(study) for study in STUDIES}
    monkeypatch.undo()
    version.clear_caches()
    return found


def test_an_unused_function_anywhere_changes_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = versions_after(monkeypatch, lambda path, text: text)
    more = "\n\ndef _nobody_asks(x: int) -> int:\n    return x + 1\n"
    assert versions_after(monkeypatch, lambda path, text: text + more) == plain


def test_a_faster_engine_keeps_results_until_its_revision_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = versions_after(monkeypatch, lambda path, text: text)

    def faster(path: Path, text: str) -> str:
        return text.replace(" + ", " - ") if path.parent.name in ("native", "flips") else text

    assert versions_after(monkeypatch, faster) == plain
    monkeypatch.setattr(version, "REVISION", version.REVISION + 1)
    version.clear_caches()
    changed = {study.name for study in STUDIES if version.code_version(study) != plain[study.name]}
    monkeypatch.undo()
    version.clear_caches()
    assert changed == {
        "blowup-bound",
        "bound-comparison",
        "capacity",
        "fourier-testers",
        "function-count",
        "generalization-gap",
        "influence-decay",
        "low-sharpness",
        "median-threshold",
        "norm-blowup",
        "perturbed-sharpness",
        "prior-volume",
        "random-functions",
        "random-init",
        "random-languages",
        "random-sensitivity",
        "reduced-sensitivity",
        "scratchpad",
        "sharpness-by-length",
        "sparse-constructions",
        "sparse-profiles",
        "trained-profiles",
        "zero-strings",
    }


def test_what_all_models_are_made_of_counts_wherever_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = versions_after(monkeypatch, lambda path, text: text)

    def other(path: Path, text: str) -> str:
        return text.replace("hidden.relu()", "hidden.abs()") if path.name == "transformer.py" else text

    found = versions_after(monkeypatch, other)
    # The last two have networks of their own.
    without = {"low-variance", "random-functions", "bound-comparison", "sparse-constructions"}
    assert {name for name in plain if found[name] == plain[name]} == without


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


def test_edits_that_changed_no_number_are_those_of_the_present_code() -> None:
    for place, (now, before) in version._SAME.items():
        module, name = place.split(":")
        node = sources.definitions(module)[name]
        assert sources.piece(sources.without_annotations(node))[0] == now != before
