"""The network that can be read off its weights: what it computes, and probes on it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from flipscope.basics.bits import index_bits
from flipscope.basics.errors import InputError
from flipscope.models.readable_network import ReadableNetwork, ReadableNetworkConfig
from flipscope.probes.curvature import curvature
from flipscope.probes.sensitivity import sensitivity_profile

CONFIG = ReadableNetworkConfig(length=4, hidden=5)


def by_hand(network: ReadableNetwork, string: np.ndarray) -> float:
    """One string, one position after the other."""
    p = {name: each.detach().double().numpy() for name, each in network.named_parameters()}
    length = network.config.length
    x = np.array([[*np.eye(length)[t], 1 - bit, bit] for t, bit in enumerate(string)], dtype=float)
    heights = []
    for t in range(length):
        logits = np.array(
            [network.config.scale * (p["query.weight"] @ x[t]) @ (p["key.weight"] @ x[j]) for j in range(length)]
        )
        weights = np.exp(logits) / np.exp(logits).sum()
        z = float(p["value.weight"][0] @ (weights @ x))
        hidden = np.maximum(p["up.weight"][:, 0] * z + p["up.bias"], 0)
        heights.append(float(p["down.weight"][0] @ hidden + p["down.bias"][0]))
    return float(p["readout.weight"][0] @ heights + p["readout.bias"][0])


def test_it_computes_what_the_formulas_say() -> None:
    network = ReadableNetwork(CONFIG, seed=3).double()
    bits = index_bits(0, 16, 4)
    found = network(torch.from_numpy(bits)).detach().numpy()
    np.testing.assert_allclose(found, [by_hand(network, each) for each in bits], atol=1e-12)


def test_its_matrix_is_the_mean_of_its_logits() -> None:
    network = ReadableNetwork(CONFIG, scheme="uniform", seed=1).double()
    product = network.config.scale * (network.query.weight.T @ network.key.weight).detach()
    means = torch.zeros(4, 4, dtype=torch.float64)
    for asking in (4, 5):  # the coordinates of the bits 0 and 1
        for asked in (4, 5):
            whole = product[:4, :4] + product[asking, :4] + product[:4, [asked]] + product[asking, asked]
            means += whole / 4
    # What does not depend on the column is the same for all weights of a row.
    torch.testing.assert_close(network.query_key().softmax(dim=1), means.softmax(dim=1))


def test_probes_work_on_it() -> None:
    network = ReadableNetwork(CONFIG, seed=0)
    bits = torch.from_numpy(index_bits(0, 16, 4))
    assert sensitivity_profile(network, 4, strings=8).strings == 8
    found = curvature(network, "mse", (bits, torch.zeros(16)), what="trace")
    assert found.trace is not None
    assert np.isfinite(found.trace.value.value)


def test_bad_input() -> None:
    with pytest.raises(InputError, match="length"):
        ReadableNetworkConfig(length=1)
    with pytest.raises(InputError, match=r"bits must be a torch tensor \[string, 4\]"):
        ReadableNetwork(CONFIG)(torch.zeros(2, 5))
