"""Models of many kinds at default arguments: each is compared with a loop that asks one string at a time.

The loop knows how each model is called and what its output means, and uses nothing of flipscope.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import flipscope
from flipscope import Subject
from flipscope.basics.errors import InputError

LENGTH = 8
STRINGS = np.random.default_rng(5).integers(0, 2, (10, LENGTH)).astype(np.uint8)
Answer = Callable[[NDArray[np.uint8]], int]


class Ending(nn.Module):
    """A module put together of others and a function of them."""

    def __init__(self, run: Callable[[Any, Tensor], Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.parts, self.run = nn.ModuleDict(parts), run

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self.parts, x)


def linear(rows: int, columns: int = 1) -> nn.Linear:
    return nn.Linear(rows, columns)


def grown(module: nn.Module) -> nn.Module:
    """With larger weights, so that flips matter."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(3.0 if parameter.ndim > 1 else 1.0)
    return module


class Experts(nn.Module):
    """Each string goes to one of two experts."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.first, self.second = linear(LENGTH), linear(LENGTH), linear(LENGTH)

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(self.gate(x) > 0, self.first(x).sin(), self.second(x).cos() - 0.5)


class LowRank(nn.Module):
    """A frozen layer with a trained correction of low rank, as LoRA writes it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base, self.down, self.up = base.requires_grad_(False), nn.Linear(LENGTH, 2, bias=False), nn.Linear(2, 12)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + 2.0 * self.up(self.down(x))
        return out


class Binary(nn.Module):
    """Units that say only 1 or -1."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = linear(LENGTH, 9), linear(9)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.first(x).sign())[:, 0]
        return out


class Settling(nn.Module):
    """A recurrence that is run until it hardly moves: how many steps depends on the string."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.across, self.head = linear(LENGTH, 6), nn.Linear(6, 6, bias=False), linear(6)

    def forward(self, x: Tensor) -> Tensor:
        drive = self.inward(x)
        state = torch.zeros_like(drive)
        for _ in range(12):
            state = torch.tanh(drive + 0.3 * self.across(state))
        out: Tensor = self.head(state)
        return out


def normed() -> nn.Module:
    model = nn.Sequential(nn.Linear(LENGTH, 16), nn.BatchNorm1d(16), nn.ELU(), nn.Dropout(0.3), nn.Linear(16, 1))
    for _ in range(5):
        model(torch.randn(64, LENGTH))
    return model.train()


def decoder() -> nn.Module:
    layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    parts = {"table": nn.Embedding(2, 8), "query": nn.Embedding(1, 8), "layer": layer, "head": linear(8)}

    def run(parts: Any, bits: Tensor) -> Tensor:
        query = parts["query"].weight.expand(len(bits), 1, 8)
        out: Tensor = parts["head"](parts["layer"](query, parts["table"](bits).cumsum(1)))[:, 0, 0]
        return out

    return Ending(run, **parts)


def attention() -> nn.Module:
    def run(parts: Any, bits: Tensor) -> Tensor:
        x = parts["table"](bits + 2 * torch.arange(LENGTH))
        out: Tensor = parts["head"](parts["attend"](x, x, x, need_weights=False)[0][:, 0])
        return out

    return Ending(
        run, table=nn.Embedding(2 * LENGTH, 12), attend=nn.MultiheadAttention(12, 3, batch_first=True), head=linear(12)
    )


def bag() -> nn.Module:
    return Ending(
        lambda parts, bits: parts["head"](parts["bag"](bits + 2 * torch.arange(LENGTH))),
        bag=nn.EmbeddingBag(2 * LENGTH, 5, mode="max"),
        head=linear(5),
    )


