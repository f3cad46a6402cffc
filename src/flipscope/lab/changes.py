"""Changes of measurements between versions of flipscope, for users with results of an older one.

A change that gives other numbers raises the revision of each affected study of flipscope, so that its results are
measured again. The revision of other people's studies cannot be raised here: their stored results stay, and commands
that show them say what changed. Every entry here has an entry in CHANGELOG.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from flipscope.lab import registry
from flipscope.lab.keys import code_version, revision_of
from flipscope.lab.store.store import Store
from flipscope.lab.study import Study


@dataclass(frozen=True)
class Change:
    """A measurement that gives other numbers since a version of flipscope."""

    version: str  # the first version with the new numbers
    what: str  # description, such as "sharpness counts the noise of biases too (all studies that use probes.sharpness)"
    studies: tuple[str, ...] = ()  # names of the affected studies; empty: any study may be affected


CHANGES: tuple[Change, ...] = ()


def notes(store: Store, study: Study) -> list[str]:
    """Notes on a study's stored results that are of an older revision or were measured differently."""
    versions = store.versions(study.name, code_version(study)) if CHANGES else {}
    return [*older_revisions(study, store.codes(study.name)), *outdated(study, versions)]


def outdated(study: Study, versions: Mapping[str, int]) -> list[str]:
    """A sentence for each older version of flipscope whose results of the study would be different today.

    `versions` maps each version to its number of results.
    """
    said = []
    for version, count in sorted(versions.items(), key=lambda item: _order(item[0])):
        changes = [each for each in CHANGES if _order(version) < _order(each.version)]
        what = [each.what for each in changes if not each.studies or study.name in each.studies]
        if what:
            said.append(
                f"{count:,} results of {study.name} were measured by flipscope {version or 'of an unknown version'}; "
                f"since then: {'; '.join(what)}; flipscope run {registry.address(study)} --again measures them anew."
            )
    return said


def older_revisions(study: Study, codes: Mapping[str, int]) -> list[str]:
    """A sentence for each older revision of the study with stored results; `codes` counts results by their code."""
    counts: dict[int, int] = {}
    for code, count in codes.items():
        revision = revision_of(code)
        if revision is not None and revision < study.revision:
            counts[revision] = counts.get(revision, 0) + count
    return [
        f"{count:,} stored results of {study.name} are of its revision {revision}, which is now {study.revision}: "
        "no table, claim or figure uses them."
        for revision, count in sorted(counts.items())
    ]


def _order(version: str) -> tuple[int, ...]:
    """The sort key of a version; unknown versions come first."""
    return tuple(map(int, re.findall(r"\d+", version)))
