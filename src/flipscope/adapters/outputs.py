"""How a model's outputs become a decision for each string.

"logit"          one number per string; the answer is 1 where it is greater than 0
"logits"         two or more numbers, one per class: the answer is the largest; of two, their difference is the logit
"probability"    one number per string; the answer is 1 where it is greater than 0.5
"probabilities"  like logits
"labels"         one whole number per string, which is the answer itself
a function       of the model's raw output, which returns one number per string, [string], or one per class
"auto"           by shape. One number is a probability where a sigmoid or softmax made it and a logit where a linear
                 layer did, as a trial call shows. Where it shows neither, numbers that are all between 0 and 1, or are
                 whole and of more than two values, are refused: they may mean either of two things
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
    Literal["auto", "logit", "logits", "probability", "probabilities", "labels"] | Callable[[Any], Tensor | np.ndarray]
)
NAMES = ("auto", "logit", "logits", "probability", "probabilities", "labels")

Maker: TypeAlias = Literal["probability", "logit"]

_TO_PROBABILITIES = {"sigmoid", "sigmoid_", "expit", "hardsigmoid", "softmax", "softmax_", "gumbel_softmax"}
_LINEAR = {"linear", "matmul", "__matmul__", "mm", "bmm", "mv", "addmm", "baddbmm", "einsum", "bilinear"}
_LINEAR |= {"conv1d", "conv2d", "conv3d"}
_SHIFTS = {"add", "sub", "__add__", "__radd__", "__sub__", "__rsub__", "rsub"}  # such as a bias, or a difference
_COPIES = {"to", "float", "double", "half", "type", "clone", "contiguous", "reshape", "flatten", "cpu", "detach"}


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
        native = np.float64 if found.dtype == np.longdouble else found.dtype.newbyteorder("=")
        found = torch.from_numpy(np.ascontiguousarray(found, native))
    plain = isinstance(found, Tensor) and found.layout is torch.strided and not found.is_quantized
    if not isinstance(found, Tensor) or not plain or found.is_complex():
        raise InputError(
            f"the model returned {type(output).__name__}, not logits [string] or [string, class]: {_offer(output)}"
        )
    if not found.is_floating_point():
        return in_float64(found)
    return found.float() if found.element_size() < 4 else found


def _offer(output: Any) -> str:
    """What to pass as output= for an output that is no tensor: where it holds one, the function that takes it out."""
    items = (
        output.items() if isinstance(output, dict) else enumerate(output) if isinstance(output, tuple | list) else ()
    )
    for key, value in items:
        if isinstance(value, Tensor | np.ndarray) and value.ndim:
            return f"say output=lambda out: out[{key!r}]"
    return "give a function of it that returns them as output="


def output_rows(output: Any, strings: int, source: str) -> Float[Tensor, "string ..."]:
    """The tensor of an output with at least one number per string; for a tuple, its first tensor."""
    if isinstance(output, tuple | list):
        output = next((part for part in output if isinstance(part, Tensor)), output)
    values = numbers(output)
    if values.ndim == 0 or len(values) != strings:
        raise InputError(not_per_string(tuple(values.shape), strings, source))
    return values if values.ndim > 1 else values[:, None]


def not_per_string(shape: tuple[int, ...], strings: int, source: str = "the model") -> str:
    """The message for an output whose first axis is not the string."""
    found = f"outputs of shape {shape}" if shape else "one number"
    return (
        f"{source} gives {found} for {strings} strings, and the first axis must be the strings: if it reads "
        "[position, string], say encoding=lambda bits: bits.T; if the answers are elsewhere in its output, give a "
        "function that returns them as output="
    )


def decision_values(found: Tensor, output: Output, strings: int, length: int | None) -> Tensor:
    """One number per string, [string], or one per class if there are three or more classes, [string, class].

    ``length`` is the length of the strings, if the numbers might also be one per position.
    """
    shape = tuple(found.shape)
    if not shape or len(found) != strings:
        raise InputError(not_per_string(shape, strings))
    if found.ndim > 2 or 0 in shape[1:]:
        single = all(size == 1 for size in shape[1:])
        flat = "say output=lambda out: out.flatten()" if single else "give a function that returns these as output="
        raise InputError(
            f"outputs of shape {shape} are not one per string, [string], nor one per class, [string, class]: {flat}"
        )
    columns = shape[1] if found.ndim == 2 else 1
    if output in ("logit", "probability", "labels") and columns > 1:
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
    """Records, during a trial call, the bytes of every tensor that PyTorch's functions return, and what made it.

    A tensor holds probabilities if a sigmoid or a softmax computed it, and a logit if a linear map did; so do its views
    and converted copies.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        # By storage, and kept alive, since the place of a freed storage may be used again.
        self._makers: dict[int | None, tuple[Maker, Tensor, int]] = {}

    def maker(self, output: Any) -> Maker | None:
        """What the tensor in a model's output holds, as far as that was seen."""
        found = getattr(output, "logits", output)
        if not isinstance(found, Tensor) or (place := _storage(found)) not in self._makers:
            return None
        maker, made, version = self._makers[place]
        return maker if _version(made) == version else None  # else it was changed in place

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        name = getattr(function, "__name__", "")
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.sizes.append(tensor.numel() * tensor.element_size())
                maker = self._made_by(name, args)
                if maker is not None and (place := _storage(tensor)) is not None:
                    self._makers[place] = maker, tensor, _version(tensor)
        return out

    def _made_by(self, name: str, args: tuple[Any, ...]) -> Maker | None:
        if name in _TO_PROBABILITIES:
            return "probability"
        if name in _LINEAR:
            return "logit"
        if name in _SHIFTS and any(self.maker(each) == "logit" for each in args):
            return "logit"
        return self.maker(args[0]) if name in _COPIES and args else None


def _version(tensor: Tensor) -> int:
    """A number that every change in place raises; 0 where PyTorch does not count them."""
    return 0 if tensor.is_inference() else tensor._version


def _storage(tensor: Tensor) -> int | None:
    """The address of the tensor's storage; None if it is unknown."""
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):
        return None
