from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.autograd import forward_ad

from flipscope.basics.errors import InputError
from flipscope.models import Transformer, TransformerConfig, encoder, mingpt, recognizer
from flipscope.models.fast_logits import logits_for
from flipscope.models.marker import MarkerLogits, noisy, reads_marker
from flipscope.models.marker.noisy import kept_by_dropout
from flipscope.models.modes import first_derivatives
from flipscope.models.transformer import Block
from flipscope.native.products import LINE
from flipscope.native.span import TOKENS, VARIABLE

GPT = mingpt(7, width=16, heads=4, dropout=0.2)
CONFIGS = {
    "mingpt": GPT,
    "marker first": dataclasses.replace(GPT, marker="cls", readout="first", causal=False),
    "marker first, sees itself only": dataclasses.replace(GPT, marker="cls", readout="first"),
    "not itself": dataclasses.replace(GPT, causal=False, mask_self=True),
    "wide heads": dataclasses.replace(GPT, head_size=5, outputs=1),
    "no bias": dataclasses.replace(GPT, qkv_bias=False, affine=False),
    "no MLP, tanh": dataclasses.replace(GPT, mlp_layers=0, head="tanh", embedding_norm=True),
}
OTHERS = {
    "post": dataclasses.replace(encoder(12, 1, 2), dropout=0.2),
    "once, heads summed": dataclasses.replace(recognizer(10, 1, 2, eps=1e-3), dropout=0.2),
    "no norm": dataclasses.replace(encoder(12, 1, 2), norm="none"),
    "eps 0": dataclasses.replace(GPT, eps=0.0),
    "eps 0 in single precision": dataclasses.replace(GPT, eps=1e-60),
}


