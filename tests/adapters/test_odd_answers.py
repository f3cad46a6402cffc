"""Outputs that are easily taken for something else, and models that remember: each was measured wrongly once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import flipscope
from flipscope import Subject
from flipscope.basics.errors import InputError
from flipscope.cube.functions import majority
from flipscope.data.batches import Examples
from flipscope.probes.recognition import recognition
from flipscope.probes.sensitivity import acceptance_flips, logit_changes, sensitivity_profile, truth_table
from flipscope.training.fit import evaluate

LENGTH = 6
EVERY = ((np.arange(64)[:, None] >> np.arange(LENGTH)) & 1).astype(np.uint8)


def loop(answer: Any) -> list[int]:
    """Def 2.2 over all strings, one flip at a time."""
    own = [answer(string) for string in EVERY]
    return [sum(own[k ^ (1 << bit)] != own[k] for bit in range(LENGTH)) for k in range(64)]


class Port:
    def __init__(self, name: str, type: str) -> None:
        self.name, self.type, self.shape = name, type, [None, LENGTH]


class Session:
    """Looks like one of ONNX Runtime, with outputs of these names and types."""

    def __init__(self, outputs: dict[str, str], run: Any) -> None:
        self.outputs, self.compute = outputs, run

    def get_inputs(self) -> list[Port]:
        return [Port("x", "tensor(float)")]

    def get_outputs(self) -> list[Port]:
        return [Port(*each) for each in self.outputs.items()]

    def run(self, names: Any, feed: Any) -> list[np.ndarray]:
        return [self.compute(feed["x"])]


def test_one_column_of_declared_probabilities_is_a_probability() -> None:
    session = Session({"probability": "tensor(float)"}, lambda x: 1 / (1 + np.exp(2.5 - x.sum(1, keepdims=True))))
    assert flipscope.sensitivity(session, EVERY).tolist() == loop(lambda string: string.sum() > 2.5)


@pytest.mark.parametrize(
    "label",
    [lambda x: x.sum(1) % 3, lambda x: np.where(x.sum(1) > 2.5, 1, -1), lambda x: np.where(x.sum(1) > 2.5, 2, 1)],
)
def test_labels_of_a_session_are_answers(label: Any) -> None:
    session = Session({"label": "tensor(int64)"}, lambda x: label(x).astype(np.int64))
    expected = loop(lambda string: int(label(string[None])[0]))
    found = flipscope.sensitivities(session, EVERY)
    assert (found.counts.tolist(), found.threshold, found.one_sided) == (expected, None, None)
    assert sensitivity_profile(session, LENGTH, exhaustive=True).profile == np.bincount(expected, minlength=7).tolist()
    with pytest.raises(InputError, match="a truth table is of two"):
        truth_table(session, LENGTH)


def test_labels_0_and_1_have_a_truth_table() -> None:
    subject = Subject(lambda bits: (bits.sum(dim=1) > 2).long(), output="labels")
    assert truth_table(subject, LENGTH).table().tolist() == [int(string.sum() > 2) for string in EVERY]


def test_a_threshold_is_for_the_probability_of_one() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(LENGTH, 2), nn.Softmax(dim=1)).double()
    with torch.no_grad():
        share = model(torch.from_numpy(EVERY).double())[:, 1].numpy()
    for threshold in (0.3, 0.5, 0.7):
        table = {string.tobytes(): value > threshold for string, value in zip(EVERY, share, strict=True)}
        expected = loop(lambda string, table=table: table[string.tobytes()])
        assert flipscope.sensitivity(Subject(model, threshold=threshold), EVERY).tolist() == expected
    with pytest.raises(InputError, match="a threshold is for one number per string"):
        flipscope.sensitivity(Subject(nn.Linear(LENGTH, 3), threshold=0.7), EVERY)


def test_a_model_may_write_every_output_to_one_place() -> None:
    place = np.zeros(9000)

    def reused(bits: Tensor) -> np.ndarray:
        place[: len(bits)] = bits.numpy().sum(axis=1) - 2.5
        return place[: len(bits)]

    for batch in (None, 8):
        found = flipscope.sensitivity(Subject(reused, batch=batch), EVERY)
        assert found.tolist() == loop(lambda string: string.sum() > 2.5)
        assert Subject(reused, batch=batch).answers(EVERY).tolist() == [int(string.sum() > 2.5) for string in EVERY]


class Carrying(nn.Module):
    """Adds what the last call of the same size gave."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(LENGTH, 1), torch.zeros(0)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x)
        out = out + self.last if self.last.shape == out.shape else out
        self.last = out.detach().clone()
        return out


