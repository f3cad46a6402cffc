"""Text in figures: ticks as people write numbers, lines of limited length, and no character that Vega cannot draw."""

from __future__ import annotations

import textwrap
import unicodedata

_UNDRAWN = ("Cc", "Cs", "Zl", "Zp")  # categories of Unicode


def number_text(log: bool) -> str:
    """The expression that writes a tick's number as people do, with a power of ten where it is large or small."""
    digits = "'⁰¹²³⁴⁵⁶⁷⁸⁹'"
    power = "floor(log(abs(datum.value)) / LN10 + 1e-9)"
    figures = "".join(
        f" + (abs({power}) >= {least} ? slice({digits}, {digit}, {digit} + 1) : '')"
        for least, digit in (
            (100, f"floor(abs({power}) / 100) % 10"),
            (10, f"floor(abs({power}) / 10) % 10"),
            (0, f"abs({power}) % 10"),
        )
    )
    mantissa = f"format(datum.value / pow(10, {power}), '.4~g')"
    ten = f"'10' + ({power} < 0 ? '⁻' : ''){figures}"
    least, most = (-3, 4) if log else (-4, 6)
    short = f"{power} >= {least} && {power} < {most}"
    written = f"({mantissa} == '1' ? '' : {mantissa} + '·') + {ten}"
    return f"datum.value == 0 ? '0' : ({short}) ? format(datum.value, '.6~g') : {written}"


def in_lines(text: str, characters: int) -> list[str] | str | None:
    """A text in lines of at most so many characters."""
    return textwrap.wrap(clean(text), characters)[:4] or None


def cut(text: str, characters: int = 60) -> str:
    """The text, with an ellipsis where it is longer than so many characters."""
    text = clean(text)
    return text if len(text) <= characters else text[: characters - 1] + "…"


def clean(text: str) -> str:
    """The text without what no file may hold, or Vega not draw: controls, separators of lines, what is no character."""
    drawn = (unicodedata.category(each) not in _UNDRAWN and ord(each) & 0xFFFE != 0xFFFE for each in text)
    return "".join(each if good else " " for each, good in zip(text, drawn, strict=True))
