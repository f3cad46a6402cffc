"""What is done to a token: noise is added to it, or it is replaced, or flipped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor, nn

from flipscope.adapters.disturbing import Change, Layout, RowStreams, noise_tensor
from flipscope.adapters.settled import Settled
from flipscope.basics.bits import as_array, as_numbers
from flipscope.basics.checks import check_count, check_not_negative
from flipscope.basics.errors import InputError
from flipscope.models.transformer import Transformer
from flipscope.probes.token_results import How
from flipscope.probes.token_site import CountedTokens, TokenSite

Rows: TypeAlias = Int64[np.ndarray, "row 3"]  # input, token, draw
Vocabulary: TypeAlias = int | Sequence[int] | np.ndarray | Tensor


@runtime_checkable
class Action(Protocol):
    """What is done to one token of each row."""

    def prepared(self, rows: Rows) -> tuple[Int64[np.ndarray, " row"] | None, Bool[np.ndarray, " row"]]:
        """What was drawn for each row, if that is a number, and whether the token then differs from what it was."""

    def change(self, rows: Rows, drawn: Int64[np.ndarray, " row"] | None) -> Change:
        """The change that these rows undergo."""

    def said(self) -> dict[str, Any]:
        """What a `Disturbance` says of it."""


def token_action(
    site: TokenSite,
    counted: CountedTokens,
    how: How,
    variance: float,
    normalise: bool,
    vocabulary: Vocabulary | None,
    seed: int,
) -> Action:
    """The action that the arguments of `token_sensitivity` describe; InputError where they do not fit the tokens."""
    if how == "noise" and vocabulary is not None:
        raise InputError("vocabulary is for how='replace' and how='flip': leave it out for noise")
    if how != "noise" and normalise:
        raise InputError("normalise is for how='noise': leave it out")
    if how == "noise":
        if not site.floats:
            raise InputError(
                f"noise needs numbers, and the tokens are ids: name the module whose output gets it, such as "
                f"at={_embedding_name(site.settled)!r}, or say how='replace'"
            )
        return _Noise(site.layout, math.sqrt(check_not_negative("variance", variance)), normalise, RowStreams(seed))
    if how == "flip":
        return _Flip(site, vocabulary)
    if site.at is None and not site.floats:
        ids = _vocabulary_ids(site.settled, vocabulary)
        ids = ids[~np.isin(ids, counted.special)]
        if len(ids) == 0:
            raise InputError("vocabulary has no token but special ones: give others to replace from")
        return _ReplaceId(site, ids, RowStreams(seed))
    return _ReplaceVector(site, counted.valid, vocabulary, RowStreams(seed))


@dataclass(frozen=True)
class _Noise:
    """Gaussian noise on each number of the token."""

    layout: Layout
    std: float
    normalise: bool
    streams: RowStreams

    def prepared(self, rows: Rows) -> tuple[None, Bool[np.ndarray, " row"]]:
        return None, np.ones(len(rows), bool)

    def change(self, rows: Rows, drawn: Int64[np.ndarray, " row"] | None) -> Change:
        token = torch.from_numpy(rows[:, 1].copy())
        noise = noise_tensor(self.streams, rows, self.layout.width, self.std)

        def added(x: Tensor) -> Tensor:
            scaled = noise.to(x.device)
            if self.normalise:
                scaled = scaled * token_rms(self.layout, x, token)[:, None]
            return self.layout.added(x, token, scaled)

        return added

    def said(self) -> dict[str, Any]:
        return {"variance": self.std**2, "std": self.std}


def token_rms(layout: Layout, x: Tensor, token: Int64[Tensor, " row"]) -> Tensor:
    """The root mean square of the numbers of one token of each row."""
    sizes = layout.sizes[token.cpu()]
    inside = torch.arange(layout.width, device="cpu") < sizes[:, None]
    squares = layout.taken(x, token).float().square() * inside.to(x.device)
    return (squares.sum(dim=1) / sizes.to(x.device)).sqrt()


class _ReplaceId:
    """A token id exchanged for one that is drawn uniformly; rows that draw the same one again need no model."""

    def __init__(self, site: TokenSite, ids: Int64[np.ndarray, " entry"], streams: RowStreams) -> None:
        self._layout, self._ids, self._streams = site.layout, ids, streams
        if site.layout.width != 1:
            raise InputError("a token id is one number: leave feature_mask out")
        self._old = site.main.reshape(site.count, -1)[:, site.layout.places[:, 0]].cpu().numpy()

    def prepared(self, rows: Rows) -> tuple[Int64[np.ndarray, " row"], Bool[np.ndarray, " row"]]:
        new = self._ids[self._streams.whole(rows, len(self._ids))]
        return new, new != self._old[rows[:, 0], rows[:, 1]]

    def change(self, rows: Rows, drawn: Int64[np.ndarray, " row"] | None) -> Change:
        assert drawn is not None
        token, new = torch.from_numpy(rows[:, 1].copy()), torch.from_numpy(drawn)[:, None]
        return lambda x: self._layout.replaced(x, token, new)

    def said(self) -> dict[str, Any]:
        return {"vocabulary": len(self._ids)}


class _ReplaceVector:
    """A token of numbers exchanged for one that is drawn uniformly: from the vocabulary, or from all inputs' tokens."""

    def __init__(
        self,
        site: TokenSite,
        valid: Bool[np.ndarray, "input token"],
        vocabulary: Vocabulary | None,
        streams: RowStreams,
    ) -> None:
        self._site, self._streams = site, streams
        layout = site.layout
        self._places = np.argwhere(valid)
        self._vectors: Tensor | None = None
        if vocabulary is None:
            if site.at is not None:
                raise InputError("replacing the output of a module needs vectors: give them as vocabulary=, one a row")
            if bool((layout.sizes != layout.width).any()):
                raise InputError("tokens of different sizes cannot replace each other: give vectors as vocabulary=")
            return
        if isinstance(vocabulary, int):
            raise InputError("the tokens are numbers: give vectors [entry, number] as vocabulary=, or leave it out")
        found = torch.from_numpy(as_numbers(vocabulary, "vocabulary"))
        if found.ndim != 2 or found.shape[1] != layout.width or len(found) == 0 or not bool(found.isfinite().all()):
            raise InputError(
                f"vocabulary of shape {tuple(found.shape)} must be finite vectors [entry, {layout.width}], as many "
                "numbers as a token has"
            )
        self._vectors = found

    @property
    def _size(self) -> int:
        return len(self._places) if self._vectors is None else len(self._vectors)

    def prepared(self, rows: Rows) -> tuple[Int64[np.ndarray, " row"], Bool[np.ndarray, " row"]]:
        return self._streams.whole(rows, self._size), np.ones(len(rows), bool)

    def change(self, rows: Rows, drawn: Int64[np.ndarray, " row"] | None) -> Change:
        assert drawn is not None
        token = torch.from_numpy(rows[:, 1].copy())
        if self._vectors is not None:
            new = self._vectors[torch.from_numpy(drawn)]
        else:
            whose, which = torch.from_numpy(self._places[drawn]).T
            new = self._site.layout.taken(self._site.main[whose.to(self._site.main.device)], which)
        return lambda x: self._site.layout.replaced(x, token, new)

    def said(self) -> dict[str, Any]:
        return {"vocabulary": self._size}


