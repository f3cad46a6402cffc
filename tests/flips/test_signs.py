"""Trusted signs: what float32 gets wrong is found, and what float64 cannot tell is counted."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from flips.exactness import in_longdouble, longer_than_float64
from numpy.typing import NDArray
from torch import Tensor, nn

from flipscope.adapters.settled import Settled
from flipscope.adapters.subject import Subject
from flipscope.basics.errors import InputError
from flipscope.flips.engine import GeneralEngine, neighbours
from flipscope.flips.signs import FACTOR, FEWEST, PERTURBED, SAMPLE, TrustedSigns, trusted_signs
from flipscope.models import Transformer, encoder, recognizer
from flipscope.probes.influence import influences
from flipscope.probes.sensitivity import logit_changes, sensitivities, sensitivity

Bits = NDArray[np.uint8]


def strings(count: int, length: int, seed: int = 0) -> Bits:
    return np.random.default_rng(seed).integers(0, 2, (count, length)).astype(np.uint8)


class Cancelling(nn.Module):
    """Large numbers that cancel: float32 loses what is left of them, float64 keeps it."""

    def __init__(self, size: float, length: int, *, twice: bool = False) -> None:
        super().__init__()
        self.size = nn.Parameter(torch.tensor(size))
        self.other = self.size if twice else nn.Parameter(torch.tensor(size))
        self.weight = nn.Parameter(torch.randn(length, generator=torch.Generator().manual_seed(0)))

    def forward(self, bits: Tensor) -> Tensor:
        return (bits @ self.weight + self.size) - self.other


class Rounded:
    """An engine in float32 with errors of a known size at some of the strings."""

    path, why = "general", "it rounds"
    tolerance = 0.0
    first_order = None

    def __init__(self, exact: Settled, wrong: set[bytes], error: float) -> None:
        self.exact, self.wrong, self.error = exact, wrong, error

    def logits(self, strings: Bits) -> NDArray[np.float32]:
        found = self.exact.logits(strings)
        for row, string in enumerate(strings):
            if string.tobytes() in self.wrong:
                found[row] -= self.error * np.sign(found[row])
        return found.astype(np.float32)

    def flip_logits(self, strings: Bits) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        rows = np.arange(len(strings) * (strings.shape[1] + 1))
        table = self.logits(neighbours(strings, rows)).reshape(len(strings), -1)
        return table[:, 0], table[:, 1:]

    def strings_at_once(self, length: int) -> int:
        return 4


def test_signs_that_float32_gets_wrong_are_found() -> None:
    model, given = Cancelling(2.0**20, 12), strings(30, 12)
    narrow = sensitivities(Subject(model, precision="native"), given)
    exact = sensitivities(Subject(model, precision="float64"), given)
    checked = sensitivities(model, given)
    assert (narrow.counts != exact.counts).any()  # or this test would show nothing
    assert checked.counts.tolist() == exact.counts.tolist()
    assert checked.rechecked > 0
    assert checked.margin > 2.0**-4  # the spacing of float32 at 2^20 is 2^-3
    assert (checked.near_ties, exact.near_ties) == (0, 0)


def test_a_model_that_float32_cannot_decide_is_run_in_float64() -> None:
    model, given = Cancelling(2.0**26, 12), strings(10, 12)
    checked = sensitivities(model, given)
    assert checked.precision == "float64"
    assert checked.counts.tolist() == sensitivities(Subject(model, precision="float64"), given).counts.tolist()
    assert checked.rechecked == 0
    transformer = Transformer(encoder(16, 3, 2), scheme="gaussian", seed=0)
    with torch.no_grad():
        transformer.head.bias.fill_(2.0**26)
    found = sensitivities(Subject(transformer, threshold=2.0**26), given)
    assert (found.path, found.precision, found.rechecked) == ("fast", "float64", 0)
    plain = sensitivities(Subject(transformer, threshold=2.0**26, precision="float64"), given, path="general")
    assert found.counts.tolist() == plain.counts.tolist()


def test_what_float64_cannot_decide_is_counted() -> None:
    model, given = Cancelling(2.0**40, 12), strings(4, 12)
    found = sensitivities(Subject(model, precision="float64"), given)
    assert 2.0**-12 < found.tolerance < 4  # the spacing of float64 at 2^40 is 2^-12
    logits = Subject(model, precision="float64").values(neighbours(given, np.arange(4 * 13)))
    assert found.near_ties == np.count_nonzero(np.abs(logits) < found.tolerance) > 0


def test_the_rounding_of_a_weight_that_is_used_twice_is_seen() -> None:
    model, given = Cancelling(2.0**18, 12, twice=True), strings(20, 12)
    for precision in ("auto", "float64"):
        found = sensitivities(Subject(model, precision=precision), given)  # type: ignore[arg-type]
        assert 2.0**-35 < found.tolerance < 2.0**-25  # the spacing of float64 at 2^18 is 2^-34


class Gated(nn.Module):
    """Another module where the first four bits are all 1, else exactly 0."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, bits: Tensor) -> Tensor:
        out: Tensor = self.module(bits) * (bits[:, :4].sum(dim=1) == 4)
        return out


