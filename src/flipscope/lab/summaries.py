"""Summaries of all installed studies, for lists: loading all studies takes many seconds, reading their files does not.

A summary is made when a study is first listed and kept in a file of the user's cache folder. It is used as long as the
study's file, and the files beside it that hold no study of their own, are those that it was made from.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flipscope import __version__
from flipscope.basics.errors import InputError
from flipscope.lab import registry

if TYPE_CHECKING:
    from flipscope.lab.study import Study

FILE = "studies.json"
_CLAIM = ("name", "source", "statement", "criterion", "exploratory")


@dataclass(frozen=True)
class Summary:
    """What a list says of a study, as plain JSON."""

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
    revision: int = 0
    error: str = ""  # why it cannot be loaded


def summaries(names: Sequence[str] | None = None, report: Callable[[int, int], None] | None = None) -> list[Summary]:
    """The studies of these names, or all installed ones; `report(done, total)` is called after each that was loaded."""
    names = registry.names() if names is None else names
    cache = _read_cache()
    new = {}
    all_summaries = []
    for number, name in enumerate(names):
        version, cached = _version(name), cache.get(name, {})
        summary = _from_json(cached.get("summary")) if version and cached.get("version") == version else None
        if summary is None:
            summary = _loaded(name)
            if not summary.error:
                new[name] = {"version": version, "summary": asdict(summary)}
            if report is not None:
                report(number + 1, len(names))
        all_summaries.append(summary)
    if new:
        _write_cache(cache | new)
    return all_summaries


def summary_of(study: Study) -> Summary:
    """The summary of a loaded study."""
    from flipscope.lab.settings import leaves

    # This makes no trials: a study for a cluster has tens of thousands.
    scales = {scale: {"note": made.note, "minutes": made.minutes} for scale, made in study.scales.items()}
    settings: dict[str, dict[str, Any]] = {}
    sample_sizes: dict[str, None] = {}
    for scale, made in study.scales.items():
        for name, value in leaves(made.settings).items():
            settings.setdefault(name, {})[scale] = value
            if study.is_sample_size(name, value):
                sample_sizes[name] = None
    summary = Summary(
        study.name,
        study.paper,
        study.title,
        tuple(study.figures),
        scales,
        settings,
        tuple(sample_sizes),
        study.base_seed if study.base_seed in settings else "",
        tuple({name: getattr(claim, name) for name in _CLAIM} for claim in study.claims),
        tuple(asdict(deviation) for deviation in study.deviations),
        study.revision,
    )
    plain = _from_json(json.loads(json.dumps(asdict(summary), default=str)))
    assert plain is not None
    return plain


def _loaded(name: str) -> Summary:
    """The summary of a study by name; if it cannot be loaded, the summary says why."""
    try:
        return summary_of(registry.find(name))
    except InputError as error:
        return Summary(name, error=str(error))


def _from_json(document: Any) -> Summary | None:
    """The summary in a document; None if it is none."""
    lists = ("figures", "sample_sizes", "claims", "deviations")
    try:
        return Summary(**{**document, **{name: tuple(document[name]) for name in lists}})
    except (KeyError, TypeError):
        return None


def _version(name: str) -> str:
    """A digest of the files that a study's summary depends on; "" if they cannot be read."""
    try:
        texts = [path.read_bytes() for path in registry.files(name)]
    except OSError:
        return ""
    digests = [hashlib.sha256(text).hexdigest() for text in texts]
    return hashlib.sha256(json.dumps([__version__, *digests]).encode()).hexdigest() if digests else ""


# ---------------------------------------------------------------- the cache


def _cache_file() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "flipscope" / FILE


def _read_cache() -> dict[str, dict[str, Any]]:
    """What is entry of each study, by name; empty if there is nothing or it cannot be read."""
    try:
        document = json.loads(_cache_file().read_text("utf-8"))
    except (OSError, ValueError, RuntimeError):  # RuntimeError: there is no home folder
        return {}
    whole = isinstance(document, dict) and all(isinstance(entry, dict) for entry in document.values())
    return document if whole else {}


def _write_cache(cache: dict[str, dict[str, Any]]) -> None:
    """Write the cache atomically; if that fails, studies are loaded again next time."""
    try:
        target = _cache_file()
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{FILE}.{os.getpid()}")
        part.write_text(json.dumps(cache), "utf-8")
        part.replace(target)
    except (OSError, RuntimeError):
        return
