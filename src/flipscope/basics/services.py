"""What rooms above do for rooms below, which do not know them: by a name, imported when it is first used.

The package itself says who provides what (`flipscope/__init__.py`), since it stands above all rooms. So a result in a
low room can show its picture in a notebook, although only `report` draws.

    >>> provide("square root", "math:sqrt")
    >>> service("square root")(9.0)
    3.0
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_places: dict[str, str] = {}


def provide(name: str, place: str) -> None:
    """Have this service provided by the function at a place, "package.module:function"."""
    _places[name] = place


def service(name: str) -> Any:
    """The function that provides this service."""
    module, _, function = _places[name].partition(":")
    return getattr(import_module(module), function)
