"""Settings of a scale: listed by name, read from text, checked, and changed by the user.

A scale with changed settings has a name that determines it: ``laptop+length=14+seeds=20`` is the scale ``laptop`` with
two changed settings. So a store, a pack or a report needs only the name to make the same trials.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import math
import numbers
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from flipscope.basics.errors import InputError

LONGEST_RANGE = 100_000  # most values in a range such as 0..9
MISSING = object()  # stands for the value of a setting that a scale does not have

_RANGE = re.compile(r"(?<![\w.])(-?\d+)\.\.(-?\d+)(?![\w.])")
_LEADING_ZERO = re.compile(r"(?<![\w.])(?<!e[-+])0\d", re.IGNORECASE)
_WORDS = {"none": None, "true": True, "false": False}

# Settings that count as sample sizes by their names: the number of draws, or the first seed.
_SAMPLE_SIZE = re.compile(r"(.+_)?(seeds|models|draws|strings|functions|networks|probes|instances)|first_.+")


def named(settings: Any) -> Mapping[str, Any]:
    """The settings of a scale by name."""
    if isinstance(settings, Mapping):
        return settings
    return {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}


def leaves(settings: Any) -> dict[str, Any]:
    """The settings of a scale by name; nested ones have names such as "training.steps"."""
    found: dict[str, Any] = {}
    for name, value in named(settings).items():
        if _has_settings(value):
            found |= {f"{name}.{inner}": each for inner, each in leaves(value).items()}
        else:
            found[name] = value
    return found


def changed(settings: Any, changes: Mapping[str, Any]) -> Any:
    """The settings with new values for some `leaves`.

    >>> changed({"length": 100, "training": {"steps": 5, "lr": 0.1}}, {"training.steps": 9})
    {'length': 100, 'training': {'steps': 9, 'lr': 0.1}}
    """
    values = named(settings)
    new = {name: value for name, value in changes.items() if "." not in name}
    inside: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        first, dot, rest = name.partition(".")
        if dot:
            inside.setdefault(first, {})[rest] = value
    new |= {name: changed(values[name], own) for name, own in inside.items()}
    return {**settings, **new} if isinstance(settings, Mapping) else dataclasses.replace(settings, **new)


def is_sample_size(name: str, value: Any) -> bool:
    """Whether a setting, by its name and value, is a number of draws or a first seed.

    >>> is_sample_size("long_seeds", 5), is_sample_size("noise.draws", 100), is_sample_size("draws", (2, 5))
    (True, True, False)
    """
    return type(value) is int and _SAMPLE_SIZE.fullmatch(name.rpartition(".")[2]) is not None


def _has_settings(value: Any) -> bool:
    return isinstance(value, Mapping) or (dataclasses.is_dataclass(value) and not isinstance(value, type))


# ---------------------------------------------------------------- names


def name_of(base: str, changes: Mapping[str, Any]) -> str:
    """The name of a scale with changed settings.

    >>> name_of("laptop", {"length": 14, "lengths": (4, 5, 6, 7, 12), "rate": 1e20})
    'laptop+length=14+lengths=4..7,12+rate=1e20'
    """
    return "+".join([base, *(f"{name}={value_text(value)}" for name, value in changes.items())])


def split_name(name: str) -> tuple[str, list[str]]:
    """The base scale in a name, and its changed settings, each as NAME=VALUE."""
    base, *changes = name.split("+")
    return base, changes


def split_change(text: str) -> tuple[str, str]:
    """Name and value of a setting written as NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise InputError(f"{text!r} does not say which setting to change: write NAME=VALUE, such as length=14")
    return name.strip(), value.strip()


