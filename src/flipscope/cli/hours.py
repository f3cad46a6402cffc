"""Estimates of how long a command takes: more than a minute is announced, more than a day requires --anyway.

The estimates are rough and rather too low: the multiplications at the speed of a small matrix product, measured in a
millisecond, plus the overhead of each call of a model. None needs PyTorch, so they are available at once.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from flipscope.basics.bits import Bits
from flipscope.basics.errors import InputError
from flipscope.basics.limits import cores
from flipscope.basics.seeds import random_strings
from flipscope.models.config import TransformerConfig
from flipscope.models.seq2seq_config import Seq2SeqConfig
from flipscope.models.size import multiplications

if TYPE_CHECKING:
    from flipscope.cube.functions import BooleanFunction
    from flipscope.models.kinds import StringConfig

HOURS = 24.0
ANNOUNCED = 60.0  # seconds of work that are announced
SLOWER = 4  # a forward pass in PyTorch takes at least this many times the duration of its products
CALL, LAYER = 3e-4, 2e-4  # overhead of a call and of each layer in seconds, for a single string
STRING = 1e-7  # seconds per string, including duplicates, to collect its output
SCREENED = 10  # a screen computes at best this many times fewer flips
_SIDE, _PRODUCTS = 64, 50  # size of the timed matrix product, and number of repetitions
_FEW = 256  # strings on which a function is timed
_MOST = 10**200  # safely within the range of a float


def anyway(parser: argparse.ArgumentParser) -> None:
    """Add the option to start work of any duration."""
    parser.add_argument(
        "--anyway", action="store_true", help=f"start even if it will take more than {HOURS:g} hours on this machine"
    )


def check_hours(arguments: argparse.Namespace, seconds: float, what: str, options: Sequence[str]) -> None:
    """Announce work of more than a minute; reject more than a day without --anyway. `options` would reduce the work."""
    hours = seconds / 3600
    if hours > HOURS and not arguments.anyway:
        lower = " or ".join(part for part in (", ".join(options[:-1]), options[-1]) if part)
        raise InputError(
            f"{what} would take about {_said(hours)} hours on this machine, more than {HOURS:g}: lower {lower}, or "
            "insist with --anyway"
        )
    if seconds > ANNOUNCED:
        print(f"flipscope: {what} will take about {_duration(seconds)} on this machine.", file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    """A duration as text, rounded since it is an estimate."""
    if seconds < 5400:
        return f"{max(2, round(seconds / 60))} minutes"
    return f"{_said(seconds / 3600)} hours"


def _said(hours: float) -> str:
    if hours >= 1e12:
        return "a trillion or more"
    return f"{float(f'{hours:.2g}'):,.0f}" if hours >= 10 else f"{hours:.2g}"


def asking_seconds(config: StringConfig, length: int, strings: int, times: int, *, distinct: bool = False) -> float:
    """Seconds to evaluate strings several times; flipscope's transformers evaluate duplicates once if `distinct`."""
    each = CALL + LAYER * config.layers + STRING * min(strings, _MOST)
    if distinct and isinstance(config, TransformerConfig):
        strings = min(strings, 1 << min(length, 64))
    each += SLOWER * _seconds(strings * forward_work(config, length)) / cores()
    return min(times, _MOST) * each


def flipping_seconds(
    config: StringConfig, length: int, strings: int, *, general: bool, screened: bool, workers: int | None = None
) -> float:
    """Seconds to evaluate a model on strings and all their flips."""
    found = _seconds(strings * flip_work(config, length)) / min(workers or cores(), cores())
    slower = SLOWER if general or not isinstance(config, TransformerConfig) else 1
    return found * slower / (SCREENED if screened else 1)


def training_seconds(config: TransformerConfig, length: int, batch: int, steps: int) -> float:
    """Seconds of a training on one core."""
    each = CALL + LAYER * config.layers + _seconds(3 * batch * multiplications(config, length))
    return min(steps, _MOST) * each


def baseline_seconds(config: StringConfig | Seq2SeqConfig, length: int, batch: int, steps: int) -> float:
    """Seconds of a training on images or texts on one core."""
    assert not isinstance(config, Seq2SeqConfig)
    if isinstance(config, TransformerConfig) and config.inputs == "patches":
        length = config.longest or 1
    each = CALL + LAYER * config.layers + _seconds(3 * batch * forward_work(config, length))
    return min(steps, _MOST) * each


def querying_seconds(f: BooleanFunction, queries: int) -> float:
    """Seconds to evaluate a function on this many strings."""
    return timed_seconds(f, f.n, queries)


def timed_seconds(ask: Callable[[Bits], object], length: int, queries: int) -> float:
    """Seconds to evaluate any callable on this many strings, extrapolated from its second call on a few."""
    few = random_strings(np.random.default_rng(0), _FEW, length)
    ask(few)
    start = time.perf_counter()
    ask(few)
    return min(queries, _MOST) / _FEW * (time.perf_counter() - start)


def flip_work(config: StringConfig, length: int) -> int:
    """Multiplications for a string and all its flips, without the fast path."""
    return (length + 1) * forward_work(config, length)


def forward_work(config: StringConfig, length: int) -> int:
    """Multiplications of a forward pass for one string."""
    if isinstance(config, TransformerConfig):
        return multiplications(config, length)
    return config.multiplications(length)


def _seconds(work: int) -> float:
    """Seconds of this many multiplications on one core."""
    return min(work, _MOST) / _core_speed()


@functools.cache
def _core_speed() -> float:
    """Multiplications per second of a core: the fastest of several products, least disturbed by other processes."""
    matrix, least = np.ones((_SIDE, _SIDE), np.float32), float("inf")
    for _ in range(_PRODUCTS):
        start = time.perf_counter()
        matrix @ matrix
        least = min(least, time.perf_counter() - start)
    return _SIDE**3 / max(least, 1e-9)
