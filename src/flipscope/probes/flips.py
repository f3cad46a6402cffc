"""Sensitivity of a model: on how many of its bits a string can be flipped so that the model's answer changes.

    >>> import torch, flipscope
    >>> model = torch.nn.Linear(3, 1, bias=False)
    >>> _ = torch.nn.init.ones_(model.weight)
    >>> flipscope.sensitivity(model, [[0, 0, 0], [1, 0, 0], [1, 1, 0]])
    array([3, 1, 0])

The answer is 1 where the logit is greater than the threshold, else 0. Every function here takes any module or callable
on bits; flipscope's own transformer goes the fast path, with the same answers. The results say which path was taken,
what was checked in float64 and what remained too close to call; see `precision`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypedDict, Unpack, cast, overload

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import NDArray
from torch import nn

from flipscope.cube import sensitivity as cube_sensitivity
from flipscope.cube.blocks import Progress
from flipscope.cube.estimate import Seed, generators, random_strings
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.intervals import check_confidence, check_count, mean_from_samples
from flipscope.cube.structure import index_bits, pack
from flipscope.errors import InputError
from flipscope.probes.engine import (
    MEMORY_LIMIT,
    Bits,
    Engine,
    GeneralEngine,
    Inputs,
    Logits,
    Model,
    Path,
    check_strings,
    open_engine,
    refuse_nan,
)
from flipscope.probes.fast import FastEngine
from flipscope.probes.inside import refuse_coarse
from flipscope.probes.precision import Precision, TrustedSigns, trusted_signs, working_type
from flipscope.probes.results import Flips, Measured, Spectrum, account, estimated
from flipscope.probes.screen import Prover, Screening, first_order_changes, screened_changes

MAX_EXHAUSTIVE_BITS = 20
DEFAULT_STRINGS = 200
DEFAULT_MAX_STRINGS = 100_000
_FIRST_LOOK = 16
_LOOK_GROWTH = 1.25  # the next look comes after a quarter more strings, so at most a quarter is wasted
_TABLE_BLOCK = 1 << 12  # strings of a truth table asked together
_FIRST_BLOCK = 4  # strings asked first, from which the comparison with float64 takes its sample
_BATCHES = 4  # batches of the general path in one block of strings
_STRINGS = 4  # strings of the fast path in one block


class Options(TypedDict, total=False):
    """The keywords that every measurement takes."""

    threshold: float  # the answer is 1 where logit > threshold (default 0)
    path: Path  # "auto" (default), "general" or "fast"
    precision: Precision  # "auto" (default), "float64" or "native": see `precision.trusted_signs`
    inputs: Inputs  # what the model is given for bits: see `engine.GeneralEngine`
    batch: int | None  # strings in one call of the general path (default: what is fastest)
    memory_limit: int  # bytes that a batch may take
    heuristic: bool  # skip flips that are unlikely to matter, with an audit: see `screen` (default False)
    certified: bool  # skip flips that provably do not matter, while that is faster: see `certificate` (default False)
    progress: Progress | None  # called with (strings done, strings in all)


# ---------------------------------------------------------------- sensitivity of given strings


@overload
def sensitivity(
    model: Model, strings: object, *, real: Literal[False] = False, **options: Unpack[Options]
) -> Int64[np.ndarray, " string"]: ...


@overload
def sensitivity(
    model: Model, strings: object, *, real: Literal[True], **options: Unpack[Options]
) -> Float64[np.ndarray, " string"]: ...


def sensitivity(
    model: Model, strings: object, *, real: bool = False, **options: Unpack[Options]
) -> Int64[np.ndarray, " string"] | Float64[np.ndarray, " string"]:
    """For each string the number of bits whose flip changes the model's answer (Def 2.2).

    With real=True the sum over the flips of the squared change of the logit itself (Eq 2 for a real function).
    """
    if not real:
        return measure(model, strings, **options).counts
    for name in ("threshold", "heuristic", "certified"):
        if name in options:
            raise InputError(f"{name} has no meaning for real=True, which looks at logits and not at answers")
    changes = logit_changes(model, strings, **options).astype(np.float64)
    total: Float64[np.ndarray, " string"] = np.square(changes).sum(axis=1)
    return total


def measure(model: Model, strings: object, **options: Unpack[Options]) -> Flips:
    """The sensitivity of each string, with an account of how it was measured."""
    bits = check_strings(strings)
    return _Meter(model, options).flips(bits, _reporter(options, len(bits)))


def logit_changes(model: Model, strings: object, **options: Unpack[Options]) -> Logits:
    """f(x with bit i flipped) - f(x) for each string x and position i, [string, position], f being the logit.

    In float32 unless precision="float64" or the model itself says otherwise; nothing is checked, but a module that
    rounds to float32 inside is refused for "float64".
    """
    _check_names(options)
    if "threshold" in options or options.get("heuristic") or options.get("certified"):
        raise InputError("threshold, heuristic and certified have no meaning for changes of the logit")
    bits = check_strings(strings)
    dtype = working_type(model, options.get("precision", "auto"))
    names = ("path", "inputs", "batch", "memory_limit")
    chosen = {name: value for name, value in options.items() if name in names}
    engine = open_engine(model, dtype=dtype, **cast(Any, chosen))
    if isinstance(engine, GeneralEngine):
        engine.check_alike(bits)
        if options.get("precision") == "float64":
            refuse_coarse(engine, bits)
    report = _reporter(options, len(bits))
    parts = []
    for block in _blocks(engine, bits):
        base, flipped = engine.flip_logits(block)
        refuse_nan(base, flipped)
        parts.append(flipped - base[:, None])
        report(len(block))
    return np.concatenate(parts)


def influences(
    model: Model,
    strings: object,
    *,
    of: nn.Module | str | None = None,
    precision: Precision = "auto",
    inputs: Inputs = "auto",
    batch: int | None = None,
    memory_limit: int = MEMORY_LIMIT,
    progress: Progress | None = None,
) -> Float64[np.ndarray, "string position"]:
    """The absolute influence of each bit on each string, [string, position] (Def 2.7, Eq 6).

    I_i(f, x) = ||f(x) - f(x with bit i flipped)||_2, f being the model's whole output, or the output of one of its
    modules, given as such or by its name in ``model.named_modules()``.
    """
    bits = check_strings(strings)
    dtype = working_type(model, precision)
    name = _module_name(model, of)
    engine = GeneralEngine(model, dtype=dtype, inputs=inputs, batch=batch, memory_limit=memory_limit)
    engine.check_alike(bits, name)
    if precision == "float64" and name is None:
        refuse_coarse(engine, bits)
    out = np.empty(bits.shape, np.float64)
    for row, string in enumerate(bits):
        base = engine.outputs(string[None], name).double()
        for positions in np.array_split(np.arange(len(string)), math.ceil(len(string) / engine.batch)):
            flipped = np.repeat(string[None], len(positions), axis=0)
            flipped[np.arange(len(positions)), positions] ^= 1
            change = engine.outputs(flipped, name).double() - base  # [flip, number]
            out[row, positions] = change.norm(dim=1).cpu().numpy()
        if progress is not None:
            progress(row + 1, len(bits))
    refuse_nan(out)
    return out


def _module_name(model: Model, of: nn.Module | str | None) -> str | None:
    """The name of a module inside the model, None for the model itself."""
    if of is None or of is model:
        return None
    if not isinstance(model, nn.Module):
        raise InputError("of names a module inside the model, but the model is a function: leave it out")
    for name, module in model.named_modules():
        if module is of or name == of:
            return str(name)
    said = repr(of) if isinstance(of, str) else type(of).__name__
    raise InputError(f"of={said} is no module of the model: choose one of model.named_modules()")


# ---------------------------------------------------------------- the spectrum


def spectrum(
    model: Model,
    n: int,
    *,
    strings: int | None = None,
    precision_target: float | None = None,
    max_strings: int = DEFAULT_MAX_STRINGS,
    exhaustive: bool = False,
    seed: Seed = 0,
    confidence: float = 0.95,
    **options: Unpack[Options],
) -> Spectrum:
    """The sensitivity spectrum of the model on strings of length n.

    From so many uniformly random ``strings`` (default 200) and all their flips; or from as many as it takes for the
    interval of the average sensitivity to reach at most ``precision_target`` to either side, but no more than
    ``max_strings`` (the intervals then hold at every number of strings); or, with exhaustive=True and n <= 20, from
    all 2^n strings, each asked once, exactly.
    """
    n = check_count("n", n)
    confidence = check_confidence(confidence)
    ways = {"strings": strings is not None, "precision_target": precision_target is not None, "exhaustive": exhaustive}
    if sum(ways.values()) > 1:
        raise InputError(f"give only one of {', '.join(name for name, given in ways.items() if given)}")
    if exhaustive:
        return _exhaustive(model, n, options)
    (stream,) = generators(seed, 1)
    if precision_target is not None and options.get("heuristic"):
        raise InputError("heuristic=True needs a number of strings: give strings instead of precision_target")
    meter = _Meter(model, options)
    if precision_target is None:
        size = check_count("strings", DEFAULT_STRINGS if strings is None else strings)
        found = meter.flips(random_strings(stream, size, n), _reporter(options, size))
        return estimated(found, confidence)
    if isinstance(precision_target, bool) or not 0 < precision_target < math.inf:
        raise InputError(f"precision_target must be a positive number, not {precision_target}")
    size = check_count("max_strings", max_strings)
    report = _reporter(options, size)
    for total in _looks(size):
        found = meter.flips(random_strings(stream, total - meter.strings, n), report)
        estimate = mean_from_samples(found.counts, 0, n, confidence, "anytime")
        if estimate.half_width <= precision_target:
            break
    return estimated(found, confidence, "anytime")


def truth_table(model: Model, n: int, **options: Unpack[Options]) -> BooleanFunction:
    """The Boolean function that the model computes on strings of length n <= 20, each asked once."""
    return _asked_table(model, n, options)[0]


def _looks(size: int) -> Iterator[int]:
    """After how many strings to look at the interval."""
    look = _FIRST_LOOK
    while look < size:
        yield look
        look = math.ceil(look * _LOOK_GROWTH)
    yield size


def _exhaustive(model: Model, n: int, options: Options) -> Spectrum:
    """The exact spectrum, from the truth table."""
    f, how = _asked_table(model, n, options)
    profile = cube_sensitivity.profile(f)
    total = 1 << n
    return Spectrum(
        n=n,
        strings=total,
        exhaustive=True,
        profile=profile,
        average_sensitivity=float(cube_sensitivity.average_sensitivity(f)),
        zero_share=profile[0] / total,
        influences=[float(influence) for influence in cube_sensitivity.influences(f)],
        largest_seen=cube_sensitivity.max_sensitivity(f),
        smallest_seen=cube_sensitivity.min_sensitivity(f),
        **account(how),
    )


def _asked_table(model: Model, n: int, options: Options) -> tuple[BooleanFunction, Measured]:
    """The truth table, and how it was measured."""
    n = check_count("n", n)
    if n > MAX_EXHAUSTIVE_BITS:
        raise InputError(f"all strings of n={n} bits are too many (most: {MAX_EXHAUSTIVE_BITS} bits): sample some")
    for name in ("heuristic", "certified"):
        if options.get(name):
            raise InputError(f"{name}=True skips flips, but a truth table has none: leave it out")
    meter = _Meter(model, options)
    total = 1 << n
    report = _reporter(options, total)
    meter.signs.announce(total)
    values = np.empty(total, np.uint8)
    for start in range(0, total, _TABLE_BLOCK):
        count = min(_TABLE_BLOCK, total - start)
        values[start : start + count] = meter.signs.signs(index_bits(start, count, n))
        report(count)
    return BooleanFunction.from_words(pack(values), n), meter.account()


# ---------------------------------------------------------------- the loop


class _Meter:
    """Measures strings in blocks and remembers all it has measured."""

    def __init__(self, model: Model, options: Options) -> None:
        self._start = time.perf_counter()
        self._heuristic = options.get("heuristic", False)
        _check_names(options)
        _check_screens(options)
        own = ("heuristic", "certified", "progress")
        chosen = {name: value for name, value in options.items() if name not in own}
        self.signs: TrustedSigns = trusted_signs(model, **cast(Any, chosen))
        self._prover = Prover(model) if options.get("certified") else None
        self._counts: list[NDArray[np.int64]] = []
        self._flipped: NDArray[np.int64] | None = None
        self._screening: Screening | None = None

    @property
    def strings(self) -> int:
        """Number of strings measured so far."""
        return sum(map(len, self._counts))

    def flips(self, strings: Bits, report: Callable[[int], None]) -> Flips:
        """What these strings and those measured before have told."""
        self.signs.announce(len(strings) * (strings.shape[1] + 1))
        if self._heuristic:
            self._screened(strings)
            report(len(strings))
        else:
            # In small blocks where proofs are tried, for it is decided after each whether they pay.
            step = _STRINGS if self._prover is not None else None
            for block in _blocks(self.signs.working, strings, step):
                if self._prover is not None:
                    self._add(self._prover.changed(block, self.signs))
                else:
                    values, flipped = self.signs.flip_signs(block)
                    self._add(flipped != values[:, None])
                report(len(block))
        assert self._flipped is not None
        return Flips(counts=np.concatenate(self._counts), flipped=self._flipped, **account(self.account()))

    def account(self) -> Measured:
        """How it has been measured so far."""
        return Measured(
            path=self.signs.working.path,
            precision=self.signs.precision,
            margin=self.signs.margin,
            tolerance=self.signs.tolerance,
            rechecked=self.signs.rechecked,
            near_ties=self.signs.near_ties,
            screening=self._screening,
            proven=None if self._prover is None else self._prover.outcome,
            seconds=time.perf_counter() - self._start,
        )

    def _add(self, changed: NDArray[np.bool_]) -> None:
        self._counts.append(changed.sum(axis=1, dtype=np.int64))
        hits = changed.sum(axis=0, dtype=np.int64)
        self._flipped = hits if self._flipped is None else self._flipped + hits

    def _screened(self, strings: Bits) -> None:
        """Measure by the heuristic screen."""
        changed, self._screening = screened_changes(
            self.signs.working,
            strings,
            estimate=self._first_order(),
            threshold=self.signs.threshold,
            signs=self.signs.signs,
            flip_signs=self.signs.flip_signs,
            seed=0,
        )
        self._add(changed)

    def _first_order(self) -> Callable[[Bits], Logits] | None:
        """First-order estimates of the changes, for the models that the fast path knows."""
        model = self.signs.working.model if isinstance(self.signs.working, FastEngine) else None
        return None if model is None else lambda strings: first_order_changes(model, strings)


def _check_names(options: Options) -> None:
    known = set(Options.__annotations__)
    if unknown := sorted(set(options) - known):
        raise TypeError(f"unknown keyword {unknown[0]!r}; known are {', '.join(sorted(known))}")


def _check_screens(options: Options) -> None:
    if options.get("certified") and options.get("heuristic"):
        raise InputError("heuristic=True and certified=True are two ways to skip flips: give one of them")
    if options.get("certified") and options.get("precision") == "native":
        raise InputError("certified=True proves signs of exact arithmetic, not the model's own: leave precision out")


def _blocks(engine: Engine, strings: Bits, step: int | None = None) -> Iterator[Bits]:
    """The strings in blocks of ``step``, or of what is enough for the engine and little enough to see progress."""
    first = min(_FIRST_BLOCK, len(strings))
    yield strings[:first]
    if step is None and isinstance(engine, GeneralEngine):
        step = max(1, _BATCHES * engine.batch // (strings.shape[1] + 1))
    step = step or _STRINGS
    for start in range(first, len(strings), step):
        yield strings[start : start + step]


def _reporter(options: Options, total: int) -> Callable[[int], None]:
    """What is told how many more strings are done."""
    progress = options.get("progress")
    done = 0

    def report(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    return report
