"""flipscope report: the stored results as one HTML file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flipscope.basics.errors import InputError, printable
from flipscope.basics.files import check_target
from flipscope.cli.common import data_folder_option, print_json, results_folder
from flipscope.cli.progress import progress
from flipscope.data.finding import data_folder, data_in
from flipscope.lab.store.store import Store
from flipscope.report.drawing import FORMATS
from flipscope.report.html import write_report
from flipscope.report.pages import Missing, packed_pages, stored_pages, write_figures
from flipscope.report.views import StudyPage

EXAMPLES = """
  flipscope report -o report.html
  flipscope report random-init zero-strings --results ./results
  flipscope report random-init --scale laptop+length=14
  flipscope report random-init --scale laptop --figures figures --format pdf,svg
  flipscope report --from ledger/laptop/*.flipscope -o ledger.html
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("study", nargs="*", metavar="STUDY", help="by name (default: all that have results)")
    parser.add_argument(
        "--scale", metavar="SCALE", help="such as laptop, or laptop+length=14 (default: that of the latest run)"
    )
    parser.add_argument(
        "--from",
        dest="packs",
        nargs="+",
        metavar="FILE",
        help="show these packs (flipscope results pack) instead of a results folder",
    )
    parser.add_argument(
        "-o", "--output", default="report.html", metavar="FILE", help="output file (default report.html)"
    )
    parser.add_argument("--figures", metavar="DIR", help="write the figures as files there too")
    parser.add_argument("--format", metavar="LIST", help="with --figures: some of svg, png, pdf (default all)")
    data_folder_option(parser, "show the results on the data sets of this folder (default: on those used last)")
    results_folder(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the report of the named studies, or of all that have results."""
    output = Path(arguments.output)
    check_target(output, "report")
    formats = _checked_formats(arguments)
    if arguments.data is not None:
        data_folder(arguments.data)
    with data_in(arguments.data):
        pages, missing = _pages(arguments)
    if not pages and not missing:
        if arguments.packs is not None:
            raise InputError(f"there are no results in {', '.join(arguments.packs)}")
        raise InputError(
            f"nothing has been measured in {arguments.results}: run a study first, such as "
            f"flipscope run random-init --scale smoke --results {arguments.results}"
        )
    files = write_figures(Path(arguments.figures), pages, formats) if arguments.figures is not None else []
    with progress("writing the report") as report:
        write_report(output, pages, missing, made=datetime.now(UTC).date().isoformat(), progress=report)
    for name, note in missing:
        print(printable(f"flipscope: {name} is not in the report: {note}."), file=sys.stderr)
    for page in pages:
        for note in (*page.run.errors, *page.notes):
            print(printable(f"flipscope: {page.run.study.name}: {note}"), file=sys.stderr)
    if arguments.json:
        print_json(_document(output, pages, missing, files))
    else:
        said = f" and {len(files)} figure files in {arguments.figures}" if files else ""
        print(f"wrote {output}{said}", file=sys.stderr)
    return 0


def _pages(arguments: argparse.Namespace) -> tuple[list[StudyPage], Missing]:
    """The pages of the requested studies, from packs or from a results folder."""
    with progress("reading the results") as report:
        if arguments.packs is not None:
            return packed_pages([Path(file) for file in arguments.packs], arguments.study, arguments.scale, report)
        with Store(arguments.results, create=False) as store:
            return stored_pages(store, arguments.study, arguments.scale, report)


def _checked_formats(arguments: argparse.Namespace) -> list[Any]:
    if arguments.format is None:
        return list(FORMATS)
    if arguments.figures is None:
        raise InputError("--format says how figures are written: add --figures DIR")
    formats = [part.strip().lower() for part in arguments.format.split(",")]
    for part in formats:
        if part not in FORMATS:
            raise InputError(f"--format {part!r} is not one of {', '.join(FORMATS)}, or several with commas between")
    return list(dict.fromkeys(formats))


def _document(output: Path, pages: Sequence[StudyPage], missing: Missing, files: Sequence[Path]) -> dict[str, Any]:
    documents = [{**page.run.as_json(), "older": page.older or None} for page in pages]
    return {
        "output": str(output),
        "studies": [document["study"] for document in documents],
        "claims": [
            {"study": document["study"], "scale": document["scale"], "older": document["older"], **claim}
            for document in documents
            for claim in document["claims"]
        ],
        "figures": [str(path) for path in files],
        "missing": [{"study": name, "note": note} for name, note in missing],
    }
