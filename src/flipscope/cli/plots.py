"""Pictures that a command draws with --plot."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flipscope.figures import Figure


def check_plot(path: str | None) -> None:
    """Raise InputError, before any work, if no picture can be written to this path."""
    if path is not None:
        from flipscope.report.drawing import checked_target

        checked_target(path)


def save_plot(figure: Figure, path: str) -> None:
    """Write the picture, and say so."""
    from flipscope.report.drawing import save_figure

    print(f"wrote {save_figure(figure, path)}", file=sys.stderr)
