"""Targets of a model's outputs: one bit, one number or one class, for a string or for each of its positions.

The scale of labels is defined here. With "mse" a label 0 or 1 stands for

    labels="signs"   -1 and +1; an answer above 0 counts as 1
    labels="bits"     0 and  1; an answer above 1/2 counts as 1

and floating-point labels are compared unchanged. The hardness paper trains with bits: its squared errors are a quarter
of those with signs (`SIGN_SCALE`), and so is every sharpness before it is plotted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from flipscope.adapters.outputs import binary_logit
from flipscope.basics.arguments import check_fields
from flipscope.basics.errors import InputError

Loss = Literal["bce", "mse", "ce"]  # binary cross entropy, squared error, cross entropy of classes
Labels = Literal["signs", "bits"]
LOSSES: tuple[Loss, ...] = get_args(Loss)
LABELS: tuple[Labels, ...] = get_args(Labels)
SIGN_SCALE = 4.0  # converts squared differences for labels 0 and 1 to the scale of -1 and +1


@dataclass(frozen=True)
class Aim:
    """A loss and the scale of its labels."""

    loss: Loss = "bce"
    labels: Labels = "signs"

    def __post_init__(self) -> None:
        check_fields(self)
        for name, word, known in (("loss", self.loss, LOSSES), ("labels", self.labels, LABELS)):
            if word not in known:
                raise InputError(f"{name}={word!r} is not one of {', '.join(known)}")
        if self.labels == "bits" and self.loss != "mse":
            raise InputError(f"labels='bits' is a scale of squared errors: with loss={self.loss!r} leave it out")

    @property
    def threshold(self) -> float:
        """Outputs above this count as 1."""
        return 0.5 if self.labels == "bits" else 0.0

    def targets(self, labels: Tensor, name: str) -> Tensor:
        """The targets for labels; `name` describes the labels in error messages."""
        if self.loss == "ce":
            if labels.is_floating_point() or bool((labels < 0).any()):
                raise InputError(f"labels in {name} must be classes, 0, 1, 2 and so on, with loss='ce'")
            return labels.long()
        if self.loss == "mse" and labels.is_floating_point():
            return labels
        if not bool(((labels == 0) | (labels == 1)).all()):
            raise InputError(f"labels in {name} must be 0 or 1, or floating-point numbers with loss='mse'")
        targets = labels.to(torch.float32)
        return 2 * targets - 1 if self.loss == "mse" and self.labels == "signs" else targets

    def total(self, outputs: Tensor, targets: Tensor) -> Float[Tensor, ""]:
        """The loss summed over strings and averaged over positions; at least in float32, even with autocast."""
        answers = self._answers(outputs, targets)
        answers = answers.float() if answers.dtype in (torch.float16, torch.bfloat16) else answers
        if self.loss == "ce":
            # PyTorch wants classes on the second axis: [string, position, class] -> [string, class, position]
            value = F.cross_entropy(answers.movedim(-1, 1), targets, reduction="sum")
        else:
            targets = targets.to(answers)
            if self.loss == "bce":
                value = F.binary_cross_entropy_with_logits(answers, targets, reduction="sum")
            else:
                value = F.mse_loss(answers, targets, reduction="sum")
        return value if targets.ndim == 1 else value / targets.shape[1]

    def right(self, outputs: Tensor, targets: Tensor) -> Bool[Tensor, " string"]:
        """Which strings are answered correctly, at every position if there are several; NaN never is."""
        answers = self._answers(outputs, targets)
        if self.loss == "ce":
            found = (answers.argmax(dim=-1) == targets) & ~answers.isnan().any(dim=-1)
        else:
            found = ((answers > self.threshold) == (targets.to(answers) > self.threshold)) & ~answers.isnan()
        return found if targets.ndim == 1 else found.all(dim=1)

    def _answers(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """One number per target, or for classes one per class."""
        if self.loss == "ce":
            if outputs.ndim != targets.ndim + 1 or outputs.shape[:-1] != targets.shape:
                raise InputError(
                    f"outputs of shape {tuple(outputs.shape)} are not one number per class for labels of shape "
                    f"{tuple(targets.shape)}"
                )
            if bool((targets >= outputs.shape[-1]).any()):
                raise InputError(f"a label is {int(targets.max())}, and the model has {outputs.shape[-1]} classes")
            return outputs
        if targets.ndim == 1:
            answers = binary_logit(outputs)
            if len(answers) != len(targets):
                raise InputError(f"the model gave {len(answers)} logits for {len(targets)} strings")
            return answers
        if outputs.ndim == 3:
            outputs = binary_logit(outputs.flatten(0, 1)).unflatten(0, outputs.shape[:2])
        if outputs.shape != targets.shape:
            raise InputError(
                f"outputs of shape {tuple(outputs.shape)} are not one per position, {tuple(targets.shape)}: "
                "the labels are of every position, so give a model with readout='every'"
            )
        return outputs
