"""What takes more than a day on this machine is refused at once, and begun for whoever insists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import Run

from flipscope.basics.seeds import random_strings
from flipscope.cli import hours
from flipscope.constructions.fourier import fourier_network
from flipscope.cube.fourier_sums import parse_sum
from flipscope.models import Transformer, checkpoint, encoder, fourier, gpt2, save

MANY = "99999999999"


@pytest.fixture(name="files")
def _files(tmp_path: Path) -> dict[str, str]:
    """A model, a network of sums of parities with its training set, and where to write."""
    files = {name: str(tmp_path / name) for name in ("model.safetensors", "sum.safetensors", "train.npz", "new")}
    save(Transformer(encoder(8, 1, 2), seed=0), files["model.safetensors"])
    f = parse_sum("0.6*x1x2 + 0.8*x2x3", 5)
    save(fourier_network(f), files["sum.safetensors"])
    strings = random_strings(np.random.default_rng(0), 20, 5)
    np.savez(files["train.npz"], strings=strings, labels=f(strings))
    return files


SAVED = ("model.safetensors", "--length", "4")
LANDSCAPE = ("landscape", *SAVED, "--function", "parity(4)")
SUM = ("bound", "pac-bayes", "sum.safetensors", "--data", "train.npz")


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ((*LANDSCAPE, "--points", "99999999"), "299,999,997 points --points --directions"),
        ((*LANDSCAPE, "--directions", "99999999"), "points --directions"),
        ((*LANDSCAPE, "--dimensions", "2", "--points", "9999999"), "points --points"),
        (("sharpness", *SAVED, "--draws", MANY), "99,999,999,999 draws --draws --strings"),
        (("sharpness", *SAVED, "--draws", MANY, "--exhaustive"), "strings of 4 bits --draws --length"),
        (("sharpness", *SAVED, "--draws", "9" * 400), "a trillion or more hours --draws"),
        (("curvature", *SAVED, "--probes", MANY), "products --probes"),
        (("curvature", *SAVED, "--what", "eigenvalues", "--eigenvalues", MANY), "products --eigenvalues"),
        (("blowup", "model.safetensors", "--length", "4000", "--strings", "9" * 8), "--strings --length"),
        (("sensitivity", "model.safetensors", "--length", "4000", "--strings", "999999"), "flips --strings --length"),
        (("bounds", "model.safetensors", "--length", "4000", "--strings", "999999"), "flips --strings --length"),
        ((*SUM, "--draws", MANY), "draws for each of 25 sigmas on 20 strings --draws --data"),
        (("random-model", "--length", "999", "--strings", "99999"), "for 20 models --count --strings --length"),
        (("train", "majority(5)", "-o", "new", "--steps", MANY), "steps of 64 strings --steps --batch"),
        (("train", "majority(5)", "-o", "new", "--batch", MANY), "steps of 99,999,999,999 strings --batch"),
        (("function", "majority(9999)", "--strings", MANY), "flips --strings"),
        (("compare", "majority(9)", "parity(9999)", "--strings", MANY), "flips --strings"),
    ],
)
def test_too_much_is_refused_before_anything_is_loaded(
    command: tuple[str, ...], named: str, run: Run, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flipscope.basics.limits.machine_memory", lambda: 1 << 40)
    monkeypatch.setattr(checkpoint, "load", lambda path: pytest.fail("loaded"))
    code, out, err = run(*(files.get(each, each) for each in command))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert " hours on this machine, more than 24: lower --" in err
    assert err.endswith(", or insist with --anyway.\n")
    for word in named.split():
        assert word in err


@pytest.mark.parametrize(
    "command",
    [
        (*LANDSCAPE, "--points", "3", "--strings", "5"),
        ("sharpness", *SAVED, "--draws", "3", "--strings", "5"),
        ("curvature", *SAVED, "--what", "trace", "--probes", "3", "--strings", "5"),
        ("blowup", *SAVED, "--strings", "3"),
        ("sensitivity", *SAVED, "--strings", "3"),
        ("bounds", *SAVED, "--strings", "3"),
        (*SUM, "--draws", "2"),
        ("random-model", "--length", "5", "--strings", "2", "--count", "1", "--width", "8", "--heads", "2"),
        ("train", "majority(5)", "-o", "new", "--steps", "2", "--batch", "2", "--width", "8"),
        ("function", "majority(9)", "--strings", "10"),
        ("compare", "majority(9)", "parity(9)", "--strings", "10"),
    ],
)
def test_whoever_insists_may_wait(
    command: tuple[str, ...], run: Run, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hours, "HOURS", 0.0)
    given = [files.get(each, each) for each in command]
    code, _, err = run(*given)
    assert code == 2
    assert "hours on this machine, more than 0" in err
    assert run(*given, "--anyway")[0] == 0


def test_the_help_tells_the_limit(run: Run) -> None:
    for command in ("landscape", "bound", "random-model", "train", "function"):
        assert "more than 24 hours on this machine" in " ".join(run(command, "--help")[1].split())


def test_usual_questions_are_far_from_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine of one core, at a tenth of the speed that is usual."""
    monkeypatch.setattr(hours, "_core_speed", lambda: 4e9)
    monkeypatch.setattr(hours, "cores", lambda: 1)
    day = 3600 * hours.HOURS
    large = gpt2(length=64, width=256, layers=4, heads=4)
    for config, length in ((encoder(64, 3, 4), 100), (fourier(20), 20), (large, 64)):
        assert 1 < hours.asking_seconds(config, length, 1000, 100) < day
        assert hours.flipping_seconds(config, length, 200, general=True, screened=False) < day
        assert hours.training_seconds(config, length, 64, 1_000) < day


def test_strings_that_are_there_several_times_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hours, "_core_speed", lambda: 1e9)
    monkeypatch.setattr(hours, "cores", lambda: 1)
    each, once = (hours.asking_seconds(encoder(8, 1, 2), 4, 10**9, 5, distinct=distinct) for distinct in (False, True))
    assert once < each / 10
    assert once >= 5 * 10**9 * hours.STRING  # an answer is copied for each
