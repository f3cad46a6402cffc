"""Models that read from left to right, with a prefix that is kept: a change costs only what follows it.

`KeptPrefix` keeps the keys and values of a causal language model of `transformers`, `KeptStates` the states of a
recurrent layer, `nn.LSTM`, `nn.GRU` or `nn.RNN`, inside any model, `KeptBlocks` the layers of a causal `Transformer`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from flipscope.models.transformer import Transformer


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


def recurrent_layer(model: object) -> nn.RNNBase | None:
    """The recurrent layer of a model, if it has exactly one and that reads from left to right."""
    if not isinstance(model, nn.Module):
        return None
    found = [each for each in model.modules() if isinstance(each, nn.RNNBase)]
    return found[0] if len(found) == 1 and not found[0].bidirectional else None


class KeptStates:
    """The states of a recurrent layer after every position of some inputs, from which it can go on at any of them.

    ``usable`` is False where the layer is not called exactly once, with a batch of sequences of one length and no state
    of its own; such models are run from the first position on.
    """

    def __init__(self, layer: nn.RNNBase, run: Callable[[], Any]) -> None:
        self._layer, self._places = layer, 1 if layer.batch_first else 0
        calls: list[tuple[Any, ...]] = []
        handle = layer.register_forward_pre_hook(lambda _, given: calls.append(given))
        try:
            run()
        finally:
            handle.remove()
        inputs = calls[0][0] if len(calls) == 1 and len(calls[0]) == 1 else None
        self.usable = isinstance(inputs, Tensor) and inputs.ndim == 3
        if isinstance(inputs, Tensor) and self.usable:
            self._keep(inputs)

    def _keep(self, inputs: Tensor) -> None:
        """Run the layer position by position."""
        self._inputs = inputs
        outputs, states, state = [], [], None
        for one in inputs.split(1, dim=self._places):
            output, state = self._layer(one, state)
            outputs.append(output)
            states.append(state)
        self._outputs, self._states = torch.cat(outputs, dim=self._places), states

    @contextmanager
    def starting(self, rows: Int64[Tensor, " row"], start: int) -> Iterator[None]:
        """Within this context, the layer starts at position ``start``, for inputs that equal those kept before it.

        ``rows`` are the numbers of the kept inputs. Where a change reaches the layer at an earlier position, through
        something that mixes positions, it runs from the first one on.
        """
        layer, whole, across = self._layer, self._layer.forward, 1 - self._places

        def forward(inputs: Any, *state: Any, **named: Any) -> Any:
            if state or named or not isinstance(inputs, Tensor) or not 0 < start < inputs.shape[self._places]:
                return whole(inputs, *state, **named)
            before = self._inputs.index_select(across, rows).narrow(self._places, 0, start)
            if not torch.equal(inputs.narrow(self._places, 0, start), before):
                return whole(inputs)
            kept = self._states[start - 1]
            chosen = tuple(each[:, rows] for each in kept) if isinstance(kept, tuple) else kept[:, rows]
            rest = inputs.narrow(self._places, start, inputs.shape[self._places] - start)
            found, last = whole(rest, chosen)
            earlier = self._outputs.index_select(across, rows).narrow(self._places, 0, start)
            return torch.cat([earlier, found], dim=self._places), last

        with _replaced_forward(layer, forward):
            yield


def causal_transformer(model: object) -> Transformer | None:
    """The model, if it is a `Transformer` in which no position sees a later one."""
    return model if type(model) is Transformer and model.config.causal else None


class KeptBlocks:
    """What every layer of a causal `Transformer` gives for some inputs, to be computed again only from a position on.

    Keys and values of earlier positions are computed from the kept outputs of the layer below: a sixth of a layer's
    work, which a second way through attention would save.
    """

    usable = True

    def __init__(self, model: Transformer, run: Callable[[], Any]) -> None:
        self._model, self._outputs = model, list[Tensor]()
        self._inputs = torch.empty(0)
        with ExitStack() as replaced:
            for block in model.blocks:
                replaced.enter_context(_replaced_forward(block, functools.partial(self._record, block.forward)))
            run()

    def _record(self, whole: Callable[..., Tensor], x: Tensor, rows: Any, keep: Tensor | None) -> Tensor:
        if not self._outputs:
            self._inputs = x
        self._outputs.append(whole(x, None, keep))
        return self._outputs[-1] if rows is None else self._outputs[-1][:, rows]

    @contextmanager
    def starting(self, rows: Int64[Tensor, " row"], start: int) -> Iterator[None]:
        """Within this context, layers compute the positions from ``start`` on, for inputs that equal those before it.

        ``rows`` are the numbers of the kept inputs. Where a change reaches the first layer at an earlier position, all
        layers compute every position.
        """
        starts = start

        def forward(number: int, whole: Callable[..., Tensor], x: Tensor, some: Any, keep: Tensor | None) -> Tensor:
            nonlocal starts
            if number == 0 and not torch.equal(x[:, :start], self._inputs[rows, :start]):
                starts = 0
            if some is not None or not 0 < starts < x.shape[1]:  # the last layer, where only one position is read
                return whole(x, some, keep)
            rest = whole(x, slice(starts, None), keep)
            return torch.cat([self._outputs[number][rows, :starts], rest], dim=1)

        with ExitStack() as replaced:
            for number, block in enumerate(self._model.blocks):
                replaced.enter_context(_replaced_forward(block, functools.partial(forward, number, block.forward)))
            yield


@contextmanager
def _replaced_forward(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Call this function for the module's forward, within this context."""
    earlier = module.__dict__.get("forward")  # normally the class's own
    module.__dict__["forward"] = forward
    try:
        yield
    finally:
        if earlier is None:
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = earlier
