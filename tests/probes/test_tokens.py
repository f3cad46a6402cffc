"""Token sensitivity: against closed forms, against loops over rows, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import flipscope
from flipscope.adapters.disturbing import RowStreams, noise_tensor, patches
from flipscope.adapters.subject import Subject
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import proportions
from flipscope.figures import ImagePanel, TextPanel
from flipscope.models.presets import gpt2
from flipscope.models.transformer import Block, Transformer
from flipscope.probes.token_site import TokenSite
from flipscope.probes.tokens import token_sensitivity

# The example of four tokens of two numbers, with noise of variance 4: P_tau = Phi(-|f| / (2 |w_tau|)).
WEIGHTS = torch.tensor([[1.0, 0], [0, 2], [2, 1], [0.5, 0.5]])
TOKENS = torch.tensor([[1.0, 1], [-0.5, 0.5], [0.3, -0.2], [0, 1]])
EXACT = [0.073529, 0.234226, 0.258344, 0.020152]


def linear(weights: Tensor) -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(weights.numel(), 1, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(weights.reshape(1, -1))
    return model


def sparse_parity(bits: Tensor) -> Tensor:
    return bits[:, [3, 11, 17, 29]].sum(dim=1) % 2 - 0.5


class Reader(nn.Module):
    """Reads token ids: embeddings, an attention over them, a class by their mean."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.mix = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        h = self.mix(self.embed(input_ids), src_key_padding_mask=mask == 0)
        out: Tensor = self.head((h * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True))
        return out


@pytest.fixture
def reader() -> Reader:
    torch.manual_seed(1)
    model = Reader()
    with torch.no_grad():
        model.head.weight.mul_(4)
    return model


# ---------------------------------------------------------------- numbers


def test_a_linear_model_has_the_sensitivity_of_the_closed_form() -> None:
    model, texts = linear(WEIGHTS), TOKENS.expand(400, -1, -1)
    found = flipscope.token_sensitivity(model, texts, variance=4.0, draws=8, confidence=0.999)
    assert found.definition.low <= 0.146563 <= found.definition.high
    assert found.definition.half_width < 0.02
    assert found.whole is not None
    assert found.whole.low <= 0.327264 <= found.whole.high
    for estimate, exact in zip(found.by_position(), EXACT, strict=True):
        assert estimate.low <= exact <= estimate.high
        assert estimate.half_width < 0.04
    assert found.disturbance.std == 2
    assert found.disturbance.rms == pytest.approx(float(TOKENS.square().mean().sqrt()))
    assert found.disturbance.relative_std == pytest.approx(2 / found.disturbance.rms)
    assert found.rows == 400 * 4 * 8


def test_the_first_order_estimate_is_the_closed_form_of_a_linear_model() -> None:
    found = token_sensitivity(linear(WEIGHTS), TOKENS.expand(200, -1, -1), variance=4.0, draws=5, first_order=True)
    assert found.first_order is not None
    assert found.first_order.changed[0] == pytest.approx(EXACT, abs=1e-6)
    assert found.first_order.definition == pytest.approx(0.146563, abs=1e-6)
    assert found.first_order.error.low <= 0 <= found.first_order.error.high
    assert found.first_order.error.value == pytest.approx(found.definition.value - 0.146563, abs=1e-6)
    assert "first-order" in repr(found)
    classes = linear(WEIGHTS)
    classes[1] = nn.Linear(8, 3, bias=False)
    texts = torch.randn(20, 4, 2, generator=torch.Generator().manual_seed(0))
    guess = token_sensitivity(classes, texts, variance=0.01, first_order=True).first_order
    assert guess is not None
    logits, rows = texts.flatten(1) @ classes[1].weight.T, classes[1].weight.detach()
    for number, own in enumerate(logits):
        best, second = own.topk(2).indices
        slopes = (rows[best] - rows[second]).reshape(4, 2).norm(dim=1)
        expected = torch.special.ndtr(-(own[best] - own[second]) / (0.1 * slopes))
        assert guess.changed[number] == pytest.approx(expected.detach().numpy(), abs=1e-5)
    scaled = token_sensitivity(linear(WEIGHTS), 2 * TOKENS[None], variance=4.0, normalise=True, first_order=True)
    rms = (2 * TOKENS).square().mean(dim=1).sqrt()
    expected = torch.special.ndtr(-2 * 2.9 / (2 * rms * WEIGHTS.norm(dim=1)))
    assert scaled.first_order is not None
    assert scaled.first_order.changed[0] == pytest.approx(expected.numpy(), abs=1e-5)
    with pytest.raises(InputError, match=r"an nn\.Module, and the model is a function"):
        token_sensitivity(lambda x: x[:, 0, 0], texts, first_order=True)


