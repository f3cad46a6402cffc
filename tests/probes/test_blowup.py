from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from flipscope.adapters.subject import Subject
from flipscope.basics.errors import InputError
from flipscope.models import (
    LayerNorm,
    Transformer,
    TransformerConfig,
    encoder,
    fourier,
    gpt2,
    hardness,
    initialise,
    mingpt,
    recognizer,
    roberta,
    vit_small,
)
from flipscope.probes.blowup import Blowup, blowup, hardness_proxy, neighbourhood

PRESETS = {
    "recognizer": recognizer(8, 2, 3, eps=1e-3),
    "encoder": encoder(16, 3, 4),
    "hardness": hardness(9, width=16),
    "mingpt": mingpt(9, width=16, layers=2, heads=4),
    "vit_small": vit_small(8, 4, 1, width=12, layers=2, heads=3, ffn_width=20),
    "roberta": roberta(11, 9, width=16, layers=2, heads=4),
    "gpt2": gpt2(11, 9, width=16, layers=2, heads=4),
}


def draw(count: int = 6, length: int = 7, seed: int = 0, symbols: int = 2) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, symbols, (count, length)))


def draw_for(config: TransformerConfig) -> Tensor:
    if config.inputs == "patches":
        return torch.from_numpy(np.random.default_rng(0).standard_normal((6, 1, 8, 8))).float()
    return draw(symbols=config.vocabulary)


def by_hand(x: Tensor, eps: float) -> np.ndarray:
    """1 / sqrt(biased variance + eps) of each vector, in float64 and without any of the probe's code."""
    values = x.detach().double().numpy()
    return 1 / np.sqrt(((values - values.mean(-1, keepdims=True)) ** 2).mean(-1) + eps)


def hooks(model: nn.Module) -> int:
    return sum(len(module._forward_pre_hooks) + len(module._forward_hooks) for module in model.modules())


class Wrapped(nn.Module):
    """Bits through an embedding and one step written in the test; then one logit per string."""

    def __init__(self, step: Callable[[Any, Tensor], Tensor], width: int = 4, **modules: nn.Module) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.from_numpy(np.random.default_rng(1).standard_normal((2, 9, width))).float())
        self.step = step
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, bits: Tensor) -> Tensor:
        x = self.table[bits, torch.arange(bits.shape[1])]  # [string, position, width]
        return self.step(self, x).flatten(1).sum(dim=1)


# ---------------------------------------------------------------- the definition


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("eps", [1e-5, 1e-2, 0.0])
def test_width_four_is_one_over_the_root_of_biased_variance_plus_eps(dtype: torch.dtype, eps: float) -> None:
    model = Transformer(recognizer(4, 2, 2, eps=eps), scheme="gaussian", seed=3, dtype=dtype)
    bits = draw()
    found = blowup(model, bits)
    assert found.names == ("blocks.0.norm2", "blocks.1.norm2")
    assert found.eps == (eps, eps)
    states = model.states(bits)
    expected = []
    for index, block in enumerate(model.blocks):  # d = y + nu(sum of the heads), Eq 9
        expected.append(by_hand(states[index] + block.mlp(block.attention(states[index])), eps))
        assert found.inverse_std[index].shape == (6, 8)  # EOS included
        np.testing.assert_allclose(found.inverse_std[index], expected[index], rtol=1e-6 if eps else 1e-5)
    tau = np.stack([1 + z.max(axis=1) for z in expected], axis=1)
    np.testing.assert_allclose(found.tau, tau, rtol=1e-5)
    np.testing.assert_allclose(found.beta, tau.prod(axis=1), rtol=1e-5)
    np.testing.assert_array_equal(found.cumulative[:, 0], found.tau[:, 0])
    np.testing.assert_array_equal(found.cumulative[:, -1], found.beta)


