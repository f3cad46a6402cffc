"""Curvature: products against dense Hessians, finite differences and closed forms; what is refused."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import flipscope
from flipscope.adapters.subject import Subject
from flipscope.basics.errors import InputError
from flipscope.models import Transformer, TransformerConfig, encoder, fourier, hardness, mingpt
from flipscope.probes import hessian_products
from flipscope.probes.curvature import WHAT, curvature
from flipscope.probes.hessian_products import loss_surface

STREAM = np.random.default_rng(0)
BITS = STREAM.integers(0, 2, (12, 5))
LABELS = 2.0 * (BITS.sum(axis=1) % 2) - 1


class PyTorchEncoder(nn.Module):
    """A transformer of PyTorch's own modules: fused attention, affine layer norms."""

    def __init__(self) -> None:
        super().__init__()
        self.symbol = nn.Embedding(2, 8)
        self.position = nn.Parameter(torch.randn(5, 8))
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(8, 1)

    def forward(self, bits: Tensor) -> Tensor:
        out: Tensor = self.head(self.layers(self.symbol(bits) + self.position)[:, -1])[:, 0]
        return out


class Fused(nn.Module):
    """Attention by the fused function, then an affine layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.symbol, self.norm, self.head = nn.Embedding(2, 4), nn.LayerNorm(4), nn.Linear(4, 1)

    def forward(self, bits: Tensor) -> Tensor:
        x = self.symbol(bits) * torch.arange(1, bits.shape[1] + 1)[:, None]
        out: Tensor = self.head(self.norm(F.scaled_dot_product_attention(x, x, x)).mean(dim=1))
        return out


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make().double()
        for parameter in model.parameters():  # also the gains of norms, which begin at 1
            parameter.data += 0.2 * torch.randn_like(parameter)
        return model


def smooth(config: TransformerConfig, **changes: Any) -> Transformer:
    """Without the kinks of ReLU, which a finite difference may straddle."""
    return Transformer(dataclasses.replace(config, activation="gelu", dropout=0.0, **changes))


def mlp(outputs: int = 1) -> nn.Module:
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, outputs))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(5, 1),
    "mlp": mlp,
    "relu": lambda: nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 1)),
    "pytorch": PyTorchEncoder,
    "fused": Fused,
    "hardness": lambda: smooth(hardness(5, width=8)),
    "encoder": lambda: smooth(encoder(width=8, layers=3)),
    "mingpt": lambda: smooth(mingpt(5, width=8, heads=2), outputs=1),
    "fourier": lambda: smooth(fourier(5, 8)),
    "once": lambda: smooth(hardness(5, width=8), norm="once", readout="first"),
}


def all_of(surface: hessian_products.LossSurface) -> np.ndarray:
    return surface.products(np.eye(surface.size))


def gradient_at(model: nn.Module, names: tuple[str, ...], point: np.ndarray, data: Any) -> np.ndarray:
    moved, place = copy.deepcopy(model), 0
    for name in names:
        parameter = moved.get_parameter(name)
        parameter.data = torch.from_numpy(point[place : place + parameter.numel()]).view(parameter.shape).clone()
        place += parameter.numel()
    with loss_surface(moved, "mse", data, parameters=list(names)) as surface:
        return surface.gradient


# ---------------------------------------------------------------- products


@pytest.mark.parametrize("name", MODELS)
def test_products_are_symmetric_and_finite_differences_of_the_gradient(name: str) -> None:
    model, data = seeded(MODELS[name]), (BITS, LABELS)
    stream = np.random.default_rng(1)
    with loss_surface(model, "mse", data) as surface:
        left, right = stream.normal(size=(2, 3, surface.size))
        images = surface.products(np.concatenate([left, right]))
        assert left @ images[3:].T == pytest.approx((right @ images[:3].T).T, rel=1e-9, abs=1e-10)
        step = 1e-5
        for vector, image in zip(left, images[:3], strict=True):
            ahead, behind = (
                gradient_at(model, surface.names, surface.point + side * step * vector, data) for side in (1, -1)
            )
            size = float(np.linalg.norm(image))
            assert np.linalg.norm((ahead - behind) / (2 * step) - image) < 1e-6 * max(size, 1.0)


@pytest.mark.parametrize("loss", ["mse", "bce", "cross_entropy"])
def test_products_against_the_dense_hessian(loss: Any) -> None:
    outputs = 3 if loss == "cross_entropy" else 1
    model = seeded(lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, outputs)))
    targets = torch.arange(12) % 3 if loss == "cross_entropy" else torch.from_numpy((LABELS + 1) / 2)
    by_name: dict[str, Callable[..., Tensor]] = {
        "mse": F.mse_loss,
        "bce": F.binary_cross_entropy_with_logits,
        "cross_entropy": F.cross_entropy,
    }
    inputs = torch.from_numpy(BITS).double()
    names, shapes = zip(*[(name, p.shape) for name, p in model.named_parameters()], strict=True)

    def of(point: Tensor) -> Tensor:
        pieces = point.split([math.prod(shape) for shape in shapes])
        values = {name: piece.view(shape) for name, piece, shape in zip(names, pieces, shapes, strict=True)}
        found = torch.func.functional_call(model, values, (inputs,))
        return by_name[loss](found if outputs > 1 else found[:, 0], targets)

    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    truth = torch.autograd.functional.hessian(of, flat).numpy()
    for asked in (loss, lambda found, wanted: by_name[loss](found if outputs > 1 else found[:, 0], wanted)):
        with loss_surface(model, asked, (BITS, targets)) as surface:
            assert all_of(surface) == pytest.approx(truth, abs=1e-12)
            assert surface.loss == pytest.approx(float(of(flat)))
    found = curvature(model, loss, (BITS, targets), eigenvalues=2, method="exact")
    values = np.linalg.eigvalsh(truth)
    assert found.trace is not None
    assert found.eigenvalues is not None
    assert found.trace.value.value == pytest.approx(np.trace(truth))
    assert found.eigenvalues.top.values == pytest.approx(values[::-1][:2])
    assert found.eigenvalues.bottom.values == pytest.approx(values[:2])


@pytest.mark.parametrize("make", [lambda: smooth(hardness(5, width=4)), mlp], ids=["hardness", "mlp"])
def test_eigenvalues_and_density_against_the_dense_hessian(make: Callable[[], nn.Module]) -> None:
    model = seeded(make)
    found = curvature(model, "mse", (BITS, LABELS), eigenvalues=3, tolerance=1e-6, density_probes=6, density_steps=30)
    with loss_surface(model, "mse", (BITS, LABELS)) as surface:
        values = np.linalg.eigvalsh(all_of(surface))
    assert found.eigenvalues is not None
    assert found.density is not None
    norm = np.abs(values).max()
    assert found.eigenvalues.top.values == pytest.approx(values[::-1][:3], abs=1e-8 * norm)
    assert found.eigenvalues.bottom.values == pytest.approx(values[:3], abs=1e-8 * norm)
    assert max(found.eigenvalues.top.residuals.max(), found.eigenvalues.bottom.residuals.max()) <= 1e-6 * norm
    density = found.density
    assert density.weights.sum() == pytest.approx(1)
    grid = np.linspace(-2 * norm, 2 * norm, 20_001)
    drawn = density.at(grid, norm / 100)
    assert np.trapezoid(drawn, grid) == pytest.approx(1, abs=1e-6)
    assert np.trapezoid(grid * drawn, grid) == pytest.approx(density.mean.value, abs=1e-6 * norm)
    # The mean of six probes is Hutchinson's estimate of trace / dim, whose variance is at most 2 |H|_F^2.
    assert abs(density.mean.value - values.mean()) < 5 * math.sqrt(2 * np.square(values).sum() / 6) / len(values)
    assert density.share_above(values[-1] + 1e-6 * norm).value == pytest.approx(0, abs=1e-9)


def repeating(name: str) -> tuple[nn.Module, Any, Any]:
    """Models with Hessians that have some eigenvalues many times: squared errors of several outputs are a Kronecker
    product, cross-entropy at zero one with a projection, few strings leave zeros, and so does a linear loss."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        inputs = torch.randn(200, 40, dtype=torch.float64)
        model = nn.Linear(40, 10 if name == "cross entropy" else 5, bias=name != "kronecker").double()
        targets: Tensor = torch.randn(200, 5, dtype=torch.float64)
    if name == "cross entropy":
        for parameter in model.parameters():
            parameter.data.zero_()
        return model, "cross_entropy", (inputs, torch.arange(200) % 10)
    if name == "few strings":
        return model, "mse", (inputs[:3], targets[:3])
    return model, "mse" if name == "kronecker" else lambda outputs, wanted: outputs.mean(), (inputs, targets)