class _Flip:
    """A token exchanged for the other of two values."""

    def __init__(self, site: TokenSite, vocabulary: Vocabulary | None) -> None:
        if site.at is not None:
            raise InputError("a flip is of the model's input: leave at out, or say how='noise'")
        self._layout = site.layout
        given = None if vocabulary is None else as_numbers(vocabulary, "vocabulary")
        pairs: list[tuple[Any, ...]] = [(0, 1), (-1, 1)]
        if given is not None:
            pairs = [tuple(np.atleast_1d(given).tolist())]
        elif isinstance(site.settled.encoding, tuple):  # the token ids that stand for the bits
            pairs = [site.settled.encoding]
        values = set(site.main.unique().tolist())
        pair = next((each for each in pairs if len(each) == 2 and values <= set(each)), None)
        if pair is None:
            raise InputError(
                "a flip needs tokens of two values, 0 and 1 or -1 and 1: give two token ids as vocabulary=, or say "
                "how='replace'"
            )
        self._sum = pair[0] + pair[1]

    def prepared(self, rows: Rows) -> tuple[None, Bool[np.ndarray, " row"]]:
        return None, np.ones(len(rows), bool)

    def change(self, rows: Rows, drawn: Int64[np.ndarray, " row"] | None) -> Change:
        token = torch.from_numpy(rows[:, 1].copy())
        return lambda x: self._layout.replaced(x, token, self._sum - self._layout.taken(x, token))

    def said(self) -> dict[str, Any]:
        return {}


