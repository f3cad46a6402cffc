"""Checks of arguments against annotations: a public function refuses values of the wrong type before it begins.

    >>> @checked_arguments
    ... def stretched(text: str, times: int = 2, *, side: Literal["left", "right"] = "left") -> str:
    ...     return text * times if side == "left" else text[::-1] * times
    >>> try:
    ...     stretched("ab", 2.5)
    ... except InputError as error:
    ...     print(error)
    times must be a whole number, not 2.5.

What each annotation accepts:

int             a whole number of any kind, numpy's too, but not True or False; the function is given a Python int
float           a number, neither True nor False nor an integer too large for a float; NaN, too, is a number here
bool            True or False, numpy's too
str, a class    an instance of it
Literal         one of these
Sequence[X]     a list, a tuple, a set, an array, a tensor of X; neither a str nor a mapping nor a generator
tuple[X, Y]     the same, of this length
Iterable[X]     anything that can be iterated over; its elements are checked unless that would use them up
Mapping[X, Y]   a mapping of X to Y
Callable        anything that can be called
X | Y           one of the two

Any other annotation is not checked here: ArrayLike, Any, object, protocols that are not runtime-checkable, and names
that the module imports for type checkers only.
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import functools
import inspect
import operator
import os
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from flipscope.basics.checks import shown
from flipscope.basics.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])
_REFUSED: Any = object()
_ONE_OF = "one of "
_LATER = "later"


@dataclass(frozen=True)
class _Kind:
    """What a parameter accepts: a conversion that gives the value or _REFUSED, and words for the error message."""

    taken: Callable[[Any], Any]
    words: str
    plain: frozenset[type] = frozenset()  # types of which every value is accepted unchanged, without a call


@dataclass(frozen=True)
class Keyword:
    """What `help` says of a keyword that several functions share: its default, and what it means.

    It stands in the TypedDict of a function's ``**options: Unpack[Options]``, beside the type of the keyword.

    >>> class Options(typing.TypedDict, total=False):
    ...     times: typing.Annotated[int, Keyword(2, "how often the text is repeated")]
    >>> @checked_arguments
    ... def repeated(text: str, **options: typing.Unpack[Options]) -> str:
    ...     '''The text again and again.'''
    ...     return text * options.get("times", 2)
    >>> str(inspect.signature(repeated).replace(return_annotation=inspect.Signature.empty))
    "(text: 'str', *, times: int = 2)"
    >>> print(inspect.getdoc(repeated))
    The text again and again.
    <BLANKLINE>
    Keywords:
        times: how often the text is repeated (default 2)
    """

    default: object
    meaning: str


def checked_arguments(function: F) -> F:
    """Make the function raise an InputError that names the parameter where an argument does not fit its annotation.

    Keywords that it takes as ``**options: Unpack[Options]`` are spelled out in its signature and its docstring.
    """
    signature = inspect.signature(function)
    names = [one.name for one in signature.parameters.values() if one.kind <= one.POSITIONAL_OR_KEYWORD]
    shared = _keywords(function, signature)
    free = not shared and any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())
    accepted = {*signature.parameters, *shared}
    kinds: dict[str, _Kind] = {}
    others: list[_Kind] = []  # for the values of **keywords, where these are annotated
    known = False

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        nonlocal known
        if not known:  # at the first call: annotations may name what is defined further below
            kinds.update(_kinds(function, others))
            known = True
        if not free:
            for name, value in keywords.items():
                if name not in accepted:
                    _refuse_keyword(function, names, name, value, accepted)
        positional = [_taken(name, value, kinds.get(name)) for name, value in zip(names, arguments, strict=False)]
        other = others[0] if others else None
        named = {name: _taken(name, value, kinds.get(name, other)) for name, value in keywords.items()}
        return function(*positional, *arguments[len(names) :], **named)

    if shared:
        _spell_out(call, signature, shared)
    return typing.cast(F, call)


_BELONG: dict[str, tuple[frozenset[str], str]] = {}  # by the name of a function's first parameter


def belong_to(first: str, names: collections.abc.Iterable[str], where: str) -> None:
    """Functions whose first parameter has this name refuse these keywords with a sentence that shows where they belong.

    In ``where``, {function}, {name} and {value} stand for the call.
    """
    _BELONG[first] = frozenset(names), where


def _refuse_keyword(
    function: Callable[..., Any], names: list[str], name: str, value: Any, accepted: set[str]
) -> typing.NoReturn:
    belonging, where = _BELONG.get(names[0] if names else "", (frozenset(), ""))
    if name in belonging:
        said = shown(value) if isinstance(value, str | int | float | tuple) else "..."
        raise InputError(where.format(function=function.__name__, name=name, value=said))
    known = ", ".join(sorted(each for each in accepted if each not in ("args", "options")))
    raise TypeError(f"{function.__name__}() got an unknown keyword {name!r}; known are {known}")


def _keywords(function: Callable[..., Any], signature: inspect.Signature) -> dict[str, tuple[Any, Keyword]]:
    """The keywords that a function takes by an unpacked TypedDict, with their types."""
    for one in signature.parameters.values():
        if one.kind is one.VAR_KEYWORD and "Unpack[" in str(one.annotation):
            hint = _hints(function).get(one.name)
            if typing.get_origin(hint) is typing.Unpack:
                found = typing.get_type_hints(typing.get_args(hint)[0], include_extras=True)
                return {name: _described(each) for name, each in found.items()}
    return {}


def _described(hint: Any) -> tuple[Any, Keyword]:
    """The type of a keyword, and what is said of it, if anything."""
    said = next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Keyword)), None)
    return (hint, Keyword(..., "")) if said is None else (typing.get_args(hint)[0], said)


def _spell_out(call: Any, signature: inspect.Signature, keywords: dict[str, tuple[Any, Keyword]]) -> None:
    """Name the keywords where `help` looks for them."""
    others = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    spelled = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=kind)
        for name, (kind, each) in keywords.items()
    ]
    call.__signature__ = signature.replace(parameters=[*others, *spelled])
    said = {name: each for name, (_, each) in keywords.items() if each.meaning}
    lines = [f"{name}: {each.meaning} (default {each.default!r})" for name, each in said.items()]
    # Indented as the docstring is.
    call.__doc__ = "\n".join(
        [(call.__doc__ or "").rstrip(), "", "    Keywords:", *(f"        {line}" for line in lines)]
    )


def renamed_arguments(**new_names: str) -> Callable[[F], F]:
    """Make a function refuse keywords that it no longer has, with a sentence that names the new one.

    >>> @renamed_arguments(times="count")
    ... def stretched(text: str, count: int = 2) -> str:
    ...     return text * count
    >>> try:
    ...     stretched("ab", times=2)
    ... except InputError as error:
    ...     print(error)
    times= is now called count=.
    """

    def decorated(function: F) -> F:
        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            for old, new in new_names.items():
                if old in keywords:
                    raise InputError(f"{old}= is now called {new}=.")
            return function(*arguments, **keywords)

        return typing.cast(F, call)

    return decorated


def check_fields(record: Any) -> None:
    """Raise InputError unless the fields of a dataclass fit their annotations; whole numbers become Python's."""
    kind_of_record: type = type(record)
    for name, kind in _field_kinds(kind_of_record).items():
        value = getattr(record, name)
        taken = _taken(name, value, kind)
        if taken is not value:
            object.__setattr__(record, name, taken)  # works for frozen dataclasses, in __post_init__


