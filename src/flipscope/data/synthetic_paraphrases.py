"""A synthetic set of paraphrases: sentences about invented events, generated from a fixed seed.

An event has an agent, an action, an object and a time. A sentence tells it in one of three forms, with one of two
wordings for each of the four. Two sentences are paraphrases if they tell the same event; otherwise one to four of the
four differ. Sentences of both labels are distributed alike, so that only a comparison of the two tells the label. The
events of the training, dev and test sets are different ones, and so are their sentences.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from flipscope.data.text_files import TextPairs

SIZES = {"train": 10_000, "dev": 1_000, "test": 1_000}
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
_TIMES = (
    ("at dawn", "at sunrise"),
    ("at dusk", "at nightfall"),
    ("in autumn", "in fall"),
    ("this year", "in recent months"),
    ("at noon", "at midday"),
    ("long ago", "in former times"),
)
_SLOTS = (_AGENTS, _ACTIONS, _OBJECTS, _TIMES)


def synthetic_paraphrases() -> dict[str, TextPairs]:
    """The sets "train", "dev" and "test", half of the pairs of each being paraphrases."""
    stream = np.random.default_rng(_SEED)
    events = np.array(list(itertools.product(*(range(len(slot)) for slot in _SLOTS))))
    order = stream.permutation(len(events))
    total, start, found = sum(SIZES.values()), 0, {}
    for part, size in SIZES.items():
        stop = start + round(len(events) * size / total)
        found[part] = _pairs(events[order[start:stop]], size, stream)
        start = stop
    return found


def _pairs(events: NDArray[np.int64], size: int, stream: np.random.Generator) -> TextPairs:
    """Pairs about these events, in random order of labels."""
    labels = stream.permutation(np.arange(size, dtype=np.int64) % 2)
    differing = [[np.flatnonzero((events != event).sum(axis=1) == count) for count in range(1, 5)] for event in events]
    firsts, seconds = [], []
    for label in labels:
        one = int(stream.integers(len(events)))
        other = one
        while label == 0 and other == one:
            candidates = differing[one][int(stream.integers(4))]  # of one number of differences, if there is any
            other = int(candidates[stream.integers(len(candidates))]) if len(candidates) else one
        firsts.append(_sentence(events[one], stream))
        seconds.append(_sentence(events[other], stream))
    return TextPairs(tuple(firsts), tuple(seconds), labels)


def _sentence(event: NDArray[np.int64], stream: np.random.Generator) -> str:
    """A sentence that tells the event, in a random form and wording."""
    wordings = stream.integers(2, size=len(_SLOTS))
    agent, action, thing, time = (
        slot[concept][wording] for slot, concept, wording in zip(_SLOTS, event, wordings, strict=True)
    )
    passive = f"{thing} was {_PARTICIPLES.get(action, action)} by {agent}"
    forms = (f"{agent} {action} {thing} {time} .", f"{time} {agent} {action} {thing} .", f"{passive} {time} .")
    return forms[int(stream.integers(len(forms)))]
