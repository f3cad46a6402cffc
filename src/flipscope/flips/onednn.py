"""Matrix products of wide layers by oneDNN where PyTorch's own use half of the processor.

PyTorch multiplies float32 matrices by MKL, which takes AVX2 instructions on processors of AMD even if they have
AVX-512. Tensors in oneDNN's own layout are multiplied by oneDNN, which takes what there is; turning them there and back
costs a copy.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

NARROWEST = 128  # for narrower layers the copies take as long as the product saves
FEWEST_ROWS = 64


def with_onednn(model: nn.Module) -> None:
    """Replace the wide linear layers of a model that is only evaluated, if that is faster on this machine."""
    if not torch.backends.mkldnn.is_available() or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return
    for part in list(model.modules()):
        for name, child in part.named_children():
            if isinstance(child, nn.Linear) and min(child.in_features, child.out_features) >= NARROWEST:
                setattr(part, name, OneDnnLinear(child))


class OneDnnLinear(nn.Module):
    """A linear layer, the same up to rounding."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x: Float[Tensor, "*batch input"]) -> Float[Tensor, "*batch output"]:
        """W x + b; with PyTorch's own product where a derivative is wanted."""
        rows = x.reshape(-1, x.shape[-1])
        if len(rows) < FEWEST_ROWS or torch.is_grad_enabled():
            return F.linear(x, self.weight, self.bias)
        bias = None if self.bias is None else self.bias.to_mkldnn()
        found: Tensor = F.linear(rows.to_mkldnn(), self.weight.to_mkldnn(), bias).to_dense()
        return found.view(*x.shape[:-1], -1)
