"""Traps for the studies of paper 004, and beside them tables on which their claims do come out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from studies.traps.trap import Trap

from flipscope.lab import Claim, Rows
from flipscope.lab.rows import Row
from flipscope.studies.low_sensitivity import kernel_spectrum, noise_stability
from flipscope.studies.low_sensitivity.kernel_spectrum import DEGREES, KINDS, READOUTS
from flipscope.studies.low_sensitivity.noise_stability import RHOS

STUDIES = (kernel_spectrum.STUDY, noise_stability.STUDY)


def _changed(rows: Rows, test: Callable[[Row], bool], **values: Any) -> Rows:
    """The rows, with these values in those that pass the test."""
    return Rows({**row, **values} if test(row) else row for row in rows)


def _first(test: Callable[[Row], bool]) -> Callable[[Row], bool]:
    """The same test, passed only once."""
    met: list[Row] = []

    def once(row: Row) -> bool:
        if not met and test(row):
            met.append(row)
            return True
        return False

    return once


# ---------------------------------------------------------------- noise-stability


def _noise() -> Rows:
    """Functions of all sources that keep every bound."""
    fine = {"printed_broken": 0, "sharper_broken": 0, "degree_broken": 0}
    found = Rows()
    for rho in RHOS:
        found.append(
            {"source": "every", "bits": 4, "rho": rho, "cases": 65_536, "correlation": 0.8, "loose": 0.9, **fine}
        )
        for source, count in (("zoo", 12), ("trained", 9)):
            found += [{"source": source, "bits": None, "rho": rho, "cases": 1, **fine}] * count
        for bits in (6, 8):
            for seed in range(20):
                numbers = {"probability": 0.2 + 0.001 * np.sin(seed), "sharper": 0.21}
                found.append({"source": "random", "bits": bits, "rho": rho, "cases": 1, **numbers, **fine})
    return found


def _noise_with(test: Callable[[Row], bool], **values: Any) -> Rows:
    return _changed(_noise(), _first(test), **values)


NOISE = [
    Trap("noise-stability", claim, what, table, expected)  # type: ignore[arg-type]
    for claim, what, table, expected in (
        (
            "Prop 3.2 holds",
            "one trained model of nine above the bound, at one rho",
            partial(_noise_with, lambda row: row["source"] == "trained", printed_broken=1),
            "contradicted",
        ),
        (
            "Prop 3.2 holds",
            "no trained model at all",
            lambda: _noise().where(lambda row: row["source"] != "trained"),
            "undecided",
        ),
        (
            "the degree is at most the square of the sensitivity",
            "one random function of too large a degree",
            lambda: _changed(_noise(), lambda row: row["source"] == "random" and row["bits"] == 6, degree_broken=1),
            "contradicted",
        ),
        (
            "less sensitive functions are more robust",
            "a weak correlation at one rho",
            partial(_noise_with, lambda row: row["source"] == "every", correlation=0.2),
            "contradicted",
        ),
        (
            "the average sensitivity bounds it as well",
            "one of 65,536 functions above the bound",
            partial(_noise_with, lambda row: row["source"] == "every", sharper_broken=1),
            "contradicted",
        ),
        (
            "Prop 3.2 is loose for most functions",
            "a third of the functions only, at rho = 0.9; more at another",
            lambda: _changed(_noise(), lambda row: row["rho"] == 0.9, loose=0.33),
            "contradicted",
        ),
        (
            "random functions nearly attain the bound by average sensitivity",
            "close at 6 bits, far off at 8",
            lambda: Rows(
                {**row, "sharper": 0.3} if row["bits"] == 8 and row["source"] == "random" else row for row in _noise()
            ),
            "contradicted",
        ),
        (
            "random functions nearly attain the bound by average sensitivity",
            "three functions, equal to the last digit",
            lambda: Rows({**row, "probability": 0.2} for row in _noise().where(source="random", rho=0.9)[:3]),
            "undecided",
        ),
    )
]


# ---------------------------------------------------------------- kernel-spectrum


def _kernels(*, exponent: float = -0.5, floor: float = 0.0) -> Rows:
    """Kernels that do what Prop 3.1 says, with whatever embedding; errors fall with this power of the width."""
    found = Rows()
    for kind in KINDS:
        for readout in READOUTS:
            for tokens in (0, 2, 3):
                exact = {"off_diagonal": 1e-16, "spread": 1e-16, "chain": True}
                found.append({"source": "pairs", "kind": kind, "readout": readout, "tokens": tokens, **exact})
            for depth in (1, 2, 4):
                chains = {"chain": True, "mlp_bits_chain": True, "mlp_slots_chain": True}
                tails = {"tail": 0.02, "mlp_slots_tail": 0.05}
                found.append({"source": "slots", "kind": kind, "readout": readout, "depth": depth, **chains, **tails})
        for seed in range(12):
            wiggle = 1 + 0.05 * np.sin(7 * seed)
            for degree in DEGREES:
                found.append({"source": "softmax", "kind": kind, "degree": degree, "gap": 0.5**degree * wiggle})
            for width in (16, 32, 64, 128):
                error = floor + wiggle * (1 + 0.1 * np.sin(seed * width)) * width**exponent
                found.append({"source": "finite", "kind": kind, "width": width, "seed": seed, "error": float(error)})
    return found


def _kernels_with(test: Callable[[Row], bool], **values: Any) -> Rows:
    return _changed(_kernels(), _first(test), **values)


def _cut(row: Row) -> bool:
    return bool(row["source"] == "pairs" and row["tokens"])


KERNELS = [
    Trap("kernel-spectrum", claim, what, table, expected)  # type: ignore[arg-type]
    for claim, what, table, expected in (
        (
            "the monomials are eigenfunctions",
            "one of twelve kernels has a twentieth of its norm off the diagonal",
            partial(_kernels_with, _cut, off_diagonal=0.05),
            "contradicted",
        ),
        (
            "eigenvalues fall along even and along odd degrees",
            "one chain is broken, of a kernel whose monomials are eigenfunctions",
            partial(_kernels_with, _cut, chain=False),
            "contradicted",
        ),
        (
            "the eigenvalues of MLPs fall along even and along odd degrees",
            "they fall on bits, and not on slots",
            lambda: _changed(_kernels(), lambda row: row["source"] == "slots", mlp_slots_chain=False),
            "contradicted",
        ),
        (
            "networks approach the kernels of infinite width",
            "an error that no width makes smaller",
            partial(_kernels, exponent=-1.0, floor=2.0),
            "contradicted",
        ),
        (
            "networks approach the kernels of infinite width",
            "two widths have no slope",
            lambda: _kernels().where(lambda row: row["source"] == "finite" and row["width"] in (16, 32)),
            "undecided",
        ),
        (
            "with slots the monomials are eigenfunctions",
            "read at one position: eigenfunctions, but several eigenvalues in a degree",
            lambda: _changed(_kernels(), lambda row: row["source"] == "pairs" and not row["tokens"], spread=0.7),
            "contradicted",
        ),
        (
            "with slots the eigenvalues fall",
            "one depth breaks the chain",
            lambda: _changed(_kernels(), lambda row: row["source"] == "slots" and row["depth"] == 4, chain=False),
            "contradicted",
        ),
        (
            "softmax attention: eigenvalues fall at low degrees",
            "the NTK's third gap is negative, all others are large",
            lambda: Rows(
                {**row, "gap": -row["gap"]}
                if (row["source"], row["kind"], row.get("degree")) == ("softmax", "ntk", 2)
                else row
                for row in _kernels()
            ),
            "contradicted",
        ),
        (
            "attention has a stronger bias than an MLP",
            "stronger at depths 1 and 2 only",
            lambda: _changed(_kernels(), lambda row: row["source"] == "slots" and row["depth"] == 4, tail=0.06),
            "contradicted",
        ),
    )
]

TRAPS = NOISE + KERNELS


def good(study: str, claim: Claim) -> Rows:
    """A table on which the claim is reproduced."""
    return _noise() if study == "noise-stability" else _kernels()
