"""MODEL as package.module:factory and as an ONNX file: measured as in Python, one sentence for what goes wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Called, Run

from flipscope.basics.bits import index_bits
from flipscope.cube.functions import BooleanFunction

MODELS = '''
import torch
from torch import nn


def network():
    """XOR of two of four bits: 1 where exactly one of them is."""
    model = nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 1))
    with torch.no_grad():
        model[0].weight[:] = torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]])
        model[0].bias[:] = torch.tensor([0.0, -1.0])
        model[2].weight[:] = torch.tensor([[1.0, -2.0]])
        model[2].bias[:] = -0.5
    return model


class Probable(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = network()

    def forward(self, x):
        return torch.sigmoid(self.inner(x))


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = network()

    def forward(self, x):
        logit = self.inner(x)[:, 0]
        return torch.stack([-logit / 2, logit / 2], dim=1)


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(8, 1)
        with torch.no_grad():
            self.table.weight[:] = torch.arange(8.0)[:, None]

    def forward(self, tokens):
        return self.table(tokens).sum(dim=(1, 2)) - 22.5  # tokens 5 and 6 for four bits: above with three ones


made = network()


def bits(strings):
    return strings[:, 0] - 0.5


def broken():
    raise RuntimeError("no weights here")


def pairs(strings):
    return 2.0 * strings - 1.0


def first(output):
    return output[:, 0]


number = 3
'''


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A current folder with a module of models, forgotten afterwards."""
    (tmp_path / "my_models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("my_models", None)


def document(found: Called) -> Any:
    code, out, err = found
    assert code == 0, err
    return json.loads(out)


XOR_PROFILE = [0, 0, 16, 0, 0]


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("my_models:network", ()),
        ("my_models:made", ()),
        ("./my_models.py:network", ()),
        ("my_models:Probable", ("--length", "4")),
        ("my_models:Pair", ("--length", "4")),
        ("my_models:Pair", ("--length", "4", "--decision", "logits")),
    ],
)
def test_sensitivity_of_python_models(run: Run, model: str, options: tuple[str, ...]) -> None:
    found = document(run("sensitivity", model, *options, "--exhaustive", "--json"))
    assert (found["length"], found["profile"], found["from_file"]) == (4, XOR_PROFILE, {})


def test_encodings_and_decisions(run: Run) -> None:
    three = ("sensitivity", "my_models:Table", "--length", "4", "--exhaustive", "--json")
    found = document(run(*three, "--encoding", "5,6"))
    assert found["profile"] == _profile(index_bits(0, 16, 4).sum(axis=1) >= 3)
    signs = document(run("sensitivity", "my_models:bits", "--length", "3", "--exhaustive", "--json"))
    assert signs["profile"] == [0, 8, 0, 0]
    own = ("--encoding", "my_models:pairs", "--decision", "my_models:first", "--threshold", "0")
    found = document(run("sensitivity", "my_models:Pair", "--length", "4", *own, "--exhaustive", "--json"))
    pairs = index_bits(0, 16, 4) * 2.0 - 1
    total = pairs[:, 0] + pairs[:, 1]
    logit = np.maximum(total, 0) - 2 * np.maximum(total - 1, 0) - 0.5
    assert found["profile"] == _profile(-logit / 2 > 0)


def _profile(answers: np.ndarray) -> list[int]:
    """Of four bits, from all answers."""
    index = np.arange(16)
    counts = sum((answers[index ^ (1 << bit)] != answers).astype(int) for bit in range(4))
    return np.bincount(counts, minlength=5).tolist()


def test_degree_and_sparsity_of_python_models(run: Run) -> None:
    for model in ("my_models:network", "./my_models.py:network"):
        found = document(run("test-degree", model, "--json"))
        assert (found["first_accepted_degree"], found["length"]) == (2, 4)
    pair = ("my_models:Pair", "--length", "4")
    assert document(run("test-degree", *pair, "--degree", "1", "--json"))["accepted"] is False
    assert document(run("test-sparsity", *pair, "--free", "4", "--json"))["first_accepted_sparsity"] == 1
    three = BooleanFunction.from_table((index_bits(0, 16, 4).sum(axis=1) >= 3).astype(np.uint8))
    table = ("my_models:Table", "--length", "4", "--encoding", "5,6")
    assert document(run("test-degree", *table, "--json"))["first_accepted_degree"] == three.degree()
    code, _, err = run("test-degree", "my_models:bits")
    assert (code, "give --length" in err) == (2, True)