def test_unbiased_variance_without_eps_is_another_number() -> None:
    model = Transformer(encoder(4, 2, 2), seed=1)
    bits = draw(20, 9)
    found = blowup(model, bits)
    proxy = hardness_proxy(model, bits)
    assert found.names == ("blocks.0.norm1", "blocks.0.norm2", "blocks.1.norm1", "blocks.1.norm2")
    # The same norms and positions, with the biased variance: the divisor alone makes (3/4)^2 = 0.5625.
    true = np.prod(
        [
            1 / np.sqrt(z[:, cut:] ** -2 - 1e-5).min(axis=1)
            for z, cut in zip(found.inverse_std, (0, 0, -1, -1), strict=True)
        ],
        axis=0,
    )
    np.testing.assert_allclose(proxy / true, 0.5625, rtol=1e-9)
    for values, unbiased in zip(found.inverse_std, _unbiased(model, bits), strict=True):
        assert (np.abs(unbiased / values - 1) > 0.1).all()


def _unbiased(model: Transformer, bits: Tensor) -> list[np.ndarray]:
    """1 / std with the divisor width - 1 of what each norm of a post-norm encoder sees."""
    seen = []
    states = model.states(bits)
    for x, block in zip(states, model.blocks, strict=False):
        first = x + block.attention(x)
        middle = block.norm1(first)
        seen += [first, middle + block.mlp(middle)]
    return [1 / x.detach().double().std(dim=-1).numpy() for x in seen]


class LlamaRMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.variance_epsilon = 1e-6

    def forward(self, hidden_states: Tensor) -> Tensor:
        square = hidden_states.pow(2).mean(-1, keepdim=True)
        return self.weight * hidden_states * torch.rsqrt(square + self.variance_epsilon)


@pytest.mark.parametrize("size", [1.0, 1e-3, 1e-7])
@pytest.mark.parametrize(
    "norm",
    [
        LayerNorm(4, 1e-5, affine=False),
        LayerNorm(4, 0.0, affine=False),
        nn.LayerNorm(4),
        nn.LayerNorm(4, eps=0.3, elementwise_affine=False),
        nn.RMSNorm(4),
        nn.RMSNorm(4, eps=1e-4),
        nn.RMSNorm(4, dtype=torch.float64),
        LlamaRMSNorm(4),
    ],
    ids=lambda norm: f"{type(norm).__name__}{getattr(norm, 'eps', '')}",
)
def test_the_normalizer_is_what_the_module_multiplies_by(norm: nn.Module, size: float) -> None:
    dtype = next((p.dtype for p in norm.parameters()), torch.float64)
    x = size * torch.from_numpy(np.random.default_rng(0).standard_normal((5, 3, 4))).to(dtype)
    centred = x if "RMS" in type(norm).__name__ else x - x.mean(dim=-1, keepdim=True)
    found = blowup(norm, x)
    ratio = (norm(x).detach() / centred).double().numpy()
    np.testing.assert_allclose(np.broadcast_to(found.inverse_std[0][..., None], ratio.shape), ratio, rtol=2e-4)
    assert found.names == (type(norm).__name__,)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rms_norm_without_eps_in_half_precision(dtype: torch.dtype) -> None:
    # Here PyTorch's default eps is that of float32, not that of the input's type.
    norm = nn.RMSNorm(4, dtype=dtype)
    x = torch.full((2, 1, 4), 1e-4, dtype=dtype)
    ratio = (norm(x).detach().double() / x.double()).numpy()[..., 0]
    np.testing.assert_allclose(blowup(norm, x).inverse_std[0], ratio, rtol=1e-2)


def test_a_norm_over_several_axes_counts_them_all() -> None:
    norm = nn.LayerNorm((3, 4), eps=0.01)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((5, 2, 3, 4))).float()
    found = blowup(norm, x)
    np.testing.assert_allclose(found.inverse_std[0], by_hand(x.flatten(2), 0.01), rtol=1e-6)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_norm_of_every_preset_is_met_once(preset: str) -> None:
    model = Transformer(PRESETS[preset], seed=2)
    found = blowup(model, draw_for(model.config))
    norms = {name for name, module in model.named_modules() if isinstance(module, LayerNorm)}
    assert set(found.names) == norms
    assert len(found.names) == len(norms)
    assert np.isfinite(found.beta).all()
    assert (found.beta <= found.bound).all()
    assert (found.tau > 1).all()
    assert found.infinite == 0


