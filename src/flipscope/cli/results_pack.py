"""flipscope results pack: the stored results of studies as one file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.filesize import decimal

from flipscope.basics.errors import InputError, printable
from flipscope.basics.files import check_target
from flipscope.basics.wording import count_text
from flipscope.cli.common import print_json, results_folder
from flipscope.lab import registry
from flipscope.lab.keys import trial_key
from flipscope.lab.store import packs
from flipscope.lab.store.artefacts import SUFFIX, Models
from flipscope.lab.store.store import Store
from flipscope.lab.study import Study

EXAMPLES = """
  flipscope results pack random-init -o random-init.flipscope
  flipscope results pack sparse-and --scale laptop -o ledger/laptop/sparse-and.flipscope
  flipscope results pack -o everything.flipscope --models
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("study", nargs="*", metavar="STUDY", help="by name (default: all that have results)")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help=f"file to write, such as x{packs.ENDING}")
    parser.add_argument(
        "--scale",
        metavar="SCALE",
        help="only the trials of this scale, such as laptop or laptop+length=14, of each study's present revision",
    )
    parser.add_argument("--models", action="store_true", help="include all trained models of the folder, of any study")
    results_folder(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write a pack of the named studies, or of all."""
    target = Path(arguments.output)
    check_target(target, "pack")
    with Store(arguments.results, create=False) as store:
        stored = store.studies()
        names = [registry.name_of(name) for name in arguments.study] or stored
        for name in names:
            if name not in stored:
                there = f"there are results of {', '.join(stored)}" if stored else "nothing is stored there"
                raise InputError(f"there are no results of {name!r} in {store.folder}: {there}")
        if not names:
            raise InputError(f"nothing is stored in {store.folder}: run a study first")
        chosen = scales = None
        if arguments.scale is not None:
            studies = [registry.find(name) for name in arguments.study or names]
            scales = {study.name: _scales(study, arguments.scale) for study in studies}
            chosen = _of_scale(store, studies, arguments.scale)
        files = [path for path in Models(store.folder).paths() if path.name.endswith(SUFFIX)]
        models = files if arguments.models else []
        counts = packs.write(target, store, names, chosen=chosen, scales=scales, models=models)
    size = target.stat().st_size
    if arguments.json:
        print_json({"file": str(target), "bytes": size, **asdict(counts)})
    else:
        parts = [count_text(counts.results, "trial"), count_text(counts.looks, "look")]
        parts += [count_text(counts.models, "model")] if arguments.models else []
        print(f"wrote {printable(str(target))}: {', '.join(parts)} ({decimal(size)})", file=sys.stderr)
    return 0


def _scales(study: Study, scale: str) -> tuple[str, str]:
    """The full name of a scale of the study, and the scale whose looks it continues."""
    name = study.scale_name(scale)
    return name, study.look_scale(name)


def _of_scale(store: Store, studies: Sequence[Study], scale: str) -> Callable[[str, str], bool]:
    """A predicate: whether a result is of a trial of this scale, of the present revision of its study."""
    keys: dict[str, set[str]] = {}
    for study in studies:
        keys[study.name] = {trial_key(study, trial) for trial in store.planned(study, scale)}
    return lambda study, key: key in keys[study]
