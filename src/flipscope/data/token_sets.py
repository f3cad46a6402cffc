"""Sequences of tokens in which sparse and frequent tokens both tell the label (Defs 4.2 and 4.3 of paper 004).

A vocabulary of M tokens has one sparse token for each label, m frequent tokens for each label, and irrelevant ones.
A sequence of T tokens with label y has n_s sparse tokens of y; n_f frequent tokens, of which floor((n_f + n_d) / 2) are
of y and the others of -y; and irrelevant tokens. So the sparse tokens alone give the label, and the majority of the
frequent ones does, but the two predictors differ in how easily a changed token changes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64

from flipscope.basics.arguments import check_fields
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.data.batches import Examples

Feature = Literal["sparse", "frequent"]
FEATURES: tuple[Feature, ...] = ("sparse", "frequent")
GROUPS = ("sparse", "frequent", "irrelevant")


@dataclass(frozen=True)
class TokenSets:
    """One setting: n_s, n_f, n_d and m as in the paper, with the sizes of the vocabulary and of a sequence.

    Token 0 is the sparse token of label 1 and token 1 that of label 0; then frequent tokens of both labels alternate.

    >>> setting = TokenSets(sparse=1, frequent=17, surplus=7, words=20, vocabulary=69)
    >>> setting.own, setting.opposing, float(round(setting.sensitivity("sparse"), 4)), setting.sensitivity("frequent")
    (12, 5, 0.0339, Fraction(0, 1))
    """

    sparse: int  # n_s
    frequent: int  # n_f
    surplus: int  # n_d
    words: int  # m
    vocabulary: int  # M
    length: int = 50  # T

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("sparse", "frequent", "surplus", "words", "vocabulary", "length"):
            check_count(name, getattr(self, name))
        if self.surplus > self.frequent:
            raise InputError(f"surplus={self.surplus} must be at most frequent={self.frequent}")
        if self.sparse + self.frequent >= self.length:
            raise InputError(f"{self.sparse} + {self.frequent} tokens leave no irrelevant one in length={self.length}")
        if self.vocabulary <= 2 * self.words + 2:
            raise InputError(
                f"vocabulary={self.vocabulary} must be at least {2 * self.words + 3}, for an irrelevant one"
            )
        if self.own <= self.opposing:
            raise InputError(f"surplus={self.surplus} leaves no majority among {self.frequent} frequent tokens")

    @property
    def own(self) -> int:
        """How many frequent tokens of a sequence are of its label."""
        return (self.frequent + self.surplus) // 2

    @property
    def opposing(self) -> int:
        """How many are of the other label."""
        return self.frequent - self.own

    def groups(self) -> Int64[np.ndarray, " token"]:
        """For each token of the vocabulary its place in `GROUPS`."""
        found = np.full(self.vocabulary, 2)
        found[:2], found[2 : 2 * self.words + 2] = 0, 1
        return found

    def directions(self) -> Float64[np.ndarray, "group token"]:
        """v_sp, v_freq and v_irrel: signs of the tokens of each group, ones for irrelevant tokens."""
        groups, signs = self.groups(), 1.0 - 2.0 * (np.arange(self.vocabulary) % 2)
        return np.stack([np.where(groups == place, signs if place < 2 else 1.0, 0.0) for place in range(3)])

    def draw(self, count: int, stream: np.random.Generator, *, opposed: bool = False) -> Examples:
        """So many sequences in random order of tokens, with labels; `opposed` gives them sparse tokens of the other."""
        labels = stream.integers(0, 2, check_count("count", count))
        parity = (1 - labels)[:, None]  # tokens of label 1 have even numbers
        sparse = np.repeat(1 - parity if opposed else parity, self.sparse, axis=1)
        drawn = 2 + 2 * stream.integers(0, self.words, (count, self.frequent))
        frequent = drawn + np.where(np.arange(self.frequent) < self.own, parity, 1 - parity)
        rest = self.length - self.sparse - self.frequent
        irrelevant = stream.integers(2 * self.words + 2, self.vocabulary, (count, rest))
        tokens = np.concatenate([sparse, frequent, irrelevant], axis=1)
        return Examples(stream.permuted(tokens, axis=1), labels)

    def sensitivity(self, feature: Feature) -> Fraction:
        """The sensitivity (Def 4.1) of the predictor that counts the tokens of one feature, with a tie as a change.

        A replaced token of the label lowers the difference of counts by 1, or by 2 where the new one is of the other
        label; a token of neither label lowers it by 1 if the new one is of the other label.
        """
        if feature not in FEATURES:
            raise InputError(f"feature={feature!r} is not one of {', '.join(FEATURES)}")
        own, opposing, words = (self.sparse, 0, 1) if feature == "sparse" else (self.own, self.opposing, self.words)
        difference, hit = own - opposing, Fraction(words, self.vocabulary)
        if difference > 2:
            return Fraction(0)
        by_own = own * (1 - hit if difference == 1 else hit)
        by_neither = (self.length - own - opposing) * hit if difference == 1 else 0
        return (by_own + by_neither) / self.length
