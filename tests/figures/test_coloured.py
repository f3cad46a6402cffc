"""Images under cells and strips of words: what is drawn where, in colours that everyone can tell apart."""

from __future__ import annotations

import base64
import itertools
import json
import re
import xml.etree.ElementTree as ElementTree
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from figures.some_figures import figure, images_and_words, panel
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from report.colours import EYES, contrast, linear, perceived

from flipscope.basics.errors import InputError
from flipscope.figures import Figure, ImagePanel, Series, TextPanel
from flipscope.figures.coloured import CHARACTERS, HEAT, LONGEST_WORD, image_url, rectangles
from flipscope.figures.results import Result
from flipscope.figures.vegalite import Place, complete, specification
from flipscope.report.drawing import render

GROUNDS: dict[Place, str] = {"paper": "#ffffff", "light": "#ffffff", "dark": "#14181d"}


@dataclass(frozen=True, eq=False, repr=False)
class Shown(Result):
    """A result whose picture is the figure that it is given."""

    figure: Figure

    def summary(self) -> dict[str, object]:
        return {"a value": 1}

    def plot(self) -> Figure:
        return self.figure


def titles(svg: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("title")]


def words_of(drawn: TextPanel, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = specification(figure(drawn, **options))["concat"][0]["data"]["values"]
    return found


# ---------------------------------------------------------------- images


def test_cells_stand_over_their_pixels_with_their_values() -> None:
    image, cells = specification(images_and_words())["concat"][0]["layer"]
    assert image["data"]["values"][0]["url"].startswith("data:image/png;base64,")
    rows = [(row["x"], row["y"], row["x2"], row["y2"], row.get("v")) for row in cells["data"]["values"]]
    assert rows == [(0, 0, 1, 1, 0.0), (1, 0, 2, 1, 0.25), (0, 1, 1, 2, 0.5), (1, 1, 2, 2, None)]
    assert [row["said"] for row in cells["data"]["values"]] == [
        "row 1, column 1: 0",
        "row 1, column 2: 0.25",
        "row 2, column 1: 0.5",
        "row 2, column 2: not measured",
    ]


@pytest.mark.parametrize("channels", [(), (1,), (3,), (4,)])
@pytest.mark.parametrize("first", [False, True])
def test_every_order_of_axes_is_the_same_image(channels: tuple[int, ...], first: bool) -> None:
    grey = np.array([[0.0, 0.25, 0.5, 0.75, 1.0]] * 6)
    image = np.broadcast_to(grey[..., None], (6, 5, *channels)).copy() if channels else grey
    if first and channels:
        if channels == (4,):
            return  # opacity is never the first axis
        image = np.moveaxis(image, 2, 0)
    assert ImagePanel("", image, [[1.0]]).image.tolist() == [[0, 64, 128, 191, 255]] * 6
    assert ImagePanel("", torch.from_numpy(image), [[1.0]]).image.tolist() == [[0, 64, 128, 191, 255]] * 6


def test_shades_of_whole_numbers_and_of_normalised_ones() -> None:
    whole = np.array([[0, 100], [200, 255]], np.uint8)
    assert ImagePanel("", whole, [[1.0]]).image.tolist() == whole.tolist()
    assert ImagePanel("", np.array([[-1.0, 0.0], [0.5, 1.0]]), [[1.0]]).image.tolist() == [[0, 128], [191, 255]]
    assert ImagePanel("", np.full((2, 2), 7.0), [[1.0]]).image.tolist() == [[0, 0], [0, 0]]


def test_the_image_in_the_file_is_the_image() -> None:
    grey = np.arange(0, 256, 5, dtype=np.uint8).reshape(4, 13)
    encoded = base64.b64decode(image_url(grey).partition(",")[2])
    assert encoded.startswith(b"\x89PNG\r\n")
    width, height = (int.from_bytes(encoded[start : start + 4], "big") for start in (16, 20))
    data = re.search(rb"IDAT(.*)....\x00\x00\x00\x00IEND", encoded, flags=re.DOTALL)
    assert data is not None
    lines = np.frombuffer(zlib.decompress(data[1]), np.uint8).reshape(height, width + 1)
    factor = width // 13
    assert (width, height) == (13 * factor, 4 * factor)
    assert factor * 13 >= 256
    assert (lines[::factor, 1::factor] == grey).all()
    assert (lines[:, 0] == 0).all()


def test_a_large_image_is_made_smaller() -> None:
    encoded = base64.b64decode(image_url(np.full((1030, 600), 9, np.uint8)).partition(",")[2])
    assert [int.from_bytes(encoded[start : start + 4], "big") for start in (16, 20)] == [200, 344]


@given(arrays.arrays(np.int64, arrays.array_shapes(min_dims=2, max_dims=2, max_side=7), elements=st.integers(-1, 3)))
def test_rectangles_cover_every_pixel_once(cells: np.ndarray[Any, Any]) -> None:
    covered = np.full(cells.shape, -1)
    for cell, top, left, bottom, right in rectangles(cells):
        assert (covered[top:bottom, left:right] == -1).all()
        covered[top:bottom, left:right] = cell
    assert (covered == cells).all()


def test_cells_of_any_shape_take_a_value_each() -> None:
    mask = np.array([[0, 0, 1], [0, 2, 2], [-1, 2, 2]])
    drawn = ImagePanel("", np.zeros((3, 3)), [0.1, 0.2, 0.3], cells=mask)
    rows = specification(figure(drawn))["concat"][0]["layer"][1]["data"]["values"]
    assert {row["what"]: row["v"] for row in rows} == {"cell 1": 0.1, "cell 2": 0.2, "cell 3": 0.3}
    assert sum((row["x2"] - row["x"]) * (row["y2"] - row["y"]) for row in rows) == 8
    assert figure(drawn).svg().count("crispEdges") == 1  # else there are seams inside a cell


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((np.zeros(4), [[1.0]]), "give numbers"),
        ((np.zeros((2, 4, 4, 4)), [[1.0]]), "give numbers"),
        ((np.zeros((5, 4, 5)), [[1.0]]), "with 1 or 3 channels"),
        ((np.array([["a"]]), [[1.0]]), "give numbers"),
        ((np.array([[np.nan]]), [[1.0]]), "NaN or infinite pixels"),
        ((np.zeros((4, 4)), [1.0]), "one value for each cell"),
        ((np.zeros((4, 4)), np.zeros((5, 4))), "one value for each cell"),
    ],
)
def test_what_is_no_image_is_refused(arguments: tuple[Any, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        ImagePanel("a", *arguments)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"cells": np.zeros((2, 2))}, "a whole number for each"),
        ({"cells": np.zeros((3, 3), int)}, "a whole number for each"),
        ({"cells": np.full((2, 2), 5)}, "cells up to 5"),
        ({"cells": np.zeros((2, 2), int), "hover": ["one"]}, "3 values and 1 hover"),
    ],
)
def test_cells_that_do_not_fit_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        ImagePanel("a", np.zeros((2, 2)), [0.1, 0.2, 0.3], **options)


