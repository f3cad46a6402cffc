from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from flipscope.adapters.outputs import binary_logit
from flipscope.adapters.subject import Subject
from flipscope.basics.bits import index_bits
from flipscope.basics.errors import InputError
from flipscope.cube.functions import first, majority, parity, random
from flipscope.models import Transformer, encoder, initialise, mingpt
from flipscope.probes.recognition import accept, recognition, recognizes


def test_acceptance_is_equation_15() -> None:
    logits = torch.tensor([0.5, 0.4999, 0.0, -0.4999, -0.5, 3.0, -np.inf, np.inf])
    assert accept(logits, 0.5).tolist() == [1, -1, -1, -1, 0, 1, 0, 1]
    assert accept(logits.numpy().reshape(2, 4), 0.5).shape == (2, 4)


@pytest.mark.parametrize("margin", [0.0, -1.0, float("nan"), float("inf")])
def test_margin_must_be_positive(margin: float) -> None:
    with pytest.raises(InputError, match="must be a positive number"):
        accept(torch.zeros(2), margin)
    with pytest.raises(InputError, match="must be a positive number"):
        recognition(lambda bits: bits[:, 0].float(), first(2), margin)


def test_two_outputs_are_a_difference() -> None:
    assert binary_logit(torch.tensor([[1.0, 4.0], [2.0, 0.0]])).tolist() == [3.0, -2.0]
    assert binary_logit(torch.tensor([[1.0], [2.0]])).tolist() == [1.0, 2.0]
    with pytest.raises(InputError, match=r"\(2, 3\)"):
        binary_logit(torch.zeros(2, 3))


@pytest.mark.parametrize("batch", [3, 256])
def test_counts_over_all_strings(batch: int) -> None:
    def surplus(bits: Tensor) -> Tensor:  # ones less zeros
        return 2.0 * bits.float().sum(dim=1) - bits.shape[1]

    model = Subject(surplus, output="logit", batch=batch)
    answer = recognition(model, majority(5), 1.0)
    assert answer.recognized
    assert (answer.strings, answer.exhaustive, answer.length) == (32, True, 5)
    answer = recognition(model, majority(5), 2.0)
    assert (answer.correct, answer.wrong, answer.undefined) == (12, 0, 20)
    answer = recognition(model, parity(4), 2.0)
    # two ones: undefined; one or four ones: right only by chance
    table = {0: "right", 1: "wrong", 2: "undefined", 3: "right", 4: "wrong"}
    weights = [table[sum(string)] for string in itertools.product((0, 1), repeat=4)]
    assert answer.correct == weights.count("right")
    assert answer.wrong == weights.count("wrong")
    assert answer.undefined == weights.count("undefined")
    assert not answer.recognized


@pytest.mark.parametrize("config", [encoder(16, 2, 2), mingpt(6, width=16, heads=4)])
def test_counts_of_a_transformer_equal_a_plain_loop(config: object) -> None:
    model = initialise(Transformer(config), "gaussian", 0).eval()  # type: ignore[arg-type]
    function = majority(6)
    logits = {}
    for string in itertools.product((0, 1), repeat=6):
        out = model(torch.tensor([string]))[0].detach()
        logits[string] = float(out) if out.ndim == 0 else float(out[1] - out[0])
    margin = 1.001 * float(np.median(np.abs(list(logits.values()))))
    counts = {"correct": 0, "wrong": 0, "undefined": 0}
    for string, logit in logits.items():
        if abs(logit) < margin:
            counts["undefined"] += 1
        else:
            value = int(function(np.array(string, dtype=np.uint8)))
            counts["correct" if (logit > 0) == value else "wrong"] += 1
    answer = recognition(model, function, margin)
    assert {name: getattr(answer, name) for name in counts} == counts
    assert min(counts.values()) > 0


def test_samples_long_strings() -> None:
    def dictator(bits: Tensor) -> Tensor:
        return 2.0 * bits[:, 0].float() - 1

    answer = recognition(dictator, first(100), 1.0, samples=300)
    assert (answer.correct, answer.strings, answer.exhaustive) == (300, 300, False)
    answer = recognition(dictator, parity(100), 1.0, samples=300)
    assert 90 < answer.wrong < 210
    small = recognition(Subject(dictator, batch=7), parity(100), 1.0, samples=300)
    assert small == answer
    assert recognition(dictator, parity(100), 1.0, samples=300, seed=1) != answer


class Switch(nn.Module):
    """Right in evaluation mode only."""

    def forward(self, bits: Tensor) -> Tensor:
        return (2.0 * bits[:, 0].float() - 1) * (-1 if self.training else 1)


@pytest.mark.parametrize("training", [False, True])
def test_evaluation_mode_is_ensured_and_restored(training: bool) -> None:
    model = Switch().train(training)
    assert recognition(model, first(3), 0.5).recognized
    assert model.training == training
    with pytest.raises(InputError):
        recognition(model, first(30), 0.5)
    assert model.training == training


class Noted(nn.Module):
    """Half of it is frozen; its own train() does more than set the flags."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(3, 1)
        self.told: list[bool] = []

    def train(self, mode: bool = True) -> Noted:
        self.told.append(mode)
        return super().train(mode)

    def forward(self, bits: Tensor) -> Tensor:
        assert not any(module.training for module in self.modules())
        logits: Tensor = self.frozen(bits.float())[:, 0]
        return logits


def test_frozen_modules_stay_frozen() -> None:
    model = Noted()
    model.frozen.eval()
    recognition(model, first(3), 0.5)
    assert [module.training for module in model.modules()] == [True, False]
    assert model.told == []


def test_refuses() -> None:
    model = Switch()
    with pytest.raises(InputError, match=r"all strings of length 25 are too many .* give samples"):
        recognition(model, first(25), 0.5)
    with pytest.raises(InputError, match="samples must be a whole number of at least 1"):
        recognition(model, first(3), 0.5, samples=0)
    with pytest.raises(InputError, match="batch must be a whole number of at least 1"):
        recognition(Subject(model, batch=0), first(3), 0.5)
    with pytest.raises(InputError, match="2 of 8 logits are NaN"):
        recognition(lambda bits: torch.where(bits[:, 0] & bits[:, 1] == 1, float("nan"), 1.0), first(3), 0.5)
    with pytest.raises(InputError, match="for 8 strings"):
        recognition(lambda bits: torch.zeros(1), first(3), 0.5)


@pytest.mark.parametrize("n", [1, 4, 9])
def test_recognizes_agrees_with_the_counts(n: int) -> None:
    for seed in range(3):
        f = random(n, seed)
        values = torch.from_numpy(f(index_bits(0, 2**n, n)).astype(np.float32)) - 0.5
        for wrong in (None, 0, 2**n - 1):
            logits = values.clone()
            if wrong is not None:
                logits[wrong] *= -1
            places = 2 ** torch.arange(n)

            def model(bits: torch.Tensor, logits: torch.Tensor = logits, places: torch.Tensor = places) -> torch.Tensor:
                return logits[(bits.long() * places).sum(1)]

            for margin in (0.1, 0.6):
                expected = recognition(Subject(model, output="logit"), f, margin).recognized
                assert (
                    recognizes(Subject(model, output="logit", batch=7), f, margin)
                    == expected
                    == (wrong is None and margin < 0.5)
                )