# fmt: off
# Modules on floats or bits by their own choice, with one output or two, in float64 in the loop.
MODULES: dict[str, Callable[[], nn.Module]] = {
    "bilinear": lambda: Ending(lambda p, x: p["b"](x[:, :4], x[:, 4:])[:, 0] - 0.1, b=nn.Bilinear(4, 4, 1)),
    "vanilla RNN": lambda: Ending(
        lambda p, x: p["head"](p["rnn"](x[..., None])[1][0]), rnn=nn.RNN(1, 6, batch_first=True), head=linear(6),
    ),
    "bidirectional LSTM": lambda: Ending(
        lambda p, x: p["head"](p["lstm"](x[..., None])[0].amax(dim=1)),
        lstm=nn.LSTM(1, 4, batch_first=True, bidirectional=True), head=linear(8),
    ),
    "two-dimensional convolution": lambda: Ending(
        lambda p, x: p["head"](p["conv"](x.reshape(-1, 1, 2, 4)).relu().flatten(1)),
        conv=nn.Conv2d(1, 5, (2, 2)), head=linear(15),
    ),
    "bag of embeddings": bag,
    "attention alone": attention,
    "decoder that asks its memory": decoder,
    "deep sets": lambda: Ending(
        lambda p, x: p["outer"](p["inner"](x[..., None] + torch.linspace(0, 1, LENGTH).to(x)[:, None]).tanh().sum(1)),
        inner=linear(1, 7), outer=linear(7),
    ),
    "Fourier layer": lambda: Ending(lambda p, x: p["head"](torch.fft.rfft(x).abs()), head=linear(LENGTH // 2 + 1)),
    "radial basis functions": lambda: Ending(
        lambda p, x: p["head"]((-torch.cdist(x, p["centres"].weight).square() / 4).exp()),
        centres=linear(LENGTH, 6), head=linear(6),
    ),
    "mixture of experts": Experts,
    "binary units": Binary,
    "fixed point": Settling,
    "batch norm, left in training mode": normed,
    "low-rank correction": lambda: nn.Sequential(LowRank(linear(LENGTH, 12)), nn.Tanh(), linear(12, 2)),
    "grouped norm and GLU": lambda: nn.Sequential(
        nn.Linear(LENGTH, 12), nn.GroupNorm(3, 12), nn.GLU(), nn.Linear(6, 2),
    ),
    "residual with a gate": lambda: Ending(
        lambda p, x: p["head"](x + p["gate"](x).sigmoid() * p["body"](x)),
        gate=linear(LENGTH, LENGTH), body=linear(LENGTH, LENGTH), head=linear(LENGTH),
    ),
    "polynomial": lambda: Ending(
        lambda p, x: (p["first"](x) * p["second"](x)).sum(1), first=linear(LENGTH, 3), second=linear(LENGTH, 3),
    ),
    "sorted inputs": lambda: Ending(
        lambda p, x: p["head"]((x * p["scale"].weight[0]).sort(dim=1).values),
        scale=linear(LENGTH), head=linear(LENGTH),
    ),
}
# fmt: on
LOOKING_UP = ("bag of embeddings", "attention alone", "decoder that asks its memory")


def made(name: str) -> nn.Module:
    torch.manual_seed(11)
    return grown(MODULES[name]())


def loop(answer: Answer) -> list[int]:
    """Def 2.2, one string and one flip at a time."""
    counts = []
    for string in STRINGS:
        flips = [string ^ np.eye(LENGTH, dtype=np.uint8)[place] for place in range(LENGTH)]
        counts.append(sum(answer(flip) != answer(string) for flip in flips))
    return counts


def of_module(name: str) -> Callable[[NDArray[np.uint8]], NDArray[np.float64]]:
    """The outputs for one string by a float64 copy in evaluation mode."""
    wide = copy.deepcopy(made(name)).double().eval()

    def outputs(string: NDArray[np.uint8]) -> NDArray[np.float64]:
        given = torch.from_numpy(string[None].astype(np.int64))
        with torch.no_grad():
            found: NDArray[np.float64] = (
                wide(given if name in LOOKING_UP else given.double()).double().reshape(-1).numpy()
            )
        return found

    return outputs


def decided(outputs: NDArray[np.float64]) -> int:
    return int(outputs[0] > 0) if len(outputs) == 1 else int(outputs.argmax())


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_any_kind_equals_the_loop(name: str) -> None:
    outputs = of_module(name)
    assert flipscope.sensitivity(made(name), STRINGS).tolist() == loop(lambda string: decided(outputs(string)))
    moved = [
        [np.linalg.norm(outputs(string) - outputs(string ^ flip)) for flip in np.eye(LENGTH, dtype=np.uint8)]
        for string in STRINGS
    ]
    np.testing.assert_allclose(flipscope.influences(made(name), STRINGS), moved, rtol=2e-4, atol=2e-5)


def test_these_modules_are_no_constants() -> None:
    counts = {name: flipscope.sensitivity(made(name), STRINGS).sum() for name in MODULES}
    assert sum(count > 0 for count in counts.values()) >= len(counts) - 4, counts


# ---------------------------------------------------------------- other libraries, functions, other forms of a module


def labelled() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rows = np.random.default_rng(1).integers(0, 2, (300, LENGTH))
    return rows, ((rows[:, :3].sum(1) >= 2) ^ (rows[:, 3] & rows[:, 4])).astype(np.int64)


ESTIMATORS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "support vectors": ("svm", "SVC", {}),
    "gradient boosting": ("ensemble", "GradientBoostingClassifier", {"n_estimators": 20, "random_state": 0}),
    "nearest neighbours": ("neighbors", "KNeighborsClassifier", {"n_neighbors": 3}),
    "decision tree": ("tree", "DecisionTreeClassifier", {"random_state": 0}),
    "naive Bayes": ("naive_bayes", "BernoulliNB", {}),
    "ridge classifier": ("linear_model", "RidgeClassifier", {}),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("classes", [2, 3])
def test_an_estimator_equals_the_loop_over_its_predictions(name: str, classes: int) -> None:
    module, kind, options = ESTIMATORS[name]
    found = getattr(pytest.importorskip(f"sklearn.{module}"), kind)(**options)
    rows, labels = labelled()
    model = found.fit(rows, labels if classes == 2 else labels + rows[:, 5])
    assert flipscope.sensitivity(model, STRINGS).tolist() == loop(lambda string: int(model.predict(string[None])[0]))


def test_a_pipeline_of_words_equals_the_loop() -> None:
    pipeline = pytest.importorskip("sklearn.pipeline")
    preprocessing, linear_model = (
        pytest.importorskip("sklearn.preprocessing"),
        pytest.importorskip("sklearn.linear_model"),
    )
    rows, labels = labelled()
    steps = preprocessing.PolynomialFeatures(2), preprocessing.StandardScaler(), linear_model.LogisticRegression()
    model = pipeline.make_pipeline(*steps).fit(rows, np.array(["no", "yes"])[labels])
    assert flipscope.sensitivity(model, STRINGS).tolist() == loop(
        lambda string: int(model.predict(string[None])[0] == "yes")
    )


def test_a_regressor_is_asked_what_it_means() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    rows, _ = labelled()
    model = linear_model.LinearRegression().fit(rows, rows[:, :3].sum(1) >= 2)
    assert model.predict(rows).max() > 1  # it leaves [0, 1]
    with pytest.raises(InputError, match=r"output='probability' for the answer 1 above 0\.5, or output='logit'"):
        flipscope.sensitivity(model, STRINGS)
    counts = flipscope.sensitivity(Subject(model, output="probability"), STRINGS)
    assert counts.tolist() == loop(lambda string: int(model.predict(string[None])[0] > 0.5))


def python_function(bits: Tensor) -> list[float]:
    """Row by row, in plain Python."""
    return np.array([sum(row[:3]) % 2 - 0.5 + row[5] * row[6] for row in bits.tolist()])


def test_functions_equal_the_loop() -> None:
    weights = torch.linspace(-1, 1, LENGTH)
    by_row = torch.vmap(lambda row: (row * weights).sum().sin() - 0.1)
    for function in (python_function, lambda bits: by_row(bits.float())):
        answer = lambda string, function=function: int(function(torch.from_numpy(string[None]).long())[0] > 0)  # noqa: E731
        assert flipscope.sensitivity(function, STRINGS).tolist() == loop(answer)


def network() -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(LENGTH, 12), nn.Tanh(), nn.Linear(12, 1)).eval()


def test_other_forms_of_a_module_give_its_answers() -> None:
    plain = grown(network())
    expected = flipscope.sensitivity(plain, STRINGS).tolist()
    example = torch.zeros(2, LENGTH)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forms: dict[str, Any] = {
            "scripted": torch.jit.script(plain),
            "traced": torch.jit.trace(plain, example),
            "compiled": torch.compile(plain),
            "exported": torch.export.export(
                plain, (example,), dynamic_shapes=({0: torch.export.Dim("rows")},)
            ).module(),
            "functional": lambda bits: torch.func.functional_call(plain, dict(plain.named_parameters()), bits.float()),
            "data parallel": nn.DataParallel(plain),
            "in bfloat16 and back": copy.deepcopy(plain),
        }
        for name, form in forms.items():
            assert flipscope.sensitivity(form, STRINGS).tolist() == expected, name


def test_half_precision_is_one_model_in_every_measurement() -> None:
    coarse = grown(network()).bfloat16()
    wide = copy.deepcopy(coarse).float()
    found, plain = (flipscope.sensitivities(each, STRINGS) for each in (coarse, wide))
    assert (found.counts.tolist(), found.precision) == (plain.counts.tolist(), "float32+float64")
    measured = [flipscope.fourier.spectrum(each, LENGTH) for each in (coarse, wide)]
    np.testing.assert_array_equal(measured[0].logits, measured[1].logits)
    assert (measured[0].precision, measured[1].precision) == ("float32 copy of bfloat16 weights", "float32")
    np.testing.assert_array_equal(*(flipscope.influences(each, STRINGS) for each in (coarse, wide)))
    draws = [flipscope.sharpness(each, STRINGS.astype(np.float32), std=0.1, draws=3) for each in (coarse, wide)]
    np.testing.assert_array_equal(draws[0].draws, draws[1].draws)
    targets = np.zeros((len(STRINGS), 1), np.float32)
    traces = [flipscope.curvature(each, "mse", (STRINGS, targets), what="trace").trace for each in (coarse, wide)]
    assert traces[0].value == traces[1].value
    assert coarse[0].weight.dtype == torch.bfloat16
    own = flipscope.sensitivities(Subject(coarse, precision="native"), STRINGS)
    assert own.precision == "native"


def test_dynamic_quantisation_is_of_the_whole_batch() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantised = torch.ao.quantization.quantize_dynamic(grown(network()), {nn.Linear}, torch.qint8)
        with pytest.raises(
            InputError, match=r"dynamically quantised layers, or ask one string at a time|say precision='native'"
        ):
            flipscope.sensitivity(quantised, STRINGS)
        counts = flipscope.sensitivity(Subject(quantised, batch=1, precision="native"), STRINGS)
        answer = lambda string: int(quantised(torch.from_numpy(string[None]).float())[0, 0] > 0)  # noqa: E731
        assert counts.tolist() == loop(answer)