def test_order_is_that_of_execution() -> None:
    found = blowup(Transformer(mingpt(9, width=16, layers=2, heads=4), seed=0), draw())
    blocks = [f"blocks.{index}.norm{which}" for index in (0, 1) for which in (1, 2)]
    assert found.names == (*blocks, "final_norm")
    assert [values.shape[1] for values in found.inverse_std] == [8, 8, 8, 8, 1]


def test_the_last_layer_at_all_positions_or_where_it_is_read() -> None:
    model = Transformer(encoder(8, 2, 2), seed=5)
    bits = draw(12)
    full, read = blowup(model, bits), blowup(model, bits, all_positions=False)
    assert [values.shape[1] for values in full.inverse_std] == [8, 8, 8, 8]
    assert [values.shape[1] for values in read.inverse_std] == [8, 8, 1, 1]
    for index in (2, 3):
        np.testing.assert_allclose(full.inverse_std[index][:, -1:], read.inverse_std[index], rtol=1e-5)
    assert (full.beta >= read.beta * (1 - 1e-5)).all()
    assert (full.beta > read.beta * 1.001).any()


def test_no_norm_no_blowup() -> None:
    found = blowup(Transformer(fourier(7, bit_width=4), seed=0), draw())
    assert found.names == ()
    assert found.tau.shape == (6, 0)
    assert found.cumulative.shape == (6, 0)
    np.testing.assert_array_equal(found.beta, 1)
    assert found.bound == 1


# ---------------------------------------------------------------- Lem 3.2


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    width=st.integers(1, 6),
    layers=st.integers(1, 4),
    eps=st.floats(1e-12, 10),
    scale=st.floats(1e-12, 1e3),
    scheme=st.sampled_from(["uniform", "gaussian", "xavier_uniform", "xavier_normal"]),
)
def test_lemma_3_2_on_random_models(seed: int, width: int, layers: int, eps: float, scale: float, scheme: Any) -> None:
    model = Transformer(recognizer(width, layers, 1, eps=eps), dtype=torch.float64)
    initialise(model, scheme, seed, scale=scale)
    found = blowup(model, draw(8, 5, seed))
    assert (found.beta <= (1 + 1 / math.sqrt(eps)) ** layers * (1 + 1e-12)).all()
    assert (found.beta <= found.bound).all()
    assert (found.tau <= 1 + 1 / math.sqrt(eps)).all()
    assert (found.beta >= 1).all()


