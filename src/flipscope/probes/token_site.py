"""Where a model is disturbed, and which tokens count: its input or a module's output, without padding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64
from torch import Tensor, nn

from flipscope.adapters.deterministic import check_together
from flipscope.adapters.disturbing import (
    Change,
    FeatureMask,
    Given,
    Layout,
    main_input,
    named_module,
    run_changed,
    with_main,
)
from flipscope.adapters.hooks import watching
from flipscope.adapters.inputs import Inputs, given_for
from flipscope.adapters.outputs import numbers
from flipscope.adapters.prefix import KeptBlocks, KeptPrefix, KeptStates, causal_transformer, recurrent_layer
from flipscope.adapters.settled import Settled
from flipscope.basics.bits import as_array
from flipscope.basics.errors import InputError, blamed_on
from flipscope.models.devices import in_float64
from flipscope.models.transformer import Transformer
from flipscope.probes.token_results import PICTURES, How

LabelWords: TypeAlias = Literal["any"] | Sequence[int]


class TokenSite:
    """A model, its inputs, and the tensor whose tokens are disturbed: the input, or the output of a module."""

    _recurrent: nn.RNNBase | None = None
    _causal: Transformer | None = None

    def __init__(
        self,
        settled: Settled,
        data: Inputs | Mapping[str, Any],
        at: str | None,
        feature_mask: FeatureMask | None,
        label_words: LabelWords | None = None,
    ) -> None:
        self.settled, self.at = settled, at
        if at is not None:
            named_module(settled.model, at)
        bits = given_for(settled, data)
        given = bits.ready()
        if given.strings != bits.strings:
            raise InputError("tokens are measured of inputs whose first axis is the string: leave the encoding out")
        self.given: Given = dict(given.keywords) or given.positional
        self.count = given.strings
        _refuse_nan(given.tensors)
        self._next = None if label_words is None else _NextToken(self.given, label_words)
        self._recurrent, self._causal = recurrent_layer(settled.model), causal_transformer(settled.model)
        self._kept: KeptPrefix | KeptStates | KeptBlocks | None = None
        self._kept_inputs = np.zeros(0, np.int64)
        if self.main.numel() == 0:
            raise InputError(
                f"inputs of shape {tuple(self.main.shape)} hold no tokens: give one or more for each input"
            )
        seen = self._seen()
        self.floats = seen.is_floating_point()
        what = "inputs" if at is None else f"the outputs of {at!r}"
        self.layout = Layout.of(seen.shape[1:], feature_mask, what)
        width = sum(tensor[0].numel() * tensor.element_size() for tensor in (*given.tensors, seen))
        self.batch = settled.subject.batch or self._fast_batch(2 * width)
        self.answers = np.zeros(self.count, np.int64)
        self.rms: float | None = None

    @property
    def main(self) -> Tensor:
        """The model's input that has the tokens."""
        return main_input(self.given)

    def values(self, index: Int64[np.ndarray, " row"], change: Change, start: int = 0) -> np.ndarray:
        """The logits of these inputs, one row for each, with their tokens changed; none of those before ``start``."""
        return self._decided(self.raw(index, change, start), len(index))

    @property
    def keeps_prefixes(self) -> bool:
        """Whether the model may be run from a changed token on."""
        if self._recurrent is not None or self._causal is not None:
            return True
        return self._next is not None and self.at is None and isinstance(self.given, Mapping)

    def keep_prefixes(self, inputs: Int64[np.ndarray, " input"]) -> None:
        """Run these inputs once, for changed copies of them to start where they differ."""
        kept: KeptPrefix | KeptStates | KeptBlocks
        self._kept = None
        with blamed_on("the model"):
            if self._recurrent is not None:
                kept = KeptStates(self._recurrent, lambda: self.raw(inputs, lambda x: x))
            elif self._causal is not None:
                kept = KeptBlocks(self._causal, lambda: self.raw(inputs, lambda x: x))
            else:
                kept = KeptPrefix(self.settled.model, self._rows(inputs))  # type: ignore[arg-type]  # a mapping
        self._kept, self._kept_inputs = (kept if kept.usable else None), inputs

    def _fast_batch(self, smallest: int) -> int:
        """Rows per call, from two trial calls, the first of which tells what the outputs are."""
        sizes = []
        for count in (1, 2):
            index = np.zeros(count, np.int64)
            part, watch = self.settled.watched(lambda index=index: self._part(index))  # type: ignore[misc]
            self.settled.interpret(part, watch, count)
            sizes.append(watch.sizes)
        return self.settled.fast_batch(sizes, (1, 2), smallest)

    def _part(self, index: Int64[np.ndarray, " row"]) -> Any:
        """The part of the undisturbed output that decides."""
        return self.settled.chosen_part(self.raw(index, lambda x: x))

    def _undisturbed(self, index: Int64[np.ndarray, " row"]) -> np.ndarray:
        return self.values(index.copy(), lambda x: x)  # torch takes no reversed view

    def _decided(self, raw: Any, count: int) -> np.ndarray:
        found = self.settled.decided(raw, count, 0)
        if np.isnan(found).any():
            raise InputError(
                f"the model gave NaN for {int(np.isnan(found).sum())} disturbed inputs: it is broken there"
            )
        return found

    def ask(self, valid: Bool[np.ndarray, "input token"]) -> None:
        """Note the answers of the undisturbed inputs, and how large their tokens are."""
        few = np.unique([0, self.count - 1])
        eps = None if self.settled.dtype is None else float(torch.finfo(self.settled.dtype).eps)
        # As a callable, not as a module: inputs of numbers do not go with a copy in float64.
        check_together(None, lambda _: self._undisturbed, few[: self.batch], eps)
        total = 0.0
        for index in np.array_split(np.arange(self.count), -(-self.count // self.batch)):
            seen = _Seen()
            raw = self.raw(index, seen)
            found = self._decided(raw, len(index))
            if self._next is None:
                self.settled.check_clear(found)
            self.answers[index] = self.settled.chosen(found)
            if self.floats:
                total += self._squares(seen.tensor, valid[index])
        if self.floats:
            self.rms = math.sqrt(total / float((valid.sum(axis=0) * self.layout.sizes.numpy()).sum()))

    def pictures(self) -> tuple[Float32[np.ndarray, "image ..."] | None, Int64[np.ndarray, "row column"] | None]:
        """The first inputs and the token of each pixel, where they are images whose channels have the same tokens."""
        shape = self.layout.shape
        if self.at is not None or not self.floats or len(shape) != 3 or shape[0] not in (1, 3):
            return None, None
        cells = self.layout.token_of.reshape(shape)
        if not bool((cells == cells[:1]).all()):
            return None, None
        return self.main[:PICTURES].float().cpu().numpy(), cells[0].numpy()

    def norms(self) -> tuple[str | None, str | None]:
        """The norm whose output is disturbed, and the first one that reads what is disturbed, by name.

        Only embeddings, dropout and the like lie between. At one variance noise counts for much more behind a norm than
        in front of one, which scales tokens down again.
        """
        if self.settled.module is None:
            return None, None
        order: list[tuple[str, nn.Module]] = []
        leaves = {name: each for name, each in self.settled.module.named_modules() if not [*each.children()]}
        parts = leaves if self.at is None else leaves | {self.at: named_module(self.settled.model, self.at)}
        with watching(parts, outputs=lambda name, part, output: order.append((name, part))):
            self.raw(np.zeros(1, np.int64), lambda x: x)
        names = [name for name, _ in order]
        place = -1 if self.at is None else names.index(self.at)
        earlier = order[: place + 1] if self.at in leaves else order[: max(place, 0)]
        return _first_norm(reversed(earlier)), _first_norm(order[place + 1 :])

    def _squares(self, seen: Tensor, valid: Bool[np.ndarray, "input token"]) -> float:
        """The sum of the squares of all numbers of the tokens that count."""
        counts = torch.from_numpy(valid)[:, self.layout.token_of].to(seen.device)
        return float(in_float64((seen.flatten(1).float().square() * counts).sum(dim=1)).sum())

    def _seen(self) -> Tensor:
        """The tensor with the tokens, of the first input."""
        if self.at is None:
            return self.main[:1]
        one, two = _Seen(), _Seen()
        self.raw(np.zeros(1, np.int64), one)
        self.raw(np.zeros(2, np.int64), two)
        if one.tensor.ndim == 0 or len(one.tensor) != 1 or len(two.tensor) != 2:
            raise InputError(
                f"the module {self.at!r} returns numbers of shape {tuple(two.tensor.shape)} for 2 inputs: its first "
                "axis must be the inputs; name another"
            )
        return one.tensor

    def raw(self, index: Int64[np.ndarray, " row"], change: Change, start: int = 0) -> Any:
        """The model's output for these inputs, with their tokens changed; for language models after the last token.

        With ``start`` above 0, the inputs are among those whose prefixes are kept.
        """
        rows = self._rows(index)
        kept = self._kept if start > 0 else None
        with blamed_on("the model"):
            slots = torch.from_numpy(np.searchsorted(self._kept_inputs, index)).to(self.settled.device)
            if isinstance(kept, KeptPrefix):
                found = kept.run(slots, with_main(rows, change), start)  # type: ignore[arg-type]  # a mapping
            else:
                with nullcontext() if kept is None else kept.starting(slots, start):
                    start, found = 0, run_changed(self.settled.model, rows, change, self.at)
        return found if self._next is None else self._next.read(found, index, start)

    def _rows(self, index: Int64[np.ndarray, " row"]) -> Given:
        chosen = torch.from_numpy(index).to(self.settled.device)
        if isinstance(self.given, Mapping):
            return {name: each[chosen] for name, each in self.given.items()}
        return tuple(each[chosen] for each in self.given)


class _NextToken:
    """The answer of a causal language model: the next token after the last one, or one of some label words."""

    def __init__(self, given: Given, label_words: LabelWords) -> None:
        ids = main_input(given)
        if ids.is_floating_point() or ids.ndim != 2:
            raise InputError("label_words is for language models, which read token ids [input, position]")
        mask = given.get("attention_mask") if isinstance(given, Mapping) else None
        places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        self._last = (places if mask is None else places * (mask != 0)).max(dim=1).values.cpu()
        self._labels = None if isinstance(label_words, str) else torch.tensor(list(label_words), device="cpu")
        if self._labels is not None and (len(self._labels) < 2 or len(self._labels.unique()) < len(self._labels)):
            raise InputError("label_words must be two token ids or more, all different, or 'any'")

    def read(self, raw: Any, index: Int64[np.ndarray, " row"], start: int) -> Tensor:
        """The logits [row, word] after the last token, from those of the positions from ``start`` on."""
        logits: Tensor = numbers(raw)
        if logits.ndim != 3:
            raise InputError(f"a language model gives logits [input, position, token], not {tuple(logits.shape)}")
        if self._labels is not None and int(self._labels.max()) >= logits.shape[2]:
            raise InputError(f"label_words must be token ids below {logits.shape[2]}")
        last = self._last[torch.from_numpy(index)].to(logits.device) - start
        found = logits[torch.arange(len(index), device=logits.device), last]
        return found if self._labels is None else found[:, self._labels.to(logits.device)]


def _first_norm(modules: Iterable[tuple[str, nn.Module]]) -> str | None:
    """The name of the first module if it is a norm, not counting those that do not mix the numbers of a token."""
    for name, module in modules:
        if "norm" in type(module).__name__.lower():
            return name
        if not isinstance(module, nn.Dropout | nn.Identity | nn.Embedding):
            return None
    return None


class _Seen:
    """A change that changes nothing and keeps what it was given."""

    tensor: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        self.tensor = x
        return x


def _refuse_nan(tensors: Sequence[Tensor]) -> None:
    for tensor in tensors:
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            bad = int((~tensor.isfinite().flatten(1).all(dim=1)).nonzero()[0])
            raise InputError(f"inputs hold NaN or infinity, first in input {bad}: remove these")


# ---------------------------------------------------------------- which tokens count


class CountedTokens:
    """Which tokens count, and which of them are special."""

    def __init__(
        self,
        site: TokenSite,
        mask: Tensor | np.ndarray | None,
        special: Sequence[int],
        count_special: bool | None,
        how: How,
    ) -> None:
        shape = (site.count, site.layout.tokens)
        self.special = np.asarray(list(special), np.int64)
        self.has_mask = False
        padding = _own_padding(site)
        if padding is not None:
            self.special = np.union1d(self.special, [padding])
            if mask is None and tuple(site.main.shape) == shape:
                mask, self.has_mask = site.main != padding, True
        if mask is None and isinstance(site.given, Mapping):
            stated = site.given.get("attention_mask")
            mask = stated if isinstance(stated, Tensor) and tuple(stated.shape) == shape else None
            self.has_mask = mask is not None
        self.valid = np.ones(shape, bool) if mask is None else _as_mask(mask, shape)
        counts_special = how != "replace" if count_special is None else count_special
        if len(self.special) and not counts_special:
            ids = site.main
            if ids.is_floating_point() or tuple(ids.shape) != shape:
                raise InputError("special names token ids, and the inputs have none for each token: leave it out")
            self.valid &= ~np.isin(ids.cpu().numpy(), self.special)
        empty = np.flatnonzero(~self.valid.any(axis=1))
        if len(empty):
            raise InputError(f"no token of input {empty[0]} counts: give an input and a mask with one token or more")


def _own_padding(site: TokenSite) -> int | None:
    """The token id that one of flipscope's models takes for padding."""
    module = site.settled.module
    if module is None or not type(module).__module__.startswith("flipscope.") or site.main.is_floating_point():
        return None
    found: int | None = getattr(getattr(module, "config", None), "padding", None)
    return found


def _as_mask(mask: Tensor | np.ndarray, shape: tuple[int, int]) -> Bool[np.ndarray, "input token"]:
    found = as_array(mask, "mask")
    if found.shape != shape:
        raise InputError(f"mask of shape {found.shape} must be {shape}: one entry for each token of each input")
    if found.dtype.kind not in "biuf" or not np.isin(found, (0, 1)).all():
        raise InputError("mask must hold 0 and 1, or False and True")
    return np.array(found, bool)


def checked_words(
    words: Sequence[Sequence[str]] | None, valid: Bool[np.ndarray, "input token"]
) -> list[list[str]] | None:
    """The words of each input as lists; InputError unless there is one for each token."""
    if words is None:
        return None
    if len(words) != len(valid):
        raise InputError(f"words are of {len(words)} inputs, and there are {len(valid)}")
    found = [list(each) for each in words]
    for number, (own, counted) in enumerate(zip(found, valid, strict=True)):
        if len(own) <= int(np.flatnonzero(counted)[-1]):
            raise InputError(f"words has {len(own)} for input {number}, fewer than its tokens")
    return found
