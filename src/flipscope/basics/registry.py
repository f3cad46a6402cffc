"""Short names for classes and functions that stored files refer to.

A file holds a name, never the place of a definition in the source, so that it can be read after the definition has
moved or was renamed. Definitions outside a registry are given by their place, "package.module:definition".
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from flipscope.basics.errors import InputError

T = TypeVar("T")


class UnknownName(InputError):
    """A name for which this flipscope, with the packages that are installed, has no definition."""


class Registry(Generic[T]):
    """Definitions of one sort by their short names; `former` maps names of earlier versions to present ones.

    With `extensible` definitions of other packages may be given by their place, "package.module:definition".

    >>> shapes = Registry("shape", {"round": float, "square": int}, former={"circle": "round"})
    >>> shapes.get("circle"), shapes.canonical("circle"), shapes.name_of(int)
    (<class 'float'>, 'round', 'square')
    """

    def __init__(
        self,
        what: str,
        definitions: Mapping[str, T],
        *,
        former: Mapping[str, str] | None = None,
        extensible: bool = False,
    ) -> None:
        self.what, self.definitions, self.extensible = what, dict(definitions), extensible
        self._former = {**{_place(each): name for name, each in definitions.items()}, **(former or {})}

    def canonical(self, name: str) -> str:
        """The name that files hold, for a registered name, a former one, or a place; UnknownName for any other."""
        if isinstance(name, str):  # a damaged file may have anything here
            if name in self.definitions:
                return name
            if name in self._former:
                return self._former[name]
            if self.extensible and ":" in name:
                return name
        otherwise = ", or give package.module:definition" if self.extensible else ""
        raise UnknownName(
            f"{name!r} is no {self.what} that this flipscope knows: known are {', '.join(self.definitions)}{otherwise}"
        )

    def get(self, name: str) -> T:
        """The definition that a name stands for; UnknownName where there is none."""
        name = self.canonical(name)
        return self.definitions[name] if name in self.definitions else self._imported(name)

    def name_of(self, definition: T) -> str:
        """The name that files hold for a definition."""
        return self.canonical(_place(definition))

    def _imported(self, place: str) -> T:
        module, _, name = place.partition(":")
        try:
            definition: T = operator.attrgetter(name)(importlib.import_module(module))
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise UnknownName(f"the {self.what} {place!r} cannot be imported: {error}") from error
        return definition


def _place(definition: Any) -> str:
    return f"{definition.__module__}:{definition.__qualname__}"
