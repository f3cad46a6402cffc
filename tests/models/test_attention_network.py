"""The network of Def 3.2 and § 4.3, against the formulas written out, and asked by every probe."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import flipscope
from flipscope.basics.bits import index_bits
from flipscope.basics.errors import InputError
from flipscope.cli import main
from flipscope.data.batches import Examples
from flipscope.models import AttentionNetwork, AttentionNetworkConfig, load, save
from flipscope.models.init import initialise
from flipscope.probes.fourier import spectrum
from flipscope.probes.recognition import recognition
from flipscope.training.fit import fit

SMALL = [
    AttentionNetworkConfig(length=5, width=8, mapping=mapping, layers=layers, heads=heads, head_size=3, **more)
    for mapping, layers, heads, more in (
        ("deterministic", 1, 1, {}),
        ("deterministic", 1, 3, {"activation": "tanh", "normalise": True}),
        ("trainable", 1, 2, {"activation": "relu", "hidden": (6, 4), "features": 2}),
        ("trainable", 2, 2, {"activation": "relu", "normalise": True}),
        ("bag", 1, 2, {"hidden": (5,)}),
        ("bag", 3, 2, {"normalise": True, "activation": "tanh"}),
        ("deterministic", 2, 2, {"basis": "random", "basis_seed": 4}),
    )
]
BITS = torch.from_numpy(index_bits(0, 32, 5))
WIDE = {"scheme": "gaussian", "dtype": torch.float64}


@torch.no_grad()
def by_definition(model: AttentionNetwork, bits: Tensor) -> Tensor:
    """Row by row, head by head, as the paper writes it."""
    config, logits = model.config, []
    ball = (lambda v: v / max(1.0, float(v.norm()))) if config.normalise else (lambda v: v)
    sigma = {"identity": lambda v: v, "relu": torch.relu, "tanh": torch.tanh}[config.activation]
    own, symbols = model.inputs.positions, model.inputs.symbols
    for string in bits:
        if config.mapping == "bag":
            rows = [float(b) * own[t] for t, b in enumerate(string)]
        else:
            rows = [own[t] + symbols[int(b)] for t, b in enumerate(string)]
        z = torch.stack([*rows, model.inputs.marker])
        for layer in range(config.layers):
            out = torch.zeros_like(z)
            for head in model.heads(layer):
                mixed = (z @ head.query @ (z @ head.key).T).softmax(dim=1) @ z @ head.value
                out += torch.stack([sigma(ball(row)) for row in mixed]) @ head.mix
            z = torch.stack([ball(row) for row in out])
        y = z[-1, : config.read_width]
        for linear in model.mlp:
            y = torch.relu(linear.weight @ y + linear.bias)
        logits.append(model.readout.weight[0] @ y)
    return torch.stack(logits)


@pytest.mark.parametrize("config", SMALL)
def test_it_computes_what_the_paper_writes(config: AttentionNetworkConfig) -> None:
    model = config.network(seed=3, **WIDE)
    expected = by_definition(model, BITS)
    torch.testing.assert_close(model(BITS), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(model.read(model.states(BITS)[-1][:, -1]), expected, rtol=1e-12, atol=1e-12)
    short = model(BITS[:, :3])  # fewer bits take the first positions
    torch.testing.assert_close(short, by_definition(model, BITS[:, :3]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("config", SMALL)
def test_a_file_gives_the_same_model(config: AttentionNetworkConfig, tmp_path: Path) -> None:
    model = config.network(seed=5, **WIDE)
    with torch.no_grad():
        model.inputs.positions += 0.25  # vectors that the configuration does not know
    save(model, tmp_path / "m.safetensors")
    again = flipscope.load(tmp_path / "m.safetensors")
    assert isinstance(again, AttentionNetwork)
    assert again.config == config
    assert torch.equal(again(BITS), model(BITS))
    assert AttentionNetworkConfig.from_dict(json.loads(json.dumps(config.as_dict()))) == config


def test_the_same_seed_gives_the_same_numbers_and_positions_of_a_bag_do_not_matter() -> None:
    config = SMALL[4]
    first, second = (config.network(seed=7) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first(BITS), config.network(seed=8)(BITS))
    order = torch.tensor([3, 0, 4, 1, 2])
    model = config.network(seed=7, **WIDE)
    expected = model(BITS)
    with torch.no_grad():
        model.inputs.positions.copy_(model.inputs.positions[order])
    torch.testing.assert_close(model(BITS[:, order]), expected, rtol=1e-13, atol=1e-13)


def test_fixed_vectors_are_orthonormal_or_unit_and_only_trained_positions_are_parameters() -> None:
    for config in SMALL:
        fixed = config.vectors()
        special = np.concatenate([fixed.symbols[: config.special - 1], fixed.marker[None]])
        np.testing.assert_array_equal(special @ special.T, np.eye(config.special))
        assert not (fixed.positions @ special.T).any()
        names = dict(config.network().named_parameters())
        assert ("inputs.positions" in names) == (config.mapping == "trainable")
        if config.mapping != "trainable":
            np.testing.assert_allclose(np.linalg.norm(fixed.positions, axis=1), 1)


@pytest.mark.parametrize("config", [SMALL[1], SMALL[5]])
def test_probes_ask_it_like_any_module(config: AttentionNetworkConfig) -> None:
    model = config.network(seed=11, **WIDE)
    logits = model(BITS).detach().numpy()
    table = flipscope.BooleanFunction.from_table((logits > 0).astype(int))
    found = flipscope.sensitivities(model, BITS.numpy())
    own = table(BITS.numpy())
    flips = [BITS.numpy() ^ (np.arange(5) == j) for j in range(5)]
    np.testing.assert_array_equal(found.counts, sum((table(each) != own).astype(int) for each in flips))
    moved = [abs(model(torch.from_numpy(each)).detach().numpy() - logits) for each in flips]
    np.testing.assert_allclose(flipscope.influences(model, BITS.numpy()), np.stack(moved, axis=1), atol=1e-12)
    assert recognition(model, table, float(abs(logits).min())).correct == 32
    np.testing.assert_allclose(spectrum(model, 5).logits, logits, rtol=1e-12)
    assert flipscope.sharpness(model, BITS.numpy(), std=0.1, draws=3).value.value > 0
    with pytest.raises(InputError, match=r"no nn\.LayerNorm"):
        flipscope.blowup(model, BITS.numpy())  # it has none


def test_training_moves_it() -> None:
    config = AttentionNetworkConfig(length=5, width=8, mapping="deterministic", heads=2)
    model = config.network(seed=0)
    labels = (BITS[:, 1] | BITS[:, 3]).numpy()
    data = Examples(BITS.numpy(), labels)
    fitted = fit(model, data, data, learning_rate=0.02, batch=32, max_epochs=150, stop_after=None)
    assert fitted.history[-1].validation_accuracy == 1


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"width": 7}, "width=7 is too small for 5 orthonormal positions"),
        ({"width": 3, "basis": "random"}, "width=3 is too small for positions"),
        ({"mapping": "sum"}, "mapping='sum' is not one of"),
        ({"hidden": [3]}, r"hidden=\[3\] must be a tuple"),
        ({"features": 2}, "features=2 are what an MLP reads"),
        ({"normalise": 1}, "normalise must be True or False"),
        ({"heads": 0}, "heads must be a whole number"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], text: str) -> None:
    with pytest.raises(InputError, match=text):
        AttentionNetworkConfig(**{"length": 5, "width": 8, **changes})  # type: ignore[arg-type]


def test_bad_inputs_and_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = SMALL[0].network()
    for wrong in (BITS * 0.5, BITS[0], BITS * 2, torch.zeros(1, 6, dtype=torch.uint8)):
        with pytest.raises(InputError):
            model(wrong)
    with pytest.raises(InputError, match="no memory"):
        initialise(SMALL[0].network(seed=None))
    with pytest.raises(InputError, match="has the fields"):
        AttentionNetworkConfig.from_dict({"kind": "attention-network"})
    path = tmp_path / "m.safetensors"
    save(model, path)
    assert main(["bounds", str(path)]) == 2
    assert "holds an attention network" in capsys.readouterr().err
    assert isinstance(load(path), AttentionNetwork)


def test_commands_read_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.safetensors"
    model = SMALL[1].network(seed=11, dtype=torch.float64)
    save(model, path)
    assert main(["sensitivity", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["length"] == 5
    assert main(["sharpness", str(path), "--exhaustive", "--draws", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["length"] == 5


def test_multiplications_grow_with_everything() -> None:
    base = AttentionNetworkConfig(length=20, width=40, basis="random").multiplications(20)
    for layers, heads in itertools.product((1, 2), (1, 2)):
        config = AttentionNetworkConfig(length=20, width=40, basis="random", layers=layers, heads=heads)
        assert (config.multiplications(20) > base) == (layers * heads > 1)
        assert config.numbers() >= sum(tensor.numel() for tensor in config.network(seed=None).state_dict().values())
