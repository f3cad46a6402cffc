"""How loops are compiled here: when first called, for fixed signatures, kept on disk, without Python's lock.

A loop that Python calls is ``compiled``; helpers that only loops call are plain ``numba.njit`` functions, compiled
along with what calls them.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

from numba import config, njit, uint64
from numba.extending import intrinsic

from flipscope.basics.limits import cores
from flipscope.native import cache

Function = TypeVar("Function", bound=Callable[..., Any])

QUIET_SECONDS = 2.0  # of compiling, after which a user at a terminal is told

_lock = threading.RLock()
_told = threading.Event()
loops: list[Callable[[], Any]] = []  # each compiles or loads a loop, and returns it


def compiled(signature: Any, **options: Any) -> Callable[[Function], Function]:
    """Decorator: `numba.njit` for this signature, compiled or loaded when the function is first called.

    Numbers of other types are converted, as float64 to float32, or refused: nothing else is ever compiled.
    """

    def decorate(function: Function) -> Function:
        ready = functools.cache(lambda: _machine_code(function, signature, options))
        loops.append(ready)

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            return ready()(*arguments)

        return cast(Function, call)

    return decorate


def compiled_by(key: Callable[[Any], Any], signatures: Mapping[Any, Any]) -> Callable[[Function], Function]:
    """Decorator: as ``compiled``, each signature by itself, chosen by the key of the first argument."""

    def decorate(function: Function) -> Function:
        each = {name: compiled(signature)(function) for name, signature in signatures.items()}

        @functools.wraps(function)
        def call(first: Any, *others: Any) -> Any:
            return each[key(first)](first, *others)

        return cast(Function, call)

    return decorate


def _machine_code(function: Callable[..., Any], signature: Any, options: Any) -> Any:
    """numba's function, compiled, or loaded from the folder of today's sources."""
    folder = cache.folder()
    notice = threading.Timer(QUIET_SECONDS, _tell, [function.__name__])
    notice.daemon = True
    with _lock, cache.alone():
        before, config.CACHE_DIR = config.CACHE_DIR, str(folder or "")
        notice.start()
        try:
            return njit([signature], cache=folder is not None, nogil=True, **options)(function)
        except OSError:  # a full disk
            return njit([signature], nogil=True, **options)(function)
        finally:
            notice.cancel()
            config.CACHE_DIR = before


def _tell(name: str) -> None:
    """Tell a user at a terminal what takes so long, once; not in a worker, whose parent's user has read it."""
    if _told.is_set() or sys.stderr is None or not sys.stderr.isatty() or multiprocessing.parent_process() is not None:
        return
    _told.set()
    print(f"flipscope: compiling {name} and other loops, up to half a minute, once on this machine", file=sys.stderr)


@intrinsic  # type: ignore[untyped-decorator]
def popcount(_typing: Any, word: Any) -> Any:
    """Number of ones of a 64-bit word, by the processor's own instruction."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return uint64(uint64), generate


def in_parallel(work: Callable[[int, int], None], size: int, grain: int) -> None:
    """Call work(first, last) on pieces that cover range(size), on every core; pieces are multiples of ``grain``.

    NUMBA_NUM_THREADS limits the threads, as it does numba's own: processes that share a machine set it to 1.
    """
    workers = min(cores(), config.NUMBA_NUM_THREADS)
    if size <= 2 * grain or workers == 1:
        work(0, size)
        return
    piece = max(grain, -(-size // (4 * workers)) // grain * grain)
    pieces = [(first, min(first + piece, size)) for first in range(0, size, piece)]
    for _ in _pool(os.getpid(), workers).map(lambda bounds: work(*bounds), pieces):
        pass


@functools.lru_cache(maxsize=1)
def _pool(_process: int, workers: int) -> ThreadPoolExecutor:
    """Threads kept from call to call: starting them costs as much as a small kernel; a forked process makes its own."""
    return ThreadPoolExecutor(workers)