def value_text(value: Any) -> str:
    """A value as `read` reads it, without the + that separates settings in a name."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).replace("e+", "e")
    if isinstance(value, str):
        return quote(value, safe=" ")
    if isinstance(value, tuple):
        return _tuple_text(value) if value else "()"
    return str(value)


def _tuple_text(values: tuple[Any, ...]) -> str:
    parts = []
    for run in _runs(values):
        if len(run) > 2:
            parts.append(f"{run[0]}..{run[-1]}")
            continue
        for value in run:
            inner = value_text(value)
            comma = "," if isinstance(value, tuple) and len(value) == 1 else ""
            parts.append(f"({inner}{comma})" if isinstance(value, tuple) and value else inner)
    return ",".join(parts)


def _runs(values: Iterable[Any]) -> Iterator[list[Any]]:
    """Consecutive integers together, and every other value alone."""
    run: list[Any] = []
    for value in values:
        if run and type(value) is int and type(run[-1]) is int and value == run[-1] + 1:
            run.append(value)
        else:
            if run:
                yield run
            run = [value]
    if run:
        yield run


# ---------------------------------------------------------------- values


def read(text: str, like: Sequence[Any]) -> Any:
    """The value of a text, for a setting with the values `like` at some scales; the text itself if it is nothing else.

    >>> read("0..3, 7", [(1,)]), read("2.5", [1.0]), read("none", [None]), read("(3,1),(4,2)", [((3, 1),)])
    ((0, 1, 2, 3, 7), 2.5, None, ((3, 1), (4, 2)))
    """
    kinds = {type(value) for value in like}
    parts = [part for value in like if isinstance(value, tuple) for part in value]
    if str in kinds and text.lower() not in _WORDS:
        return unquote(text)
    if parts and all(isinstance(part, str) for part in parts):
        return tuple(unquote(part.strip()) for part in text.strip("()").split(",") if part.strip())
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _LEADING_ZERO.search(text):  # Python reads 10,000 as 10 and 0
        return text
    if (whole := _RANGE.fullmatch(text)) is not None:
        return tuple(_numbers(whole))
    try:
        return ast.literal_eval(_RANGE.sub(lambda found: ",".join(map(str, _numbers(found))), text))
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text


def _numbers(found: re.Match[str]) -> range:
    first, last = int(found[1]), int(found[2])
    if last < first or last - first >= LONGEST_RANGE:
        raise InputError(f"{found[0]} is not a range: write the smaller number first, and at most {LONGEST_RANGE:,}")
    return range(first, last + 1)


class Unfit(Exception):
    """A value does not fit a setting; the text describes the values that do."""


def fitted(value: Any, like: Sequence[Any], fixed: bool = False) -> Any:
    """The value, if it has the type of one of the values `like` that the setting has at the scales; else `Unfit`.

    If all of these are positive, it must be positive too. A `fixed` tuple has one value for each position.
    """
    reasons = []
    for kind in dict.fromkeys(type(each) for each in like):
        same = [each for each in like if type(each) is kind]
        try:
            return _of_kind(value, same, fixed)
        except Unfit as reason:
            reasons.append(str(reason))
    raise Unfit(" or ".join(reasons))


def _of_kind(value: Any, like: Sequence[Any], fixed: bool) -> Any:
    """The value converted to the common type of `like`."""
    first = like[0]
    if isinstance(first, tuple):
        return _as_tuple(value, like, fixed)
    if first is None or isinstance(first, bool | str):
        if type(value) is not type(first):
            raise Unfit({type(None): "none", bool: "true or false", str: "a text"}[type(first)])
        return value
    if isinstance(first, int):
        least = 1 if min(like) >= 1 else 0 if min(like) >= 0 else -math.inf
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
            raise Unfit("a whole number" + (f" of at least {least}" if math.isfinite(least) else ""))
        return int(value)
    if isinstance(first, float):
        sign = " above 0" if min(like) > 0 else " of at least 0" if min(like) >= 0 else ""
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
            raise Unfit(f"a number{sign}")
        if (sign and value < 0) or (sign == " above 0" and value == 0):
            raise Unfit(f"a number{sign}")
        return float(value)
    raise Unfit(f"of type {type(first).__name__}, which only the study can set")


def _as_tuple(value: Any, like: Sequence[tuple[Any, ...]], fixed: bool) -> tuple[Any, ...]:
    parts = [part for each in like for part in each]
    given = tuple(value) if isinstance(value, tuple | list | range) else (value,)
    record = fixed or any(len({type(part) for part in each}) > 1 for each in like)
    nested = bool(parts) and all(isinstance(part, tuple) for part in parts)
    if nested and given and not all(isinstance(part, tuple | list | range) for part in given):
        given = (given,)  # one group, written without its brackets
    if record:
        sizes = {len(each) for each in like}
        if len(given) not in sizes:
            raise Unfit(f"{' or '.join(map(str, sorted(sizes)))} values such as {value_text(like[0])}")
        places = [[each[at] for each in like if len(each) > at] for at in range(len(given))]
        return tuple(_part(part, own, like) for part, own in zip(given, places, strict=True))
    if nested and len({len(part) for part in parts}) == 1 and len(parts) > 1:
        wrong = [part for part in given if not isinstance(part, tuple | list) or len(part) != len(parts[0])]
        if wrong:
            raise Unfit(f"several groups of {len(parts[0])} values such as {value_text(like[0])}")
    return tuple(_part(part, parts, like) if parts else part for part in given)


def _part(part: Any, like: Sequence[Any], whole: Sequence[tuple[Any, ...]]) -> Any:
    try:
        return fitted(part, like)
    except Unfit as reason:
        example = next((each for each in whole if each), ())
        raise Unfit(f"several values such as {value_text(example)}, each {reason}") from None


def fixed_tuples(settings: Any) -> set[str]:
    """The `leaves` whose annotation is a tuple of a fixed length, such as tuple[int, int]."""
    found: set[str] = set()
    hints = {} if isinstance(settings, Mapping) else typing.get_type_hints(type(settings))
    for name, value in named(settings).items():
        if _has_settings(value):
            found |= {f"{name}.{inner}" for inner in fixed_tuples(value)}
        elif typing.get_origin(hints.get(name)) is tuple and Ellipsis not in typing.get_args(hints[name]):
            found.add(name)
    return found


# ---------------------------------------------------------------- changes


def checked(
    study: str, scales: Mapping[str, Any], base: str, given: Mapping[str, Any], *, seed_setting: str, from_text: bool
) -> dict[str, Any]:
    """The given settings of a scale, each of the right type, in the order in which the scale has them.

    `scales` are the settings of all scales of the study, `given` the values by name: as texts, with `from_text`.
    A setting that only other scales have can be given too.
    """
    own = leaves(scales[base])
    everywhere = [leaves(settings) for settings in scales.values()]
    inside = {name.rpartition(".")[0] for name in own} | {""}
    known = dict.fromkeys([*own, *(name for each in everywhere for name in each if name.rpartition(".")[0] in inside)])
    fixed = {name for settings in scales.values() for name in fixed_tuples(settings)}
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise InputError(_unknown(study, base, name, list(known)))
        like = [own[name]] if own.get(name) is not None else []
        like += [each[name] for each in everywhere if name in each]
        like += [0] if name == seed_setting else []  # the first seed may be any number, even one that no scale uses
        wanted = read(value, like) if from_text else value
        if _counts_seeds(name, like) and not isinstance(wanted, str | numbers.Number | None):
            found |= _seed_range(study, name, wanted, seed_setting if seed_setting in known else "")
            continue
        try:
            found[name] = fitted(wanted, like, name in fixed)
        except Unfit as reason:
            at = f" (at scale {base} it is {_plain(own[name])})" if name in own else ""
            raise InputError(f"the setting {name} of {study} is {reason}{at}, not {_short(value)}") from None
    return {name: found[name] for name in known if name in found}


def _counts_seeds(name: str, like: Sequence[Any]) -> bool:
    return name.endswith("seeds") and any(type(each) is int for each in like)


def _seed_range(study: str, name: str, wanted: Any, first: str) -> dict[str, Any]:
    """The number of seeds in a range such as 3..9, and the first seed."""
    seeds = list(wanted) if isinstance(wanted, tuple | list | range) else []
    whole = bool(seeds) and all(type(seed) is int and seed >= 0 for seed in seeds)
    if not whole or seeds != list(range(seeds[0], seeds[0] + len(seeds))):
        raise InputError(
            f"the setting {name} of {study} is a number of seeds or a range such as 0..9, not {_short(wanted)}"
        )
    if first:
        return {name: len(seeds), first: seeds[0]}
    if seeds[0]:
        raise InputError(f"the seeds of {study} are numbered from 0: say {name}={len(seeds)} for as many of them")
    return {name: len(seeds)}


def _unknown(study: str, base: str, name: str, known: Sequence[str]) -> str:
    if not known:
        return f"the scale {base} of {study} has no settings, so {name!r} cannot be changed"
    near = difflib.get_close_matches(name, known, 3, 0.5) or [each for each in known if name in each.split(".")][:3]
    hint = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(known)}"
    return f"the scale {base} of {study} has no setting {name!r}; {hint}"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else value_text(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
