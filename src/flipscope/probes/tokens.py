"""Token sensitivity: how often disturbing one token of an input changes a model's answer.

    >>> import flipscope
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 1, bias=False))
    >>> _ = torch.nn.init.ones_(model[1].weight)
    >>> texts = torch.tensor([[[2.0, 1.0], [0.5, 0.0], [0.0, 0.5]]])  # one input of three tokens
    >>> found = flipscope.token_sensitivity(model, texts, variance=4.0, draws=1000)
    >>> abs(found.definition.value - 0.0786) < 0.02  # Phi(-4 / (2 sqrt(2))), for each token
    True

With g the model's answer, its class or the sign of its logit, and T(X) the number of tokens of the input X,

    S = E_X [ 1/T(X) sum_tau P(g(X) != g(X with token tau disturbed)) ]        (Def 4.1 of the low-sensitivity paper).

A token is disturbed by Gaussian noise (how="noise"), replaced by a uniformly drawn one, which may be the same
("replace"), or exchanged for the other of two values ("flip"). Tokens are positions of a sequence, patches of an image,
or what a feature mask says, in the model's input or in the output of one of its modules.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from flipscope.adapters.disturbing import FeatureMask, RowStreams, noise_tensor
from flipscope.adapters.inputs import Inputs
from flipscope.adapters.settled import as_settled
from flipscope.adapters.subject import Model
from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_confidence, check_count, check_positive
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate, Validity, mean_from_samples
from flipscope.basics.progress import Progress
from flipscope.basics.seeds import Seed, seed_number
from flipscope.probes.token_actions import Action, Rows, Vocabulary, token_action, whole_change, whole_std
from flipscope.probes.token_first_order import first_order_changes
from flipscope.probes.token_results import Disturbance, How, TokenSensitivity, audited, per_input
from flipscope.probes.token_site import CountedTokens, LabelWords, TokenSite, checked_words

HOW: tuple[How, ...] = ("noise", "replace", "flip")
_BLOCK = 1 << 14  # rows that are prepared together
_FIRST_LOOK, _LOOK_GROWTH = 32, 1.25  # inputs after which the interval is looked at, and by how much more then
_TOKEN_STEPS = 4  # by which the tokens of each input are multiplied when all inputs have been used
_FIRST_SHARE = 0.8  # of the allowed error that the first pass over the inputs gets; later ones this share of the rest
_PREFIX_CALLS, _PREFIX_ROWS = 16, 8  # into how many calls rows with kept prefixes are split, if each has so many rows
_PREFIX_FROM = 8  # rows of an input, on average, from which keeping its prefix pays
_CHOICE = 1 << 40  # numbers of the streams that choose tokens, beyond those of any token or draw


@checked_arguments
def token_sensitivity(
    model: Model,
    inputs: Inputs | Mapping[str, Any],
    *,
    at: str | None = None,
    feature_mask: FeatureMask | None = None,
    mask: Tensor | np.ndarray | None = None,
    how: How = "noise",
    variance: float = 1.0,
    normalise: bool = False,
    whole_variance: float | None = None,
    vocabulary: Vocabulary | None = None,
    special: Sequence[int] = (),
    count_special: bool | None = None,
    draws: int = 1,
    tokens: Literal["all"] | int = "all",
    precision: float | None = None,
    confidence: float = 0.95,
    seed: Seed = 0,
    words: Sequence[Sequence[str]] | None = None,
    label_words: LabelWords | None = None,
    first_order: bool = False,
    progress: Progress | None = None,
) -> TokenSensitivity:
    """How often disturbing one token changes the model's answer, for each token of each input, and on average.

    ``inputs`` are what the model is called with: a tensor [input, ...], a tuple of them, or a mapping as tokenizers of
    `transformers` return it. Disturbed is the input itself (of several the first, or ``input_ids`` or ``pixel_values``)
    or the output of the module named ``at``, such as "bert.embeddings". ``feature_mask`` says which of its numbers make
    up each token, `patches(size)` for images; by default each position of a sequence is one. ``mask`` [input, token]
    says which tokens count, by default the ``attention_mask`` if there is one; padding of flipscope's models does not.

    how="noise" adds Gaussian noise of this ``variance`` to each number of the token; with ``normalise`` it is
    multiplied by the token's own root mean square. Noise of ``whole_variance`` on all tokens at once, by default the
    same variance, is measured beside it; 0 leaves that out. how="replace" draws from the ``vocabulary``: token ids, or
    their number, or vectors; by default the model's own, or for numbers the tokens of all inputs. ``special`` token ids
    are neither replaced nor drawn; with noise they count. ``count_special`` changes either.

    ``draws=5`` with all ``tokens`` is how the paper measures. Many inputs with few random tokens each and one draw tell
    more for the same effort: tokens=1. With a ``precision`` the measurement does that by itself and stops when the
    interval of the definition reaches so far to either side, or when all tokens of all inputs were drawn.

    For a causal language model, the answer is the next token with label_words="any", or the likeliest of the token ids
    given as ``label_words``. A model of `transformers` is then run from a replaced token on only.

    With ``first_order`` the result has an estimate from one gradient per input too, and its error on the sampled rows;
    ``words`` are shown in pictures and hover texts.

    The noise of a row depends on the seed and the numbers of its input, token and draw only. The results do
    not depend on the batches. The model is left as it was.

    >>> parity = lambda bits: (bits.sum(dim=1) % 2) - 0.5
    >>> token_sensitivity(parity, np.array([[0, 1, 1], [1, 1, 1]]), how="flip").changed.tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    if how not in HOW:
        raise InputError(f"how={how!r} is not one of {', '.join(HOW)}")
    confidence = check_confidence(confidence)
    plan = _Plan(
        draws=check_count("draws", draws),
        tokens=None if tokens == "all" else check_count("tokens", tokens),
        precision=None if precision is None else check_positive("precision", precision),
    )
    if plan.precision is not None and (tokens != "all" or draws != 1):
        raise InputError("precision chooses tokens and draws itself: leave out tokens and draws, or precision")
    if how == "flip" and draws != 1:
        raise InputError("a flip is not random: leave out draws")
    settled = as_settled(model)
    with settled.measuring():
        site = TokenSite(settled, inputs, at, feature_mask, label_words)
        counted = CountedTokens(site, mask, special, count_special, how)
        number = seed_number(seed)
        action = token_action(site, counted, how, variance, normalise, vocabulary, number)
        own_words = checked_words(words, counted.valid)
        whole = whole_std(how, variance, whole_variance)
        site.ask(counted.valid)
        meter = _Meter(site, action, counted.valid, plan, number, progress, 0 if whole is None else plan.draws)
        validity: Validity = "fixed" if plan.precision is None else "anytime"
        error, reached = meter.run(confidence)
        definition, pooled = meter.estimates(error, confidence, validity)
        all_at_once = None if whole is None else meter.whole_estimate(whole, normalise, confidence, validity)
        images, cells = site.pictures()
        norms = (None, None) if at is None or how != "noise" else site.norms()
        linear = None
        if first_order:
            if how != "noise":
                raise InputError("first_order is for how='noise': leave it out")
            guess = first_order_changes(site, math.sqrt(variance), normalise)
            linear = audited(guess, meter.changed, meter.drawn, counted.valid, confidence, validity)
    is_text = mask is not None or not site.floats or counted.has_mask
    return TokenSensitivity(
        changed=meter.changed,
        drawn=meter.drawn,
        valid=counted.valid,
        answers=site.answers,
        definition=definition,
        pooled=pooled,
        whole=all_at_once,
        disturbance=Disturbance(
            how=how,
            at=at,
            rms=site.rms,
            normalised=normalise,
            norm_before=norms[0],
            norm_after=norms[1],
            whole_variance=None if whole is None else whole**2,
            **action.said(),
        ),
        rows=meter.rows,
        reached=reached,
        aligned="right" if is_text else "left",
        seed=number,
        words=own_words,
        first_order=linear,
        images=images,
        cells=cells,
    )


