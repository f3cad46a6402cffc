"""The terminal page of a folder of data sets."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from flipscope.data.checking import SetCheck
from flipscope.report.models import facts, panel

_COMPLETE = {True: "yes, by its numbers of examples", False: "no: the published set has more or other examples"}
_PUBLISHED = {True: "the published set, by its digest", False: "NOT the published files: their MD5 sums differ"}
MAX_FILES = 4  # names shown; of more, the first and their number


def data_page(sets: Sequence[SetCheck]) -> RenderableType:
    """The page of ``flipscope data check``: a panel for each set."""
    return Group(*(_set_panel(each) for each in sets))


def _set_panel(found: SetCheck) -> RenderableType:
    rows = [("files", _files(found.files))] if found.files else []
    if found.problem:
        return panel(f"{found.name}, {found.format}", [facts(rows), Text(found.problem, style="red")])
    for part, size in found.sizes.items():
        counts = f", {_counts(found.class_counts[part])}" if part in found.class_counts else ""
        rows.append((part, f"{size:,} examples{counts}"))
    if found.complete is not None:
        rows.append(("complete", _COMPLETE[found.complete]))
    if found.published is not None:
        rows.append(("published", _PUBLISHED[found.published]))
    rows.append(("reference", found.reference))
    return panel(f"{found.name}, {found.format}", [facts(rows), *(Text(f"{note}.") for note in found.notes)])


def _files(names: Sequence[str]) -> str:
    if len(names) <= MAX_FILES:
        return ", ".join(names)
    return f"{names[0]}, … {len(names)} files"


def _counts(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    each = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"{each} in each of {len(counts)} classes"