def plain_fields(record: Any) -> dict[str, Any]:
    """The fields of a dataclass by name, numbers converted to the types of their annotations.

    >>> @dataclass
    ... class Step:
    ...     size: float
    ...     count: int | None = None
    >>> plain_fields(Step(1, np.int64(3)))
    {'size': 1.0, 'count': 3}
    """
    kind: type = type(record)
    hints = _field_hints(kind)
    return {name: _plain(getattr(record, name), hints[name]) for name in stored_names(record)}


def later(default: Any) -> Any:
    """A field added to a dataclass whose records are already stored; while it has its default, it is not stored.

    So the records of earlier versions, and digests and file names made from them, stay valid.

    >>> @dataclass(frozen=True)
    ... class Step:
    ...     size: float
    ...     momentum: float = later(0.0)
    >>> plain_fields(Step(0.5)), plain_fields(Step(0.5, 0.9))
    ({'size': 0.5}, {'size': 0.5, 'momentum': 0.9})
    """
    return dataclasses.field(default=default, metadata={_LATER: True})


def stored_names(record: Any) -> list[str]:
    """The names of a dataclass's fields that are stored: all but those of `later` at their defaults."""
    return [
        each.name
        for each in dataclasses.fields(record)
        if not (each.metadata.get(_LATER) and getattr(record, each.name) == each.default)
    ]


def required_names(kind: type) -> list[str]:
    """The names of a dataclass's fields that every stored record has: all but those of `later`."""
    return [each.name for each in dataclasses.fields(kind) if not each.metadata.get(_LATER)]


