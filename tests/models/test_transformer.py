from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

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

PRESETS = {
    "recognizer": recognizer(8, 2, 3),
    "recognizer_eps": recognizer(8, 2, 2, eps=1e-3),
    "encoder": encoder(16, 3, 4),
    "hardness": hardness(9, width=16),
    "fourier": fourier(9, bit_width=6),
    "mingpt": mingpt(9, width=16, layers=2, heads=4),
    "vit_small": vit_small(8, 4, 1, width=12, layers=2, heads=3, ffn_width=20),
    "roberta": roberta(11, 9, width=16, layers=2, heads=4),
    "gpt2": gpt2(11, 9, width=16, layers=2, heads=4),
}


def build(config: TransformerConfig, dtype: torch.dtype = torch.float64, seed: int = 0) -> Transformer:
    """A model whose biases and gains are random too, in evaluation mode."""
    model = Transformer(config, dtype=dtype)
    return initialise(model, "gaussian", seed, scale=0.5).eval()


def draw_inputs(config: TransformerConfig, count: int = 5, length: int = 7, seed: int = 0) -> Tensor:
    rng = np.random.default_rng(seed)
    if config.inputs == "patches":
        shape = (count, config.channels, config.image_size, config.image_size)
        return torch.from_numpy(rng.standard_normal(shape))
    return torch.from_numpy(rng.integers(0, config.vocabulary, (count, length)))


@pytest.fixture(params=PRESETS, name="config")
def _config(request: pytest.FixtureRequest) -> TransformerConfig:
    return PRESETS[request.param]


# ---------------------------------------------------------------- against other implementations


def pytorch_encoder(model: Transformer) -> nn.TransformerEncoder:
    """PyTorch's own encoder with the model's weights."""
    config = model.config
    layer = nn.TransformerEncoderLayer(
        config.width,
        config.heads,
        config.hidden_width,
        dropout=0.0,
        activation=config.activation,
        layer_norm_eps=config.eps,
        batch_first=True,
        norm_first=config.norm == "pre",
    )
    final = nn.LayerNorm(config.width, eps=config.eps) if config.final_norm else None
    theirs = nn.TransformerEncoder(layer, config.layers, norm=final, enable_nested_tensor=False)
    theirs = theirs.to(next(model.parameters()).dtype)
    names = {"attention.output": "self_attn.out_proj", "mlp.up": "linear1", "mlp.down": "linear2"}
    ours = model.state_dict()
    state = {}
    for i in range(config.layers):
        for kind in ("weight", "bias"):
            parts = [ours[f"blocks.{i}.attention.{part}.{kind}"] for part in ("query", "key", "value")]
            state[f"layers.{i}.self_attn.in_proj_{kind}"] = torch.cat(parts)
            for name, other in (names | {"norm1": "norm1", "norm2": "norm2"}).items():
                state[f"layers.{i}.{other}.{kind}"] = ours[f"blocks.{i}.{name}.{kind}"]
    if config.final_norm:
        state |= {f"norm.{kind}": ours[f"final_norm.{kind}"] for kind in ("weight", "bias")}
    theirs.load_state_dict(state)
    return theirs.eval()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("causal", [False, True])
def test_equals_pytorch_encoder(dtype: torch.dtype, norm: str, activation: str, causal: bool) -> None:
    config = dataclasses.replace(
        encoder(32, 3, 4, ffn_width=48),
        norm=norm,
        activation=activation,
        causal=causal,
        final_norm=norm == "pre",
    )
    model = initialise(Transformer(config, dtype=dtype), "xavier_normal", 1).eval()
    bits = draw_inputs(config, 6, 20)
    x = model.embed(bits)
    mask = nn.Transformer.generate_square_subsequent_mask(21, dtype=dtype) if causal else None
    expected = pytorch_encoder(model)(x, mask=mask)
    got = model.encode(x)
    if model.final_norm is not None:
        got = model.final_norm(got)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    error = (got - expected).abs().max() / expected.abs().max()
    assert error.item() <= tolerance
    torch.testing.assert_close(model(bits), model.head(expected[:, -1])[:, 0], rtol=tolerance, atol=2 * tolerance)


