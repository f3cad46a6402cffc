"""What every result of a measurement can do: show itself in a few lines, draw itself, and become JSON.

A result is a dataclass that inherits from `Result` (with repr=False) and says two things: what is worth reading of it
(`summary`), and its picture (`plot`). In a notebook it shows both.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from flipscope.basics.estimates import Estimate
from flipscope.basics.wording import number_text
from flipscope.figures import Figure, Panel

MAX_TEXT = 96  # characters of a value in a summary
_CELL = 'style="text-align:left;padding:0 1.5em 0 0;border:0"'


class Result:
    """A result that shows itself: a short text, a page with its picture in a notebook, a figure, JSON."""

    def summary(self) -> Mapping[str, object]:
        """The few values that are worth reading, by name."""
        raise NotImplementedError

    def plot(self) -> Figure:
        """The picture of the result; `.svg()` and `.png()` draw it, and a notebook shows it by itself."""
        raise NotImplementedError

    def as_json(self) -> dict[str, Any]:
        """All fields as a JSON document: estimates with their intervals, null for what is no number."""
        assert dataclasses.is_dataclass(self)
        return {field.name: as_json(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def __repr__(self) -> str:
        rows = {name: _text(value) for name, value in self.summary().items()}
        wide = max(map(len, rows), default=0)
        return "\n".join([type(self).__name__, *(f"  {name:<{wide}}  {text}" for name, text in rows.items())])

    def _repr_html_(self) -> str:
        """The summary as a table, with the picture below; nothing is fetched from anywhere."""
        rows = "".join(
            f"<tr><th {_CELL}>{html.escape(name)}</th><td {_CELL}>{html.escape(_text(value))}</td></tr>"
            for name, value in self.summary().items()
        )
        figure = self.plot()
        return (
            f"<div><b>{html.escape(type(self).__name__)}</b><table>{rows}</table>"
            f"{figure_html(figure)}<p><i>{html.escape(figure.caption)}</i></p></div>"
        )


def figure_html(figure: Figure) -> str:
    """The drawing of a figure as part of a page."""
    alt, drawn = html.escape(figure.alt_text()), figure.svg()
    if all(isinstance(panel, Panel) for panel in figure.panels):
        # An image, not the drawing itself: names inside two drawings of one page would be mixed up.
        source = base64.b64encode(drawn.encode()).decode()
        return f'<img alt="{alt}" src="data:image/svg+xml;base64,{source}" style="max-width:100%;background:#fff">'
    # The drawing itself, whose cells and words say their numbers when one points at them, with names of its own.
    digest = hashlib.sha256(drawn.encode()).hexdigest()[:12]
    drawn = re.sub(r'(id="|url\(#|href="#)part', rf"\1part-{digest}-", drawn)
    style = "max-width:100%;height:auto;background:#fff"
    return re.sub("^<svg ", f'<svg role="img" aria-label="{alt}" style="{style}" ', drawn)


def as_json(value: Any) -> Any:
    """A value of a result as what JSON knows; what is no finite number becomes None."""
    if hasattr(value, "as_json"):
        return value.as_json()
    if isinstance(value, np.ndarray | np.generic):
        return as_json(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): as_json(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(each) for each in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _text(value: object) -> str:
    """A value in one short line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Estimate) and value.low == value.high:  # it is exact
        value = value.value
    if isinstance(value, np.generic):
        value = value.item()
    text = number_text(value, 4) if isinstance(value, int | float | Estimate) else str(value)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