@pytest.mark.parametrize("number_type", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["kronecker", "cross entropy", "few strings", "zero"])
def test_repeated_eigenvalues_are_all_there(name: str, number_type: torch.dtype) -> None:
    model, loss, data = repeating(name)
    with loss_surface(model, loss, data) as surface:
        truth = np.linalg.eigvalsh(all_of(surface))
    found = curvature(model.to(number_type), loss, data, what="eigenvalues", eigenvalues=4).eigenvalues
    assert found is not None
    assert len(truth) > 96  # by products, not by the matrix itself
    norm = np.abs(truth).max()
    assert found.top.values == pytest.approx(truth[::-1][:4], abs=1e-3 * norm)
    assert found.bottom.values == pytest.approx(truth[:4], abs=1e-3 * norm)
    assert max(found.top.residuals.max(), found.bottom.residuals.max()) <= 1e-3 * norm
    if name == "kronecker":
        assert np.ptp(truth[-4:]) < 1e-9 * norm  # five times the same, of which four were asked for


def test_quick_logits_change_nothing() -> None:
    model = seeded(MODELS["encoder"])
    with loss_surface(model, "mse", (BITS, LABELS)) as surface:
        rows = np.random.default_rng(0).normal(size=(5, surface.size))
        quick = surface.products(rows)
    with loss_surface(model, "mse", (BITS, LABELS), forward=lambda bits: model(bits)) as surface:
        plain = surface.products(rows)
    assert quick == pytest.approx(plain, abs=1e-10)


