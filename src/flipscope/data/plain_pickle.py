"""Reads the pickles of CIFAR-10's Python version without unpickling: nothing is imported, nothing is called.

A pickle is a program for a small stack machine, which can call any function of any module. The batches of CIFAR-10 use
few of its instructions, and two functions: one that rebuilds a numpy array, and one that encodes text. Here each
instruction that they use is interpreted, the two functions are recognised by their names, and anything else is refused.

The standard library's `Unpickler` can be told which names to allow, but not to count: a few bytes make it allocate
gigabytes for its memo, or hash a tuple of tuples for ever. Here the instructions are counted, keys are texts, and what
the two functions copy may not be more than the pickle itself has.
"""

from __future__ import annotations

import io
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipscope.basics.errors import InputError

_REBUILDERS = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
_ARRAY, _DTYPE, _ENCODE = "numpy ndarray", "numpy dtype", "_codecs encode"
_KNOWN = {*_REBUILDERS, _ARRAY, _DTYPE, _ENCODE}
_DTYPES = ("u1", "i8")  # pixels and labels
_SCALARS = (int, float, str, bytes, type(None))
_MOST_STEPS = 1_000_000  # instructions; a batch of 10,000 images with their file names has 50,000


@dataclass(frozen=True)
class _Named:
    """A function or class that the pickle names; it is compared by name and never looked up."""

    name: str


class _Array:
    """A numpy array of which the pickle has given its state or not yet."""

    def __init__(self) -> None:
        self.value: NDArray[Any] | None = None


@dataclass
class _Type:
    """A numpy dtype by its code; the byte order comes with its state."""

    code: str
    order: str = "|"


class _Refused(Exception):
    """The pickle does something that the reader does not do."""


def read_pickle(content: bytes, where: str) -> dict[Any, Any]:
    """The dict of numbers, texts, lists and arrays in a pickle; InputError for other content, or if it is cut off.

    >>> import pickle
    >>> read_pickle(pickle.dumps({b"labels": [3, 1]}, protocol=2), "batch")
    {b'labels': [3, 1]}
    >>> try:
    ...     read_pickle(pickle.dumps(print), "batch")
    ... except InputError as error:
    ...     print(error)
    batch is not a batch of CIFAR-10: its pickle names builtins print, which is not read.
    """
    try:
        return _Machine(len(content)).run(content)
    except _Refused as refusal:
        raise InputError(f"{where} is not a batch of CIFAR-10: its pickle {refusal}.") from None
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError):
        # pickletools says ValueError of an instruction that is cut off or unknown, the others come from its operands.
        raise InputError(f"{where} is damaged or cut off: its pickle cannot be read to its end.") from None


class _Machine:
    """The stack of a pickle's program, the places of the marks in it, and its memo."""

    def __init__(self, size: int) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self._left = 2 * size  # bytes that may be copied: the pixels, once from text and once into an array

    def run(self, content: bytes) -> dict[Any, Any]:
        """Interpret the instructions until STOP."""
        for count, (opcode, argument, _) in enumerate(pickletools.genops(io.BytesIO(content))):
            if opcode.name == "STOP":
                return _content(self.stack.pop())
            if count == _MOST_STEPS:
                raise _Refused(f"has more than {_MOST_STEPS:,} instructions")
            step = _STEPS.get(opcode.name)
            if step is None:
                raise _Refused(f"has the instruction {opcode.name}, which is not read")
            step(self, argument)
        raise ValueError("no STOP")

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def above_mark(self) -> list[Any]:
        """What lies above the last mark, which is taken off with it."""
        at = self.marks.pop()
        found = self.stack[at:]
        del self.stack[at:]
        return found

    def copied(self, text: Any) -> bytes:
        """The bytes of a text, which is how Python 3 writes bytes in old protocols and how Python 2 writes pixels."""
        if not isinstance(text, str | bytes):
            raise TypeError("not a text")
        self._left -= len(text)
        if self._left < 0:
            raise _Refused("copies its texts again and again")
        return text.encode("latin-1") if isinstance(text, str) else text

    def top(self, kind: type) -> Any:
        """The top of the stack, if it is of this kind."""
        if not isinstance(self.stack[-1], kind):
            raise TypeError(f"not a {kind}")
        return self.stack[-1]

    def tuple_of(self, count: int) -> None:
        values = tuple(self.stack[-count:])
        if len(values) < count:
            raise IndexError(count)
        self.stack[-count:] = [values]

    def global_name(self, name: str) -> None:
        if name not in _KNOWN:
            raise _Refused(f"names {name[:100]}, which is not read")
        self.push(_Named(name))

    def call(self, _: Any) -> None:
        """REDUCE: of the functions, only those that the batches use, done here."""
        arguments, function = self.stack.pop(), self.stack.pop()
        match function, arguments:
            case _Named(name), (_Named("numpy ndarray"), _, _) if name in _REBUILDERS:
                self.push(_Array())
            case _Named("numpy dtype"), (str() | bytes() as code, *_):
                self.push(_Type(_text(code)))
            case _Named("_codecs encode"), (str() as text, "latin1" | "latin-1"):
                self.push(self.copied(text))
            case _:
                raise _Refused("calls a function in a way that is not read")

    def build(self, _: Any) -> None:
        """BUILD: the state of an array or of a dtype."""
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, _Type):
            target.order = _text(state[1])
        elif isinstance(target, _Array):
            _, shape, kind, fortran, raw = state
            target.value = _array(shape, kind, fortran, self.copied(raw))
        else:
            raise _Refused("gives a state to something that is no array")


