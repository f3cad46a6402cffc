"""Results as one file, a *pack*: rows, arrays and trained models of some studies, for a colleague or another machine.

    flipscope pack 1                    the format and its version
    {"compressed": 20480, …}            what the file holds, as JSON on one line
    8d02…                               SHA-256 of the two lines before
    (the rest)                          an xz stream of lines of JSON, and of files

Each line of the stream is a row of the store, [table, value, …, checksum], or announces a file, [kind, name, size,
SHA-256], whose bytes follow it. Rows come in the order of their tables and keys, and files in the order of their names,
so that the same store gives the same bytes. Host names, process numbers and failed trials stay behind.

A pack is checked as a whole before anything of it is used: sizes and counts against limits before a byte is
decompressed, then every checksum, type and reference. Nothing in it is executed or unpickled.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from flipscope import __version__
from flipscope.basics.errors import InputError
from flipscope.basics.files import check_source, replacing
from flipscope.lab.store import outcomes, tables
from flipscope.lab.store.arrays import loaded
from flipscope.lab.store.store import Store
from flipscope.lab.study import NAME
from flipscope.lab.verdict import VERDICTS, Judgement

ENDING = ".flipscope"
FORMAT = 1
TABLES = ("machines", "plans", "results", "variants", "looks", "runs")
FILES = ("arrays", "models")
MOST_BYTES = 1 << 32  # largest size of a decompressed pack
MOST_IN_ROWS = 1 << 29  # largest part of that in rows, which are held in memory together
MOST_ROWS = 5_000_000
LONGEST_FILE = 1 << 30

_TITLE = "flipscope pack"
_LONGEST_HEADER = 1 << 20
_LONGEST_LINE = 1 << 27
_MEMORY = 1 << 26  # memory limit of the decompressor
_PRESET = 6
_BLOCK = 1 << 18
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MODEL = re.compile(r"[0-9a-f]{32}\.safetensors")

Row = tuple[Any, ...]  # the values of a row, without its checksum


@dataclass(frozen=True)
class Header:
    """The header of a pack."""

    version: str  # of the flipscope that wrote it
    studies: tuple[str, ...]
    rows: Mapping[str, int]  # of each table
    files: Mapping[str, int]  # of each kind
    in_rows: int  # bytes of all rows
    size: int  # bytes of all, decompressed
    compressed: int
    sha256: str  # of all, decompressed


@dataclass(frozen=True)
class Pack:
    """A checked pack; its files are read again when needed."""

    path: Path
    header: Header
    rows: Mapping[str, Sequence[Row]]  # of each table

    def files(self) -> Iterator[tuple[str, str, bytes]]:
        """Kind, name and content of each file."""
        for entry, content in _entries(self.path, self.header):
            if content is not None:
                yield entry[0], entry[1], content


# ---------------------------------------------------------------- writing


def write(
    target: Path,
    store: Store,
    studies: Sequence[str],
    *,
    chosen: Callable[[str, str], bool] | None = None,
    scales: Mapping[str, tuple[str, str]] | None = None,
    models: Iterable[Path] = (),
) -> Header:
    """Write the stored results of studies, and these model files, as a pack; returns its header.

    Results for which `chosen(study, key)` is false are omitted. `scales` gives the scale of each study and the one
    under which its looks are recorded: runs and looks of others are omitted too.
    """
    rows = _rows(store, set(studies), chosen, scales)
    names = {row[_place(table, "arrays")] for table in ("results", "variants") for row in rows[table]} - {None}
    arrays = {name: store.arrays.path(name) for name in names}
    weights = {path.name: path for path in models}
    counts = {table: len(rows[table]) for table in TABLES}
    with tempfile.TemporaryFile() as body, replacing(target, "pack") as temporary:
        stream = _Compressed(body)
        for table in TABLES:
            for row in rows[table]:
                stream.line([table, *tables.sealed(table, row)])
        in_rows = stream.size
        for kind, files in zip(FILES, (arrays, weights), strict=True):
            for name in sorted(files):
                stream.file(kind, name, _content(files[name], name if kind == "arrays" else None))
        compressed = stream.close()
        found = {"arrays": len(arrays), "models": len(weights)}
        header = Header(
            __version__, tuple(sorted(studies)), counts, found, in_rows, stream.size, compressed, stream.digest
        )
        _check_limits(target, header)
        body.seek(0)
        with temporary.open("wb") as file:
            file.write(_head(header))
            shutil.copyfileobj(body, file)
    return header


def _head(header: Header) -> bytes:
    """The first three lines of a file."""
    document = {**header.__dict__, "studies": list(header.studies)}
    first = f"{_TITLE} {FORMAT}\n{json.dumps(document, sort_keys=True)}\n".encode()
    return first + hashlib.sha256(first).hexdigest().encode() + b"\n"


class _Compressed:
    """An xz stream that is being written, its size and digest before compression."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._compressor = file, lzma.LZMACompressor(preset=_PRESET)
        self._sha256 = hashlib.sha256()
        self.size = 0

    def _add(self, content: bytes) -> None:
        self.size += len(content)
        self._sha256.update(content)
        self._file.write(self._compressor.compress(content))

    def line(self, entry: Sequence[Any]) -> None:
        line = json.dumps(entry, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        if len(line) > _LONGEST_LINE:
            raise InputError(f"row {entry[1]} of {entry[0]} is too long for a pack ({len(line):,} bytes)")
        self._add(line)

    def file(self, kind: str, name: str, content: bytes) -> None:
        if len(content) > LONGEST_FILE:
            raise InputError(f"{name} is too large for a pack ({len(content):,} bytes)")
        self.line([kind, name, len(content), hashlib.sha256(content).hexdigest()])
        self._add(content)

    def close(self) -> int:
        """End the stream; its bytes."""
        self._file.write(self._compressor.flush())
        return self._file.tell()

    @property
    def digest(self) -> str:
        return self._sha256.hexdigest()


def _content(path: Path, digest: str | None) -> bytes:
    """The content of a file; InputError if it cannot be read or does not match its digest."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be packed: {error.strerror}") from error
    if digest is not None and hashlib.sha256(content).hexdigest() != digest:
        raise InputError(f"{path} is damaged and cannot be packed: run its study again to measure its trial anew")
    return content


def _rows(
    store: Store,
    studies: set[str],
    chosen: Callable[[str, str], bool] | None,
    scales: Mapping[str, tuple[str, str]] | None,
) -> dict[str, list[Row]]:
    """The rows of each table in the order of their keys, without machine-specific data."""
    found: dict[str, list[Row]] = {table: [] for table in TABLES}
    known = dict(store.stored("machines"))
    machines: dict[str, str] = {}
    for table in ("results", "variants"):
        of_key, of_machine = _place(table, "key"), _place(table, "machine")
        for row in store.stored(table):
            if row[1] not in studies or (chosen is not None and not chosen(row[1], row[of_key])):
                continue
            document = _nameless(known.get(row[of_machine], "{}"))
            machines[tables.document_id(document)] = document
            found[table].append(_replaced(row, of_machine, tables.document_id(document)))
    found["machines"] = sorted(machines.items())

    def wanted(row: Row, table: str) -> bool:
        at = row[_place(table, "scale")]
        return row[1] in studies and (scales is None or at == scales[row[1]][table == "looks"])

    found["looks"] = [row for row in store.stored("looks") if wanted(row, "looks")]
    plans = {row[_place("looks", "plan")] for row in found["looks"]}
    found["plans"] = [row for row in store.stored("plans") if row[0] in plans]
    last = {(row[1], row[2]): row for row in store.stored("runs") if wanted(row, "runs")}
    found["runs"] = [
        _told(number, row) for number, row in enumerate(sorted(last.values()))
    ]  # in the order of their ids
    return found


def _nameless(machine: str) -> str:
    """The description of a machine without its host name."""
    document = outcomes.decode(machine)
    return outcomes.encode({name: value for name, value in document.items() if name != "host"}, "machine")


def _told(number: int, row: Row) -> Row:
    """A run without machine-specific data, marked as not running."""
    named = dict(zip(tables.COLUMNS["runs"], row, strict=True))
    state = "stopped" if named["state"] == "running" else named["state"]
    return tuple((named | {"id": number, "state": state, "pid": 0, "born": "", "host": "", "running": "[]"}).values())


def _place(table: str, column: str) -> int:
    return tables.COLUMNS[table].index(column)


def _replaced(row: Sequence[Any], place: int, value: Any) -> Row:
    return (*row[:place], value, *row[place + 1 :])


# ---------------------------------------------------------------- reading


def read(path: Path) -> Pack:
    """Read a pack and check every row and file; InputError if it is damaged."""
    header = _header(path)
    rows: dict[str, list[Row]] = {table: [] for table in TABLES}
    wanted: dict[str, list[frozenset[str]]] = {}  # the arrays that each file must have, by the rows that name it
    met: dict[str, set[str]] = {kind: set() for kind in FILES}
    with _said(path):
        for entry, content in _entries(path, header):
            if content is None:
                table, *values, _ = entry
                _check_row(table, entry[1:])
                rows[table].append(tuple(values))
                if table in ("results", "variants") and (name := values[_place(table, "arrays")]) is not None:
                    wanted.setdefault(name, []).append(outcomes.array_names(values[_place(table, "outcome")]))
            else:
                _check_file(entry[0], entry[1], content, wanted)
                if entry[1] in met[entry[0]]:
                    raise ValueError(f"the file {entry[1]} is there twice")
                met[entry[0]].add(entry[1])
        _check_references(rows, met, wanted)
    if {table: len(found) for table, found in rows.items()} != dict(header.rows):
        raise _damaged(path, "rows are missing")
    if {kind: len(names) for kind, names in met.items()} != dict(header.files):
        raise _damaged(path, "files are missing")
    return Pack(path, header, rows)


def _header(path: Path) -> Header:
    """The header of a pack, checked against the limits before anything is decompressed."""
    check_source(path)
    try:
        with path.open("rb") as file:
            title, line, digest = (file.readline(_LONGEST_HEADER) for _ in range(3))
            left = path.stat().st_size - file.tell()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    name, _, version = title.decode("ascii", errors="replace").strip().rpartition(" ")
    if name != _TITLE or not version.isdecimal() or len(version) > 9:
        raise InputError(f"{path} is not a pack of flipscope: flipscope results pack writes them")
    if int(version) > FORMAT:
        raise InputError(
            f"{path} is of a newer flipscope (its format is {version}, this one reads {FORMAT}): update flipscope"
        )
    if digest.strip() != hashlib.sha256(title + line).hexdigest().encode():
        raise _damaged(path, "its header has changed" if digest.endswith(b"\n") else "it is cut off")
    with _said(path):
        document = json.loads(line)
        header = Header(**{**document, "studies": tuple(document["studies"])})
        _check_header(header)
    _check_limits(path, header)
    if left != header.compressed:
        raise _damaged(path, "it is cut off" if left < header.compressed else "something follows its end")
    return header


def _check_header(header: Header) -> None:
    numbers = [*header.rows.values(), *header.files.values(), header.in_rows, header.size, header.compressed]
    texts = [header.version, header.sha256, *header.studies]
    if not all(type(number) is int and number >= 0 for number in numbers) or not all(map(_is_text, texts)):
        raise ValueError("its header makes no sense")
    if set(header.rows) != set(TABLES) or set(header.files) != set(FILES) or header.in_rows > header.size:
        raise ValueError("its header makes no sense")


def _check_limits(path: Path, header: Header) -> None:
    """Raise InputError for a pack that exceeds the limits."""
    for found, most, what in (
        (header.size, MOST_BYTES, "bytes"),
        (header.in_rows, MOST_IN_ROWS, "bytes of rows"),
        (sum(header.rows.values()), MOST_ROWS, "rows"),
        (sum(header.files.values()), MOST_ROWS, "files"),
    ):
        if found > most:
            raise InputError(
                f"{path} has {found:,} {what}, more than the {most:,} of a pack: pack fewer studies at once"
            )


class _Decompressed:
    """The stream of a pack, which never returns more than its header announces."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left = file, size
        self._decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
        self._sha256 = hashlib.sha256()
        self._ready, self._at = b"", 0  # bytes that were decompressed, and how many of them were read
        self.done = 0  # bytes that were read

    def _next(self) -> bytes:
        """Some more bytes; none at the end."""
        while not self._decompressor.eof:
            given = self._file.read(_BLOCK) if self._decompressor.needs_input else b""
            if self._decompressor.needs_input and not given:
                raise ValueError("it is cut off")
            block: bytes = self._decompressor.decompress(given, _BLOCK)
            self._left -= len(block)
            if self._left < 0:
                raise ValueError("it holds more than its header says")
            self._sha256.update(block)
            if block:
                return block
        return b""

    def line(self) -> bytes:
        """The next line without its end; nothing at the end of the stream."""
        parts, length = list[bytes](), 0
        while (end := self._ready.find(b"\n", self._at)) < 0:
            parts.append(self._ready[self._at :])
            length += len(parts[-1])
            self._ready, self._at = self._next(), 0
            if length > _LONGEST_LINE:
                raise ValueError("a row is too long")
            if not self._ready:
                if length:
                    raise ValueError("its last row is cut off")
                return b""
        parts.append(self._ready[self._at : end])
        self._at = end + 1
        found = b"".join(parts)
        self.done += len(found) + 1
        return found

    def take(self, size: int) -> bytes:
        """As many bytes."""
        parts, missing = list[bytes](), size
        while missing > 0:
            if self._at == len(self._ready):
                self._ready, self._at = self._next(), 0
                if not self._ready:
                    raise ValueError("a file is cut off")
            parts.append(self._ready[self._at : self._at + missing])
            self._at += len(parts[-1])
            missing -= len(parts[-1])
        self.done += size
        return b"".join(parts)

    def end(self) -> str:
        """The digest of everything read; ValueError if the stream has not ended."""
        if (
            self._at < len(self._ready)
            or self._next()
            or self._left
            or self._decompressor.unused_data
            or self._file.read(1)
        ):
            raise ValueError("something follows its end")
        return self._sha256.hexdigest()


def _entries(path: Path, header: Header) -> Iterator[tuple[list[Any], bytes | None]]:
    """The rows of a pack, followed by its files with their content."""
    with _said(path), path.open("rb") as file:
        for _ in range(3):
            file.readline(_LONGEST_HEADER)
        stream = _Decompressed(file, header.size)
        rows = True
        while line := stream.line():
            entry = json.loads(line, parse_constant=_no_number)
            if not isinstance(entry, list) or not entry or entry[0] not in (*TABLES, *FILES):
                raise ValueError("a row is of no known kind")
            if entry[0] in TABLES:
                if not rows or stream.done > header.in_rows:
                    raise ValueError("its rows are not where its header says")
                yield entry, None
            else:
                rows = False
                yield entry, _announced(entry, stream)
        if stream.end() != header.sha256:
            raise ValueError("its checksum does not fit")


def _announced(entry: list[Any], stream: _Decompressed) -> bytes:
    """The content of the file that a line announces."""
    match entry:
        case [_, str(), int(size), str(digest)] if 0 <= size <= LONGEST_FILE:
            content = stream.take(size)
            if hashlib.sha256(content).hexdigest() != digest:
                raise ValueError("the checksum of a file does not fit")
            return content
    raise ValueError("a file is not announced as it should be")


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number that a row can hold")


# ---------------------------------------------------------------- checks


def _check_row(table: str, sealed: Sequence[Any]) -> None:
    """Raise ValueError for an invalid row."""
    values = sealed[:-1]
    if not tables.fits(table, values):
        raise ValueError(f"a row of {table} has values of a wrong kind")
    if not tables.intact(table, sealed):
        raise ValueError(f"the checksum of a row of {table} does not fit")
    _CHECKS[table](dict(zip(tables.COLUMNS[table], values, strict=True)))


def _check_trial(row: Mapping[str, Any]) -> None:
    _check_study(row)
    for name in ("trial", "outcome"):
        if not isinstance(outcomes.decode(row[name]), dict):
            raise ValueError(f"the {name} of a result is no document")
    outcomes.scalars(row["outcome"])
    datetime.fromisoformat(row["finished"])
    if row["arrays"] is not None and _DIGEST.fullmatch(row["arrays"]) is None:
        raise ValueError("a file of arrays has a name that is none")
    if bool(outcomes.array_names(row["outcome"])) != (row["arrays"] is not None):
        raise ValueError("the arrays of a result are not those it names")
    if row["seconds"] < 0 or row["attempts"] < 1 or row["size"] < 0:
        raise ValueError("a result has a time or a count below nothing")


def _check_shared(row: Mapping[str, Any]) -> None:
    if tables.document_id(row["document"]) != row["id"]:
        raise ValueError("a document is not what it is stored under")


def _check_machine(row: Mapping[str, Any]) -> None:
    _check_shared(row)
    if not isinstance(outcomes.decode(row["document"]), dict):
        raise ValueError("the description of a machine is no document")


def _check_plan(row: Mapping[str, Any]) -> None:
    _check_shared(row)
    plan = outcomes.decode(row["document"])
    if not isinstance(plan, list) or not all(map(_is_text, plan)):
        raise ValueError("a plan is no list of trials")


def _check_look(row: Mapping[str, Any]) -> None:
    _check_study(row)
    Judgement.from_json(outcomes.decode(row["judgement"]))
    datetime.fromisoformat(row["made"])
    if row["number"] < 1 or row["exploratory"] not in (0, 1) or not 0 < row["error"] < 1:
        raise ValueError("a look has a number that makes no sense")


def _check_run(row: Mapping[str, Any]) -> None:
    _check_study(row)
    for name in ("started", "updated"):
        datetime.fromisoformat(row[name])
    for entry in outcomes.decode(row["verdicts"]):
        if entry["verdict"] not in VERDICTS or not _is_text(entry["claim"]):
            raise ValueError("a verdict is none")
    if outcomes.decode(row["running"]) != [] or row["state"] == "running":
        raise ValueError("a run is under way")


_CHECKS: dict[str, Callable[[Mapping[str, Any]], None]] = {
    "machines": _check_machine,
    "plans": _check_plan,
    "results": _check_trial,
    "variants": _check_trial,
    "looks": _check_look,
    "runs": _check_run,
}


def _check_study(row: Mapping[str, Any]) -> None:
    if NAME.fullmatch(row["study"]) is None:
        raise ValueError("a row is of no study")


def _check_file(kind: str, name: str, content: bytes, wanted: Mapping[str, list[frozenset[str]]]) -> None:
    """Raise ValueError for a file that belongs to no row, has another's name, or lacks an array."""
    if kind == "models":
        if _MODEL.fullmatch(name) is None:
            raise ValueError("a model has a name that is none")
        return
    if name not in wanted or hashlib.sha256(content).hexdigest() != name:
        raise ValueError("a file of arrays is not that of a result")
    names = frozenset(loaded(content))
    if any(names != each for each in wanted[name]):
        raise ValueError("the arrays of a result are not those it names")


def _check_references(
    rows: Mapping[str, Sequence[Row]], met: Mapping[str, set[str]], wanted: Mapping[str, object]
) -> None:
    """Raise ValueError if a row has a dangling reference or a key occurs twice."""
    for table, found in rows.items():
        if len({row[0] for row in found}) != len(found):
            raise ValueError(f"a row of {table} is there twice")
    machines, plans = ({row[0] for row in rows[table]} for table in ("machines", "plans"))
    for table in ("results", "variants"):
        if any(row[_place(table, "machine")] not in machines for row in rows[table]):
            raise ValueError("a machine is missing")
    if any(row[_place("looks", "plan")] not in plans for row in rows["looks"]):
        raise ValueError("a plan is missing")
    if set(wanted) - met["arrays"]:
        raise ValueError("arrays are missing")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


@contextmanager
def _said(path: Path) -> Iterator[None]:
    """Turn an error in a pack into an InputError of one sentence."""
    try:
        yield
    except InputError as error:
        if str(path) in str(error):
            raise
        raise _damaged(path, str(error)) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError, lzma.LZMAError) as error:
        raise _damaged(path, str(error)) from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def _damaged(path: Path, why: str) -> InputError:
    reason = " ".join(why.split())[:200]
    return InputError(f"{path} is damaged ({reason}) and nothing of it was used: get another copy of it")