def test_padding_equals_pytorch_encoder() -> None:
    config = dataclasses.replace(roberta(11, 9, width=16, layers=2, heads=4), head="linear")
    model = build(config)
    tokens = draw_inputs(config)
    keep = torch.arange(7) < torch.tensor([[7], [1], [4], [6], [2]])
    expected = pytorch_encoder(model)(model.embed(tokens), src_key_padding_mask=~keep)
    torch.testing.assert_close(model.encode(model.embed(tokens), keep)[keep], expected[keep])


@pytest.mark.parametrize("eps", [0.0, 0.3])
def test_recognizer_is_equations_7_to_14(eps: float) -> None:
    model = build(recognizer(6, 2, 3, eps=eps))
    bits = draw_inputs(model.config, 3, 5)
    weights = {name: value.numpy() for name, value in model.state_dict().items()}

    def recognize(string: np.ndarray) -> float:
        width = 6
        y = []
        for n, symbol in enumerate([*string, 2]):  # 2 is EOS
            place = [(np.sin if d % 2 == 0 else np.cos)(n / 10000 ** (2 * (d // 2) / width)) for d in range(width)]
            y.append(weights["embedding.symbol.weight"][symbol] + place)  # Eq 7
        for layer in range(2):
            named = {k.removeprefix(f"blocks.{layer}."): v for k, v in weights.items()}
            following = []
            for n in range(len(y)):
                total = np.zeros(width)
                for h in range(3):
                    q, k, v = (
                        named[f"attention.{part}.weight"][h * width : (h + 1) * width]
                        for part in ("query", "key", "value")
                    )
                    a = np.array([(k @ y[m]) @ (q @ y[n]) for m in range(len(y))])  # Eq 8a
                    b = np.exp(a) / np.exp(a).sum()  # Eq 8b
                    total += sum(b[m] * (v @ y[m]) for m in range(len(y)))  # Eq 8c
                hidden = np.maximum(named["mlp.up.weight"] @ total + named["mlp.up.bias"], 0)
                nu = named["mlp.down.weight"] @ hidden + named["mlp.down.bias"]  # Eq 10
                d = y[n] + nu  # Eq 9
                z = 1 / np.sqrt(((d - d.mean()) ** 2).mean() + eps)  # Eqs 11, 12
                following.append(z * (d - d.mean()))  # Eq 13
            y = following
        return float(weights["head.weight"][0] @ y[-1] + weights["head.bias"][0])  # Eq 14

    expected = [recognize(string) for string in bits.numpy()]
    np.testing.assert_allclose(model(bits).detach().numpy(), expected, rtol=1e-10)


@pytest.mark.parametrize("attention", ["softmax", "relu", "linear"])
def test_attention_kinds_by_hand(attention: str) -> None:
    config = dataclasses.replace(recognizer(4, 1), attention=attention, logit_scale=0.5, causal=True)
    layer = build(config).blocks[0].attention
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((1, 3, 4)))
    q, k, v = (part.weight @ x[0].T for part in (layer.query, layer.key, layer.value))  # [size, position]
    for row in range(3):
        scores = 0.5 * q[:, row] @ k[:, : row + 1]
        weights = {"softmax": scores.softmax(0), "relu": scores.clamp(min=0), "linear": scores}[attention]
        torch.testing.assert_close(layer(x)[0, row], v[:, : row + 1] @ weights)


# ---------------------------------------------------------------- seams


def test_forward_is_the_read_out_of_all_states(config: TransformerConfig) -> None:
    model = build(config)
    inputs = draw_inputs(config)
    states = model.states(inputs)
    assert len(states) == config.layers + 1
    torch.testing.assert_close(model.encode(model.embed(inputs)), states[-1])
    logits = model(inputs)
    torch.testing.assert_close(model.read(states[-1]), logits)
    assert logits.shape == ((5,) if config.outputs == 1 else (5, config.outputs))
    assert bool(logits.isfinite().all())
    assert len(set(logits.flatten().tolist())) > 1


@pytest.mark.parametrize("rows", [slice(2, 3), slice(0, 1), torch.tensor([3, 0, 2])])
def test_block_rows(config: TransformerConfig, rows: slice | Tensor) -> None:
    model = build(config)
    x = model.embed(draw_inputs(config))
    block = model.blocks[0]
    torch.testing.assert_close(block(x, rows), block(x)[:, rows])


def test_steps_of_a_block(config: TransformerConfig) -> None:
    model = build(config)
    x = model.embed(draw_inputs(config))
    block = model.blocks[0]
    attention = block.attention
    seen = block.norm1(x) if config.norm == "pre" else x
    query, key, value = (attention.split(part(seen)) for part in (attention.query, attention.key, attention.value))
    weights = attention.weights(attention.scores(query, key), attention.visible(seen))
    mixed = attention.mix(weights, value)
    torch.testing.assert_close(mixed, attention(seen))
    torch.testing.assert_close(block.finish(x[:, 1], mixed[:, 1]), block(x)[:, 1])


@pytest.mark.parametrize(
    ("block", "norm"),
    [("standard", "none"), ("standard", "once"), ("standard", "pre"), ("sum", "none"), ("sum", "pre")],
)
def test_block_formulas(block: str, norm: str) -> None:
    config = dataclasses.replace(encoder(8, 1, 2), block=block, norm=norm)
    layer = build(config).blocks[0]
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 4, 8)))
    attend, mlp, n1, n2 = layer.attention, layer.mlp, layer.norm1, layer.norm2
    y = x + attend(n1(x) if norm == "pre" else x)
    expected = {
        ("standard", "none"): lambda: y + mlp(y),
        ("standard", "once"): lambda: n2(y + mlp(y)),
        ("standard", "pre"): lambda: y + mlp(n2(y)),
        ("sum", "none"): lambda: x + mlp(attend(x)),
        ("sum", "pre"): lambda: x + mlp(attend(n1(x))),
    }[block, norm]()
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("norm", ["none", "once", "post", "pre"])
def test_layer_without_mlp(norm: str) -> None:
    config = dataclasses.replace(encoder(8, 2, 2), norm=norm, mlp_layers=1)
    layer = build(config).blocks[1]
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 4, 8)))
    y = x + layer.attention(layer.norm1(x) if norm == "pre" else x)
    last = {"once": layer.norm2, "post": layer.norm1}.get(norm)
    torch.testing.assert_close(layer(x), y if last is None else last(y))
    assert layer.mlp is None


