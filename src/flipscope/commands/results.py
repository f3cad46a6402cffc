"""The command that looks at stored results: results."""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from flipscope.commands.cube import print_json
from flipscope.errors import InputError
from flipscope.lab import listing, registry
from flipscope.lab.listing import Row
from flipscope.lab.store import Failure, Kept, Store
from flipscope.lab.version import code_version
from flipscope.report.terminal import show

SHORT = 10  # characters of a key that a table shows


def run_results(arguments: argparse.Namespace) -> int:
    """List, export, forget or prune what is stored."""
    _check_options(arguments)
    with Store(arguments.results, create=False) as store:
        if arguments.study is not None:
            _check_study(store, arguments.study)
        if arguments.prune:
            return _prune(store, arguments)
        if arguments.forget:
            return _forget(store, arguments)
        rows = _rows(store, arguments)
        kept = store.kept()
    if arguments.export is not None:
        return _export(rows, arguments)
    if arguments.study is None and not arguments.failed and not arguments.where:
        return _overview(kept, arguments)
    if arguments.json:
        print_json(listing.document(rows))
    else:
        show(_rows_page(rows))
    return 0


def _check_options(arguments: argparse.Namespace) -> None:
    """Refuse options that would be without effect."""
    if arguments.dry_run and not (arguments.prune or arguments.forget):
        raise InputError("--dry-run goes with --prune or --forget")
    if arguments.prune and (arguments.where or arguments.failed):
        raise InputError("--prune removes what no study uses any more: it takes no --where or --failed; --forget does")
    if arguments.forget and arguments.study is None:
        raise InputError("--forget needs a STUDY; add --where or --failed to forget only some of its trials")
    for text in arguments.where:
        listing.parse_condition(text)
    if arguments.export is not None:
        listing.check_target(Path(arguments.export))


def _check_study(store: Store, study: str) -> None:
    stored = sorted({kept.study for kept in store.kept()})
    if study not in stored:
        there = f"there are results of {', '.join(stored)}" if stored else "nothing is stored there"
        raise InputError(f"there are no results of {study!r} in {store.folder}: {there}")


def _rows(store: Store, arguments: argparse.Namespace) -> list[Row]:
    """The rows that are asked for: done trials, or with --failed those that failed."""
    where = [listing.parse_condition(text) for text in arguments.where]
    if not arguments.failed:
        return store.rows(arguments.study, where)
    return listing.select([_failed_row(failure) for failure in store.failures(arguments.study)], where)


def _failed_row(failure: Failure) -> Row:
    """A failure as a row, with the last line of its traceback, which names the error."""
    lines = failure.traceback.strip().splitlines()
    return {
        "study": failure.study,
        "key": failure.key,
        **listing.flat(failure.trial, {}),
        "error": lines[-1] if lines else "",
        "attempts": failure.attempts,
        "seconds": failure.seconds,
        "finished": failure.finished,
    }


def _export(rows: list[Row], arguments: argparse.Namespace) -> int:
    if not rows:
        raise InputError("no stored trial is as asked for: nothing was written")
    listing.export(rows, Path(arguments.export))
    if arguments.json:
        print_json({"file": arguments.export, "rows": len(rows)})
    else:
        print(f"wrote {len(rows):,} rows to {arguments.export}", file=sys.stderr)
    return 0


# ---------------------------------------------------------------- removing


def _prune(store: Store, arguments: argparse.Namespace) -> int:
    current = _current_codes(store.kept())

    def stale(study: str, code: str) -> bool:
        chosen = arguments.study is None or study == arguments.study
        return chosen and current[study] is not None and code != current[study]

    affected = {kept.study for kept in store.kept() if stale(kept.study, kept.code)}
    with contextlib.ExitStack() as held:
        if not arguments.dry_run:
            for study in sorted(affected):  # a driver may be at work with the code of before
                held.enter_context(store.driving(study))
        removed = store.prune(stale=stale, dry_run=arguments.dry_run)
    unknown = sorted(study for study, code in current.items() if code is None)
    if arguments.json:
        print_json({**asdict(removed), "dry_run": arguments.dry_run, "unknown": unknown})
        return 0
    print(
        f"{'would remove' if arguments.dry_run else 'removed'} {removed.results:,} results and {removed.failures:,} "
        f"failures of code that has changed, and {removed.files:,} files ({decimal(removed.size)})."
    )
    if unknown:
        print(f"kept all results of {', '.join(unknown)}: no such study is installed.", file=sys.stderr)
    return 0


