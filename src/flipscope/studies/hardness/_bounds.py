"""Claims and figures of the bounds of paper 001: never broken, how loose, and Theorem 6 at finite n."""

from __future__ import annotations

import math

import flipscope.lab as lab
from flipscope.studies.hardness._shared import slope

KINDS = ("random", "constructed", "adversarial", "trained")
FORMS = {
    "product": ("Thm 4", "s(x, T) is at most C^2 Blowup(x)^2 J / 4"),
    "layers": ("Thm 4, layer by layer", "the same, with what each norm does at each position"),
    "focus": ("Thm 4, with attention", "the same, with the attention of the string"),
    "average": ("Cor 5", "as_n(T) is at most C^2 J E[Blowup^2] / 4"),
    "every": ("Fact 1", "for eps > 0 or without norms s(x, T) is bounded on every string"),
}
ROUNDING = 1e-6  # of log10
FEWEST = 100  # models, before never is said of all
FEWEST_LENGTHS = 3  # for a line through them
CLOSE = 2.0  # powers of ten
TIGHT = 0.5  # of the sharpness measured


def holds(form: str) -> lab.Judge:
    """A judge: no model is above the bound."""

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = table.having(form)
        if not rows:
            return lab.Judgement.without("no model has this bound")
        known = rows.where(lambda row: not math.isnan(row[form]))
        broken, unknown = sum(row[form] < -ROUNDING for row in known), len(rows) - len(known)
        tightest = min(known, key=lambda row: row[form], default=rows[0])
        note = f"nearest: 10^{tightest[form]:.2g} above what is measured, a {tightest['kind']} model"
        found = lab.never(broken, len(known), "share of models above the bound", note, unknown=unknown)
        return lab.unless_few(found, len(rows), FEWEST, "models")

    return judge


def loose(form: str) -> lab.Judge:
    """A judge: by how many powers of ten the bound exceeds what is measured, on average, for each kind of model."""
    judge = lab.mean_of(form, lab.at_most, CLOSE, f"log10 of bound over s(x, T), {form}", within=None, fewest=5)
    return lambda table: lab.for_each(
        [(kind, rows.having(form)) for kind, rows in table.each("kind", KINDS)], judge, what="kinds", sort=True
    )


def judge_gap(table: lab.Rows) -> lab.Judgement:
    """No sharpness below its Fourier gap."""
    rows = table.having("gap")
    if not rows:
        return lab.Judgement.without("no trained model was perturbed")
    unknown = sum(math.isnan(row["sharpness"]) or math.isnan(row["gap"]) for row in rows)
    broken = sum(row["sharpness"] < row["gap"] * (1 - ROUNDING) - 1e-9 for row in rows)
    what = "share of models flatter than the Fourier gap allows"
    found = lab.never(broken, len(rows) - unknown, what, unknown=unknown)
    return lab.unless_few(found, len(rows), FEWEST, "models")


def learned_parity(table: lab.Rows) -> lab.Rows:
    """The models of PARITY that were perturbed and have more than half of its average sensitivity."""
    return table.having("gap").where(lambda row: not row["as"] <= row["length"] / 2, function="parity")


def judge_perturbed(table: lab.Rows) -> lab.Judgement:
    """Of models that learned PARITY, the share of the average sensitivity that a perturbation leaves falls with n.

    The share, and not what is left per bit: longer PARITY is learned less well, perturbed or not.
    """
    rows = learned_parity(table)
    lengths = rows.values("length") if rows else []
    left = [row["as_perturbed"] / row["as"] for row in rows]
    if any(map(math.isnan, left)):
        return lab.Judgement.without("some models that were perturbed gave no number")
    found = slope(left, rows.column("length")) if len(lengths) >= FEWEST_LENGTHS else None
    if found is None:
        said = f"{len(rows)} models that learned PARITY were perturbed, at {len(lengths)} lengths: too few for a line"
        return lab.Judgement.without(said, f"the scale laptop, with {FEWEST_LENGTHS} lengths that are learned")
    if max(left) - min(left) <= ROUNDING:
        return lab.Judgement.without(f"perturbations leave {left[0]:.3g} of as_n in all {len(left)} models, at every n")
    note = f"n from {lengths[0]} to {lengths[-1]}, mean {sum(left) / len(left):.2g}"
    return lab.at_most(found, 0.0, "share of as_n that a perturbation leaves, per bit", note, "models")


