"""Which code a result came from: an edited study does not reuse what another version of it measured.

The version of a study covers its `measure` method, its trials' classes, and every function, class and constant that
these reach by name, in flipscope and in the study's own package; a class counts as a whole. It is read from the source
without running it. Comments, docstrings, annotations and layout do not count, nor does what nobody reaches, nor do
summaries, claims and figures, which are made anew from stored results. What no name shows (a package of others, a data
file) is not seen: raise the study's `revision` for that.

Compiled loops and the engine of flips are proven to give the right signs however fast they are. They count by one
number, `native.REVISION`, which is raised when what they give changes, so that a faster loop keeps stored results.
The few definitions in `_SAME` count as the code that they were, for their edit changed no stored number.
"""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Mapping

from flipscope.basics.errors import InputError
from flipscope.lab.sources import (
    bindings,
    chains,
    counts_as_source,
    definitions,
    effects,
    parsed,
    piece,
    source,
    target,
    without_annotations,
)
from flipscope.lab.study import Study, Trial, digest
from flipscope.native import REVISION

# How results are stored and where trials run has no say in what they measure.
# Nor has a short way that is proven to give the model's own numbers (tests/models/test_marker.py), nor what holds
# arguments against annotations, which do not count either.
_OUTSIDE = ("flipscope.lab", "flipscope.basics.arguments", "flipscope.basics.errors", "flipscope.models.marker")
# These count by `native.REVISION`.
_REVISED = ("flipscope.native", "flipscope.flips")
# Definitions that were edited without a change to any number that was stored, such as a choice that sends only models
# elsewhere which no study had: their code, and the code that it counts as. Another edit makes an entry void.
_SAME: Mapping[str, tuple[str, str]] = {
    "flipscope.models.readout:logits_for": (
        "7b60951b1c5e8de88a57a788f846ae87c8b81d5a64885aeaae554a957b7a5958",
        "a940dbb087150ef6e30a3ddc156c3452526fb1dcf69eb642fa38e73a1e8cde6f",
    ),
    "flipscope.training.fit:_Run": (
        "1ba167297769dd990b8382efefa6b80b21ff92362f69c9f1e15615d09a7133ac",
        "5737114103aeea80f25a9468c08df6d173b398b51d75654cb6e3f1164942d917",
    ),
    "flipscope.training.fit:_ask": (
        "3f7cb319d0b7cdfb32edb3081e540cf838f75b878778ef6cee85c339eca131ce",
        "980e858b49bb8e01284428fec7faf0be3e0d95fd04473f489933fb731ebb56ae",
    ),
    "flipscope.training.fit:_part": (
        "7aec4c14311247050445f4bbaa8715d7a0e33ebbad6b6e183baed8ea34d596e8",
        "490c7f84fd360415d5fab18b445243a7fa0409e1ec900faa5f748da8dd5fa1f4",
    ),
}


def trial_key(study: Study, trial: Trial, code: str | None = None) -> str:
    """What a result is stored under: study, content of the trial, version of the code."""
    return digest({"study": study.name, "trial": trial.hash, "code": code or code_version(study)})


def code_version(study: Study) -> str:
    """SHA-256 of the code that decides what the study's trials measure."""
    return _class_version(type(study), study.revision)


@functools.cache
def definition_version(module: str, name: str) -> str:
    """SHA-256 of the code of one definition, and of all that it reaches in flipscope and in its own package."""
    reach = Reach(module.partition(".")[0])
    reach.add(module, name)
    return digest(reach.found())


@functools.cache
def _class_version(kind: type[Study], revision: int) -> str:
    reach = Reach(kind.__module__.partition(".")[0])
    for base in kind.__mro__:
        if issubclass(base, Study) and not _within(base.__module__, _OUTSIDE):
            _start(base, reach)
    return digest({**reach.found(), "revision": revision})


def _start(kind: type[Study], reach: Reach) -> None:
    """Add what `measure` and the trials of this class reach."""
    module = kind.__module__
    names = definitions(module)
    start = names.get(kind.__name__)
    if not isinstance(start, ast.ClassDef):
        raise InputError(f"the study class {kind.__qualname__} must stand at the top of its module {module}")
    members = bindings(start)
    queue, seen = ["measure"], set[str]()
    while queue:  # of the class, only what `measure` asks its own object for
        name = queue.pop()
        if name in seen or name not in members:
            continue
        seen.add(name)
        node = members[name]
        reach.add_code(module, f"{kind.__qualname__}.{name}", node)
        queue += [chain[1] for chain in chains(node) if chain[0] in ("self", "cls") and len(chain) > 1]
    loaded = importlib.import_module(module)
    for name in names:
        value = getattr(loaded, name, None)
        if isinstance(value, type) and issubclass(value, Trial) and not _within(value.__module__, _OUTSIDE):
            reach.add(module, name)


