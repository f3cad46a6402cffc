"""The fast path: the logits of a string and of all its flips for flipscope's transformer, simplified algebraically.

One string and its N flips share almost everything. The first layer comes from tables (first_layer), the middle layers
are computed only at tokens that the flip changes (deltas), the last layer only where it is read (last_layer). Without
``deltas`` every token is computed, and the logits are those of the plain forward pass up to rounding. Narrow models
have compiled loops (lanes), in which computing every token takes no longer than finding the changed ones.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor, nn

from flipscope.basics.errors import InputError
from flipscope.flips.choice import NEEDS, Work, has_loops, obstacle
from flipscope.flips.deltas import Pairs, dense_layer, sparse_layer, sparse_pays
from flipscope.flips.first_layer import FirstLayer, Tables, make_tables
from flipscope.flips.last_layer import LastLayer
from flipscope.flips.onednn import with_onednn
from flipscope.flips.screen import first_order_changes
from flipscope.models.transformer import Block, Transformer

if TYPE_CHECKING:  # numba is loaded only for models that have loops
    from flipscope.flips.lanes import Lanes

CHUNK_NUMBERS = 600_000  # hidden units of an MLP computed together: as many as stay in the cache
LANES_NUMBERS = 1 << 20  # entries of the token states of strings computed together in lanes
TOLERANCE = 2.0**-24  # an attention weight below half a unit in the last place of float32 changes no sum
BLOCK_SECONDS, FEWEST_STRINGS, MOST_STRINGS = 0.3, 4, 256  # of a block of strings, with all their flips


class FastEngine:
    """Logits of strings and of all their one-bit flips, by tables, deltas and an absorbed last layer.

    Threads that share an engine wait for each other, since it has one set of buffers.
    """

    path = "fast"
    why = "the model is flipscope's own transformer"

    def __init__(
        self,
        model: Transformer,
        *,
        dtype: torch.dtype = torch.float32,
        deltas: bool = True,
        tolerance: float = TOLERANCE,
    ) -> None:
        if (found := obstacle(model)) is not None:
            raise InputError(f"the fast path needs {NEEDS}, but {found}: take the general path")
        self.model = _copied(model, dtype).eval()  # since the caller may continue training
        self.deltas = deltas
        self.tolerance = tolerance if deltas else 0.0
        self.length: int | None = None
        self._tables: Tables | None = None
        self._lanes: Lanes | None = None
        self._lock = threading.Lock()
        if has_loops(model.config, dtype):
            from flipscope.flips.lanes import Lanes

            with torch.inference_mode():
                self._lanes = Lanes(self.model)
        elif dtype == torch.float32:
            with_onednn(self.model)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    @torch.inference_mode()
    def logits(self, strings: NDArray[np.uint8]) -> NDArray[np.floating]:
        """The model's logit for each string, with every token computed."""
        bits = torch.from_numpy(np.ascontiguousarray(strings, np.uint8))
        chunk = self._chunk(bits.shape[1])
        if self._lanes is not None:
            chunk = max(chunk, LANES_NUMBERS // (bits.shape[1] * self.model.config.width))
        with self._lock:
            parts = [self._plain(some) for some in bits.split(chunk)]
        found: NDArray[np.floating] = torch.cat(parts).numpy()
        return found

    def _plain(self, bits: Tensor) -> Float[Tensor, " string"]:
        states = self.model.embed(bits)
        if self._lanes is not None:
            return self._head(self._lanes.plain(states, self._read(states.shape[1])))
        for number in range(self.model.config.layers - 1):
            states = dense_layer(self._block(number), states)
        return self._head(LastLayer(self._block(-1), self._read(states.shape[1])).dense(states))

    def _read(self, tokens: int) -> int:
        """The position that is read."""
        return 0 if self.model.config.readout == "first" else tokens - 1

    @property
    def first_order(self) -> Callable[[NDArray[np.uint8]], NDArray[np.floating]]:
        """First-order estimates of the changes by all flips, [string, position]."""
        return lambda strings: first_order_changes(self.model, strings)

    def check_deterministic(self, strings: NDArray[np.uint8]) -> None:
        """Nothing to check: the model's computation is known."""

    def strings_at_once(self, length: int) -> int:
        """As many as take a moment: each block is compared with float64, which costs little once for many strings."""
        one = Work(1, length).seconds(self.model.config)
        return int(min(MOST_STRINGS, max(FEWEST_STRINGS, BLOCK_SECONDS / one)))

    @torch.inference_mode()
    def flip_logits(self, strings: NDArray[np.uint8]) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Logits of the strings [m] and of all their flips [m, N]."""
        bits = torch.from_numpy(np.ascontiguousarray(strings, np.uint8)).long()
        with self._lock:
            if self.length != bits.shape[1]:
                self._prepare(bits.shape[1])
            pairs = [self._one_string(string) for string in bits]
        return torch.cat([base for base, _ in pairs]).numpy(), torch.stack([flipped for _, flipped in pairs]).numpy()

    def _prepare(self, length: int) -> None:
        self._tables, self.length = make_tables(self.model, length), length
        if self._lanes is not None:
            self._lanes.prepare(self._tables)

    def _one_string(self, string: Tensor) -> tuple[Float[Tensor, " one"], Float[Tensor, " flip"]]:
        assert self._tables is not None
        if self._lanes is not None:
            return self._by_lanes(self._lanes, string)
        first = FirstLayer(self._block(0), self._tables, string)
        read = self._read(first.tokens)
        flips = torch.arange(len(string), device="cpu")
        if self.model.config.layers == 1:
            return self.model(string[None]), self._head(first.finish(flips, torch.full_like(flips, read)))
        changed = first.changed(flips, self.tolerance) if self.deltas else None  # [flip, token]
        last = LastLayer(self._block(-1), read)
        base = self._base_states(first)
        chunk = self._chunk(first.tokens)
        if changed is not None and sparse_pays(changed, self.model.config.width):
            chunk = min(128, int(chunk / float(changed.float().mean())))  # few tokens per flip: more flips together
        logits = [
            self._flips(first, part, None if changed is None else changed[part], base, last)
            for part in flips.split(chunk)
        ]
        return self._head(last.dense(base[-1][None])), torch.cat(logits)

    def _by_lanes(self, loops: Lanes, string: Tensor) -> tuple[Float[Tensor, " one"], Float[Tensor, " flip"]]:
        tokens = len(string) + (self.model.config.marker != "none")
        logits = self._head(loops.flips(string, self._read(tokens)))
        return logits[-1:], logits[:-1]

    def _base_states(self, first: FirstLayer) -> list[Float[Tensor, "token width"]]:
        """The states of the string itself after each layer but the last."""
        x = first.vector[None]
        states = []
        for number in range(self.model.config.layers - 1):
            x = self._block(number)(x)
            states.append(x[0])
        return states

    def _flips(
        self,
        first: FirstLayer,
        flips: Tensor,
        changed: Bool[Tensor, "flip token"] | None,
        base: list[Tensor],
        last: LastLayer,
    ) -> Float[Tensor, " flip"]:
        """Logits of a chunk of flips, computing only the ``changed`` tokens, or all of them."""
        states: Pairs | Tensor
        if changed is not None and sparse_pays(changed, self.model.config.width):
            flip, token = changed.nonzero(as_tuple=True)
            states = Pairs(len(flips), flip, token, first.finish(flips[flip], token))
        else:
            states = first.everything(flips)
        for number, before in enumerate(base[:-1], start=1):
            block = self._block(number)
            fewer = sparse_layer(block, states, before, self.tolerance) if isinstance(states, Pairs) else None
            every = states.spread(before) if isinstance(states, Pairs) else states
            states = dense_layer(block, every) if fewer is None else fewer
        rows = last.sparse(base[-1], states) if isinstance(states, Pairs) else last.dense(states)
        return self._head(rows)

    def _head(self, rows: Float[Tensor, "flip width"]) -> Float[Tensor, " flip"]:
        return self.model.read(rows[:, None])  # one row is both the first and the last

    def _block(self, number: int) -> Block:
        block = self.model.blocks[number]
        assert isinstance(block, Block)
        return block

    def _chunk(self, tokens: int) -> int:
        """Strings computed together: enough for full matrix products, few enough for the cache."""
        return int(min(128, max(8, CHUNK_NUMBERS // (tokens * self.model.config.hidden_width))))


def _copied(model: Transformer, dtype: torch.dtype) -> Transformer:
    """A copy in this number type that shares no numbers; `copy.deepcopy` takes several times as long."""
    kept: dict[int, nn.Parameter] = {}

    def tensor(parameter: nn.Parameter) -> nn.Parameter:
        if id(parameter) not in kept:
            numbers = parameter.detach().to(dtype, copy=True).contiguous()
            kept[id(parameter)] = nn.Parameter(numbers, requires_grad=False)
        return kept[id(parameter)]

    def module(given: nn.Module) -> nn.Module:
        found = copy.copy(given)
        found._parameters = {name: p if p is None else tensor(p) for name, p in given._parameters.items()}
        found._modules = {name: m if m is None else module(m) for name, m in given._modules.items()}
        return found

    found = module(model)
    assert isinstance(found, Transformer)
    return found
