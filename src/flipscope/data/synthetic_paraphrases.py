"""A synthetic set of paraphrases: sentences about invented events, generated from a fixed seed.

An event has an agent, an action and an object. A sentence tells it in the active or the passive voice, with one of two
wordings for each of the three. Two sentences are paraphrases if they tell the same event; otherwise one to three of the
three differ. Sentences of both labels are distributed alike, so that only a comparison of the two tells the label. The
events of the training, dev and test sets are different ones, and so are their sentences.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from flipscope.data.text_files import TextPairs

SIZES = {"train": 16_000, "dev": 1_000, "test": 1_000}
_EVENTS = {"train": 0.7, "dev": 0.1, "test": 0.2}  # shares of the events
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
_DIFFERENCES = (1, 2, 3)  # of two sentences that are no paraphrases, in equal shares


def synthetic_paraphrases() -> dict[str, TextPairs]:
    """The sets "train", "dev" and "test", half of the pairs of each being paraphrases."""
    stream = np.random.default_rng(_SEED)
    events = np.array(list(itertools.product(*(range(len(slot)) for slot in _SLOTS))))
    order = stream.permutation(len(events))
    start, found = 0, {}
    for part, size in SIZES.items():
        stop = start + round(len(events) * _EVENTS[part])
        found[part] = _pairs(events[order[start:stop]], size, stream)
        start = stop
    return found


def _pairs(events: NDArray[np.int64], size: int, stream: np.random.Generator) -> TextPairs:
    """Pairs about these events, in random order of labels."""
    labels = stream.permutation(np.arange(size, dtype=np.int64) % 2)
    differing = [[np.flatnonzero((events != event).sum(axis=1) == count) for count in _DIFFERENCES] for event in events]
    firsts, seconds = [], []
    for label in labels:
        one = int(stream.integers(len(events)))
        other = one
        while label == 0 and other == one:
            candidates = differing[one][
                int(stream.integers(len(_DIFFERENCES)))
            ]  # of one number of differences, if there is any
            other = int(candidates[stream.integers(len(candidates))]) if len(candidates) else one
        firsts.append(_sentence(events[one], stream))
        seconds.append(_sentence(events[other], stream))
    return TextPairs(tuple(firsts), tuple(seconds), labels)


def _sentence(event: NDArray[np.int64], stream: np.random.Generator) -> str:
    """A sentence that tells the event, in a random voice and wording."""
    wordings = stream.integers(2, size=len(_SLOTS))
    agent, action, thing = (
        slot[concept][wording] for slot, concept, wording in zip(_SLOTS, event, wordings, strict=True)
    )
    if stream.integers(2):
        return f"{agent} {action} {thing} ."
    return f"{thing} was {_PARTICIPLES.get(action, action)} by {agent} ."
