"""The baselines: parameter counts, files, the same numbers as other implementations, and token sensitivity of each."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from flipscope.adapters.disturbing import patches
from flipscope.basics.errors import InputError
from flipscope.models import Transformer, TransformerConfig, load, save
from flipscope.models.baselines.config import (
    CNNConfig,
    ConvMixerConfig,
    DenseNetConfig,
    LSTMConfig,
    MLPConfig,
    ResNetConfig,
)
from flipscope.models.baselines.presets import (
    IMAGE_MODELS,
    TEXT_MODELS,
    ImageShape,
    TextShape,
    image_model,
    text_model,
)
from flipscope.models.kinds import configuration
from flipscope.probes.tokens import token_sensitivity

CIFAR, SVHN = ImageShape("cifar-10", 32, 3), ImageShape("svhn", 32, 3)
FASHION, MNIST = ImageShape("fashion-mnist", 28, 1), ImageShape("mnist", 28, 1)
TEXTS = TextShape(vocabulary=50265, length=128, padding=1)
TINY = ImageShape("tiny", 8, 1, classes=3)

SMALL: dict[str, Any] = {
    "mlp": MLPConfig(image_size=8, channels=2, hidden=(7, 5), activation="sigmoid", classes=3),
    "cnn": CNNConfig(image_size=8, channels=2, filters=3, hidden=6, classes=3),
    "resnet": ResNetConfig(image_size=8, channels=2, start=4, blocks=(1, 2), classes=3),
    "densenet": DenseNetConfig(image_size=8, channels=2, growth=3, blocks=(2, 1), start=4, bottleneck=2, classes=3),
    "convmixer": ConvMixerConfig(image_size=8, channels=2, patch_size=2, channels_inside=6, depth=2, classes=3),
    "lstm": LSTMConfig(vocabulary=11, length=6, width=8, layers=2, padding=0, classes=3),
}


def build(config: Any, seed: int | None = 0) -> nn.Module:
    return Transformer(config, seed=seed) if isinstance(config, TransformerConfig) else config.network(seed=seed)


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def inputs(config: Any, number: int = 4) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    if config.inputs == "tokens":
        return torch.randint(1, config.vocabulary, (number, config.max_length), generator=generator)
    return torch.randn(number, config.channels, config.image_size, config.image_size, generator=generator)


def with_other_statistics(model: nn.Module) -> nn.Module:
    """The model after a step in training mode, so that the statistics of batch norms are not those of the start."""
    generator = torch.Generator().manual_seed(5)
    for name, tensor in model.state_dict().items():
        if "running" in name:
            tensor.add_(0.2 * torch.rand(tensor.shape, generator=generator))
    return model.eval()


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        # The released script's own modules have these numbers; that of ResNet-18 is also its authors' figure.
        ("resnet-18", CIFAR, 11_173_962),
        ("resnet-18", SVHN, 11_173_962),
        ("densenet-121", CIFAR, 6_956_426),
        ("convmixer", CIFAR, 117_642),
        ("vit-simple", CIFAR, 1_975_210),
        ("mlp", FASHION, 468_864),
        ("mlp-sigmoid", FASHION, 468_864),
        ("mlp", MNIST, 79_500),
        ("cnn", FASHION, 600_810),
        # By the formula of tests/models/test_transformer.py, whose terms are checked there.
        ("vit-small", CIFAR, 4_482_482),
        ("vit-small", SVHN, 4_482_482 + 8 * 256 * (64 + 64 + 1)),
        ("vit-small", FASHION, 338_348),
        ("vit-small", MNIST, 84_726),
    ],
)
def test_presets_have_the_known_numbers_of_parameters(name: str, shape: ImageShape, parameters: int) -> None:
    assert count(build(image_model(name, shape), None)) == parameters


def test_the_lstm_has_the_parameters_of_pytorchs() -> None:
    config = text_model("lstm", TEXTS)
    with torch.device("meta"):
        own = nn.LSTM(256, 256, 4)
    assert count(build(config, None)) == count(own) + 50265 * 256 + 2 * 256 + 2 * 256 + 2 == 14_974_210


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_sizes_without_pytorch_are_close_to_the_models(name: str) -> None:
    config = image_model(name, CIFAR)
    if not isinstance(config, TransformerConfig):
        parameters = count(build(config, None))
        assert config.numbers() <= parameters <= 1.08 * config.numbers()


@pytest.mark.parametrize("name", SMALL)
def test_multiplications_and_activations_are_those_of_the_layers(name: str) -> None:
    config = SMALL[name]
    model, found = build(config).eval(), {"multiplications": 0, "activations": 0}

    def note(module: nn.Module, given: Any, output: Any) -> None:
        if isinstance(module, nn.LSTM):
            weights = sum(p.numel() for key, p in module.named_parameters() if key.startswith("weight"))
            found["multiplications"] += config.max_length * weights
            found["activations"] += config.max_length * 4 * config.width * config.layers
        else:
            places = output.numel() // output.shape[1]
            weight: torch.Tensor = module.weight  # type: ignore[assignment]
            found["multiplications"] += places * weight.numel()
            found["activations"] += output.numel()

    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear | nn.LSTM):
            module.register_forward_hook(note)
    model(inputs(config, 1))
    if name == "lstm":  # reads once, and the estimate takes the read-out for every token
        extra = (config.max_length - 1) * config.width * config.classes
        assert config.multiplications(config.max_length) == found["multiplications"] + extra
    else:
        assert config.multiplications() == found["multiplications"]
        assert config.activations() == found["activations"]


# ---------------------------------------------------------------- configurations and files


@pytest.mark.parametrize("name", SMALL)
def test_configurations_survive_json(name: str) -> None:
    assert configuration(json.loads(json.dumps(SMALL[name].as_dict()))) == SMALL[name]


@pytest.mark.parametrize("name", SMALL)
def test_models_of_a_seed_are_the_same_and_come_back_from_files(name: str, tmp_path: Path) -> None:
    config = SMALL[name]
    state = torch.random.get_rng_state()
    model = with_other_statistics(build(config))
    assert torch.equal(torch.random.get_rng_state(), state)
    data = inputs(config)
    assert torch.equal(model(data), with_other_statistics(build(config))(data))
    assert not torch.equal(model(data), with_other_statistics(build(config, 1))(data))
    save(model, tmp_path / "model.safetensors")  # type: ignore[arg-type]
    again = load(tmp_path / "model.safetensors")
    assert again.config == config
    assert not again.training
    assert torch.equal(again(data), model(data))


def test_every_scheme_begins_with_usable_statistics() -> None:
    model = SMALL["resnet"].network(scheme="gaussian", seed=2)
    assert all(bool((t == (1 if "var" in n else 0)).all()) for n, t in model.state_dict().items() if "running" in n)


def test_a_frozen_lstm_trains_its_recurrent_weights_only() -> None:
    model = dataclasses.replace(SMALL["lstm"], trained="recurrent").network()
    names = {name.partition(".")[0] for name, each in model.named_parameters() if each.requires_grad}
    assert names == {"recurrent"}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: MLPConfig(image_size=8, channels=1, classes=1), "classes"),
        (lambda: MLPConfig(image_size=8, channels=0), "channels"),
        (lambda: MLPConfig(image_size=8, channels=1, hidden=(0,)), "hidden"),
        (lambda: MLPConfig(image_size=8, channels=1, activation="tanh"), "activation"),  # type: ignore[arg-type]
        (lambda: CNNConfig(image_size=4, channels=1), "leave nothing"),
        (lambda: DenseNetConfig(image_size=8, channels=1), "halve"),
        (lambda: ConvMixerConfig(image_size=4, channels=1, patch_size=5), "patch_size=5"),
        (lambda: LSTMConfig(vocabulary=5, length=4, padding=5), "padding=5"),
        (lambda: LSTMConfig(vocabulary=5, length=4, dropout=1.0), "dropout=1.0"),
        (lambda: image_model("cnnsmall", TINY), "did you mean cnn-small"),
        (lambda: image_model("lstm", TINY), "does not read images"),
        (lambda: SMALL["cnn"].network()(torch.zeros(1, 1, 8, 8)), "2, 8, 8"),
        (lambda: SMALL["lstm"].network()(torch.zeros(1, 2, dtype=torch.long)), "no token but padding"),
        (lambda: SMALL["lstm"].network()(torch.full((1, 2), 11)), "contain 11"),
        (lambda: SMALL["lstm"].network()(torch.ones(1, 7, dtype=torch.long)), "1 to 6"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        wrong()


# ---------------------------------------------------------------- the same numbers as other implementations


def test_the_lstm_ignores_padding_as_packed_sequences_do() -> None:
    config = SMALL["lstm"]
    model = config.network(seed=4).eval()
    tokens = torch.tensor([[3, 4, 5, 0, 0, 0], [1, 2, 3, 4, 5, 6], [7, 0, 0, 0, 0, 0]])
    packed = nn.utils.rnn.pack_padded_sequence(
        model.embedding(tokens), torch.tensor([3, 6, 1]), batch_first=True, enforce_sorted=False
    )
    _, (hidden, _) = model.recurrent(packed)
    torch.testing.assert_close(model(tokens), model.head(hidden[-1]))


def test_the_resnet_is_that_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    config = ResNetConfig(image_size=16, channels=3, start=8, blocks=(2, 2, 2), classes=5)
    ours = with_other_statistics(config.network(seed=1))
    other = transformers.ResNetForImageClassification(
        transformers.ResNetConfig(
            num_channels=3,
            embedding_size=8,
            hidden_sizes=[8, 16, 32],
            depths=[2, 2, 2],
            layer_type="basic",
            num_labels=5,
        )
    ).eval()
    # Its stem is that of large images; everything behind it is comparable.
    other.resnet.embedder = nn.Sequential(ours.stem, ours.norm, nn.ReLU())
    for stage, theirs in zip(ours.stages, other.resnet.encoder.stages, strict=True):
        for block, layer in zip(stage, theirs.layers, strict=True):
            pairs = [(block.first, block.norm1, layer.layer[0]), (block.second, block.norm2, layer.layer[1])]
            if isinstance(block.shortcut, nn.Sequential):
                pairs.append((*block.shortcut, layer.shortcut))
            for convolution, norm, target in pairs:
                target.convolution.load_state_dict(convolution.state_dict())
                target.normalization.load_state_dict(norm.state_dict(), strict=False)  # it has a counter too
    other.classifier[1].load_state_dict(ours.head.state_dict())
    images = inputs(config)
    with torch.no_grad():
        torch.testing.assert_close(other(images).logits, ours(images))


def test_vit_simple_is_what_its_definition_says() -> None:
    """Step by step with PyTorch's functions: patches, two norms, positions, attention, mean."""
    config = dataclasses.replace(image_model("vit-simple", TINY), width=8, heads=2, head_size=3, layers=2, ffn_width=7)
    assert isinstance(config, TransformerConfig)
    model = Transformer(config, scheme="gaussian", seed=2, dtype=torch.float64)
    images = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def normed(x: torch.Tensor, norm: Any) -> torch.Tensor:
        return nn.functional.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, 1e-5)

    cut = nn.functional.unfold(images, 4, stride=4).transpose(1, 2)  # one channel, row by row
    embedding: Any = model.embedding
    x = normed(embedding.patch(normed(cut, embedding.patch_norm)), embedding.patch_output_norm)
    angles = np.array([1.0, 1e-4])  # a quarter of the width: frequencies from 1 to 1/10000
    places = [[f(p * a) for p in (c, r) for f in (np.sin, np.cos) for a in angles] for r in range(2) for c in range(2)]
    x = x + torch.tensor(places, dtype=torch.float64)
    for block in model.blocks:
        seen = normed(x, block.norm1)
        heads = [
            part(seen).unflatten(-1, (2, 3)).transpose(1, 2)
            for part in (block.attention.query, block.attention.key, block.attention.value)
        ]
        mixed = nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(-2)
        assert block.attention.output.bias is None
        x = x + mixed @ block.attention.output.weight.T
        x = x + block.mlp.down(nn.functional.gelu(block.mlp.up(normed(x, block.norm2))))
    expected = model.head(normed(x, model.final_norm).mean(dim=1))
    torch.testing.assert_close(model(images), expected)


