"""Sharpness: closed forms, coverage, what a draw depends on, and that the model is left alone."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F

from flipscope import sharpness
from flipscope.adapters.movable_parameters import MovableParameters
from flipscope.adapters.parameters import chosen, positional, weight_norm
from flipscope.adapters.subject import Subject
from flipscope.basics.bits import index_bits
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate
from flipscope.models import Transformer, encoder, hardness, initialise, mingpt
from flipscope.probes.sharpness import MEASURES, sharpnesses, watch, worst_case

CUBE = index_bits(0, 16, 4)


def linear(inputs: int = 4, seed: int = 0) -> nn.Linear:
    return initialise(nn.Linear(inputs, 1), "gaussian", seed)


def state_bits(model: nn.Module) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in model.state_dict().items()}


def overlap(first: Estimate, second: Estimate) -> bool:
    return first.low <= second.high and second.low <= first.high


# ---------------------------------------------------------------- closed forms


@pytest.mark.parametrize("inputs", [1, 4, 7])
@pytest.mark.parametrize("std", [0.05])
def test_a_linear_map_on_the_cube(inputs: int, std: float) -> None:
    # E (Delta . (x, 1))^2 = std^2 (|x|^2 + 1), and bits have |x|^2 = inputs / 2 on average.
    cube = index_bits(0, 1 << inputs, inputs)
    found = sharpness(linear(inputs), cube, std=std, draws=1500, confidence=0.999)
    truth = std**2 * (inputs / 2 + 1)
    assert found.value.low < truth < found.value.high
    assert found.value.half_width < 0.2 * truth
    assert (found.parameters, found.noise, found.strings) == (inputs + 1, "gaussian", 1 << inputs)
    assert found.rho == pytest.approx(std * math.sqrt(inputs + 1))


def test_each_draw_is_the_quadratic_form_of_its_noise() -> None:
    model, std = linear(3).double(), 0.3
    cube = index_bits(0, 8, 3)
    found = sharpness(model, cube, std=std, draws=5, seed=9)
    rows = np.hstack([cube, np.ones((8, 1))])
    for number, value in enumerate(found.draws):
        stream = np.random.default_rng(np.random.SeedSequence(9, spawn_key=(number,)))
        delta = std * stream.standard_normal(4, dtype=np.float32)
        assert value == pytest.approx(np.square(rows @ delta).mean(), rel=1e-6)


def test_on_the_sphere_the_mean_square_is_exact_too() -> None:
    found = sharpness(linear(), CUBE, rho=0.7, draws=1500, confidence=0.999)
    truth = 0.7**2 / 5 * (4 / 2 + 1)
    assert found.value.low < truth < found.value.high
    assert found.noise == "sphere"
    assert found.std == pytest.approx(0.7 / math.sqrt(5))


def test_a_direction_on_the_sphere_has_its_length() -> None:
    model = nn.Linear(6, 6, bias=False)
    found = sharpness(model, np.eye(6), rho=0.7, draws=20, over_outputs="sum")
    assert found.draws == pytest.approx(np.full(20, 0.7**2 / 6), rel=1e-4)  # the squares of all entries, over six rows


def test_shop_and_shpred_of_a_linear_map() -> None:
    # The worked example of the low-sensitivity paper's measures: an output moves by N(0, std^2 |x|^2).
    model = nn.Linear(3, 1, bias=False)
    model.weight.data[:] = torch.tensor([1.0, 2.0, -1.0])
    rows = np.array([[1, 0, 0], [1, 1, 1], [0.5, -0.5, 2]], np.float32)
    found = sharpnesses(model, rows, measures=["ShOp", "ShPred"], std=0.5, draws=2_000, confidence=0.999)
    norms, outputs = np.linalg.norm(rows, axis=1), rows @ [1, 2, -1]
    shop = 0.5 * math.sqrt(2 / math.pi) * norms.mean()
    shpred = stats.norm.cdf(-np.abs(outputs) / (0.5 * norms)).mean()
    assert shop == pytest.approx(0.645405, abs=1e-6)
    assert shpred == pytest.approx(0.014141, abs=1e-6)
    assert found["ShOp"].value.low < shop < found["ShOp"].value.high
    assert found["ShPred"].value.low < shpred < found["ShPred"].value.high


def test_the_loss_grows_by_the_prediction_sharpness_where_the_fit_is_perfect() -> None:
    model = linear()
    with torch.no_grad():
        targets = model(torch.tensor(CUBE).float())
    found = sharpnesses(model, CUBE, targets, measures=["loss", "prediction"], std=0.1, draws=30)
    assert found["loss"].draws == pytest.approx(found["prediction"].draws, rel=1e-6)
    assert found["loss"].loss == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("loss", ["mse", "bce", "cross_entropy"])
def test_losses_by_name_and_as_functions(loss: str) -> None:
    classes = 3 if loss == "cross_entropy" else 1
    model = initialise(nn.Linear(4, classes), "gaussian", 1)
    targets = torch.arange(16) % 3 if loss == "cross_entropy" else (torch.arange(16) % 2).float()
    functions: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "mse": F.mse_loss,
        "bce": F.binary_cross_entropy_with_logits,
        "cross_entropy": F.cross_entropy,
    }
    named = sharpness(model, CUBE, targets, measure="loss", loss=loss, std=0.1, draws=4)  # type: ignore[arg-type]
    given_ = sharpness(model, CUBE, targets, measure="loss", loss=functions[loss], std=0.1, draws=4)
    single = functools.partial(functions[loss], reduction="none")
    each = sharpness(model, CUBE, targets, measure="loss", loss=single, std=0.1, draws=4)
    assert given_.draws == pytest.approx(named.draws, rel=1e-4, abs=1e-6)
    assert each.draws == pytest.approx(named.draws, rel=1e-4, abs=1e-6)


def test_sum_and_mean_over_outputs() -> None:
    model = initialise(nn.Linear(4, 3), "gaussian", 1)
    for measure in ("prediction", "ShOp"):
        mean, total = (
            sharpness(model, CUBE, std=0.1, draws=3, measure=measure, over_outputs=how)  # type: ignore[arg-type]
            for how in ("mean", "sum")
        )
        assert total.draws == pytest.approx(3 * mean.draws)
        assert (mean.as_json()["over_outputs"], total.as_json()["over_outputs"]) == ("mean", "sum")
        assert "sum over 3 outputs" in repr(total)
    answers = sharpness(model, CUBE, std=0.1, draws=3, measure="ShPred", over_outputs="sum")
    assert "sum" not in repr(answers)  # there is nothing to sum


def test_shop_and_shpred_of_classes() -> None:
    # Noise on the weights moves every logit of x by N(0, std^2 |x|^2), so the difference of two by sqrt(2) times that.
    weights, std = np.array([[1.0, 2.0], [-0.5, 1.0]]), 0.6
    rows = np.array([[1, 0.2], [0.3, 1], [-1, 0.5]], np.float32)
    norms, margins = np.linalg.norm(rows, axis=1), np.abs(rows @ (weights[0] - weights[1]))
    model = nn.Linear(2, 2, bias=False)
    model.weight.data = torch.tensor(weights, dtype=torch.float32)
    same: dict[str, Any] = {"std": std, "draws": 2_000, "confidence": 0.999}
    for how, outputs in (("mean", 1), ("sum", 2)):
        found = sharpness(model, rows, measure="ShOp", over_outputs=how, **same).value  # type: ignore[arg-type]
        assert found.low < outputs * std * math.sqrt(2 / math.pi) * norms.mean() < found.high
    answers = sharpness(model, rows, measure="ShPred", **same).value
    assert answers.low < stats.norm.cdf(-margins / (math.sqrt(2) * std * norms)).mean() < answers.high


def by_hand(model: nn.Module, call: Callable[[nn.Module], Tensor], std: float, seed: int) -> tuple[float, float]:
    """The sum form of ShOp and ShPred of draw 0, in evaluation mode, by the definition."""
    moved = copy.deepcopy(model).eval()
    flat = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    noise = flat.standard_normal(sum(p.numel() for p in moved.parameters()), dtype=np.float32)
    before = call(copy.deepcopy(model).eval())
    with torch.no_grad():
        start = 0
        for parameter in moved.parameters():
            parameter += std * torch.from_numpy(noise[start : start + parameter.numel()]).view_as(parameter)
            start += parameter.numel()
    after = call(moved)
    change = (before.double() - after.double()).abs().sum(dim=1).mean()
    return float(change), float((before.argmax(1) != after.argmax(1)).double().mean())


def test_shop_and_shpred_of_images_are_measured_in_evaluation_mode() -> None:
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 10))
    model = nn.Sequential(*layers).train()
    images = torch.rand(40, 1, 8, 8)
    before = state_bits(model)
    found = sharpnesses(model, images, measures=["ShOp", "ShPred"], std=0.1, draws=2, over_outputs="sum", seed=5)
    shop, shpred = by_hand(model, lambda net: net(images).detach(), 0.1, 5)
    assert found["ShOp"].draws[0] == pytest.approx(shop, rel=1e-5)
    assert found["ShPred"].draws[0] == pytest.approx(shpred)
    assert 0 < shpred < 1
    assert (found["ShOp"].outputs, found["ShOp"].strings) == (10, 40)
    assert state_bits(model) == before  # also what batch norm keeps
    assert model.training


def test_shop_and_shpred_of_texts() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=50, num_labels=3, max_position_embeddings=16, **size)
    model = transformers.BertForSequenceClassification(config).train()
    ids = torch.randint(1, 50, (12, 9))
    texts = {"input_ids": ids, "attention_mask": (torch.arange(9) < torch.arange(1, 13)[:, None]).long()}
    found = sharpnesses(
        Subject(model, batch=5), texts, measures=["ShOp", "ShPred"], std=0.2, draws=2, over_outputs="sum"
    )
    shop, shpred = by_hand(model, lambda net: net(**texts).logits.detach(), 0.2, 0)
    assert found["ShOp"].draws[0] == pytest.approx(shop, rel=1e-4)
    assert found["ShPred"].draws[0] == pytest.approx(shpred)
    swapped = {**texts, "attention_mask": torch.ones_like(ids)}
    assert sharpness(model, swapped, measure="ShOp", std=0.2, draws=2).draws[0] != found["ShOp"].draws[0] / 3


# ---------------------------------------------------------------- intervals


@pytest.mark.parametrize("interval", ["student", "bootstrap"])
def test_intervals_cover_the_truth_as_often_as_they_say(interval: Any) -> None:
    model, truth, repeats = linear(8), 0.01 * 5.0, 120 if interval == "student" else 40
    cube = index_bits(0, 256, 8)
    hits = 0
    for seed in range(repeats):
        value = sharpness(model, cube, std=0.1, draws=40, confidence=0.9, interval=interval, seed=seed).value
        hits += value.low <= truth <= value.high
    # Draws are skewed (nearly chi-square), which costs both intervals a few percent at 40 draws.
    assert stats.binom.cdf(hits, repeats, 0.86) > 1e-3
    assert stats.binom.sf(hits - 1, repeats, 0.9) > 1e-3


def test_what_cannot_be_negative_has_no_negative_end() -> None:
    found = sharpnesses(linear(), CUBE, measures=["prediction", "ShOp", "ShPred"], std=0.1, draws=2)
    assert all(each.value.low >= 0 for each in found.values())


# ---------------------------------------------------------------- what a draw depends on


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.floats(1e-3, 1.0), st.booleans())
def test_sphere_and_gaussian_agree(seed: int, std: float, adaptive: bool) -> None:
    model = initialise(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)), "gaussian", seed)
    gaussian = sharpness(model, CUBE, std=std, draws=60, seed=seed, adaptive=adaptive, confidence=0.9999)
    sphere = sharpness(model, CUBE, rho=gaussian.rho, draws=60, seed=seed + 1, adaptive=adaptive, confidence=0.9999)
    assert overlap(gaussian.value, sphere.value)
    assert sphere.std == pytest.approx(std)


@settings(max_examples=8)
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_sharpness_of_weights_and_bias_sum_to_that_of_both(seed: int, inputs: int) -> None:
    # Of a linear map the two perturbations are uncorrelated, so that mean squares add.
    model, cube = linear(inputs, seed), index_bits(0, 1 << inputs, inputs)
    both, weight, bias = (
        sharpness(model, cube, std=0.2, draws=200, seed=seed + k, parameters=name, confidence=0.99999).value
        for k, name in enumerate(["*", "weight", ["b*"]])
    )
    assert weight.low + bias.low <= both.high
    assert weight.high + bias.high >= both.low


def test_same_seed_same_numbers_another_seed_others() -> None:
    model = Transformer(hardness(6, width=16), seed=1)
    strings = np.random.default_rng(0).integers(0, 2, (50, 6))
    first, again, other = (sharpness(model, strings, std=0.02, draws=8, seed=seed).draws for seed in (3, 3, 4))
    assert first.tolist() == again.tolist()
    assert not set(first) & set(other)


def test_no_draw_is_used_twice_and_further_draws_change_none() -> None:
    model = Transformer(hardness(6, width=16), seed=1)
    few, many = (sharpness(model, CUBE, std=0.02, draws=count).draws for count in (7, 30))
    assert len(set(many)) == 30
    assert few.tolist() == many[:7].tolist()


@pytest.mark.parametrize("batch", [1, 7, 64, 1000])
def test_the_strings_of_all_batches_see_the_same_draw(batch: int) -> None:
    strings = np.random.default_rng(0).integers(0, 2, (150, 6))
    for model in (Transformer(hardness(6, width=16), seed=1), Transformer(mingpt(6, width=16, heads=2), seed=1)):
        whole = sharpness(Subject(model, batch=150), strings, std=0.02, draws=5)
        assert sharpness(Subject(model, batch=batch), strings, std=0.02, draws=5).draws == pytest.approx(
            whole.draws, rel=1e-3
        )


def test_our_transformer_by_its_quick_logits_and_by_its_forward() -> None:
    strings = np.random.default_rng(0).integers(0, 2, (200, 5))  # with repetitions
    model = Transformer(hardness(5, width=16), seed=1).double()
    quick = sharpness(model, strings, std=0.05, draws=6)
    plain = sharpness(model, torch.tensor(strings), std=0.05, draws=6, forward=model)
    assert quick.draws == pytest.approx(plain.draws, rel=1e-9)


def test_the_definition_by_deep_copies() -> None:
    model = Transformer(hardness(5, width=16), seed=1)
    found = sharpness(model, CUBE[:, :4], std=0.05, draws=3, seed=5)
    strings = torch.tensor(CUBE)
    for number, value in enumerate(found.draws):
        stream = np.random.default_rng(np.random.SeedSequence(5, spawn_key=(number,)))
        noise = torch.tensor(stream.standard_normal(found.parameters, dtype=np.float32))
        moved = copy.deepcopy(model)
        with torch.no_grad():
            for name, parameter in moved.named_parameters():
                if name != "embedding.position.weight":
                    part, noise = noise.split([parameter.numel(), len(noise) - parameter.numel()])
                    parameter += 0.05 * part.view_as(parameter)
            assert value == pytest.approx(float((moved(strings) - model(strings)).square().mean()), rel=1e-4)
        assert len(noise) == 0


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.floats(0.1, 10))
def test_the_adaptive_form_does_not_see_how_relu_layers_share_their_scale(seed: int, factor: float) -> None:
    model = initialise(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), "gaussian", seed).double()
    scaled = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in scaled.named_parameters():
            parameter *= factor if name.startswith("0") else 1 / factor if name == "2.weight" else 1
    for how in ({"std": 0.1}, {"rho": 0.5}):
        first, second = (sharpness(each, CUBE, adaptive=True, draws=5, **how) for each in (model, scaled))  # type: ignore[arg-type]
        assert second.draws == pytest.approx(first.draws, rel=1e-4)
    plain, other = (sharpness(each, CUBE, std=0.1, draws=5) for each in (model, scaled))
    assert not 0.5 < factor < 2 or factor == 1 or plain.draws.tolist() != other.draws.tolist()


# ---------------------------------------------------------------- parameters


def test_positions_of_our_transformers_stay_unless_asked_for() -> None:
    model = Transformer(hardness(12), seed=None)
    assert sum(each.numel() for name, each in model.named_parameters() if name not in positional(model)) == 199_425
    small = Transformer(hardness(4, width=8), seed=1)
    assert sharpness(small, CUBE, std=0.1, draws=2).parameters == small.count_parameters(positions=False)
    assert sharpness(small, CUBE, std=0.1, draws=2, parameters="*").parameters == small.count_parameters()
    assert sharpness(small, CUBE, std=0.1, draws=2, parameters=["head.*", "*.norm1.*"]).names == (
        *("blocks.0.norm1.weight", "blocks.0.norm1.bias", "blocks.1.norm1.weight", "blocks.1.norm1.bias"),
        *("head.weight", "head.bias"),
    )
    assert sharpness(small, CUBE, std=0.1, draws=2, parameters=lambda name: "head" in name).parameters == 9


def test_weight_norm_with_and_without_positions() -> None:
    model = Transformer(hardness(4, width=8), seed=1)
    flat = torch.cat([each.detach().flatten() for each in model.parameters()]).double()
    position = model.state_dict()["embedding.position.weight"].double()
    assert weight_norm(model, positions=True) == pytest.approx(float(flat.norm()))
    assert weight_norm(model) == pytest.approx(math.sqrt(float(flat.norm()) ** 2 - float(position.norm()) ** 2))
    assert weight_norm(nn.Linear(3, 1), "bias") == pytest.approx(0, abs=1)
    with pytest.raises(InputError, match="positions=True"):
        weight_norm(model, "head.*", positions=True)


# ---------------------------------------------------------------- the model is left alone


class Fragile(nn.Module):
    """Raises in the middle of the draws."""

    def __init__(self, error: type[BaseException]) -> None:
        super().__init__()
        self.inner, self.error, self.calls = nn.Linear(4, 1), error, 0

    def forward(self, floats: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > 6:
            raise self.error
        out: Tensor = self.inner(floats)
        return out


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_weights_come_back_bit_for_bit_after_an_exception(error: type[BaseException]) -> None:
    model = Fragile(error)
    before, places = state_bits(model), [each.data_ptr() for each in model.parameters()]
    with pytest.raises(error):
        sharpness(model, CUBE, std=0.1, draws=10)
    assert state_bits(model) == before
    assert [each.data_ptr() for each in model.parameters()] == places


def test_modes_gradients_and_flags_are_left_as_they_were() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 1))
    model[2].eval()
    model[0].weight.requires_grad_(False)
    model(torch.rand(3, 4)).sum().backward()
    grads = [None if each.grad is None else each.grad.clone() for each in model.parameters()]
    modes, before = [each.training for each in model.modules()], state_bits(model)
    sharpnesses(model, CUBE, np.zeros(16), std=0.1, draws=3)
    worst_case(model, CUBE, np.zeros(16), rho=0.1, steps=3)
    assert state_bits(model) == before
    assert [each.training for each in model.modules()] == modes
    assert [each.requires_grad for each in model.parameters()] == [False, *[True] * 5]
    for parameter, grad in zip(model.parameters(), grads, strict=True):
        assert (parameter.grad is None) == (grad is None)
        assert grad is None or torch.equal(parameter.grad, grad)  # type: ignore[arg-type]


def test_a_graph_that_waits_for_its_backward_is_not_disturbed() -> None:
    model = linear()
    loss = model(torch.rand(3, 4)).square().sum()
    sharpness(model, CUBE, std=0.1, draws=2)
    loss.backward()
    assert model.weight.grad is not None


def test_half_precision_and_mixed_types_move() -> None:
    model = nn.Sequential(nn.Linear(4, 8).double(), nn.Linear(8, 1).bfloat16())
    forward = lambda bits: model[1](model[0](bits.double()).bfloat16())  # noqa: E731
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = sharpness(model, torch.tensor(CUBE), std=0.5, draws=4, forward=forward)
    assert len(set(found.draws)) == 4
    assert found.parameters == 49
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_tied_parameters_move_once_and_together() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    assert sharpness(model, CUBE, std=0.1, draws=2).parameters == 16
    assert model[1].weight is model[0].weight


def test_a_tuple_of_inputs_and_an_encoder_decoder() -> None:
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    source, target = torch.rand(20, 5, 8), torch.rand(20, 3, 8)
    whole = sharpness(model, (source, target), std=0.02, draws=3)
    parts = sharpness(Subject(model, batch=6), (source, target), std=0.02, draws=3)
    assert parts.draws == pytest.approx(whole.draws, rel=1e-3)
    assert whole.strings == 20


def test_watch_draws_anew_at_each_step() -> None:
    look = watch(CUBE, np.zeros(16), measure="loss", std=0.1, draws=4)
    model = linear()
    first, again, later = look(model, 1), look(model, 1), look(model, 2)
    assert first.draws.tolist() == again.draws.tolist() != later.draws.tolist()
    assert first.measure == "loss"


# ---------------------------------------------------------------- the worst case


def test_one_step_is_that_of_sam() -> None:
    model = initialise(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), "gaussian", 2).double()
    targets = torch.rand(16, dtype=torch.float64)
    strings = torch.tensor(CUBE).double()
    loss = F.mse_loss(model(strings)[:, 0], targets)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    length = torch.cat([each.flatten() for each in gradients]).norm()
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for parameter, gradient in zip(moved.parameters(), gradients, strict=True):
            parameter += 0.1 * gradient / length
        truth = float(F.mse_loss(moved(strings)[:, 0], targets) - loss)
    assert worst_case(model, CUBE, targets, rho=0.1).value == pytest.approx(truth, rel=1e-5)


def test_on_a_quadratic_the_worst_prediction_is_the_largest_eigenvalue() -> None:
    rows = np.hstack([CUBE, np.ones((16, 1))])
    truth = 0.3**2 * np.linalg.eigvalsh(rows.T @ rows / 16)[-1]
    found = worst_case(linear().double(), CUBE, rho=0.3, steps=30, measure="prediction")
    assert found.value == pytest.approx(truth, rel=1e-4)
    assert found.path[-1] == max(found.path)
    average = sharpness(linear(), CUBE, rho=0.3, draws=200)
    assert found.value >= average.draws.max() * (1 - 1e-4)


def test_the_adaptive_worst_case_does_not_see_scales_either() -> None:
    model = initialise(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), "gaussian", 3).double()
    scaled = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in scaled.named_parameters():
            parameter *= 5 if name.startswith("0") else 1 / 5 if name == "2.weight" else 1
    first, second = (worst_case(each, CUBE, np.zeros(16), rho=0.1, adaptive=True, steps=3) for each in (model, scaled))
    assert second.path == pytest.approx(first.path, rel=1e-4)


def test_the_worst_case_of_our_transformer_is_worse_than_any_draw() -> None:
    model = Transformer(encoder(width=16, layers=2, heads=2), seed=1)
    worst = worst_case(model, CUBE, np.zeros(16), rho=0.1, steps=2)
    assert worst.value > sharpness(model, CUBE, np.zeros(16), measure="loss", rho=0.1, draws=50).draws.max()


def test_where_the_loss_is_flat_there_is_no_worst_direction() -> None:
    model = linear()
    targets = model(torch.tensor(CUBE).float()).detach()
    with pytest.raises(InputError, match="no gradient"):
        worst_case(model, CUBE, targets, rho=0.1)


# ---------------------------------------------------------------- bad input


def broken() -> nn.Linear:
    model = linear()
    model.weight.data[0, 2] = math.nan
    return model


class Noisy(nn.Linear):
    """Random in evaluation mode too."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + torch.rand(())


