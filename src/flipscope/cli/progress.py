"""Progress on standard error for work of more than two seconds: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

QUIET_SECONDS = 2.0
LINE_SECONDS = 10.0


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """A callback (done, total) that shows progress after the first two seconds."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    lively = console.is_terminal and not console.is_dumb_terminal  # a dumb terminal cannot overwrite its output
    view = Progress(
        TextColumn("{task.description}", markup=False),  # an expression may look like markup
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
        TimeRemainingColumn(),
        console=console,
    )
    task = view.add_task(title)
    start = last_line = time.monotonic()
    shown = False

    def report(done: int, total: int) -> None:
        nonlocal shown, last_line
        now = time.monotonic()
        if now - start < QUIET_SECONDS:
            return
        if lively:
            if not shown:
                view.start()
                shown = True
            view.update(task, completed=done, total=total)
        elif now - last_line > LINE_SECONDS:
            last_line = now
            print(f"{title}: {100 * done / total:.0f} %", file=sys.stderr, flush=True)

    try:
        yield report
    finally:
        if shown:
            view.stop()
