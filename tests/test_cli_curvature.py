"""The command curvature: documents, the page, one sentence for bad input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from commands import Run, document

from flipscope.basics.bits import index_bits
from flipscope.models import Transformer, hardness, mingpt, save
from flipscope.probes.curvature import curvature


@pytest.fixture
def model(tmp_path: Path) -> tuple[Transformer, str]:
    made = Transformer(hardness(4, width=8), seed=3)
    path = tmp_path / "model.safetensors"
    save(made, path)
    return made, str(path)


def test_curvature_as_json(run: Run, model: tuple[Transformer, str]) -> None:
    made, path = model
    call = ("curvature", path, "--function", "parity(4)", "--exhaustive", "--probes", "9", "--seed", "2", "--json")
    found = document(run(*call, "--eigenvalues", "2"))
    cube = index_bits(0, 16, 4)
    signs = 2.0 * (cube.sum(axis=1) % 2) - 1
    same = curvature(made, "mse", (cube, signs), probes=9, seed=2, eigenvalues=2)
    assert same.trace is not None
    assert same.eigenvalues is not None
    assert found["trace"] == same.trace.as_json()
    assert found["eigenvalues"] == same.eigenvalues.as_json()
    density = found["density"]
    assert density["mean"]["value"] == pytest.approx(np.dot(density["nodes"], density["weights"]))
    assert density["mean"]["low"] < density["mean"]["value"] < density["mean"]["high"]
    assert sum(each["value"] for each in density["shares"]) == pytest.approx(1)
    assert all(each["low"] <= each["value"] <= each["high"] for each in density["shares"])
    assert found["loss"] == {"name": "mse", "value": same.loss}
    assert (found["length"], found["strings"], found["exhaustive"], found["function"]) == (4, 16, True, "parity(4)")
    only = document(run(*call, "--what", "fisher-rao", "--loss", "bce"))
    assert (only["trace"], only["eigenvalues"], only["density"], only["gauss_newton"]) == (None,) * 4
    assert only["fisher_rao"]["empirical"] > 0


def test_without_a_function_the_trace_is_that_of_the_gradients(run: Run, model: tuple[Transformer, str]) -> None:
    call = ("curvature", model[1], "--exhaustive", "--what", "trace", "--float64", "--method", "exact", "--json")
    found = document(run(*call, "--parameters", "head.*", "--parameters", "blocks.1.norm2.*"))
    assert found["loss"]["value"] < 1e-12
    assert found["trace"]["value"] == pytest.approx(found["gauss_newton"]["value"], rel=1e-6)
    assert found["parameters"] == 9 + 16


def test_a_model_of_two_outputs_answers_with_their_difference(run: Run, tmp_path: Path) -> None:
    made = Transformer(mingpt(4, width=8, heads=2), seed=3)
    save(made, tmp_path / "two.safetensors")
    call = ("curvature", str(tmp_path / "two.safetensors"), "--exhaustive", "--what", "fisher-rao", "--json")
    cube = torch.from_numpy(index_bits(0, 16, 4))
    with torch.no_grad():
        logits = made.eval()(cube)
    found = document(run(*call, "--function", "first(4)"))
    signs = 2.0 * cube[:, 0] - 1
    assert found["loss"]["value"] == pytest.approx(
        float((logits[:, 1] - logits[:, 0] - signs).square().mean()), rel=1e-4
    )
    assert document(run(*call))["loss"]["value"] < 1e-10


def test_curvature_page(run: Run, model: tuple[Transformer, str]) -> None:
    code, out, err = run("curvature", model[1], "--function", "majority(4)", "--strings", "9", "--probes", "9")
    assert (code, err) == (0, "")
    for word in (
        "majority(4)",
        "hutch++",
        "largest",
        "residual",
        "blocks.0.attention.value",
        "eigenvalues",
        "Fisher-Rao",
        "mean eigenvalue",
        "was missed",
    ):
        assert word in out
    code, out, _ = run("curvature", "--help")
    assert "flipscope curvature model.safetensors" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--probes", "2"], "probes must be a whole number of at least 3"),
        (["--eigenvalues", "0"], "eigenvalues must be"),
        (["--tolerance", "0"], "tolerance=0 must lie"),
        (["--tolerance", "nan"], "tolerance=nan must lie"),
        (["--what", "hessian"], "invalid choice"),
        (["--loss", "bce"], "needs labels: give --function"),
        (["--parameters", "nothing*"], "matches none of"),
        (["--function", "parity(5)"], "longer than max_length=4"),
        (["--strings", "0"], "strings must be"),
        (
            ["--probes", "1" + "0" * 30],
            "more than 24: lower --probes, --eigenvalues or --strings",
        ),
        (["--confidence", "0"], "confidence must"),
    ],
)
def test_bad_input_is_one_sentence(
    run: Run, model: tuple[Transformer, str], arguments: list[str], sentence: str
) -> None:
    code, out, err = run("curvature", model[1], *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
