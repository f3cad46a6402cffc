"""Measurements while a model is trained: they are logged, and have no say."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate
from flipscope.data.strings import StringData
from flipscope.models import encoder, hardness
from flipscope.models.seal import fingerprint
from flipscope.models.transformer import Transformer
from flipscope.training import artefact, measures, terms
from flipscope.training.checkpoints import Keeper
from flipscope.training.fit import Fitted, fit
from flipscope.training.logs import Log, names_in
from flipscope.training.named import Around, loss_term, measurement
from flipscope.training.protocol import TrainingProtocol
from flipscope.training.recipe import Recipe, Trained
from flipscope.training.targets import Aim

PROTOCOL = TrainingProtocol(
    batch=16,
    learning_rate=0.01,
    loss="mse",
    labels="bits",
    max_steps=12,
    epoch_steps=5,
    stop_after=None,
    max_epochs=None,
)
RECIPE = Recipe(
    data=StringData(function="majority(5)", length=5, train=None, validation=32, seed=1),
    model=dataclasses.replace(encoder(8, 2, 2), dropout=0.2),
    protocol=PROTOCOL,
    seed=2,
)
LOGGED = dataclasses.replace(
    RECIPE,
    log=(
        measurement("validation", every=4),
        measurement("norm", every=3),
        measurement("blowup", every=6, strings=8),
        measurement("sensitivity", every=12, strings=20),
    ),
)


def weights(trained: Trained) -> str:
    return fingerprint(trained.model.state_dict().values())


def noisy(around: Around, size: int = 3) -> Any:
    """A measurement that draws from PyTorch's generator, and leaves gradients behind."""

    def measure(model: nn.Module) -> dict[str, float]:
        assert not model.training
        inputs = torch.zeros(size, around.length, dtype=torch.uint8)
        model(inputs).sum().backward()
        return {"draw": float(torch.rand(()))}

    return measure


def test_measuring_changes_no_weight() -> None:
    own = measurement(f"{__name__}:noisy", every=1, size=2)
    plain, logged = RECIPE.train(), dataclasses.replace(LOGGED, log=(*LOGGED.log, own)).train()
    assert weights(plain) == weights(logged)
    for one, two in zip(plain.history, logged.history, strict=True):
        assert dataclasses.replace(one, seconds=0) == dataclasses.replace(two, seconds=0)
    assert plain.fitted.log == ()
    draws = logged.fitted.series(f"{__name__}:noisy.draw")[1]
    assert len(draws) == 13


def test_what_is_logged_and_when() -> None:
    trained = LOGGED.train()
    log = trained.fitted.log
    assert [line["step"] for line in log] == [0, 3, 4, 6, 8, 9, 12]
    assert "loss" not in log[0]
    assert trained.fitted.series("validation.loss")[0] == [0, 4, 8, 12]
    assert trained.fitted.series("blowup.beta")[0] == [0, 6, 12]
    assert names_in(log)[:3] == ["validation.loss", "validation.accuracy", "norm"]
    steps, norms = trained.fitted.series("norm")
    assert steps == [0, 3, 6, 9, 12]
    start = Transformer(RECIPE.model, seed=2)
    assert norms[0] == pytest.approx(math.sqrt(sum(float(p.detach().square().sum()) for p in start.parameters())))
    low, value, high = (trained.fitted.series(f"sensitivity{end}")[1][-1] for end in (".low", "", ".high"))
    assert 0 <= low <= value <= high <= 5
    # The last weights are not those that are kept, but the validation set is the same.
    last = trained.history[-1]
    assert (last.steps, last.validation_loss) == (12, trained.fitted.series("validation.loss")[1][-1])
    with pytest.raises(InputError, match="'trace' was not logged: the log has validation"):
        trained.fitted.series("trace")


def test_the_norm_leaves_out_learned_positions() -> None:
    recipe = dataclasses.replace(
        RECIPE, model=hardness(5, 8), log=(measurement("norm", every=12), measurement("blowup", 12, strings=4))
    )
    trained = recipe.train()
    squares = {
        name: float(p.detach().square().sum()) for name, p in Transformer(hardness(5, 8), seed=2).named_parameters()
    }
    without = sum(value for name, value in squares.items() if name != "embedding.position.weight")
    assert trained.fitted.series("norm")[1][0] == pytest.approx(math.sqrt(without))
    assert len(trained.fitted.series("blowup.proxy")[1]) == 2


class Composed(nn.Module):
    """A layer whose name ends as that of learned positions does, which it has nothing to do with."""

    def __init__(self) -> None:
        super().__init__()
        self.composition = nn.Linear(5, 3, dtype=torch.float64)
        self.head = nn.Linear(3, 1, dtype=torch.float64)

    def forward(self, bits: Tensor) -> Tensor:
        found: Tensor = self.head(torch.tanh(self.composition(bits.double())))[:, 0]
        return found


def test_norm_and_trace_know_learned_positions_by_what_they_are() -> None:
    torch.manual_seed(0)
    model, around = Composed(), Around(Aim("mse"), "bits", 5, [], lambda count, stream: None)
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    inputs, targets = torch.randint(0, 2, (6, 5), dtype=torch.uint8), torch.zeros(6, dtype=torch.float64)
    batch = ((inputs, targets), model(inputs))
    assert measures.norm(around)(model) == pytest.approx(float(flat.norm()))
    assert terms.norm(around)(model, *batch).item() == pytest.approx(float(flat.norm()))
    sides = []
    for positions in (False, True):
        torch.manual_seed(1)
        sides.append(terms.trace(around, of="gauss_newton", positions=positions)(model, *batch).item())
    assert sides[0] == pytest.approx(sides[1])

    ours = Transformer(hardness(5, 8), seed=2)
    held = nn.Sequential(ours)  # wherever in a model they are
    left_out = ours.embedding.position.weight.detach().norm().item()  # type: ignore[union-attr]
    everything = torch.cat([p.detach().reshape(-1) for p in ours.parameters()]).norm().item()
    for options, expected in (({}, math.sqrt(everything**2 - left_out**2)), ({"positions": True}, everything)):
        assert measures.norm(around, **options)(held) == pytest.approx(expected)
        assert terms.norm(around, **options)(held, *batch).item() == pytest.approx(expected)


