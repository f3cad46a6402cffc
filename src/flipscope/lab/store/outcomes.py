"""Lossless conversion of outcomes to a JSON document and arrays: values that JSON lacks become tagged objects.

NaN and infinities are {"!float": "nan"}, integers too long for decimal digits {"!int": "0x…"}, and an array is
{"!array": [type, shape]} with its numbers elsewhere. A name that begins with "!" gets one more.
Tuples come back as lists, and numpy's numbers as Python's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from flipscope.basics.errors import InputError

Array = NDArray[Any]

# The number types of safetensors files that numpy has too.
TYPES = frozenset(
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
    ]
)
RESERVED = "__metadata__"  # a name reserved by safetensors
LARGEST_ARRAYS = 900_000_000  # bytes of all arrays of an outcome, which SQLite keeps as one value
LONG = 10_000  # bits; Python refuses to print integers of more than 4300 decimal digits


def split(outcome: Mapping[str, Any]) -> tuple[str, dict[str, Array]]:
    """The outcome as a JSON text, and its arrays by name."""
    if not isinstance(outcome, Mapping):
        raise InputError(f"an outcome is a dict of names and values, not {_said(outcome)}")
    document: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    for name, value in outcome.items():
        if isinstance(value, np.ndarray):
            arrays[name] = _plain(name, value)
            document[_escaped(name, "outcome")] = {"!array": [str(arrays[name].dtype), list(value.shape)]}
        else:
            document[_escaped(name, "outcome")] = _tagged(value, f"outcome {name!r}")
    if (size := sum(array.nbytes for array in arrays.values())) > LARGEST_ARRAYS:
        raise InputError(
            f"the arrays of an outcome have {size:,} bytes, more than {LARGEST_ARRAYS:,}: store fewer numbers"
        )
    return _dumped(document), arrays


def packed(arrays: Mapping[str, Array]) -> bytes:
    """Arrays as the bytes of a safetensors file, the same for equal arrays."""
    return save({name: arrays[name] for name in sorted(arrays)})


def unpacked(content: bytes) -> dict[str, Array]:
    """The arrays in the bytes of a safetensors file; ValueError if they cannot be read."""
    try:
        return {name: np.array(array) for name, array in load(content).items()}
    except (SafetensorError, KeyError) as error:
        raise ValueError(str(error)) from error


def join(text: str, arrays: Mapping[str, Array]) -> dict[str, Any]:
    """The outcome that was split."""
    document = _untagged_pairs(json.loads(text))
    return {name: arrays[name] if isinstance(value, _Elsewhere) else value for name, value in document.items()}


def scalars(text: str) -> dict[str, Any]:
    """The numbers and texts of a split outcome, without lists, dicts and arrays."""
    plain_values = {}
    for name, value in json.loads(text).items():
        plain = _untagged(value) if type(value) is dict else value
        if not isinstance(plain, (list, dict, _Elsewhere)):
            plain_values[name.removeprefix("!")] = plain
    return plain_values


def array_names(text: str) -> frozenset[str]:
    """The names of the arrays of a split outcome."""
    document = json.loads(text)
    return frozenset(
        name.removeprefix("!") for name, value in document.items() if isinstance(_untagged(value), _Elsewhere)
    )


def encode(value: Any, where: str) -> str:
    """A value without arrays as JSON text; `where` names it in an error message."""
    return _dumped(_tagged(value, where))


def decode(text: str) -> Any:
    """The value that was encoded."""
    return _untagged(json.loads(text))


class _Elsewhere:
    """Stands for an array that is not in the document."""


def _dumped(document: Any) -> str:
    return json.dumps(document, allow_nan=False, separators=(",", ":"))  # ASCII: any text survives in it


def _escaped(name: object, where: str) -> str:
    if not isinstance(name, str):
        raise InputError(f"{where} has the name {name!r}, which is not a text: name values by texts")
    return "!" + name if name.startswith("!") else str(name)


def _plain(name: str, value: Array) -> Array:
    """The array in this machine's byte order, row after row."""
    _escaped(name, "outcome")
    if str(value.dtype.newbyteorder("=")) not in TYPES:
        raise InputError(f"outcome {name!r} is an array of type {value.dtype}: use bool, integers, float or complex64")
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(f"outcome {name!r} is a masked array, whose mask would be lost: store two arrays")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"outcome {name!r} is an array whose name is not valid Unicode: rename it") from None
    if name == RESERVED:
        raise InputError(f"outcome {name!r} is an array of a name that safetensors files reserve: rename it")
    return np.array(value, value.dtype.newbyteorder("="), order="C", copy=True, subok=False)


def _tagged(value: Any, where: str) -> Any:
    """The value as a JSON object."""
    try:
        return _tag(value, where)
    except RecursionError:
        raise InputError(f"{where} is nested too deeply, or holds itself") from None


def _tag(value: Any, where: str) -> Any:
    if value is None or isinstance(value, bool | np.bool_):
        return None if value is None else bool(value)
    if isinstance(value, int | np.integer):
        number = int(value)
        return number if number.bit_length() <= LONG else {"!int": hex(number)}
    if isinstance(value, float | np.float32 | np.float16):
        real = float(value)
        return real if math.isfinite(real) else {"!float": str(real)}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, list | tuple):
        return [_tag(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {_escaped(name, where): _tag(item, f"{where}[{name!r}]") for name, item in value.items()}
    if isinstance(value, np.ndarray):
        raise InputError(f"{where} is an array inside another value: give each array a name of its own in the outcome")
    raise InputError(f"{where} is {_said(value)}, which cannot be stored: use numbers, texts, lists and numpy arrays")


def _untagged(value: Any) -> Any:
    if isinstance(value, list):
        return [_untagged(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((tag, content),) = value.items()
        if tag == "!float":
            return float(content)
        if tag == "!int":
            return int(content, 16)
        if tag == "!array":
            return _Elsewhere()
        if tag.startswith("!") and not tag.startswith("!!"):
            raise InputError(f"a stored value is of the kind {tag[1:]!r}, unknown to this flipscope: update it")
    return _untagged_pairs(value)


def _untagged_pairs(value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name.removeprefix("!"): _untagged(item) if isinstance(item, (list, dict)) else item
        for name, item in value.items()
    }


def _said(value: object) -> str:
    kind = type(value)
    return f"of type {kind.__name__ if kind.__module__ == 'builtins' else f'{kind.__module__}.{kind.__name__}'}"
