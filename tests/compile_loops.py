"""Compile every loop of the package and keep its machine code: python -m tests.compile_loops.

Tests run in many processes, which would all wait for the first of them to compile a loop.
"""

from __future__ import annotations

import importlib
import pkgutil

from flipscope import native
from flipscope.native.compiled import loops


def main() -> None:
    for module in pkgutil.iter_modules(native.__path__, f"{native.__name__}."):
        importlib.import_module(module.name)
    for ready in loops:
        ready()


if __name__ == "__main__":
    main()
