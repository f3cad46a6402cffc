from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn

from flipscope.errors import InputError
from flipscope.models import SCHEMES, Transformer, encoder, initialise, random_shape, recognizer, vit_small
from flipscope.models.init import Scheme

# Of block 0's query weights and of the read-out's bias, seed 7: to notice if a machine or a numpy differs.
FIXED: dict[Scheme, list[float]] = {
    "pytorch": [0.236496821, 0.180422351, 0.0801354274, 0.062545836],
    "uniform": [0.546166003, 0.416667581, 0.185064837, 0.176906332],
    "gaussian": [0.504628778, -0.521746159, 1.08172488, -1.24115741],
    "xavier_uniform": [0.33445701, 0.255155742, 0.113328606, 0.062545836],
    "xavier_normal": [0.178413212, -0.18446514, 0.382447481, 0.062545836],
}


def values(scheme: Scheme, seed: int = 7) -> list[float]:
    model = initialise(Transformer(encoder(8, 1, 2)), scheme, seed)
    query = model.blocks[0].attention.query.weight.flatten()[:3]
    return [*query.tolist(), float(model.head.bias.detach())]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_same_numbers_everywhere(scheme: Scheme) -> None:
    np.testing.assert_allclose(values(scheme), FIXED[scheme], rtol=1e-6)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_seed_decides(scheme: Scheme) -> None:
    assert values(scheme) == values(scheme)
    assert values(scheme)[:3] != values(scheme, seed=8)[:3]
    from_generator = [values(scheme, np.random.default_rng(5)) for _ in range(2)]  # type: ignore[arg-type]
    assert from_generator[0] == from_generator[1]


def test_depends_on_names_not_on_order_or_global_state() -> None:
    short, long = Transformer(encoder(8, 1, 2), seed=4), Transformer(encoder(8, 3, 2), seed=4)
    torch.manual_seed(1)
    again = Transformer(encoder(8, 1, 2), seed=4)
    for name, parameter in short.named_parameters():
        assert torch.equal(parameter, long.get_parameter(name))
        assert torch.equal(parameter, again.get_parameter(name))
    assert not torch.equal(long.blocks[0].mlp.up.weight, long.blocks[1].mlp.up.weight)


def test_constructor_draws_by_scheme() -> None:
    model = Transformer(encoder(8, 1, 2), scheme="gaussian", seed=4)
    other = initialise(Transformer(encoder(8, 1, 2)), "gaussian", 4)
    assert all(map(torch.equal, model.parameters(), other.parameters()))


def test_float32_is_float64_rounded() -> None:
    single, double = Transformer(encoder(8, 1, 2)), Transformer(encoder(8, 1, 2), dtype=torch.float64)
    for name, parameter in single.named_parameters():
        assert torch.equal(parameter, double.get_parameter(name).float())


def drawn(scheme: Scheme, scope: str = "all", scale: float = 1.0) -> dict[str, np.ndarray]:
    config = encoder(64, 1, 2)
    model = initialise(Transformer(config), scheme, 1, scope=scope, scale=scale)  # type: ignore[arg-type]
    return {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}


def check(array: np.ndarray, kind: str, spread: float) -> None:
    """Assert that many numbers look like draws from the law."""
    if kind == "uniform":
        assert np.abs(array).max() <= spread
        assert np.abs(array).max() > spread * (1 - 10 / array.size)
        spread /= math.sqrt(3)
    assert abs(array.mean()) < 6 * spread / math.sqrt(array.size)
    assert abs(array.std() / spread - 1) < 6 / math.sqrt(array.size)


@pytest.mark.parametrize(("scheme", "kind"), [("uniform", "uniform"), ("gaussian", "normal")])
@pytest.mark.parametrize("scale", [1.0, 0.02])
def test_uniform_and_gaussian(scheme: Scheme, kind: str, scale: float) -> None:
    for array in drawn(scheme, scale=scale).values():
        check(array.ravel(), kind, scale)
    for name, array in drawn(scheme, "weights", scale).items():
        if array.ndim == 2:
            check(array.ravel(), kind, scale)
        else:
            assert (array == ("norm" in name and name.endswith("weight"))).all()


@pytest.mark.parametrize("scope", ["all", "weights"])
@pytest.mark.parametrize(("scheme", "kind", "top"), [("xavier_uniform", "uniform", 6), ("xavier_normal", "normal", 2)])
def test_xavier(scheme: Scheme, kind: str, top: int, scope: str) -> None:
    for name, array in drawn(scheme, scope).items():
        if array.ndim == 2:
            check(array.ravel(), kind, math.sqrt(top / sum(array.shape)))
        elif "norm" in name or "attention" in name or scope == "weights":
            assert (array == ("norm" in name and name.endswith("weight"))).all()
        else:
            assert 0 < np.abs(array).max() <= 1 / math.sqrt(64)


