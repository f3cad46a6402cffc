"""The one way in for models: encodings, outputs, models of other libraries, and a model that is left as it was."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import flipscope
from flipscope.adapters.subject import Subject
from flipscope.basics.errors import InputError
from flipscope.cube.functions import majority
from flipscope.probes.recognition import recognition
from flipscope.probes.sensitivity import sensitivities, sensitivity, sensitivity_profile, truth_table

STRINGS = np.random.default_rng(0).integers(0, 2, (12, 6)).astype(np.uint8)


class Seen(nn.Module):
    """Remembers what it was called with."""

    def __init__(self, tables: int = 0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, dtype=torch.float64))
        self.table = nn.Embedding(2, 1) if tables else None
        self.given: Any = None

    def forward(self, *arguments: Any, **keywords: Any) -> Tensor:
        self.given = keywords or arguments
        first: Tensor = next(iter((*arguments, *keywords.values())))
        return first.double().sum(dim=1) * self.weight


# ---------------------------------------------------------------- encodings


def test_bits_are_encoded_as_said() -> None:
    bits = np.array([[0, 1, 1]], np.uint8)
    expected: list[tuple[Any, list[float], torch.dtype]] = [
        ("auto", [0, 1, 1], torch.float64),
        ("bits", [0, 1, 1], torch.int64),
        ("floats", [0, 1, 1], torch.float64),
        ("signs", [1, -1, -1], torch.float64),
        ((7, 4), [7, 4, 4], torch.int64),
        (lambda bits: bits + 2.5, [2.5, 3.5, 3.5], torch.float64),
    ]
    for encoding, numbers, dtype in expected:
        model = Seen()
        Subject(model, encoding=encoding, precision="native").values(bits)
        assert model.given[0].tolist() == [numbers]
        assert model.given[0].dtype == dtype
    looks_up = Seen(tables=1)
    Subject(looks_up, precision="native").values(bits)
    assert looks_up.given[0].dtype == torch.int64


def test_functions_return_arguments_or_keywords() -> None:
    model = Seen()
    Subject(model, encoding=lambda bits: (bits, 1 - bits)).values([[0, 1]])
    assert [each.tolist() for each in model.given] == [[[0, 1]], [[1, 0]]]
    Subject(model, encoding=lambda bits: {"x": bits}).values([[0, 1]])
    assert model.given["x"].tolist() == [[0, 1]]


def test_what_a_subject_says_is_kept_and_can_be_changed() -> None:
    first = Subject(Seen(), encoding="signs", output="probability")
    again = first.replaced(encoding="bits", threshold=0.25)
    assert (again.encoding, again.output, again.threshold, again.model) == ("bits", "probability", 0.25, first.model)
    assert (first.encoding, first.threshold) == ("signs", None)
    with pytest.raises(InputError, match="a Subject already: give all its conventions to one Subject"):
        Subject(first, encoding="bits")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"encoding": "pixels"}, "encoding='pixels' is not one of auto, bits, floats, signs"),
        ({"encoding": (3, 3)}, "two different tokens"),
        ({"encoding": (-1, 3)}, "two different tokens"),
        ({"output": "class"}, "output='class' is not one of auto, logit"),
        ({"device": "nowhere"}, "device='nowhere' is none that PyTorch knows"),
    ],
)
def test_what_cannot_be_meant(options: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Subject(nn.Linear(6, 1), **options)


def test_a_model_of_tokens_is_not_guessed_at() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=9, num_labels=3, **sizes))
    with pytest.raises(InputError, match=r"say which two of them stand for 0 and 1, such as encoding=\(t0, t1\)"):
        sensitivity(model, STRINGS)
    subject = Subject(model, encoding=(5, 8))
    with torch.no_grad():
        ids = torch.from_numpy(np.where(STRINGS == 1, 8, 5))
        own = model.eval()(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    np.testing.assert_allclose(subject.values(STRINGS), own.numpy(), rtol=1e-5)
    assert subject.answers(STRINGS).tolist() == own.argmax(dim=1).tolist()
    two = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=2, num_labels=2, **sizes))
    assert Subject(two).settled().encoding == (0, 1)


# ---------------------------------------------------------------- outputs


class Ending(nn.Module):
    """A linear map and what comes after it."""

    def __init__(self, ending: Any, outputs: int = 1) -> None:
        super().__init__()
        self.linear, self.ending = nn.Linear(6, outputs), ending

    def forward(self, floats: Tensor) -> Any:
        return self.ending(self.linear(floats))


PROBABILITIES: dict[str, nn.Module] = {
    "nn.Sigmoid": nn.Sequential(nn.Linear(6, 1), nn.Sigmoid()),
    "nested": nn.Sequential(nn.Linear(6, 1), nn.Sequential(nn.Sequential(nn.Sigmoid()), nn.Flatten(0))),
    "torch.sigmoid": Ending(torch.sigmoid),
    "F.sigmoid, squeezed": Ending(lambda x: F.sigmoid(x).squeeze(-1)),
    "a column of a softmax": Ending(lambda x: x.softmax(dim=-1)[:, 1], 2),
    "in float64": Ending(lambda x: torch.sigmoid(x).double()),
    "in place": Ending(lambda x: x.sigmoid_()),
}


@pytest.mark.parametrize("name", PROBABILITIES)
def test_a_sigmoid_at_the_end_makes_probabilities(name: str) -> None:
    """The answers are those of the model without it, which has the same sign."""
    model = PROBABILITIES[name]
    torch.manual_seed(3)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=float(parameter.ndim > 1))
    found = sensitivities(model, STRINGS)
    assert (found.output, found.threshold) == ("probability", 0.5)
    linear = next(module for module in model.modules() if isinstance(module, nn.Linear))
    assert found.counts.tolist() == sensitivity(linear, STRINGS).tolist()
    assert found.counts.sum() > 0
    exact, plain = (flipscope.fourier.spectrum(each, 6) for each in (model, linear))
    np.testing.assert_array_equal(exact.sign.table(), plain.sign.table())


LOGITS: dict[str, nn.Module] = {
    "a sigmoid inside": nn.Sequential(nn.Linear(6, 4), nn.Sigmoid(), nn.Linear(4, 1)),
    "an affine map of a sigmoid": Ending(lambda x: 2 * torch.sigmoid(x) - 1),
    "changed in place": Ending(lambda x: torch.sigmoid(x).sub_(0.5)),
    "two classes of a softmax": Ending(nn.Softmax(dim=-1), 2),
}


@pytest.mark.parametrize("name", LOGITS)
def test_other_outputs_keep_the_threshold_0(name: str) -> None:
    assert sensitivities(LOGITS[name], STRINGS).threshold == 0.0


def shares(bits: Tensor) -> Tensor:
    """Outputs between 0 and 1 that no sigmoid made."""
    return bits.double().mean(dim=1) / 2 + 0.3


def compiled(way: Any, *example: Any) -> Any:
    """A sigmoid at the end of what PyTorch's older compiler made of a module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return way(nn.Sequential(nn.Linear(6, 1), nn.Sigmoid()), *example)


