"""The cube against its rivals: full profile and Walsh-Hadamard transform at n = 24, and the profile at n = 28.

Goals: profile at n = 24 at least 50 times as fast as the fastest rival (rivals give the average only, which is less
work), n = 28 in under a second; transform within 2.5 times the fastest C library and under 10 times a plain copy.
The parser is timed too, on the longest formulas it takes (goal: under a second each).
Run with: make bench
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from _timing import medians, milliseconds

from flipscope.basics.bits import unpack
from flipscope.cube.expression import parse
from flipscope.native.tables import profile_counts
from flipscope.native.walsh import transform, transform_table

N = 24


def rival_averages(table: np.ndarray) -> dict[str, Callable[[], Any]]:
    """What the rivals that are installed offer of the same table: the average sensitivity, no profile."""
    sides: dict[str, Callable[[], Any]] = {}
    try:
        loops = importlib.import_module("boofun.core.numba_optimizations")
        sides["boofun (numba, influences)"] = lambda: loops.influences_computation(table, N)
    except ImportError:
        print("boofun is not installed: pip install boofun", file=sys.stderr)
    try:
        function = importlib.import_module("fbool").FBool([bool(v) for v in table])
        sides["fbool (Rust, mean sensitivity)"] = function.mean_sensitivity
    except ImportError:
        print("fbool is not installed: pip install fbool", file=sys.stderr)
    return sides


def rival_transforms(values: np.ndarray) -> dict[str, Callable[[], Any]]:
    """The C library, in place on its own copy."""
    try:
        library = importlib.import_module("fht_cpu")
    except ImportError:
        print("fht_cpu is not installed: pip install fht-cpu", file=sys.stderr)
        return {}
    own = values.copy()
    return {"fht_cpu (C, in place)": lambda: library.fht_1d_f32(own)}


def report(title: str, seconds: dict[str, float], ours: str) -> None:
    """One line per side, with its time over ours."""
    print(f"\n{title}")
    for name, time in seconds.items():
        print(f"  {name:44s} {milliseconds(time):>10s}   {time / seconds[ours]:8.2f} x ours")


def main() -> None:
    """Measure and print."""
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**64, 1 << N >> 6, dtype=np.uint64)
    table = unpack(words)
    ours = "flipscope: full profile K_0..K_24"
    seconds = medians({ours: lambda: profile_counts(words, N), **rival_averages(table)})
    report(f"Sensitivity, n = {N}, random function", seconds, ours)
    rivals = [time for name, time in seconds.items() if name != ours]
    if rivals:
        print(f"  fastest rival over ours: {min(rivals) / seconds[ours]:.0f} (goal 50)")

    large = rng.integers(0, 2**64, 1 << 28 >> 6, dtype=np.uint64)
    at_28 = medians({"28": lambda: profile_counts(large, 28)}, repeats=3)["28"]
    print(f"  full profile at n = 28: {milliseconds(at_28)} (goal under 1000 ms)")

    values = rng.standard_normal(1 << N).astype(np.float32)
    target, work = values.copy(), values.copy()
    ours = "flipscope: float32, in place"
    seconds = medians(
        {
            "plain copy of the same array": lambda: np.copyto(target, values),
            ours: lambda: transform(work),
            "flipscope: packed bits to exact int32": lambda: transform_table(words, np.int32),
            **rival_transforms(values),
        }
    )
    report(f"Walsh-Hadamard transform, n = {N}", seconds, ours)
    print(f"  ours over a copy: {seconds[ours] / seconds['plain copy of the same array']:.1f} (goal under 10)")
    if "fht_cpu (C, in place)" in seconds:
        print(f"  ours over the C library: {seconds[ours] / seconds['fht_cpu (C, in place)']:.2f} (goal 2.5 or less)")

    longest = {
        "10,000 variables": "^".join(f"x{i}" for i in range(1, 10_001)),
        "7,300 negations": "&".join(["~x1"] * 7_300),
    }
    print("\nParser, longest formulas (goal under 1000 ms)")
    for name, spent in medians({name: partial(parse, text) for name, text in longest.items()}, repeats=3).items():
        print(f"  {name:44s} {milliseconds(spent):>10s}")


if __name__ == "__main__":
    main()
