"""The results folder of the trial being measured: set by the runner, read by code that shares models between trials."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

DATABASE = "flipscope.sqlite"  # the file that makes a folder a results folder
MODELS = "models"  # the folder of trained models beside it
CHECKPOINT, LOCK = ".checkpoint", ".lock"  # suffixes of the files beside a model that is being trained

_folder: ContextVar[str | None] = ContextVar("folder", default=None)


@contextmanager
def kept_in(folder: str | None) -> Iterator[None]:
    """Within this context, trials measured in this thread belong to this folder."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


def results_folder() -> Path | None:
    """The folder, if there is one and this machine can access it, which a worker of a cluster may not."""
    folder = _folder.get()
    return Path(folder) if folder is not None and Path(folder, DATABASE).is_file() else None