UNCLEAR: dict[str, Any] = {
    "a function": shares,
    "numpy": lambda bits: np.asarray(bits).mean(axis=1) / 2 + 0.3,
    "a traced module": compiled(torch.jit.trace, torch.ones(2, 6)),
    "a scripted module": compiled(torch.jit.script),
    "a function of the output": Subject(nn.Linear(6, 3), output=lambda out: out.softmax(1).numpy()[:, 1]),
}
BOTH = r"output='probability' for the answer 1 above 0\.5, or output='logit'|threshold=0\.5 for .*, or threshold=0"


@pytest.mark.parametrize("name", UNCLEAR)
def test_outputs_that_may_be_probabilities_or_not_are_refused(name: str) -> None:
    model = UNCLEAR[name]
    asks: list[Any] = [
        lambda: sensitivity(model, STRINGS),
        lambda: sensitivity_profile(model, 6, precision_target=1.0),
        lambda: truth_table(model, 6),
        lambda: flipscope.fourier.spectrum(model, 6),
        lambda: flipscope.fourier.degree_test(model, 6, 1),
        lambda: recognition(model, majority(6), 0.1),
        lambda: (model if isinstance(model, Subject) else Subject(model)).answers(STRINGS),
        lambda: flipscope.token_sensitivity(model, STRINGS.astype(np.float32), how="flip"),
    ]
    for ask in asks:
        with pytest.raises(InputError, match=BOTH):
            ask()
    flipscope.influences(model, STRINGS)  # of numbers, whatever they mean


