"""Average sensitivity of randomly initialised transformers against the length, by where their norms are (Thm 7)."""

from __future__ import annotations

import flipscope.lab as lab
from flipscope.studies.hardness._shared import LAYERS_APART
from flipscope.studies.hardness._starts import NORMS, Norm, Start, exact, sampled

NEAR = 1.1  # as / Var is the mean degree: at most a tenth of the variance is then beyond degree 1
FAR = 1 / 2  # of the way from 1, the least of a balanced function, to the n/2 of a random one
SLOW = 1 / 20  # per bit: a tenth of the 1/2 of a random function
FEWEST = 12  # models from which on Student's interval is taken
FEWEST_SLOPES = 5  # seeds at three lengths


def _groups(table: lab.Rows, column: str) -> list[tuple[str, lab.Rows]]:
    return [
        (f"{norm}, n = {n}", rows.having(column)) for norm in NORMS for n, rows in table.where(norm=norm).by("length")
    ]


def _mean(column: str, limit: float, quantity: str) -> lab.Judge:
    """A judge of the mean of a column at each length and place of the norm, of models that are not constant."""
    one = lab.mean_of(column, lab.at_most, limit, quantity, within=None, fewest=FEWEST)
    return lambda table: lab.for_each(_groups(table, column), one, missing="no model that varies is done", sort=True)


def judge_slow(table: lab.Rows) -> lab.Judgement:
    """The slope of as / Var against n, over the models of each seed.

    In bits and not on log scales, where a level that as / Var has from the start hides any growth.
    """

    def one(norm: Norm, rows: lab.Rows, confidence: float) -> lab.Judgement:
        longest = max(rows.column("length"))
        whole = {row["seed"] for row in rows.where(length=longest)}  # at long strings there are fewer
        found = lab.slopes(rows.having("ratio").where(lambda row: row["seed"] in whole), "length", "ratio")
        if len(found) < FEWEST_SLOPES:
            said = f"{NORMS[norm]}: fewer than {FEWEST_SLOPES} seeds at 3 lengths"
            return lab.Judgement.without(said, "more models")
        slope = lab.student_mean(found, confidence)
        return lab.at_most(slope, SLOW, f"as / Var per bit, {NORMS[norm]}", f"n up to {longest}", "seeds")

    return lab.for_each(table.each("norm", NORMS), one, missing="no model is done", what="places of the norm")


