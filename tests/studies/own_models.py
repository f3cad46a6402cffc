"""Models and a tokenizer as a user might name them, with random weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


def small_network() -> nn.Module:
    """A classifier of images of 8 x 8 pixels with three channels."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 10))


def small_vit() -> Any:
    """A vision transformer of `transformers`."""
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(image_size=16, patch_size=4, num_labels=10, **sizes)
    ).eval()


def small_session() -> Any:
    """A linear classifier of images of 8 x 8 pixels with three channels, as a session of ONNX Runtime."""
    import numpy as np
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.from_array(np.random.default_rng(0).normal(size=(192, 10)).astype(np.float32), "weights")
    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["image", *shape])
              for name, shape in (("pixels", (3, 8, 8)), ("logits", (10,)))]  # fmt: skip
    nodes = [
        helper.make_node("Flatten", ["pixels"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["logits"]),
    ]
    graph = helper.make_graph(nodes, "linear", shapes[:1], shapes[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


class PairClassifier(nn.Module):
    """The mean of embeddings, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embeddings, self.head = nn.Embedding(128, 8), nn.Linear(8, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits of the two classes."""
        mask = attention_mask[..., None].float()
        out: Tensor = self.head((self.embeddings(input_ids) * mask).sum(dim=1) / mask.sum(dim=1))
        return out


def letters(first: Sequence[str], second: Sequence[str], max_length: int, **options: Any) -> dict[str, Tensor]:
    """A tokenizer of letters, called as those of `transformers` are."""
    rows = [[ord(letter) % 128 for letter in f"{a}|{b}"][:max_length] for a, b in zip(first, second, strict=True)]
    longest = max(map(len, rows))
    return {
        "input_ids": torch.tensor([row + [0] * (longest - len(row)) for row in rows]),
        "attention_mask": torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows]),
    }
