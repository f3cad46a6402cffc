"""Activations of any module: one way to see what goes into its parts, and what comes out, while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

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
def _unfused() -> Iterator[None]:
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
