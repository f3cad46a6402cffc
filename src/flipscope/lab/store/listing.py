"""Flat rows of stored trials: conditions on their fields, and export to files."""

from __future__ import annotations

import csv
import importlib
import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flipscope.basics.errors import InputError
from flipscope.basics.files import replacing
from flipscope.lab.store.outcomes import LONG

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
FORMATS = (".csv", ".parquet", ".json")
_CONDITION = re.compile(r"(?P<field>[^=<>!]+)(?P<how>!=|<=|>=|=|<|>)(?P<value>.*)", re.DOTALL)


def parse_condition(text: str) -> Condition:
    """The parts of a condition such as "length>=40" or "trial.init=gaussian"."""
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise InputError(f"--where {text!r} is not a condition: write FIELD=VALUE, or !=, <, <=, >, >= for =")
    return match["field"].strip(), match["how"], match["value"].strip()


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
    full_names = [name for name in candidates(field)[1:] if name in names]
    if len(full_names) == 2:
        raise InputError(f"--where {field}: there are {full_names[0]} and {full_names[1]}; name one of them")
    if not full_names:
        raise InputError(f"--where {field}: there is no such field; there are {', '.join(names)}")
    return full_names[0]


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
        value = _WORDS.get(text.lower(), _UNLIKE)
        return value if type(value) is type(like) else _UNLIKE
    try:
        if isinstance(like, list):
            value = json.loads(text)
            return value if isinstance(value, list) else _UNLIKE
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


def export(rows: Rows | Sequence[Row], target: Path) -> None:
    """Write the rows as a CSV, Parquet or JSON file, depending on the suffix of its name: whole or not at all."""
    check_target(target)
    write = {".csv": write_csv, ".parquet": write_parquet, ".json": write_json}[target.suffix]
    with replacing(target, "table") as temporary:
        write(rows, temporary)


def check_target(target: Path) -> None:
    """Raise InputError if a file of this name cannot be an export."""
    if target.suffix not in FORMATS:
        raise InputError(f"--export {target}: the name must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    if not target.parent.is_dir():
        raise InputError(f"--export {target}: the folder {target.parent} does not exist")
    if target.suffix == ".parquet":
        _pandas()


def write_csv(rows: Iterable[Row], path: Path) -> None:
    """Write the rows as UTF-8 CSV with a header: empty for None, true and false, JSON for lists."""
    names = columns(rows)
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_cell(row.get(name)) for name in names] for row in rows)


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, bool | list | dict) else document(value, finite=False)


def write_json(rows: Iterable[Row], path: Path) -> None:
    """Write the rows as one JSON document, a list of objects: null for None, NaN and infinities."""
    with path.open("w", encoding="utf-8") as file:
        before = "["
        for row in rows:
            file.write(before + json.dumps(document(row), allow_nan=False))
            before = ",\n"
        file.write("[]\n" if before == "[" else "]\n")


def write_parquet(rows: Iterable[Row], path: Path) -> None:
    """Write the rows as Parquet; columns of mixed types, lists or integers beyond 64 bits become texts."""
    pandas = _pandas()
    all_rows = list(rows)
    frame = pandas.DataFrame({name: _column(pandas, [row.get(name) for row in all_rows]) for name in columns(all_rows)})
    frame.to_parquet(path, index=False)


def _column(pandas: Any, values: Sequence[Any]) -> Any:
    """Values as a column of one type, which pandas finds."""
    column = pandas.Series(values, dtype=object).convert_dtypes()
    return column.map(_text, na_action="ignore").astype("string") if column.dtype == object else column


def _pandas() -> Any:
    try:
        importlib.import_module("pyarrow")
        return importlib.import_module("pandas")
    except ImportError:
        needed = "Parquet files need pandas and pyarrow: pip install 'flipscope[tables]', or export .csv"
        raise InputError(needed) from None


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
