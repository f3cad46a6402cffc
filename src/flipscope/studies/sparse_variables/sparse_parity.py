"""How a transformer learns the parity of three hidden bits from fresh strings, and when (C.2; Fig 3)."""

from __future__ import annotations

import flipscope.lab as lab
from flipscope.studies.sparse_variables._times import (
    ABRUPT,
    BUDGET,
    CHANCE,
    LONG,
    NEARLY,
    RELEVANT,
    Online,
    judge_abrupt,
    judge_later,
    judge_long,
    kaplan_meier,
    stairs,
    told,
    watch,
)


class SparseParity(lab.Study):
    """Whether parities are learned all at once, and later when strings are longer."""

    name, paper, figures = "sparse-parity", "003", ("Fig 3",)
    title = "A transformer learns the parity of three hidden bits"
    scales = lab.scales(
        "{seeds} trainings each at T in {lengths}, at most {steps} steps of {batch} fresh strings",
        smoke=(0.1, {"lengths": (4, 5), "seeds": 2, "steps": 20, "batch": 32, "width": 8, "heads": 2}),
        # Seeds that no earlier run used: "later for larger T" had three looks at seeds from 0 on.
        laptop=(14, {"lengths": (10, 15, 20), "seeds": 8, "first_seed": 1_000, "steps": 3_000, "batch": 2_048}
                | {"width": 64, "heads": 16}),
        paper=(500, {"lengths": (10, 15, 20, 60), "seeds": 10, "steps": BUDGET, "batch": 2_048}
               | {"width": 64, "heads": 16}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("T (laptop)", "10, 15, 20; none learned above 50", "10, 15, 20", "14 minutes"),
        ("steps (laptop)", "10,000", "3,000", "the same; what is not learned by then counts as censored"),
        ("trainings (laptop)", "10 curves", "8 at each T", "the same"),
        ("stop", "after 10,000 steps", "at the first accuracy above 0.99", "the parity is learned then"),
        ("accuracy", "of the online batches", "on 2,000 strings drawn once, without dropout", "less noise"),
        ("T above 50 (paper)", "silent on which", "60", "one length, ten trainings"),
        ("abrupt", "seen in the figure", f"from {CHANCE:g} to {NEARLY:g} in {ABRUPT:g} of the steps", "silent"),
        ("weight decay, clipping", "1e-4; silent", "decoupled, on matrices; norm at most 1", "minGPT's defaults"),
    )
    revision = 2  # 1 was trained with other masks of dropout
    claims = (
        lab.Claim(
            "parity is learned abruptly",
            "Fig 3",
            "a training stays at chance for long and then goes to perfect answers at once",
            f"steps from an accuracy of {CHANCE:g} to one of {NEARLY:g}, as a part of all until then, averaged over "
            f"trainings that learn: at most {ABRUPT:g}",
            judge_abrupt,
        ),
        lab.Claim(
            "longer strings take more steps",
            "Fig 3",
            "the moment of the transition comes later when there are more bits to choose from",
            "log-rank statistic of the steps until learned, for growing T, those that did not censored: above 0",
            judge_later,
        ),
        lab.Claim(
            f"no parity is learned above T = {LONG}",
            "C.2",
            f"with {BUDGET:,} steps no parity of longer strings was ever learned",
            f"trainings of {BUDGET:,} steps at T above {LONG} that learn: none",
            judge_long,
            decided_from="paper",
        ),
    )

    def trials(self, scale: str) -> list[Online]:
        plan = self.scales[scale].settings
        shape = {name: plan[name] for name in ("steps", "batch", "width", "heads")}
        first = plan.get("first_seed", 0)
        seeds = range(first, first + plan["seeds"])
        return [Online(length=length, seed=seed, **shape) for length in plan["lengths"] for seed in seeds]

    def measure(self, trial: Online, progress: lab.Progress) -> lab.Outcome:
        return watch(trial, progress)

    def row(self, trial: Online, outcome: lab.Outcome) -> lab.Row:
        return {**super().row(trial, outcome), **told(outcome)}

    def provenance(self, table: lab.Rows) -> list[str]:
        return [
            f"T = {length}: {len(done)} of {len(rows)} learned"
            + (f", at step {', '.join(map(str, sorted(done.column('learned'))))}" if done else "")
            for length, rows in table.by("length")
            for done in [rows.having("learned")]
        ]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        losses, attention, waiting = [], [], []
        for colour, (length, rows) in enumerate(table.by("length")):
            curves = [
                lab.Series(f"seed {row['seed']}", row["step"], row["loss"], colour=place)
                for place, row in enumerate(rows)
            ]
            rule = [lab.Rule(0.6931, "chance, ln 2")]
            losses.append(lab.Panel(f"T = {length}", "steps", "online loss", curves, rules=rule))
            paid = [
                lab.Series(f"seed {row['seed']}", row["attention_step"], row["attention_most"], colour=place)
                for place, row in enumerate(rows)
            ]
            even = [lab.Rule(RELEVANT / (length + 1), "evenly spread")]
            attention.append(lab.Panel(f"T = {length}", "steps", "attention to hidden bits", paid, rules=even))
            x, y, low, high = stairs(kaplan_meier(rows.column("taken"), [row["learned"] is not None for row in rows]))
            waiting.append(lab.Series(f"T = {length}", x, y, "line", low, high, colour=colour))
        said = "One line per training, up to the step at which it has learned its parity."
        heads = "Of the head that pays most to them, averaged over strings; the rule: attention spread evenly."
        censored = (
            "Kaplan and Meier's estimate with 95 % intervals: trainings that end before count as long as they last."
        )
        panel = lab.Panel("", "steps", "share that have not learned", waiting, y_range=(0, 1))
        return [
            lab.Figure("sparse-parity-loss", self.title, said, losses, 3, where="Fig 3", same_axes=True),
            lab.Figure("sparse-parity-attention", "Attention while it learns", heads, attention, 3, same_axes=True),
            lab.Figure("sparse-parity-waiting", "Steps until the parity is learned", censored, [panel], 1),
        ]


STUDY = SparseParity()
