"""What 000 claims of strings of sensitivity 0, and how each claim is judged. A model is one sample."""

from __future__ import annotations

import math

import numpy as np

from flipscope.cube.intervals import Estimate, mean_from_samples, proportions
from flipscope.lab.study import Claim, Table
from flipscope.lab.verdict import Judgement, all_of, at_least, consistent_with

ERROR = 0.05  # of all intervals of a claim together
SOME = 1 - math.exp(-1)  # P(Poisson(1) >= 1)
TOLERANCE = 0.05  # how far from it the interval may reach
# The limit is off by about N/2^N at N bits (0.03 at 8, 0.003 at 12): shorter functions say nothing of it.
SHORTEST = 12
FLOOR = 0.1  # a share that has not vanished
KEPT = 0.5  # part of the share at the first sampled length that is left at the longest
FEWEST = 10  # models of a shape that are judged by themselves
ALMOST = 0.8  # "almost every" model
POISSON = tuple(math.exp(-1) / math.factorial(k) for k in range(7))  # P(Poisson(1) = k)


def network_rows(table: Table) -> Table:
    """The rows of transformers."""
    return [row for row in table if row["kind"] == "network"]


def by_shape(rows: Table) -> dict[str, Table]:
    """The rows of each shape."""
    return {shape: [row for row in rows if row["shape"] == shape] for shape in dict.fromkeys(r["shape"] for r in rows)}


def _judge_functions(table: Table) -> Judgement:
    rows = [row for row in table if row["kind"] == "function"]
    if not rows:
        return Judgement.without("no random function was drawn")
    row = max(rows, key=lambda row: int(row["length"]))
    if row["length"] < SHORTEST:
        return Judgement.without(
            f"functions of {row['length']} bits are too short for the limit: {SHORTEST} are needed"
        )
    found = proportions([row["zeros"]], row["asked"], 1 - ERROR)[0]
    mean = float(np.dot(np.arange(len(row["histogram"])), row["histogram"])) / row["asked"]
    note = f"{row['asked']} functions of {row['length']} bits, with {mean:.3g} such strings on average"
    return consistent_with(found, SOME, TOLERANCE, "share of functions with a string of sensitivity 0", note)


def _ends(rows: Table) -> tuple[Table, Table]:
    """For each model that has both, the row of the first sampled length and that of the longest."""
    sampled = [row for row in rows if not row["exact"]]
    lengths = sorted({row["length"] for row in sampled})
    if len(lengths) < 2:
        return [], sampled
    found = {(row["seed"], row["length"]): row for row in sampled}
    first, last = lengths[0], lengths[-1]
    seeds = [seed for seed in sorted({row["seed"] for row in rows}) if {(seed, first), (seed, last)} <= found.keys()]
    return [found[seed, first] for seed in seeds], [found[seed, last] for seed in seeds]


def _judge_shares(table: Table) -> Judgement:
    shapes = by_shape(network_rows(table))
    if not shapes:
        return Judgement.without("no transformer was measured")
    parts = []
    confidence = 1 - ERROR / (2 * len(shapes))
    for shape, rows in shapes.items():
        first, last = _ends(rows)
        if not last:
            parts.append(Judgement.without(f"{shape}: no model has been sampled"))
            continue
        found = mean_from_samples([row["share"] for row in last], 0, 1, confidence)
        constant = sum(row["constant"] for row in last) / len(last)
        note = f"{len(last)} models, of which {constant:.0%} show no other answer"
        parts.append(at_least(found, FLOOR, f"mean share at N = {last[0]['length']}, {shape}", note))
        if first:
            changes = [b["share"] - KEPT * a["share"] for a, b in zip(first, last, strict=True)]
            lost = mean_from_samples(changes, -KEPT, 1, confidence)
            where = f"share at N = {last[0]['length']} less {KEPT:g} of that at N = {first[0]['length']}, {shape}"
            parts.append(at_least(lost, 0.0, where))
    return all_of(_weakest_first(parts))


def _judge_varied(table: Table) -> Judgement:
    last = {shape: _ends(rows)[1] for shape, rows in by_shape(network_rows(table)).items()}
    varied = {shape: [row for row in rows if not row["constant"]] for shape, rows in last.items()}
    few = [f"{len(rows)} of {shape}" for shape, rows in varied.items() if len(rows) < FEWEST]
    judged = {shape: rows for shape, rows in varied.items() if len(rows) >= FEWEST}
    note = f"too few models to judge: {', '.join(few)}" if few else ""
    if not judged:
        return Judgement.without(note or "no transformer was measured")
    parts = []
    for shape, rows in judged.items():
        found = mean_from_samples([row["share"] for row in rows], 0, 1, 1 - ERROR / len(judged))
        where = f"mean share at N = {rows[0]['length']} in {len(rows)} models, {shape}"
        parts.append(at_least(found, FLOOR, where, note))
    return all_of(_weakest_first(parts))


def _weakest_first(parts: list[Judgement]) -> list[Judgement]:
    return sorted(parts, key=lambda part: math.inf if part.low is None else part.low)