# ---------------------------------------------------------------- layer norm


@pytest.mark.parametrize("affine", [False, True])
def test_layer_norm_equals_pytorch(affine: bool) -> None:
    ours = initialise(LayerNorm(12, 1e-3, affine).double(), "gaussian", 3)
    theirs = nn.LayerNorm(12, eps=1e-3, elementwise_affine=affine).double()
    theirs.load_state_dict(ours.state_dict())
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((5, 2, 12)))
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.5])
def test_normalizer_is_the_biased_one(eps: float) -> None:
    x = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    expected = 1 / np.sqrt(x.astype(np.float64).var(axis=1) + eps)
    norm = LayerNorm(4, eps, affine=False)
    got = norm.normalizer(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    centred = x - x.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(norm(torch.from_numpy(x)), centred * expected[:, None], rtol=1e-4, atol=1e-6)


def test_zero_variance_at_eps_zero_gives_zero() -> None:
    norm = LayerNorm(3, 0.0, affine=False)
    x = torch.tensor([[0.1, 0.1, 0.1], [0.0, 0.0, 0.0], [1.0, 2.0, 4.0]], requires_grad=True)
    y = norm(x)
    assert y[:2].eq(0).all()
    assert norm.normalizer(x)[:2].isinf().all()
    y.square().sum().backward()
    assert x.grad is not None
    assert x.grad[:2].eq(0).all()
    assert x.grad.isfinite().all()


@given(
    st.lists(st.integers(-50, 50), min_size=2, max_size=9).filter(lambda v: len(set(v)) > 1),
    st.integers(-110, 110),
)
def test_eps_zero_has_mean_zero_and_variance_one_at_any_size(values: list[int], power: int) -> None:
    x = torch.tensor([values], dtype=torch.float32)
    norm = LayerNorm(len(values), 0.0, affine=False)
    y = norm(x * 2.0**power)  # squares leave float32's range at both ends
    torch.testing.assert_close(y, norm(x))
    assert abs(float(y.mean())) < 1e-5
    assert abs(float(y.square().mean()) - 1) < 1e-5


@pytest.mark.parametrize("config", [recognizer(5, 2, 2), encoder(6, 2, 2), fourier(4, bit_width=3)])
def test_second_derivatives(config: TransformerConfig) -> None:
    # GELU, for ReLU's kinks would spoil the finite differences.
    model = build(dataclasses.replace(config, activation="gelu", dropout=0.0))
    bits = draw_inputs(config, 4, 4)
    weight = model.blocks[0].attention.value.weight
    inputs = list(model.parameters())

    def gradient(step: Tensor) -> list[Tensor]:
        with torch.no_grad():
            weight.add_(step)
        out = torch.autograd.grad(model(bits).square().mean(), inputs)
        with torch.no_grad():
            weight.sub_(step)
        return list(out)

    direction = torch.from_numpy(np.random.default_rng(0).standard_normal(weight.shape))
    [slope] = torch.autograd.grad(model(bits).square().mean(), [weight], create_graph=True)
    got = torch.autograd.grad((slope * direction).sum(), inputs, allow_unused=True)
    above, below = gradient(1e-5 * direction), gradient(-1e-5 * direction)
    for value, up, down in zip(got, above, below, strict=True):
        expected = (up - down) / 2e-5
        torch.testing.assert_close(
            torch.zeros_like(expected) if value is None else value, expected, rtol=1e-5, atol=1e-6
        )


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
@pytest.mark.parametrize("outer", [torch.func.jacrev, torch.func.jacfwd])
@pytest.mark.parametrize("inner", [torch.func.jacrev, torch.func.jacfwd])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_functional_hessians_equal_double_backward(outer: Any, inner: Any, eps: float) -> None:
    config = dataclasses.replace(encoder(4, 1, 2, ffn_width=4, eps=eps), activation="gelu")
    model, bits = build(config), draw_inputs(config, 4, 3)
    names, parameters = zip(*model.named_parameters(), strict=True)
    sizes = [parameter.numel() for parameter in parameters]

    def loss(vector: Tensor) -> Tensor:
        parts = zip(names, vector.split(sizes), parameters, strict=True)
        changed = {name: part.view_as(parameter) for name, part, parameter in parts}
        return torch.func.functional_call(model, changed, (bits,)).square().mean()

    start = torch.cat([parameter.detach().flatten() for parameter in parameters])
    expected = torch.autograd.functional.hessian(loss, start)
    torch.testing.assert_close(outer(inner(loss))(start), expected)


def test_layer_norm_without_gradients_is_the_same() -> None:
    norm = initialise(LayerNorm(12, 1e-3, affine=True), "gaussian", 3)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((5, 12))).float()
    with torch.no_grad():
        got = norm(x)
    torch.testing.assert_close(got, norm(x))


