"""Modules whose numbers are not plain parameters, or that overflow: each is measured rightly, or refused in a sentence.

Every answer is compared with calls of the model itself, in float64 where it can be had in that.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune

from flipscope.adapters.copies import copied, moved_by
from flipscope.adapters.subject import Subject
from flipscope.basics.errors import InputError
from flipscope.cube.functions import majority
from flipscope.flips.engine import neighbours
from flipscope.models import Transformer, encoder
from flipscope.probes import fourier
from flipscope.probes.influence import influences
from flipscope.probes.recognition import accept, recognition
from flipscope.probes.sensitivity import acceptance_flips, logit_changes, sensitivities, sensitivity_profile
from flipscope.probes.sharpness import sharpness, worst_case

LENGTH, COUNT = 8, 12
STRINGS = np.random.default_rng(0).integers(0, 2, (COUNT, LENGTH)).astype(np.uint8)
FLIPS = neighbours(STRINGS, np.arange(COUNT * (LENGTH + 1)))


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(LENGTH, 12), nn.Tanh(), nn.Linear(12, 1))


def plain_logits(model: nn.Module, dtype: torch.dtype) -> np.ndarray:
    """[string, itself and its flips], by a plain call."""
    with torch.no_grad():
        found = model(torch.from_numpy(FLIPS).to(dtype)).detach().double()
    logits: np.ndarray = (found[:, 1] - found[:, 0] if found.shape[1:] == (2,) else found.reshape(-1)).numpy()
    return logits.reshape(COUNT, -1)


def check_all(make: Callable[[], nn.Module], true: np.ndarray, precision: Any, reported: str) -> None:
    """Every probe of flips against these logits."""
    answers, changes = true > 0, true[:, 1:] - true[:, :1]
    found = sensitivities(Subject(make(), precision=precision), STRINGS)
    assert found.counts.tolist() == (answers[:, 1:] != answers[:, :1]).sum(axis=1).tolist()
    assert (found.precision, found.path, found.near_ties) == (reported, "general", 0)
    size = 1e-5 * max(1.0, np.abs(true).max())
    np.testing.assert_allclose(logit_changes(Subject(make(), precision=precision), STRINGS), changes, atol=size)
    np.testing.assert_allclose(influences(Subject(make(), precision=precision), STRINGS), np.abs(changes), atol=size)
    values = accept(true, 0.05)
    flips = acceptance_flips(Subject(make(), precision=precision), STRINGS, 0.05)
    assert flips.answers.tolist() == values[:, 0].tolist()
    assert flips.changed.tolist() == (values[:, 1:] != values[:, :1]).sum(axis=1).tolist()


# ---------------------------------------------------------------- numbers that are not plain parameters


class Constant(nn.Module):
    """Its one parameter, seen as the logits of all strings."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.linspace(1.3, 1.1, outputs))

    def forward(self, bits: Tensor) -> Tensor:
        return self.bias.expand(len(bits), -1) if len(self.bias) > 1 else self.bias[0].expand(len(bits))


class Waves(nn.Module):
    """Real and complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.phases = nn.Linear(LENGTH, 5), nn.Parameter(torch.randn(5, dtype=torch.complex64))

    def forward(self, bits: Tensor) -> Tensor:
        return (self.layer(bits) * self.phases).sum(dim=1).abs() - 1


class Twice(nn.Module):
    """One matrix in two places."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second, self.head = nn.Linear(LENGTH, LENGTH), nn.Linear(LENGTH, LENGTH), nn.Linear(LENGTH, 1)
        self.second.weight = self.first.weight

    def forward(self, bits: Tensor) -> Tensor:
        return 3 * self.head(torch.tanh(self.second(torch.tanh(self.first(bits))))) - 0.2  # type: ignore[no-any-return]