def test_flips_replacements_and_noise_differ_on_sparse_parity() -> None:
    bits = np.random.default_rng(0).integers(0, 2, (60, 40))
    flips = token_sensitivity(sparse_parity, bits, how="flip")
    assert flips.definition.value == pytest.approx(0.1)  # four of forty, in every string
    assert set(np.flatnonzero(flips.changed.any(axis=0))) == {3, 11, 17, 29}
    replaced = token_sensitivity(sparse_parity, bits, how="replace", vocabulary=2, draws=20, confidence=0.999)
    assert replaced.definition.low <= 0.05 <= replaced.definition.high  # half of the draws are the same bit again
    assert replaced.definition.value == pytest.approx(0.05, abs=0.004)
    assert replaced.rows < 0.6 * 60 * 40 * 20  # and need no model

    def rounded(numbers: Tensor) -> Tensor:
        return sparse_parity((numbers > 0.5).long())

    noisy = token_sensitivity(rounded, bits.astype(np.float32), variance=0.25, draws=20, confidence=0.999)
    assert noisy.definition.low <= 0.1 * 0.158655 <= noisy.definition.high  # Phi(-1)
    assert noisy.definition.value == pytest.approx(0.0158655, abs=0.003)


def test_every_row_is_one_call_of_the_model(reader: Reader) -> None:
    ids = torch.randint(0, 20, (5, 6), generator=torch.Generator().manual_seed(0))
    found = token_sensitivity(reader, ids, at="embed", variance=3.0, draws=4, seed=7, whole_variance=0)
    reader.eval()
    streams = RowStreams(7)
    with torch.no_grad():
        hidden = reader.embed(ids)

        def answer(h: Tensor) -> int:
            return int(reader.head(reader.mix(h[None]).mean(dim=1)).argmax())

        for i in range(5):
            for t in range(6):
                hits = 0
                for r in range(4):
                    h = hidden[i].clone()
                    h[t] += noise_tensor(streams, np.array([[i, t, r]]), 8, 3**0.5)[0]
                    hits += answer(h) != answer(hidden[i])
                assert found.changed[i, t] == hits / 4
    assert 0.02 < found.definition.value < 0.9
    assert found.whole is None


def test_definition_and_pooled_differ_for_texts_of_different_length(reader: Reader) -> None:
    ids = torch.randint(0, 20, (40, 9), generator=torch.Generator().manual_seed(0))
    lengths = torch.arange(40) % 8 + 2
    mask = (torch.arange(9) < lengths[:, None]).long()
    batch = {"input_ids": ids, "attention_mask": mask}
    found = token_sensitivity(reader, batch, at="embed", variance=5.0, draws=3)
    assert np.array_equal(np.isnan(found.changed), mask.numpy() == 0)  # padding never counts
    assert found.definition.value == pytest.approx(np.mean(np.nanmean(found.changed, axis=1)))
    assert found.pooled.value == pytest.approx(np.nanmean(found.changed))
    assert found.pooled.value != found.definition.value
    assert found.aligned == "right"
    places = found.by_position()
    assert len(places) == 9
    last = np.array([row[length - 1] for row, length in zip(found.changed, lengths, strict=True)])
    assert places[-1].value == pytest.approx(last.mean())
    assert found.by_position("left")[0].value == pytest.approx(found.changed[:, 0].mean())
    longer = {
        "input_ids": torch.nn.functional.pad(ids, (0, 4)),
        "attention_mask": torch.nn.functional.pad(mask, (0, 4)),
    }
    again = token_sensitivity(reader, longer, at="embed", variance=5.0, draws=3)
    assert np.array_equal(again.changed[:, :9], found.changed, equal_nan=True)
    assert again.disturbance.rms == pytest.approx(found.disturbance.rms)