def ajar(count: int) -> Bits:
    """Strings of 12 bits with the gate open: none of the first four, not even for flips, one of the flips of others."""
    given = strings(4 + count, 12)
    given[:, :4] = 0
    given[4:, 1:4] = 1
    return given


@pytest.mark.parametrize("precision", ["auto", "float64"])
def test_dead_logits_do_not_stand_for_others(precision: Any) -> None:
    """One logit in thirteen is alive, and so large that it is rounded by 2^-17."""
    model = Gated(Cancelling(2.0**36, 12).double())
    found = sensitivities(Subject(model, precision=precision), ajar(4)[4:])
    assert found.tolerance > 2.0**-17
    later = sensitivities(Subject(model, precision=precision), ajar(20))  # in the first block of strings all are dead
    assert later.tolerance > 2.0**-17


def test_the_margin_is_not_of_dead_logits() -> None:
    model, given = Gated(Cancelling(2.0**20, 12)), ajar(30)
    every = neighbours(given, np.arange(34 * 13))
    wide, coarse = (Subject(model, precision=precision).values(every) for precision in ("float64", "native"))
    worst = np.abs(wide - coarse).argmax()
    threshold = float(wide[worst] + coarse[worst]) / 2
    exact, checked, narrow = (
        sensitivities(Subject(model, threshold=threshold, precision=precision), given)  # type: ignore[arg-type]
        for precision in ("float64", "auto", "native")
    )
    assert (narrow.counts != exact.counts).any()  # or this test would show nothing
    assert (checked.precision, checked.margin > 2.0**-4) == ("float32+float64", True)
    assert checked.counts.tolist() == exact.counts.tolist()


def test_a_constant_has_a_tolerance_too() -> None:
    model = nn.Linear(5, 1).requires_grad_(False)
    model.weight.zero_()
    model.bias.fill_(3.0)
    for precision in ("auto", "float64"):
        found = sensitivities(Subject(model, precision=precision, threshold=3.0), strings(8, 5))  # type: ignore[arg-type]
        assert 2.0**-50 < found.tolerance < 2.0**-30
        assert (found.counts.sum(), found.near_ties) == (0, 8 * 6)
    model.bias.zero_()
    found = sensitivities(model, strings(8, 5))
    assert (found.tolerance, found.near_ties) == (0.0, 0)  # 0 times anything is 0


def compared(model: nn.Module, given: Bits, seed: int = 0) -> list[int]:
    """Numbers of the logits that are compared with float64."""
    asked: list[Bits] = []
    signs = trusted_signs(model, seed=seed)
    look = signs._look
    signs._look = lambda exact, some: (asked.append(some), look(exact, some))[1]  # type: ignore[assignment,func-returns-value]
    with signs.settled.measuring():
        signs.flip_signs(given)
    every = neighbours(given, np.arange(given.size + len(given)))
    return [int(np.flatnonzero((every == string).all(axis=1))[0]) for string in asked[0]]