# ---------------------------------------------------------------- measuring


@dataclass(frozen=True)
class _Plan:
    """How much is measured: so many draws of so many tokens of each input, or as much as a precision needs."""

    draws: int
    tokens: int | None  # None is all
    precision: float | None


class _Meter:
    """Counts which disturbances change the answer."""

    def __init__(
        self,
        site: TokenSite,
        action: Action,
        valid: Bool[np.ndarray, "input token"],
        plan: _Plan,
        seed: int,
        progress: Progress | None,
        whole_draws: int,
    ) -> None:
        self._site, self._action, self._valid, self._plan, self._seed = site, action, valid, plan, seed
        self._hits = np.zeros(valid.shape, np.int64)
        self.drawn = np.zeros(valid.shape, np.int64)
        self.rows = 0
        self._order = np.arange(site.count)  # of the inputs that were used
        self._progress, self._done = progress, 0
        counts = valid.sum(axis=1)
        each = counts if plan.tokens is None else np.minimum(counts, plan.tokens)
        self._total = int(each.sum()) * plan.draws + site.count * whole_draws

    @property
    def changed(self) -> Float64[np.ndarray, "input token"]:
        """The share of draws that changed the answer, NaN without draws."""
        found: Float64[np.ndarray, "input token"] = np.where(
            self.drawn > 0, self._hits / np.maximum(self.drawn, 1), np.nan
        )
        return found

    def run(self, confidence: float) -> tuple[float, bool | None]:
        """Measure as the plan says; the error left to the intervals, and whether the precision was reached."""
        if self._plan.precision is None:
            everything = np.arange(self._site.count)
            step = max(1, _BLOCK // max(1, self._valid.shape[1] * self._plan.draws))
            for start in range(0, len(everything), step):
                self._measure(self._rows(everything[start : start + step], self._plan.tokens))
            return 1 - confidence, None
        return self._adaptive(1 - confidence, self._plan.precision)

    def _adaptive(self, allowed: float, precision: float) -> tuple[float, bool]:
        """One token of each input in random order until the interval is narrow enough; then more tokens of each.

        Each pass over the inputs has a part of the allowed error and intervals that hold at every number of inputs, so
        that stopping when one of them is narrow enough costs no coverage.
        """
        order = np.random.default_rng((self._seed, _CHOICE, 1)).permutation(self._site.count)
        most = int(self._valid.sum(axis=1).max())
        used, limit, left = 0, 1, allowed
        while True:
            error, left = left * _FIRST_SHARE, left * (1 - _FIRST_SHARE)
            seen = 0
            for look in _looks(len(order)):
                self._measure(self._rows(order[seen:look], limit, used))
                seen = look
                self._order = order[:seen]
                if self._interval(self._order, error).half_width <= precision:
                    return error, True
            if limit >= most:
                return error, False
            used, limit = limit, min(limit * _TOKEN_STEPS, most)

    def _interval(self, some: Int64[np.ndarray, " input"], error: float) -> Estimate:
        shares = per_input(self.changed[some], self.drawn[some])
        return mean_from_samples(shares, 0, 1, 1 - error, "anytime")

    def estimates(self, error: float, confidence: float, validity: Validity) -> tuple[Estimate, Estimate]:
        """By the definition, and pooled over tokens; of the inputs that were used in the last pass."""
        some = self._order
        shares = per_input(self.changed[some], self.drawn[some])
        counts = self._valid[some].sum(axis=1)
        definition = pooled = mean_from_samples(shares, 0, 1, 1 - error, validity, self.rows)
        if counts.min() < counts.max():
            pooled = mean_from_samples(shares, 0, 1, 1 - error, validity, self.rows, counts)
        # The rest of the allowed error went to passes before the last.
        return dataclasses.replace(definition, confidence=confidence), dataclasses.replace(
            pooled, confidence=confidence
        )

    def whole_estimate(self, std: float, normalise: bool, confidence: float, validity: Validity) -> Estimate:
        """The same for noise on all tokens that count at once, of the inputs that were used."""
        site, layout, draws = self._site, self._site.layout, self._plan.draws
        streams, numbers = RowStreams(self._seed), math.prod(self._site.layout.shape)
        hits = np.zeros(site.count, np.int64)
        for start in range(0, len(self._order), site.batch):
            some = self._order[start : start + site.batch]
            counted = torch.from_numpy(self._valid[some])[:, layout.token_of]
            for draw in range(draws):
                rows = np.stack([some, np.full_like(some, _CHOICE), np.full_like(some, draw)], axis=1)
                noise = noise_tensor(streams, rows, numbers, std) * counted
                found = site.settled.chosen(site.values(some, whole_change(layout, noise, normalise)))
                hits[some] += found != site.answers[some]
                self._tell(len(some))
        return mean_from_samples(hits[self._order] / draws, 0, 1, confidence, validity)

    def _rows(self, some: Int64[np.ndarray, " input"], tokens: int | None, used: int = 0) -> Rows:
        """The rows of these inputs: all their tokens, or so many random ones except those that were used before."""
        chosen = self._valid[some]
        if tokens is not None:
            chosen = chosen & (self._rank[some] >= used) & (self._rank[some] < tokens)
        place, token = np.nonzero(chosen)
        pairs, draws = np.stack([some[place], token], axis=1), self._plan.draws
        return np.concatenate([np.repeat(pairs, draws, axis=0), np.tile(np.arange(draws), len(pairs))[:, None]], axis=1)

    @cached_property
    def _rank(self) -> Int64[np.ndarray, "input token"]:
        """The place of each token in a random order of the tokens of its input that count."""
        keys = np.random.default_rng((self._seed, _CHOICE)).random(self._valid.shape)
        order = np.where(self._valid, keys, np.inf).argsort(axis=1, kind="stable")
        return order.argsort(axis=1, kind="stable")

    def _measure(self, rows: Rows) -> None:
        """Run the model on these rows, and count."""
        if len(rows) == 0:
            return
        drawn, differs = self._action.prepared(rows)
        np.add.at(self.drawn, (rows[:, 0], rows[:, 1]), 1)
        kept = np.flatnonzero(differs)
        for part, start in self._calls(rows, kept):
            some = rows[part]
            change = self._action.change(some, None if drawn is None else drawn[part])
            found = self._site.values(some[:, 0].copy(), change, start)
            changed = some[self._site.settled.chosen(found) != self._site.answers[some[:, 0]]]
            np.add.at(self._hits, (changed[:, 0], changed[:, 1]), 1)
            self.rows += len(part)
            self._tell(len(part))
        self._tell(len(rows) - len(kept))

    def _calls(self, rows: Rows, kept: Int64[np.ndarray, " kept"]) -> Iterator[tuple[Int64[np.ndarray, " part"], int]]:
        """The rows that go into one call, and the position from which the model is run.

        Where prefixes are kept, a call has rows of few inputs, and starts at the first token that is changed in it.
        Keeping them is a pass of its own, which does not pay for the few rows of an input.
        """
        batch, inputs = self._site.batch, np.unique(rows[kept, 0])
        if not (self._site.keeps_prefixes and len(kept) >= _PREFIX_FROM * len(inputs)):
            yield from ((part, 0) for part in np.array_split(kept, max(1, -(-len(kept) // batch))) if len(part))
            return
        for some in (inputs[n : n + batch] for n in range(0, len(inputs), batch)):
            self._site.keep_prefixes(some)
            group = kept[np.isin(rows[kept, 0], some)]
            group = group[np.argsort(rows[group, 1], kind="stable")]
            calls = max(1, -(-len(group) // batch), min(_PREFIX_CALLS, len(group) // _PREFIX_ROWS))
            yield from ((part, int(rows[part, 1].min())) for part in np.array_split(group, calls))

    def _tell(self, count: int) -> None:
        self._done += count
        if self._progress is not None and count:
            self._progress(min(self._done, self._total), self._total)


def _looks(size: int) -> Iterator[int]:
    """After how many inputs to look at the interval."""
    look = _FIRST_LOOK
    while look < size:
        yield look
        look = math.ceil(look * _LOOK_GROWTH)
    yield size
