"""A training on another device: the CPU's numbers where kernels agree, and the same end after every interruption."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import Run
from devices import twin
from torch import Tensor, nn

import flipscope
from flipscope.basics.errors import InputError
from flipscope.cube.functions import majority
from flipscope.data.batches import Examples, Fresh
from flipscope.data.languages import draw
from flipscope.models import Transformer, encoder, load, mingpt
from flipscope.models.devices import random_states
from flipscope.models.marker import noisy
from flipscope.models.seal import fingerprint
from flipscope.probes.perturbation import survivors
from flipscope.training import fit as loop
from flipscope.training import logs, memory
from flipscope.training.checkpoints import Keeper
from flipscope.training.fit import Fitted, Moment, evaluate, fit
from flipscope.training.logs import Log
from flipscope.training.named import Around, loss_term, measurement
from flipscope.training.recipes.hardness import final, hardness_recipe, scratchpad_recipe, written
from flipscope.training.recipes.sharper import fourier_recipe, gap
from flipscope.training.recipes.sparse_variables import on_hidden_bits, on_training_set, sparse_recipe
from flipscope.training.sparse_measures import marker_attention
from flipscope.training.targets import Aim

N = 5
DATA = draw(majority(N), N, {"train": 20, "validation": 12})
CPU = torch.device("cpu")


class MLP(nn.Module):
    """Computed by the same operators on both devices; with dropout, which draws in every step."""

    def __init__(self, dropout: float = 0.2) -> None:
        super().__init__()
        with torch.device("cpu"), torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(1)
            self.first, self.second, self.dropout = nn.Linear(N, 8), nn.Linear(8, 1), nn.Dropout(dropout)

    def forward(self, bits: Tensor) -> Tensor:
        hidden: Tensor = self.second(self.dropout(self.first(bits.float()).relu()))
        return hidden


def trained(model: nn.Module, device: torch.device | None = None, **options: Any) -> Fitted:
    options = {"learning_rate": 0.02, "batch": 8, "max_steps": 8, "stop_after": None, **options}
    return fit(model, options.pop("train", DATA["train"]), DATA["validation"], device=device, **options)


def weights(model: nn.Module) -> str:
    return fingerprint(model.state_dict().values())


def timeless(found: Fitted) -> Fitted:
    history = tuple(dataclasses.replace(line, seconds=0.0) for line in found.history)
    return dataclasses.replace(found, history=history, seconds=0.0)


def places(model: nn.Module) -> set[str]:
    return {parameter.device.type for parameter in model.parameters()}


# ---------------------------------------------------------------- the same training


def test_a_training_on_the_device_is_that_of_the_cpu(device: torch.device) -> None:
    here, there = MLP(), MLP()
    expected, found = trained(here), trained(there, device)
    assert weights(here) == weights(there)
    assert timeless(expected) == timeless(found)
    assert places(there) == {"cpu"}  # it comes back


def test_a_model_is_trained_where_it_is(device: torch.device) -> None:
    here, there = MLP(), MLP().to(device)
    trained(here)
    twin.ran.clear()
    trained(there)
    assert places(there) == {"twin"}
    assert twin.ran["_fused_adam_"] == 8
    assert weights(here) == weights(there)


def test_data_of_any_device_are_taken(device: torch.device) -> None:
    here, there = MLP(), MLP()
    on_device = [
        Examples(*(torch.tensor(each).to(device) for each in (some.bits, some.labels))) for some in DATA.values()
    ]
    trained(here)
    fit(there, on_device[0], on_device[1], learning_rate=0.02, batch=8, max_steps=8, stop_after=None)
    assert weights(here) == weights(there)


def test_transformers_learn_the_same(device: torch.device) -> None:
    for config in (encoder(width=8, layers=2), mingpt(N, width=8, heads=2, dropout=0.0)):
        here, there = (Transformer(config, seed=3) for _ in range(2))
        expected, found = trained(here, optimiser="sgd"), trained(there, device, optimiser="sgd")
        for first, second in zip(here.parameters(), there.parameters(), strict=True):
            torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-4)
        assert found.history[-1].validation_loss == pytest.approx(expected.history[-1].validation_loss, rel=1e-5)


def test_labels_and_inputs_in_float64_where_the_device_has_none(device: torch.device) -> None:
    inputs = np.random.default_rng(0).normal(size=(12, N))
    data = Examples(inputs, inputs.mean(axis=1))
    options: dict[str, Any] = {"inputs": "numbers", "loss": "mse", "learning_rate": 0.1, "batch": 6, "max_steps": 3}
    here, there = nn.Linear(N, 1), nn.Linear(N, 1)
    there.load_state_dict(here.state_dict())
    data32 = Examples(inputs.astype(np.float32), data.labels)
    fit(here, data32, data32, **options)
    with twin.without_float64():
        fit(there, data, data32, device=device, **options)
        found = evaluate(there, data32, loss="mse", inputs="numbers", device=device)
    assert weights(here) == weights(there)
    assert found.loss == evaluate(here, data32, loss="mse", inputs="numbers").loss


def test_autocast_is_respected(device: torch.device) -> None:
    types: list[torch.dtype] = []

    class Watched(MLP):
        def forward(self, bits: Tensor) -> Tensor:
            out = super().forward(bits)
            types.append(out.dtype)
            return out

    model = Watched()
    with torch.autocast("twin", torch.bfloat16):
        found = trained(model, device)
    assert set(types) == {torch.bfloat16}
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    plain = MLP()
    trained(plain)
    assert found.steps == 8
    assert weights(plain) != weights(model)


# ---------------------------------------------------------------- interruptions


def dying(step: int) -> Any:
    def callback(moment: Moment) -> None:
        if moment.step == step:
            raise RuntimeError("killed")

    return callback


def interrupted(path: Path, device: torch.device | None, then: torch.device | None, dropout: float) -> tuple[str, int]:
    with pytest.raises(RuntimeError, match="killed"):
        trained(MLP(dropout), device, keeper=Keeper(path, seconds=0), callback=dying(5))
    model, keeper = MLP(dropout), Keeper(path, seconds=0)
    trained(model, then, keeper=keeper)
    assert keeper.resumed_at is not None
    return weights(model), keeper.resumed_at


def test_a_killed_training_with_dropout_ends_where_it_would_have(device: torch.device, tmp_path: Path) -> None:
    whole = MLP()
    trained(whole, device)
    found, at = interrupted(tmp_path / "a", device, device, 0.2)
    assert (found, at) == (weights(whole), 4)


@pytest.mark.parametrize("first", ["cpu", "twin"])
def test_a_checkpoint_of_one_device_goes_on_on_another(device: torch.device, tmp_path: Path, first: str) -> None:
    both = (CPU, device) if first == "cpu" else (device, CPU)
    whole = MLP(0.0)
    trained(whole)
    assert interrupted(tmp_path / "a", *both, 0.0)[0] == weights(whole)
    interrupted(tmp_path / "b", *both, 0.2)  # other masks, but it goes on


def test_batches_are_drawn_alike_everywhere(device: torch.device) -> None:
    here, there = MLP(0.0), MLP(0.0)
    for model, where in ((here, None), (there, device)):
        fresh = Fresh(majority(N), N, 8, 4, seed=2)
        trained(model, where, train=fresh, batch=None)
    assert weights(here) == weights(there)


def test_generators_are_put_back(device: torch.device) -> None:
    torch.get_device_module(device).manual_seed_all(11)
    torch.default_generator.manual_seed(12)
    before = random_states(device)
    trained(MLP(), device)
    after = random_states(device)
    assert all(torch.equal(before[kind], after[kind]) for kind in ("cpu", "twin"))


def test_a_training_on_the_cpu_leaves_the_generator_of_the_device_alone(device: torch.device) -> None:
    before = random_states(device)["twin"]
    trained(MLP())
    assert torch.equal(before, random_states(device)["twin"])


def test_a_measurement_that_draws_on_the_device_has_no_say(device: torch.device) -> None:
    def noisy(model: nn.Module) -> float:
        return float(torch.rand(3, device=next(model.parameters()).device).sum())

    plain, logged = MLP(), MLP()
    trained(plain, device)
    found = trained(logged, device, log=[Log("noisy", noisy, every=2)])
    assert len(found.log) == 5
    assert weights(plain) == weights(logged)


# ---------------------------------------------------------------- everything else that a training has


def test_every_measurement_and_term(device: torch.device) -> None:
    terms = (loss_term("norm", 0.01), loss_term("trace", 0.01), loss_term("trace", 0.01, of="gauss_newton"))
    log = [measurement("validation", 2), measurement("norm", 2), measurement("sensitivity", 2, strings=8)]
    log += [measurement("blowup", 2, strings=8), measurement("sharpness", 2, strings=8, draws=4)]
    recipe = hardness_recipe("majority", N, 0, width=8, batch=8, steps=2, log=log, terms=terms)
    here, there = recipe.train(), recipe.train(device=device)
    assert len(there.fitted.log) == 2
    for expected, found in zip(here.fitted.log, there.fitted.log, strict=True):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_training_set_and_attention_of_the_marker(device: torch.device) -> None:
    recipe = sparse_recipe("and", 6, 0, samples=16, validation=20, steps=4, width=8, heads=2, dropout=0.0)
    recipe = dataclasses.replace(recipe, log=(on_training_set(recipe, 2), on_hidden_bits(recipe, 2, strings=8)))
    here, there = recipe.train(), recipe.train(device=device)
    for expected, found in zip(here.fitted.log, there.fitted.log, strict=True):
        assert found == pytest.approx(expected, rel=1e-4)
    bits = torch.tensor([[0, 1, 1, 0, 1, 0]], dtype=torch.uint8)
    expected = marker_attention(here.transformer, bits)
    found = marker_attention(here.transformer.to(device), bits)
    assert torch.equal(expected, found)


def test_dropout_at_the_marker_takes_no_compiled_loop(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = sparse_recipe("and", 6, 0, samples=16, validation=20, steps=4, width=8, heads=2)
    recipe.train()
    monkeypatch.setattr(noisy, "noisy_read", None)
    with pytest.raises(TypeError):
        recipe.train()  # so it is what the CPU takes
    first, second = recipe.train(device=device), recipe.train(device=device)
    assert weights(first.model) == weights(second.model)


def test_what_comes_after_a_training(device: torch.device) -> None:
    recipe = hardness_recipe("majority", N, 0, width=8, batch=8, steps=2)
    model = recipe.train().model
    expected = [final(recipe, model).error.value, final(recipe, model, strings=20).error.value]
    model.to(device)
    found = [final(recipe, model).error.value, final(recipe, model, strings=20).error.value]
    assert found == pytest.approx(expected, rel=1e-6)

    recipe = scratchpad_recipe(N, 0, width=8, batch=8, steps=2)
    model = recipe.train(device=device).model
    expected_text = written(recipe, model, strings=20)
    assert written(recipe, model.to(device), strings=20) == expected_text

    recipe = fourier_recipe(2, 2, 0, length=N, samples=16, validation=8, batch=8, steps=2)
    model = recipe.train().model
    expected_gap = gap(recipe, model)
    with twin.without_float64():
        found_gap = gap(recipe, model.to(device))
    assert found_gap.errors == pytest.approx(expected_gap.errors, rel=1e-5)
    assert found_gap.train == pytest.approx(expected_gap.train, rel=1e-5)


def test_evaluate(device: torch.device) -> None:
    model = MLP()
    expected = evaluate(model, DATA["validation"])
    assert evaluate(model, DATA["validation"], device=device) == expected
    assert places(model) == {"cpu"}
    with twin.without_float64():
        assert evaluate(model.to(device), DATA["validation"]) == expected


def test_survivors(device: torch.device) -> None:
    model, f = Transformer(encoder(width=8, layers=1), seed=0), majority(N)
    options: dict[str, Any] = {"margin": 1e-3, "radius": 1e-3, "count": 3}
    expected = survivors(model, f, stream=np.random.default_rng(0), **options)
    before = weights(model)
    assert survivors(model.to(device), f, stream=np.random.default_rng(0), **options) == expected
    assert weights(model) == before


def test_train_in_one_line(device: torch.device, tmp_path: Path) -> None:
    options: dict[str, Any] = {"steps": 4, "batch": 8, "width": 8, "layers": 1, "seed": 1}
    found = flipscope.train("majority(5)", device=device, checkpoint=tmp_path / "c", **options)
    assert places(found.model) == {"cpu"}
    assert found.history[-1].validation_loss == pytest.approx(
        flipscope.train("majority(5)", **options).history[-1].validation_loss, rel=1e-4
    )
    unnamed = flipscope.train(majority(5), device=device, **options)
    assert weights(unnamed.model) == weights(found.model)


def test_the_command_line(device: torch.device, run: Run, tmp_path: Path) -> None:
    target = tmp_path / "model.safetensors"
    sizes = ["--steps", "3", "--width", "8", "--layers", "1", "-o", str(target)]
    twin.ran.clear()
    code, _, error = run("train", "majority(5)", *sizes, "--device", "twin")
    assert code == 0, error
    assert twin.ran["_fused_adam_"] == 3
    assert load(target).config.width == 8
    code, _, error = run("train", "majority(5)", *sizes, "--force", "--device", "cuda")
    assert code == 2
    assert "device='cuda' cannot be used on this machine" in error


# ---------------------------------------------------------------- PyTorch's default device


@pytest.fixture
def by_default(device: torch.device) -> Iterator[None]:
    torch.set_default_device(device)
    yield
    torch.set_default_device(None)


@pytest.mark.usefixtures("by_default")
def test_a_default_device_changes_nothing(device: torch.device, tmp_path: Path) -> None:
    model, keeper = MLP(), Keeper(tmp_path / "c", seconds=0)
    trained(model, keeper=keeper)
    other = MLP()
    trained(other, device)
    assert weights(model) == weights(other)
    fresh = Fresh(majority(N), N, 8, 4, seed=2)
    trained(other, train=fresh, batch=None, keeper=Keeper(tmp_path / "d", seconds=0))
    recipe = sparse_recipe("and", 6, 0, samples=16, validation=20, steps=2, width=8, heads=2)
    recipe = dataclasses.replace(recipe, log=(on_training_set(recipe, 1), on_hidden_bits(recipe, 1, strings=8)))
    assert recipe.train().fitted.steps == 2
    log = [measurement(name, 2) for name in ("validation", "norm", "sensitivity", "blowup", "sharpness")]
    terms = (loss_term("norm", 0.01), loss_term("trace", 0.01))
    assert hardness_recipe("majority", N, 0, width=8, batch=8, steps=2, log=log, terms=terms).train().fitted.steps == 2


# ---------------------------------------------------------------- refusals


def test_a_model_that_is_split_over_devices_is_refused(device: torch.device) -> None:
    model = nn.Sequential(nn.Linear(N, 4), nn.Linear(4, 1).to(device))
    with pytest.raises(InputError, match="split over the devices cpu and twin:0"):
        trained(model)
    with pytest.raises(InputError, match="split over the devices cpu and twin:0"):
        evaluate(model, DATA["validation"], device="cpu")


def test_devices_that_cannot_be_used_are_refused(device: torch.device) -> None:
    for name, reason in (
        ("cuda", "on this machine"),
        ("mps", "on this machine"),
        ("gpu", "none that"),
        ("meta", "no num"),
    ):
        with pytest.raises(InputError, match=reason):
            fit(MLP(), DATA["train"], DATA["validation"], device=name, learning_rate=0.1, batch=8)
    with pytest.raises(InputError, match="no numbers"):
        trained(MLP().to("meta"))
    with twin.without_float64(), pytest.raises(InputError, match="has no float64"):
        trained(MLP().double(), device)


def test_second_derivatives_do_without_cudnn(device: torch.device) -> None:
    """cuDNN's LSTMs have no second derivatives: the flag is all that can be seen without a GPU."""
    enabled: list[bool] = []

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = nn.LSTM(1, 4, batch_first=True), nn.Linear(4, 1)

        def forward(self, bits: Tensor) -> Tensor:
            enabled.append(torch.backends.cudnn.enabled)
            out: Tensor = self.head(self.lstm(bits.float()[..., None])[0][:, -1])
            return out

    around = Around(Aim(), "bits", N, [], lambda count, stream: None)
    term = loss_term("trace", 1.0).made(around)
    here = Recurrent()
    there = Recurrent().to(device)
    there.load_state_dict(here.state_dict())
    bits, labels = torch.tensor(DATA["train"].bits), torch.tensor(DATA["train"].labels).float()
    found = []
    for model in (here, there):
        place = next(model.parameters()).device
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            given = bits.to(place), labels.to(place)
            found.append(float(term(model, given, model(given[0])).detach()))
    assert enabled == [True, False, True, False]
    assert found[1] == pytest.approx(found[0], rel=1e-4)


# ---------------------------------------------------------------- defects that the twin must show


def test_a_batch_that_is_not_moved_shows(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "moved", lambda tensor, device: tensor)
    with pytest.raises(RuntimeError, match="same device"):
        trained(Transformer(encoder(width=8, layers=1), seed=3), device)


def test_a_generator_that_is_not_seeded_shows(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "seed_generators", lambda device, seed: torch.default_generator.manual_seed(seed))
    models = []
    for seed in range(2):
        torch.get_device_module(device).manual_seed_all(seed)
        models.append(MLP())
        trained(models[-1], device)
    assert weights(models[0]) != weights(models[1])


def test_a_checkpoint_without_the_generator_of_the_device_shows(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = MLP()
    trained(whole, device)
    monkeypatch.setattr(memory, "random_states", lambda device: {"cpu": torch.random.get_rng_state()})
    assert interrupted(tmp_path / "a", device, device, 0.2)[0] != weights(whole)


def test_a_log_that_does_not_put_the_generator_back_shows(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "random_states_kept", lambda device: torch.random.fork_rng(devices=[]))
    with pytest.raises(AssertionError):
        test_a_measurement_that_draws_on_the_device_has_no_say(device)
