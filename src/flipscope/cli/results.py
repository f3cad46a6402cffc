"""flipscope results: list, filter, export, verify and prune stored results."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError, printable
from flipscope.basics.wording import count_text
from flipscope.cli.common import print_json, results_folder
from flipscope.lab import registry
from flipscope.lab.findings import stored_table
from flipscope.lab.keys import older_revisions
from flipscope.lab.store import listing, merging, repair
from flipscope.lab.store.database import Damaged
from flipscope.lab.store.listing import Row, Rows
from flipscope.lab.store.merging import Variant
from flipscope.lab.store.store import Store
from flipscope.lab.study import Study
from flipscope.report.terminal import show

SHORT = 10  # characters of a key that a table shows
LIMIT = 100  # rows of a page by default

EXAMPLES = """
  flipscope results
  flipscope results random-init --where init=gaussian --where "length>=40"
  flipscope results random-init --export table.parquet
  flipscope results random-init --scale laptop+length=14 --export table.csv
  flipscope results random-init --raw --export outcomes.json
  flipscope results random-init --failed --forget
  flipscope results --prune --dry-run
  flipscope results --verify
  flipscope results --variants
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "study", nargs="?", metavar="STUDY", help="one row for each of its trials (default: all studies)"
    )
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="only trials that satisfy this, also with !=, <, <=, >, >= (quote them); repeatable",
    )
    parser.add_argument(
        "--failed", action="store_true", help="the trials that failed, with tracebacks, instead of those done"
    )
    parser.add_argument(
        "--limit", type=int, metavar="K", help="only the first K rows (default: 100 on a page, all elsewhere)"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--export",
        metavar="FILE",
        help="write the table of STUDY that its claims are judged by to FILE (.csv, .parquet or .json)",
    )
    what.add_argument("--prune", action="store_true", help="remove results of other revisions of their study")
    what.add_argument(
        "--forget", action="store_true", help="remove the trials of STUDY (narrowed by --where, --failed) for good"
    )
    what.add_argument("--verify", action="store_true", help="read everything, and say which rows are damaged")
    what.add_argument(
        "--repair",
        action="store_true",
        help="copy what can be read of a damaged file to a new one; the old stays",
    )
    what.add_argument(
        "--variants", action="store_true", help="trials that have another outcome from elsewhere, and where it differs"
    )
    parser.add_argument(
        "--raw", action="store_true", help="with --export: the outcomes of trials as stored, instead of that table"
    )
    parser.add_argument(
        "--scale", metavar="SCALE", help="with --export: of this scale, such as laptop+length=14 (default: last run)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="with --prune or --forget: only say what would be removed"
    )
    results_folder(parser)


def run(arguments: argparse.Namespace) -> int:
    """List, compare, export, forget, prune, verify or repair stored results; 1 if something is damaged."""
    _check_options(arguments)
    if arguments.verify:
        return _verify(arguments)
    if arguments.repair:
        return _repair(arguments)
    with Store(arguments.results, create=False) as store:
        address = arguments.study  # the study may not be installed: a file, or package.module:NAME
        if address is not None:
            name = address if store.holds(address) else registry.name_of(address)
            _check_study(store, name)
            arguments = argparse.Namespace(**{**vars(arguments), "study": name})
        if arguments.prune:
            return _prune(store, arguments)
        if arguments.forget:
            return _forget(store, arguments)
        if arguments.variants:
            return _variants(store, arguments)
        if not _lists(arguments):
            return _overview(store, arguments)
        if arguments.export is not None and not (arguments.raw or arguments.failed):
            return _export(_judged(store, registry.find(address), arguments)[: arguments.limit], arguments)
        rows = _rows(store, arguments)
        if arguments.limit is not None:
            rows = rows.first(arguments.limit)
        if arguments.export is not None:
            return _export(rows, arguments)
        if arguments.json:
            _print_rows(rows)
        else:
            page = _rows_page(rows, LIMIT if arguments.limit is None else arguments.limit)
            listed = _studies([] if arguments.study is None else [arguments.study])
            notes = [
                note
                for study in listed.values()
                if study is not None
                for note in older_revisions(study, store.revisions(study.name))
            ]
            show(Group(page, *_shown(notes)), whole=True)
    return 0


