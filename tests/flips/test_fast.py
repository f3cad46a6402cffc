"""The fast engine against the model's own forward: the same logits, whatever the shape."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from flipscope.adapters.subject import Subject
from flipscope.basics.errors import InputError
from flipscope.flips import deltas
from flipscope.flips.choice import obstacle
from flipscope.flips.fast import FastEngine
from flipscope.models.config import TransformerConfig
from flipscope.models.presets import encoder, hardness, recognizer
from flipscope.models.transformer import Transformer
from flipscope.probes.sensitivity import sensitivities

SCHEMES = ("uniform", "gaussian", "xavier_uniform", "xavier_normal", "pytorch")


def plain(model: Transformer, strings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logits of the strings and of all their flips by the definition: one forward a string."""
    length = strings.shape[1]
    near = np.repeat(strings[:, None], length + 1, axis=1)
    near[:, np.arange(length), np.arange(length)] ^= 1
    with torch.inference_mode():
        out = model(torch.from_numpy(near.reshape(-1, length)).long()).numpy().reshape(len(strings), length + 1)
    return out[:, -1], out[:, :-1]


def random_config(seed: int) -> TransformerConfig:
    """A shape with every choice that the fast path knows."""
    rng = np.random.default_rng(seed)
    pick = lambda *choices: choices[rng.integers(len(choices))]  # noqa: E731
    heads = pick(1, 2, 4)
    combine = pick("project", "project", "sum")
    block = pick("standard", "standard", "sum")
    width = pick(8, 16, 24)
    return TransformerConfig(
        width=width,
        layers=int(rng.integers(1, 6)),
        heads=heads,
        head_size=width if combine == "sum" else pick(None, 5),
        combine=combine,
        block=block,
        norm=pick("once", "post", "pre", "none") if block == "standard" else pick("once", "pre", "none"),
        attention=pick("softmax", "softmax", "softmax", "relu", "linear"),
        causal=pick(False, False, True),
        mask_self=False,
        qkv_bias=pick(True, False),
        affine=pick(True, False),
        eps=pick(1e-5, 1e-3, 0.0),
        learned_scale=pick(False, False, True),
        marker=pick("eos", "eos", "cls", "none"),
        readout=pick("last", "last", "first"),
        positions=pick("sinusoidal", "none"),
        ffn_width=pick(8, 32),
        activation=pick("relu", "gelu"),
        head=pick("linear", "tanh"),
        final_norm=pick(False, True),
    )


# The branch for few changed tokens is forced, the one for many, and a change from the first to the second.
@pytest.mark.parametrize("below", [1.1, 0.0, 0.5])
def test_equals_the_plain_forward_in_float64(below, monkeypatch):
    monkeypatch.setattr(deltas, "SPARSE_BELOW", below)
    monkeypatch.setattr(deltas, "SPARSE_WIDTH", 1)
    for seed in (48, *range(24)):  # at 48 a token feels only that the old key is gone
        config = random_config(seed)
        model = Transformer(config, scheme=SCHEMES[seed % 5], seed=seed, dtype=torch.float64).eval()
        strings = np.random.default_rng(seed).integers(0, 2, (3, 4 + seed % 9), np.uint8)
        base, flipped = plain(model, strings)
        scale = max(1.0, np.abs(base).max(), np.abs(flipped).max())
        for with_deltas in (False, True):
            engine = FastEngine(model, dtype=torch.float64, deltas=with_deltas, tolerance=1e-15)
            found_base, found_flipped = engine.flip_logits(strings)
            np.testing.assert_allclose(found_base, base, atol=1e-8 * scale, rtol=0, err_msg=f"{seed=}")
            np.testing.assert_allclose(found_flipped, flipped, atol=1e-8 * scale, rtol=0, err_msg=f"{seed=}")


