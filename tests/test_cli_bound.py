"""The command bound: a bound, a score that is none, one sentence for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flipscope.bounds.covering import summary
from flipscope.cli import main
from flipscope.models import AttentionNetwork, AttentionNetworkConfig, Transformer, encoder, save, vit_small

CLASS = ("--sparsity", "2", "--degree", "2", "--length", "6")


@pytest.fixture
def network(tmp_path: Path) -> str:
    path = tmp_path / "network.safetensors"
    save(AttentionNetwork(AttentionNetworkConfig(length=5, width=8, normalise=True)), path)
    return str(path)


def test_an_attention_network_has_a_bound(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bound", "covering", network, "--train-strings", "300", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["length"], found["samples"], found["broken_assumptions"]) == ("bound", 5, 300, [])
    model = AttentionNetwork(AttentionNetworkConfig(length=5, width=8, normalise=True))
    nothing = {"from_file": {}, "differs_from_file": {}}
    assert found == json.loads(json.dumps(summary(model, 5, 300).as_json() | nothing))
    assert all(row["vacuous"] for row in found["bounds"])
    assert main(["bound", "covering", network, "--train-strings", "300"]) == 0
    out = capsys.readouterr().out
    assert "Bound: gap of the logistic loss, m = 300" in out
    assert out.count(" vacuous") == 3
    assert main(["bound", "covering", network, "--train-strings", "1" + "0" * 40]) == 0
    assert capsys.readouterr().out.count("non-vacuous") == 4  # with the heading of a column


def test_anything_else_has_a_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "model.safetensors")
    save(Transformer(encoder(8, 2, 2)), path)
    assert main(["bound", "covering", path, "--length", "9", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "norm-based score, not a bound"
    assert "a residual connection around every sub-layer" in found["broken_assumptions"]
    assert main(["bound", "covering", path, "--length", "9"]) == 0
    out = capsys.readouterr().out
    assert "Norm-based score, not a bound" in out
    assert "- a residual connection" in out
    assert out.count("would be vacuous") == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["covering", "MODEL", "--train-strings", "0"], "train_strings must be a whole number of at least 1"),
        (["covering", "MODEL", "--delta", "1"], "delta=1.0 must lie strictly between 0 and 1"),
        (["covering", "MODEL", "--delta", "nan"], "delta=nan must lie"),
        (["covering", "MODEL", "--length", "9"], "length"),
        (["covering", "nowhere.safetensors"], "nowhere.safetensors is not a file"),
        (["covering", "MODEL", "--fixed", "*"], "--fixed is for pac-bayes"),
        (["pac", "MODEL"], "invalid choice"),
        *(
            (["pac-bayes", *CLASS, "--form", form, "--sigma", sigma], sentence)
            for form in ("truncated", "semi-analytic", "analytic")
            for sigma, sentence in (("1e-300", "sigma=1e-300 must lie"), ("1e300", "sigma=1e+300 must lie"))
        ),
        (["pac-bayes", *CLASS, "--form", "semi-analytic", "--sigma", "1e40"], "sigma=1e+40 makes the outputs NaN"),
    ],
)
def test_bad_input(arguments: list[str], sentence: str, network: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bound", *(network if each == "MODEL" else each for each in arguments)]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1


def test_images_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "images.safetensors")
    save(Transformer(vit_small(image_size=8, width=8, layers=1, heads=1)), path)
    assert main(["bound", "covering", path]) == 2
    assert "reads images" in capsys.readouterr().err


def test_each_command_names_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bound", "--help"]) == 0
    assert "flipscope bounds, with an s" in capsys.readouterr().out
    assert main(["bounds", "--help"]) == 0
    assert "flipscope bound, without an s" in capsys.readouterr().out
