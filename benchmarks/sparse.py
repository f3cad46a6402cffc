"""One layer read at its marker (minGPT of the sparse-variable paper, T = 100): the plain module against ours.

  plain           the module as anyone calls it, model(bits), which computes the layer only where it is read
  in parts of 64  the same for validation, where it is fastest
  every position  the layer at every position, as minGPT computes it; validation on a tenth of the strings, times ten
  ours            what `fit` calls: linear in the bits without dropout; with it no keys, values or normalised inputs

A training step is forward, backward and AdamW on 100 strings with dropout 0.1. Validation is 10,000 strings without.
One thread, wall seconds, medians of turns. Goal: 4 times for the step, plain over ours.
Much of plain validation is memory that the system takes back and gives again; with MALLOC_TRIM_THRESHOLD_ and
MALLOC_MMAP_THRESHOLD_ set to 1099511627776, as in the workers of `flipscope run`, it is kept.
Run with: make bench, or python benchmarks/sparse.py [--quick]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

import torch
from _timing import medians, milliseconds
from torch import Tensor
from torch.nn import functional as F

from flipscope.adapters.outputs import binary_logit
from flipscope.models import Transformer, initialise, mingpt
from flipscope.models.fast_logits import logits_for
from flipscope.models.modes import first_derivatives

LENGTH, STRINGS, VALIDATION = 100, 100, 10_000
Forward = Callable[[Tensor], Tensor]


def step(model: Transformer, forward: Forward, bits: Tensor, labels: Tensor, stepper: torch.optim.Optimizer) -> None:
    """One step of training."""
    model.train()
    stepper.zero_grad()
    F.binary_cross_entropy_with_logits(binary_logit(forward(bits)), labels).backward()
    stepper.step()


@torch.no_grad()
def validate(model: Transformer, forward: Forward, bits: Tensor, part: int) -> Tensor:
    """The logits of all strings, in parts of so many."""
    model.eval()
    return torch.cat([binary_logit(forward(some)) for some in bits.split(part)])


def main() -> None:
    """Measure and print what is reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    repeats = 2 if parser.parse_args().quick else 7
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Transformer(mingpt(LENGTH), seed=0)
    initialise(model, "gaussian", 0, scope="weights", scale=0.02)
    bits, asked = (torch.randint(0, 2, (count, LENGTH), dtype=torch.uint8) for count in (STRINGS, VALIDATION))
    labels = bits[:, :3].all(dim=1).float()
    stepper = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    quick = logits_for(model)

    def every_position(some: Tensor) -> Tensor:
        return model.read(model.states(some)[-1])

    def ours() -> None:
        with first_derivatives():  # as `fit` does
            step(model, quick, bits, labels, stepper)

    sides: dict[str, Callable[[], object]] = {
        "plain": lambda: step(model, model, bits, labels, stepper),
        "every position": lambda: step(model, every_position, bits, labels, stepper),
        "ours": ours,
    }
    tell("training step", medians(sides, repeats))

    tenth = asked[: VALIDATION // 10]
    for forward in (model, every_position):
        difference = validate(model, forward, tenth, 64) - validate(model, quick, tenth, VALIDATION)
        assert float(difference.abs().max()) < 1e-4
    sides = {
        "plain": lambda: validate(model, model, asked, VALIDATION),
        "in parts of 64": lambda: validate(model, model, asked, 64),
        "every position": lambda: validate(model, every_position, tenth, 64),
        "ours": lambda: validate(model, quick, asked, VALIDATION),
    }
    seconds = medians(sides, repeats)
    tell("validation", seconds | {"every position": 10 * seconds["every position"]})


def tell(what: str, seconds: Mapping[str, float]) -> None:
    """Print the seconds of each side, and how many times as long as ours it takes."""
    said = (f"{side} {milliseconds(taken)} ({taken / seconds['ours']:.1f})" for side, taken in seconds.items())
    print(f"{what}: {', '.join(said)}", flush=True)


if __name__ == "__main__":
    main()
