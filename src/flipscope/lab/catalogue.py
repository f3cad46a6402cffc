"""What there is to say of every study without loading it: kept from the last time its code was read.

To import all studies takes seconds, which `flipscope studies` need not. What is kept is thrown away as soon as a source
file of flipscope, or of the package that a study is from, has another time or size.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from flipscope.basics.errors import InputError
from flipscope.lab import registry

FILE = "studies.json"


@dataclass(frozen=True)
class Entry:
    """A study as a list shows it."""

    name: str
    paper: str | None = None
    title: str = ""
    figures: tuple[str, ...] = ()
    scales: dict[str, dict[str, Any]] | None = None  # note and minutes of each
    code: str = ""  # the version of what it measures
    error: str = ""  # why it cannot be loaded


def entries(report: Callable[[int, int], None] | None = None) -> list[Entry]:
    """All installed studies; `report(done, total)` is called while their code is read."""
    names = registry.names()
    stamp = _stamp()
    kept = _kept(stamp)
    found = []
    for number, name in enumerate(names):
        found.append(kept[name] if name in kept else _read(name))
        if report is not None and name not in kept:
            report(number + 1, len(names))
    if any(entry.name not in kept and not entry.error for entry in found):
        _keep(stamp, [entry for entry in found if not entry.error])
    return found


def _read(name: str) -> Entry:
    """What the code of a study says; one that cannot be loaded does not hide the others."""
    from flipscope.lab.keys import code_version

    try:
        study = registry.find(name)
        code = code_version(study)
    except InputError as error:
        return Entry(name, error=str(error))
    # No trial is made for it: a study for a cluster has tens of thousands.
    scales = {scale: {"note": made.note, "minutes": made.minutes} for scale, made in study.scales.items()}
    return Entry(name, study.paper, study.title, tuple(study.figures), scales, code)


def _stamp() -> str:
    """Changes with every source that a study's entry could depend on."""
    offered = sorted((entry.name, entry.value) for entry in entry_points(group=registry.GROUP))
    packages = sorted({"flipscope", *(value.partition(":")[0].partition(".")[0] for _, value in offered)})
    files = [file for package in packages for file in _sources(package)]
    content = json.dumps([sys.version, offered, files])
    return hashlib.sha256(content.encode()).hexdigest()


def _sources(package: str) -> list[tuple[str, int, int]]:
    """The source files of a package with their times and sizes."""
    spec = importlib.util.find_spec(package)
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    paths = [path for folder in folders for path in Path(folder).rglob("*.py")]
    if spec is not None and not folders and spec.origin is not None:
        paths = [Path(spec.origin)]
    stats = [(str(path), path.stat()) for path in sorted(paths)]
    return [(path, stat.st_mtime_ns, stat.st_size) for path, stat in stats]


def _file() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "flipscope" / FILE


def _kept(stamp: str) -> dict[str, Entry]:
    """What was kept of the same sources; nothing where there is none, or none that can be read."""
    try:
        document = json.loads(_file().read_text("utf-8"))
        if document["stamp"] != stamp:
            return {}
        return {entry["name"]: Entry(**{**entry, "figures": tuple(entry["figures"])}) for entry in document["entries"]}
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):  # the last: no home folder
        return {}


def _keep(stamp: str, found: list[Entry]) -> None:
    """Write the entries down, whole or not at all; where that cannot be, they are read again next time."""
    try:
        target = _file()
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{FILE}.{os.getpid()}")
        part.write_text(json.dumps({"stamp": stamp, "entries": [asdict(entry) for entry in found]}), "utf-8")
        part.replace(target)
    except (OSError, RuntimeError):
        return
