"""Random functions learned from some of their rows: less sensitive and flatter than random completions (Figs 4, 15)."""

from __future__ import annotations

import itertools

import flipscope.lab as lab
from flipscope.studies.hardness._relearned import FITS, Kind, Learned, measured
from flipscope.studies.hardness._tables import below_random, below_target, falls_with_size, grouped, scatter, spectra

SIZES, WITH_RANDOM = (128, 256, 512), 256
PAPER = {"length": 10, "targets": 10, "seeds": 10, "again": 5, "sizes": SIZES, "completed": WITH_RANDOM, "width": 128}
LAPTOP = {**PAPER, "targets": 4, "seeds": 2, "again": 1, "width": 64, "batch": 128, "first": 3_000, "steps": 6_000}
SMOKE = {**LAPTOP, "length": 4, "targets": 3, "seeds": 1, "sizes": (4, 8), "completed": 8, "width": 16}
AXES = ("average sensitivity", "sharpness on all strings (× 4)")


class ReducedSensitivity(lab.Study):
    """Which of the functions that agree with the rows of a training is learned."""

    name, paper, figures = "reduced-sensitivity", "001", ("Fig 4", "Fig 15")
    title = "Functions learned from some rows of a random one: sensitivity, degree, sharpness"
    scales = lab.scales(
        "{targets} random functions of {length} bits, {seeds} seeds, learned from {sizes} rows, and random "
        "completions of {completed} rows; trained again on all rows for {steps} steps",
        smoke=(0.2, {**SMOKE, "batch": 16, "first": 40, "steps": 40, "lr": 3e-3, "draws": 20}),
        laptop=(34, {**LAPTOP, "lr": 1e-3}),
        paper=(40_000, {**PAPER, "batch": 1_024, "first": 10_000, "steps": 10_000, "lr": 3e-4}),
    )
    deviations = lab.deviations(
        ("functions, seeds (laptop)", "10 × 10, each again with 5 seeds", "4 × 2, once", "time"),
        ("width, batch (laptop)", "128, 1024", "64, 128", "a third of the time, and 100 numbers a row are enough"),
        (
            "learning rate, steps (laptop)",
            "3e-4, 10,000",
            "1e-3; 3,000 and then 6,000",
            "a random table fits after 4,500",
        ),
        (
            "second step",
            "silent on a rule",
            f"kept if {FITS} of all rows are right",
            "a constant learning rate leaves some wrong at times",
        ),
        (
            "degree",
            "bias to low degree",
            "Fourier weight above degree n/2",
            "the mean degree is the sensitivity itself",
        ),
        ("rows", "fixed by the seed", "by target and seed", "so that no two trainings know the same rows"),
        ("sharpness", "increase of the loss", "change of the answers (Thm 6)", "alike at a good fit"),
    )
    claims = (
        lab.Claim(
            "learned functions are less sensitive than the random one",
            "Fig 4",
            "transformers generalise with a lower sensitivity than that of the function the rows come from",
            "average sensitivity of the function less that of the learned one, mean over pairs: above 0 for each size",
            below_target,
        ),
        lab.Claim(
            "learned functions are less sensitive than random completions",
            "Fig 4",
            "of the functions that agree with the rows, one of low sensitivity is learned",
            "average sensitivity of a random completion less that of the learned function, mean over pairs: above 0",
            below_random("sensitivity", "sensitivity", "fitted"),
        ),
        lab.Claim(
            "learned functions are flatter than random completions",
            "Fig 4",
            "and its solutions have a lower sharpness",
            "sharpness on all strings, the same difference: above 0",
            below_random("sharpness", "sharpness", "kept"),
        ),
        lab.Claim(
            "flatter on the rows of the training, too",
            "Fig 15",
            "sharpness on the rows that were known tells the same",
            "sharpness on the known rows, the same difference: above 0",
            below_random("sharpness_known", "sharpness on known rows", "kept"),
        ),
        lab.Claim(
            "learned functions have a lower degree than random completions",
            "abstract, Fig 4",
            "the bias is one to low degree as well",
            "Fourier weight above degree n/2, the same difference: above 0",
            below_random("high", "weight above n/2", "fitted"),
        ),
        *(
            lab.Claim(
                f"fewer rows, {name}",
                "Fig 4",
                "the less the rows say, the lower it is",
                f"{what} from the larger set less that from the smaller, mean over pairs: above 0 for each two sizes",
                falls_with_size(column, what, rule),
            )
            for name, column, what, rule in (
                ("lower sensitivity", "sensitivity", "sensitivity", "fitted"),
                ("lower sharpness", "sharpness", "sharpness", "kept"),
                ("lower degree", "high", "weight above n/2", "fitted"),
            )
        ),
    )

    def trials(self, scale: str) -> list[Learned]:
        plan = dict(self.scales[scale].settings)
        kinds: list[tuple[int, Kind]] = [
            *((size, "learned") for size in plan.pop("sizes")),
            (plan.pop("completed"), "random"),
        ]
        targets, seeds, again = (range(plan.pop(name)) for name in ("targets", "seeds", "again"))
        places = itertools.product(targets, seeds, kinds, again)
        return [Learned(target, seed, *kind, number, **plan) for target, seed, kind, number in places]

    def measure(self, trial: Learned, progress: lab.Progress) -> lab.Outcome:
        return measured(trial, progress)

    def provenance(self, table: lab.Rows) -> list[str]:
        groups = [
            f"{name}: of {len(rows)} runs {len(rows.where(fitted=True))} fit the known rows, and "
            f"{len(rows.where(kept=True))} of these {FITS} of all rows in the second step"
            for name, rows in grouped(table)
        ]
        return ["runs that do not fit are counted and not judged", *groups]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        known = "sharpness on the known rows (× 4)"
        titles = ("Average sensitivity and sharpness", "Sharpness on the known rows", "Fourier weight by degree")
        panels = (
            scatter(table, "sensitivity", "sharpness", AXES),
            scatter(table, "sharpness_known", "sharpness", (known, AXES[1])),
            spectra(table),
        )
        captions = (
            "A point per function that fits the known rows and whose second training fits all rows.",
            "The same models: sharpness on all strings against sharpness on the rows that the first training knew.",
            "Mean over the functions that fit the known rows. Average sensitivity is the sum of degree times weight.",
        )
        names, places = ("sharpness", "known-rows", "degrees"), ("Fig 4", "Fig 15", "")
        return [
            lab.Figure(f"reduced-sensitivity-{name}", title, caption, [panel], columns=1, where=where)
            for name, title, caption, panel, where in zip(names, titles, captions, panels, places, strict=True)
        ]


STUDY = ReducedSensitivity()
