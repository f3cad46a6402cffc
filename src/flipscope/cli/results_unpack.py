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
    found = [packs.read(Path(file)) for file in arguments.file]
    with Store(arguments.results) as store:
        merged = [merge(store, pack) for pack in found]
    if arguments.json:
        print_json([{"file": str(pack.path), **asdict(one)} for pack, one in zip(found, merged, strict=True)])
        return 0
    for pack, one in zip(found, merged, strict=True):
        print(printable(f"{pack.path}: {_said(one)}."))
    if any(one.variants for one in merged):
        print("both outcomes are kept: flipscope results --variants shows where they differ, and by how much.")
    return 0


def _said(one: Merged) -> str:
    parts = [f"{count_text(one.results, 'new trial')}, {one.known:,} known", count_text(one.looks, "new look")]
    if one.variants:
        parts.append(f"{count_text(one.variants, 'trial')} with a different outcome here")
    if one.models:
        parts.append(count_text(one.models, "new model"))
    if one.other_models:
        parts.append(f"{count_text(len(one.other_models), 'model')} here have other weights, and stay")
    return ", ".join(parts)
