"""Terminal pages: the numbers are there, nothing is cut off at 80 columns, bars are in proportion."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from flipscope.basics.estimates import Estimate
from flipscope.bounds.geometry import verdict
from flipscope.bounds.noise_stability import portrait_noise_bounds
from flipscope.cube.expression import parse
from flipscope.cube.languages import language_of
from flipscope.cube.portrait import Portrait, exact_portrait, sampled_portrait
from flipscope.report import terminal

LONG = " ^ ".join(f"(x{i} & x{i + 1} & x{i + 2})" for i in range(1, 30, 3))


def exact(text: str) -> Portrait:
    return exact_portrait(parse(text), text)


def sampled(text: str, strings: int = 100) -> Portrait:
    return sampled_portrait(parse(text), text, strings)


def rendered(page: RenderableType, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(page)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def inside(text: str) -> str:
    """The text of a page as one line, without its frame."""
    return re.sub(r"[\s│╭╮╰╯─]+", " ", text)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0, "0"),
        (1_391_720, "1,391,720"),
        (10**17, "100,000,000,000,000,000"),
        (2**101, "10^30.40 (31 digits)"),
        (2**10_000, "10^3010.30 (3011 digits)"),
        (3.7001438140869141, "3.70014"),
        (Estimate(0.5, 0.25, 0.75, 0.95, 10), "0.5 [0.25, 0.75]"),
        (Estimate(10_000.0, 9_876.5, 123_456.7, 0.95, 10), "10,000 [9876, 123,457]"),
    ],
)
def test_number(value: float | Estimate | None, shown: str) -> None:
    assert terminal.number(value) == shown


def test_bar_has_steps_of_an_eighth() -> None:
    assert terminal.bar(1.0) == "█" * terminal.BAR
    assert terminal.bar(0.0) == ""
    assert terminal.bar(0.5, 3) == "█▌"
    assert terminal.bar(7.0, 3) == terminal.bar(1.0, 3) == "███"
    lengths = [len(terminal.bar(i / 288)) for i in range(289)]
    assert lengths == sorted(lengths)
    assert len({terminal.bar(i / 288) for i in range(289)}) == 289


@pytest.mark.parametrize(
    "portrait",
    [
        exact("majority(21)"),
        exact("majority(2000)"),
        exact("x1"),
        exact("1 ^ 1"),
        exact("sparse_parity(3, n=40)"),
        exact("random_symmetric(3000)"),
        sampled("random(31)"),
        sampled("random(1000)", 20),
        replace(exact("x1 & x2"), name=LONG),
    ],
    ids=lambda portrait: portrait.name[:24],
)
def test_function_page_fits_80_columns(portrait: Portrait) -> None:
    page = rendered(terminal.function_page(portrait, portrait_noise_bounds(portrait)))
    lines = page.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines[1:]), "only a title may be cut"
    assert portrait.name[:40] in lines[0]
    assert terminal.number(portrait.average_sensitivity) in page
    for note in portrait.notes:
        assert note in inside(page)


def test_function_page_of_majority() -> None:
    page = rendered(terminal.function_page(exact("majority(21)")))
    assert re.search(r"bits +21 ", page)
    assert re.search(r"max, min sensitivity +11, 0 ", page)
    assert re.search(r"degree +21 ", page)
    assert re.search(r"sparsity +1,048,576 ", page)
    assert re.search(r"each +0\.176197", page)
    zero, eleven = (line for line in page.splitlines() if "1,391,720" in line or "705,432" in line)
    assert zero.count("█") == terminal.BAR
    assert eleven.count("█") == int(terminal.BAR * 705_432 / 1_391_720)


def test_function_page_has_bounds_on_what_noise_changes() -> None:
    page = rendered(terminal.function_page(exact("majority(5)"), portrait_noise_bounds(exact("majority(5)"), [0.9])))
    assert re.search(r" 0\.9 +0\.0851218 +0\.0896308 +0\.204755 +0\.30629 ", page)
    portrait = sampled("random(31)")
    page = rendered(terminal.function_page(portrait, portrait_noise_bounds(portrait)))
    assert "by average sensitivity" in inside(page)
    assert "Prop 3.2" not in page  # a sample bounds the maximal sensitivity on the wrong side


def test_function_page_says_how_many_bits_matter() -> None:
    assert "100, 5 relevant" in rendered(terminal.function_page(exact("sparse_majority(5, n=100)")))
    assert "relevant" not in rendered(terminal.function_page(exact("parity(4)")))


def test_long_lists_are_cut_with_a_count() -> None:
    page = rendered(terminal.function_page(exact("parity(3) ^ and(x4..x43)")))
    assert f"and {40 + 3 - terminal.MAX_ROWS} more" in page
    assert len(re.findall(r" x\d+ ", page.partition("position")[2])) == terminal.MAX_ROWS
    assert " x3 " in page  # the most influential ones stay


def test_a_sampled_page_shows_intervals() -> None:
    portrait = sampled("random(31)")
    page = rendered(terminal.function_page(portrait))
    assert re.search(r"method +sampled", page)
    assert terminal.number(portrait.max_sensitivity) in page
    assert re.search(r"degree +- ", page)
    assert "share of strings" in page


def test_bars_without_unicode() -> None:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding="ascii") as file:
        Console(file=file, width=80, highlight=False).print(terminal.function_page(exact("majority(21)")))
        file.flush()
        page = raw.getvalue().decode("ascii")
    assert "#" * terminal.BAR in page


def test_bars_give_way_before_numbers() -> None:
    portrait = exact("majority(2000)")
    page = rendered(terminal.function_page(portrait), width=60)
    assert max(map(len, page.splitlines())) <= 60
    assert terminal.number(portrait.profile[0]).endswith(" digits)")
    assert terminal.number(portrait.profile[0]) in page


def test_compare_page() -> None:
    page = rendered(terminal.compare_page(exact("majority(9)"), exact("maj(x1..x7) & (x8 -> x8)"), "They differ."))
    assert re.search(r"sensitivity-0 strings +260 ", page)
    assert re.search(r"average sensitivity +2\.46094 +2\.1875", page)
    assert page.splitlines()[-1] == "They differ."


def test_compare_page_of_samples_fits_80_columns() -> None:
    pages = [
        rendered(terminal.compare_page(first, second, "They differ."))
        for first in (exact("majority(100)"), sampled("random(100)"))
        for second in (sampled("random(100, seed=1)"), replace(sampled("random(100)"), name=LONG))
    ]
    for page in pages:
        assert max(map(len, page.splitlines())) <= 80
        assert "…" not in page
    assert "sensitivity-0 strings" not in pages[0], "a count beside a share would mislead"
    assert re.search(r"sensitivity-0 share +0\.8\d+ +0 \[0, 0\.\d+\]", pages[0])


@pytest.mark.parametrize(
    ("text", "layers", "expected"),
    [
        ("parity(100)", 2, ["ruled out by Cor 4.6 (000)", "2 layers", "N^10.75, 3.162e+21 at N = 100", "N = 65"]),
        ("majority(101)", 1, ["not ruled out", "1 layer ", "10^30.33 (31 digits) at N = 101"]),
        ("random(1000)", 2, ["unknown at N = 1000"]),
    ],
)
def test_verdict_page(text: str, layers: int, expected: list[str]) -> None:
    f = parse(text)
    found = verdict(f, language_of(text, f), text, width=64, layers=layers)
    page = rendered(terminal.verdict_page(found))
    assert max(map(len, page.splitlines())) <= 80
    for fragment in [*expected, found.note]:
        assert fragment in inside(page)


def test_zoo_page_fits_80_columns() -> None:
    rows = [
        {
            "usage": "sparse_majority(m, n, seed)",
            "meaning": "most of m random bits are 1",
            "example": "sparse_majority(5, n=100)",
            "average_sensitivity": 1.875,
            "degree": 5,
        }
    ]
    page = rendered(terminal.zoo_page(rows))
    assert "sparse_majority(m, n, seed)  most of m random bits are 1" in page
    assert "  sparse_majority(5, n=100)  average sensitivity 1.875, degree 5" in page


def test_show_is_as_wide_as_columns_says(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    page = terminal.function_page(sampled("random(31)"))
    for columns, width in (("70", 70), (None, terminal.WIDTH)):
        if columns is None:
            monkeypatch.delenv("COLUMNS")
        else:
            monkeypatch.setenv("COLUMNS", columns)
        terminal.show(page)
        out = capsys.readouterr().out
        assert max(map(len, out.splitlines())) == width
        assert "\x1b" not in out
