"""Sensitivity of a model: the number of bits of a string whose flip changes the model's answer.

    >>> import torch, flipscope
    >>> model = torch.nn.Linear(3, 1, bias=False)
    >>> _ = torch.nn.init.ones_(model.weight)
    >>> flipscope.sensitivity(model, [[0, 0, 0], [1, 0, 0], [1, 1, 0]])
    array([3, 1, 0])

The answer is 1 where the logit is greater than the threshold, else 0; for three or more classes it is the class with
the largest logit. Every function here accepts any model that `flipscope.Subject` does; flipscope's own transformer
takes the fast path, with the same answers. The results say which path was taken, what was checked in float64 and what
remained too close to call; see `precision`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Annotated, Literal, TypedDict, Unpack, overload

import numpy as np
import torch
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

from flipscope.adapters.settled import Bits, Logits, Settled, as_settled
from flipscope.adapters.subject import Model
from flipscope.basics.arguments import Keyword, checked_arguments
from flipscope.basics.bits import check_strings, index_bits, pack
from flipscope.basics.checks import check_confidence, check_count, check_positive
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import mean_from_samples
from flipscope.basics.progress import Progress
from flipscope.basics.seeds import Seed, generators, random_strings
from flipscope.cube import sensitivity as cube_sensitivity
from flipscope.cube.functions import BooleanFunction
from flipscope.flips.choice import Work
from flipscope.flips.engine import Engine, GeneralEngine, Path, open_engine, refuse_nan
from flipscope.flips.inside import refuse_coarse
from flipscope.flips.screen import Screening, screened_changes
from flipscope.flips.signs import trusted_signs
from flipscope.probes.results import (
    ACCEPT,
    REJECT,
    UNDEFINED,
    AcceptanceFlips,
    Flips,
    Measured,
    SensitivityProfile,
    account,
    estimated,
)

MAX_EXHAUSTIVE_BITS = 20
DEFAULT_STRINGS = 200
DEFAULT_MAX_STRINGS = 100_000
_FIRST_LOOK = 16
_LOOK_GROWTH = 1.25  # the interval is checked after a quarter more strings, so at most a quarter is wasted
_TABLE_BLOCK = 1 << 14  # strings of a truth table evaluated together
_VALUES: NDArray[np.int8] = np.array([REJECT, UNDEFINED, ACCEPT], np.int8)  # by thresholds of Eq 15 exceeded


class Options(TypedDict, total=False):
    """The keyword arguments of every measurement; how the model is to be evaluated, a `flipscope.Subject` says."""

    path: Annotated[Path, Keyword("auto", "'general' takes any model, 'fast' flipscope's own transformers")]
    heuristic: Annotated[bool, Keyword(False, "skip flips that are unlikely to matter, with an audit")]
    progress: Annotated[Progress | None, Keyword(None, "called with (strings done, strings in all)")]


# ---------------------------------------------------------------- sensitivity of given strings


@overload
def sensitivity(
    model: Model, strings: object, *, real: Literal[False] = False, **options: Unpack[Options]
) -> Int64[np.ndarray, " string"]: ...


@overload
def sensitivity(
    model: Model, strings: object, *, real: Literal[True], **options: Unpack[Options]
) -> Float64[np.ndarray, " string"]: ...


@checked_arguments
def sensitivity(
    model: Model, strings: object, *, real: bool = False, **options: Unpack[Options]
) -> Int64[np.ndarray, " string"] | Float64[np.ndarray, " string"]:
    """For each string the number of bits whose flip changes the model's answer (Def 2.2), as an array [string].

    The model is any that `flipscope.Subject` accepts; ``strings`` are rows of 0 and 1 of one length. With real=True the
    result is the sum over the flips of the squared change of the logit (Eq 2 for a real function).

    >>> def majority(bits):  # the logit of each row
    ...     return bits.sum(dim=1) - 1.5
    >>> sensitivity(majority, [[0, 0, 0], [0, 1, 1]])
    array([0, 2])
    """
    if not real:
        return sensitivities(model, strings, **options).counts
    if "heuristic" in options:
        raise InputError("heuristic has no meaning for real=True, which looks at logits and not at answers")
    changes = logit_changes(model, strings, **options).astype(np.float64)
    total: Float64[np.ndarray, " string"] = np.square(changes).sum(axis=1)
    return total


@checked_arguments
def sensitivities(model: Model, strings: object, **options: Unpack[Options]) -> Flips:
    """The sensitivity of each string, with an account of how it was measured; the arguments are `sensitivity`'s.

    >>> found = sensitivities(lambda bits: bits[:, 0] - 0.5, [[0, 0, 0], [0, 1, 1]])
    >>> found.counts, found.flipped, found.near_ties  # per string; per position; signs too close to call
    (array([1, 1]), array([2, 0, 0]), 0)
    """
    bits = check_strings(strings)
    meter = _Meter(model, options, Work(*bits.shape))
    return meter.flips(bits, _reporter(options, len(bits)))


@checked_arguments
def acceptance_flips(model: Model, strings: object, margin: float, **options: Unpack[Options]) -> AcceptanceFlips:
    """The effect of flips on acceptance with a margin xi (Eq 15), where undefined counts as a value.

    Logits near xi or -xi are computed again like those near a threshold, and those still too close to call are counted
    in ``near_ties``. A flip that changes the logit by less than 2 xi never crosses from 0 to 1, but it may lead to or
    from undefined: Def 2.2 is defined only on strings that are ``decided``.

    >>> found = acceptance_flips(lambda bits: bits.sum(dim=1) - 1.5, [[0, 0, 0], [1, 0, 0]], margin=1)
    >>> found.answers, found.changed, found.crossed  # logits of flips: all -0.5; then -1.5 and twice 0.5
    (array([ 0, -1], dtype=int8), array([3, 1]), array([0, 0]))
    """
    xi = check_positive("margin", margin)
    if "heuristic" in options:
        raise InputError("heuristic has no meaning for acceptance with a margin: leave it out")
    bits = check_strings(strings)
    # logit > the number below xi means logit >= xi; logit <= -xi is the negation of logit > -xi.
    both = (-xi, math.nextafter(xi, -math.inf))
    meter = _Meter(model, options, Work(*bits.shape), both)
    meter.signs.announce(len(bits) * (bits.shape[1] + 1))
    report = _reporter(options, len(bits))
    answers, parts = [], []
    with meter.settled.measuring():
        for block in _blocks(meter.signs.working, bits):
            own, flipped = (_VALUES[level] for level in meter.signs.flip_signs(block))
            changed = flipped != own[:, None]
            undefined = flipped == UNDEFINED
            crossed = changed & ~undefined & (own != UNDEFINED)[:, None]
            answers.append(own)
            parts.append([count.sum(axis=1, dtype=np.int64) for count in (crossed, changed, undefined)])
            report(len(block))
    crossings, changes, unknown = (np.concatenate(part) for part in zip(*parts, strict=True))
    return AcceptanceFlips(
        xi=xi,
        answers=np.concatenate(answers),
        crossed=crossings,
        changed=changes,
        undefined=unknown,
        **account(meter.account()),
    )


@checked_arguments
def logit_changes(model: Model, strings: object, **options: Unpack[Options]) -> Logits:
    """f(x with bit i flipped) - f(x) for each string x and position i, [string, position], f being the logit.

    In float64 if float32 overflows. Nothing is checked, but with precision="float64" a module that rounds to float32
    inside is refused.

    >>> logit_changes(lambda bits: 2 * bits[:, 0] - bits[:, 1], [[0, 0], [1, 0]]).tolist()
    [[2.0, -1.0], [-2.0, -1.0]]
    """
    if options.get("heuristic"):
        raise InputError("heuristic has no meaning for changes of the logit")
    bits = check_strings(strings)
    settled = as_settled(model)
    with settled.measuring():
        try:
            return _changes(settled, bits, options)
        except _Overflow:
            return _changes(settled.converted(torch.float64), bits, options)


class _Overflow(Exception):
    """A logit is infinite or no number in float32, and may be neither in float64."""


def _changes(settled: Settled, bits: Bits, options: Options) -> Logits:
    engine = open_engine(settled, path=options.get("path", "auto"), work=Work(*bits.shape))
    if isinstance(engine, GeneralEngine):
        settled.prepare(bits)
        refuse_coarse(settled, bits)
    report = _reporter(options, len(bits))
    parts = []
    for block in _blocks(engine, bits):
        base, flipped = engine.flip_logits(block)
        if base.ndim > 1 or settled.meaning == "labels":
            numbers = f"{base.shape[1]} numbers per string" if base.ndim > 1 else "labels"
            raise InputError(
                f"the model gives {numbers}, and changes of the logit are of one number: choose it by output=, such as "
                "a function that returns out[:, 1]"
            )
        if settled.may_overflow and not (np.isfinite(base).all() and np.isfinite(flipped).all()):
            raise _Overflow
        refuse_nan(base, flipped)
        if infinite := int(np.isinf(base).sum() + np.isinf(flipped).sum()):
            raise InputError(f"the model gave {infinite} infinite logits, whose changes are not numbers")
        parts.append(flipped - base[:, None])
        report(len(block))
    return np.concatenate(parts)


# ---------------------------------------------------------------- the spectrum


@checked_arguments
def sensitivity_profile(
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
) -> SensitivityProfile:
    """The sensitivity profile of the model on strings of length n: how many strings have sensitivity 0, 1, ..., n.

    By default it is estimated from ``strings`` uniformly random strings (200) and all their flips. With
    ``precision_target``, strings are drawn until the interval of the average sensitivity has at most this half-width,
    or ``max_strings`` are used; the intervals are then valid at every number of strings. With exhaustive=True and
    n <= 20, it is exact, from one evaluation of each of the 2^n strings. The result also has the average, the share of
    strings that no flip changes, and the influence of each position: with intervals of this ``confidence``, or as
    numbers if exhaustive.

    >>> found = sensitivity_profile(lambda bits: bits.sum(dim=1) - 1.5, 3, exhaustive=True)
    >>> found.profile, found.average_sensitivity, found.influences
    ([2, 0, 6, 0], 1.5, [0.5, 0.5, 0.5])
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
    if precision_target is None:
        size = check_count("strings", DEFAULT_STRINGS if strings is None else strings)
    else:
        check_positive("precision_target", precision_target)
        size = check_count("max_strings", max_strings)
    meter = _Meter(model, options, Work(size, n))
    if precision_target is None:
        return estimated(meter.flips(random_strings(stream, size, n), _reporter(options, size)), confidence)
    report = _reporter(options, size)
    for total in _looks(size):
        found = meter.flips(random_strings(stream, total - meter.strings, n), report)
        estimate = mean_from_samples(found.counts, 0, n, confidence, "anytime")
        if estimate.half_width <= precision_target:
            break
    return estimated(found, confidence, "anytime")


