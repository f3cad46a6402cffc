"""`torch.device("twin")`: another device as far as PyTorch can tell, with real numbers, computed by the CPU.

A tensor of the twin is a PrivateUse1 tensor that shares its memory with a CPU tensor. Every operator on it arrives in
one Python function, which calls the same operator of the CPU and gives the result back to the twin. So numbers equal
those of the CPU bit for bit wherever the CPU computes by the same operators, which it does not in attention and LSTMs.
These things go wrong as they would on a GPU:

    tensors of the twin and of the CPU in one operator (a number without axes may be of either, as on CUDA)
    a tensor of the twin as a numpy array
    a CPU generator for random numbers on the twin
    random numbers of the twin, such as masks of dropout: they come from a state of its own (`torch.twin.get_rng_state`,
    `set_rng_state`, `manual_seed_all`), which neither reads nor moves the CPU's
    float64 inside `without_float64()`, as on Apple's GPUs

What it cannot show: rounding, speed, memory and asynchrony of a GPU; kernels that differ from the CPU's, such as fused
attention (it always takes the plain one) and cuDNN; casts by autocast other than those of products; several devices of
one kind; streams, pinned memory and `torch.Generator(device="twin")`. Of recurrent layers it knows LSTMs. `model.to`
gives a module new Parameter objects, as for no GPU, so that tied ones are tied no longer.

It takes PyTorch's one PrivateUse1 name for the rest of the process and cannot be taken out again, so that the tests in
this folder run in a process of their own (`conftest.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils import backend_registration

NAME = "twin"
ran: Counter[str] = Counter()  # how often each operator was called on the twin

_DLPACK_CPU, _DLPACK_OTHER = 1, 12  # kDLCPU; kDLExtDev, which PyTorch takes for PrivateUse1
# Operators that take tensors of both devices by their contract.
_ACROSS = {"_copy_from", "copy_", "set_", "is_pinned", "_pin_memory", "_pack_padded_sequence"}
# Operators whose indices may be on the CPU while the rest is on the device.
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}


class _Lacks:
    """What the twin is without for the time being."""

    float64 = False


@contextlib.contextmanager
def without_float64() -> Iterator[None]:
    """The twin refuses float64 inside, in the words of mps."""
    _Lacks.float64 = True
    try:
        yield
    finally:
        _Lacks.float64 = False


def install() -> torch.device:
    """The twin, registered with PyTorch when this is first called."""
    if not hasattr(torch, NAME):
        backend_registration._setup_privateuseone_for_python_backend(NAME, _Backend())
        everything, single = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
        everything.fallback(_call, "PrivateUse1")
        everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
        for name in _LOWERED:
            single.impl(name, _lowered(name), "AutocastPrivateUse1")
        single.impl("convolution_overrideable", _convolution, "PrivateUse1")
        single.impl("convolution_backward_overrideable", _convolution_backward, "PrivateUse1")
        _libraries.extend([everything, single])
        torch.UntypedStorage.clone = _clone_twin_storage  # type: ignore[method-assign]
    return torch.device(NAME, 0)


_libraries: list[torch.library.Library] = []  # registrations last as long as these


# ---------------------------------------------------------------- one memory, two labels


class _TensorHead(ctypes.Structure):
    """The first fields of DLPack's DLTensor."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_index", ctypes.c_int32)]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _labelled(tensor: Tensor, kind: int) -> Tensor:
    """The same numbers in the same memory under the label of the other device, by way of a DLPack capsule."""
    capsule = torch._C._to_dlpack(tensor.detach().resolve_conj().resolve_neg())
    head = _TensorHead.from_address(_pointer_of(capsule, b"dltensor"))
    head.device_type, head.device_index = kind, 0
    found: Tensor = torch._C._from_dlpack(capsule)
    return found


def on_twin(tensor: Tensor) -> Tensor:
    return tensor if tensor.device.type == NAME else _labelled(tensor, _DLPACK_OTHER)


def on_cpu(tensor: Tensor) -> Tensor:
    return tensor if tensor.device.type == "cpu" else _labelled(tensor, _DLPACK_CPU)


# ---------------------------------------------------------------- operators


