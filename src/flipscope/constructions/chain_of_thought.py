"""Parity one bit at a time: the network of App. G in paper 002, which writes every step and reads it again.

Positions repeat with period T, so that step i, at token T + i, has the code of bit i. Attention between equal codes
brings the mean of x_i and of r_(i-1), which was written there; an MLP of degree 2 gives 1 where they agree; r_i is the
other answer. r_T is the parity of all bits, by a function of degree 2, whatever T is.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Int64
from torch import Tensor

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.models.devices import device_of
from flipscope.models.fourier_network import FourierNetwork
from flipscope.models.fourier_network_config import FourierNetworkConfig

_DEGREE = 2


@checked_arguments
def parity_steps(length: int, *, dtype: torch.dtype = torch.float64) -> FourierNetwork:
    """The constructed network that answers [x_i + r_(i-1) is even] at step i; `write_steps` runs it.

    >>> network = parity_steps(6)
    >>> write_steps(network, torch.tensor([[1, 0, 1, 1, 0, 0]])).tolist()  # the parities of 1, 10, 101, ...
    [[1, 1, 0, 1, 1, 1]]
    """
    length = check_count("length", length, 4)
    corners, slopes = (0.75, 0.25, -0.25, -0.75), (1.0, -1.0, -1.0, 1.0)
    config = FourierNetworkConfig(length=length, neurons=4 * (_DEGREE + 1), cyclic=True)
    network = FourierNetwork(config, dtype=torch.float64)
    same = 2 * math.log(length) * torch.eye(length, dtype=torch.float64, device="cpu")
    with torch.no_grad():
        for each in network.parameters():
            each.zero_()
        network.query_key[0, :length, :length] = same
        network.value[0, length, length] = 1.0
        network.up[:, length] = 1.0
        shifts = [(each - k) / _DEGREE for k in range(_DEGREE + 1) for each in corners]
        network.bias.copy_(torch.tensor(shifts, device="cpu"))
        signs = [2 * _DEGREE * each * (k % 2 == 0) for k in range(_DEGREE + 1) for each in slopes]
        network.down[length] = torch.tensor(signs, device="cpu")
        network.read_query_key[0, :length, :length] = same
        network.read_value[0, length] = 1.0
    return network.to(dtype).eval()


@torch.no_grad()
@checked_arguments
def write_steps(network: FourierNetwork, bits: Tensor) -> Int64[Tensor, "string step"]:
    """r_1, ..., r_T as the network writes them by itself: 1 where its answer is below one half."""
    config = network.config
    if not config.cyclic:
        raise InputError("a network with cyclic=False writes no steps: build it with parity_steps")
    if not isinstance(bits, Tensor) or bits.ndim != 2 or bits.shape[1] != config.length:
        raise InputError(f"bits must be a torch tensor [string, {config.length}]")
    read = bits.to(device_of(network)).long()
    for _ in range(config.length):
        read = torch.cat([read, (network(read) < 0.5).long()[:, None]], dim=1)
    return read[:, config.length :].cpu()
