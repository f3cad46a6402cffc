"""A step of training, in a plain loop and in ours: on strings of 100 bits, and on images and texts.

  plain    one forward of the whole batch, every position of every layer, PyTorch's Adam as it comes
  trimmed  the same with the model's own forward, which computes the last layer only where it is read
  ours     `fit`: the first layer from a table, the last without keys and values, the batch in parts

One thread each side, wall seconds, medians of turns. Heads 4, FFN twice the width. Ratios are plain over ours.

On images and texts the same module is trained by both loops: ten steps of batches of 100 images or 32 texts, Adam, with
everything that `fit` does around them. Texts have one length, so that batches by length gain nothing. CPU seconds; the
goal is a ratio of at least 0.9.

Run with: make bench, or python benchmarks/training.py [--quick] [--baselines]
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from _timing import medians, milliseconds
from torch.nn import functional as F

from flipscope.cube import functions
from flipscope.data.batches import Examples, Inputs
from flipscope.data.languages import LabelledStrings, draw
from flipscope.models import Transformer, TransformerConfig, encoder
from flipscope.models.baselines.presets import IMAGE_MODELS, ImageShape, TextShape, image_model, text_model
from flipscope.training.fit import fit
from flipscope.training.protocol import TrainingProtocol

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


def example(name: str) -> tuple[torch.nn.Module, Examples, Examples, Inputs]:
    """A model, ten batches for it, and one input to ask it on."""
    generator = torch.Generator().manual_seed(1)
    config: Any
    if name in IMAGE_MODELS:
        config = image_model(name, ImageShape("fashion-mnist", 28, 1))
        inputs, classes = torch.randn(1_000, 1, 28, 28, generator=generator), 10
    else:
        config = text_model(name, TextShape(vocabulary=2_000, length=64, padding=1))
        inputs, classes = torch.randint(5, 2_000, (320, 64), generator=generator), 2
    labels = torch.randint(0, classes, (len(inputs),), generator=generator)
    model = Transformer(config) if isinstance(config, TransformerConfig) else config.network()
    kind: Inputs = "numbers" if name in IMAGE_MODELS else "tokens"
    return model, Examples(inputs, labels), Examples(inputs[:1], labels[:1]), kind


def plain_epoch(model: torch.nn.Module, data: Examples, batch: int) -> None:
    """One pass over the data in a loop as one writes it."""
    stepper = torch.optim.Adam(model.parameters(), lr=1e-6)
    model.train()
    for rows in torch.randperm(len(data.labels)).split(batch):
        stepper.zero_grad()
        loss = F.cross_entropy(model(data.bits[rows]), data.labels[rows])
        loss.backward()
        stepper.step()
        loss.item()


def baselines(repeats: int) -> None:
    """The table of models of images and texts."""
    print(f"{'model':>18} {'plain':>10} {'ours':>10} | plain/ours, a step")
    for name in ("vit-tiny", "cnn-small", "roberta-small", "lstm-small"):
        model, data, one, inputs = example(name)
        batch = 100 if inputs == "numbers" else 32
        protocol = TrainingProtocol(learning_rate=1e-6, batch=batch, max_epochs=1, loss="ce", restore="last")
        seconds = medians(
            {
                "plain": lambda m=model, d=data, b=batch: plain_epoch(m, d, b),
                "ours": lambda m=model, d=data, o=one, p=protocol, i=inputs: fit(m, d, o, p, inputs=i),
            },
            repeats,
            time.process_time,
        )
        steps = len(data.labels) // batch
        told = " ".join(f"{milliseconds(seconds[side] / steps):>10}" for side in ("plain", "ours"))
        print(f"{name:>18} {told} | {seconds['plain'] / seconds['ours']:.2f}", flush=True)


def main() -> None:
    """Measure and print what is reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small widths and one batch size: a minute")
    parser.add_argument("--baselines", action="store_true", help="only the models of images and texts")
    options = parser.parse_args()
    torch.set_num_threads(1)
    baselines(1 if options.quick else 5)
    if options.baselines:
        return
    if options.quick:
        grid((64, 128), (2, 4), (128,), 1)
    else:
        grid((64, 128, 256), (2, 4), (128, 512), 3)


if __name__ == "__main__":
    main()