def _lists(arguments: argparse.Namespace) -> bool:
    """Whether trials are requested, not only an overview."""
    return bool(arguments.study is not None or arguments.failed or arguments.where or arguments.export is not None)


def _check_options(arguments: argparse.Namespace) -> None:
    """Reject options that would have no effect."""
    if arguments.dry_run and not (arguments.prune or arguments.forget):
        raise InputError("--dry-run goes with --prune or --forget")
    if arguments.prune and (arguments.where or arguments.failed):
        raise InputError("--prune removes what no study uses any more: it takes no --where or --failed; --forget does")
    if arguments.forget and arguments.study is None:
        raise InputError("--forget needs a STUDY; add --where or --failed to forget only some of its trials")
    if arguments.limit is not None:
        check_count("limit", arguments.limit)
        removing = arguments.prune or arguments.forget or arguments.verify or arguments.repair
        if removing or not _lists(arguments):
            raise InputError("--limit is for rows that are listed or exported: leave it out, or say which with --where")
    if arguments.variants and (arguments.where or arguments.failed or arguments.limit is not None):
        raise InputError("--variants takes a STUDY, and no --where, --failed or --limit")
    if (arguments.verify or arguments.repair) and (arguments.where or arguments.failed):
        raise InputError("--verify and --repair look at all that is stored: they take no --where or --failed")
    if arguments.repair and arguments.study is not None:
        raise InputError(f"--repair is for the database of all studies: leave {arguments.study} out")
    for text in arguments.where:
        listing.parse_condition(text)
    if (arguments.raw or arguments.scale is not None) and arguments.export is None:
        raise InputError(f"{'--raw' if arguments.raw else '--scale'} says what --export writes: add --export FILE")
    if arguments.export is not None:
        if arguments.study is None and not (arguments.raw or arguments.failed):
            raise InputError("--export writes the table of one STUDY: name it, or add --raw for the outcomes of all")
        if arguments.scale is not None and (arguments.raw or arguments.failed):
            raise InputError("--scale chooses the table that was judged: leave it out with --raw and --failed")
        listing.check_target(Path(arguments.export))


def _check_study(store: Store, study: str) -> None:
    if not store.holds(study):
        stored = store.studies()
        there = f"there are results of {', '.join(stored)}" if stored else "nothing is stored there"
        raise InputError(f"there are no results of {study!r} in {store.folder}: {there}")


def _rows(store: Store, arguments: argparse.Namespace) -> Rows:
    """The requested rows: finished trials, or failed ones with --failed."""
    where = [listing.parse_condition(text) for text in arguments.where]
    return store.table(arguments.study, where, failed=arguments.failed)


def _print_rows(rows: Iterable[Row]) -> None:
    """One JSON document, written while the rows are read."""
    before = "["
    for row in rows:
        sys.stdout.write(before + json.dumps(listing.document(row), allow_nan=False))
        before = ", "
    print("[]" if before == "[" else "]")


def _judged(store: Store, study: Study, arguments: argparse.Namespace) -> list[Row]:
    """The rows of the table by which a study's claims are judged, at the given scale or the one run last."""
    runs = store.runs(study.name)
    if arguments.scale is None and not runs:
        raise InputError(f"it is not known at which scale {study.name} was run: say so with --scale, or add --raw")
    scale = study.scale_name(arguments.scale if arguments.scale is not None else runs[-1].scale)
    table = stored_table(study, scale, store)
    if not table:
        raise InputError(f"no trial of {study.name} is done at scale {scale}: nothing was written")
    return listing.chosen(table, [listing.parse_condition(text) for text in arguments.where])


