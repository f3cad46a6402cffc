"""Byte-level BPE by the package `tokenizers`: sentences and pairs of them as token ids with a mask.

The vocabulary comes from the files of RoBERTa or GPT-2 in the user's folder, or is trained on given sentences. Special
tokens are those of the two models: a pair is `<s> A </s></s> B </s>` for RoBERTa and for a trained vocabulary, and
`A <|endoftext|> B <|endoftext|>` for GPT-2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError, reason
from flipscope.basics.opening import check_inside, content
from flipscope.data.finding import data_folder, first_of, not_found

Style = Literal["roberta", "gpt2"]
_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # in RoBERTa's order, which gives them the ids 0 to 4
_END = "<|endoftext|>"
_MERGES = ("merges.txt", "vocab.bpe", "gpt2_vocab.bpe")
_FILES: dict[Style, tuple[str, ...]] = {
    "roberta": ("roberta_vocab.json", "vocab.json"),
    "gpt2": ("gpt2_encoder.json", "encoder.json", "vocab.json"),
}
_PLACES: dict[Style, tuple[str, ...]] = {"roberta": ("roberta", "roberta-base"), "gpt2": ("gpt2",)}
_SMALLEST = 256 + len(_SPECIAL)  # every byte is a token
_SHORTEST = 8  # tokens of a pair: the special ones and some of the texts


class Encoded(NamedTuple):
    """Token ids, and a mask that is true where a token is one of the text and false where it pads."""

    ids: Int64[np.ndarray, "text position"]
    mask: Bool[np.ndarray, "text position"]


@dataclass(frozen=True, eq=False)
class BytePairEncoding:
    """A vocabulary that turns texts into ids; `digest` identifies it."""

    style: Style
    tokenizer: Any  # a tokenizers.Tokenizer
    digest: str  # SHA-256 of tokens and merges

    @property
    def vocabulary(self) -> int:
        """The number of tokens."""
        return int(self.tokenizer.get_vocab_size())

    @property
    def pad(self) -> int:
        """The id of the token that fills short texts up."""
        return self._id("<pad>" if self.style == "roberta" else _END)

    @checked_arguments
    def encode(
        self, first: Sequence[str], second: Sequence[str] | None = None, *, length: int | None = None
    ) -> Encoded:
        """Ids and mask of texts, or of pairs where ``second`` is given, padded at the end.

        Longer texts are cut to ``length`` tokens, of a pair the longer text first. Without it, the longest text is the
        length.
        """
        sides = [first] if second is None else [first, second]
        if second is not None and len(second) != len(first):
            raise InputError(f"second has {len(second):,} texts and first has {len(first):,}: they must be pairs")
        if len(first) == 0:
            raise InputError("first has no texts to encode")
        if length is not None:
            check_count("length", length, _SHORTEST)
        tokens = [[each.ids for each in self._tokens(texts)] for texts in sides]
        found = [self._joined(list(texts), length) for texts in zip(*tokens, strict=True)]
        lengths = np.array([len(each) for each in found])
        mask = np.arange(length or lengths.max()) < lengths[:, None]
        ids = np.full(mask.shape, self.pad, np.int64)
        ids[mask] = np.concatenate(found)
        return Encoded(ids, mask)

    def _tokens(self, texts: Sequence[str]) -> list[Any]:
        found: list[Any] = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return found

    def _joined(self, texts: list[list[int]], length: int | None) -> list[int]:
        """The tokens of a text or a pair, cut to the length, with the special tokens."""
        if self.style == "roberta":
            start, end = [self._id("<s>")], [self._id("</s>")]
            between = [*end, *end]
        else:
            start, end = [], [self._id(_END)]
            between = end
        if length is not None:
            room = length - len(start) - len(end) - (len(between) if len(texts) == 2 else 0)
            texts = [text[:size] for text, size in zip(texts, _sizes([len(text) for text in texts], room), strict=True)]
        return [*start, *texts[0], *(each for text in texts[1:] for each in (*between, *text)), *end]

    def _id(self, token: str) -> int:
        return int(self.tokenizer.token_to_id(token))


def _sizes(lengths: list[int], room: int) -> list[int]:
    """How many tokens of each of one or two texts fit, the longer one being cut first."""
    if len(lengths) == 1:
        return [room]
    one, two = lengths
    if min(one, two) <= room // 2:
        return [one, room - one] if one <= two else [room - two, two]
    return [room - room // 2, room // 2]


@checked_arguments
def trained_bpe(texts: Sequence[str], vocabulary: int = 2_000) -> BytePairEncoding:
    """A vocabulary of at most so many tokens, trained on these texts, with RoBERTa's special tokens.

    >>> bpe = trained_bpe(["one text", "another text"], 280)
    >>> bpe.encode(["one text"], ["another text"], length=12).ids.shape
    (1, 12)
    """
    check_count("vocabulary", vocabulary, _SMALLEST)
    if len(texts) == 0:
        raise InputError("texts must not be empty: a vocabulary is trained on them")
    tokenizers = _package()
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    # With a space before the first word, which is then the same token as elsewhere.
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(_SPECIAL),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _finished(tokenizer, "roberta")


@checked_arguments
def load_bpe(style: Style, folder: str | Path | None = None) -> BytePairEncoding:
    """The vocabulary of RoBERTa or GPT-2 from its files, which must be in the folder or a subfolder of its name."""
    where = data_folder(folder)
    wanted = f"{_FILES[style][-1]} and merges.txt"
    if where is None:
        raise not_found(f"the vocabulary of {style}", None, wanted)
    tokenizers = _package()
    for place in (where, *(where / name for name in _PLACES[style])):
        vocabulary, merges = first_of(place, _FILES[style]), first_of(place, _MERGES)
        if vocabulary is None or merges is None:
            continue
        for file in (vocabulary, merges):
            content(check_inside(file, where))  # tokenizers reads a file of any size itself
        try:
            tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(str(vocabulary), str(merges)))
        except Exception as error:  # tokenizers raises Exception itself
            raise InputError(f"{vocabulary} and {merges} are no vocabulary with its merges: {reason(error)}") from None
        needed = _SPECIAL if style == "roberta" else (_END,)
        missing = [token for token in needed if tokenizer.token_to_id(token) is None]
        if missing:
            raise InputError(f"{vocabulary} is not the vocabulary of {style}: it lacks the token {missing[0]}")
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        return _finished(tokenizer, style)
    raise not_found(style, where, wanted)


def _finished(tokenizer: Any, style: Style) -> BytePairEncoding:
    tokenizer.add_special_tokens(list(_SPECIAL if style == "roberta" else (_END,)))  # which no text is split into
    return BytePairEncoding(style, tokenizer, hashlib.sha256(tokenizer.to_str().encode()).hexdigest())


def _package() -> Any:
    try:
        import tokenizers
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError as error:
        raise InputError("byte-level BPE needs the package tokenizers: pip install 'flipscope[language]'") from error
    return tokenizers
