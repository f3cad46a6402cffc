"""Where machine code is kept: in a folder named after the sources of all compiled loops.

numba looks only at the file of a loop when it decides whether its cached machine code is still right. A loop inlines
helpers from other files of this package: had one of them changed, old code would run under a new name. So the digest of
the package's sources is part of the place where code is kept.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from numba import config

SOURCES = Path(__file__).parent
PREFIX = "flipscope-"
UNUSED_DAYS = 7  # after which the machine code of other sources is removed

_lock = threading.RLock()


@functools.lru_cache(maxsize=1)
def sources_digest() -> str:
    """A digest of the sources of this package, whatever else may change."""
    found = hashlib.blake2b(digest_size=8)
    for path in sorted(SOURCES.glob("*.py")):
        content = path.read_bytes()
        found.update(f"{path.name} {len(content)} ".encode() + content)
    return found.hexdigest()


@contextlib.contextmanager
def kept_by_digest() -> Iterator[None]:
    """Loops that are declared here keep their machine code in the folder of today's sources."""
    with _lock:
        before = config.CACHE_DIR
        config.CACHE_DIR = str(_folder(before))
        try:
            yield
        finally:
            config.CACHE_DIR = before


@functools.lru_cache(maxsize=4)
def _folder(asked: str) -> Path:
    """Below what NUMBA_CACHE_DIR says, else beside the sources, else among the user's caches."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flipscope"
    for base in (Path(asked),) if asked else (SOURCES / "__pycache__", user):
        folder = base / f"{PREFIX}{sources_digest()}"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            os.utime(folder)  # it is in use
            _remove_unused(base)
            return folder
    return user  # numba says what is wrong with it


def _remove_unused(base: Path) -> None:
    """Remove the machine code of sources that have not been used for a while."""
    for folder in base.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_mtime < time.time() - UNUSED_DAYS * 86_400:
                shutil.rmtree(folder)
