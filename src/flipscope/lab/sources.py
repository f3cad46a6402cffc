"""Python sources as data: what a module defines, and which definition of which module a name means.

Nothing is run: sources are parsed. Docstrings, comments and layout are gone, and so are the annotations of functions,
which compute nothing.
"""

from __future__ import annotations

import ast
import copy
import functools
import hashlib
import importlib.util
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from flipscope.basics.errors import InputError

# Decorators that only change the function they decorate; any other may enter it somewhere, which no name shows.
_PLAIN_DECORATORS = {
    "abstractmethod",
    "cache",
    "cached_property",
    "checked_arguments",
    "classmethod",
    "contextmanager",
    "dataclass",
    "final",
    "inference_mode",
    "lru_cache",
    "no_grad",
    "overload",
    "override",
    "property",
    "runtime_checkable",
    "staticmethod",
}


_PARSING = threading.Lock()  # Python 3.11 cannot parse in two threads of a worker at once


@functools.cache
def parsed(module: str) -> ast.Module:
    """The code of a module, without what computes nothing."""
    path = source(module)
    if path is None:
        raise InputError(f"the source of the module {module} cannot be read, so the version of its code is not known")
    with _PARSING:
        tree = ast.parse(read(path))
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


def read(path: Path) -> str:
    """The text of a source."""
    return path.read_text("utf-8")


@functools.cache
def source(module: str) -> Path | None:
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


@functools.cache
def definitions(module: str) -> Mapping[str, ast.AST]:
    """What each name at the top of a module is bound to."""
    return bindings(parsed(module))


def bindings(body: ast.Module | ast.ClassDef) -> dict[str, ast.AST]:
    """What each name at the top of a module or class is bound to; a conditional binding counts as a whole."""
    found: dict[str, ast.AST] = {}
    for node in body.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = node
            continue
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                found[inner.id] = node
            elif isinstance(inner, ast.Import | ast.ImportFrom):
                found |= imported(inner)
            elif isinstance(inner, ast.FunctionDef | ast.ClassDef):
                found[inner.name] = node
    return found


@functools.cache
def effects(module: str) -> tuple[ast.AST, ...]:
    """What a module does when it is loaded, beyond binding names: calls, and functions that a decorator enters."""
    found: list[ast.AST] = []
    for node in parsed(module).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if not all(_last(decorator) in _PLAIN_DECORATORS for decorator in node.decorator_list):
                found.append(node)
        elif not bindings(ast.Module([node], [])) and not isinstance(node, ast.Pass):
            found.append(node)
    return tuple(found)


def _last(decorator: ast.expr) -> str:
    """The last name of a decorator."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def imported(node: ast.Import | ast.ImportFrom) -> dict[str, ast.AST]:
    """The names that an import binds, each with the import of it alone: the others may serve figures."""
    found: dict[str, ast.AST] = {}
    for alias in node.names:
        if isinstance(node, ast.Import):
            found[alias.asname or alias.name.partition(".")[0]] = ast.Import(names=[alias])
        else:
            found[alias.asname or alias.name] = ast.ImportFrom(module=node.module, names=[alias], level=node.level)
    return found


def target(node: ast.Import | ast.ImportFrom, module: str) -> tuple[str, str | None]:
    """What the import of one name means: a module and a name in it, or a module alone."""
    [alias] = node.names
    if isinstance(node, ast.Import):
        return (alias.name if alias.asname else alias.name.partition(".")[0]), None
    origin = _origin(node, module)
    inner = f"{origin}.{alias.name}"
    known = alias.name in definitions(origin) if counts_as_source(origin) else False
    return (inner, None) if not known and source(inner) is not None else (origin, alias.name)


def counts_as_source(module: str) -> bool:
    """Whether there is a source to read."""
    return source(module) is not None


def _origin(node: ast.ImportFrom, module: str) -> str:
    """The full name of the module that is imported from."""
    if node.level == 0:
        return node.module or ""
    path = source(module)
    parts = module.split(".") if path is not None and path.name == "__init__.py" else module.split(".")[:-1]
    parts = parts[: len(parts) - (node.level - 1)]
    return ".".join([*parts, *([node.module] if node.module else [])])


@functools.cache
def without_annotations(node: ast.AST) -> ast.AST:
    """A copy of a definition without the annotations of functions; fields of classes keep theirs."""
    bare: ast.AST = _Bare().visit(copy.deepcopy(node))
    return bare


class _Bare(ast.NodeTransformer):
    """Takes annotations out of functions."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node


@functools.cache
def piece(node: ast.AST) -> tuple[str, tuple[tuple[str, ...], ...], Mapping[str, ast.AST]]:
    """Of a definition: a hash of its code, the names it mentions, and those that it imports for itself."""
    own: dict[str, ast.AST] = {}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Import | ast.ImportFrom):
            own |= imported(inner)
    return hashlib.sha256(ast.unparse(node).encode()).hexdigest(), tuple(sorted(set(chains(node)))), own


def chains(node: ast.AST) -> Iterator[tuple[str, ...]]:
    """The names that a piece of code mentions, each with the attributes that it is asked for: a.b.c -> (a, b, c)."""
    inside: set[int] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and id(inner) not in inside:
            parts, value = [inner.attr], inner.value
            while isinstance(value, ast.Attribute):
                inside.add(id(value))
                parts.append(value.attr)
                value = value.value
            if isinstance(value, ast.Name):
                inside.add(id(value))
                yield (value.id, *reversed(parts))
        elif isinstance(inner, ast.Name) and id(inner) not in inside:
            yield (inner.id,)
