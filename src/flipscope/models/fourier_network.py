"""The network for which the sharper-picture paper constructs weights (App. B), without additions.

    bits [string, position] -> X [string, token, width]: a position's code, then its bit; the token that is read, last
    a_t = sum over heads of V softmax_j(x_t' W x_j) X              no residual: a_t has forgotten its position
    M_t = (code of t, 0) + F ReLU(U a_t + b)                       the residual carries positions only
    f = sum over read heads of sum_j softmax_j(M_last' W_2 M_j) v' M_j                or sum_j C_j' M_j, linear

The query-key product is one matrix. With plain sums and softmaxes, everything can be differentiated arbitrarily often.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.models.devices import in_float64
from flipscope.models.fourier_network_config import FourierNetworkConfig
from flipscope.models.init import Scheme, initialise


class FourierNetwork(nn.Module):
    """The network of a configuration, its parameters drawn by `initialise(self, scheme, seed)`.

    With seed=None its tensors have shapes but no data (PyTorch's meta device). The weights for a function are set by
    `flipscope.constructions.fourier.fourier_network`.

    >>> model = FourierNetwork(FourierNetworkConfig(length=4, neurons=8))
    >>> model(torch.tensor([[0, 1, 1, 0]])).shape
    torch.Size([1])
    """

    codes: Tensor  # [position, code]

    @checked_arguments
    def __init__(
        self,
        config: FourierNetworkConfig,
        *,
        scheme: Scheme = "pytorch",
        seed: int | np.random.Generator | None = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config
        d, neurons = config.width, config.neurons
        config.check_size()
        with torch.device("meta" if seed is None else "cpu"):
            self.register_buffer("codes", torch.empty(config.positions, config.codes, dtype=dtype))
            self.query_key = nn.Parameter(torch.empty(config.heads, d, d, dtype=dtype))  # W_1, row: who asks
            self.value = nn.Parameter(torch.empty(config.heads, d, d, dtype=dtype))  # V_1
            self.up = nn.Parameter(torch.empty(neurons, d, dtype=dtype))  # U
            self.bias = nn.Parameter(torch.empty(neurons, dtype=dtype))  # b
            self.down = nn.Parameter(torch.empty(d, neurons, dtype=dtype))  # F
            if config.readout == "attention":
                self.read_query_key = nn.Parameter(torch.empty(config.read_heads, d, d, dtype=dtype))  # W_2
                self.read_value = nn.Parameter(torch.empty(config.read_heads, d, dtype=dtype))  # v
            else:
                self.linear = nn.Parameter(torch.empty(config.positions, d, dtype=dtype))
        if seed is None:
            return
        if config.code_width is None:
            self.codes.copy_(torch.eye(config.positions, dtype=dtype, device="cpu"))
        else:
            self.codes.zero_()  # the caller fills them
        initialise(self, scheme, seed)

    def reset_parameters(self) -> None:
        """Glorot's uniform law for each matrix, and 0 for the bias."""
        for name, parameter in self.named_parameters(recurse=False):
            if name == "bias":
                nn.init.zeros_(parameter)
            elif parameter.ndim == 3:
                for matrix in parameter:
                    nn.init.xavier_uniform_(matrix)
            else:
                nn.init.xavier_uniform_(parameter)

    def forward(self, bits: Tensor) -> Float[Tensor, " string"]:
        """One number per string; with cyclic=True, generated bits may follow the string's bits."""
        self.check(bits)
        mlp = self.mlp_outputs(bits)
        if self.config.readout == "linear":
            return (mlp * self.linear).sum(dim=(1, 2))
        logits = torch.einsum("bd,hde,bje->bhj", mlp[:, -1], self.read_query_key, mlp)
        return torch.einsum("bhj,bjd,hd->b", logits.softmax(dim=-1), mlp, self.read_value)

    def attention_outputs(self, bits: Tensor) -> Float[Tensor, "string token width"]:
        """a_t: the output of the first layer's attention at each token."""
        x = self.tokens(bits)
        logits = torch.einsum("btd,hde,bje->bhtj", x, self.query_key, x)
        return torch.einsum("bhtj,bje,hde->btd", logits.softmax(dim=-1), x, self.value)

    def mlp_outputs(self, bits: Tensor) -> Float[Tensor, "string token width"]:
        """M_t: the MLP's output at each token, with the codes of positions."""
        hidden = (self.attention_outputs(bits) @ self.up.T + self.bias).relu()
        codes = self.token_codes(bits.shape[1] + 1)
        return hidden @ self.down.T + nn.functional.pad(codes, (0, self.config.values))

    def tokens(self, bits: Tensor) -> Float[Tensor, "string token width"]:
        """X: the bits, the token that is read or starts the generation (bit 0), and the generated bits."""
        length = self.config.length
        marker = bits.new_zeros(len(bits), 1)
        symbols = torch.cat([bits[:, :length], marker, bits[:, length:]], dim=1).to(self.codes)[..., None]
        codes = self.token_codes(symbols.shape[1]).expand(len(bits), -1, -1)
        rest = symbols.new_zeros(*symbols.shape[:2], self.config.values - 1)
        return torch.cat([codes, symbols, rest], dim=2)

    def token_codes(self, tokens: int) -> Float[Tensor, "token code"]:
        """The codes of the first `count` tokens."""
        return self.codes[torch.arange(tokens, device=self.codes.device) % self.config.positions]

    def squared_norm(self) -> float:
        """||Theta||^2, summed over all parameters."""
        return sum(float(in_float64(each.detach()).square().sum()) for each in self.parameters())

    def check(self, bits: Tensor) -> None:
        """Raise InputError unless these are strings that the network reads."""
        config = self.config
        if not isinstance(bits, Tensor) or bits.ndim != 2:
            raise InputError("bits must be a torch tensor [string, position]")
        most = 2 * config.length - 1 if config.cyclic else config.length  # the last step is not read again
        if not config.length <= bits.shape[1] <= most:
            said = f"{config.length} to {most}" if config.cyclic else f"{config.length}"
            raise InputError(f"strings of {bits.shape[1]} bits were given, and the network reads {said}")