def test_a_model_that_remembers_its_last_call_is_refused() -> None:
    for ask in (flipscope.sensitivity, flipscope.influences):
        with pytest.raises(InputError, match="for the same inputs"):
            ask(Carrying(), EVERY)


def test_memory_is_noticed_also_where_every_output_is_written_to_one_place() -> None:
    place, calls = np.zeros(9000), iter(range(1000))

    def counted(bits: Tensor) -> np.ndarray:
        place[: len(bits)] = bits.numpy().sum(axis=1) - 2.5 + next(calls)
        return place[: len(bits)]

    with pytest.raises(InputError, match="for the same inputs"):
        flipscope.sensitivity(counted, EVERY)


class Largest(nn.Module):
    """The number of a class, as a floating-point number."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.layer = nn.Linear(LENGTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).argmax(dim=1).float()


def test_numbers_of_classes_are_told_from_scores_whatever_gives_them() -> None:
    unclear: list[Any] = [
        Largest(),
        Subject(Largest().layer, output=lambda out: out.argmax(1)),
        lambda bits: 1 + bits[:, 0],
    ]
    for model in unclear:
        with pytest.raises(InputError, match="classes or a score"):
            flipscope.sensitivity(model, EVERY)


LABELS = Subject(lambda bits: bits.sum(dim=1) % 3, output="labels")
REFUSED: list[tuple[Any, str]] = [
    (
        lambda: acceptance_flips(LABELS, EVERY, 0.5),
        "acceptance with a margin is of a logit, and the model gives labels",
    ),
    (lambda: logit_changes(LABELS, EVERY), "the model gives labels, and changes of the logit"),
    (lambda: recognition(LABELS, majority(LENGTH), 0.5), "recognition is by a logit with a margin"),
    (lambda: flipscope.sensitivity(LABELS, EVERY, heuristic=True), "heuristic=True is for answers of 0 and 1"),
    (
        lambda: flipscope.sensitivity(nn.Linear(LENGTH, 3), EVERY, heuristic=True),
        "heuristic=True is for answers of 0 and 1",
    ),
    (lambda: Subject(lambda bits: bits[:, 0] * float("nan")).answers(EVERY), "NaN for 64 of 64 answers"),
    (lambda: evaluate(Subject(nn.Linear(LENGTH, 1), threshold=2.0), DATA), "training and evaluation are of logits"),
]
DATA = Examples(EVERY, majority(LENGTH)(EVERY).astype(np.int64))


@pytest.mark.parametrize(("ask", "sentence"), REFUSED)
def test_what_is_of_logits_refuses_the_rest(ask: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        ask()


def test_what_is_changed_in_place_is_no_logit_any_more() -> None:
    class Squashed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Linear(LENGTH, 1)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.layer(x)
            out[:, 0] = torch.sigmoid(out[:, 0])
            return out

    for model in (
        Squashed(),
        nn.Sequential(nn.Linear(LENGTH, 1), nn.Hardsigmoid(), nn.Hardtanh(0.1, 0.9, inplace=True)),
    ):
        with pytest.raises(InputError, match="whether they are probabilities is not to be seen"):
            flipscope.sensitivity(model, EVERY)


def test_data_are_left_as_they_were() -> None:
    model, given = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 1)), torch.randn(4, 3)
    before = given.clone()
    flipscope.sharpness(model, given, rho=0.1, draws=2)
    assert torch.equal(given, before)


def test_one_against_one_is_asked_for_its_answers() -> None:
    svm = pytest.importorskip("sklearn.svm")
    model = svm.SVC(decision_function_shape="ovo").fit(EVERY, EVERY[:, :3].sum(1).clip(0, 2))
    assert Subject(model).answers(EVERY).tolist() == model.predict(EVERY).tolist()


def test_odd_numbers_are_read_or_refused() -> None:
    for kind in (np.longdouble, ">f4"):
        found = flipscope.sensitivity(lambda bits, kind=kind: (bits.numpy()[:, 0] - 0.5).astype(kind), EVERY)
        assert found.tolist() == [1] * 64
    with pytest.raises(InputError, match="the model returned Tensor, not logits"):
        flipscope.sensitivity(lambda bits: (bits[:, :1] - 0.5).to_sparse(), EVERY)
    sparse = nn.Linear(LENGTH, 1)
    sparse.register_parameter("extra", nn.Parameter(torch.eye(3).to_sparse(), requires_grad=False))
    assert flipscope.sensitivity(Subject(sparse, precision="native"), EVERY).shape == (64,)
