"""Recipes: the same model for the same recipe, a name for each, and a file that tells when it is damaged."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import flipscope
from flipscope.basics.errors import InputError
from flipscope.basics.registry import Registry
from flipscope.cube.functions import BooleanFunction, majority
from flipscope.data.kinds import KINDS
from flipscope.data.languages import draw, random_language
from flipscope.data.strings import StringData
from flipscope.models import Transformer, TransformerConfig, encoder, gpt2, hardness, initialise, load, mingpt
from flipscope.models.seal import NotWhole, fingerprint
from flipscope.training import artefact
from flipscope.training.fit import fit
from flipscope.training.presets import PRESETS, configured
from flipscope.training.protocol import TrainingProtocol
from flipscope.training.recipe import Recipe, Trained
from flipscope.training.recipes.hardness import hardness_recipe, scratchpad_recipe
from flipscope.training.train import recipe_for

RECIPE = Recipe(
    data=StringData(function="majority(7)", length=7, train=60, validation=30, seed=3),
    model=encoder(4, 1, 1, ffn_width=4),
    protocol=TrainingProtocol(batch=20, learning_rate=0.01, max_epochs=2),
    init="gaussian",
    seed=4,
)


def weights(model: torch.nn.Module) -> str:
    return fingerprint(model.state_dict().values())


def outcome(trained: Trained) -> tuple[Any, ...]:
    lines = [dataclasses.replace(line, seconds=0) for line in trained.history]
    return weights(trained.model), lines, dataclasses.replace(trained.fitted, seconds=0, history=())


# ---------------------------------------------------------------- what a recipe makes


def test_a_recipe_is_what_fit_does() -> None:
    sets = draw(majority(7), 7, {"train": 60, "validation": 30, "test": 20}, 3)
    model = Transformer(RECIPE.model, scheme="gaussian", seed=4)
    fitted = fit(
        model, sets["train"], sets["validation"], learning_rate=0.01, batch=20, max_epochs=2, seed=4, restore="best"
    )
    told: list[tuple[int, int]] = []
    trained = RECIPE.train(progress=lambda done, total: told.append((done, total)))
    assert outcome(trained) == outcome(Trained(model, fitted, None))
    assert told == [(step, 6) for step in range(1, 7)]
    assert not trained.model.training
    assert trained.accuracy == trained.history[trained.fitted.kept_epoch - 1].validation_accuracy


def test_a_random_language_is_validated_on_itself() -> None:
    data = StringData(function=None, length=9, train=50, seed=2)
    sets = data.sets()
    assert sets["train"] is sets["validation"]
    expected = random_language(9, 50, 2)
    assert np.array_equal(sets["train"].bits, expected.bits)
    assert np.array_equal(sets["train"].labels, expected.labels)
    with pytest.raises(InputError, match="no fresh strings for a random language"):
        StringData(function=None, length=9, train=None)


def test_other_starts_than_all_parameters_at_full_size() -> None:
    changed = dataclasses.replace(RECIPE, init_scope="weights", init_scale=0.02)
    one = dataclasses.replace(changed.protocol, max_epochs=1, learning_rate=1e-30)
    trained = dataclasses.replace(changed, protocol=one).train()
    expected = initialise(Transformer(RECIPE.model), "gaussian", 4, scope="weights", scale=0.02)
    for (name, found), wanted in zip(trained.model.named_parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(found, wanted, msg=name)


def test_layers_that_start_equal() -> None:
    recipe = hardness_recipe("parity", 4, 3, width=8, batch=4, steps=1, lr=1e-30, weight_decay=0.0, equal_layers=True)
    assert Recipe.from_json(recipe.as_json()) == recipe
    start = recipe.train().model.state_dict()
    for name in start:
        if name.startswith("blocks.0."):
            torch.testing.assert_close(start[name], start[name.replace("blocks.0.", "blocks.1.")])
    with pytest.raises(InputError, match="equal_layers=True is of a transformer"):
        dataclasses.replace(scratchpad_recipe(4, 0), equal_layers=True)


# ---------------------------------------------------------------- names


def test_a_digest_is_the_same_in_every_process_and_for_equal_recipes() -> None:
    # If this changes, every stored model is trained again: then raise the format on purpose.
    assert RECIPE.digest == "c9511ec25e3059ffb6edf4b580d7786ec9c897ff4cc74260b448e41e272c1cbe"
    protocol = TrainingProtocol(batch=20, learning_rate=np.float64(0.01), max_epochs=2, weight_decay=0)
    data = StringData(function="majority(7)", length=np.int64(7), train=60, validation=30, seed=3)  # type: ignore[arg-type]
    again = dataclasses.replace(RECIPE, protocol=protocol, data=data)
    assert again.digest == RECIPE.digest
    assert again == RECIPE
    assert len({again, RECIPE}) == 1
    assert Recipe.from_json(RECIPE.as_json()) == RECIPE


def test_every_choice_counts() -> None:
    others = [
        dataclasses.replace(RECIPE, seed=5),
        dataclasses.replace(RECIPE, init="uniform"),
        dataclasses.replace(RECIPE, init_scale=0.5),
        dataclasses.replace(RECIPE, equal_layers=True),
        dataclasses.replace(RECIPE, model=dataclasses.replace(RECIPE.model, eps=1e-6)),
        dataclasses.replace(RECIPE, data=dataclasses.replace(RECIPE.data, function="parity(7)")),
        dataclasses.replace(RECIPE, data=dataclasses.replace(RECIPE.data, seed=4)),
        dataclasses.replace(RECIPE, data=dataclasses.replace(RECIPE.data, train=None)),
        dataclasses.replace(RECIPE, protocol=dataclasses.replace(RECIPE.protocol, goal=1.0)),
    ]
    assert len({recipe.digest for recipe in [RECIPE, *others]}) == len(others) + 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": hardness(6, 4)}, "7 bits, and the model positions for 6"),
        ({"model": gpt2(10, 8, width=8, heads=1)}, "reads tokens, not bits"),
        ({"model": TransformerConfig(width=4, layers=1, outputs=3)}, "3 outputs"),
        ({"init": "zeros"}, "init='zeros' is not one of"),
        ({"seed": -1}, "seed"),
    ],
)
def test_what_cannot_be_trained_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dataclasses.replace(RECIPE, **changes)


def test_bad_parts_are_refused() -> None:
    with pytest.raises(InputError, match="goal"):
        TrainingProtocol(batch=1, learning_rate=1.0, goal=1.5)
    with pytest.raises(InputError, match="batch"):
        TrainingProtocol(batch=0, learning_rate=1.0)
    with pytest.raises(InputError, match="train"):
        StringData(function="x1", length=4, train=0)
    with pytest.raises(InputError, match="too small"):
        StringData(function="majority(7)", length=4).language()
    with pytest.raises(InputError, match="not the recipe"):
        Recipe.from_json({"data": {}})


# ---------------------------------------------------------------- flipscope.train


def test_train_takes_expressions_functions_presets_and_configurations(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"steps": 4, "batch": 8}
    named = flipscope.train("majority(5)", width=4, layers=1, heads=1, **settings)
    config = encoder(4, 1, 1)
    plain = flipscope.train(majority(5), config, checkpoint=tmp_path / "checkpoint", **settings)
    assert weights(named.model) == weights(plain.model)
    assert named.recipe is not None
    assert plain.recipe is None
    opaque = BooleanFunction.from_callable(lambda bits: bits[:, 0], 5)
    with pytest.raises(InputError, match="training set"):  # the checkpoint is that of another function
        flipscope.train(opaque, config, checkpoint=tmp_path / "checkpoint", **settings)
    with pytest.raises(InputError, match="width is for a preset"):
        flipscope.train("majority(5)", config, width=4)


def test_a_goal_ends_it() -> None:
    trained = flipscope.train("first(4)", steps=400, width=8, layers=1, heads=1, goal=0.9, learning_rate=0.02)
    assert trained.fitted.stopped == "goal"
    assert trained.fitted.steps < 400
    assert trained.accuracy is not None
    assert trained.accuracy >= 0.9


def test_presets_fit_the_length_and_take_sizes() -> None:
    for name in PRESETS:
        assert recipe_for("parity(12)", name).model.longest in (None, 12)
    assert configured("mingpt", 9, {"width": 32, "dropout": 0.0}) == mingpt(9, 32, dropout=0.0)
    assert configured("hardness", 9, {"ffn_width": 7}).ffn_width == 7
    with pytest.raises(InputError, match="layers=3 is not a choice of the preset fourier"):
        configured("fourier", 9, {"layers": 3})
    with pytest.raises(InputError, match="model='lstm' is not one of encoder"):
        configured("lstm", 9, {})


def test_short_strings_have_smaller_validation_sets() -> None:
    assert recipe_for("parity(6)").data.validation == 64
    assert recipe_for("parity(6)", train_strings=60).data.validation == 4
    with pytest.raises(InputError, match="leave none to validate"):
        recipe_for("parity(6)", train_strings=64)


# ---------------------------------------------------------------- files


def test_a_trained_model_comes_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    trained = RECIPE.train()
    artefact.write(path, trained, {"code": "x"})
    found = artefact.read(path)
    assert weights(found.model) == weights(trained.model) == weights(load(path))
    assert (found.fitted, found.recipe) == (trained.fitted, RECIPE)
    described = artefact.describe(path)
    assert (described.recipe, described.fitted, described.notes) == (RECIPE, trained.fitted, {"code": "x"})
    with pytest.raises(InputError, match="without a name"):
        artefact.write(path, dataclasses.replace(trained, recipe=None))


def _stored_as(path: Path, part: str, change: dict[str, Any]) -> None:
    """Write the model of RECIPE as if its recipe had this in one of its parts, with a checksum that fits."""
    trained = RECIPE.train()

    class Other(Recipe):
        def as_json(self) -> dict[str, Any]:
            document = super().as_json()
            return {**document, part: {**document[part], **change}}

    other = Other(**{each.name: getattr(RECIPE, each.name) for each in dataclasses.fields(RECIPE)})
    artefact.write(path, dataclasses.replace(trained, recipe=other))


def test_kinds_are_stored_by_name_and_read_by_former_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = RECIPE.as_json()
    assert (document["data"]["kind"], document["model"]["kind"]) == ("strings", "transformer")
    for kind in ("flipscope.data.strings:StringData", "plain-strings"):
        path = tmp_path / "model.safetensors"
        _stored_as(path, "data", {"kind": kind})
        if kind == "plain-strings":  # as if the kind had been renamed
            with pytest.raises(NotWhole, match=kind):
                artefact.read(path)
            renamed = Registry("kind of data", KINDS.definitions, former={kind: "strings"}, extensible=True)
            monkeypatch.setattr("flipscope.data.kinds.KINDS", renamed)
        found = artefact.read(path).recipe
        assert found == RECIPE
        assert found.as_json() == document
        assert found.digest == RECIPE.digest


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("data", {"kind": "sounds"}, "'sounds' is no kind of data that this flipscope knows: known are strings, real"),
        ("data", {"kind": "not_here.sets:Mine"}, "the kind of data 'not_here.sets:Mine' cannot be imported"),
        ("model", {"kind": "mamba"}, "'mamba' is no kind of model that this flipscope knows: known are transformer"),
        ("protocol", {"terms": [{"name": "flow", "strength": 1.0, "settings": {}}]}, "'flow' is no term of the loss"),
    ],
)
def test_a_good_file_of_an_unknown_kind_is_not_called_damaged(
    tmp_path: Path, part: str, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "model.safetensors"
    _stored_as(path, part, change)
    for look in (artefact.read, artefact.describe):
        with pytest.raises(NotWhole, match=message) as caught:
            look(path)
        assert "damaged" not in str(caught.value)
        assert str(path) in str(caught.value)


def test_a_file_cannot_have_a_function_called(tmp_path: Path) -> None:
    made = tmp_path / "made"
    document = RECIPE.as_json() | {"data": {"kind": "os:mkdir", "path": str(made)}}
    with pytest.raises(InputError, match="'os:mkdir' is no kind of data: it must be a dataclass"):
        Recipe.from_json(document)
    assert not made.exists()


def test_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with pytest.raises(FileNotFoundError):
        artefact.read(path)
    artefact.write(path, RECIPE.train())
    content = path.read_bytes()
    for place in range(9, len(content), len(content) // 40):  # header, recipe, history and weights
        damaged = bytearray(content)
        damaged[place] ^= 4
        path.write_bytes(bytes(damaged))
        with pytest.raises(NotWhole):
            artefact.read(path)
    for length in (0, 100, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(NotWhole):
            artefact.read(path)
    path.write_bytes(content)
    artefact.read(path)