class RandomSensitivity(lab.Study):
    """Whether transformers are insensitive before they are trained, at every length."""

    name, paper, figures = "random-sensitivity", "001", ()
    title = "Average sensitivity of randomly initialised transformers against the length"
    scales = lab.scales(
        "norm after, before and nowhere; width {width}; {models} models for each n in {lengths}, all strings; "
        "{long_models} for each n in {long}, {strings} strings with all flips",
        smoke=(0.1, {"width": 16, "lengths": (3, 4, 5), "models": 3, "long": (8,), "long_models": 1, "strings": 5}
               | {"first_seed": 0}),
        # Seeds from 1000 on: growth is judged per bit since models with seeds 0 to 39 were looked at.
        laptop=(4, {"width": 128, "lengths": (4, 6, 8, 10, 12), "models": 40}
                | {"long": (24, 48, 96), "long_models": 16, "strings": 16, "first_seed": 1_000}),
        paper=(1_000, {"width": 128, "lengths": (4, 6, 8, 10, 12, 16), "models": 100}
               | {"long": (24, 48, 96, 192, 384), "long_models": 100, "strings": 100, "first_seed": 0}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("experiment", "silent: a theorem, nothing measured", "the paper's model, PyTorch's start", "Thm 7 is a limit"),
        ("as / Var", "as of the model itself", "as over the variance", "the scale of an untrained output is arbitrary"),
        ("threshold", "silent", "the median of the model's own outputs", "around 0 many models are constant"),
        ("norm before, none", "silent", "norms moved or left out, no final norm", "to see what they do"),
        (
            "near, far, slow",
            "as_n = o(n)",
            f"{NEAR:g}; {FAR:g} of the way from 1 to n/2; {SLOW:g} per bit",
            "a limit theorem has no numbers, and no finite n says o(n)",
        ),
        (
            "constant models",
            "have as_n = 0",
            "are counted and not judged",
            "they would be insensitive without a reason",
        ),
        (
            "models, lengths, long, long models, strings",
            "nothing measured",
            "laptop: 40 up to 12 bits, 16 up to 96, 16 strings; smoke: 3 up to 5, one of 8, 5 strings",
            "time",
        ),
        ("width (smoke)", "128", "16", "seconds"),
        ("first seed (laptop)", "0", "1000", "models that no earlier run has looked at"),
        LAYERS_APART,
    )
    claims = (
        lab.Claim(
            "random transformers are nearly linear",
            "Thm 7",
            "random initialisation is biased to low sensitivity",
            f"as / Var of the output, averaged over models: at most {NEAR:g} at each n, wherever the norms are",
            _mean("ratio", NEAR, "as / Var"),
        ),
        lab.Claim(
            "their answers are far below a random function",
            "Thm 7",
            "the Boolean function of a random transformer is far less sensitive than a random one",
            f"as of sign(T - median), averaged over models: at most {FAR:g} of the way from 1 to n/2 at each n",
            _mean("way", FAR, "(as - 1) / (n/2 - 1)"),
        ),
        lab.Claim(
            "sensitivity grows far slower than that of a random function",
            "Thm 7",
            "the expected average sensitivity of random transformers is o(n), where that of random functions is n/2",
            f"slope of as / Var over n, averaged over seeds: at most {SLOW:g} per bit, wherever the norms are",
            judge_slow,
        ),
    )

    def trials(self, scale: str) -> list[Start]:
        plan = self.scales[scale].settings
        sizes = [(n, plan["models"], 0) for n in plan["lengths"]]
        sizes += [(n, plan["long_models"], plan["strings"]) for n in plan["long"]]
        return [
            Start(norm, n, seed, plan["width"], strings)
            for norm in NORMS
            for n, models, strings in sizes
            for seed in range(plan["first_seed"], plan["first_seed"] + models)
        ]

    def measure(self, trial: Start, progress: lab.Progress) -> lab.Outcome:
        return sampled(trial, progress) if trial.strings else exact(trial)

    def row(self, trial: Start, outcome: lab.Outcome) -> lab.Row:
        varies, answers = outcome["variance"] > 0, outcome["sign"] > 0
        ratio = outcome["real"] / outcome["variance"] if varies else None
        way = (outcome["sign"] - 1) / (trial.length / 2 - 1) if answers else None
        return {**super().row(trial, outcome), "ratio": ratio, "way": way}

    def provenance(self, table: lab.Rows) -> list[str]:
        constant = len(table) - len(table.having("way"))
        return [f"{constant} of {len(table)} models give one answer to all their strings: counted and not judged"]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        lengths = table.values("length")
        half = lab.Series("n/2, a random function", lengths, [n / 2 for n in lengths], dashed=True, colour=len(NORMS))
        columns = {"ratio": "as / Var of the output", "sign": "as of sign(output - median)"}
        panels = [
            lab.Panel("", "length n", y, [*_lines(table.having("way"), column), half], x_log=True, y_log=True)
            for column, y in columns.items()
        ]
        caption = "Lines: means over models; bands: the least and the largest. Dashed: n/2."
        return [lab.Figure("random-sensitivity", self.title, caption, panels, where="Thm 7")]


def _lines(table: lab.Rows, column: str) -> list[lab.Series]:
    return [
        lab.line(rows, "length", column, NORMS[norm], "mean", colour=colour)
        for colour, (norm, rows) in enumerate(table.each("norm", NORMS))
        if rows
    ]


STUDY = RandomSensitivity()
