"""Flat rows of stored trials: conditions on their fields, and export to files."""

from __future__ import annotations

import csv
import importlib
import io
import itertools
import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from flipscope.basics.errors import InputError
from flipscope.lab.store.arrays import whole_file
from flipscope.lab.store.outcomes import LONG

Row = dict[str, Any]
Condition = tuple[str, str, str]  # field, comparison, value as written
Shape = dict[str, set[type]]  # of each column

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
FORMATS = (".csv", ".parquet", ".json")
_BLOCK = 2_000  # rows written at once
_CONDITION = re.compile(r"(?P<field>[^=<>!]+)(?P<how>!=|<=|>=|=|<|>)(?P<value>.*)", re.DOTALL)


def parse_condition(text: str) -> Condition:
    """The parts of a condition such as "length>=40" or "trial.init=gaussian"."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise InputError(f"--where {text!r} is not a condition: write FIELD=VALUE, or !=, <, <=, >, >= for =")
    return found["field"].strip(), found["how"], found["value"].strip()


def flat(trial: Mapping[str, Any], outcome: Mapping[str, Any]) -> Row:
    """The fields of a trial and the values of its outcome side by side, named trial.* and outcome.*."""
    row = {f"trial.{name}": value for name, value in trial.items()}
    return row | {f"outcome.{name}": value for name, value in outcome.items()}


@dataclass(frozen=True, slots=True)
class Outline:
    """The parts of a row needed to select rows: its index, its names, and the fields in conditions."""

    order: tuple[str, ...]
    key: str
    names: tuple[str, ...]
    values: Row


class Rows:
    """Rows that are read anew at each iteration, since they may not fit into memory."""

    def __init__(self, keys: Sequence[str], find: Callable[[Sequence[str]], Iterator[Row]]) -> None:
        self.keys = keys
        self._find = find

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Row]:
        return self._find(self.keys)

    def first(self, count: int) -> Rows:
        """The first rows."""
        return Rows(self.keys[:count], self._find)


def ordered(names: Iterable[str]) -> list[str]:
    """Column names in order: study and key, those of trials, those of outcomes, the rest."""
    order = ("study", "key", "trial.", "outcome.", "")
    return sorted(
        dict.fromkeys(names), key=lambda name: next(at for at, start in enumerate(order) if name.startswith(start))
    )


def columns(rows: Iterable[Row]) -> list[str]:
    """The names of all rows, in order."""
    return ordered(name for names in dict.fromkeys(tuple(row) for row in rows) for name in names)


def candidates(field: str) -> tuple[str, str, str]:
    """The names that a field of a condition may stand for."""
    return field, f"trial.{field}", f"outcome.{field}"


def select(outlines: list[Outline], where: Sequence[Condition]) -> list[Outline]:
    """The rows that satisfy all conditions; a missing field satisfies none. InputError if no row has a field."""
    for field, how, value in where:
        if how not in COMPARISONS:
            raise InputError(f"{how!r} is not a comparison: use one of {' '.join(COMPARISONS)}")
        if outlines:
            outlines = _selected(outlines, _resolved(outlines, field), how, value)
    return outlines


def _resolved(outlines: Sequence[Outline], field: str) -> str:
    """The full name of a field, which may be given without its trial. or outcome."""
    names = ordered(name for names in dict.fromkeys(outline.names for outline in outlines) for name in names)
    if field in names:
        return field
    found = [name for name in candidates(field)[1:] if name in names]
    if len(found) == 2:
        raise InputError(f"--where {field}: there are {found[0]} and {found[1]}; name one of them")
    if not found:
        raise InputError(f"--where {field}: there is no such field; there are {', '.join(names)}")
    return found[0]


def _selected(outlines: Sequence[Outline], name: str, how: str, value: str) -> list[Outline]:
    chosen, comparable = [], False
    held = [outline for outline in outlines if name in outline.values]
    for outline in held:
        wanted = _read(value, outline.values[name])
        if wanted is _UNLIKE:
            fulfilled = how == "!="
        else:
            comparable = True
            try:
                fulfilled = bool(COMPARISONS[how](outline.values[name], wanted))
            except TypeError:  # None has no order, nor have lists of unlike parts
                fulfilled = False
        if fulfilled:
            chosen.append(outline)
    if not comparable:
        example = held[0].values[name]
        raise InputError(f"--where {name}{how}{value}: {value!r} is nothing like its values, such as {example!r}")
    return chosen


class _Unlike:
    """Stands for a text that cannot be read as a value of some kind."""


_UNLIKE = _Unlike()
_WORDS = {"true": True, "false": False, "none": None, "null": None}


def _read(text: str, like: Any) -> Any:
    """The text as a value of the same kind as another."""
    if isinstance(like, str):
        return text
    if isinstance(like, bool) or like is None:
        found = _WORDS.get(text.lower(), _UNLIKE)
        return found if type(found) is type(like) else _UNLIKE
    try:
        if isinstance(like, list):
            found = json.loads(text)
            return found if isinstance(found, list) else _UNLIKE
        return int(text)
    except ValueError:
        pass
    try:
        return _UNLIKE if isinstance(like, list) else float(text)
    except ValueError:
        return _UNLIKE


def chosen(rows: Sequence[Row], where: Sequence[Condition]) -> list[Row]:
    """The rows of a table that satisfy all conditions, with plain values: lists for tuples and arrays."""
    plain = [{name: _plain(value) for name, value in row.items()} for row in rows]
    outlines = [Outline((), str(number), tuple(row), row) for number, row in enumerate(plain)]
    return [plain[int(outline.key)] for outline in select(outlines, where)]


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # of NumPy
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


# ---------------------------------------------------------------- files


def export(rows: Iterable[Row], target: Path) -> None:
    """Write the rows atomically as a CSV, Parquet or JSON file, depending on the suffix of its name."""
    check_target(target)
    write = {".csv": write_csv, ".parquet": write_parquet, ".json": write_json}[target.suffix]
    try:
        with whole_file(target) as file:
            write(rows, file)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}") from error


def check_target(target: Path) -> None:
    """Raise InputError if a file of this name cannot be an export."""
    if target.suffix not in FORMATS:
        raise InputError(f"--export {target}: the name must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    if not target.parent.is_dir():
        raise InputError(f"--export {target}: the folder {target.parent} does not exist")
    if target.suffix == ".parquet":
        _pyarrow()


def write_csv(rows: Iterable[Row], file: BinaryIO) -> None:
    """Write the rows as UTF-8 CSV with a header: empty for None, true and false, JSON for lists."""
    _write_shaped(rows, file, _csv)


def _csv(rows: Iterable[Row], file: BinaryIO, shape: Shape) -> bool:
    names = ordered(shape)
    text = io.TextIOWrapper(file, "utf-8", errors="backslashreplace", newline="")
    try:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        for row in rows:
            if not row.keys() <= shape.keys():
                return False
            writer.writerow([_cell(row.get(name)) for name in names])
        return True
    finally:
        text.detach()


def _cell(value: Any) -> Any:
    if type(value) in (str, float):  # most are
        return value
    return json.dumps(value) if isinstance(value, bool | list | dict) else document(value, finite=False)


def write_json(rows: Iterable[Row], file: BinaryIO) -> None:
    """Write the rows as one JSON document, a list of objects: null for None, NaN and infinities."""
    before = "["
    for row in rows:
        file.write((before + json.dumps(document(row), allow_nan=False)).encode())
        before = ",\n"
    file.write(b"[]\n" if before == "[" else b"]\n")


def write_parquet(rows: Iterable[Row], file: BinaryIO) -> None:
    """Write the rows as Parquet; columns of mixed types, lists or integers beyond 64 bits become texts."""
    _write_shaped(rows, file, _parquet)


def _parquet(rows: Iterable[Row], file: BinaryIO, shape: Shape) -> bool:
    arrow = _pyarrow()
    makers = {name: _maker(shape[name]) for name in ordered(shape)}
    plan = arrow.schema([(name, getattr(arrow, kind)()) for name, (kind, _) in makers.items()])
    left = iter(rows)
    with importlib.import_module("pyarrow.parquet").ParquetWriter(file, plan) as writer:
        while block := list(itertools.islice(left, _BLOCK)):
            here = _shape(block)
            if any(name not in makers or _maker(shape[name] | here[name])[0] != makers[name][0] for name in here):
                return False
            content = {
                name: [None if row.get(name) is None else make(row[name]) for row in block]
                for name, (_, make) in makers.items()
            }
            writer.write_table(arrow.table(content, schema=plan))
    return True


def _write_shaped(rows: Iterable[Row], file: BinaryIO, write: Callable[[Iterable[Row], BinaryIO, Shape], bool]) -> None:
    """Write rows with the column types of the first ones; if later rows differ, start again with those of all."""
    if not write(rows, file, _shape(itertools.islice(rows, _BLOCK))):
        file.seek(0)
        file.truncate()
        write(rows, file, _shape(rows))


def _shape(rows: Iterable[Row]) -> Shape:
    """The names of all rows, and the kinds of values that each has."""
    shape: Shape = {}
    for row in rows:
        for name, value in row.items():
            shape.setdefault(name, set()).add(_kind(value))
    return shape


def _pyarrow() -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError:
        raise InputError("Parquet files need pyarrow: pip install 'flipscope[tables]', or export .csv") from None


class _Long:
    """Stands for integers that a float cannot hold exactly."""


class _TooLong:
    """Stands for integers beyond 64 bits."""


def _kind(value: Any) -> type:
    """The type of a value, that of large integers by their size."""
    if type(value) is int and abs(value) > 1 << 53:
        return _Long if -(1 << 63) <= value < 1 << 63 else _TooLong
    return type(value)


def _maker(kinds: set[type]) -> tuple[str, Callable[[Any], Any]]:
    """The type of a column with values of these types, and the function that converts a value to it."""
    kinds = kinds - {type(None)}
    if not kinds:
        return "null", lambda value: value
    if kinds == {bool}:
        return "bool_", lambda value: value
    if kinds <= {int, _Long}:
        return "int64", lambda value: value
    return ("float64", float) if kinds <= {int, float} else ("string", _text)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(document(value, finite=False))
    return text.encode(errors="backslashreplace").decode()


def document(value: Any, *, finite: bool = True) -> Any:
    """The value for JSON: None for NaN and infinities, unless not `finite`; hexadecimal text for huge integers."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) or not finite else None
    if isinstance(value, int) and value.bit_length() > LONG:
        return hex(value)
    if isinstance(value, list):
        return [document(item, finite=finite) for item in value]
    if isinstance(value, dict):
        return {name: document(item, finite=finite) for name, item in value.items()}
    return value