def test_xavier_fans_of_full_rank_heads_are_one_heads() -> None:
    model = initialise(Transformer(recognizer(32, 1, 4)), "xavier_normal", 0)
    weight = model.blocks[0].attention.query.weight
    assert weight.shape == (128, 32)
    check(weight.detach().numpy().ravel(), "normal", math.sqrt(2 / (32 + 32)))


def test_pytorch_scheme_is_that_of_the_encoder_layer() -> None:
    width = 64
    arrays = drawn("pytorch")
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(width, 2, 4 * width, batch_first=True).state_dict()
    queries = theirs["self_attn.in_proj_weight"][:width]
    pairs = {
        "attention.query": (queries, theirs["self_attn.in_proj_bias"][:width]),
        "attention.output": (theirs["self_attn.out_proj.weight"], theirs["self_attn.out_proj.bias"]),
        "mlp.up": (theirs["linear1.weight"], theirs["linear1.bias"]),
        "mlp.down": (theirs["linear2.weight"], theirs["linear2.bias"]),
        "norm1": (theirs["norm1.weight"], theirs["norm1.bias"]),
    }
    for name, both in pairs.items():
        for kind, other in zip(("weight", "bias"), both, strict=True):
            ours = np.abs(arrays[f"blocks.0.{name}.{kind}"]).max()
            assert ours == pytest.approx(float(other.abs().max()), rel=0.1)
    check(arrays["embedding.symbol.weight"].ravel(), "normal", 1.0)


def test_learned_scale_starts_at_the_usual_one() -> None:
    model = Transformer(vit_small(8, 4, 1, width=12, layers=1, heads=2))
    assert float(model.blocks[0].attention.log_gain.detach()) == 0


def test_other_modules() -> None:
    model = nn.Sequential(nn.Conv1d(4, 6, 3), nn.LayerNorm(6), nn.Linear(6, 2))
    initialise(model, "xavier_uniform", 0, scope="weights")
    kernel = model[0].weight.detach()
    assert math.sqrt(6 / 30) * 0.9 < float(kernel.abs().max()) <= math.sqrt(6 / 30)
    assert model[1].weight.eq(1).all()
    assert model[2].bias.eq(0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scheme": "kaiming"}, "scheme='kaiming' is not one of pytorch, uniform"),
        ({"scope": "biases"}, "scope='biases' is not one of all, weights"),
        ({"scale": 0.0}, "scale=0.0 must be a positive number"),
        ({"scale": math.inf}, "scale=inf must be a positive number"),
        ({"seed": -1}, "seed must be a whole number of at least 0, not -1"),
        ({"seed": 0.5}, "seed must be a whole number"),
    ],
)
def test_refuses(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        initialise(nn.Linear(2, 2), **arguments)  # type: ignore[arg-type]


# ---------------------------------------------------------------- the shapes of App. F.1


def test_random_shapes_are_those_of_the_paper() -> None:
    shapes = [random_shape(seed) for seed in range(3000)]
    kinds = {
        "layers": (Counter(c.layers for c in shapes), [2, 3, 4, 5, 6]),
        "heads": (Counter(c.heads for c in shapes), [1, 2, 4, 8]),
        "size": (Counter(c.key_width for c in shapes), [16, 32, 64, 128]),
        "multiple": (Counter(c.hidden_width // c.width for c in shapes), [2, 4, 8]),
    }
    for counts, support in kinds.values():
        assert sorted(counts) == support
        mean = 3000 / len(support)
        assert max(abs(count - mean) for count in counts.values()) < 5 * math.sqrt(mean)
    for config in shapes:
        assert config.width == config.heads * config.key_width
        assert config.hidden_width % config.width == 0
        assert (config.positions, config.marker, config.readout) == ("sinusoidal", "eos", "last")
        assert config.norm == "post"
        assert config.eps > 0


def test_random_shape_is_fixed_by_its_seed() -> None:
    shapes = [(c.layers, c.heads, c.width, c.hidden_width) for c in map(random_shape, range(3))]
    assert shapes == [(6, 4, 256, 512), (4, 4, 512, 4096), (6, 2, 32, 64)]
    assert random_shape(np.random.default_rng(2)) == random_shape(np.random.default_rng(2))
