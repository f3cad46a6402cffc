"""Sensitivity spectra and average sensitivities of randomly initialised transformers (App. F.1, Figs 3 left and 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import flipscope.lab as lab
from flipscope.studies.geometry.random_models import (
    INITS,
    NEAR,
    Draw,
    Plan,
    by_setting,
    figures_by_init,
    mixed,
    models_of,
)
from flipscope.studies.geometry.shared import how_measured, screen_error

VAST, MOST = 9 / 10, 1 / 2  # share of strings that is the vast majority; share of models that is most of them
CLUSTER = 1.0  # averages below this are in the cluster at 0
TAIL, THIN = 1 / 10, 1 / 10  # part of N above which an average is in the tail; largest share of models in a thin tail
FAR = 1 / 2  # part of a random function's N/2
STRINGS, AVERAGE = f"share of strings with s(x) ≤ N/{1 / NEAR:g}", "average sensitivity over N/2"
BELOW, BEYOND = f"share of models with average below {CLUSTER:g}", f"share of models with average ≥ N/{1 / TAIL:g}"


def _by_init(table: lab.Rows) -> list[tuple[str, lab.Rows]]:
    return table.each("init", INITS)


def _varied(table: lab.Rows) -> list[tuple[str, lab.Rows]]:
    return [("models that are not constant", mixed(table.where(constant=False)))]


def _judge(
    groups: Callable[[lab.Rows], list[tuple[str, lab.Rows]]], one: lab.GroupJudge, whole: lab.GroupJudge | None = None
) -> lab.Judge:
    """A judge of each group and of all models, undecided where the screen has not been audited enough."""

    def judge(table: lab.Rows) -> lab.Judgement:
        judged = lab.for_each(groups(table), one, missing="no model is done", besides=whole is not None, sort=True)
        if whole:
            # The models of one initialisation are not distributed like those of another, but the binomial interval of
            # equally many of each is then too wide rather than too narrow (Hoeffding 1956).
            judged = lab.all_of([judged, whole("all initialisations", table, lab.confidence(len(groups(table)) + 1))])
        if (hidden := screen_error(table)[1]) > CLUSTER:
            note = f"the screen could hide {hidden:.3g} of an average"
            return judged.left_open(note, "a larger audit of the screen")
        return judged

    return judge


class RandomInit(lab.Study):
    """Whether random transformers are insensitive, whatever the initialisation."""

    name, paper, figures = "random-init", "000", ("Fig 3 left", "Fig 4")
    title = "Sensitivity spectra and average sensitivities of randomly initialised transformers"
    sample_sizes, base_seed = ("data_sets", "strings", "seconds", "piece"), "first_data_set"
    scales = lab.scales(
        "4 initialisations, {data_sets} data sets, {models} transformers each, N = {length}, width at most {widest}, "
        "{strings[0]:,} to {strings[1]:,} strings per transformer; {screened:,} slow models (over {seconds:g} s) "
        "screened",
        smoke=(0.1, Plan(3, 1, 40, (20, 60), 0.2, (30, 1.0), 64, 3)),
        demo=(0.6, Plan(1, 60, 100, (30, 60), 0.2, (30, 600.0), 32, 211)),
        laptop=(8, Plan(64, 1, 100, (30, 400), 1.5, (50, 600.0), 512, 180)),
        paper=(45_000, Plan(10, 50, 100, (10_000, 10_000), 600.0, (100, 600.0), 1024, 1_480)),
    )
    deviations = lab.deviations(
        ("flips of expensive models, screened", "all computed", "screened, with an audit", "months otherwise"),
        ("strings per model, seconds (laptop)", "10,000", "30 to 400", "as many as take 1.5 seconds"),
        ("data sets, models (laptop)", "500 per initialisation", "64, each with its own strings", "8 minutes"),
        ("widest (laptop)", "up to 1,024", "at most 512", "one model in 16 would take half of the time"),
        (
            "data sets, models, widest (demo)",
            "500 per initialisation",
            "60, of widths 16 and 32",
            "to take half a minute",
        ),
        ("strings per model, seconds (demo)", "10,000", "30 to 60", "the mean over models is what is judged"),
        (
            "data sets, models, length, widest, strings (smoke)",
            "500, N = 100",
            "3, N = 40, widths up to 64",
            "to take seconds",
        ),
        ("piece: strings of one trial", "not stated", "fewer than at scale paper", "trials of seconds"),
        ("eps", "a small constant", "1e-5", "not stated; PyTorch's"),
        ("Xavier biases", "drawn like the weights, gain 1", "PyTorch's law", "a vector has no fan-in or fan-out"),
        ("Thm 4.5", "eps = 0, said to predict Fig 3", "measured with eps > 0", "contradicts § 6 and App. F"),
    )
    claims = (
        lab.Claim(
            "most strings are insensitive",
            "Figs 3 and 4, top",
            "under every initialisation the vast majority of strings have sensitivity 0 or close to 0",
            f"share of strings with sensitivity at most N/{1 / NEAR:g}, averaged over models: {VAST:g} or more under "
            "each initialisation",
            _judge(_by_init, lab.mean_of("near_share", lab.at_least, VAST, STRINGS)),
        ),
        lab.Claim(
            "average sensitivities cluster at 0",
            "Figs 3 and 4, bottom",
            "average sensitivities cluster tightly near 0, with a thin tail",
            f"share of models below {CLUSTER:g}: {VAST:g} or more under each initialisation; share of all models "
            f"with N/{1 / TAIL:g} or more: at most {THIN:g}",
            _judge(
                _by_init,
                lab.share_where(lambda row: row["average_sensitivity"] < CLUSTER, lab.at_least, VAST, BELOW),
                lab.share_where(lambda row: not row["relative"] < 2 * TAIL, lab.at_most, THIN, BEYOND),
            ),
        ),
        lab.Claim(
            "random transformers are far below a random function",
            "Figs 3 and 4, bottom",
            "random transformers are far less sensitive than the N/2 of a random function",
            f"mean average sensitivity over models: at most {FAR:g} of N/2 under each initialisation",
            _judge(_by_init, lab.mean_of("relative", lab.at_most, FAR, AVERAGE, within=(0, 2))),
        ),
        lab.Claim(
            "every depth, width and FFN is insensitive",
            "§6",
            "spectra are heavily skewed toward 0 under all hyperparameters",
            f"share of strings with sensitivity at most N/{1 / NEAR:g}, averaged over the models of each depth, each "
            f"width, each FFN multiple: {MOST:g} or more",
            _judge(by_setting, lab.mean_of("near_share", lab.at_least, MOST, STRINGS)),
        ),
        lab.Claim(
            "models that are not constant are far below a random function",
            "§6",
            "left open: whether this is due to models that always give the same answer",
            f"mean average sensitivity over the other models, all initialisations together: at most {FAR:g} of N/2",
            _judge(_varied, lab.mean_of("relative", lab.at_most, FAR, AVERAGE, within=(0, 2))),
            exploratory=True,
        ),
    )

    def trials(self, scale: str) -> list[Draw]:
        plan: Plan = self.scales[scale].settings
        return plan.all_draws()

    def summarise(self, results: Sequence[lab.Result]) -> lab.Rows:
        """One row per model, whose strings are split into several trials."""
        return models_of(results)

    def provenance(self, table: lab.Rows) -> list[str]:
        constant = [f"{sum(models.column('constant'))} of {len(models)} {init}" for init, models in _by_init(table)]
        return [*how_measured(table), f"models that are constant as far as seen: {', '.join(constant)}"]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return figures_by_init(table)


STUDY = RandomInit()
