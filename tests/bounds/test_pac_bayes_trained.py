"""Bounds for networks somebody trained, and from queries alone; the commands."""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from waiting import answered

from flipscope.basics import limits, npz
from flipscope.basics.bits import index_bits
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import random_strings
from flipscope.bounds.pac_bayes import (
    Grids,
    Outside,
    PosteriorBound,
    Setting,
    black_box_bound,
    class_bound,
    closed_bound,
    flip_threshold,
    gradient_bound,
    norm_bound,
    posterior_bound,
    trace_bound,
)
from flipscope.cli import main
from flipscope.constructions.fourier import fourier_network, output_error
from flipscope.cube.fourier_sums import parse_sum, random_sum
from flipscope.models import Transformer, hardness
from flipscope.models.checkpoint import save

KEYS = {
    *("form", "gradient_bound", "norm_bound", "sigma", "lambda", "sharpness_term", "norm_term", "bound", "vacuous"),
    "samples_needed",
}
CLASS = ["bound", "pac-bayes", "--sparsity", "10", "--degree", "2", "--length", "20"]


class Slope(nn.Module):
    """x -> a x."""

    def __init__(self, a: float) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor([a], dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return (self.a * x).squeeze(-1)


def test_choices_after_the_fact_cost_the_logarithm_of_their_number() -> None:
    few = trace_bound(100.0, 50.0, 10_000, subgaussian=0.1, grids=Grids((0.1,), (4.0,)))
    setting = Setting(100.0, 10_000, 0.05, 0.1)
    lam = 4 * math.sqrt(10_000) / 0.1
    norm_term = lam * 0.1**2 / (2 * 10_000) + setting.complexity(0.1) / lam
    assert few.bound == pytest.approx(0.1**2 * 50 / 2 + norm_term)
    two = trace_bound(100.0, 50.0, 10_000, subgaussian=0.1, grids=Grids((0.1, 1e-9), (4.0,)))
    assert two.bound - few.bound == pytest.approx(math.log(2) / lam)
    whole = trace_bound(100.0, 50.0, 10_000, subgaussian=0.1)
    assert whole.bound > closed_bound(setting, 25.0)  # never better than a sigma that was chosen in advance
    assert whole.bound < 1.2 * closed_bound(setting, 25.0)
    assert whole.certified is False
    assert trace_bound(100.0, 50.0, 10_000, loss=0.3, subgaussian=0.1).bound == pytest.approx(whole.bound + 0.3)


def test_the_certified_bound_holds_and_is_made_of_what_it_says() -> None:
    """Slopes near the truth from noisy samples: the true loss with noise is below the bound, every time."""
    misses = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x = rng.integers(0, 2, (200, 1)).astype(np.float64)
        y = 0.4 * x[:, 0] + rng.normal(0, 0.05, 200)
        model = Slope(float((x[:, 0] @ y) / (x[:, 0] @ x[:, 0])))
        found = posterior_bound(
            model, x, y, delta=0.1, draws=40, grids=Grids((0.03, 0.1, 0.3), tuple(2.0**k for k in range(8))), seed=seed
        )
        best = found.alquier
        assert best.certified
        assert best.bound == pytest.approx(best.sharpness_term + best.norm_term)
        slope = float(model.a.detach())
        true = 0.05**2 + 0.5 * ((slope - 0.4) ** 2 + best.sigma**2)
        misses += not true <= min(best.bound, found.mcallester, found.catoni)
        assert found.catoni < 1
    assert misses == 0


def _square(parameters: Iterable[Tensor]) -> float:
    return math.fsum(float(each.detach().double().square().sum()) for each in parameters)


def test_learned_positions_are_in_the_divergence() -> None:
    """Training changes them like any other parameter: the larger they are, the more the bound must pay."""
    strings = random_strings(np.random.default_rng(0), 40, 6)
    grids = Grids((0.03, 0.1), (1.0, 4.0))
    bounds = []
    for scale in (1.0, 1000.0):
        model = Transformer(hardness(6, width=8, layers=1, heads=1), seed=1)
        position = model.get_parameter("embedding.position.weight")
        position.data.mul_(scale)
        found = posterior_bound(model, strings, np.ones(40), draws=3, grids=grids)
        assert found.alquier.certified
        assert found.outside == Outside((), ())
        assert found.alquier.norm_bound == pytest.approx(_square(model.parameters()))
        bounds.append(found.alquier.norm_term)
        declared = posterior_bound(model, strings, np.ones(40), draws=3, grids=grids, fixed="*.position.*")
        assert declared.alquier.certified
        assert declared.outside == Outside(("embedding.position.weight",), ())
        assert declared.as_json()["fixed"] == ["embedding.position.weight"]
        assert any("embedding.position.weight" in each for each in declared.alquier.assumptions)
        assert declared.alquier.norm_bound == pytest.approx(_square(model.parameters()) - _square([position]))
    assert bounds[1] > 100 * bounds[0]


def test_statistics_of_a_batch_norm_leave_a_bound_without_a_certificate() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    strings = random_strings(np.random.default_rng(0), 40, 4)
    model.train()(torch.from_numpy(strings).float())  # what training does to the statistics
    grids = Grids((0.03, 0.1), (1.0, 4.0))
    found = posterior_bound(model, strings, np.ones(40), draws=3, grids=grids)
    assert not found.alquier.certified
    statistics = ("1.running_mean", "1.running_var", "1.num_batches_tracked")
    assert found.outside == Outside((), statistics)
    document = found.as_json()
    assert (document["certified"], document["fixed"], document["uncounted"]) == (False, [], list(statistics))
    assert "1.running_mean" in document["reason"]
    assert "\n" not in document["reason"]
    declared = posterior_bound(model, strings, np.ones(40), draws=3, grids=grids, fixed=["1.running_*", "1.num_*"])
    assert declared.alquier.certified
    assert declared.outside == Outside(statistics, ())
    assert declared.as_json()["reason"] is None
    # What was declared fixed does not change a number.
    assert declared.alquier.bound == found.alquier.bound


@pytest.mark.parametrize("options", [[], ["--fixed", "*.position.*"]])
def test_both_bounds_of_a_model_count_the_same_parameters(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, data = str(tmp_path / "m.safetensors"), str(tmp_path / "train.npz")
    model = Transformer(hardness(6, width=8, layers=1, heads=1), seed=1)
    model.get_parameter("embedding.position.weight").data.mul_(100)
    save(model, path)
    strings = random_strings(np.random.default_rng(0), 20, 6)
    np.savez(data, strings=strings, labels=np.ones(20))
    documents = []
    for way in (["--draws", "2"], ["--trace", "300"]):
        assert main(["bound", "pac-bayes", path, "--data", data, *way, *options, "--json"]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    first, second = documents
    fixed = ["embedding.position.weight"] if options else []
    assert first["fixed"] == second["fixed"] == fixed
    assert first["uncounted"] == second["uncounted"] == []
    left = [each for name, each in model.named_parameters() if name not in fixed]
    assert first["norm_bound"] == second["norm_bound"] == pytest.approx(_square(left))
    for document in documents:
        assert any("embedding.position.weight" in each for each in document["assumptions"]) == bool(options)
    assert main(["bound", "pac-bayes", path, "--trace", "300", "--train-strings", "20", *options]) == 0
    assert ("fixed before the samples" in capsys.readouterr().out) == bool(options)


def test_a_bound_from_too_few_samples_is_vacuous_and_says_how_many_it_needs() -> None:
    x = np.ones((3, 1))
    found = posterior_bound(Slope(1.0), x, np.ones(3), draws=5, grids=Grids((0.1, 0.3), (1.0, 2.0))).alquier
    assert found.vacuous
    assert found.samples_needed is not None
    assert found.samples_needed > 3
    assert found.gradient_bound is None


def test_no_neuron_flips_below_the_threshold() -> None:
    f = random_sum(8, 3, 2, seed=1)
    network = fourier_network(f)
    sigma = flip_threshold(2, 8, failure=0.05)
    bits = torch.from_numpy(index_bits(0, 256, 8))
    rows = torch.arange(3)
    names = ("query_key", "value", "up", "bias")
    own = {name: getattr(network, name).detach().clone() for name in names}

    def active() -> Tensor:
        return (network.attention_outputs(bits)[:, rows] @ network.up.T + network.bias) > 0

    with torch.no_grad():
        before = active()
        flips = {}
        for size in (sigma, 20 * sigma):
            stream = torch.Generator().manual_seed(0)
            flips[size] = 0
            for _ in range(20):
                for name in names:
                    noise = torch.randn(own[name].shape, generator=stream, dtype=torch.float64)
                    getattr(network, name).copy_(own[name] + size * noise)
                flips[size] += int((active() != before).any())
    assert flips[sigma] == 0
    assert flips[20 * sigma] > 0


def test_a_black_box_is_found_in_its_class() -> None:
    f = random_sum(9, 3, 2, seed=2)
    network = fourier_network(f)
    found = black_box_bound(
        network, 9, 10**6, value_range=(-0.5, 2.5), tolerance=output_error(f), trials=60, free=9, tail=5e-3
    )
    assert (found.degree, found.sparsity) == (2, 3)
    assert found.bound.bound == class_bound(3, 2, 9, 10**6).bound
    assert any("testers" in each for each in found.bound.assumptions)
    with pytest.raises(InputError, match="degree 0"):
        black_box_bound(lambda bits: bits[:, 0] * 0.0, 6, 100, value_range=(-1.0, 1.0))


@pytest.mark.parametrize("largest", [0.25, 1.0, 4.0])
def test_no_bound_is_more_than_the_largest_loss(largest: float) -> None:
    grids = Grids((1e-3, 0.1), (1.0,))
    found = posterior_bound(Slope(1e4), np.ones((3, 1)), np.zeros(3), largest=largest, draws=3, grids=grids)
    assert (found.alquier.bound, found.mcallester, found.catoni) == (largest, largest, largest)
    assert found.alquier.norm_term > largest
    assert found.alquier.vacuous
    beyond = posterior_bound(Slope(1e4), np.ones((3, 1)), np.zeros(3), largest=largest, draws=3, grids=grids, level=9.0)
    assert beyond.alquier.vacuous  # below the level, but so is every bound
    assert beyond.alquier.samples_needed == found.alquier.samples_needed


class Shifted(Slope):
    """x -> a x + b, where b is a plain attribute."""

    def __init__(self, b: object) -> None:
        super().__init__(1.0)
        self.b = b

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


@pytest.mark.parametrize(
    ("b", "name"),
    [(torch.ones(1), "b"), ([torch.ones(1)], "b.0"), ({"x": (0, np.ones(1))}, "b.x.1")],
    ids=["tensor", "list", "array"],
)
def test_a_tensor_that_is_no_parameter_leaves_no_certificate(b: object, name: str) -> None:
    def bound(model: nn.Module, fixed: str | None = None) -> PosteriorBound:
        grids = Grids((0.1,), (1.0,))
        return posterior_bound(model, np.ones((3, 1)), np.zeros(3), draws=3, grids=grids, fixed=fixed)

    found = bound(nn.Sequential(Shifted(b), nn.Flatten(0)))
    assert not found.alquier.certified
    assert found.outside.uncounted == (f"0.{name}",)
    assert f"training may have set 0.{name} from the samples" in str(found.as_json()["reason"])
    declared = bound(nn.Sequential(Shifted(b), nn.Flatten(0)), f"0.{name}")
    assert declared.alquier.certified
    assert declared.outside.fixed == (f"0.{name}",)
    shared = Slope(1.0)
    shared.again = [shared.a]
    assert bound(shared).alquier.certified


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Grids((), (1.0,)), "sigmas"),
        (lambda: Grids((1.0, 1.0), (1.0,)), "different"),
        (lambda: trace_bound(1.0, -1.0, 100), "trace"),
        (lambda: trace_bound(1.0, 1.0, 100, delta=1.5), "delta"),
        (lambda: posterior_bound(Slope(1.0), np.ones((3, 1)), np.ones(2)), "one for each"),
        (lambda: posterior_bound(Slope(1.0), np.ones((3, 1)), np.ones(3), largest=0.0), "largest"),
        (lambda: posterior_bound(Slope(1.0), np.ones((3, 1)), np.array([1, np.nan, 1])), "targets have NaN"),
        (lambda: posterior_bound(Slope(1.0), np.ones((3, 1)), np.array([1, np.inf, 1])), "targets have NaN"),
        (lambda: posterior_bound(Slope(1.0), np.ones((3, 1)), np.ones(3), fixed="b"), "fixed='b' matches none of a"),
        (lambda: posterior_bound(Slope(1.0), np.ones((3, 1)), np.ones(3), fixed="a"), "no parameter is left"),
        (lambda: posterior_bound(len, np.ones((3, 1)), np.ones(3)), "nn.Module"),  # type: ignore[arg-type]
    ],
)
def test_what_means_nothing_is_refused(call: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        call()  # type: ignore[operator]


def test_the_command_for_a_class(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CLASS, "--train-strings", "1000000", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) >= KEYS
    assert document["form"] == "truncated"
    assert document["gradient_bound"] == 15524
    assert round(document["norm_bound"], 3) == 1303.929
    assert round(document["sigma"], 7) == 2.2657e-3
    assert round(document["bound"], 4) == 0.2391
    assert document["vacuous"] is False
    assert main([*CLASS, "--train-strings", "8192", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert round(document["bound"], 3) == 1.186
    assert document["vacuous"] is True
    assert main([*CLASS, "--form", "semi-analytic", "--perturbation", "100"]) == 0
    assert "vacuous" in capsys.readouterr().out


def test_semi_analytic_measures_the_perturbation(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bound", "pac-bayes", "--sparsity", "2", "--degree", "1", "--length", "4", "--form", "semi-analytic"]
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert 0 < document["perturbation"] < 2 * gradient_bound(2, 1)
    truncated = class_bound(2, 1, 4, 8192)
    assert document["bound"] == pytest.approx(truncated.bound + document["sigma"] ** 2 * document["perturbation"])


def test_the_command_for_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    f = parse_sum("0.6*x1x2 + 0.8*x2x3", 5)
    network = fourier_network(f)
    model, data = str(tmp_path / "m.safetensors"), str(tmp_path / "train.npz")
    save(network, model)
    strings = random_strings(np.random.default_rng(0), 50, 5)
    np.savez(data, strings=strings, labels=f(strings))
    assert main(["bound", "pac-bayes", model, "--data", data, "--draws", "3", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) >= KEYS | {"certified", "assumptions", "mcallester", "catoni"}
    assert document["certified"] is True
    assert document["vacuous"] is True
    assert document["norm_bound"] == pytest.approx(network.squared_norm())
    assert document["fixed"] == ["codes"]  # written down with the network, and named for all that
    assert main(["bound", "pac-bayes", model, "--data", data, "--trace", "300", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["form"], document["certified"], document["gradient_bound"]) == ("trace", False, 150)
    save(fourier_network(f, mask=40), model)
    assert main(["bound", "pac-bayes", model, "--test=-1,3", "--train-strings", "1000000", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["degree"], document["sparsity"]) == (2, 2)
    assert main(["bound", "pac-bayes", model, "--test=-1,3", "--tolerance", "1e-6", "--trials", "50"]) == 0
    assert "degree found" in capsys.readouterr().out
    assert norm_bound(2, 2, 5) > network.squared_norm()


def test_an_output_that_rounding_takes_out_of_its_range_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(tmp_path / "m.safetensors")
    network = fourier_network(parse_sum("0.6*x1x2x3 + 0.64*x3x4x5", 8), mask=40)
    with torch.no_grad():
        assert -1e-15 < float(network(torch.from_numpy(index_bits(0, 256, 8))).min()) < 0
    save(network, model)
    assert main(["bound", "pac-bayes", model, "--test", "0,2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["degree"] == 3
    assert main(["bound", "pac-bayes", model, "--test", "0.001,2"]) == 2
    assert "outside value_range" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--delta", "0"], "delta"),
        (["--delta", "1.5"], "delta"),
        (["--degree", "0"], "degree"),
        (["--sparsity", "21"], "one position for each"),
        (["--train-strings", "0"], "train_strings"),
        (["--perturbation", "5"], "semi-analytic"),
        (["--data", "x.npz"], "is for a MODEL"),
        (["--subgaussian", "0"], "subgaussian"),
        (["--mend"], "--form analytic"),
        (["--trials", "5"], "is for a MODEL"),
        (["--fixed", "*"], "is for a MODEL"),
    ],
)
def test_bad_options_of_a_class_exit_with_two(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*CLASS, *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def _packed(path: Path, **shapes: tuple[int, ...]) -> None:
    """A file of arrays that only claim to be so large: nothing follows their headers."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, shape in shapes.items():
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
            archive.writestr(f"{name}.npy", header.getvalue())


def test_data_that_cannot_be_held_or_used_are_not_unpacked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data = str(tmp_path / "m.safetensors"), tmp_path / "train.npz"
    save(fourier_network(parse_sum("x1x2", 5)), model)
    monkeypatch.setattr(npz.Arrays, "__getitem__", lambda own, name: pytest.fail("unpacked"))
    monkeypatch.setattr(limits, "machine_memory", lambda: 1 << 40)
    for shapes, said in (
        ({"strings": (600_000_000, 5), "labels": (600_000_000,)}, "lower --draws or the strings of --data, or insist"),
        ({"strings": (1 << 50, 5), "labels": (1 << 50,)}, "of memory, and this machine has"),
        ({"strings": (5,), "labels": (5,)}, "strings of shape (5,)"),
        ({"strings": (4, 5), "labels": (3,)}, "labels of shape (3,)"),
    ):
        _packed(data, **shapes)
        assert main(["bound", "pac-bayes", model, "--data", str(data)]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1


def test_damaged_data_and_pipes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, data, pipe = str(tmp_path / "m.safetensors"), tmp_path / "train.npz", tmp_path / "pipe.npz"
    save(fourier_network(parse_sum("x1x2", 5)), model)
    np.savez(data, strings=index_bits(0, 8, 5), labels=np.ones(8))
    content = data.read_bytes()
    for damaged in (content[:100], content[:-30], content[:300] + b"\xff" + content[301:], b"PK\x03\x04", b""):
        data.write_bytes(damaged)
        assert main(["bound", "pac-bayes", model, "--data", str(data)]) == 2
        assert "must hold strings and labels" in capsys.readouterr().err
    os.mkfifo(pipe)
    assert answered(lambda: main(["bound", "pac-bayes", model, "--data", str(pipe)])) == 2
    assert answered(lambda: main(["bound", "pac-bayes", str(pipe), "--trace", "1", "--train-strings", "9"])) == 2
    assert capsys.readouterr().err.count("is not a file but a pipe") == 2


def test_bad_input_of_a_model_exits_with_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tmp_path / "m.safetensors")
    save(fourier_network(parse_sum("x1x2", 5)), model)
    strings = index_bits(0, 8, 5)
    files = {
        "none.npz": None,
        "shape.npz": {"strings": strings, "labels": np.ones(3)},
        "bits.npz": {"strings": strings + 1, "labels": np.ones(8)},
        "keys.npz": {"strings": strings},
    }
    for name, arrays in files.items():
        if arrays is not None:
            np.savez(tmp_path / name, **arrays)
        assert main(["bound", "pac-bayes", model, "--data", str(tmp_path / name)]) == 2
        error = capsys.readouterr().err
        assert name in error
        assert error.count("\n") == 1
    for options in (
        [],
        ["--trace", "3"],
        ["--test", "3,1"],
        ["--test", "a"],
        ["--sparsity", "2", "--trace", "1"],
        ["--test", "0,1", "--trace", "1"],
        ["--trace", "1", "--trials", "3"],
        ["--trace", "1", "--tight"],
        ["--trace", "1", "--form", "analytic"],
        ["--trace", "1", "--train-strings", "9", "--fixed", "nothing"],
        ["--test", "0,1", "--fixed", "codes"],
    ):
        assert main(["bound", "pac-bayes", model, *options]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert main(["bound", "pac-bayes"]) == 2
    assert main(["bound", "covering"]) == 2
