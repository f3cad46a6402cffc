"""What of a trained network is in the divergence, and what is outside it: only what the samples could not change.

KL = ||Theta||^2 / 2 sigma^2 is for a prior that was fixed before the samples were seen. Whatever is left out of Theta
must have been fixed then as well: a learned position that is not counted makes the bound a number without a meaning.
So all parameters count, frozen ones too, for who froze them is not known; the user alone can say what was fixed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import nn

from flipscope.models.parameters import chosen, constants, matching

Fixed: TypeAlias = str | Sequence[str] | None  # patterns of names, such as "embedding.*" (as in a shell)

NOTHING_ELSE = "nothing in the network but the parameters counted in the norm depends on the samples"


@dataclass(frozen=True)
class Outside:
    """What is in a network beside the parameters in the divergence, by name."""

    fixed: tuple[str, ...]  # parameters and buffers: declared, or constants of flipscope's own networks
    uncounted: tuple[str, ...]  # buffers that may depend on the samples, and that no Gaussian is around

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must be true for the norm to be all that the samples changed."""
        if not self.fixed:
            return (NOTHING_ELSE,)
        return (NOTHING_ELSE, f"fixed before the samples were seen: {', '.join(self.fixed)}")

    @property
    def reason(self) -> str | None:
        """Why nothing can be certified; None where it can."""
        if not self.uncounted:
            return None
        return (
            f"not certified, since training may have set the buffers {', '.join(self.uncounted)} from the samples, and "
            "no Gaussian is around them: name them in fixed if they were set before"
        )

    def as_json(self) -> dict[str, Any]:
        """What every bound for a saved model prints of it."""
        return {"fixed": list(self.fixed), "uncounted": list(self.uncounted), "reason": self.reason}


def counted(model: nn.Module, fixed: Fixed = None) -> tuple[dict[str, nn.Parameter], float, Outside]:
    """The parameters in the divergence, their ||Theta||^2, and what is outside it.

    That is all parameters but those that the user declares `fixed` before the samples were seen. Buffers, such as the
    running statistics of a batch norm, can be declared fixed as well; else they are `uncounted`. Each pattern must
    match something.

    >>> parameters, norm, outside = counted(nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1)), fixed="0.*")
    >>> list(parameters), norm, outside.uncounted[0]
    (['1.weight', '1.bias'], 1.0, '1.running_mean')
    """
    declared = frozenset(() if fixed is None else matching(model, fixed, "fixed"))
    parameters = chosen(model, lambda name: name not in declared)
    buffers = [name for name, _ in model.named_buffers()]
    known = declared | constants(model)
    outside = Outside(
        tuple(name for name in (*dict(model.named_parameters()), *buffers) if name in known),
        tuple(name for name in buffers if name not in known),
    )
    return parameters, math.fsum(float(each.detach().double().square().sum()) for each in parameters.values()), outside
