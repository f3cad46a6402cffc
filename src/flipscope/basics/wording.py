"""Numbers, times and lists of settings as text, the same on every page."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flipscope.basics.estimates import Estimate

MINUS = "\N{MINUS SIGN}"
FULL_DIGITS = 24  # a longer integer is shown as a power of ten
MAX_VALUES = 8  # of a setting; more are shown as their number and the two ends
MAX_LISTED = 6  # entries of a list in a cell; of a longer list, the first three and their number
MAX_TEXT = 300  # characters of a cell


def number_text(value: float | Estimate | None, digits: int = 4, none: str = "") -> str:
    """A number as people read it: whole numbers in full while short, estimates with their interval."""
    if value is None:
        return none
    if isinstance(value, Estimate):
        return f"{number_text(value.value, digits)} {interval_text(value.low, value.high, digits)}"
    if isinstance(value, int):
        text = _integer(value, ",")
        return f"{text} ({math.floor(math.log10(abs(value))) + 1} digits)" if "^" in text else text
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "∞" if value > 0 else f"{MINUS}∞"
    text = f"{value:,.0f}" if 10_000 <= abs(value) < 1e12 else f"{value:.{digits}g}"
    return text.replace("-", MINUS)


def interval_text(low: float | None, high: float | None, digits: int = 4) -> str:
    """An interval, "" where there is none."""
    return "" if low is None or high is None else f"[{number_text(low, digits)}, {number_text(high, digits)}]"


def cell_text(value: Any) -> str:
    """A value of a table: exact where it is short, "–" for none."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return f"{value:.6g}".replace("-", MINUS) if math.isfinite(value) else number_text(value)
    if isinstance(value, tuple | list):
        shortened = is_shortened(value)
        listed = ", ".join(map(cell_text, value[:3] if shortened else value))
        text = f"({listed}, … {len(value):,} values)" if shortened else f"({listed})"
    else:
        text = str(value)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def is_shortened(value: Any) -> bool:
    """Whether a cell shows only the first entries of a list."""
    return isinstance(value, tuple | list) and len(value) > MAX_LISTED


def sort_value(value: Any) -> str:
    """The text by which a column of a page is sorted: the unrounded number, "" for anything else."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    return "" if math.isnan(number) else repr(number).replace("inf", "Infinity")


def is_number(value: Any) -> bool:
    """Whether a value belongs into a column of numbers."""
    return value is None or (isinstance(value, int | float | np.number) and not isinstance(value, bool))


def _integer(value: int, separator: str = "") -> str:
    # Not by str(value), which Python refuses for thousands of digits.
    digits = math.log10(abs(value)) if value else 0.0
    sign = MINUS if value < 0 else ""
    if digits <= FULL_DIGITS:
        return f"{sign}{abs(value):{separator}}"
    return f"{sign}10^{digits:.2f}"


def time_text(seconds: float) -> str:
    """A span of time in its two largest units."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = round(seconds)
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def count_text(count: int, what: str) -> str:
    """A number of things, in singular or plural."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def values_text(values: Sequence[Any]) -> str:
    """The values that a setting takes: all of a few; of many, how many and between which."""
    if len(values) <= MAX_VALUES:
        return ", ".join(map(cell_text, values))
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        low, high = min(values), max(values)
        every = all(isinstance(value, int) for value in values) and high - low + 1 == len(values)
        return f"{cell_text(low)} to {cell_text(high)}" + ("" if every else f", {len(values):,} values")
    return ", ".join(map(cell_text, values[:MAX_VALUES])) + f" … ({len(values):,} values)"


def settings_of(trials: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The values that each setting takes among the trials, each once."""
    by_name: dict[str, dict[str, Any]] = {}
    for trial in trials:
        for name, value in trial.items():
            by_name.setdefault(name, {}).setdefault(repr(value), value)
    return {name: _ordered(list(values.values())) for name, values in by_name.items()}


def _ordered(values: list[Any]) -> list[Any]:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return sorted(values) if numbers else values


def limit_ends(limit: str) -> tuple[float | None, float | None]:
    """The lowest and the highest value that the limit of a judgement allows; None where there is no such end.

    >>> limit_ends("≥ 0.9"), limit_ends("from −1 to 1,000"), limit_ends("0.5 ± 0.25")
    ((0.9, None), (-1.0, 1000.0), (0.25, 0.75))
    """
    number = r"([−-]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+−-]?\d+)?)(?=$|,| )"

    def numbers(pattern: str) -> list[float]:
        found = re.match(pattern, limit)
        return [] if found is None else [float(each.replace(MINUS, "-").replace(",", "")) for each in found.groups()]

    if least := numbers(rf"≥ {number}(?:$|,)"):
        return least[0], None
    if most := numbers(rf"≤ {number}(?:$|,)"):
        return None, most[0]
    if ends := numbers(rf"from {number} to {number}$"):
        return ends[0], ends[1]
    if around := numbers(rf"{number} ± {number}$"):
        return around[0] - around[1], around[0] + around[1]
    return (0.0, None) if limit == "at least one" else (None, None)


def interval_places(
    measured: float | None, low: float | None, high: float | None, limit: str = ""
) -> dict[str, Any] | None:
    """Where a number, its interval and what its limit allows stand between two round numbers, in a picture 132 wide."""
    if measured is None or not abs(measured) < 1e100:
        return None
    allowed = limit_ends(limit)
    ends = [end for end in (low, high, *allowed) if end is not None and abs(end) < 1e100]
    top, bottom = max([0.0, measured, *ends]), min([0.0, measured, *ends])
    start, end = 0.0 - _round_up(-bottom), _round_up(top)
    if start == end:
        end = 1.0

    def place(value: float) -> float:
        return round(4 + 124 * min(1.0, max(0.0, (value - start) / (end - start))), 1)

    whole = low is not None and high is not None
    return {
        "start": number_text(start),
        "end": number_text(end),
        "at": place(measured),
        # Widened so that even the narrowest interval is visible.
        "low": place(low) - 0.5 if whole and low is not None else None,
        "high": place(high) + 0.5 if whole and high is not None else None,
        "limits": [place(each) for each in allowed if each is not None],
        "allowed": None if allowed == (None, None) else (
            place(start if allowed[0] is None else allowed[0]), place(end if allowed[1] is None else allowed[1])
        ),
    }  # fmt: skip


def _round_up(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten; 0 for 0."""
    if value <= 1e-100:
        return 0.0
    power = 10.0 ** math.floor(math.log10(value))
    return float(f"{next(step * power for step in (1, 2, 5, 10) if value <= step * power * 1.0000001):.3g}")