class Reach:
    """Definitions that are reached by name from others, in flipscope and in one more package."""

    def __init__(self, own_package: str) -> None:
        self._packages = ("flipscope", own_package)
        self._code: dict[str, str] = {}
        self._seen: set[tuple[str, str]] = set()
        self._loaded: set[str] = set()
        self._queue: list[tuple[str, str]] = []

    def found(self) -> dict[str, object]:
        """A hash for each definition reached."""
        return dict(sorted(self._code.items()))

    def add(self, module: str, name: str) -> None:
        """Add what a name of a module means, and all that this reaches."""
        self._queue.append((module, name))
        while self._queue:
            self._one(*self._queue.pop())

    def add_code(self, module: str, title: str, node: ast.AST) -> None:
        """Add a piece of code of a module, and all that it reaches."""
        self._take(module, title, node)
        while self._queue:
            self._one(*self._queue.pop())

    def _one(self, module: str, name: str) -> None:
        if (module, name) in self._seen or not self._counts(module):
            return
        self._seen.add((module, name))
        if _within(module, _REVISED):
            self._code["engine"] = str(REVISION)
            return
        node = definitions(module).get(name)
        if isinstance(node, ast.Import | ast.ImportFrom):
            place, inner = target(node, module)
            self._mention(place, () if inner is None else (inner,))
        elif node is not None:
            self._take(module, name, node)

    def _take(self, module: str, title: str, node: ast.AST) -> None:
        """Add the code of one definition, and ask for what it mentions."""
        # The trials that `measure` is given are known by its annotation alone.
        code, mentioned, own = piece(node if title.endswith(".measure") else without_annotations(node))
        now, before = _SAME.get(f"{module}:{title}", ("", ""))
        self._code[f"{module}:{title}"] = before if code == now else code
        self._load(module)
        names = {**definitions(module), **own}
        for node in own.values():
            assert isinstance(node, ast.Import | ast.ImportFrom)
            self._load(target(node, module)[0])  # it happens where the import stands, whether the name is used or not
        for first, *attributes in mentioned:
            found = names.get(first) or self._starred(names.get("*"), module, first)
            if isinstance(found, ast.Import | ast.ImportFrom):
                place, inner = target(found, module)
                self._mention(place, (*(() if inner is None else (inner,)), *attributes))
            elif found is not None:
                self._queue.append((module, first))

    def _starred(self, star: ast.AST | None, module: str, name: str) -> ast.AST | None:
        """The import of a name that comes with others, from a module of which all are imported."""
        if not isinstance(star, ast.ImportFrom):
            return None
        place, _ = target(star, module)
        alone = ast.ImportFrom(module=place, names=[ast.alias(name)], level=0)
        return alone if self._counts(place) and name in definitions(place) else None

    def _load(self, module: str) -> None:
        """Add what a module does when it is loaded."""
        if module in self._loaded or not self._counts(module) or _within(module, _REVISED):
            return
        self._loaded.add(module)
        for node in effects(module):
            self._take(module, f"effect {piece(node)[0][:12]}", node)  # by content: a new one renames no other

    def _mention(self, module: str, attributes: tuple[str, ...]) -> None:
        """Ask for what a module and a chain of attributes mean; of a module by itself, anything may be used."""
        while self._counts(module):
            if attributes and not _binds(module, attributes[0]) and source(f"{module}.{attributes[0]}") is not None:
                module, attributes = f"{module}.{attributes[0]}", attributes[1:]
                continue
            self._queue += [(module, attributes[0])] if attributes else [(module, name) for name in definitions(module)]
            return

    def _counts(self, module: str) -> bool:
        known = module.partition(".")[0] in self._packages and not _within(module, _OUTSIDE)
        return known and counts_as_source(module)


def _binds(module: str, name: str) -> bool:
    return name in definitions(module)


def clear_caches() -> None:
    """Read all sources again: for programs that change modules while they run."""
    for cached in (
        parsed,
        source,
        definitions,
        effects,
        piece,
        without_annotations,
        _class_version,
        definition_version,
    ):
        cached.cache_clear()


def _within(module: str, rooms: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(name + ".") for name in rooms)
