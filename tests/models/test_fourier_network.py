"""The network of App. B: what it computes, entry by entry; its file; probes on it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from flipscope.basics.bits import index_bits
from flipscope.basics.errors import InputError
from flipscope.cli import main
from flipscope.models.checkpoint import load, save
from flipscope.models.fourier_network import FourierNetwork
from flipscope.models.fourier_network_config import FourierNetworkConfig
from flipscope.probes.fourier import spectrum
from flipscope.probes.sensitivity import sensitivity_profile

CONFIG = FourierNetworkConfig(length=4, neurons=5, values=2, heads=2, read_heads=3)


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def by_hand(network: FourierNetwork, string: np.ndarray) -> float:
    """One string, by the formulas of App. B, one token after the other."""
    config = network.config
    p = {name: each.detach().double().numpy() for name, each in network.named_parameters()}
    symbols = [*string[: config.length], 0, *string[config.length :]]
    codes = network.codes.double().numpy()
    code = [codes[t % config.positions] for t in range(len(symbols))]
    x = np.array([[*code[t], bit, *[0] * (config.values - 1)] for t, bit in enumerate(symbols)])
    made = []
    for t in range(len(symbols)):
        a = sum(p["value"][h] @ (softmax(x @ (p["query_key"][h].T @ x[t])) @ x) for h in range(config.heads))
        made.append(np.array([*code[t], *[0] * config.values]) + p["down"] @ np.maximum(p["up"] @ a + p["bias"], 0))
    m = np.array(made)
    if config.readout == "linear":
        return float((p["linear"] * m).sum())
    heads = range(config.read_heads)
    return float(sum(softmax(m @ (p["read_query_key"][h].T @ m[-1])) @ m @ p["read_value"][h] for h in heads))


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        FourierNetworkConfig(length=4, neurons=5, readout="linear", values=2),
        FourierNetworkConfig(length=4, neurons=3, code_width=3),
        FourierNetworkConfig(length=4, neurons=3, cyclic=True),
    ],
)
def test_it_computes_what_the_formulas_say(config: FourierNetworkConfig) -> None:
    network = config.network(seed=3, dtype=torch.float64)
    if config.code_width is not None:
        network.codes.copy_(torch.from_numpy(np.random.default_rng(0).normal(size=network.codes.shape)))
    lengths = (4, 7) if config.cyclic else (4,)
    for length in lengths:
        bits = np.random.default_rng(1).integers(0, 2, (6, length)).astype(np.uint8)
        found = network(torch.from_numpy(bits)).detach().numpy()
        np.testing.assert_allclose(found, [by_hand(network, each) for each in bits], atol=1e-12)


def test_it_can_be_differentiated_twice() -> None:
    network = CONFIG.network(seed=1, dtype=torch.float64)
    bits = torch.tensor([[0, 1, 1, 0]])

    def output(bias: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(network, {"bias": bias}, (bits,)).sum()

    assert torch.autograd.gradgradcheck(output, network.bias.detach().clone().requires_grad_())


def test_its_file_gives_the_same_network_back(tmp_path: Path) -> None:
    network = CONFIG.network(seed=2, dtype=torch.float64)
    save(network, tmp_path / "model.safetensors", {"made by": "hand"})
    again = load(tmp_path / "model.safetensors")
    assert isinstance(again, FourierNetwork)
    assert again.config == CONFIG
    bits = torch.from_numpy(index_bits(0, 16, 4))
    assert torch.equal(network(bits), again(bits))


def test_it_is_probed_like_any_other_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = CONFIG.network(seed=2, dtype=torch.float64)
    found = spectrum(network, 4)
    np.testing.assert_allclose(found.logits, network(torch.from_numpy(index_bits(0, 16, 4))).detach().numpy())
    assert sensitivity_profile(network, 4, exhaustive=True).strings == 16
    save(network, tmp_path / "model.safetensors")
    assert main(["sensitivity", str(tmp_path / "model.safetensors"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["length"] == 4
    assert main(["bounds", str(tmp_path / "model.safetensors")]) == 2
    assert "holds a Fourier network" in capsys.readouterr().err
    assert main(["bound", "covering", str(tmp_path / "model.safetensors")]) == 2
    assert "pac-bayes" in capsys.readouterr().err


def test_numbers_and_parameters_are_counted() -> None:
    network = CONFIG.network()
    assert sum(each.numel() for each in network.state_dict().values()) == CONFIG.numbers()
    assert math.isclose(
        network.squared_norm(), sum(float(p.detach().square().sum()) for p in network.parameters()), rel_tol=1e-5
    )
    assert all(each.is_meta for each in CONFIG.network(seed=None).parameters())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"length": 0}, "length"),
        ({"readout": "mean"}, "attention, linear"),
        ({"cyclic": True, "readout": "linear"}, "repeats them"),
        ({"code_width": 0}, "code_width"),
    ],
)
def test_choices_that_mean_nothing_are_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        FourierNetworkConfig(**{"length": 4, "neurons": 4, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("bits", [torch.zeros(1, 3), torch.zeros(4), torch.zeros(1, 5)])
def test_strings_of_another_length_are_refused(bits: torch.Tensor) -> None:
    with pytest.raises(InputError):
        CONFIG.network()(bits)
