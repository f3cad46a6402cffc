"""The open database of a results folder: rows are checked when read, and transactions are safe."""

from __future__ import annotations

import itertools
import json
import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from flipscope.basics.errors import InputError, RunError, printable
from flipscope.lab.context import DATABASE
from flipscope.lab.store import place, schema, tables
from flipscope.lab.store.arrays import ArrayFiles

AMONG = "key IN (SELECT value FROM json_each(?))"  # one statement for any number of keys
_BLOCK = 1000  # rows held in memory at a time


class Database:
    """The files of a folder, for one thread; a context manager."""

    def __init__(self, folder: str | os.PathLike[str], *, create: bool = True) -> None:
        self.folder = Path(folder)
        self.path = self.folder / DATABASE
        self._database, self.writable = schema.connect(self.folder, create=create)
        with schema.said(self.path):
            self.arrays = ArrayFiles(Path(os.path.abspath(self.folder)) / schema.ARRAYS)
            self._files = place.OpenFiles(self.path)
        self._lost: RunError | None = None  # why results are now written elsewhere
        self._left_out: set[tuple[str, Any]] = set()  # damaged rows already reported

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the database; everything committed is already safe."""
        self._database.close()

    def _read(self, question: str, *values: object) -> list[Any]:
        with schema.said(self.path):
            return self._database.execute(question, values).fetchall()

    def checked(self, table: str) -> Iterator[tuple[Any, bool]]:
        """All rows of a table in the order of their keys, each with whether it is intact.

        They are read in blocks, so that a slow reader does not block writers.
        """
        key = tables.COLUMNS[table][0]
        condition, last = "TRUE", list[object]()
        while rows := self._read(f"{tables.selected(table)} WHERE {condition} ORDER BY {key} LIMIT {_BLOCK}", *last):
            for row in rows:
                yield row[:-1], tables.intact(table, row)
            condition, last = f"{key} > ?", [rows[-1][0]]
            if isinstance(last[0], str):  # as bytes: a damaged key may not be valid Unicode
                condition, last = f"{key} > CAST(? AS TEXT)", [last[0].encode(errors="surrogateescape")]

    def _scan(self, table: str, study: str | None = None) -> Iterator[Any]:
        """All intact rows of a table, or of one study; damaged rows are omitted with a warning.

        All rows are read in any case, since the study's name in a damaged row may be wrong.
        """
        damaged = set()
        for row, whole in self.checked(table):
            if not whole:
                damaged.add((table, row[0]))
            elif study is None or row[1] == study:
                yield row
        self._tell(damaged)

    def _find(self, table: str, keys: Iterable[str]) -> Iterator[Any]:
        """The rows with these keys that are intact, a block at a time, in the order of the keys."""
        for block in blocks(keys):
            rows = {row[0]: row for row in self._read(f"{tables.selected(table)} WHERE {AMONG}", json.dumps(block))}
            damaged = {key for key, row in rows.items() if not tables.intact(table, row)}
            yield from (rows[key][:-1] for key in block if key in rows and key not in damaged)
            self._tell({(table, key) for key in damaged})

    def _tell(self, damaged: set[tuple[str, Any]]) -> None:
        """Warn about omitted rows, once per row."""
        new = damaged - self._left_out
        self._left_out |= new
        if new:
            logging.getLogger("flipscope").warning(
                "%d damaged row%s of %s %s left out: flipscope results --verify tells which, and what to do",
                len(new),
                "" if len(new) == 1 else "s",
                printable(str(self.path)),
                "is" if len(new) == 1 else "are",
            )

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that excludes other writers from its start, in a database that is still in its place.

        If it is not, the results are written to a safe place, and RunError says where.
        """
        if not self.writable:
            raise InputError(f"{self.folder} cannot be written: use another --results")
        self._secure()
        with schema.said(self.path):
            try:
                self._database.execute("BEGIN IMMEDIATE")  # inside the try: an interrupt may come right after it
                self._files.note_size()
                yield self._database
                self._database.execute("COMMIT")
            except BaseException as error:
                if self._database.in_transaction:
                    with suppress(sqlite3.Error):
                        self._database.execute("ROLLBACK")
                if isinstance(error, (sqlite3.Error, InputError)):  # the database may have been replaced
                    self._secure()
                    if self._lost is not None:
                        raise self._lost from error
                raise
        self._secure()
        if self._lost is not None:
            raise self._lost

    def _secure(self) -> None:
        """Detect that the database was moved, deleted or emptied during use, and switch to a safe place."""
        with schema.said(self.path):
            loss = self._files.loss() if self.writable and self._lost is None else None
            if loss is None:
                return
            what = f"{loss.what} while this process used it"
            if loss.moved is not None:
                self._lost = RunError(f"{what}: the results moved with it; continue with --results {loss.moved}")
                self._database.close()
                self.path = loss.moved / DATABASE
                self.arrays = ArrayFiles(loss.moved / schema.ARRAYS)
                self._database, _ = schema.connect(loss.moved, create=False)
                return
            try:
                copy = place.rescue(self._database, self._files.path)
                saved = schema.connect_copy(copy)
            except (sqlite3.Error, OSError) as error:
                keep = f"flipscope results --repair --results {self.folder} keeps what can be read of it, then "
                self._lost = RunError(
                    f"{what}, and its results could not be saved elsewhere ({error}): "
                    f"{keep if self.path.exists() else ''}run it again"
                )
                return
            self._database.close()
            self._files.sweep()
            self._database = saved
            self._lost = RunError(
                f"{what}: what it held was saved to {copy}; put that in the place of {self._files.path}, "
                "then run the same command again to continue"
            )


def blocks(keys: Iterable[str]) -> Iterator[list[str]]:
    """The keys in blocks of one query each."""
    left = iter(keys)
    while block := list(itertools.islice(left, _BLOCK)):
        yield block
