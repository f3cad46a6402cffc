"""How loops are compiled here: when first called, for fixed signatures, kept on disk, without Python's lock."""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from numba import config, uint64
from numba.core.registry import CPUDispatcher
from numba.core.types import unliteral  # type: ignore[attr-defined]
from numba.extending import intrinsic

from flipscope.basics.limits import cores
from flipscope.native.cache import is_kept, keep_code

Function = TypeVar("Function", bound=Callable[..., Any])

QUIET_SECONDS = 2.0  # of compiling, in all, after which a user at a terminal is told

_lock = threading.RLock()  # of everything that compiles, taken before numba's own


class Loop(CPUDispatcher):  # type: ignore[misc]
    """A loop that is compiled, or loaded, when it is first called: for its own signatures and for no others.

    A signature is compiled when it is called with just its types. A call with others compiles all signatures, and its
    numbers are converted, as float64 to float32, or it is refused; it never compiles anything else. A loop that calls
    another compiles that one, too.
    """

    def __init__(
        self, function: Callable[..., Any], signatures: Callable[[], Sequence[Any]], fastmath: Any = False
    ) -> None:
        super().__init__(function, targetoptions={"nopython": True, "nogil": True, "fastmath": fastmath})
        self._declared = signatures
        self._has_place = False

    def ready(self, types: tuple[Any, ...] | None = None) -> None:
        """Compile it, or load the machine code that was kept: for these types if it has them, else all signatures."""
        with _lock:
            self.disable_compile(False)
            missing = self._missing()
            chosen = [signature for signature in missing if signature.args == types]
            if types not in self.overloads:
                for signature in chosen or missing:
                    with _notice.while_compiling(self.py_func.__name__):
                        self.compile(signature)
            if not self._missing():
                self.disable_compile()

    def forget(self) -> None:
        """Look again for signatures that are wanted, at the next call."""
        with _lock:
            self.disable_compile(False)

    def is_compiled(self) -> bool:
        """Whether calling it takes no compiling: its machine code is loaded, or kept on disk."""
        return all(is_kept(self, signature) for signature in self._missing())

    def _missing(self) -> list[Any]:
        if not self._has_place:
            keep_code(self)
            self._has_place = True
        return [signature for signature in self._declared() if signature.args not in self.overloads]

    def _compile_for_args(self, *arguments: Any, **_keywords: Any) -> Any:
        """What numba asks of a loop whose machine code does not fit a call, for something to call instead."""
        self.ready(tuple(map(self.typeof_pyval, arguments)))
        return self

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """What numba asks while it compiles a loop that calls this one."""
        with _lock:
            self.ready(tuple(map(unliteral, args)))
            self.disable_compile()  # numba would compile for literal numbers
            try:
                return super().get_call_template(args, kws)
            finally:
                self.disable_compile(not self._missing())


def compiled(*signatures: Any, fastmath: Any = False) -> Callable[[Function], Function]:
    """Decorator: compile for these signatures, or load the cached machine code, at the first call."""

    def decorate(function: Function) -> Function:
        return cast(Function, Loop(function, lambda: signatures, fastmath))

    return decorate


class _Notice:
    """Tells a user at a terminal what is compiled, once, when this process has compiled for a while."""

    def __init__(self) -> None:
        self.seconds = 0.0  # of compiling so far
        self._nested = False  # a loop that compiles another
        self._said = False

    @contextmanager
    def while_compiling(self, name: str) -> Iterator[None]:
        """Count the time of what is done meanwhile; whoever calls has the lock."""
        if self._nested:
            yield
            return
        start = time.perf_counter()
        timer = threading.Timer(max(0.0, QUIET_SECONDS - self.seconds), self.say, [name])
        timer.daemon, self._nested = True, True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self.seconds += time.perf_counter() - start
            self._nested = False

    def say(self, name: str) -> None:
        """The sentence; not in a worker, whose parent's user has read it."""
        if self._said or sys.stderr is None or not sys.stderr.isatty() or multiprocessing.parent_process() is not None:
            return
        self._said = True
        print(
            f"flipscope: compiling {name} and other loops, up to half a minute, once on this machine", file=sys.stderr
        )


_notice = _Notice()


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