class Remembering(nn.Module):
    """Keeps the last call's states in a list, with the history of their gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.network, self.states = mlp(), []  # type: ignore[var-annotated]

    def forward(self, bits: Tensor) -> Tensor:
        self.states = [self.network[0](bits)]
        return self.network[2](self.network[1](self.states[0]))  # type: ignore[no-any-return]


class Squashed(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight.tanh()


def pruned() -> nn.Module:
    model = mlp()
    prune.l1_unstructured(model[0], "weight", amount=0.3)
    prune.random_unstructured(model[0], "bias", amount=0.5)
    prune.ln_structured(model[0], "weight", amount=0.2, n=2, dim=0)
    return model


def old_weight_norm() -> nn.Module:
    model = mlp()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.weight_norm(model[0])
    return model


def changed(change: Callable[[nn.Module], object]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        model = mlp()
        change(model[0])
        return model

    return make


def called(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """After a forward with gradients, as in training."""

    def asked() -> nn.Module:
        model = make()
        model(torch.ones(2, LENGTH)).sum().backward()
        return model

    return asked


MODULES: dict[str, Callable[[], nn.Module]] = {
    "a constant": lambda: Constant(1),
    "two constants": lambda: Constant(2),
    "pruned": pruned,
    "pruned, trained": called(pruned),
    "weight norm by a hook": old_weight_norm,
    "weight norm by a hook, trained": called(old_weight_norm),
    "spectral norm by a hook, trained": called(changed(nn.utils.spectral_norm)),
    "weight norm": changed(parametrizations.weight_norm),
    "spectral norm": changed(parametrizations.spectral_norm),
    "a parametrisation": changed(lambda layer: parametrize.register_parametrization(layer, "weight", Squashed())),
    "tied weights": Twice,
    "complex numbers": Waves,
    "states kept": called(Remembering),
    "DataParallel": lambda: nn.DataParallel(pruned()),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_measured_as_it_computes(name: str) -> None:
    make = MODULES[name]
    narrow, wide = make().eval(), make().eval().double()
    if isinstance(wide, Waves):
        wide.phases.data = wide.phases.data.cdouble()  # double() means real numbers only
    for precision, reported in (("auto", "float32+float64"), ("float64", "float64")):
        check_all(make, plain_logits(wide, torch.float64), precision, reported)
    check_all(make, plain_logits(narrow, torch.float32), "native", "native")
    every = fourier.spectrum(make(), LENGTH)
    index = FLIPS.astype(np.int64) @ (1 << np.arange(LENGTH))
    np.testing.assert_allclose(every.logits[index], plain_logits(narrow, torch.float32).reshape(-1), atol=1e-5)
    assert sensitivity_profile(make(), LENGTH, exhaustive=True).near_ties == 0


@pytest.mark.parametrize("name", MODULES)
def test_a_copy_has_the_same_numbers_and_none_in_common(name: str) -> None:
    model = MODULES[name]()
    before = plain_logits(model.eval(), torch.float32)
    other = copied(model)
    np.testing.assert_array_equal(plain_logits(other, torch.float32), before)
    for parameter in other.parameters():
        nn.init.zeros_(parameter)
    np.testing.assert_array_equal(plain_logits(model, torch.float32), before)
    other = copied(model)
    with moved_by(other, 1e-3):
        moved = np.abs(plain_logits(other, torch.float32) - before)
    np.testing.assert_array_equal(plain_logits(other, torch.float32), before)
    assert 1e-6 < moved.max() < 0.1
    tied = [len({id(p) for p in some.parameters()}) for some in (model, other)]
    assert tied[0] == tied[1]


def frozen(optimised: bool = False) -> Any:
    script = torch.jit.script(mlp().eval())
    return torch.jit.optimize_for_inference(script) if optimised else torch.jit.freeze(script)


@pytest.mark.parametrize("optimised", [False, True])
def test_a_frozen_script_is_asked_natively(optimised: bool) -> None:
    """Its weights are constants of its code: there is nothing to convert."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        make = lambda: frozen(optimised)  # noqa: E731
        true = plain_logits(make(), torch.float32)
        for precision in ("auto", "native"):
            check_all(make, true, precision, "native")
        assert fourier.spectrum(make(), LENGTH).n == LENGTH
        with pytest.raises(InputError, match=r"failed on .* evaluated in float64: .* precision='native'"):
            sensitivities(Subject(make(), precision="float64"), STRINGS)
        inside = nn.Sequential(nn.Linear(LENGTH, LENGTH), make())
        with pytest.raises(InputError, match=r"failed on .* evaluated in float64: .* precision='native'"):
            sensitivities(inside, STRINGS)
        check_all(lambda: inside, plain_logits(inside, torch.float32), "native", "native")