def _call(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """An operator on the twin."""
    name = _operator(operator)[0]
    ran[name] += 1
    _refuse_mixture(name, args, kwargs)
    if _Lacks.float64:
        _refuse_float64((args, *kwargs.values()))
    if name == "_copy_from":  # what copy_ becomes, in either direction
        source, target = args[:2]
        on_cpu(target).copy_(on_cpu(source))
        return target
    if name == "set_" and isinstance(args[1], torch.UntypedStorage):
        return _set_storage(*args)
    return _computed(operator, args, kwargs)


@functools.cache
def _operator(operator: Any) -> tuple[str, frozenset[int], frozenset[str], bool]:
    """An operator's name, the places of its tensors, the names of its outputs, and whether it draws random numbers."""
    arguments = operator._schema.arguments
    tensors = frozenset(place for place, each in enumerate(arguments) if str(each.type) == "Tensor")
    outputs = frozenset(each.name for each in arguments if each.is_out)
    draws = torch.Tag.nondeterministic_seeded in operator.tags
    return operator._schema.name.removeprefix("aten::"), tensors, outputs, draws


def _mapped(function: Callable[[Any], Any], part: Any) -> Any:
    """The function of a part, or of every part of a list or tuple: arguments and results have no other containers."""
    kind = type(part)
    return kind([_mapped(function, each) for each in part]) if kind is list or kind is tuple else function(part)


def _leaves(part: Any) -> Iterator[Any]:
    if isinstance(part, list | tuple):
        for each in part:
            yield from _leaves(each)
    else:
        yield part


def _computed(operator: Any, args: Any, kwargs: Any) -> Any:
    """The result of the CPU's operator, with outputs and changed shapes brought back to the tensors of the twin."""
    name, tensors, outputs, draws = _operator(operator)
    pairs: list[tuple[Tensor, Tensor]] = []  # a tensor of the twin, and its stand-in on the CPU

    def stand_in(part: Any, is_output: bool = False) -> Any:
        if isinstance(part, torch.device):
            return torch.device("cpu")
        if not isinstance(part, Tensor) or part.device.type != NAME:
            return part
        # Memory that came by DLPack cannot grow, so that what may have to grow gets memory of its own.
        own = on_cpu(part)
        own = own.new_empty(0) if is_output else own.clone() if name == "resize_" else own
        pairs.append((part, own))
        return own

    # A plain number where the operator has a tensor arrives as Python's.
    given = [
        torch.tensor(part, device="cpu")
        if place in tensors and isinstance(part, bool | int | float)
        else _mapped(stand_in, part)
        for place, part in enumerate(args)
    ]
    named = {
        key: _mapped(functools.partial(stand_in, is_output=key in outputs), value) for key, value in kwargs.items()
    }
    with _twin_randomness() if draws else contextlib.nullcontext():
        found = _REPLACED.get(name, operator)(*given, **named)
    for part, own in pairs:
        if part.shape != own.shape or part.stride() != own.stride():  # resize_, t_, squeeze_ and outputs that grew
            part.data = on_twin(own)
        elif part.data_ptr() != own.data_ptr():
            on_cpu(part).copy_(own)
    known = {id(own): part for part, own in pairs}
    found = _mapped(lambda part: on_twin(known.get(id(part), part)) if isinstance(part, Tensor) else part, found)
    if _Lacks.float64:
        _refuse_float64(found)
    return found


def _set_storage(
    tensor: Tensor, storage: torch.UntypedStorage, offset: int = 0, size: Any = None, stride: Any = ()
) -> Tensor:
    """The tensor with a storage of the twin as its memory, which `torch.save` and copies ask for."""
    memory = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    memory.storage = storage  # type: ignore[attr-defined]  # kept alive
    flat = torch.frombuffer(memory, dtype=tensor.dtype) if len(memory) else torch.empty(0, dtype=tensor.dtype)
    tensor.data = on_twin(flat if size is None else flat.as_strided(size, stride, offset))
    return tensor


_clone_storage = torch.UntypedStorage.clone


def _clone_twin_storage(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """A copy of a storage, for copy.deepcopy of a buffer: PyTorch has no allocator for the twin."""
    if storage.device.type != NAME:
        return _clone_storage(storage)
    memory = torch.empty(storage.nbytes(), dtype=torch.uint8, device="cpu")
    ctypes.memmove(memory.data_ptr(), storage.data_ptr(), storage.nbytes())
    return on_twin(memory).untyped_storage()


def _refuse_mixture(name: str, args: Any, kwargs: Any) -> None:
    if name in _ACROSS:
        return
    if name in _INDEXING and args[0].device.type == NAME:
        args = (args[0], *args[2:3])
    parts = list(_leaves((args, *kwargs.values())))
    if any(isinstance(part, torch.Generator) and part.device.type != NAME for part in parts):
        raise RuntimeError(f"Expected a '{NAME}' device type for generator but found 'cpu'")
    tensors = [part for part in parts if isinstance(part, Tensor)]
    kinds = {part.device.type for part in tensors if part.device.type == NAME or part.ndim}
    if len(kinds) > 1:
        raise RuntimeError(f"Expected all tensors to be on the same device, but found {NAME}:0 and cpu ({name})")


def _refuse_float64(parts: Any) -> None:
    for part in _leaves(parts):
        kind = part.dtype if isinstance(part, Tensor) and part.device.type == NAME else part
        if kind in (torch.float64, torch.complex128):
            raise TypeError(f"Cannot convert a {NAME} Tensor to float64 dtype as it doesn't support float64")


# ---------------------------------------------------------------- operators that the CPU has not, or not by this name


def _convolution(*args: Any) -> Any:
    return _call(torch.ops.aten.convolution.default, *args)


def _convolution_backward(by_output: Tensor, given: Tensor, weight: Tensor, *others: Any) -> Any:
    return _call(torch.ops.aten.convolution_backward.default, by_output, given, weight, [by_output.shape[1]], *others)


def _lstm_cell(
    from_input: Tensor, from_state: Tensor, cell: Tensor, input_bias: Any = None, state_bias: Any = None
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of an LSTM: the new state, the new cell, and the gates for the derivative."""
    total = from_input + from_state
    if input_bias is not None:
        total = total + input_bias + state_bias
    take, keep, new, show = total.chunk(4, dim=1)
    take, keep, new, show = take.sigmoid(), keep.sigmoid(), new.tanh(), show.sigmoid()
    after = keep * cell + take * new
    return show * after.tanh(), after, torch.cat([take, keep, new, show], dim=1)


def _lstm_cell_backward(
    by_state: Tensor | None, by_cell: Tensor | None, cell: Tensor, after: Tensor, gates: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The derivatives by the sums before the gates, by the old cell and by a bias."""
    take, keep, new, show = gates.chunk(4, dim=1)
    seen = after.tanh()
    by_state = torch.zeros_like(after) if by_state is None else by_state
    by_after = by_state * show * (1 - seen * seen)
    if by_cell is not None:
        by_after = by_after + by_cell
    by_sums = torch.cat(
        [
            by_after * new * take * (1 - take),
            by_after * cell * keep * (1 - keep),
            by_after * take * (1 - new * new),
            by_state * seen * show * (1 - show),
        ],
        dim=1,
    )
    return by_sums, by_after * keep, by_sums.sum(dim=0) if has_bias else None


_REPLACED: dict[str, Callable[..., Any]] = {
    "_thnn_fused_lstm_cell": _lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": _lstm_cell_backward,
    "_efficientzerotensor": torch.zeros,  # zeros without memory, which cannot be shared
    "_fused_sdp_choice": lambda *args, **kwargs: 0,  # attention by plain products
}


# ---------------------------------------------------------------- autocast

_LOWERED = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm")  # computed in the type that autocast names


def _lowered(name: str) -> Callable[..., Any]:
    operator = getattr(torch.ops.aten, name).default

    def call(*args: Any, **kwargs: Any) -> Any:
        kind = torch.get_autocast_dtype(NAME)
        args, kwargs = pytree.tree_map_only(
            Tensor, lambda part: part.to(kind) if part.is_floating_point() else part, (args, kwargs)
        )
        with torch.autocast(NAME, enabled=False):
            return operator(*args, **kwargs)

    return call


# ---------------------------------------------------------------- randomness


class _Backend(backend_registration._DummyBackendModule):
    """`torch.twin`: one device, with a state of its random numbers."""

    def __init__(self) -> None:
        self.state = torch.Generator().manual_seed(0).get_state()

    def get_rng_state(self, device: Any = 0) -> Tensor:
        return self.state.clone()

    def set_rng_state(self, state: Tensor, device: Any = 0) -> None:
        self.state = state.clone()

    def manual_seed_all(self, seed: int) -> None:
        self.state = torch.Generator().manual_seed(seed).get_state()

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


@contextlib.contextmanager
def _twin_randomness() -> Iterator[None]:
    """The CPU's default generator is in the twin's state inside."""
    backend = torch.get_device_module(NAME)
    before = torch.random.get_rng_state()
    torch.random.set_rng_state(backend.get_rng_state())
    try:
        yield
        backend.set_rng_state(torch.random.get_rng_state())
    finally:
        torch.random.set_rng_state(before)
