"""The key of a stored result: its study, its trial and the study's revision, and nothing else.

Whoever edits what a study measures raises its `revision`; golden numbers (tests/studies/golden) notice where that was
forgotten in a study of flipscope. For studies of others, the digest of the study's file stands beside each result:
`flipscope run` says how many results were measured by another version of it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

from flipscope.basics.errors import InputError
from flipscope.lab.study import Study, Trial, digest


def trial_key(study: Study, trial: Trial, revision: int | None = None) -> str:
    """The key under which a result is stored, of the study's present revision unless another is given."""
    revision = study.revision if revision is None else revision
    return digest({"study": study.name, "trial": trial.hash, "revision": revision})


def source_digest(study: Study) -> str:
    """SHA-256 of the file that defines the study's class."""
    return file_digest(type(study).__module__)


def is_ours(study: Study) -> bool:
    """Whether a study comes with flipscope, where golden numbers watch what it measures."""
    return type(study).__module__.startswith("flipscope.studies.")


@functools.cache
def file_digest(module: str) -> str:
    """SHA-256 of a module's source file."""
    importlib.import_module(module)
    file = getattr(sys.modules[module], "__file__", None)
    if file is None or not file.endswith(".py"):
        raise InputError(f"the source of the module {module} cannot be read, so its version is not known")
    return hashlib.sha256(Path(file).read_text("utf-8").encode()).hexdigest()


@functools.cache
def sources_digest(package: str) -> str:
    """SHA-256 of all Python sources of a package or module: equal on two machines only if they have the same code."""
    spec = importlib.util.find_spec(package)
    folders = [Path(folder) for folder in (spec.submodule_search_locations or () if spec is not None else ())]
    files = {path.relative_to(folder).as_posix(): path for folder in folders for path in folder.rglob("*.py")}
    if spec is not None and not folders and spec.origin is not None:
        files = {"": Path(spec.origin)}
    return digest({name: hashlib.sha256(path.read_text("utf-8").encode()).hexdigest() for name, path in files.items()})


def older_revisions(study: Study, counts: Mapping[int, int]) -> list[str]:
    """A sentence for each older revision of the study with stored results; `counts` has their numbers."""
    return [
        f"{count:,} stored results of {study.name} are of its revision {revision}, which is now {study.revision}: "
        "no table, claim or figure uses them."
        for revision, count in sorted(counts.items())
        if revision < study.revision
    ]