def build(config: TransformerConfig, size: float = 0.4) -> tuple[Transformer, Tensor]:
    model = Transformer(config, scheme="gaussian", seed=1, dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(size)
    return model, torch.randint(0, 2, (9, 7), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def gradients(model: nn.Module, logits: Tensor) -> dict[str, Tensor]:
    weights = torch.linspace(-1, 2, logits.numel(), dtype=logits.dtype).view_as(logits)
    model.zero_grad()
    (logits.tanh() * weights).sum().backward()
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def assert_same(model: Transformer, ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    assert len(set(theirs.flatten().tolist())) > 1
    expected = gradients(model, theirs)
    assert any(gradient.abs().max() > 1e-3 for gradient in expected.values())
    for name, gradient in gradients(model, ours).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-7, atol=1e-9, msg=name)


@pytest.fixture(params=TOKENS)
def lanes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv(VARIABLE, str(request.param))
    return int(request.param)


def assert_close_in_single_precision(ours: Tensor, theirs: Tensor, what: str, tolerance: float = 1e-5) -> None:
    assert ours.dtype == torch.float32
    reach = max(1.0, float(theirs.detach().abs().max()))
    torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=tolerance * reach, msg=what)


@pytest.mark.parametrize("name", [*CONFIGS, *OTHERS])
def test_logits_and_gradients_in_evaluation(name: str) -> None:
    model, bits = build({**CONFIGS, **OTHERS}[name])
    model.eval()
    quick = logits_for(model)
    assert isinstance(quick, MarkerLogits)
    if name == "marker first, sees itself only":  # one answer for all strings
        torch.testing.assert_close(quick(bits), model(bits))
    else:
        assert_same(model, quick(bits), model(bits))
    with torch.no_grad():
        torch.testing.assert_close(quick(bits[:, :3]), model(bits[:, :3]))


class Masks:
    """Masks of one forward, to be used by another in the same order, whatever their shapes."""

    def __init__(self) -> None:
        self.drawn: list[Tensor] = []

    def record(self, x: Tensor, p: float, training: bool, _inplace: bool = False) -> Tensor:
        if not training:
            return x
        self.drawn.append((torch.rand(x.shape, dtype=torch.float64) >= p).to(x) / (1 - p))
        return x * self.drawn[-1]

    def again(self, x: Tensor, p: float, training: bool, _inplace: bool = False) -> Tensor:
        return x * self.drawn.pop(0).reshape(x.shape).to(x) if training else x

    def kept(self, size: int, _rate: float) -> Any:
        """The next mask as `kept_by_dropout` gives it: coordinates before positions, and a line more."""
        mask = self.drawn.pop(0) != 0
        if mask.ndim == 3:  # of embeddings [string, position, width]; that of weights has heads and queries too
            mask = mask.transpose(1, 2)
        assert mask.numel() + LINE == size
        return np.concatenate([mask.flatten().numpy(), np.ones(LINE, bool)]).view(np.uint8)


def with_the_same_masks(model: Transformer, bits: Tensor, monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, Tensor]:
    """The logits of the model in float64, and ours in float32 by a copy of it, whose gradients are kept."""
    model.train()
    masks, seen = Masks(), []
    with monkeypatch.context() as patched:
        patched.setattr(nn.functional, "dropout", masks.record)
        theirs = model(bits)
        assert len(masks.drawn) == 4 - (model.config.mlp_count == 0) + (model.config.head == "tanh")
        patched.setattr(nn.functional, "dropout", masks.again)
        patched.setattr(noisy, "kept_by_dropout", masks.kept)
        patched.setattr(Transformer, "forward", lambda *_: seen.append(1))  # it must not be called
        single = copy.deepcopy(model).float()
        with first_derivatives():
            ours = MarkerLogits(single)(bits)
        assert not masks.drawn
        assert not seen
        expected, found = gradients(model, theirs), gradients(single, ours)
    assert any(gradient.abs().max() > 1e-3 for gradient in expected.values())
    assert_close_in_single_precision(ours, theirs, "logits")
    for name, gradient in found.items():
        assert_close_in_single_precision(gradient, expected[name], name)
    return ours, theirs


@pytest.mark.parametrize("name", CONFIGS)
def test_with_the_same_masks_of_dropout_training_is_the_same(
    name: str, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, bits = build(CONFIGS[name])
    _, theirs = with_the_same_masks(model, bits, monkeypatch)
    assert len(set(theirs.flatten().tolist())) > 1


@pytest.mark.parametrize("length", [1, 6, 14, 15, 16, 31, 63, 90])  # with the marker whole vectors, one more, one less
@pytest.mark.parametrize(("width", "heads"), [(3, 1), (12, 3), (15, 5), (20, 1), (64, 16)])
def test_every_length_and_width(
    length: int, width: int, heads: int, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Transformer(mingpt(length, width=width, heads=heads, dropout=0.3), seed=2, dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)).double()
    bits = torch.randint(0, 2, (40, length), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    with_the_same_masks(model, bits, monkeypatch)  # 40 strings are two parts of derivatives
    model.float().eval()
    with torch.no_grad():
        assert_close_in_single_precision(MarkerLogits(model)(bits), copy.deepcopy(model).double()(bits), "logits")


def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = build(GPT)
    model.float().train()
    bits = torch.randint(0, 2, (150, 7), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    found = []
    for threads in (1, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        monkeypatch.setattr("flipscope.native.compiled.cores", lambda: 2)
        monkeypatch.setattr("flipscope.native.compiled.config.NUMBA_NUM_THREADS", 2)
        torch.manual_seed(0)
        with first_derivatives():
            logits = MarkerLogits(model)(bits)
        with torch.no_grad():
            asked = MarkerLogits(model.eval())(bits)
        model.train()
        found.append([logits, asked, *gradients(model, logits).values()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_what_is_not_a_number_is_seen(lanes: int) -> None:
    for bad in (torch.nan, torch.inf):
        model, bits = build(GPT)
        with torch.no_grad():
            model.float().embedding.position.weight[2, 3] = bad
        with first_derivatives():
            assert not MarkerLogits(model.train())(bits).isfinite().any()
        with torch.no_grad():
            assert not MarkerLogits(model.eval())(bits).isfinite().any()


def test_strings_are_computed_in_parts_without_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    model, bits = build(GPT)
    quick = MarkerLogits(model.float().eval())
    with torch.no_grad():
        at_once = quick(bits)
        monkeypatch.setattr("flipscope.models.marker._ROWS", 4)
        torch.testing.assert_close(quick(bits), at_once, rtol=1e-5, atol=1e-6)
        assert quick(bits[:0]).shape == model(bits[:0]).shape


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
def test_many_strings_without_gradients(activation: Any) -> None:
    for outputs, ffn_width, biases in ((1, 10, True), (2, 33, False), (5, 64, True)):
        config = dataclasses.replace(GPT, activation=activation, outputs=outputs, ffn_width=ffn_width, head_bias=biases)
        model = build(config)[0].eval()
        bits = torch.randint(0, 2, (130, 7), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
        with torch.no_grad():
            expected = model(bits)
            found = MarkerLogits(model.float())(bits)
        assert found.shape == expected.shape
        assert_close_in_single_precision(found, expected, f"{outputs} outputs")


def test_the_law_of_the_masks() -> None:
    torch.manual_seed(0)
    for rate in (0.1, 0.25, 0.5, 0.003, 0.998):
        kept = kept_by_dropout(400_000, rate)
        assert set(kept.tolist()) == {0, 1}
        assert stats.binomtest(int((kept == 0).sum()), 400_000, rate).pvalue > 1e-4
    # Neighbours are independent: of a pair both are dropped with the square of the rate.
    pairs = (kept_by_dropout(400_000, 0.3).reshape(-1, 2) == 0).all(axis=1).sum()
    assert stats.binomtest(int(pairs), 200_000, 0.09).pvalue > 1e-4
    # A byte alone cannot say 0.1: 25 and 26 of its 256 values are on either side of it.
    many = int((kept_by_dropout(4_000_000, 0.1) == 0).sum())
    assert abs(many / 4e6 - 0.1) < 6e-4 < min(0.1 - 25 / 256, 26 / 256 - 0.1)
    assert not np.array_equal(kept_by_dropout(100, 0.5), kept_by_dropout(100, 0.5))


def test_dropout_is_at_work_in_training_only() -> None:
    model, bits = build(GPT)
    quick = MarkerLogits(model.float().train())
    with first_derivatives():
        torch.manual_seed(3)
        first, second = quick(bits), quick(bits)
        assert not torch.equal(first, second)
        torch.manual_seed(3)
        assert torch.equal(quick(bits), first)
    model.eval()
    assert torch.equal(quick(bits), quick(bits))


def test_the_mean_over_masks_is_that_of_the_model() -> None:
    model, bits = build(GPT)
    model.float().train()
    torch.manual_seed(0)
    with torch.no_grad(), first_derivatives():
        many = bits[:1].expand(20_000, -1)
        ours, theirs = (ask(many)[:, 0].numpy() for ask in (MarkerLogits(model), model))
    assert stats.ks_2samp(ours, theirs).pvalue > 1e-4


@pytest.mark.parametrize("name", ["post", "once, heads summed", "eps 0", "eps 0 in single precision"])
def test_in_training_with_dropout_other_blocks_are_called(name: str) -> None:
    _is_the_model(build(OTHERS[name])[0].float(), first_derivatives)


def test_in_training_with_dropout_double_precision_is_the_model() -> None:
    _is_the_model(build(GPT)[0], first_derivatives)


def test_what_is_differentiated_twice_is_the_model() -> None:
    _is_the_model(build(GPT)[0].float(), contextlib.nullcontext)


def _is_the_model(model: Transformer, context: Callable[[], Any]) -> None:
    model.train()
    bits = torch.tensor([[0, 1, 1, 0, 1, 0, 1]] * 3, dtype=torch.uint8)
    with context():
        torch.manual_seed(0)
        ours = MarkerLogits(model)(bits)
        torch.manual_seed(0)
        assert torch.equal(ours, model(bits))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_so_sharp_that_exponentials_underflow(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    model, bits = build(GPT, 6.0)
    model.to(dtype).eval()
    with torch.no_grad():
        found, expected = MarkerLogits(model)(bits), model(bits)
    assert found.isfinite().all()
    torch.testing.assert_close(found, expected)
    calls: list[int] = []
    handle = model.register_forward_hook(lambda _model, given, _out: calls.append(len(given[0])))
    monkeypatch.setattr("flipscope.models.marker._ROWS", 4)
    with torch.no_grad():
        MarkerLogits(model)(bits)
    handle.remove()
    assert calls == [4, 4, 1]  # the model takes more memory than the short way


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int16, torch.int32, torch.int64])
def test_bits_of_any_type(dtype: torch.dtype) -> None:
    model, bits = build(GPT)
    single = MarkerLogits(model.float())
    for some in (bits, bits[:, ::2], bits[:7].T, bits[:1].expand(5, -1)):
        other = some.to(dtype)
        with first_derivatives():
            model.train()
            torch.manual_seed(0)
            expected = single(some)
            torch.manual_seed(0)
            assert torch.equal(single(other), expected)
        with torch.no_grad():
            model.eval()
            assert torch.equal(single(other), single(some))
            torch.testing.assert_close(single(other), model(some), rtol=1e-4, atol=1e-5)


def test_another_default_precision() -> None:
    model, bits = build(GPT)
    quick = MarkerLogits(model.float())
    found = []
    before = torch.get_default_dtype()
    for default in (torch.float32, torch.float64):
        torch.set_default_dtype(default)
        try:
            torch.manual_seed(0)
            model.train()
            with first_derivatives():
                logits = quick(bits)
            with torch.no_grad():
                asked = MarkerLogits(model.eval())(bits)
            found.append([logits, asked, *gradients(model, logits).values()])
        finally:
            torch.set_default_dtype(before)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert all(each.dtype == torch.float32 for each in found[1])


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning")  # PyTorch's own make_dual
def test_other_precisions_and_forward_derivatives_are_left_to_the_model() -> None:
    model, bits = build(GPT)
    quick = MarkerLogits(model.float().eval())
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert torch.equal(quick(bits), model(bits))
    model.requires_grad_(False)
    with torch.no_grad(), forward_ad.dual_level():
        weight = model.head.weight
        del model.head.weight
        model.head.weight = forward_ad.make_dual(weight, torch.ones_like(weight))
        tangents = [forward_ad.unpack_dual(ask(bits)).tangent for ask in (quick, model)]
    assert tangents[0] is not None
    assert torch.equal(*tangents)


def test_dropout_of_which_only_a_part_is_at_work_is_left_to_the_model() -> None:
    model, bits = build(GPT)
    model.float().eval()
    block = model.blocks[0]
    assert isinstance(block, Block)
    block.dropout.train()
    found = []
    for ask in (MarkerLogits(model), model, MarkerLogits(model)):
        torch.manual_seed(len(found) // 2)
        with torch.no_grad(), first_derivatives():
            found.append(ask(bits))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[1], found[2])


@pytest.mark.parametrize("training", [True, False])
def test_modes_of_dropout_count_not_that_of_the_model(training: bool) -> None:
    model, bits = build(GPT)
    model.float().train(not training)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.train(training)
    torch.manual_seed(0)
    with torch.no_grad(), first_derivatives():
        first, second = MarkerLogits(model)(bits), MarkerLogits(model)(bits)
    assert torch.equal(first, second) is not training


def test_a_bias_of_keys_has_a_derivative_of_zero() -> None:
    model, bits = build(GPT)
    model.float().train()
    block = model.blocks[0]
    assert isinstance(block, Block)
    with first_derivatives():
        MarkerLogits(model)(bits).sum().backward()
    bias = block.attention.key.bias
    assert bias is not None
    assert bias.grad is not None
    assert torch.equal(bias.grad, torch.zeros_like(bias))
    with torch.no_grad(), first_derivatives():
        bias[0] = torch.nan
        assert MarkerLogits(model)(bits).isnan().all()


def test_single_precision() -> None:
    model, bits = build(GPT)
    model.float().eval()
    found, expected = MarkerLogits(model)(bits), model(bits)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "reads"),
    [({}, True), ({"layers": 2}, False), ({"readout": "first"}, False), ({"marker": "none"}, False),
     ({"attention": "relu"}, False), ({"readout": "mean"}, False), ({"inputs": "tokens"}, False)],
)  # fmt: skip
def test_which_models_have_it(changes: dict[str, Any], reads: bool) -> None:
    assert reads_marker(Transformer(dataclasses.replace(GPT, **changes), seed=0)) == reads


def test_parts_of_a_batch_and_refusals() -> None:
    model, bits = build(GPT)
    quick = MarkerLogits(model.eval())
    assert quick.strings(bits) > MarkerLogits(model.train()).strings(torch.zeros(1, 60_000)) == 16
    with pytest.raises(InputError, match="inputs contain 2"):
        quick(torch.full((1, 3), 2, dtype=torch.uint8))