def _plain(value: Any, hint: Any) -> Any:
    kinds = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    if value is None or not (float in kinds or int in kinds):
        return value
    return float(value) + 0.0 if float in kinds else int(value)  # -0.0 + 0.0 is 0.0


def _taken(name: str, value: Any, kind: _Kind | None) -> Any:
    if kind is None or type(value) in kind.plain:
        return value
    taken = kind.taken(value)
    if taken is not _REFUSED:
        return taken
    if kind.words.startswith(_ONE_OF):
        raise InputError(f"{name}={shown(value)} is not {kind.words}.")
    raise InputError(f"{name} must be {kind.words}, not {shown(value)}.")


# ---------------------------------------------------------------- from annotations to kinds


def _kinds(function: Callable[..., Any], others: list[_Kind]) -> dict[str, _Kind]:
    """What each parameter accepts, for the parameters whose annotations can be checked."""
    hints = _hints(function)
    by_name: dict[str, _Kind] = {}
    for one in inspect.signature(function).parameters.values():
        hint = hints.get(one.name, Any)
        if one.kind is one.VAR_KEYWORD:
            if typing.get_origin(hint) is typing.Unpack:
                by_name |= _of_all(typing.get_type_hints(typing.get_args(hint)[0]))
            elif (kind := _kind(hint)) is not None:
                others.append(kind)
        elif one.kind is not one.VAR_POSITIONAL and (kind := _kind(hint)) is not None:
            by_name[one.name] = kind
    return by_name


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The evaluated annotations, without those that name something imported for type checkers only."""
    inner = inspect.unwrap(function)
    hints = {}
    for name, text in inner.__annotations__.items():
        with contextlib.suppress(NameError, TypeError):
            hints[name] = eval(text, inner.__globals__) if isinstance(text, str) else text
    return hints


@functools.cache
def _field_hints(record: Any) -> dict[str, Any]:
    return typing.get_type_hints(record)


@functools.cache
def _field_kinds(record: Any) -> dict[str, _Kind]:
    return _of_all(_field_hints(record))


def _of_all(hints: dict[str, Any]) -> dict[str, _Kind]:
    return {name: kind for name, hint in hints.items() if (kind := _kind(hint)) is not None}


def _kind(hint: Any) -> _Kind | None:
    """What an annotation accepts; None where it cannot be checked."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, TypeVar):
        return None if hint.__bound__ is None else _kind(hint.__bound__)
    if hint is None or hint is type(None):
        return _Kind(lambda value: value if value is None else _REFUSED, "None", plain=frozenset([type(None)]))
    if hint in _NUMBERS:
        return _NUMBERS[hint]
    if origin in (typing.Union, types.UnionType):
        return _any_of([_kind(each) for each in inner])
    if origin is Literal:
        return _Kind(
            lambda value: value if _is_choice(value, inner) else _REFUSED, _ONE_OF + ", ".join(map(str, inner))
        )
    if hint in (Callable, typing.Callable) or origin is collections.abc.Callable:
        return _Kind(lambda value: value if callable(value) else _REFUSED, "callable")
    if origin is tuple:
        return _many(None if inner[-1:] == (...,) else len(inner), [_kind(each) for each in inner if each is not ...])
    if origin is collections.abc.Sequence:
        return _many(None, [_kind(each) for each in inner])
    if origin is collections.abc.Iterable:
        return _iterable(_kind(inner[0]))
    if origin in (collections.abc.Mapping, dict):
        return _mapping(*map(_kind, inner))
    array = getattr(hint, "array_type", None)  # jaxtyping: shapes and dtypes are left to the function
    return _instance(array if isinstance(array, type) else origin or hint)


def _instance(kind: Any) -> _Kind | None:
    if not isinstance(kind, type) or kind is object or kind.__module__.startswith(("numpy._typing", "typing")):
        return None
    if getattr(kind, "_is_protocol", False) and not getattr(kind, "_is_runtime_protocol", False):
        return None
    name = kind.__name__
    words = (
        _WORDS.get(kind) or _TORCH.get(f"{kind.__module__}.{name}") or f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
    )
    return _Kind(lambda value: value if isinstance(value, kind) else _REFUSED, words, plain=frozenset([kind]))


