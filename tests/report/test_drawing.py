"""Files of figures: every format, the same bytes every time, whatever the text, whole or not at all."""

from __future__ import annotations

import errno
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from figures.some_figures import every_kind, figure, panel

from flipscope.basics.errors import InputError
from flipscope.figures import Figure, Panel, Rule, Series
from flipscope.report import drawing
from flipscope.report.drawing import FORMATS, Format, file_stems, page_script, render, save_figure

MAGIC = {"svg": b"<svg", "pdf": b"%PDF", "png": b"\x89PNG"}


def texts(svg: bytes) -> str:
    return " ".join(
        "".join(node.itertext()) for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("text")
    )


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("log", [False, True])
def test_every_kind_in_every_format_the_same_twice(format: Format, log: bool) -> None:
    first, second = (render(every_kind(log), format) for _ in range(2))
    assert first.startswith(MAGIC[format])
    assert first == second or format == "pdf"  # whose dictionaries are in no order
    assert not re.search(rb"CreationDate|dc:date", first)


def test_fonts_are_in_the_file() -> None:
    assert b"DejaVuSans" in render(every_kind(), "pdf")


def test_coordinates_are_short_and_words_are_left_alone() -> None:
    drawn = render(figure(panel(Series("s", [1, 2, 3, 7], [1, 3, 2, 5]), rules=[Rule(2, "pi is 3.14159265")])), "svg")
    assert "pi is 3.14159265" in texts(drawn)
    assert not re.search(rb' d="[^"]*\d\.\d{4}', drawn)


def test_another_format_is_refused() -> None:
    with pytest.raises(InputError, match="format='gif' is not one of svg, png, pdf"):
        render(every_kind(), "gif")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["$\\frac{1", "a $x^2$ b", "\x00\x1b[31m", "漢字 🎲", "a\u2028b\u2029\ufffe\uffff", "<b>&amp;</b>", "x" * 500, ""],
)
def test_any_text_can_be_drawn(text: str) -> None:
    drawn = Figure(
        text,
        text,
        text,
        [Panel(text, text, text, [Series(text, [1], [1]), Series("b", [1], [2])], rules=[Rule(1, text)])],
    )
    said = texts(render(drawn, "svg"))  # which is XML
    if text.startswith(("$", "a $", "<b>")):
        assert text in said
    assert render(drawn, "pdf").startswith(b"%PDF")


def test_many_series_and_no_panels() -> None:
    many = figure(panel(*(Series(f"series {i}", [0, 1], [i, i + 1]) for i in range(50))))
    assert "series 49" in texts(render(many, "svg"))
    assert render(figure(), "svg").startswith(b"<svg")


def test_stems_are_safe_and_different() -> None:
    names = ["spectra", "../../etc/passwd", "spectra", "", "Größe 1", "random-init-averages", "x" * 200]
    stems = file_stems("random-init", [Figure(name, "", "", []) for name in names])
    assert stems[0] == "random-init-spectra"
    assert stems[5] == "random-init-averages"
    assert len(set(stems)) == len(names)
    assert all(re.fullmatch(r"random-init-[a-z0-9-]{1,64}", stem) for stem in stems)


def test_the_alternative_text_says_what_is_against_what() -> None:
    assert every_kind().alt_text() == (
        "A figure. a panel: the y against the x for line, points, bars, steps; a panel: the y against the x for cells; "
        "a panel: the y against the x for none."
    )
    many = figure(panel(*(Series(str(i), [0], [0]) for i in range(11))))
    assert many.alt_text().endswith("for 0, 1, 2, 3, 4, 5, 6, 7 and 3 more.")


def test_the_script_of_the_page_is_one_piece() -> None:
    script = page_script()
    assert "drawFigure" in script
    assert "</script" not in script
    assert not re.search(r"^\s*import\b.*from", script, flags=re.MULTILINE)


# ---------------------------------------------------------------- saving


@pytest.mark.parametrize("suffix", [*(f".{format}" for format in FORMATS), ".SVG"])
def test_every_format_is_written(tmp_path: Path, suffix: str) -> None:
    target = tmp_path / f"f{suffix}"
    assert save_figure(every_kind(), target) == target
    assert target.read_bytes().startswith(MAGIC[suffix.lower()[1:]])
    assert list(tmp_path.iterdir()) == [target]
    assert target.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("name", ["f.gif", "f", ".svg", "f.svg.txt"])
def test_other_formats_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"must end in \.svg, \.png, \.pdf") as caught:
        save_figure(every_kind(), tmp_path / name)
    assert repr(name) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the folder does not exist"):
        save_figure(every_kind(), tmp_path / "none" / "f.svg")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f.svg").mkdir()
    with pytest.raises(InputError, match=r"cannot be written to .*f\.svg"):
        save_figure(every_kind(), tmp_path / "f.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["f.svg"]


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), InputError),
        (RuntimeError("a bug in the drawing"), RuntimeError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, raised: type[BaseException]
) -> None:
    target = tmp_path / "f.svg"
    target.write_text("old", encoding="utf-8")

    def fail(figure: Figure, format: Format) -> bytes:
        raise failure

    monkeypatch.setattr(drawing, "render", fail)
    with pytest.raises(raised) as caught:
        save_figure(every_kind(), target)
    if raised is InputError:
        assert str(caught.value) == f"the figure cannot be written to {target}: No space left on device."
    assert target.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [target]