def test_a_lazy_module_is_refused_until_it_has_numbers() -> None:
    for model in (
        nn.Sequential(nn.LazyLinear(12), nn.Tanh(), nn.LazyLinear(1)),
        nn.Sequential(nn.Linear(LENGTH, 4), nn.LazyBatchNorm1d(affine=False), nn.Linear(4, 1)),
    ):
        for ask in (sensitivities, logit_changes, influences):
            with pytest.raises(InputError, match=r"the model has no \d\.\w+ yet: call it on some strings once"):
                ask(model, STRINGS)  # type: ignore[operator]
        model(torch.from_numpy(STRINGS).float())
        true = plain_logits(copy.deepcopy(model).double().eval(), torch.float64)
        check_all(lambda model=model: model, true, "auto", "float32+float64")  # type: ignore[misc]


def test_a_module_built_in_inference_mode() -> None:
    with torch.inference_mode():
        model = mlp()
    check_all(lambda: model, plain_logits(model, torch.float32), "auto", "float32+float64")
    with pytest.raises(InputError, match=r"the parameter 0\.weight was made in torch\.inference_mode"):
        sharpness(model, torch.from_numpy(STRINGS), std=0.02, draws=2)


def test_the_worst_case_of_answers_without_gradient() -> None:
    class Answers(nn.Sequential):
        def forward(self, bits: Tensor) -> Tensor:
            return (super().forward(bits) > 0).long()

    with pytest.raises(InputError, match="do not depend on the parameters chosen"):
        worst_case(Answers(*mlp()), torch.from_numpy(STRINGS), np.zeros((COUNT, 1)), rho=0.05)


# ---------------------------------------------------------------- overflow


class Exponentials(nn.Module):
    """Softmax as it is written: beyond e^88 float32 has inf / inf, and float64 has none of it."""

    def __init__(self, shift: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.head = nn.Linear(LENGTH, 12), nn.Linear(12, 1)
        with torch.no_grad():
            self.layer.weight.mul_(60)
            self.layer.bias.add_(shift)

    def forward(self, bits: Tensor) -> Tensor:
        powers = self.layer(bits).exp()
        return self.head(powers / powers.sum(dim=1, keepdim=True))  # type: ignore[no-any-return]


class Cubed(nn.Module):
    """Logits that are infinite in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.network = mlp()

    def forward(self, bits: Tensor) -> Tensor:
        return (1e20 * self.network(bits)).pow(3)  # type: ignore[no-any-return]


@pytest.mark.parametrize("make", [lambda: Exponentials(70), lambda: Exponentials(35), Cubed])
def test_what_overflows_in_float32_only_is_measured_in_float64(make: Callable[[], nn.Module]) -> None:
    assert not np.isfinite(plain_logits(make(), torch.float32)).all()
    true = plain_logits(make().double(), torch.float64)
    assert np.isfinite(true).all()
    check_all(make, true, "auto", "float64")
    answers = true > 0
    found = sensitivities(make(), STRINGS, heuristic=True)
    assert found.counts.tolist() == (answers[:, 1:] != answers[:, :1]).sum(axis=1).tolist()
    assert sensitivity_profile(make(), LENGTH, exhaustive=True).precision == "float64"
    assert np.isfinite(fourier.spectrum(make(), LENGTH).logits).all()


def test_what_overflows_in_its_own_type_is_told_where_that_is_meant() -> None:
    for ask in (sensitivities, logit_changes, influences):
        with pytest.raises(InputError, match="the model gave NaN"):
            ask(Subject(Exponentials(70), precision="native"), STRINGS)
    with pytest.raises(InputError, match="infinite logits, whose changes are not numbers"):
        logit_changes(Subject(Cubed(), precision="native"), STRINGS)


def test_what_overflows_in_float64_too() -> None:
    model = Exponentials(70)
    nn.init.constant_(model.layer.bias, 1e3)
    for ask in (sensitivities, logit_changes, influences):
        with pytest.raises(InputError, match="the model gave NaN"):
            ask(model, STRINGS)  # type: ignore[operator]


# ---------------------------------------------------------------- recognition


def test_recognition_of_odd_modules() -> None:
    function = majority(LENGTH)
    values = function((np.arange(256)[:, None] >> np.arange(LENGTH) & 1).astype(np.uint8))
    found = recognition(Constant(1), function, 0.1)
    assert (found.correct, found.undefined) == (int(values.sum()), 0)
    coarse = Transformer(encoder(16, 2, 2), seed=1).bfloat16()
    assert recognition(coarse, function, 0.1).strings == 256
    assert recognition(nn.Linear(LENGTH, 1), function, 0.1).strings == 256
    assert accept(torch.tensor([math.pi, -math.pi], dtype=torch.bfloat16), 1.0).tolist() == [1, 0]
