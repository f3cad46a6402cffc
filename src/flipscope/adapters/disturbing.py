"""Change one token of a model's input, or of the output of one of its modules, while the model runs.

A token is a group of numbers: a position of a sequence, a patch of an image, or what a feature mask says, as in captum.
`Layout` knows which numbers belong to which token, `run_changed` runs the model, and `RowStreams` draws the random
numbers of each (input, token, draw), which depend on nothing else.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 1, bias=False))
    >>> _ = nn.init.ones_(model[1].weight)
    >>> image = torch.zeros(1, 1, 2, 2)
    >>> layout = Layout.of(image.shape[1:], patches(1))
    >>> third = torch.tensor([2])
    >>> run_changed(model, image, lambda x: layout.added(x, third, torch.tensor([[5.0]]))).item()
    5.0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor, nn

from flipscope.adapters.hooks import changing_output
from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import as_array
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError, reason

Change: TypeAlias = Callable[[Tensor], Tensor]  # from the tensor with the tokens, [row, ...], to the one used instead
Given: TypeAlias = Tensor | tuple[Any, ...] | Mapping[str, Any]  # what a model is called with
FeatureMask: TypeAlias = Tensor | np.ndarray | Callable[[tuple[int, ...]], Tensor]

_MAIN_NAMES = ("input_ids", "pixel_values", "inputs_embeds", "input_values", "input_features")


# ---------------------------------------------------------------- running a changed model


def run_changed(model: Callable[..., Any], given: Given, change: Change, at: str | None = None) -> Any:
    """The model's raw output when the tensor with the tokens is replaced by what ``change`` makes of it.

    That tensor is the model's input, of several the main one (`main_name`), or the output of the module named ``at``,
    of a tuple or a mapping its first tensor. Gradients flow through the change. Mode and gradients of the model are the
    caller's concern.
    """
    if at is None:
        return _called(model, with_main(given, change))
    part = named_module(model, at)
    with changing_output(part, at, change):
        return _called(model, given)


def named_module(model: object, at: str) -> nn.Module:
    """The module of this name; InputError that lists similar names where there is none."""
    if not isinstance(model, nn.Module):
        raise InputError(f"at={at!r} names a module, and the model is no nn.Module: leave at= out")
    modules: dict[str, nn.Module] = dict(model.named_modules())
    if at in modules and at:
        return modules[at]
    end = at.rpartition(".")[2]
    similar = [name for name in modules if end and end in name] or [name for name in modules if name]
    more = ", ..." if len(similar) > 6 else ""
    raise InputError(f"at={at!r} is no module of the model: there are {', '.join(similar[:6])}{more}")


def main_name(given: Mapping[str, Any]) -> str:
    """The name of the input that holds the tokens: that of `transformers` where there is one, else the first."""
    found = next((name for name in _MAIN_NAMES if name in given), None) or next(iter(given), None)
    if found is None:
        raise InputError("inputs is an empty mapping: give what the model is called with")
    return found


def main_input(given: Given) -> Tensor:
    """The tensor with the tokens, of all that a model is called with."""
    if isinstance(given, Mapping):
        found: Tensor = given[main_name(given)]
        return found
    return given[0] if isinstance(given, tuple) else given


def with_main(given: Given, change: Change) -> Given:
    """The same call with the tensor that holds the tokens changed."""
    if isinstance(given, Mapping):
        name = main_name(given)
        return {**given, name: change(given[name])}
    return (change(given[0]), *given[1:]) if isinstance(given, tuple) else change(given)


def _called(model: Callable[..., Any], given: Given) -> Any:
    if isinstance(given, Mapping):
        return model(**given)
    return model(*given) if isinstance(given, tuple) else model(given)


# ---------------------------------------------------------------- where tokens are


@dataclass(frozen=True)
class Layout:
    """Which numbers of an input belong to each token.

    ``places`` are indices into one input as a flat row; a token with fewer numbers than the largest repeats its last.
    """

    places: Int64[Tensor, "token width"]
    sizes: Int64[Tensor, " token"]
    shape: tuple[int, ...]  # of one input

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return len(self.places)

    @property
    def width(self) -> int:
        """Numbers of the largest token."""
        return self.places.shape[1]

    @cached_property
    def token_of(self) -> Int64[Tensor, " place"]:
        """The token that each place of an input belongs to, the input being a flat row."""
        found = torch.empty(math.prod(self.shape), dtype=torch.int64, device="cpu")
        found[self.places.T.flatten()] = torch.arange(self.tokens, device="cpu").repeat(self.width)
        return found

    @classmethod
    def of(cls, shape: Sequence[int], feature_mask: FeatureMask | None = None, what: str = "inputs") -> Layout:
        """The layout of inputs of this shape, without the axis of inputs; by default each position is a token.

        ``feature_mask`` has the number of the token, from 0, at each place of an input; `patches` makes one.
        """
        shape = tuple(shape)
        if math.prod(shape) == 0:
            raise InputError(f"{what} of shape {shape} hold no tokens")
        if feature_mask is None:
            if len(shape) not in (1, 2):
                raise InputError(
                    f"{what} of shape {shape} have no sequence of tokens [position] or [position, number]: say which "
                    "numbers make up a token, such as feature_mask=patches(4) for images"
                )
            tokens = shape[0]
            places = torch.arange(math.prod(shape), device="cpu").reshape(tokens, -1)
            return cls(places, torch.full((tokens,), places.shape[1], device="cpu"), shape)
        mask = _token_numbers(feature_mask, shape, what)
        tokens = int(mask.max()) + 1
        sizes = torch.bincount(mask, minlength=tokens)
        if bool((sizes == 0).any()):
            missing = int((sizes == 0).nonzero()[0])
            raise InputError(
                f"feature_mask has no place for token {missing} of 0 to {tokens - 1}: number them in order"
            )
        order, starts = torch.argsort(mask, stable=True), sizes.cumsum(0) - sizes
        steps = torch.arange(int(sizes.max()), device="cpu").expand(tokens, -1)
        return cls(order[starts[:, None] + torch.minimum(steps, sizes[:, None] - 1)], sizes, shape)

    def taken(self, values: Tensor, token: Int64[Tensor, " row"]) -> Tensor:
        """The numbers of one token of each row, [row, width]."""
        return values.flatten(1).gather(1, self.places.to(values.device)[token.to(values.device)])

    def added(self, values: Tensor, token: Int64[Tensor, " row"], noise: Tensor) -> Tensor:
        """A copy of the rows with ``noise`` [row, width] added to one token of each."""
        inside = torch.arange(self.width, device="cpu") < self.sizes[token.cpu()][:, None]
        step = torch.where(inside.to(noise.device), noise, 0).to(values)
        places = self.places.to(values.device)[token.to(values.device)]
        return values.flatten(1).scatter_add(1, places, step).view(values.shape)

    def replaced(self, values: Tensor, token: Int64[Tensor, " row"], new: Tensor) -> Tensor:
        """A copy of the rows with one token of each replaced by ``new`` [row, width]."""
        last = torch.minimum(torch.arange(self.width, device="cpu"), self.sizes[token.cpu()][:, None] - 1)
        step = new.to(values).gather(1, last.to(values.device))  # repeated places get one and the same number
        places = self.places.to(values.device)[token.to(values.device)]
        return values.flatten(1).scatter(1, places, step).view(values.shape)


@checked_arguments
def patches(size: int | tuple[int, int]) -> Callable[[tuple[int, ...]], Tensor]:
    """A feature mask of square patches: a function of the shape [..., row, column] of an image.

    Patches are numbered row by row, and a patch has all channels; ``size`` is a side, or height and width.

    >>> patches(2)((1, 2, 4))
    tensor([[[0, 0, 1, 1],
             [0, 0, 1, 1]]])
    """
    height, width = (size, size) if isinstance(size, int) else size
    check_count("size", height)
    check_count("size", width)

    def mask(shape: tuple[int, ...]) -> Tensor:
        if len(shape) < 2:
            raise InputError(f"patches are of images [channel, row, column], not of inputs of shape {tuple(shape)}")
        rows, columns = shape[-2:]
        if rows % height or columns % width:
            raise InputError(
                f"images of {rows} x {columns} pixels cannot be cut into patches of {height} x {width}: give a size "
                "that divides both"
            )
        down, across = torch.arange(rows, device="cpu") // height, torch.arange(columns, device="cpu") // width
        return (down[:, None] * (columns // width) + across).expand(tuple(shape))

    mask.__name__ = f"patches({height}, {width})"  # tells checkpoints of trainings apart
    return mask


def _token_numbers(feature_mask: FeatureMask, shape: tuple[int, ...], what: str) -> Int64[Tensor, " place"]:
    """The number of the token at each place of an input, as a flat row."""
    if callable(feature_mask):
        try:
            found: Any = feature_mask(shape)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"the function given as feature_mask= failed with {reason(error)}") from error
    else:
        found = feature_mask
    array = as_array(found, "feature_mask")
    if array.dtype.kind not in "iu":
        raise InputError(f"feature_mask must hold whole numbers, the token of each place, not {array.dtype}")
    mask = torch.from_numpy(array.astype(np.int64))
    if mask.ndim == len(shape) + 1 and bool((mask == mask[:1]).all()):  # captum's form, with an axis of inputs
        mask = mask[0]
    try:
        mask = mask.expand(shape)
    except RuntimeError:
        raise InputError(
            f"feature_mask of shape {tuple(mask.shape)} does not fit {what} of shape {shape}: give one mask for all"
        ) from None
    if int(mask.min()) < 0:
        raise InputError("feature_mask must number the tokens from 0: it has negative numbers")
    return mask.reshape(-1)


# ---------------------------------------------------------------- random numbers of each row


class RowStreams:
    """Random numbers for rows that are identified by whole numbers, such as (input, token, draw).

    Those of a row depend on the seed and on its numbers only: not on which other rows there are, nor on their order.

    >>> streams = RowStreams(0)
    >>> both = streams.normal(np.array([[0, 1, 0], [5, 2, 0]]), 3)
    >>> bool((streams.normal(np.array([[5, 2, 0]]), 3)[0] == both[1]).all())
    True
    """

    def __init__(self, seed: int) -> None:
        # A counter-based generator: the row is the upper part of the counter, so that streams never overlap.
        self._bits = np.random.Philox(key=seed)
        self._generator = np.random.Generator(self._bits)
        self._state: Any = self._bits.state

    def normal(self, rows: Int64[np.ndarray, "row 3"], width: int) -> Float32[np.ndarray, "row width"]:
        """So many standard normal numbers for each row."""
        found = np.empty((len(rows), width), np.float32)
        for row, out in zip(rows, found, strict=True):
            self._at(row).standard_normal(out=out, dtype=np.float32)
        return found

    def whole(self, rows: Int64[np.ndarray, "row 3"], below: int) -> Int64[np.ndarray, " row"]:
        """A uniform whole number from 0 to below - 1 for each row."""
        return np.array([self._at(row).integers(below) for row in rows], np.int64)

    def _at(self, row: Int64[np.ndarray, " 3"]) -> np.random.Generator:
        self._state["state"]["counter"][1:] = row[::-1]
        self._state["state"]["counter"][0] = 0
        self._state["buffer_pos"], self._state["has_uint32"] = 4, 0
        self._bits.state = self._state
        return self._generator


def noise_tensor(
    streams: RowStreams, rows: Int64[np.ndarray, "row 3"], width: int, std: float
) -> Float[Tensor, "row width"]:
    """Gaussian noise of this standard deviation for each row."""
    return torch.from_numpy(streams.normal(rows, width) * np.float32(std))