BAD: list[tuple[Callable[[], nn.Module], dict[str, Any], str]] = [
    (linear, {"std": None}, "either rho .* or std"),
    (linear, {"rho": 1.0}, "either rho .* or std"),
    (linear, {"std": 0}, "std=0 must be a positive number"),
    (linear, {"std": -0.1}, "std=-0.1 must be a positive number"),
    (linear, {"std": math.nan}, "std=nan must be a positive number"),
    (linear, {"std": None, "rho": -1}, "rho=-1 must be a positive number"),
    (linear, {"std": None, "rho": math.inf}, "rho=inf must be a positive number"),
    (linear, {"draws": 1}, "draws must be a whole number of at least 2"),
    (linear, {"confidence": 1.0}, "confidence must lie strictly"),
    (linear, {"interval": "normal"}, "interval='normal'"),
    (linear, {"measure": "average"}, "measure='average'"),
    (linear, {"over_outputs": "max"}, "over_outputs='max'"),
    (linear, {"batch": 2}, r"write sharpness\(flipscope\.Subject\(model, batch=2\), \.\.\.\)"),
    (linear, {"parameters": "head.*"}, "parameters='head.\\*' matches none of weight, bias"),
    (linear, {"parameters": ["weight", "b"]}, "parameters='b' matches none"),
    (linear, {"parameters": lambda name: False}, "no parameter is left"),
    (linear, {"parameters": [3]}, "parameters must be a str or a sequence"),
    (nn.ReLU, {}, "ReLU has no parameters"),
    (broken, {}, "NaN or infinite numbers in weight"),
    (lambda: Transformer(encoder(width=8, layers=1), seed=None), {}, "no numbers: build it with a seed"),
    (lambda: Noisy(4, 1), {}, "in two calls"),
    (linear, {"measure": "loss"}, "needs targets"),
    (linear, {"measure": "loss", "targets": np.zeros(15)}, "targets of shape \\(15,\\) must be \\[16\\]"),
    (linear, {"measure": "loss", "targets": np.zeros((16, 2))}, "targets of shape"),
    (linear, {"measure": "loss", "targets": np.full(16, math.nan)}, "targets must be finite"),
    (linear, {"measure": "loss", "targets": np.full(16, 2.0), "loss": "bce"}, "between 0 and 1"),
    (linear, {"measure": "loss", "targets": np.zeros(16, int), "loss": "cross_entropy"}, "needs outputs \\[string"),
    (linear, {"measure": "loss", "targets": np.zeros(16), "loss": "l1"}, "loss='l1'"),
    (linear, {"measure": "loss", "targets": np.zeros(3), "loss": F.mse_loss}, "targets of shape"),
    (
        linear,
        {"measure": "loss", "targets": np.arange(16.0)[:, None], "loss": F.mse_loss},
        r"pairs every output with every target: give outputs of shape \(16,\) and targets of shape \(16, 1\) one",
    ),
    (linear, {"std": 1e-200}, "std=1e-200 is lost in rounding"),
    (linear, {"inputs": np.zeros((0, 4))}, "hold no string"),
    (linear, {"inputs": [[0, 1, 0, 1]]}, "torch tensor or a numpy array"),
    (linear, {"inputs": (CUBE, CUBE[:3])}, "16 and 3 strings"),
    (linear, {"inputs": np.full((2, 4), math.inf)}, "NaN or infinite outputs"),
]


