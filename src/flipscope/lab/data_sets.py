"""The data sets of a study: its trials name a set and the digest of its content, and never a folder.

`trials` of a study asks for the reference of a set by `data_set`, and the trial's `measure` loads the set of that
reference. When a study is run, the reference is that of the files in the user's folder. When results are read back, it
is that of the stored trials (`Store.data_sets`), so that reports need no data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from flipscope.basics.errors import InputError
from flipscope.basics.wording import count_text
from flipscope.data.finding import DIGITS, named_folder, reference, split_reference

_IN_JSON = re.compile(rf'"([a-z0-9]+(?:-[a-z0-9]+)*@[0-9a-f]{{{DIGITS}}})"')
_recorded: ContextVar[Mapping[str, str]] = ContextVar("recorded data sets", default={})  # noqa: B039 - never changed


@dataclass(frozen=True)
class Use:
    """A data set on which stored trials of a study were measured."""

    reference: str
    trials: int
    last: str  # when the last of them was finished, ISO 8601


@contextmanager
def recorded(references: Mapping[str, str]) -> Iterator[None]:
    """Within this context `data_set` gives these references, by the names of the sets, without reading any data."""
    token = _recorded.set(references)
    try:
        yield
    finally:
        _recorded.reset(token)


def data_set(name: str) -> str:
    """The reference of a set of images or texts for a trial, such as fashion-mnist@c85e7078a78cd512."""
    if name in _recorded.get():
        return _recorded.get()[name]
    # Only here: commands that read results need no reader of images, pickles or texts.
    from flipscope.data.images import IMAGE_SETS, load_images
    from flipscope.data.photos import PHOTOS, load_photos
    from flipscope.data.texts import TEXT_SETS, load_texts

    if name in IMAGE_SETS:
        return load_images(name).reference
    if name in TEXT_SETS:
        return load_texts(name).reference
    if name == PHOTOS:
        return load_photos().reference
    raise InputError(f"there is no data set {name!r}: give one of {', '.join((*IMAGE_SETS, PHOTOS, *TEXT_SETS))}")


def available_sets(names: Sequence[str], substitute: str) -> list[str]:
    """The references of these sets, or that of the substitute alone where the user names no folder of data sets.

    A substitute needs no files: "digits" or "synthetic-paraphrases". When results are read back without the folder, it
    depends on which of them were measured last; the trials of a set that was never measured and is not found here have
    no results, and name it with a digest of zeros.

    >>> [each.split("@")[0] for each in available_sets(["cifar-10"], "digits")]
    ['digits']
    """
    used = [name for name in _recorded.get() if name in (*names, substitute)]  # the last used first
    if (used[0] == substitute) if used else named_folder() is None:
        return [data_set(substitute)]
    if not used:
        return [data_set(name) for name in names]
    found = []
    for name in names:
        try:
            found.append(data_set(name))
        except InputError:
            found.append(reference(name, "0" * DIGITS))
    return found


def in_trial(content: Mapping[str, Any] | str) -> list[str]:
    """The references in the content of a trial, which may be JSON text."""
    return _IN_JSON.findall(content if isinstance(content, str) else json.dumps(content))


def uses(trials: Iterable[tuple[str, str]]) -> list[Use]:
    """The data sets of trials, each given by its content as JSON and the time it was finished; the last used first."""
    found: dict[str, list[str]] = {}
    for content, finished in trials:
        for each in dict.fromkeys(in_trial(content)):
            found.setdefault(each, []).append(finished)
    return sorted((Use(each, len(times), max(times)) for each, times in found.items()), key=lambda use: use.last)[::-1]


def latest(used: Iterable[Use]) -> dict[str, str]:
    """For each name the reference that was used last."""
    found: dict[str, str] = {}
    for use in used:
        found.setdefault(split_reference(use.reference)[0], use.reference)
    return found


def notes_on_others(planned: Iterable[Mapping[str, Any]], stored: Iterable[Use]) -> list[str]:
    """Sentences about stored trials on other data sets of the same names as those of the planned trials."""
    ours: dict[str, str] = {}
    for content in planned:
        ours |= {split_reference(each)[0]: each for each in in_trial(content)}
    notes = []
    for use in stored:
        name, digest = split_reference(use.reference)
        if name in ours and use.reference != ours[name]:
            notes.append(
                f"{count_text(use.trials, 'trial')} on another set {name} (digest {digest}) are stored too: these are "
                f"different trials and do not count for the set here (digest {split_reference(ours[name])[1]})."
            )
    return notes
