"""Eigenvalues of the kernels of transformers on the cube, by degree (Prop 3.1): as printed, with slots, and sampled.

Prop 3.1 says that the monomials are the eigenfunctions of the CK and the NTK of a transformer with linear attention,
and that the eigenvalues of even degrees fall, and those of odd degrees too. With the embedding that the paper prints
neither holds; with a vector for each position and bit both do (`flipscope.probes.kernels`). Softmax attention and
networks of finite width are sampled beside them, and an MLP is the comparison that appendix E asks for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

import flipscope.lab as lab
from flipscope.lab import quantities
from flipscope.probes.kernels import (
    Kind,
    Readout,
    chain_holds,
    kernel_matrix,
    mlp_kernel,
    monomial_check,
    transformer_kernel,
)
from flipscope.probes.sampled_kernels import finite_kernel, sampled_kernel

KINDS: dict[Kind, str] = {"ck": "CK", "ntk": "NTK"}
READOUTS: tuple[Readout, ...] = ("flat", "mean", "cls")
EIGENFUNCTIONS = 1e-9  # largest part of a kernel off the diagonal that is rounding
CONVERGES = -0.25  # log-log slope of the error over the width; one over the root of the width gives -0.5
DEGREES = (0, 1, 2)  # of softmax attention's gaps mu_k - mu_(k+2): later ones are smaller than what sampling resolves
FEWEST = 8  # runs from which on Student's interval is taken


# ---------------------------------------------------------------- trials


@dataclass(frozen=True)
class Slots(lab.Trial):
    """A transformer with linear attention and slot embedding, at infinite width; and an MLP of the same depth."""

    tag = "slots"
    kind: Kind
    readout: Readout
    bits: int
    depth: int

    @property
    def cost(self) -> float:
        return float(self.bits * self.depth)

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """Eigenvalues, and how much of the trace lies beyond degree 1, of the transformer and of MLPs."""
        kernel = transformer_kernel(self.bits, self.depth, kind=self.kind, readout=self.readout)
        others = {
            "mlp_slots": mlp_kernel(self.bits, self.depth, kind=self.kind, inputs="slot"),
            "mlp_bits": mlp_kernel(self.bits, self.depth, kind=self.kind, inputs="bits"),
        }
        found = {
            "eigenvalues": [float(each) for each in kernel.eigenvalues()],
            "chain": chain_holds(kernel.eigenvalues()),
        }
        found |= {f"{name}_chain": chain_holds(each.eigenvalues()) for name, each in others.items()}
        found |= {f"{name}_tail": math.fsum(each.shares()[2:]) for name, each in others.items()}
        found["mlp_eigenvalues"] = [float(each) for each in others["mlp_slots"].eigenvalues()]
        return {**found, "tail": math.fsum(kernel.shares()[2:])}


@dataclass(frozen=True)
class Pairs(lab.Trial):
    """A transformer at infinite width whose kernel is computed for all pairs of strings; 0 tokens stand for slots."""

    tag = "pairs"
    kind: Kind
    readout: Readout
    bits: int
    depth: int
    tokens: int

    @property
    def cost(self) -> float:
        return 4.0**self.bits

    @property
    def memory(self) -> int:
        tokens = (self.tokens or self.bits) + 1
        return max(super().memory, (1 << 29) + 64 * (1 << 2 * self.bits) * tokens**2)

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """How far the monomials are from eigenfunctions, and the quotients of each degree."""
        matrix = kernel_matrix(
            self.bits,
            self.depth,
            embedding="printed" if self.tokens else "slot",
            tokens=self.tokens or None,
            kind=self.kind,
            readout=self.readout,
        )
        check = monomial_check(matrix, EIGENFUNCTIONS)
        return {
            "off_diagonal": check.off_diagonal,
            "spread": check.spread,
            "eigenvalues": list(check.quotients),
            "chain": check.chain,
        }


@dataclass(frozen=True)
class Softmax(lab.Trial):
    """Softmax attention at infinite width, one sample of its kernel."""

    tag = "softmax"
    kind: Kind
    bits: int
    draws: int
    seed: int

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """Eigenvalues of one sample, the mean of two runs."""
        found = sampled_kernel(self.bits, kind=self.kind, draws=self.draws, repeats=2, seed=self.seed)
        return {"eigenvalues": [each.value for each in found.eigenvalues]}


@dataclass(frozen=True)
class Finite(lab.Trial):
    """Two random networks of finite width, with half as many heads and keys of a quarter of the width."""

    tag = "finite"
    kind: Kind
    bits: int
    width: int
    seed: int

    @property
    def cost(self) -> float:
        return float(self.width**3)

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """The distance of the kernel from that at infinite width, over the latter's value for equal strings."""
        limit = np.array([float(each) for each in transformer_kernel(self.bits, kind=self.kind).values])
        found = finite_kernel(
            self.bits, kind=self.kind, width=self.width, heads=self.width // 2, key_width=self.width // 4,
            networks=2, seed=self.seed,
        )  # fmt: skip
        values = [each.value for each in found.values]
        return {"values": values, "error": float(np.sqrt(np.mean((values - limit) ** 2))) / limit[0]}


