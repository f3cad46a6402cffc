"""flipscope results unpack: merge packs of results into a results folder."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from flipscope.basics.errors import printable
from flipscope.basics.wording import count_text
from flipscope.cli.common import print_json, results_folder
from flipscope.lab.store import packs
from flipscope.lab.store.merging import Merged, merge
from flipscope.lab.store.store import Store

EXAMPLES = """
  flipscope results unpack random-init.flipscope
  flipscope results unpack ledger/laptop/*.flipscope --results ./results
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", nargs="+", metavar="FILE", help="written by flipscope results pack")
    results_folder(parser)


def run(arguments: argparse.Namespace) -> int:
    """Merge packs into a results folder; if one of them is damaged, none is merged."""
    with packs.read([Path(file) for file in arguments.file]) as found, Store(arguments.results) as store:
        merged = {str(pack.source): merge(store, pack) for pack in found}
    if arguments.json:
        print_json([{"file": file, **asdict(counts)} for file, counts in merged.items()])
        return 0
    for file, counts in merged.items():
        print(printable(f"{file}: {_summary(counts)}."))
    if any(counts.variants for counts in merged.values()):
        print("both outcomes are kept: flipscope results --variants shows where they differ, and by how much.")
    return 0


def _summary(merged: Merged) -> str:
    parts = [f"{count_text(merged.results, 'new trial')}, {merged.known:,} known", count_text(merged.looks, "new look")]
    if merged.variants:
        parts.append(f"{count_text(merged.variants, 'trial')} with a different outcome here")
    if merged.models:
        parts.append(count_text(merged.models, "new model"))
    if merged.other_models:
        parts.append(f"{count_text(len(merged.other_models), 'model')} here have other weights, and stay")
    return ", ".join(parts)
