"""From covering numbers to a bound on the generalization gap: A.2-A.5 of paper 003, and Lem 2.2.

    A.2:      R <= c inf over delta of (delta + integral from delta to A of sqrt(ln N(eps) / m))
    A.3:      R <= c K (1 + ln(A / K)),   K = sqrt(C / m),   if ln N(eps) <= C / eps^2 and K <= A;   else R <= c A
    A.4:      |risk - empirical risk| <= 4 L R + 2 b sqrt(ln(1 / delta) / 2 m)   with probability 1 - delta
    Lem 2.2:  A.4 with A.3

A is the largest value of |f|, b that of the loss, L its Lipschitz constant. c = 12 is a constant that holds; 1 is not
known to. For K > e A the printed formula is negative: there delta = A is the best choice, which gives c A.

The covers of `covers` and `attention` have ln(1/eps) beside 1/eps^2, which the paper's "<~" hides and A.3 does not
allow; so `chained_bound` takes the integral of A.2 itself, from above.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count, check_positive, check_probability
from flipscope.basics.errors import InputError
from flipscope.bounds.covering.covers import Cover, Form, Logs
from flipscope.bounds.numerics import safe_exp

DUDLEY = 12.0  # c
_DEPTH, _STEP = 40.0, 0.02  # ln(A / delta) of the least delta, and the grid of ln eps
_MOST_LOG_SAMPLES = 5000.0
FORM_NAMES: dict[Form, str] = {
    "rows": "Thm A.17 by Lem 4.5, largest norm of a row",
    "sums": "Thm A.17 by Lem 4.5, sum of the norms of rows",
    "best": "Thm A.17, the least of both and of the better one for each matrix",
}


@checked_arguments
def rademacher_bound(
    capacity: float, samples: int, *, largest: float, chaining: float = DUDLEY, as_printed: bool = False
) -> float:
    """A.3: an upper bound on the empirical Rademacher complexity, if ln N <= capacity / eps^2.

    >>> rademacher_bound(1e9, 100, largest=1.0), rademacher_bound(1e9, 100, largest=1.0, as_printed=True) < 0
    (12.0, True)
    """
    check_positive("largest", largest), check_positive("chaining", chaining)
    if math.isnan(capacity) or capacity < 0:
        raise InputError(f"capacity={capacity} must be a number of at least 0")
    ratio = math.sqrt(capacity / check_count("samples", samples))
    if not ratio:
        return 0.0
    if ratio > largest and not as_printed:
        return chaining * largest
    return chaining * ratio * (1 + math.log(largest / ratio))


def deviation(samples: int, *, loss_range: float, delta: float) -> float:
    """2 b sqrt(ln(1 / delta) / 2 m): what A.4 adds for the confidence 1 - delta.

    >>> round(deviation(10_000, loss_range=1.0, delta=0.05), 6)
    0.024477
    """
    return _deviation(
        math.log(check_count("samples", samples)), loss_range, -math.log(check_probability("delta", delta))
    )


@checked_arguments
def generalization_bound(
    capacity: float,
    samples: int,
    *,
    largest: float,
    loss_range: float,
    lipschitz: float = 1.0,
    delta: float = 0.05,
    chaining: float = DUDLEY,
    as_printed: bool = False,
) -> float:
    """Lem 2.2: an upper bound on the gap between risk and empirical risk, with probability 1 - delta.

    >>> round(generalization_bound(100.0, 10_000, largest=1.0, loss_range=1.0, chaining=1.0), 7)
    1.3455115
    """
    complexity = rademacher_bound(capacity, samples, largest=largest, chaining=chaining, as_printed=as_printed)
    return 4 * lipschitz * complexity + deviation(samples, loss_range=loss_range, delta=delta)


@checked_arguments
def chained_bound(
    log_cover: Callable[[Logs], Logs],
    log_samples: float,
    *,
    largest: float,
    loss_range: float,
    lipschitz: float = 1.0,
    log_failures: float = -math.log(0.05),
    chaining: float = DUDLEY,
) -> float:
    """A.4 with A.2: the same from ln ln N as a function of ln eps, for ln m samples; ln(1/delta) is ``log_failures``.

    The integral is replaced by a sum that is larger, ln N being a decreasing function.

    >>> tight = chained_bound(
    ...     lambda log_eps: math.log(100) - 2 * log_eps, math.log(1e4), largest=1.0, loss_range=1.0, chaining=1.0
    ... )
    >>> 1.3455115 < tight < 1.37
    True
    """
    if not largest:
        return 0.0
    check_positive("log_failures", log_failures)
    top = math.log(check_positive("largest", largest))
    grid = np.append(np.arange(top - _DEPTH, top, _STEP), top)
    heights = (log_cover(grid[:-1]) - log_samples) / 2
    widths = grid[:-1] + np.log(np.expm1(np.diff(grid)))
    integrals = np.logaddexp.accumulate((heights + widths)[::-1])[::-1]
    least = min(float(np.logaddexp(grid[:-1], integrals).min()), top)
    return 4 * lipschitz * chaining * safe_exp(least) + _deviation(log_samples, loss_range, log_failures)


@checked_arguments
def log_samples_needed(bound: Callable[[float], float], limit: float) -> float | None:
    """ln of about how many samples bring a bound, a function of ln m, below a limit; None if no number does.

    >>> round(log_samples_needed(lambda log_samples: math.exp(-log_samples / 2), 0.01), 6) == round(math.log(1e4), 6)
    True
    """
    low, high = 0.0, 1.0
    while bound(high) >= limit:
        low, high = high, 2 * high
        if high > _MOST_LOG_SAMPLES:
            return None
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if bound(middle) < limit else (middle, high)
    return high


def _deviation(log_samples: float, loss_range: float, log_failures: float) -> float:
    return 2 * loss_range * math.sqrt(log_failures / 2) * math.exp(-log_samples / 2)


# ---------------------------------------------------------------- for one class of networks and the logistic loss


@dataclass(frozen=True)
class GapBound:
    """An upper bound on the gap between test and training loss, with probability 1 - delta, by one form."""

    form: Form
    log_capacity: float  # ln ln N at eps = 1
    value: float  # the bound
    trivial: float  # the trivial bound: the range of the loss
    log_samples_needed: float | None  # ln of the number of samples from which on it says something

    @property
    def vacuous(self) -> bool:
        """Whether it is not below the range of the loss."""
        return self.value >= self.trivial

    def as_json(self) -> dict[str, Any]:
        """Its numbers for a JSON document."""
        needed = self.log_samples_needed
        return {
            "form": self.form,
            "what": FORM_NAMES[self.form],
            "log10_capacity": self.log_capacity / math.log(10) if math.isfinite(self.log_capacity) else None,
            "gap": self.value,
            "trivial": self.trivial,
            "vacuous": self.vacuous,
            "log10_samples_needed": None if needed is None else needed / math.log(10),
        }


@checked_arguments
def gap_bound(
    cover: Cover, length: int, samples: int, form: Form, *, log_failures: float, chaining: float = DUDLEY
) -> GapBound:
    """The bound for the logistic loss, which is 1-Lipschitz and, where |f| <= A, in a range of length A."""
    most = cover.largest

    def at(log_samples: float) -> float:
        return chained_bound(
            lambda log_eps: cover.log_size(log_eps, log_samples, length, form),
            log_samples,
            largest=most,
            loss_range=most,
            log_failures=log_failures,
            chaining=chaining,
        )

    value = min(at(math.log(check_count("samples", samples))), safe_exp(708.0))
    capacity = cover.log_size(0.0, math.log(samples), length, form).item()
    return GapBound(form, capacity, value, most, log_samples_needed(at, most))