@pytest.mark.parametrize("first", [0, 20])
def test_sensitivities_are_those_of_the_general_path_and_of_the_definition(first):
    """Twelve shapes, ten strings each: the same counts, or a sign that is reported as a near-tie."""
    compared = 0
    for seed in range(first, first + 12):
        model = Transformer(random_config(seed), scheme=SCHEMES[seed % 5], seed=seed).eval()
        strings = np.random.default_rng(seed).integers(0, 2, (10, 4 + seed % 9), np.uint8)
        if not np.isfinite(plain(model, strings)[1]).all():
            continue  # attention without softmax or norm can overflow float32: no signs to compare
        compared += 1
        exact = Transformer(model.config, seed=None, dtype=torch.float64)
        exact.load_state_dict({name: tensor.double() for name, tensor in model.state_dict().items()}, assign=True)
        base, flipped = plain(exact.eval(), strings)
        expected = ((flipped > 0) != (base > 0)[:, None]).sum(axis=1)
        fast, general = (sensitivities(model, strings, path=path) for path in ("fast", "general"))
        assert (fast.path, general.path) == ("fast", "general")
        length = strings.shape[1]
        assert np.abs(fast.counts - expected).sum() <= fast.near_ties * length, seed
        assert np.abs(general.counts - expected).sum() <= general.near_ties * length, seed
    assert compared >= 9


@pytest.mark.parametrize("scheme", SCHEMES)
def test_saturated_attention_in_float32_is_as_accurate_as_the_plain_forward(scheme):
    model = Transformer(encoder(64, 3, 4, ffn_width=128), scheme=scheme, seed=3).eval()
    strings = np.random.default_rng(0).integers(0, 2, (4, 40), np.uint8)
    exact = plain(Transformer(model.config, scheme=scheme, seed=3, dtype=torch.float64).eval(), strings)[1]
    rounding = np.abs(plain(model, strings)[1] - exact).max()
    found = FastEngine(model).flip_logits(strings)[1]
    assert np.abs(found - exact).max() <= 10 * rounding


def test_deltas_skip_most_tokens_of_a_saturated_model():
    model = Transformer(encoder(128, 2, 1, ffn_width=128), scheme="gaussian", seed=0)
    engine = FastEngine(model)
    strings = np.random.default_rng(0).integers(0, 2, (1, 60), np.uint8)
    engine.flip_logits(strings)
    from flipscope.flips.first_layer import FirstLayer

    with torch.inference_mode():
        first = FirstLayer(engine.model.blocks[0], engine._tables, torch.from_numpy(strings[0]).long())
        share = float(first.changed(torch.arange(60), engine.tolerance).float().mean())
    assert 1 / 61 <= share < 0.3


def faint_model(length: int, place: int, layers: int, of: int, attention: str = "softmax") -> Transformer:
    """Layer ``of`` gives the bit at ``place`` a weight of e^-18 and ones a value of 1e8; other bits it hardly sees."""
    width, config = 128, encoder(128, layers, 1, ffn_width=8)
    config = dataclasses.replace(config, norm="none", positions="learned", max_length=length, mlp_layers=0)
    model = Transformer(dataclasses.replace(config, logit_scale=1.0, attention=attention), seed=0).eval()
    codes = slice(16, 17 + length)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embedding.symbol.weight[1, 0] = 1
        model.embedding.position.weight[:, 1] = 1
        model.embedding.position.weight[:, codes] = torch.eye(length + 1)
        for block in model.blocks[:of]:  # every token attends to itself
            block.attention.query.weight[:, codes] = 60 * torch.eye(width)[:, codes]
            block.attention.key.weight[:, codes] = torch.eye(width)[:, codes]
        faint, key = model.blocks[of].attention, model.blocks[of].attention.key.weight
        faint.query.weight[0, 1] = faint.value.weight[1, 1] = 1
        faint.value.weight[0, 0] = 1e8
        faint.output.weight[3, 0] = model.head.weight[0, 3] = 1
        if attention == "softmax":
            key[0, 16 : 16 + length], key[0, 16 + place] = -60, -18
        else:
            key[0, 16 + place], key[0, 16 + length] = float(np.exp(-18)), 1
    return model


@pytest.mark.parametrize(("layers", "of"), [(2, 0), (3, 0), (3, 1)])
@pytest.mark.parametrize("attention", ["softmax", "relu", "linear"])
def test_a_small_weight_of_a_large_value_is_not_left_out(layers, of, attention):
    """e^-18 is below half a unit in the last place of float32, but it brings 1.5, and nothing else does."""
    strings = np.random.default_rng(0).integers(0, 2, (3, 20), np.uint8)
    model = faint_model(20, 13, layers, of, attention)
    base, flipped = plain(model, strings)
    assert (np.abs(flipped - base[:, None]) > 1).sum() == 3  # or this test would show nothing
    found = FastEngine(model).flip_logits(strings)
    np.testing.assert_allclose(found[1], flipped, atol=1e-4)
    np.testing.assert_allclose(found[0], base, atol=1e-4)