# ---------------------------------------------------------------- claims


def printed(row: lab.Row) -> bool:
    """Whether a row is a kernel of the printed embedding."""
    return bool(row["source"] == "pairs" and row["tokens"])


def with_slots(row: lab.Row) -> bool:
    """Whether a row is a kernel of all pairs of strings with slots."""
    return bool(row["source"] == "pairs" and not row["tokens"])


CLAIMS = (
    lab.claim(
        "the monomials are eigenfunctions",
        "Prop 3.1",
        "every monomial is an eigenfunction of the kernels of a transformer on the string cut into tokens",
        quantities.all_models(
            "share of kernels with the printed embedding that the monomials diagonalise",
            lambda row: row["off_diagonal"] <= EIGENFUNCTIONS,
            rows=printed,
            unit="kernels",
        ),
    ),
    lab.claim(
        "eigenvalues fall along even and along odd degrees",
        "Prop 3.1",
        "the eigenvalue of degree k is at least that of degree k + 2",
        quantities.all_models(
            "share of kernels with the printed embedding whose quotients, averaged by degree, fall",
            lambda row: row["chain"],
            rows=printed,
            unit="kernels",
        ),
    ),
    lab.claim(
        "the eigenvalues of MLPs fall along even and along odd degrees",
        "Thm B.3",
        "the eigenvalue of degree k is at least that of degree k + 2 for the CK and the NTK of MLPs",
        quantities.all_models(
            "share of MLPs, on bits and on slots, whose eigenvalues fall",
            lambda row: row["mlp_bits_chain"] and row["mlp_slots_chain"],
            rows=lambda row: row["source"] == "slots",
            unit="MLPs",
        ),
    ),
    lab.claim(
        "networks approach the kernels of infinite width",
        "Thm B.1",
        "the kernels of networks converge as width and number of heads grow",
        quantities.slope("error", "width", log=True, per="seed", fewest=FEWEST, unit="seeds")
        .where("networks of finite width", source="finite")
        .each("kind", KINDS, what="kernels")
        <= CONVERGES,
    ),
    lab.claim(
        "with slots the monomials are eigenfunctions",
        "Prop 3.1, corrected",
        "with a vector for each position and bit the monomials are eigenfunctions, one eigenvalue for each degree",
        quantities.all_models(
            "share of kernels with slots that have one eigenvalue per degree",
            lambda row: max(row["off_diagonal"], row["spread"]) <= EIGENFUNCTIONS,
            rows=with_slots,
            unit="kernels",
        ),
        exploratory=True,
    ),
    lab.claim(
        "with slots the eigenvalues fall",
        "Prop 3.1, corrected",
        "with a vector for each position and bit the eigenvalue of degree k is at least that of degree k + 2",
        quantities.all_models(
            "share of kernels with slots whose eigenvalues fall",
            lambda row: row["chain"],
            rows=lambda row: row["source"] == "slots",
            unit="kernels",
        ),
        exploratory=True,
    ),
    lab.claim(
        "softmax attention: eigenvalues fall at low degrees",
        "beyond Prop 3.1",
        "the first eigenvalues fall in the same way with softmax attention",
        quantities.mean("gap", fewest=FEWEST, unit="samples")
        .where("softmax attention", source="softmax")
        .grouped(
            f"for each kernel and k of {', '.join(map(str, DEGREES))}",
            lambda rows: [(f"{KINDS[kind]}, k = {degree}", own.where(degree=degree))
                          for kind, own in rows.each("kind", KINDS) for degree in DEGREES],
        )
        >= 0,
        exploratory=True,
    ),
    lab.claim(
        "attention has a stronger bias than an MLP",
        "App. E",
        "a transformer leaves less of its trace beyond degree 1 than an MLP of the same depth on the same slots",
        quantities.all_models(
            "share of flat read-outs that leave less than the MLP beyond degree 1",
            lambda row: row["tail"] < row["mlp_slots_tail"],
            rows=lambda row: bool(row["source"] == "slots" and row["readout"] == "flat"),
            unit="kernels",
        ),
        exploratory=True,
    ),
)  # fmt: skip


# ---------------------------------------------------------------- the study


