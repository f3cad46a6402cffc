"""What reads weights instead of calling the model leaves alone every model that computes something else."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch
from models.modified import CHANGES, Turned

from flipscope.adapters.subject import Subject
from flipscope.basics.errors import InputError
from flipscope.flips.engine import neighbours
from flipscope.flips.fast import FastEngine
from flipscope.models import Transformer, encoder
from flipscope.probes import fourier
from flipscope.probes.blowup import blowup, hardness_proxy, neighbourhood
from flipscope.probes.sensitivity import sensitivities, sensitivity

STRINGS = np.random.default_rng(0).integers(0, 2, (5, 7)).astype(np.uint8)
SHAPE = encoder(width=16, layers=2, heads=2)


def by_definition(model: torch.nn.Module) -> tuple[float, list[int]]:
    """A threshold between the logits, and the sensitivity of each string by one forward for all its flips."""
    every = neighbours(STRINGS, np.arange(STRINGS.size + len(STRINGS)))
    with torch.no_grad():
        logits = model.eval()(torch.from_numpy(every).long()).double().numpy().reshape(len(STRINGS), -1)
    ranked = np.unique(logits)
    widest = np.diff(ranked[len(ranked) // 4 : -len(ranked) // 4]).argmax() + len(ranked) // 4
    threshold = float(ranked[widest : widest + 2].mean())
    return threshold, ((logits[:, 1:] > threshold) != (logits[:, :1] > threshold)).sum(axis=1).tolist()


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_model_is_measured_as_it_is(name: str) -> None:
    model = Transformer(SHAPE, scheme="gaussian", seed=1)
    with ExitStack() as undo:
        model = CHANGES[name](model, undo) or model
        threshold, counts = by_definition(model)
        assert sum(counts) > 0
        found = sensitivities(Subject(model, threshold=threshold), STRINGS)
        assert found.counts.tolist() == counts
        assert (found.path, found.near_ties) == ("general", 0)
        with pytest.raises(InputError, match=r"path='fast' needs .* .*: say path='general'"):
            sensitivity(model, STRINGS, path="fast")
        with pytest.raises(InputError, match="the fast path needs"):
            FastEngine(model)
        with pytest.raises(InputError, match=r"the range of the logits is known of .* give value_range"):
            fourier.logit_range(model)


@pytest.mark.parametrize("precision", ["auto", "float64"])
def test_a_change_that_few_strings_show(precision: Any) -> None:
    """A sample compared with plain forwards would not see it."""
    model = Transformer(encoder(width=32, layers=2, heads=4), scheme="xavier_normal", seed=3)
    model.register_forward_hook(lambda _module, args, out: out + 0.3 * args[0][:, :7].all(dim=1))
    strings = np.random.default_rng(0).integers(0, 2, (12, 20)).astype(np.uint8)
    strings[:, :7], strings[-1, :7] = 0, 1
    median = float(np.median(Subject(model, precision="native").values(strings)))
    subject = Subject(model, threshold=median, precision=precision)
    found = sensitivities(subject, strings)
    assert found.counts.tolist() == sensitivities(subject, strings, path="general").counts.tolist()


def test_parameters_on_another_device_are_not_for_the_fast_path() -> None:
    model = Transformer(SHAPE, seed=0)
    model.head.to("meta")
    with pytest.raises(InputError, match="the model is not on the CPU"):
        FastEngine(model)


def test_the_screen_knows_nothing_of_a_changed_model() -> None:
    model, strings = Turned(SHAPE, scheme="gaussian", seed=1), np.repeat(STRINGS, 3, axis=0)
    threshold, counts = by_definition(model)
    found = sensitivities(Subject(model, threshold=threshold), strings, heuristic=True)
    assert found.path == "general"
    assert found.counts.tolist() == np.repeat(counts, 3).tolist()


def test_blowup_at_every_position_is_read_by_the_forward_that_is_known() -> None:
    model, bits = Turned(SHAPE, seed=0), torch.from_numpy(STRINGS)
    for measure in (blowup, neighbourhood, hardness_proxy):
        with pytest.raises(InputError, match=r"the model is a Turned, not .*: give forward"):
            measure(model, bits)  # type: ignore[operator]
    found = blowup(model, bits, all_positions=False)
    plain = Transformer(SHAPE, seed=0)
    assert np.allclose(found.beta, blowup(plain, bits.flip(1), all_positions=False).beta)
    # Inside, modules are called as they are: hooks of the user's run.
    plain.blocks[0].register_forward_pre_hook(lambda _module, args: (2 * args[0], *args[1:]))
    assert not np.allclose(blowup(plain, bits).beta, blowup(Transformer(SHAPE, seed=0), bits).beta)
