"""Public names that are imported on first use (PEP 562), by the imports that a package writes for type checkers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module


def lazily(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package that imports its public names under ``if TYPE_CHECKING``.

    Nothing is imported before it is used: `flipscope --help` needs neither numba nor torch. The package's source is
    read when the first name is used, so that importing the package costs nothing either.
    """
    home_of: dict[str, str] = {}

    def fetch(name: str) -> object:
        room = sys.modules[package]
        if name not in room.__all__:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not home_of:
            home_of.update(_imports(package))
        value = _imported(home_of[name], name, package)
        setattr(room, name, value)
        return value

    def names() -> list[str]:
        room = sys.modules[package]
        return sorted({*vars(room), *room.__all__})

    return fetch, names


def _imports(package: str) -> dict[str, str]:
    """The module of each name that the package imports under ``if TYPE_CHECKING``."""
    import ast  # here, since importing the package should not load them
    import inspect

    blocks = [node.body for node in ast.parse(inspect.getsource(sys.modules[package])).body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def _imported(module: str, name: str, package: str) -> object:
    """What ``from module import name`` gives: a name of the module, or else a module inside it."""
    # getattr of the package would call this function again.
    if module != package and hasattr(home := import_module(module), name):
        return getattr(home, name)
    return import_module(f"{module}.{name}")