@pytest.mark.parametrize("name", ["roberta-small", "roberta-relu-small", "gpt2-small", "lstm-small"])
def test_text_models_ignore_the_padding_of_their_configuration(name: str) -> None:
    config = text_model(name, TextShape(vocabulary=20, length=7, padding=1))
    model = build(config).eval()
    whole = torch.tensor([[0, 5, 6, 7, 8, 9, 2], [0, 5, 6, 2, 1, 1, 1]])
    torch.testing.assert_close(model(whole)[1], model(whole[1:, :4])[0], atol=1e-5, rtol=1e-5)
    unaware = build(dataclasses.replace(config, padding=None)).eval()
    assert not torch.allclose(unaware(whole)[1], model(whole)[1], atol=1e-3)


def test_padding_is_that_of_transformers_roberta() -> None:
    transformers = pytest.importorskip("transformers")
    config = text_model("roberta-small", TextShape(vocabulary=20, length=7, padding=1))
    assert isinstance(config, TransformerConfig)
    ours: Any = Transformer(config, scheme="gaussian", seed=1).eval()
    ours.load_state_dict({name: 0.1 * tensor for name, tensor in ours.state_dict().items()})
    other = transformers.RobertaForSequenceClassification(
        transformers.RobertaConfig(
            vocab_size=20, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256,
            max_position_embeddings=9, type_vocab_size=1, pad_token_id=1, layer_norm_eps=1e-5, num_labels=2,
        )
    ).eval()  # fmt: skip
    theirs = dict(other.named_parameters())

    def give(name: str, *parts: Any) -> None:
        for part in parts:
            for kind in ("weight", "bias"):
                if getattr(part, kind, None) is not None:
                    theirs[f"{name}.{kind}"].data.copy_(getattr(part, kind))

    base = "roberta.embeddings"
    give(f"{base}.word_embeddings", ours.embedding.symbol)
    theirs[f"{base}.position_embeddings.weight"].data[2:] = ours.embedding.position.weight.data  # from padding + 1 on
    theirs[f"{base}.token_type_embeddings.weight"].data.zero_()
    give(f"{base}.LayerNorm", ours.embedding.norm)
    for number, block in enumerate(ours.blocks):
        layer = f"roberta.encoder.layer.{number}"
        for part in ("query", "key", "value"):
            give(f"{layer}.attention.self.{part}", getattr(block.attention, part))
        give(f"{layer}.attention.output.dense", block.attention.output)
        give(f"{layer}.attention.output.LayerNorm", block.norm1)
        give(f"{layer}.intermediate.dense", block.mlp.up)
        give(f"{layer}.output.dense", block.mlp.down)
        give(f"{layer}.output.LayerNorm", block.norm2)
    give("classifier.dense", ours.dense)
    give("classifier.out_proj", ours.head)
    # All but token types and the two positions that RoBERTa reserves.
    assert count(other) == count(ours) + 64 + 2 * 64
    tokens = torch.tensor([[0, 5, 6, 7, 8, 9, 2], [0, 5, 6, 2, 1, 1, 1]])
    with torch.no_grad():
        found = other(input_ids=tokens, attention_mask=(tokens != 1).long()).logits
        torch.testing.assert_close(found, ours(tokens), atol=1e-5, rtol=1e-4)


