"""Labels and losses: real, classes, per position; and the scale that is said once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from flipscope.basics.errors import InputError
from flipscope.data.batches import Examples
from flipscope.models import Transformer, TransformerConfig, hardness
from flipscope.models.seal import fingerprint
from flipscope.training.fit import evaluate, fit
from flipscope.training.targets import SIGN_SCALE, Aim

BITS = np.random.default_rng(0).integers(0, 2, (60, 5), dtype=np.uint8)


class Fixed(nn.Module):
    """Answers that are written down, whatever the strings."""

    def __init__(self, answers: Any) -> None:
        super().__init__()
        self.answers = nn.Parameter(torch.as_tensor(answers, dtype=torch.float32))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.answers[: len(inputs)]


# ---------------------------------------------------------------- the scale


def test_the_scale_of_squared_errors() -> None:
    answers = np.array([0.2, 0.6, 0.4, 0.9])
    labels = np.array([0, 1, 1, 0], np.uint8)
    data = Examples(BITS[:4], labels)
    found = evaluate(Fixed(answers), data, loss="mse", labels="bits")
    assert found.correct == 2  # 0.2 and 0.6 are on their side of 1/2
    assert found.loss == pytest.approx(np.mean((answers - labels) ** 2))
    signs = evaluate(Fixed(2 * answers - 1), data, loss="mse")
    assert signs.correct == 2  # the same answers on the other scale
    assert signs.loss == pytest.approx(SIGN_SCALE * found.loss)


def test_real_labels_are_compared_as_they_are() -> None:
    wanted = np.array([0.25, 0.75, 0.5], np.float32)
    found = evaluate(Fixed([0.25, 0.5, 1.0]), Examples(BITS[:3], wanted), loss="mse", labels="bits")
    assert found.loss == pytest.approx((0.0625 + 0.25) / 3)


def test_classes() -> None:
    answers = torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.0, 3.0], [math.nan, 1.0, 0.0]])
    labels = np.array([1, 0, 1])
    found = evaluate(Fixed(answers[:2]), Examples(BITS[:2], labels[:2]), loss="ce")
    assert found.correct == 1
    assert found.loss == pytest.approx(float(F.cross_entropy(answers[:2], torch.tensor([1, 0]))))
    assert evaluate(Fixed(answers), Examples(BITS[:3], labels), loss="ce").correct == 1  # NaN is wrong


def test_positions() -> None:
    answers = torch.tensor([[0.9, 0.1], [0.9, 0.9]])
    labels = np.array([[1, 0], [1, 0]])
    found = evaluate(Fixed(answers), Examples(BITS[:2], labels), loss="mse", labels="bits")
    assert found.correct == 1  # a string is right if each of its positions is
    assert found.loss == pytest.approx(float((answers - torch.tensor(labels)).square().mean()))
    both = torch.stack([torch.zeros(2, 2), 2 * answers - 1], dim=-1)  # two outputs at each position
    assert evaluate(Fixed(both), Examples(BITS[:2], labels)).correct == 1
    classes = evaluate(Fixed(both), Examples(BITS[:2], labels), loss="ce")
    assert classes.correct == 1
    assert classes.loss == pytest.approx(float(F.cross_entropy(both.flatten(0, 1), torch.tensor(labels).flatten())))


# ---------------------------------------------------------------- they train


@pytest.mark.parametrize("loss", ["bce", "mse", "ce"])
def test_positions_and_classes_are_learned(loss: Any) -> None:
    config = TransformerConfig(
        width=16, layers=1, heads=2, marker="none", readout="every", outputs=2 if loss == "ce" else 1
    )
    data = Examples(BITS, np.repeat(BITS[:, :1], 5, axis=1))  # the first bit, at every position
    settings: dict[str, Any] = {"loss": loss, "labels": "bits" if loss == "mse" else "signs"}
    fitted = fit(Transformer(config), data, data, learning_rate=0.01, batch=20, max_epochs=30, **settings)
    assert fitted.history[-1].validation_accuracy == 1


def test_tokens_and_numbers() -> None:
    tokens = np.random.default_rng(1).integers(0, 5, (80, 4))
    config = TransformerConfig(
        width=16, layers=1, heads=2, marker="none", inputs="tokens", vocabulary=5, outputs=5, readout="first"
    )
    data = Examples(tokens, tokens[:, 2])
    fitted = fit(
        Transformer(config), data, data, learning_rate=0.01, batch=20, max_epochs=40, loss="ce", inputs="tokens"
    )
    assert fitted.history[-1].validation_accuracy > 0.95
    images = np.random.default_rng(2).normal(size=(50, 1, 3, 3)).astype(np.float32)
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 3))
    labels = images[:, 0, 0, :].argmax(axis=1)
    seen = Examples(images, labels)
    fitted = fit(model, seen, seen, learning_rate=0.05, batch=25, max_epochs=40, loss="ce", inputs="numbers")
    assert fitted.history[-1].validation_accuracy > 0.9


def test_several_validation_sets_are_asked_as_one() -> None:
    labels = BITS[:, 0]
    found = [
        fit(
            Transformer(hardness(5, 8)), Examples(BITS, labels), sets, learning_rate=0.01, batch=20, max_epochs=2
        ).history
        for sets in (
            Examples(BITS[:30], labels[:30]),
            [Examples(BITS[:10], labels[:10]), Examples(BITS[10:30], labels[10:30])],
        )
    ]
    for one, two in zip(*found, strict=True):
        assert one.validation_loss == pytest.approx(two.validation_loss, rel=1e-5)
        assert one.validation_accuracy == two.validation_accuracy


# ---------------------------------------------------------------- the protocol


def one_step(**settings: Any) -> dict[str, Tensor]:
    model = Transformer(hardness(5, 8))
    data = Examples(BITS, BITS[:, 0])
    fit(model, data, data, learning_rate=1.0, batch=60, max_steps=1, restore="last", optimiser="sgd", **settings)
    return model.state_dict()


def test_clipping_shortens_the_gradient_and_keeps_its_direction() -> None:
    start = Transformer(hardness(5, 8)).state_dict()
    free, cut = one_step(), one_step(clip=0.01)
    step = torch.cat([(cut[name] - start[name]).flatten() for name in start]).double()
    whole = torch.cat([(free[name] - start[name]).flatten() for name in start]).double()
    assert float(step.norm()) == pytest.approx(0.01, rel=1e-3)
    assert float(whole.norm()) > 0.02
    assert float(step @ whole / step.norm() / whole.norm()) == pytest.approx(1, abs=1e-4)
    loose = one_step(clip=1e6)
    assert all(torch.equal(loose[name], free[name]) for name in free)


def test_decay_leaves_out_what_is_no_matrix() -> None:
    start = Transformer(hardness(5, 8)).state_dict()
    model = Transformer(hardness(5, 8))
    data = Examples(BITS, BITS[:, 0])
    fit(
        model, data, data, learning_rate=1e-12, weight_decay=1e11, decay_on="matrices", optimiser="adamw",
        batch=60, max_steps=1, restore="last",
    )  # fmt: skip
    for name, after in model.state_dict().items():
        decayed = name.endswith("weight") and "norm" not in name and "embedding" not in name
        torch.testing.assert_close(after, start[name] * (0.9 if decayed else 1.0), msg=name, rtol=1e-4, atol=1e-6)


def test_a_further_term_is_differentiated_and_not_told() -> None:
    seen: list[tuple[int, ...]] = []

    def term(model: nn.Module, batch: tuple[Tensor, Tensor], outputs: Tensor) -> Tensor:
        assert len(batch[0]) == len(batch[1]) == len(outputs)
        seen.append(tuple(batch[0].shape))
        return outputs.square().mean() + 0.1 * sum(p.square().sum() for p in model.parameters())

    model = Transformer(hardness(5, 8))
    bits, labels = torch.tensor(BITS), torch.tensor(BITS[:, 0]).float()
    by_hand = Transformer(hardness(5, 8))
    outputs = by_hand(bits)
    plain = F.binary_cross_entropy_with_logits(outputs, labels)
    (plain + outputs.square().mean() + 0.1 * sum(p.square().sum() for p in by_hand.parameters())).backward()
    data = Examples(BITS, BITS[:, 0])
    fitted = fit(
        model, data, data, learning_rate=0.5, batch=60, max_steps=1, restore="last", optimiser="sgd", terms=[term]
    )
    assert seen == [(60, 5)]
    assert fitted.history[0].train_loss == pytest.approx(plain.item(), rel=1e-5)
    for after, before in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert before.grad is not None
        torch.testing.assert_close(after, before - 0.5 * before.grad, rtol=1e-4, atol=1e-5)


def test_terms_of_a_batch_in_parts_are_that_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    import flipscope.training.fit as loop

    def term(model: nn.Module, batch: tuple[Tensor, Tensor], outputs: Tensor) -> Tensor:
        return outputs.square().mean()

    whole = one_step(terms=[term])
    monkeypatch.setattr(loop, "_POSITIONS", 1)  # parts of 16 strings
    parts = one_step(terms=[term])
    for name, tensor in whole.items():
        torch.testing.assert_close(parts[name], tensor, rtol=1e-4, atol=1e-5, msg=name)


def test_a_term_that_is_no_number_diverges() -> None:
    model = Transformer(hardness(5, 8))
    before = fingerprint(model.state_dict().values())
    data = Examples(BITS, BITS[:, 0])
    fitted = fit(
        model, data, data, learning_rate=0.5, batch=60, max_steps=3, terms=[lambda m, b, o: o.sum() * math.nan]
    )
    assert fitted.stopped == "diverged"
    assert fingerprint(model.state_dict().values()) == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "hinge"}, "loss='hinge' is not one of"),
        ({"labels": "other"}, "labels='other' is not one of"),
        ({"labels": "bits"}, "labels='bits' is a scale of squared errors"),
        ({"clip": 0.0}, "clip=0.0 must be a positive"),
        ({"decay_on": "some"}, "decay_on='some' is not one of"),
        ({"inputs": "words"}, "inputs='words' is not one of"),
        ({"loss": "ce"}, "not one number per class"),
        ({"terms": [lambda model, batch, outputs: outputs]}, "must be one number"),
    ],
)
def test_bad_settings_are_one_sentence(settings: dict[str, Any], message: str) -> None:
    data = Examples(BITS, BITS[:, 0])
    with pytest.raises(InputError, match=message):
        fit(Transformer(hardness(5, 8)), data, data, learning_rate=0.1, batch=60, max_steps=1, **settings)


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        (Examples(BITS, np.zeros((60, 5, 1))), {}, "one for each of 60 strings"),
        (Examples(BITS + 1, BITS[:, 0]), {}, "say inputs='tokens'"),
        (Examples(BITS - 1.5, BITS[:, 0]), {"inputs": "tokens"}, "whole numbers from 0"),
        (Examples(BITS * np.nan, BITS[:, 0]), {"inputs": "numbers"}, "must be finite"),
        (Examples(BITS, BITS[:, 0] - 1.0), {"loss": "ce"}, "must be classes"),
        (Examples(BITS, BITS), {}, "not one per position"),
    ],
)
def test_bad_data_is_one_sentence(data: Examples, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(Transformer(hardness(5, 8)), data, data, learning_rate=0.1, batch=60, max_steps=1, **settings)


def test_a_label_beyond_the_classes_is_refused() -> None:
    with pytest.raises(InputError, match="a label is 3, and the model has 3 classes"):
        Aim("ce").total(torch.zeros(2, 3), torch.tensor([0, 3]))
