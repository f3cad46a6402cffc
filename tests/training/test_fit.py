from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import flipscope.training.fit as loop
from flipscope.basics.errors import InputError
from flipscope.cube import functions
from flipscope.data.batches import Fresh, Shuffled
from flipscope.models import Transformer, encoder, mingpt
from flipscope.training.fit import Epoch, Moment, evaluate, fit
from flipscope.training.named import loss_term
from flipscope.training.protocol import TrainingProtocol


@dataclasses.dataclass
class Data:
    bits: Any
    labels: Any


def strings(count: int, n: int = 8, seed: int = 0, position: int = 0) -> Data:
    bits = np.random.default_rng(seed).integers(0, 2, (count, n), np.uint8)
    return Data(bits, bits[:, position].copy())


class Linear(nn.Module):
    """One weight a bit, all zero at the start."""

    def __init__(self, n: int = 8, outputs: int = 1) -> None:
        super().__init__()
        self.map = nn.Linear(n, outputs)
        nn.init.zeros_(self.map.weight)
        nn.init.zeros_(self.map.bias)

    def forward(self, bits: Tensor) -> Tensor:
        out: Tensor = self.map(bits.to(self.map.weight))
        return out


TRAIN, VALIDATION = strings(300), strings(100, seed=1)
QUICK: dict[str, Any] = {"learning_rate": 0.05, "batch": 32, "max_epochs": 3}


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(name="scripted")
def _scripted(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make the validation losses follow a script, whatever the model does."""

    def install(losses: list[float]) -> None:
        script = iter(losses)
        monkeypatch.setattr(loop, "_ask", lambda model, bits, *_: (next(script) * len(bits), 0))

    return install


# ---------------------------------------------------------------- learning


def test_learns_first_at_20_bits() -> None:
    model = Transformer(encoder(width=32, layers=2, heads=2, ffn_width=64), seed=0)
    fitted = fit(
        model,
        strings(2_000, 20),
        strings(300, 20, seed=1),
        learning_rate=3e-3,
        batch=64,
        max_epochs=10,
        until=lambda epoch: epoch.validation_accuracy == 1,
    )
    assert fitted.stopped == "goal"
    found = evaluate(model, strings(1_000, 20, seed=2))
    assert found.accuracy.value > 0.99
    assert found.accuracy.low < found.accuracy.value <= found.accuracy.high


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("loss", ["bce", "mse"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_optimisers_losses_and_outputs(optimiser: Any, loss: Any, outputs: int) -> None:
    model = Linear(outputs=outputs)
    rate = 0.05 if optimiser == "sgd" else 0.1
    fit(model, TRAIN, VALIDATION, learning_rate=rate, batch=32, max_epochs=30, loss=loss, optimiser=optimiser)
    assert evaluate(model, VALIDATION, loss=loss).accuracy.value == 1
    found = model(torch.tensor([[1, *[0] * 7], [0] * 8], dtype=torch.uint8))
    value = found[:, 0] if outputs == 1 else found[:, 1] - found[:, 0]
    assert value[0] > 0 > value[1]
    if loss == "mse":
        torch.testing.assert_close(value, torch.tensor([1.0, -1.0]), atol=0.25, rtol=0)


def test_mse_takes_real_labels_as_they_are() -> None:
    bits = TRAIN.bits
    wanted = bits.mean(axis=1) - 3.0
    model = Linear()
    fit(
        model,
        Data(bits, wanted),
        Data(bits, wanted),
        learning_rate=0.1,
        batch=300,
        max_epochs=400,
        loss="mse",
        stop_after=None,
        decay_after=None,
    )
    assert abs(model(torch.tensor(bits)).detach().numpy()[:, 0] - wanted).max() < 0.02


def test_one_step_is_the_gradient_of_the_whole_batch() -> None:
    """A batch is computed in parts; SGD shows its gradient."""
    data = strings(200, 100)
    for loss in ("bce", "mse"):
        models = [Transformer(encoder(width=8, layers=2, heads=2), seed=3, dtype=torch.float64) for _ in range(2)]
        bits, target = torch.tensor(data.bits), torch.tensor(data.labels).double()
        logits = models[0](bits)
        value = (
            nn.functional.binary_cross_entropy_with_logits(logits, target)
            if loss == "bce"
            else (logits - (2 * target - 1)).square().mean()
        )
        value.backward()
        with torch.no_grad():
            for parameter in models[0].parameters():
                parameter -= 0.1 * parameter.grad
        fitted = fit(
            models[1],
            data,
            data,
            learning_rate=0.1,
            batch=1_000,
            max_epochs=1,
            optimiser="sgd",
            loss=loss,  # type: ignore[arg-type]
            restore="last",
        )
        assert (fitted.steps, fitted.strings) == (1, 200)
        assert fitted.history[0].train_loss == pytest.approx(value.item(), rel=1e-6)
        for one, other in zip(*(model.parameters() for model in models), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)


class Normed(Linear):
    def __init__(self) -> None:
        super().__init__(100)
        self.norm = nn.BatchNorm1d(100)
        self.sizes: list[int] = []

    def forward(self, bits: Tensor) -> Tensor:
        self.sizes.append(len(bits))
        return super().forward(self.norm(bits.float()))


def test_batch_norm_sees_whole_batches() -> None:
    model, data = Normed(), strings(200, 100)
    fit(model, data, strings(10, 100), learning_rate=0.1, batch=200, max_epochs=1)
    assert model.sizes[:2] == [1, 200]  # a trial call, then the batch


# ---------------------------------------------------------------- seeds


def test_same_seed_same_bits() -> None:
    results = []
    for seed in (5, 5, 6):
        model = Transformer(encoder(width=8, layers=2, heads=2), seed=0)
        fitted = fit(model, TRAIN, VALIDATION, seed=seed, **QUICK)
        results.append((state(model), [dataclasses.replace(epoch, seconds=0) for epoch in fitted.history]))
    assert same(results[0][0], results[1][0])
    assert results[0][1] == results[1][1]
    assert not same(results[0][0], results[2][0])


def test_dropout_follows_the_seed_and_the_global_generator_is_untouched() -> None:
    results = []
    for seed in (5, 5, 6):
        torch.manual_seed(len(results))  # must not matter
        before = torch.get_rng_state()
        model = Transformer(mingpt(8, width=16, heads=2, dropout=0.3), seed=0)
        source = [(TRAIN.bits[:64], TRAIN.labels[:64])]
        fit(model, source, VALIDATION, learning_rate=0.01, max_epochs=2, seed=seed)
        assert torch.equal(torch.get_rng_state(), before)
        results.append(state(model))
    assert same(results[0], results[1])
    assert not same(results[0], results[2])


def test_global_numpy_state_does_not_matter() -> None:
    orders = []
    for _ in range(2):
        orders.append([batch[0].numpy().tobytes() for batch in Shuffled(TRAIN, 50, seed=1)])
        np.random.rand(3)  # noqa: NPY002
    assert orders[0] == orders[1]


# ---------------------------------------------------------------- sources


def test_shuffled_goes_through_all_strings_in_new_orders() -> None:
    source = Shuffled(TRAIN, 128, seed=0)
    epochs = [list(source) for _ in range(2)]
    orders = []
    for batches in epochs:
        assert [len(bits) for bits, _ in batches] == [128, 128, 44]
        bits = torch.cat([bits for bits, _ in batches]).numpy()
        labels = torch.cat([labels for _, labels in batches]).numpy()
        assert np.array_equal(labels, bits[:, 0])
        assert sorted(map(bytes, bits)) == sorted(map(bytes, TRAIN.bits))
        orders.append(bits.tobytes())
    assert orders[0] != orders[1]


def test_fresh_strings_never_come_again() -> None:
    source = Fresh(functions.parity(40), 40, batch=16, steps=5, seed=2)
    batches = [*source, *source]
    assert len(batches) == 10
    assert len({bytes(string) for bits, _ in batches for string in bits}) == 160
    assert all(np.array_equal(labels, bits.sum(axis=1) % 2) for bits, labels in batches)
    model = Linear(40)
    fitted = fit(model, Fresh(functions.first(40), 40, 16, 5), strings(50, 40), learning_rate=0.1, max_epochs=4)
    assert (fitted.steps, fitted.strings, len(fitted.history)) == (20, 320, 4)


def test_a_source_that_runs_dry_is_an_error() -> None:
    def once() -> Iterator[tuple[Any, Any]]:
        yield TRAIN.bits, TRAIN.labels

    model = Linear()
    with pytest.raises(InputError, match="gave no batch"):
        fit(model, once(), VALIDATION, learning_rate=0.1, max_epochs=2)
    assert all(bool(tensor.isfinite().all()) for tensor in model.state_dict().values())


# ---------------------------------------------------------------- bookkeeping


def test_history() -> None:
    told: list[Epoch] = []
    model = Linear()
    fitted = fit(model, TRAIN, VALIDATION, progress=told.append, **QUICK)
    assert tuple(told) == fitted.history
    assert [epoch.number for epoch in fitted.history] == [1, 2, 3]
    assert [epoch.steps for epoch in fitted.history] == [10, 20, 30]
    times = [epoch.seconds for epoch in fitted.history]
    assert 0 < times[0] < times[1] < times[2] <= fitted.seconds
    assert (fitted.stopped, fitted.steps, fitted.strings) == ("epochs", 30, 900)
    losses = [epoch.validation_loss for epoch in fitted.history]
    assert fitted.kept_epoch == 1 + losses.index(min(losses))
    kept = fitted.history[fitted.kept_epoch - 1]
    found = evaluate(model, VALIDATION)
    assert found.loss == pytest.approx(kept.validation_loss, rel=1e-12)
    assert found.correct / found.strings == kept.validation_accuracy


def weights_by_epoch(losses: list[float], scripted: Any, **settings: Any) -> tuple[Linear, loop.Fitted, list[Any]]:
    scripted(losses)
    model, seen = Linear(), []
    fitted = fit(model, TRAIN, VALIDATION, progress=lambda _: seen.append(state(model)), **(QUICK | settings))
    return model, fitted, seen


def test_best_or_last_weights(scripted: Any) -> None:
    losses = [3.0, 1.0, 1.0, 2.0]
    model, fitted, seen = weights_by_epoch(losses, scripted, max_epochs=4)
    assert fitted.kept_epoch == 2  # the first of equals
    assert same(state(model), seen[1])
    assert not same(seen[1], seen[2])
    model, fitted, seen = weights_by_epoch(losses, scripted, max_epochs=4, restore="last")
    assert fitted.kept_epoch == 4
    assert same(state(model), seen[3])


def test_plateau_rule_of_the_paper(scripted: Any) -> None:
    """Half the rate after 5 epochs without a decrease, stop after 10; a decrease starts the count again."""
    losses = [5.0, 4.0, *[4.0] * 4, 3.9, *[3.9, 4.5] * 5, 1.0]
    _, fitted, _ = weights_by_epoch(losses, scripted, max_epochs=99, learning_rate=0.08)
    assert fitted.stopped == "patience"
    assert len(fitted.history) == 17  # the best was the seventh
    assert fitted.kept_epoch == 7
    # Four epochs without a decrease changed nothing; after five the rate fell, for the thirteenth epoch on.
    assert [epoch.learning_rate for epoch in fitted.history] == [0.08] * 12 + [0.04] * 5


def test_rate_falls_again_after_five_more(scripted: Any) -> None:
    losses = [1.0] * 17
    _, fitted, _ = weights_by_epoch(losses, scripted, max_epochs=17, learning_rate=0.08, stop_after=None)
    assert [epoch.learning_rate for epoch in fitted.history] == [0.08] * 6 + [0.04] * 5 + [0.02] * 5 + [0.01]
    assert fitted.stopped == "epochs"
    _, fitted, _ = weights_by_epoch(losses, scripted, max_epochs=17, learning_rate=0.08, decay_after=None, stop_after=3)
    assert [epoch.learning_rate for epoch in fitted.history] == [0.08] * 4


def test_tiny_decreases_count(scripted: Any) -> None:
    losses = [1 - 1e-12 * k for k in range(30)]
    _, fitted, _ = weights_by_epoch(losses, scripted, max_epochs=30)
    assert fitted.stopped == "epochs"
    assert fitted.history[-1].learning_rate == QUICK["learning_rate"]


# ---------------------------------------------------------------- stopping


def test_step_budget_ends_inside_an_epoch() -> None:
    model = Linear()
    fitted = fit(model, TRAIN, VALIDATION, learning_rate=0.05, batch=32, max_steps=13)
    assert (fitted.stopped, fitted.steps) == ("steps", 13)
    assert [epoch.steps for epoch in fitted.history] == [10, 13]


def test_time_budget() -> None:
    fitted = fit(Linear(), TRAIN, VALIDATION, learning_rate=0.05, batch=32, max_seconds=1e-9)
    assert (fitted.stopped, fitted.steps, len(fitted.history)) == ("seconds", 1, 1)


def test_callback_every_few_steps() -> None:
    told: list[Moment] = []

    def callback(moment: Moment) -> bool:
        told.append(moment)
        moment.model.eval()  # must not last
        return moment.step >= 12

    model = Linear()
    fitted = fit(model, TRAIN, VALIDATION, every=4, callback=callback, **QUICK)
    assert [(moment.step, moment.epoch) for moment in told] == [(4, 1), (8, 1), (12, 2)]
    assert all(math.isfinite(moment.loss) and moment.learning_rate == 0.05 for moment in told)
    assert told[0].model is model
    assert (fitted.stopped, fitted.steps) == ("callback", 12)
    assert model.training


def test_frozen_modules_stay_frozen() -> None:
    model = nn.Sequential(Linear(), nn.Identity(), nn.Identity())
    model[1].eval()
    before = [module.training for module in model.modules()]
    evaluate(model, VALIDATION)
    assert [module.training for module in model.modules()] == before
    fit(model, TRAIN, VALIDATION, **QUICK)
    assert [module.training for module in model.modules()] == before


@pytest.mark.parametrize("training", [True, False])
def test_mode_and_gradients_are_put_back(training: bool) -> None:
    model = Linear().train(training)
    fit(model, TRAIN, VALIDATION, **QUICK)
    assert model.training is training
    assert all(parameter.grad is None for parameter in model.parameters())
    evaluate(model, VALIDATION)
    assert model.training is training


class Breaking(Linear):
    """Gives a logit that is not finite from a certain call in training on."""

    def __init__(self, after: int, value: float) -> None:
        super().__init__()
        self.calls, self.after, self.value = 0, after, value

    def forward(self, bits: Tensor) -> Tensor:
        self.calls += self.training
        out = super().forward(bits)
        return out * self.value if self.training and self.calls > self.after else out


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("restore", ["best", "last"])
@pytest.mark.parametrize(("after", "epochs"), [(0, 0), (15, 1)])
def test_divergence_is_a_stop_not_an_error(value: float, restore: Any, after: int, epochs: int) -> None:
    model = Breaking(after, value)
    seen = [state(model)]
    fitted = fit(model, TRAIN, VALIDATION, restore=restore, progress=lambda _: seen.append(state(model)), **QUICK)
    assert (fitted.stopped, fitted.steps, len(fitted.history), fitted.kept_epoch) == ("diverged", after, epochs, epochs)
    assert same(state(model), seen[-1])  # the start, or the only whole epoch


def test_a_huge_learning_rate_diverges_quietly() -> None:
    model = Transformer(encoder(width=8, layers=2, heads=2), seed=0)
    fitted = fit(model, TRAIN, VALIDATION, learning_rate=1e30, batch=32, max_epochs=3, optimiser="sgd")
    assert fitted.stopped == "diverged"
    assert all(bool(tensor.isfinite().all()) for tensor in model.state_dict().values())


def test_validation_that_is_not_finite_diverges(scripted: Any) -> None:
    model, fitted, seen = weights_by_epoch([1.0, math.nan], scripted)
    assert (fitted.stopped, fitted.kept_epoch, len(fitted.history)) == ("diverged", 1, 1)
    assert same(state(model), seen[0])


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("training", [True, False])
def test_an_interrupt_leaves_the_best_weights(error: type[BaseException], training: bool) -> None:
    model = Linear().train(training)
    seen: list[dict[str, Tensor]] = []

    def interrupt(moment: Moment) -> None:
        if moment.step == 27:
            raise error

    with pytest.raises(error):
        fit(
            model,
            TRAIN,
            VALIDATION,
            callback=interrupt,
            restore="last",
            progress=lambda _: seen.append(state(model)),
            **QUICK,
        )
    assert len(seen) == 2
    assert same(state(model), seen[1])
    assert model.training is training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_frozen_parameters_stay() -> None:
    model = Linear()
    model.map.bias.requires_grad_(False)
    fit(model, TRAIN, VALIDATION, weight_decay=0.1, **QUICK)
    assert model.map.bias.eq(0).all()
    assert model.map.weight.ne(0).all()
    model.map.weight.requires_grad_(False)
    with pytest.raises(InputError, match="no parameter"):
        fit(model, TRAIN, VALIDATION, **QUICK)


# ---------------------------------------------------------------- evaluation


class Fixed(nn.Module):
    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self.logits = torch.tensor(logits)

    def forward(self, bits: Tensor) -> Tensor:
        return self.logits[: len(bits)]


def test_evaluate_by_hand() -> None:
    data = Data(np.zeros((4, 3), np.uint8), np.array([1, 0, 1, 0]))
    found = evaluate(Fixed([2.0, -1.0, 0.0, 0.0]), data)  # a logit of 0 answers 0
    assert (found.correct, found.strings) == (3, 4)
    losses = [math.log1p(math.exp(-2)), math.log1p(math.exp(-1)), math.log(2), math.log(2)]
    assert found.loss == pytest.approx(sum(losses) / 4, rel=1e-6)
    assert (found.accuracy.value, found.accuracy.samples, found.accuracy.confidence) == (0.75, 4, 0.95)
    found = evaluate(Fixed([2.0, -1.0, 0.0, 0.0]), data, loss="mse", confidence=0.5)
    assert found.loss == pytest.approx((1 + 0 + 1 + 1) / 4)
    assert found.accuracy.confidence == 0.5
    assert evaluate(Fixed([math.nan] * 4), data).correct == 0
    with pytest.raises(InputError, match="4 logits for 5 strings"):
        evaluate(Fixed([0.0] * 4), Data(np.zeros((5, 3)), np.zeros(5)))


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch": 0}, "batch"),
        ({"batch": None}, "batch must be given"),
        ({"batch": 2.5}, "batch"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": -1e-3}, "learning_rate"),
        ({"learning_rate": math.nan}, "learning_rate"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"decay_factor": 0.0}, "decay_factor"),
        ({"decay_factor": 1.5}, "decay_factor"),
        ({"decay_after": 0}, "decay_after"),
        ({"stop_after": 0}, "stop_after"),
        ({"max_epochs": 0}, "max_epochs"),
        ({"max_steps": 0}, "max_steps"),
        ({"max_seconds": 0}, "max_seconds"),
        ({"max_seconds": math.nan}, "max_seconds"),
        ({"every": 0}, "every"),
        ({"optimiser": "lion"}, "optimiser"),
        ({"loss": "hinge"}, "loss"),
        ({"restore": "middle"}, "restore"),
        ({"seed": -1}, "seed"),
    ],
)
def test_refuses_bad_settings(settings: dict[str, Any], message: str) -> None:
    model = Linear()
    before = state(model)
    with pytest.raises(InputError, match=message):
        fit(model, TRAIN, VALIDATION, **(QUICK | settings))
    assert same(state(model), before)


BAD = {
    "empty": (Data(np.zeros((0, 8)), np.zeros(0)), "bits of shape"),
    "one axis": (Data(np.zeros(8), np.zeros(8)), "bits of shape"),
    "lengths": (Data(TRAIN.bits, TRAIN.labels[:-1]), "labels of shape"),
    "bits": (Data(TRAIN.bits + 1, TRAIN.labels), "bits"),
    "labels": (Data(TRAIN.bits, TRAIN.labels * 2), "labels"),
    "real labels": (Data(TRAIN.bits, TRAIN.labels * 0.5), "labels"),
    "nan labels": (Data(TRAIN.bits, np.where(TRAIN.labels, np.nan, 0)), "finite"),
}


@pytest.mark.parametrize("where", ["train", "validation", "a batch"])
@pytest.mark.parametrize("name", BAD)
def test_refuses_bad_data(name: str, where: str) -> None:
    data, message = BAD[name]
    model = Linear()
    before = state(model)
    sets: dict[str, Any] = {"train": TRAIN, "validation": VALIDATION} | {where: data} | QUICK
    if where == "a batch":
        sets |= {"train": [(data.bits, data.labels)], "batch": None}
        del sets[where]
    with pytest.raises(InputError, match=message):
        fit(model, **sets)
    assert same(state(model), before)


def test_a_protocol_and_its_fields_by_name_are_the_same() -> None:
    protocol = TrainingProtocol(**(QUICK | {"max_epochs": 3, "optimiser": "adamw"}))
    one, two, three = Linear(), Linear(), Linear()
    whole = fit(one, TRAIN, VALIDATION, protocol, seed=3)
    fit(two, TRAIN, VALIDATION, seed=3, **(QUICK | {"max_epochs": 3, "optimiser": "adamw"}))
    assert same(state(one), state(two))
    shorter = fit(three, TRAIN, VALIDATION, protocol, seed=3, max_epochs=2)
    assert [line.train_loss for line in shorter.history] == [line.train_loss for line in whole.history[:2]]


def test_a_goal_of_the_protocol_ends_it() -> None:
    fitted = fit(Linear(), TRAIN, VALIDATION, **(QUICK | {"max_epochs": 50, "goal": 0.9}))
    assert fitted.stopped == "goal"
    assert fitted.history[-1].validation_accuracy >= 0.9 > max(line.validation_accuracy for line in fitted.history[:-1])


def test_refuses_what_only_a_recipe_can_do() -> None:
    with pytest.raises(InputError, match="terms of the loss, which only a recipe can make"):
        fit(Linear(), TRAIN, VALIDATION, TrainingProtocol(terms=(loss_term("norm", 0.1),), **QUICK))
    with pytest.raises(InputError, match="here an epoch is one pass over train"):
        fit(Linear(), TRAIN, VALIDATION, epoch_steps=10, **QUICK)


def test_refuses_a_batch_size_beside_a_source() -> None:
    with pytest.raises(InputError, match="has its own"):
        fit(Linear(), [(TRAIN.bits, TRAIN.labels)], VALIDATION, **QUICK)


def test_refuses_models_with_many_outputs() -> None:
    with pytest.raises(InputError, match="logits of shape"):
        fit(Linear(outputs=3), TRAIN, VALIDATION, **QUICK)
