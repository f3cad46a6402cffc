"""A heuristic screen that skips flips, with an audit; it proves nothing.

All flips of a few pilot strings are computed first. For every string then only the logit is computed: a logit many
times larger than any change by a flip of a pilot string is assumed to survive every flip. The remaining strings are
screened flip by flip with a first-order estimate, if the model has one, and only the rest is evaluated. At the end a
random sample of the skipped flips is evaluated after all, and the share of wrong guesses is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from flipscope.basics.estimates import Estimate, proportions
from flipscope.models.transformer import Transformer

Bits = NDArray[np.uint8]
Floats = NDArray[np.floating]

SAFETY = 4.0  # a logit must exceed the largest pilot change (or estimation error) by this factor


@runtime_checkable
class Logits(Protocol):
    """The part of an engine that the screen needs."""

    def logits(self, strings: Bits) -> Floats: ...

    def flip_logits(self, strings: Bits) -> tuple[Floats, Floats]: ...


@dataclass(frozen=True)
class Screening:
    """The number of skipped flips, and the wrong guesses found by a random audit of them."""

    flips: int
    skipped: int
    audited: int
    wrong: int
    error_rate: Estimate | None  # of the guesses; None when nothing was skipped


def first_order_changes(model: Transformer, strings: Bits) -> Floats:
    """First-order estimates of f(x^i) - f(x): the gradient at the first layer's input times the bit's change."""
    with torch.inference_mode(False), torch.enable_grad():
        bits = torch.from_numpy(np.ascontiguousarray(strings, np.uint8)).long()
        here, there = model.embed(bits).detach(), model.embed(1 - bits).detach()
        leaf = here.clone().requires_grad_(True)
        rows = slice(0, 1) if model.config.readout == "first" else slice(leaf.shape[1] - 1, leaf.shape[1])
        total = model.read(model.encode(leaf, None, rows)).sum()
        (gradient,) = torch.autograd.grad(total, leaf)
    changes = (gradient * (there - here)).sum(dim=-1)  # [string, position]
    first = 1 if model.config.marker == "cls" else 0
    found: Floats = changes[:, first : first + bits.shape[1]].numpy()
    return found


def screened_changes(
    engine: Logits,
    strings: Bits,
    *,
    estimate: Callable[[Bits], Floats] | None,
    threshold: float,
    signs: Callable[[Bits], NDArray[np.integer]],
    flip_signs: Callable[[Bits], tuple[NDArray[np.integer], NDArray[np.integer]]],
    seed: int,
    pilot: int = 4,
    audit: int | None = None,
    confidence: float = 0.95,
    batch: int = 64,
) -> tuple[NDArray[np.uint8], NDArray[np.bool_], Screening]:
    """The signs of the strings [m], which flips change them [m, N], most of them guessed, and the audit of the guesses.

    ``signs`` and ``flip_signs`` are the trusted signs of strings and of all their flips; ``estimate`` gives first-order
    changes, or None to screen by the margin alone.
    """
    count, length = strings.shape
    rng = np.random.default_rng(seed)
    chosen = strings[rng.choice(count, size=min(pilot, count), replace=False)]
    base, flipped = engine.flip_logits(chosen)
    with np.errstate(invalid="ignore"):  # if the engine overflows, nothing is skipped: NaN exceeds no number
        changes = flipped - base[:, None]
        largest = float(np.abs(changes).max())
        residual = float(np.abs(changes - estimate(chosen)).max()) if estimate is not None else float("inf")
    changed = np.zeros((count, length), np.bool_)
    skipped = np.zeros((count, length), np.bool_)
    base_signs = np.zeros(count, np.uint8)
    for start in range(0, count, batch):
        part = np.arange(start, min(start + batch, count))
        margin = engine.logits(strings[part]) - threshold
        margin[~np.isfinite(margin)] = np.nan
        base_signs[part] = margin > 0
        sure = np.abs(margin) > SAFETY * largest
        skipped[part[sure]] = True
        _by_estimate(strings, part[~sure], margin[~sure], estimate, residual, signs, flip_signs, skipped, changed)
    size = max(100, min(1000, count // 4)) if audit is None else audit
    return base_signs, changed, _audited(strings, skipped, base_signs, signs, rng, size, confidence)


def _by_estimate(
    strings: Bits,
    part: NDArray[np.int64],
    margin: Floats,
    estimate: Callable[[Bits], Floats] | None,
    residual: float,
    signs: Callable[[Bits], NDArray[np.integer]],
    flip_signs: Callable[[Bits], tuple[NDArray[np.integer], NDArray[np.integer]]],
    skipped: NDArray[np.bool_],
    changed: NDArray[np.bool_],
) -> None:
    """For strings without a large margin, skip flips whose estimated margin is large and evaluate the others."""
    if len(part) == 0:
        return
    if estimate is not None:
        guess = margin[:, None] + estimate(strings[part])
        far = (np.abs(guess) > SAFETY * residual) & (np.abs(margin) > SAFETY * residual)[:, None]
        skipped[part] = far & (np.sign(guess) == np.sign(margin)[:, None])
    _compute_rest(strings, part, signs, flip_signs, skipped, changed)


def _compute_rest(
    strings: Bits,
    part: NDArray[np.int64],
    signs: Callable[[Bits], NDArray[np.integer]],
    flip_signs: Callable[[Bits], tuple[NDArray[np.integer], NDArray[np.integer]]],
    skipped: NDArray[np.bool_],
    changed: NDArray[np.bool_],
) -> None:
    """Compute the flips of these strings that are not skipped, or all flips of a string if these are the majority."""
    left = (~skipped[part]).sum(axis=1)
    most = 2 * left > strings.shape[1]  # all of them together are cheaper
    whole, some = part[most], part[~most & (left > 0)]
    if len(whole):
        base, every = flip_signs(strings[whole])
        changed[whole] = every != base[:, None]
        skipped[whole] = False
    if len(some):
        string, position = np.nonzero(~skipped[some])
        near = strings[some[string]]
        near[np.arange(len(near)), position] ^= 1
        found = signs(np.concatenate([near, strings[some]]))
        flipped, base = found[: len(near)], found[len(near) :]
        changed[some[string], position] = flipped != base[string]


def _audited(
    strings: Bits,
    skipped: NDArray[np.bool_],
    base_signs: NDArray[np.uint8],
    signs: Callable[[Bits], NDArray[np.integer]],
    rng: np.random.Generator,
    audit: int,
    confidence: float,
) -> Screening:
    """Evaluate a random sample of the skipped flips."""
    where = np.flatnonzero(skipped)
    if len(where) == 0:
        return Screening(skipped.size, 0, 0, 0, None)
    chosen = rng.choice(where, size=min(audit, len(where)), replace=False)
    string, position = np.divmod(chosen, strings.shape[1])
    near = strings[string].copy()
    near[np.arange(len(near)), position] ^= 1
    # A string with a skipped flip is itself far from the threshold: its own sign needs no check.
    wrong = int((signs(near) != base_signs[string]).sum())
    rate = proportions([wrong], len(chosen), confidence)[0]
    return Screening(skipped.size, len(where), len(chosen), wrong, rate)
