"""Sets of sentence pairs that mean the same or not: MRPC, QQP, and a synthetic one that is generated.

`synthetic-paraphrases` needs no file and says in its name what it is. The others are read from the folder that the user
names; docs/data.md lists the files. `flipscope.data.bpe` turns sentences into tokens.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.basics.opening import check_inside
from flipscope.data.finding import (
    check_reference,
    data_folder,
    first_of,
    kept,
    not_found,
    places,
    reference,
    split_reference,
)
from flipscope.data.synthetic_paraphrases import synthetic_paraphrases
from flipscope.data.text_files import MRPC, PLAIN, QQP, Layout, TextPairs, read_pairs

SYNTHETIC = "synthetic-paraphrases"


@dataclass(frozen=True, eq=False)
class TextSet:
    """Pairs of sentences to train and test on; `dev` and `test` are None where a set has none with labels.

    `digest` identifies the content: the same pairs in the same order have the same digest in every layout.
    """

    name: str
    digest: str
    train: TextPairs
    dev: TextPairs | None
    test: TextPairs | None
    left_out: int = 0  # broken rows of the files
    classes: int = 2

    @property
    def reference(self) -> str:
        """The text by which trials and recipes name this content."""
        return reference(self.name, self.digest)

    @property
    def held_out(self) -> TextPairs:
        """The pairs to test on: those of the test set, or of dev where the test set has no labels."""
        found = self.test if self.test is not None else self.dev
        assert found is not None  # text_set makes sure of one
        return found


@dataclass(frozen=True)
class TextKind:
    """Where the files of a set may be, and in which layouts."""

    name: str
    layouts: tuple[Layout, ...]
    subfolders: tuple[str, ...]
    sizes: tuple[int, ...]  # pairs of GLUE's training and dev sets, and of the test set where its labels are public
    leave_out: bool = False  # whether broken rows are known to occur

    def files(self, folder: Path) -> dict[str, Path]:
        """The files "train", "dev" and "test" of the set; empty where there is no training set."""
        for place in places(folder, self.subfolders):
            inside = place != folder or folder.name in self.subfolders
            found = {}
            for part, others in _PARTS.items():
                names = [f"{self.name}_{part}.tsv", f"{self.name}-{part}.tsv"]
                names += [f"{part}.tsv", *others] if inside else list(others)
                file = first_of(place, names)
                if file is not None:
                    found[part] = check_inside(file, folder)
            if "train" in found:
                return found
        return {}


# The parts of a set with file names of their own: MRPC as Microsoft publishes it.
_PARTS: dict[str, tuple[str, ...]] = {
    "train": ("msr_paraphrase_train.txt",),
    "dev": (),
    "test": ("msr_paraphrase_test.txt",),
}
KINDS: dict[str, TextKind] = {
    kind.name: kind
    for kind in (
        TextKind("mrpc", (MRPC, PLAIN), ("mrpc", "MRPC", "glue_data/MRPC"), (3_668, 408, 1_725)),
        TextKind("qqp", (QQP, PLAIN), ("qqp", "QQP", "glue_data/QQP"), (363_846, 40_430), leave_out=True),
    )
}
TEXT_SETS = (SYNTHETIC, *KINDS)


@checked_arguments
def load_texts(name: str, folder: str | Path | None = None) -> TextSet:
    """The set of sentence pairs of this name, from a folder or from that of the environment variable FLIPSCOPE_DATA.

    The names are synthetic-paraphrases, mrpc and qqp. A reference, such as a TextSet has, gives the same set or an
    InputError if another is found.

    >>> pairs = load_texts("synthetic-paraphrases").train
    >>> len(pairs), float(pairs.labels.mean())
    (16000, 0.5)
    """
    plain, _ = split_reference(name)
    if plain not in TEXT_SETS:
        raise InputError(f"name={name!r} is not one of the text sets {', '.join(TEXT_SETS)}")
    found = _synthetic() if plain == SYNTHETIC else _found(KINDS[plain], data_folder(folder))
    check_reference(name, found.reference)
    return found


def _found(kind: TextKind, folder: Path | None) -> TextSet:
    files = {} if folder is None else kind.files(folder)
    if not files:
        raise not_found(kind.name, folder, f"{kind.name}_train.tsv and {kind.name}_test.tsv or {kind.name}_dev.tsv")
    return kept(kind.name, files.values(), lambda: read_texts(kind, files))


def read_texts(kind: TextKind, files: dict[str, Path]) -> TextSet:
    """The set in these files."""
    read = {part: read_pairs(file, kind.layouts, leave_out=kind.leave_out) for part, file in files.items()}
    parts = {part: each.pairs for part, each in read.items()}
    train = parts["train"]
    if train is None:
        raise InputError(f"{files['train']} has no column of labels, which a training set must have")
    if parts.get("dev") is None and parts.get("test") is None:
        raise InputError(f"{files['train'].parent} has no dev or test set with labels beside {files['train'].name}")
    left_out = sum(each.left_out for each in read.values())
    return text_set(kind.name, train, parts.get("dev"), parts.get("test"), left_out)


def text_set(name: str, train: TextPairs, dev: TextPairs | None, test: TextPairs | None, left_out: int = 0) -> TextSet:
    """A set of these pairs under their digest."""
    digest = hashlib.sha256()
    for part, pairs in (("train", train), ("dev", dev), ("test", test)):
        digest.update(f"{part} {len(pairs) if pairs is not None else None}\n".encode())
        if pairs is not None:
            for label, first, second in zip(pairs.labels, pairs.first, pairs.second, strict=True):
                digest.update(f"{label}\t{first}\t{second}\n".encode())
    return TextSet(name, digest.hexdigest(), train, dev, test, left_out)


@functools.cache
def _synthetic() -> TextSet:
    parts = synthetic_paraphrases()
    return text_set(SYNTHETIC, parts["train"], parts["dev"], parts["test"])
