"""Public functions refuse what they cannot mean, in one sentence and before they begin: one bad argument at a time."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

import flipscope
from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.bounds import covering, geometry, hardness, noise_stability, pac_bayes
from flipscope.constructions import fourier as constructed
from flipscope.constructions import sparse_variables
from flipscope.cube import estimate, fourier_sums, functions, sensitivity, spectrum, testers
from flipscope.data.bpe import load_bpe, trained_bpe
from flipscope.data.checking import check_data
from flipscope.data.corruptions import corrupt
from flipscope.data.image_data import image_data
from flipscope.data.images import load_images
from flipscope.data.languages import draw
from flipscope.data.modular import modular_addition
from flipscope.data.photos import load_photos
from flipscope.data.texts import load_texts
from flipscope.models import initialise, presets, save
from flipscope.models.addition_network import AdditionNetwork
from flipscope.models.token_attention import TokenAttention
from flipscope.probes import fourier, kernels, landscape, recognition, sampled_kernels
from flipscope.training.fit import evaluate, fit
from flipscope.training.low_sensitivity import NoiseAugmentation, SensitivityPenalty, SensitivityWatch
from flipscope.training.recipes.low_sensitivity import image_recipe

BITS = np.array([[0, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 1]], np.uint8)
NUMBERS = BITS.astype(np.float32)
TARGETS = np.array([1.0, 0.0, 1.0])
MAJORITY = functions.majority(4)
SIZES = {"width": 8, "layers": 1, "heads": 2}
CONFIG = presets.encoder(**SIZES)
MODEL = flipscope.Transformer(CONFIG, seed=1)
LINEAR = nn.Linear(4, 1)
SETS = draw(MAJORITY, 4, {"train": 6, "validation": 4})
SUM = fourier_sums.parse_sum("0.6*x1x2 + 0.64*x3", 4)
SAMPLING = {"samples": 20, "max_queries": 1000, "confidence": 0.9, "validity": "fixed", "seed": 0, "batch_rows": 10}
SAID = {"encoding": "auto", "output": "auto", "threshold": 0.0, "precision": "auto", "device": None, "batch": 4}
OPTIONS = {"path": "auto", "heuristic": False, "progress": None}
MOVING = {"parameters": None, "seed": 0, "loss": "mse", "forward": None}
NOISE = {"variance": 1.0, "strength": 0.5, "how": "mix", "feature_mask": None, "at": None, "generator": None}
TEST = {"oracle": MAJORITY, "n": 4, "epsilon": 0.1, "confidence": 0.9, "seed": 0}


def logit(bits: torch.Tensor) -> torch.Tensor:
    return bits.sum(dim=1) - 1.5


# What is called, with arguments that it takes.
ENTRIES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "parse": (flipscope.parse, {"text": "maj(x1..x5)", "n": 6}),
    "from_table": (flipscope.BooleanFunction.from_table, {"table": np.array([0, 1, 1, 0]), "n": 2}),
    "from_words": (flipscope.BooleanFunction.from_words, {"words": np.zeros(1, np.uint64), "n": 6}),
    "symmetric": (flipscope.BooleanFunction.symmetric, {"values": [0, 1, 1]}),
    "junta": (flipscope.BooleanFunction.junta, {"inner": functions.majority(3), "positions": [0, 2, 4], "n": 5}),
    "BooleanFunction": (flipscope.BooleanFunction, {"n": 4, "node": MAJORITY.node}),
    "call": (MAJORITY, {"bits": BITS}),
    "from_callable": (flipscope.BooleanFunction.from_callable, {"function": MAJORITY, "n": 4, "name": "f"}),
    "restrict": (MAJORITY.restrict, {"fixed": {0: 1}}),
    "compose": (MAJORITY.compose, {"inners": [functions.parity(2)] * 4}),
    "sparse_parity": (functions.sparse_parity, {"m": 2, "n": 5, "seed": 0}),
    "describe": (
        flipscope.describe,
        {
            "function": MAJORITY,
            "strings": 20,
            "seed": 0,
            "confidence": 0.9,
            "rhos": [0.5],
            "name": "f",
            "exact": False,
            "notice": None,
            "progress": None,
        },
    ),
    "profile": (sensitivity.profile, {"f": MAJORITY, "progress": None}),
    "block_sensitivity": (sensitivity.block_sensitivity, {"f": MAJORITY}),
    "string_sensitivity": (sensitivity.string_sensitivity, {"f": MAJORITY, "bits": BITS}),
    "degree": (spectrum.degree, {"f": MAJORITY}),
    "coefficient": (spectrum.coefficient, {"f": MAJORITY, "positions": [0]}),
    "noise_stability": (spectrum.noise_stability, {"f": MAJORITY, "rho": 0.5}),
    "walsh_hadamard": (spectrum.walsh_hadamard, {"values": [1.0, 2.0]}),
    "estimate.average_sensitivity": (
        estimate.average_sensitivity,
        {"oracle": MAJORITY, "n": 4, "value_range": (0, 1), **SAMPLING},
    ),
    "estimate.fourier_coefficient": (
        estimate.fourier_coefficient,
        {"oracle": MAJORITY, "n": 4, "positions": [0], **SAMPLING},
    ),
    "estimate.mean_from_samples": (estimate.mean_from_samples, {"samples": [0.5, 1.0], "low": 0.0, "high": 1.0}),
    "low_degree_test": (testers.low_degree_test, {**TEST, "degree": 1, "trials": 5, "tolerance": 1e-9}),
    "FourierSum": (fourier_sums.FourierSum, {"length": 4, "sets": ((0, 1),), "coefficients": (0.5,)}),
    "sensitivity": (flipscope.sensitivity, {"model": LINEAR, "strings": BITS, "real": False, **OPTIONS}),
    "sensitivities": (flipscope.sensitivities, {"model": MODEL, "strings": BITS, **OPTIONS}),
    "sensitivity_profile": (
        flipscope.sensitivity_profile,
        {"model": LINEAR, "n": 4, "strings": 3, "exhaustive": False, "seed": 0, "confidence": 0.9, **OPTIONS},
    ),
    "influences": (
        flipscope.influences,
        {"model": MODEL, "strings": BITS, "of": "blocks.0", "by_position": False, "progress": None},
    ),
    "blowup": (
        flipscope.blowup,
        {"model": MODEL, "strings": BITS, "all_positions": True, "forward": None},
    ),
    "sharpness": (
        flipscope.sharpness,
        {"model": LINEAR, "inputs": NUMBERS, "targets": TARGETS, "measure": "loss", "std": 0.1, "adaptive": False}
        | {"draws": 3, "over_outputs": "mean", "confidence": 0.9, "interval": "student"}
        | {**MOVING, "progress": None},
    ),
    "token_sensitivity": (
        flipscope.token_sensitivity,
        {"model": LINEAR, "inputs": NUMBERS, "at": None, "feature_mask": None, "mask": None, "how": "noise"}
        | {"variance": 0.1, "normalise": False, "whole_variance": 0.1, "vocabulary": None, "count_special": None}
        | {"draws": 1, "tokens": 2, "precision": None, "confidence": 0.9, "seed": 0, "words": None}
        | {"label_words": None, "first_order": False, "progress": None},
    ),
    "curvature": (
        flipscope.curvature,
        {
            "model": LINEAR,
            "loss": "mse",
            "data": (NUMBERS, TARGETS),
            "what": ["trace", "eigenvalues", "density"],
            "method": "hutchinson",
        }
        | {"probes": 6, "eigenvalues": 1, "tolerance": 1e-3, "restarts": 5, "density_probes": 2, "density_steps": 3}
        | {"confidence": 0.9, "reduction": "mean", **MOVING},
    ),
    "landscape": (
        landscape.landscape,
        {"model": LINEAR, "inputs": NUMBERS, "targets": TARGETS, "dimensions": 1, "directions": 1, "points": 3}
        | {"reach": 1.0, "normalise": "filter", "progress": None, **MOVING},
    ),
    "recognition": (
        recognition.recognition,
        {"model": logit, "function": MAJORITY, "margin": 0.1, "samples": 5, "seed": 0},
    ),
    "Subject": (flipscope.Subject, {"model": LINEAR, **SAID, "memory_limit": 1 << 28, "diverged": False}),
    "accept": (recognition.accept, {"logits": TARGETS, "margin": 0.1}),
    "fourier.spectrum": (fourier.spectrum, {"model": logit, "n": 4}),
    "fourier.coefficient": (
        fourier.coefficient,
        {"model": logit, "n": 4, "positions": [0], "values": "logit", "value_range": (-9.0, 9.0), **SAMPLING},
    ),
    "fourier.weight_by_degree": (
        fourier.weight_by_degree,
        {
            "model": logit,
            "n": 4,
            "degrees": [1],
            "values": "sign",
            "samples": 20,
            "confidence": 0.9,
            "seed": 0,
        },
    ),
    "fourier.degree_test": (
        fourier.degree_test,
        {
            "model": logit,
            "n": 4,
            "degree": 1,
            "values": "sign",
            "trials": 5,
            "epsilon": 0.1,
            "seed": 0,
        },
    ),
    "load_images": (load_images, {"name": "digits", "folder": None}),
    "load_texts": (load_texts, {"name": "synthetic-paraphrases", "folder": None}),
    "load_photos": (load_photos, {"name": "imagenet-sample", "folder": "."}),
    "load_bpe": (load_bpe, {"style": "roberta", "folder": "."}),
    "trained_bpe": (trained_bpe, {"texts": ["a text"], "vocabulary": 300}),
    "check_data": (check_data, {"folder": "."}),
    "corrupt": (
        corrupt,
        {"images": np.zeros((1, 32, 32, 3), np.uint8), "name": "contrast", "severity": 1, "seed": 0},
    ),
    "image_data": (image_data, {"name": "digits", "train": 9, "test": 9, "scaling": "signs", "crop": 1, "flip": True}),
    "image_recipe": (
        image_recipe,
        {"data": "digits", "model": "cnn-small", "seed": 0, "optimiser": "adam", "learning_rate": 0.1, "batch": 5}
        | {"epochs": 2, "goal": 0.5, "momentum": 0.0, "weight_decay": 0.0, "decay_every": 2, "decay_factor": 0.5},
    ),
    "modular_addition": (modular_addition, {"modulus": 5, "share": 0.5, "seed": 0}),
    "AdditionNetwork": (AdditionNetwork, {"modulus": 5, "width": 8, "heads": 2, "hidden": 8, "seed": 0}),
    "TokenAttention": (TokenAttention, {"vocabulary": 5, "length": 4, "width": 3, "std": 0.1, "seed": 0}),
    "kernels.transformer_kernel": (
        kernels.transformer_kernel,
        {"bits": 3, "depth": 1, "kind": "ck", "attention": "linear", "readout": "flat"},
    ),
    "kernels.mlp_kernel": (kernels.mlp_kernel, {"bits": 3, "depth": 1, "kind": "ck", "inputs": "bits"}),
    "kernels.eigenvalues_by_degree": (kernels.eigenvalues_by_degree, {"values": [1.0, 0.5, 0.0]}),
    "kernels.chain_holds": (kernels.chain_holds, {"eigenvalues": [1.0, 0.5, 0.0], "tolerance": 0.0}),
    "kernels.kernel_matrix": (
        kernels.kernel_matrix,
        {"bits": 4, "depth": 1, "embedding": "printed", "tokens": 2, "kind": "ck", "attention": "linear"}
        | {"readout": "flat"},
    ),
    "kernels.monomial_check": (kernels.monomial_check, {"matrix": np.eye(4), "tolerance": 1e-9}),
    "kernels.CubeKernel": (kernels.CubeKernel, {"kind": "ck", "values": (1.0, 0.5)}),
    "sampled_kernel": (
        sampled_kernels.sampled_kernel,
        {"bits": 2, "depth": 1, "kind": "ck", "attention": "softmax", "readout": "flat", "draws": 2, "repeats": 2}
        | {"seed": 0, "confidence": 0.9},
    ),
    "finite_kernel": (
        sampled_kernels.finite_kernel,
        {"bits": 2, "depth": 1, "kind": "ck", "attention": "linear", "readout": "flat", "width": 4, "heads": 2}
        | {"key_width": 2, "networks": 2, "seed": 0, "confidence": 0.9},
    ),
    "Transformer": (
        flipscope.Transformer,
        {"config": CONFIG, "scheme": "pytorch", "seed": 0, "dtype": torch.float32},
    ),
    "presets.encoder": (presets.encoder, {**SIZES, "ffn_width": 8, "eps": 1e-5}),
    "presets.fourier": (presets.fourier, {"length": 4, "bit_width": 6, "dropout": 0.1}),
    "load": (flipscope.load, {"path": "model.safetensors"}),
    "save": (save, {"model": MODEL, "path": "model.safetensors", "notes": {"a": "b"}}),
    "initialise": (initialise, {"model": MODEL, "scheme": "uniform", "seed": 0, "scope": "all", "scale": 1.0}),
    "train": (
        flipscope.train,
        {"function": "majority(5)", "model": "encoder", "steps": 1, "batch": 4, "learning_rate": 0.01, "seed": 0}
        | {"init": "pytorch", "optimiser": "adam", "weight_decay": 0.0, "loss": "bce", "train_strings": 8, "goal": 0.9}
        | {"length": 5, "labels": "signs", "clip": 1.0, "decay_on": "all", "constant_rate": False, "keep": "best"}
        | {"log": [], "device": "cpu", "checkpoint": None, "progress": None, **SIZES},
    ),
    "fit": (
        fit,
        {"model": MODEL, "train": SETS["train"], "validation": SETS["validation"], "learning_rate": 0.01, "batch": 4}
        | {"seed": 0, "optimiser": "adam", "weight_decay": 0.0, "decay_on": "all", "clip": 1.0, "loss": "bce"}
        | {"labels": "signs", "inputs": "bits", "terms": [], "decay_after": 5, "decay_factor": 0.5, "stop_after": 10}
        | {"max_epochs": 1, "max_steps": 1, "max_seconds": 5.0, "restore": "best", "every": 1, "callback": None}
        | {"until": None, "progress": None, "log": [], "keeper": None, "device": "cpu"},
    ),
    "evaluate": (
        evaluate,
        {"model": MODEL, "data": SETS["train"], "loss": "bce", "inputs": "bits", "device": "cpu", "confidence": 0.9},
    ),
    "SensitivityPenalty": (SensitivityPenalty, NOISE),
    "NoiseAugmentation": (NoiseAugmentation, {**NOISE, "criterion": None}),
    "SensitivityPenalty.applied": (
        SensitivityPenalty(variance=1.0).applied,
        {"loss": torch.tensor(1.0), "model": LINEAR, "inputs": torch.ones(3, 4), "outputs": torch.ones(3, 1)},
    ),
    "SensitivityWatch": (
        SensitivityWatch,
        {"model": LINEAR, "inputs": NUMBERS, "every": 1, "variance": 1.0, "draws": 1, "feature_mask": None},
    ),
    "run": (
        flipscope.run,
        {"study": "low-variance", "scale": "smoke", "results": "path", "workers": 0, "limit": 1, "observer": None},
    ),
    "report.write": (
        flipscope.report.write,
        {"output": "path", "studies": ["low-variance"], "results": "path", "scale": "smoke"},
    ),
    "bounds.low_variance_bound": (geometry.low_variance_bound, {"width": 4, "eta": 0.1, "rho": 1.0}),
    "bounds.fourier_gap": (hardness.fourier_gap, {"f_weights": [0.0, 0.5, 0.5], "as_g": 0.5}),
    "bounds.change_bound": (noise_stability.change_bound, {"exponent": 1.5, "rho": 0.9}),
    "bounds.degree_bound": (noise_stability.degree_bound, {"max_sensitivity": 3}),
    "bounds.noise_bounds": (noise_stability.noise_bounds, {"f": MAJORITY, "rhos": [0.5]}),
    "bounds.portrait_noise_bounds": (
        noise_stability.portrait_noise_bounds,
        {"portrait": flipscope.describe(MAJORITY), "rhos": [0.5]},
    ),
    "bounds.model_noise_bounds": (
        noise_stability.model_noise_bounds,
        {"model": logit, "n": 4, "rhos": [0.5], "strings": 5, "pairs": 5, "seed": 0, "confidence": 0.9},
    ),
    "bounds.linear_cover": (covering.linear_cover, {"norm": 1.0, "radius": 1.0, "eps": 0.1, "count": 10}),
    "bounds.class_bound": (
        pac_bayes.class_bound,
        {"sparsity": 2, "degree": 2, "length": 8, "samples": 1000, "delta": 0.05, "form": "truncated", "tight": False},
    ),
    "construct": (
        sparse_variables.construct,
        {"function": flipscope.parse("x1 & x3", 6), "mapping": "deterministic", "heads": 1, "seed": 0, "mlp": True},
    ),
    "fourier_network": (
        constructed.fourier_network,
        {"target": SUM, "mask": 0.0, "readout": "attention", "code_width": 9, "seed": 0},
    ),
}
PATHS = ("path", "results", "output", "checkpoint")


class Nothing:
    """What no function can mean."""


def bad_values(name: str, good: Any) -> Iterator[Any]:
    """What cannot stand where such a value does."""
    yield from (Nothing(), 1j, datetime.date(2020, 1, 1), np.array([[None, 1]], object))
    yield torch.ones(2, 4, device="meta")
    yield np.array(["2020-01-01"], "datetime64[D]")
    if name in PATHS:
        yield from (3, b"path", ["path"])
    elif isinstance(good, bool):
        yield from (1, "yes", None, np.ones((2, 2)))
    elif isinstance(good, int):
        yield from (2.5, math.nan, "three", True, [3], -1, -(10**400), np.array([1, 2]))
    elif isinstance(good, float):
        yield from ("half", True, [0.5], 10**400, np.array([0.5, 0.5]), {"a": 1.0}, math.nan)
    elif isinstance(good, str):
        yield from (3, b"Fast", np.array(["a", "b"]), ["a"])
    elif isinstance(good, np.ndarray):
        yield from (torch.ones(2, 4).to_sparse(), "ab", [[0, 1], [1]], {"a": 1}, np.ones((2, 4), complex))
        yield np.ma.masked_array(good, mask=np.ones(good.shape))
    elif isinstance(good, list | tuple):
        yield from (3, "ab", [None], [[[0], 1]], {"a": 1})
    elif good is None or callable(good):
        yield from (3, -0.5, [0])


def refused(function: Callable[..., Any], arguments: dict[str, Any]) -> str | None:
    """What was said, in one sentence; None where the call was taken."""
    try:
        function(**arguments)
    except InputError as error:
        return str(error)
    return None


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_bad_argument_is_refused_in_one_sentence(entry: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    function, good = ENTRIES[entry]
    for name, value in good.items():
        for bad in bad_values(name, value):
            said = refused(function, good | {name: bad})
            assert said is not None, f"{entry} took {name}={bad!r}"
            assert "\n" not in said, said
    assert list(tmp_path.iterdir()) == []  # nothing had begun


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_unknown_keyword_is_pythons_own_error(entry: str) -> None:
    function, good = ENTRIES[entry]
    with pytest.raises((TypeError, InputError), match="no_such_option"):
        function(**good, no_such_option=1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: sensitivity.profile(3), "f must be a BooleanFunction, not 3."),  # type: ignore[arg-type]
        (lambda: flipscope.sensitivity(LINEAR, BITS, path="Fast"), "path='Fast' is not one of auto, general, fast."),
        (lambda: flipscope.run(3), "study must be a Study or a str, not 3."),  # type: ignore[arg-type]
        (lambda: flipscope.sharpness(LINEAR, NUMBERS, std="a"), "std must be a number or None, not 'a'."),  # type: ignore[arg-type]
        (lambda: flipscope.report.write("r.html", "low-variance"), "studies must be a sequence, each a str, not 'low-"),
        (lambda: flipscope.train("majority(5)", width="wide"), "width must be a number, not 'wide'."),  # type: ignore[arg-type]
        (lambda: recognition.recognition(nn.Linear(5, 1), MAJORITY, 0.1), "the model failed on 8 strings of length 4"),
        (lambda: flipscope.sharpness(nn.Linear(5, 1), NUMBERS, std=0.1), "the model failed with RuntimeError"),
        (lambda: estimate.profile(lambda bits: bits.no_such, 4), "the oracle failed with AttributeError"),
        (lambda: estimate.profile(MAJORITY, 4, samples=10**400), "samples would take more than 10"),
    ],
)
def test_what_is_said(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert said in str(caught.value)


def test_numbers_of_numpy_and_torch_are_taken() -> None:
    assert flipscope.sensitivity_profile(logit, np.int64(3), strings=np.int32(4)).n == 3
    assert sensitivity.profile(functions.majority(np.int64(3))) == [2, 0, 6, 0]
    assert spectrum.noise_stability(MAJORITY, np.float32(0.5)) == spectrum.noise_stability(MAJORITY, 0.5)
    assert spectrum.noise_stability(MAJORITY, Fraction(1, 2)) == spectrum.noise_stability(MAJORITY, 0.5)
    assert spectrum.coefficient(MAJORITY, np.array([0])) == spectrum.coefficient(MAJORITY, iter({0}))
    assert flipscope.sensitivity(logit, torch.ones(2, 3, requires_grad=True)).tolist() == [0, 0]


def test_annotations_are_read_as_a_caller_reads_them() -> None:
    @checked_arguments
    def called(
        whole: int = 1,
        share: float = 0.5,
        sure: bool = True,
        side: Literal["left", 1] = 1,
        places: list[int] | tuple[int, float] = (1, 0.5),
        *rest: int,
        names: dict[str, int] | None = None,
        **more: int,
    ) -> Any:
        return whole

    assert type(called(np.int8(3))) is int
    assert called(1, 2, np.bool_(False), "left", (1, 2), 3, 4, names={"a": 1}, other=2) == 1
    for bad in (
        {"whole": 1.0},
        {"whole": True},
        {"share": "a"},
        {"share": 10**400},
        {"sure": 0},
        {"side": True},
        {"side": [1]},
        {"places": (1,)},
        {"places": "ab"},
        {"names": {1: 1}},
        {"other": "a"},
    ):
        with pytest.raises(InputError, match=next(iter(bad))):
            called(**bad)  # type: ignore[arg-type]
