"""Which code a result came from: an edited study does not reuse what another version of it measured.

The version of a study covers its `measure` method, its trials' class, and whatever of the study's module these
reach by name; of modules they import from flipscope or from the study's own package, all of it, and so on. It is
read from the source without running it: comments, docstrings and layout do not count, nor do summaries, claims and
figures, which are made anew from stored results. What no name shows (a package of others, a data file) is not
seen: raise the study's `revision` for that.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from flipscope.errors import InputError
from flipscope.lab.study import Study, Trial, digest

# How results are stored and where trials run has no say in what they measure.
_OUTSIDE = ("flipscope.lab", "flipscope.errors")
_PARSING = threading.Lock()  # Python 3.11 cannot parse in two threads of a worker at once


def trial_key(study: Study, trial: Trial, code: str | None = None) -> str:
    """What a result is stored under: study, content of the trial, version of the code."""
    return digest({"study": study.name, "trial": trial.hash, "code": code or code_version(study)})


def code_version(study: Study) -> str:
    """SHA-256 of the code that decides what the study's trials measure."""
    return _class_version(type(study), study.revision)


@functools.cache
def module_version(module: str) -> str:
    """SHA-256 of the code of a module of flipscope, and of all that it imports from there."""
    seen: dict[str, str] = {}
    _whole(module, "flipscope", seen)
    return digest(dict(sorted(seen.items())))


@functools.cache
def _class_version(kind: type[Study], revision: int) -> str:
    seen: dict[str, str] = {}
    for base in kind.__mro__:
        if issubclass(base, Study) and not _outside(base.__module__):
            _reach(base, seen)
    content = {**dict(sorted(seen.items())), "revision": revision}
    return digest(content)


def _reach(kind: type[Study], seen: dict[str, str]) -> None:
    """Add what `measure` and the trials of this class reach."""
    module = _parsed(kind.__module__)
    names = _definitions(module)
    start = names.get(kind.__name__)
    if not isinstance(start, ast.ClassDef):
        raise InputError(f"the study class {kind.__qualname__} must stand at the top of its module {kind.__module__}")
    members = _definitions(start)
    queue: list[ast.AST] = [members[name] for name in ("measure",) if name in members]
    queue += [node for node in names.values() if _is_trial(kind.__module__, node)]
    own_package = kind.__module__.partition(".")[0]
    reached: dict[int, ast.AST] = {}
    while queue:
        node = queue.pop()
        if id(node) in reached:
            continue
        reached[id(node)] = node
        for imported in _imports([node], kind.__module__, own_package):
            _whole(imported, own_package, seen)
        for name, of_self in _mentioned(node):
            found = (members if of_self else names).get(name)
            if found is not None and found is not start:
                queue.append(found)
    text = "\n".join(sorted(ast.unparse(node) for node in reached.values()))
    seen[f"{kind.__module__}:{kind.__qualname__}"] = _hash(text)


def _is_trial(module: str, node: ast.AST) -> bool:
    """Whether a definition is a class of trials, which every study of its module may make."""
    if not isinstance(node, ast.ClassDef):
        return False
    found = getattr(importlib.import_module(module), node.name, None)
    return isinstance(found, type) and issubclass(found, Trial)


def _whole(module: str, own_package: str, seen: dict[str, str]) -> None:
    """Add a module and everything it imports from flipscope or the study's package."""
    if module in seen:
        return
    seen[module], imported = _module(module, own_package)
    for name in imported:
        _whole(name, own_package, seen)


@functools.cache
def _module(module: str, own_package: str) -> tuple[str, tuple[str, ...]]:
    """The hash of a module's code, and what it imports of the packages that count."""
    tree = _parsed(module)
    return _hash(ast.unparse(tree)), tuple(_imports([tree], module, own_package))


def _imports(nodes: Iterable[ast.AST], module: str, own_package: str) -> Iterator[str]:
    """The modules that are imported anywhere in these nodes, of the packages that count."""
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = _absolute(node, module)
            names = [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
        for name in names:
            counts = name.partition(".")[0] in ("flipscope", own_package) and not _outside(name)
            if counts and _source(name) is not None:
                yield name


def _absolute(node: ast.ImportFrom, module: str) -> str:
    """The full name of the module that is imported from."""
    if node.level == 0:
        return node.module or ""
    source = _source(module)
    parts = module.split(".") if source is not None and source.name == "__init__.py" else module.split(".")[:-1]
    parts = parts[: len(parts) - (node.level - 1)]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _mentioned(node: ast.AST) -> Iterator[tuple[str, bool]]:
    """Names that a definition uses, and whether it asks its own object for them."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id, False
        elif (
            isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id in ("self", "cls")
        ):
            yield inner.attr, True


def _definitions(body: ast.Module | ast.ClassDef) -> dict[str, ast.AST]:
    """What each name at the top of a module or class is bound to; a conditional binding counts as a whole."""
    found: dict[str, ast.AST] = {}
    for node in body.body:
        for inner in ast.walk(node):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found[node.name] = node
                break
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                found[inner.id] = node
            elif isinstance(inner, ast.Import | ast.ImportFrom):
                for alias in inner.names:
                    found[alias.asname or alias.name.partition(".")[0]] = _alone(inner, alias)
            elif isinstance(inner, ast.FunctionDef | ast.ClassDef):
                found[inner.name] = node
    return found


def _alone(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> ast.AST:
    """The import of one name only: the others of the same line may serve figures."""
    if isinstance(node, ast.Import):
        return ast.Import(names=[alias])
    return ast.ImportFrom(module=node.module, names=[alias], level=node.level)


@functools.cache
def _parsed(module: str) -> ast.Module:
    """The module's code without docstrings."""
    source = _source(module)
    if source is None:
        raise InputError(f"the source of the module {module} cannot be read, so the version of its code is not known")
    with _PARSING:
        tree = ast.parse(source.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:] or [ast.Pass()]
    return tree


@functools.cache
def _source(module: str) -> Path | None:
    """The file of a module, or None where the name is not a module with a source."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        loaded = sys.modules.get(module)
        file = getattr(loaded, "__file__", None)
        return Path(file) if file else None
    path = Path(spec.origin)
    return path if path.suffix == ".py" else None


def _outside(module: str) -> bool:
    return any(module == name or module.startswith(name + ".") for name in _OUTSIDE)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
