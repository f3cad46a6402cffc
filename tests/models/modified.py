"""Transformers that compute something else than their configuration says, each changed in one way."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune

from flipscope.models.transformer import MLP, Attention, Block, LayerNorm, Transformer

Change = Callable[[Transformer, ExitStack], Transformer | None]  # in place, or what takes the model's place


class Turned(Transformer):
    def forward(self, inputs: Tensor, keep: Tensor | None = None) -> Tensor:
        return -super().forward(inputs.flip(1), keep)


class Deaf(Transformer):
    """Changed in a step that its forward calls."""

    def read(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        return super().read(x.flip(-1), keep)


class Rolled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight.roll(1, 0)


class Bent(MLP):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).sin()


def _mlp(model: Transformer) -> MLP:
    block = model.blocks[0]
    assert isinstance(block, Block)
    assert block.mlp is not None
    return block.mlp


def _attention(model: Transformer) -> Attention:
    block = model.blocks[1]
    assert isinstance(block, Block)
    return block.attention


def _as_class(kind: type[Transformer]) -> Change:
    def change(model: Transformer, _: ExitStack) -> Transformer:
        other = kind(model.config)
        other.load_state_dict(model.state_dict())
        return other

    return change


def _set(object_: Any, name: str, value: Any, undo: ExitStack) -> None:
    undo.callback(setattr, object_, name, getattr(object_, name))
    setattr(object_, name, value)


def _forward_hook(model: Transformer, _: ExitStack) -> None:
    model.blocks[0].register_forward_hook(lambda _module, _args, out: out.flip(-1))


def _hook_with_keywords(model: Transformer, _: ExitStack) -> None:
    model.head.register_forward_hook(lambda _m, _a, _k, out: out.neg().exp() - 1, with_kwargs=True, always_call=True)


def _pre_hook(model: Transformer, _: ExitStack) -> None:
    model.register_forward_pre_hook(lambda _module, args: (args[0].flip(1),))


def _global_hook(model: Transformer, undo: ExitStack) -> None:
    def bend(module: nn.Module, _args: Any, out: Any) -> Any:
        return out.flip(-1) if isinstance(module, MLP) else None

    undo.enter_context(nn.modules.module.register_module_forward_hook(bend))


def _own_forward(model: Transformer, _: ExitStack) -> None:
    plain = model.forward
    model.forward = lambda inputs, keep=None: plain(inputs.flip(1), keep)  # type: ignore[method-assign]


def _own_scores(model: Transformer, _: ExitStack) -> None:
    attention = _attention(model)
    plain = attention.scores
    attention.scores = lambda query, key: -plain(query, key)  # type: ignore[method-assign]


def _parametrised(model: Transformer, _: ExitStack) -> None:
    parametrize.register_parametrization(_mlp(model).up, "weight", Rolled())


def _weight_norm(model: Transformer, _: ExitStack) -> None:
    parametrizations.weight_norm(_mlp(model).down)
    with torch.no_grad():
        _mlp(model).down.parametrizations.weight.original0.mul_(2)  # type: ignore[union-attr]


def _old_weight_norm(model: Transformer, _: ExitStack) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.weight_norm(_mlp(model).down)
    with torch.no_grad():
        _mlp(model).down.weight_g.mul_(2)  # type: ignore[operator]


def _spectral_norm(model: Transformer, _: ExitStack) -> None:
    parametrizations.spectral_norm(_attention(model).value).train(False)


def _pruned(model: Transformer, _: ExitStack) -> None:
    prune.l1_unstructured(_mlp(model).up, "weight", 0.5)


def _replaced_mlp(model: Transformer, _: ExitStack) -> None:
    bent = Bent(model.config)
    bent.load_state_dict(_mlp(model).state_dict())
    model.blocks[0].mlp = bent


def _replaced_norm(model: Transformer, _: ExitStack) -> None:
    model.blocks[0].norm1 = nn.Identity()


def _replaced_dropout(model: Transformer, _: ExitStack) -> None:
    model.blocks[0].dropout = nn.Tanh()


def _torch_norm(model: Transformer, _: ExitStack) -> None:
    model.blocks[1].norm2 = nn.LayerNorm(model.config.width, eps=5.0)


def _no_mlp(model: Transformer, _: ExitStack) -> None:
    model.blocks[0].mlp = None


def _one_block_more(model: Transformer, _: ExitStack) -> None:
    model.blocks.append(copy.deepcopy(model.blocks[0]))


def _blocks_in_another_order(model: Transformer, _: ExitStack) -> None:
    model.blocks._modules = {name: model.blocks._modules[name] for name in ("1", "0")}


def _eps(model: Transformer, _: ExitStack) -> None:
    norm = model.blocks[0].norm1
    assert isinstance(norm, LayerNorm)
    norm.eps = 5.0


def _activation(model: Transformer, _: ExitStack) -> None:
    _mlp(model).activation = "gelu"


def _config_of_a_block(model: Transformer, _: ExitStack) -> None:
    _attention(model).config = dataclasses.replace(model.config, logit_scale=7.0)


def _config_of_the_embedding(model: Transformer, _: ExitStack) -> None:
    model.embedding.config = dataclasses.replace(model.config, positions="none")


def _largest_norm_of_vectors(model: Transformer, _: ExitStack) -> None:
    assert model.embedding.symbol is not None
    model.embedding.symbol.max_norm = 0.3


def _bias_added(model: Transformer, _: ExitStack) -> None:
    _attention(model).log_gain = nn.Parameter(torch.tensor(1.5))


def _bias_removed(model: Transformer, _: ExitStack) -> None:
    _mlp(model).up.bias = None


CHANGES: dict[str, Change] = {
    "subclass with its own forward": _as_class(Turned),
    "subclass with its own step": _as_class(Deaf),
    "forward hook": _forward_hook,
    "forward hook with keywords": _hook_with_keywords,
    "forward pre-hook": _pre_hook,
    "global hook": _global_hook,
    "forward set on the model": _own_forward,
    "method set on a module": _own_scores,
    "parametrisation": _parametrised,
    "weight norm": _weight_norm,
    "weight norm by a hook": _old_weight_norm,
    "spectral norm": _spectral_norm,
    "pruning": _pruned,
    "another MLP": _replaced_mlp,
    "no norm": _replaced_norm,
    "another dropout": _replaced_dropout,
    "PyTorch's norm": _torch_norm,
    "no MLP": _no_mlp,
    "one block more": _one_block_more,
    "blocks in another order": _blocks_in_another_order,
    "eps": _eps,
    "activation": _activation,
    "config of a block": _config_of_a_block,
    "config of the embedding": _config_of_the_embedding,
    "max_norm of an embedding": _largest_norm_of_vectors,
    "a parameter more": _bias_added,
    "a parameter less": _bias_removed,
}
