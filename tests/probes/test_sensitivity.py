"""Sensitivity of models: against a plain loop, against the cube, and every way to ask wrongly."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import flipscope
from flipscope.adapters.subject import Subject
from flipscope.basics.errors import InputError
from flipscope.cube import sensitivity as cube_sensitivity
from flipscope.cube.functions import majority, parity
from flipscope.models import SCHEMES, Transformer, encoder, initialise, mingpt, recognizer, roberta, vit_small
from flipscope.probes.influence import influences
from flipscope.probes.sensitivity import logit_changes, sensitivities, sensitivity, sensitivity_profile, truth_table

Bits = NDArray[np.uint8]


def strings(count: int, length: int, seed: int = 0) -> Bits:
    return np.random.default_rng(seed).integers(0, 2, (count, length)).astype(np.uint8)


def loop(logit: Callable[[Bits], float], given: Bits, threshold: float = 0.0) -> list[int]:
    """Def 2.2, one string and one flip at a time."""
    counts = []
    for string in given:
        value = logit(string) > threshold
        count = 0
        for position in range(len(string)):
            flipped = string.copy()
            flipped[position] ^= 1
            count += (logit(flipped) > threshold) != value
        counts.append(count)
    return counts


def in_float64(model: nn.Module, floats: bool = False) -> Callable[[Bits], float]:
    """The logit of one string, by a float64 copy of the model."""
    wide = copy.deepcopy(model).double().eval()

    def logit(string: Bits) -> float:
        bits = torch.from_numpy(string.astype(np.int64))[None]
        with torch.no_grad():
            out = wide(bits.double() if floats else bits).flatten()
        return float(out[0]) if len(out) == 1 else float(out[1] - out[0])

    return logit


class LastOfLSTM(nn.Module):
    def __init__(self, size: int, outputs: int = 1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(2, size)
        self.lstm = nn.LSTM(size, size, batch_first=True)
        self.head = nn.Linear(size, outputs)

    def forward(self, bits: Tensor) -> Tensor:
        out: Tensor = self.head(self.lstm(self.embedding(bits))[0][:, -1])
        return out


def mlp(length: int, hidden: int = 16) -> nn.Sequential:
    return nn.Sequential(nn.Linear(length, hidden), nn.ReLU(), nn.Dropout(0.5), nn.Linear(hidden, 1))


def middle(model: Any, given: Bits, **options: Any) -> float:
    """A threshold that divides the strings' logits in two halves, so that flips matter."""
    found = np.sort(Subject(model, **options).values(given).astype(np.float64))
    return float(found[len(found) // 2 - 1 : len(found) // 2 + 1].mean())


# ---------------------------------------------------------------- equal to the definition


def test_a_plain_function_equals_the_loop() -> None:
    given = strings(9, 7)

    def surplus(bits: Tensor) -> Tensor:
        return 0.5 * (2.0 * bits - 1).sum(dim=1)

    expected = loop(lambda string: float(2 * string.astype(float).sum() - 7), given)
    assert flipscope.sensitivity(surplus, given).tolist() == expected
    assert flipscope.sensitivity(surplus, given).dtype == np.int64
    assert (
        flipscope.sensitivity(surplus, given).tolist()
        == cube_sensitivity.string_sensitivity(majority(7), given).tolist()
    )


def test_functions_may_answer_with_arrays_or_bits() -> None:
    given = strings(5, 6)
    assert flipscope.sensitivity(lambda bits: np.asarray(bits).sum(axis=1) % 2, given).tolist() == [6] * 5
    assert flipscope.sensitivity(lambda bits: bits[:, 0] == 1, given).tolist() == [1] * 5
    assert (
        flipscope.sensitivity(majority(6), given).tolist()
        == cube_sensitivity.string_sensitivity(majority(6), given).tolist()
    )


@pytest.mark.parametrize("batch", [None, 1, 3])
def test_an_mlp_equals_the_loop(batch: int | None) -> None:
    torch.manual_seed(0)
    model, given = mlp(9), strings(12, 9)
    threshold = middle(model, given)
    found = sensitivities(Subject(model, threshold=threshold, batch=batch), given)
    assert found.counts.tolist() == loop(in_float64(model, floats=True), given, threshold)
    assert found.counts.sum() == found.flipped.sum() > 0
    assert (found.path, found.near_ties, found.strings, found.length) == ("general", 0, 12, 9)


@pytest.mark.parametrize("outputs", [1, 2])
def test_an_lstm_equals_the_loop(outputs: int) -> None:
    torch.manual_seed(1)
    model, given = LastOfLSTM(8, outputs), strings(8, 10, 1)
    threshold = middle(model, given)
    found = sensitivities(Subject(model, threshold=threshold), given)
    assert found.counts.tolist() == loop(in_float64(model), given, threshold)
    assert found.counts.sum() > 0


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("path", ["general", "fast"])
def test_our_transformer_equals_the_loop(scheme: Any, path: Any) -> None:
    model = initialise(Transformer(encoder(16, 2, 2, ffn_width=32)), scheme, 3, scope="weights")
    given = strings(6, 12, 2)
    threshold = middle(model, given)
    found = sensitivities(Subject(model, threshold=threshold), given, path=path)
    assert found.counts.tolist() == loop(in_float64(model), given, threshold)
    assert found.path == path
    assert found.counts.sum() > 0


@pytest.mark.parametrize(
    "config", [recognizer(8, 2, 2), mingpt(9, width=16, heads=4), roberta(2, 9, width=16, layers=2, heads=2)]
)
def test_other_transformers_equal_the_loop(config: Any) -> None:
    model = Transformer(config, scheme="gaussian", seed=5)
    given = strings(5, 9, 3)
    threshold = middle(model, given)
    assert sensitivity(Subject(model, threshold=threshold), given).tolist() == loop(in_float64(model), given, threshold)


def test_a_trained_model_equals_the_loop_and_the_function_it_learned() -> None:
    length = 8
    model = Transformer(encoder(16, 2, 2, ffn_width=32), seed=0)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    data = torch.from_numpy(strings(128, length, 9)).long()
    for _ in range(120):
        loss = nn.functional.binary_cross_entropy_with_logits(model(data), data[:, 0].float())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    given = strings(40, length, 10)
    counts = {path: sensitivity(model, given, path=path) for path in ("general", "fast")}  # type: ignore[call-overload]
    assert counts["fast"].tolist() == counts["general"].tolist() == loop(in_float64(model), given)
    assert counts["fast"].tolist() == [1] * 40  # the first bit decides
    assert model.training
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_text_model_of_transformers_equals_the_loop() -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra 'language'")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=8,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        num_labels=2,
    )
    model = transformers.BertForSequenceClassification(config)
    given = strings(5, 8)

    def words(bits: Tensor) -> dict[str, Tensor]:
        return {"input_ids": torch.where(bits == 1, 6, 3), "attention_mask": torch.ones_like(bits)}

    wide = transformers.BertForSequenceClassification(config).double().eval()
    wide.load_state_dict(model.state_dict())

    def logit(string: Bits) -> float:
        with torch.no_grad():
            out = wide(**words(torch.from_numpy(string.astype(np.int64))[None])).logits[0]
        return float(out[1] - out[0])

    threshold = middle(model, given, encoding=words)
    model.train()
    found = sensitivities(Subject(model, encoding=words, threshold=threshold), given)
    assert found.counts.tolist() == loop(logit, given, threshold)
    assert found.counts.sum() > 0
    assert model.training
    vectors = model.get_input_embeddings()
    embedded = sensitivities(
        Subject(
            model, encoding=lambda bits: {"inputs_embeds": vectors(torch.where(bits == 1, 6, 3))}, threshold=threshold
        ),
        given,
    )
    assert embedded.counts.tolist() == found.counts.tolist()


# ---------------------------------------------------------------- the other measurements


def test_thresholds_move_the_answer() -> None:
    given = strings(6, 5)

    def ones(bits: Tensor) -> Tensor:
        return bits.sum(dim=1)

    for threshold in (0, 0.5, 2, 4):
        expected = loop(lambda string: float(string.sum()), given, threshold)
        assert sensitivity(Subject(ones, threshold=threshold), given).tolist() == expected


def test_a_logit_at_the_threshold_counts_as_zero() -> None:
    # logit = number of ones, threshold 1: 1 from two ones on
    assert sensitivity(
        Subject(lambda bits: bits.sum(dim=1), threshold=1), [[1, 0, 0], [1, 1, 0], [0, 0, 0]]
    ).tolist() == [
        2,
        2,
        0,
    ]


def test_logit_changes_and_real_sensitivity() -> None:
    weights = torch.tensor([1.0, -2.0, 0.5])

    def linear(bits: Tensor) -> Tensor:
        return bits.float() @ weights

    given = np.array([[0, 0, 0], [1, 1, 0]], np.uint8)
    assert logit_changes(linear, given).tolist() == [[1.0, -2.0, 0.5], [-1.0, 2.0, 0.5]]
    assert sensitivity(linear, given, real=True).tolist() == [5.25, 5.25]  # Eq 2
    model = Transformer(encoder(8, 2, 2), scheme="gaussian", seed=1)
    given = strings(3, 6)
    wide = {path: logit_changes(Subject(model, precision="float64"), given, path=path) for path in ("general", "fast")}
    assert wide["general"].dtype == np.float64
    np.testing.assert_allclose(wide["fast"], wide["general"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(logit_changes(model, given), wide["general"], atol=1e-3)
    squares = np.square(wide["general"]).sum(axis=1)
    np.testing.assert_allclose(sensitivity(Subject(model, precision="float64"), given, real=True), squares)


def test_influences_on_the_output_are_absolute_changes() -> None:
    model, given = LastOfLSTM(6, 3).double(), strings(3, 5)
    found = influences(model, given)
    with torch.no_grad():
        for row, position in itertools.product(range(3), range(5)):
            flipped = given[row].copy()
            flipped[position] ^= 1
            pair = model(torch.from_numpy(np.stack([given[row], flipped])).long())
            assert found[row, position] == pytest.approx(float((pair[0] - pair[1]).norm()), rel=1e-9)
    one = Transformer(encoder(8, 2, 2), scheme="gaussian", seed=1)
    expected = np.abs(logit_changes(Subject(one, precision="float64"), given))
    np.testing.assert_allclose(influences(Subject(one, precision="float64"), given), expected, rtol=1e-6, atol=1e-9)


def test_influences_on_an_activation_by_module_and_by_name() -> None:
    model, given = Transformer(encoder(8, 2, 2), scheme="gaussian", seed=1), strings(2, 5)
    found = influences(Subject(model, batch=2), given, of="embedding")
    # A flip changes the embedding at its own position only, by the difference of the two symbols.
    assert model.embedding.symbol is not None
    gap = model.embedding.symbol.weight[0] - model.embedding.symbol.weight[1]
    np.testing.assert_allclose(found, float(gap.detach().double().norm()), rtol=1e-6)
    by_module = influences(model, given, of=model.blocks[0])
    np.testing.assert_array_equal(by_module, influences(model, given, of="blocks.0"))
    states = [model.states(torch.from_numpy(given ^ np.eye(5, dtype=np.uint8)[i]).long())[1] for i in range(5)]
    base = model.states(torch.from_numpy(given).long())[1]
    expected = [(state - base).double().flatten(1).norm(dim=1).detach().numpy() for state in states]
    np.testing.assert_allclose(by_module, np.stack(expected, axis=1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("config", [encoder(8, 2, 2), recognizer(8, 2, 2, eps=1e-3), mingpt(5, width=16, heads=4)])
def test_influences_by_position_are_definition_2_7_at_every_position(config: object) -> None:
    model, given = initialise(Transformer(config, dtype=torch.float64), "gaussian", 1).eval(), strings(3, 5)  # type: ignore[arg-type]
    for layer in range(2 if model.config.layers > 1 else 1):
        found = influences(Subject(model, batch=3), given, of=model.blocks[layer], by_position=True)
        with torch.no_grad():
            base = model.states(torch.from_numpy(given))[layer + 1]
        assert found.shape == (3, 5, base.shape[1])
        for row, bit in itertools.product(range(3), range(5)):
            flipped = given[row].copy()
            flipped[bit] ^= 1
            with torch.no_grad():
                near = model.states(torch.from_numpy(flipped[None]))[layer + 1][0]
            for place in range(base.shape[1]):
                expected = float((near[place] - base[row, place]).norm())
                assert found[row, bit, place] == pytest.approx(expected, rel=1e-7, abs=1e-9)
        whole = influences(model, given, of=model.blocks[layer])
        # Without positions the last layer is what the model computes of it, the row that is read.
        last = layer == model.config.layers - 1
        np.testing.assert_allclose(found[..., -1] if last else np.sqrt((found**2).sum(axis=2)), whole, atol=1e-9)
    own = influences(model, given, of="embedding", by_position=True)
    assert np.count_nonzero(own) == 3 * 5  # each flip at its own position, and nowhere else


def test_influences_by_position_need_positions() -> None:
    model, given = Transformer(encoder(8, 2, 2), scheme="gaussian", seed=1), strings(2, 5)
    with pytest.raises(InputError, match=r"the model gives \(1, 1\)"):
        influences(model, given, by_position=True)
    with pytest.raises(InputError, match="the module 'head'"):
        influences(model, given, of="head", by_position=True)


def test_influences_of_a_module_that_gives_a_tuple() -> None:
    model, given = LastOfLSTM(6), strings(2, 5)
    found = influences(model, given, of="lstm")
    base = model.lstm(model.embedding(torch.from_numpy(given).long()))[0]
    near = model.lstm(model.embedding(torch.from_numpy(given ^ np.eye(5, dtype=np.uint8)[3]).long()))[0]
    expected = (near - base).flatten(1).norm(dim=1).detach().numpy()
    np.testing.assert_allclose(found[:, 3], expected, rtol=1e-4)


@pytest.mark.parametrize("n", [1, 5, 12])
def test_exhaustive_equals_the_cubes_profile_of_the_table(n: int) -> None:
    model = Transformer(encoder(8, 2, 2, ffn_width=16), scheme="gaussian", seed=4)
    threshold = middle(model, strings(50, n, 1))
    f = truth_table(Subject(model, threshold=threshold), n)
    every = np.array(list(itertools.product((0, 1), repeat=n)), np.uint8)
    logits = Subject(model, precision="float64").values(every)
    assert (f(every) == (logits > threshold)).all()
    found = sensitivity_profile(Subject(model, threshold=threshold), n, exhaustive=True)
    assert list(found.profile) == cube_sensitivity.profile(f)
    assert found.average_sensitivity == float(cube_sensitivity.average_sensitivity(f))
    assert found.strings == sum(found.profile) == 2**n
    assert found.zero_share == found.profile[0] / 2**n
    assert (found.largest_seen, found.smallest_seen) == (
        cube_sensitivity.max_sensitivity(f),
        cube_sensitivity.min_sensitivity(f),
    )


def test_exhaustive_at_16_bits_equals_flips_one_by_one() -> None:
    model = Transformer(encoder(8, 2, 1, ffn_width=16), scheme="uniform", seed=2)
    threshold = middle(model, strings(50, 16, 1))
    f = truth_table(Subject(model, threshold=threshold), 16)
    found = sensitivity_profile(Subject(model, threshold=threshold), 16, exhaustive=True)
    assert list(found.profile) == cube_sensitivity.profile(f)
    given = strings(60, 16, 3)
    counted = sensitivity(Subject(model, threshold=threshold), given, path="fast")
    assert counted.tolist() == cube_sensitivity.string_sensitivity(f, given).tolist()
    assert counted.sum() > 0


def test_each_string_of_a_truth_table_is_asked_once() -> None:
    asked: list[int] = []

    def ask(bits: Tensor) -> Tensor:
        asked.append(len(bits))
        return bits[:, 0] - 0.5

    assert list(sensitivity_profile(ask, 10, exhaustive=True).profile) == [0, 1024] + [0] * 9
    assert sum(asked) < 1.1 * 1024


# ---------------------------------------------------------------- sampled spectra


def test_a_sampled_spectrum_covers_the_exact_one() -> None:
    def answer(bits: Tensor) -> Tensor:
        return bits.sum(dim=1) - 5.5

    exact = sensitivity_profile(answer, 11, exhaustive=True)
    found = sensitivity_profile(answer, 11, strings=400, seed=1)
    assert found.strings == 400
    assert found.average_sensitivity.low <= exact.average_sensitivity <= found.average_sensitivity.high  # type: ignore[union-attr]
    assert found.zero_share.low <= exact.zero_share <= found.zero_share.high  # type: ignore[union-attr]
    for share, count in zip(found.profile, exact.profile, strict=True):
        assert share.low <= count / 2**11 <= share.high  # type: ignore[union-attr]
    for seen, influence in zip(found.influences, exact.influences, strict=True):
        assert seen.low <= influence <= seen.high  # type: ignore[union-attr]
    told = found.as_json()
    assert {"length", "strings", "average_sensitivity", "profile", "zero_share", "path", "near_ties"} <= set(told)
    assert set(told["profile"][0]) == {"value", "low", "high", "confidence", "samples"}


def test_the_same_seed_gives_the_same_spectrum_whatever_the_batch() -> None:
    model = Transformer(encoder(8, 2, 2, ffn_width=16), scheme="gaussian", seed=4)
    threshold = middle(model, strings(50, 9, 1))
    runs = [
        sensitivity_profile(Subject(model, threshold=threshold, batch=batch), 9, strings=30, seed=7, path=path)
        for path, batch in (("fast", None), ("general", None), ("general", 4))
    ]
    keys = ("average_sensitivity", "profile", "zero_share", "influences")
    told = [{key: run.as_json()[key] for key in keys} for run in runs]
    assert told[0] == told[1] == told[2]
    other = sensitivity_profile(Subject(model, threshold=threshold), 9, strings=30, seed=8)
    assert other.as_json()["influences"] != told[0]["influences"]


def test_sampling_stops_at_the_precision() -> None:
    def answer(bits: Tensor) -> Tensor:
        return bits.sum(dim=1) - 5.5

    wide = sensitivity_profile(answer, 11, precision_target=0.8, seed=3)
    narrow = sensitivity_profile(answer, 11, precision_target=0.3, seed=3)
    for target, found in ((0.8, wide), (0.3, narrow)):
        average = found.average_sensitivity
        assert average.half_width <= target  # type: ignore[union-attr]
        assert average.validity == "anytime"  # type: ignore[union-attr]
        assert average.low <= 11 * 252 / 1024 <= average.high  # type: ignore[union-attr]
    assert 16 <= wide.strings < narrow.strings < 100_000
    stopped = sensitivity_profile(answer, 11, precision_target=1e-6, max_strings=40)
    assert stopped.strings == 40


def test_progress_counts_strings() -> None:
    seen: list[tuple[int, int]] = []
    sensitivities(mlp(5), strings(30, 5), progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (30, 30)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    seen.clear()
    sensitivity_profile(
        lambda bits: bits[:, 0], 15, exhaustive=True, progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(1 << 14, 1 << 15), (1 << 15, 1 << 15)]


def test_the_heuristic_says_what_it_skipped() -> None:
    model = Transformer(encoder(8, 2, 2, ffn_width=16), scheme="xavier_normal", seed=1)
    given = strings(40, 12, 1)
    threshold = float(np.quantile(Subject(model, precision="native").values(given), 0.9))
    found = sensitivities(Subject(model, threshold=threshold), given, heuristic=True)
    assert found.counts.tolist() == sensitivity(Subject(model, threshold=threshold), given).tolist()
    assert found.screening is not None
    assert found.screening.flips == 480
    assert 0 < found.screening.skipped < 480
    assert found.screening.wrong == 0
    assert found.how()["screening"]["skipped"] == found.screening.skipped


# ---------------------------------------------------------------- models are left as they were


def test_training_flags_are_restored_one_by_one() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    model.train()
    model[1].eval()
    before = [module.training for module in model.modules()]
    statistics = model[1].running_mean.clone()  # type: ignore[operator,union-attr]
    sensitivity(model, strings(6, 4))
    assert [module.training for module in model.modules()] == before == [True, True, False, True, True]
    assert torch.equal(model[1].running_mean, statistics)  # type: ignore[arg-type]


def test_training_flags_are_restored_after_a_failure() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, bits: Tensor) -> Tensor:
            assert not self.training
            raise RuntimeError("it\nbroke")

    model = Broken()
    with pytest.raises(InputError, match=r"failed on .* with RuntimeError: it broke"):
        sensitivity(model, strings(2, 4))
    assert model.training


def test_a_model_may_write_to_its_inputs() -> None:
    def rude(bits: Tensor) -> Tensor:
        out = bits[:, 0].clone()
        bits.zero_()
        return out

    given = strings(4, 3)
    before = given.copy()
    assert sensitivity(rude, given).tolist() == [1] * 4
    assert (given == before).all()


# ---------------------------------------------------------------- bad input, one sentence each


def first_bit(bits: Tensor) -> Tensor:
    return bits[:, 0] - 0.5


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "are empty"),
        (np.zeros((0, 4), np.uint8), "are empty"),
        (np.zeros((3, 0), np.uint8), "are empty"),
        ([[0, 1], [0, 1, 1]], "same length"),
        ([torch.zeros(2), torch.zeros(3)], "same length"),
        (["0110"], "rows of 0 and 1"),
        ([0, 1, 1], "two axes"),
        ([[0, 1, 2]], "contain 2, but bits are 0 and 1"),
        ([[0.5, 1.0]], "contain 0.5"),
        ([[-1, 1]], "contain -1"),
        ([[float("nan"), 1]], "contain nan"),
    ],
)
def test_strings_that_are_no_bits(given: Any, sentence: str) -> None:
    for ask in (sensitivity, logit_changes, influences):
        with pytest.raises(InputError, match=sentence):
            ask(first_bit, given)


def test_strings_may_be_tensors_booleans_or_floats() -> None:
    for given in (torch.tensor([[0, 1]]), np.array([[False, True]]), [[0.0, 1.0]]):
        assert sensitivity(first_bit, given).tolist() == [1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_found_before_anything_runs(bad: float) -> None:
    model = Transformer(encoder(8, 2, 2))
    with torch.no_grad():
        model.blocks[1].attention.query.weight[0, 0] = bad  # type: ignore[union-attr,operator,index]
    calls: list[int] = []
    model.register_forward_hook(lambda *_: calls.append(1))
    for path in ("general", "fast"):
        with pytest.raises(InputError, match=r"NaN or infinite numbers in blocks\.1\.attention\.query\.weight"):
            sensitivity(model, strings(2, 4), path=path)  # type: ignore[call-overload]
    assert calls == []


def test_infinite_buffers_are_masks() -> None:
    model = mlp(4)
    model.register_buffer("mask", torch.tensor([-np.inf]))
    assert sensitivity(model, strings(2, 4)).shape == (2,)
    model.register_buffer("mask", torch.tensor([np.nan]))
    with pytest.raises(InputError, match="NaN in mask"):
        sensitivity(model, strings(2, 4))


def test_answers_that_are_nan_are_counted() -> None:
    def sometimes(bits: Tensor) -> Tensor:
        return torch.where(bits.all(dim=1), torch.nan, bits[:, 0].float())

    with pytest.raises(InputError, match="NaN for 2 of 8 strings"):
        sensitivity(sometimes, [[1, 1, 1], [0, 1, 1]])
    with pytest.raises(InputError, match="NaN for 1 of 8 strings"):
        truth_table(sometimes, 3)
    with pytest.raises(InputError, match="NaN for 2 of 8 strings"):
        logit_changes(sometimes, [[1, 1, 1], [0, 1, 1]])


def test_dropout_left_on_is_noticed() -> None:
    model = mlp(6)

    def noisy(bits: Tensor) -> Tensor:
        model.train()
        out: Tensor = model(bits.float())
        return out

    for ask in (sensitivity, logit_changes, influences):
        with pytest.raises(InputError, match="for the same inputs: switch off dropout"):
            ask(noisy, strings(5, 6))  # type: ignore[operator]
    sensitivity(model, strings(5, 6))  # a module's own dropout is switched off for it


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (3, "must be an nn.Module or callable"),
        (lambda bits: bits[:, :, None], r"\(4, 3, 1\) are not one per string"),
        (lambda bits: bits, "one per class or one per position: say output='logits'"),
        (lambda bits: bits.sum(dim=1)[:2], r"outputs of shape \(2,\) for 4 strings"),
        (lambda bits: "yes", "returned str"),
        (lambda bits: (bits.sum(dim=1), 1), "returned tuple"),
        (lambda bits: bits.sum(dim=1) * 1j, "returned Tensor"),
        (Transformer(encoder(8, 1, 1), seed=None), "no numbers"),
        (Transformer(vit_small(8, 4, 1, layers=1, heads=1)), "reads images"),
    ],
)
def test_models_that_cannot_be_measured(model: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        sensitivity(Subject(model, batch=4), [[0, 1, 1]])


def test_a_module_that_wants_bits_is_found_out_by_a_trial_call() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = nn.Parameter(torch.eye(2))

        def forward(self, bits: Tensor) -> Tensor:
            return self.rows[bits].sum(dim=1)

    for encoding in ("auto", "bits"):
        assert sensitivity(Subject(Table(), encoding=encoding), [[1, 0, 0]]).tolist() == [2]
    with pytest.raises(InputError, match="it was given floats: if it wants bits, say encoding='bits'"):
        sensitivity(Subject(Table(), encoding="floats"), strings(2, 4))
    with pytest.raises(InputError, match="the model failed on"):
        sensitivity(nn.Linear(5, 1), strings(2, 4))


def test_options_that_do_not_exist() -> None:
    given = strings(2, 4)
    with pytest.raises(InputError, match="path='quick'"):
        sensitivity(first_bit, given, path="quick")  # type: ignore[call-overload]
    with pytest.raises(InputError, match="path='fast' needs flipscope's own transformer"):
        sensitivity(mlp(4), given, path="fast")
    with pytest.raises(InputError, match="precision='half'"):
        sensitivity(Subject(first_bit, precision="half"), given)  # type: ignore[call-overload]
    with pytest.raises(InputError, match="encoding='pixels'"):
        sensitivity(Subject(first_bit, encoding="pixels"), given)  # type: ignore[call-overload]
    with pytest.raises(InputError, match="batch"):
        sensitivity(Subject(first_bit, batch=0), given)
    with pytest.raises(InputError, match="threshold=nan"):
        sensitivity(Subject(first_bit, threshold=float("nan")), given)
    with pytest.raises(TypeError, match="unknown keyword 'bacth'"):
        sensitivity(first_bit, given, bacth=3)  # type: ignore[call-overload]
    with pytest.raises(InputError, match="heuristic has no meaning for real=True"):
        sensitivity(first_bit, given, real=True, heuristic=True)
    with pytest.raises(InputError, match=r"write sensitivity\(flipscope\.Subject\(model, encoding='signs'\), \.\.\.\)"):
        sensitivity(first_bit, given, encoding="signs")  # type: ignore[call-overload]
    with pytest.raises(InputError, match="not a module of the model"):
        influences(mlp(4), given, of="layer")
    with pytest.raises(InputError, match="the model is a function"):
        influences(first_bit, given, of="layer")


def test_spectra_that_cannot_be_measured() -> None:
    with pytest.raises(InputError, match="only one of strings, exhaustive"):
        sensitivity_profile(first_bit, 4, strings=3, exhaustive=True)
    with pytest.raises(InputError, match="n=21 bits are too many"):
        sensitivity_profile(first_bit, 21, exhaustive=True)
    with pytest.raises(InputError, match="n must be a whole number of at least 1"):
        truth_table(first_bit, 0)
    with pytest.raises(InputError, match="strings must be"):
        sensitivity_profile(first_bit, 4, strings=0)
    with pytest.raises(InputError, match="precision_target=0 must be a positive"):
        sensitivity_profile(first_bit, 4, precision_target=0)
    with pytest.raises(InputError, match="confidence"):
        sensitivity_profile(first_bit, 4, confidence=1)
    with pytest.raises(InputError, match="heuristic=True"):
        sensitivity_profile(first_bit, 4, exhaustive=True, heuristic=True)
    with pytest.raises(InputError, match="longer than max_length=3"):
        sensitivity_profile(Transformer(mingpt(3, width=16)), 4, strings=2)


def test_a_small_memory_limit_means_small_batches() -> None:
    sizes: list[int] = []

    def wide(bits: Tensor) -> Tensor:
        sizes.append(len(bits))
        return bits.float().repeat(1, 1000).sum(dim=1)

    sensitivity(Subject(wide, memory_limit=1 << 20, output="logit"), strings(20, 10))
    assert max(sizes[3:]) == (1 << 20) // (4 * 40_000)  # after the two trial calls
    sensitivity(parity(10), strings(20, 10))
