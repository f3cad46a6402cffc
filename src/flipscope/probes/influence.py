"""Absolute influence of each bit on a model's output, or on that of one of its modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, overload

import numpy as np
import torch
from jaxtyping import Float, Float64
from numpy.typing import NDArray
from torch import Tensor, nn

from flipscope.basics.arguments import checked_arguments, renamed_arguments
from flipscope.basics.bits import check_strings
from flipscope.basics.errors import InputError
from flipscope.basics.limits import check_memory
from flipscope.basics.progress import Progress
from flipscope.flips.engine import GeneralEngine, refuse_nan
from flipscope.flips.inside import refuse_coarse
from flipscope.flips.signs import Precision, working_type
from flipscope.models.batches import MEMORY_LIMIT
from flipscope.models.devices import Device, in_float64
from flipscope.models.encoding import Encoding
from flipscope.models.outputs import Output
from flipscope.models.subject import Bits, Model, Subject, as_subject


@overload
def influences(
    model: Model,
    strings: object,
    *,
    of: nn.Module | str | None = None,
    by_position: Literal[False] = False,
    precision: Precision = "auto",
    encoding: Encoding = "auto",
    output: Output = "auto",
    device: Device | None = None,
    batch: int | None = None,
    memory_limit: int = MEMORY_LIMIT,
    progress: Progress | None = None,
) -> Float64[np.ndarray, "string flip"]: ...


@overload
def influences(
    model: Model,
    strings: object,
    *,
    of: nn.Module | str | None = None,
    by_position: Literal[True],
    precision: Precision = "auto",
    encoding: Encoding = "auto",
    output: Output = "auto",
    device: Device | None = None,
    batch: int | None = None,
    memory_limit: int = MEMORY_LIMIT,
    progress: Progress | None = None,
) -> Float64[np.ndarray, "string flip position"]: ...


@renamed_arguments(inputs="encoding")
@checked_arguments
def influences(
    model: Model,
    strings: object,
    *,
    of: nn.Module | str | None = None,
    by_position: bool = False,
    precision: Precision = "auto",
    encoding: Encoding = "auto",
    output: Output = "auto",
    device: Device | None = None,
    batch: int | None = None,
    memory_limit: int = MEMORY_LIMIT,
    progress: Progress | None = None,
) -> Float64[np.ndarray, "string flip"] | Float64[np.ndarray, "string flip position"]:
    """The absolute influence of each bit on each string, [string, flipped bit] (Def 2.7, Eq 6).

    I_n(f, x) = ||f(x) - f(x with bit n flipped)||_2, where f is the model's whole output, a function of it given as
    ``output``, or the output of one of its modules, given as such or by its name in ``model.named_modules()``. With
    by_position=True, the influence on the activation at each position separately, I_n(y_m, x) as
    [string, flipped bit n, position m], for a module that returns [string, position, ...], such as a layer. Its
    positions are the model's and include a marker such as EOS; the last layer of a `Transformer`, which its forward
    pass computes only where it is read, is then computed at all of them.

    >>> influences(lambda bits: 2 * bits[:, 0] - bits[:, 1], [[0, 0], [1, 0]]).tolist()
    [[2.0, 1.0], [2.0, 1.0]]
    >>> influences(lambda bits: bits[:, :, None].cumsum(dim=1), [[0, 0]], by_position=True).tolist()
    [[[1.0, 1.0], [0.0, 1.0]]]
    """
    bits = check_strings(strings)
    subject = as_subject(model, encoding, output, device)
    if subject.foreign is not None and subject.foreign.declared == "labels":
        raise InputError(
            f"influences are lengths of changes of the output, and the model, {subject.foreign.kind}, gives labels "
            "only: sensitivity counts how often these change"
        )
    dtype = working_type(subject, precision)
    name = _module_name(subject, of)
    with subject.kept():
        engine = GeneralEngine(subject, dtype=dtype, batch=batch, memory_limit=memory_limit)
        engine.check_deterministic(bits, name)
        if precision == "float64" and name is None:
            refuse_coarse(engine, bits)
        out = _measured(engine, bits, name, by_position, progress)
        if dtype == torch.float32 and not np.isfinite(out).all():  # float32 may overflow where float64 does not
            out = _measured(engine.converted(torch.float64), bits, name, by_position, progress)
    refuse_nan(out)
    return out if by_position else out[:, :, 0]


_Ask = Callable[[Bits], Float[Tensor, "string position number"]]


def _measured(
    engine: GeneralEngine, bits: Bits, name: str | None, by_position: bool, progress: Progress | None
) -> Float64[np.ndarray, "string flip position"]:
    """The influence of each flip on each position, or on all of them together as on one."""
    ask = _places(engine, name) if by_position else _whole(engine, name)
    places = ask(bits[:1]).shape[1]
    check_memory(8 * bits.size * places, f"the influences on {places:,} positions", "give fewer or shorter strings")
    out = np.empty((*bits.shape, places), np.float64)
    for row, string in enumerate(bits):
        base = ask(string[None])
        for positions in np.array_split(np.arange(len(string)), -(-len(string) // engine.batch)):
            out[row, positions] = _lengths(ask(_flips(string, positions)) - base)
        if progress is not None:
            progress(row + 1, len(bits))
    return out


def _whole(engine: GeneralEngine, name: str | None) -> _Ask:
    """The function that returns the output of each string as one position."""
    return lambda strings: in_float64(engine.outputs(strings, name))[:, None]


def _places(engine: GeneralEngine, name: str | None) -> _Ask:
    """The function that returns the output at each position of each string."""
    source = "the model" if name is None else f"the module {name!r}"

    def ask(strings: Bits) -> Float[Tensor, "string position number"]:
        parts = engine.activations(strings, name, everywhere=True)
        shapes = {tuple(part.shape[1:2]) if part.ndim > 2 else None for part in parts}
        if None in shapes or len(shapes) > 1:
            shape = tuple(parts[0].shape)
            raise InputError(
                f"by_position=True needs activations [string, position, number], but {source} gives {shape}: name a "
                "layer with of"
            )
        return torch.cat([in_float64(part).flatten(2) for part in parts], dim=2)

    return ask


def _flips(string: Bits, positions: NDArray[np.int64]) -> Bits:
    """The string with each of these bits flipped, one row each."""
    flipped: Bits = np.repeat(string[None], len(positions), axis=0)
    flipped[np.arange(len(positions)), positions] ^= 1
    return flipped


def _lengths(change: Float[Tensor, "flip position number"]) -> Float64[np.ndarray, "flip position"]:
    """The Euclidean norm of each change."""
    found: NDArray[np.float64] = change.norm(dim=2).cpu().numpy()
    return found


def _module_name(subject: Subject, of: nn.Module | str | None) -> str | None:
    """The name of a module inside the model, None for the model itself."""
    model = subject.original
    if of is None or of is model:
        return None
    if not isinstance(model, nn.Module):
        kind = "a function" if subject.foreign is None else subject.foreign.kind
        raise InputError(f"of names a module inside the model, but the model is {kind}: leave it out")
    for name, module in model.named_modules():
        if module is of or name == of:
            return str(name)
    said = repr(of) if isinstance(of, str) else type(of).__name__
    raise InputError(f"of={said} is not a module of the model: choose one of model.named_modules()")
