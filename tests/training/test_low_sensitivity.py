"""Training for low sensitivity: the penalty against its closed form, how it enters the loss, and the watcher."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import flipscope
from flipscope.adapters.disturbing import patches
from flipscope.basics.errors import InputError
from flipscope.data.batches import Examples
from flipscope.models import Transformer, encoder
from flipscope.training.fit import fit
from flipscope.training.logs import Log
from flipscope.training.low_sensitivity import (
    NoiseAugmentation,
    SensitivityPenalty,
    SensitivityWatch,
    measured_sensitivity,
    trainer_callback,
)
from flipscope.training.named import Around, LossTerm, loss_term
from flipscope.training.recipe import _Scaled
from flipscope.training.recipes.low_sensitivity import image_recipe
from flipscope.training.targets import Aim
from flipscope.training.terms import sensitivity

# The linear example of the low-sensitivity paper's definition: four tokens of two numbers.
WEIGHTS = torch.tensor([[1.0, 0.0], [0.0, 2.0], [2.0, 1.0], [0.5, 0.5]])
INPUT = torch.tensor([[1.0, 1.0], [-0.5, 0.5], [0.3, -0.2], [0.0, 1.0]])


def linear_example() -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(8, 1, bias=False))
    model[1].weight.data = WEIGHTS.reshape(1, 8).clone()
    return model


def network(outputs: int = 3) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, outputs))


def images(count: int = 30) -> Tensor:
    return torch.rand(count, 1, 4, 4, generator=torch.Generator().manual_seed(3))


def seeded(number: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def bert(**options: Any) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=50, num_labels=3, max_position_embeddings=16, **size, **options)
    model: nn.Module = transformers.BertForSequenceClassification(config)
    return model


def texts(count: int = 12) -> dict[str, Tensor]:
    ids = torch.randint(1, 50, (count, 9), generator=seeded())
    return {"input_ids": ids, "attention_mask": (torch.arange(9) < 1 + torch.arange(count)[:, None] % 9).long()}


# ---------------------------------------------------------------- the penalty


def test_the_penalty_of_a_linear_model_is_its_closed_form() -> None:
    model, many = linear_example(), INPUT.expand(400_000, 4, 2)
    exact = 4.0 * float(WEIGHTS.square().sum(dim=1).mean())
    assert exact == 10.5
    found = SensitivityPenalty(variance=4.0, generator=seeded()).penalty(model, many, model(many))
    assert found.item() == pytest.approx(exact, abs=0.16)  # five standard errors


def test_one_token_of_each_input_is_disturbed_all_alike_often() -> None:
    seen: list[Tensor] = []

    def keep(values: Tensor) -> Tensor:
        seen.append(values)
        return values.flatten(1)

    penalty = SensitivityPenalty(variance=1.0, feature_mask=patches(2), generator=seeded())
    many = torch.zeros(4_000, 1, 4, 4)

    class Kept(nn.Module):
        def forward(self, values: Tensor) -> Tensor:
            return keep(values)

    penalty.outputs(Kept(), many)
    blocks = seen[0].reshape(-1, 2, 2, 2, 2).permute(0, 1, 3, 2, 4).reshape(4_000, 4, 4)
    touched = (blocks != 0).all(dim=2)
    assert ((blocks != 0).any(dim=2) == touched).all()
    assert (touched.sum(dim=1) == 1).all()
    assert (touched.sum(dim=0) > 850).all()
    assert blocks[touched].var().item() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(("how", "factor"), [("mix", 0.7), ("add", 1.0)])
def test_how_the_penalty_enters_the_loss(how: Any, factor: float) -> None:
    model, inputs, labels = network(), images(), torch.arange(30) % 3
    outputs = model(inputs)
    loss = F.cross_entropy(outputs, labels)
    made: dict[str, Any] = {"variance": 0.5, "strength": 0.3, "how": how, "feature_mask": patches(2)}
    whole = SensitivityPenalty(generator=seeded(), **made).applied(loss, model, inputs, outputs)
    part = SensitivityPenalty(generator=seeded(), **made).penalty(model, inputs, outputs)
    assert part > 0
    assert whole.item() == pytest.approx(factor * loss.item() + 0.3 * part.item(), rel=1e-6)


def test_gradients_go_through_both_outputs() -> None:
    model, inputs = network(), images()
    made: dict[str, Any] = {"variance": 0.5, "feature_mask": patches(2)}

    def gradient(value: Tensor) -> Tensor:
        return torch.cat([each.flatten() for each in torch.autograd.grad(value, list(model.parameters()))])

    found = gradient(SensitivityPenalty(generator=seeded(), **made).penalty(model, inputs, model(inputs)))
    noisy = SensitivityPenalty(generator=seeded(), **made).outputs(model, inputs)
    by_hand = (model(inputs) - noisy).square().sum() / noisy.numel()
    assert found == pytest.approx(gradient(by_hand), rel=1e-5, abs=1e-7)
    noisy = SensitivityPenalty(generator=seeded(), **made).outputs(model, inputs)
    one_way = (model(inputs).detach() - noisy).square().mean()
    assert not torch.allclose(found, gradient(one_way), rtol=0.05)


def test_without_noise_there_is_no_penalty() -> None:
    model, inputs = network(), images()
    assert SensitivityPenalty(variance=0.0, feature_mask=patches(2)).penalty(model, inputs, model(inputs)) == 0


def test_running_averages_stay_as_the_loop_left_them() -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(27, 2)).train()
    inputs = images()
    outputs = model(inputs)
    before = {name: value.clone() for name, value in model.named_buffers()}
    SensitivityPenalty(variance=9.0, feature_mask=patches(2)).penalty(model, inputs, outputs).backward()
    assert all(torch.equal(value, before[name]) for name, value in model.named_buffers())
    assert not torch.equal(before["1.running_mean"], torch.zeros(3))


def test_padding_is_never_disturbed_and_every_other_token_is() -> None:
    model = bert().eval()
    given = {name: value.repeat(150, 1) for name, value in texts(9).items()}
    seen: list[Tensor] = []
    part = model.get_submodule("bert.encoder")
    with part.register_forward_pre_hook(lambda part, args: seen.append(args[0].detach())), torch.no_grad():
        model(**given)
        SensitivityPenalty(variance=1.0, at="bert.embeddings", generator=seeded()).outputs(model, given)
    touched = (seen[0] != seen[1]).any(dim=2)
    assert (touched.sum(dim=1) == 1).all()
    assert torch.equal(touched.view(150, 9, 9).any(dim=0), texts(9)["attention_mask"].bool())


@pytest.mark.parametrize("part", [SensitivityPenalty, NoiseAugmentation])
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"variance": -1.0}, "variance=-1.0 must be a number of at least 0"),
        ({"strength": 1.5}, "must be at most 1 with how='mix'"),
        ({"strength": -0.5, "how": "add"}, "strength=-0.5 must be a number of at least 0"),
        ({"how": "both"}, "how='both'"),
    ],
)
def test_bad_settings_are_one_sentence(part: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        part(**options)


def test_bad_inputs_are_one_sentence() -> None:
    penalty = SensitivityPenalty(variance=1.0)
    with pytest.raises(InputError, match=r"feature_mask=patches\(4\)"):
        penalty.penalty(network(), images(), torch.zeros(30, 3))
    with pytest.raises(InputError, match="are whole numbers, to which no noise can be added"):
        penalty.outputs(bert(), texts())
    with pytest.raises(InputError, match="at='nowhere' is no module of the model"):
        SensitivityPenalty(variance=1.0, at="nowhere").outputs(network(), images())
    model, given = bert(), texts()
    empty = {**given, "attention_mask": torch.zeros_like(given["attention_mask"])}
    with pytest.raises(InputError, match="covers no token of some input"):
        SensitivityPenalty(variance=1.0, at="bert.embeddings").outputs(model, empty)
    with pytest.raises(InputError, match="does not fit 12 inputs"):
        SensitivityPenalty(variance=1.0, at="bert.pooler").outputs(model, given)
    shaped = SensitivityPenalty(variance=1.0, feature_mask=patches(2))
    with pytest.raises(InputError, match=r"a loss of shape \(30,\) must be one number"):
        shaped.applied(torch.zeros(30), network(), images(), network()(images()))
    with pytest.raises(InputError, match="give the model's own outputs"):
        shaped.penalty(network(), images(), torch.zeros(30, 1))
    with pytest.raises(InputError, match="must hold whole numbers"):
        SensitivityPenalty(feature_mask=torch.zeros(4, 4))
    with pytest.raises(InputError, match="needs a criterion"):
        NoiseAugmentation().loss(network(), images(), torch.zeros(30))


# ---------------------------------------------------------------- augmentation


def test_augmentation_is_noise_on_the_whole_input() -> None:
    model, inputs, labels = network(), images(), torch.arange(30) % 3
    noise = 0.1**0.5 * torch.randn(inputs.shape, generator=seeded())
    augmentation = NoiseAugmentation(variance=0.1, generator=seeded())
    assert torch.equal(augmentation.outputs(model, inputs), model(inputs + noise))
    loss, noisy = F.cross_entropy(model(inputs), labels), F.cross_entropy(model(inputs + noise), labels)
    for how, strength, whole in (
        ("mix", 1.0, noisy),
        ("mix", 0.25, 0.75 * loss + 0.25 * noisy),
        ("add", 1.0, loss + noisy),
    ):
        made = NoiseAugmentation(how=how, strength=strength, criterion=F.cross_entropy, generator=seeded())  # type: ignore[arg-type]
        assert made.applied(loss, model, inputs, labels).item() == pytest.approx(whole.item(), rel=1e-6)


# ---------------------------------------------------------------- in fit


def digits(count: int = 40) -> Examples:
    return Examples(images(count).numpy(), np.arange(count) % 3)


def around() -> Around:
    return Around(Aim(), "bits", 5, [], lambda count, stream: stream.integers(0, 2, (count, 5), dtype=np.uint8))


def fitted(terms: list[Any], **changes: Any) -> Tensor:
    model = network()
    options: dict[str, Any] = {"learning_rate": 0.5, "optimiser": "sgd", "batch": 8, "loss": "ce", "max_steps": 7}
    fit(model, digits(), digits(), inputs="numbers", terms=terms, restore="last", **{**options, **changes})
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def test_mixing_puts_a_factor_on_the_loss_of_fit() -> None:
    """Without noise the penalty is 0, so that half the loss is half the learning rate."""
    nothing = SensitivityPenalty(variance=0.0, strength=0.5, feature_mask=patches(2))
    assert fitted([nothing]) == pytest.approx(fitted([], learning_rate=0.25), rel=1e-4, abs=1e-6)
    added = SensitivityPenalty(variance=0.0, strength=0.5, how="add", feature_mask=patches(2))
    assert fitted([added]) == pytest.approx(fitted([]), rel=1e-4, abs=1e-6)
    assert not torch.allclose(fitted([nothing]), fitted([]), rtol=0.01)


def test_the_penalty_alone_makes_a_model_insensitive() -> None:
    only = SensitivityPenalty(variance=1.0, strength=1.0, feature_mask=patches(2))
    sizes = []
    for terms in ([], [only]):
        model = network()
        options: dict[str, Any] = {"learning_rate": 0.5, "optimiser": "sgd", "batch": 8, "loss": "ce", "max_steps": 60}
        fit(model, digits(), digits(), inputs="numbers", terms=terms, restore="last", **options)
        same = SensitivityPenalty(variance=1.0, feature_mask=patches(2), generator=seeded())
        sizes.append(same.penalty(model, images(), model(images())).item())
    assert sizes[1] < 0.01 * sizes[0]


def test_the_reported_loss_is_the_loss_itself() -> None:
    model = network()
    mixed = SensitivityPenalty(variance=0.0, strength=0.9, feature_mask=patches(2))
    line = fit(
        model, digits(), digits(), inputs="numbers", terms=[mixed], learning_rate=1e-9, batch=40, loss="ce", max_steps=1
    ).history[0]
    assert line.train_loss == pytest.approx(line.validation_loss, rel=1e-4)


def test_augmentation_as_a_term_of_fit_replaces_the_loss() -> None:
    quiet = NoiseAugmentation(variance=0.0, criterion=F.cross_entropy)
    assert fitted([quiet]) == pytest.approx(fitted([]), rel=1e-4, abs=1e-6)
    loud = NoiseAugmentation(variance=4.0, criterion=F.cross_entropy)
    assert not torch.allclose(fitted([loud]), fitted([]), rtol=0.01)


def test_a_recipe_names_the_augmentation() -> None:
    """Without noise the same weights as without the term; with noise others."""

    def weights(*terms: LossTerm) -> Tensor:
        recipe = image_recipe("digits", "mlp-small", batch=300, epochs=1, terms=terms)
        return torch.cat([each.detach().flatten() for each in recipe.train().model.parameters()])

    assert weights(loss_term("augmentation", 1.0, variance=0.0)) == pytest.approx(weights(), rel=1e-4, abs=1e-6)
    assert not torch.allclose(weights(loss_term("augmentation", 1.0, variance=4.0)), weights(), rtol=0.01)


@pytest.mark.parametrize(("how", "factor"), [("mix", 0.75), ("add", 1.0)])
def test_a_recipe_names_the_penalty(how: str, factor: float) -> None:
    term = loss_term("sensitivity", 0.25, variance=0.5, how=how, at="embedding")
    made = term.made(around())
    scaled = _Scaled(made, term.strength, term.name)
    assert scaled.loss_factor == factor
    model = Transformer(encoder(width=8, layers=1), seed=0).eval()
    bits = torch.randint(0, 2, (6, 5), dtype=torch.uint8, generator=seeded())
    torch.manual_seed(4)
    found = scaled(model, (bits, torch.zeros(6)), model(bits))
    torch.manual_seed(4)
    assert found == 0.25 * made.penalty(model, bits, model(bits))
    assert found > 0
    with pytest.raises(InputError, match="how='twice'"):
        sensitivity(around(), how="twice")


# ---------------------------------------------------------------- watching


def with_noise_inside() -> nn.Sequential:
    torch.manual_seed(1)
    layers = (nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(36, 3))
    return nn.Sequential(*layers)


def loop(step: Callable[[nn.Module, float], object] | None) -> dict[str, bytes]:
    """A training loop that uses every random generator there is; the bits of what it ends with."""
    model = with_noise_inside()
    watched = None if step is None else step(model, 0.0)
    torch.manual_seed(7)
    generator = np.random.default_rng(0)
    np.random.seed(5)  # noqa: NPY002  # the global generator is what many loops shuffle with
    stepper = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    everything, labels = images(60), torch.arange(60) % 3
    for _ in range(6):
        rows = torch.from_numpy(np.random.permutation(60)[:20])  # noqa: NPY002
        noise = torch.from_numpy(generator.normal(size=(20, 1, 4, 4))).float() + torch.randn(20, 1, 4, 4)
        stepper.zero_grad()
        loss = F.cross_entropy(model(everything[rows] + 0.1 * noise), labels[rows])
        loss.backward()
        stepper.step()
        if watched is not None:
            watched.step(loss)  # type: ignore[attr-defined]
        assert model.training
    return {name: value.numpy().tobytes() for name, value in model.state_dict().items()}


def test_the_watcher_leaves_the_weights_bit_for_bit() -> None:
    seen: list[SensitivityWatch] = []

    def watching(model: nn.Module, loss: float) -> SensitivityWatch:
        seen.append(SensitivityWatch(model, images(20), every=2, variance=4.0, feature_mask=patches(2)))
        return seen[0]

    assert loop(watching) == loop(None)
    steps, values = seen[0].series()
    assert steps == [0, 2, 4, 6]
    assert all(
        0 <= line["sensitivity.low"] <= line["sensitivity"] <= line["sensitivity.high"] <= 1 for line in seen[0].log
    )
    assert len(set(values)) > 1
    assert len(seen[0].series("loss")[1]) == 3
    with pytest.raises(InputError, match="every must be"):
        SensitivityWatch(network(), images(), every=0)


def test_what_is_watched_is_the_token_sensitivity() -> None:
    model, inputs = network(), images()
    options: dict[str, Any] = {"variance": 4.0, "feature_mask": patches(2), "draws": 3, "seed": 5}
    watch = SensitivityWatch(model, inputs, **options)
    assert watch.log[0]["sensitivity"] == flipscope.token_sensitivity(model, inputs, **options).definition.value
    measure = measured_sensitivity(inputs, **options)
    run = fit(
        model,
        digits(),
        digits(),
        inputs="numbers",
        learning_rate=0.1,
        batch=8,
        loss="ce",
        max_steps=4,
        log=[Log("sensitivity", measure, every=2)],
        restore="last",
    )
    steps, values = run.series("sensitivity")
    assert steps == [0, 2, 4]
    assert values[-1] == flipscope.token_sensitivity(model, inputs, **options).definition.value


# ---------------------------------------------------------------- transformers


def test_the_callback_changes_the_loss_in_training_only() -> None:
    transformers = pytest.importorskip("transformers")
    model, given = bert(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0), texts()
    labels = torch.arange(12) % 3
    penalty = SensitivityPenalty(variance=0.5, strength=0.25, at="bert.embeddings", generator=seeded())
    callback = trainer_callback(penalty)
    assert isinstance(callback, transformers.TrainerCallback)
    model.train()
    plain = model(**given, labels=labels)
    callback.on_train_begin(None, None, None, model=model)
    changed = model(**given, labels=labels)
    again = SensitivityPenalty(variance=0.5, strength=0.25, at="bert.embeddings", generator=seeded())
    part = again.penalty(_without_hooks(model), given, plain)
    assert changed.loss.item() == pytest.approx(0.75 * plain.loss.item() + 0.25 * part.item(), rel=1e-5)
    assert torch.equal(changed.logits, plain.logits)
    assert model.eval()(**given, labels=labels).loss == plain.loss
    callback.on_train_end(None, None, None, model=model)
    assert model.train()(**given, labels=labels).loss == plain.loss


def test_the_callback_augments_in_training_only() -> None:
    model, given = bert(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0), texts()
    given["labels"] = torch.arange(12) % 3
    model.train()
    plain = model(**given).loss
    callback = trainer_callback(NoiseAugmentation(variance=0.5, at="bert.embeddings", generator=seeded()))
    callback.on_train_begin(None, None, None, model=model)
    callback.on_train_begin(None, None, None, model=model)  # again, after an interrupted training
    changed = model(**given).loss
    again = NoiseAugmentation(variance=0.5, at="bert.embeddings", generator=seeded())
    assert changed == again.outputs(_without_hooks(model), given).loss != plain
    callback.on_train_end(None, None, None, model=model)
    assert model(**given).loss == plain
    assert not model._forward_hooks


class Counting(nn.Module):
    """A classifier of `transformers` that divides its loss by the number of labels of a whole step, or does not."""

    def __init__(self, listens: bool) -> None:
        super().__init__()
        self.embedding, self.head, self.listens = nn.Embedding(9, 4), nn.Linear(4, 2), listens

    def forward(self, input_ids: Tensor, labels: Tensor | None = None, num_items_in_batch: Any = None) -> Any:
        logits = self.head(self.embedding(input_ids).mean(dim=1))
        loss = None
        if labels is not None:
            total = F.cross_entropy(logits, labels, reduction="sum")
            loss = total / (num_items_in_batch if self.listens and num_items_in_batch is not None else len(labels))
        return SimpleNamespace(loss=loss, logits=logits)


@pytest.mark.parametrize("listens", [False, True])
def test_the_penalty_of_accumulated_gradients_has_the_weight_of_the_loss(listens: bool) -> None:
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = Counting(listens).train()
    given = {"input_ids": torch.randint(0, 9, (6, 5)), "labels": torch.arange(6) % 2}
    plain = model(**given)

    def changed(count: Any) -> Tensor:
        penalty = SensitivityPenalty(variance=1.0, at="embedding", generator=seeded())
        callback = trainer_callback(penalty)
        callback.on_train_begin(None, None, None, model=model)
        found: Tensor = model(**given, num_items_in_batch=count).loss
        callback.on_train_end(None, None, None, model=model)
        return found

    whole = changed(6)
    assert whole != plain.loss
    assert changed(torch.tensor(24)).item() == pytest.approx(whole.item() / (4 if listens else 1), rel=1e-6)


def _without_hooks(model: nn.Module) -> nn.Module:
    made = copy.deepcopy(model)
    made._forward_hooks.clear()
    return made


def test_the_callback_logs_the_sensitivity_at_evaluations() -> None:
    transformers = pytest.importorskip("transformers")
    model = bert()
    options: dict[str, Any] = {"at": "bert.embeddings", "variance": 4.0}
    callback = trainer_callback(inputs=texts(), **options)
    state = transformers.TrainerState(log_history=[{"eval_loss": 1.0, "step": 3}])
    metrics = {"eval_loss": 1.0}
    callback.on_evaluate(None, state, None, model=model.train(), metrics=metrics)
    value = flipscope.token_sensitivity(model, texts(), **options).definition.value
    assert metrics["eval_sensitivity"] == state.log_history[0]["eval_sensitivity"] == value
    assert metrics["eval_sensitivity_low"] <= value <= metrics["eval_sensitivity_high"]
    assert model.training
    with pytest.raises(InputError, match="nothing to do"):
        trainer_callback()


def test_a_whole_training_by_the_trainer(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate", reason="the Trainer of transformers needs accelerate")

    def trained(**extra: Any) -> tuple[dict[str, bytes], list[dict[str, float]]]:
        model = bert()
        given = texts(24)
        rows = [{**{name: value[k] for name, value in given.items()}, "labels": torch.tensor(k % 3)} for k in range(24)]
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path),
            max_steps=4,
            per_device_train_batch_size=8,
            eval_strategy="steps",
            eval_steps=2,
            logging_steps=2,
            save_strategy="no",
            report_to=[],
            seed=1,
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(model, arguments, train_dataset=rows, eval_dataset=rows, **extra)
        trainer.train()
        return {name: each.numpy().tobytes() for name, each in model.state_dict().items()}, trainer.state.log_history

    plain, _ = trained()
    watched, lines = trained(callbacks=[trainer_callback(inputs=texts(), at="bert.embeddings", variance=4.0)])
    assert watched == plain
    assert sum("eval_sensitivity" in line for line in lines) == 2
    penalised, _ = trained(callbacks=[trainer_callback(SensitivityPenalty(variance=1.0, at="bert.embeddings"))])
    assert penalised != plain


def test_checkpoints_tell_settings_apart() -> None:
    masks = [None, patches(2), patches(4), np.arange(4), np.arange(4) // 2, torch.arange(3)]
    names = {SensitivityPenalty(feature_mask=mask).__name__ for mask in masks}
    assert len(names) == len(masks)
    assert SensitivityPenalty(feature_mask=patches(2)).__name__ in names
