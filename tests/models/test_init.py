from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from flipscope.basics.errors import InputError
from flipscope.models import (
    SCHEMES,
    Transformer,
    encoder,
    fourier,
    hardness,
    initialise,
    random_shape,
    recognizer,
    vit_small,
)
from flipscope.models.config import TransformerConfig
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


def test_layers_start_as_copies_where_that_is_asked() -> None:
    theirs = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 2).layers
    assert torch.equal(theirs[0].linear1.weight, theirs[1].linear1.weight), "as PyTorch's own encoder starts"
    apart, equal = (
        initialise(Transformer(hardness(4, 8)), "pytorch", 3, equal_layers=each).state_dict() for each in (False, True)
    )
    for name, first in equal.items():
        assert torch.equal(first, apart[name]) or name.startswith("blocks.1."), name
        if name.startswith("blocks.0."):
            assert torch.equal(first, equal[name.replace("blocks.0.", "blocks.1.")]), name
    assert not torch.equal(apart["blocks.0.mlp.up.weight"], apart["blocks.1.mlp.up.weight"])
    with pytest.raises(InputError, match="stack of layers"):
        initialise(nn.Linear(2, 1), equal_layers=True)
    with pytest.raises(InputError, match="layers of one shape"):
        initialise(Transformer(fourier(4)), equal_layers=True)


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


# ---------------------------------------------------------------- other people's modules, as PyTorch starts them

FOREIGN: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(40, 30),
    "embedding": lambda: nn.Embedding(30, 20),
    "embedding with padding": lambda: nn.Embedding(30, 20, padding_idx=4),
    "bag of embeddings": lambda: nn.EmbeddingBag(30, 20, padding_idx=4),
    "LSTM": lambda: nn.LSTM(9, 20, num_layers=2, bidirectional=True, proj_size=7),
    "GRU": lambda: nn.GRU(9, 20, bidirectional=True),
    "RNN": lambda: nn.RNN(9, 30),
    "cell": lambda: nn.LSTMCell(9, 30),
    "attention": lambda: nn.MultiheadAttention(32, 4),
    "attention of other widths": lambda: nn.MultiheadAttention(32, 4, kdim=20, vdim=24, add_bias_kv=True),
    "encoder layer": lambda: nn.TransformerEncoderLayer(32, 4, 48),
    "encoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 48), 2, enable_nested_tensor=False),
    "transformer": lambda: nn.Transformer(16, 2, 1, 1, 24, batch_first=True),
    "convolution": lambda: nn.Conv1d(8, 16, 5),
    "convolution of images": lambda: nn.Conv2d(8, 16, (3, 2), groups=2),
    "transposed convolution": lambda: nn.ConvTranspose1d(8, 16, 5),
    "bilinear": lambda: nn.Bilinear(7, 9, 16),
    "norms": lambda: nn.Sequential(
        nn.LayerNorm(6), nn.GroupNorm(2, 6), nn.RMSNorm(6), nn.InstanceNorm1d(6, affine=True)
    ),
    "batch norm": lambda: nn.BatchNorm1d(6),
    "rectifier": lambda: nn.PReLU(3),
}


def numbers(make: Callable[[int], nn.Module]) -> dict[str, np.ndarray]:
    """Parameters and buffers of eight models, a row each."""
    states = [make(seed).state_dict() for seed in range(8)]
    return {name: np.stack([state[name].numpy().ravel() for state in states]) for name in states[0]}


def seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return make()


@pytest.mark.parametrize("kind", FOREIGN)
def test_pytorch_scheme_is_what_pytorch_does_to_its_own_modules(kind: str) -> None:
    make = FOREIGN[kind]
    theirs = numbers(lambda seed: seeded(make, seed))
    with torch.random.fork_rng():
        state = torch.get_rng_state()
        ours = numbers(lambda seed: initialise(spoilt(make()), "pytorch", seed))
        again = numbers(lambda seed: initialise(make(), "pytorch", seed))
        torch.set_rng_state(state)
    assert ours.keys() == theirs.keys()
    for name, right in theirs.items():
        found, size = ours[name], right.size
        assert np.array_equal(found, again[name])  # whatever was there before
        fixed = np.ptp(right, axis=0) == 0  # gains, zero biases, the row of the padding
        assert np.array_equal(found[:, fixed], right[:, fixed]), name
        if fixed.all():
            continue
        found, right = found[:, ~fixed], right[:, ~fixed]
        assert len(np.unique(found, axis=0)) == len(found)
        spread = float(right.std())
        assert abs(float(found.std()) / spread - 1) < 6 / math.sqrt(size), name
        assert abs(float(found.mean() - right.mean())) < 8 * spread / math.sqrt(size), name
        # A uniform law ends at 1.73 standard deviations, a normal one of so many numbers goes beyond 2.
        assert size > 100
        assert (np.abs(found).max() > 2 * spread) == (np.abs(right).max() > 2 * spread), name


def spoilt(module: nn.Module) -> nn.Module:
    """The module with other numbers in all its parameters and buffers."""
    for tensor in module.state_dict().values():
        tensor.copy_(torch.full_like(tensor, 7))
    return module


def test_other_modules_have_streams_by_name_and_leave_the_global_one_alone() -> None:
    state = torch.get_rng_state()
    lstm = nn.LSTM(3, 4)
    torch.set_rng_state(state)
    whole = nn.ModuleDict({"b": nn.Linear(2, 2), "a": nn.LSTM(3, 4), "c": nn.LSTM(3, 4)})
    state = torch.get_rng_state()
    initialise(whole, "pytorch", 3)
    initialise(lstm, "pytorch", 3)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(whole["a"].weight_hh_l0, whole["c"].weight_hh_l0)
    other_order = initialise(nn.ModuleDict({"c": nn.LSTM(3, 4), "a": nn.LSTM(3, 4)}), "pytorch", 3)
    for name, parameter in other_order.named_parameters():
        assert torch.equal(parameter, whole.get_parameter(name))
    wide = initialise(nn.LSTM(3, 4).double(), "pytorch", 3)
    for name, parameter in lstm.named_parameters():
        assert torch.equal(parameter, wide.get_parameter(name).float())