def test_what_is_said_of_the_outputs_is_taken() -> None:
    assert sensitivity(Subject(shares, threshold=0.5), STRINGS).sum() > 0
    declared = sensitivities(Subject(shares, output="probability"), STRINGS)
    assert declared.threshold == 0.5
    assert declared.counts.tolist() == sensitivity(Subject(shares, threshold=0.5), STRINGS).tolist()
    assert sensitivities(Subject(shares, output="logit"), STRINGS).threshold == 0.0
    sensitivity(lambda bits: bits[:, 0], STRINGS)  # answers, not probabilities


def test_a_linear_layer_makes_logits_whatever_their_range() -> None:
    small = Ending(lambda x: 0.01 * 0 + x)
    nn.init.constant_(small.linear.weight, 0.01)
    nn.init.constant_(small.linear.bias, 0.3)
    found = sensitivities(small, STRINGS)
    assert (found.output, found.threshold, found.counts.sum()) == ("logit", 0.0, 0)
    assert (found.lowest > 0, found.highest < 1) == (True, True)


def test_the_threshold_does_not_depend_on_the_strings() -> None:
    """Whether all sampled outputs happen to lie between 0 and 1 or not."""
    model = Ending(torch.sigmoid)
    assert {sensitivities(model, STRINGS[k : k + 1]).threshold for k in range(12)} == {0.5}


def test_whole_numbers_of_a_function_are_classes_or_a_score() -> None:
    torch.manual_seed(3)
    scores = nn.Linear(6, 3)
    unclear: list[Any] = [
        lambda bits: scores(bits.float()).argmax(dim=1),
        lambda bits: bits.sum(dim=1),
        lambda bits: 2 * bits.sum(dim=1) - 6,
        Ending(lambda x: x.argmax(dim=1), 3),
    ]
    nn.init.orthogonal_(scores.weight, 9)
    nn.init.orthogonal_(unclear[3].linear.weight, 9)
    for model in unclear:
        with pytest.raises(InputError, match=r"classes or a score: say output='labels' .* or output='logit'"):
            sensitivity(model, STRINGS)
    late = np.zeros((3000, 12), np.uint8)  # the third class is in a later block than the first two
    late[-1] = 1
    with pytest.raises(InputError, match=r"whole numbers such as 0, 1, 2"):
        sensitivity(Subject(lambda bits: bits.sum(dim=1).clamp(max=2), memory_limit=1 << 14), late)
    counts = lambda bits: bits.sum(dim=1)  # noqa: E731
    labels = sensitivities(Subject(counts, output="labels"), STRINGS)
    assert (labels.counts.tolist(), labels.output, labels.threshold) == ([6] * 12, "labels", None)
    assert sensitivity_profile(Subject(counts, output="labels"), 6, exhaustive=True).profile == [0] * 6 + [64]
    with pytest.raises(InputError, match=r"decides between labels, and a truth table is of two"):
        truth_table(Subject(counts, output="labels"), 6)
    assert sensitivity(Subject(counts, output="logit"), STRINGS).tolist() == [
        6 if not string.any() else int(string.sum() == 1) for string in STRINGS
    ]
    for two in (lambda bits: bits[:, 0], lambda bits: bits[:, 0] > 0, lambda bits: 2 * bits[:, 0] - 1):
        assert sensitivity(two, STRINGS).tolist() == [1] * 12
    three = Subject(scores).answers(STRINGS)
    assert Subject(lambda bits: scores(bits.float()).argmax(dim=1), output="labels").answers(STRINGS).tolist() == list(
        three
    )
    with pytest.raises(InputError, match="needs whole numbers, one for each answer"):
        sensitivity(Subject(lambda bits: bits.sum(dim=1) / 2, output="labels"), STRINGS)


def test_outputs_on_one_side_of_the_threshold_are_told() -> None:
    bits = Subject(lambda bits: bits.sum(dim=1) / 7 + 1.1, output="logit")
    found = sensitivities(bits, STRINGS)
    assert found.counts.sum() == 0
    note = str(found.summary()["note"])
    assert "above the threshold 0, so that no flip changes an answer here: threshold= sets another" in note
    assert found.how()["one_sided"] == note
    assert "note" not in sensitivities(bits.replaced(threshold=1.5), STRINGS).summary()


