"""How loops are compiled here: once, for a fixed signature, cached on disk, without holding Python's lock."""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

from numba import config, njit, uint64
from numba.extending import intrinsic

from flipscope.basics.limits import cores
from flipscope.native.cache import keep_code

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(*signatures: Any, fastmath: bool = False) -> Callable[[Function], Function]:
    """Decorator: compile for these signatures now (or load the cached machine code)."""

    def decorate(function: Function) -> Function:
        loop = kept_loop(function, fastmath)
        compile_for(loop, signatures)
        return cast(Function, loop)

    return decorate


def kept_loop(function: Callable[..., Any], fastmath: bool = False) -> Any:
    """The loop of this function, whose machine code is kept; not compiled yet."""
    loop = njit(nogil=True, fastmath=fastmath)(function)
    keep_code(loop)
    return loop


def compile_for(loop: Any, signatures: Iterable[Any]) -> None:
    """Compile a loop for these signatures, or load the machine code that was kept, and for no others."""
    loop.disable_compile(False)
    for signature in signatures:
        loop.compile(signature)
    loop.disable_compile()  # a call with other types is an error, not another minute of compiling
    if loop.stats.cache_misses:
        say()


@functools.lru_cache(maxsize=1)
def say() -> None:
    """Tell a user who waits at a terminal what for, once."""
    if sys.stderr is not None and sys.stderr.isatty() and multiprocessing.parent_process() is None:
        print("flipscope: compiling its loops, up to a minute, once on this machine", file=sys.stderr)


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
