"""TextData: the pairs of sentences of a set as the data of a recipe, as token ids in batches of similar lengths.

A recipe holds the reference of a set and the digest of the vocabulary, never a folder.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from flipscope.basics.arguments import check_fields, checked_arguments
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.data.batches import ByLength, Examples, Inputs, Labelled, text_lengths
from flipscope.data.bpe import BytePairEncoding, load_bpe, trained_bpe
from flipscope.data.finding import DIGITS, split_reference
from flipscope.data.text_files import TextPairs
from flipscope.data.texts import TextSet, load_texts

_ORDER, _CHOICE = 0x74657874, 0x63686F73  # set the streams of batches and of the choice of texts apart
_TESTED = 256  # texts of similar lengths that are evaluated together

Encoder = Literal["trained", "roberta", "gpt2"]
Part = Literal["train", "test"]


@dataclass(frozen=True, kw_only=True)
class TextData:
    """Pairs of sentences with their labels: `train` pairs to train on, and `test` held-out pairs to evaluate on.

    Fewer than all are drawn at random, with the seed. A pair is cut to `length` tokens. `encoder` says where the tokens
    come from: a vocabulary of at most `vocabulary` tokens "trained" on the sentences of the training set, or that of
    RoBERTa or GPT-2 from their files. `tokens` is the beginning of the vocabulary's digest.
    """

    inputs: ClassVar[Inputs] = "tokens"
    answer: ClassVar[str] = "string"
    texts: str  # the reference of the set
    tokens: str
    vocabulary: int
    length: int
    padding: int
    train: int
    test: int
    encoder: Encoder = "trained"
    classes: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        for name, smallest in (
            ("vocabulary", 1), ("length", 8), ("padding", 0), ("train", 1), ("test", 1), ("classes", 2), ("seed", 0),
        ):  # fmt: skip
            check_count(name, getattr(self, name), smallest)
        if split_reference(self.texts)[1] is None:
            raise InputError(f"texts={self.texts!r} must be the reference of a set: text_data makes it from a name")

    @property
    def function(self) -> str:
        """The name of the set."""
        return self.name

    @property
    def name(self) -> str:
        """The name of the set."""
        return split_reference(self.texts)[0]

    def training_set(self) -> Examples:
        """Token ids [pair, position] of the training pairs, filled up with padding, and their labels."""
        return self._encoded("train")

    def test_set(self) -> Examples:
        """The same of the pairs to evaluate on."""
        return self._encoded("test")

    def validation_sets(self) -> list[Labelled]:
        """The pairs to evaluate on, in parts of similar lengths."""
        data = self._encoded("test")
        lengths = text_lengths(data.bits, self.padding)
        parts = lengths.argsort(stable=True).split(_TESTED)
        return [Examples(data.bits[rows, : int(lengths[rows].max())], data.labels[rows]) for rows in parts]

    def source(self, batch: int, steps: int, seed: int) -> ByLength:
        """Batches of training pairs of similar lengths, in a new order each epoch."""
        stream = np.random.default_rng([self.seed, seed, _ORDER])
        return ByLength(self._encoded("train"), batch, stream, padding=self.padding)

    def draw_inputs(self, count: int, stream: np.random.Generator) -> Int64[Tensor, "text position"]:
        """Random training pairs as token ids."""
        ids: Tensor = self._encoded("train").bits
        return ids[torch.from_numpy(stream.integers(0, len(ids), count))]

    def bpe(self) -> BytePairEncoding:
        """The vocabulary; InputError if it is another one than that of the recipe."""
        found = vocabulary_of(self.texts, self.encoder, self.vocabulary)
        if found.digest[:DIGITS] != self.tokens:
            raise InputError(
                f"the vocabulary of {self.name} has the digest {found.digest[:DIGITS]} here, and {self.tokens} is "
                "wanted: use the files or the version of tokenizers with which the training began"
            )
        return found

    def chosen_rows(self, part: Part) -> Int64[np.ndarray, " pair"]:
        """The rows of the chosen pairs among all training or held-out pairs of the set, in increasing order."""
        pairs, count = self._pairs(part)
        rows = np.arange(len(pairs))
        if count < len(pairs):
            stream = np.random.default_rng([self.seed, part == "train", _CHOICE])
            rows = np.sort(stream.permutation(len(pairs))[:count])
        return rows

    def cut_share(self, part: Part) -> float:
        """The share of the chosen pairs that have more than `length` tokens, and are therefore cut."""
        encoded = self.bpe().encode(*_sentences(self._pairs(part)[0], self.chosen_rows(part)))
        return float((encoded.mask.sum(axis=1) > self.length).mean())

    def _pairs(self, part: Part) -> tuple[TextPairs, int]:
        """All training or held-out pairs of the set, and how many of them are used."""
        found = load_texts(self.texts)
        pairs, count = (found.train, self.train) if part == "train" else (found.held_out, self.test)
        if count > len(pairs):
            raise InputError(f"{part}={count:,} is more than the {len(pairs):,} pairs of {self.name}")
        return pairs, count

    def _encoded(self, part: Part) -> Examples:
        (pairs, _), rows = self._pairs(part), self.chosen_rows(part)
        encoded = self.bpe().encode(*_sentences(pairs, rows), length=self.length)
        return Examples(torch.from_numpy(encoded.ids), torch.from_numpy(pairs.labels[rows]))


def _sentences(pairs: TextPairs, rows: np.ndarray) -> tuple[list[str], list[str]]:
    return [pairs.first[row] for row in rows], [pairs.second[row] for row in rows]


def vocabulary_of(texts: str, encoder: Encoder, vocabulary: int) -> BytePairEncoding:
    """The vocabulary that an encoder gives for a set, which is given by its reference."""
    return _trained(texts, vocabulary) if encoder == "trained" else load_bpe(encoder)


@functools.lru_cache(maxsize=4)
def _trained(texts: str, vocabulary: int) -> BytePairEncoding:
    return trained_bpe(load_texts(texts).train.sentences, vocabulary)


@checked_arguments
def text_data(
    name: str,
    *,
    length: int = 64,
    vocabulary: int = 2_000,
    encoder: Encoder = "trained",
    train: int | None = None,
    test: int | None = None,
    seed: int = 0,
) -> TextData:
    """The data of a recipe on the text set of this name or reference; all its pairs unless fewer are asked for."""
    found: TextSet = load_texts(name)
    bpe = vocabulary_of(found.reference, encoder, vocabulary)
    return TextData(
        texts=found.reference,
        tokens=bpe.digest[:DIGITS],
        vocabulary=vocabulary if encoder == "trained" else bpe.vocabulary,
        length=length,
        padding=bpe.pad,
        train=len(found.train) if train is None else train,
        test=len(found.held_out) if test is None else test,
        encoder=encoder,
        seed=seed,
    )
