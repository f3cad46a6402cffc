"""Where machine code is kept: in a folder named after the sources of all compiled loops. Nothing here loads numba.

numba looks only at the file of a loop when it decides whether its cached machine code is still right. A loop inlines
helpers from other files of this package: had one of them changed, old code would run under a new name. So the digest of
the package's sources is part of the place where code is kept.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from flipscope.basics.errors import printable

SOURCES = Path(__file__).parent
PREFIX = "flipscope-"
UNUSED_DAYS = 7  # after which the machine code of other sources is removed


@functools.lru_cache(maxsize=1)
def sources_digest() -> str:
    """A digest of the sources of this package, whatever else may change."""
    found = hashlib.blake2b(digest_size=8)
    for path in sorted(SOURCES.glob("*.py")):
        content = path.read_bytes()
        found.update(f"{path.name} {len(content)} ".encode() + content)
    return found.hexdigest()


@functools.lru_cache(maxsize=1)
def folder() -> Path | None:
    """Below NUMBA_CACHE_DIR if that is set, else beside the sources, else among the user's caches; None: nowhere."""
    asked = os.environ.get("NUMBA_CACHE_DIR")
    tried = [Path(asked)] if asked else [SOURCES / "__pycache__", *_user_caches()]
    for base in tried:
        found = base / f"{PREFIX}{sources_digest()}"
        with contextlib.suppress(OSError):
            found.mkdir(parents=True, exist_ok=True)
            os.utime(found)  # it is in use
            tempfile.TemporaryFile(dir=found).close()
            _remove_unused(base)
            return found
    if multiprocessing.parent_process() is None and sys.stderr is not None:  # a worker would repeat what was read
        told = (
            f"flipscope: no file can be written to {' or '.join(map(str, tried))}: every process compiles its loops "
            "again, which takes up to a minute; set NUMBA_CACHE_DIR to a folder that can be written"
        )
        print(printable(told), file=sys.stderr)
    return None


def is_kept(loop: str) -> bool:
    """Whether there is machine code of a loop, such as "lanes.middle_layer", that was compiled by any process."""
    kept = folder()
    return kept is not None and any(kept.glob(f"*/{loop}-*.nbi"))


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Other processes wait meanwhile, and then load what this one has compiled.

    Also numba's index of a loop's signatures is not safe from two processes that write it at once.
    """
    kept = folder()
    try:
        import fcntl
    except ImportError:  # Windows: its processes compile side by side
        kept = None
    if kept is None:
        yield
        return
    with open(kept / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _user_caches() -> list[Path]:
    """The folder of this user's caches, if there is a user with a home."""
    try:
        return [Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flipscope"]
    except RuntimeError:
        return []


def _remove_unused(base: Path) -> None:
    """Remove the machine code of sources that have not been used for a while."""
    for kept in base.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if kept.stat().st_mtime < time.time() - UNUSED_DAYS * 86_400:
                shutil.rmtree(kept)
