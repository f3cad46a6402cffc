"""Where machine code is kept: in a folder named after the sources of all compiled loops, sealed by a digest.

numba looks only at the file of a loop when it decides whether its cached machine code is still right. A loop inlines
helpers from other files of this package: had one of them changed, old code would run under a new name. So the digest of
the package's sources is part of the place where code is kept.

numba trusts what it finds there, and a flipped bit ends the process or changes what a loop computes. So a file begins
with a digest of the rest, and what does not fit is removed and compiled again. There is one file for each signature
instead of numba's index of them: an index that two processes write at once can name the code of another signature.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import multiprocessing
import os
import pickle
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numba
from numba import config
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps

from flipscope.basics.errors import InputError, printable
from flipscope.basics.files import write_bytes

SOURCES = Path(__file__).parent
PREFIX = "flipscope-"
UNUSED_DAYS = 7  # after which the machine code of other sources is removed
SEAL_BYTES = 32

_told: set[str] = set()
_lock = threading.RLock()


@functools.lru_cache(maxsize=1)
def sources_digest() -> str:
    """A digest of the sources of this package, whatever else may change."""
    found = hashlib.blake2b(digest_size=8)
    for path in sorted(SOURCES.glob("*.py")):
        content = path.read_bytes()
        found.update(f"{path.name} {len(content)} ".encode() + content)
    return found.hexdigest()


def keep_code(loop: Any) -> None:
    """Have this loop of numba's, not compiled yet, keep its machine code in the folder of today's sources."""
    with _lock:
        before = config.CACHE_DIR
        folder = _folder(before)
        if folder is None:
            return
        config.CACHE_DIR = str(folder)
        try:
            loop._cache = _SealedCache(loop.py_func)  # as numba's own enable_caching does
        finally:
            config.CACHE_DIR = before


def is_kept(loop: Any, signature: Any) -> bool:
    """Whether the machine code of this signature is in the folder; whether it is undamaged shows when it is loaded."""
    cache = loop._cache
    return isinstance(cache, _SealedCache) and cache.has(signature, loop.targetctx.codegen())


@functools.lru_cache(maxsize=4)
def _folder(asked: str) -> Path | None:
    """Below NUMBA_CACHE_DIR if that is set, else beside the sources, else among the user's caches; None: nowhere."""
    tried = [Path(asked)] if asked else [SOURCES / "__pycache__", *_user_caches()]
    for base in tried:
        folder = base / f"{PREFIX}{sources_digest()}"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            os.utime(folder)  # it is in use
            tempfile.TemporaryFile(dir=folder).close()
            _remove_unused(base)
            return folder
    if multiprocessing.parent_process() is None:  # a worker would repeat what the user has read
        _tell(
            "no place",
            f"no file can be written to {' or '.join(map(str, tried))}: every process compiles its loops again, which "
            "takes up to a minute; set NUMBA_CACHE_DIR to a folder that can be written",
        )
    return None


def _user_caches() -> list[Path]:
    """The folder of this user's caches, if there is a user with a home."""
    try:
        return [Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flipscope"]
    except RuntimeError:
        return []


class _SealedCache(FunctionCache):  # type: ignore[misc]
    """numba's cache of the machine code of one loop, with files that are checked before they are used."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._cache_file = _SealedFiles(
            Path(self._cache_path), self._impl.filename_base, self._impl.locator.get_source_stamp()
        )

    def has(self, signature: Any, codegen: Any) -> bool:
        """Whether there is a file for this signature."""
        return self._cache_file.has(self._index_key(signature, codegen))


class _SealedFiles:
    """The files of one loop, by what numba tells its signatures apart by."""

    def __init__(self, folder: Path, name: str, stamp: bytes) -> None:
        self._folder, self._name, self._stamp = folder, name, stamp

    def has(self, key: Any) -> bool:
        """Whether something was saved for this key."""
        return self._path(key).is_file()

    def load(self, key: Any) -> Any:
        """What was saved for this key, or None; a damaged file is removed."""
        path = self._path(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError:
            content = b""
        seal, data = content[:SEAL_BYTES], content[SEAL_BYTES:]
        if seal != _seal(data):
            self._discard(path)
            return None
        return pickle.loads(data)

    def save(self, key: Any, content: Any) -> None:
        """Keep this for the next process, if it can be written."""
        data = dumps(content)
        try:
            write_bytes(self._path(key), _seal(data) + data, "machine code")
        except InputError as error:
            _tell("unwritten", f"{str(error).rstrip('.')}; going on, and the next process compiles it again")

    def flush(self) -> None:
        """Forget what is saved."""
        for path in self._folder.glob(f"{self._name}.*.nbc"):
            path.unlink(missing_ok=True)

    def _discard(self, path: Path) -> None:
        """Remove a damaged file and say so, unless another process was faster."""
        try:
            path.unlink()
        except FileNotFoundError:
            return
        except OSError:
            pass  # what is compiled now takes its place, or `save` says why not
        _tell("damaged", f"machine code in {self._folder} is damaged; the loops concerned are compiled again")

    def _path(self, key: Any) -> Path:
        named = repr((numba.__version__, sources_digest(), self._stamp, key)).encode()
        return self._folder / f"{self._name}.{hashlib.blake2b(named, digest_size=16).hexdigest()}.nbc"


def _seal(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=SEAL_BYTES).digest()


def _tell(what: str, said: str) -> None:
    """Say this on standard error, once in a process."""
    if what not in _told and sys.stderr is not None:
        _told.add(what)
        print(f"flipscope: {printable(said)}", file=sys.stderr)


def _remove_unused(base: Path) -> None:
    """Remove the machine code of sources that have not been used for a while."""
    for folder in base.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_mtime < time.time() - UNUSED_DAYS * 86_400:
                shutil.rmtree(folder)
