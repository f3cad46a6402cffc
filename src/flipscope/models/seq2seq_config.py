"""The configuration of an encoder-decoder with a scratchpad, without PyTorch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flipscope.basics.arguments import check_fields
from flipscope.basics.errors import InputError
from flipscope.models.config import TransformerConfig

if TYPE_CHECKING:
    import numpy as np

    from flipscope.models.init import Scheme
    from flipscope.models.seq2seq import Seq2Seq

KIND = "seq2seq"  # its name in files and recipes


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig:
    """The choices of `flipscope.models.seq2seq.Seq2Seq`; the usual ones are those of the hardness paper.

    >>> Seq2SeqConfig(length=8).side.max_length  # START and the bits
    9
    """

    length: int  # of the longest string; START has a position as well
    width: int = 32  # half of it is for the symbol, half for the position
    layers: int = 2  # of the encoder, and as many of the decoder
    heads: int = 2
    ffn_width: int = 32
    eps: float = 1e-5

    def __post_init__(self) -> None:
        check_fields(self)
        if not isinstance(self.width, int) or self.width % 2:
            raise InputError(f"width={self.width} must be an even number: half of it is for the position")
        if not isinstance(self.length, int) or isinstance(self.length, bool) or self.length < 1:
            raise InputError(f"length={self.length!r} must be an integer of at least 1")
        _ = self.side  # creating it checks all other choices

    @property
    def side(self) -> TransformerConfig:
        """The encoder's layers and the table of symbols and positions that both sides share."""
        return TransformerConfig(
            inputs="tokens",
            vocabulary=3,
            marker="none",
            max_length=self.length + 1,
            positions="learned",
            join="concatenate",
            position_width=self.width // 2,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            ffn_width=self.ffn_width,
            eps=self.eps,
            readout="every",
        )

    def as_dict(self) -> dict[str, Any]:
        """The fields as a JSON object, with the kind."""
        return {"kind": KIND, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Seq2SeqConfig:
        """The configuration with these fields, which must be exactly those of `as_dict`."""
        names = {"kind", *(field.name for field in dataclasses.fields(cls))}
        if set(fields) != names or fields["kind"] != KIND:
            raise InputError(f"the configuration of an encoder-decoder has the fields {', '.join(sorted(names))}")
        return cls(**{name: value for name, value in fields.items() if name != "kind"})

    def network(
        self,
        *,
        scheme: Scheme = "pytorch",
        seed: int | np.random.Generator | None = 0,
    ) -> Seq2Seq:
        """The model."""
        from flipscope.models.seq2seq import Seq2Seq

        return Seq2Seq(self, scheme=scheme, seed=seed)

    def check_fits(self, length: int, data: Any) -> None:
        """Raise InputError unless it can be trained on this data with strings of this length."""
        if length > self.length:
            raise InputError(
                f"the strings have {length:,} bits, and the model positions for {self.length:,}: raise length"
            )
        if getattr(data, "answer", None) != "scratchpad":
            raise InputError("an encoder-decoder writes a scratchpad: give LengthsData with answer='scratchpad'")
