"""Which results folder a trial is measured for: set by whoever runs it, asked by what the trial shares with others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from flipscope.lab.store.schema import DATABASE

CHECKPOINT, LOCK = ".checkpoint", ".lock"  # end the names of what lies beside a model while it is trained

_folder: ContextVar[str | None] = ContextVar("folder", default=None)


@contextmanager
def kept_in(folder: str | None) -> Iterator[None]:
    """Trials that are measured meanwhile, in this thread, are for this folder."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


def results_folder() -> Path | None:
    """The folder, if there is one and this machine sees it: a worker of a cluster need not."""
    folder = _folder.get()
    return Path(folder) if folder is not None and Path(folder, DATABASE).is_file() else None
