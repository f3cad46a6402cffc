"""The functions that random recognisers compute, and how often: their volumes in parameter space (Fig 1).

`realised` draws the parameters theta of the paper's recogniser (Eqs 8-14) uniformly from a cube and tabulates each draw
on all strings. The vectors of the symbols and positions are not part of theta (section 2.4): they are the same in every
draw. Functions that some theta computes with a margin form F_N (Eq 25); the draws find a part of them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int64, UInt64

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import index_bits
from flipscope.basics.checks import check_count, check_not_negative, check_positive
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate, proportions
from flipscope.basics.progress import Progress
from flipscope.basics.seeds import seed_of
from flipscope.cube.few_bits import MAX_BITS, Tables, checked_tables
from flipscope.cube.functions import BooleanFunction
from flipscope.figures import Figure, Panel, Series
from flipscope.figures.results import Result
from flipscope.models.config import TransformerConfig
from flipscope.models.presets import recognizer
from flipscope.models.transformer import Block, Transformer
from flipscope.native.small_models import parameters, truth_tables

TIE = 1e-9  # logits this close to 0 may have another sign on another machine
MAX_WIDTH = 64  # a wider model has more parameters per draw than fit into the processor's cache
_BLOCK = 1 << 14  # draws tabulated together


@dataclass(frozen=True, eq=False, repr=False)
class Realised(Result):
    """The functions that some of the draws compute, the most frequent first, equal ones by their table."""

    config: TransformerConfig
    length: int
    draws: int
    seed: int
    symbols: int
    radius: float
    margin: float
    tables: UInt64[np.ndarray, " function"]  # bit i is the value on string i
    counts: Int64[np.ndarray, " function"]  # draws that compute it by the signs of their logits
    recognised: Int64[np.ndarray, " function"]  # of these, draws with all logits at least the margin away from 0
    first: Int64[np.ndarray, " function"]  # number of the first draw that computes it
    near_ties: int  # draws with a logit so close to 0 that rounding determines its sign
    asked_again: int  # draws that the compiled loop gave up, evaluated by the model itself

    @property
    def unseen(self) -> float:
        """Chao's estimate of the functions that no draw met, from those met once and twice.

        It is a lower bound in expectation: functions far rarer than one in the number of draws leave no trace in it.
        """
        once, twice = (int((self.counts == times).sum()) for times in (1, 2))
        return once * (once - 1) / (2 * (twice + 1))

    def count(self, function: BooleanFunction | int) -> int:
        """How many draws compute the function, given as such or as its truth table."""
        where = np.flatnonzero(self.tables == np.uint64(self._table(function)))
        return int(self.counts[where[0]]) if len(where) else 0

    def probability(self, function: BooleanFunction | int, confidence: float = 0.95) -> Estimate:
        """P(theta computes the function), with Clopper and Pearson's interval, even if no draw computes it."""
        return proportions([self.count(function)], self.draws, confidence)[0]

    def witness(self, function: BooleanFunction | int) -> Transformer:
        """The first model drawn that computes the function."""
        where = np.flatnonzero(self.tables == np.uint64(self._table(function)))
        if not len(where):
            raise InputError(f"none of {self.draws:,} draws computes this function: draw more, or choose another")
        return drawn(self.config, int(self.first[where[0]]), self.seed, symbols=self.symbols, radius=self.radius)

    def summary(self) -> dict[str, object]:
        """Return the number of functions found, and the shares of draws of the most frequent ones."""
        shares = [f"{100 * count / self.draws:.3g} %" for count in self.counts[:3]]
        return {
            "draws": f"{self.draws:,} recognisers on {self.length} bits, seed {self.seed}",
            "functions met": f"{len(self.tables):,} of {2 ** (2**self.length):,}",
            "most frequent": ", ".join(shares),
            "recognised": f"{int((self.recognised > 0).sum()):,} functions with margin {self.margin:g}",
            "near ties": f"{self.near_ties:,} draws",
        }

    def plot(self) -> Figure:
        """Draw the share of draws by the rank of the function, both on logarithmic axes."""
        ranks = list(range(1, len(self.counts) + 1))
        series = Series("", ranks, (self.counts / self.draws).tolist(), "line")
        panel = Panel("", "rank of the function", "share of draws", [series], x_log=True, y_log=True)
        caption = "How often random recognisers compute each function, the most frequent first."
        return Figure("realised-functions", "Functions of random recognisers", caption, [panel], columns=1)

    def _table(self, function: BooleanFunction | int) -> int:
        if isinstance(function, BooleanFunction):
            if function.n != self.length:
                raise InputError(f"the function has {function.n} bits, but the draws were tabulated on {self.length}")
            return table_number(function)
        return int(checked_tables([function], self.length)[0])