# ---------------------------------------------------------------- measured


@pytest.mark.parametrize("name", [*IMAGE_MODELS, *TEXT_MODELS])
def test_token_sensitivity_of_every_baseline(name: str) -> None:
    if name in TEXT_MODELS:
        config: Any = text_model(name, TextShape(vocabulary=20, length=6, padding=1))
        tokens = np.array([[0, 5, 6, 2, 1, 1], [0, 7, 8, 9, 4, 2]])
        options: dict[str, Any] = {"how": "replace", "special": [0, 2]}
        found = token_sensitivity(build(config), tokens, draws=2, **options)
        # Padding does not count and is not drawn, and special tokens stay.
        assert found.drawn.tolist() == [[0, 2, 2, 0, 0, 0], [0, 2, 2, 2, 2, 0]]
        assert found.disturbance.vocabulary == 17
        noisy = token_sensitivity(build(config), tokens, at="embedding", variance=4.0)
        assert noisy.drawn.tolist() == [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]]
        return
    shape = ImageShape("tiny", 16, 1, classes=3) if name == "densenet-121" else TINY
    config = image_model(name, shape)
    model = build(config)
    found = token_sensitivity(model, inputs(config, 2), feature_mask=patches(shape.image_size // 2), variance=25.0)
    assert found.changed.shape == (2, 4)
    assert 0 <= found.definition.value <= 1
    for parameter in model.head.parameters():  # type: ignore[union-attr]
        parameter.data.zero_()  # one answer for all images
    assert token_sensitivity(model, inputs(config, 2), feature_mask=patches(8)).definition.value == 0
