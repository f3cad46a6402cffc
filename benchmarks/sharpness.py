"""Draws of the sharpness of a trained-size transformer on a batch of strings: the usual way against ours.

  copy     a deep copy of the model per draw, noise added to each parameter, every position of every layer computed
  pytorch  the same of PyTorch's own nn.TransformerEncoder, whose layers are fused in evaluation mode
  forward  a deep copy per draw, but the model's own forward, which computes the last layer only where it is read
  ours     `flipscope.sharpness`: noise into one flat tensor, the first layer from tables, the last without keys

One thread each side, wall seconds per draw, medians of turns within one run: compare ratios.
The model is that of the hardness paper: two layers, two heads, learned positions, strings of 12 bits.

--part end-to-end: one model of the study sharpness-by-length at laptop scale, 4000 steps of 128 strings and then 100
draws, as one writes it with PyTorch's own modules against ours; from steps and draws timed by themselves.
Run with: make bench, or python benchmarks/sharpness.py [--quick] [--part end-to-end]
"""

from __future__ import annotations

import argparse
import copy
import os
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from _timing import medians, milliseconds
from torch import Tensor, nn

from flipscope import sharpness
from flipscope.models import Transformer, hardness
from flipscope.training.recipes.hardness import hardness_recipe

LENGTH, BATCH, STD = 12, 1024, 0.02
DRAWS = 4  # of one timed run
TRAINING_BATCH, STUDY_STEPS, STUDY_DRAWS = 128, 4_000, 100  # of sharpness-by-length at laptop scale


class Plain(nn.Module):
    """The same architecture of PyTorch's own modules."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.symbol, self.position = nn.Embedding(2, width // 2), nn.Embedding(LENGTH, width // 2)
        layer = nn.TransformerEncoderLayer(width, 2, width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, 1)

    def forward(self, bits: Tensor) -> Tensor:
        """Logits [string], read at the last position."""
        places = self.position.weight.expand(len(bits), -1, -1)
        out: Tensor = self.head(self.layers(torch.cat([self.symbol(bits), places], dim=-1))[:, -1])[:, 0]
        return out


@torch.no_grad()
def by_copies(model: nn.Module, bits: Tensor, run: Callable[[nn.Module, Tensor], Tensor]) -> float:
    """Prediction sharpness by a deep copy per draw, as one writes it."""
    before = run(model, bits)
    total = 0.0
    for _ in range(DRAWS):
        moved = copy.deepcopy(model)
        for name, parameter in moved.named_parameters():
            if "position" not in name:
                parameter.add_(torch.randn_like(parameter), alpha=STD)
        total += float((run(moved, bits) - before).square().mean())
    return total / DRAWS


def every_position(model: nn.Module, bits: Tensor) -> Tensor:
    """Logits by computing every position of every layer."""
    assert isinstance(model, Transformer)
    return model.read(model.states(bits)[-1])


def called(model: nn.Module, bits: Tensor) -> Tensor:
    """Logits by the model's own forward."""
    out: Tensor = model(bits)
    return out


def draws(widths: tuple[int, ...], repeats: int) -> None:
    """The table of widths."""
    sides = ("copy", "pytorch", "forward", "ours")
    print(f"{'width':>5} {'parameters':>10} " + " ".join(f"{side:>9}" for side in sides), end="")
    print(" | copy/ours  pytorch/ours  forward/ours   (per draw)")
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(0, 2, (BATCH, LENGTH), generator=generator)
    for width in widths:
        model, plain = Transformer(hardness(LENGTH, width=width), seed=1).eval(), Plain(width).eval()
        seconds = medians(
            {
                "copy": partial(by_copies, model, bits, every_position),
                "pytorch": partial(by_copies, plain, bits, called),
                "forward": partial(by_copies, model, bits, called),
                "ours": partial(sharpness, model, bits, std=STD, draws=DRAWS),
            },
            repeats,
        )
        each = {side: seconds[side] / DRAWS for side in sides}
        print(
            f"{width:5d} {model.count_parameters(positions=False):10,d} "
            + " ".join(f"{milliseconds(each[side]):>9}" for side in sides)
            + f" | {each['copy'] / each['ours']:9.2f} {each['pytorch'] / each['ours']:13.2f} "
            + f"{each['forward'] / each['ours']:13.2f}",
            flush=True,
        )


def plain_training(width: int, steps: int) -> Plain:
    """The training of a model of PARITY as one writes it."""
    torch.manual_seed(0)
    model = Plain(width)
    stepper = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
    for _ in range(steps):
        bits = torch.randint(0, 2, (TRAINING_BATCH, LENGTH))
        labels = (bits.sum(dim=1) % 2).float()
        stepper.zero_grad()
        nn.functional.mse_loss(model(bits), labels).backward()
        stepper.step()
    return model.eval()


def our_training(width: int, steps: int) -> nn.Module:
    """The same by a recipe; the validation set is asked as often as in the study, at the end of these steps."""
    recipe = hardness_recipe("parity", LENGTH, 0, width=width, batch=TRAINING_BATCH, steps=steps)
    return recipe.train().model


def end_to_end(repeats: int) -> None:
    """Steps and draws of both sides, and what they make of one model of the study."""
    width, steps = 128, 200
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(0, 2, (BATCH, LENGTH), generator=generator)
    model, plain = Transformer(hardness(LENGTH, width=width), seed=1).eval(), Plain(width).eval()
    seconds = medians(
        {
            "plain steps": lambda: plain_training(width, steps),
            "our steps": lambda: our_training(width, steps),
            "plain draws": lambda: by_copies(plain, bits, called),
            "our draws": lambda: sharpness(model, bits, std=STD, draws=DRAWS),
        },
        repeats,
    )
    whole = {}
    for side in ("plain", "our"):
        step, draw = seconds[f"{side} steps"] / steps, seconds[f"{side} draws"] / DRAWS
        whole[side] = STUDY_STEPS * step + STUDY_DRAWS * draw
        print(
            f"{side:>6}: {milliseconds(step)} a step, {milliseconds(draw)} a draw, {whole[side] / 60:.2f} min a model"
        )
    print(f"plain/ours end to end: {whole['plain'] / whole['our']:.2f}")


def machine() -> str:
    """The processor, and how busy it is with other things."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text(encoding="utf-8").splitlines() if cpu.exists() else []
    name = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
    return f"{name or 'unknown processor'}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def main() -> None:
    """Measure and print what is reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one turn each: half a minute")
    parser.add_argument("--part", choices=tuple(PARTS), default="draws", help="what to measure (default draws)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{machine()}; torch {torch.__version__}; {BATCH} strings of {LENGTH} bits")
    PARTS[options.part](options.quick)


# What can be measured: a part per name, told whether to be quick.
PARTS: dict[str, Callable[[bool], None]] = {
    "draws": lambda quick: draws((64, 128), 1 if quick else 5),
    "end-to-end": lambda quick: end_to_end(1 if quick else 5),
}


if __name__ == "__main__":
    main()