def test_graphs_that_are_kept_and_graphs_that_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = seeded(MODELS["hardness"])
    rows = np.random.default_rng(0).normal(size=(40, 945))
    with loss_surface(Subject(model, batch=5), "mse", (BITS, LABELS)) as surface:
        kept = surface.products(rows)
        assert len(surface._graphs) == 3
    monkeypatch.setattr(hessian_products, "_KEPT", 0.0)
    with loss_surface(Subject(model, batch=5), "mse", (BITS, LABELS)) as surface:
        again = surface.products(rows)
        assert len(surface._graphs) == 0
    assert again == pytest.approx(kept, rel=1e-12, abs=1e-14)


# ---------------------------------------------------------------- data


def test_batches_loaders_and_reductions() -> None:
    model = seeded(mlp)
    inputs, targets = torch.from_numpy(BITS).double(), torch.from_numpy(LABELS)[:, None]
    whole = curvature(model, F.mse_loss, (inputs, targets), what="trace")
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=5)
    assert whole.trace is not None
    for data, options in (
        (loader, {}),
        (list(loader), {}),
        (({"input": inputs}, targets), {}),
        (((inputs,), targets), {}),
        ((BITS, LABELS[:, None]), {"forward": lambda bits: model(bits.double())}),
    ):
        found = curvature(model, F.mse_loss, data, what="trace", **options)  # type: ignore[arg-type]
        assert found.trace is not None
        assert found.trace.value.value == pytest.approx(whole.trace.value.value)
        assert (found.loss, found.strings) == (pytest.approx(whole.loss), 12)
    summed = curvature(model, lambda a, b: F.mse_loss(a, b, reduction="sum"), loader, what="trace", reduction="sum")
    assert summed.trace is not None
    assert summed.trace.value.value == pytest.approx(12 * whole.trace.value.value)
    named = curvature(Subject(model, batch=5), "mse", (BITS, LABELS), what="trace", reduction="sum")
    assert named.trace is not None
    assert named.trace.value.value == pytest.approx(summed.trace.value.value)


def test_a_block_of_the_hessian_and_traces_by_name() -> None:
    model = seeded(mlp)
    data = (BITS, LABELS)
    with loss_surface(model, "mse", data) as surface:
        whole, starts, names = all_of(surface), [*surface.starts, surface.size], surface.names
    found = curvature(model, "mse", data, what=["trace", "gauss_newton"])
    assert found.trace is not None
    assert found.gauss_newton is not None
    for k, name in enumerate(names):
        block = whole[starts[k] : starts[k + 1], starts[k] : starts[k + 1]]
        assert found.trace.by_name()[name].value == pytest.approx(np.trace(block), abs=1e-12)
        alone = curvature(model, "mse", data, what=["trace", "gauss_newton"], parameters=name)
        assert alone.trace is not None
        assert alone.gauss_newton is not None
        assert (alone.parameters, alone.names) == (block.shape[0], (name,))
        assert alone.trace.value.value == pytest.approx(np.trace(block), abs=1e-12)
        assert alone.gauss_newton.value.value == pytest.approx(found.gauss_newton.of(name).value)
    assert found.trace.of(["0.*", "3.*"]).value == pytest.approx(
        sum(found.trace.by_name()[name].value for name in names if name[0] in "03")
    )
    with pytest.raises(InputError, match="matches none"):
        found.trace.of("nothing")


