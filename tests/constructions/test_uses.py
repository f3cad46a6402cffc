"""What one does with a construction: probe it, save it, export it, put gates on gates, train it further."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import flipscope
from flipscope.basics.bits import index_bits
from flipscope.basics.errors import InputError
from flipscope.constructions.sparse_variables import as_transformer, compose, construct
from flipscope.cube.expression import parse
from flipscope.data.batches import Examples
from flipscope.models import AttentionNetworkConfig, save
from flipscope.models.unmodified import difference
from flipscope.training.fit import fit

BITS = index_bits(0, 256, 8)
STRINGS = torch.from_numpy(BITS)


@pytest.mark.parametrize("expression", ["x1 & x3", "x1 ^ x4 ^ x7", "x2 & (x3 | x8)"])
@pytest.mark.parametrize("mapping", ["deterministic", "trainable"])
def test_an_exported_transformer_gives_the_same_outputs(expression: str, mapping: str) -> None:
    f = parse(expression, 8)
    for heads in (1, len(f.support)):
        for mlp in (True, False):
            built = construct(f, mapping, heads=heads, mlp=mlp)  # type: ignore[arg-type]
            other = as_transformer(built.model)
            assert difference(other) is None
            with torch.no_grad():
                np.testing.assert_allclose(other(STRINGS).numpy(), built.model(STRINGS).numpy(), atol=1e-12)
            assert other.config.layers == max(1, len(built.hidden))


def test_what_does_not_fit_a_transformer_is_said() -> None:
    with pytest.raises(InputError, match="multiply positions"):
        as_transformer(construct(parse("x1 & x2", 4), "bag").model)
    with pytest.raises(InputError, match="one layer"):
        as_transformer(AttentionNetworkConfig(length=4, width=8, layers=2).network())


def test_a_file_of_a_construction_is_probed_like_any_model(tmp_path: Path) -> None:
    f = parse("x1 ^ x4 ^ (x7 & x8)", 8)
    save(construct(f, heads=4).model, tmp_path / "m.safetensors")
    model = flipscope.load(tmp_path / "m.safetensors")
    found = flipscope.sensitivities(model, BITS)
    expected = sum((f(BITS) != f(BITS ^ (np.arange(8) == j).astype(np.uint8))).astype(int) for j in range(8))
    np.testing.assert_array_equal(found.counts, expected)


@pytest.mark.parametrize(
    ("outer", "gates"),
    [
        ("x1 ^ (x2 & x3)", ["x1 & x3", "x1 & (x3 | x8)", "maj(x2, x5, x6)"]),
        ("~x1", ["x2 ^ x7"]),
        ("x1 | x2", ["x4", "~x5 & x6"]),
    ],
)
@pytest.mark.parametrize("basis", ["orthonormal", "random"])
def test_gates_of_gates(outer: str, gates: list[str], basis: str) -> None:
    functions = [parse(gate, 8) for gate in gates]
    model = compose(parse(outer, len(gates)), functions, basis=basis, seed=2)
    expected = parse(outer, len(gates))(np.stack([gate(BITS) for gate in functions], axis=1))
    with torch.no_grad():
        np.testing.assert_allclose(model(STRINGS).numpy(), 2.0 * expected - 1, atol=1e-9)
    assert (model.config.layers, model.config.hidden, model.config.activation) == (2, (), "relu")


def test_gates_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(InputError, match="as many as"):
        compose(parse("x1 & x2"), [parse("x1", 4)])
    with pytest.raises(InputError, match="different lengths"):
        compose(parse("x1 & x2"), [parse("x1", 4), parse("x1", 5)])


def test_training_goes_on_from_a_construction() -> None:
    f = parse("maj(x1, x3, x6)", 8)
    data = Examples(BITS, f(BITS))
    model = construct(f, "trainable", mlp=False).model  # the sign of 2r/s - 1 is the majority
    assert ((model(STRINGS) > 0).numpy() == f(BITS)).all()
    stream = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.4 * torch.randn(parameter.shape, generator=stream, dtype=parameter.dtype)
        before = ((model(STRINGS) > 0).numpy() == f(BITS)).mean()
    fitted = fit(model, data, data, learning_rate=0.02, batch=256, max_epochs=150, stop_after=None)
    assert before < 0.95
    assert fitted.history[-1].validation_accuracy == 1


def test_an_exact_construction_is_where_training_ends() -> None:
    f = parse("x1 ^ (x3 & x6)", 8)
    data, built = Examples(BITS, f(BITS)), construct(f, heads=3)
    fitted = fit(built.model, data, data, learning_rate=0.01, optimiser="sgd", loss="mse", batch=64, max_epochs=2)
    assert fitted.history[0].train_loss < 1e-18  # it is at the bottom, and bumps are flat there
    assert all(epoch.validation_accuracy == 1 for epoch in fitted.history)