def test_scope_and_scale_of_other_modules() -> None:
    plain, scaled = (initialise(nn.TransformerEncoderLayer(8, 2, 8), "pytorch", 1, scale=scale) for scale in (1.0, 0.5))
    for name, parameter in plain.named_parameters():
        factor = 1 if "norm" in name else 0.5
        torch.testing.assert_close(scaled.get_parameter(name), factor * parameter, rtol=1e-6, atol=0)
    bare = initialise(nn.TransformerEncoderLayer(8, 2, 8), "pytorch", 1, scope="weights")
    for name, parameter in bare.named_parameters():
        if parameter.ndim == 2:
            assert torch.equal(parameter, plain.get_parameter(name))
        else:
            assert parameter.eq("norm" in name and name.endswith("weight")).all()


class Bare(nn.Module):
    """Parameters of its own, and nothing that says how they start."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.table = nn.Parameter(torch.zeros(3, 2))


class Told(Bare):
    """The same with the method that PyTorch's modules have; its parts have theirs."""

    def reset_parameters(self) -> None:
        nn.init.trunc_normal_(self.table, std=0.1)


class Forgotten(Bare):
    def reset_parameters(self) -> None:
        self.inner.reset_parameters()


class Asking(Bare):
    def reset_parameters(self, spread: float) -> None:
        nn.init.normal_(self.table, std=spread)


class Elsewhere(Bare):
    def reset_parameters(self) -> None:
        self.table.data = torch.rand(3, 2)


class Orthogonal(Bare):
    def reset_parameters(self) -> None:
        nn.init.orthogonal_(self.table)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Bare, "scheme='pytorch' does not know how the parameter part.table starts"),
        (Forgotten, "scheme='pytorch' does not know how the parameter part.table starts"),
        (Asking, "scheme='pytorch' does not know how the parameter part.table starts"),
        (Elsewhere, "the module part draws random numbers in a way that"),
        (Orthogonal, "the module part draws random numbers in a way that"),
        (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), "part.parametrizations.weight.original"),
        (lambda: nn.LazyLinear(3), "part.weight has no memory"),
    ],
)
def test_pytorch_scheme_refuses_what_it_does_not_know(make: Callable[[], nn.Module], message: str) -> None:
    model = nn.ModuleDict({"part": make()})
    state = torch.get_rng_state()
    with pytest.raises(InputError, match=message):
        initialise(model, "pytorch", 0)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "pytorch"])
def test_other_schemes_take_any_parameter(scheme: Scheme) -> None:
    assert initialise(Bare(), scheme, 0).table.abs().max() > 0


def test_a_module_that_says_how_it_starts_is_asked() -> None:
    told = initialise(Told(), "pytorch", 0)
    assert 0 < float(told.table.abs().max().detach()) < 0.4
    assert torch.equal(told.table, initialise(Told(), "pytorch", 0).table)
    assert torch.equal(told.inner.weight, initialise(nn.ModuleDict({"inner": nn.Linear(2, 2)})).inner.weight)


def test_tied_parameters_start_as_the_first_that_has_them() -> None:
    for first in ("embedding", "linear"):
        parts = {"embedding": nn.Embedding(300, 20), "linear": nn.Linear(20, 300, bias=False)}
        parts["linear"].weight = parts["embedding"].weight
        model = nn.ModuleDict({name: parts[name] for name in sorted(parts, key=lambda name: name != first)})
        initialise(model, "pytorch", 0)
        check(parts["linear"].weight.detach().numpy().ravel(), *LAW_OF[first])


LAW_OF = {"embedding": ("normal", 1.0), "linear": ("uniform", 1 / math.sqrt(20))}


def by_hand(model: Transformer, name: str, seed: int, scale: float) -> torch.Tensor:
    """A parameter of flipscope's own model: its law written out, in its stream."""
    path, _, short = name.rpartition(".")
    module, shape = model.get_submodule(path), model.get_parameter(name).shape
    if "norm" in name:
        return torch.full(shape, float(short == "weight"))
    if name.endswith("log_gain") or ("attention" in name and short == "bias"):
        return torch.zeros(shape)
    key = np.frombuffer(hashlib.sha256(name.encode()).digest(), "<u4").tolist()
    stream = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))
    if path.startswith("embedding.") and not path.endswith("patch"):
        return torch.from_numpy(stream.normal(0, scale, math.prod(shape))).view(shape).float()
    outputs, inputs = module.weight.shape
    packed = path.endswith(("query", "key", "value"))
    width = scale * (math.sqrt(6 / (inputs + 3 * outputs)) if packed else 1 / math.sqrt(inputs))
    return torch.from_numpy(stream.uniform(-width, width, math.prod(shape))).view(shape).float()


@pytest.mark.parametrize("scale", [1.0, 0.3])
@pytest.mark.parametrize(
    "config", [encoder(8, 2, 2), recognizer(8, 1, 2), vit_small(8, 4, 1, width=12, layers=1, heads=2)]
)
def test_own_models_keep_their_numbers(config: TransformerConfig, scale: float) -> None:
    model = initialise(Transformer(config), "pytorch", 5, scale=scale)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, by_hand(model, name, 5, scale)), name


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
