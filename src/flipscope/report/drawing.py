"""Pictures of figures: files for papers, and what the page needs to draw them itself. Vega draws both."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from flipscope.basics.errors import InputError
from flipscope.basics.files import check_target, replacing
from flipscope.figures import Figure
from flipscope.figures.vegalite import specification, theme

Format = Literal["svg", "png", "pdf"]
FORMATS: tuple[Format, ...] = ("svg", "png", "pdf")
PIXELS_PER_INCH = 300
_ROLES = r'<{} aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="[^"]*"'
_CELLS = re.compile(r'(<g class="mark-rect role-mark image\d+_layer_1_marks")')
_DESCRIBED_PATH = re.compile(_ROLES.format("path") + "([^>]*)/>")
_DESCRIBED_TEXT = re.compile(_ROLES.format("text") + "([^>]*)>")
# The page draws with the libraries that draw the files, so that both are of one version.
PAGE_FUNCTION = "window.drawFigure = (place, figure, options) => vegaEmbed(place, figure, options);"


def render(figure: Figure, format: Format, pixels_per_inch: float = PIXELS_PER_INCH) -> bytes:
    """The figure as a file of this format; the same figure gives the same bytes."""
    import vl_convert

    if format not in FORMATS:
        raise InputError(f"format={format!r} is not one of {', '.join(FORMATS)}")
    drawn = _svg(json.dumps(specification(figure)))
    if format == "svg":
        return drawn.encode()
    if format == "pdf":
        return bytes(vl_convert.svg_to_pdf(drawn))
    return bytes(vl_convert.svg_to_png(drawn, ppi=pixels_per_inch))


@functools.lru_cache(maxsize=256)
def _svg(specified: str) -> str:
    """The drawing that all formats are made of, once for all."""
    import vl_convert

    try:
        return _tidied(vl_convert.vegalite_to_svg(specified, config=theme("paper")))
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of its Rust, such as when no file can be opened: no Exception
            raise
        raise RuntimeError(f"Vega gave up: {error}") from None


def _tidied(svg: str) -> str:
    """The drawing with its inner names counted from 0, for Vega counts on from one figure to the next; without what is
    there only to be pointed at, and with coordinates to a thousandth of a point. What describes a mark becomes its
    title, which browsers show where one points at it.
    """
    names: dict[str, str] = {}

    def renamed(found: re.Match[str]) -> str:
        return f"{found[1]}{names.setdefault(found[2], f'part{len(names)}')}"

    svg = re.sub(r'(id="|url\(#|href="#)((?:clip|gradient)_?\d+)', renamed, svg)
    svg = re.sub(r'<path [^>]*opacity="0"[^>]*/>', "", svg)
    svg = _CELLS.sub(r'\1 shape-rendering="crispEdges"', svg)  # no seams between the rectangles of one cell
    svg = _DESCRIBED_PATH.sub(r"<path\2><title>\1</title></path>", svg)
    svg = _DESCRIBED_TEXT.sub(r"<text\2><title>\1</title>", svg)
    return re.sub(r' (?:d|transform)="[^"]*"', lambda found: re.sub(r"\d+\.\d{4,}", _rounded, found[0]), svg)


def _rounded(found: re.Match[str]) -> str:
    return f"{float(found[0]):.3f}".rstrip("0").rstrip(".")


@functools.cache
def page_script() -> str:
    """The JavaScript that draws figures on a page: Vega, Vega-Lite and Vega-Embed in one piece."""
    import vl_convert

    bundle = str(vl_convert.javascript_bundle(PAGE_FUNCTION))
    return bundle.replace("</script", r"<\/script")  # inside a page this would end it


def file_stems(study: str, figures: Sequence[Figure]) -> list[str]:
    """Names for the files of a study's figures: safe on every file system, and none twice."""
    stems: list[str] = []
    for figure in figures:
        plain = re.sub(r"[^a-z0-9_-]+", "-", figure.name.lower()).strip("-_")[:60] or "figure"
        stem = plain if plain.startswith(study) else f"{study}-{plain}"
        count = 2
        while stem in stems:
            stem, count = f"{study}-{plain}-{count}", count + 1
        stems.append(stem)
    return stems


def checked_target(path: str | Path) -> Path:
    """The path as one that a figure can be written to: known format, existing folder."""
    target = Path(path)
    if target.suffix.lower()[1:] not in FORMATS:
        known = ", ".join(f".{format}" for format in FORMATS)
        raise InputError(f"a figure's name must end in {known}; {target.name!r} does not.")
    check_target(target, "figure")
    return target


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write the figure in the format its name ends with, whole or not at all; returns the path."""
    target = checked_target(path)
    with replacing(target, "figure") as temporary:
        temporary.write_bytes(render(figure, target.suffix.lower()[1:]))  # type: ignore[arg-type]
    return target