def test_special_tokens_are_left_out_of_replacement_and_counted_by_choice(reader: Reader) -> None:
    ids = torch.randint(3, 20, (10, 6), generator=torch.Generator().manual_seed(0))
    ids[:, 0], ids[:, -1] = 1, 2
    replaced = token_sensitivity(reader, ids, how="replace", special=[1, 2], draws=30)
    assert np.isnan(replaced.changed[:, [0, -1]]).all()
    assert not np.isnan(replaced.changed[:, 1:-1]).any()
    assert replaced.disturbance.vocabulary == 18  # neither of the two is drawn
    counted = token_sensitivity(reader, ids, how="replace", special=[1, 2], count_special=True, draws=30)
    assert not np.isnan(counted.changed).any()
    assert np.array_equal(counted.changed[:, 1:-1], replaced.changed[:, 1:-1])
    noise = token_sensitivity(reader, ids, at="embed", special=[1, 2])
    assert not np.isnan(noise.changed).any()
    few = token_sensitivity(reader, ids, at="embed", special=[1, 2], count_special=False)
    assert np.isnan(few.changed[:, [0, -1]]).all()
    chosen = token_sensitivity(reader, ids, how="replace", vocabulary=[4, 5, 6], draws=2)
    assert chosen.disturbance.vocabulary == 3


def test_patches_of_images_and_any_feature_mask() -> None:
    images = torch.randn(12, 3, 4, 6, generator=torch.Generator().manual_seed(0))
    weights = torch.zeros(3, 4, 6)
    weights[1, 3, 5] = 1.0  # in the last of 2 x 2 patches of 2 x 3
    found = token_sensitivity(linear(weights), images, feature_mask=patches((2, 3)), variance=9.0, draws=50)
    assert found.changed.shape == (12, 4)
    assert (found.changed[:, :3] == 0).all()
    assert (found.changed[:, 3] > 0).all()
    uneven = torch.zeros(3, 4, 6, dtype=torch.int64)
    uneven[1, 3, 4:] = 1  # two numbers are a token, all others the other
    other = token_sensitivity(linear(weights), images, feature_mask=uneven, variance=9.0, draws=50)
    assert (other.changed[:, 0] == 0).all()
    assert (other.changed[:, 1] > 0).all()


def test_replacement_of_numbers_is_from_the_tokens_of_all_inputs() -> None:
    images = torch.ones(3, 1, 2, 2)
    images[0] = -1.0
    found = token_sensitivity(lambda x: x[:, 0, 0, 0], images, feature_mask=patches(1), how="replace", draws=400)
    assert found.disturbance.vocabulary == 12
    assert found.changed[0, 0] == pytest.approx(2 / 3, abs=0.1)
    assert found.changed[1, 0] == pytest.approx(1 / 3, abs=0.1)
    assert (found.changed[:, 1:] == 0).all()
    vectors = np.array([[-1.0], [-2.0]])
    own = token_sensitivity(
        lambda x: x[:, 0, 0, 0], images, feature_mask=patches(1), how="replace", vocabulary=vectors, draws=4
    )
    assert own.changed[:, 0].tolist() == [0, 1, 1]


