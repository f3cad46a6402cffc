"""Resources of a process: the available memory, and one thread, so that numbers are the same everywhere.

Several threads add up a sum in another order than one thread, so the last bits differ: trials always compute with one
thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from flipscope.basics.limits import allowed_memory, cores

SPARE = 0.1  # share of memory reserved for the driver and for trials that exceed their estimate
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# Returning memory to the system after each operation and fetching it again would take a third of the time.
_KEEP = str(1 << 40)
ENVIRONMENT = {
    "MALLOC_TRIM_THRESHOLD_": _KEEP,
    "MALLOC_MMAP_THRESHOLD_": _KEEP,
    "NUMBA_NUM_THREADS": "1",
    **ONE_THREAD,
}

# Names under which OpenBLAS is built: its own, and those of the libraries inside numpy and scipy.
_BLAS_NAMES = (
    "openblas_{}_num_threads",
    "openblas_{}_num_threads64_",
    "scipy_openblas_{}_num_threads",
    "scipy_openblas_{}_num_threads64_",
)


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set these environment variables within the context, for processes and libraries started there."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Within this context, torch and BLAS use one thread, including libraries loaded there."""
    before = {name: library.count() for name, library in _libraries().items()}
    with environment(ONE_THREAD):
        _set_all_to_one()
        try:
            yield
        finally:
            for name, library in _libraries().items():
                library.set(before.get(name, cores()))


def keep_one_thread() -> None:
    """Reset torch to one thread, which a trial may have changed."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


def stay_with_one_thread() -> None:
    """Use one thread for the rest of this process; called before each trial."""
    global _modules
    if len(sys.modules) != _modules:  # search for the libraries only if modules were loaded
        _modules = len(sys.modules)
        os.environ.update(ONE_THREAD)
        _set_all_to_one()
    keep_one_thread()


_modules = 0  # number of loaded modules at the last search


def _set_all_to_one() -> None:
    for library in _libraries().values():
        library.set(1)


@dataclass(frozen=True)
class _Library:
    """A library with its own threads."""

    count: Callable[[], int]
    set: Callable[[int], object]


def _libraries() -> dict[str, _Library]:
    """The loaded libraries that compute with several threads, by name."""
    found = {}
    torch = sys.modules.get("torch")
    if torch is not None:
        found["torch"] = _Library(torch.get_num_threads, torch.set_num_threads)
    for path in _blas_files():
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(path)  # it is loaded already: this only returns it
            for name in _BLAS_NAMES:
                if hasattr(library, name.format("get")) and hasattr(library, name.format("set")):
                    found[path] = _Library(library[name.format("get")], library[name.format("set")])
    return found


def _blas_files() -> set[str]:
    """The files of OpenBLAS that this process has loaded."""
    maps = Path("/proc/self/maps")
    if maps.exists():
        lines = maps.read_text(errors="surrogateescape").splitlines()  # names of files need not be text
        paths = {"/" + line.partition("/")[2] for line in lines}
        return {path for path in paths if "openblas" in path.rpartition("/")[2]}
    homes = [Path(module.__file__ or "").parent for name in ("numpy", "scipy") if (module := sys.modules.get(name))]
    return {str(path) for home in homes for path in (home / ".dylibs").glob("*openblas*")}


def memory_limit() -> int:
    """Bytes that all trials on this machine may use together: most of the free and permitted memory."""
    return int((1 - SPARE) * min(allowed_memory(), _free()))


def _free() -> float:
    """Bytes of available memory."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