# ---------------------------------------------------------------- texts


def test_words_follow_each_other_and_wrap() -> None:
    text = TextPanel("", [f"word{number % 7}" * (1 + number % 3) for number in range(200)], [0.5] * 200)
    rows = words_of(text, columns=1)
    assert [row["t"] for row in rows] == list(text.words)
    for before, after in itertools.pairwise(rows):
        if after["y"] == before["y"]:
            assert after["x"] > before["x2"]
        else:
            assert (after["y"], after["x"]) == (before["y"] + 1, 0)
            assert before["x2"] + after["x2"] - after["x"] > CHARACTERS - 1  # it had no room
    assert max(row["x2"] for row in rows) <= CHARACTERS


def test_words_are_shown_as_they_are_and_long_ones_cut() -> None:
    words = ["<b>", "\n", " ", "", "漢字", "e\N{COMBINING ACUTE ACCENT}", "y" * 99, "\x00"]
    rows = words_of(TextPanel("", words, [0.1] * len(words)))
    assert [row["t"] for row in rows] == ["<b>", "↵", "␣", "␣", "漢字", words[5], "y" * (LONGEST_WORD - 1) + "…", "␣"]
    assert [row["x2"] - row["x"] for row in rows] == [4, 2, 2, 2, 5, 2, LONGEST_WORD + 1, 2]
    assert rows[6]["said"] == "y" * 99 + ": 0.1"  # the whole word where one points at it


def test_lists_of_other_lengths_are_refused() -> None:
    with pytest.raises(InputError, match="2 words and 1 values"):
        TextPanel("t", ["a", "b"], [1.0])
    with pytest.raises(InputError, match="1 words and 2 hover"):
        TextPanel("t", ["a"], [1.0], hover=["b", "c"])


def test_a_text_without_words_is_drawn() -> None:
    assert render(figure(TextPanel("empty", [], [])), "svg").startswith(b"<svg")


