"""Random recognisers of few bits, tabulated: the trials of two studies, and how their functions came about."""

from __future__ import annotations

from dataclasses import dataclass

import flipscope.lab as lab

WIDTH, LAYERS, MARGIN = 8, 2, 0.1  # of the recognisers
FEWEST, SYMBOLS = 5, "drawings of the symbols"  # that a mean over them needs, and their name


@dataclass(frozen=True)
class Volume(lab.Trial):
    """So many recognisers, tabulated; those of one number have the same vectors of symbols."""

    length: int
    eps: float
    symbols: int
    draws: int

    @property
    def cost(self) -> float:
        return float(self.draws * 2**self.length * (self.length + 3))


def how_drawn(table: lab.Rows) -> list[str]:
    """How many recognisers were tabulated, and how many of them by other means than most."""
    tied, again, draws = (table.total(name) for name in ("near_ties", "asked_again", "draws"))
    return [f"{draws:,} recognisers; {again:,} asked again outside the compiled loop, {tied:,} too close to call"]
