"""Images under coloured cells and texts on coloured backgrounds, as Vega-Lite specifications.

Colours run from nothing, where a value is least, to a strong colour that lies over the image or behind the word. Only
lightness and strength have to be told apart, so the scale reads the same to people who confuse hues. All such panels
of a figure share one scale.
"""

from __future__ import annotations

import base64
import itertools
import math
import struct
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from flipscope.basics import wording
from flipscope.basics.errors import InputError
from flipscope.figures import ImagePanel, TextPanel
from flipscope.figures.text import clean, cut, in_lines, number_text

Spec = dict[str, Any]
Place = Literal["paper", "light", "dark"]

# From nothing to the strongest colour; above `strong`, a share of the scale, words change from `word` to `on_heat`.
HEAT: dict[Place, dict[str, str | float]] = {
    "paper": {
        "heat0": "rgba(244,150,30,0)",
        "heat1": "rgba(222,92,30,0.6)",
        "heat2": "rgba(125,15,60,0.92)",
        "strong": 0.79,
        "word": "#000000",
        "on_heat": "#ffffff",
    },
    "dark": {
        "heat0": "rgba(190,70,50,0)",
        "heat1": "rgba(226,110,50,0.6)",
        "heat2": "rgba(255,226,150,0.95)",
        "strong": 0.62,
        "word": "#ffffff",
        "on_heat": "#000000",
    },
}
HEAT["light"] = HEAT["paper"]

WORD_FONT = "DejaVu Sans Mono, Menlo, Consolas, monospace"
WORD_SIZES: dict[Place, float] = {"paper": 8, "light": 12.5, "dark": 12.5}
CHARACTER, LINE = 0.602, 1.75  # width of a character and height of a line, in sizes of the font
PADDING, GAP = 0.5, 0.25  # of a word on either side, and between two words, in characters
CHARACTERS = 88  # of a line in a figure of one column; a page wraps the words again to fit its width
LONGEST_WORD = 24  # characters; it must fit the narrowest page

IMAGE: dict[Place, float] = {"paper": 120, "light": 200, "dark": 200}  # width and height of an image, at most
FEWEST_PIXELS, MOST_PIXELS = 256, 512  # of a side of the image in the file: small ones are enlarged without smoothing
FADED = 0.4  # opacity of the image: near the colour of the ground, so that the cells have the colours of the legend
OUTLINED = 1_000  # of so many cells, at most, the outlines are drawn


