"""The command line as a user meets it: documents, exit codes, one sentence for bad input."""

from __future__ import annotations

import ast
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flipscope import __version__
from flipscope.bounds.geometry import parse_count
from flipscope.bounds.noise_stability import portrait_noise_bounds
from flipscope.cli import main, portraits, zoo
from flipscope.cube.expression import parse
from flipscope.cube.portrait import Portrait, describe
from flipscope.cube.zoo import ZOO

ESTIMATE_KEYS = {"value", "low", "high", "confidence", "samples"}
FUNCTION_KEYS = [
    "n",
    "exact",
    "profile",
    "average_sensitivity",
    "max_sensitivity",
    "min_sensitivity",
    "influences",
    "degree",
    "sparsity",
    "weight_by_degree",
    "noise_stability",
]


class Run:
    """What one call of the command line returned and printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        try:
            self.code: Any = main(arguments)
        except SystemExit as stop:
            self.code = stop.code
        captured = capsys.readouterr()
        self.out, self.err = captured.out, captured.err

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        assert self.code == 0, self.err
        assert self.out.endswith("\n")
        assert self.out.count("\n") == 1
        return json.loads(self.out)


def shell(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "flipscope.cli", *arguments], capture_output=True, **options)


# ---------------------------------------------------------------- function --json, exact


def test_majority_21(capsys: pytest.CaptureFixture[str]) -> None:
    found = Run(capsys, "function", "majority(21)", "--json").document
    assert found["n"] == 21
    assert found["exact"] is True
    peaks = {0: 2**21 - 2 * math.comb(21, 10), 11: 2 * math.comb(21, 10)}
    assert found["profile"] == [peaks.get(s, 0) for s in range(22)]
    assert found["average_sensitivity"] == 21 * math.comb(20, 10) / 2**20
    assert (found["max_sensitivity"], found["min_sensitivity"]) == (11, 0)
    assert found["influences"] == [math.comb(20, 10) / 2**20] * 21
    assert (found["degree"], found["sparsity"]) == (21, 2**20)
    assert found["weight_by_degree"][::2] == [0] * 11
    assert math.fsum(found["weight_by_degree"]) == pytest.approx(1, abs=1e-12)
    assert found["ones_share"] == 0.5


def test_majority_101_is_exact_beyond_2_to_the_53(capsys: pytest.CaptureFixture[str]) -> None:
    found = Run(capsys, "function", "majority(101)", "--json").document
    assert all(type(count) is int for count in found["profile"])
    assert found["profile"][0] == 2**101 - 2 * math.comb(101, 50)
    assert found["profile"][0] % 1000 == 640  # the last digits would be lost in a float
    assert found["profile"][51] == 2 * math.comb(101, 50)
    assert sum(found["profile"]) == 2**101
    assert found["sparsity"] == 2**100
    assert found["average_sensitivity"] == 101 * math.comb(100, 50) / 2**100


def test_parity_1000(capsys: pytest.CaptureFixture[str]) -> None:
    found = Run(capsys, "function", "parity(1000)", "--json").document
    assert found["exact"] is True
    assert found["profile"] == [0] * 1000 + [2**1000]
    assert found["average_sensitivity"] == found["max_sensitivity"] == found["min_sensitivity"] == 1000
    assert found["influences"] == [1] * 1000
    assert (found["degree"], found["sparsity"]) == (1000, 1)
    assert found["weight_by_degree"] == [0] * 1000 + [1]
    assert found["noise_stability"]["0.99"] == pytest.approx(0.99**1000, rel=1e-12)


def test_sparse_majority_is_exact_at_n_100(capsys: pytest.CaptureFixture[str]) -> None:
    found = Run(capsys, "function", "sparse_majority(5, n=100)", "--json").document
    assert found["exact"] is True
    assert found["n"] == 100
    counts = {0: 12 * 2**95, 3: 20 * 2**95}
    assert found["profile"] == [counts.get(s, 0) for s in range(101)]
    assert found["average_sensitivity"] == 1.875
    assert sorted(found["influences"]) == [0] * 95 + [0.375] * 5
    assert (found["degree"], found["sparsity"]) == (5, 16)
    assert found["weight_by_degree"][:6] == [0, 45 / 64, 0, 10 / 64, 0, 9 / 64]


@pytest.mark.parametrize("options", [[], ["--strings", "50"]])
def test_the_keys_of_function(capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    found = Run(capsys, "function", "maj(x1..x3) ^ x4", "--json", *options).document
    assert [key for key in found if key in FUNCTION_KEYS] == FUNCTION_KEYS
    assert set(found) - set(FUNCTION_KEYS) == {"function", "ones_share", "notes", "noise_bounds"}
    assert found["function"] == "maj(x1..x3) ^ x4"
    assert set(found["noise_stability"]) == {"0.5", "0.8", "0.9", "0.95", "0.99"}


@pytest.mark.parametrize(
    ("text", "n", "profile"),
    [("0", 3, [8, 0, 0, 0]), ("1", 3, [8, 0, 0, 0]), ("x1", 1, [0, 2]), ("x2", 3, [0, 8, 0, 0])],
)
def test_the_simplest_functions(capsys: pytest.CaptureFixture[str], text: str, n: int, profile: list[int]) -> None:
    assert Run(capsys, "function", text, "-n", str(n), "--json").document["profile"] == profile


@pytest.mark.parametrize(
    ("text", "average", "degree"),
    [("table(0x96)", 3, 3), ("table(0b0110, n=2)", 2, 2), ("address(3)", 2.5, 4), ("symmetric(0, 1, 1, 0)", 1.5, 2)],
)
def test_other_ways_to_say_a_function(
    capsys: pytest.CaptureFixture[str], text: str, average: float, degree: int
) -> None:
    found = Run(capsys, "function", text, "--json").document
    assert (found["average_sensitivity"], found["degree"]) == (average, degree)


def test_ten_thousand_bits(capsys: pytest.CaptureFixture[str]) -> None:
    found = Run(capsys, "function", "threshold(3, n=10000)", "--json").document
    sensitive = math.comb(10_000, 2) + math.comb(10_000, 3)
    assert found["profile"][0] == 2**10_000 - sensitive
    assert found["profile"][3] == math.comb(10_000, 3)
    assert found["profile"][9998] == math.comb(10_000, 2)


def test_chosen_correlations(capsys: pytest.CaptureFixture[str]) -> None:
    found = Run(
        capsys,
        "function",
        "x1 ^ x2",
        "--json",
        "--correlation",
        "0.25",
        "--correlation",
        "-1",
        "--correlation",
        "0.1234567",
    )
    assert found.document["noise_stability"] == {
        "0.25": 0.0625,
        "-1.0": 1,
        "0.1234567": pytest.approx(0.1234567**2),
    }
    assert set(found.document["noise_bounds"]) == {"0.25", "0.1234567"}  # no bound at a negative correlation


# ---------------------------------------------------------------- function --json, sampled


def test_random_100_falls_back_to_samples(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "function", "random(100)", "--json")
    assert run.err == (
        "exact sensitivity of 100 bits without a closed form would need a truth table, and those are kept to 30 "
        "bits: sampling 2,000 strings instead.\n"
    )
    found = run.document
    assert found["exact"] is False
    assert len(found["profile"]) == 101
    assert len(found["influences"]) == 100
    estimates = [
        *found["profile"],
        *found["influences"],
        *found["noise_stability"].values(),
        *(found[key] for key in ("average_sensitivity", "max_sensitivity", "min_sensitivity", "ones_share")),
    ]
    for estimate in estimates:
        assert set(estimate) == ESTIMATE_KEYS
        assert estimate["low"] <= estimate["value"] <= estimate["high"]
        assert (estimate["confidence"], estimate["samples"]) == (0.95, 2000)
    for count in found["profile"]:
        assert all(type(count[key]) is int for key in ("value", "low", "high"))
        assert 0 <= count["low"] <= count["high"] <= 2**100
    assert max(count["value"] for count in found["profile"]) > 2**53
    assert found["average_sensitivity"]["low"] < 50 < found["average_sensitivity"]["high"]
    assert found["degree"] is found["sparsity"] is found["weight_by_degree"] is None
    assert "seed 0" in found["notes"][0]


def test_samples_are_seeded(capsys: pytest.CaptureFixture[str]) -> None:
    base = ["function", "random(40)", "--strings", "200", "--json"]
    first, again, other = (Run(capsys, *base, "--seed", seed).document for seed in ("1", "1", "2"))
    assert first == again
    assert first["influences"] != other["influences"]


def test_sampled_intervals_hold_the_exact_values(capsys: pytest.CaptureFixture[str]) -> None:
    text = "maj(x1..x5) ^ (x6 & x7)"
    exact = Run(capsys, "function", text, "--json").document
    sampled = Run(capsys, "function", text, "--json", "--strings", "4000", "--confidence", "0.9999").document
    for key in ("average_sensitivity", "max_sensitivity", "min_sensitivity", "ones_share"):
        assert sampled[key]["low"] <= exact[key] <= sampled[key]["high"], key
    for key in ("profile", "influences"):
        for truth, estimate in zip(exact[key], sampled[key], strict=True):
            assert estimate["low"] <= truth <= estimate["high"]
    for rho, truth in exact["noise_stability"].items():
        estimate = sampled["noise_stability"][rho]
        assert estimate["low"] <= truth <= estimate["high"]
        assert estimate["confidence"] == 0.9999


def test_a_function_is_described_as_in_python(capsys: pytest.CaptureFixture[str]) -> None:
    for options, given in (((), {}), (("--strings", "50", "--seed", "3"), {"strings": 50, "seed": 3})):
        found = Run(capsys, "function", "majority(5)", "--json", *options).document
        portrait = describe("majority(5)", **given)
        bounds = {str(each.rho): each.as_json() for each in portrait_noise_bounds(portrait)}
        assert found == json.loads(json.dumps(portrait.as_json() | {"noise_bounds": bounds}))


def test_commands_leave_the_portraits_to_describe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[str] = []

    def noted(*given: Any, name: str, **options: Any) -> Portrait:
        described.append(name)
        return describe(*given, name=name, **options)

    monkeypatch.setattr(portraits, "describe", noted)
    assert Run(capsys, "function", "x1 & x2", "--json").code == 0
    assert Run(capsys, "compare", "x1 | x2", "x1 ^ x2", "--json").code == 0
    assert described == ["x1 & x2", "x1 | x2", "x1 ^ x2"]


@pytest.mark.parametrize("file", sorted(Path(portraits.__file__).parent.glob("*.py")), ids=lambda file: file.stem)
def test_no_command_writes_into_its_arguments(file: Path) -> None:
    """A check before the work and the work itself have to see the same arguments."""
    nodes = list(ast.walk(ast.parse(file.read_text("utf-8"))))
    parameters = [each for node in nodes if isinstance(node, ast.FunctionDef) for each in node.args.args]
    parsed = {each.arg for each in parameters if each.annotation and "Namespace" in ast.unparse(each.annotation)}
    stored = [node for node in nodes if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)]
    assert [ast.unparse(node) for node in stored if ast.unparse(node.value) in parsed] == []
    assert not {"setattr", "delattr"} & {node.id for node in nodes if isinstance(node, ast.Name)}


def test_exact_or_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "function", "random(31)", "--exact", "--json")
    assert run.code == 2
    assert "sample instead (--strings M" in run.err
    assert run.out == ""


# ---------------------------------------------------------------- the other commands


def test_compare(capsys: pytest.CaptureFixture[str]) -> None:
    found = Run(capsys, "compare", "majority(9)", "maj(x1..x7)", "--json").document
    strings = (np.arange(512)[:, None] >> np.arange(9)) & 1
    differ = int(np.sum((strings.sum(axis=1) > 4) != (strings[:, :7].sum(axis=1) > 3)))
    assert (found["differing_strings"], found["disagreement"]) == (differ, differ / 512)
    assert found["first"]["n"] == found["second"]["n"] == 9
    assert found["second"]["profile"][0] == 4 * (2**7 - 2 * math.comb(7, 3))


def test_compare_knows_equal_functions(capsys: pytest.CaptureFixture[str]) -> None:
    found = Run(capsys, "compare", "x1 -> x2", "~x1 | x2", "--json").document
    assert (found["differing_strings"], found["disagreement"]) == (0, 0)
    assert "The two are the same function." in Run(capsys, "compare", "x1 -> x2", "~x1 | x2").out


def test_compare_with_samples(capsys: pytest.CaptureFixture[str]) -> None:
    found = Run(capsys, "compare", "random(60)", "random(60, seed=1)", "--strings", "3000", "--json").document
    share = found["disagreement"]
    assert set(share) == set(found["differing_strings"]) == ESTIMATE_KEYS
    assert share["low"] < 0.5 < share["high"]
    assert found["differing_strings"]["low"] <= 2**59 <= found["differing_strings"]["high"]


def test_compare_exact_or_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    # Each has a closed form; their difference, on 40 shared bits, has none.
    arguments = ["compare", "majority(40)", "tribes(40)"]
    assert Run(capsys, *arguments, "--exact").code == 2
    assert Run(capsys, *arguments, "--json").document["disagreement"]["samples"] == 100_000


def test_zoo(capsys: pytest.CaptureFixture[str]) -> None:
    rows = Run(capsys, "zoo", "--json").document
    assert [row["name"] for row in rows] == [entry.name for entry in ZOO]
    for row in rows:
        assert row["usage"].startswith(f"{row['name']}(")
        assert parse(row["example"]).n >= 1
    page = Run(capsys, "zoo").out
    for entry in ZOO:
        assert entry.usage in page
        assert entry.meaning in page
        assert entry.example in page


def test_the_zoo_names_its_arguments_as_the_language_does(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"n": 24, "m": 3, "k": 2, "position": 2, "seed": 1, "width": 3}
    for entry in ZOO:
        if entry.name not in ("symmetric", "table"):
            names = re.findall(r"\w+", entry.usage)[1:]
            call = f"{entry.name}({', '.join(f'{name}={sizes[name]}' for name in names)})"
            assert parse(call).n >= 1, call


def test_test_degree(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = Run(capsys, "test-degree", "sparse_parity(3, n=100)", "--json").document
    assert sweep["first_accepted_degree"] == 3
    single = Run(capsys, "test-degree", "sparse_parity(3, n=100)", "--degree", "2", "--json").document
    assert (single["degree"], single["accepted"], single["confidence"]) == (2, False, 0.95)
    text = Run(capsys, "test-degree", "sparse_parity(3, n=100)").out
    assert text.endswith("degree 3 is the first that was accepted, so the true degree is at least 3.\n")
    text = Run(capsys, "test-degree", "x1 & x2", "--degree", "1").out
    assert text.endswith("degree at most 1 is rejected, since a trial shows a coefficient above degree 1.\n")


def test_a_sweep_that_runs_out_of_queries(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["test-degree", "parity(100)", "--max-queries", "5000"]
    found = Run(capsys, *arguments, "--json").document
    assert found["first_accepted_degree"] is None
    assert found["queries"] <= 5000
    assert "max_queries" in Run(capsys, *arguments).out


def test_test_sparsity(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = Run(capsys, "test-sparsity", "maj(x1..x5) ^ x6", "--json").document
    assert sweep["first_accepted_sparsity"] == 16
    single = Run(capsys, "test-sparsity", "maj(x1..x5) ^ x6", "--sparsity", "15", "--json").document
    assert single["accepted"] is False
    assert Run(capsys, "test-sparsity", "maj(x1..x5) ^ x6").out.endswith("the true sparsity is at least 16.\n")
    assert " is accepted, since " in Run(capsys, "test-sparsity", "x1 ^ x2", "--sparsity", "1", "--free", "1").out


def test_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--width", "64", "--layers", "2"]
    found = Run(capsys, "verdict", "parity(100)", *shape, "--json").document
    assert list(found) == ["function", "ruled_out", "theorem", "threshold", "zero_strings", "from_length", "note"]
    assert (found["ruled_out"], found["theorem"], found["zero_strings"]) == (True, "Cor 4.6 (000)", 0)
    assert found["threshold"] == pytest.approx(100**10.75)
    found = Run(capsys, "verdict", "majority(101)", *shape, "--json").document
    assert (found["ruled_out"], found["theorem"], found["from_length"]) == (False, None, None)
    assert found["zero_strings"] == 2**101 - 2 * math.comb(101, 50)
    page = Run(capsys, "verdict", "parity(40)", *shape).out
    assert "nothing follows at this length" in re.sub(r"[\s│]+", " ", page)


def test_a_threshold_beyond_floats_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["verdict", "parity(100)", "--width", "1000000", "--layers", "1"]
    assert Run(capsys, *arguments, "--json").document["threshold"] is None
    assert "2^3321" in Run(capsys, *arguments).out


def test_plot(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "f.svg"
    run = Run(capsys, "function", "majority(5)", "--plot", str(target), "--json")
    assert run.document["n"] == 5
    assert run.err == f"wrote {target}\n"
    assert target.read_text(encoding="utf-8").startswith("<svg")


def test_the_page_is_plain_when_it_is_not_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    out = Run(capsys, "function", "majority(21)").out
    assert "\x1b" not in out
    assert "1,391,720" in out
    assert "705,432" in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "--version")
    assert (run.code, run.out) == (0, f"flipscope {__version__}\n")


@pytest.mark.parametrize("command", ["function", "compare", "zoo", "test-degree", "test-sparsity", "verdict"])
def test_every_command_has_help_with_examples_that_parse(capsys: pytest.CaptureFixture[str], command: str) -> None:
    run = Run(capsys, command, "--help")
    assert run.code == 0
    assert "--json" in run.out
    examples = re.findall(rf"^  flipscope {command}\b(.*)$", run.out, re.MULTILINE)
    assert examples
    for option, expression in re.findall(r'(--zeros )?"(.*?)"', " ".join(examples)):
        assert parse_count(expression).terms if option else parse(expression.replace("{n}", "9")).n >= 1


# ---------------------------------------------------------------- bad input

BAD_OPTIONS = [
    (["function", "x1", "-n", "0"], "n = 0"),
    (["function", "x1", "-n", "-3"], "n = -3"),
    (["function", "x1", "-n", "10001"], "between 1 and 10000"),
    (["function", "x1", "-n", "2.5"], "'2.5'"),
    (["function", "x1", "--strings", "0"], "strings must be"),
    (["function", "x1", "--strings", "-5"], "not -5"),
    (["function", "x1", "--strings", "9" * 30], "strings would take 1 PiB or more of memory"),
    (["compare", "x1", "x2", "--strings", "9" * 30], "strings would take 1 PiB or more of memory"),
    (["function", "x1", "--confidence", "1.5"], "not 1.5"),
    (["function", "x1", "--confidence", "1"], "not 1.0"),
    (["function", "x1", "--confidence", "0"], "not 0.0"),
    (["function", "x1", "--confidence", "nan"], "not nan"),
    (["function", "random(100)", "--confidence", "nan"], "not nan"),
    (["function", "x1", "--correlation", "2"], "rho = 2.0"),
    (["function", "x1", "--correlation", "nan"], "rho = nan"),
    (["function", "random(40)", "--strings", "5", "--correlation", "2"], "-1 and 1"),
    (["function", "x1", "--seed", "-1"], "seed must be"),
    (["function", "x1", "--exact", "--strings", "3"], "--exact"),
    (["function", "x1", "--plot", "f.gif"], "'f.gif'"),
    (["function", "x1", "--plot", ""], ".svg"),
    (["function", "x1", "--plot", "no/such/folder/f.svg"], "no/such/folder"),
    (["function", "random(100)", "--exact"], "30 bits"),
    (["function"], "EXPR"),
    (["function", "x1", "--no-such-option"], "--no-such-option"),
    (["compare", "x1"], "EXPR"),
    (["compare", "x1", "x2", "--confidence", "2"], "not 2.0"),
    (["test-degree", "x1", "--degree", "-1"], "degree must be"),
    (["test-degree", "x1", "--epsilon", "0"], "epsilon must"),
    (["test-degree", "x1", "--epsilon", "nan"], "epsilon must"),
    (["test-degree", "parity(100)", "--degree", "50"], "max_queries"),
    (["test-degree", "x1", "--max-queries", "0"], "max_queries"),
    (["test-sparsity", "x1", "--sparsity", "-1"], "sparsity must be"),
    (["test-sparsity", "x1", "--free", "0"], "free must be"),
    (["test-sparsity", "parity(40)", "--free", "30"], "free is 30"),
    (["verdict", "x1 ^ x2", "--width", "1", "--layers", "1"], "width must be"),
    (["verdict", "x1 ^ x2", "--width", "1" + "0" * 400, "--layers", "1"], "width must be"),
    (["verdict", "x1 ^ x2", "--width", "64", "--layers", "0"], "layers must be"),
    (["verdict", "x1", "--width", "64", "--layers", "2"], "at least 2 bits"),
    (["verdict", "x1 ^ x2", "--layers", "2"], "--width"),
    (["verdict", "random(40) ^ x1", "--width", "64", "--layers", "2"], "'random(40) ^ x1'"),
    (["no-such-command"], "'no-such-command'"),
    ([], "COMMAND"),
]
BAD_EXPRESSIONS = [
    ("foo(3)", "unknown name 'foo'", 0),
    ("x1 &", "ends too early", 4),
    ("x1 x2", "unexpected 'x2'", 3),
    ("maj(x1, (x2)", "never closed", 3),
    ("majority(0)", "n = 0", 0),
    ("x0", "variables start at x1", 0),
    ("", "the expression is empty", 0),
    ("1 + 1", "unexpected '+'", 2),
]


def is_one_sentence(line: str) -> bool:
    return bool(re.fullmatch(r"flipscope.*[^.]\.", line)) and not re.search(r"\.\s+[A-Z]", line)


@pytest.mark.parametrize("json_too", [False, True])
@pytest.mark.parametrize(("arguments", "fragment"), BAD_OPTIONS)
def test_bad_options(capsys: pytest.CaptureFixture[str], arguments: list[str], fragment: str, json_too: bool) -> None:
    run = Run(capsys, *arguments, *(["--json"] if json_too and len(arguments) > 1 else []))
    assert run.code == 2
    assert run.out == ""
    assert run.err.count("\n") == 1
    assert is_one_sentence(run.err.rstrip("\n")), run.err
    assert fragment in run.err


@pytest.mark.parametrize("command", ["function", "test-degree", "test-sparsity"])
@pytest.mark.parametrize(("text", "fragment", "column"), BAD_EXPRESSIONS)
def test_bad_expressions(
    capsys: pytest.CaptureFixture[str], command: str, text: str, fragment: str, column: int
) -> None:
    run = Run(capsys, command, text)
    assert run.code == 2
    assert run.out == ""
    sentence, shown, caret = run.err.removesuffix("\n").split("\n")
    assert is_one_sentence(sentence), run.err
    assert fragment in sentence
    assert shown == f"  {text}"
    assert caret == " " * (2 + column) + "^"


def test_too_few_bits_for_the_expression(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, "function", "x1 ^ x5", "-n", "3")
    assert run.code == 2
    assert run.err == "flipscope: n = 3 is too small; this needs 5 bits.\n  x1 ^ x5\n       ^\n"


def test_bad_input_draws_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert Run(capsys, "function", "x1", "--confidence", "2", "--plot", str(tmp_path / "f.svg")).code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "fragment"),
    [("f" * 10_000 + ".svg", "File name too long"), ("loop/f.svg", "loop"), ("pipe.svg", "it is not a file")],
)
def test_figures_with_names_that_are_no_good(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, fragment: str
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe.svg")
    run = Run(capsys, "function", "x1", "--plot", str(tmp_path / name))
    assert (run.code, run.out) == (2, "")
    assert run.err.count("\n") == 1
    assert fragment in run.err
    assert (tmp_path / "pipe.svg").is_fifo()


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (MemoryError(), 1, "there is not enough memory for this: use smaller sizes"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 1, "there is not enough memory for this"),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), 1, "there is not enough memory"),
        (OSError(12, "Cannot allocate memory"), 1, "there is not enough memory for this"),
        (OSError(24, "Too many open files"), 1, "too many files are open: raise the limit (ulimit -n 1024)"),
        (OSError(24, "Too many open files", "name"), 1, "too many files are open"),
        (RuntimeError("can't start new thread"), 1, "no further thread can be started: raise the limits"),
        (PermissionError(13, "Permission denied", "secret"), 2, "secret cannot be used: Permission denied"),
    ],
)
def test_what_the_system_refuses_is_no_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, sentence: str
) -> None:
    def refused(arguments: Any) -> int:
        raise error

    monkeypatch.setattr(zoo, "run", refused)
    run = Run(capsys, "zoo")
    assert (run.code, run.out) == (code, "")
    assert sentence in run.err


def test_a_small_limit_of_open_files_is_a_sentence(tmp_path: Path) -> None:
    command = ["run", "low-variance", "--scale", "smoke", "--limit", "1", "--workers", "2", "--results", "results"]
    limited = ["sh", "-c", 'ulimit -n 8; exec "$@"', "sh", sys.executable, "-m", "flipscope.cli", *command]
    run = subprocess.run(limited, capture_output=True, text=True, cwd=tmp_path)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr == (
        "flipscope: too many files are open: raise the limit (ulimit -n 1024), or use fewer --workers.\n"
    )


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError("a bug"), ImportError("a bug")])
def test_a_bug_is_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(arguments: Any) -> int:
        raise error

    monkeypatch.setattr(zoo, "run", broken)
    with pytest.raises(type(error), match="a bug"):
        Run(capsys, "zoo")


def test_an_interrupt_is_no_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(arguments: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(zoo, "run", interrupted)
    run = Run(capsys, "zoo")
    assert (run.code, run.out, run.err) == (130, "", "flipscope: interrupted.\n")


# ---------------------------------------------------------------- as a process


def test_help_loads_nothing_heavy() -> None:
    code = """
