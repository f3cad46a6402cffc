"""Data as a model's input: what it is called with, for measurements that look at its parameters or at its inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from flipscope.adapters.encoding import looks_up
from flipscope.adapters.outputs import output_rows
from flipscope.adapters.settled import Settled, number_type
from flipscope.basics.bits import as_array, check_strings
from flipscope.basics.checks import shown
from flipscope.basics.errors import InputError, blamed_on
from flipscope.models.devices import moved

# The input of a model: one array, several, or keywords such as input_ids and attention_mask; the first axis of each is
# the string.
Inputs: TypeAlias = Tensor | np.ndarray | tuple[Tensor | np.ndarray, ...] | Mapping[str, Any]

_TRIED = 16  # strings of a trial call


@dataclass(frozen=True)
class Given:
    """The input of a model for some strings: arguments, or keywords.

    With ``encode`` the only argument are strings of bits, of which it makes the model's input: batch by batch, since
    the axis of strings may be another afterwards.
    """

    positional: tuple[Tensor, ...]
    keywords: Mapping[str, Tensor] = field(default_factory=dict)
    encode: Callable[[Tensor], Given] | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors."""
        return *self.positional, *self.keywords.values()

    @property
    def strings(self) -> int:
        """Number of strings."""
        return len(self.tensors[0])

    def rows(self, start: int, stop: int) -> Given:
        """The part for the strings from start to stop."""
        return self.mapped(lambda tensor: tensor[start:stop])

    def mapped(self, function: Callable[[Tensor], Tensor]) -> Given:
        """The input with a function applied to every tensor."""
        changed = {name: function(each) for name, each in self.keywords.items()}
        return replace(self, positional=tuple(map(function, self.positional)), keywords=changed)

    def ready(self) -> Given:
        """What the model is called with, of which no part is taken any more."""
        return self if self.encode is None else self.encode(self.positional[0])

    def to(self, forward: Callable[..., Any]) -> Any:
        """Call a function with this input."""
        given = self.ready()
        return forward(*given.positional, **given.keywords)


def given_for(settled: Settled, data: Inputs, converts: bool = True) -> Given:
    """The model's input for the data, on its device.

    With an encoding, the data are strings of bits. Without one they are passed unchanged, with a mapping for keywords;
    integers are converted to floats of the module's type if it has no embedding and a trial call accepts these, unless
    ``converts`` is False.
    """
    module = settled.module
    if not settled.subject.takes_data_as_they_are:
        if isinstance(data, tuple | Mapping):
            raise InputError("an encoding is of one array of strings of bits: leave it out for other data")
        return Given((torch.from_numpy(check_strings(data)),), encode=lambda bits: _encoded(settled, bits))
    if isinstance(data, Mapping):
        given = Given((), dict(zip(data, _tensors(tuple(data.values()), settled.device), strict=True)))
    else:
        given = Given(_tensors(data if isinstance(data, tuple) else (data,), settled.device))
    if module is None:
        return given
    if looks_up(module):
        return given.mapped(lambda tensor: tensor.long() if tensor.dtype in _SMALL else tensor)
    if not converts:
        return given
    floats = given.mapped(lambda tensor: _as_floats(settled, tensor))
    whole = not all(each.is_floating_point() for each in given.tensors)
    return given if whole and not _runs(settled, floats.rows(0, 1)) else floats


_SMALL = (torch.uint8, torch.int8, torch.int16)  # as indices, PyTorch takes larger integers only


def check_string_axis(
    settled: Settled, given: Given, forward: Callable[..., Any], *, tensors_only: bool = False
) -> None:
    """Raise InputError unless there are as many outputs as strings, by a call with a number that no other axis has.

    ``tensors_only`` leaves outputs of other types alone, which matter less where the inside of a model is measured.
    """
    sizes = {size for tensor in given.tensors for size in tensor.shape[1:]}
    count = next((count for count in range(min(given.strings, _TRIED), 0, -1) if count not in sizes), 1)
    few = given.rows(0, count)
    with torch.no_grad(), blamed_on("the model"):
        found = settled.chosen_part(few.to(forward))
        if isinstance(found, Tensor) or not tensors_only:
            output_rows(found, count, "the model")


def _encoded(settled: Settled, bits: Tensor) -> Given:
    found = settled.encode(bits.numpy())
    named = dict(found) if isinstance(found, Mapping) else {}
    parts = () if named else found if isinstance(found, tuple) else (found,)
    if any(not isinstance(each, Tensor) for each in (*parts, *named.values())):
        raise InputError("encoding must return a tensor, a tuple of tensors or a dict of tensors")
    return Given(parts, named).mapped(settled.cast)


def _runs(settled: Settled, given: Given) -> bool:
    """Whether the model takes this input."""
    try:
        with settled.measuring():
            given.to(settled.model)
    except Exception:
        return False
    return True


def _as_floats(settled: Settled, tensor: Tensor) -> Tensor:
    """Numbers in the type in which the module computes."""
    assert settled.module is not None
    types = {each.dtype for each in settled.module.parameters()}
    # If the model has one type, it reads that type: numpy's float64 is rarely intended.
    wanted = number_type(settled.module) or torch.float32
    return tensor.to(wanted) if len(types) == 1 or not tensor.is_floating_point() else tensor


def _tensors(parts: tuple[Any, ...], device: torch.device) -> tuple[Tensor, ...]:
    """The arrays as tensors on the device."""
    found = []
    for part in parts:
        if not isinstance(part, Tensor | np.ndarray):
            raise InputError(f"inputs must be a torch tensor or a numpy array, not {type(part).__name__}")
        if part.ndim < 1 or len(part) == 0:
            raise InputError(f"inputs of shape {tuple(part.shape)} hold no string: give one or more")
        if isinstance(part, Tensor) and (part.layout is not torch.strided or part.is_quantized or part.is_meta):
            raise InputError(f"inputs={shown(part)} must be a dense tensor that holds its numbers")
        if isinstance(part, np.ndarray):
            if part.dtype.kind not in "biuf":
                raise InputError(f"inputs of type {part.dtype} must be numbers")
            # A copy, since torch warns about read-only arrays.
            part = torch.from_numpy(np.array(as_array(part, "inputs"), order="C"))
        own = moved(part.detach(), device)
        # A copy, since the model may write to its input, and since inference tensors have no derivatives.
        found.append(own.clone() if own is part or own.data_ptr() == part.data_ptr() else own)
    if len({len(part) for part in found}) != 1:
        raise InputError(f"inputs hold {' and '.join(str(len(part)) for part in found)} strings: give as many of each")
    return tuple(found)