@checked_arguments
def realised(
    config: TransformerConfig,
    length: int,
    draws: int,
    *,
    seed: int = 0,
    symbols: int = 0,
    radius: float = 1.0,
    margin: float = 0.1,
    progress: Progress | None = None,
) -> Realised:
    """The functions of `length` bits that recognisers with random parameters compute, each with its number of draws.

    config: a `recognizer` of any width up to 64, layers, heads and eps. symbols: the seed of the vectors of 0, 1 and
    EOS, uniform in [-1, 1], which all draws share. The parameters are uniform in [-radius, radius]; a draw depends
    only on the seed and its number, so more draws begin with the same ones.

    >>> from flipscope.cube.functions import majority, parity
    >>> found = realised(recognizer(width=4, layers=1), length=3, draws=20_000, seed=1)
    >>> found.tables[:2].tolist() in ([0, 255], [255, 0]), len(found.tables) < 256
    (True, True)
    >>> found.probability(majority(3)).value > found.probability(parity(3)).value
    True
    >>> model = found.witness(majority(3))
    >>> model(torch.tensor([[0, 1, 1], [0, 0, 1]])).sign().tolist()
    [1.0, -1.0]
    """
    _check(config, length, radius, margin)
    draws, key, vectors = check_count("draws", draws), _key(seed), _vectors(config, length, symbols)
    shape = (config.width, config.layers, config.heads, length)
    met: dict[str, np.ndarray] = {}
    near_ties = asked_again = 0
    for start in range(0, draws, _BLOCK):
        size = min(_BLOCK, draws - start)
        tables, margins = np.empty(size, np.uint64), np.empty(size)
        truth_tables(key, start, radius, shape, config.eps, vectors, tables, margins, np.empty((0, 1 << length)))
        for place in np.flatnonzero(np.isnan(margins)):
            model = drawn(config, start + int(place), seed, symbols=symbols, radius=radius)
            tables[place], margins[place] = _asked(model, length)
            asked_again += 1
        near_ties += int((margins < TIE).sum())
        met = _merged(met, _counted(tables, margins >= margin, start))
        if progress is not None:
            progress(start + size, draws)
    order = np.lexsort((met["tables"], -met["counts"]))
    chosen = {name: column[order] for name, column in met.items()}
    return Realised(
        config, length, draws, seed, symbols, radius, margin, **chosen, near_ties=near_ties, asked_again=asked_again
    )


@checked_arguments
def drawn(
    config: TransformerConfig, number: int, seed: int = 0, *, symbols: int = 0, radius: float = 1.0
) -> Transformer:
    """The model of one draw of `realised`, in float64.

    >>> model = drawn(recognizer(width=4, layers=1), 7)
    >>> bool((model.head.weight.abs() <= 1).all()), model.head.weight.dtype
    (True, torch.float64)
    """
    model = Transformer(config, scheme="uniform", seed=symbols, dtype=torch.float64)
    own: list[torch.Tensor] = [parameter for block in model.blocks for parameter in _of_block(block)]
    own += [model.head.weight, model.head.bias]
    numbers = np.empty((sum(parameter.numel() for parameter in own), 1))
    parameters(_key(seed), check_count("number", number, 0), radius, numbers)
    with torch.no_grad():
        for parameter, part in zip(own, torch.from_numpy(numbers[:, 0]).split([p.numel() for p in own]), strict=True):
            parameter.copy_(part.view_as(parameter))
    return model