def _any_of(kinds: list[_Kind | None]) -> _Kind | None:
    """Any of several kinds; None where one of them accepts everything."""
    known = [kind for kind in kinds if kind is not None]
    if len(known) < len(kinds):
        return None

    def taken(value: Any) -> Any:
        return next((accepted for kind in known if (accepted := kind.taken(value)) is not _REFUSED), _REFUSED)

    words = list(dict.fromkeys(kind.words for kind in known))
    if "a number" in words and "a whole number" in words:
        words.remove("a whole number")
    chosen = [word for word in words if word.startswith(_ONE_OF)]
    rest = [word for word in words if word not in chosen]
    description = ", nor ".join([*chosen, *rest]) if chosen else " or ".join(rest)
    return _Kind(taken, description, plain=frozenset().union(*(kind.plain for kind in known)))


def _many(count: int | None, kinds: list[_Kind | None]) -> _Kind:
    """A sequence, of a fixed length if `count` is given: all elements of one kind, or each of its own."""
    each = kinds[0] if kinds else None

    def taken(value: Any) -> Any:
        elements = _elements(value)
        if elements is None or (count is not None and len(elements) != count):
            return _REFUSED
        wanted = kinds if count is not None else [each] * len(elements)
        fits = all(kind is None or kind.taken(one) is not _REFUSED for one, kind in zip(elements, wanted, strict=True))
        return value if fits else _REFUSED

    several = "a sequence" if count is None else f"{count} values"
    return _Kind(taken, several if each is None else f"{several}, each {each.words}")


def _iterable(each: _Kind | None) -> _Kind:
    several = _many(None, [each])

    def taken(value: Any) -> Any:
        checkable = isinstance(value, str | collections.abc.Collection) or hasattr(value, "tolist")
        if not checkable and isinstance(value, collections.abc.Iterable):
            return value  # such as a generator, which checking would use up
        return several.taken(value)

    return _Kind(taken, several.words)


def _mapping(of: _Kind | None, to: _Kind | None) -> _Kind:
    def taken(value: Any) -> Any:
        if not isinstance(value, collections.abc.Mapping):
            return _REFUSED
        pairs = ((kind, one) for pair in value.items() for kind, one in zip((of, to), pair, strict=True))
        return value if all(kind is None or kind.taken(one) is not _REFUSED for kind, one in pairs) else _REFUSED

    names = [kind.words for kind in (of, to) if kind is not None]
    return _Kind(taken, "a mapping" + (f" from {' to '.join(names)}" if len(names) == 2 else ""))


def _elements(value: Any) -> list[Any] | None:
    """The elements of a collection; None for anything else, such as a str or an array without axes."""
    single = isinstance(value, str | bytes | collections.abc.Mapping) or getattr(value, "ndim", 1) == 0
    if single or (not isinstance(value, collections.abc.Collection | np.ndarray) and not hasattr(value, "tolist")):
        return None
    try:
        return list(value)
    except (TypeError, ValueError, RuntimeError, NotImplementedError):  # a tensor without numbers, say
        return None


# ---------------------------------------------------------------- single values


def _whole(value: Any) -> Any:
    if type(value) is int:
        return value
    try:
        return _REFUSED if isinstance(value, bool) else operator.index(value)
    except (TypeError, ValueError, RuntimeError, NotImplementedError):  # raised by tensors
        return _REFUSED


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, Real):
        return _REFUSED
    try:
        return value if isinstance(value, float | np.floating | np.integer) else _as_float(value)
    except OverflowError:
        return _REFUSED


def _as_float(value: Real) -> Any:
    """An integer unchanged, any other kind of number, such as a Fraction, as a float."""
    near = float(value)
    return value if isinstance(value, int) else near


def _flag(value: Any) -> Any:
    return value if isinstance(value, bool | np.bool_) else _REFUSED


def _is_choice(value: Any, choices: tuple[Any, ...]) -> bool:
    candidates = (
        one for one in choices if isinstance(value, type(one)) and isinstance(value, bool) == isinstance(one, bool)
    )
    return any(value == one for one in candidates)


_NUMBERS: dict[Any, _Kind] = {
    int: _Kind(_whole, "a whole number", plain=frozenset([int])),
    float: _Kind(_number, "a number", plain=frozenset([float])),
    bool: _Kind(_flag, "True or False", plain=frozenset([bool])),
    typing.SupportsIndex: _Kind(_whole, "a whole number", plain=frozenset([int])),
}
# torch is not imported here; its classes come with the annotations.
_TORCH = {"torch.nn.modules.module.Module": "an nn.Module", "torch.Tensor": "a torch tensor"}
_WORDS: dict[Any, str] = {
    str: "a str",
    Path: "a path",
    os.PathLike: "a path",
    np.ndarray: "a numpy array",
    np.random.Generator: "a numpy Generator",
}