def test_samples_come_from_the_model_the_strings_and_the_seed() -> None:
    """What one sample misses, others do not: not even those of the same model with another string."""
    model = Transformer(encoder(8, 2, 2), scheme="gaussian", seed=0)
    given = strings(40, 16)
    first = compared(model, given)
    assert len(first) == len(set(first)) == SAMPLE
    assert compared(copy.deepcopy(model), given.copy()) == first
    other = given.copy()
    other[7, 3] ^= 1
    moved = copy.deepcopy(model)
    with torch.no_grad():
        moved.head.bias += 1e-3
    found = [compared(model, other), compared(moved, given), compared(model, given, seed=1)]
    assert all(len(set(sample) & set(first)) < SAMPLE / 2 for sample in found)


def test_samples_are_smaller_where_few_logits_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[Any] = Counter()
    run = Settled.run

    def counting(settled: Settled, strings: Bits) -> Any:
        asked[settled.dtype] += len(strings)
        return run(settled, strings)

    monkeypatch.setattr(Settled, "run", counting)
    model = Transformer(encoder(8, 2, 2), scheme="xavier_normal", seed=0)
    sensitivities(model, strings(2, 20))
    few = dict(asked)
    sensitivities(model, strings(40, 20))
    assert few == {torch.float64: FEWEST + PERTURBED}  # float32 is the fast path's
    assert asked[torch.float64] - few[torch.float64] >= SAMPLE + SAMPLE // PERTURBED


# Deep random models of which float64 is wrong by more than eight perturbed logits say: four of 1051 that were tried.
CHAOTIC = (161, 191, 12, 251, 834, 95)


def chaotic(seed: int) -> tuple[Transformer, Bits]:
    """A deep random model and strings for it, of the experiment that `PERTURBATION_FACTOR` comes from."""
    stream = np.random.default_rng(seed)
    layers, width = int(stream.integers(2, 13)), int(stream.choice([8, 16, 24, 32]))
    heads, scheme = int(stream.choice([1, 2, 4])), ("uniform", "gaussian")[stream.integers(2)]
    length, kind = int(stream.integers(8, 21)), int(stream.integers(4))
    eps = (0.0, 1e-5)[stream.integers(2)] if kind == 0 else 1e-5
    config = recognizer(width, layers, heads, eps=eps) if kind == 0 else encoder(width, layers, heads)
    return Transformer(config, scheme=scheme, seed=seed).eval(), stream.integers(0, 2, (4, length)).astype(np.uint8)


@longer_than_float64
@pytest.mark.parametrize("seed", CHAOTIC)
def test_float64_is_no_farther_from_the_truth_than_the_tolerance(seed: int) -> None:
    model, given = chaotic(seed)
    every = neighbours(given, np.arange(given.size + len(given)))
    error = np.abs(Subject(model, precision="float64").values(every) - in_longdouble(model, every)).max()
    for precision in ("auto", "float64"):
        found = sensitivities(Subject(model, precision=precision), given)  # type: ignore[arg-type]
        assert 0 < error < found.tolerance < 1e-5, precision  # logits differ by 1 and more


def test_exact_ties_of_a_module_are_near_ties_and_count_as_zero() -> None:
    model = nn.Linear(4, 1, bias=False)
    nn.init.ones_(model.weight)
    found = sensitivities(Subject(model, threshold=1.0), [[1, 0, 0, 0]])  # its logit is at the threshold
    assert found.counts.tolist() == [3]
    assert found.near_ties == 1
    assert found.rechecked >= 1


def test_functions_are_taken_at_their_word() -> None:
    found = sensitivities(Subject(lambda bits: bits.sum(dim=1) - 1, output="logit"), [[1, 0, 0, 0]])
    assert found.counts.tolist() == [3]
    assert (found.precision, found.near_ties, found.rechecked, found.tolerance) == ("native", 0, 0, 0.0)


def test_a_function_that_rounds_differently_with_few_strings_has_near_ties() -> None:
    def shaky(bits: Tensor) -> Tensor:
        return bits[:, 0] - 0.5 + (0.01 if len(bits) < 6 else 0.0)

    found = sensitivities(Subject(shaky, threshold=0.45), strings(4, 5))
    assert found.tolerance == pytest.approx(FACTOR * 0.01, rel=1e-5)
    assert found.near_ties == np.count_nonzero(neighbours(strings(4, 5), np.arange(24))[:, 0])