class Unused(nn.Module):
    """With a parameter that no output depends on, before and after those that matter."""

    def __init__(self) -> None:
        super().__init__()
        self.idle, self.body, self.last = nn.Parameter(torch.ones(2)), mlp(), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return out


def test_what_the_loss_does_not_use_has_zeros_in_the_hessian() -> None:
    model = seeded(Unused)
    assert isinstance(model, Unused)
    with loss_surface(model, "mse", (BITS, LABELS)) as surface:
        whole, names, starts = all_of(surface), surface.names, [*surface.starts, surface.size]
    with loss_surface(model.body, "mse", (BITS, LABELS)) as surface:
        inner = all_of(surface)
    used = np.concatenate(
        [np.full(starts[k + 1] - starts[k], name.startswith("body.")) for k, name in enumerate(names)]
    )
    assert used.sum() == len(inner) < len(whole)
    assert whole[np.ix_(used, used)] == pytest.approx(inner, abs=1e-12)
    assert not whole[~used].any()
    assert not whole[:, ~used].any()
    found, alone = (curvature(each, "mse", (BITS, LABELS), eigenvalues=1) for each in (model, model.body))
    assert found.trace is not None
    assert alone.trace is not None
    assert found.trace.value.value == pytest.approx(alone.trace.value.value)
    assert found.trace.by_name()["idle"].value == 0
    assert found.fisher_rao == alone.fisher_rao
    assert found.gauss_newton is not None
    assert alone.gauss_newton is not None
    assert found.gauss_newton.value.value == pytest.approx(alone.gauss_newton.value.value)


class Looked(nn.Module):
    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.symbol, self.head = nn.Embedding(2, 4, sparse=sparse), nn.Linear(4, 1)

    def forward(self, bits: Tensor) -> Tensor:
        out: Tensor = self.head(torch.tanh(self.symbol(bits) * torch.arange(1, 6)[:, None]).mean(dim=1))
        return out


def test_sparse_embeddings_have_the_hessian_of_dense_ones() -> None:
    sparse, dense = (seeded(lambda is_sparse=each: Looked(is_sparse)) for each in (True, False))  # type: ignore[misc]
    found, truth = (curvature(each, "mse", (BITS, LABELS), eigenvalues=2) for each in (sparse, dense))
    assert found.as_json() == truth.as_json()
    assert isinstance(sparse, Looked)
    assert sparse.symbol.sparse


def test_inference_mode_outside_changes_nothing() -> None:
    model = seeded(mlp)
    truth = curvature(model, "mse", (BITS, LABELS), what=["trace", "fisher_rao"])
    with torch.inference_mode():
        inside = curvature(model, "mse", (BITS, LABELS), what=["trace", "fisher_rao"])
        inputs, targets = torch.from_numpy(BITS).double(), torch.from_numpy(LABELS) * 1
    made_inside = curvature(model, "mse", (inputs, targets), what=["trace", "fisher_rao"])
    assert truth.as_json() == inside.as_json() == made_inside.as_json()


def test_batches_are_chosen_by_memory_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = seeded(mlp)
    strings = np.random.default_rng(0).integers(0, 2, (3000, 5))
    data = (strings, 2.0 * (strings.sum(axis=1) % 2) - 1)
    options: dict[str, Any] = {"what": ["trace", "gauss_newton", "fisher_rao"], "method": "hutchinson", "probes": 6}
    with loss_surface(model, "mse", data) as surface:
        assert surface.batches == 1
        each = surface._bytes_per_string
    whole = curvature(model, "mse", data, **options).as_json()
    monkeypatch.setattr(hessian_products, "_GRAPH", 700 * each)
    with loss_surface(model, "mse", data) as surface:
        assert surface.batches == 5
    for batch in (None, 70, 1100):
        cut = curvature(Subject(model, batch=batch), "mse", data, **options).as_json()
        for name in ("trace", "gauss_newton", "fisher_rao"):
            for key, value in whole[name].items():
                if isinstance(value, float):
                    assert cut[name][key] == pytest.approx(value, rel=1e-9), (name, key)


# ---------------------------------------------------------------- what the papers say


