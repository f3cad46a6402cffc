"""Runs a module's `reset_parameters` with random numbers from streams named after the parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from flipscope.basics.errors import InputError

_ATEN = torch.ops.aten
_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_CONSTANTS = (_ATEN.zero_.default, _ATEN.fill_.Scalar, _ATEN.fill_.Tensor)


def reset_method(module: nn.Module) -> Callable[[], object] | None:
    """The method that initialises the module's parameters, if it has one; that of attention is private."""
    method = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
    if not callable(method):
        return None
    needed = [p for p in inspect.signature(method).parameters.values() if p.default is p.empty and p.kind not in _ANY]
    return None if needed else method  # required arguments are unknown here


class SeededReset(TorchDispatchMode):
    """Runs methods that fill a model's parameters, and supplies the random numbers that they request from PyTorch.

    It intercepts the two operations that PyTorch's modules use: in-place uniform and normal numbers. Any other random
    operation is rejected, so PyTorch's global generator is never used.
    """

    def __init__(self, model: nn.Module, stream: Callable[[str], np.random.Generator]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch's has no types
        self._tensors: dict[str, Tensor] = {**dict(model.named_buffers()), **dict(model.named_parameters())}
        self._stream = stream
        self._streams: dict[str, np.random.Generator] = {}
        self._path = ""
        self.filled: set[str] = set()  # names of tensors that were written
        self.drawn: set[str] = set()  # names of tensors that contain random numbers

    def run(self, path: str, reset: Callable[[], object]) -> None:
        """Run this method of the module at this path."""
        self._path = path
        with self:
            reset()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise PyTorch loads its compiler, which takes seconds

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in (_ATEN.uniform_.default, _ATEN.normal_.default):
            numbers = [*args[1:], *(0.0, 1.0)[len(args) - 1 :]]  # PyTorch omits default arguments
            return self._draw(args[0], "uniform" if func is _ATEN.uniform_.default else "normal", *numbers)
        if torch.Tag.nondeterministic_seeded in func.tags:
            self._refuse()
        for tensor in _written(func, args, kwargs or {}):
            if name := self._name(tensor):
                self.filled.add(name)
                if func in _CONSTANTS and tensor.numel() == self._tensors[name].numel():
                    self.drawn.discard(name)
        return func(*args, **(kwargs or {}))

    def _draw(self, tensor: Tensor, law: str, first: float, second: float) -> Tensor:
        """Fill the tensor, a parameter or a part of one, with uniform or normal numbers of the parameter's stream."""
        if not tensor.numel():
            return tensor
        name = self._name(tensor)
        if name is None:
            self._refuse()
        if tensor.numel() == self._tensors[name].numel() or name not in self._streams:
            self._streams[name] = self._stream(name)  # anew, unless the parameter is filled part by part
        stream = self._streams[name]
        values = (stream.uniform if law == "uniform" else stream.normal)(first, second, tensor.numel())
        self.filled.add(name)
        self.drawn.add(name)
        return tensor.copy_(torch.from_numpy(values).view(tensor.shape))

    def _name(self, tensor: Tensor) -> str | None:
        """The name of the parameter or buffer in whose memory the tensor lies."""
        place = tensor.data_ptr()
        for name, whole in self._tensors.items():
            if whole.data_ptr() <= place < whole.data_ptr() + whole.numel() * whole.element_size():
                return name
        return None

    def _refuse(self) -> NoReturn:
        raise InputError(
            f"the module {self._path or 'itself'} draws random numbers in a way that scheme='pytorch' cannot repeat "
            "(it knows uniform and normal ones, drawn into a parameter): take another scheme"
        )


def _written(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    """The tensors that an operation writes to."""
    for place, argument in enumerate(func._schema.arguments):
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, Tensor):
            yield value