def judge_tight(table: lab.Rows) -> lab.Judgement:
    """Of PARITY at the longest strings, how much of the sharpness the gap explains."""
    learned = learned_parity(table).where(lambda row: not row["sharpness"] <= 0)
    if not learned:
        return lab.Judgement.without("no model of PARITY was perturbed", "the scale laptop")
    longest = max(learned.column("length"))
    shares = [
        {"share": math.nan if math.isnan(row["as"]) else row["gap"] / row["sharpness"]}
        for row in learned.where(length=longest)
    ]
    judge = lab.mean_of("share", lab.at_least, TIGHT, "gap over sharpness of parity", within=None)
    return lab.for_each([(f"n = {longest}", lab.Rows(shares))], judge)


def claims() -> tuple[lab.Claim, ...]:
    """All of them."""
    never = [
        lab.Claim(
            f"{source}: never exceeded",
            source.partition(",")[0],
            statement,
            "bound over measured, on every model tried",
            holds(form),
        )
        for form, (source, statement) in FORMS.items()
    ]
    far = [
        lab.Claim(
            f"the bound is close, {form}",
            "none: the paper has no constants",
            "the bound is within two powers of ten of what is measured",
            f"mean log10 of bound over s(x, T) at the nearest string, for each kind of model: at most {CLOSE:g}",
            loose(form),
            exploratory=True,
        )
        for form in ("product", "focus")
    ]
    gaps = (
        lab.Claim(
            "perturbed models of PARITY lose their sensitivity",
            "Thm 6",
            "a perturbation leaves an average sensitivity that is o(n), which is what makes sensitive functions sharp",
            "slope over n of the share of as_n that perturbations leave on average, of PARITY learned: below 0",
            judge_perturbed,
            asymptotic=True,
        ),
        lab.Claim(
            "sharpness is never below the Fourier gap",
            "none: a step of the proof of Thm 6",
            "functions are as far apart as their average sensitivities say: true of any two, so it checks the code "
            "that measures them and says nothing of transformers",
            "measured sharpness over Eq 11 at the measured mean as_n of the perturbed models",
            judge_gap,
            exploratory=True,
        ),
        lab.Claim(
            "the gap explains PARITY's sharpness",
            "Thm 6",
            "it is the loss of sensitivity under perturbations that makes PARITY sharp",
            f"Eq 11 over measured sharpness, models of PARITY at the longest n: at least {TIGHT}",
            judge_tight,
            exploratory=True,
        ),
    )
    return (*never, *far, *gaps)


def panels(table: lab.Rows, title: str) -> list[lab.Figure]:
    """What is measured against each bound, and sharpness against the gap."""
    shown = [_against(table, form) for form in ("product", "focus") if table.having(form)]
    gaps = table.having("gap")
    caption = "One point per model, at the string nearest to its bound. Nothing may be below the line."
    figures = [lab.Figure("blowup-bound", title, caption, shown, where="Thm 4")] if shown else []
    if not gaps:
        return figures
    points = lab.points(gaps, "gap", "sharpness", "function", lambda row: f"{row['function']}, n = {row['length']}")
    ends = [0.0, max(gaps.column("gap"))]
    panel = lab.Panel("", "Fourier gap", "sharpness", [*points, lab.Series("equal", ends, ends, dashed=True)])
    text = "One point per trained model: sharpness, and the least that the sensitivity of its perturbations allows."
    return [
        *figures,
        lab.Figure("fourier-gap", "Sharpness and the Fourier gap", text, [panel], columns=1, where="Thm 6"),
    ]


def _against(table: lab.Rows, form: str) -> lab.Panel:
    rows, place = table.having(form), f"{form}_at"
    series = [
        lab.Series(kind, own.column(place), [row[place] + row[form] for row in own], "points", colour=number)
        for number, (kind, own) in enumerate(rows.each("kind", KINDS))
        if own
    ]
    ends = [min(rows.column(place)), max(rows.column(place))]
    line = lab.Series("equal", ends, ends, dashed=True)
    return lab.Panel(FORMS[form][0], "log10 of s(x, T)", "log10 of its bound", [*series, line])