def test_small_weights_of_large_values_at_any_length():
    for length in range(20, 48, 4):
        model = faint_model(length, length // 3, 2, 0)
        strings = np.random.default_rng(length).integers(0, 2, (2, length), np.uint8)
        found = sensitivities(Subject(model, threshold=0.7), strings)
        assert (found.path, found.counts.tolist()) == ("fast", [1, 1]), length


def test_deltas_are_the_same_in_any_unit_of_the_values(monkeypatch):
    """What is left out is measured by what a head adds up, coordinate by coordinate: its unit is nobody's business."""
    model = Transformer(encoder(128, 4, 2, ffn_width=128), scheme="gaussian", seed=0).eval()
    strings, computed, rows = np.random.default_rng(0).integers(0, 2, (1, 60), np.uint8), [], deltas._padded_rows
    monkeypatch.setattr("flipscope.flips.choice.WIDEST", 0)
    monkeypatch.setattr(deltas, "SPARSE_WIDTH", 1)
    monkeypatch.setattr(deltas, "SPARSE_BELOW", 1.1)
    monkeypatch.setattr(deltas, "_padded_rows", lambda now: (computed.append(int(now.sum())), rows(now))[1])
    FastEngine(model).flip_logits(strings)
    unit = 2.0 ** torch.arange(-32, 32).repeat(2)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.value.weight.mul_(unit[:, None])
            block.attention.value.bias.mul_(unit)
            block.attention.output.weight.div_(unit)
    FastEngine(model).flip_logits(strings)
    half = len(computed) // 2
    assert computed[:half] == computed[half:]
    assert 60 < computed[0] < 60 * 61


def test_a_dominating_key_is_taken_out_without_cancellation():
    """With logits of many hundreds the weight of all other keys underflows; taking the key out must not give 0 / 0."""
    config = dataclasses.replace(encoder(16, 2, 1), logit_scale=100.0)
    model = Transformer(config, scheme="gaussian", seed=1, dtype=torch.float64).eval()
    strings = np.random.default_rng(1).integers(0, 2, (3, 20), np.uint8)
    base, flipped = plain(model, strings)
    found = FastEngine(model, dtype=torch.float64, tolerance=1e-15).flip_logits(strings)
    np.testing.assert_allclose(found[1], flipped, atol=1e-9)
    np.testing.assert_allclose(found[0], base, atol=1e-9)


def test_papers_own_shapes_and_strings_of_another_length():
    for config in (recognizer(8, 2, 2, eps=1e-3), hardness(12, 16)):
        model = Transformer(config, seed=0, dtype=torch.float64).eval()
        engine = FastEngine(model, dtype=torch.float64, tolerance=1e-15)
        for length in (12, 7, 12):
            strings = np.random.default_rng(length).integers(0, 2, (2, length), np.uint8)
            np.testing.assert_allclose(engine.flip_logits(strings)[1], plain(model, strings)[1], atol=1e-9)
            np.testing.assert_allclose(engine.logits(strings), plain(model, strings)[0], atol=1e-12)


def test_the_model_is_left_alone():
    model = Transformer(encoder(16, 2, 2), seed=0).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    FastEngine(model, dtype=torch.float64).flip_logits(np.zeros((1, 5), np.uint8))
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_what_is_not_supported_is_refused():
    mean = Transformer(dataclasses.replace(encoder(16, 2, 2), readout="mean"), seed=0)
    for model in (torch.nn.Linear(3, 1), mean):
        assert obstacle(model) is not None
        with pytest.raises(InputError, match="fast path"):
            FastEngine(model)


@pytest.mark.parametrize("layers", [0, 1, 2, 3])
def test_layers_without_an_mlp(layers):
    model = Transformer(dataclasses.replace(encoder(32, 3, 4, ffn_width=64), mlp_layers=layers), seed=1).eval()
    strings = np.random.default_rng(0).integers(0, 2, (3, 20), np.uint8)
    np.testing.assert_allclose(FastEngine(model).flip_logits(strings)[1], plain(model, strings)[1], atol=1e-5)


@pytest.mark.usefixtures("both_kinds_of_loops")
@pytest.mark.parametrize("constant", [1.1, 33.3, 1234.567])
def test_layers_that_only_shift(constant):
    """A norm takes a shift away, exactly: what is left of its rounding would be blown up where nothing else is."""
    config = dataclasses.replace(encoder(32, 4, 4, ffn_width=64), positions="none")
    model = Transformer(config, scheme="xavier_normal", seed=1).eval()
    with torch.no_grad():
        model.embedding.symbol.weight.fill_(constant)
        for block in model.blocks:
            for linear in (block.attention.output, block.mlp.down):
                linear.weight.zero_()
                linear.bias.fill_(constant)
    strings = np.random.default_rng(0).integers(0, 2, (3, 20), np.uint8)
    engine, expected = FastEngine(model), plain(model, strings)
    for found in (engine.flip_logits(strings)[1], engine.logits(strings)):
        np.testing.assert_allclose(found, expected[0][0], atol=1e-6)


@pytest.mark.usefixtures("both_kinds_of_loops")
def test_a_norm_that_overflows_in_float32_is_computed_in_float64():
    model = Transformer(encoder(32, 3, 4, ffn_width=64), seed=1).eval()
    strings = np.random.default_rng(0).integers(0, 2, (5, 20), np.uint8)
    with torch.no_grad():
        model.blocks[1].mlp.down.bias.mul_(1e24)
    threshold = float(np.median(plain(copy.deepcopy(model).double(), strings)[0]))
    found = sensitivities(Subject(model, threshold=threshold), strings)
    assert (found.path, found.precision) == ("fast", "float64")
    expected = sensitivities(Subject(model, threshold=threshold, precision="float64"), strings, path="general")
    assert found.counts.tolist() == expected.counts.tolist()
    with pytest.raises(InputError, match="NaN"):
        sensitivities(Subject(model, precision="native"), strings)
    with torch.no_grad():
        model.double().blocks[1].mlp.down.bias.mul_(1e200)
    with pytest.raises(InputError, match="NaN"):
        sensitivities(model, strings)


@pytest.fixture(name="narrow_and_strings")
def _narrow_and_strings():
    model = Transformer(encoder(32, 3, 4, ffn_width=64), scheme="gaussian", seed=1).eval()
    return model, np.random.default_rng(0).integers(0, 2, (3, 20), np.uint8)


@pytest.mark.usefixtures("both_kinds_of_loops")
def test_weights_that_change_later_do_not_count(narrow_and_strings):
    model, strings = narrow_and_strings
    engine = FastEngine(model)
    before = engine.flip_logits(strings)[1].copy()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.3)
    np.testing.assert_array_equal(engine.flip_logits(strings)[1], before)


