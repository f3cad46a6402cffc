"""The commands that look at transformers: documents, pages, exit codes, one sentence for bad input."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import Run
from waiting import LIMIT, waited_for

from flipscope.adapters.parameters import weight_norm
from flipscope.basics import limits
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import generators, random_strings
from flipscope.cli import build_parser, main
from flipscope.cli import random_model as commands
from flipscope.lab.run.pool import WorkerError, run_tasks
from flipscope.models import (
    Transformer,
    encoder,
    fourier,
    gpt2,
    hardness,
    header,
    mingpt,
    random_shape,
    recognizer,
    roberta,
    save,
    vit_small,
)
from flipscope.models.size import check_model
from flipscope.probes.blowup import blowup
from flipscope.probes.results import joined
from flipscope.probes.sensitivity import sensitivity_profile

ESTIMATE_KEYS = {"value", "low", "high", "confidence", "samples"}
HOW_KEYS = {"path", "precision", "margin", "tolerance", "rechecked", "near_ties", "seconds"}

Document = Callable[..., Any]


@pytest.fixture
def document(run: Run) -> Document:
    """The one JSON document that a call prints."""

    def call(*arguments: str) -> Any:
        code, out, err = run(*arguments, "--json")
        assert code == 0, err
        assert out.count("\n") == 1
        return json.loads(out)

    return call


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random models are measured in this process, which is quicker than to start others."""

    def run_here(function: Any, tasks: Any, **_: Any) -> list[Any]:
        return [function(task, lambda done, total: None) for task in tasks]

    monkeypatch.setattr(commands, "run_tasks", run_here)


@pytest.fixture
def model(tmp_path: Path) -> tuple[Transformer, str]:
    """A model with flips that matter, and its file."""
    path = str(tmp_path / "model.safetensors")
    made = Transformer(encoder(8, 2, 2, ffn_width=16), scheme="gaussian", seed=4)
    with torch.no_grad():
        made.head.bias -= float(np.median(made(torch.from_numpy(random_strings(generators(1, 1)[0], 64, 10)))))
    save(made, path)
    return made, path


# ---------------------------------------------------------------- sensitivity


def test_sensitivity_as_json(document: Document, model: tuple[Transformer, str]) -> None:
    made, path = model
    found = document("sensitivity", path, "--length", "10", "--strings", "30", "--seed", "3")
    same = sensitivity_profile(made, 10, strings=30, seed=3).as_json()
    for key in ("length", "strings", "average_sensitivity", "profile", "zero_share", "path", "near_ties"):
        assert found[key] == same[key], key
    assert (found["length"], found["strings"], found["path"]) == (10, 30, "fast")
    assert set(found) >= HOW_KEYS
    assert set(found["average_sensitivity"]) == set(found["zero_share"]) == ESTIMATE_KEYS
    assert len(found["profile"]) == 11
    assert all(set(entry) == ESTIMATE_KEYS for entry in found["profile"])
    assert sum(entry["value"] for entry in found["profile"]) == pytest.approx(2**10, abs=6)  # rounded to whole strings
    assert 0 < found["average_sensitivity"]["value"] < 10


def test_sensitivity_of_all_strings(document: Document, model: tuple[Transformer, str]) -> None:
    _, path = model
    found = document("sensitivity", path, "--length", "10", "--exhaustive")
    assert found["exact"] is True
    assert sum(found["profile"]) == found["strings"] == 1024
    assert found["zero_share"] == found["profile"][0] / 1024
    mean = sum(s * count for s, count in enumerate(found["profile"])) / 1024
    assert found["average_sensitivity"] == pytest.approx(mean, rel=1e-12)
    sampled = document("sensitivity", path, "--length", "10", "--strings", "60")["average_sensitivity"]
    assert sampled["low"] <= mean <= sampled["high"]


def test_sensitivity_to_a_precision(document: Document, model: tuple[Transformer, str]) -> None:
    _, path = model
    found = document("sensitivity", path, "--length", "10", "--precision", "1.5", "--path", "general")
    average = found["average_sensitivity"]
    assert (average["high"] - average["low"]) / 2 <= 1.5
    assert found["strings"] == average["samples"] >= 16
    assert found["path"] == "general"


def test_sensitivity_options_reach_the_probe(document: Document, model: tuple[Transformer, str]) -> None:
    _, path = model
    common = ("sensitivity", path, "--length", "10", "--strings", "20")
    far = document(*common, "--threshold", "1000")
    assert far["average_sensitivity"]["value"] == 0
    wide = document(*common, "--float64")
    assert wide["precision"] == "float64"
    assert wide["profile"] == document(*common)["profile"]
    screened = document(*common, "--heuristic", "--confidence", "0.9")
    assert screened["screening"]["flips"] == 200
    assert screened["average_sensitivity"]["confidence"] == 0.9


