"""The cost of a training step with the penalty on sensitivity: one forward pass more, and a backward through both.

  plain         forward, cross entropy, backward, Adam
  penalty       the same with (1 - p) loss + p penalty: noise on one random patch of each image
  two passes    cross entropy of two forward passes, backward, Adam: what any such penalty costs at least
  augmentation  the loss on images with noise, in place of the images themselves

One thread, CPU seconds, medians of turns. Ratios are to the plain step; the penalty should stay below 2.2. Where two
passes cost more than twice, it is the C library: it gives memory back after each step and asks for it again.
MALLOC_TRIM_THRESHOLD_=1000000000 MALLOC_MMAP_THRESHOLD_=1000000000 in the environment keeps it from that.
Run with: make bench, or python benchmarks/low_sensitivity.py [--quick]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from _timing import medians, milliseconds
from torch import Tensor, nn
from torch.nn import functional as F

from flipscope.adapters.disturbing import patches
from flipscope.models import Transformer, TransformerConfig
from flipscope.training.low_sensitivity import NoiseAugmentation, SensitivityPenalty

PENALTY = SensitivityPenalty(variance=1.0, strength=0.25, feature_mask=patches(4))
AUGMENTATION = NoiseAugmentation(variance=0.1)


def vit(width: int, layers: int) -> nn.Module:
    """A vision transformer on images of 32 x 32 pixels with patches of 4 x 4."""
    return Transformer(
        TransformerConfig(
            inputs="patches",
            image_size=32,
            patch_size=4,
            channels=3,
            width=width,
            layers=layers,
            heads=4,
            ffn_width=2 * width,
            outputs=10,
        ),
        seed=0,
    )


def convolutions() -> nn.Module:
    """A small convolutional network with batch norm."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(4)),
        *(nn.Flatten(), nn.Linear(1024, 10)),
    )


def steps(model: nn.Module, images: Tensor, labels: Tensor) -> dict[str, Callable[[], float]]:
    """One step of each kind."""
    stepper = torch.optim.Adam(model.parameters(), lr=1e-6)

    def taken(loss: Tensor) -> float:
        stepper.zero_grad()
        loss.backward()
        stepper.step()
        return loss.item()

    def plain() -> float:
        return taken(F.cross_entropy(model(images), labels))

    def penalised() -> float:
        outputs = model(images)
        return taken(PENALTY.applied(F.cross_entropy(outputs, labels), model, images, outputs))

    def two_passes() -> float:
        return taken(F.cross_entropy(model(images), labels) + F.cross_entropy(model(0.9 * images), labels))

    def augmented() -> float:
        return taken(F.cross_entropy(AUGMENTATION.outputs(model, images), labels))

    return {"plain": plain, "penalty": penalised, "two passes": two_passes, "augmentation": augmented}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    torch.manual_seed(0)
    models = {
        "ViT, width 64, 2 layers": vit(64, 2),
        "ViT, width 192, 4 layers": vit(192, 4),
        "CNN with batch norm": convolutions(),
    }
    names = ("plain", "penalty", "two passes", "augmentation")
    print(f"{'model, batch of 64':<26}" + "".join(f"{name:>14}" for name in names))
    for name, model in models.items():
        model.train()
        images, labels = torch.rand(64, 3, 32, 32) * 2 - 1, torch.arange(64) % 10
        seconds = medians(steps(model, images, labels), 3 if quick else 7, time.process_time)
        cells = [
            f"{milliseconds(seconds['plain']):>14}",
            *(f"{seconds[each] / seconds['plain']:14.2f}" for each in names[1:]),
        ]
        print(f"{name:<26}" + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