class KernelSpectrum(lab.Study):
    """Whether wide transformers prefer monomials of low degree."""

    name, paper = "kernel-spectrum", "004"
    title = "Eigenvalues of the kernels of wide transformers on the cube, by degree"
    scales = lab.scales(
        "CK and NTK; slots: {bits} bits, depths {depths}, three read-outs; all pairs of strings: (bits, tokens) in "
        "{cut}; softmax at {softmax_bits} bits, {softmax_seeds} samples of {draws} draws; networks at {finite_bits} "
        "bits, widths {widths}, {seeds} seeds",
        smoke=(0.1, {"bits": (4,), "depths": (1, 2), "cut": ((6, 3), (4, 0)), "softmax_bits": 3, "softmax_seeds": 2}
               | {"draws": 200, "finite_bits": 2, "widths": (8, 16), "seeds": 2}),
        # Seeds from 1000 on: smaller ones were used while the study was written.
        laptop=(1, {"bits": (6, 10, 20), "depths": (1, 2, 4, 6), "cut": ((6, 2), (6, 3), (8, 2), (6, 0), (7, 0))}
                | {"softmax_bits": 5, "softmax_seeds": 16, "draws": 2_000, "finite_bits": 3}
                | {"widths": (16, 32, 64, 128), "seeds": 12, "first_seed": 1_000}),
        paper=(240, {"bits": (6, 10, 20, 40), "depths": (1, 2, 4, 6, 12), "softmax_bits": 5, "softmax_seeds": 100}
               | {"cut": ((6, 2), (6, 3), (8, 2), (8, 4), (6, 0), (7, 0)), "draws": 10_000, "finite_bits": 3}
               | {"widths": (16, 32, 64, 128, 256, 512), "seeds": 40}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("experiment", "silent: a proposition, nothing measured", "computed and sampled", "to see whether it holds"),
        ("embedding", "x cut into T tokens of d / T bits", "the same, and slots", "the printed one breaks Prop 3.1"),
        (
            "architecture",
            "any composition with at least one attention layer",
            "norms before attention and MLP, residuals, ReLU, a norm before the read-out",
            "a transformer as it is used",
        ),
        ("attention weights", "scores over the root of the width", "also over T", "scales do not grow with T"),
        ("tangent kernel", "training the entire model", "embedding and read-out included", "read literally"),
        ("MLP", "any", "ReLU without bias, on bits or on slots", "slots act as a bias; without one odd degrees vanish"),
        ("bits, depth, cut, tokens", "any", "laptop: up to 20 bits and depth 6", "time"),
        ("softmax", "left out of the theory", "degrees 0 to 2 of 5 bits, sampled", "later gaps drown in noise"),
        ("widths, seeds, draws", "infinite", "laptop: up to 128, 12 seeds, 2,000 draws", "time"),
        ("first seed (laptop)", "silent", "1000", "seeds not used by any earlier run"),
        ("limits of the claims", "silent", f"rounding {EIGENFUNCTIONS:g}; slope {CONVERGES:g}", "chosen beforehand"),
    )
    claims = CLAIMS

    def trials(self, scale: str) -> list[lab.Trial]:
        plan = self.scales[scale].settings
        first = plan.get("first_seed", 0)
        return [
            *(
                Slots(kind, readout, bits, depth)
                for kind in KINDS
                for readout in READOUTS
                for bits in plan["bits"]
                for depth in plan["depths"]
            ),
            *(
                Pairs(kind, readout, bits, 1, tokens)
                for kind in KINDS
                for readout in READOUTS
                for bits, tokens in plan["cut"]
            ),
            *(
                Softmax(kind, plan["softmax_bits"], plan["draws"], seed)
                for kind in KINDS
                for seed in range(first, first + plan["softmax_seeds"])
            ),
            *(
                Finite(kind, plan["finite_bits"], width, seed)
                for kind in KINDS
                for width in plan["widths"]
                for seed in range(first, first + plan["seeds"])
            ),
        ]

    def rows(self, trial: lab.Trial, outcome: lab.Outcome) -> Iterable[lab.Row]:
        """One row, but of softmax attention one for each degree that its claim asks about."""
        row = {"source": trial.tag, **self.row(trial, outcome)}
        if not isinstance(trial, Softmax):
            return [row]
        mu = outcome["eigenvalues"]
        return [{**row, "degree": k, "gap": mu[k] - mu[k + 2]} for k in DEGREES if k + 2 < len(mu)]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        spectra = [panel for kind in KINDS for panel in _spectrum(kind, table.where(kind=kind))]
        panel = lab.chart(
            table.where(source="finite"), "width", "error", by="kind", labels=KINDS, x_label="width",
            y_label="distance from infinite width", x_log=True, y_log=True,
        )  # fmt: skip
        caption = (
            "Eigenvalues by degree at depth 1, read at every position; for the printed embedding averages of quotients."
        )
        return [
            lab.Figure("kernel-spectrum", self.title, caption, spectra, where="Prop 3.1"),
            lab.Figure("kernel-width", "Networks of finite width", "Relative to the value for equal strings.", [panel]),
        ]


def _spectrum(kind: Kind, table: lab.Rows) -> Iterable[lab.Panel]:
    """A panel for each number of bits that slots and the printed embedding were both computed at, or slots alone."""
    flat = table.where(readout="flat", depth=1)
    for bits, rows in flat.where(source="slots").by("bits"):
        (row,) = rows
        lines = {"slots": row["eigenvalues"], "MLP on slots": row["mlp_eigenvalues"]}
        for cut in flat.where(printed).where(bits=bits):
            lines[f"printed, {cut['tokens']} tokens"] = cut["eigenvalues"]
        series = [
            lab.Series(label, [k for k, mu in enumerate(values) if mu > 0], [mu for mu in values if mu > 0])
            for label, values in lines.items()
        ]
        yield lab.Panel(f"{KINDS[kind]}, {bits} bits", "degree", "eigenvalue", series, y_log=True)


STUDY = KernelSpectrum()
