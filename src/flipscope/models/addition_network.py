"""The network of the low-sensitivity paper's grokking experiment, as its authors' code has it.

    pair (a, b) -> vectors of a, b and "=", each with its position's -> attention at "=" -> MLP -> logits [pair, class]

There are no residuals, no norms and no mask. Vectors of symbols start as N(0, 1), those of positions at 0; both are
trained. The network is read at "=" only, so that it needs one query, and keys and values of 2p + 1 vectors: `forward`
computes these once for all pairs.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.models.init import Linear, initialise


class AdditionNetwork(nn.Module):
    """One layer of attention and an MLP on pairs of numbers below the modulus; "=" is a class that is never right.

    >>> AdditionNetwork(5, width=8, heads=2, hidden=16)(torch.tensor([[1, 2], [4, 4]])).shape
    torch.Size([2, 6])
    """

    @checked_arguments
    def __init__(self, modulus: int, *, width: int = 128, heads: int = 4, hidden: int = 512, seed: int = 0) -> None:
        super().__init__()
        self.modulus = check_count("modulus", modulus, 2)
        self.heads = check_count("heads", heads)
        if check_count("width", width) % heads:
            raise InputError(f"width={width} must be a multiple of heads={heads}")
        self.symbol = nn.Parameter(torch.empty(modulus + 1, width))  # "=" last
        self.position = nn.Parameter(torch.empty(3, width))
        self.query, self.key, self.value = (Linear(width, width, bias=False) for _ in range(3))
        self.output = Linear(width, width, bias=False)
        self.up, self.down = Linear(width, check_count("hidden", hidden)), Linear(hidden, width)
        self.head = Linear(width, modulus + 1, bias=False)
        initialise(self, "pytorch", seed)

    def reset_parameters(self) -> None:
        """Symbols are N(0, 1), positions 0; linear maps start as PyTorch's."""
        nn.init.normal_(self.symbol)
        nn.init.zeros_(self.position)

    def forward(self, pairs: Tensor) -> Float[Tensor, "pair class"]:
        """Logits of the sums."""
        numbers, equals = self.symbol[:-1], self.symbol[-1] + self.position[2]
        tables = [numbers + self.position[0], numbers + self.position[1], equals[None]]
        keys, values = self._split(self.key(torch.cat(tables))), self._split(self.value(torch.cat(tables)))
        # Rows of the tables that a pair uses: a, then b behind all a, then "=".
        a, b = pairs.long().unbind(dim=1)
        rows = torch.stack([a, b + self.modulus, torch.full_like(a, 2 * self.modulus)], dim=1)  # [pair, token]
        scores = (keys * self._split(self.query(equals))).sum(dim=-1)  # [row, head]
        return self._finish(scores[rows], values[rows])

    def vectors(self, pairs: Tensor) -> Float[Tensor, "pair 3 width"]:
        """What attention sees of each pair: the vectors of a, b and "="."""
        tokens = nn.functional.pad(pairs.long(), (0, 1), value=self.modulus)
        return self.symbol[tokens] + self.position

    def read(self, vectors: Float[Tensor, "pair 3 width"]) -> Float[Tensor, "pair class"]:
        """Logits from vectors, such as those of `vectors` with noise added."""
        keys, values = self._split(self.key(vectors)), self._split(self.value(vectors))
        query = self._split(self.query(vectors[:, -1:]))
        return self._finish((keys * query).sum(dim=-1), values)

    def _split(self, x: Float[Tensor, "*row width"]) -> Float[Tensor, "*row head size"]:
        out: Tensor = x.unflatten(-1, (self.heads, -1))
        return out

    def _finish(
        self, scores: Float[Tensor, "pair token head"], values: Float[Tensor, "pair token head size"]
    ) -> Float[Tensor, "pair class"]:
        """The rest of the network, from products of the query with keys, and values."""
        weights = (scores / values.shape[-1] ** 0.5).softmax(dim=1)
        mixed = (weights[..., None] * values).sum(dim=1).flatten(1)  # [pair, width]
        out: Tensor = self.head(self.down(self.up(self.output(mixed)).relu()))
        return out