def test_normalised_noise_is_in_units_of_each_token() -> None:
    model = linear(torch.tensor([[1.0, 0], [0, 1.0]]))
    small = torch.tensor([[[3.0, 4.0], [1.0, 1.0]]]).expand(300, -1, -1)
    found = token_sensitivity(model, small, variance=4.0, normalise=True, draws=20, confidence=0.999)
    # f = 4; token 1 has RMS sqrt(12.5), token 2 RMS 1, and the weights have norm 1.
    exact = [0.285837, 0.022750]  # Phi(-4 / (2 sqrt(12.5))), Phi(-2)
    for estimate, value in zip(found.by_position(), exact, strict=True):
        assert estimate.low <= value <= estimate.high
    assert found.disturbance.relative_std == 2
    assert found.whole is not None
    assert found.whole.low <= 0.293236 <= found.whole.high  # Phi(-4 / (2 sqrt(12.5 + 1)))


def test_results_depend_on_the_seed_and_not_on_chunks(reader: Reader) -> None:
    ids = torch.randint(0, 20, (7, 6), generator=torch.Generator().manual_seed(0))
    found = token_sensitivity(reader, ids, at="embed", variance=3.0, draws=5)
    chunked = token_sensitivity(Subject(reader, memory_limit=20_000), ids, at="embed", variance=3.0, draws=5)
    assert np.array_equal(found.changed, chunked.changed)
    assert found.whole == chunked.whole
    other = token_sensitivity(reader, ids, at="embed", variance=3.0, draws=5, seed=1)
    assert not np.array_equal(found.changed, other.changed)
    few = token_sensitivity(reader, ids, at="embed", variance=3.0, draws=5, tokens=2)
    drawn = few.drawn > 0
    assert (drawn.sum(axis=1) == 2).all()
    assert np.array_equal(few.changed[drawn], found.changed[drawn])


def test_the_model_is_left_as_it_was(reader: Reader) -> None:
    reader.train()
    reader.mix.eval()
    ids = torch.randint(0, 20, (3, 6), generator=torch.Generator().manual_seed(0))
    state, numbers = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    token_sensitivity(reader, ids, at="embed")
    with pytest.raises(InputError):
        token_sensitivity(reader, torch.full_like(ids, 99), at="embed")
    assert reader.training
    assert not reader.mix.training
    assert not any(each._forward_hooks for each in reader.modules())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], numbers)  # noqa: NPY002


def test_two_models_are_compared_on_the_same_noise() -> None:
    texts = torch.randn(200, 4, 2, generator=torch.Generator().manual_seed(0))
    first, second = linear(WEIGHTS), linear(WEIGHTS + 0.05)
    one, two = (token_sensitivity(model, texts, variance=4.0) for model in (first, second))
    difference = one.minus(two)
    assert difference.value == pytest.approx(one.definition.value - two.definition.value)
    assert difference.half_width < one.definition.half_width
    assert one.minus(one).value == 0
    with pytest.raises(InputError, match="differ in seed"):
        one.minus(token_sensitivity(second, texts, variance=4.0, seed=1))
    with pytest.raises(InputError, match="differ in variance"):
        one.minus(token_sensitivity(second, texts, variance=3.0))


# ---------------------------------------------------------------- transformers


