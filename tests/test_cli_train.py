"""The commands train and models: resumable, never overwriting, one sentence for whatever is in the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import Run

from flipscope.basics.errors import InputError
from flipscope.cli import build_parser
from flipscope.cli import train as command
from flipscope.data.strings import StringData
from flipscope.lab.store.artefacts import Models
from flipscope.lab.store.store import Store
from flipscope.models import load
from flipscope.training import artefact, checkpoints, presets
from flipscope.training.protocol import TrainingProtocol
from flipscope.training.recipe import Recipe

TINY = ("--width", "4", "--layers", "1", "--heads", "1", "--batch", "8", "--steps", "30")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def train(run: Run) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        return run("train", "majority(5)", "-o", "m.safetensors", *TINY, *arguments)

    return call


def interrupted_at(step: int, monkeypatch: pytest.MonkeyPatch, train: Run, *arguments: str) -> str:
    """What is said of a training that is interrupted at a step."""
    before = command.View.step

    def watch(self: command.View, moment: Any) -> None:
        before(self, moment)
        if moment.step == step:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(command.View, "step", watch)
        code, out, err = train("--checkpoint-seconds", "0", *arguments)
    assert (code, out) == (130, "")
    return err


# ---------------------------------------------------------------- what it gives


def test_a_trained_model_and_what_is_said_of_it(train: Run) -> None:
    code, out, err = train("--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["function"], told["file"], told["steps"], told["stopped"]) == (
        "majority(5)",
        "m.safetensors",
        30,
        "steps",
    )
    assert told["accuracy"]["low"] <= told["accuracy"]["value"] <= told["accuracy"]["high"]
    assert told["accuracy"]["samples"] == 10_000
    assert [line["steps"] for line in told["history"]] == [*range(3, 31, 3)]
    assert told["digest"] == Recipe.from_json(told["recipe"]).digest
    assert load("m.safetensors").config.width == 4
    assert os.listdir() == ["m.safetensors"]
    before = Path("m.safetensors").read_bytes()
    code, out, err = train()
    assert (code, err) == (0, "flipscope: m.safetensors is trained already; --force trains it again.\n")
    assert "flipscope sensitivity m.safetensors" in out
    assert "1.875" in out  # the average sensitivity of the function
    assert "30 steps, 240 strings" in out
    assert Path("m.safetensors").read_bytes() == before


def test_the_defaults_of_the_command_are_those_of_python() -> None:
    usual = tuple(command.DEFAULTS[name] for name in ("steps", "batch", "learning_rate"))
    assert usual == (presets.STEPS, presets.BATCH, presets.LEARNING_RATE)
    with pytest.raises(SystemExit):
        build_parser("train").parse_args(["train", "x1", "-o", "f", "--preset", "lstm"])
    for preset in presets.PRESETS:
        assert build_parser("train").parse_args(["train", "x1", "-o", "f", "--preset", preset]).preset == preset


def test_a_real_valued_function(run: Run) -> None:
    call = ("train", "mean", "-n", "4", "-o", "mean.safetensors", "--width", "8", "--heads", "1", "--steps", "40")
    log = ("--log", "norm", "--log", "validation", "--log-every", "20")
    code, out, _ = run(*call, *log, "--json")
    assert code == 0
    told = json.loads(out)
    recipe = Recipe.from_json(told["recipe"])
    assert (recipe.data.function, recipe.data.length, recipe.protocol.loss) == ("mean", 4, "mse")
    assert [line["step"] for line in told["log"]] == [0, 20, 40]
    assert set(told["log"][1]) == {"step", "loss", "norm", "validation.loss", "validation.accuracy"}
    code, out, _ = run(*call, *log)
    assert code == 0
    assert "squared error" in out
    assert "flipscope blowup mean.safetensors" in out


def test_the_options_reach_the_recipe(train: Run) -> None:
    options = "--loss mse --labels bits --clip 0.5 --decay-on matrices --constant-rate --keep last --optimiser adamw"
    code, out, _ = train("--json", *options.split())
    assert code == 0
    protocol = Recipe.from_json(json.loads(out)["recipe"]).protocol
    found = (protocol.loss, protocol.labels, protocol.clip, protocol.decay_on, protocol.decay_after, protocol.restore)
    assert found == ("mse", "bits", 0.5, "matrices", None, "last")
    code, out, _ = train(*options.split())
    assert code == 0
    assert "flipscope sensitivity m.safetensors" in out
    assert "--threshold" not in out  # which the file knows


# ---------------------------------------------------------------- going on

KILLED = """
import os, signal, sys
from flipscope import cli
from flipscope.cli import train
before = train.View.step
def step(self, moment):
    before(self, moment)
    if moment.step == 11:
        os.kill(os.getpid(), signal.SIGKILL)