def test_the_norm_of_a_training_that_diverges_is_logged_as_no_number() -> None:
    model = nn.Linear(2, 1)
    nn.init.constant_(model.weight, math.nan)
    assert math.isnan(measures.norm(Around(Aim("mse"), "bits", 2, [], lambda count, stream: None))(model))


def test_a_log_survives_an_interrupt_and_a_file(tmp_path: Path) -> None:
    straight = LOGGED.train()
    for stop in (2, 5, 8):
        path = tmp_path / f"{stop}.checkpoint"

        def interrupt(moment: Any, stop: int = stop) -> None:
            if moment.step == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            LOGGED.train(keeper=Keeper(path, seconds=0), step=interrupt)
        keeper = Keeper(path, seconds=0)
        resumed = LOGGED.train(keeper=keeper)
        assert keeper.resumed_at == stop - 1
        assert resumed.fitted.log == straight.fitted.log
        assert weights(resumed) == weights(straight)
    file = tmp_path / "model.safetensors"
    artefact.write(file, straight)
    again = artefact.read(file)
    assert again.fitted == straight.fitted
    assert again.recipe == LOGGED


def test_a_recipe_with_measurements_and_terms_is_json() -> None:
    protocol = dataclasses.replace(
        PROTOCOL, terms=(loss_term("norm", 0.5, positions=True),), clip=1, decay_on="matrices"
    )
    recipe = dataclasses.replace(LOGGED, protocol=protocol)
    again = Recipe.from_json(json.loads(json.dumps(recipe.as_json())))
    assert again == recipe
    assert again.digest == recipe.digest != LOGGED.digest != RECIPE.digest


def test_a_named_term_is_its_strength_times_the_function() -> None:
    sgd = dataclasses.replace(PROTOCOL, optimiser="sgd", max_steps=1, epoch_steps=1, restore="last")
    plain, pulled = (
        dataclasses.replace(RECIPE, model=encoder(8, 1, 1), protocol=dataclasses.replace(sgd, terms=added))
        .train()
        .model
        for added in ((), (loss_term("norm", 10.0),))
    )
    start = Transformer(encoder(8, 1, 1), seed=2)
    norm = math.sqrt(sum(float(p.detach().square().sum()) for p in start.parameters()))
    for one, two, before in zip(plain.parameters(), pulled.parameters(), start.parameters(), strict=True):
        torch.testing.assert_close(one - two, 0.01 * 10 * before / norm, rtol=1e-3, atol=1e-5)


def run(*logs: Log) -> Fitted:
    bits = torch.eye(4, dtype=torch.uint8)
    data = type("Data", (), {"bits": bits, "labels": bits[:, 0]})()
    return fit(Transformer(hardness(4, 4)), data, data, learning_rate=0.1, batch=4, max_steps=2, log=logs)


def test_numbers_estimates_and_mappings() -> None:
    fitted = run(
        Log("one", lambda model: 3, every=2),
        Log("range", lambda model: Estimate(1.0, 0.5, 2.0, 0.95, 10), every=2),
        Log("many", lambda model: {"a": 1.0, "b": math.inf}, every=1),
    )
    assert [line["step"] for line in fitted.log] == [0, 1, 2]
    assert fitted.log[0] == {
        "step": 0,
        "one": 3.0,
        "range": 1.0,
        "range.low": 0.5,
        "range.high": 2.0,
        "many.a": 1.0,
        "many.b": math.inf,
    }
    assert fitted.log[1] == {"step": 1, "loss": fitted.log[1]["loss"], "many.a": 1.0, "many.b": math.inf}


def spoil(model: nn.Module) -> float:
    with torch.no_grad():
        next(model.parameters()).add_(1)
    return 0.0


@pytest.mark.parametrize(
    ("logs", "message"),
    [
        ([Log("spoil", spoil)], "spoil changed the weights"),
        ([Log("word", lambda model: "x")], "gave str, which is not a number"),  # type: ignore[arg-type,return-value]
        ([Log("same", lambda model: 1), Log("same", lambda model: 2)], "same name"),
    ],
)
def test_what_a_measurement_must_not_do(logs: list[Log], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(*logs)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: measurement("trace"),
            "'trace' is no measurement that this flipscope knows: known",
        ),
        (lambda: measurement("norm", every=0), "every must be a whole number"),
        (lambda: measurement("norm", what=[1]), "what must be True or False or a number"),
        (lambda: loss_term("norm", math.nan), "strength=nan"),
        (lambda: Log("step", lambda model: 1), "cannot be called 'step'"),
        (
            lambda: dataclasses.replace(RECIPE, log=(measurement("norm", draws=3),)).train(),
            "does not take its settings",
        ),
        (
            lambda: dataclasses.replace(RECIPE, log=(measurement("no.such:thing"),)).train(),
            "cannot be imported",
        ),
    ],
)
def test_bad_measurements_are_one_sentence(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