def _export(rows: Rows | Sequence[Row], arguments: argparse.Namespace) -> int:
    if not rows:
        raise InputError("no row satisfies the conditions: nothing was written")
    listing.export(rows, Path(arguments.export))
    if arguments.json:
        print_json({"file": arguments.export, "rows": len(rows)})
    else:
        print(f"wrote {len(rows):,} rows to {printable(arguments.export)}", file=sys.stderr)
    return 0


def _prune(store: Store, arguments: argparse.Namespace) -> int:
    stored = store.stored()
    installed = _studies(entry.study for entry in stored)
    current = {name: None if study is None else study.revision for name, study in installed.items()}

    def stale(study: str, revision: int) -> bool:
        chosen = arguments.study is None or study == arguments.study
        return chosen and current[study] is not None and revision != current[study]

    affected = {entry.study for entry in stored if stale(entry.study, entry.revision)}
    with contextlib.ExitStack() as held:
        if not arguments.dry_run:
            for study in sorted(affected):  # a run of the previous revision may be active
                held.enter_context(store.driving(study))
        removed = store.prune(stale, dry_run=arguments.dry_run)
    unknown = sorted(study for study, revision in current.items() if revision is None)
    if arguments.json:
        print_json({**asdict(removed), "dry_run": arguments.dry_run, "unknown": unknown})
        return 0
    print(
        f"{'would remove' if arguments.dry_run else 'removed'} {removed.results:,} results and {removed.failures:,} "
        f"failures of other revisions ({decimal(removed.size)})."
    )
    if unknown:
        names = printable(", ".join(unknown))
        print(f"kept all results of {names}: no such study is installed.", file=sys.stderr)
    return 0


def _forget(store: Store, arguments: argparse.Namespace) -> int:
    with contextlib.nullcontext() if arguments.dry_run else store.driving(arguments.study):
        if arguments.failed or arguments.where:
            keys = _rows(store, arguments).keys
            count = len(keys) if arguments.dry_run else store.forget(keys)
        else:
            count = store.forget_study(arguments.study, dry_run=arguments.dry_run)
    if arguments.json:
        print_json({"trials": count, "dry_run": arguments.dry_run})
    else:
        print(f"{'would forget' if arguments.dry_run else 'forgot'} {count:,} trials of {arguments.study}.")
    return 0


def _studies(names: Iterable[str]) -> dict[str, Study | None]:
    """Studies by their names; None for one that is not installed."""
    found: dict[str, Study | None] = {}
    for name in dict.fromkeys(names):
        try:
            found[name] = registry.find(name)
        except InputError:
            found[name] = None
    return found


def _shown(notes: Iterable[str]) -> list[Text]:
    return [Text(note, style="italic dim") for note in notes]


def _verify(arguments: argparse.Namespace) -> int:
    """Say what is damaged, and what to do."""
    trouble: str | None = None
    verified = repair.Verified(0, 0, [], [])
    try:
        with Store(arguments.results, create=False) as store:
            store.check()
            if arguments.study is not None and store.studies():
                _check_study(store, arguments.study)
            verified = repair.verify(store, arguments.study)
    except Damaged as error:
        trouble = str(error)
    whole = trouble is None and not verified.damaged and not verified.unreadable
    if arguments.json:
        print_json({"whole": whole, "database": trouble, **asdict(verified)})
    else:
        show(_verified_page(verified, trouble, arguments.results))
    return 0 if whole else 1


def _verified_page(verified: repair.Verified, trouble: str | None, folder: str) -> RenderableType:
    if trouble is not None:
        return Text(trouble + ".")
    read = f"{verified.rows:,} rows and {verified.contents:,} arrays and descriptions were read"
    findings = [*verified.damaged, *verified.unreadable]
    if not findings:
        return Text(f"{read}: all are whole.")
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("what", "study", "key", "why"):
        table.add_column(name, overflow="fold")
    for finding in findings[:LIMIT]:
        table.add_row(finding.what, Text(finding.study), Text(finding.key[:SHORT]), Text(finding.why))
    more = len(findings) - LIMIT
    notes = [f"and {more:,} more; --json lists all."] if more > 0 else []
    unread = f"; {len(verified.unreadable):,} cannot be read here, for the reasons above" if verified.unreadable else ""
    notes.append(f"{read}; {len(verified.damaged):,} are damaged{unread}.")
    if verified.damaged:
        notes.append("Run the studies again: damaged results are measured anew.")
        notes.append(f"Damaged rows that remain are removed by flipscope results --repair --results {folder}.")
    return Group(table, *(Text(note, style="italic dim") for note in notes))


