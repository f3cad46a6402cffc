"""The twin itself: it refuses what a GPU refuses, has random numbers of its own, and computes what the CPU does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from devices import twin
from torch import Tensor, nn
from torch.nn import functional as F


def mixed(device: torch.device) -> list[Callable[[], Any]]:
    here, there = torch.ones(3), torch.ones(3, device=device)
    model = nn.Linear(3, 1).to(device)
    return [
        lambda: there + here,
        lambda: here @ there,
        lambda: torch.cat([there, here]),
        lambda: model(here),
        lambda: there.add_(here),
        lambda: torch.where(here > 0, there, there),
        lambda: F.embedding(torch.tensor([0]), there[:, None]),
        lambda: here[torch.tensor([0], device=device)],
        lambda: F.mse_loss(there, here),
        lambda: torch.add(here, here, out=there),
        lambda: there + torch.zeros(3, dtype=torch.float64),
    ]


@pytest.mark.parametrize("number", range(11))
def test_tensors_of_both_devices_are_refused(device: torch.device, number: int) -> None:
    with pytest.raises(RuntimeError, match="device"):
        mixed(device)[number]()


def test_what_cuda_allows_is_allowed(device: torch.device) -> None:
    there = torch.arange(3.0, device=device)
    assert (there + torch.tensor(1.0)).tolist() == [1, 2, 3]
    assert there[torch.tensor([2, 0])].tolist() == [2, 0]
    there[torch.tensor([1])] = 5.0
    assert torch.zeros(3).copy_(there).tolist() == [0, 5, 2]


def test_numpy_and_generators_of_the_cpu_are_refused(device: torch.device) -> None:
    with pytest.raises(TypeError, match="to numpy"):
        torch.ones(3, device=device).numpy()
    with pytest.raises(RuntimeError, match="device type for generator"):
        torch.rand(3, device=device, generator=torch.Generator())


def test_random_numbers_are_its_own(device: torch.device) -> None:
    module = torch.get_device_module(device)
    before, here = module.get_rng_state(), torch.random.get_rng_state()
    first = F.dropout(torch.ones(64, device=device))
    assert torch.equal(here, torch.random.get_rng_state())
    assert not torch.equal(before, module.get_rng_state())
    assert not torch.equal(first, F.dropout(torch.ones(64, device=device)))
    module.set_rng_state(before)
    assert torch.equal(first, F.dropout(torch.ones(64, device=device)))
    module.manual_seed_all(7)
    masked = F.dropout(torch.ones(64, device=device)).cpu()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        assert torch.equal(masked, F.dropout(torch.ones(64)))
        assert torch.equal(module.get_rng_state(), torch.Generator().manual_seed(7).get_state())  # all are seeded
    module.set_rng_state(before)
    with torch.random.fork_rng(devices=[]):
        torch.rand(3)
        assert torch.equal(before, module.get_rng_state())


def test_float64_can_be_taken_away(device: torch.device) -> None:
    number = torch.ones(2, device=device)
    with twin.without_float64():
        for call in (
            number.double,
            lambda: torch.ones(2, dtype=torch.float64, device=device),
            lambda: torch.ones(2).double().to(device),
            lambda: number.sum(dtype=torch.float64),
            lambda: nn.Linear(2, 1).double().to(device),
        ):
            with pytest.raises(TypeError, match="float64"):
                call()
        assert torch.ones(2, dtype=torch.float64).to(device, torch.float32).dtype == torch.float32
        assert number.cpu().double().dtype == torch.float64
    assert number.double().dtype == torch.float64


def test_it_computes_what_the_cpu_does(device: torch.device, tmp_path: Path) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        convolutional = nn.Sequential(nn.Conv1d(1, 3, 2), nn.BatchNorm1d(3), nn.GELU(), nn.Flatten(), nn.Linear(9, 2))
        here = torch.rand(5, 1, 4, requires_grad=True)
    there = here.detach().to(device).requires_grad_()
    other = copy.deepcopy(convolutional).to(device)
    first, second = convolutional(here).square().sum(), other(there).square().sum()
    assert first.item() == second.item()
    first.backward()
    second.backward()
    assert torch.equal(here.grad, there.grad.cpu())  # type: ignore[arg-type, union-attr]
    torch.save(other.state_dict(), tmp_path / "weights.pt")
    again = torch.load(tmp_path / "weights.pt", map_location="cpu")
    assert all(torch.equal(value, again[name]) for name, value in convolutional.state_dict().items())
    copied = copy.deepcopy(other)
    assert all(torch.equal(value.cpu(), again[name]) for name, value in copied.state_dict().items())
    assert {value.device.type for value in copied.state_dict().values()} == {"twin"}
    grown = torch.empty(0, device=device)
    torch.mul(there.detach(), 2, out=grown)
    assert grown.shape == there.shape
    view = torch.zeros(2, 3, device=device)
    view[1] = 1.0
    view.t_()
    assert view.cpu().tolist() == [[0, 1]] * 3


@pytest.mark.parametrize("order", [1, 2])
def test_lstms(device: torch.device, order: int) -> None:
    def derivative(model: nn.LSTM, given: Tensor) -> Tensor:
        out = model(given)[0].square().sum()
        parameters = list(model.parameters())
        found = torch.autograd.grad(out, parameters, create_graph=order == 2)
        if order == 2:
            found = torch.autograd.grad(sum(each.square().sum() for each in found), parameters)  # type: ignore[arg-type]
        return torch.cat([each.flatten().cpu() for each in found])

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        here, given = nn.LSTM(2, 3, batch_first=True), torch.rand(2, 4, 2)
    there = copy.deepcopy(here).to(device)
    torch.testing.assert_close(derivative(here, given), derivative(there, given.to(device)), atol=1e-6, rtol=1e-4)


def test_autocast_lowers_products(device: torch.device) -> None:
    given = torch.rand(2, 3, device=device)
    with torch.autocast("twin", torch.bfloat16):
        assert nn.Linear(3, 2).to(device)(given).dtype == torch.bfloat16
        assert (given + 1).dtype == torch.float32