def table_number(function: BooleanFunction) -> int:
    """The truth table of a function of at most six bits as one integer.

    >>> from flipscope.cube.functions import first
    >>> bin(table_number(first(2)))
    '0b1010'
    """
    check_length(function.n)
    values = function(index_bits(0, 1 << function.n, function.n))
    return sum(int(value) << string for string, value in enumerate(values))


def check_length(length: int) -> int:
    """The length, after checking that a truth table of this many bits fits into one word."""
    if check_count("length", length) > MAX_BITS:
        raise InputError(f"length={length} is too long: functions of up to {MAX_BITS} bits are tabulated")
    return length


def _check(config: TransformerConfig, length: int, radius: float, margin: float) -> None:
    check_length(length)
    same = dataclasses.replace(recognizer(config.width, config.layers, config.heads), eps=config.eps)
    if differing := [name for name, value in same.as_dict().items() if getattr(config, name) != value]:
        raise InputError(f"config must be a recognizer(...) preset; it differs in {', '.join(differing)}")
    if not 2 <= config.width <= MAX_WIDTH:
        raise InputError(f"width={config.width} must be from 2 to {MAX_WIDTH}")
    check_positive("radius", radius)
    check_not_negative("margin", margin)


def _key(seed: int) -> np.uint64:
    return np.uint64(seed_of(check_count("seed", seed, 0)))


def _vectors(config: TransformerConfig, length: int, symbols: int) -> Float64[np.ndarray, "kind width"]:
    """The first layer's input (Eq 7): of 0 and of 1 at each position in turn, then of EOS."""
    model = Transformer(config, scheme="uniform", seed=symbols, dtype=torch.float64)
    with torch.no_grad():
        both = model.embed(torch.tensor([[0] * length, [1] * length], device="cpu")).numpy()  # [2, position, width]
    bits = both[:, :length].transpose(1, 0, 2).reshape(2 * length, config.width)
    return np.ascontiguousarray(np.concatenate((bits, both[0, length:])))


def _of_block(block: torch.nn.Module) -> list[torch.Tensor]:
    """The parameters of a layer in the order of the compiled loop."""
    assert isinstance(block, Block)
    assert block.mlp is not None
    heads, mlp = block.attention, block.mlp
    return [
        heads.key.weight, heads.query.weight, heads.value.weight,
        mlp.up.weight, mlp.up.bias, mlp.down.weight, mlp.down.bias,
    ]  # fmt: skip


def _asked(model: Transformer, length: int) -> tuple[int, float]:
    """The truth table and the smallest |logit|, from the model itself."""
    with torch.no_grad():
        logits = model(torch.from_numpy(index_bits(0, 1 << length, length)))
    table = sum(1 << string for string in np.flatnonzero((logits > 0).numpy()).tolist())
    return table, float(logits.abs().min())


def _counted(tables: Tables, wide: np.ndarray, start: int) -> dict[str, np.ndarray]:
    """Each distinct table with its draws, the draws with the margin, and the number of the first."""
    found, first, place, counts = np.unique(tables, return_index=True, return_inverse=True, return_counts=True)
    recognised = np.bincount(place, weights=wide, minlength=len(found)).astype(np.int64)
    return {"tables": found, "counts": counts.astype(np.int64), "recognised": recognised, "first": first + start}


def _merged(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The combined counts of two blocks of draws, the second being the later one."""
    if not one:
        return other
    tables, place = np.unique(np.concatenate((one["tables"], other["tables"])), return_inverse=True)
    out = {"tables": tables, "first": np.full(len(tables), np.iinfo(np.int64).max)}
    np.minimum.at(out["first"], place, np.concatenate((one["first"], other["first"])))
    for name in ("counts", "recognised"):
        out[name] = np.zeros(len(tables), np.int64)
        np.add.at(out[name], place, np.concatenate((one[name], other[name])))
    return out