def _forget(store: Store, arguments: argparse.Namespace) -> int:
    with contextlib.nullcontext() if arguments.dry_run else store.driving(arguments.study):
        keys = [row["key"] for row in _rows(store, arguments)]
        if not arguments.failed and not arguments.where:
            keys += [failure.key for failure in store.failures(arguments.study)]
        count = len(keys) if arguments.dry_run else store.forget(keys)
        files = None if arguments.dry_run else store.prune()
    if arguments.json:
        freed = {"files": files.files, "size": files.size} if files is not None else {}
        print_json({"trials": count, **freed, "dry_run": arguments.dry_run})
    elif files is None:
        print(f"would forget {count:,} trials of {arguments.study}.")
    else:
        print(f"forgot {count:,} trials of {arguments.study}, and {files.files:,} files ({decimal(files.size)}).")
    return 0


def _current_codes(kept: Sequence[Kept]) -> dict[str, str | None]:
    """The version of each study's present code; None where the study is not installed."""
    found: dict[str, str | None] = {}
    for study in dict.fromkeys(entry.study for entry in kept):
        try:
            found[study] = code_version(registry.find(study))
        except InputError:
            found[study] = None
    return found


# ---------------------------------------------------------------- pages


def _overview(kept: Sequence[Kept], arguments: argparse.Namespace) -> int:
    """One row a study."""
    rows: list[Row] = []
    for study, code in _current_codes(kept).items():
        own = [entry for entry in kept if entry.study == study]
        rows.append(
            {
                "study": study,
                "done": sum(entry.done for entry in own),
                "failed": sum(entry.failed for entry in own),
                "stale": None if code is None else sum(entry.done for entry in own if entry.code != code),
                "seconds": sum(entry.seconds for entry in own),
                "size": sum(entry.size for entry in own),
            }
        )
    if arguments.json:
        print_json(rows)
    elif not rows:
        print(f"Nothing is stored in {arguments.results}.")
    else:
        show(_overview_page(rows))
    return 0


def _overview_page(rows: Sequence[Row]) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("study")
    for name in ("done", "failed", "stale", "seconds", "size"):
        table.add_column(name, justify="right")
    for row in rows:
        counts = [f"{row['done']:,}", f"{row['failed']:,}", "?" if row["stale"] is None else f"{row['stale']:,}"]
        table.add_row(Text(row["study"]), *counts, f"{row['seconds']:,.1f}", decimal(row["size"]))
    notes = []
    if any(row["stale"] for row in rows):
        notes.append("stale: measured with code that has changed since; flipscope results --prune removes them.")
    if any(row["stale"] is None for row in rows):
        notes.append("?: the study is not installed.")
    return Group(table, *(Text(note, style="italic dim") for note in notes))


def _rows_page(rows: Sequence[Row]) -> RenderableType:
    """One row a trial; what all have in common stands below."""
    if not rows:
        return Text("No stored trial is as asked for.")
    names = [name for name in listing.columns(rows) if name != "finished"]
    common = [name for name in names if name.startswith("trial.") and len(rows) > 1 and _constant(rows, name)]
    shown = [name for name in names if name not in common and (name != "study" or not _constant(rows, name))]
    table = Table(box=box.SIMPLE_HEAD)
    for name in shown:
        numeric = all(isinstance(row.get(name), int | float | None) for row in rows)
        table.add_column(
            Text(name.removeprefix("trial.").removeprefix("outcome.")), justify="right" if numeric else "left"
        )
    for row in rows:
        table.add_row(*(Text(_cell(name, row[name]) if name in row else "") for name in shown))
    same = ", ".join(f"{name.removeprefix('trial.')} {_cell(name, rows[0][name])}" for name in common)
    notes = [f"{len(rows):,} trials of {rows[0]['study']}" if _constant(rows, "study") else f"{len(rows):,} trials"]
    if same:
        notes.append(f"the same in all: {same}")
    return Group(table, Text("; ".join(notes) + ".", style="italic dim"))


def _constant(rows: Sequence[Row], name: str) -> bool:
    return all(name in row and row[name] == rows[0].get(name) for row in rows)


def _cell(name: str, value: Any) -> str:
    if name == "key":
        return str(value)[:SHORT]
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and value.bit_length() > 80:
        return f"{'-' if value < 0 else ''}10^{math.log10(abs(value)):.2f}"
    return str(value)
