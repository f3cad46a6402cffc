"""flipscope construct: what it says, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import flipscope
from flipscope.cli import main
from flipscope.constructions.sparse_variables.build import Construction, Enumeration

AND = "x3 & x7 & x11"


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["construct", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("mapping", ["deterministic", "trainable", "bag"])
@pytest.mark.parametrize("heads", ["1", "s"])
def test_enumeration_agrees(mapping: str, heads: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, AND, "--length", "12", "--mapping", mapping, "--heads", heads, "--check")
    assert found["check"]["strings"] == 4096
    assert found["check"]["difference"] <= 1e-12
    assert found["check"]["answer_error"] <= 1e-9
    assert found["exact"]
    assert found["error_holds"]
    assert found["positions"] == [3, 7, 11]
    assert all(norm["actual"] <= norm["promised"] * (1 + 1e-9) for norm in found["norms"])


def test_a_thousand_bits_are_certified(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "x1 & x20 & x300 & x301 & x999", "--length", "1000", "--gamma", "0.4", "--check")
    assert (round(found["R"], 6), round(found["certified_error"], 7)) == (9.903488, 0.0197137)
    assert found["check"]["strings"] is None
    assert found["hidden"] == [24, 12]


def test_printed_forms_are_told_to_fail(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, AND, "--length", "12", "--heads", "3", "--as-printed")
    assert found["certified_error"] == 1
    assert not found["error_holds"]
    assert not found["exact"]
    assert main(["construct", AND, "--length", "12", "--heads", "3", "--as-printed", "--check"]) == 1
    page = capsys.readouterr().out
    assert "ABOVE gamma/4" in page
    assert "NOT exact" in page
    assert "exceeded" in page


def test_a_check_that_fails_ends_with_1(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    usual = ["construct", AND, "--length", "12"]
    assert main([*usual, "--heads", "3", "--as-printed"]) == 0  # nobody asked
    assert main([*usual, "--length", "40", "--heads", "3", "--as-printed", "--check", "--json"]) == 1
    capsys.readouterr()
    for wrong in ({"answer_error": 1e-6}, {"answer_error": float("nan")}, {"error": 0.3}, {"error": float("nan")}):
        found = Enumeration(4096, 0.0, 0.0)
        monkeypatch.setattr(Construction, "enumerate", lambda _, found=found, wrong=wrong: replace(found, **wrong))
        assert main([*usual, "--check"]) == 1
        assert "NOT exact" in capsys.readouterr().out
    monkeypatch.setattr(Construction, "enumerate", lambda _: Enumeration(4096, 0.0, 0.0))
    assert main([*usual, "--check"]) == 0
    assert "NOT exact" not in capsys.readouterr().out


def test_the_page_and_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.safetensors"
    assert main(["construct", "maj(x1..x3)", "--length", "9", "--positions", "2,5,8", "-o", str(path)]) == 0
    assert "x2, x5, x8 of 9 bits" in capsys.readouterr().out
    model = flipscope.load(path)
    assert (model(torch.tensor([[0, 1, 0, 0, 1, 0, 0, 0, 0], [1, 0, 1, 1, 0, 1, 1, 1, 1]])) > 0).tolist() == [
        True,
        False,
    ]


def test_a_basis_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = np.random.default_rng(0).normal(size=(12, 40))
    unit = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    np.save(tmp_path / "basis.npy", unit)
    np.savetxt(tmp_path / "basis.txt", unit)
    first, second = (
        told(capsys, AND, "--length", "12", "--basis", str(tmp_path / name)) for name in ("basis.npy", "basis.txt")
    )
    assert first["coherence"] == pytest.approx(second["coherence"])
    assert first["width"] == 43


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((AND, "--length", "12", "--width", "2"), "width=2 is less than the 3 bits"),
        ((AND, "--length", "12", "--gamma", "0"), "gamma=0 must be above 0 and at most 1"),
        ((AND, "--length", "12", "--gamma", "1.5"), "gamma=1.5 must be"),
        ((AND, "--length", "12", "--gamma", "nan"), "gamma=nan must be"),
        (("parity(13)",), "depends on 13 bits"),
        (("majority(60)",), "may depend on 60 bits"),
        ((AND, "--length", "2"), "n = 2 is too small"),
        ((AND, "--length", "0"), "length must be"),
        (("and(3)", "--length", "12", "--positions", "3,3,7"), "must be different numbers from 1 to 12"),
        (("and(3)", "--length", "12", "--positions", "3,7,13"), "must be different numbers from 1 to 12"),
        (("and(3)", "--length", "2", "--positions", "1,2,3"), "the expression has 3 bits"),
        (("and(3)", "--positions", "a,b"), "must be numbers from 1"),
        ((AND, "--heads", "2"), "heads=2 must be 1, or 3"),
        ((AND, "--heads", "many"), "heads='many' must be 1, s or 3"),
        ((AND, "--basis", "nowhere"), "neither orthonormal, random nor a file"),
        (("x1 & (x2 | x3)", "--as-printed"), "prints no such heads"),
        (("x1 | ~x1",), "constant"),
        (("x1 &",), "expected"),
        ((AND, "-o", "/"), "the model cannot be written to /: it is a folder; name a file in it."),
    ],
)
def test_bad_input_exits_2_with_one_sentence(
    arguments: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["construct", *arguments]) == 2
    error = capsys.readouterr().err
    assert text in error
    assert "Traceback" not in error


def test_a_basis_that_is_not_unit_or_no_matrix_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "long.npy", 2 * np.eye(12))
    (tmp_path / "words.txt").write_text("no numbers here\n")
    np.save(tmp_path / "same.npy", np.eye(12)[[0] * 12])
    for name, text in (
        ("long.npy", "the basis vector 1 has length 2, not 1"),
        ("words.txt", "cannot be read as a matrix"),
        ("same.npy", "depend on each other"),
    ):
        assert main(["construct", AND, "--length", "12", "--basis", str(tmp_path / name)]) == 2
        assert text in capsys.readouterr().err
