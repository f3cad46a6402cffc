"""Figures: what is drawn, and that a file is written whole or not at all."""

from __future__ import annotations

import errno
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flipscope.cube.estimate import Estimate
from flipscope.cube.expression import parse
from flipscope.cube.portrait import Portrait, exact_portrait, sampled_portrait
from flipscope.errors import InputError
from flipscope.report.figures import FORMATS, MAX_TITLE, function_figure, log10_share, save_figure

MAGIC = {".svg": b"<?xml", ".pdf": b"%PDF", ".png": b"\x89PNG"}


def exact(text: str) -> Portrait:
    return exact_portrait(parse(text), text)


def panels(portrait: Portrait) -> list[Axes]:
    return list(function_figure([portrait]).subfigs[0].axes)


def bars(axis: Axes) -> dict[int, float]:
    return {
        round(bar.get_x() + bar.get_width() / 2): float(bar.get_height())  # type: ignore[attr-defined]
        for bar in axis.patches
    }


def segments(axis: Axes) -> int:
    """How many vertical lines are drawn."""
    return sum(len(lines.get_paths()) for lines in axis.collections)


@pytest.fixture(scope="module")
def small() -> Figure:
    return function_figure([exact("maj(x1..x3) ^ x4")])


# ---------------------------------------------------------------- what is drawn


@pytest.mark.parametrize("count", [1, 2, 4])
def test_one_strip_a_function(count: int) -> None:
    texts = ["parity(5)", "majority(5)", "first(5)", "tribes(6)"][:count]
    figure = function_figure([exact(text) for text in texts])
    assert len(figure.subfigs) == count
    assert [strip.get_suptitle() for strip in figure.subfigs] == texts
    for strip in figure.subfigs:
        labels = [axis.get_xlabel() for axis in strip.axes]
        assert labels == ["sensitivity s(x)", "degree |S|", "position", "correlation ρ"]


def test_the_numbers_of_majority_are_the_heights_of_the_bars() -> None:
    profile, weights, influences, stability = panels(exact("majority(21)"))
    zero = 1 - 2 * math.comb(21, 10) / 2**21
    assert bars(profile) == pytest.approx({0: zero, 11: 1 - zero})
    assert set(bars(weights)) == set(range(1, 22, 2))
    assert sum(bars(weights).values()) == pytest.approx(1)
    assert bars(influences) == pytest.approx(dict.fromkeys(range(1, 22), math.comb(20, 10) / 2**20))
    rhos, curve = (list(map(float, data)) for data in stability.lines[-1].get_data())
    assert (rhos[0], rhos[-1]) == (0, 1)
    assert curve[0] == pytest.approx(0)
    assert curve[-1] == pytest.approx(1)
    assert curve == sorted(curve)


def test_small_shares_get_a_logarithmic_axis() -> None:
    assert panels(exact("conjunction(12)"))[0].get_yscale() == "log"
    assert panels(exact("majority(21)"))[0].get_yscale() == "linear"


def test_samples_are_drawn_with_their_intervals() -> None:
    portrait = sampled_portrait(parse("random(40)"), "random(40)", 200)
    profile, weights, influences, stability = panels(portrait)
    seen = [entry for entry in portrait.profile if isinstance(entry, Estimate) and entry.value > 0]
    assert segments(profile) == len(seen)
    assert [text.get_text() for text in weights.texts] == ["not estimated"]
    assert segments(influences) == 40
    assert segments(stability) == 5
    points = [line for line in stability.lines if line.get_marker() == "o"]
    assert len(points) == len(portrait.noise_stability or {}) == 5


def test_no_interval_is_cut_off() -> None:
    portrait = sampled_portrait(parse("random(8)"), "random(8)", 5)
    influences = panels(portrait)[2]
    assert influences.get_ylim()[1] > max(entry.high for entry in portrait.influences if isinstance(entry, Estimate))


def test_hundreds_of_weights_are_thin_lines() -> None:
    weights = panels(exact("majority(1001)"))[1]
    kept = [w for w in exact("majority(1001)").weight_by_degree or () if w > 1e-6]
    assert (len(weights.patches), segments(weights)) == (0, len(kept))


def test_a_missing_spectrum_is_said() -> None:
    portrait = replace(exact("x1 ^ x2"), weight_by_degree=None, noise_stability=None)
    _, weights, _, stability = panels(portrait)
    for axis in (weights, stability):
        assert [text.get_text() for text in axis.texts] == ["no exact spectrum"]


@pytest.mark.parametrize("text", ["0", "majority(2000)", "random_junta(3, n=2000)"])
def test_the_unusual_can_be_drawn(text: str, tmp_path: Path) -> None:
    written = save_figure(function_figure([exact(text)]), tmp_path / "f.png")
    assert written.stat().st_size > 1000


def test_a_long_title_is_cut() -> None:
    figure = function_figure([replace(exact("x1"), name="x1 & " * 100 + "x1")])
    title = figure.subfigs[0].get_suptitle()
    assert len(title) == MAX_TITLE
    assert title.endswith("…")


def test_log10_share_needs_no_float() -> None:
    assert log10_share(3, 4) == pytest.approx(math.log10(3 / 16))
    assert log10_share(1 << 9_999, 10_000) == pytest.approx(math.log10(0.5))


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("suffix", [*FORMATS, ".SVG"])
def test_every_format_is_written(small: Figure, tmp_path: Path, suffix: str) -> None:
    target = tmp_path / f"f{suffix}"
    assert save_figure(small, target) == target
    assert target.read_bytes().startswith(MAGIC[suffix.lower()])
    assert list(tmp_path.iterdir()) == [target]
    assert target.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("suffix", [".svg", ".pdf"])
def test_the_same_function_gives_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    files = []
    for name in ("a", "b"):
        figure = function_figure([exact("maj(x1..x3) ^ x4")])
        files.append(save_figure(figure, tmp_path / f"{name}{suffix}").read_bytes())
    assert files[0] == files[1]


def test_text_in_svg_stays_text(small: Figure, tmp_path: Path) -> None:
    text = save_figure(small, tmp_path / "f.svg").read_text(encoding="utf-8")
    assert "maj(x1..x3) ^ x4" in text
    assert "noise stability" in text


@pytest.mark.parametrize("name", ["f.gif", "f", ".svg", "f.svg.txt"])
def test_other_formats_are_refused(small: Figure, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"must end in \.svg, \.pdf, \.png") as caught:
        save_figure(small, tmp_path / name)
    assert repr(name) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_refused(small: Figure, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the folder does not exist"):
        save_figure(small, tmp_path / "none" / "f.svg")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_way_is_refused(small: Figure, tmp_path: Path) -> None:
    (tmp_path / "f.svg").mkdir()
    with pytest.raises(InputError, match=r"cannot be written to .*f\.svg"):
        save_figure(small, tmp_path / "f.svg")
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
    small: Figure,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: BaseException,
    raised: type[BaseException],
) -> None:
    target = tmp_path / "f.svg"
    target.write_text("old", encoding="utf-8")

    def savefig(self: Figure, path: Path, **options: Any) -> None:
        path.write_text("<?xml half a", encoding="utf-8")
        raise failure

    monkeypatch.setattr(Figure, "savefig", savefig)
    with pytest.raises(raised) as caught:
        save_figure(small, target)
    if raised is InputError:
        assert str(caught.value) == f"the figure cannot be written to {target}: No space left on device."
    assert target.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [target]