# ---------------------------------------------------------------- what each choice does


def permuted(bits: Tensor) -> Tensor:
    return bits[:, [3, 0, 2, 1, 4, 6, 5]]


def test_without_positions_order_does_not_matter() -> None:
    config = dataclasses.replace(encoder(8, 2, 2), positions="none")
    model, bits = build(config), draw_inputs(config)
    torch.testing.assert_close(model(bits), model(permuted(bits)))
    other = build(encoder(8, 2, 2))
    assert not torch.allclose(other(bits), other(permuted(bits)))


def test_cyclic_positions_repeat() -> None:
    config = dataclasses.replace(encoder(8, 2, 2), positions="cyclic", period=3)
    model, bits = build(config), draw_inputs(config, 20)
    swapped = bits[:, [3, 1, 2, 0, 4, 5, 6]]  # positions 0 and 3 share a code
    torch.testing.assert_close(model(bits), model(swapped))
    assert not torch.allclose(model(bits), model(bits[:, [1, 0, 2, 3, 4, 5, 6]]))


def test_one_hot_positions_are_appended() -> None:
    model = build(fourier(4, bit_width=2))
    x = model.embed(torch.tensor([[0, 1, 1, 0]]))
    torch.testing.assert_close(x[0, :, 2:], torch.eye(5, dtype=torch.float64))
    torch.testing.assert_close(x[0, :, :2], model.embedding.symbol.weight[[0, 1, 1, 0, 2]])


