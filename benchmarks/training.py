"""One step of training on a batch of strings of 100 bits: a plain loop against ours.

  plain    one forward of the whole batch, every position of every layer, PyTorch's Adam as it comes
  trimmed  the same with the model's own forward, which computes the last layer only where it is read
  ours     `fit`: the first layer from a table, the last without keys and values, the batch in parts

One thread each side, wall seconds, medians of turns. Heads 4, FFN twice the width. Ratios are plain over ours.
Run with: make bench, or python benchmarks/training.py [--quick]
"""

from __future__ import annotations

import argparse

import torch
from _timing import medians, milliseconds
from torch.nn import functional as F

from flipscope.cube import functions
from flipscope.data.languages import LabelledStrings, draw
from flipscope.models import Transformer, encoder
from flipscope.training.fit import fit

LENGTH = 100


def every_position(model: Transformer, bits: torch.Tensor) -> torch.Tensor:
    """Logits by computing every position of every layer, as a module that is only a module does."""
    return model.read(model.states(bits)[-1])


def plain_step(model: Transformer, data: LabelledStrings, trimmed: bool) -> float:
    """One step of a loop as one writes it; the loss."""
    bits, labels = torch.tensor(data.bits), torch.tensor(data.labels).float()
    stepper = torch.optim.Adam(model.parameters(), lr=1e-6)
    model.train()
    loss = F.binary_cross_entropy_with_logits(model(bits) if trimmed else every_position(model, bits), labels)
    loss.backward()
    stepper.step()
    return loss.item()


def our_step(model: Transformer, data: LabelledStrings, one: LabelledStrings) -> float:
    """One step of `fit`, asked on a single string; the loss."""
    fitted = fit(model, data, one, learning_rate=1e-6, batch=len(data), max_epochs=1)
    return fitted.history[0].train_loss


def grid(widths: tuple[int, ...], layers: tuple[int, ...], batches: tuple[int, ...], repeats: int) -> None:
    """The table of widths, layers and batch sizes."""
    print(f"{'width':>5} {'layers':>6} {'batch':>6} {'plain':>9} {'trimmed':>9} {'ours':>9} | plain/ours  trimmed/ours")
    for width in widths:
        for depth in layers:
            for batch in batches:
                model = Transformer(encoder(width, depth, 4, ffn_width=2 * width), seed=1)
                splits = draw(functions.majority(LENGTH), LENGTH, {"train": batch, "validation": 1}, seed=1)
                train, one = splits["train"], splits["validation"]
                assert abs(plain_step(model, train, False) - our_step(model, train, one)) < 1e-3
                seconds = medians(
                    {
                        "plain": lambda m=model, t=train: plain_step(m, t, False),
                        "trimmed": lambda m=model, t=train: plain_step(m, t, True),
                        "ours": lambda m=model, t=train, o=one: our_step(m, t, o),
                    },
                    repeats,
                )
                print(
                    f"{width:5d} {depth:6d} {batch:6d} "
                    + " ".join(f"{milliseconds(seconds[side]):>9}" for side in ("plain", "trimmed", "ours"))
                    + f" | {seconds['plain'] / seconds['ours']:10.2f} {seconds['trimmed'] / seconds['ours']:13.2f}",
                    flush=True,
                )


def main() -> None:
    """Measure and print what is reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small widths and one batch size: a minute")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.quick:
        grid((64, 128), (2, 4), (128,), 1)
    else:
        grid((64, 128, 256), (2, 4), (128, 512), 3)


if __name__ == "__main__":
    main()
