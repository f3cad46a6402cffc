"""Timing for the benchmarks: the sides take turns, so that noise of the machine hits them alike.

In its turn a side runs for a third of a second, three times at least, and the fastest run counts: with its own data in
the cache, and with a core awake that slept while a side of one thread had its turn.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

TURN_SECONDS = 1 / 3


def medians(
    sides: Mapping[str, Callable[[], object]], repeats: int = 7, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Median over the turns of each side's seconds by the clock, after one round to warm up.

    Wall seconds by default. Where all sides use one thread, `time.process_time` is fairer on a busy machine: a long run
    is interrupted more often than a short one.
    """
    for run in sides.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            seconds[name].append(_turn(run, clock))
    return {name: statistics.median(times) for name, times in seconds.items()}


def _turn(run: Callable[[], object], clock: Callable[[], float]) -> float:
    times: list[float] = []
    while len(times) < 3 or sum(times) < TURN_SECONDS:
        start = clock()
        run()
        times.append(clock() - start)
    return min(times)


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds of readable length."""
    return f"{1e3 * seconds:.3g} ms"
