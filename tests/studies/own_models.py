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
