"""A synthetic set of paraphrases: sentences about invented events, generated from a fixed seed.

An event has an agent, an action and an object. Sixteen sentences tell it, in the active or the passive voice and with
one of two wordings for each of the three. Two sentences are paraphrases if they tell the same event; otherwise one to
three of the three differ. Sentences of both labels are distributed alike, so that only a comparison of the two tells
the label. No sentence of one part of the set, such as the training set, is in another.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from flipscope.data.text_files import TextPairs

SIZES = {"train": 16_000, "dev": 1_000, "test": 1_000}
_SENTENCES = {"train": 10, "dev": 3, "test": 3}  # of the sixteen of each event
_SEED = 0x73796E74

_AGENTS = (
    ("the doctor", "the physician"),
    ("the lawyer", "the attorney"),
    ("the teacher", "the schoolmaster"),
    ("the sailor", "the seaman"),
    ("the farmer", "the grower"),
    ("the guard", "the watchman"),
)
_ACTIONS = (
    ("bought", "purchased"),
    ("repaired", "fixed"),
    ("destroyed", "wrecked"),
    ("found", "discovered"),
    ("hid", "concealed"),
    ("moved", "shifted"),
)
_PARTICIPLES = {"hid": "hidden"}
_OBJECTS = (
    ("the car", "the automobile"),
    ("the boat", "the vessel"),
    ("the picture", "the painting"),
    ("the bike", "the bicycle"),
    ("the stone", "the rock"),
    ("the gift", "the present"),
)
_SLOTS = (_AGENTS, _ACTIONS, _OBJECTS)


def synthetic_paraphrases() -> dict[str, TextPairs]:
    """The sets "train", "dev" and "test", half of the pairs of each being paraphrases."""
    stream = np.random.default_rng(_SEED)
    events = np.array(list(itertools.product(*(range(len(slot)) for slot in _SLOTS))))
    sentences = [stream.permutation(_sentences(event)).tolist() for event in events]
    # For each event those that differ from it in one, in two and in all three respects.
    differing = [[np.flatnonzero((events != event).sum(axis=1) == count) for count in (1, 2, 3)] for event in events]
    start, found = 0, {}
    for part, count in _SENTENCES.items():
        own = [each[start : start + count] for each in sentences]
        found[part] = _pairs(own, differing, SIZES[part], stream)
        start += count
    return found


def _pairs(
    sentences: list[list[str]], differing: list[list[NDArray[np.int64]]], size: int, stream: np.random.Generator
) -> TextPairs:
    """Pairs of these sentences, which are given by event, in random order of labels."""
    labels = stream.permutation(np.arange(size, dtype=np.int64) % 2)
    firsts, seconds = [], []
    for label in labels:
        event = int(stream.integers(len(sentences)))
        if label:
            first, second = stream.choice(sentences[event], 2, replace=False).tolist()
        else:
            other = int(stream.choice(differing[event][int(stream.integers(3))]))
            first, second = (str(stream.choice(sentences[each])) for each in (event, other))
        firsts.append(first)
        seconds.append(second)
    return TextPairs(tuple(firsts), tuple(seconds), labels)


def _sentences(event: NDArray[np.int64]) -> list[str]:
    """The sentences that tell an event."""
    found = []
    for agent, action, thing in itertools.product(*(slot[each] for slot, each in zip(_SLOTS, event, strict=True))):
        found.append(f"{agent} {action} {thing} .")
        found.append(f"{thing} was {_PARTICIPLES.get(action, action)} by {agent} .")
    return found