@checked_arguments
def truth_table(model: Model, n: int, **options: Unpack[Options]) -> BooleanFunction:
    """The Boolean function that the model computes on strings of length n <= 20, each evaluated once.

    >>> truth_table(lambda bits: bits.sum(dim=1) - 1.5, 3).table().tolist()
    [0, 0, 0, 1, 0, 1, 1, 1]
    """
    answers, meter = _exact_answers(model, n, options)
    if not (meter.is_binary or _are_bits(answers, meter)):
        kind = "labels" if meter.classes is None else f"{meter.classes} classes"
        raise InputError(f"the model decides between {kind}, and a truth table is of two")
    return BooleanFunction.from_words(pack(answers.astype(np.uint8)), n)


def _looks(size: int) -> Iterator[int]:
    """The numbers of strings after which to check the interval."""
    look = _FIRST_LOOK
    while look < size:
        yield look
        look = math.ceil(look * _LOOK_GROWTH)
    yield size


def _exhaustive(model: Model, n: int, options: Options) -> SensitivityProfile:
    """The exact spectrum, from the answers to all strings."""
    answers, meter = _exact_answers(model, n, options)
    total = 1 << n
    if meter.is_binary or _are_bits(answers, meter):
        f = BooleanFunction.from_words(pack(answers.astype(np.uint8)), n)
        profile = cube_sensitivity.profile(f)
        influences = [float(influence) for influence in cube_sensitivity.influences(f)]
    else:
        counts, influences = np.zeros(total, np.int64), []
        for position in range(n):
            pairs = answers.reshape(-1, 2, 1 << position)  # of strings that differ at this position
            changed = np.repeat(pairs[:, :1] != pairs[:, 1:], 2, axis=1).reshape(-1)
            counts += changed
            influences.append(float(changed.mean()))
        profile = np.bincount(counts, minlength=n + 1).tolist()
    seen = [k for k, count in enumerate(profile) if count]
    return SensitivityProfile(
        n=n,
        strings=total,
        exhaustive=True,
        profile=profile,
        average_sensitivity=float(Fraction(sum(k * count for k, count in enumerate(profile)), total)),
        zero_share=profile[0] / total,
        influences=influences,
        largest_seen=max(seen),
        smallest_seen=min(seen),
        **account(meter.account()),
    )