def _vocabulary_ids(settled: Settled, vocabulary: Vocabulary | None) -> Int64[np.ndarray, " entry"]:
    """The token ids to replace from."""
    if vocabulary is None:
        vocabulary = _own_vocabulary(settled)
    if isinstance(vocabulary, int):
        return np.arange(check_count("vocabulary", vocabulary))
    found = as_array(vocabulary, "vocabulary")
    if found.ndim != 1 or found.dtype.kind not in "iu" or len(found) == 0:
        raise InputError("vocabulary must be token ids, one or more, or their number")
    return np.unique(found.astype(np.int64))


def _own_vocabulary(settled: Settled) -> int:
    """How many token ids the model has a vector for, where it says so."""
    module = settled.module
    if isinstance(module, Transformer):
        return module.config.vocabulary
    parts = () if module is None else module.modules()  # the model itself, or what it wraps
    sizes = [getattr(getattr(part, "config", None), "vocab_size", None) for part in parts]
    if size := next((each for each in sizes if isinstance(each, int)), None):
        return size
    tables = [each for each in module.modules() if isinstance(each, nn.Embedding)] if module is not None else []
    if len(tables) == 1:
        return int(tables[0].num_embeddings)
    raise InputError("the model does not say how many tokens there are: give them, or their number, as vocabulary=")


def _embedding_name(settled: Settled) -> str:
    """A module that could be meant by at=: the one around the first table of embeddings."""
    if settled.module is None:
        return "embedding"
    names = [name for name, each in settled.module.named_modules() if isinstance(each, nn.Embedding) and name]
    found = names[0] if names else "embedding"
    around = found.rpartition(".")[0]
    return around if around.endswith("embeddings") else found


def whole_std(how: How, variance: float, whole_variance: float | None) -> float | None:
    """Standard deviation of the noise on all tokens at once; None where there is to be none."""
    if whole_variance is not None:
        check_not_negative("whole_variance", whole_variance)
    if how != "noise":
        if whole_variance:
            raise InputError("whole_variance is for how='noise': leave it out")
        return None
    found = variance if whole_variance is None else whole_variance
    return math.sqrt(found) if found > 0 else None


def whole_change(layout: Layout, noise: Tensor, normalise: bool) -> Change:
    """The change that adds noise [row, number] to all tokens at once."""

    def added(x: Tensor) -> Tensor:
        scaled = noise.to(x.device)
        if normalise:
            flat = x.flatten(1).float().square()
            where = layout.token_of.to(x.device).expand_as(flat)
            squares = flat.new_zeros(len(flat), layout.tokens).scatter_add(1, where, flat)
            scaled = scaled * (squares / layout.sizes.to(x.device)).sqrt().gather(1, where)
        return x + scaled.view(x.shape).to(x)

    return added