def test_lemma_3_2_is_attained_at_zero_variance() -> None:
    config = recognizer(4, 3, 1, eps=1e-4)
    model = Transformer(TransformerConfig(**config.as_dict() | {"positions": "none"}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.7)  # all coordinates are equal
    found = blowup(model, draw())
    np.testing.assert_allclose(found.beta, (1 + 1 / math.sqrt(1e-4)) ** 3, rtol=1e-14)
    assert (found.beta <= found.bound).all()


@pytest.mark.parametrize("eps", [1e-5, 1e-2])
def test_lemma_3_2_while_a_model_is_trained(eps: float) -> None:
    model = Transformer(recognizer(8, 2, 2, eps=eps), scheme="xavier_normal", seed=0)
    bits = draw(64, 6)
    target = bits.sum(dim=1) % 2 * 2.0 - 1
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    start = blowup(model, bits).beta
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.softplus(-target * model(bits)).mean().backward()
        optimizer.step()
    found = blowup(model, bits)
    assert not np.allclose(found.beta, start, rtol=0.05)  # training did something
    assert (found.beta <= (1 + 1 / math.sqrt(eps)) ** 2).all()


# ---------------------------------------------------------------- eps = 0


def test_zero_variance_without_eps_is_infinite_and_counted() -> None:
    def step(module: Any, x: Tensor) -> Tensor:
        return module.norm(x)

    model = Wrapped(step, norm=LayerNorm(4, 0.0, affine=False))
    with torch.no_grad():
        model.table[1, 2:4] = 5.0  # a bit 1 there has four equal coordinates
    bits = torch.tensor([[1, 1, 0, 0, 1], [0, 0, 1, 1, 1], [1, 1, 0, 0, 0]])
    found = blowup(model, bits)
    assert found.infinite == 2
    np.testing.assert_array_equal(np.isinf(found.inverse_std[0]).nonzero(), ([1, 1], [2, 3]))
    np.testing.assert_array_equal(np.isinf(found.tau[:, 0]), [False, True, False])
    np.testing.assert_array_equal(np.isinf(found.beta), [False, True, False])
    assert found.bound == math.inf


def test_infinite_blowup_of_a_whole_transformer_is_no_nan() -> None:
    model = Transformer(recognizer(4, 3, 1, eps=0.0), dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    model.embedding.positions = lambda count: torch.ones(count, 4)  # type: ignore[method-assign]
    found = blowup(model, draw(4, 5))
    assert found.infinite == 4 * 6 * 3
    for values in (*found.inverse_std, found.tau, found.cumulative, found.beta):
        assert np.isposinf(values).all()
    assert np.isposinf(neighbourhood(model, draw(2, 5)).beta).all()


@pytest.mark.parametrize("width", [3, 7, 10])
def test_equal_numbers_have_no_variance_however_they_round(width: int) -> None:
    # The mean of ten times 0.1 is not 0.1 in floats.
    values = torch.tensor([0.1, 0.7, 1 / 3, 1e7 / 3])
    x = values[:, None, None].expand(4, 1, width)
    assert blowup(LayerNorm(width, 0.0, affine=False), x).infinite == 4
    assert blowup(LayerNorm(width, 0.0, affine=False), x.double()).infinite == 4


@pytest.mark.parametrize("size", [1e-30, 1e-170, 1e-300, 1e170, 1e300])
def test_variances_beyond_the_range_of_floats(size: float) -> None:
    x = size * torch.tensor([[[1.0, 2.0, 3.0, 4.0]]], dtype=torch.float64)
    found = blowup(LayerNorm(4, 0.0, affine=False), x)
    assert found.inverse_std[0][0, 0] * size == pytest.approx(1 / math.sqrt(1.25), rel=1e-12)
    assert found.infinite == 0
    # With an eps the same vectors give 1 / sqrt(eps), or nearly nothing.
    z = blowup(LayerNorm(4, 1e-4, affine=False), x).inverse_std[0][0, 0]
    assert z == pytest.approx(100.0 if size < 1 else 1 / (size * math.sqrt(1.25)), rel=1e-9)


def test_a_product_beyond_the_range_of_floats_is_infinite_without_a_warning() -> None:
    one = np.full((2, 3), 1e200)
    found = Blowup(2, ("a", "b"), (0.0, 0.0), (one, one))
    assert np.isposinf(found.beta).all()
    assert np.isposinf(found.cumulative[:, 1]).all()
    assert found.infinite == 0


# ---------------------------------------------------------------- other modules and layouts


def torch_encoder(batch_first: bool, dropout: float = 0.0) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=dropout, batch_first=batch_first)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=batch_first)


@pytest.mark.parametrize("strings", [1, 2, 7, 9])  # 7 strings of 7 bits: shapes alone do not tell the axes
@pytest.mark.parametrize("batch", [1, 3, 64])
def test_strings_on_the_second_axis(strings: int, batch: int) -> None:
    straight = Wrapped(lambda module, x: module.body(x), body=torch_encoder(True))
    turned = Wrapped(lambda module, x: module.body(x.transpose(0, 1)).transpose(0, 1), body=torch_encoder(False))
    bits = draw(strings)
    one, other = blowup(Subject(straight, batch=64), bits), blowup(Subject(turned, batch=batch), bits)
    assert one.names == other.names == tuple(f"body.layers.{i}.norm{k}" for i in (0, 1) for k in (1, 2))
    for a, b in zip(one.inverse_std, other.inverse_std, strict=True):
        assert a.shape == (strings, 7)
        np.testing.assert_allclose(a, b, rtol=1e-4)


