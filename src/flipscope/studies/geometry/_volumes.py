"""What one sample of random recognisers says of the functions it met: for the study `prior-volume`."""

from __future__ import annotations

import functools
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import flipscope.lab as lab
from flipscope.cube.few_bits import Measures, Tables, all_tables, full_table, measures
from flipscope.cube.functions import first, majority, parity
from flipscope.probes.prior import table_number

LISTED = 4  # so many bits or fewer: all functions are ranked, also those that were not met
FEWEST_DRAWS = 10  # of a function that is ranked among those met, and of the least probable of the most probable
RAREFIED = 1_000  # draws among which functions are counted, so that samples of any size compare
SHOWN = 300  # functions of a figure
NAMED = {"parity": parity, "first": first, "majority": majority}
MEASURES = {
    "zero_strings": "K_0",
    "average_sensitivity": "- average sensitivity",
    "degree": "- degree",
    "description": "- description length",
}


def classes(tables: Tables, counts: NDArray[np.int64], n: int) -> tuple[Tables, NDArray[np.int64]]:
    """Functions joined with their complements, without the constants, and the draws of either.

    Changing the signs of w and omega turns a recogniser of one into that of the other, so that both are as probable.
    """
    smaller = np.minimum(tables, tables ^ full_table(n))
    found, place = np.unique(smaller[smaller > 0], return_inverse=True)
    return found, np.bincount(place, weights=counts[smaller > 0], minlength=len(found)).astype(np.int64)


def summary(tables: Tables, counts: NDArray[np.int64], recognised: NDArray[np.int64], n: int) -> lab.Row:
    """The columns of one sample."""
    constant = (tables == 0) | (tables == full_table(n))
    found, drawn = classes(tables, counts, n)
    order = np.lexsort((found, -drawn))
    found, drawn = found[order], drawn[order]
    named = {name: table_number(make(n)) for name, make in NAMED.items()}
    rho = correlations(found, drawn, n)
    k, average = rho["zero_strings"], rho["average_sensitivity"]
    either = {name: min(table, table ^ int(full_table(n))) for name, table in named.items()}
    return {
        "functions": len(tables),
        "constants": int(counts[constant].sum()),
        "recognising": int(recognised.sum()),
        "recognising_more": int(recognised[~constant].sum()),  # functions that are not constant
        "recognised_functions": int((recognised > 0).sum()),
        "unseen": chao(recognised),
        "rarefied": rarefied(recognised, int(counts.sum())),
        **{name: int(drawn[found == np.uint64(table)].sum()) for name, table in either.items()},
        **{f"rho_{name}": value for name, value in rho.items()},
        "rho_gain": None if k is None or average is None else k - average,
        "largest_first": largest_first(found, drawn, n),
        "shown": found[:SHOWN].tolist(),
        "shown_draws": drawn[:SHOWN].tolist(),
    }


def chao(counts: NDArray[np.int64]) -> float:
    """Chao's lower estimate of the functions that were not met."""
    once, twice = (int((counts == times).sum()) for times in (1, 2))
    return once * (once - 1) / (2 * (twice + 1))


def rarefied(counts: NDArray[np.int64], draws: int) -> float | None:
    """How many functions RAREFIED of the draws meet on average; each is left out with about (1 - share)^its draws."""
    return None if draws < RAREFIED else float((1 - (1 - RAREFIED / draws) ** counts).sum())


def largest_first(found: Tables, drawn: NDArray[np.int64], n: int) -> float | None:
    """Of the most probable functions, as many as have the largest K_0 of all, the share that have it.

    These are the 2^n functions that single out one string, and their complements. None if the draws do not tell
    which functions are the most probable.
    """
    most = 1 << n
    if len(found) < most or drawn[most - 1] < FEWEST_DRAWS:
        return None
    return float((measures(found[:most], n).zero_strings == most - n - 1).mean())


def correlations(found: Tables, drawn: NDArray[np.int64], n: int) -> dict[str, float | None]:
    """Spearman's rho of a function's draws with its K_0, and with the other measures, their signs turned.

    Up to LISTED bits over all functions, those not met at 0 draws; else over those met often enough.
    """
    if n <= LISTED:
        every, known = _listed(n)
        draws = np.zeros(len(every), np.int64)
        draws[np.searchsorted(every, found)] = drawn
    else:
        often = drawn >= FEWEST_DRAWS
        draws, known = drawn[often], measures(found[often], n)
    columns = {name: (1 if name == "zero_strings" else -1) * column for name, column in asdict(known).items()}
    if len(draws) < 3 or not np.ptp(draws):
        return dict.fromkeys(columns)
    return {
        name: float(stats.spearmanr(draws, column).statistic) if np.ptp(column) else None
        for name, column in columns.items()
    }


@functools.lru_cache(maxsize=4)
def _listed(n: int) -> tuple[Tables, Measures]:
    every = all_tables(n)
    chosen = every[(every > 0) & (every <= every[::-1])]  # the smaller of a table and its complement
    return chosen, measures(chosen, n)
