"""What measures otherwise since which version of flipscope, for whoever has results of an older one.

A change that gives other numbers raises the revision of each study of flipscope that it concerns, so that its results
are measured again. The revision of somebody else's study is not ours to raise: its stored results stay, and commands
that show them say what changed. An entry here goes with an entry in CHANGELOG.md.
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
    """A measurement that gives other numbers from a version of flipscope on."""

    version: str  # the first that measures so
    what: str  # in words, such as "sharpness counts the noise of biases too (all studies that use probes.sharpness)"
    studies: tuple[str, ...] = ()  # the names of those it concerns; none: it may concern any


CHANGES: tuple[Change, ...] = ()


def notes(store: Store, study: Study) -> list[str]:
    """What a reader of a study's stored results must know: which are of an older revision, or measured otherwise."""
    versions = store.versions(study.name, code_version(study)) if CHANGES else {}
    return [*older_revisions(study, store.codes(study.name)), *outdated(study, versions)]


def outdated(study: Study, versions: Mapping[str, int]) -> list[str]:
    """A sentence for each version of flipscope that measured results of the study and measures otherwise today.

    `versions` says how many results each version has measured.
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
    """A sentence for each older revision of the study of which there are results; `codes` counts them by their code."""
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
    """What versions are ordered by; one that is not known comes first."""
    return tuple(map(int, re.findall(r"\d+", version)))