def test_causal_positions_do_not_see_the_future() -> None:
    model = build(gpt2(11, 9, width=16, layers=2, heads=4))
    tokens = draw_inputs(model.config)
    changed = tokens.clone()
    changed[:, 4] = (changed[:, 4] + 1) % 11
    before, after = model.states(tokens)[-1], model.states(changed)[-1]
    torch.testing.assert_close(before[:, :4], after[:, :4])
    assert (before[:, 4:] - after[:, 4:]).abs().amax(dim=-1).min() > 1e-6


def test_mask_self_and_learned_scale() -> None:
    model = build(PRESETS["vit_small"])
    layer = model.blocks[0].attention
    x = model.embed(draw_inputs(model.config))
    query, key = layer.split(layer.query(x)), layer.split(layer.key(x))
    weights = layer.weights(layer.scores(query, key), layer.visible(x))
    assert weights.diagonal(dim1=-2, dim2=-1).eq(0).all()
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(5, 3, 5, dtype=torch.float64))
    torch.testing.assert_close(layer.scores(query, key), query @ key.transpose(-1, -2) / 8 * layer.log_gain.exp())


def test_readouts() -> None:
    base = encoder(8, 2, 2)
    bits = draw_inputs(base)
    every = build(dataclasses.replace(base, readout="every"))(bits)
    assert every.shape == (5, 8)
    for readout, expected in {
        "first": every[:, 0],
        "last": every[:, -1],
        "mean": every.mean(dim=1),  # the head is affine
    }.items():
        torch.testing.assert_close(build(dataclasses.replace(base, readout=readout))(bits), expected)


def test_marker_goes_before_or_after() -> None:
    base = dataclasses.replace(encoder(8, 1, 2), positions="none")
    bits = draw_inputs(base)
    table = build(base).embedding.symbol.weight
    after = build(base).embed(bits)
    before = build(dataclasses.replace(base, marker="cls")).embed(bits)
    torch.testing.assert_close(after, torch.cat([table[bits], table[2].expand(5, 1, 8)], dim=1))
    torch.testing.assert_close(before, torch.cat([table[2].expand(5, 1, 8), table[bits]], dim=1))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["roberta", "gpt2"])
def test_padding_does_not_change_the_answer(name: str, side: str) -> None:
    config = dataclasses.replace(PRESETS[name], positions="none", max_length=None)
    model = build(config)
    tokens = draw_inputs(config, 4, 5)
    padding, keep = torch.zeros(4, 2, dtype=torch.long), torch.ones(4, 5, dtype=torch.bool)
    parts = [(padding, padding.bool()), (tokens, keep)]
    numbers, kept = zip(*(parts if side == "left" else reversed(parts)), strict=True)
    got = model(torch.cat(numbers, dim=1), torch.cat(kept, dim=1))
    torch.testing.assert_close(got, model(tokens))


def test_padding_with_a_marker_and_a_mean() -> None:
    config = dataclasses.replace(PRESETS["roberta"], marker="cls", readout="mean", positions="none")
    model = build(config)
    tokens = draw_inputs(config, 4, 5)
    padded = torch.cat([tokens, torch.ones(4, 2, dtype=torch.long)], dim=1)
    keep = (torch.arange(7) < 5).expand(4, 7)
    torch.testing.assert_close(model(padded, keep), model(tokens))


