"""Limits of the machine: a request that is far too large is refused with a sentence before it is tried.

The estimates are lower bounds, so that nothing is refused that could have been answered: what must be in the memory at
one time, against all that the machine has or its control group allows, and work that would take decades. Estimates in
hours are made by commands only (`cli.hours`).
"""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path

from flipscope.basics.errors import InputError

MOST_WORK = 10**20  # multiplications: thirty years of a core that does 10^11 per second


@functools.cache
def machine_memory() -> int:
    """Bytes of memory of this machine, or those that the control groups of this process allow, if fewer."""
    return int(min(allowed_memory(), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))


def check_memory(need: int, what: str, advice: str) -> None:
    """Raise InputError if `what` needs more bytes at one time than there are."""
    if need > machine_memory():
        has = said_bytes(machine_memory())
        raise InputError(f"{what} would take {said_bytes(need)} of memory, and this machine has {has}: {advice}")


def check_work(multiplications: int, what: str, advice: str) -> None:
    """Raise InputError if `what` takes more than MOST_WORK multiplications."""
    if multiplications > MOST_WORK:
        raise InputError(f"{what} would take more than 10^20 multiplications, decades of computing: {advice}")


def allowed_memory(groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> float:
    """Bytes that the control groups of this process allow: the least of its own group and those above."""
    least = float("inf")
    with contextlib.suppress(OSError):
        for line in groups.read_text(errors="surrogateescape").splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers == "":
                top, name = root, "memory.max"
            elif "memory" in controllers.split(","):
                top, name = root / "memory", "memory.limit_in_bytes"
            else:
                continue
            lowest = top / group.lstrip("/")
            for folder in (lowest, *lowest.parents):
                with contextlib.suppress(OSError, ValueError):  # "max" is no number
                    least = min(least, int((folder / name).read_text()))
                if folder == top:
                    break
    return least


def said_bytes(count: float) -> str:
    """A number of bytes as text with a unit, such as "1.5 GB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count = count // 1024 if count > 1 << 60 else count / 1024  # an integer may be beyond every float
    return "1 PiB or more"


def cores() -> int:
    """Number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