@pytest.mark.parametrize("name", ["mlp", "hardness", "fourier", "pytorch"])
def test_at_an_interpolator_the_trace_is_twice_the_squared_gradient(name: str) -> None:
    # Sharper paper, Thm 5: Tr = 2 mean |grad f|^2 where every squared error is 0.
    model = seeded(MODELS[name]).eval()
    inputs = torch.from_numpy(BITS).double() if name == "mlp" else torch.from_numpy(BITS)
    chosen = [p for key, p in model.named_parameters() if key != "embedding.position.weight"]
    squares = []
    for row in inputs:
        gradients = torch.autograd.grad(model(row[None]).sum(), chosen, allow_unused=True)
        squares.append(sum(float(g.square().sum()) for g in gradients if g is not None))
    with torch.no_grad():
        targets = model(inputs)
    for method in ("exact", "hutch++") if name == "mlp" else ("hutch++",):
        found = curvature(model, "mse", (BITS, targets), what=["trace", "gauss_newton"], method=method)  # type: ignore[arg-type]
        assert found.trace is not None
        assert found.gauss_newton is not None
        assert found.loss < 1e-25
        # Twelve strings make a Hessian of rank twelve, which 33 columns of Hutch++ hold.
        assert found.trace.value.value == pytest.approx(2 * np.mean(squares), rel=1e-6)
    exact = curvature(model, "mse", (BITS, targets), what="gauss_newton", method="exact").gauss_newton
    assert exact is not None
    assert exact.value.value == pytest.approx(2 * np.mean(squares), rel=1e-9)


def test_the_mean_loss_under_noise_is_the_trace() -> None:
    # Thms 6 and 12: E loss(theta + N(0, s^2)) = s^2 Tr / 2 to second order, at an interpolator.
    model, std = seeded(mlp), 1e-3
    with torch.no_grad():
        targets = model.eval()(torch.from_numpy(BITS).double())
    found = curvature(model, "mse", (BITS, targets), what="trace")
    assert found.trace is not None
    moved = flipscope.sharpness(model, BITS, targets, measure="loss", std=std, draws=400, confidence=0.999)
    assert moved.value.low < std**2 / 2 * found.trace.value.value < moved.value.high


@pytest.mark.parametrize("loss", ["mse", "bce", "cross_entropy"])
def test_gauss_newton_and_fisher_rao_against_the_jacobian(loss: Any) -> None:
    outputs = 3 if loss == "cross_entropy" else 1
    model = seeded(lambda: mlp(outputs)).eval()
    targets = torch.arange(12) % 3 if loss == "cross_entropy" else torch.from_numpy((LABELS + 1) / 2)
    inputs, parameters = torch.from_numpy(BITS).double(), list(model.parameters())
    found = model(inputs)
    rows = [torch.autograd.grad(each, parameters, retain_graph=True) for each in found.reshape(-1)]
    jacobian = torch.stack([torch.cat([g.reshape(-1) for g in row]) for row in rows]).view(12, outputs, -1)
    theta = torch.cat([p.detach().reshape(-1) for p in parameters])
    if loss == "mse":
        bent, slope = 2 * torch.eye(1).expand(12, 1, 1), 2 * (found[:, 0] - targets)[:, None]
    elif loss == "bce":
        p = found.sigmoid()
        bent, slope = (p * (1 - p))[:, :, None], p - targets[:, None]
    else:
        p = found.softmax(dim=1)
        bent = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
        slope = p - F.one_hot(targets, 3)
    matrix = torch.einsum("nap,nab,nbq->pq", jacobian, bent.detach().double(), jacobian) / 12
    measured = curvature(
        Subject(model, batch=5), loss, (BITS, targets), what=["gauss_newton", "fisher_rao"], method="exact"
    )
    assert measured.gauss_newton is not None
    assert measured.fisher_rao is not None
    assert measured.gauss_newton.value.value == pytest.approx(float(matrix.trace()))
    assert measured.fisher_rao.model == pytest.approx(float((theta @ matrix @ theta).sqrt()))
    own = torch.einsum("na,nap,p->n", slope.detach().double(), jacobian, theta)
    assert measured.fisher_rao.empirical == pytest.approx(float(own.square().mean().sqrt()))
    sampled = curvature(
        Subject(model, batch=5),
        loss,
        (BITS, targets),
        what="gauss_newton",
        method="hutchinson",
        probes=300,
        confidence=0.999,
    ).gauss_newton
    assert sampled is not None
    assert sampled.value.low < float(matrix.trace()) < sampled.value.high