def test_losses_of_python_models(run: Run) -> None:
    bits = index_bits(0, 16, 4)
    total = bits[:, 0] + bits[:, 1]
    logits = np.maximum(total, 0) - 2 * np.maximum(total - 1.0, 0) - 0.5
    labels = bits[:, 0] ^ bits[:, 1]
    bce = np.mean(np.logaddexp(0, logits) - labels * logits)
    settings = ("--function", "x1 ^ x2", "--length", "4", "--loss", "bce", "--exhaustive", "--json")
    for model in ("network", "Probable", "Pair"):
        found = document(run("landscape", f"my_models:{model}", *settings, "--points", "3", "--directions", "1"))
        assert found["loss"] == pytest.approx(bce, rel=1e-5), model
        found = document(run("sharpness", f"my_models:{model}", *settings, "--draws", "2"))
        assert found["loss"]["value"] == pytest.approx(bce, rel=1e-5), model
        found = document(run("curvature", f"my_models:{model}", *settings, "--what", "fisher-rao"))
        assert found["loss"]["value"] == pytest.approx(bce, rel=1e-5), model


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("sensitivity", "my_models:nothing"), "the model my_models:nothing cannot be imported: AttributeError"),
        (("sensitivity", "no_such_module:x"), "the model no_such_module:x cannot be imported: ModuleNotFoundError"),
        (("sensitivity", "my_models:broken"), "the factory my_models:broken failed with RuntimeError: no weights here"),
        (("sensitivity", "my_models:bits"), "my_models:bits does not say how many bits it reads: give --length"),
        (("sensitivity", "my_models:number", "--length", "3"), "must be an nn.Module"),
        (("sensitivity", "my_models:network", "--length", "5"), "the model failed on"),
        (("sensitivity", "my_models:network", "--encoding", "words"), "encoding='words' is not one of"),
        (("sensitivity", "my_models:network", "--encoding", "5,x"), "--encoding 5,x is not a pair of token ids"),
        (("sensitivity", "my_models:network", "--decision", "maybe"), "output='maybe' is not one of"),
        (("sensitivity", "my_models:network", "--device", "tpu9"), "device='tpu9' is none that PyTorch knows"),
        (("sharpness", "my_models:bits", "--length", "3"), "an nn.Module, and the model is a function"),
        (("blowup", "my_models:bits", "--length", "3"), "an nn.Module, and the model is a function"),
        (("bounds", "my_models:network"), "these bounds cover flipscope's transformers"),
        (("bound", "covering", "my_models:network"), "is for flipscope's attention networks and transformers"),
        (("sensitivity", "missing.py:network"), "missing.py is not a file"),
        (("sensitivity", "missing.onnx"), "missing.onnx is not a file"),
        (("sensitivity", "my_models.onnx"), "cannot be read as an ONNX model"),
    ],
)
def test_one_sentence_for_what_goes_wrong(run: Run, arguments: tuple[str, ...], sentence: str) -> None:
    Path("my_models.onnx").write_text("no model")
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_without_onnxruntime_the_package_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("model.onnx").write_text("anything")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    code, out, err = run("sensitivity", "model.onnx")
    assert (code, out, err) == (2, "", "flipscope: model.onnx needs ONNX Runtime: pip install onnxruntime.\n")


def test_an_onnx_file(run: Run) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.array([[1.0], [1.0], [1.0]], np.float32), "w")
    bias = numpy_helper.from_array(np.array([-1.5], np.float32), "b")
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"])
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, size]) for name, size in (("x", 3), ("y", 1))]
    graph = helper.make_graph([node], "majority", ends[:1], ends[1:], [weight, bias])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, "majority.onnx")
    found = document(run("sensitivity", "majority.onnx", "--exhaustive", "--json"))
    assert (found["length"], found["profile"]) == (3, [2, 0, 6, 0])  # majority of three bits
    code, _, err = run("sharpness", "majority.onnx", "--strings", "4", "--draws", "2")
    assert (code, "an nn.Module, and the model is an ONNX session" in err) == (2, True)


def test_an_estimator(run: Run) -> None:
    pytest.importorskip("sklearn")
    Path("my_models.py").write_text(
        MODELS
        + """

def tree():
    import numpy as np
    from sklearn.tree import DecisionTreeClassifier
    bits = np.arange(8)[:, None] >> np.arange(3) & 1
    return DecisionTreeClassifier().fit(bits, bits.sum(axis=1) % 2)
"""
    )
    found = document(run("sensitivity", "my_models:tree", "--exhaustive", "--json"))
    assert (found["length"], found["profile"]) == (3, [0, 0, 0, 8])  # parity