import sys
from flipscope.cli import main
try:
    main(["--help"])
except SystemExit as stop:
    assert stop.code == 0
heavy = {"torch", "numba", "numpy", "scipy", "vl_convert", "lark", "rich"}
print(sorted(heavy & set(sys.modules)))
main(["function", "majority(21)", "--json"])
print(sorted({"torch", "numba", "vl_convert"} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    lines = run.stdout.splitlines()
    assert lines[0].startswith("usage: flipscope")
    assert lines[-3] == lines[-1] == "[]"


def test_training_without_dropout_loads_no_compiler(tmp_path: Path) -> None:
    code = f"""
import sys
from flipscope.cli import main
main(["train", "majority(9)", "--steps", "3", "-o", {str(tmp_path / "model.flip")!r}])
print("numba" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.splitlines()[-1] == "False"


def test_exit_codes() -> None:
    run = shell("function", "maj(x1..")
    assert run.returncode == 2
    assert run.stdout == b""
    assert b"Traceback" not in run.stderr
    assert run.stderr.endswith(b"\n")
    assert shell("function", "x1", "--json").returncode == 0


@pytest.mark.parametrize("arguments", [["function", "parity(2000)", "--json"], ["zoo"]])
def test_a_reader_that_goes_away(arguments: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "flipscope.cli", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()  # long before anything is printed
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0


def redirected(redirection: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """A call whose standard streams the shell has closed or led elsewhere."""
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-m", "flipscope.cli", *arguments]
    return subprocess.run(command, capture_output=True)


needs_a_full_device = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")


@needs_a_full_device
@pytest.mark.parametrize("arguments", [["function", "x1"], ["--help"]])
def test_a_full_disk(arguments: list[str]) -> None:
    run = redirected(">/dev/full", *arguments)
    assert run.returncode == 1
    assert run.stderr == b"flipscope: the output cannot be written: No space left on device.\n"


@pytest.mark.parametrize(("redirection", "said"), [(">&-", True), ("<&- >&- 2>&-", False)])
def test_a_closed_output(redirection: str, said: bool) -> None:
    run = redirected(redirection, "function", "x1")
    assert run.returncode == 1
    assert run.stdout == b""
    assert run.stderr == (b"flipscope: the output cannot be written: Bad file descriptor.\n" if said else b"")


@needs_a_full_device
@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_words_that_cannot_be_said_are_dropped(redirection: str) -> None:
    run = redirected(redirection, "function", "random(31)", "--json")  # says that it samples
    assert run.returncode == 0
    assert json.loads(run.stdout)["exact"] is False
    assert run.stderr == b""
    assert redirected(redirection, "function", "x0").returncode == 2


def test_a_terminal_without_unicode() -> None:
    run = shell("function", "x1 ∧ x2", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert run.returncode == 0
    page = run.stdout.decode("ascii")
    assert "x1 ? x2" in page
    assert "####" in page


def test_a_verdict_on_a_family_by_its_zero_strings_and_by_examples(capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--width", "64", "--layers", "2"]
    assert main(["verdict", "--zeros", "N^2 + 1", *shape, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ruled_out"], found["theorem"], found["from_length"]) == (True, "Cor 4.6 (000)", 65)
    assert main(["verdict", "--zeros", "10^7*N^2", "--width", "338", "--layers", "24"]) == 0
    page = capsys.readouterr().out
    assert "N = 10^336" in page
    assert "ruled out by Cor 4.6" in page
    assert main(["verdict", "--family", "majority({n})", "--lengths", "11,21", *shape, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ruled_out"] is False
    assert [example["length"] for example in found["examples"]] == [11, 21]
    assert main(["verdict", "--family", "thr(2, x1..x{n})", "--lengths", "5,7", *shape]) == 0
    assert "not settled by examples" in capsys.readouterr().out
    for wrong in (
        [],
        ["parity(9)", "--zeros", "N"],
        ["--zeros", "N +"],
        ["--family", "majority({n})"],
        ["--family", "majority({n})", "--lengths", "5,x"],
        ["--zeros", "N", "-n", "5"],
    ):
        assert main(["verdict", *wrong, *shape]) == 2
        said = capsys.readouterr()
        assert said.err.startswith("flipscope: ")
        assert not said.out


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("data", "there is no command 'data'; did you mean data check?\n"),
        ("sensitvity", "there is no command 'sensitvity'; did you mean sensitivity?\n"),
        ("xyzzy", "there is no command 'xyzzy'; there are function, compare, zoo,"),
    ],
)
def test_an_unknown_command_names_its_neighbours(word: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word, "--help"]) == 2
    assert capsys.readouterr().err.startswith(f"flipscope: {said}")
