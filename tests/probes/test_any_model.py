"""Everybody's model in every measurement: each cell of the table in docs/your-model.md is run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import flipscope
from flipscope.basics.errors import InputError
from flipscope.cube.functions import majority
from flipscope.data.batches import Examples
from flipscope.models import encoder
from flipscope.probes.landscape import landscape
from flipscope.probes.recognition import recognition
from flipscope.training.fit import fit

N = 5
STRINGS = np.random.default_rng(1).integers(0, 2, (8, N)).astype(np.uint8)
LABELS = STRINGS[:, 0].astype(np.int64)
DOCS = Path(__file__).parents[2] / "docs" / "your-model.md"


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(1, 4, batch_first=True), nn.Linear(4, 1)

    def forward(self, bits: Tensor) -> Tensor:
        out: Tensor = self.head(self.lstm(bits[..., None])[0][:, -1])
        return out


class Looked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(2, 4), nn.Linear(4 * N, 1)

    def forward(self, bits: Tensor) -> Tensor:
        out: Tensor = self.head(self.table(bits).flatten(1))
        return out


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(N, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 1, bias=False))


def bert() -> Any:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.BertConfig(vocab_size=9, num_labels=2, max_position_embeddings=N, **sizes)
    return flipscope.Subject(transformers.BertForSequenceClassification(config), encoding=(3, 6))


def forest() -> Any:
    ensemble = pytest.importorskip("sklearn.ensemble")
    return ensemble.RandomForestClassifier(4, random_state=0).fit(STRINGS, LABELS)


def onnx_session() -> Any:
    """A linear map as an ONNX file, opened by ONNX Runtime."""
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    weights = np.arange(N, dtype=np.float32)[:, None] - 1.8
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["bits", "weights"], ["logits"])],
        "linear",
        [helper.make_tensor_value_info("bits", onnx.TensorProto.FLOAT, [None, N])],
        [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [None, 1])],
        [numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


# Its name in the table, how it is made, and in which type it gets data that are not made of bits by an encoding.
MODELS: dict[str, tuple[Callable[[], Any], Any]] = {
    "LSTM": (LSTM, np.uint8),
    "MLP, integers": (mlp, np.int64),
    "MLP, floats": (mlp, np.float32),
    "`nn.Embedding`": (Looked, np.int64),
    "`BertForSequenceClassification`": (bert, np.uint8),
    "scikit-learn forest": (forest, np.uint8),
    "ONNX session": (onnx_session, np.uint8),
    "flipscope `Transformer`": (lambda: flipscope.Transformer(encoder(8, 1, 2), seed=1), np.uint8),
}


def loss_of(model: Any) -> str:
    return "cross_entropy" if isinstance(model, flipscope.Subject) else "bce"


def fitted(model: Any, data: Any) -> Any:
    examples, loss = Examples(data, LABELS), {"loss": "ce"} if isinstance(model, flipscope.Subject) else {}
    return fit(model, examples, examples, learning_rate=0.01, batch=4, max_steps=2, **loss)


def flipped_tokens(model: Any, data: Any) -> Any:
    """Token sensitivity with flips of bits as tokens, which must be the sensitivity over the length."""
    found = flipscope.token_sensitivity(model, data, how="flip")
    np.testing.assert_array_equal(found.changed.sum(axis=1), flipscope.sensitivity(model, STRINGS))
    return found


MEASUREMENTS: dict[str, Callable[[Any, Any], Any]] = {
    "sensitivity": lambda model, data: flipscope.sensitivity(model, STRINGS),
    "profile": lambda model, data: flipscope.sensitivity_profile(model, N, strings=5),
    "influences": lambda model, data: flipscope.influences(model, STRINGS),
    "fourier": lambda model, data: flipscope.fourier.spectrum(model, N),
    "blowup": lambda model, data: flipscope.blowup(model, data),
    "sharpness": lambda model, data: flipscope.sharpness(
        model, data, LABELS, measure="loss", std=0.1, draws=2, loss=loss_of(model)
    ),
    "curvature": lambda model, data: flipscope.curvature(
        model, loss_of(model), (data, LABELS), what="trace", method="hutchinson", probes=3
    ),
    "landscape": lambda model, data: landscape(model, data, LABELS, points=3, directions=1, loss=loss_of(model)),
    "recognition": lambda model, data: recognition(model, majority(N), 0.1),
    "fit": fitted,
    "tokens": flipped_tokens,
}

INSIDE = "blowup is read inside an nn.Module"
MOVED = "the parameters of an nn.Module, and the model is"
# What is said where a measurement does not apply.
REFUSED: dict[tuple[str, str], str] = {
    ("LSTM", "blowup"): "has no nn.LayerNorm or nn.RMSNorm to measure",
    ("`nn.Embedding`", "blowup"): "has no nn.LayerNorm or nn.RMSNorm to measure",
    **{(name, "blowup"): INSIDE for name in ("scikit-learn forest", "ONNX session")},
    **{
        (name, measurement): MOVED
        for name in ("scikit-learn forest", "ONNX session")
        for measurement in ("sharpness", "curvature", "landscape", "fit")
    },
}


@functools.cache
def made(name: str) -> Any:
    torch.manual_seed(4)
    return MODELS[name][0]()


@pytest.mark.parametrize("measurement", MEASUREMENTS)
@pytest.mark.parametrize("name", MODELS)
def test_every_model_in_every_measurement(name: str, measurement: str) -> None:
    model, data = made(name), STRINGS.astype(MODELS[name][1])
    sentence = REFUSED.get((name, measurement))
    if sentence is None:
        assert MEASUREMENTS[measurement](model, data) is not None
        return
    with pytest.raises(InputError, match=sentence) as caught:
        MEASUREMENTS[measurement](model, data)
    assert "\n" not in str(caught.value)


def test_the_documented_table_is_this_one() -> None:
    header = f"| | {' | '.join(MEASUREMENTS)} |"
    lines = [header, "|---" * (len(MEASUREMENTS) + 1) + "|"]
    for name in MODELS:
        cells = ["—" if (name, each) in REFUSED else "works" for each in MEASUREMENTS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    assert "\n".join(lines) in DOCS.read_text(encoding="utf-8")
