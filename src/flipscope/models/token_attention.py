"""The model of Eq 3 of paper 004: <U, softmax(X W_Q W_K' X') X W_V>, one head and a linear map of all positions.

Rows of X are one-hot vectors of tokens, so that X W is a choice of rows of W. The product needs a U with a row for each
position: it is [length, width], where the paper prints it square.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count, check_positive
from flipscope.models.init import Lookup, initialise


class TokenAttention(nn.Module):
    """Attention on one-hot tokens; all matrices start as normal numbers with this standard deviation.

    >>> TokenAttention(vocabulary=9, length=5, width=4)(torch.zeros(2, 5, dtype=torch.long)).shape
    torch.Size([2])
    """

    @checked_arguments
    def __init__(self, *, vocabulary: int, length: int, width: int, std: float = 0.1, seed: int = 0) -> None:
        super().__init__()
        shape = check_count("vocabulary", vocabulary), check_count("width", width)
        self.query, self.key, self.value = (Lookup(*shape) for _ in range(3))
        self.head = nn.Parameter(torch.empty(check_count("length", length), width))  # U
        initialise(self, "gaussian", seed, scale=check_positive("std", std))

    def attention(self, tokens: Tensor) -> Float[Tensor, "string row position"]:
        """Attention weights of each row."""
        query, key = self.query(tokens.long()), self.key(tokens.long())  # [string, position, width]
        weights: Tensor = (query @ key.transpose(1, 2)).softmax(dim=-1)
        return weights

    def forward(self, tokens: Tensor) -> Float[Tensor, " string"]:
        """Logits, positive for label 1."""
        # U W_V' has for each row what a token adds to the logit: [row, token].
        gains = (self.head @ self.value.weight.T)[:, tokens.long()].transpose(0, 1)  # [string, row, position]
        return (self.attention(tokens) * gains).sum(dim=(1, 2))

    def alignment(self, directions: Float[Tensor, "group token"]) -> Float[Tensor, " group"]:
        """Mean cosine of the rows of U W_V' with each direction of the vocabulary."""
        rows = self.head @ self.value.weight.T  # [row, token]
        return nn.functional.cosine_similarity(rows[:, None], directions.to(rows)[None], dim=-1).mean(dim=0)
