"""Random functions learned from some of their rows: less sensitive and flatter than random completions (Figs 4, 15)."""

from __future__ import annotations

import itertools

import flipscope.lab as lab
from flipscope.studies.hardness._relearned import Kind, Learned, measured
from flipscope.studies.hardness._shared import LAYERS_APART
from flipscope.studies.hardness._tables import below_random, below_target, falls_with_size, grouped, scatter, spectra
from flipscope.training.recipes.hardness import KEPT_BELOW

SIZES, WITH_RANDOM = (128, 256, 512), 256
PAPER = {"length": 10, "targets": 10, "seeds": 10, "again": 5, "sizes": SIZES, "completed": WITH_RANDOM, "width": 128,
         "first_target": 0}  # fmt: skip
# Targets from 1000 on: rows, keep rule and judges were put right after runs with targets 0 to 3 had been judged.
LAPTOP = {**PAPER, "targets": 8, "seeds": 1, "again": 1, "width": 64, "batch": 128, "first": 3_000, "steps": 8_000,
          "first_target": 1_000}  # fmt: skip
SMOKE = {**LAPTOP, "length": 4, "targets": 3, "seeds": 1, "sizes": (4, 8), "completed": 8, "width": 16}
AXES = ("average sensitivity", "sharpness on all strings (× 4)")


class ReducedSensitivity(lab.Study):
    """Which of the functions that agree with the rows of a training is learned."""

    name, paper, figures = "reduced-sensitivity", "001", ("Fig 4", "Fig 15")
    revision = 2  # distinct rows, and a second step that is kept by its loss
    title = "Functions learned from some rows of a random one: sensitivity, degree, sharpness"
    scales = lab.scales(
        "{targets} random functions of {length} bits, {seeds} seeds, learned from {sizes} rows, and random "
        "completions of {completed} rows; trained again on all rows for {steps} steps",
        smoke=(0.2, {**SMOKE, "batch": 16, "first": 40, "steps": 40, "lr": 3e-3, "draws": 20}),
        laptop=(42, {**LAPTOP, "lr": 1e-3}),
        paper=(40_000, {**PAPER, "batch": 1_024, "first": 10_000, "steps": 10_000, "lr": 3e-4}),
    )
    deviations = lab.deviations(
        (
            "targets, seeds, again",
            "10 × 10, each again with 5 seeds",
            "laptop: 8 × 1, once; smoke: 3 × 1, once",
            "time",
        ),
        ("width, batch", "128, 1024", "laptop: 64, 128; smoke: 16, 16", "a third of the time"),
        (
            "lr, steps, first (those of the first step)",
            "3e-4, 10,000 of each step",
            "laptop: 1e-3; 3,000 and then 8,000; smoke: 3e-3, 40 and 40",
            "a random table is below 0.001 after 4,500 steps, and again after jumps up",
        ),
        ("length, sizes, completed, draws (smoke)", "10 bits; 128, 256, 512 rows", "4 bits; 4 and 8 rows", "seconds"),
        ("first target (laptop, smoke)", "0", "1000", "targets that no earlier run has looked at"),
        (
            "rows",
            "fixed by the seed of the run, the same for all targets",
            "by target and seed; larger sets hold smaller ones",
            "so that targets are independent, and sizes compared on the same rows",
        ),
        ("seeds", "the same for all targets", "of each target its own", "targets are then independent"),
        (
            "random completions",
            "caption: the actual function; code: one for each first step that fits",
            "one for each target and seed, of 256 rows",
            "the same, as only pairs are judged",
        ),
        ("1024 rows", "trained, in no figure", "left out", "the target itself is not less sensitive than itself"),
        (
            "degree",
            "bias to low degree",
            "Fourier weight above degree n/2",
            "the mean degree is the sensitivity itself",
        ),
        ("sharpness", "increase of the loss", "change of the answers (Thm 6)", "alike at a good fit"),
        (
            "sharpness on known rows",
            "not multiplied by 4, in the code",
            "times 4, like the other",
            "one scale for both",
        ),
        LAYERS_APART,
    )
    claims = (
        lab.Claim(
            "learned functions are less sensitive than the random one",
            "Fig 4",
            "transformers generalise with a lower sensitivity than that of the function the rows come from",
            "average sensitivity of the function less that of the learned one, mean over targets: above 0, each size",
            below_target,
        ),
        lab.Claim(
            "learned functions are less sensitive than random completions",
            "Fig 4",
            "of the functions that agree with the rows, one of low sensitivity is learned",
            "average sensitivity of a random completion less that of the learned function, mean over targets: above 0",
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
                f"{what} from the larger set less that from the smaller, mean over targets: above 0 for each two sizes",
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
        start = plan.pop("first_target")
        targets, seeds, again = (range(plan.pop(name)) for name in ("targets", "seeds", "again"))
        places = itertools.product(targets, seeds, kinds, again)
        return [Learned(start + target, seed, *kind, number, **plan) for target, seed, kind, number in places]

    def measure(self, trial: Learned, progress: lab.Progress) -> lab.Outcome:
        return measured(trial, progress)

    def provenance(self, table: lab.Rows) -> list[str]:
        groups = [
            f"{name}: of {len(rows)} runs {len(rows.where(fitted=True))} fit the known rows, and "
            f"{len(rows.where(kept=True))} of these all rows later, with a squared error below {KEPT_BELOW}"
            for name, rows in grouped(table)
        ]
        return ["runs that do not fit are counted and not judged", *groups]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        known = "sharpness on the known rows (× 4)"
        titles = ("Average sensitivity and sharpness", "Sharpness on the known rows", "Fourier weight by degree")
        panels = (
            scatter(table, "sensitivity", "sharpness", AXES),
            scatter(table, "sharpness", "sharpness_known", (AXES[1], known)),
            spectra(table),
        )
        captions = (
            "A point per second training with a final squared error below "
            f"{KEPT_BELOW}, of a function that fits the rows its first training knew; learned, by the number of these "
            "rows, or completed at random.",
            "The same models: sharpness on the rows that the first training knew against sharpness on all strings.",
            "Mean over the functions that fit the known rows. Average sensitivity is the sum of degree times weight.",
        )
        names, places = ("sharpness", "known-rows", "degrees"), ("Fig 4", "Fig 15", "")
        return [
            lab.Figure(f"reduced-sensitivity-{name}", title, caption, [panel], columns=1, where=where)
            for name, title, caption, panel, where in zip(names, titles, captions, panels, places, strict=True)
        ]


STUDY = ReducedSensitivity()
