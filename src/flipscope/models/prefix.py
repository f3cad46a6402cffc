"""Causal language models of `transformers` with a prefix that is kept: a change costs only what follows it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor


class KeptPrefix:
    """Keys and values of some inputs, from which the model can go on at any position.

    ``usable`` is False for models whose cache is of another kind; these are run from the first token on.
    """

    def __init__(self, model: Callable[..., Any], given: Mapping[str, Tensor]) -> None:
        self._model = model
        length = given["input_ids"].shape[1]
        cache = getattr(model(**given, use_cache=True), "past_key_values", None)
        layers = getattr(cache, "layers", None) if type(cache).__name__ == "DynamicCache" else None
        self._layers: list[tuple[Tensor, Tensor]] = [
            (layer.keys, layer.values) for layer in layers or () if isinstance(getattr(layer, "keys", None), Tensor)
        ]
        self.usable = bool(self._layers) and all(
            keys.ndim == 4 and keys.shape[2] == length
            for keys, _ in self._layers  # no sliding window
        )

    def run(self, rows: Int64[Tensor, " row"], given: Mapping[str, Tensor], start: int) -> Any:
        """The model's output from position ``start`` on, for inputs that equal those kept (by number) before it."""
        cache = importlib.import_module("transformers").DynamicCache()
        for number, (keys, values) in enumerate(self._layers):
            cache.update(keys[rows, :, :start], values[rows, :, :start], number)
        mask = given.get("attention_mask")
        return self._model(
            input_ids=given["input_ids"][:, start:],
            attention_mask=torch.ones_like(given["input_ids"]) if mask is None else mask,
            past_key_values=cache,
            use_cache=True,
        )
