"""The command construct for sums of parities and for steps: exact networks, the paper's bounds, one sentence if not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flipscope.cli import main
from flipscope.constructions import chain_of_thought, fourier
from flipscope.models import FourierNetwork, load

SUM = "0.6*x1x2x3 + 0.64*x3x4x5"


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["construct", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_sum_of_parities_is_built_and_checked(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "--fourier", SUM, "--length", "8", "--check")
    assert (found["length"], found["sparsity"], found["degree"], found["mask"]) == (8, 2, 3, 40)
    assert found["check"]["output"] < 1e-12
    assert (found["check"]["strings"], found["check"]["exhaustive"]) == (256, True)
    paper = found["paper"]
    assert paper["squared_norm"] <= paper["norm_bound"]
    assert paper["squared_gradient"] <= paper["gradient_bound"] == 9260
    plain = asked(capsys, "--fourier", SUM, "--length", "8", "--check", "--mask", "0")
    assert 0.01 < plain["check"]["output"] <= plain["error_bound"] + 1e-12
    assert plain["squared_norm"] == paper["squared_norm"]
    better = asked(capsys, "--fourier", SUM, "--length", "8", "--mask", "0", "--rescale")
    assert better["squared_norm"] < plain["squared_norm"]
    assert main(["construct", "--fourier", SUM, "--length", "8", "--check"]) == 0
    assert "the paper's bound is 9260" in capsys.readouterr().out


def test_what_is_beyond_the_papers_class_has_no_bound_of_its(capsys: pytest.CaptureFixture[str]) -> None:
    for options in (["x1x2 - x3x4"], ["x1x2 + x3"], ["2*x1x2"], ["x1x2", "--readout", "linear"]):
        found = asked(capsys, "--length", "5", "--check", "--fourier", *options)
        assert found["paper"]["norm_bound"] is None
        assert found["check"]["output"] < 1e-12
    projected = asked(capsys, "--fourier", "x1x2", "--length", "5", "--code-width", "64")
    assert projected["error_bound"] is None
    assert projected["width"] == 65


def test_a_check_that_fails_ends_with_1(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    usual = ["construct", "--fourier", SUM, "--length", "8"]
    assert main([*usual, "--code-width", "9", "--check"]) == 1  # random codes of so few coordinates are far off
    assert "NOT exact" in capsys.readouterr().out
    assert main([*usual, "--code-width", "9"]) == 0  # nobody asked
    assert main([*usual, "--mask", "0", "--check"]) == 0  # within its bound
    assert "NOT exact" not in capsys.readouterr().out
    for output in (1e-6, float("nan")):
        monkeypatch.setattr(fourier, "check_network", lambda *_, o=output, **__: fourier.Check(0.0, 0.0, o, 256, True))
        assert main([*usual, "--check"]) == 1
        assert "NOT exact" in capsys.readouterr().out
    monkeypatch.setattr(chain_of_thought, "write_steps", lambda network, bits: bits)
    assert main(["construct", "--parity-steps", "--length", "4", "--check"]) == 1
    assert "NOT exact" in capsys.readouterr().out


def test_the_network_is_saved_for_other_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "f.safetensors")
    assert asked(capsys, "--fourier", SUM, "-o", path)["model"] == path
    assert isinstance(load(path), FourierNetwork)


def test_steps(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "--parity-steps", "--length", "6", "--check")
    assert found["check"] == {"wrong_steps": 0, "strings": 64, "exhaustive": True}
    assert found["paper"]["norm_bound"] < found["squared_norm"] <= found["norm_bound"]
    assert main(["construct", "--parity-steps", "--length", "6"]) == 0
    assert "the paper's is" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--fourier", "x1x2 + 0.5*x2x1"], "the set x1x2 is there twice"),
        (["--fourier", "x1 + 3"], "degree 0"),
        (["--fourier", "0*x1 + 0*x2"], "all 0"),
        (["--fourier", "x1 & x2"], "not a sum of parities"),
        (["--fourier", "x1x9", "--length", "8"], "at least 9"),
        (["--fourier", "x1", "--length", "3"], "4 positions or more"),
        (["--fourier", "x1x2", "--length", "4", "--mask", "nan"], "mask"),
        (["--fourier", "x1x2", "--length", "4", "--readout", "linear", "--mask", "1"], "does not have"),
        (["--fourier", "x1x2", "x1", "--length", "4"], "only one"),
        (["--fourier", "x1x2", "--length", "4", "--gamma", "0.5"], "few bits"),
        (["--parity-steps"], "needs --length"),
        (["--parity-steps", "--length", "2"], "length"),
        (["--parity-steps", "--length", "5", "--mask", "0"], "--mask is for --fourier"),
        ([], "give an expression"),
        (["x1 & x2", "--mask", "0"], "--mask is for --fourier"),
        (["x1 & x2", "--readout", "linear"], "--readout is for --fourier"),
        (["--fourier", "x1x2", "--length", "4", "--mapping", "bag"], "--mapping is for a function of few bits"),
        (["--parity-steps", "--length", "5", "--rescale"], "--rescale is for --fourier"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["construct", *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
