"""Tabulated random recognisers of few bits: the trials of two studies, and how they were computed."""

from __future__ import annotations

from dataclasses import dataclass

import flipscope.lab as lab
from flipscope.models.presets import recognizer
from flipscope.probes.prior import Realised, realised

WIDTH, LAYERS, MARGIN = 8, 2, 0.1  # of the recognisers
FEWEST, SYMBOLS = 5, "drawings of the symbols"  # fewest drawings of the symbols for a mean over them, and their name


@dataclass(frozen=True)
class Draws(lab.Trial):
    """A number of recognisers to tabulate, all with the same vectors of symbols."""

    length: int
    eps: float
    symbols: int
    draws: int

    @property
    def cost(self) -> float:
        return float(self.draws * 2**self.length * (self.length + 3))

    def functions(self, progress: lab.Progress) -> Realised:
        """The functions that the recognisers compute."""
        return realised(
            recognizer(WIDTH, LAYERS, eps=self.eps), self.length, self.draws,
            seed=self.symbols, symbols=self.symbols, margin=MARGIN, progress=progress,
        )  # fmt: skip


def how_drawn(table: lab.Rows) -> list[str]:
    """How many recognisers were tabulated, and how many of them not by the compiled loop."""
    tied, again, draws = (table.total(name) for name in ("near_ties", "asked_again", "draws"))
    return [f"{draws:,} recognisers; {again:,} asked again outside the compiled loop, {tied:,} too close to call"]
