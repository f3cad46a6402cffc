"""The commands sharpness and landscape: documents, pages, files, one sentence for bad input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from commands import Run, document

from flipscope.basics.seeds import generators, random_strings
from flipscope.models import Transformer, hardness, mingpt, save, vit_small
from flipscope.probes.sharpness import sharpness

WORDS = {"value", "low", "high", "confidence", "samples"}


@pytest.fixture
def model(tmp_path: Path) -> tuple[Transformer, str]:
    made = Transformer(hardness(6, width=16), seed=3)
    path = tmp_path / "model.safetensors"
    save(made, path)
    return made, str(path)


def test_sharpness_as_json(run: Run, model: tuple[Transformer, str]) -> None:
    made, path = model
    found = document(run("sharpness", path, "--strings", "40", "--draws", "7", "--seed", "2", "--std", "0.1", "--json"))
    same = sharpness(made, random_strings(generators(2, 1)[0], 40, 6), std=0.1, draws=7, seed=2)
    assert found["sharpness"]["prediction"] == same.value.as_json()
    assert set(found["sharpness"]) == {"prediction", "ShOp", "ShPred"}
    assert all(set(each) == WORDS for each in found["sharpness"].values())
    assert found["parameters"] == made.count_parameters(positions=False)
    assert (found["noise"], found["strings"], found["length"], found["loss"]) == ("gaussian", 40, 6, None)


def test_sharpness_of_a_function_on_the_whole_cube(run: Run, model: tuple[Transformer, str]) -> None:
    made, path = model
    call = ("sharpness", path, "--function", "parity(6)", "--exhaustive", "--rho", "0.5", "--draws", "5", "--json")
    found = document(run(*call))
    assert found["strings"] == 64
    assert found["noise"] == "sphere"
    assert set(found["sharpness"]) == {"loss", "prediction", "ShOp", "ShPred"}
    cube = (np.arange(64)[:, None] >> np.arange(6)) & 1
    signs = 2.0 * (cube.sum(axis=1) % 2) - 1
    same = sharpness(made, cube, signs, measure="loss", rho=0.5, draws=5)
    assert found["sharpness"]["loss"]["value"] == pytest.approx(same.value.value, rel=1e-3)
    assert found["loss"]["value"] == pytest.approx(same.loss, rel=1e-5)
    halves = document(run(*call, "--labels", "bits"))
    assert halves["loss"]["value"] != found["loss"]["value"]
    assert document(run(*call, "--loss", "bce"))["loss"]["name"] == "bce"


def test_a_model_of_two_outputs_answers_with_their_difference(run: Run, tmp_path: Path) -> None:
    made = Transformer(mingpt(5, width=16, heads=2), seed=3)
    save(made, tmp_path / "two.safetensors")
    path = str(tmp_path / "two.safetensors")
    found = document(run("sharpness", path, "--function", "x1 ^ x5", "--exhaustive", "--draws", "3", "--json"))
    cube = torch.from_numpy((np.arange(32)[:, None] >> np.arange(5)) & 1)
    with torch.no_grad():
        logits = made.eval()(cube)
    signs = 2.0 * (cube[:, 0] ^ cube[:, 4]) - 1
    assert found["loss"]["value"] == pytest.approx(
        float((logits[:, 1] - logits[:, 0] - signs).square().mean()), rel=1e-4
    )
    code, _, _ = run("landscape", path, "--function", "x1 ^ x5", "--points", "3", "--json")
    assert code == 0


def test_sharpness_page(run: Run, model: tuple[Transformer, str]) -> None:
    code, out, _ = run("sharpness", model[1], "--function", "majority(6)", "--draws", "3", "--adaptive")
    assert code == 0
    for word in ("Gaussian noise of std 0.02, in proportion", "increase of the loss", "ShPred", "majority(6)"):
        assert word in out
    code, out, _ = run("sharpness", model[1], "--draws", "3", "--parameters", "head.*", "--rho", "1")
    assert (code, "17 (rho 1" in out) == (0, True)


def test_help_has_examples(run: Run) -> None:
    for command in ("sharpness", "landscape"):
        code, out, _ = run(command, "--help")
        assert code == 0
        assert f"flipscope {command} model.safetensors" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--std", "0"], "std=0.0 must be a positive number"),
        (["--std", "-1"], "std=-1.0 must be a positive number"),
        (["--rho", "nan"], "rho=nan must be a positive number"),
        (["--std", "1", "--rho", "1"], "not allowed with"),
        (["--std", "1e-300"], "std=1e-300 is lost in rounding"),
        (["--std", "1e300"], "std=1e+300 is beyond float32"),
        (["--rho", "1e-300", "--adaptive"], "rho=1e-300 is lost in rounding"),
        (["--rho", "1e300"], "rho=1e+300 is beyond float32"),
        (["--draws", "1"], "draws must be a whole number of at least 2"),
        (["--strings", "0"], "strings must be"),
        (["--seed", "-1"], "seed must be"),
        (["--confidence", "2"], "confidence must"),
        (["--parameters", "nothing*"], "matches none of"),
        (["--length", "7"], "longer than max_length=6"),
        (["--function", "parity(7)"], "longer than max_length=6"),
        (["--function", "parity("], "parity("),
        (["--draws", "1" + "0" * 30], "hours on this machine, more than 24: lower --draws or --strings"),
        (["--loss", "l1"], "invalid choice"),
    ],
)
def test_bad_input_is_one_sentence(
    run: Run, model: tuple[Transformer, str], arguments: list[str], sentence: str
) -> None:
    code, out, err = run("sharpness", model[1], *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert "Traceback" not in err


def test_files_that_are_no_model_to_move(run: Run, tmp_path: Path) -> None:
    text, images = tmp_path / "notes.txt", tmp_path / "vit.safetensors"
    text.write_text("no model")
    save(Transformer(vit_small(image_size=8, width=8, layers=1, heads=1), seed=0), images)
    for path, sentence in (
        (text, "cannot be read as safetensors"),
        (tmp_path / "none", "none"),
        (images, "reads images"),
    ):
        for command in (("sharpness",), ("landscape", "--function", "parity(4)")):
            code, out, err = run(command[0], str(path), *command[1:])
            assert (code, out) == (2, "")
            assert sentence in err
            assert err.count("\n") == 1


def test_a_state_with_nan(run: Run, model: tuple[Transformer, str], tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    with safe_open(model[1], "pt") as file:
        tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    tensors["head.bias"][0] = float("nan")
    del metadata["flipscope.sha256"]  # with which it is found out before that
    save_file(tensors, tmp_path / "nan.safetensors", metadata)
    code, _, err = run("sharpness", str(tmp_path / "nan.safetensors"))
    assert code == 2
    assert "NaN" in err


# ---------------------------------------------------------------- landscape


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_landscape_as_a_picture(run: Run, model: tuple[Transformer, str], tmp_path: Path, ending: str) -> None:
    target = tmp_path / f"picture.{ending}"
    dimensions = "2" if ending == "png" else "1"
    call = ("landscape", model[1], "--function", "parity(6)", "--strings", "9", "--points", "3", "--plot", str(target))
    code, out, err = run(*call, "--dimensions", dimensions)
    assert (code, err) == (0, f"wrote {target}\n")
    assert "mse" in out
    begins = {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF"}
    assert target.read_bytes().startswith(begins[ending])


def test_landscape_as_json(run: Run, model: tuple[Transformer, str]) -> None:
    call = ("landscape", model[1], "--function", "majority(6)", "--exhaustive", "--points", "5", "--directions", "2")
    found = document(run(*call, "--json"))
    assert (found["strings"], found["dimensions"], len(found["losses"]), len(found["losses"][0])) == (64, 1, 2, 5)
    assert found["losses"][0][2] == pytest.approx(found["loss"], rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--plot", "picture.gif"], "must end in"),
        (["--plot", "/no/such/folder/x.svg"], "cannot be written"),
        (["--points", "4"], "must be odd"),
        (["--reach", "-1"], "reach=-1.0 must be"),
        (["--reach", "1e-300"], "reach=1e-300 is lost in rounding"),
        (["--reach", "1e300", "--dimensions", "2"], "reach=1e+300 is beyond float32"),
        (["--dimensions", "3"], "invalid choice"),
        (["--directions", "0"], "directions must be"),
    ],
)
def test_bad_landscapes(run: Run, model: tuple[Transformer, str], arguments: list[str], sentence: str) -> None:
    code, out, err = run("landscape", model[1], "--function", "parity(6)", *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
