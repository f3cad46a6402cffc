"""Timing for the benchmarks: medians of interleaved repetitions, so that noise of the machine hits all sides alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def medians(sides: Mapping[str, Callable[[], object]], repeats: int = 7) -> dict[str, float]:
    """Median wall seconds of each side, the sides taking turns, after one round to warm up."""
    for run in sides.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds of readable length."""
    return f"{1e3 * seconds:.3g} ms"
