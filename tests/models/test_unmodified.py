"""What a transformer is known by, and what makes it an unknown one."""

from __future__ import annotations

import copy
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from models.modified import CHANGES
from torch import Tensor, nn

from flipscope.models import Transformer, encoder, fourier, hardness, mingpt, recognizer, vit_small
from flipscope.models.unmodified import difference, own_difference

SHAPE = encoder(width=16, layers=2, heads=2)
PRESETS = [
    SHAPE,
    recognizer(width=8, layers=2),
    hardness(7, width=12, layers=2),
    mingpt(7, width=16, layers=2, heads=4),
    fourier(6, 4),
    vit_small(8, 4, 1, layers=1, heads=1),
]


@pytest.mark.parametrize("config", PRESETS)
def test_a_transformer_as_built_is_known_in_every_type_mode_and_copy(config: Any) -> None:
    model = Transformer(config, seed=0)
    with torch.inference_mode():
        frozen = Transformer(config, seed=0)
    for some in (model, model.eval(), copy.deepcopy(model).double(), Transformer(config, seed=None), frozen):
        assert difference(some) is None
    copied = Transformer(config, seed=None)
    copied.load_state_dict(model.state_dict(), assign=True)
    assert difference(copied.requires_grad_(False)) is None


def test_what_changes_no_number_is_the_models_own_business() -> None:
    model = Transformer(SHAPE, seed=0)
    model.note, model.blocks[0].listeners = "mine", [print]
    model.blocks[1] = model.blocks[0]  # tied layers
    assert difference(model) is None
    handles = [
        model.head.register_forward_hook(lambda *_: None),
        model.head.register_full_backward_hook(lambda *_: None),
    ]
    assert difference(model) is not None
    for handle in handles:
        handle.remove()
    assert difference(model) is None


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_is_seen_and_told(name: str) -> None:
    bits = torch.randint(0, 2, (8, 9), generator=torch.Generator().manual_seed(0))
    model = Transformer(SHAPE, scheme="gaussian", seed=1).eval()
    before = model(bits)
    with ExitStack() as undo:
        other = CHANGES[name](model, undo) or model
        found = difference(other.eval())
        assert found is not None
        assert len(found.split()) > 3
        assert float((other(bits) - before).detach().abs().max()) > 1e-3  # or the change would be none
    assert difference(Transformer(SHAPE, seed=0)) is None  # nothing is left behind


def test_other_modules_are_told_by_their_class() -> None:
    assert "Linear" in str(difference(nn.Linear(2, 1)))
    assert "function" in str(difference(lambda bits: bits))


def test_the_outermost_module_alone() -> None:
    model = Transformer(SHAPE, seed=0)
    handle = model.blocks[0].register_forward_hook(lambda *_: None)
    assert own_difference(model) is None
    model.read = lambda x, keep=None: x[:, 0, 0]  # type: ignore[method-assign]
    assert own_difference(model) == "the model has read of its own"
    del model.read
    handle.remove()
    assert difference(model) is None


def test_buffers_make_a_model_unknown_also_those_that_are_not_saved() -> None:
    for persistent in (True, False):
        model = Transformer(SHAPE, seed=0)
        model.embedding.register_buffer("shift", torch.ones(3), persistent=persistent)
        assert difference(model) == "the model's embedding has buffers of its own"


class Sealed(nn.Parameter):
    """A parameter that could compute when it is used."""

    def __new__(cls, data: Tensor) -> Sealed:
        return Tensor._make_subclass(cls, data, True)  # type: ignore[no-any-return]


def test_parameters_of_a_class_of_their_own_are_not_known() -> None:
    model = Transformer(SHAPE, seed=0)
    model.head.weight = Sealed(model.head.weight.detach())
    assert difference(model) == "the model's head has another parameter weight"
    weight = model.blocks[0].mlp.up.weight.detach()
    model = Transformer(SHAPE, seed=0)
    del model.blocks[0].mlp.up.weight
    model.blocks[0].mlp.up.weight = weight
    assert difference(model) == "the model's blocks.0.mlp.up has another parameter weight"


def test_a_module_compiled_elsewhere_changes_nothing() -> None:
    """torch.compile replaces a method of nn.Module for the whole process."""
    torch.compile(nn.Linear(2, 1), backend="eager")(torch.ones(1, 2))
    assert difference(Transformer(SHAPE, seed=0)) is None