def test_a_classifier_of_transformers_before_and_after_the_norm() -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra 'language'")
    torch.manual_seed(0)
    config = transformers.RobertaConfig(
        vocab_size=50, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, num_labels=3
    )
    model = transformers.RobertaForSequenceClassification(config)
    with torch.no_grad():
        for name, each in model.named_parameters():
            if "LayerNorm" not in name:
                each.mul_(8)  # so that it reacts to words
    ids = torch.randint(5, 50, (12, 10), generator=torch.Generator().manual_seed(1))
    ids[:, 0], mask = 0, torch.ones(12, 10, dtype=torch.int64)
    ids[:6, 7:], mask[:6, 7:] = config.pad_token_id, 0
    texts = {"input_ids": ids, "attention_mask": mask}
    after = token_sensitivity(model, texts, at="roberta.embeddings", variance=15.0, draws=2)
    assert after.disturbance.norm_before == "roberta.embeddings.LayerNorm"
    assert after.disturbance.norm_after is None
    assert after.disturbance.rms == pytest.approx(1, abs=0.01)
    assert after.disturbance.rms_disturbed == pytest.approx(4, abs=0.01)
    assert "after the norm roberta.embeddings.LayerNorm; tokens of RMS 1 have 4 with noise" in repr(after)
    before = token_sensitivity(model, texts, at="roberta.embeddings.word_embeddings", variance=15.0, draws=2)
    assert before.disturbance.norm_before is None
    assert before.disturbance.norm_after == "roberta.embeddings.LayerNorm"
    assert "before the norm" in repr(before)
    assert np.array_equal(np.isnan(after.changed), mask.numpy() == 0)
    assert after.definition.value != before.definition.value
    replaced = token_sensitivity(model, texts, how="replace", special=[0, 1, 2], draws=3)
    assert replaced.disturbance.vocabulary == 47
    assert np.isnan(replaced.changed[:, 0]).all()
    with pytest.raises(InputError, match=r"at='roberta\.embeddings'"):
        token_sensitivity(model, texts)


class Recurrent(nn.Module):
    """Tokens through a recurrent layer, whose mean output is read; a convolution before it mixes positions."""

    def __init__(self, kind: type[nn.RNNBase], mixed: bool = False, batch_first: bool = True, **options: Any) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 6)
        self.mix = nn.Conv1d(6, 6, 3, padding=1) if mixed else nn.Identity()
        self.layer = kind(6, 8, batch_first=batch_first, **options)
        self.head = nn.Linear(16 if options.get("bidirectional") else 8, 3)
        with torch.no_grad():  # so that no class wins for all inputs
            self.head.bias -= self(torch.randint(0, 20, (200, 10))).mean(dim=0)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.mix(self.table(ids).transpose(1, 2)).transpose(1, 2)
        if not self.layer.batch_first:
            x = x.transpose(0, 1)
        logits: torch.Tensor = self.head(self.layer(x)[0].mean(dim=1 if self.layer.batch_first else 0))
        return logits


