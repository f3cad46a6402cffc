"""The number of inputs per call of a model: large enough to be fast, within a memory limit."""

from __future__ import annotations

import torch

_LIVE = 4  # tensors of the largest size that a forward pass holds at the same time
_CACHE_BYTES = 4 << 20  # beyond this size of the largest intermediate, larger batches are slower on a CPU
_DEVICE_BYTES = 256 << 20  # the same on an accelerator, which needs many strings to be busy
_UNKNOWN_BYTES = _CACHE_BYTES // 1024  # assumed size of the largest intermediate if it is unknown
_FEWEST, _MOST = 16, 8192  # inputs per batch if memory allows: with fewer, the overhead of each call shows
_FOREIGN = 8192  # inputs per batch of models of other libraries, whose calls cost a tenth of a millisecond or more


def fast_batch(
    sizes: list[list[int]],
    counts: tuple[int, int],
    smallest: int,
    device: torch.device,
    memory_limit: int,
    is_foreign: bool = False,
) -> int:
    """Inputs per call, such that the largest intermediate result fits into a cache and into ``memory_limit``.

    ``sizes`` are the bytes of every intermediate result of two calls with so many inputs (``counts``); an input itself
    has ``smallest`` bytes.
    """
    each = max(_largest_result(sizes, counts), smallest)
    cache = _CACHE_BYTES if device.type == "cpu" else _DEVICE_BYTES
    fast = _FOREIGN if is_foreign else min(max(cache // each, _FEWEST), _MOST)
    return max(1, min(fast, memory_limit // (_LIVE * each)))


def _largest_result(sizes: list[list[int]], counts: tuple[int, int]) -> int:
    """Bytes of the largest intermediate result per input."""
    (first, second), (one, two) = sizes, counts
    if len(first) != len(second) or not first or one == two:
        return _UNKNOWN_BYTES
    # Tensors that do not grow with the number of inputs, such as weights, do not limit the batch.
    growth = max((abs(after - before) for before, after in zip(first, second, strict=True)), default=0)
    return growth // abs(two - one)
