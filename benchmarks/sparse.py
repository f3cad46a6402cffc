"""One layer read at its marker (minGPT of the sparse-variable paper, T = 100): the plain module against ours.

  every    PyTorch's loop over the module, every position of the layer, as minGPT computes it
  plain    the same with the model's own forward, which computes the layer only where it is read
  ours     what `fit` calls: linear in the bits without dropout; with dropout no keys, values or normalised inputs

A training step is forward, backward and AdamW on 100 strings with dropout 0.1. Validation is 10,000 strings without.
One thread, wall seconds, medians of turns. Goals: 4 times for the step and 40 times for validation, plain over ours.
Run with: make bench, or python benchmarks/sparse.py [--quick]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from _timing import medians, milliseconds
from torch import Tensor
from torch.nn import functional as F

from flipscope.models import Transformer, initialise, mingpt
from flipscope.models.modes import first_derivatives
from flipscope.models.readout import binary_logit, logits_for

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

    def every(some: Tensor) -> Tensor:
        return model.read(model.states(some)[-1])

    def ours() -> None:
        with first_derivatives():  # as `fit` does
            step(model, quick, bits, labels, stepper)

    sides: dict[str, Callable[[], object]] = {
        "every": lambda: step(model, every, bits, labels, stepper),
        "plain": lambda: step(model, model, bits, labels, stepper),
        "ours": ours,
    }
    seconds = medians(sides, repeats)
    said = ", ".join(f"{side} {milliseconds(seconds[side])}" for side in sides)
    ratios = (seconds["plain"] / seconds["ours"], seconds["every"] / seconds["ours"])
    print(f"training step: {said}; plain / ours {ratios[0]:.2f}, every / ours {ratios[1]:.1f}", flush=True)

    difference = float((validate(model, model, asked, 64) - validate(model, quick, asked, 2_048)).abs().max())
    assert difference < 1e-4, difference
    sides = {
        "plain": lambda: validate(model, model, asked, VALIDATION),
        "plain in parts of 64": lambda: validate(model, model, asked, 64),
        "ours": lambda: validate(model, quick, asked, 2_048),
    }
    seconds = medians(sides, repeats)
    said = ", ".join(f"{side} {milliseconds(seconds[side])}" for side in sides)
    whole, parts = (seconds[side] / seconds["ours"] for side in ("plain", "plain in parts of 64"))
    print(f"validation: {said}; plain / ours {whole:.1f}, in parts / ours {parts:.1f}")


if __name__ == "__main__":
    main()
