"""How a model's outputs become a decision for each string.

"logit"          one number per string; the answer is 1 where it is greater than 0
"logits"         two or more numbers, one per class: the answer is the largest; of two, their difference is the logit
"probability"    one number per string; the answer is 1 where it is greater than 0.5
"probabilities"  like logits
a function       of the model's raw output, which returns one number per string, [string], or one per class
"auto"           by shape; one number is a probability where a sigmoid or softmax made it, which a trial call tells
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.overrides import TorchFunctionMode

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.models.devices import in_float64

Output: TypeAlias = (
    Literal["auto", "logit", "logits", "probability", "probabilities"] | Callable[[Any], Tensor | np.ndarray]
)
NAMES = ("auto", "logit", "logits", "probability", "probabilities")

_TO_PROBABILITIES = {"sigmoid", "sigmoid_", "expit", "hardsigmoid", "softmax", "softmax_", "gumbel_softmax"}
_COPIES = {"to", "float", "double", "half", "type", "clone", "contiguous", "reshape", "flatten", "cpu", "detach"}


class ProbabilityWarning(UserWarning):
    """Outputs that look like probabilities, although nothing in the model says that they are."""


@checked_arguments
def binary_logit(logits: Tensor) -> Float[Tensor, " string"]:
    """One number per string, positive for 1: the logit itself, or the second of two outputs minus the first."""
    if logits.ndim == 2 and logits.shape[1] == 2:
        return logits[:, 1] - logits[:, 0]
    if logits.ndim == 2 and logits.shape[1] == 1:
        return logits[:, 0]
    if logits.ndim != 1:
        shape = tuple(logits.shape)
        raise InputError(f"logits of shape {shape} are not one per string, [string], nor two, [string, 2]")
    return logits


def check_output(output: Any) -> Output:
    """Check an `output` argument; InputError if it is none of those above."""
    if callable(output) or (isinstance(output, str) and output in NAMES):
        found: Output = output
        return found
    raise InputError(f"output={output!r} is not one of {', '.join(NAMES)}, nor a function of the model's output")


def numbers(output: Any) -> Tensor:
    """A model's output as a floating-point tensor; for an object with ``logits``, these."""
    found = getattr(output, "logits", output)
    if isinstance(found, np.ndarray) and found.dtype.kind in "biuf":
        found = torch.from_numpy(np.ascontiguousarray(found))
    if not isinstance(found, Tensor) or found.is_complex():
        raise InputError(
            f"the model returned {type(output).__name__}, not logits [string] or [string, class]: give a function of "
            "it that returns them as output="
        )
    if not found.is_floating_point():
        return in_float64(found)
    return found.float() if found.dtype in (torch.float16, torch.bfloat16) else found


def output_rows(output: Any, strings: int, source: str) -> Float[Tensor, "string ..."]:
    """The tensor of an output with at least one number per string; for a tuple, its first tensor."""
    if isinstance(output, tuple | list):
        output = next((part for part in output if isinstance(part, Tensor)), output)
    values = numbers(output)
    if values.ndim == 0 or len(values) != strings:
        raise InputError(
            f"{source} gives numbers of shape {tuple(values.shape)} for {strings} strings: its first axis must be these"
        )
    return values if values.ndim > 1 else values[:, None]


def decision_values(found: Tensor, output: Output, strings: int, length: int | None) -> Tensor:
    """One number per string, [string], or one per class if there are three or more classes, [string, class].

    ``length`` is the length of the strings, if the numbers might also be one per position.
    """
    shape = tuple(found.shape)
    if found.ndim == 0 or found.ndim > 2 or 0 in shape[1:]:
        raise InputError(
            f"outputs of shape {shape} are not one per string, [string], nor one per class, [string, class]: give a "
            "function that returns these as output="
        )
    if len(found) != strings:
        raise InputError(f"the model gave {len(found)} logits for {strings} strings: give one per string")
    columns = shape[1] if found.ndim == 2 else 1
    if output in ("logit", "probability") and columns > 1:
        raise InputError(f"output={output!r} is one number per string, but the model gives {columns}")
    if output in ("logits", "probabilities") and columns == 1:
        raise InputError(f"output={output!r} is two numbers per string or more, but the model gives one")
    if columns < 3:
        return binary_logit(found)
    if output == "auto" and columns == length:
        raise InputError(
            f"the model gives {columns} numbers for a string of {length} bits, one per class or one per position: say "
            "output='logits' if they are classes, else give a function of the output"
        )
    return found


class OutputWatch(TorchFunctionMode):
    """Records, during a trial call, the bytes of every tensor that PyTorch's functions return, and probabilities.

    A tensor holds probabilities if it was computed by a sigmoid or a softmax; so do its views and converted copies.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self._probabilities: dict[int | None, Tensor] = {}  # by storage; kept alive, as freed storage may be reused

    def is_probability(self, output: Any) -> bool:
        """Whether the tensor in a model's output holds probabilities."""
        found = getattr(output, "logits", output)
        return isinstance(found, Tensor) and _storage(found) in self._probabilities

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        name = getattr(function, "__name__", "")
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.sizes.append(tensor.numel() * tensor.element_size())
                if name in _TO_PROBABILITIES or (name in _COPIES and args and self.is_probability(args[0])):
                    if (place := _storage(tensor)) is not None:
                        self._probabilities[place] = tensor
                elif name.endswith("_") and not name.endswith("__"):  # changed in place
                    self._probabilities.pop(_storage(tensor), None)
        return out


def _storage(tensor: Tensor) -> int | None:
    """The address of the tensor's storage; None if it is unknown."""
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):
        return None
