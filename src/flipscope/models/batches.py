"""The batch size of calls to a model: large enough to be fast, within a memory limit."""

from __future__ import annotations

from collections.abc import Callable

from flipscope.basics.errors import InputError
from flipscope.models.subject import Subject

MEMORY_LIMIT = 1 << 30  # approximate limit for the memory of one batch
_LIVE = 4  # tensors of the largest size that a forward pass holds at the same time
_CACHE_BYTES = 4 << 20  # beyond this size of the largest intermediate, larger batches are slower on a CPU
_DEVICE_BYTES = 256 << 20  # the same on an accelerator, which needs many strings to be busy
_UNKNOWN_BYTES = _CACHE_BYTES // 32  # assumed size of the largest intermediate if it is unknown
_FEWEST, _MOST = 16, 1024  # strings per batch if memory allows: with fewer, the overhead of each call shows
_FOREIGN = 8192  # strings per batch of models of other libraries, whose calls cost milliseconds


def fast_batch(subject: Subject, try_out: Callable[[int], list[int]], smallest: int, memory_limit: int) -> int:
    """Inputs per call, such that the largest intermediate result fits into a cache and into ``memory_limit``.

    ``try_out`` runs the model on a number of inputs and returns the bytes of every intermediate result; an input itself
    has ``smallest`` bytes.
    """
    each = _largest_result(try_out, smallest)
    cache = _CACHE_BYTES if subject.device.type == "cpu" else _DEVICE_BYTES
    fast = min(max(cache // each, _FEWEST), _MOST) if subject.foreign is None else _FOREIGN
    return max(1, min(fast, memory_limit // (_LIVE * each)))


def _largest_result(try_out: Callable[[int], list[int]], smallest: int) -> int:
    """Bytes of the largest intermediate result per input."""
    sizes = []
    try:
        for count in (1, 2):
            sizes.append(try_out(count))
    except InputError:  # a broken model will fail again later, and some models merely cannot be watched
        return _UNKNOWN_BYTES
    one, two = sizes
    if len(one) != len(two):
        return _UNKNOWN_BYTES
    # Tensors that do not grow with the number of inputs, such as weights, do not limit the batch.
    growth = max((after - before for before, after in zip(one, two, strict=True)), default=0)
    return max(growth, smallest)