@pytest.mark.usefixtures("both_kinds_of_loops")
def test_threads_may_share_an_engine(narrow_and_strings):
    model, strings = narrow_and_strings
    engine = FastEngine(model)
    expected = {length: engine.flip_logits(strings[:, :length])[1].copy() for length in (20, 17)}
    with ThreadPoolExecutor(4) as pool:
        lengths = [20, 17] * 10
        every = [*pool.map(lambda length: engine.flip_logits(strings[:, :length])[1], lengths)]
    for length, found in zip(lengths, every, strict=True):
        np.testing.assert_array_equal(found, expected[length])


@pytest.mark.usefixtures("both_kinds_of_loops")
def test_engines_can_be_copied(narrow_and_strings):
    model, strings = narrow_and_strings
    engine = FastEngine(model)
    expected = engine.flip_logits(strings)[1].copy()
    for other in (copy.deepcopy(engine), pickle.loads(pickle.dumps(engine))):
        np.testing.assert_array_equal(other.flip_logits(strings)[1], expected)


@pytest.mark.usefixtures("both_kinds_of_loops")
def test_models_of_every_make(narrow_and_strings):
    """Parameters that are not contiguous, or were made in inference mode, and another number type by default."""
    model, strings = narrow_and_strings
    expected = FastEngine(model).flip_logits(strings)[1]
    spread = copy.deepcopy(model)
    for parameter in spread.parameters():
        parameter.data = torch.stack([parameter.data, parameter.data], dim=-1)[..., 0]
    with torch.inference_mode():
        frozen = Transformer(model.config, scheme="gaussian", seed=1).eval()
    for other in (spread, frozen):
        np.testing.assert_array_equal(FastEngine(other).flip_logits(strings)[1], expected)
    torch.set_default_dtype(torch.float64)
    try:
        np.testing.assert_array_equal(FastEngine(model).flip_logits(strings)[1], expected)
    finally:
        torch.set_default_dtype(torch.float32)
