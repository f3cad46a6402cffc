"""The LSTM: embedded tokens [text, position, width] through recurrent layers, read after the last token."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from flipscope.basics.errors import InputError
from flipscope.models.baselines.config import LSTMConfig
from flipscope.models.baselines.images import drawn
from flipscope.models.init import Linear, Lookup, Scheme
from flipscope.models.transformer import LayerNorm


class Embedding(nn.Module):
    """The normalised vectors of tokens."""

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        self.symbol = Lookup(config.vocabulary, config.width)
        self.norm = LayerNorm(config.width, config.eps, affine=True)

    def forward(self, tokens: Tensor) -> Float[Tensor, "text position width"]:
        """Vectors of all positions."""
        out: Tensor = self.norm(self.symbol(tokens.long()))
        return out


class LSTM(nn.Module):
    """The network of a configuration.

    >>> model = LSTM(LSTMConfig(vocabulary=9, length=6, width=8, layers=1, padding=0))
    >>> short, padded = model(torch.tensor([[3, 4]])), model(torch.tensor([[3, 4, 0, 0]]))
    >>> torch.allclose(short, padded, atol=1e-6)
    True
    """

    def __init__(
        self,
        config: LSTMConfig,
        *,
        scheme: Scheme = "pytorch",
        seed: int | np.random.Generator | None = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config
        between = config.dropout if config.layers > 1 else 0.0
        with torch.device("meta"):  # so that PyTorch's global generator is not used
            self.embedding = Embedding(config)
            self.recurrent = nn.LSTM(config.width, config.width, config.layers, batch_first=True, dropout=between)
            self.head = Linear(config.width, config.classes)
        drawn(self, scheme, seed, dtype)
        if config.trained == "recurrent":
            for part in (self.embedding, self.head):
                part.requires_grad_(False)

    def forward(self, tokens: Tensor) -> Float[Tensor, "text class"]:
        """Logits of the classes for tokens [text, position]."""
        self.check(tokens)
        states, _ = self.recurrent(self.embedding(tokens))
        # A state depends on earlier tokens only, so padding after the last token does not reach it.
        rows = torch.arange(len(tokens), device=tokens.device)
        out: Tensor = self.head(states[rows, self.last(tokens)])
        return out

    def last(self, tokens: Tensor) -> Tensor:
        """The position of each text's last token."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        if self.config.padding is None:
            return places[-1:].expand(len(tokens))
        return (places * (tokens != self.config.padding)).amax(dim=1)

    def check(self, tokens: Tensor) -> None:
        """Raise InputError unless the model can read these tokens."""
        config = self.config
        if not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.ndim != 2:
            what = f"shape {tuple(tokens.shape)}" if isinstance(tokens, Tensor) else type(tokens).__name__
            raise InputError(f"inputs of {what} must be integers [text, position]")
        if not 0 < tokens.shape[1] <= config.length:
            raise InputError(f"texts of {tokens.shape[1]} tokens must have 1 to {config.length}, the model's length")
        if tokens.numel():
            low, high = int(tokens.min()), int(tokens.max())
            if low < 0 or high >= config.vocabulary:
                wrong = low if low < 0 else high
                raise InputError(f"inputs contain {wrong}, but tokens are 0 to {config.vocabulary - 1}")
        if config.padding is not None and not bool((tokens != config.padding).any(dim=1).all()):
            raise InputError("a text has no token but padding: drop that text")