def test_the_margin_follows_the_sample_and_the_rechecks() -> None:
    model, given = Cancelling(0.0, 10).double(), strings(40, 10)
    exact = Subject(model).settled()
    every = neighbours(given, np.arange(40 * 11))
    with exact.measuring():
        logits = exact.logits(every)
    # Errors of 0.3 at logits of at most 0.2: wrong signs that a sample of the other strings does not show.
    wrong = {string.tobytes() for string, logit in zip(every, logits, strict=True) if 0 < abs(logit) <= 0.2}
    signs, blind = (TrustedSigns(Rounded(exact, wrong, 0.3), exact, exact=it) for it in (lambda: exact, None))
    with exact.measuring():
        _, flipped = signs.flip_signs(given)
        _, true = TrustedSigns(GeneralEngine(exact), exact, exact=lambda: exact).flip_signs(given)
        _, guessed = blind.flip_signs(given)
    assert (flipped == true).all()
    assert signs.margin == pytest.approx(FACTOR * 0.3, rel=1e-5)
    assert signs.rechecked >= len(wrong)
    assert (guessed != true).any()


def test_float32_margins_are_small_for_tame_models() -> None:
    model = Transformer(encoder(16, 2, 2), scheme="xavier_normal", seed=0)
    found = sensitivities(model, strings(20, 20))
    assert found.precision == "float32+float64"
    assert 0 < found.tolerance < 1e-10 < 1e-7 < found.margin < 1e-3
    assert found.rechecked <= 5


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_models_of_other_number_types(dtype: torch.dtype) -> None:
    model = Transformer(encoder(16, 2, 2), scheme="gaussian", seed=0, dtype=dtype)
    given = strings(6, 9)
    threshold = float(np.median(Subject(model, precision="float64").values(given)))
    found = {
        path: sensitivities(Subject(model, threshold=threshold), given, path=path)  # type: ignore[arg-type]
        for path in ("general", "fast")
    }
    exact = sensitivities(Subject(model.double(), threshold=threshold), given, path="general")
    assert found["general"].counts.tolist() == found["fast"].counts.tolist() == exact.counts.tolist()
    own = sensitivities(Subject(model.to(dtype), threshold=threshold, precision="native"), given)
    assert (own.precision, own.counts.shape) == ("native", (6,))
    assert found["fast"].precision == ("float64" if dtype == torch.float64 else "float32+float64")


@pytest.mark.parametrize("kind", ["half", "bfloat16", "autocast"])
def test_native_is_the_answers_that_the_model_itself_gives(kind: str) -> None:
    model, given = Transformer(encoder(32, 2, 4), scheme="xavier_normal", seed=1).eval(), strings(60, 20)
    model = {"half": model.half, "bfloat16": model.bfloat16}.get(kind, lambda: model)()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
        plain = model(torch.from_numpy(neighbours(given, np.arange(60 * 21))).long()).double().numpy().reshape(60, -1)
        threshold = float(np.median(plain))
        answers = plain > threshold
        counts = (answers[:, 1:] != answers[:, :1]).sum(axis=1)
        found = sensitivities(Subject(model, threshold=threshold, precision="native"), given)
        changes = logit_changes(Subject(model, precision="native"), given)
        with pytest.raises(InputError, match=r"path='fast' needs .*, but .*float16.*: say path='general'"):
            sensitivities(Subject(model, precision="native"), given, path="fast")
    assert found.path == "general"
    # In a batch of another size a logit may be rounded to another number of so coarse a type.
    assert (found.counts != counts).sum() <= found.near_ties
    assert (changes != plain[:, 1:] - plain[:, :1]).mean() < 0.1


def test_native_keeps_the_fast_path_for_float32_and_float64() -> None:
    for dtype in (torch.float32, torch.float64):
        model = Transformer(encoder(16, 2, 2), seed=0, dtype=dtype)
        assert sensitivities(Subject(model, precision="native"), strings(3, 9)).path == "fast"


def test_a_module_that_cannot_run_in_float64_says_what_to_do() -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 1))

        def forward(self, bits: Tensor) -> Tensor:
            return bits.float() @ self.weight

    with pytest.raises(InputError, match="the model failed on"):
        sensitivity(Fixed(), strings(2, 4))
    assert sensitivity(Subject(Fixed(), precision="native"), strings(2, 4)).shape == (2,)
    with pytest.raises(InputError, match="precision='native'"):
        sensitivity(Subject(lambda bits: bits[:, 0], precision="float64"), strings(2, 4))