@pytest.mark.parametrize(("make", "changes", "sentence"), BAD)
def test_bad_input_is_one_sentence(make: Callable[[], nn.Module], changes: dict[str, Any], sentence: str) -> None:
    options: dict[str, Any] = {"inputs": CUBE, "std": 0.1, "draws": 3, **changes}
    with pytest.raises(InputError, match=sentence) as caught:
        sharpness(make(), **options)
    assert "\n" not in str(caught.value)


def test_what_is_no_module_and_a_draw_that_overflows() -> None:
    with pytest.raises(InputError, match=r"the parameters of an nn\.Module, and the model is a function"):
        sharpness(lambda bits: bits, CUBE, std=0.1)  # type: ignore[arg-type]
    for measure in MEASURES:
        with pytest.raises(InputError, match="smaller rho or std"):
            sharpness(linear(), CUBE, np.zeros(16), measure=measure, std=3e38, draws=9)


def test_moving_keeps_the_order_of_types() -> None:
    model = nn.ModuleDict({"a": nn.Linear(1, 2), "b": nn.Linear(1, 1).double(), "c": nn.Linear(2, 1)})
    with MovableParameters(chosen(model)) as moving:
        moving.to(torch.arange(float(moving.count)))
        assert moving.names == ("a.weight", "a.bias", "c.weight", "c.bias", "b.weight", "b.bias")
        assert model["b"].bias.dtype == torch.float64
        moved = torch.cat([each.detach().double().flatten() for each in moving.parameters])
    own = torch.cat([each.detach().double().flatten() for each in moving.parameters])
    assert (moved - own).tolist() == pytest.approx(list(range(9)), abs=1e-6)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with np.errstate(all="raise"):
        yield