def _are_bits(answers: NDArray[np.integer], meter: _Meter) -> bool:
    """Whether labels are those of two classes, 0 and 1."""
    return meter.classes is None and bool(((answers == 0) | (answers == 1)).all())


def _exact_answers(model: Model, n: int, options: Options) -> tuple[NDArray[np.integer], _Meter]:
    """The answer to every string of length n, in the order of truth tables."""
    n = check_count("n", n)
    if n > MAX_EXHAUSTIVE_BITS:
        raise InputError(f"all strings of n={n} bits are too many (most: {MAX_EXHAUSTIVE_BITS} bits): sample some")
    if options.get("heuristic"):
        raise InputError("heuristic=True skips flips, but a truth table has none: leave it out")
    total = 1 << n
    meter = _Meter(model, options, Work(total, n, flips=False))
    report = _reporter(options, total)
    meter.signs.announce(total)
    values = np.empty(total, np.int64)  # labels may be of any size
    with meter.settled.measuring():
        for start in range(0, total, _TABLE_BLOCK):
            count = min(_TABLE_BLOCK, total - start)
            values[start : start + count] = meter.signs.signs(index_bits(start, count, n))
            report(count)
    return values, meter


# ---------------------------------------------------------------- the loop


class _Meter:
    """Measures strings in blocks and accumulates the results."""

    def __init__(self, model: Model, options: Options, work: Work, offsets: tuple[float, ...] = (0.0,)) -> None:
        self._start = time.perf_counter()
        self._heuristic = options.get("heuristic", False)
        self.settled = as_settled(model)
        # A screen needs first-order estimates, which only the fast path has.
        known = None if self._heuristic else work
        path = options.get("path", "auto")
        self.signs = trusted_signs(self.settled, offsets=offsets, path=path, work=known)
        self._answers: list[NDArray[np.int64]] = []
        self._counts: list[NDArray[np.int64]] = []
        self._flipped: NDArray[np.int64] | None = None
        self._screening: Screening | None = None

    @property
    def strings(self) -> int:
        """Number of strings measured so far."""
        return sum(map(len, self._counts))

    def flips(self, strings: Bits, report: Callable[[int], None]) -> Flips:
        """Measure these strings; returns the results of all strings measured so far."""
        with self.settled.measuring():
            if self._heuristic:
                self._screened(strings)  # who knows how many signs it will ask for
                report(len(strings))
            else:
                self.signs.announce(len(strings) * (strings.shape[1] + 1))
                for block in _blocks(self.signs.working, strings):
                    values, flipped = self.signs.flip_signs(block)
                    self._add(values, flipped != values[:, None])
                    report(len(block))
        assert self._flipped is not None
        answers, counts = (np.concatenate(parts) for parts in (self._answers, self._counts))
        return Flips(answers=answers, counts=counts, flipped=self._flipped, **account(self.account()))

    @property
    def classes(self) -> int | None:
        """The number of classes if there are three or more, else None."""
        return self.signs.asked.classes

    @property
    def is_binary(self) -> bool:
        """Whether the answers are 0 and 1."""
        return self.classes is None and self.signs.asked.meaning != "labels"

    def account(self) -> Measured:
        """The account of the measurement so far."""
        return Measured(
            output=self.signs.asked.output_name,
            threshold=self.settled.threshold if self.is_binary else None,
            path=self.signs.working.path,
            path_reason=self.signs.working.why,
            precision=self.signs.precision,
            margin=self.signs.margin,
            tolerance=self.signs.tolerance,
            rechecked=self.signs.rechecked,
            near_ties=self.signs.near_ties,
            lowest=self.signs.lowest,
            highest=self.signs.highest,
            screening=self._screening,
            seconds=time.perf_counter() - self._start,
        )

    def _add(self, answers: NDArray[np.integer], changed: NDArray[np.bool_]) -> None:
        self._answers.append(answers.astype(np.int64))
        self._counts.append(changed.sum(axis=1, dtype=np.int64))
        hits = changed.sum(axis=0, dtype=np.int64)
        self._flipped = hits if self._flipped is None else self._flipped + hits

    def _screened(self, strings: Bits) -> None:
        """Measure with the heuristic screen."""
        if isinstance(self.signs.working, GeneralEngine):
            self.settled.prepare(strings)
            self.settled.logits(strings[:1])  # tells whether the answers are classes
        if not self.is_binary:
            raise InputError("heuristic=True is for answers of 0 and 1, and the model decides between classes")
        answers, changed, self._screening = screened_changes(
            self.signs.working,
            strings,
            estimate=self.signs.working.first_order,
            threshold=self.signs.thresholds[0],
            signs=self.signs.signs,
            flip_signs=self.signs.flip_signs,
            seed=0,
        )
        self._add(answers, changed)


def _blocks(engine: Engine, strings: Bits) -> Iterator[Bits]:
    """The strings in blocks that are large enough for the engine and small enough to show progress."""
    if isinstance(engine, GeneralEngine):
        engine.settled.prepare(strings)
    step = engine.strings_at_once(strings.shape[1])
    for start in range(0, len(strings), step):
        yield strings[start : start + step]


def _reporter(options: Options, total: int) -> Callable[[int], None]:
    """A callback for the number of strings done since the last call."""
    progress = options.get("progress")
    done = 0

    def report(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    return report
