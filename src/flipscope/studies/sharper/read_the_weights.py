"""A small network trained on a sum of three parities: does its attention show them, and does its MLP oscillate?"""

from __future__ import annotations

import flipscope.lab as lab
from flipscope.studies.sharper._readable import GOAL, LEARNED, PROMINENT, Readable, measured
from flipscope.studies.sharper._shown import (
    MOST,
    RARE,
    added,
    curves,
    judge_chance,
    judge_oscillation,
    judge_smallest,
    matrices,
    share_judge,
)


class ReadTheWeights(lab.Study):
    """Whether parities can be read off the weights of networks that learned them."""

    name, paper, figures = "read-the-weights", "002", ("Fig 5", "Figs 6, 7")
    title = "Parities read off the weights of small networks"
    scales = lab.scales(
        "{networks} networks of {hidden} neurons, T = {length}, {sparsity} parities of degree {degree}, {samples} "
        "strings, at most {epochs} epochs",
        smoke=(0.1, {"networks": 2, "length": 5, "degree": 2, "sparsity": 2, "samples": 64, "epochs": 2, "hidden": 8}),
        laptop=(8, {"networks": 48, "length": 20, "degree": 3, "sparsity": 3, "samples": 8_192, "epochs": 150}
                | {"hidden": 32}),
        paper=(100, {"networks": 100, "length": 20, "degree": 3, "sparsity": 3, "samples": 8_192, "epochs": 1_000}
               | {"hidden": 32}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("functions", "a few, chosen to be shown", "all of the first seeds, of one class", "to count them"),
        ("a row shows a parity", "bright spots, by eye", "its D largest entries are the set", "silent on numbers"),
        ("matrix", "query-key product", "the same, averaged over the bits of both positions", "bits have channels"),
        ("most, rare", "both are said, § 2.4 and Fig 5", f"share at least {MOST:g}, at most {RARE:g}", "silent"),
        ("parities of its function", "of the learned one", f"those it has {LEARNED:g} of the coefficient of", "silent"),
        (
            "oscillates",
            "seen in the figure",
            f"D - 1 turns, each over {PROMINENT:g} of the range, at one position",
            "as parities do",
        ),
        ("query and key", "just over 1000 parameters", "a matrix each, and one vector of values: 1108", "silent"),
        (
            "learning rate",
            "lost",
            "4e-3, AdamW, weight decay 1e-4, batch 256",
            "of the authors' other runs; 2e-3 did not learn in 60 epochs, 5e-3 and 1e-2 were tried",
        ),
        ("training", "until the loss is below 0.02", "the same, or so many epochs: counted", "time"),
        ("networks, epochs (laptop)", "silent; 100, 1,000 (paper scale)", "48, 150", "minutes"),
    )
    claims = (
        lab.Claim(
            "most networks have rows for their parities",
            "§ 2.4",
            "in most cases the query-key matrix has rows that are the parities of the learned function",
            f"share of networks below a loss of {GOAL:g} in which most parities have a row: at least {MOST:g}",
            share_judge("shown", lab.at_least, MOST, "share of networks with rows for most of their parities"),
        ),
        lab.Claim(
            "such matches are rare",
            "Fig 5, caption",
            "the caption of the same figure says of these matches that they are rare",
            f"the same share: at most {RARE:g}",
            share_judge("shown", lab.at_most, RARE, "share of networks with rows for most of their parities"),
        ),
        lab.Claim(
            "the MLP oscillates",
            "§ 2.4, Figs 6, 7",
            "left open: the MLP in one dimension is shown, and a parity of counts would go up and down",
            f"share of networks below a loss of {GOAL:g} whose MLP turns D - 1 times or more over what one position "
            f"is given: at least {MOST:g}; and more of them than before the training",
            judge_oscillation,
            exploratory=True,
        ),
        lab.Claim(
            "rows match parities by more than chance",
            "§ 2.4",
            "not said: there is no null model",
            "share of a network's parities that have a row, averaged: at least that of permuted rows",
            judge_chance,
            exploratory=True,
        ),
        lab.Claim(
            "the smallest coefficient is the least visible",
            "§ 2.4, of Fig 5",
            "the parity of the smallest coefficient is less identifiable, said of one network",
            "of networks with a row for one of the largest and the smallest only: at least half for the largest",
            judge_smallest,
            exploratory=True,
        ),
    )

    def trials(self, scale: str) -> list[Readable]:
        plan = dict(self.scales[scale].settings)
        seeds = range(plan.pop("networks"))
        return [Readable(seed, **plan) for seed in seeds]

    def measure(self, trial: Readable, progress: lab.Progress) -> lab.Outcome:
        return measured(trial, progress)

    def row(self, trial: Readable, outcome: lab.Outcome) -> lab.Row:
        return {**super().row(trial, outcome), **added(outcome, trial.degree)}

    def provenance(self, table: lab.Rows) -> list[str]:
        done = table.where(converged=True)
        has, found = (sum(map(sum, done.column(name))) for name in ("has", "found"))
        both = sum(sum(map(min, row["has"], row["found"])) for row in done)
        total = sum(map(len, done.column("found")))
        ranks = [rank for row in done for rank in row["ranks"]]
        return [
            f"{len(done)} of {len(table)} networks came below a loss of {GOAL:g}; the others are in no share",
            f"of their {total} parities {has} were learned, {found} have a row, {both} both; "
            f"{sum(rank <= 0.05 for rank in ranks)} are seen better than 95 % of all sets",
            f"by attention averaged over strings, in place of the matrix, {sum(map(sum, done.column('by_attention')))} "
            "have a row",
        ]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return [matrices(table, self.title), curves(table, self.title)]


STUDY = ReadTheWeights()
