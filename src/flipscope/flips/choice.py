"""Choosing a path: the fast one if it supports the model, unless compiling or loading it takes longer than the work.

Machine code is cached on disk: compiling takes half a minute once, and loading it takes a second. A measurement of a
small model should not wait for either: as long as its work costs less, the general path does it, with the same answers.
Work and compilation are counted in seconds of one nominal core: a slower machine is slower at both, so the choice does
not depend on the load of the machine.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch

from flipscope.adapters.rounding import name_of
from flipscope.basics.compiling import VARIABLE, compiling
from flipscope.models.config import TransformerConfig
from flipscope.models.size import multiplications
from flipscope.models.transformer import Transformer
from flipscope.models.unmodified import difference, on_cpu
from flipscope.native.cache import is_kept

NEEDS = "flipscope's own transformer on bits, with one output read at its first or last position"


def obstacle(model: object) -> str | None:
    """Why the fast path cannot measure the model, which must be exactly what its configuration says; None if it can.

    Autocast changes what it computes.
    """
    found = difference(model)
    if found is not None or not isinstance(model, Transformer):
        return found
    config = model.config
    if config.inputs != "bits" or config.readout not in ("first", "last") or config.outputs != 1:
        return f"the model has inputs={config.inputs!r}, readout={config.readout!r} and outputs={config.outputs}"
    if torch.is_autocast_enabled("cpu"):
        return f"autocast to {name_of(torch.get_autocast_dtype('cpu'))} is on"
    return None if on_cpu(model) else "the model is not on the CPU"


def native_obstacle(model: object) -> str | None:
    """The same for answers in the model's own number type, which the fast path must support."""
    if (found := obstacle(model)) is not None or not isinstance(model, Transformer):
        return found
    types = {parameter.dtype for parameter in model.parameters()}
    if types in ({torch.float32}, {torch.float64}):
        return None
    return f"the model's own numbers are in {' and '.join(sorted(map(name_of, types)))}, not float32 or float64"


# ---------------------------------------------------------------- work, and the cost of machine code

SPEED = 1.5e10  # multiplications a second of the general path at widths 32 to 128, on one core
LOADING_SECONDS = 1.0  # numba's import and its work before running the first machine code


@dataclass(frozen=True)
class Work:
    """The planned work: a number of strings of a length, alone or with all their flips."""

    strings: int
    length: int
    flips: bool = True

    def seconds(self, config: TransformerConfig) -> float:
        """The approximate time that the general path takes."""
        logits = self.strings * (self.length + 1 if self.flips else 1)
        return logits * multiplications(config, self.length) / SPEED


WIDEST = 256  # wider layers are computed as fast, or faster, by PyTorch's products
UNITS = 4  # the loops compute so many units together
LOOPS = (
    "lanes.middle_layer",
    "lanes.last_layer",
    "first_lanes.first_shares",
    "first_lanes.own_shares",
    "first_lanes.take_rows",
    "first_lanes.own_numbers",
    "first_lanes.first_layer",
)
COMPILE_SECONDS = 3.0  # to compile one of them: 22 s for all seven


def has_loops(config: TransformerConfig, dtype: torch.dtype) -> bool:
    """Whether there are compiled loops for such a model (`flips.lanes`); other models need no machine code."""
    return (
        dtype == torch.float32
        and config.layers >= 2
        and config.mlp_count == config.layers
        and config.attention == "softmax"
        and not config.causal
        and not config.mask_self
        and config.combine == "project"
        and config.block == "standard"
        and config.norm in ("post", "once")
        and config.eps > 0
        and config.activation == "relu"
        and config.width <= WIDEST
        and config.width % UNITS == 0
        and config.hidden_width % UNITS == 0
        and config.key_width % UNITS == 0
    )


class Patience:
    """The time that the general path has worked in this process although machine code would have been faster.

    Many small measurements amount to a large one: once their total exceeds the cost, the loops are compiled.
    """

    def __init__(self) -> None:
        self.spent = 0.0

    def objection(self, seconds: float, config: TransformerConfig, dtype: torch.dtype) -> str | None:
        """Why not to take the fast path for this much work; None: take it."""
        wanted = compiling()
        if wanted == "always" or not has_loops(config, dtype):
            return None
        compile_seconds = sum(COMPILE_SECONDS for loop in LOOPS if not is_kept(loop))
        if wanted == "never":
            return f"the fast path is not compiled, and {VARIABLE} is never" if compile_seconds else None
        load_seconds = 0.0 if _is_loaded() else LOADING_SECONDS
        if self.spent + seconds >= compile_seconds + load_seconds:
            return None
        self.spent += seconds
        what = f"compiling the fast path takes about {compile_seconds:.0f} s"
        if not compile_seconds:
            what = f"loading the fast path takes about {LOADING_SECONDS:g} s"
        return f"this is about {max(seconds, 0.1):.1f} s of work, and {what}"


PATIENCE = Patience()


def _is_loaded() -> bool:
    return "flipscope.native.compiled" in sys.modules
