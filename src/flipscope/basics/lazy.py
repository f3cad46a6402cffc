"""Public names that are fetched from the module they live in on first use (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazily(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package whose names live in ``homes``: module -> "name name ...".

    What nobody asks for is not loaded: `flipscope --help` and configurations are told without numba and torch.
    """
    home_of = {name: module for module, names in homes.items() for name in names.split()}

    def fetch(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"flipscope.{home_of[name]}")
        # The module itself, such as flipscope.presets, where it has no such name.
        own = home_of[name].rpartition(".")[2] == name and not hasattr(module, name)
        value = module if own else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return fetch, lambda: sorted({*vars(sys.modules[package]), *home_of})