def test_sensitivity_page(run: Run, model: tuple[Transformer, str]) -> None:
    _, path = model
    code, out, _ = run("sensitivity", path, "--length", "10", "--strings", "20")
    assert code == 0
    assert "20 of length 10" in out
    assert "average sensitivity" in out
    assert "Measured by the fast path" in out
    _, out, _ = run("sensitivity", path, "--length", "8", "--exhaustive")
    assert "256 of length 8, all of this length" in out
    _, out, _ = run("sensitivity", path, "--length", "8", "--strings", "12", "--heuristic")
    assert "Heuristic:" in out


def test_the_usual_length_is_the_models_own(document: Document, tmp_path: Path) -> None:
    save(Transformer(mingpt(7, width=16, heads=2)), tmp_path / "short.safetensors")
    found = document("sensitivity", str(tmp_path / "short.safetensors"), "--strings", "3")
    assert (found["length"], found["path"]) == (7, "general")  # two outputs
    save(Transformer(encoder(8, 1, 1, ffn_width=8)), tmp_path / "any.safetensors")
    assert document("sensitivity", str(tmp_path / "any.safetensors"), "--strings", "2")["length"] == 100


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--length", "0"], "length must be a whole number of at least 1"),
        (["--strings", "0"], "strings must be a whole number of at least 1"),
        (["--precision", "-1"], "precision_target=-1.0 must be a positive number"),
        (["--length", "21", "--exhaustive"], "n=21 bits are too many"),
        (["--confidence", "1"], "confidence must lie strictly between 0 and 1"),
        (["--seed", "-1"], "seed must be a whole number"),
        (["--strings", "3", "--exhaustive"], "not allowed with argument --strings"),
        (["--path", "quick"], "invalid choice: 'quick'"),
    ],
)
def test_wrong_options(run: Run, model: tuple[Transformer, str], arguments: list[str], sentence: str) -> None:
    code, out, err = run("sensitivity", model[1], *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", [["sensitivity"], ["blowup"], ["sharpness", "--draws", "2"], ["bound", "covering"]])
def test_the_header_of_a_file_is_read_once(
    run: Run, model: tuple[Transformer, str], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, original = [], header.read_config

    def counted(*given: Any) -> Any:
        read.append(given)
        return original(*given)

    monkeypatch.setattr(header, "read_config", counted)
    assert run(*command, model[1], *([] if command[0] == "bound" else ["--strings", "4"]))[0] == 0
    assert len(read) == 1


def test_wrong_files(run: Run, tmp_path: Path) -> None:
    save(Transformer(vit_small(8, 4, 1, layers=1, heads=1)), tmp_path / "image.safetensors")
    (tmp_path / "text.safetensors").write_text("not a model")
    for command in ("sensitivity", "blowup"):
        for name, sentence in (
            ("missing", "is not a file"),
            ("image", "reads images, which have no bits"),
            ("text", "cannot be read as safetensors"),
        ):
            code, out, err = run(command, str(tmp_path / f"{name}.safetensors"))
            assert (code, out) == (2, "")
            assert sentence in err
            assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--strings", "99999999999"], "strings of 100 bits would take .* of memory"),
        (["--length", "609135"], "attention .* would take .* of memory, .*: give shorter strings"),
        (["--length", "9" * 15, "--strings", "1"], "would take 1 PiB or more of memory"),
        (["--precision", "1e-300"], "precision 1e-300 cannot be reached with 100,000 strings"),
    ],
)
def test_what_is_far_too_large_is_refused(
    run: Run, model: tuple[Transformer, str], arguments: list[str], sentence: str
) -> None:
    for command in ("sensitivity",) if "--precision" in arguments else ("sensitivity", "blowup"):
        code, out, err = run(command, model[1], *arguments)
        assert (code, out) == (2, "")
        assert re.search(sentence, err), err
        assert err.count("\n") == 1


@pytest.mark.parametrize("longest", [10**9, 2**63, 10**30])
def test_a_file_that_claims_to_read_very_long_strings(run: Run, tmp_path: Path, longest: int) -> None:
    made = Transformer(replace(encoder(8, 2, 2), max_length=longest))
    save(made, tmp_path / "long.safetensors")
    code, _, err = run("sensitivity", str(tmp_path / "long.safetensors"))
    assert code == 2
    assert "would take" in err
    assert run("sensitivity", str(tmp_path / "long.safetensors"), "--length", "5", "--strings", "2")[0] == 0


