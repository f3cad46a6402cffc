"""Absolute influence of each bit on a model's output, or on that of one of its modules."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64
from torch import nn

from flipscope.basics.bits import check_strings
from flipscope.basics.errors import InputError
from flipscope.basics.progress import Progress
from flipscope.flips.engine import MEMORY_LIMIT, GeneralEngine, Inputs, Model, refuse_nan
from flipscope.flips.inside import refuse_coarse
from flipscope.flips.signs import Precision, working_type


def influences(
    model: Model,
    strings: object,
    *,
    of: nn.Module | str | None = None,
    precision: Precision = "auto",
    inputs: Inputs = "auto",
    batch: int | None = None,
    memory_limit: int = MEMORY_LIMIT,
    progress: Progress | None = None,
) -> Float64[np.ndarray, "string position"]:
    """The absolute influence of each bit on each string, [string, position] (Def 2.7, Eq 6).

    I_i(f, x) = ||f(x) - f(x with bit i flipped)||_2, f being the model's whole output, or the output of one of its
    modules, given as such or by its name in ``model.named_modules()``.

    >>> influences(lambda bits: 2 * bits[:, 0] - bits[:, 1], [[0, 0], [1, 0]]).tolist()
    [[2.0, 1.0], [2.0, 1.0]]
    """
    bits = check_strings(strings)
    dtype = working_type(model, precision)
    name = _module_name(model, of)
    engine = GeneralEngine(model, dtype=dtype, inputs=inputs, batch=batch, memory_limit=memory_limit)
    engine.check_deterministic(bits, name)
    if precision == "float64" and name is None:
        refuse_coarse(engine, bits)
    out = np.empty(bits.shape, np.float64)
    for row, string in enumerate(bits):
        base = engine.outputs(string[None], name).double()
        for positions in np.array_split(np.arange(len(string)), math.ceil(len(string) / engine.batch)):
            flipped = np.repeat(string[None], len(positions), axis=0)
            flipped[np.arange(len(positions)), positions] ^= 1
            change = engine.outputs(flipped, name).double() - base  # [flip, number]
            out[row, positions] = change.norm(dim=1).cpu().numpy()
        if progress is not None:
            progress(row + 1, len(bits))
    refuse_nan(out)
    return out


def _module_name(model: Model, of: nn.Module | str | None) -> str | None:
    """The name of a module inside the model, None for the model itself."""
    if of is None or of is model:
        return None
    if not isinstance(model, nn.Module):
        raise InputError("of names a module inside the model, but the model is a function: leave it out")
    for name, module in model.named_modules():
        if module is of or name == of:
            return str(name)
    said = repr(of) if isinstance(of, str) else type(of).__name__
    raise InputError(f"of={said} is no module of the model: choose one of model.named_modules()")
