"""The device of a model: its random generators and its number types.

Data are drawn on the CPU and moved to the device, so they are the same everywhere; results return to the CPU. Only
dropout draws on the device itself, from PyTorch's generator of that device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from flipscope.basics.errors import InputError

Device: TypeAlias = str | torch.device  # such as "cpu", "cuda", "cuda:1", "mps"
CPU = torch.device("cpu")


def device_of(model: object) -> torch.device:
    """The device of the model's parameters, or of its buffers if it has none; the CPU for other callables.

    InputError for a model that is split over several devices or has no numbers yet.

    >>> device_of(nn.Linear(2, 1))
    device(type='cpu')
    """
    if not isinstance(model, nn.Module):
        return CPU
    devices = list(dict.fromkeys(tensor.device for tensor in model.parameters()))
    devices = devices or list(dict.fromkeys(tensor.device for tensor in model.buffers()))[:1]
    if len(devices) > 1:
        names = sorted(map(str, devices))
        raise InputError(
            f"the model is split over the devices {' and '.join(names)}: bring it to one by model.to({names[-1]!r})"
        )
    if devices and devices[0].type == "meta":
        raise InputError("the model has no numbers yet: its parameters are on PyTorch's meta device")
    return devices[0] if devices else CPU


def usable_device(device: Device) -> torch.device:
    """The device of this name; InputError if there is none here.

    >>> usable_device("cpu")
    device(type='cpu')
    """
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise InputError(
            f"device={device!r} is none that PyTorch knows: give 'cpu', 'cuda', 'cuda:1' or 'mps'"
        ) from error
    try:
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:  # AssertionError: PyTorch without CUDA; RuntimeError: without mps
        reason = str(error).split("\n")[0].split(". ")[0].rstrip(".")
        raise InputError(f"device={str(found)!r} cannot be used on this machine: {reason}") from error
    if found.type == "meta":
        raise InputError("device='meta' holds no numbers: give one that computes, such as 'cpu' or 'cuda'")
    return found


@contextlib.contextmanager
def on_device(model: object, device: Device | None) -> Iterator[torch.device]:
    """Move the model to the requested device within this context; it is moved back afterwards.

    None leaves the model where it is. A callable that is not a module chooses its device itself.
    """
    own = device_of(model)
    wanted = own if device is None else usable_device(device)
    if wanted == own or not isinstance(model, nn.Module):
        yield wanted
        return
    wide = any(tensor.dtype in (torch.float64, torch.complex128) for tensor in _tensors(model))
    if wide and not has_float64(wanted):
        raise InputError(
            f"device={str(wanted)!r} has no float64, the model's type: give model.float(), or device='cpu'"
        )
    try:
        model.to(wanted)
        yield device_of(model)  # with its index: cuda is cuda:0
    finally:
        model.to(own)


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    yield from model.parameters()
    yield from model.buffers()


# ---------------------------------------------------------------- random generators


def random_states(device: torch.device) -> dict[str, Tensor]:
    """The states of PyTorch's generators of the CPU and of this device, by kind of device."""
    found = {"cpu": torch.random.get_rng_state()}
    if device.type != "cpu":
        found[device.type] = torch.get_device_module(device).get_rng_state(device)
    return found


def set_random_states(device: torch.device, states: Mapping[str, Tensor]) -> None:
    """Restore generators to the states of `random_states`; devices without a state are left alone."""
    torch.random.set_rng_state(states["cpu"])
    if device.type != "cpu" and device.type in states:
        torch.get_device_module(device).set_rng_state(states[device.type], device)


def seed_generators(device: torch.device, seed: int) -> None:
    """Seed PyTorch's generators of the CPU and of this kind of device only, unlike `torch.manual_seed`."""
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        module: Any = torch.get_device_module(device)
        seed_all = getattr(module, "manual_seed_all", None) or module.manual_seed  # there is one mps device only
        seed_all(seed)


@contextlib.contextmanager
def random_states_kept(device: torch.device) -> Iterator[None]:
    """Restore PyTorch's generators of the CPU and of this kind of device after the context."""
    if device.type != "cpu":
        devices = range(torch.get_device_module(device).device_count())
        with torch.random.fork_rng(devices=devices, device_type=device.type):
            yield
        return
    state = torch.random.get_rng_state()
    try:
        yield
    finally:
        torch.random.set_rng_state(state)


# ---------------------------------------------------------------- numbers


def has_float64(device: torch.device) -> bool:
    """Whether the device computes in float64; Apple's GPUs (mps) do not.

    >>> has_float64(torch.device("cpu"))
    True
    """
    if device.type in ("cpu", "cuda"):
        return True
    try:
        torch.empty(0, dtype=torch.float64, device=device)
    except (TypeError, RuntimeError):
        return False
    return True


def in_float64(tensor: Tensor) -> Tensor:
    """The tensor in float64: on its own device, or on the CPU if that device has no float64."""
    return tensor.double() if has_float64(tensor.device) else tensor.cpu().double()


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on this device; float64 becomes float32 if the device has no float64."""
    narrow = tensor.dtype == torch.float64 and not has_float64(device)
    return tensor.to(device, torch.float32) if narrow else tensor.to(device)


@contextlib.contextmanager
def twice_differentiable(model: object) -> Iterator[None]:
    """Within this context, cuDNN is disabled, since its recurrent kernels have no second derivatives."""
    recurrent = isinstance(model, nn.Module) and any(isinstance(each, nn.RNNBase) for each in model.modules())
    before = torch.backends.cudnn.enabled
    try:
        # cudnn.flags would set other flags too, and fails with PyTorch's newer TF32 settings.
        torch.backends.cudnn.enabled = before and not recurrent
        yield
    finally:
        torch.backends.cudnn.enabled = before
