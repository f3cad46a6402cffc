"""Activations of any module: see what goes into its parts and what comes out while it runs, or change an output."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from flipscope.basics.errors import InputError

Seen: TypeAlias = Callable[[str, nn.Module, Any], None]  # called with the part's name, the part, and what was seen


@contextlib.contextmanager
def watching(
    parts: Mapping[str, nn.Module], *, inputs: Seen | None = None, outputs: Seen | None = None
) -> Iterator[None]:
    """While it lasts, ``inputs`` sees the first tensor that each call of a part is given, ``outputs`` what it returns.

    PyTorch's encoder layers go step by step meanwhile: fused they call none of their parts.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_unfused())
        for name, part in parts.items():
            if inputs is not None:
                stack.enter_context(part.register_forward_pre_hook(_given(name, inputs), with_kwargs=True))
            if outputs is not None:
                stack.enter_context(part.register_forward_hook(_returned(name, outputs)))
        yield


def _given(name: str, seen: Seen) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
    def hook(part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen(name, part, next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)))

    return hook


def _returned(name: str, seen: Seen) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
    def hook(part: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        seen(name, part, output)

    return hook


@contextlib.contextmanager
def changing_output(part: nn.Module, name: str, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """During one call of the model, the part's output is replaced by what ``change`` makes of it.

    Of a tuple, a list or a mapping only the first tensor is changed. InputError if the part is not called just once.
    """
    calls = 0

    def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        nonlocal calls
        calls += 1
        return with_first_tensor(output, change, name) if calls == 1 else output

    with _unfused(), part.register_forward_hook(hook):
        yield
    if calls != 1:
        times = "is not called" if not calls else f"is called {calls} times"
        raise InputError(f"the module {name!r} {times} when the model runs, not once: name another")


def with_first_tensor(output: Any, change: Callable[[Tensor], Tensor], name: str) -> Any:
    """The output with its first tensor changed; what else a tuple, a list or a mapping holds stays."""
    if isinstance(output, Tensor):
        return change(output)
    items: dict[Any, Any] = {}
    if isinstance(output, Mapping):
        items = dict(output)
    elif isinstance(output, tuple | list):
        items = dict(enumerate(output))
    for key, value in items.items():
        if isinstance(value, Tensor):
            changed = items | {key: change(value)}
            if isinstance(output, Mapping):
                return changed if type(output) is dict else type(output)(**changed)
            return _sequence_like(output, changed.values())
    raise InputError(f"the module {name!r} returns a {type(output).__name__} without a tensor: name another")


def _sequence_like(output: Any, values: Iterable[Any]) -> Any:
    """The values as a sequence of the same type, named tuples included."""
    return type(output)(*values) if hasattr(output, "_fields") else type(output)(values)


@contextlib.contextmanager
def _unfused() -> Iterator[None]:
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
