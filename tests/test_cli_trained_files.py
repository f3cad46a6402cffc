"""Measuring commands on trained files: function, length, loss and labels come from the file unless options differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Called, Run

from flipscope.basics.arguments import plain_fields
from flipscope.basics.bits import index_bits
from flipscope.cube.expression import parse
from flipscope.data.fourier import FourierData
from flipscope.data.kinds import KINDS
from flipscope.data.lengths import LengthsData
from flipscope.data.real import RealData
from flipscope.data.sparse import SparseData
from flipscope.data.steps import StepsData
from flipscope.data.strings import Data, StringData
from flipscope.data.tables import TableData, table_text
from flipscope.models import hardness, load, save
from flipscope.models.header import read_header
from flipscope.training import artefact
from flipscope.training.protocol import TrainingProtocol
from flipscope.training.recipe import Recipe
from flipscope.training.task import KEY, NoFunction, Task, read_task


def document(found: Called) -> Any:
    """The document of a call that ended well; a slow machine may have shown its progress."""
    code, out, err = found
    assert code == 0, err
    return json.loads(out)


@pytest.fixture(scope="module")
def majority(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of a model of majority(5), trained with the binary cross entropy."""
    return _trained(tmp_path_factory.mktemp("files") / "m.safetensors", "majority(5)", 5)


def _trained(path: Path, function: str | None, length: int, data: Data | None = None, **protocol: Any) -> str:
    """A file of a model after two steps on a function, or on other data."""
    some = data or StringData(function=function, length=length, train=16, validation=4)
    settings = TrainingProtocol(**{"learning_rate": 0.01, "batch": 4, "max_steps": 2, **protocol})
    recipe = Recipe(data=some, model=hardness(length, width=8, heads=1), protocol=settings)
    artefact.write(path, recipe.train())
    return str(path)


# ---------------------------------------------------------------- what the file says


def test_defaults_come_from_the_file_and_are_said(run: Run, majority: str) -> None:
    quick = {
        "sensitivity": (("--strings", "4", "--path", "general"), {"function": "majority(5)", "length": 5}),
        "blowup": (("--strings", "4"), {"length": 5}),
        "bounds": (("--strings", "4"), {"length": 5}),
        "sharpness": (("--draws", "2"), {"function": "majority(5)", "length": 5, "loss": "bce"}),
        "curvature": (("--what", "fisher-rao"), {"function": "majority(5)", "length": 5, "loss": "bce"}),
        "landscape": (("--points", "3"), {"function": "majority(5)", "length": 5, "loss": "bce"}),
    }
    for command, (options, expected) in quick.items():
        found = document(run(command, majority, *options, "--json"))
        assert (found["from_file"], found["differs_from_file"]) == (expected, {}), command
        code, page, _ = run(command, majority, *options)
        said = ", ".join(f"{name} {value}" for name, value in expected.items())
        assert (code, f"{said}: from the file." in page) == (0, True), command
    found = document(run("bound", "covering", majority, "--json"))
    assert (found["from_file"], found["samples"]) == ({"length": 5, "train_strings": 16}, 16)


def test_the_degree_of_a_trained_file(run: Run, majority: str, tmp_path: Path) -> None:
    truth = parse("majority(5)").from_table((_logits(majority, index_bits(0, 32, 5)) > 0).astype(np.uint8)).degree()
    found = document(run("test-degree", majority, "--json"))
    assert (found["first_accepted_degree"], found["from_file"]) == (truth, {"length": 5})
    assert "length 5: from the file." in run("test-degree", majority, "--degree", "5")[1]
    # Outputs trained towards 0 and 1 are decided at 0.5, as in `flipscope sensitivity`.
    bits = _trained(tmp_path / "bits.safetensors", "majority(5)", 5, loss="mse", labels="bits")
    truth = parse("majority(5)").from_table((_logits(bits, index_bits(0, 32, 5)) > 0.5).astype(np.uint8)).degree()
    found = document(run("test-degree", bits, "--json"))
    assert (found["first_accepted_degree"], found["from_file"]) == (truth, {"length": 5, "threshold": 0.5})


