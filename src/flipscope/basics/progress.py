"""How work tells how far it is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]  # called with what is done, and what there is in all