def _judge_threshold(table: Table) -> Judgement:
    rows = [r for r in network_rows(table) if r["preset"] == "recognizer" and r["eps"] == 0 and r["exponent"] > 0]
    last = _ends(rows)[1]
    if not last:
        return Judgement.without("no model of the theorem has been sampled")
    enough = sum((row["log2_zeros_low"] or -math.inf) >= row["log2_threshold"] for row in last)
    found = proportions([enough], len(last), 1 - ERROR)[0]
    power, length = last[0]["exponent"], last[0]["length"]
    quantity = f"share of models with at least N^{power:g} strings of sensitivity 0 at N = {length}"
    note = "a model counts if the lower end of its own interval is above the threshold"
    judged = at_least(found, ALMOST, quantity, note)
    if judged.verdict != "contradicted":
        return judged
    # The theorem speaks of all large N without saying how large: no length that was measured can contradict it.
    note += "; the theorem may set in at a longer length"
    return Judgement("undecided", quantity, found.value, found.low, found.high, note)


def growth(rows: Table) -> tuple[bool | None, float]:
    """Of one model: whether K_0 is exponential rather than polynomial in N, and the rate b of 2^(bN).

    Both are straight lines with two parameters for log2(1 + K_0), against N and against log2 N, so that the one with
    the smaller sum of squares has the smaller AIC as well. None where a sample saw no such string: K_0 is then unknown.
    """
    rows = sorted(rows, key=lambda row: int(row["length"]))
    lengths = np.array([row["length"] for row in rows], np.float64)
    # log2(1 + K) = log2(K) + log2(1 + 1/K), and K may be beyond floats.
    values = np.array([0.0 if r["log2_zeros"] is None else np.logaddexp2(r["log2_zeros"], 0.0) for r in rows])
    errors, slopes = [], []
    for x in (lengths, np.log2(lengths)):
        slope, start = np.polyfit(x, values, 1)
        slopes.append(float(slope))
        errors.append(float(np.square(values - start - slope * x).sum()))
    unseen = any(row["zeros"] == 0 and not row["exact"] for row in rows)
    return (None if unseen else errors[0] < errors[1]), slopes[0]


def _judge_growth(table: Table) -> Judgement:
    models = [
        [row for row in rows if row["seed"] == seed]
        for rows in by_shape(network_rows(table)).values()
        for seed in sorted({row["seed"] for row in rows})
    ]
    varied = [rows for rows in models if len(rows) >= 4 and not all(row["constant"] for row in rows)]
    if not varied:
        return Judgement.without("no model that is not constant has four lengths")
    found = [growth(rows) for rows in varied]
    exponential, unknown = sum(kind is True for kind, _ in found), sum(kind is None for kind, _ in found)
    # A model whose K_0 is unknown counts against at the lower end, and for it at the upper one.
    least, most = (proportions([count], len(found), 1 - ERROR)[0] for count in (exponential, exponential + unknown))
    share = Estimate(least.value, least.low, most.high, 1 - ERROR, len(found))
    rates = np.quantile([rate for _, rate in found], (0.25, 0.5, 0.75))
    favoured = "exponential" if exponential > len(found) / 2 else "polynomial"
    note = (
        f"{len(models) - len(varied)} of {len(models)} models left out, constant at every length; {unknown} in doubt; "
        f"the data favour {favoured} growth; b of 2^(bN): quartiles {rates[0]:.3g}, {rates[1]:.3g}, {rates[2]:.3g}"
    )
    return at_least(share, 0.5, "share of models whose K_0 an exponential of N fits better than a power", note)


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "random functions follow Poisson(1)",
        "§7",
        "a uniformly random function has a string of sensitivity 0 with probability 1 - 1/e for large N",
        f"share of random functions of at least {SHORTEST} bits that have one: {SOME:.4f} within {TOLERANCE}",
        _judge_functions,
    ),
    Claim(
        "the share does not vanish",
        "Thm 4.5, §6",
        "random transformers have strings of sensitivity 0 at every large N",
        f"mean share of such strings at the longest N: at least {FLOOR}; and at least {KEPT:g} of that at the first "
        "sampled N; for every shape",
        _judge_shares,
    ),
    Claim(
        "more than the threshold",
        "Thm 4.5",
        "almost every transformer has at least N^((D-1)/2L - 5) strings of sensitivity 0 once N is large",
        f"share of models that have so many at the longest N: at least {ALMOST}",
        _judge_threshold,
    ),
    Claim(
        "nor does it where answers vary",
        "§6",
        "left open: whether this is owed to models that give one answer only",
        f"mean share at the longest N over the models that are not constant there: at least {FLOOR} for every shape",
        _judge_varied,
        beyond=True,
    ),
    Claim(
        "the number grows exponentially",
        "§7",
        "the experiments suggest exponential growth of K_0; a polynomial lower bound is proved",
        "straight lines for log K_0 against N and against log N, by AIC; share of the models that are not constant for "
        "which N fits better: more than 0.5",
        _judge_growth,
        beyond=True,
    ),
)