def test_intervals_cover_the_trace_as_often_as_they_say() -> None:
    model, data, repeats = seeded(mlp), (BITS, LABELS), 60
    exact = curvature(model, "mse", data, what="trace", method="exact").trace
    assert exact is not None
    hits = 0
    for seed in range(repeats):
        found = curvature(
            model, "mse", data, what="trace", method="hutchinson", probes=20, confidence=0.9, seed=seed
        ).trace
        assert found is not None
        hits += found.value.low <= exact.value.value <= found.value.high
    assert stats.binom.cdf(hits, repeats, 0.83) > 1e-3
    assert stats.binom.sf(hits - 1, repeats, 0.95) > 1e-3


# ---------------------------------------------------------------- the model is left alone, the seed decides


def test_the_model_is_left_as_it_was() -> None:
    model = PyTorchEncoder().train()
    model.head.weight.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    curvature(model, "mse", (BITS, LABELS), what=["trace", "fisher_rao"], probes=3)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert model.training
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["head.weight"]
    assert all(p.grad is None for p in model.parameters())


def test_same_seed_same_numbers_and_a_document() -> None:
    model = Transformer(hardness(5, width=16), seed=3)
    first, again, other = (
        curvature(model, "mse", (BITS, LABELS), probes=9, seed=seed, density_steps=5).as_json() for seed in (1, 1, 2)
    )
    assert first == again
    assert first["trace"]["value"] != other["trace"]["value"]
    assert set(WHAT) < set(first)
    assert first["trace"]["method"] == "hutch++"
    assert first["parameters"] == model.count_parameters(positions=False)
    assert curvature(model, "mse", (BITS, LABELS), parameters="*", what="fisher_rao").parameters > first["parameters"]


# ---------------------------------------------------------------- bad input


def vector_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square()


class Random(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * torch.rand(len(x))


class Constant(Random):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ones(len(x))


def detached(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0].detach() - targets).square().mean()


def zeros() -> nn.Module:
    """The same output for every string."""
    model = nn.Linear(5, 1)
    for parameter in model.parameters():
        parameter.data.zero_()
    return model


def inferred() -> nn.Module:
    with torch.inference_mode():
        return nn.Linear(5, 1)


def broken() -> nn.Module:
    model = nn.Linear(5, 1)
    model.bias.data[:] = math.nan
    return model