@pytest.mark.parametrize(
    ("made", "shorter"),
    [
        (lambda: Recurrent(nn.LSTM), True),
        (lambda: Recurrent(nn.GRU, num_layers=2), True),
        (lambda: Recurrent(nn.RNN, batch_first=False), True),
        (lambda: Recurrent(nn.LSTM, mixed=True), False),  # a change reaches the layer one position earlier
        (lambda: Recurrent(nn.LSTM, bidirectional=True), False),
    ],
)
@pytest.mark.parametrize("at", [None, "table"])
def test_a_recurrent_layer_starts_at_the_changed_token(
    made: Any, shorter: bool, at: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    model = made()
    ids = torch.randint(0, 20, (24, 10))
    options: dict[str, Any] = {"how": "replace", "draws": 2} if at is None else {"at": at, "variance": 9.0, "draws": 2}
    positions: list[int] = []
    forward = type(model.layer).forward

    def counting(layer: Any, given: torch.Tensor, *state: Any) -> Any:
        positions.append(given.shape[0] * given.shape[1])
        return forward(layer, given, *state)

    monkeypatch.setattr(type(model.layer), "forward", counting)
    found = token_sensitivity(model, ids, **options)
    spent = sum(positions)
    assert "forward" not in vars(model.layer)
    monkeypatch.setattr(TokenSite, "keeps_prefixes", False)
    positions.clear()
    plain = token_sensitivity(model, ids, **options)
    assert 0.02 < plain.changed.mean() < 0.9
    np.testing.assert_array_equal(found.changed, plain.changed)
    assert (spent < 0.8 * sum(positions)) is shorter


@pytest.mark.parametrize(
    ("choices", "shorter"),
    [
        ({}, True),
        ({"padding": 1}, True),  # read at the last position of each text: the last layer is computed everywhere
        ({"marker": "cls", "readout": "mean"}, True),
        ({"causal": False, "readout": "first"}, False),
    ],
)
@pytest.mark.parametrize("at", [None, "embedding"])
def test_a_causal_transformer_computes_what_follows_the_changed_token(
    choices: dict[str, Any], shorter: bool, at: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = dataclasses.replace(gpt2(20, 12, width=16, layers=3, heads=2), **choices)
    model = Transformer(config, scheme="xavier_normal", seed=2)
    ids = torch.randint(2, 20, (24, 10), generator=torch.Generator().manual_seed(1))
    ids[:5, 7:] = 1  # padding, if the model has one
    options: dict[str, Any] = {"how": "replace", "draws": 2} if at is None else {"at": at, "variance": 9.0, "draws": 2}
    rows: list[int] = []
    finish = Block.finish

    def counting(block: Block, x: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        rows.append(x.shape[0] * x.shape[1])
        return finish(block, x, mixed)

    monkeypatch.setattr(Block, "finish", counting)
    found = token_sensitivity(model, ids, **options)
    spent = sum(rows)
    assert not any("forward" in vars(block) for block in model.blocks)
    monkeypatch.setattr(TokenSite, "keeps_prefixes", False)
    rows.clear()
    plain = token_sensitivity(model, ids, **options)
    assert 0.02 < np.nanmean(plain.changed) < 0.9
    np.testing.assert_array_equal(found.changed, plain.changed)
    assert (spent < 0.85 * sum(rows)) is shorter


def test_prefixes_are_kept_only_for_inputs_with_many_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Transformer(gpt2(20, 24, width=16, layers=2, heads=2), scheme="xavier_normal", seed=2)
    ids = torch.randint(2, 20, (150, 24), generator=torch.Generator().manual_seed(1))
    kept: list[int] = []
    keep = TokenSite.keep_prefixes
    monkeypatch.setattr(TokenSite, "keep_prefixes", lambda site, some: (kept.append(len(some)), keep(site, some))[1])
    noise: dict[str, Any] = {"at": "embedding", "variance": 9.0}
    token_sensitivity(model, ids, tokens=1, draws=2, **noise)
    assert kept == []
    # One token of each input, then 3, 12 and 8 more; noise on whole inputs follows, in another order of the inputs.
    adaptive = token_sensitivity(model, ids, precision=0.001, **noise)
    assert sum(kept) > 0
    monkeypatch.setattr(TokenSite, "keeps_prefixes", False)
    plain = token_sensitivity(model, ids, precision=0.001, **noise)
    np.testing.assert_array_equal(adaptive.changed, plain.changed)
    assert adaptive.whole == plain.whole


def test_a_language_model_is_run_from_the_replaced_token_on(monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra 'language'")
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, intermediate_size=32))
    with torch.no_grad():
        for each in model.parameters():
            each.mul_(6)
    ids = torch.randint(3, 40, (9, 8), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[:4, 6:] = 0  # padding at the end
    prompts = {"input_ids": ids, "attention_mask": mask}
    positions = []
    forward = model.forward
    monkeypatch.setattr(
        model, "forward", lambda **given: (positions.append(given["input_ids"].numel()), forward(**given))[1]
    )
    found = token_sensitivity(model, prompts, how="replace", draws=2, label_words="any")
    spent = sum(positions)
    monkeypatch.setattr(TokenSite, "keeps_prefixes", False)
    positions.clear()
    plain = token_sensitivity(model, prompts, how="replace", draws=2, label_words="any")
    assert np.array_equal(found.changed, plain.changed, equal_nan=True)
    assert spent < 0.75 * sum(positions)
    assert np.array_equal(np.isnan(found.changed), mask.numpy() == 0)
    with torch.no_grad():
        logits = model(**prompts).logits
    expected = [logits[row, 5 if row < 4 else 7] for row in range(9)]
    assert found.answers.tolist() == [int(each.argmax()) for each in expected]
    of_two = token_sensitivity(model, prompts, how="replace", label_words=[7, 4])
    assert of_two.answers.tolist() == [int(each[4] > each[7]) for each in expected]
    with pytest.raises(InputError, match="two token ids or more"):
        token_sensitivity(model, prompts, how="replace", label_words=[7])


def test_an_onnx_session_on_floats(tmp_path: Any) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra 'onnx'")
    helper = pytest.importorskip("onnx", reason="needs onnx").helper
    kinds = [helper.make_tensor_value_info(name, 1, ["n", size]) for name, size in (("x", 8), ("y", 1))]
    weights = helper.make_tensor("w", 1, [8, 1], WEIGHTS.flatten().tolist())
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", kinds[:1], kinds[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    texts = TOKENS.reshape(1, 8).expand(50, -1)
    tokens = torch.arange(8) // 2
    found = token_sensitivity(session, texts.numpy(), feature_mask=tokens, variance=4.0, draws=3)
    same = token_sensitivity(linear(WEIGHTS), texts, feature_mask=tokens, variance=4.0, draws=3)
    assert np.array_equal(found.changed, same.changed)


# ---------------------------------------------------------------- how much is measured


def test_precision_stops_when_the_interval_is_narrow_enough() -> None:
    texts = TOKENS.expand(5000, -1, -1)
    found = token_sensitivity(linear(WEIGHTS), texts, variance=4.0, precision=0.03)
    assert found.reached
    assert found.definition.half_width <= 0.03
    assert found.definition.low <= 0.146563 <= found.definition.high
    assert found.rows < 3000
    assert found.drawn.max() == 1
    few = token_sensitivity(linear(WEIGHTS), texts[:20], variance=4.0, precision=0.03)
    assert few.reached is False
    assert few.rows == 80  # every token of every input
    assert "not reached" in repr(few)
    assert few.definition.validity == "anytime"
    assert found.by_position()[0].samples < 5000


def test_positions_of_single_draws_hold_together_as_proportions() -> None:
    found = token_sensitivity(linear(WEIGHTS), TOKENS.expand(500, -1, -1), variance=4.0)
    for place, exact in zip(found.by_position(), EXACT, strict=True):
        assert place.low <= exact <= place.high
        assert place.samples == 500
    hits = round(500 * found.by_position()[0].value)
    assert found.by_position()[0].low == pytest.approx(proportions([hits], 500, 1 - 0.05 / 4)[0].low)
    few = token_sensitivity(linear(WEIGHTS), TOKENS[None], variance=4.0, tokens=1)  # three positions were not drawn
    assert all(each.samples == 1 or (each.low, each.high) == (0, 1) for each in few.by_position())


# ---------------------------------------------------------------- what it shows


def test_the_result_shows_itself(reader: Reader) -> None:
    ids = torch.randint(0, 20, (3, 6), generator=torch.Generator().manual_seed(0))
    words = [[f"word{token}" for token in row] for row in ids.tolist()]
    found = token_sensitivity(reader, ids, at="embed", variance=3.0, words=words)
    assert "noise of variance 3 on the output of embed, sigma/RMS" in repr(found)
    figure = found.plot()
    strips = figure.panels[2:]
    assert [panel.words for panel in strips if isinstance(panel, TextPanel)] == words
    assert strips[0].values == found.changed[0].tolist()
    assert "word" in found.plot().svg()
    cells = token_sensitivity(reader, ids, at="embed", variance=3.0).plot().panels[2]
    assert cells.series[0].values == found.changed.ravel().tolist()
    images = torch.rand(8, 3, 4, 6)
    pictures = token_sensitivity(linear(torch.ones(3, 4, 6)), images, feature_mask=patches(2)).plot().panels[2:]
    assert len(pictures) == 6
    assert all(isinstance(panel, ImagePanel) and len(panel.values) == 6 for panel in pictures)
    document = found.as_json()
    assert document["changed"] == found.changed.tolist()
    assert document["disturbance"]["at"] == "embed"
    assert len(document["by_position"]) == 6


# ---------------------------------------------------------------- what is refused

IDS = torch.zeros(2, 4, dtype=torch.int64)
FLOATS, RAMP = torch.zeros(2, 4, 2), torch.arange(16.0).reshape(2, 4, 2)
IMAGES = torch.zeros(2, 1, 6, 6)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: token_sensitivity(Reader(), IDS), r"tokens are ids: name the module .* at='embed'"),
        (lambda: token_sensitivity(Reader(), IDS, at="no.such"), "at='no.such' is no module of the model"),
        (lambda: token_sensitivity(Reader(), IDS[:, :0], at="embed"), "hold no tokens"),
        (lambda: token_sensitivity(Reader(), IDS, at="embed", mask=torch.zeros(2, 4)), "no token of input 0 counts"),
        (lambda: token_sensitivity(Reader(), IDS, at="embed", mask=torch.ones(2, 5)), r"must be \(2, 4\)"),
        (lambda: token_sensitivity(Reader(), IDS, at="embed", mask=np.full((2, 4), 0.5)), "mask must hold 0 and 1"),
        (lambda: token_sensitivity(Reader(), IDS, at="embed", variance=-1.0), "variance"),
        (lambda: token_sensitivity(Reader(), IDS, at="embed", variance=float("nan")), "variance"),
        (lambda: token_sensitivity(Reader(), (row for row in IDS)), "inputs must be"),
        (lambda: token_sensitivity(linear(WEIGHTS), FLOATS * torch.nan), "NaN or infinity, first in input 0"),
        (lambda: token_sensitivity(linear(WEIGHTS), FLOATS[:, :3]), "the model failed with RuntimeError"),
        (lambda: token_sensitivity(nn.Flatten(), IMAGES, feature_mask=patches(4)), "cannot be cut into patches"),
        (lambda: token_sensitivity(nn.Flatten(), IMAGES), r"feature_mask=patches\(4\)"),
        (lambda: token_sensitivity(lambda x: x[:, 0, 0] * torch.nan, FLOATS), "the model gave NaN"),
        (
            lambda: token_sensitivity(Subject(lambda x: torch.rand(len(x)), output="logit"), FLOATS),
            "for the same inputs",
        ),
        (lambda: token_sensitivity(lambda x: (x - x.mean(0))[:, 0, 0], RAMP), "with the other inputs of its batch"),
        (lambda: token_sensitivity(Reader(), IDS, how="replace", vocabulary=[0], special=[0]), "no token of input 0"),
        (lambda: token_sensitivity(lambda x: x[:, 0] - 0.5, IDS, how="replace"), "how many tokens there are"),
        (lambda: token_sensitivity(Reader(), IDS + 7, how="flip"), "tokens of two values"),
        (lambda: token_sensitivity(Reader(), IDS, how="flip", draws=2), "a flip is not random"),
        (lambda: token_sensitivity(Reader(), IDS, at="embed", how="replace"), "needs vectors"),
        (lambda: token_sensitivity(linear(WEIGHTS), FLOATS, vocabulary=3), "leave it out for noise"),
        (lambda: token_sensitivity(linear(WEIGHTS), FLOATS, special=[1], count_special=False), "special names token"),
        (lambda: token_sensitivity(linear(WEIGHTS), FLOATS, precision=0.1, draws=3), "precision chooses"),
        (lambda: token_sensitivity(linear(WEIGHTS), FLOATS, words=[["a"]]), "words are of 1 inputs"),
        (lambda: token_sensitivity(linear(WEIGHTS), FLOATS, words=[["a"], ["b"]]), "words has 1 for input 0"),
        (lambda: token_sensitivity(linear(WEIGHTS), FLOATS, how="shake"), "how='shake' is not one of"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_measured_is_said_in_one_sentence(call: Any, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        call()
    assert "\n" not in str(caught.value)
