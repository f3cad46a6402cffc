"""flipscope train --dataset: trained, measured, resumed, and one sentence for options that do not go together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commands import Run, document

from flipscope.cli import train as command

pytest.importorskip("sklearn")

TINY = ("--train-strings", "100", "--test-inputs", "30", "--epochs", "2")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLIPSCOPE_DATA", raising=False)


def test_images_are_trained_on_and_measured(run: Run) -> None:
    arguments = ("train", "--dataset", "digits", "--model", "mlp-small", *TINY, "-o", "m.safetensors")
    code, out, err = run(*arguments)
    assert code == 0, err
    for words in (
        "mlp-small on digits",
        "200 images",
        "on 30 test images",
        "flipscope tokens m.safetensors --test-set --count 100",
    ):
        assert words in out
    found = document(run(*arguments, "--json"), quiet=False)  # it is trained already
    assert found["recipe"]["data"]["images"].startswith("digits@")
    assert len(found["history"]) == 2
    measured = document(run("tokens", "m.safetensors", "--test-set", "--count", "3", "--json"))
    assert len(measured["names"]) == 0
    assert "0" in str(measured)
    code, _, err = run("sensitivity", "m.safetensors")
    assert (code, "reads images" in err) == (2, True)


def test_interrupted_it_goes_on_to_the_same_weights(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    choices = ("--optimiser", "sgd", "--learning-rate", "0.1", "--momentum", "0.9", "--decay-every", "1", "--crop", "1")
    arguments = (
        "train", "--dataset", "digits", "--model", "cnn-small", *TINY, "--batch", "20", *choices, "--flip", "--json",
    )  # fmt: skip
    whole = document(run(*arguments, "-o", "whole.safetensors"))
    before = command.View.step

    def watch(self: command.View, moment: Any) -> None:
        before(self, moment)
        if moment.step == 7:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(command.View, "step", watch)
        assert run(*arguments, "-o", "m.safetensors", "--checkpoint-seconds", "0")[0] == 130
    again = document(run(*arguments, "-o", "m.safetensors"), quiet=False)
    assert again["resumed_at"] is not None
    assert again["weights"] == whole["weights"]
    assert [line["learning_rate"] for line in again["history"]] == [0.1, 0.05]


def test_texts_are_trained_on_and_measured(run: Run) -> None:
    pytest.importorskip("tokenizers")
    options = ("--length", "32", "--vocabulary", "600", *TINY)
    document(run("train", "--dataset", "synthetic-paraphrases", "--model", "lstm-small", *options, "-o", "m", "--json"))
    measured = document(run("tokens", "m", "--test-set", "--how", "replace", "--count", "2", "--json"))
    assert 0 <= measured["definition"]["value"] <= 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--data", "fashion-mnist", "--model", "vit-small"), "name the set with --dataset fashion-mnist"),
        (("--model", "vit-small"), "either EXPR"),
        (("majority(5)", "--dataset", "digits"), "either EXPR"),
        (("majority(5)", "--model", "cnn"), "--model is for a training on --dataset"),
        (("majority(5)", "--flip"), "--flip is for a training on --dataset"),
        (("--dataset", "digits"), "--model cnn-small"),
        (("--dataset", "digit", "--model", "cnn"), "--dataset digit is not one of digits"),
        (("--dataset", "digits", "--model", "cnn-tiny"), "there is no model 'cnn-tiny' for images"),
        (("--dataset", "digits", "--model", "cnn", "--steps", "10"), "--steps is for a training on a function"),
        (("--dataset", "digits", "--model", "cnn", "--vocabulary", "10"), "--vocabulary is for texts"),
        (("--dataset", "mrpc", "--model", "lstm", "--flip"), "--flip is for images"),
        (("--dataset", "svhn", "--model", "cnn"), "no folder of data sets is named"),
        (("--dataset", "svhn", "--model", "cnn", "--data", "nowhere"), "nowhere does not exist"),
        (("--dataset", "digits", "--model", "cnn", "--momentum", "0.9"), "optimiser='sgd'"),
        (("--dataset", "digits", "--model", "cnn", "--optimiser", "sgd"), "give a learning rate"),
        (("--dataset", "digits", "--model", "resnet-18", "--epochs", "1000000"), "hours"),
    ],
)
def test_options_that_do_not_go_together(arguments: tuple[str, ...], words: str, run: Run) -> None:
    code, out, err = run("train", *arguments, "-o", "m.safetensors")
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


def test_a_test_set_is_of_a_trained_file(run: Run) -> None:
    code, _, err = run("train", "x1 ^ x2", "--steps", "2", "--width", "8", "--layers", "1", "-o", "m.safetensors")
    assert code == 0, err
    code, _, err = run("tokens", "m.safetensors", "--test-set")
    assert (code, "trained on a function" in err) == (2, True)
