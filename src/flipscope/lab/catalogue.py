"""Descriptions of all studies that are available without loading them.

Loading all studies takes half a minute, since they import PyTorch and compiled loops. flipscope's own studies come with
an index (`index.json` in each folder of `studies`, written by `python -m tests.studies.index`); an entry is used as
long as the study's file is the one it was made from. Entries of edited studies and of those of other packages are kept
in the user's cache until the time or size of a source file of flipscope or of their package changes.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flipscope.basics.errors import InputError
from flipscope.lab import registry

if TYPE_CHECKING:
    from flipscope.lab.study import Study

FILE = "studies.json"
INDEX = "index.json"
_OURS = "flipscope.studies."
_STUDIES = Path(__file__).parents[1] / "studies"
_CLAIM = ("name", "source", "statement", "criterion", "exploratory")


@dataclass(frozen=True)
class Entry:
    """The description of a study for lists, as plain JSON."""

    name: str
    paper: str | None = None
    title: str = ""
    figures: tuple[str, ...] = ()
    scales: dict[str, dict[str, Any]] | None = None  # note and minutes of each
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)  # by name, the value at each scale that has it
    sample_sizes: tuple[str, ...] = ()  # settings that only determine the number of draws or their seeds
    base_seed: str = ""  # the setting that --seed sets
    claims: tuple[dict[str, Any], ...] = ()
    deviations: tuple[dict[str, str], ...] = ()
    code: str = ""  # version of the measuring code
    error: str = ""  # why it cannot be loaded


def entries(report: Callable[[int, int], None] | None = None) -> list[Entry]:
    """All installed studies; `report(done, total)` is called while studies without an entry are loaded."""
    names = registry.names()
    indexed = {name: entry for name in names if (entry := _indexed(name)) is not None}
    stamp = _stamp() if len(indexed) < len(names) else ""
    kept = _kept(stamp) if stamp else {}
    found = []
    for number, name in enumerate(names):
        known = indexed.get(name) or kept.get(name)
        found.append(_read(name) if known is None else known)
        if report is not None and known is None:
            report(number + 1, len(names))
    new = [entry for entry in found if entry.name not in indexed and not entry.error]
    if any(entry.name not in kept for entry in new):
        _keep(stamp, new)
    return found


def find(text: str) -> Entry:
    """The study of this name, or of this address (`registry.find`)."""
    return _indexed(text) or entry_of(registry.find(text))


def entry_of(study: Study) -> Entry:
    """The entry of a loaded study."""
    from flipscope.lab.keys import code_version
    from flipscope.lab.settings import leaves

    # This makes no trials: a study for a cluster has tens of thousands.
    scales = {scale: {"note": made.note, "minutes": made.minutes} for scale, made in study.scales.items()}
    settings: dict[str, dict[str, Any]] = {}
    samples: dict[str, None] = {}
    for scale, made in study.scales.items():
        for name, value in leaves(made.settings).items():
            settings.setdefault(name, {})[scale] = value
            if study.is_sample_size(name, value):
                samples[name] = None
    entry = Entry(
        study.name,
        study.paper,
        study.title,
        tuple(study.figures),
        scales,
        settings,
        tuple(samples),
        study.base_seed if study.base_seed in settings else "",
        tuple({name: getattr(claim, name) for name in _CLAIM} for claim in study.claims),
        tuple(asdict(deviation) for deviation in study.deviations),
        code_version(study),
    )
    return _from_json(json.loads(json.dumps(asdict(entry), default=str)))


def _from_json(document: dict[str, Any]) -> Entry:
    tuples = ("figures", "sample_sizes", "claims", "deviations")
    return Entry(**{**document, **{name: tuple(document[name]) for name in tuples}})


def _read(name: str) -> Entry:
    """The entry of a study by name; if it cannot be loaded, the entry contains the error."""
    try:
        return entry_of(registry.find(name))
    except InputError as error:
        return Entry(name, error=str(error))


# ---------------------------------------------------------------- figures


def shows(figures: Iterable[str], wanted: str) -> bool:
    """Whether a study with these `figures` shows one, such as "5", "Fig 5" or "Thm 4".

    >>> shows(("Fig 5", "Figs 6, 7"), "7"), shows(("Thms 7, 8, 16",), "7"), shows(("Lemmas B.2-B.8",), "Lemma B.4")
    (True, False, True)
    """
    kind, numbers = _parsed(wanted)
    kinds = {kind} if kind else {"fig", ""}
    parsed = map(_parsed, figures)
    return bool(numbers) and any(own in kinds and numbers <= theirs for own, theirs in parsed)


def _parsed(text: str) -> tuple[str, set[str]]:
    """The kind of a figure or theorem by its first three letters, and its numbers."""
    word = re.search(r"[A-Za-z]{3,}", text)
    numbers = set(re.findall(r"(?:[A-Z]\.)?\d+(?:\.\d+)*", text))
    for prefix, first, last in re.findall(r"([A-Z]\.)?(\d+)\s*[-–]\s*(?:[A-Z]\.)?(\d+)", text):
        numbers |= {f"{prefix}{number}" for number in range(int(first), int(last) + 1)}
    kind = word[0][:3].lower() if word else ""
    return "thm" if kind == "the" else kind, numbers


# ---------------------------------------------------------------- the index of flipscope's own studies


def write_index() -> list[Path]:
    """Write the index of flipscope's own studies and return the files."""
    folders: dict[Path, dict[str, Any]] = {}
    for name in registry.names():
        if (source := _source(name)) is not None:
            own = folders.setdefault(source.parent, {})
            own[name] = {"source": _digest(source), **asdict(entry_of(registry.find(name)))}
    for folder, found in folders.items():
        (folder / INDEX).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return [folder / INDEX for folder in folders]


def _source(name: str) -> Path | None:
    """The file of one of flipscope's own studies."""
    values = {entry.value for entry in entry_points(group=registry.GROUP) if entry.name == name}
    if len(values) != 1 or not (value := values.pop()).startswith(_OURS):
        return None
    path = _STUDIES.joinpath(*value.partition(":")[0].removeprefix(_OURS).split(".")).with_suffix(".py")
    return path if path.is_file() else None


def _digest(source: Path) -> str:
    return hashlib.sha256(source.read_text("utf-8").encode()).hexdigest()


def _indexed(name: str) -> Entry | None:
    """The entry of a study in the index, if it is there and its file has not changed since."""
    source = _source(name)
    if source is None:
        return None
    try:
        document = _index(source.parent)[name]
        if document.pop("source") != _digest(source):
            return None
        return _from_json(document)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _index(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / INDEX).read_text("utf-8"))
    return found


# ---------------------------------------------------------------- the cache of other studies


def _stamp() -> str:
    """A digest that changes with every source file that an entry could depend on."""
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
    """The cached entries for the same sources; empty if there are none or they cannot be read."""
    try:
        document = json.loads(_file().read_text("utf-8"))
        if document["stamp"] != stamp:
            return {}
        return {entry["name"]: _from_json(entry) for entry in document["entries"]}
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):  # RuntimeError: there is no home folder
        return {}


def _keep(stamp: str, found: list[Entry]) -> None:
    """Write the entries to the cache atomically; if that fails, the studies are loaded again next time."""
    try:
        target = _file()
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{FILE}.{os.getpid()}")
        part.write_text(json.dumps({"stamp": stamp, "entries": [asdict(entry) for entry in found]}), "utf-8")
        part.replace(target)
    except (OSError, RuntimeError):
        return
