"""Which path to take: the fast one where it knows what the model computes, unless getting it ready takes longer.

Machine code is kept on disk, so that compiling takes half a minute once and never again, and loading it takes a second.
Somebody who measures a small model should not wait for either: as long as the work is less than that, the general path
does it, with the same answers. The work and the cost of compiling are counted in seconds of one nominal core: a slower
machine is slower at both, and the choice does not depend on what else the machine is doing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from flipscope.basics.compiling import VARIABLE, compiling
from flipscope.models.config import TransformerConfig
from flipscope.models.rounding import name_of
from flipscope.models.size import multiplications
from flipscope.models.transformer import Transformer
from flipscope.models.unmodified import difference, on_cpu

if TYPE_CHECKING:  # numba is loaded where a loop is needed
    from flipscope.native.compiled import Loop

NEEDS = "flipscope's own transformer on bits, with one output read at its first or last position"


def obstacle(model: object) -> str | None:
    """What keeps the fast path from measuring the model: it must be just what its configuration says.

    Autocast makes something else of it.
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
    """The same where the model's own answers are meant, which are not those of another number type."""
    if (found := obstacle(model)) is not None or not isinstance(model, Transformer):
        return found
    types = {parameter.dtype for parameter in model.parameters()}
    if types in ({torch.float32}, {torch.float64}):
        return None
    return f"the model's own numbers are in {' and '.join(sorted(map(name_of, types)))}, not float32 or float64"


# ---------------------------------------------------------------- work, and the cost of machine code

SPEED = 1.5e10  # multiplications a second of the general path at widths 32 to 128, on one core
LOADING_SECONDS = 1.0  # numba's import, and what it does before it runs the first machine code


@dataclass(frozen=True)
class Work:
    """What a model is going to be asked: so many strings of a length, alone or with all their flips."""

    strings: int
    length: int
    flips: bool = True

    def seconds(self, config: TransformerConfig) -> float:
        """How long the general path takes for it, about."""
        logits = self.strings * (self.length + 1 if self.flips else 1)
        return logits * multiplications(config, self.length) / SPEED


@dataclass(frozen=True)
class Needed:
    """Loops that an engine calls, and the seconds that compiling one of them takes, with those it calls itself."""

    loops: Sequence[Loop]
    seconds: float


class Patience:
    """How long the general path has worked in this process where machine code would have been faster.

    Many small measurements are a large one: when all of them together would have paid for compiling, it is time to.
    """

    def __init__(self) -> None:
        self.spent = 0.0

    def objection(self, seconds: float, needed: Callable[[], Sequence[Needed]]) -> str | None:
        """Why not to take the fast path for so many seconds of work; None: take it, and all ``needed`` is compiled."""
        wanted, so_far = compiling(), self.spent + seconds
        if wanted == "always":
            return None
        told = f"this is about {max(seconds, 0.1):.1f} s of work"
        if wanted == "auto" and so_far < LOADING_SECONDS and not _is_loaded():
            self.spent = so_far
            return f"{told}, and loading the fast path takes about {LOADING_SECONDS:g} s"
        missing = [(loop, each.seconds) for each in needed() for loop in each.loops if not loop.is_compiled()]
        cost = sum(each for _, each in missing)
        if wanted == "auto" and so_far >= cost:
            for loop, _ in missing:
                loop.ready()
            return None
        if not missing:
            return None
        if wanted == "never":
            return f"the fast path is not compiled, and {VARIABLE} is never"
        self.spent = so_far
        return f"{told}, and compiling the fast path takes about {cost:.0f} s"


PATIENCE = Patience()


def _is_loaded() -> bool:
    return "flipscope.native.compiled" in sys.modules