OFFERED: list[tuple[Any, str]] = [
    (lambda x: (x, 3), r"say output=lambda out: out\[0\]$"),
    (lambda x: [x[:, 0]], r"say output=lambda out: out\[0\]$"),
    (lambda x: {"loss": 0.0, "answer": x}, r"say output=lambda out: out\['answer'\]"),
    (lambda x: x[:, None], r"say output=lambda out: out\.flatten\(\)"),
]


@pytest.mark.parametrize(("ending", "offer"), OFFERED)
def test_the_obvious_part_of_an_output_is_offered(ending: Any, offer: str) -> None:
    with pytest.raises(InputError, match=offer):
        sensitivity(Ending(ending), STRINGS)


class PositionFirst(nn.Module):
    """Reads [position, string], as recurrent networks without batch_first do; no table says how long strings are."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer, self.norm = nn.Embedding(2, 8), nn.GRU(8, 8), nn.LayerNorm(8)
        self.head = nn.Linear(8, 1)

    def forward(self, bits: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(self.layer(self.table(bits))[0][-1]))[:, 0]
        return out


def test_strings_may_be_on_the_second_axis() -> None:
    torch.manual_seed(0)
    model = PositionFirst()
    targets = np.linspace(0, 1, 12, dtype=np.float32)
    asks: list[Any] = [
        lambda model, strings, targets: sensitivity(model, strings),
        lambda model, strings, targets: flipscope.influences(model, strings),
        lambda model, strings, targets: flipscope.blowup(model, strings).beta,
        lambda model, strings, targets: flipscope.sharpness(model, strings, std=0.1, draws=2).draws,
        lambda model, strings, targets: [
            flipscope.curvature(model, "mse", (strings, targets), what="fisher_rao").fisher_rao.model
        ],
    ]
    transposed = Subject(model, encoding=lambda bits: bits.T)
    for ask in asks:
        found = ask(transposed, STRINGS, targets)
        assert len(found) in (12, 2, 1)
        for strings in (STRINGS, STRINGS[:6]):  # six strings of six bits look like themselves transposed
            with pytest.raises(InputError, match=r"say encoding=lambda bits: bits\.T"):
                ask(Subject(model, encoding="bits"), strings, targets[: len(strings)])
    alone = [float(flipscope.blowup(transposed, string[None]).beta[0]) for string in STRINGS]
    np.testing.assert_allclose(flipscope.blowup(transposed, STRINGS).beta, alone, rtol=1e-5)


def test_classes_are_decided_by_the_largest_logit() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 4)).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=float(parameter.ndim > 1))

    def decided(bits: Any) -> Any:
        with torch.no_grad():
            return model(torch.from_numpy(np.asarray(bits, np.float64))).argmax(dim=1).numpy()

    own = decided(STRINGS)
    flips = [decided(STRINGS ^ np.eye(6, dtype=np.uint8)[k]) for k in range(6)]
    expected = sum((each != own).astype(int) for each in flips)
    assert len(set(own)) > 2
    for copy in (model, torch.nn.Sequential(*model)):
        found = sensitivities(copy, STRINGS)
        assert found.counts.tolist() == expected.tolist()
        assert (found.output, found.threshold) == ("logits", None)
    every = ((np.arange(64)[:, None] >> np.arange(6)) & 1).astype(np.uint8)
    exact = sensitivity_profile(model, 6, exhaustive=True)
    counts = sensitivity(model, every)
    assert exact.profile == np.bincount(counts, minlength=7).tolist()
    assert exact.average_sensitivity == counts.mean()
    influences = [np.mean(decided(every ^ np.eye(6, dtype=np.uint8)[k]) != decided(every)) for k in range(6)]
    assert exact.influences == influences


def test_two_classes_of_three_that_are_equal_are_near_ties() -> None:
    found = sensitivities(Ending(lambda x: torch.cat([x, x, x - 9], dim=1)), STRINGS)
    assert found.near_ties == 12 * 7


def test_a_class_is_chosen_by_a_function_of_the_output() -> None:
    model = Ending(lambda x: x, 3)
    with pytest.raises(InputError, match="3 classes, and a truth table is of two"):
        truth_table(model, 6)
    with pytest.raises(InputError, match="choose it with output="):
        flipscope.fourier.spectrum(model, 6)
    second = Subject(model, output=lambda out: out[:, 1])
    weights = model.linear.weight[1]
    np.testing.assert_allclose(
        flipscope.fourier.spectrum(second, 6).real.coefficients[1 << np.arange(6)], -weights.detach() / 2, rtol=1e-4
    )
    assert sensitivity(Subject(model, output=lambda out: out[:, 1:]), STRINGS).shape == (12,)
    with pytest.raises(InputError, match="the function given as output= failed with KeyError"):
        sensitivity(Subject(model, output=lambda out: {}["logits"]), STRINGS)


@pytest.mark.parametrize(
    ("model", "options", "sentence"),
    [
        (nn.Linear(6, 3), {"output": "logit"}, "one number per string, but the model gives 3"),
        (nn.Linear(6, 1), {"output": "logits"}, "two numbers per string or more, but the model gives one"),
        (nn.Linear(6, 6), {}, "one per class or one per position: say output='logits'"),
        (Ending(lambda x: x[:, None]), {}, r"\(1, 1, 1\) are not one per string"),
        (Ending(lambda x: {"answer": x}), {}, "returned dict, not logits"),
    ],
)
def test_outputs_that_are_no_decision(model: nn.Module, options: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        sensitivity(Subject(model, batch=1, **options), STRINGS)
    assert sensitivity(Subject(nn.Linear(6, 6), output="logits"), STRINGS).shape == (12,)


# ---------------------------------------------------------------- other libraries


class Estimator:
    """Looks like one of scikit-learn's, with the methods it is given."""

    def __init__(self, **methods: Any) -> None:
        self.__dict__.update(methods)


