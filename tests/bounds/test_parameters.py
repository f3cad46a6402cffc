"""Lem 3.1 and Prop 3.5 of paper 000 against random pairs of recognisers, and the constants of a set of parameters."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from bounds.recognisers import build, many, strings

from flipscope.basics.errors import InputError
from flipscope.bounds import geometry
from flipscope.bounds.geometry.constants import Constants
from flipscope.models import Transformer, encoder, initialise, recognizer


def moved(model: Transformer, size: float, seed: int) -> Transformer:
    """A copy whose parameters, symbols aside, are moved by uniform numbers in [-size, size]."""
    other = copy.deepcopy(model)
    stream = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            if not name.startswith("embedding."):
                parameter += torch.from_numpy(stream.uniform(-size, size, tuple(parameter.shape)))
    return other


def distance(one: Transformer, two: Transformer) -> float:
    pairs = zip(one.parameters(), two.parameters(), strict=True)
    with torch.no_grad():
        return math.sqrt(sum(float((a - b).square().sum()) for a, b in pairs))


def apart(one: Transformer, two: Transformer, length: int) -> float:
    """The largest |T(theta, x) - T(theta', x)| of a few strings."""
    x = torch.from_numpy(strings(length, 6, length))
    with torch.no_grad():
        return float((one(x) - two(x)).abs().max())


# ---------------------------------------------------------------- Lem 3.1


@pytest.mark.parametrize("eps", [1e-3, 1.0])
def test_no_pair_is_further_apart_than_lipschitz_allows(eps: float) -> None:
    for seed, one in enumerate(many(eps)):
        for size in (1e-5, 0.1, 2.0):
            two = moved(one, size, seed)
            lipschitz = geometry.lipschitz_bound(Constants.over(one, two))
            assert lipschitz < math.inf
            for length in (1, 20):
                assert apart(one, two, length) <= lipschitz * distance(one, two) + 1e-11


@pytest.mark.parametrize("eps", [1e-3, 1.0])
def test_no_gradient_is_longer_than_the_lipschitz_constant(eps: float) -> None:
    shares = []
    for seed, scale in itertools.product(range(4), (0.02, 0.2, 0.7)):
        model = build(seed, eps, scale=scale)
        model.embedding.requires_grad_(False)
        lipschitz = geometry.lipschitz_bound(Constants.of(model))
        for row in torch.from_numpy(strings(seed, 3, 10)):
            model.zero_grad()
            model(row[None]).sum().backward()
            squares = [float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None]
            shares.append(math.sqrt(sum(squares)) / lipschitz)
    assert max(shares) <= 1
    assert max(shares) > 0.05, "and for small weights it is of the right size"


def steep(layers: int, key: float, query: float, symbols: torch.Tensor, readout: torch.Tensor) -> Transformer:
    """A recogniser whose matrices are multiples of 1 and whose hidden units are all open, with readout weights."""
    config = dataclasses.replace(recognizer(8, layers, 1, eps=1e-3), positions="none")
    model = Transformer(config, dtype=torch.float64)
    one = torch.eye(8)
    with torch.no_grad():
        for block in model.blocks:
            for part, size in ((block.attention.key, key), (block.attention.query, query), (block.attention.value, 2)):
                part.weight.copy_(size * one)
            for part, size in ((block.mlp.up, 3), (block.mlp.down, 1.5)):
                part.weight.copy_(size * one)
            block.mlp.up.bias.fill_(10.0)
            block.mlp.down.bias.zero_()
        model.embedding.symbol.weight.copy_(symbols)
        model.head.weight.copy_(readout)
    model.embedding.requires_grad_(False)
    return model


def gradient_share(model: Transformer, x: torch.Tensor) -> float:
    """The norm of the gradient of T over C_Lip."""
    model(x).sum().backward()
    squares = [float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None]
    return math.sqrt(sum(squares)) / geometry.lipschitz_bound(Constants.of(model))


def test_the_lipschitz_constant_is_reached() -> None:
    # Equal numbers have variance 0, so that every norm has its steepest slope 1 / sqrt(eps). Attention is the mean.
    along = 100 * torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    x = torch.tensor([[0, 1] * 20])
    nothing = torch.zeros(3, 8)
    assert 0.99 < gradient_share(steep(1, 0.0, 0.0, nothing, along), x) <= 1
    assert 0.99 < gradient_share(steep(1, 0.0, 0.0, nothing + 2.0, along), x) <= 1, "values and W1 count as well"
    # Two layers: Gamma_1 is not reached where y^1 is 0, so the terms of the second layer's V and W1 are too large.
    assert 0.5 < gradient_share(steep(2, 0.0, 0.0, nothing, along), x) <= 1


@pytest.mark.parametrize(("key", "query"), [(0.0, 9.0), (9.0, 0.0)])
def test_the_lipschitz_constant_is_reached_by_keys_and_queries(key: float, query: float) -> None:
    # Half of the symbols are a, half -a: the covariance of y is a a^T. EOS, which asks, has variance 0.
    a = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    symbols = torch.stack([a, -a, torch.ones(8)])
    x = torch.tensor([[0, 1] * 50])
    assert 0.95 < gradient_share(steep(1, key, query, symbols, 100 * a), x) <= 1


@pytest.mark.parametrize(
    "part", ["attention.key", "attention.query", "attention.value", "mlp.up.weight", "mlp.down.weight"]
)
def test_moving_one_matrix_only(part: str) -> None:
    for seed, scale in itertools.product(range(5), (0.3, 1.0)):
        one = build(seed, 1.0, layers=1, heads=1, scale=scale)
        two = copy.deepcopy(one)
        stream = np.random.default_rng(seed)
        with torch.no_grad():
            for name, parameter in two.named_parameters():
                if part in name:
                    parameter += torch.from_numpy(0.01 * stream.normal(size=tuple(parameter.shape)))
        assert distance(one, two) > 0
        lipschitz = geometry.lipschitz_bound(Constants.over(one, two))
        assert apart(one, two, 12) <= lipschitz * distance(one, two)


def test_without_eps_there_is_no_lipschitz_constant() -> None:
    assert geometry.lipschitz_bound(Constants.of(build(0, 0.0))) == math.inf


# ---------------------------------------------------------------- constants of a set


def norms(constants: Constants) -> list[float]:
    layers = [dataclasses.astuple(layer) for layer in constants.layers]
    flat = [n for layer in layers for part in layer for n in (part if isinstance(part, tuple) else (part,))]
    return [*flat, constants.readout]


def test_constants_over_two_hold_between_them() -> None:
    one = build(0, 1.0)
    two = moved(one, 1.0, 1)
    over = Constants.over(one, two)
    assert geometry.lipschitz_bound(over) >= geometry.lipschitz_bound(Constants.of(one))
    for share in (0.0, 0.2, 0.5, 0.9, 1.0):
        between = copy.deepcopy(one)
        with torch.no_grad():
            for parameter, end in zip(between.parameters(), two.parameters(), strict=True):
                parameter.lerp_(end, share)
        assert all(a <= b * (1 + 1e-12) for a, b in zip(norms(Constants.of(between)), norms(over), strict=True))


def test_perturbed_constants_hold_in_the_whole_cube() -> None:
    model = build(0, 1.0, scale=0.5)
    wide = norms(Constants.of(model).perturbed(0.25))
    corner = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in corner.named_parameters():
            if not name.startswith("embedding."):
                parameter += 0.25 * parameter.sign()
    for other in [moved(model, 0.25, seed) for seed in range(20)] + [corner]:
        assert all(a <= b for a, b in zip(norms(Constants.of(other)), wide, strict=True))
    cube = norms(Constants.cube(model, 0.25))
    for seed in range(20):
        inside = initialise(copy.deepcopy(model), "uniform", seed, scale=0.25)
        assert all(a <= b for a, b in zip(norms(Constants.of(inside)), cube, strict=True))


def test_activations_stay_within_the_radii() -> None:
    for eps in (0.0, 1e-3, 1.0):
        for seed, model in enumerate(many(eps)):
            radii = Constants.of(model).radii
            with torch.no_grad():
                states = model.states(torch.from_numpy(strings(seed, 4, 40)))
            sizes = [float(state.norm(dim=-1).max()) for state in states]
            assert all(size <= radius * (1 + 1e-9) for size, radius in zip(sizes, radii, strict=True))
            assert sizes[0] > 0.6 * radii[0]


def test_a_radius_is_reached() -> None:
    # Every position has the same vector a, and all heads and both matrices point along it: ||P d|| is all of the sum.
    config = dataclasses.replace(recognizer(4, 1, 3, eps=1.0), positions="none")
    model = Transformer(config, dtype=torch.float64)
    a = 0.1 * torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    with torch.no_grad():
        model.embedding.symbol.weight.copy_(a.expand(3, 4))
        block = model.blocks[0]
        block.attention.value.weight.copy_(2 * torch.eye(4).repeat(3, 1))
        block.mlp.up.weight.copy_(torch.eye(4))
        block.mlp.down.weight.copy_(torch.outer(a, a.relu()) / a.relu().norm() / a.norm())
        block.mlp.up.bias.copy_(a.relu())
        block.mlp.down.bias.copy_(a)
        found = model.states(torch.tensor([[0, 1, 1]]))[-1].norm(dim=-1).max()
    radius = Constants.of(model).radii[-1]
    wide = 6 * float(a.norm())  # what the heads bring; only its positive half goes on
    inside = float(a.norm()) * 2 + wide + float(a.relu().norm())
    assert radius == pytest.approx(2 * inside / math.hypot(inside, 2))
    assert 0.75 * radius < float(found) <= radius


@pytest.mark.parametrize(
    "places",
    [
        {"positions": "none"},
        {"positions": "cyclic", "period": 3},
        {"positions": "one_hot", "max_length": 7},
        {"positions": "learned", "max_length": 12},
    ],
)
def test_other_positions(places: dict[str, object]) -> None:
    config = dataclasses.replace(recognizer(8, 2, 1, eps=1.0), **places)  # type: ignore[arg-type]
    model = Transformer(config, dtype=torch.float64, scheme="uniform", seed=4)
    constants = Constants.of(model)
    with torch.no_grad():
        entry = model.embed(torch.from_numpy(strings(0, 200, 7))).norm(dim=-1).max()
    assert float(entry) <= constants.entry * (1 + 1e-12)
    assert float(entry) > 0.8 * constants.entry


def test_parameters_are_counted_without_symbols() -> None:
    width, layers, heads = 8, 2, 3
    model = build(0, 1.0, width=width, layers=layers, heads=heads)
    per_layer = 3 * heads * width**2 + 2 * width**2 + 2 * width
    assert Constants.of(model).parameters == layers * per_layer + width + 1


def test_only_the_recogniser_is_read() -> None:
    with pytest.raises(InputError, match=r"recogniser of Eqs 7-14, but the model has combine='project'"):
        Constants.of(Transformer(encoder(16, 1, 2)))
    with pytest.raises(InputError, match="the model is a Linear"):
        Constants.of(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
    broken = build(0, 1.0)
    with torch.no_grad():
        broken.blocks[1].mlp.up.weight[0, 0] = math.nan
    with pytest.raises(InputError, match=r"blocks\.1\.mlp contain NaN"):
        Constants.of(broken)


def test_models_that_do_not_belong_together() -> None:
    with pytest.raises(InputError, match="differ in their embeddings"):
        Constants.over(build(0, 1.0), build(1, 1.0))
    with pytest.raises(InputError, match="differ in configuration"):
        Constants.over(build(0, 1.0), build(0, 0.5))
    with pytest.raises(InputError, match="no model"):
        Constants.over()
    for radius in (0.0, -1.0, math.inf):
        with pytest.raises(InputError, match="radius="):
            Constants.cube(build(0, 1.0), radius)


# ---------------------------------------------------------------- Prop 3.5


def test_the_number_of_functions() -> None:
    assert geometry.log2_function_count(3.0, 2.0, 2.0, 5) == pytest.approx(5 * math.log2(4))
    assert geometry.log2_function_count(0.0, 2.0, 1.0, 5) == 0, "parameters that do nothing: one function"
    assert geometry.log2_function_count(math.inf, 2.0, 1.0, 5) == math.inf
    assert geometry.cube_diameter(0.5, 16) == 4


def test_the_number_of_functions_of_a_family_that_is_counted() -> None:
    # T(theta, x) = <theta, ±x> is Lipschitz with sqrt(n): every sign pattern realised with the margin is counted.
    n, margin, radius = 3, 0.4, 1.0
    signs = np.array(list(itertools.product((-1, 1), repeat=n)))
    grid = np.array(list(itertools.product(np.linspace(-radius, radius, 11), repeat=n)))
    values = grid @ signs.T
    sure = (np.abs(values) >= margin).all(axis=1)
    realised = len({tuple(row) for row in values[sure] > 0})
    bound = geometry.log2_function_count(math.sqrt(n), geometry.cube_diameter(radius, n), margin, n)
    assert realised >= 8
    assert math.log2(realised) <= bound < 2**n * 2


def test_small_recognisers_realise_fewer_functions_than_the_bound() -> None:
    model = build(0, 1.0, width=2, layers=1, heads=1)
    constants = Constants.cube(model, 1.0)
    margin, length = 0.05, 4
    x = torch.from_numpy(np.array(list(itertools.product((0, 1), repeat=length)), np.uint8))
    symbols = model.embedding.symbol.weight.detach().clone()
    found = set()
    for seed in range(300):
        initialise(model, "uniform", seed)
        with torch.no_grad():
            model.embedding.symbol.weight.copy_(symbols)
            values = model(x)
        if bool((values.abs() >= margin).all()):
            found.add(tuple((values > 0).tolist()))
    diameter = geometry.cube_diameter(1.0, constants.parameters)
    bound = geometry.log2_function_count(geometry.lipschitz_bound(constants), diameter, margin, constants.parameters)
    assert len(found) > 1
    assert math.log2(len(found)) <= bound < math.inf


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((-1.0, 1.0, 1.0, 1), "lipschitz="),
        ((math.nan, 1.0, 1.0, 1), "lipschitz="),
        ((1.0, -1.0, 1.0, 1), "diameter="),
        ((1.0, math.inf, 1.0, 1), "diameter="),
        ((1.0, 1.0, 0.0, 1), "margin="),
        ((1.0, 1.0, 1.0, 0), "parameters"),
    ],
)
def test_bad_input(arguments: tuple[float, float, float, int], match: str) -> None:
    with pytest.raises(InputError, match=match):
        geometry.log2_function_count(*arguments)


def test_models_that_compute_something_else_have_no_constants() -> None:
    model = build(0, 1e-3)
    model.blocks[0].mlp.register_forward_hook(lambda _module, _args, out: 3 * out)
    for ask in (Constants.of, Constants.over, lambda given: Constants.cube(given, 1.0)):
        with pytest.raises(InputError, match=r"but the model's blocks.0.mlp has forward hooks of its own: build"):
            ask(model)
    with pytest.raises(InputError, match="the model is a Linear"):
        Constants.of(torch.nn.Linear(2, 1))  # type: ignore[arg-type]
