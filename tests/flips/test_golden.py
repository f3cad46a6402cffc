"""Numbers that the engine of flips and the compiled loops must go on giving: stored results rest on them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from flipscope.adapters.subject import Subject
from flipscope.basics.seeds import generators, random_strings
from flipscope.cube import functions, sensitivity, spectrum
from flipscope.cube.functions import BooleanFunction
from flipscope.models.presets import encoder, hardness, mingpt, recognizer
from flipscope.models.transformer import Transformer
from flipscope.probes.sensitivity import sensitivities, truth_table

GOLDEN = {
    "narrow": "b930d178f61a1906",
    "narrow, last": "de79568362e98343",
    "middling": "7ab1debe963c8636",
    "wide": "cba3be9bcff91acc",
    "wide, xavier": "598c5eaf7d0cb73e",
    "causal": "659e8f4ab47237ca",
    "hardness": "875818259ee82cd6",
    "general": "1e188edfa27f41d2",
    "screened": "55a1b2a025926ff7",
    "random function": "6154eb8579d50d00",
    "junta": "b1c3db9cb5d70d67",
    "truth table": "40c9fbbcb05d14d2",
    "certificates": "e68ce0f366f2729c",
}
MODELS = {  # path, way: lanes, wide layers, deltas, units that are off, the general path, the screen
    "narrow": (encoder(32, 4, 4), "uniform", {}),
    "narrow, last": (recognizer(16, 2, 2, eps=1e-5), "gaussian", {}),
    "middling": (encoder(96, 3, 4), "gaussian", {}),
    "wide": (encoder(320, 3, 4), "gaussian", {}),
    "wide, xavier": (encoder(288, 2, 8), "xavier_normal", {}),
    "hardness": (hardness(24, 32, 2, 2), "pytorch", {}),
    "causal": (replace(mingpt(25, width=32, layers=2, heads=4, dropout=0.0), outputs=1), "gaussian", {}),
    "general": (encoder(32, 2, 2), "uniform", {"path": "general"}),
    "screened": (encoder(32, 2, 2), "uniform", {"heuristic": True}),
}


def hashed(*numbers: object) -> str:
    return hashlib.sha256(json.dumps(numbers).encode()).hexdigest()[:16]


def of_model(name: str) -> str:
    shape, scheme, options = MODELS[name]
    model = Transformer(shape, scheme=scheme, seed=11)
    # Around the median logit, so that a good part of the flips matter.
    (stream,) = generators(5, 1)
    strings = random_strings(stream, 12, 24)
    found = sensitivities(Subject(model, threshold=_median(model)), strings, **options)
    assert found.near_ties == 0
    assert found.counts.max() > 0
    audit = found.screening and [found.screening.skipped, found.screening.audited, found.screening.wrong]
    return hashed(found.counts.tolist(), found.flipped.tolist(), audit)


def _median(model: Transformer) -> float:
    """A threshold that is the same on every machine: the median of some logits to three digits."""
    (stream,) = generators(6, 1)

    with torch.no_grad():
        logits = model.double()(torch.from_numpy(random_strings(stream, 64, 24))).numpy()
    model.float()
    return float(f"{np.median(logits):.3g}")


def of_function(f: BooleanFunction) -> str:
    known = (sensitivity.profile(f), sensitivity.max_sensitivity(f), spectrum.degree(f), spectrum.sparsity(f))
    return hashed(*known, [str(weight) for weight in spectrum.weight_by_degree(f)])


FUNCTIONS: dict[str, Callable[[], str]] = {
    "random function": lambda: of_function(functions.random(16, 3)),
    "junta": lambda: of_function(functions.random_junta(9, 13, 2)),
    "truth table": lambda: of_function(truth_table(Transformer(encoder(16, 2, 2), scheme="uniform", seed=2), 10)),
    "certificates": lambda: hashed(
        sensitivity.block_sensitivity(functions.random(8, 1)),
        sensitivity.certificate_complexity(functions.random(8, 1)),
    ),
}


@pytest.mark.parametrize("name", [*MODELS, *FUNCTIONS])
def test_the_numbers_stay_what_they_are(name: str) -> None:
    found = FUNCTIONS[name]() if name in FUNCTIONS else of_model(name)
    assert found == GOLDEN[name], (
        f"the numbers of {name!r} are now {found!r}: find the bug, or raise the revision of every study that uses them"
    )