def test_estimators_give_probabilities_then_decisions_then_labels() -> None:
    def ones(x: np.ndarray) -> np.ndarray:
        assert isinstance(x, np.ndarray)
        return x.sum(axis=1) - 2.5

    expected = (STRINGS.sum(axis=1) > 2.5).astype(int).tolist()
    probability = lambda x: np.stack([ones(x) < 0, ones(x) > 0], axis=1) * 1.0  # noqa: E731
    classes = np.array(["no", "yes"])
    words = lambda x: classes[(ones(x) > 0).astype(int)]  # noqa: E731
    makers = [
        Estimator(predict_proba=probability, predict=words, classes_=classes),
        Estimator(decision_function=ones, predict=words, classes_=classes),
        Estimator(predict=words, classes_=classes),
        Estimator(predict=lambda x: (ones(x) > 0).astype(int)),
    ]
    names = ["probabilities", "logit", "labels", "logit"]
    for model, name in zip(makers, names, strict=True):
        subject = Subject(model)
        assert subject.answers(STRINGS).tolist() == expected
        assert sensitivities(subject, STRINGS).output == name
        assert sensitivity(model, STRINGS).tolist() == sensitivity(lambda b: b.sum(dim=1) - 2.5, STRINGS).tolist()


def test_three_labels_are_three_classes() -> None:
    classes = np.array([3, 5, 9])
    model = Estimator(predict=lambda x: classes[x[:, :2].sum(axis=1)], classes_=classes)
    assert Subject(model).answers(STRINGS).tolist() == STRINGS[:, :2].sum(axis=1).tolist()
    assert sensitivity(model, STRINGS).tolist() == [2] * 12
    # A decision function of pairs of classes says nothing of each.
    paired = Estimator(predict=model.predict, classes_=classes, decision_function=lambda x: np.zeros((len(x), 6)))
    assert sensitivity(paired, STRINGS).tolist() == [2] * 12


def test_what_an_estimator_cannot_do_is_said() -> None:
    def unfitted(x: np.ndarray) -> np.ndarray:
        raise AttributeError("fit it first")

    with pytest.raises(InputError, match="with AttributeError: fit it first"):
        sensitivity(Estimator(predict=unfitted), STRINGS)
    labels = Estimator(predict=lambda x: x[:, 0], classes_=np.array([0, 1]))
    with pytest.raises(InputError, match="gives labels only"):
        flipscope.influences(labels, STRINGS)
    with pytest.raises(InputError, match="several outputs at once"):
        sensitivity(Estimator(predict_proba=lambda x: [x, x], predict=len), STRINGS)
    with pytest.raises(InputError, match="is for PyTorch models, and the model is a scikit-learn estimator"):
        Subject(labels, device="meta")


class Port:
    def __init__(self, name: str, type: str, shape: list[Any]) -> None:
        self.name, self.type, self.shape = name, type, shape


