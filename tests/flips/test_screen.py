"""The heuristic screen: right where changes are small, silent where they are not, and caught by its own audit."""

from __future__ import annotations

import numpy as np
import torch

from flipscope.flips.fast import FastEngine
from flipscope.flips.screen import first_order_changes, screened_changes
from flipscope.models.presets import encoder
from flipscope.models.transformer import Transformer


class Counting:
    """An engine that counts the strings it is asked for."""

    def __init__(self, engine):
        self.engine = engine
        self.strings = 0

    def logits(self, strings):
        self.strings += len(strings)
        return self.engine.logits(strings)

    def flip_logits(self, strings):
        self.strings += len(strings) * (strings.shape[1] + 1)
        return self.engine.flip_logits(strings)


def run(model, strings, *, estimate=True, **options):
    engine = Counting(FastEngine(model, dtype=torch.float64))

    def flip_signs(some):
        base, flipped = engine.flip_logits(some)
        return (base > 0).astype(np.uint8), (flipped > 0).astype(np.uint8)

    _, changed, outcome = screened_changes(
        engine,
        strings,
        estimate=(lambda some: first_order_changes(engine.engine.model, some)) if estimate else None,
        threshold=0.0,
        signs=lambda some: (engine.logits(some) > 0).astype(np.uint8),
        flip_signs=flip_signs,
        seed=1,
        **options,
    )
    return changed, outcome, engine.strings


def exact_changes(model, strings):
    base, flipped = FastEngine(model, dtype=torch.float64, deltas=False).flip_logits(strings)
    return (flipped > 0) != (base > 0)[:, None]


def draw(count, length, seed=0):
    return np.random.default_rng(seed).integers(0, 2, (count, length), np.uint8)


def test_first_order_changes_are_the_derivative():
    """For one small step towards the flipped bit, the change of the logit is the estimate times the step."""
    model = Transformer(encoder(16, 2, 2), scheme="xavier_normal", seed=0, dtype=torch.float64).eval()
    strings = draw(2, 6)
    bits = torch.from_numpy(strings).long()
    estimates = first_order_changes(model, strings)
    step = 1e-6
    with torch.inference_mode():
        here, there = model.embed(bits), model.embed(1 - bits)
        for position in range(6):
            moved = here.clone()
            moved[:, position] += step * (there - here)[:, position]
            slope = (model.read(model.encode(moved)) - model.read(model.encode(here))) / step
            np.testing.assert_allclose(slope.numpy(), estimates[:, position], rtol=1e-4, atol=1e-8)


def test_a_smooth_model_is_screened_with_few_queries_and_no_error():
    model = Transformer(encoder(32, 2, 2), scheme="xavier_normal", seed=1)
    strings = draw(300, 40)
    changed, outcome, asked = run(model, strings)
    np.testing.assert_array_equal(changed, exact_changes(model, strings))
    assert outcome.skipped > 0.9 * outcome.flips
    assert outcome.wrong == 0
    assert outcome.error_rate.high < 0.05
    assert asked < 0.1 * 300 * 41


def test_a_chaotic_model_is_evaluated_and_right():
    strings = draw(30, 20)
    models = (Transformer(encoder(32, 3, 2), scheme="gaussian", seed=seed) for seed in range(20))
    model, truth = next((model, truth) for model in models if (truth := exact_changes(model, strings)).mean() > 0.05)
    changed, outcome, _ = run(model, strings)
    assert (changed != truth).sum() <= outcome.skipped * 0.02
    assert outcome.skipped < outcome.flips


def test_the_margin_alone_screens_models_without_gradients():
    model = Transformer(encoder(32, 2, 2), scheme="xavier_normal", seed=1)
    strings = draw(100, 30)
    changed, outcome, _ = run(model, strings, estimate=False)
    np.testing.assert_array_equal(changed, exact_changes(model, strings))
    assert outcome.skipped > 0


def test_the_audit_notices_a_screen_that_guesses_wrong():
    """A sharp step that no pilot string is near to: the screen is blind to it, the audit is not."""

    class Step:
        def logits(self, strings):
            inside = strings[:, 0] & strings[:, 1]
            return np.where(inside, np.where(strings[:, 2:].sum(1) % 2, 1.0, -1.0), 1.0 + 1e-3 * strings[:, 2])

        def flip_logits(self, strings):
            near = strings[:, None] ^ np.eye(strings.shape[1], dtype=np.uint8)
            return self.logits(strings), self.logits(near.reshape(-1, strings.shape[1])).reshape(len(strings), -1)

    step = Step()
    strings = draw(400, 12, seed=3)
    strings[:, 0] = strings[:, 1] = 0  # so that all pilots look smooth
    strings[200:, :2] = 1  # and half of the strings are not
    order = np.random.default_rng(1).choice(400, size=1, replace=False)
    strings[order, :2] = 0
    _, changed, outcome = screened_changes(
        step,
        strings,
        estimate=None,
        threshold=0.0,
        signs=lambda some: (step.logits(some) > 0).astype(np.uint8),
        flip_signs=lambda some: tuple((x > 0).astype(np.uint8) for x in step.flip_logits(some)),
        seed=1,
        pilot=1,
    )
    assert not changed.any()
    assert outcome.wrong > 0
    assert outcome.error_rate.low > 0.1