def _repair(arguments: argparse.Namespace) -> int:
    """Copy the intact rows to a new file."""
    with contextlib.suppress(Damaged), Store(arguments.results, create=False) as store:
        store.check()
        verified = repair.verify(store)
        if not verified.damaged:
            if arguments.json:
                print_json({"kept": verified.rows, "damaged": 0, "before": None})
            else:
                print(f"all {verified.rows:,} rows are whole: there is nothing to repair.")
            return 0
    done = repair.repair(Path(arguments.results))
    if arguments.json:
        print_json({**asdict(done), "before": str(done.before)})
    else:
        print(
            printable(
                f"kept {done.kept:,} rows, left out {done.damaged:,} damaged ones; the old file is {done.before}."
            )
        )
        print("run the studies again: what is missing is measured.", file=sys.stderr)
    return 0


def _variants(store: Store, arguments: argparse.Namespace) -> int:
    """Trials with several outcomes, the largest differences first."""
    found = merging.variants(store, arguments.study)
    if arguments.json:
        print_json([listing.document(asdict(variant)) for variant in found])
    elif not found:
        print("No stored trial has another outcome.")
    else:
        show(_variants_page(found), whole=True)
    return 0


def _variants_page(found: Sequence[Variant]) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("study", "key", "where", "here", "elsewhere", "difference", "processors"):
        table.add_column(name, overflow="fold", justify="right" if name == "difference" else "left")
    for variant in found[:LIMIT]:
        cells = (variant.study, variant.key[:SHORT], variant.column, variant.ours, variant.theirs)
        size = f"{variant.difference:.2g}" if math.isfinite(variant.difference) else "of another kind"
        table.add_row(*(Text(printable(cell)) for cell in cells), size, Text(printable(variant.processors)))
    more = [f"and {len(found) - LIMIT:,} more; --json lists all."] if len(found) > LIMIT else []
    notes = ["difference: where the two outcomes differ most, relative to the larger number.", *more]
    return Group(table, *(Text(note, style="italic dim") for note in notes))


def _overview(store: Store, arguments: argparse.Namespace) -> int:
    """One row per study."""
    rows: list[Row] = []
    stored = store.stored()
    variants = Counter(row["study"] for row in store.rows("variants"))
    for name, study in _studies(entry.study for entry in stored).items():
        versions = [entry for entry in stored if entry.study == name]
        revision = None if study is None else study.revision
        rows.append(
            {
                "study": name,
                "done": sum(entry.done for entry in versions),
                "failed": sum(entry.failed for entry in versions),
                "stale": None if revision is None else sum(one.done for one in versions if one.revision != revision),
                "seconds": sum(entry.seconds for entry in versions),
                "size": sum(entry.size for entry in versions),
                "variants": variants[name],
                "notes": [] if study is None else older_revisions(study, store.revisions(name)),
            }
        )
    if arguments.json:
        print_json(rows)
    elif not rows:
        print(printable(f"Nothing is stored in {arguments.results}."))
    else:
        show(_overview_page(rows), whole=True)
    return 0