class Session:
    """Looks like one of ONNX Runtime."""

    def __init__(self, inputs: list[Port], outputs: list[Port], compute: Any) -> None:
        self.inputs, self.outputs, self.compute = inputs, outputs, compute

    def get_inputs(self) -> list[Port]:
        return self.inputs

    def get_outputs(self) -> list[Port]:
        return self.outputs

    def run(self, names: list[str], feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        for port in self.inputs:
            assert feed[port.name].dtype == {"tensor(float)": np.float32, "tensor(int64)": np.int64}[port.type]
            assert not isinstance(port.shape[0], int) or len(feed[port.name]) == port.shape[0]
        return [self.compute(**feed)]


def test_sessions_are_fed_by_the_types_and_names_they_declare() -> None:
    out = Port("logits", "tensor(float)", [None, 1])
    expected = (STRINGS.sum(axis=1) > 2.5).astype(int).tolist()
    plain = Session([Port("x", "tensor(float)", [None, 6])], [out], lambda x: x.sum(axis=1, keepdims=True) - 2.5)
    assert Subject(plain).answers(STRINGS).tolist() == expected
    fixed = Session([Port("x", "tensor(int64)", [5, 6])], [out], lambda x: x.sum(axis=1, keepdims=True) - 2.5)
    assert Subject(fixed).answers(STRINGS).tolist() == expected
    names = ["input_ids", "attention_mask"]
    text = Session(
        [Port(name, "tensor(int64)", [None, None]) for name in names],
        [out],
        lambda input_ids, attention_mask: ((input_ids == 7) * attention_mask).sum(axis=1) - 2.5,
    )
    assert Subject(text, encoding=(4, 7)).answers(STRINGS).tolist() == expected
    with pytest.raises(InputError, match="has the inputs input_ids, attention_mask: say what they are"):
        sensitivity(text, STRINGS)
    label = Port("label", "tensor(int64)", [None])
    both = Session([Port("x", "tensor(float)", [None, 6])], [label, Port("probabilities", "tensor(float)", [None, 2])],
                   lambda x: np.stack([x[:, 0] == 0, x[:, 0] == 1], axis=1) * 1.0)  # fmt: skip
    assert Subject(both).answers(STRINGS).tolist() == STRINGS[:, 0].tolist()
    assert sensitivities(both, STRINGS).output == "probabilities"


# ---------------------------------------------------------------- left as it was


class Careless(nn.Module):
    """Draws random numbers, switches gradients off and changes its mode, and may fail on the way."""

    def __init__(self, fails: bool) -> None:
        super().__init__()
        self.linear, self.fails = nn.Linear(6, 1), fails

    def forward(self, floats: Tensor) -> Tensor:
        torch.rand(3)
        np.random.rand(3)  # noqa: NPY002
        self.train()
        self.linear.weight.requires_grad_(False)
        self.linear.bias.grad = None
        if self.fails:
            raise ValueError("no")
        out: Tensor = self.linear(floats)
        return out


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(
    "ask",
    [
        lambda model: sensitivity(Subject(model, precision="native"), STRINGS),
        lambda model: flipscope.influences(Subject(model, precision="native"), STRINGS),
        lambda model: flipscope.fourier.spectrum(model, 6),
        lambda model: Subject(model).answers(STRINGS),
        lambda model: flipscope.sharpness(model, STRINGS, std=0.1, draws=2, parameters="linear.bias"),
    ],
)
def test_a_careless_model_is_left_as_it_was(ask: Any, fails: bool) -> None:
    model = Careless(fails)
    model.eval()
    model.linear.bias.grad = torch.ones(1)

    def state() -> list[Any]:
        numpy_state = np.random.get_state()  # noqa: NPY002
        return [
            torch.get_rng_state().tolist(),
            [each.tolist() if isinstance(each, np.ndarray) else each for each in numpy_state],
            model.training,
            model.linear.weight.requires_grad,
            model.linear.bias.grad.tolist() if model.linear.bias.grad is not None else None,
        ]

    before = state()
    if fails:
        with pytest.raises(InputError, match="ValueError: no"):
            ask(model)
    else:
        ask(model)
    assert state() == before


def test_pythons_generator_is_left_as_it_was() -> None:
    before = random.getstate()
    with Subject(nn.Linear(6, 1)).settled().measuring():
        random.random()
    assert random.getstate() == before
