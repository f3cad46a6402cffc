"""Results as one file, a *pack*: the tables of a results folder for some studies, for a colleague or another machine.

    flipscope pack: sparse-and …        one line that says what it holds
    (the rest)                          an xz stream of an SQLite file (schema.sql)

Host names, process numbers and failed trials stay behind. Rows come in the order of their keys, so that the same store
gives the same bytes.

A pack is checked as a whole before anything of it is used: its size before it is decompressed, then that it defines the
tables of ours and nothing else, such as a trigger or a view, then every page, row, checksum and model. Nothing in it is
executed or unpickled.
"""

from __future__ import annotations

import functools
import json
import lzma
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from flipscope import __version__
from flipscope.basics.errors import InputError
from flipscope.basics.files import check_source, replacing
from flipscope.basics.wording import count_text
from flipscope.lab.context import DATABASE
from flipscope.lab.store import outcomes
from flipscope.lab.store.database import (
    TABLES,
    Damaged,
    Row,
    address,
    check_pages,
    check_schema,
    columns,
    digest_of,
    insert_content,
    insert_row,
    intact,
    make_empty,
    opened,
)
from flipscope.lab.store.store import Store
from flipscope.lab.verdict import VERDICTS, Judgement

ENDING = ".flipscope"
MOST_BYTES = 1 << 32  # largest size of a decompressed pack
_TITLE = b"flipscope pack: "
_LONGEST_TITLE = 1 << 16
_MEMORY = 1 << 26  # memory limit of the decompressor
_BLOCK = 1 << 18
_HEADER = 100  # bytes of the header of an SQLite file


@dataclass(frozen=True)
class Counts:
    """What a pack holds."""

    studies: tuple[str, ...]
    results: int
    variants: int
    looks: int
    models: int


@dataclass(frozen=True)
class Pack:
    """A checked pack."""

    source: Path  # as it was given
    path: Path  # decompressed, while it is open
    counts: Counts

    def models(self) -> Iterator[tuple[str, bytes]]:
        """Name and content of each trained model."""
        with closing(opened(self.path, "ro&immutable=1")) as connection:
            yield from connection.execute(
                "SELECT name, contents.content FROM models JOIN contents ON digest = models.content"
            )


# ---------------------------------------------------------------- writing


def write(
    target: Path,
    store: Store,
    studies: Sequence[str],
    *,
    chosen: Callable[[str, str], bool] | None = None,
    scales: Mapping[str, tuple[str, str]] | None = None,
    models: Iterable[Path] = (),
) -> Counts:
    """Write the stored results of studies, and these model files, as a pack; returns what it holds.

    Results for which `chosen(study, key)` is false are left out. `scales` gives the scale of each study and the one
    under which its looks are recorded: runs and looks of others are left out too.
    """

    def wanted(row: Row, at: int) -> bool:
        return row["study"] in studies and (scales is None or row["scale"] == scales[row["study"]][at])

    def taken(row: Row) -> bool:
        return row["study"] in studies and (chosen is None or chosen(row["study"], row["key"]))

    with tempfile.TemporaryDirectory(prefix="flipscope-") as folder, replacing(target, "pack") as temporary:
        path = Path(folder, DATABASE)
        with closing(make_empty(path)) as pack:
            pack.execute("PRAGMA journal_mode = OFF")
            pack.execute("BEGIN")
            for table in ("results", "variants"):
                for row in filter(taken, store.rows(table)):
                    if row["arrays"] is not None:
                        _copy_content(store, pack, row["arrays"], f"the arrays of trial {row['key'][:12]}")
                    insert_row(pack, table, {**row, "machine": insert_content(pack, _nameless(store, row["machine"]))})
            for row in store.rows("looks"):
                if wanted(row, 1):
                    _copy_content(store, pack, row["trials"], f"the trials of the look at {row['claim']}")
                    insert_row(pack, "looks", row)
            last = {(row["study"], row["scale"]): row for row in store.rows("runs") if wanted(row, 0)}
            for number, row in enumerate(sorted(last.values(), key=lambda row: row["id"])):
                insert_row(pack, "runs", {**row, **_NOT_RUNNING, "id": number, "state": _ended(row["state"])})
            for model in sorted(models):
                insert_row(pack, "models", {"name": model.name, "content": insert_content(pack, _model(model))})
            pack.execute("COMMIT")
            counts = _counts(pack)
        if path.stat().st_size > MOST_BYTES:
            raise InputError(
                f"{target} would have {path.stat().st_size:,} bytes, too many for a pack: pack fewer studies"
            )
        with temporary.open("wb") as file:
            told = f"{', '.join(studies)}; {count_text(counts.results, 'trial')}, {count_text(counts.looks, 'look')}"
            file.write(_TITLE + f"{told[: _LONGEST_TITLE // 2]}; flipscope {__version__}\n".encode())
            with lzma.open(file, "wb", check=lzma.CHECK_SHA256) as stream, path.open("rb") as source:
                shutil.copyfileobj(source, stream)
    return counts


