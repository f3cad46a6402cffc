"""Figures of Boolean functions: one strip per function, of profile, weight by degree, influences, noise stability."""

from __future__ import annotations

from collections.abc import Sequence

from flipscope.cube.portrait import CAPTION, Portrait
from flipscope.figures import Figure


def function_figure(portraits: Sequence[Portrait]) -> Figure:
    """One strip per function: profile, weight by degree, influences, noise stability."""
    panels = [panel for portrait in portraits for panel in portrait.panels()]
    return Figure("functions", ", ".join(portrait.title for portrait in portraits), CAPTION, panels, columns=4)
