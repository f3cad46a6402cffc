"""What every result can do: a short text, a picture, a page of both for notebooks, and JSON."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from torch import nn

import flipscope
from flipscope.basics.estimates import Estimate
from flipscope.cube.expression import parse
from flipscope.figures import Figure
from flipscope.figures.results import Result, as_json
from flipscope.figures.vegalite import MEDIA_TYPE
from flipscope.models import presets
from flipscope.models.transformer import Transformer
from flipscope.probes import fourier
from flipscope.probes.blowup import blowup
from flipscope.probes.curvature import curvature
from flipscope.probes.gradients import squared_gradients
from flipscope.probes.landscape import Landscape, landscape
from flipscope.probes.prior import realised
from flipscope.probes.recognition import recognition
from flipscope.probes.sensitivity import acceptance_flips, sensitivities, sensitivity_profile
from flipscope.probes.sharpness import sharpness, worst_case

LENGTH = 8


def mlp() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(LENGTH, 6), nn.Tanh(), nn.Linear(6, 1))


def strings() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2, (500, LENGTH), np.uint8)


def inputs() -> torch.Tensor:
    return torch.from_numpy(strings()[:20]).float()


def targets() -> torch.Tensor:
    return torch.linspace(-1, 1, 20)


def transformer() -> Transformer:
    return Transformer(presets.encoder(width=8, layers=1, heads=2), scheme="uniform", seed=3)


def curved() -> Any:
    return curvature(mlp(), nn.MSELoss(), (inputs(), targets()[:, None]))


RESULTS: dict[str, Callable[[], Result]] = {
    "flips": lambda: sensitivities(mlp(), strings()),
    "acceptance": lambda: acceptance_flips(mlp(), strings(), 0.05),
    "sampled profile": lambda: sensitivity_profile(mlp(), LENGTH, strings=40),
    "exact profile": lambda: sensitivity_profile(mlp(), LENGTH, exhaustive=True),
    "blowup": lambda: blowup(transformer(), strings()[:10]),
    "sharpness": lambda: sharpness(mlp(), inputs(), rho=0.1, draws=20),
    "worst case": lambda: worst_case(mlp(), inputs(), targets(), rho=0.1, steps=3),
    "curvature": curved,
    "trace": lambda: curved().trace,
    "eigenvalues": lambda: curved().eigenvalues,
    "density": lambda: curved().density,
    "lines": lambda: landscape(mlp(), inputs(), targets(), points=5),
    "plane": lambda: landscape(mlp(), inputs(), targets(), dimensions=2, points=5),
    "spectrum": lambda: fourier.spectrum(mlp(), LENGTH),
    "weights": lambda: fourier.weight_by_degree(mlp(), LENGTH, samples=400),
    "recognition": lambda: recognition(lambda bits: bits.float().sum(dim=1) - 4.5, parse("thr(5, x1..x8)"), 0.1),
    "squared gradients": lambda: squared_gradients(mlp(), inputs()),
    "realised functions": lambda: realised(presets.recognizer(width=4, layers=1), length=3, draws=500),
    "portrait": lambda: flipscope.describe("maj(x1..x5) ^ x6"),
    "sampled portrait": lambda: flipscope.describe("random(40)", strings=50),
}


@pytest.fixture(scope="module", params=RESULTS)
def result(request: pytest.FixtureRequest) -> Result:
    return RESULTS[request.param]()


def test_its_text_is_a_few_short_lines(result: Result) -> None:
    lines = repr(result).splitlines()
    assert lines[0] == type(result).__name__
    assert 2 < len(lines) <= 9
    assert all(len(line) <= 140 for line in lines)
    assert "array(" not in repr(result)


def test_its_picture_is_data_that_can_be_drawn(result: Result) -> None:
    figure = result.plot()
    assert isinstance(figure, Figure)
    assert any(value is not None for panel in figure.panels for series in panel.series for value in series.y)
    assert ElementTree.fromstring(figure.svg()).tag.endswith("svg")


def test_it_is_one_json_document(result: Result) -> None:
    document = json.loads(json.dumps(result.as_json(), allow_nan=False))
    assert len(document) >= 2


def test_a_notebook_shows_text_and_picture_and_fetches_nothing(result: Result) -> None:
    page = result._repr_html_()
    parsed = ElementTree.fromstring(page.replace('background:#fff">', 'background:#fff"/>'))
    shown = "".join(parsed.itertext())
    for name in result.summary():
        assert name in shown
    (image,) = parsed.iter("img")
    assert image.get("alt")
    kind, _, drawn = str(image.get("src")).partition(",")
    assert kind == "data:image/svg+xml;base64"
    drawing = base64.b64decode(drawn).decode()
    assert ElementTree.fromstring(drawing).tag.endswith("svg")
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", page + drawing)


def test_what_a_user_has_named_is_escaped() -> None:
    found = flipscope.describe("x1 & x2", name="<script>alert('no')</script> & \"more\"")
    page = found._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_values_become_what_json_knows() -> None:
    estimate = Estimate(0.5, 0.4, 0.6, 0.95, 10)
    given = {1: np.array([1.0, np.nan]), "a": (np.float64(2.0), float("inf")), "b": estimate, "c": None, "d": "text"}
    assert as_json(given) == {
        "1": [1.0, None],
        "a": [2.0, None],
        "b": estimate.as_json(),
        "c": None,
        "d": "text",
    }
    assert as_json(slice(0, 1)) == slice(0, 1)  # what it does not know it leaves to JSON to refuse


def test_a_landscape_without_a_number_says_so() -> None:
    broken = Landscape(1, np.array([-1.0, 0.0, 1.0]), np.full((1, 3), np.nan), 0.0, 1, 1)
    assert "no number" in repr(broken)


def test_a_figure_falls_back_to_a_drawing_where_vega_lite_is_not_known() -> None:
    figure = flipscope.describe("x1 ^ x2").plot()
    shown = figure._repr_mimebundle_()
    assert list(shown) == [MEDIA_TYPE, "image/svg+xml", "image/png", "text/plain"]
    assert ElementTree.fromstring(shown["image/svg+xml"]).tag.endswith("svg")
    assert base64.b64decode(shown["image/png"]).startswith(b"\x89PNG")
    assert list(figure._repr_mimebundle_(include={"text/plain"})) == ["text/plain"]
    assert "image/png" not in figure._repr_mimebundle_(exclude={"image/png"})