def test_our_transformer_and_pytorchs_with_the_same_weights_agree() -> None:
    model = Transformer(encoder(8, 2, 2), scheme="gaussian", seed=4, dtype=torch.float64)
    layer = nn.TransformerEncoderLayer(8, 2, 32, dropout=0.0, batch_first=True, dtype=torch.float64)
    theirs = nn.TransformerEncoder(layer, 2)
    with torch.no_grad():
        for ours, copy in zip(model.blocks, theirs.layers, strict=True):
            attention = ours.attention
            copy.self_attn.in_proj_weight.copy_(
                torch.cat([attention.query.weight, attention.key.weight, attention.value.weight])
            )
            copy.self_attn.in_proj_bias.copy_(
                torch.cat([attention.query.bias, attention.key.bias, attention.value.bias])
            )
            copy.self_attn.out_proj.load_state_dict(attention.output.state_dict())
            copy.linear1.load_state_dict(ours.mlp.up.state_dict())
            copy.linear2.load_state_dict(ours.mlp.down.state_dict())
            copy.norm1.load_state_dict(ours.norm1.state_dict())
            copy.norm2.load_state_dict(ours.norm2.state_dict())
    bits = draw()
    with torch.no_grad():
        embedded = model.embed(bits)
    np.testing.assert_allclose(blowup(theirs, embedded).tau, blowup(model, bits).tau, rtol=1e-9)


def test_fused_layers_with_padding_are_seen_through() -> None:
    body = torch_encoder(True)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((3, 5, 4))).float()
    found = blowup(
        body, x, forward=lambda part: body(part, src_key_padding_mask=torch.arange(5).expand(len(part), 5) > 3)
    )
    assert [values.shape for values in found.inverse_std] == [(3, 5)] * 4
    assert torch.backends.mha.get_fastpath_enabled()


def test_strings_and_positions_in_one_axis_are_told_apart() -> None:
    straight = Wrapped(lambda module, x: module.norm(x), norm=nn.LayerNorm(4))
    for flat in (
        Wrapped(lambda module, x: module.norm(x.flatten(0, 1)).view(x.shape), norm=nn.LayerNorm(4)),
        Wrapped(
            lambda module, x: module.norm(x.transpose(0, 1).flatten(0, 1)).view(-1, len(x), 4).transpose(0, 1),
            norm=nn.LayerNorm(4),
        ),
        Wrapped(lambda module, x: torch.stack([module.norm(one) for one in x]), norm=nn.LayerNorm(4)),
    ):
        bits = draw(5)
        np.testing.assert_allclose(blowup(flat, bits).inverse_std[0], blowup(straight, bits).inverse_std[0], rtol=1e-6)


def test_a_norm_that_sees_pairs_of_strings_gets_one_string_at_a_time() -> None:
    model = Wrapped(lambda module, x: module.norm(x[:, None] + x[None]).mean(dim=1), norm=nn.LayerNorm(4, eps=0.0))
    plain = Wrapped(lambda module, x: module.norm(x), norm=nn.LayerNorm(4, eps=0.0))
    found = blowup(model, draw(5)).inverse_std[0]
    np.testing.assert_allclose(found, blowup(plain, draw(5)).inverse_std[0] / 2, rtol=1e-6)


def test_a_norm_that_sees_no_string_is_the_same_for_all() -> None:
    def step(module: Any, x: Tensor) -> Tensor:
        return x + module.norm(module.table[0, : x.shape[1]])

    model = Wrapped(step, norm=nn.LayerNorm(4))
    found = blowup(model, draw(5))
    np.testing.assert_allclose(found.inverse_std[0], np.tile(by_hand(model.table[0, :7], 1e-5), (5, 1)), rtol=1e-6)


