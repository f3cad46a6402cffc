"""Absolute influence of each bit on a model's output, or on that of one of its modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, overload

import numpy as np
import torch
from jaxtyping import Float, Float64
from numpy.typing import NDArray
from torch import Tensor, nn

from flipscope.adapters.hooks import watching
from flipscope.adapters.outputs import output_rows
from flipscope.adapters.settled import Bits, Settled, as_settled
from flipscope.adapters.subject import Model
from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import check_strings
from flipscope.basics.errors import InputError
from flipscope.basics.limits import check_memory
from flipscope.basics.progress import Progress
from flipscope.flips.engine import refuse_nan, with_flips
from flipscope.flips.inside import refuse_coarse
from flipscope.models.devices import in_float64
from flipscope.models.transformer import Transformer


@overload
def influences(
    model: Model,
    strings: object,
    *,
    of: nn.Module | str | None = None,
    by_position: Literal[False] = False,
    progress: Progress | None = None,
) -> Float64[np.ndarray, "string flip"]: ...


@overload
def influences(
    model: Model,
    strings: object,
    *,
    of: nn.Module | str | None = None,
    by_position: Literal[True],
    progress: Progress | None = None,
) -> Float64[np.ndarray, "string flip position"]: ...


@checked_arguments
def influences(
    model: Model,
    strings: object,
    *,
    of: nn.Module | str | None = None,
    by_position: bool = False,
    progress: Progress | None = None,
) -> Float64[np.ndarray, "string flip"] | Float64[np.ndarray, "string flip position"]:
    """The absolute influence of each bit on each string, [string, flipped bit] (Def 2.7, Eq 6).

    I_n(f, x) = ||f(x) - f(x with bit n flipped)||_2, where f is the model's whole output, what the ``output`` of a
    `flipscope.Subject` makes of it, or the output of one of its modules, given as such or by its name in
    ``model.named_modules()``. With by_position=True, the influence on the activation at each position separately,
    I_n(y_m, x) as [string, flipped bit n, position m], for a module that returns [string, position, ...], such as a
    layer. Its positions are the model's and include a marker such as EOS; the last layer of a `Transformer`, which its
    forward pass computes only where it is read, is then computed at all of them.

    >>> influences(lambda bits: 2 * bits[:, 0] - bits[:, 1], [[0, 0], [1, 0]]).tolist()
    [[2.0, 1.0], [2.0, 1.0]]
    >>> influences(lambda bits: bits[:, :, None].cumsum(dim=1), [[0, 0]], by_position=True).tolist()
    [[[1.0, 1.0], [0.0, 1.0]]]
    """
    bits = check_strings(strings)
    settled = as_settled(model)
    if settled.meaning == "labels":
        raise InputError(
            f"influences are lengths of changes of the output, and the model, {settled.subject.kind}, gives labels "
            "only: sensitivity counts how often these change"
        )
    name = _module_name(settled, of)
    with settled.measuring():
        out = _measured(settled, bits, name, by_position, progress)
        if settled.may_overflow and not np.isfinite(out).all():
            out = _measured(settled.converted(torch.float64), bits, name, by_position, progress)
    refuse_nan(out)
    return out if by_position else out[:, :, 0]


_Ask = Callable[[Bits], Float[Tensor, "string position number"]]


def _measured(
    settled: Settled, bits: Bits, name: str | None, by_position: bool, progress: Progress | None
) -> Float64[np.ndarray, "string flip position"]:
    """The influence of each flip on each position, or on all of them together as on one."""
    ask = _places(settled, name) if by_position else _whole(settled, name)
    inside = None if name is None else lambda some: _whole(settled, name)(some)[:, 0].cpu().numpy()
    settled.prepare(bits, inside)
    if name is None:
        refuse_coarse(settled, bits)
    places = ask(bits[:1]).shape[1] if by_position else 1
    check_memory(8 * bits.size * places, f"the influences on {places:,} positions", "give fewer or shorter strings")
    count, length = bits.shape
    out = np.empty((count, length, places), np.float64)
    step = max(1, settled.batch // (length + 1))
    for start in range(0, count, step):
        some = bits[start : start + step]
        if settled.batch > length:
            found = ask(with_flips(some)).unflatten(0, (len(some), length + 1))
            out[start : start + step] = _lengths(found[:, 1:] - found[:, :1])
        else:
            base = ask(some)
            for positions in np.array_split(np.arange(length), -(-length // settled.batch)):
                out[start, positions] = _lengths(ask(_flips(some[0], positions)) - base)
        if progress is not None:
            progress(start + len(some), count)
    return out


def _whole(settled: Settled, name: str | None) -> _Ask:
    """The function that returns the output of each string as one position."""

    def ask(strings: Bits) -> Float[Tensor, "string position number"]:
        parts = _activations(settled, strings, name)
        return in_float64(torch.cat([part.flatten(1) for part in parts], dim=1))[:, None]

    return ask


def _places(settled: Settled, name: str | None) -> _Ask:
    """The function that returns the output at each position of each string."""
    source = "the model" if name is None else f"the module {name!r}"

    def ask(strings: Bits) -> Float[Tensor, "string position number"]:
        parts = _activations(settled, strings, name, everywhere=True)
        shapes = {tuple(part.shape[1:2]) if part.ndim > 2 else None for part in parts}
        if None in shapes or len(shapes) > 1:
            shape = tuple(parts[0].shape)
            raise InputError(
                f"by_position=True needs activations [string, position, number], but {source} gives {shape}: name a "
                "layer with of"
            )
        return torch.cat([in_float64(part).flatten(2) for part in parts], dim=2)

    return ask


def _activations(
    settled: Settled, strings: Bits, of: str | None, *, everywhere: bool = False
) -> list[Float[Tensor, "string ..."]]:
    """The output of the model, or of the submodule of this name: one tensor per call; one number is [string, 1].

    flipscope's transformer computes its last layer only where it is read; ``everywhere`` computes all positions.
    """
    if of is None:
        return [settled.rows(settled.run(strings), len(strings)).detach()]
    assert settled.module is not None
    seen: list[Any] = []
    part = {of: settled.module.get_submodule(of)}
    # Decided before hooks are registered, which make a transformer one that is not known.
    run = _run_everywhere if everywhere and settled.is_known else Settled.run
    with watching(part, outputs=lambda _name, _part, output: seen.append(output)):
        run(settled, strings)
    if not seen:
        raise InputError(f"the module {of!r} is not called when the model runs: name another")
    return [output_rows(out, len(strings), f"the module {of!r}").detach() for out in seen]


def _run_everywhere(settled: Settled, strings: Bits) -> Any:
    """The output of flipscope's transformer, with all its layers computed at all positions."""
    assert isinstance(settled.model, Transformer)
    return settled.model.read(settled.model.states(settled.encode(strings))[-1])


def _flips(string: Bits, positions: NDArray[np.int64]) -> Bits:
    """The string with each of these bits flipped, one row each."""
    flipped: Bits = np.repeat(string[None], len(positions), axis=0)
    flipped[np.arange(len(positions)), positions] ^= 1
    return flipped


def _lengths(change: Float[Tensor, "*flip position number"]) -> Float64[np.ndarray, "*flip position"]:
    """The Euclidean norm of each change."""
    lengths = change.abs()[..., 0] if change.shape[-1] == 1 else change.norm(dim=-1)
    found: NDArray[np.float64] = lengths.cpu().numpy()
    return found


def _module_name(settled: Settled, of: nn.Module | str | None) -> str | None:
    """The name of a module inside the model, None for the model itself."""
    model = settled.subject.model
    if of is None or of is model:
        return None
    if not isinstance(model, nn.Module):
        raise InputError(f"of names a module inside the model, but the model is {settled.subject.kind}: leave it out")
    for name, module in model.named_modules():
        if module is of or name == of:
            return str(name)
    said = repr(of) if isinstance(of, str) else type(of).__name__
    raise InputError(f"of={said} is not a module of the model: choose one of model.named_modules()")
