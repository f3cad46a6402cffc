"""Covers of models as they are: norms of their weights, errors of every matrix at the output, the summary."""

from __future__ import annotations

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flipscope.basics.errors import InputError
from flipscope.bounds.covering import MatrixNorms, broken_assumptions, network_cover, norms_of, summary
from flipscope.models import AttentionNetwork, AttentionNetworkConfig, Transformer, encoder, mingpt

LENGTH, WIDTH = 4, 8
CUBE = torch.from_numpy(((np.arange(16)[:, None] >> np.arange(LENGTH)) & 1).astype(np.uint8))
SHAPES = {
    "§ 4.3": {"normalise": True, "activation": "relu", "layers": 2},
    "heads": {"normalise": True, "activation": "tanh", "heads": 2, "head_size": 3, "layers": 2},
    "no projection": {"layers": 2, "heads": 2},
    "bag with MLP": {"mapping": "bag", "hidden": (5, 4)},
    "MLP of features": {"normalise": True, "hidden": (6,), "features": 3, "basis": "random"},
    "trained positions": {"normalise": True, "mapping": "trainable", "layers": 2},
}


def network(shape: str, seed: int) -> AttentionNetwork:
    config = AttentionNetworkConfig(length=LENGTH, width=WIDTH, **SHAPES[shape])
    return AttentionNetwork(config, seed=seed, dtype=torch.float64)


def maps_of(model: AttentionNetwork) -> list[np.ndarray]:
    """The matrix of every map of the cover, in its order."""
    found = []
    for layer in range(model.config.layers):
        for head in model.heads(layer):
            query, key, value, mix = (part.detach().numpy() for part in (head.query, head.key, head.value, head.mix))
            found += [mix.T, query @ key.T, value.T]
    for linear in model.mlp:
        found.append(np.column_stack([linear.weight.detach().numpy(), linear.bias.detach().numpy()]))
    return [*found, model.readout.weight.detach().numpy()]


@pytest.mark.parametrize("shape", list(SHAPES))
def test_norms_are_those_of_the_matrices_by_definition(shape: str) -> None:
    model = network(shape, 1)
    cover = network_cover(norms_of(model, LENGTH))
    for one, matrix in zip(cover.maps, maps_of(model), strict=True):
        rows = np.linalg.norm(matrix, axis=1)
        own = (one.norms.outputs, one.norms.spectral, one.norms.largest, one.norms.total)
        assert own == pytest.approx((len(matrix), np.linalg.norm(matrix, 2), rows.max(), rows.sum()))
    with torch.no_grad():
        inputs = model.inputs(CUBE)
        assert norms_of(model, LENGTH).radius == pytest.approx(float(inputs.norm(dim=2).max()))
        assert float(model(CUBE).abs().max()) <= cover.largest * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(list(SHAPES)), st.integers(0, 2**31), st.sampled_from([0.01, 0.3, 3.0]), st.sampled_from([1, 2]))
def test_no_error_reaches_the_output_larger_than_the_cover_says(
    shape: str, seed: int, step: float, softmax: int
) -> None:
    ours = network(shape, seed)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter *= 2.0
        theirs = copy.deepcopy(ours)
        generator = torch.Generator().manual_seed(seed)
        for parameter in theirs.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter += step * noise * float(torch.rand(1, generator=generator))
        changed = float((ours(CUBE) - theirs(CUBE)).abs().max())
    # The class that holds both: what is covered are pairs of its members.
    cover = network_cover(_larger(norms_of(ours, LENGTH), norms_of(theirs, LENGTH)), softmax=float(softmax))
    bound = sum(
        math.exp(one.log_weight + one.log_radius) * MatrixNorms.of(a - b).spectral
        for one, a, b in zip(cover.maps, maps_of(ours), maps_of(theirs), strict=True)
    )
    if cover.net is not None:
        shift = float((ours.inputs.positions - theirs.inputs.positions).detach().norm(dim=1).max())
        bound += math.exp(cover.net.log_weight) * shift
    assert changed <= bound * (1 + 1e-9)


def _larger(first, second):
    """Norm by norm the larger one, of records of records."""
    if dataclasses.is_dataclass(first):
        names = [field.name for field in dataclasses.fields(first)]
        return type(first)(*(_larger(getattr(first, name), getattr(second, name)) for name in names))
    if isinstance(first, tuple):
        return tuple(_larger(*pair) for pair in zip(first, second, strict=True))
    return first if first is None or isinstance(first, bool) else max(first, second)


def test_trained_positions_cost_as_many_vectors_as_there_are() -> None:
    sizes = []
    for length in (50, 100, 200):
        config = AttentionNetworkConfig(length=length, width=WIDTH, mapping="trainable", normalise=True)
        norms = norms_of(AttentionNetwork(config), length)
        assert norms.trained_positions is not None
        with_net, without = (network_cover(each) for each in (norms, _fixed(norms)))
        sizes.append(with_net.size(1e3, 10, length) - without.size(1e3, 10, length))
    assert 1.8 < sizes[1] / sizes[0] < 2.3
    assert 1.8 < sizes[2] / sizes[1] < 2.3


def _fixed(norms):
    return dataclasses.replace(norms, trained_positions=None)


@pytest.mark.parametrize("shape", list(SHAPES))
def test_an_attention_network_has_a_bound(shape: str) -> None:
    found = summary(network(shape, 0), LENGTH, 500)
    assert found.kind == "bound"
    assert not found.broken
    assert all(bound.vacuous and bound.log_samples_needed is not None for bound in found.bounds)
    assert all(bound.value < 48 * bound.trivial * 1.2 for bound in found.bounds)
    enough = int(math.exp(max(each.log_samples_needed or 0 for each in found.bounds)) * 1.01)
    assert not any(bound.vacuous for bound in summary(network(shape, 0), LENGTH, enough).bounds)


@pytest.mark.parametrize(
    ("config", "named", "absent"),
    [
        (encoder(width=16, layers=2), "layer norm instead", "no projection"),
        (mingpt(6, width=16, heads=2), "vectors of positions that are trained", "no projection"),
    ],
)
def test_a_transformer_has_a_score_and_is_told_why(config, named: str, absent: str) -> None:
    model = Transformer(config)
    found = summary(model, 6, 500)
    assert found.kind == "norm-based score, not a bound"
    told = "; ".join(broken_assumptions(model))
    assert named in told
    assert absent not in told
    assert found.as_json()["is_bound"] is False
    assert len(found.norms.layers) == config.layers
    assert len(found.norms.layers[0]) == config.heads


def test_the_score_of_a_transformer_reads_its_attention() -> None:
    model = Transformer(encoder(width=16, layers=1, heads=2))
    attention = model.blocks[0].attention
    scale, size = model.config.scale, model.config.key_width
    query, key = (each.weight.detach().double().numpy()[:size] for each in (attention.query, attention.key))
    norms = norms_of(model, 6)
    assert norms.layers[0][0].score.spectral == pytest.approx(scale * np.linalg.norm(query.T @ key, 2))
    rows = np.linalg.norm(scale * query.T @ key, axis=1)
    assert norms.layers[0][0].score.largest == pytest.approx(rows.max())


def test_what_has_no_norms_is_refused() -> None:
    with pytest.raises(InputError, match="length=9 is longer than the network's 4 positions"):
        norms_of(network("heads", 0), 9)