def test_a_norm_called_twice_counts_twice() -> None:
    model = Wrapped(
        lambda module, x: module.norm(input=3 * module.norm(x)), norm=nn.LayerNorm(4, elementwise_affine=False)
    )
    found = blowup(model, draw(5))
    assert found.names == ("norm", "norm #2")
    # What comes out of the norm has variance 1 (less a little), and is tripled.
    np.testing.assert_allclose(found.inverse_std[1], 1 / 3, rtol=1e-3)
    np.testing.assert_allclose(found.beta, found.tau[:, 0] * found.tau[:, 1], rtol=1e-12)


def test_inputs_changed_by_a_hook_of_the_users_are_measured_as_changed() -> None:
    model = Wrapped(lambda module, x: module.norm(x), norm=nn.LayerNorm(4, eps=0.0))
    before = blowup(model, draw()).inverse_std[0]
    handle = model.norm.register_forward_pre_hook(lambda module, args: (2 * args[0],))
    np.testing.assert_allclose(blowup(model, draw()).inverse_std[0], before / 2, rtol=1e-12)
    assert hooks(model) == 1
    handle.remove()


@pytest.mark.parametrize("batch", [1, 2, 5, 100])
def test_batches_do_not_matter(batch: int) -> None:
    model = Transformer(encoder(8, 2, 2), seed=5, dtype=torch.float64)
    whole, parts = blowup(model, draw(11)), blowup(Subject(model, batch=batch), draw(11))
    np.testing.assert_allclose(parts.tau, whole.tau, rtol=1e-12)
    np.testing.assert_allclose(
        hardness_proxy(Subject(model, batch=batch), draw(11)), hardness_proxy(model, draw(11)), rtol=1e-12
    )


def test_arrays_and_tensors_alike() -> None:
    model = Transformer(encoder(8, 2, 2), seed=5)
    bits = np.broadcast_to(draw().numpy().astype(np.uint8)[:, ::-1], (6, 7))  # read-only, backwards in memory
    np.testing.assert_array_equal(blowup(model, bits).beta, blowup(model, torch.tensor(bits.tolist())).beta)


# ---------------------------------------------------------------- neighbours


def test_neighbourhood_is_the_blowup_on_each_flip() -> None:
    model = Transformer(encoder(8, 2, 2), seed=7, dtype=torch.float64)
    bits = draw(4, 6)
    found = neighbourhood(Subject(model, batch=10), bits)
    assert found.positions == tuple(range(6))
    assert found.tau.shape == (4, 7, 4)
    np.testing.assert_allclose(found.tau[:, 0], blowup(model, bits).tau, rtol=1e-12)
    for position in range(6):
        flipped = bits.clone()
        flipped[:, position] ^= 1
        np.testing.assert_allclose(found.beta[:, position + 1], blowup(model, flipped).beta, rtol=1e-12)
    some = neighbourhood(model, bits.numpy(), [4, 1])
    assert some.positions == (1, 4)
    np.testing.assert_allclose(some.tau, found.tau[:, [0, 2, 5]], rtol=1e-12)


# ---------------------------------------------------------------- the model is left as it was


def test_dropout_is_off_and_every_module_is_left_in_its_mode() -> None:
    model = Transformer(mingpt(9, width=16, layers=2, heads=4, dropout=0.5), seed=0)
    model.train()
    model.blocks[1].eval()
    modes = [module.training for module in model.modules()]
    first, second = blowup(model, draw()), blowup(model, draw())
    np.testing.assert_array_equal(first.beta, second.beta)
    assert [module.training for module in model.modules()] == modes
    np.testing.assert_array_equal(first.beta, blowup(model.eval(), draw()).beta)
    assert hooks(model) == 0


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_an_exception_leaves_no_hook_behind(call: int) -> None:
    calls = 0

    def step(module: Any, x: Tensor) -> Tensor:
        nonlocal calls
        x = module.norm(x)
        calls += 1
        if calls == call:
            raise RuntimeError("out of luck")
        return x

    model = Wrapped(step, norm=nn.LayerNorm(4)).train()
    with pytest.raises(InputError, match="the model failed with RuntimeError: out of luck"):
        blowup(Subject(model, batch=3), draw(6))
    assert hooks(model) == 0
    assert model.training
    assert model.norm.training
    assert torch.is_grad_enabled()
    assert torch.backends.mha.get_fastpath_enabled()