def test_the_loss_is_that_of_the_training(run: Run, majority: str) -> None:
    found = document(run("sharpness", majority, "--draws", "2", "--exhaustive", "--json"))
    bits = index_bits(0, 32, 5)
    logits, labels = _logits(majority, bits), parse("majority(5)")(bits)
    bce = np.mean(np.logaddexp(0, logits) - labels * logits)
    assert found["loss"] == {"name": "bce", "value": pytest.approx(bce, rel=1e-5)}
    assert found["function"] == "majority(5)"


def unwrapped(page: str) -> str:
    """The text of a page on one line, without its frame."""
    return " ".join(page.replace("│", " ").split())


def _logits(path: str, bits: np.ndarray) -> np.ndarray:
    import torch

    with torch.no_grad():
        return load(path)(torch.from_numpy(bits)).double().numpy()


def test_the_average_of_the_function_stands_beside_that_of_the_model(run: Run, majority: str) -> None:
    found = document(run("sensitivity", majority, "--exhaustive", "--json"))
    assert (found["function"], found["function_average_sensitivity"]) == ("majority(5)", 1.875)
    assert "majority(5) itself has 1.875" in unwrapped(run("sensitivity", majority, "--exhaustive")[1])


def test_options_win_and_the_difference_is_said(run: Run, majority: str) -> None:
    options = ("--function", "parity(5)", "--loss", "mse", "--labels", "bits", "--draws", "2")
    found = document(run("sharpness", majority, *options, "--exhaustive", "--json"))
    assert (found["from_file"], found["differs_from_file"]) == (
        {"length": 5},
        {"function": "majority(5)", "loss": "bce"},
    )
    bits = index_bits(0, 32, 5)
    error = np.mean((_logits(majority, bits) - parse("parity(5)")(bits)) ** 2)
    assert found["loss"] == {"name": "mse", "value": pytest.approx(error, rel=1e-5)}
    page = unwrapped(run("sharpness", majority, *options)[1])
    assert "The file says function majority(5), loss bce; the options given here say otherwise." in page
    found = document(run("sensitivity", majority, "--length", "4", "--strings", "2", "--json"))
    assert (found["length"], found["from_file"], found["differs_from_file"]) == (4, {}, {"length": 5})


def test_a_function_of_fewer_bits_is_measured_at_the_length_of_the_file(run: Run, majority: str) -> None:
    found = document(run("landscape", majority, "--function", "x1 ^ x2", "--points", "3", "--json"))
    assert (found["length"], found["function"]) == (5, "x1 ^ x2")
    assert found["from_file"] == {"length": 5, "loss": "bce"}


def test_at_another_length_the_function_of_the_file_has_no_labels(run: Run, majority: str) -> None:
    found = document(run("sharpness", majority, "--length", "4", "--draws", "2", "--json"))
    sentence = "the function in the file, majority(5), has 5 bits, not 4"
    assert (found["loss"], found["function"], found["no_function"]) == (None, None, sentence)
    assert sentence in " ".join(run("sharpness", majority, "--length", "4", "--draws", "2")[1].split())
    code, out, err = run("landscape", majority, "--length", "4")
    assert (code, out, err) == (2, "", f"flipscope: {sentence}: give --function.\n")


def test_labels_and_the_threshold_of_squared_errors(run: Run, tmp_path: Path) -> None:
    path = _trained(tmp_path / "bits.safetensors", "parity(5)", 5, loss="mse", labels="bits")
    found = document(run("sensitivity", path, "--exhaustive", "--json"))
    assert found["from_file"] == {"function": "parity(5)", "length": 5, "threshold": 0.5}
    same = document(run("sensitivity", path, "--exhaustive", "--threshold", "0.5", "--json"))
    assert (same["profile"], same["differs_from_file"]) == (found["profile"], {})
    found = document(run("landscape", path, "--exhaustive", "--points", "3", "--json"))
    assert found["from_file"] == {"function": "parity(5)", "length": 5, "loss": "mse", "labels": "bits"}
    bits = index_bits(0, 32, 5)
    assert found["loss"] == pytest.approx(np.mean((_logits(path, bits) - parse("parity(5)")(bits)) ** 2), rel=1e-5)