def _overview_page(rows: Sequence[Row]) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("study")
    for name in ("done", "failed", "stale", "seconds", "size"):
        table.add_column(name, justify="right")
    for row in rows:
        counts = [f"{row['done']:,}", f"{row['failed']:,}", "?" if row["stale"] is None else f"{row['stale']:,}"]
        table.add_row(Text(row["study"]), *counts, f"{row['seconds']:,.1f}", decimal(row["size"]))
    notes = [
        f"{row['study']}: {count_text(row['variants'], 'outcome')} of another machine differ; see --variants."
        for row in rows
        if row["variants"]
    ]
    if any(row["stale"] for row in rows):
        notes.append("stale: measured at another revision of the study; flipscope results --prune removes them.")
    if any(row["stale"] is None for row in rows):
        notes.append("?: the study is not installed.")
    return Group(table, *_shown([*notes, *(note for row in rows for note in row["notes"])]))


class _Survey:
    """Statistics of the columns of all rows, without keeping the rows."""

    def __init__(self) -> None:
        self.count = 0
        self._first: Row = {}
        self._names: dict[tuple[str, ...], None] = {}
        self._held: Counter[str] = Counter()  # number of rows with each name
        self._varied: set[str] = set()
        self._worded: set[str] = set()  # names with values that are not numbers

    def add(self, row: Row) -> None:
        """Include a row."""
        self._first = self._first or row
        self.count += 1
        self._names[tuple(row)] = None
        for name, value in row.items():
            self._held[name] += 1
            if name not in self._varied and (name not in self._first or value != self._first[name]):
                self._varied.add(name)
            if name not in self._worded and not isinstance(value, int | float | None):
                self._worded.add(name)

    def names(self) -> list[str]:
        """All names in order."""
        return listing.ordered(name for names in self._names for name in names)

    def constant(self, name: str) -> bool:
        """Whether all rows have the same value for this name."""
        return self._held[name] == self.count and name not in self._varied

    def numeric(self, name: str) -> bool:
        """Whether all values of this name are numbers or missing."""
        return name not in self._worded


def _rows_page(rows: Rows, limit: int) -> RenderableType:
    """A table of the first trials; below it, columns with the same value in all rows, then whole tracebacks."""
    survey, first = _Survey(), list[Row]()
    for row in rows:
        survey.add(row)
        if len(first) < limit:
            first.append(row)
    if not first:
        return Text("No stored trial satisfies the conditions.")
    names = [name for name in survey.names() if name not in ("finished", "traceback")]
    common = [name for name in names if name.startswith("trial.") and survey.count > 1 and survey.constant(name)]
    shown = [name for name in names if name not in common and (name != "study" or not survey.constant(name))]
    table = Table(box=box.SIMPLE_HEAD)
    for name in shown:
        heading = Text(name.removeprefix("trial.").removeprefix("outcome."))
        table.add_column(heading, justify="right" if survey.numeric(name) else "left")
    for row in first:
        table.add_row(*(Text(printable(_cell(name, row[name])) if name in row else "") for name in shown))
    same = ", ".join(f"{name.removeprefix('trial.')} {_cell(name, first[0][name])}" for name in common)
    notes = [f"{survey.count:,} trials" + (f" of {first[0]['study']}" if survey.constant("study") else "")]
    if survey.count > len(first):
        notes.append(f"the first {len(first):,} are shown: --limit K shows more, --export FILE and --json have all")
    if same:
        notes.append(f"the same in all: {same}")
    return Group(table, Text("; ".join(notes) + ".", style="italic dim"), *_tracebacks(first))


def _tracebacks(rows: Sequence[Row]) -> Iterator[RenderableType]:
    """The distinct tracebacks of failures, each with its trials."""
    keys: dict[str, list[str]] = {}
    for row in rows:
        if "traceback" in row:
            keys.setdefault(row["traceback"], []).append(row["key"][:SHORT])
    for text, those in keys.items():
        yield Text(f"\n{', '.join(those)}", style="bold")
        yield Text(text.rstrip())


def _cell(name: str, value: Any) -> str:
    if name == "key":
        return str(value)[:SHORT]
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and value.bit_length() > 80:
        return f"{'-' if value < 0 else ''}10^{math.log10(abs(value)):.2f}"
    return str(value)
