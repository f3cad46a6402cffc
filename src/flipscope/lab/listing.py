"""Flat rows of stored trials: conditions on their fields, and files of them for other programs."""

from __future__ import annotations

import csv
import importlib
import io
import json
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flipscope.errors import InputError
from flipscope.lab.arrays import write_whole
from flipscope.lab.outcomes import LONG

Row = dict[str, Any]
Condition = tuple[str, str, str]  # field, comparison, value as written

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
FORMATS = (".csv", ".parquet")
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


def columns(rows: Sequence[Row]) -> list[str]:
    """The names of all rows: those of trials, then of outcomes, then the rest, study and key before all."""
    names = dict.fromkeys(name for row in rows for name in row)
    order = ("study", "key", "trial.", "outcome.", "")
    return sorted(names, key=lambda name: next(at for at, start in enumerate(order) if name.startswith(start)))


def select(rows: list[Row], where: Sequence[Condition]) -> list[Row]:
    """The rows that fulfil all conditions; a row without the field fulfils none. InputError for a field of no row."""
    for field, how, value in where:
        if how not in COMPARISONS:
            raise InputError(f"{how!r} is not a comparison: use one of {' '.join(COMPARISONS)}")
        if rows:
            rows = _selected(rows, _resolved(rows, field), how, value)
    return rows


def _resolved(rows: Sequence[Row], field: str) -> str:
    """The full name of a field, which may be given without its trial. or outcome."""
    names = columns(rows)
    if field in names:
        return field
    found = [name for name in (f"trial.{field}", f"outcome.{field}") if name in names]
    if len(found) == 2:
        raise InputError(f"--where {field}: there are {found[0]} and {found[1]}; name one of them")
    if not found:
        raise InputError(f"--where {field}: there is no such field; there are {', '.join(names)}")
    return found[0]


def _selected(rows: Sequence[Row], name: str, how: str, value: str) -> list[Row]:
    chosen, comparable = [], False
    held = [row for row in rows if name in row]
    for row in held:
        wanted = _read(value, row[name])
        if wanted is _UNLIKE:
            fulfilled = how == "!="
        else:
            comparable = True
            try:
                fulfilled = bool(COMPARISONS[how](row[name], wanted))
            except TypeError:  # None has no order, nor have lists of unlike parts
                fulfilled = False
        if fulfilled:
            chosen.append(row)
    if not comparable:
        raise InputError(f"--where {name}{how}{value}: {value!r} is nothing like its values, such as {held[0][name]!r}")
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


# ---------------------------------------------------------------- files


def export(rows: Sequence[Row], target: Path) -> None:
    """Write the rows as a CSV or Parquet file, by the ending of its name; the file is whole or not there."""
    check_target(target)
    content = csv_bytes(rows) if target.suffix == ".csv" else parquet_bytes(rows)
    try:
        write_whole(target, content)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}") from error


def check_target(target: Path) -> None:
    """Raise InputError if a file of this name cannot be an export."""
    if target.suffix not in FORMATS:
        raise InputError(f"--export {target}: the name must end in {' or '.join(FORMATS)}")
    if not target.parent.is_dir():
        raise InputError(f"--export {target}: the folder {target.parent} does not exist")
    if target.suffix == ".parquet":
        _pyarrow()


def csv_bytes(rows: Sequence[Row]) -> bytes:
    """The rows as UTF-8 CSV with a line of names: nothing for None, true and false, JSON for lists."""
    text = io.StringIO()
    names = columns(rows)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return text.getvalue().encode(errors="backslashreplace")


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, bool | list) else document(value, finite=False)


def parquet_bytes(rows: Sequence[Row]) -> bytes:
    """The rows as a Parquet file; a column of several kinds, of lists, or of integers beyond 64 bits is of texts."""
    arrow = _pyarrow()
    names = columns(rows)
    content = {name: arrow.array(_column([row.get(name) for row in rows])) for name in names}
    sink = io.BytesIO()
    importlib.import_module("pyarrow.parquet").write_table(arrow.table(content), sink)
    return sink.getvalue()


def _pyarrow() -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError:
        raise InputError("Parquet files need pyarrow: pip install 'flipscope[tables]', or export .csv") from None


def _column(values: list[Any]) -> list[Any]:
    """The values, all of one kind."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float} and all(
        isinstance(value, float) or _exact(value) for value in values if value is not None
    ):
        return [None if value is None else float(value) for value in values]
    if kinds <= {bool} or kinds <= {float}:
        return values
    if kinds == {int} and all(value is None or -(1 << 63) <= value < 1 << 63 for value in values):
        return values
    return [None if value is None else _text(value) for value in values]


def _exact(value: int) -> bool:
    """Whether an integer is the same as a float."""
    return abs(value) <= 1 << 53


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(document(value, finite=False))
    return text.encode(errors="backslashreplace").decode()


def document(value: Any, *, finite: bool = True) -> Any:
    """The value for JSON: None for NaN and infinities, unless not `finite`; hexadecimal text for huge integers."""
    if isinstance(value, float):
        return value if math.isfinite(value) or not finite else None
    if isinstance(value, int) and value.bit_length() > LONG:
        return hex(value)
    if isinstance(value, list):
        return [document(item, finite=finite) for item in value]
    if isinstance(value, dict):
        return {name: document(item, finite=finite) for name, item in value.items()}
    return value
