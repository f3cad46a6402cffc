"""Every public function that takes a model, with the model on another device: the CPU's numbers, brought home.

Each is called in four ways: with the model on the device, with `device=`, with PyTorch's default device set, and on a
device without float64.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from devices import twin
from torch import Tensor, nn

import flipscope
from flipscope import constructions, probes, training
from flipscope.basics.errors import InputError
from flipscope.constructions import sparse_variables
from flipscope.constructions.chain_of_thought import parity_steps, write_steps
from flipscope.constructions.fourier import check_network, fourier_network, gradient_scale, norm_scale, rescaled
from flipscope.constructions.sparse_variables.certify import certify
from flipscope.constructions.sparse_variables.export import as_transformer
from flipscope.cube.fourier_sums import parse_sum
from flipscope.cube.functions import majority
from flipscope.models import Transformer, encoder, mingpt
from flipscope.models.seq2seq import Seq2Seq
from flipscope.models.seq2seq_config import Seq2SeqConfig
from flipscope.probes import blowup, flatness, fourier, recognition, sensitivity, sharpness
from flipscope.probes.curvature import curvature
from flipscope.probes.gradients import squared_gradients
from flipscope.probes.hessian_products import loss_surface
from flipscope.probes.influence import influences
from flipscope.probes.landscape import landscape
from flipscope.probes.perturbation import survivors
from flipscope.probes.perturbed import perturbed_loss
from flipscope.probes.perturbed_trace import split_trace, trace_changes
from flipscope.probes.tokens import token_sensitivity
from flipscope.training.fit import answered, evaluate, fit
from flipscope.training.recipes.sharper import squared_errors
from flipscope.training.sparse_measures import marker_attention
from flipscope.training.targets import Aim

N = 5
STRINGS = np.random.default_rng(0).integers(0, 2, (6, N)).astype(np.uint8)
LABELS = majority(N)(STRINGS)
VALUES = np.where(LABELS == 1, 1.0, -1.0)
SUM = parse_sum("x1x2 - 0.5 x3", N)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(1, 2, batch_first=True), nn.Linear(2, 1)

    def forward(self, bits: Tensor) -> Tensor:
        out: Tensor = self.head(self.lstm(bits.to(self.head.weight.dtype)[..., None])[0][:, -1])
        return out[:, 0]


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(N, 3), nn.Linear(3, 1)

    def forward(self, bits: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(bits.to(self.first.weight.dtype)).tanh())
        return out[:, 0]


def built(kind: str) -> nn.Module:
    """A model on the CPU, the same at every call."""
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model: nn.Module = {
            "transformer": lambda: Transformer(encoder(width=8, layers=2), seed=1),
            "marker": lambda: Transformer(mingpt(N, width=8, heads=2), seed=1),
            "recurrent": Recurrent,
            "perceptron": Perceptron,
            "seq2seq": lambda: Seq2Seq(Seq2SeqConfig(length=N, width=8, ffn_width=8)),
            "fourier": lambda: fourier_network(SUM, dtype=torch.float32),
            "steps": lambda: parity_steps(N, dtype=torch.float32),
            "attention": lambda: construction().model.float(),
        }[kind]()
    return model.eval()


def construction() -> Any:
    return sparse_variables.construct(flipscope.parse("x1 & x3", N), "deterministic")


Call = Callable[..., Any]
DATA = (STRINGS, VALUES)
TENSORS = torch.from_numpy(STRINGS)


def fitted(model: nn.Module, **w: Any) -> Any:
    data = type("Data", (), {"bits": STRINGS, "labels": LABELS})()
    found = fit(model, data, data, learning_rate=0.1, batch=3, max_steps=2, optimiser="sgd", **w)
    return [line.validation_loss for line in found.history]


CURVATURE: dict[type[nn.Module], tuple[str, ...]] = {
    Perceptron: ("trace", "eigenvalues", "gauss_newton"),
    Transformer: ("trace", "gauss_newton"),
    Recurrent: ("trace",),
}
# Which model, and how it is called; `w` is device= or nothing.
ENTRIES: dict[str, tuple[Sequence[str], Call]] = {
    "probes.sensitivity.sensitivity": (
        ("transformer", "recurrent", "perceptron"),
        lambda m, **w: sensitivity.sensitivity(m, STRINGS, **w),
    ),
    "probes.sensitivity.sensitivities": (("perceptron",), lambda m, **w: sensitivity.sensitivities(m, STRINGS, **w)),
    "probes.sensitivity.sensitivity_profile": (
        ("transformer", "perceptron"),
        lambda m, **w: sensitivity.sensitivity_profile(m, N, strings=8, **w).average_sensitivity,
    ),
    "probes.sensitivity.acceptance_flips": (
        ("transformer",),
        lambda m, **w: sensitivity.acceptance_flips(m, STRINGS, 0.01, **w),
    ),
    "probes.sensitivity.logit_changes": (("perceptron",), lambda m, **w: sensitivity.logit_changes(m, STRINGS, **w)),
    "probes.sensitivity.truth_table": (("perceptron",), lambda m, **w: sensitivity.truth_table(m, N, **w).table()),
    "probes.influence.influences": (
        ("transformer", "recurrent", "perceptron"),
        lambda m, **w: influences(m, STRINGS, **w),
    ),
    "probes.blowup.blowup": (("transformer",), lambda m, **w: blowup.blowup(m, STRINGS, **w).beta),
    "probes.blowup.neighbourhood": (("transformer",), lambda m, **w: blowup.neighbourhood(m, STRINGS[:1], None, **w)),
    "probes.blowup.hardness_proxy": (("transformer",), lambda m, **w: blowup.hardness_proxy(m, STRINGS, **w)),
    "probes.blowup.scratchpad_proxy": (
        ("seq2seq",),
        lambda m: blowup.scratchpad_proxy(m, torch.from_numpy(np.hstack([STRINGS, STRINGS])).long(), "decoder"),
    ),
    "probes.fourier.spectrum": (("transformer",), lambda m, **w: fourier.spectrum(m, N, **w).logits),
    "probes.fourier.oracle": (("perceptron",), lambda m, **w: fourier.oracle(m, **w)(STRINGS)),
    "probes.fourier.logit_range": (("transformer",), lambda m: fourier.logit_range(m)),
    "probes.fourier.coefficient": (
        ("perceptron",),
        lambda m, **w: fourier.coefficient(m, N, [0], samples=8, **w),
    ),
    "probes.fourier.weight_by_degree": (
        ("perceptron",),
        lambda m, **w: fourier.weight_by_degree(m, N, degrees=[1], samples=20, **w),
    ),
    "probes.fourier.degree_test": (("perceptron",), lambda m, **w: fourier.degree_test(m, N, 1, **w)),
    "probes.fourier.first_degree": (("perceptron",), lambda m, **w: fourier.first_degree(m, N, max_degree=1, **w)),
    "probes.fourier.sparsity_test": (
        ("perceptron",),
        lambda m, **w: fourier.sparsity_test(m, N, 1, epsilon=0.9, restrictions=2, **w),
    ),
    "probes.fourier.first_sparsity": (
        ("perceptron",),
        lambda m, **w: fourier.first_sparsity(m, N, max_sparsity=1, epsilon=0.9, restrictions=2, **w),
    ),
    "probes.recognition.recognition": (
        ("transformer", "perceptron"),
        lambda m, **w: recognition.recognition(m, majority(N), 0.01, **w),
    ),
    "probes.recognition.recognizes": (("recurrent",), lambda m, **w: recognition.recognizes(m, majority(N), 0.01, **w)),
    "probes.tokens.token_sensitivity": (
        ("perceptron", "recurrent"),
        lambda m, **w: token_sensitivity(m, STRINGS.astype(np.float32), variance=0.5, draws=3, **w),
    ),
    "probes.sharpness.sharpness": (
        ("transformer", "recurrent", "perceptron"),
        lambda m, **w: sharpness.sharpness(m, STRINGS, std=0.01, draws=4, **w),
    ),
    "probes.sharpness.sharpnesses": (
        ("perceptron",),
        lambda m, **w: sharpness.sharpnesses(m, STRINGS, VALUES, rho=0.1, draws=4, **w),
    ),
    "probes.sharpness.worst_case": (
        ("perceptron",),
        lambda m, **w: [
            sharpness.worst_case(m, STRINGS, rho=0.1, steps=2, measure="prediction", **w),
            sharpness.worst_case(m, STRINGS, VALUES, rho=0.1, steps=2, measure="loss", **w),
        ],
    ),
    "probes.landscape.landscape": (
        ("transformer", "perceptron"),
        lambda m, **w: landscape(m, STRINGS, VALUES, points=3, dimensions=1, **w).losses,
    ),
    # Eigenvalues take hundreds of products, and a product with an LSTM thousands of operators, which the twin computes
    # slowly: eigenvalues are those of a small model, and the LSTM's only product is that of the trace.
    "probes.curvature.curvature": (
        ("perceptron", "transformer", "recurrent"),
        lambda m, **w: curvature(
            m,
            "mse",
            DATA,
            what=CURVATURE[type(getattr(m, "model", m))],
            probes=3,
            eigenvalues=1,
            tolerance=0.1,
            **w,
        ),
    ),
    "probes.hessian_products.loss_surface": (("perceptron",), lambda m, **w: product(m, **w)),
    "probes.gradients.squared_gradients": (
        ("perceptron", "recurrent"),
        lambda m, **w: squared_gradients(m, STRINGS, **w).by_name,
    ),
    "probes.flatness.flatness": (
        ("perceptron",),
        lambda m, **w: flatness.flatness(m, "mse", DATA, draws=2, probes=3, **w),
    ),
    "probes.perturbation.survivors": (
        ("perceptron",),
        lambda m: survivors(m, majority(N), 0.01, 1e-3, 2, np.random.default_rng(0)),
    ),
    "probes.perturbed.perturbed_loss": (
        ("perceptron",),
        lambda m, **w: perturbed_loss(m, STRINGS, 1e-2, draws=4, **w),
    ),
    "probes.perturbed_trace.split_trace": (
        ("perceptron",),
        lambda m: split_trace(m, STRINGS, VALUES, probes=2),
    ),
    "probes.perturbed_trace.trace_changes": (
        ("perceptron",),
        lambda m: trace_changes(m, STRINGS, (1e-2,), draws=2, probes=2),
    ),
    "training.fit.fit": (("transformer", "perceptron"), fitted),
    "training.fit.evaluate": (
        ("marker", "recurrent"),
        lambda m, **w: evaluate(m, type("Data", (), {"bits": STRINGS, "labels": LABELS})(), **w),
    ),
    "training.fit.answered": (
        ("perceptron",),
        lambda m: answered(m, [(TENSORS, torch.from_numpy(VALUES))], Aim("mse")),
    ),
    "training.recipes.sharper.squared_errors": (("transformer",), lambda m: squared_errors(m, STRINGS, VALUES)),
    "training.sparse_measures.marker_attention": (("marker",), lambda m: marker_attention(m, TENSORS)),
    "constructions.chain_of_thought.write_steps": (("steps",), lambda m: write_steps(m, TENSORS)),
    "constructions.fourier.check_network": (("fourier",), lambda m: check_network(m, SUM)),
    "constructions.fourier.rescaled": (("fourier",), lambda m: rescaled(m, 2.0).up),
    "constructions.fourier.norm_scale": (("fourier",), norm_scale),
    "constructions.fourier.gradient_scale": (("fourier",), lambda m: gradient_scale(m, STRINGS)),
    "constructions.sparse_variables.certify.certify": (
        ("attention",),
        lambda m: certify(m, (0, 2), construction().heads.target),
    ),
    "constructions.sparse_variables.export.as_transformer": (
        ("attention",),
        lambda m: list(as_transformer(m).parameters()),
    ),
}


def product(model: nn.Module, **where: Any) -> Any:
    with loss_surface(model, "mse", DATA, **where) as surface:
        return surface.products(np.eye(sum(each.numel() for each in getattr(model, "model", model).parameters()))[:2])


# ---------------------------------------------------------------- how results are compared


def plain(value: Any) -> Any:
    """Numbers out of records and containers; a tensor that was left on the device is an error."""
    if isinstance(value, Tensor):
        assert value.device.type == "cpu", "a result was left on the device"
        return value.detach().numpy()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


# Fields that say how a result was found, which may differ between devices.
HOW = ("seconds", "path", "path_reason", "precision", "margin", "tolerance", "rechecked")


def assert_same(first: Any, second: Any, where: str = "the result") -> None:
    if isinstance(first, dict):
        assert first.keys() == second.keys(), where
        for name in first:
            if name not in HOW:
                assert_same(first[name], second[name], f"{where}.{name}")
    elif isinstance(first, list):
        assert len(first) == len(second), where
        for number, pair in enumerate(zip(first, second, strict=True)):
            assert_same(*pair, f"{where}[{number}]")
    elif isinstance(first, float | np.ndarray | np.floating):
        np.testing.assert_allclose(second, first, rtol=2e-3, atol=1e-5, err_msg=where)
    else:
        assert isinstance(first, int | str | bool | None), f"{where} is a {type(first).__name__}: say how to compare it"
        assert first == second, where


def public() -> dict[str, Callable[..., Any]]:
    """The public functions of these rooms that take a model first, by room, module and name."""
    found = {}
    for room in (probes, training, constructions):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            content = importlib.import_module(module.name)
            for name, value in vars(content).items():
                if name.startswith("_") or not inspect.isfunction(value) or value.__module__ != module.name:
                    continue
                first = next(iter(inspect.signature(value).parameters), "")
                if first in ("model", "network"):
                    found[f"{module.name}.{name}".removeprefix("flipscope.")] = value
    return found


# ---------------------------------------------------------------- the four ways


def cases() -> Iterator[tuple[str, str]]:
    for name, (kinds, _) in ENTRIES.items():
        for kind in kinds:
            yield name, kind


def first_cases() -> Iterator[tuple[str, str]]:
    """Every entry point with one kind of model."""
    for name, (kinds, _) in ENTRIES.items():
        yield name, kinds[0]


@pytest.fixture(scope="module")
def expected() -> dict[tuple[str, str], Any]:
    return {}


def on_the_cpu(expected: dict[tuple[str, str], Any], name: str, kind: str) -> Any:
    """What the function gives with the model on the CPU, computed once."""
    if (name, kind) not in expected:
        expected[name, kind] = plain(ENTRIES[name][1](built(kind)))
    return expected[name, kind]


def takes_device(call: Callable[..., Any]) -> bool:
    return any(each.name in ("device", "w") for each in inspect.signature(call).parameters.values())


@pytest.mark.parametrize(("name", "kind"), list(cases()))
def test_the_model_is_on_the_device(device: torch.device, expected: dict[Any, Any], name: str, kind: str) -> None:
    wanted = on_the_cpu(expected, name, kind)
    model = built(kind).to(device)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    twin.ran.clear()
    found = plain(ENTRIES[name][1](model))
    assert twin.ran, "nothing was computed on the device"
    assert_same(wanted, found)
    assert {each.device.type for each in model.parameters()} == {"twin"}
    if name != "training.fit.fit":
        assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def takes_subject(call: Callable[..., Any]) -> bool:
    return "Model" in str(next(iter(inspect.signature(call).parameters.values())).annotation)


@pytest.mark.parametrize(
    ("name", "kind"),
    [case for case in first_cases() if takes_device(public()[case[0]]) or takes_subject(public()[case[0]])],
)
def test_the_device_is_said(device: torch.device, expected: dict[Any, Any], name: str, kind: str) -> None:
    """In a subject by measurements, as an argument by what trains."""
    wanted = on_the_cpu(expected, name, kind)
    model, function = built(kind), public()[name]
    twin.ran.clear()
    if takes_device(function):
        found = plain(ENTRIES[name][1](model, device="twin"))
    else:
        found = plain(ENTRIES[name][1](flipscope.Subject(model, device="twin")))
    assert twin.ran, "nothing was computed on the device"
    assert_same(wanted, found)
    assert {each.device.type for each in model.parameters()} == {"cpu"}


@pytest.mark.parametrize(("name", "kind"), list(first_cases()))
def test_the_default_device_is_another(device: torch.device, expected: dict[Any, Any], name: str, kind: str) -> None:
    wanted = on_the_cpu(expected, name, kind)
    torch.set_default_device(device)
    try:
        assert_same(wanted, plain(ENTRIES[name][1](built(kind))))
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize(("name", "kind"), list(first_cases()))
def test_the_device_has_no_float64(device: torch.device, expected: dict[Any, Any], name: str, kind: str) -> None:
    wanted = on_the_cpu(expected, name, kind)
    model = built(kind).to(device)
    with twin.without_float64():
        assert_same(wanted, plain(ENTRIES[name][1](model)))


# ---------------------------------------------------------------- the list is complete


# Functions that take a model first and are not called by users, or are about a configuration.
INTERNAL = {"probes.asking.asked", "training.low_sensitivity.buffers_kept", "training.presets.configured"}


def test_every_public_function_that_takes_a_model_is_in_the_list() -> None:
    assert public().keys() - INTERNAL == ENTRIES.keys()
    for name, (_, call) in ENTRIES.items():
        assert takes_device(public()[name]) <= takes_device(call), name


def test_the_functions_of_the_package_are_in_the_list() -> None:
    listed = {public()[name] for name in ENTRIES}
    for name in (
        "blowup",
        "curvature",
        "influences",
        "sensitivities",
        "sensitivity",
        "sensitivity_profile",
        "sharpness",
    ):
        assert getattr(flipscope, name) in listed, name


def test_models_that_are_split_over_devices_are_refused(device: torch.device) -> None:
    model = built("perceptron")
    model.second.to(device)
    for name, (kinds, call) in ENTRIES.items():
        if "perceptron" in kinds:
            with pytest.raises(InputError, match="split over the devices"):
                call(model)
            assert name