def test_a_file_that_says_nothing_has_the_usual_defaults(run: Run, majority: str, tmp_path: Path) -> None:
    save(load(majority), tmp_path / "bare.safetensors")
    found = document(run("sharpness", str(tmp_path / "bare.safetensors"), "--draws", "2", "--json"))
    assert (found["function"], found["from_file"], found["differs_from_file"]) == (None, {}, {})
    code, out, err = run("landscape", str(tmp_path / "bare.safetensors"))
    assert (code, out, err) == (2, "", "flipscope: a loss needs labels: give --function.\n")


# ---------------------------------------------------------------- which recipes have a function


def _task(data: Data, **protocol: Any) -> Task:
    document = {"kind": KINDS.name_of(type(data)), **plain_fields(data)}
    settings = {"loss": "bce", "labels": "signs", **protocol}
    written = {"version": 1, "recipe": {"data": document, "protocol": settings}}
    found = read_task("file", {KEY: json.dumps(written)})
    assert found is not None
    return found


CUBE = index_bits(0, 64, 6)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (StringData(function="majority(5)", length=6), parse("majority(5)", 6)(CUBE)),
        (TableData(table=table_text(parse("parity(6)")), length=6, subset=9), parse("parity(6)")(CUBE)),
        (LengthsData(function="majority", length=9), 2 * CUBE.sum(axis=1) > 6),
        (RealData(function="mean", length=6), CUBE.mean(axis=1)),
        (SparseData(length=6, relevant=2, seed=4), SparseData(length=6, relevant=2, seed=4).values(CUBE)),
        (FourierData(length=6, sparsity=2, degree=2), FourierData(length=6, sparsity=2, degree=2).target()(CUBE)),
    ],
)
def test_data_with_a_function(data: Data, expected: np.ndarray) -> None:
    task = _task(data)
    assert task.length == data.length
    np.testing.assert_allclose(task.function_at(6)(CUBE), expected, rtol=1e-6)
    assert task.function == data.function


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (StringData(function=None, length=6, train=7), "a random language, which labels only its own 7 strings"),
        (StringData(function="majority(5)", length=5), "majority(5), has 5 bits, not 6"),
        (LengthsData(function="parity", length=6, answer="prefixes"), "to answer at every position (parity)"),
        (StepsData(length=6, way="one-pass"), "trained on data of kind 'steps'"),
    ],
)
def test_data_without_a_function_at_this_length(data: Data, sentence: str) -> None:
    with pytest.raises(NoFunction) as error:
        _task(data).function_at(6)
    assert sentence in str(error.value)


def test_classes_are_measured_as_bits() -> None:
    """Of two outputs the cross entropy of classes is the binary one of their difference."""
    assert _task(StringData(function="x1", length=2), loss="ce").loss == "bce"


def test_reading_a_task_loads_no_pytorch(majority: str) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from flipscope.models.header import read_header; from flipscope.training.task import read_task\n"
        "h = read_header(sys.argv[1]); t = read_task(h.path, h.metadata); "
        "print(t.length, t.loss, 'torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code, majority], capture_output=True, text=True, check=True)
    assert found.stdout == "5 bce False\n"


def test_damaged_and_newer_notes_are_refused(majority: str) -> None:
    for text, sentence in (
        ("{", "damaged metadata entry"),
        ("[]", "damaged metadata entry"),
        ('{"version": 1, "recipe": {}}', "damaged metadata entry"),
        ('{"version": 2}', "format 2, but this flipscope reads 1"),
    ):
        with pytest.raises(ValueError, match=sentence):
            read_task("file", {KEY: text})
    assert read_task("file", {}) is None
    header = read_header(majority)
    assert read_task(header.path, header.metadata) is not None