# ---------------------------------------------------------------- colours


def domain(*panels: ImagePanel | TextPanel) -> list[float]:
    layers = specification(figure(*panels))["concat"][0]["layer"]
    fill = layers[-1 if isinstance(panels[0], ImagePanel) else 0]["encoding"]["fill"]
    found: list[float] = fill.get("condition", fill)["scale"]["domain"]
    return found


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ([0.97, 0.1], [0, 1]),
        ([0.031], [0, 0.04]),
        ([0, 0], [0, 1]),
        ([None], [0, 1]),
        ([-1, 3], [-1, 3]),
        ([7.3], [0, 8]),
    ],
)
def test_the_scale_goes_from_0_to_a_round_number(values: list[float | None], ends: list[float]) -> None:
    assert domain(TextPanel("", ["w"] * len(values), values)) == pytest.approx(ends)


def test_all_panels_have_one_scale() -> None:
    small, large = TextPanel("", ["a"], [0.1]), ImagePanel("", np.zeros((2, 2)), [[0.9]])
    assert domain(small, large) == domain(large, small) == [0, 1]
    assert domain(TextPanel("", ["a"], [0.1], value_range=(0, 2))) == [0, 2]
    assert specification(figure(small, large))["resolve"]["scale"]["fill"] == "shared"
    cells = panel(Series("cells", [1], [1], "cells", values=[3.0]))
    assert specification(figure(small, cells))["resolve"]["scale"]["fill"] == "independent"
    with pytest.raises(InputError, match="is no range"):
        domain(TextPanel("", ["a"], [0.1], value_range=(1, 1)))


def over_ground(place: Place, share: float) -> str:
    """The colour of a share of the scale on the page."""
    stops = [np.array([float(part) for part in re.findall(r"[\d.]+", str(HEAT[place][f"heat{k}"]))]) for k in range(3)]
    first = min(1, int(2 * share))
    colour = stops[first] + (2 * share - first) * (stops[first + 1] - stops[first])
    ground = np.array([int(GROUNDS[place][start : start + 2], 16) for start in (1, 3, 5)])
    return "#" + "".join(f"{round(part):02x}" for part in colour[:3] * colour[3] + ground * (1 - colour[3]))


@pytest.mark.parametrize("place", GROUNDS)
def test_lightness_alone_tells_values_apart_to_every_eye(place: Place) -> None:
    shades = [over_ground(place, share) for share in np.linspace(0, 1, 11)]
    for eye in EYES:
        steps = np.diff([perceived(eye @ linear(shade))[0] for shade in shades])
        assert (steps > 3).all() or (steps < -3).all()


@pytest.mark.parametrize("place", GROUNDS)
def test_every_word_can_be_read(place: Place) -> None:
    for share in np.linspace(0, 1, 101):
        name = "on_heat" if share > float(HEAT[place]["strong"]) else "word"
        assert contrast(str(HEAT[place][name]), over_ground(place, share)) >= 4.5


# ---------------------------------------------------------------- files and pages


def test_an_svg_file_says_the_number_of_what_one_points_at() -> None:
    said = titles(images_and_words().svg())
    assert {"row 1, column 2: 0.25", "not: 0.5", "<b>good</b> &: 0.75"} <= set(said)
    assert "<b>" not in images_and_words().svg()


def test_the_specification_is_json() -> None:
    assert "a text" in json.dumps(complete(images_and_words()), allow_nan=False)


def test_a_notebook_shows_the_drawing_itself_with_names_of_its_own() -> None:
    pages = [Shown(images_and_words())._repr_html_(), Shown(figure(TextPanel("", ["a"], [1.0])))._repr_html_()]
    assert "not: 0.5" in titles(pages[0])
    assert all("<script" not in page and "<b>good" not in page for page in pages)
    names = [set(re.findall(r'\bid="([^"]+)"', page)) for page in pages]
    assert names[0]
    assert not names[0] & names[1]
    for page, own in zip(pages, names, strict=True):
        assert set(re.findall(r"url\(#([^)]+)\)", page)) <= own
        assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", page)


def test_the_alternative_text_names_the_largest() -> None:
    assert images_and_words().alt_text() == (
        "A figure. an image: share of 4 cells of an image, largest at row 2, column 1 (0.5), row 1, column 2 (0.25), "
        "row 1, column 1 (0); a text: share of 4 words, largest at <b>good</b> & (0.75), not (0.5)."
    )
