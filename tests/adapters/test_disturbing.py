"""One token of an input or of a module's output changed while a model runs."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from flipscope.adapters.disturbing import Layout, RowStreams, main_input, noise_tensor, patches, run_changed, with_main
from flipscope.basics.errors import InputError

Pair = collections.namedtuple("Pair", ["hidden", "weights"])


class Answer(collections.OrderedDict):  # type: ignore[type-arg]
    """Made like the outputs of `transformers`."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(parts)


class Wrapped(nn.Module):
    """A model whose inner module returns its numbers wrapped in something."""

    def __init__(self, wrap: Any, unwrap: Any) -> None:
        super().__init__()
        self.inner = nn.Identity()
        self.wrap, self.unwrap = wrap, unwrap
        self.inner.register_forward_hook(lambda module, args, output: wrap(output))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.unwrap(self.inner(x))
        return out.sum(dim=(1, 2))


WRAPPED = {
    "tensor": (lambda x: x, lambda x: x),
    "tuple": (lambda x: (x, "kept"), lambda x: x[0] if x[1] == "kept" else None),
    "list": (lambda x: [None, x], lambda x: x[1]),
    "named tuple": (lambda x: Pair(x, None), lambda x: x.hidden),
    "dict": (lambda x: {1: None, "hidden": x}, lambda x: x["hidden"]),
    "mapping": (lambda x: Answer(hidden=x, more=3), lambda x: x["hidden"]),
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_the_output_of_a_module_is_changed_inside_whatever_it_returns(kind: str) -> None:
    model = Wrapped(*WRAPPED[kind])
    x = torch.randn(3, 4, 2)
    layout, token = Layout.of((4, 2)), torch.tensor([0, 3, 1])
    noise = torch.randn(3, 2)
    found = run_changed(model, x, lambda h: layout.added(h, token, noise), at="inner")
    assert torch.allclose(found, x.sum(dim=(1, 2)) + noise.sum(dim=1), atol=1e-6)
    assert torch.equal(model(x), x.sum(dim=(1, 2)))  # the hook is gone
    assert len(model.inner._forward_hooks) == 1


def test_only_one_call_of_a_module_with_tensors_can_be_changed() -> None:
    twice, never = nn.Linear(2, 2), nn.Linear(2, 2)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.twice, self.never, self.text = twice, never, nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            self.text("words")
            out: Tensor = self.twice(self.twice(x))
            return out

    x = torch.zeros(1, 2)
    for at, said in {
        "twice": "'twice' is called 2 times when the model runs, not once",
        "never": "'never' is not called when the model runs",
        "text": "'text' returns a str without a tensor",
        "nevr": "at='nevr' is no module of the model: there are twice, never, text",
        "": "at='' is no module",
    }.items():
        model = Model()
        with pytest.raises(InputError, match=said):
            run_changed(model, x, lambda h: h, at=at)
        assert not any(part._forward_hooks for part in model.modules())
    with pytest.raises(InputError, match=r"is no nn\.Module"):
        run_changed(lambda x: x, x, lambda h: h, at="inner")


def test_gradients_flow_through_the_change() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    run_changed(model, torch.ones(1, 2), lambda h: Layout.of((2,)).added(h, torch.tensor([1]), torch.ones(1, 1)), "0")
    scale = torch.tensor(2.0, requires_grad=True)
    run_changed(model, torch.ones(1, 2), lambda h: scale * h, "0").sum().backward()
    assert scale.grad is not None
    assert model[0].weight.grad is not None


def test_the_main_input_of_several() -> None:
    ids, mask = torch.zeros(2, 3), torch.ones(2, 3)
    assert main_input({"attention_mask": mask, "input_ids": ids}) is ids
    assert main_input({"x": mask, "y": ids}) is mask
    assert main_input((ids, mask)) is ids
    changed: Any = with_main({"attention_mask": mask, "input_ids": ids}, lambda x: x + 5)
    assert torch.equal(changed["input_ids"], ids + 5)
    assert changed["attention_mask"] is mask
    assert run_changed(lambda x, y: x + y, (ids, mask), lambda x: x + 5).unique().tolist() == [6.0]
    assert run_changed(lambda x, y: x + y, {"x": ids, "y": mask}, lambda x: x + 5).unique().tolist() == [6.0]
    with pytest.raises(InputError, match="empty mapping"):
        main_input({})


@given(
    mask=st.lists(st.integers(0, 3), min_size=1, max_size=12).map(lambda found: [*found, 0, 1, 2, 3]),
    seed=st.integers(0, 99),
)
def test_a_feature_mask_says_which_numbers_change(mask: list[int], seed: int) -> None:
    places = np.array(mask)
    layout = Layout.of(places.shape, places)
    stream = np.random.default_rng(seed)
    values = torch.from_numpy(stream.standard_normal((4, len(mask))))
    new = torch.from_numpy(stream.standard_normal((4, layout.width)))
    token = torch.arange(4)
    added, replaced = layout.added(values, token, new), layout.replaced(values, token, new)
    for row in range(4):
        own = np.flatnonzero(places == row)
        for found, start in ((added, values[row]), (replaced, torch.zeros(len(mask)))):
            expected = values[row].clone()
            expected[own] = start[own] + new[row, : len(own)]
            assert torch.equal(found[row], expected)
        assert torch.equal(layout.taken(replaced, token)[row, : len(own)], new[row, : len(own)])


def test_patches_have_all_channels_and_are_numbered_row_by_row() -> None:
    mask = patches((2, 3))((3, 4, 6))
    assert torch.equal(mask[0], mask[2])
    assert mask[0].tolist() == [[0] * 3 + [1] * 3] * 2 + [[2] * 3 + [3] * 3] * 2
    layout = Layout.of((3, 4, 6), patches((2, 3)))
    assert (layout.tokens, layout.width) == (4, 18)
    whole = Layout.of((3, 4, 6), mask[None].expand(7, -1, -1, -1))  # as captum wants it
    assert torch.equal(whole.places, layout.places)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Layout.of((3, 28, 30), patches(7)), "images of 28 x 30 pixels cannot be cut into patches of 7 x 7"),
        (lambda: Layout.of((3, 28, 28)), "say which numbers make up a token"),
        (lambda: Layout.of((0, 4)), "hold no tokens"),
        (lambda: Layout.of((4,), np.array([0, 2, 2, 0])), "no place for token 1"),
        (lambda: Layout.of((4,), np.array([0, -1, 1, 0])), "negative"),
        (lambda: Layout.of((4,), np.array([0.0, 1, 1, 0])), "whole numbers"),
        (lambda: Layout.of((4,), np.array([0, 1, 1])), "does not fit inputs of shape"),
        (lambda: Layout.of((4,), patches(2)), "patches are of images"),
        (lambda: Layout.of((4,), lambda shape: shape.no), "feature_mask= failed with AttributeError"),
        (lambda: patches(0), "size"),
        (lambda: patches("a"), "size"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_layout_is_said_in_a_sentence(make: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        make()


def test_rows_have_their_own_random_numbers() -> None:
    rows = np.array([[i, t, r] for i in range(3) for t in range(4) for r in range(5)])
    noise = noise_tensor(RowStreams(1), rows, 50, 2.0)
    assert len(noise.unique(dim=0)) == len(rows)
    assert abs(float(noise.std()) - 2) < 0.1
    assert torch.equal(noise_tensor(RowStreams(1), rows[::-7], 50, 2.0), noise.flip(0)[::7])
    assert not torch.equal(noise_tensor(RowStreams(2), rows, 50, 2.0), noise)
    drawn = RowStreams(1).whole(rows, 3)
    assert np.array_equal(RowStreams(1).whole(rows[10:], 3), drawn[10:])
    assert set(drawn) == {0, 1, 2}
