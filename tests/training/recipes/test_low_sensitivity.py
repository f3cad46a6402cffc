"""Recipes of images and texts: what they hold, what batches they make, and that trainings resume bit for bit."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flipscope.basics.errors import InputError
from flipscope.data.batches import ByLength, Examples, Resumable, text_lengths
from flipscope.data.image_data import ImageData, augmented, image_data
from flipscope.data.images import load_images
from flipscope.data.text_data import TextData, text_data
from flipscope.data.texts import load_texts
from flipscope.lab.run.resources import one_thread
from flipscope.lab.trained_trial import TrainedTrial
from flipscope.models.baselines.presets import IMAGE_MODELS, TEXT_MODELS
from flipscope.training import artefact
from flipscope.training.checkpoints import Keeper
from flipscope.training.fit import fit
from flipscope.training.protocol import TrainingProtocol
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.low_sensitivity import image_recipe, text_recipe

pytest.importorskip("sklearn")


class Killed(Exception):
    """In place of kill -9: nothing is saved on the way out."""


@pytest.fixture(scope="module")
def digits() -> ImageData:
    return image_data("digits", train=120, test=40, crop=1, flip=True)


@pytest.fixture(scope="module")
def pairs() -> TextData:
    pytest.importorskip("tokenizers")
    return text_data("synthetic-paraphrases", length=32, vocabulary=600, train=90, test=40)


# ---------------------------------------------------------------- images


def test_a_recipe_names_the_set_and_its_content(digits: ImageData) -> None:
    recipe = image_recipe(digits, "resnet-small", seed=3)
    text = json.dumps(recipe.as_json())
    assert f"digits@{load_images('digits').digest[:16]}" in text
    again = Recipe.from_json(json.loads(text))
    assert again == recipe
    assert again.digest == recipe.digest


def test_pixels_are_scaled(digits: ImageData) -> None:
    pixels = torch.tensor([0, 51, 255], dtype=torch.uint8).view(3, 1, 1, 1)
    assert digits.scaled(pixels).flatten().tolist() == pytest.approx([-1, -0.6, 1])
    standard = image_data("digits", scaling="standard")
    numbers = standard.training_set().bits
    assert (float(numbers.mean()), float(numbers.std(correction=0))) == pytest.approx((0, 1), abs=1e-4)


def test_images_are_moved_and_mirrored() -> None:
    image = torch.arange(1, 13, dtype=torch.uint8).view(1, 1, 3, 4).repeat(4, 2, 1, 1)
    image[:, 1] += 100
    down, right = torch.tensor([0, 1, -1, 0]), torch.tensor([0, 0, 2, -1])
    found = augmented(image, down, right, torch.tensor([False, False, False, True]))
    assert found[0, 0].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]
    assert found[1, 0].tolist() == [[0, 0, 0, 0], [1, 2, 3, 4], [5, 6, 7, 8]]
    assert found[2, 1].tolist() == [[0, 0, 105, 106], [0, 0, 109, 110], [0, 0, 0, 0]]
    assert found[3, 0].tolist() == [[0, 4, 3, 2], [0, 8, 7, 6], [0, 12, 11, 10]]


def test_a_pass_has_each_image_once_and_augmentation_differs_between_passes(digits: ImageData) -> None:
    plain = dataclasses.replace(digits, crop=0, flip=False)
    labels = torch.cat([labels for _, labels in plain.source(50, 0, 1)])
    assert sorted(labels.tolist()) == sorted(plain.training_set().labels.tolist())
    images = torch.cat([images for images, _ in plain.source(50, 0, 1)]).flatten(1)
    wanted = plain.training_set().bits.flatten(1)
    assert {tuple(row) for row in images.tolist()} == {tuple(row) for row in wanted.tolist()}
    source = digits.source(50, 0, 1)
    first, second = (torch.cat([images for images, _ in source]).sum(dim=0) for _ in range(2))
    assert not torch.equal(first, second)
    known = {tuple(row) for row in wanted.tolist()}
    moved = [tuple(row) not in known for images, _ in source for row in images.flatten(1).tolist()]
    # One in nine is not moved, and half of those are not mirrored.
    assert 0.85 < np.mean(moved) < 1


def test_chosen_images_are_those_of_the_set(digits: ImageData) -> None:
    whole = load_images("digits")
    known = {tuple(row) for row in whole.x_test.reshape(len(whole.x_test), -1).tolist()}
    found = ((digits.test_set().bits + 1) * 127.5).round().int().flatten(1)
    assert len(found) == 40
    assert {tuple(row) for row in found.tolist()} <= known
    other = dataclasses.replace(digits, seed=1)
    assert not torch.equal(other.test_set().bits, digits.test_set().bits)


# ---------------------------------------------------------------- texts


def test_chosen_pairs_are_those_of_the_set_and_long_ones_are_cut(pairs: TextData) -> None:
    shares = []
    for part in ("train", "test"):
        whole = load_texts(pairs.texts)
        own = whole.train if part == "train" else whole.held_out
        rows = pairs.chosen_rows(part)  # type: ignore[arg-type]
        assert len(set(rows.tolist())) == (90 if part == "train" else 40)
        assert bool((np.diff(rows) > 0).all())
        tokenizer = pairs.bpe().tokenizer
        tokens = [tokenizer.encode(own.first[row]).ids + tokenizer.encode(own.second[row]).ids for row in rows]
        sizes = np.array([len(each) + 4 for each in tokens])  # <s> A </s></s> B </s>
        data = pairs.training_set() if part == "train" else pairs.test_set()
        assert data.labels.tolist() == own.labels[rows].tolist()
        assert (data.bits != pairs.padding).sum(dim=1).tolist() == np.minimum(sizes, 32).tolist()
        for length in (16, int(np.median(sizes)), 32):
            found = dataclasses.replace(pairs, length=length).cut_share(part)  # type: ignore[arg-type]
            assert found == pytest.approx((sizes > length).mean())
            shares.append(found)
    assert any(0 < share < 1 for share in shares)


def test_batches_by_length_have_each_text_once_and_little_padding(pairs: TextData) -> None:
    data = pairs.training_set()
    lengths = text_lengths(data.bits, pairs.padding)
    assert bool((data.bits[torch.arange(90), lengths - 1] != pairs.padding).all())
    source = pairs.source(16, 0, 5)
    batches = list(source)
    assert [len(ids) for ids, _ in batches].count(16) == 5
    rows = [tuple(row[row != pairs.padding].tolist()) for ids, _ in batches for row in ids]
    assert sorted(rows) == sorted(tuple(row[row != pairs.padding].tolist()) for row in data.bits)
    filled = sum(ids.numel() for ids, _ in batches)
    assert int(lengths.sum()) <= filled < 1.1 * int(lengths.sum()) < data.bits.numel()
    assert [tuple(ids.shape) for ids, _ in source] != [tuple(ids.shape) for ids, _ in batches]


def test_evaluation_in_parts_gives_each_text_once(pairs: TextData) -> None:
    parts = dataclasses.replace(pairs, test=600).validation_sets()
    assert sum(len(part.labels) for part in parts) == 600
    assert len({part.bits.shape[1] for part in parts}) > 1


def test_a_vocabulary_of_other_content_is_refused(pairs: TextData) -> None:
    with pytest.raises(InputError, match="has the digest"):
        dataclasses.replace(pairs, tokens="0" * 16).training_set()


# ---------------------------------------------------------------- resuming


@pytest.mark.parametrize("kind", ["images", "texts"])
def test_sources_go_on_in_the_middle_of_a_pass(kind: str, digits: ImageData, pairs: TextData) -> None:
    data = digits if kind == "images" else pairs
    source = data.source(16, 0, 7)
    assert isinstance(source, Resumable)
    assert isinstance(source, ByLength) == (kind == "texts")
    list(source)
    whole, rest = [], iter(source)
    for number in range(6):
        whole.append(next(rest))
        if number == 2:
            state = json.loads(json.dumps(source.state()))
    other = data.source(16, 0, 7)
    other.resume(state)
    for (inputs, labels), (again, labels_again) in zip(whole[3:], other, strict=False):
        assert torch.equal(inputs, again)
        assert torch.equal(labels, labels_again)


def weights(trained: Any) -> list[torch.Tensor]:
    return list(trained.model.state_dict().values())


@pytest.mark.parametrize(
    ("model", "choices"),
    [
        ("mlp-small", {}),
        ("cnn-small", {"optimiser": "sgd", "learning_rate": 0.05, "momentum": 0.9, "decay_every": 1}),
        ("densenet-small", {"optimiser": "adamw"}),
        ("vit-tiny", {}),
        ("lstm-small", {}),
        ("roberta-small", {"optimiser": "sgd", "learning_rate": 0.1, "momentum": 0.5}),
    ],
)
def test_killed_and_resumed_it_ends_with_the_same_weights(
    model: str, choices: dict[str, Any], digits: ImageData, pairs: TextData, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"epochs": 2, "batch": 32, **choices}
    recipe = image_recipe(digits, model, **options) if model in IMAGE_MODELS else text_recipe(pairs, model, **options)

    def kill(moment: Any) -> None:
        if moment.step == 6:
            raise Killed

    def keeper() -> Keeper:
        return Keeper(tmp_path / "state", recipe.as_json(), seconds=0)

    with one_thread():
        whole = recipe.train()
        with pytest.raises(Killed):
            recipe.train(keeper=keeper(), step=kill)
        later = keeper()
        resumed = recipe.train(keeper=later)
    assert later.resumed_at == 5
    assert all(torch.equal(a, b) for a, b in zip(weights(whole), weights(resumed), strict=True))
    assert [dataclasses.replace(each, seconds=0) for each in resumed.history] == [
        dataclasses.replace(each, seconds=0) for each in whole.history
    ]
    artefact.write(tmp_path / "model", resumed)
    again = artefact.read(tmp_path / "model")
    assert again.recipe == recipe
    assert all(torch.equal(a, b) for a, b in zip(weights(again), weights(resumed), strict=True))


def test_small_models_learn_the_digits() -> None:
    for model in ("mlp-small", "cnn-small"):
        trained = image_recipe("digits", model, epochs=40, goal=0.95).train()
        assert trained.fitted.stopped == "goal", model


# ---------------------------------------------------------------- protocols


def test_the_rate_falls_every_so_many_epochs() -> None:
    model = torch.nn.Linear(2, 2)
    data = Examples(torch.randn(8, 2), torch.arange(8) % 2)
    choices: dict[str, Any] = {"loss": "ce", "batch": 4, "max_epochs": 5, "stop_after": None, "inputs": "numbers"}
    fitted = fit(model, data, data, learning_rate=1.0, decay_after=None, decay_every=2, decay_factor=0.1, **choices)
    assert [each.learning_rate for each in fitted.history] == pytest.approx([1, 1, 0.1, 0.1, 0.01])


def test_momentum_is_that_of_pytorch() -> None:
    data = Examples(torch.randn(8, 2, generator=torch.Generator().manual_seed(1)), torch.arange(8) % 2)
    ours, theirs = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    theirs.load_state_dict(ours.state_dict())
    fit(
        ours, data, data, learning_rate=0.1, momentum=0.9, optimiser="sgd", loss="ce", batch=8, max_epochs=4,
        inputs="numbers", restore="last",
    )  # fmt: skip
    stepper = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9)
    for _ in range(4):
        stepper.zero_grad()
        torch.nn.functional.cross_entropy(theirs(data.bits), data.labels).backward()
        stepper.step()
    torch.testing.assert_close(ours.weight, theirs.weight)


def test_protocols_of_before_keep_their_digests() -> None:
    old = TrainingProtocol(learning_rate=0.1)
    assert {"momentum", "decay_every"}.isdisjoint(old.as_json())
    new = TrainingProtocol(learning_rate=0.1, optimiser="sgd", momentum=0.9, decay_every=3, decay_after=None)
    assert TrainingProtocol.from_json(json.loads(json.dumps(new.as_json()))) == new


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda d, p: TrainingProtocol(learning_rate=0.1, momentum=0.9), "optimiser='sgd'"),
        (lambda d, p: TrainingProtocol(learning_rate=0.1, optimiser="sgd", momentum=1.0), "momentum=1.0"),
        (lambda d, p: TrainingProtocol(learning_rate=0.1, decay_every=2), "both lower"),
        (lambda d, p: image_recipe(d, "cnn-small", optimiser="sgd"), "no rate of SGD"),
        (lambda d, p: image_recipe(d, "lstm-small"), "does not read images"),
        (lambda d, p: image_data("digits", crop=8), "crop=8"),
        (lambda d, p: image_data("digits", train=2_000).training_set(), "more than the 1,437 images"),
        (lambda d, p: dataclasses.replace(d, images="digits"), "reference"),
        (lambda d, p: dataclasses.replace(image_recipe(d, "cnn-small"), data=p), "images"),
        (
            lambda d, p: dataclasses.replace(image_recipe(d, "vit-tiny"), data=dataclasses.replace(d, channels=3)),
            "3 channels",
        ),
        (lambda d, p: dataclasses.replace(text_recipe(p, "lstm-small"), data=d), "tokens"),
        (
            lambda d, p: dataclasses.replace(text_recipe(p, "roberta-small"), data=dataclasses.replace(p, padding=2)),
            "same padding",
        ),
    ],
)
def test_what_does_not_fit_is_refused(wrong: Any, words: str, digits: ImageData, pairs: TextData) -> None:
    with pytest.raises(InputError, match=words):
        wrong(digits, pairs)


def test_trials_know_what_trainings_cost(digits: ImageData, pairs: TextData) -> None:
    @dataclasses.dataclass(frozen=True)
    class Trained(TrainedTrial):
        model: str = "cnn"

        @property
        def recipe(self) -> Recipe:
            return image_recipe(digits, self.model) if self.model in IMAGE_MODELS else text_recipe(pairs, self.model)

    costs = {name: Trained(name).cost for name in ("mlp-small", "cnn", "resnet-18", "lstm", "vit-tiny")}
    assert costs["mlp-small"] < costs["cnn"] < costs["resnet-18"]
    assert all(Trained(name).memory >= 1 << 30 for name in costs)
    assert set(TEXT_MODELS).isdisjoint(IMAGE_MODELS)