def _array(shape: Any, kind: _Type, fortran: bool, raw: bytes) -> NDArray[Any]:
    if kind.code not in _DTYPES or kind.order not in ("|", "<", ">"):
        raise _Refused(f"has an array of numpy's type {kind.code[:20]!r}, which is not read")
    flat = np.frombuffer(raw, np.dtype(kind.order + kind.code))
    return flat.reshape(tuple(index(each) for each in shape), order="F" if fortran else "C")


def _text(value: Any) -> str:
    if not isinstance(value, str | bytes):
        raise TypeError("not a text")
    return value.decode("ascii") if isinstance(value, bytes) else value


def _content(value: Any) -> dict[Any, Any]:
    """The dict that the pickle holds, its arrays in place; its lists hold numbers and texts only."""
    if not isinstance(value, dict):
        raise _Refused("holds no dict")
    found, checked = {}, set[int]()
    for key, each in value.items():
        if isinstance(each, _Array):
            if each.value is None:
                raise ValueError("an array without content")
            each = each.value
        elif isinstance(each, list):
            # Once for each list: a pickle can name one list many times.
            if id(each) not in checked and not all(isinstance(one, _SCALARS) for one in each):
                raise _Refused("has a list of something else than numbers and texts")
            checked.add(id(each))
        elif not isinstance(each, _SCALARS):
            raise _Refused("has something that is neither a number, a text nor an array")
        found[key] = each
    return found


def _append(machine: _Machine, _: Any) -> None:
    value = machine.stack.pop()
    machine.top(list).append(value)


def _appends(machine: _Machine, _: Any) -> None:
    values = machine.above_mark()
    machine.top(list).extend(values)


def _set_item(machine: _Machine, _: Any) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    machine.top(dict).update(_pairs([key, value]))


def _set_items(machine: _Machine, _: Any) -> None:
    values = machine.above_mark()
    machine.top(dict).update(_pairs(values))


def _stack_global(machine: _Machine, _: Any) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    machine.global_name(f"{_text(module)} {_text(name)}")


def _nothing(machine: _Machine, _: Any) -> None:
    """The version and the frames of a pickle, which change nothing."""


def _pushes(value: Callable[[Any], Any]) -> Callable[[_Machine, Any], None]:
    return lambda machine, argument: machine.push(value(argument))


def _memoize(machine: _Machine, _: Any) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


def _put(machine: _Machine, place: int) -> None:
    machine.memo[place] = machine.stack[-1]


def _get(machine: _Machine, place: int) -> None:
    machine.push(machine.memo[place])


# Texts of Python 2 are bytes: CIFAR's keys and its pixels are.
_AS_BYTES = _pushes(lambda text: text.encode("latin-1") if isinstance(text, str) else text)
_AS_IT_IS = _pushes(lambda value: value)

_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": _nothing,
    "FRAME": _nothing,
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "NONE": _pushes(lambda _: None),
    "NEWTRUE": _pushes(lambda _: True),
    "NEWFALSE": _pushes(lambda _: False),
    **dict.fromkeys(["INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "BINFLOAT", "FLOAT"], _AS_IT_IS),
    **dict.fromkeys(["BINUNICODE", "SHORT_BINUNICODE", "UNICODE", "BINBYTES", "SHORT_BINBYTES"], _AS_IT_IS),
    **dict.fromkeys(["STRING", "BINSTRING", "SHORT_BINSTRING"], _AS_BYTES),
    "EMPTY_DICT": _pushes(lambda _: {}),
    "EMPTY_LIST": _pushes(lambda _: []),
    "EMPTY_TUPLE": _pushes(lambda _: ()),
    "DICT": lambda machine, _: machine.push(_pairs(machine.above_mark())),
    "LIST": lambda machine, _: machine.push(machine.above_mark()),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.above_mark())),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "APPEND": _append,
    "APPENDS": _appends,
    "SETITEM": _set_item,
    "SETITEMS": _set_items,
    "MEMOIZE": _memoize,
    **dict.fromkeys(["PUT", "BINPUT", "LONG_BINPUT"], _put),
    **dict.fromkeys(["GET", "BINGET", "LONG_BINGET"], _get),
    "GLOBAL": lambda machine, name: machine.global_name(name),
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _Machine.call,
    "BUILD": _Machine.build,
}


def _pairs(values: list[Any]) -> dict[str | bytes, Any]:
    """The items of a dict, whose keys are texts: hashing a tuple of tuples can take for ever."""
    if not all(isinstance(key, str | bytes) for key in values[::2]):
        raise TypeError("not a text")
    return dict(zip(values[::2], values[1::2], strict=True))
