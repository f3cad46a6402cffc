"""How large a transformer is, told by its configuration, and what is refused because of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from flipscope.basics import limits
from flipscope.basics.errors import InputError
from flipscope.models import (
    Transformer,
    TransformerConfig,
    encoder,
    fourier,
    gpt2,
    hardness,
    mingpt,
    recognizer,
    roberta,
    vit_small,
)
from flipscope.models.size import multiplications, weights
from flipscope.probes.sensitivity import sensitivity_profile

PRESETS = [
    recognizer(),
    encoder(),
    hardness(50),
    fourier(),
    mingpt(40),
    vit_small(),
    roberta(),
    gpt2(),
    replace(encoder(), mlp_layers=1),
    replace(encoder(), mlp_layers=0, head="tanh"),
]


@pytest.mark.parametrize("config", PRESETS)
def test_the_weights_are_nearly_all_parameters(config: TransformerConfig) -> None:
    count = Transformer(config, seed=None).count_parameters()
    assert 0.9 * count < weights(config) <= count


def test_the_multiplications_of_a_forward() -> None:
    # By hand, width 8, MLP 16, 5 tokens: four projections and the MLP at each token, scores and sums of each pair.
    assert multiplications(encoder(8, 3, 2, ffn_width=16), 4) == 3 * (5 * (4 * 64 + 2 * 128) + 2 * 25 * 8)


def test_a_model_that_does_not_fit_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    config = encoder(64, 2, 4)
    need = 4 * weights(config)
    monkeypatch.setattr(limits, "machine_memory", lambda: need)
    Transformer(config)
    monkeypatch.setattr(limits, "machine_memory", lambda: need - 1)
    with pytest.raises(InputError, match=r"width 64 and 2 layers would take .* of memory, .*: make it smaller"):
        Transformer(config)
    assert Transformer(config, seed=None).count_parameters() > 0  # which takes no memory
    monkeypatch.undo()
    with pytest.raises(InputError, match="would take 1 PiB or more of memory"):
        Transformer(encoder(10**12, 2, 1))


def test_attention_that_does_not_fit_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Transformer(replace(encoder(8, 2, 2), marker="none"))
    bits = torch.zeros(3, 10, dtype=torch.uint8)
    need = 3 * 2 * 10 * 10 * 4  # strings, heads, rows, tokens, bytes
    monkeypatch.setattr(limits, "machine_memory", lambda: need)
    before = model(bits)
    monkeypatch.setattr(limits, "machine_memory", lambda: need - 1)
    with pytest.raises(InputError, match=r"attention between 10 tokens would take 2\.34 KiB of memory"):
        model(bits)
    assert torch.equal(model(bits[:2]), before[:2])


def test_a_single_layer_needs_the_row_that_is_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Transformer(replace(encoder(8, 1, 2), marker="none"))
    bits = torch.zeros(3, 100, dtype=torch.uint8)
    monkeypatch.setattr(limits, "machine_memory", lambda: 3 * 2 * 1 * 100 * 4)
    model(bits)
    monkeypatch.setattr(limits, "machine_memory", lambda: 3 * 2 * 1 * 100 * 4 - 1)
    with pytest.raises(InputError, match="attention between 100 tokens"):
        model(bits)


def test_the_spectrum_of_strings_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Transformer(encoder(8, 2, 2))
    with pytest.raises(InputError, match=r"strings of 100 bits would take .* of memory"):
        sensitivity_profile(model, 100, strings=99_999_999_999)
    monkeypatch.setattr(limits, "machine_memory", lambda: 1 << 20)
    for path in ("fast", "general"):
        with pytest.raises(InputError, match=r"attention between .* tokens would take .* of memory"):
            sensitivity_profile(model, 1000, strings=1, path=path)
