"""The tables of a results database, and the checksum that every row of them carries.

A row whose checksum does not match is damaged: it is reported, but never shown or counted. Rows are ordered by key, and
there is no second index: every value is stored once, covered by its checksum.
"""

from __future__ import annotations

import functools
import hashlib
import math
import sqlite3
from collections.abc import Sequence

VERSION = 4
APPLICATION = 0x666C6970  # "flip", in the header, where the `file` command looks
# STRICT refuses values of a wrong type; older SQLite lacks it.
STRICT = sqlite3.sqlite_version_info >= (3, 37)

_TRIED = {
    "key": "TEXT NOT NULL PRIMARY KEY",
    "study": "TEXT NOT NULL",
    "code": "TEXT NOT NULL",
    "trial": "TEXT NOT NULL",
    "seconds": "REAL NOT NULL",
    "finished": "TEXT NOT NULL",
    "attempts": "INTEGER NOT NULL",
}
_GIVEN = {
    "outcome": "TEXT NOT NULL",
    "arrays": "TEXT",
    "size": "INTEGER NOT NULL",
    "machine": "TEXT NOT NULL",  # the id of one
}
_TABLES = {
    "machines": {"id": "TEXT NOT NULL PRIMARY KEY", "document": "TEXT NOT NULL"},
    "results": _TRIED | _GIVEN,
    "failures": _TRIED | {"traceback": "TEXT NOT NULL"},
    "runs": {
        "id": "INTEGER PRIMARY KEY",
        "study": "TEXT NOT NULL",
        "scale": "TEXT NOT NULL",
        "code": "TEXT NOT NULL",
        "state": "TEXT NOT NULL",
        "total": "INTEGER NOT NULL",
        "done": "INTEGER NOT NULL",
        "failed": "INTEGER NOT NULL",
        "started": "TEXT NOT NULL",
        "updated": "TEXT NOT NULL",
        "pid": "INTEGER NOT NULL",
        "born": "TEXT NOT NULL",
        "host": "TEXT NOT NULL",
        "command": "TEXT NOT NULL",
        "running": "TEXT NOT NULL",
        "verdicts": "TEXT NOT NULL",
    },
    # Since format 3. They stay when the trials that they are of are forgotten.
    "looks": {
        "key": "TEXT NOT NULL PRIMARY KEY",
        "study": "TEXT NOT NULL",
        "scale": "TEXT NOT NULL",
        "claim": "TEXT NOT NULL",
        "number": "INTEGER NOT NULL",
        "exploratory": "INTEGER NOT NULL",
        "error": "REAL NOT NULL",
        "plan": "TEXT NOT NULL",  # the id of one
        "data": "TEXT NOT NULL",
        "revision": "INTEGER NOT NULL",
        "code": "TEXT NOT NULL",
        "judgement": "TEXT NOT NULL",
        "made": "TEXT NOT NULL",
    },
    "plans": {"id": "TEXT NOT NULL PRIMARY KEY", "document": "TEXT NOT NULL"},  # the hashes of its trials
    # Since format 4: outcomes from elsewhere of trials whose own result is another.
    "variants": {"id": "TEXT NOT NULL PRIMARY KEY", "study": "TEXT NOT NULL"}
    | {name: kind.removesuffix(" PRIMARY KEY") for name, kind in _TRIED.items() if name != "study"}
    | _GIVEN,
}

COLUMNS = {table: tuple(columns) for table, columns in _TABLES.items()}


def _definition(table: str) -> str:
    columns = ", ".join(f"{name} {kind}" for name, kind in _TABLES[table].items())
    options = [] if table == "runs" else ["WITHOUT ROWID"]  # runs are numbered as they come
    options += ["STRICT"] if STRICT else []
    return f"CREATE TABLE {table} ({columns}, checksum TEXT NOT NULL) {', '.join(options)}".rstrip()


DEFINITIONS = {table: _definition(table) for table in _TABLES}
SCHEMA = (
    "".join(f"{text};\n" for text in DEFINITIONS.values())
    + f"PRAGMA application_id = {APPLICATION};\nPRAGMA user_version = {VERSION};\n"
)


def selected(table: str) -> str:
    """The start of a query whose rows `intact` can check."""
    return f"SELECT {', '.join(COLUMNS[table])}, checksum FROM {table}"


def inserted(table: str) -> str:
    """The statement that stores a `sealed` row, replacing one with the same key."""
    return f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * (len(COLUMNS[table]) + 1))})"


def sealed(table: str, values: Sequence[object]) -> tuple[object, ...]:
    """A row with its checksum."""
    return *values, checksum(table, values)


def fits(table: str, values: Sequence[object]) -> bool:
    """Whether values from outside have the types of a table's columns and can be stored."""
    kinds = _TABLES[table].values()
    return len(values) == len(kinds) and all(map(_fits, values, kinds))


def _fits(value: object, kind: str) -> bool:
    if value is None:
        return "NOT NULL" not in kind and "PRIMARY KEY" not in kind
    if kind.startswith("TEXT"):
        return isinstance(value, str) and _is_unicode(value)
    if kind.startswith("INTEGER"):
        return type(value) is int and -(1 << 63) <= value < 1 << 63
    return type(value) is float and math.isfinite(value)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def intact(table: str, row: Sequence[object]) -> bool:
    """Whether a row, with its checksum last, is unchanged."""
    return checksum(table, row[:-1]) == row[-1]


def checksum(table: str, values: Sequence[object]) -> str:
    """The checksum of a row; values may have any type, since damage can change types too."""
    text = ascii((table, *values))  # exact for texts, integers and floats, and the same on every machine
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


# Texts that are not valid Unicode must not abort the reading of a table: their checksum reports the damage.
tolerant_text = functools.partial(str, encoding="utf-8", errors="surrogateescape")


def document_id(document: str) -> str:
    """The key of a document that many rows share, such as a machine's description."""
    return hashlib.sha256(document.encode()).hexdigest()


def as_made(definition: str, found: object) -> bool:
    """Whether a table is defined as it should be, by a SQLite with or without STRICT."""
    return isinstance(found, str) and _plain(found) == _plain(definition)


def _plain(definition: str) -> str:
    return definition.removesuffix("STRICT").rstrip(", ")
