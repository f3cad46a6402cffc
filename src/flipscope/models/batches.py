"""How many inputs go into one call of a model: as many as are fast, and no more than a limit of memory allows."""

from __future__ import annotations

from collections.abc import Callable

from flipscope.basics.errors import InputError
from flipscope.models.subject import Subject

MEMORY_LIMIT = 1 << 30  # bytes that one batch's numbers may take, roughly
_LIVE = 4  # numbers of the largest size that a forward holds at the same time
_CACHE_BYTES = 4 << 20  # beyond this size of the largest intermediate, larger batches are slower on a CPU
_DEVICE_BYTES = 256 << 20  # the same on an accelerator, which needs many strings to be busy
_UNKNOWN_BYTES = _CACHE_BYTES // 32  # taken for the largest intermediate where it cannot be seen
_FEWEST, _MOST = 16, 1024  # strings per batch where memory allows: below, the overhead of each call shows
_FOREIGN = 8192  # strings per batch of models of other libraries, whose calls cost milliseconds


def fast_batch(subject: Subject, try_out: Callable[[int], list[int]], smallest: int, memory_limit: int) -> int:
    """Inputs per call: so many that the largest intermediate result fits into a cache, if ``memory_limit`` allows it.

    ``try_out`` runs the model on so many inputs and returns the bytes of every intermediate result; an input itself has
    ``smallest`` bytes.
    """
    each = _largest_result(try_out, smallest)
    cache = _CACHE_BYTES if subject.device.type == "cpu" else _DEVICE_BYTES
    fast = min(max(cache // each, _FEWEST), _MOST) if subject.foreign is None else _FOREIGN
    return max(1, min(fast, memory_limit // (_LIVE * each)))


def _largest_result(try_out: Callable[[int], list[int]], smallest: int) -> int:
    """Bytes of the largest intermediate result, an input."""
    sizes = []
    try:
        for count in (1, 2):
            sizes.append(try_out(count))
    except InputError:  # what is broken will say so again, and some models only cannot be watched
        return _UNKNOWN_BYTES
    one, two = sizes
    if len(one) != len(two):
        return _UNKNOWN_BYTES
    # What does not grow with the number of inputs, such as a weight, is no concern of the batch.
    growth = max((after - before for before, after in zip(one, two, strict=True)), default=0)
    return max(growth, smallest)