train.View.step = step
cli.main(sys.argv[1:])
"""


@pytest.mark.slow
def test_killed_and_resumed_it_ends_with_the_same_weights(run: Run, tmp_path: Path) -> None:
    arguments = ["train", "majority(5)", *TINY, "--dropout", "0.1", "--checkpoint-seconds", "0", "--json"]
    whole = json.loads(run(*arguments, "-o", "whole.safetensors")[1])
    source = Path(command.__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments, "-o", "m.safetensors"], env=environment)
    assert killed.returncode == -signal.SIGKILL
    assert Path("m.safetensors.checkpoint").exists()
    assert not Path("m.safetensors").exists()
    code, out, err = run(*arguments, "-o", "m.safetensors")
    resumed = json.loads(out)
    assert (code, err) == (0, "majority(5): resumed after step 10.\n")
    assert (whole["resumed_at"], resumed["resumed_at"]) == (None, 10)
    assert resumed["weights"] == whole["weights"]
    for one, other in zip(resumed["history"], whole["history"], strict=True):
        assert one | {"seconds": 0} == other | {"seconds": 0}
    assert sorted(os.listdir()) == ["m.safetensors", "whole.safetensors"]


def test_after_an_interrupt_the_same_command_goes_on(train: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    err = interrupted_at(7, monkeypatch, train)
    assert err == (
        "majority(5): stopped at step 7; the same command continues after step 6.\nflipscope: interrupted.\n"
    )
    code, out, err = train("--learning-rate", "0.1")
    assert (code, out) == (2, "")
    assert "learning_rate is 0.003 there and 0.1 here): repeat that training's command" in err
    assert "start again with --restart" in err
    code, out, err = train("--json")
    assert (code, json.loads(out)["resumed_at"]) == (0, 6)
    interrupted_at(5, monkeypatch, train, "--force", "--learning-rate", "0.2")
    before = Path("m.safetensors.checkpoint").read_bytes()
    code, out, err = train()
    assert "trained already" in err
    assert Path("m.safetensors.checkpoint").read_bytes() == before  # of another training
    code, out, _ = train("--force", "--restart", "--json", "--learning-rate", "0.1")
    assert (code, json.loads(out)["resumed_at"]) == (0, None)


def test_interrupted_between_checkpoint_and_output(train: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise InputError("m.safetensors cannot be written: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(artefact, "save", full)
        code, out, err = train()
    assert (code, out) == (1, "")
    assert err == (
        "flipscope: m.safetensors cannot be written: No space left on device; the finished training is saved in "
        "m.safetensors.checkpoint: solve this, and the same command writes the model.\n"
    )
    monkeypatch.setattr(command.View, "step", lambda self, moment: pytest.fail("it was over"))
    code, out, _ = train("--json")
    assert (code, json.loads(out)["steps"]) == (0, 30)


# ---------------------------------------------------------------- what is in the way


def test_nothing_is_overwritten(train: Run) -> None:
    assert train()[0] == 0
    before = Path("m.safetensors").read_bytes()
    code, _, err = train("--seed", "1")
    assert code == 2
    assert "exists, and is a model that was trained with other settings: give another -o, or --force" in err
    assert Path("m.safetensors").read_bytes() == before
    Path("m.safetensors").write_bytes(before[:-1])
    code, _, err = train()
    assert code == 2
    assert "--force to replace it" in err
    assert train("--force", "--seed", "1")[0] == 0
    Path("m.safetensors.checkpoint").write_text("my notes")
    code, _, err = train("--force")
    assert (code, Path("m.safetensors.checkpoint").read_text()) == (2, "my notes")
    assert "m.safetensors.checkpoint is not a checkpoint" in err


def test_divergence(train: Run) -> None:
    wild = ("--optimiser", "sgd", "--loss", "mse", "--learning-rate", "1e30")
    code, out, err = train(*wild)
    assert (code, out, os.listdir()) == (1, "", [])
    assert "diverged at step 2" in err
    assert "lower --learning-rate, now 1e+30; no epoch was completed, so nothing is written" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("majority(5)", "-o", "no/m.safetensors"), "the folder no does not exist"),
        (("majority(5)", "-o", "."), "is a folder"),
        (("majority(", "-o", "m"), "majority"),
        (("majority(5)", "-n", "3", "-o", "m"), "too small"),
        (("majority(5)", "-o", "m", "--steps", "0"), "steps"),
        (("majority(5)", "-o", "m", "--batch", "0"), "batch"),
        (("majority(5)", "-o", "m", "--learning-rate", "0"), "learning_rate"),
        (("majority(5)", "-o", "m", "--goal", "2"), "goal"),
        (("majority(5)", "-o", "m", "--train-strings", "32"), "leave none to validate"),
        (("majority(5)", "-o", "m", "--width", "5"), "multiple of heads"),
        (("majority(5)", "-o", "m", "--width", "10000000"), "of memory"),
        (
            ("majority(5)", "-o", "m", "--steps", "99999999999999999999"),
            "more than 24: lower --steps or",
        ),
        (("majority(5)", "-o", "m", "--preset", "fourier", "--width", "8"), "width=8 is not a choice"),
        (("majority(5)", "-o", "m", "--confidence", "2"), "confidence"),
        (("majority(5)", "-o", "m", "--seed", "-1"), "seed"),
        (("majority(5)", "-o", "m", "--checkpoint-seconds", "-1"), "between checkpoints"),
        (("majority(5)", "-o", "m", "--dropout", "1"), "dropout"),
        (("majority(5)", "-o", "m", "--clip", "0"), "clip=0.0 must be a positive number"),
        (("majority(5)", "-o", "m", "--labels", "bits"), "labels='bits' is a scale of squared errors"),
        (
            ("majority(5)", "-o", "m", "--log", "trace"),
            "'trace' is no measurement that this flipscope knows: known are validation",
        ),
        (("majority(5)", "-o", "m", "--log", "norm", "--log-every", "0"), "log-every must be a whole number"),
        (("mean", "-o", "m"), "is a real-valued function: give its number of bits with --length"),
        (("mean", "-n", "4", "-o", "m", "--loss", "bce"), "it takes loss='mse', not 'bce'"),
        (("0.5 * x1 + x2", "-n", "4", "-o", "m"), "is no real-valued function"),
    ],
)
def test_bad_input_is_one_sentence(run: Run, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = run("train", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("flipscope: ")
    assert os.listdir() == []


def test_two_at_once_is_refused(train: Run) -> None:
    from flipscope.lab.store import locks

    with locks.alone(Path(".m.safetensors.lock")):
        code, _, err = train()
    assert code == 2
    assert "m.safetensors is being trained by another process" in err


# ---------------------------------------------------------------- models


def test_models_lists_what_is_stored(run: Run) -> None:
    code, _, err = run("models")
    assert code == 2
    assert "results is not a results folder" in err
    with Store("results"):
        pass
    assert run("models") == (0, "There are no trained models in results.\n", "")
    recipe = Recipe(
        data=StringData(function="majority(5)", length=5, train=20, validation=10),
        model=presets.configured("encoder", 5, {"width": 4, "layers": 1, "heads": 1}),
        protocol=TrainingProtocol(batch=5, learning_rate=0.01, max_epochs=1),
    )
    trained = Models(Path("results")).get(recipe)
    (Path("results/models") / "other.safetensors").write_bytes(b"no model")
    code, out, err = run("models", "--json")
    [row] = json.loads(out)
    assert code == 0
    assert "other.safetensors" in err
    assert (row["function"], row["steps"], row["accuracy"]) == ("majority(5)", 4, trained.accuracy)
    assert row["current"]
    assert artefact.read(row["path"]).recipe == recipe
    assert row["size"] == Path(row["path"]).stat().st_size
    code, out, _ = run("models")
    for text in ("majority(5)", "width 4, 1 layer, 1 head", "finished 20", f"{trained.accuracy:.3f}"):
        assert text in out


def test_a_live_view_shows_loss_and_accuracy(train: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "QUIET_SECONDS", -1.0)
    monkeypatch.setattr(command, "LINE_SECONDS", -1.0)
    _, _, err = train()
    lines = err.splitlines()
    assert len(lines) == 30
    assert lines[0].startswith("majority(5): step 1 of 30, loss 0.")
    assert ", validation accuracy 0." in lines[-1]


def test_the_checkpoint_module_and_the_command_agree_on_what_a_checkpoint_is(
    train: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted_at(4, monkeypatch, train)
    about, values = checkpoints.about(Path("m.safetensors.checkpoint"))
    assert (about["data"]["function"], values["steps"]) == ("majority(5)", 3)