def coloured_panels(panels: Sequence[ImagePanel | TextPanel], place: Place, columns: int) -> Iterator[Spec]:
    """The specification of each panel, in order."""
    domain = _domain(panels)
    titles = list(dict.fromkeys(panel.value_label for panel in panels))
    colour = {
        "field": "v",
        "type": "quantitative",
        "scale": {
            "domain": list(domain),
            "range": [{"expr": f"heat{number}"} for number in range(3)],
            "interpolate": "rgb",
            "clamp": True,
        },
        "legend": {
            "title": in_lines(titles[0], 60) if len(titles) == 1 else None,
            "orient": "bottom",
            "direction": "horizontal",
            "gradientLength": 160,
            "gradientThickness": 9,
            "gradientStrokeColor": {"expr": "soft"},
            "gradientStrokeWidth": 0.5,
            "titleLimit": 400,
            "values": _ticks(*domain),
            "labelExpr": number_text(False),
        },
    }
    for number, panel in enumerate(panels):
        title = {"title": {"text": in_lines(panel.title, 46 if columns == 1 else 26)}}
        if isinstance(panel, ImagePanel):
            yield {"name": f"image{number}", **title, **_image(panel, colour, place)}
        else:
            most = max(LONGEST_WORD + 2, CHARACTERS // columns)
            yield {"name": f"text{number}", **title, **_text(panel, colour, domain, place, most)}


def _domain(panels: Sequence[ImagePanel | TextPanel]) -> tuple[float, float]:
    """The ends of the scale: those that are given, or 0 and a round number that no value exceeds."""
    values = [value for panel in panels for value in panel.values if value is not None]
    given = [panel.value_range for panel in panels if panel.value_range is not None]
    for low, high in given:
        if not low < high:
            raise InputError(f"value_range={(low, high)} is no range: its first number must be the smaller one")
    if given:
        return min(low for low, _ in given), max(high for _, high in given)
    low, high = min([0.0, *values]), max([0.0, *values])
    if low == high:
        return 0.0, 1.0
    step = _step(high - low)
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def _step(span: float) -> float:
    """A round number that fits three to five times into a span."""
    unit = 10.0 ** math.floor(math.log10(span / 4))
    return next(part * unit for part in (1, 2, 2.5, 5, 10) if part * unit >= span / 4 * (1 - 1e-9))


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between the ends of the scale."""
    step = _step(high - low)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{number * step:.6g}") for number in range(first, last + 1)]


def _tooltip(panel: ImagePanel | TextPanel, what: str) -> Spec:
    """What is said of a cell or a word, by Vega on a page and by the browser in an SVG file."""
    # Vega-Lite puts titles into expressions, in which a backslash means something.
    label = clean(panel.value_label or "value").replace("\\", "\\\\")
    fields = {"what": what, "value": label, **({"note": " "} if panel.hover is not None else {})}
    shown = [{"field": field, "type": "nominal", "title": title} for field, title in fields.items()]
    return {"tooltip": shown, "description": {"field": "said", "type": "nominal"}}


def _said(panel: ImagePanel | TextPanel, name: str, index: int) -> Spec:
    value = panel.values[index]
    row: Spec = {"what": clean(name), "value": "not measured" if value is None else wording.number_text(value)}
    if value is not None:
        row["v"] = float(f"{value:.7g}")
    if panel.hover is not None:
        row["note"] = clean(panel.hover[index])
    return {**row, "said": ": ".join((row["what"], row["value"])) + (f"; {row['note']}" if row.get("note") else "")}


def _place(axis: str, end: float, field: str | None = None) -> Spec:
    """A channel of places from 0 to an end; y runs downwards."""
    scale = {"domain": [0, end], "nice": False, "zero": False, "reverse": axis == "y"}
    return {"field": field or axis, "type": "quantitative", "scale": scale, "axis": None}


# ---------------------------------------------------------------- images


def _image(panel: ImagePanel, colour: Spec, place: Place) -> Spec:
    """The image, and its cells above it."""
    height, width = panel.image.shape
    size = IMAGE[place] / max(height, width)
    corners = {
        "x": _place("x", width),
        "x2": {"field": "x2"},
        "y": _place("y", height),
        "y2": {"field": "y2"},
    }
    whole = {"x": 0, "x2": width, "y": 0, "y2": height, "url": image_url(panel.image)}
    rows = [
        {**_said(panel, panel.names[cell], cell), "x": left, "x2": right, "y": top, "y2": bottom}
        for cell, top, left, bottom, right in rectangles(panel.cells)
    ]
    cells: Spec = {"type": "rect", "aria": True, "invalid": None}
    if len(rows) == len({row["what"] for row in rows}) <= OUTLINED:
        cells |= {"stroke": {"expr": "soft"}, "strokeWidth": 0.4, "strokeOpacity": 0.3}
    url = {"field": "url", "type": "nominal"}
    coloured = {"condition": {"test": "isValid(datum.v)", **colour}, "value": "rgba(0,0,0,0)"}
    return {
        "width": round(width * size, 2),
        "height": round(height * size, 2),
        "layer": [
            {
                "data": {"values": [whole]},
                "mark": {"type": "image", "aspect": False, "opacity": FADED},
                "encoding": {**corners, "url": url},
            },
            {
                "data": {"values": rows},
                "mark": cells,
                "encoding": {**corners, "fill": coloured, **_tooltip(panel, "cell")},
            },
        ],
    }


def rectangles(cells: np.ndarray[Any, Any]) -> list[tuple[int, int, int, int, int]]:
    """Rectangles (cell, top, left, bottom, right) that cover the pixels of every cell; one each for rectangular cells.

    >>> rectangles(np.array([[0, 0, 1], [0, 0, -1]]))
    [(0, 0, 0, 2, 2), (1, 0, 2, 1, 3)]
    """
    found: list[tuple[int, int, int, int, int]] = []
    above: dict[
        tuple[int, int, int], int
    ] = {}  # runs of the row above: (cell, left, right) and the top of the rectangle
    for number, row in enumerate(cells):
        ends = [0, *(np.flatnonzero(row[1:] != row[:-1]) + 1).tolist(), len(row)]
        runs = [(int(row[left]), left, right) for left, right in itertools.pairwise(ends) if row[left] >= 0]
        here = {run: above.get(run, number) for run in runs}
        found += [
            (cell, top, left, number, right)
            for (cell, left, right), top in above.items()
            if here.get((cell, left, right)) != top
        ]
        above = here
    found += [(cell, top, left, len(cells), right) for (cell, left, right), top in above.items()]
    return sorted(found)


def image_url(grey: np.ndarray[Any, np.dtype[np.uint8]]) -> str:
    """The image as a data URL of a PNG file."""
    longest = max(grey.shape)
    if longest < FEWEST_PIXELS:
        factor = -(-FEWEST_PIXELS // longest)
        grey = grey.repeat(factor, axis=0).repeat(factor, axis=1)
    elif longest > MOST_PIXELS:
        grey = _shrunk(grey, -(-longest // MOST_PIXELS))
    height, width = grey.shape
    lines = np.zeros((height, width + 1), np.uint8)  # each begins with the number of its filter, 0
    lines[:, 1:] = grey
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)  # 8 bits of grey
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode()


def _shrunk(grey: np.ndarray[Any, np.dtype[np.uint8]], factor: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The means of squares of pixels; squares at the edge repeat their last pixels."""
    padded = np.pad(grey, [(0, -size % factor) for size in grey.shape], mode="edge")
    height, width = (size // factor for size in padded.shape)
    means = padded.reshape(height, factor, width, factor).mean(axis=(1, 3))
    found: np.ndarray[Any, np.dtype[np.uint8]] = np.round(means).astype(np.uint8)
    return found


# ---------------------------------------------------------------- texts


def _text(panel: TextPanel, colour: Spec, domain: tuple[float, float], place: Place, most: int) -> Spec:
    """The words in lines of so many characters, each on its background.

    The data are those of the panel as a whole, so that a page can wrap the words anew.
    """
    rows: list[Spec] = []
    x, line = 0.0, 0
    for index, word in enumerate(panel.words):
        shown = _shown_word(word)
        width = _width(shown) + 2 * PADDING
        if x > 0 and x + width > most:
            x, line = 0.0, line + 1
        row = {**_said(panel, word, index), "t": shown, "x": x, "x2": x + width, "y": line}
        if "v" in row:
            row["share"] = round((row["v"] - domain[0]) / (domain[1] - domain[0]), 3)
        rows.append(row)
        x += width + GAP
    size, lines = WORD_SIZES[place], line + 1
    boxes = {"x": _place("x", most), "x2": {"field": "x2"}, "y": _place("y", lines), "y2": {"field": "y2"}}
    middles = {"x": _place("x", most, "middle"), "y": _place("y", lines, "centre")}
    ink = {"condition": {"test": "datum.share > strong", "value": {"expr": "on_heat"}}, "value": {"expr": "word"}}
    said = _tooltip(panel, "word")
    return {
        "width": round(most * size * CHARACTER, 2),
        "height": round(lines * size * LINE, 2),
        "data": {"values": rows},
        "transform": [
            {"calculate": "datum.y + 0.9", "as": "y2"},
            {"calculate": "(datum.x + datum.x2) / 2", "as": "middle"},
            {"calculate": "datum.y + 0.45", "as": "centre"},
        ],
        "layer": [
            {
                "transform": [{"filter": "isValid(datum.v)"}],
                "mark": {"type": "rect", "cornerRadius": 2.5, "aria": True},
                "encoding": {**boxes, "fill": colour, **said},
            },
            {
                "mark": {"type": "text", "style": "word", "baseline": "middle", "clip": False, "aria": True},
                "encoding": {**middles, "text": {"field": "t", "type": "nominal"}, "color": ink, **said},
            },
        ],
    }


def _shown_word(word: str) -> str:
    """The word as it is drawn: blanks and ends of lines by their signs, a very long word cut."""
    signs = clean(word.replace("\n", "↵"))
    return cut(signs.strip() or "␣" * max(1, len(signs)), LONGEST_WORD)


def _width(text: str) -> int:
    """The characters' places in a font of fixed width: two for wide ones, none for marks above others."""
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in text)
    return len(text) + wide - sum(unicodedata.combining(each) > 0 for each in text)