def test_patches_are_cut_in_reading_order() -> None:
    config = dataclasses.replace(PRESETS["vit_small"], shifted_patches=False, patch_norm=False, marker="none")
    model = build(config)
    image = draw_inputs(config, 1)
    corner = image[0, 0, :4, 4:].flatten()  # the second patch of four
    torch.testing.assert_close(model.embedding.patches(image)[0, 1], model.embedding.patch(corner))


def test_shifted_patches_see_one_pixel_further() -> None:
    config = dataclasses.replace(PRESETS["vit_small"], patch_norm=False)
    model = build(config)
    image = draw_inputs(config, 1)
    changed = image.clone()
    changed[0, 0, 1, 4] += 1  # first column of the upper right patch
    difference = (model.embedding.patches(image) - model.embedding.patches(changed))[0].abs().amax(dim=-1)
    assert (difference > 0).tolist() == [False, True, True, False, False]  # CLS, then the four patches


def test_shifted_patches_are_four_moved_images() -> None:
    moved = dataclasses.replace(PRESETS["vit_small"], patch_norm=False, marker="none")
    plain = dataclasses.replace(moved, shifted_patches=False, channels=5)
    image = draw_inputs(moved, 2)
    views = [image] + [torch.zeros_like(image) for _ in range(4)]
    views[1][..., 1:] = image[..., :-1]  # to the right
    views[2][..., :-1] = image[..., 1:]
    views[3][..., 1:, :] = image[..., :-1, :]  # down
    views[4][..., :-1, :] = image[..., 1:, :]
    expected = build(plain).embedding.patches(torch.cat(views, dim=1))
    torch.testing.assert_close(build(moved).embedding.patches(image), expected)


def test_embedding_norm_and_tanh_head() -> None:
    model = build(PRESETS["roberta"])
    tokens = draw_inputs(model.config)
    embedding = model.embedding
    x = embedding.norm(embedding.symbol.weight[tokens] + embedding.position.weight[:7])
    torch.testing.assert_close(model.embed(tokens), x)
    top = model.encode(x)[:, 0]
    torch.testing.assert_close(model(tokens), model.head(torch.tanh(model.dense(top))))


def test_activations() -> None:
    x = torch.linspace(-3, 3, 8, dtype=torch.float64)
    for activation, function in {
        "relu": nn.ReLU(),
        "gelu": nn.GELU(),
        "gelu_tanh": nn.GELU(approximate="tanh"),
    }.items():
        mlp = build(dataclasses.replace(encoder(8, 1, 2), activation=activation)).blocks[0].mlp
        torch.testing.assert_close(mlp(x), mlp.down(function(mlp.up(x))), rtol=1e-12, atol=1e-12)


def test_dropout_only_in_training() -> None:
    model = build(mingpt(9, width=16, heads=4, dropout=0.5))
    bits = draw_inputs(model.config)
    torch.testing.assert_close(model(bits), model(bits))
    model.train()
    assert not torch.allclose(model(bits), model(bits))


def test_positions_outlive_any_mode() -> None:
    model = build(encoder(10, 1, 2))
    with torch.inference_mode(), torch.device("meta"):
        model.embedding.positions(13)
    bits = torch.zeros(2, 12, dtype=torch.uint8)
    model(bits).sum().backward()
    assert model.head.weight.grad is not None


def test_input_types_agree() -> None:
    model = build(encoder(8, 1, 2))
    bits = draw_inputs(model.config)
    for dtype in (torch.uint8, torch.int32, torch.bool):
        assert torch.equal(model(bits.to(dtype)), model(bits))
    assert model(bits[:0]).shape == (0,)
    assert model(bits[:, :0]).shape == (5,)  # EOS alone


def test_copies_and_pickles(config: TransformerConfig) -> None:
    model, inputs = build(config), draw_inputs(config)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(inputs), model(inputs))


def test_building_does_not_touch_the_global_generator() -> None:
    before = torch.get_rng_state()
    Transformer(encoder(8, 1, 2), seed=3)
    assert torch.equal(before, torch.get_rng_state())