@pytest.mark.parametrize(
    ("model", "loss", "data", "options", "sentence"),
    [
        (nn.Linear(5, 1), vector_loss, (BITS, LABELS[:, None]), {}, r"shape \(12, 1\): curvature is of one number"),
        (nn.Linear(5, 1), lambda a, b: 3.0, (BITS, LABELS), {}, "must return a tensor"),
        (Subject(nn.Linear(5, 1).half(), precision="native"), "mse", (BITS, LABELS), {}, "type float16, too coarse"),
        (nn.ReLU(), "mse", (BITS, LABELS), {}, "has no parameters"),
        (lambda x: x, "mse", (BITS, LABELS), {}, "the parameters of an nn.Module, and the model is a function"),
        (nn.Linear(5, 1), "mse", (BITS, LABELS), {"parameters": "nothing*"}, "matches none of"),
        (broken(), "mse", (BITS, LABELS), {}, "NaN"),
        (nn.Linear(5, 1), "mse", (np.full((3, 5), np.nan), np.zeros(3)), {}, "NaN or infinite outputs"),
        (nn.Linear(5, 1), "mse", (BITS, np.full(12, np.nan)), {}, "finite numbers"),
        (nn.Linear(5, 1), lambda a, b: a.sum() * math.nan, (BITS, LABELS), {}, "loss of the model is NaN"),
        (nn.Linear(5, 1), "mse", (BITS, LABELS[:3]), {}, "one for each of the 12"),
        (nn.Linear(5, 1), "mse", BITS, {}, "data must be"),
        (nn.Linear(5, 1), "mse", [], {}, "data must be"),
        (nn.Linear(5, 1), "mse", [BITS], {}, "a batch is something else"),
        (nn.Linear(5, 1), "mse", (BITS, object()), {}, "targets must be numbers"),
        (nn.Linear(5, 1), "l1", (BITS, LABELS), {}, "'l1' is not one of"),
        (nn.Linear(5, 1), "mse", (BITS, LABELS), {"what": "hessian"}, "what='hessian'"),
        (nn.Linear(5, 1), "mse", (BITS, LABELS), {"what": []}, "what is empty"),
        (nn.Linear(5, 1), "mse", (BITS, LABELS), {"method": "power"}, "method='power'"),
        (nn.Linear(5, 1), "mse", (BITS, LABELS), {"probes": 2}, "probes must be"),
        (nn.Linear(5, 1), "mse", (BITS, LABELS), {"tolerance": 0.0}, "tolerance=0"),
        (nn.Linear(5, 1), "mse", (BITS, LABELS), {"reduction": "max"}, "reduction='max'"),
        (nn.Linear(5, 1), "mse", (BITS, LABELS), {"confidence": 1.0}, "confidence"),
        (nn.Linear(5, 1), "mse", (BITS, LABELS), {"eigenvalues": 0}, "eigenvalues must be"),
        (Random(), "mse", (BITS, LABELS), {}, "in two calls"),
        (Constant(), "mse", (BITS, LABELS), {}, "do not depend on the parameters"),
        (nn.Linear(5, 1), lambda a, b: (a - a.detach()).abs().sqrt().sum(), (BITS, LABELS), {}, "not smooth"),
        (nn.Linear(5, 1), detached, (BITS, LABELS), {"what": "trace"}, "the loss has no gradient"),
        (nn.Linear(5, 1), detached, (BITS, LABELS), {"what": "gauss_newton"}, "the loss has no gradient"),
        (nn.Linear(5, 1), detached, (BITS, LABELS), {"what": "fisher_rao"}, "the loss has no gradient"),
        (
            nn.Linear(5, 1),
            nn.MSELoss(),
            (BITS, LABELS),
            {},
            r"pairs .* shape \(12, 1\) and targets of shape \(12,\) one",
        ),
        (nn.Linear(5, 1), nn.MSELoss(reduction="sum"), (BITS, LABELS), {}, "pairs every output with every target"),
        (nn.Linear(5, 1), lambda a, b: vector_loss(a, b).mean(), (BITS, LABELS), {}, "pairs every output"),
        (zeros(), lambda a, b: vector_loss(a, b).mean(), (BITS, LABELS), {}, "pairs every output"),
        (inferred(), "mse", (BITS, LABELS), {}, r"^the parameter weight was made in torch.inference_mode"),
        (
            nn.Sequential(nn.Linear(5, 5), inferred()),
            "mse",
            (BITS, LABELS),
            {"parameters": "0.*"},
            r"^1.weight was made",
        ),
        (nn.Linear(5, 1), "mse", (BITS, LABELS), {"density_probes": 1}, "density_probes must be"),
    ],
)
def test_bad_input_is_one_sentence(model: Any, loss: Any, data: Any, options: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        curvature(model, loss, data, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "loss",
    [
        lambda a, b: F.mse_loss(a[:, 0], b),
        lambda a, b: F.mse_loss(a, b[:, None]),
        lambda a, b: F.mse_loss(a.squeeze(), b, reduction="sum") / len(b),
        lambda a, b: F.mse_loss(a.view_as(b), b),
        lambda a, b: (a[:, 0] - b).square().sum() / 12,  # of fixed strings: less than a mean for fewer
    ],
)
def test_a_loss_may_bring_the_shapes_together_itself(loss: Any) -> None:
    model = seeded(mlp)
    found, named = (curvature(model, each, (BITS, LABELS), what="trace").trace for each in (loss, "mse"))
    assert found is not None
    assert named is not None
    assert found.value.value == pytest.approx(named.value.value)


def test_a_loss_of_all_pairs_that_is_meant() -> None:
    def ranking(outputs: Tensor, targets: Tensor) -> Tensor:
        gaps = outputs - outputs.T
        return F.softplus(-gaps[targets[:, None] > targets[None, :]]).mean()

    assert curvature(seeded(mlp), ranking, (BITS, LABELS), what="trace").loss > 0


def test_a_linear_loss_has_no_curvature() -> None:
    found = curvature(nn.Linear(5, 1), lambda a, b: a.mean(), (BITS, LABELS), what=["trace", "gauss_newton"])
    assert found.trace is not None
    assert found.gauss_newton is not None
    assert (found.trace.value.value, found.gauss_newton.value.value) == (0.0, 0.0)


# ---------------------------------------------------------------- another package


class Tied(nn.Module):
    """Embedding and head share their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.middle, self.head = nn.Embedding(7, 8), nn.Linear(8, 8), nn.Linear(8, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.tanh(self.middle(self.embed(x)).mean(1)))
        return out


@pytest.mark.parametrize("scale", [1, 100, 1000])
def test_eigenvalues_of_models_that_hardly_curve_are_right_or_refused(scale: float) -> None:
    """Large weights make second derivatives of 1e-250, which can be mostly rounding."""
    for seed in range(12):
        model = seeded(Tied, seed).double()
        stream = torch.Generator().manual_seed(seed)
        data = tuple(torch.randint(0, 7, size, generator=stream) for size in ((8 + seed, 5), (8 + seed,)))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(scale)
        with loss_surface(model, "cross_entropy", data) as surface:
            values = np.linalg.eigvalsh(all_of(surface))
        for tolerance in (1e-3, 1e-5):
            said = ""
            options: Any = {"what": "eigenvalues", "eigenvalues": 6, "tolerance": tolerance}
            try:
                found = curvature(model, "cross_entropy", data, **options).eigenvalues
            except InputError as error:
                said = str(error)
            if said:
                assert scale > 1
                assert "rounding keeps the eigenvalues from converging" in said
                continue
            assert found is not None
            norm = np.abs(values).max()
            assert np.abs(found.top.values - values[::-1][:6]).max() <= 2 * tolerance * norm
            assert np.abs(found.bottom.values - values[:6]).max() <= 2 * tolerance * norm


@pytest.mark.parametrize("factor", [1e-300, 1e300])
def test_a_loss_in_other_units_has_the_curvature_in_these_units(factor: float) -> None:
    model = seeded(mlp).double()
    data = (torch.from_numpy(BITS).double(), torch.from_numpy(LABELS))

    def squared(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs[:, 0] - targets).square().mean()

    options: Any = {"eigenvalues": 2, "probes": 9, "method": "hutchinson"}
    plain = curvature(model, squared, data, **options)
    found = curvature(model, lambda outputs, targets: factor * squared(outputs, targets), data, **options)
    assert found.gradient_norm == pytest.approx(factor * plain.gradient_norm)
    for name in ("trace", "gauss_newton"):
        there, here = getattr(found, name).value, getattr(plain, name).value
        assert (there.low, there.high) == pytest.approx((factor * here.low, factor * here.high))
    assert found.fisher_rao is not None
    assert plain.fisher_rao is not None
    assert found.fisher_rao.empirical == pytest.approx(factor * plain.fisher_rao.empirical)
    assert found.eigenvalues is not None
    assert plain.eigenvalues is not None
    assert found.eigenvalues.top.values == pytest.approx(factor * plain.eigenvalues.top.values, rel=1e-6)
    assert found.density is not None
    assert plain.density is not None
    assert found.density.nodes == pytest.approx(factor * plain.density.nodes, rel=1e-6, abs=1e-12 * factor)


def test_a_tied_parameter_answers_to_each_of_its_names() -> None:
    model, data = seeded(Tied), (torch.arange(35).reshape(7, 5) % 7, torch.arange(7))
    by_first, by_second = (
        curvature(model, "cross_entropy", data, what="trace", parameters=name) for name in ("embed.*", "head.*")
    )
    assert by_first.names == by_second.names == ("embed.weight",)
    assert by_first.trace is not None
    assert by_first.trace.of("head.weight") == by_first.trace.of("embed.weight") == by_first.trace.value


def test_products_of_another_package() -> None:
    pytest.importorskip("hessian_eigenthings", reason="hessian-eigenthings is not installed: it is an oracle only")
    from hessian_eigenthings.loss_fns.standard import supervised_loss
    from hessian_eigenthings.operators.hessian import HessianOperator
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for name in ("mlp", "pytorch"):
        model = seeded(MODELS[name]).eval()
        inputs = torch.from_numpy(BITS).double() if name == "mlp" else torch.from_numpy(BITS)
        targets = torch.from_numpy(LABELS)
        loss = supervised_loss(lambda a, b: F.mse_loss(a.reshape(-1), b))
        operator = HessianOperator(model, [(inputs, targets)], loss)
        with loss_surface(model, "mse", (BITS, LABELS)) as surface:
            rows = np.random.default_rng(2).normal(size=(3, surface.size))
            ours = surface.products(rows)
        with sdpa_kernel(SDPBackend.MATH):
            theirs = torch.stack([operator.matvec(torch.from_numpy(row)) for row in rows])
        assert ours == pytest.approx(theirs.numpy(), rel=1e-9, abs=1e-11)
