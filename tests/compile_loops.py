"""Compile every loop of the package and keep its machine code: python -m tests.compile_loops.

Tests run in many processes, of which several would compile the same loops at the same time.
"""

from __future__ import annotations

import importlib
import pkgutil

from flipscope import native
from flipscope.native.compiled import Loop
from flipscope.native.span import TOKENS, span_of


def main() -> None:
    for lanes in TOKENS:
        span_of(lanes)
    for module in pkgutil.iter_modules(native.__path__, f"{native.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Loop):
                value.ready()


if __name__ == "__main__":
    main()
