"""Upgrading a results database of an older format."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from typing import Any

from flipscope.lab.store import outcomes, tables

# In format 1 machines were numbered, and rows had no checksums.
_OF_FORMAT_1 = {
    "machines": "SELECT '', document FROM before_machines",
    "results": "SELECT key, study, code, trial, seconds, finished, attempts, outcome, arrays, size, document "
    "FROM before_results JOIN before_machines ON machine = before_machines.id",
    "failures": "SELECT key, study, code, trial, seconds, finished, attempts, traceback FROM before_failures",
    "runs": f"SELECT {', '.join(tables.COLUMNS['runs'])} FROM before_runs",
}

_ADDED = {3: ("looks", "plans"), 4: ("variants",)}  # tables introduced by each format


def bring_up_to_date(database: sqlite3.Connection) -> None:
    """Upgrade an older format to the present one in one transaction; unreadable rows are omitted."""
    database.execute("BEGIN IMMEDIATE")
    try:
        ((version,),) = database.execute("PRAGMA user_version")
        lost = _changed(database) if version == 1 else 0
        if version < tables.VERSION:  # unless another process has just done it
            for table in (table for since, added in _ADDED.items() if version < since for table in added):
                database.execute(tables.DEFINITIONS[table])
            database.execute(f"PRAGMA user_version = {tables.VERSION}")
        if lost:
            logging.getLogger("flipscope").warning("%d stored rows were damaged, and are left out", lost)
        database.execute("COMMIT")
    except BaseException:
        database.execute("ROLLBACK")
        raise


def _changed(database: sqlite3.Connection) -> int:
    """Copy all tables; returns the number of rows that could not be copied."""
    lost = 0
    for table in _OF_FORMAT_1:
        database.execute(f"ALTER TABLE {table} RENAME TO before_{table}")
        database.execute(tables.DEFINITIONS[table])
    for table, question in _OF_FORMAT_1.items():
        for row in database.execute(question):
            values = _values(table, row)
            if values is None:
                lost += 1
            else:
                database.execute(tables.inserted(table), tables.sealed(table, values))
    for table in ("results", "failures", "runs", "machines"):
        database.execute(f"DROP TABLE before_{table}")
    return lost


def _values(table: str, row: Sequence[Any]) -> Sequence[Any] | None:
    """The row in the present format, or None if it is invalid."""
    named = dict(zip(tables.COLUMNS[table], row, strict=True))
    try:
        for name in {"document", "trial", "outcome", "running", "verdicts"} & set(named):
            outcomes.decode(named[name])
        for name, origin in (("machine", "machine"), ("id", "document")):
            if name in named and table != "runs":
                named[name] = tables.document_id(named[origin])
        for value in row:
            if isinstance(value, str):
                value.encode()
    except (ValueError, TypeError, AttributeError):  # of JSON, of Unicode, of types
        return None
    return list(named.values())