# ---------------------------------------------------------------- random models

SMALL = ("--length", "8", "--strings", "6", "--width", "8", "--layers", "1", "--heads", "2")


def test_random_models_as_json(document: Document) -> None:
    before = dict(os.environ)
    found = document("random-model", "--init", "gaussian", "--count", "3", "--seed", "5", "--workers", "2", *SMALL)
    assert dict(os.environ) == before
    assert list(found) == ["init", "length", "strings", "models", "summary"]
    assert (found["init"], found["length"], found["strings"]) == ("gaussian", 8, 6)
    assert [entry["seed"] for entry in found["models"]] == np.random.SeedSequence(5).generate_state(3).tolist()
    for entry in found["models"]:
        keys = {"seed", "config", "average_sensitivity", "zero_share", "profile", "path", "near_ties", "seconds"}
        assert keys <= set(entry)
        config = encoder(
            8, 1, 2, ffn_width=8 * (random_shape(entry["seed"]).hidden_width // random_shape(entry["seed"]).width)
        )
        assert entry["config"] == config.as_dict()
        same = sensitivity_profile(
            Transformer(config, scheme="gaussian", seed=entry["seed"]), 8, strings=6, seed=entry["seed"]
        ).as_json()
        assert all(entry[key] == same[key] for key in ("average_sensitivity", "zero_share", "profile", "path"))
    averages = [entry["average_sensitivity"]["value"] for entry in found["models"]]
    summary = found["summary"]
    assert summary["models"] == 3
    assert set(summary["average_sensitivity"]) == set(summary["zero_share"]) == ESTIMATE_KEYS
    assert summary["average_sensitivity"]["value"] == pytest.approx(np.mean(averages))
    assert summary["average_sensitivity"]["samples"] == 3
    assert summary["largest_average_sensitivity"] == max(averages)


@pytest.mark.usefixtures("here")
def test_shapes_are_those_of_the_paper(document: Document) -> None:
    found = document("random-model", "--count", "2", "--seed", "11", "--length", "4", "--strings", "1", "--layers", "1")
    for entry in found["models"]:
        drawn = random_shape(entry["seed"]).as_dict()
        assert entry["config"] == drawn | {"layers": 1}


@pytest.mark.usefixtures("here")
def test_heads_alone_keep_the_size_of_a_head(document: Document) -> None:
    fixed = ("--heads", "1", "--layers", "1", "--length", "4", "--strings", "1")
    (entry,) = document("random-model", "--count", "1", *fixed)["models"]
    drawn = random_shape(entry["seed"])
    assert entry["config"]["width"] == drawn.key_width
    assert entry["config"]["ffn_width"] * drawn.width == drawn.hidden_width * drawn.key_width


@pytest.mark.usefixtures("here")
def test_random_page(run: Run) -> None:
    code, out, _ = run("random-model", "--init", "gaussian", "--count", "4", *SMALL)
    assert code == 0
    assert "4, gaussian, 6 strings of length 8 each" in out
    assert "average sensitivity" in out
    assert out.count("█") >= 1


def test_large_models_are_cut_into_pieces() -> None:
    shapes = [encoder(8, 1, 1), encoder(64, 2, 1), encoder(128, 2, 1)]
    draws = [commands.Draw(seed, shape, "uniform", 10, 40, {}) for seed, shape in enumerate(shapes)]
    found = commands.pieces(draws)
    total = sum(draw.cost for draw in draws)
    for draw in draws:
        own = [piece for piece in found if piece.draw is draw]
        assert [piece.first for piece in own] == np.cumsum([0, *(piece.count for piece in own)])[:-1].tolist()
        assert sum(piece.count for piece in own) == 40
        assert sum(piece.cost for piece in own) == pytest.approx(draw.cost)
        assert max(piece.cost for piece in own) <= total / 8 + draw.cost / 40
    assert [sum(piece.draw is draw for piece in found) for draw in draws] == [1, 2, 7]
    few = commands.Draw(0, encoder(8, 1, 1), "gaussian", 5, 13, {})
    parts = [commands.measure_piece(piece, lambda done, total: None) for piece in commands.pieces([few])]
    whole = commands.measure_piece(commands.Piece(few, 0, 13), lambda done, total: None)
    assert [len(part.counts) for part in parts] == [4, 4, 5]  # each compares with float64 anew: no fewer are worth it
    together = joined(parts)
    assert together.counts.tolist() == whole.counts.tolist()
    assert together.flipped.tolist() == whole.flipped.tolist()


def test_an_error_in_a_worker_is_told() -> None:
    piece = commands.Piece(commands.Draw(0, encoder(8, 1, 1), "uniform", 4, 1, {}), 0, 0)
    with pytest.raises(InputError, match="are empty"):
        run_tasks(commands.measure_piece, [piece], workers=1, costs=[1.0], progress=lambda done, total: None)


def test_a_worker_that_dies_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any, **__: Any) -> None:
        raise WorkerError("the worker died 3 times")

    monkeypatch.setattr(commands, "run_tasks", die)
    code, out, err = run("random-model", "--count", "1")
    assert (code, out) == (1, "")
    assert "try fewer --workers" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--count", "0"], "count must be a whole number of at least 1"),
        (["--strings", "0"], "strings must be"),
        (["--length", "0"], "length must be"),
        (["--workers", "0"], "workers must be"),
        (["--seed", "-1"], "seed must be"),
        (["--confidence", "0"], "confidence must"),
        (["--width", "10", "--heads", "3"], "width=10 must be a multiple of heads=3"),
        (["--width", "9"], "give --heads"),
        (["--layers", "-1"], "layers must be a whole number of at least 1"),
        (["--heads", "0"], "heads must be a whole number of at least 1"),
        (["--init", "zero"], "invalid choice: 'zero'"),
    ],
)
def test_wrong_random_models(run: Run, arguments: list[str], sentence: str) -> None:
    code, out, err = run("random-model", *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--strings", "99999999999"], "strings of 100 bits would take .* of memory"),
        (["--length", "609135"], "attention .* would take .* of memory"),
        (["--length", "9" * 100], "would take 1 PiB or more of memory"),
        (["--count", "99999999999"], "results of 99,999,999,999 models would take .* of memory"),
        (["--count", "9" * 100], "would take 1 PiB or more of memory"),
        (["--width", "1000000"], "width 1,000,000 .* would take .* of memory"),
        (["--heads", "1000000", "--width", "1000000"], "would take .* of memory"),
        (["--layers", "1000000000"], "layers=1000000000 must be at most 10000"),
        (
            ["--strings", "10000000", "--length", "1000", "--width", "4096"],
            "hours on this machine, more than 24",
        ),
    ],
)
def test_random_models_that_are_far_too_large(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.setattr(limits, "machine_memory", lambda: 64 << 30)
    monkeypatch.setattr(commands, "run_tasks", None)
    code, out, err = run("random-model", *arguments)
    assert (code, out) == (2, "")
    assert re.search(sentence, err), err
    assert err.count("\n") == 1


def test_the_scales_of_the_papers_are_not_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "machine_memory", lambda: 4 << 30)
    given = ["random-model", "--length", "100", "--strings", "10000", "--width", "1024", "--layers", "6"]
    for more in (["--heads", "8", "--count", "1000"], ["--heads", "1"], ["--heads", "16", "--path", "general"]):
        assert commands._draws(build_parser("random-model").parse_args([*given, *more]))
    for config in (gpt2(length=1024, width=768, layers=12, heads=12), roberta(length=512, width=1024, layers=24)):
        check_model(config)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_an_interrupt_ends_the_workers() -> None:
    command = [sys.executable, "-m", "flipscope.cli", "random-model", "--count", "2", "--strings", "100000"]
    command += ["--workers", "2"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # A job in the background of a script ignores interrupts, and would hand that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    tasks = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    children = waited_for(lambda: found if len(found := tasks.read_text().split()) >= 3 else None)  # a tracker, too
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out) == (130, b"")
    estimate, end = err.decode().splitlines()
    assert estimate.startswith("flipscope: 100,000 strings of 100 bits for 2 models will take about ")
    assert end == "flipscope: interrupted."
    waited_for(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


# ---------------------------------------------------------------- blowup


def test_blowup_as_json(document: Document, model: tuple[Transformer, str]) -> None:
    made, path = model
    found = document("blowup", path, "--length", "6", "--strings", "9", "--seed", "2")
    same = blowup(made, random_strings(generators(2, 1)[0], 9, 6))
    assert (found["length"], found["strings"], found["infinite"]) == (6, 9, 0)
    assert [norm["name"] for norm in found["norms"]] == list(same.names)
    for column, norm in enumerate(found["norms"]):
        assert norm["tau"]["largest"] == same.tau[:, column].max()
        assert norm["tau"]["smallest"] <= norm["tau"]["median"] <= norm["tau"]["largest"]
    assert found["beta"]["largest"] == same.beta.max() <= found["bound"] == same.bound
    assert found["mean_beta"]["largest"] == same.mean_beta.max() < found["beta"]["largest"]
    assert found["weight_norm"]["without_positions"] == weight_norm(made) <= found["weight_norm"]["with_positions"]


def test_infinite_blowup_is_null(document: Document, run: Run, tmp_path: Path) -> None:
    made = Transformer(recognizer(4, 1, 1))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.zero_()
    path = str(tmp_path / "flat.safetensors")
    save(made, path)
    found = document("blowup", path, "--length", "3", "--strings", "2")
    assert found["bound"] is None
    _, out, _ = run("blowup", path, "--length", "3", "--strings", "2")
    assert "there is no bound on beta" in out


def test_blowup_page(run: Run, model: tuple[Transformer, str]) -> None:
    code, out, _ = run("blowup", model[1], "--length", "6")
    assert code == 0
    assert "blocks.0.norm1" in out
    assert "From 100 random strings of length 6; beta cannot exceed" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ["random-model", "--strings", "99999999999"],
        ["random-model", "--length", "609135"],
        ["random-model", "--width", "1000000", "--heads", "4"],
        ["sensitivity", "MODEL", "--strings", "99999999999"],
        ["sensitivity", "MODEL", "--length", "609135"],
        ["sensitivity", "MODEL", "--precision", "1e-300"],
        ["blowup", "MODEL", "--length", "609135"],
        ["train", "majority(5)", "--width", "10000000", "-o", "MODEL"],
    ],
)
def test_what_is_far_too_large_is_refused_before_anything_heavy_is_loaded(tmp_path: Path, arguments: list[str]) -> None:
    save(Transformer(encoder(16, 2, 1), seed=1), tmp_path / "m.safetensors")
    given = [str(tmp_path / "m.safetensors") if each == "MODEL" else each for each in arguments]
    code = (
        f"import sys; from flipscope.cli import main; print(main({given!r}), {{'torch', 'numba'}} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=LIMIT)
    assert run.stdout == "2 set()\n"
    assert run.stderr.startswith("flipscope: ")


@pytest.mark.parametrize("config", [encoder(8, 2, 2), recognizer(16, 1, 1), recognizer(8, 2, 2, eps=1e-3), fourier(9)])
def test_bounds_of_any_model_say_what_holds(config: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "model.safetensors")
    save(Transformer(config, scheme="gaussian", seed=1), path)  # type: ignore[arg-type]
    assert main(["bounds", path, "--length", "9", "--strings", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    ours = config in (recognizer(16, 1, 1), recognizer(8, 2, 2, eps=1e-3))
    assert (found["assumption_that_fails"] is None) == ours
    assert found["bounds"]
    for row in found["bounds"]:
        assert row["says_something"] in (True, False, None)
        assert row["note"]
    assert main(["bounds", path, "--length", "9", "--strings", "3"]) == 0
    assert "Lem 3.2" in capsys.readouterr().out
    assert main(["bounds", path, "--length", "9", "--margin", "0"]) == 2
    assert "margin" in capsys.readouterr().err


@pytest.mark.parametrize("config", [hardness(6, 8), encoder(8, 1, 2), fourier(6, 4), recognizer(8, 1, 1)])
def test_bounds_of_the_hardness_paper(config: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "model.safetensors")
    save(Transformer(config, seed=1), path)  # type: ignore[arg-type]
    assert main(["bounds", path, "--length", "6", "--strings", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["hardness"]
    assert main(["bounds", path, "--length", "6", "--strings", "4"]) == 0
    out = capsys.readouterr().out
    if config == recognizer(8, 1, 1):
        assert "block='sum'" in found["assumption_that_fails"]
        assert not found["bounds"]
        assert "hardness paper does not apply" in out
        return
    assert found["assumption_that_fails"] is None
    seen = found["measured_sensitivity"]
    assert 0 < seen["mean"] <= seen["largest"]
    for name, bound in found["sensitivity_bounds"].items():
        assert 10 ** bound["log10"] >= seen["mean" if name in ("mean", "random_biases") else "largest"]
        assert bound["vacuous"] == (bound["orders_above_trivial"] >= 0)
    assert {"every_string", "product", "layers", "attention", "mean"} <= set(found["sensitivity_bounds"])
    assert ("random_biases" in found["sensitivity_bounds"]) == (config != fourier(6, 4))
    assert {"Fact 1", "Thm 4", "Cor 5"} <= {row["result"] for row in found["bounds"]}
    assert "powers of ten" in out