_NOT_RUNNING: Row = {"pid": 0, "born": "", "host": "", "running": "[]"}


def _ended(state: str) -> str:
    return "stopped" if state == "running" else state


def _counts(pack: sqlite3.Connection) -> Counts:
    names = ("results", "variants", "looks", "models")
    counts = [pack.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names]
    studies = pack.execute("SELECT study FROM results UNION SELECT study FROM looks UNION SELECT study FROM runs")
    return Counts(tuple(sorted(study for (study,) in studies)), *counts)


def _copy_content(store: Store, pack: sqlite3.Connection, digest: str, what: str) -> None:
    content = store.content(digest)
    if content is None:
        raise InputError(f"{what} are damaged and cannot be packed: run the study again to measure them anew")
    insert_content(pack, content)


def _nameless(store: Store, machine: str) -> bytes:
    """The description of a machine without its host name."""
    document = outcomes.decode(store.document(machine) or "{}")
    return outcomes.encode({name: value for name, value in document.items() if name != "host"}, "machine").encode()


def _model(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be packed: {error.strerror}") from error


# ---------------------------------------------------------------- reading


@contextmanager
def read(sources: Sequence[Path]) -> Iterator[list[Pack]]:
    """These packs, decompressed and checked, within this context; InputError if one is damaged."""
    with ExitStack() as held:
        packs = []
        for source in sources:
            folder = held.enter_context(tempfile.TemporaryDirectory(prefix="flipscope-"))
            with _explained(source):
                _decompress(source, Path(folder, "unpacked"))
                path = _copied(Path(folder, "unpacked"), source)
                packs.append(Pack(source, path, _checked(path)))
        yield packs


def _decompress(source: Path, target: Path) -> None:
    """Decompress a pack, as far as the header of the file in it says."""
    check_source(source)
    with source.open("rb") as file:
        title = file.readline(_LONGEST_TITLE)
        if not title.startswith(_TITLE):
            raise InputError(f"{source} is not a pack of flipscope: flipscope results pack writes them")
        with target.open("xb") as out:
            size, done = _HEADER, 0
            for block in _blocks(file):
                done += len(block)
                out.write(block)
                if done >= _HEADER and size == _HEADER:
                    out.flush()
                    size = _checked_size(target, source)
                if done > size > _HEADER:
                    raise ValueError("it holds more than its header says")
            if done < size or size == _HEADER:
                raise ValueError("it is cut off")


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """The decompressed bytes of a stream, some at a time; ValueError if it does not end where the file does."""
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
    while not decompressor.eof:
        block = file.read(_BLOCK) if decompressor.needs_input else b""
        if decompressor.needs_input and not block:
            raise ValueError("it is cut off")
        yield decompressor.decompress(block, _BLOCK)
    if decompressor.unused_data or file.read(1):
        raise ValueError("something follows its end")


def _checked_size(path: Path, source: Path) -> int:
    """The size that the header of an SQLite file says it has; InputError if there is no room for it."""
    with path.open("rb") as file:
        header = file.read(_HEADER)
    if not header.startswith(b"SQLite format 3\0"):
        raise ValueError("there is no SQLite file in it")
    page = int.from_bytes(header[16:18], "big")
    size = (65536 if page == 1 else page) * int.from_bytes(header[28:32], "big")
    room = min(MOST_BYTES, shutil.disk_usage(path.parent).free)
    if size > room:
        raise InputError(
            f"{source} would have {size:,} bytes when decompressed, more than the {room:,} that it may have here"
        )
    return size


def _copied(unpacked: Path, source: Path) -> Path:
    """A file of our own with all that a decompressed file has in its tables, within the limits of ours."""
    with closing(opened(unpacked, "ro&immutable=1")) as connection:
        check_schema(connection, source)
        check_pages(connection, source)
    path = unpacked.with_name(DATABASE)
    with closing(make_empty(path)) as copy:
        copy.execute("PRAGMA journal_mode = OFF")
        copy.execute("ATTACH ? AS pack", (address(unpacked, "ro&immutable=1"),))
        for table in ("contents", *TABLES):  # WHERE TRUE: without it SQLite copies pages and looks at no CHECK
            copy.execute(f"INSERT INTO {table} SELECT * FROM pack.{table} WHERE TRUE")
    unpacked.unlink()
    return path


def _checked(path: Path) -> Counts:
    """What a pack holds, after checking every row; ValueError or InputError if something is wrong."""
    with closing(opened(path, "ro&immutable=1")) as connection:
        contents = functools.partial(_content, connection)
        for table in TABLES:
            names = (*columns(table), "checksum")
            for values in connection.execute(f"SELECT {', '.join(names)} FROM {table}"):
                row = dict(zip(names, values, strict=True))
                if not intact(table, row):
                    raise ValueError(f"the checksum of a row of {table} does not fit")
                _CHECKS[table](row, contents)
        return _counts(connection)


def _content(connection: sqlite3.Connection, digest: str) -> bytes:
    """A content that a row refers to; ValueError if it is missing or another."""
    for (content,) in connection.execute("SELECT content FROM contents WHERE digest = ?", (digest,)):
        if digest_of(content) == digest:
            return bytes(content)
    raise ValueError("a row refers to a content that is missing or another")


Contents = Callable[[str], bytes]


def _check_trial(row: Row, contents: Contents) -> None:
    for text in (row["trial"], row["outcome"], contents(row["machine"]).decode()):
        if not isinstance(outcomes.decode(text), dict):
            raise ValueError("a trial, an outcome or a machine is no document")
    outcomes.scalars(row["outcome"])
    datetime.fromisoformat(row["finished"])
    arrays = {} if row["arrays"] is None else outcomes.unpacked(contents(row["arrays"]))
    if outcomes.array_names(row["outcome"]) != arrays.keys():
        raise ValueError("the arrays of a result are not those it names")


def _check_look(row: Row, contents: Contents) -> None:
    judgement = Judgement.from_json(outcomes.decode(row["judgement"]))
    datetime.fromisoformat(row["made"])
    trials = json.loads(contents(row["trials"]))
    if not isinstance(trials, dict) or not all(isinstance(outcome, str) for outcome in trials.values()):
        raise ValueError("the trials of a look have no outcomes")
    limits, parts = outcomes.decode(row["limits"]), judgement.parts or (judgement,)
    if len(limits) != len(parts) or not all(isinstance(number, float | int) for part in limits for number in part):
        raise ValueError("the limits of a look are no numbers")
    if not isinstance(outcomes.decode(row["drawn"]), dict):
        raise ValueError("what was drawn for a look is no document")


def _check_run(row: Row, contents: Contents) -> None:
    for name in ("started", "updated"):
        datetime.fromisoformat(row[name])
    for verdict in outcomes.decode(row["verdicts"]):
        if verdict["verdict"] not in VERDICTS or not isinstance(verdict["claim"], str):
            raise ValueError("a verdict is none")
    if outcomes.decode(row["running"]) != [] or row["state"] == "running":
        raise ValueError("a run is under way")


def _check_failure(row: Row, contents: Contents) -> None:
    raise ValueError("it has a failed trial")


def _check_model(row: Row, contents: Contents) -> None:
    """Raise InputError unless the model is whole and the one of its name."""
    from flipscope.lab.store.artefacts import Models
    from flipscope.training import artefact

    with tempfile.TemporaryDirectory(prefix="flipscope-") as folder:
        path = Path(folder, row["name"])
        path.write_bytes(contents(row["content"]))
        if Models(Path(folder)).name_of(*artefact.read_with_notes(path)) != row["name"]:
            raise ValueError(f"the model {row['name']} is another one than its name says")


_CHECKS: dict[str, Callable[[Row, Contents], None]] = {
    "results": _check_trial,
    "variants": _check_trial,
    "failures": _check_failure,
    "looks": _check_look,
    "runs": _check_run,
    "models": _check_model,
}


@contextmanager
def _explained(source: Path) -> Iterator[None]:
    """Turn an error in a pack into an InputError of one sentence."""
    try:
        yield
    except Damaged as error:
        raise _damaged(source, error.why) from error
    except InputError as error:
        if str(source) in str(error):
            raise
        raise _damaged(source, str(error)) from error
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise _damaged(source, str(error)) from error
    except (MemoryError, sqlite3.Error, lzma.LZMAError) as error:
        raise _damaged(source, str(error)) from error


def _damaged(source: Path, why: str) -> InputError:
    reason = " ".join(why.split())[:200]
    return InputError(f"{source} is damaged ({reason}) and nothing of it was used: get another copy of it")