# ---------------------------------------------------------------- bad input


def test_nan_and_infinity_are_refused() -> None:
    for wrong in (math.nan, math.inf):
        model = Transformer(encoder(8, 2, 2), seed=0)
        with torch.no_grad():
            model.blocks[1].mlp.down.bias[0] = wrong
        with pytest.raises(InputError, match=r"NaN or infinite numbers in blocks\.1\.mlp"):
            blowup(model, draw())
        assert hooks(model) == 0


class CustomLayerNorm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


@pytest.mark.parametrize(
    ("model", "inputs", "sentence"),
    [
        (lambda bits: bits, draw(), "read inside an nn.Module, and the model is a function"),
        (Transformer(encoder(8, 1, 2)), [[0, 1]], "strings must be a torch tensor or a numpy array"),
        (Transformer(encoder(8, 1, 2)), draw(0), r"inputs of shape \(0, 7\) hold no string"),
        (Transformer(encoder(8, 1, 2)), np.array([["a"]]), "must be numbers"),
        (Transformer(encoder(8, 1, 2)), 2 * draw(), "inputs contain 2, but symbols are 0 to 1"),
        (Transformer(encoder(8, 1, 2), seed=None), draw(), "no numbers: build it with a seed"),
        (nn.Linear(3, 4), torch.ones(2, 3), "the Linear has no nn.LayerNorm or nn.RMSNorm to measure"),
        (nn.Sequential(nn.LayerNorm(3), CustomLayerNorm()), torch.ones(2, 3), "a norm of class CustomLayerNorm"),
    ],
)
def test_bad_input_is_one_sentence(model: Any, inputs: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        blowup(model, inputs)


def test_bad_options_are_refused() -> None:
    model = Transformer(encoder(8, 1, 2))
    with pytest.raises(InputError, match="batch must be a whole number of at least 1, not 0"):
        blowup(Subject(model, batch=0), draw())
    with pytest.raises(InputError, match="none of the 2 norms of the Transformer was called"):
        blowup(model, draw(), forward=lambda bits: bits)
    for strings, sentence in (
        (draw(4).flatten(), "must have two axes"),
        (2 * draw(), "strings contain 2"),
        (draw(0), "are empty"),
    ):
        with pytest.raises(InputError, match=sentence):
            neighbourhood(model, strings)
    with pytest.raises(InputError, match="position 7 does not exist"):
        neighbourhood(model, draw(), [7])


def test_a_model_that_calls_other_norms_on_other_strings_is_refused() -> None:
    def step(module: Any, x: Tensor) -> Tensor:
        return module.two(x) if len(x) == 3 else module.one(x)

    model = Wrapped(step, one=nn.LayerNorm(4), two=nn.LayerNorm(4))
    with pytest.raises(InputError, match=r"calls other norms on string 4 \(two\) than before \(one\)"):
        blowup(Subject(model, batch=4), draw(7))


def test_the_proxy_refuses_models_it_is_not_about() -> None:
    vectors = torch.rand(3, 2, 4)
    with pytest.raises(InputError, match="and 0 is a RMSNorm"):
        hardness_proxy(nn.Sequential(nn.RMSNorm(4)), vectors)
    with pytest.raises(InputError, match="part='decoder' holds none of the norms 0"):
        hardness_proxy(nn.Sequential(nn.LayerNorm(4)), vectors, part="decoder")
    with pytest.raises(InputError, match="over='median'"):
        hardness_proxy(nn.Sequential(nn.LayerNorm(4)), vectors, over="median")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"has no nn\.LayerNorm"):
        hardness_proxy(nn.Sequential(nn.Linear(4, 1)), vectors)
    with pytest.raises(InputError, match="norm='none'"):
        hardness_proxy(Transformer(fourier(7, bit_width=4)), draw())
    with pytest.raises(InputError, match=r"blocks\.0\.norm2 has width 1"):
        hardness_proxy(Transformer(recognizer(1, 1)), draw())


