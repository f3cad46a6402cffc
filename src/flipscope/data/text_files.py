"""Reads pairs of sentences from tab-separated files: GLUE's layouts of MRPC and QQP, and one of three columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from flipscope.basics.errors import InputError
from flipscope.basics.opening import text_lines


@dataclass(frozen=True, eq=False)
class TextPairs:
    """Pairs of sentences, each with the label 1 if they mean the same, else 0."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    labels: Int64[np.ndarray, " pair"]

    def __len__(self) -> int:
        return len(self.first)

    @property
    def sentences(self) -> tuple[str, ...]:
        """All sentences, the first ones of the pairs before the second ones."""
        return self.first + self.second


@dataclass(frozen=True)
class Layout:
    """The names of the columns: label, first and second sentence."""

    label: str
    first: str
    second: str


PLAIN = Layout("label", "sentence1", "sentence2")
MRPC = Layout("Quality", "#1 String", "#2 String")
QQP = Layout("is_duplicate", "question1", "question2")


@dataclass(frozen=True, eq=False)
class ReadPairs:
    """The pairs of a file, None if it has no labels, and the number of broken rows that were left out."""

    pairs: TextPairs | None
    left_out: int


def read_pairs(path: Path, layouts: tuple[Layout, ...], *, leave_out: bool = False) -> ReadPairs:
    """The pairs of a file in one of the layouts.

    A row without all columns is an error. With ``leave_out`` it is left out and counted, unless it is the last: GLUE's
    QQP has a few such rows, since some questions contain line breaks.
    """
    rows = text_lines(path)
    header = _fields(rows[0])
    fitting = [each for each in layouts if each.first in header or each.second in header] or list(layouts[:1])
    layout = fitting[0]
    for name in (layout.first, layout.second):
        if name not in header:
            raise InputError(f"{path} lacks the column {name!r}: its header has {', '.join(header)[:200]}")
    if layout.label not in header:
        if "index" in header or "id" in header:  # GLUE's test sets, whose labels are not published
            return ReadPairs(None, 0)
        raise InputError(f"{path} lacks the column {layout.label!r}: its header has {', '.join(header)[:200]}")
    at = [header.index(name) for name in (layout.label, layout.first, layout.second)]
    labels, firsts, seconds, left_out = [], [], [], 0
    for number, line in enumerate(rows[1:], start=2):
        row = _fields(line)
        if len(row) != len(header):
            if leave_out and number < len(rows):
                left_out += 1
                continue
            raise InputError(f"{path} has {len(row)} columns in line {number:,} and {len(header)} in its header")
        label, first, second = (row[place] for place in at)
        if label not in ("0", "1"):
            raise InputError(f"{path} has the label {label[:40]!r} in line {number:,}, and 0 or 1 is expected")
        labels.append(int(label))
        firsts.append(first)
        seconds.append(second)
    if not labels:
        raise InputError(f"{path} has no pairs of sentences below its header")
    return ReadPairs(TextPairs(tuple(firsts), tuple(seconds), np.array(labels, np.int64)), left_out)


def _fields(line: str) -> list[str]:
    """The fields of a line; quotation marks are ordinary characters."""
    return line.split("\t")
