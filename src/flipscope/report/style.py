"""How figures look: one set of colours and one matplotlib style, and files without dates."""

from __future__ import annotations

from typing import Any

INK, ACCENT, SECOND, MUTED = "#1f2933", "#2f6f9f", "#c8553d", "#9aa5b1"

# Told apart under every common kind of colour blindness, and from white; markers and dashes tell them apart as well.
PALETTE = (ACCENT, SECOND, "#0aa568", "#b8860b", "#852c65", "#5191ff")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # not as many as colours: together they repeat after 42 series

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlesize": 9,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.hashsalt": "flipscope",  # the same figure gives the same file
    "svg.fonttype": "none",  # text stays text: smaller files that can be searched
}

# No dates: the same figure gives the same bytes.
UNDATED: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
DPI = 160