# ---------------------------------------------------------------- means over positions, encoders and decoders


def test_the_mean_over_positions_in_place_of_the_largest() -> None:
    model = Transformer(encoder(8, 2, 2), seed=5, dtype=torch.float64)
    found = blowup(model, draw())
    means = np.stack([1 + each.mean(axis=1) for each in found.inverse_std], axis=1)
    np.testing.assert_allclose(found.mean_tau, means, rtol=1e-12)
    np.testing.assert_allclose(found.mean_beta, means.prod(axis=1), rtol=1e-12)
    assert (found.mean_beta < found.beta).all()
    # In the last layer one position is left, whose mean is itself.
    std = [np.sqrt(each**-2 - 1e-5) * math.sqrt(8 / 7) for each in found.inverse_std]
    by_definition = (1 / std[0]).mean(1) * (1 / std[1]).mean(1) / std[2][:, -1] / std[3][:, -1]
    np.testing.assert_allclose(hardness_proxy(model, draw(), over="mean"), by_definition, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch", [1, 3, 64])
def test_all_norms_of_an_encoder_and_a_decoder(norm_first: bool, batch: int) -> None:
    model = initialise(nn.Transformer(8, 2, 2, 2, 16, batch_first=True, norm_first=norm_first), seed=3).double()
    stream = np.random.default_rng(0)
    strings = tuple(torch.from_numpy(stream.standard_normal((7, length, 8))) for length in (5, 4))
    seen: dict[str, Tensor] = {}
    handles = [
        module.register_forward_pre_hook(lambda _, given, name=name: seen.__setitem__(name, given[0]))
        for name, module in model.named_modules()
        if isinstance(module, nn.LayerNorm)
    ]
    model.train(False)
    torch.backends.mha.set_fastpath_enabled(False)
    model(*strings)
    torch.backends.mha.set_fastpath_enabled(True)
    for handle in handles:
        handle.remove()
    found = blowup(Subject(model, batch=batch), strings)
    assert found.strings == 7
    assert sorted(found.names) == sorted(seen)
    assert [name for name in found.names if name.startswith("decoder.layers.1")] == [
        *("decoder.layers.1.norm1", "decoder.layers.1.norm2", "decoder.layers.1.norm3")
    ]
    for name, values in zip(found.names, found.inverse_std, strict=True):
        np.testing.assert_allclose(values, by_hand(seen[name], 1e-5), rtol=1e-9)
    halves = [found.part(part) for part in ("encoder", "decoder")]
    assert [len(half.names) for half in halves] == [2 * 2 + 1, 3 * 2 + 1]
    np.testing.assert_allclose(halves[0].beta * halves[1].beta, found.beta, rtol=1e-12)
    layers = [name for name in seen if name.startswith("decoder.layers.")]
    proxy = np.prod([(1 / seen[name].detach().std(dim=-1)).amax(dim=1).numpy() for name in layers], axis=0)
    np.testing.assert_allclose(
        hardness_proxy(Subject(model, batch=batch), strings, part="decoder.layers"), proxy, rtol=1e-9
    )
    with pytest.raises(InputError, match="part='decode' holds none"):
        found.part("decode")


def test_several_inputs_must_have_as_many_strings() -> None:
    with pytest.raises(InputError, match="inputs hold 3 and 2 strings"):
        blowup(nn.Transformer(8, 2, 1, 1, 16, batch_first=True), (torch.rand(3, 5, 8), torch.rand(2, 5, 8)))
