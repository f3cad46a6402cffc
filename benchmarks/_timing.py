"""Timing for the benchmarks: the sides take turns, so that noise of the machine hits them alike.

In its turn a side runs for a third of a second, three times at least, and the fastest run counts: with its own data in
the cache, and with a core awake that slept while a side of one thread had its turn.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

TURN_SECONDS = 1 / 3


def medians(sides: Mapping[str, Callable[[], object]], repeats: int = 7) -> dict[str, float]:
    """Median over the turns of each side's wall seconds, after one round to warm up."""
    for run in sides.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            seconds[name].append(_turn(run))
    return {name: statistics.median(times) for name, times in seconds.items()}


def _turn(run: Callable[[], object]) -> float:
    times: list[float] = []
    while len(times) < 3 or sum(times) < TURN_SECONDS:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds of readable length."""
    return f"{1e3 * seconds:.3g} ms"