@pytest.mark.parametrize("path", ["general", "fast"])
def test_the_model_itself_is_never_changed(path: Any) -> None:
    for dtype in (torch.float32, torch.float64):
        model = Transformer(encoder(8, 2, 2), scheme="gaussian", seed=0, dtype=dtype)
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        sensitivities(model, strings(5, 8), path=path)
        assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
        assert all(parameter.requires_grad for parameter in model.parameters())


class Coarse(Cancelling):
    """The same, rounded on the way."""

    def __init__(self, *args: Any, way: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.way = way

    def forward(self, bits: Tensor) -> Tensor:
        hidden = bits @ self.weight + self.size
        if self.way == "numpy":
            return torch.from_numpy((hidden - self.other).numpy().astype(np.float32)).to(hidden)
        return hidden.float().to(hidden) - self.other


@pytest.mark.parametrize("precision", ["auto", "float64"])
def test_float32_inside_a_module_is_told_and_its_errors_are_near_ties(precision: Any) -> None:
    given = strings(30, 12)
    model = Coarse(2.0**20, 12, way="float")
    found = sensitivities(Subject(model, precision=precision), given)
    assert found.precision.endswith("float64, float32 inside")
    every = neighbours(given, np.arange(30 * 13))
    true, rounded = (Subject(one, precision="float64").values(every) for one in (Cancelling(2.0**20, 12), model))
    wrong = (true > 0) != (rounded > 0)
    assert 0 < wrong.sum() <= found.near_ties  # or this test would show nothing
    assert np.abs(true - rounded).max() < found.tolerance
    plain = sensitivities(Subject(Cancelling(2.0**20, 12), precision=precision), given)
    assert plain.precision.endswith("float64")
    assert plain.near_ties == 0


def test_a_detour_through_numpy_is_seen_in_the_end() -> None:
    found = sensitivities(Subject(Coarse(1.0, 12, way="numpy"), precision="float64"), strings(5, 12))
    assert found.precision == "float64, float32 inside"


def test_the_tolerance_of_float32_inside_covers_its_errors() -> None:
    class Middle(nn.Module):
        def __init__(self, seed: int) -> None:
            super().__init__()
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                self.layers = nn.ModuleList(nn.Linear(10, 10) for _ in range(4))
            self.rounds = True

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = (4 * layer(x)).sin()
                x = x.float().to(x) if self.rounds else x
            return x[:, 0]

    for seed in range(5):
        model, given = Middle(seed), strings(10, 10, seed)
        found = sensitivities(Subject(model, precision="float64"), given)
        every = neighbours(given, np.arange(10 * 11))
        rounded = Subject(model, precision="float64").values(every)
        model.rounds = False
        true = Subject(model, precision="float64").values(every)
        assert 0 < np.abs(true - rounded).max() < found.tolerance < 0.1


def test_results_that_cannot_tell_are_refused() -> None:
    model, given = Coarse(2.0**20, 12, way="float"), strings(3, 12)
    for ask in (logit_changes, influences):
        with pytest.raises(InputError, match="rounds to float32 inside: take that out, or say precision='native'"):
            ask(Subject(model, precision="float64"), given)
        ask(model, given)  # type: ignore[operator]


def test_a_module_of_several_types_is_converted_as_a_whole() -> None:
    model = nn.Sequential(nn.Linear(4, 3).double(), nn.Tanh(), nn.Linear(3, 1))
    found = sensitivities(Subject(model, precision="float64"), strings(4, 4))
    assert found.precision == "float64"
    assert found.tolerance < 1e-9
    assert model[2].weight.dtype == torch.float32


def test_what_a_model_is_given_may_be_rounded() -> None:
    def thirds(bits: Tensor) -> Tensor:
        return bits / 3  # in float32

    found = sensitivities(Subject(nn.Linear(6, 1), encoding=thirds, precision="float64"), strings(4, 6))
    assert found.precision == "float64"