def test_without_seed_there_is_no_memory() -> None:
    model = Transformer(encoder(1 << 14, 4, 4), seed=None)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert model.count_parameters() > 10**9
    with pytest.raises(InputError, match="has no memory"):
        initialise(model)


# ---------------------------------------------------------------- sizes


def test_hardness_has_the_papers_parameters() -> None:
    model = Transformer(hardness(20))
    assert model.count_parameters(positions=False) == 199_425
    assert model.count_parameters() == 199_425 + 20 * 64


def test_preset_sizes() -> None:
    def count(config: TransformerConfig) -> int:
        return Transformer(config, seed=None).count_parameters()

    assert fourier().width == 51
    assert count(fourier()) == 3 * 30 + 2 * 3 * 51**2 + (2 * 51 * 128 + 128 + 51) + 52
    assert count(recognizer(16, 3, 2)) == 3 * 16 + 3 * (2 * 3 * 16**2 + 2 * 16**2 + 2 * 16) + 17
    layer = 4 * 64 + 4 * (64**2 + 64) + 2 * 64 * 256 + 256 + 64
    assert count(mingpt(100)) == 3 * 64 + 101 * 64 + layer + 2 * 64 + 2 * 64
    layer = 4 * 64 + 3 * 64 * 2048 + 2048 * 64 + 64 + 1 + 2 * 64 * 256 + 256 + 64
    patches = 2 * 240 + 240 * 64 + 64
    assert count(vit_small()) == patches + 64 + 65 * 64 + 8 * layer + 2 * 64 + 650
    layer = 4 * 256 + 4 * (256**2 + 256) + 2 * 256 * 1024 + 1024 + 256
    words = 128 * 256 + 4 * layer
    assert count(roberta(1000)) == 1000 * 256 + words + 512 + 256**2 + 256 + 2 * 257
    assert count(gpt2(1000)) == 1000 * 256 + words + 512 + 2 * 256


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.tensor([[0, 2]]), "contain 2"),
        (torch.tensor([[0, -1]]), "contain -1"),
        (torch.zeros(2, 3), "must be integers"),
        (torch.zeros(3, dtype=torch.long), "must be integers"),
        (torch.zeros(1, 10, dtype=torch.long), "longer than max_length=9"),
    ],
)
def test_refuses_bad_bits(inputs: Tensor, message: str) -> None:
    model = Transformer(mingpt(9, width=16, heads=4))
    with pytest.raises(InputError, match=message):
        model(inputs)


def test_refuses_numpy() -> None:
    with pytest.raises(InputError, match="must be a torch tensor, not ndarray"):
        Transformer(encoder(8, 1, 2))(np.zeros((2, 3), dtype=np.uint8))  # type: ignore[arg-type]


def test_refuses_empty_strings_without_marker() -> None:
    with pytest.raises(InputError, match="length 0"):
        Transformer(hardness(4, width=8))(torch.zeros(2, 0, dtype=torch.long))


def test_refuses_one_position_that_may_not_see_itself() -> None:
    model = Transformer(dataclasses.replace(encoder(8, 1, 2), mask_self=True))
    with pytest.raises(InputError, match="mask_self"):
        model(torch.zeros(2, 0, dtype=torch.long))


def test_refuses_images_of_another_size() -> None:
    with pytest.raises(InputError, match=r"\[string, 1, 8, 8\]"):
        Transformer(PRESETS["vit_small"])(torch.zeros(2, 1, 8, 9))


@pytest.mark.parametrize(
    ("name", "keep", "message"),
    [
        ("encoder", torch.ones(2, 3, dtype=torch.bool), "marker='eos'"),
        ("roberta", torch.ones(2, 3), "must be bool"),
        ("roberta", torch.ones(2, 4, dtype=torch.bool), "must be bool"),
        ("roberta", torch.tensor([[True, True, False], [False, False, False]]), "no position but padding"),
    ],
)
def test_refuses_bad_padding(name: str, keep: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Transformer(PRESETS[name])(torch.zeros(2, 3, dtype=torch.long), keep)
