"""The kinds of models by their names in files and recipes; needs no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from flipscope.basics.registry import Registry
from flipscope.models import attention_network_config, fourier_network_config, seq2seq_config
from flipscope.models.attention_network_config import AttentionNetworkConfig
from flipscope.models.baselines.config import (
    BaselineConfig,
    CNNConfig,
    ConvMixerConfig,
    DenseNetConfig,
    LSTMConfig,
    MLPConfig,
    ResNetConfig,
)
from flipscope.models.config import TransformerConfig
from flipscope.models.fourier_network_config import FourierNetworkConfig
from flipscope.models.seq2seq_config import Seq2SeqConfig

# One answer per string, image or text.
StringConfig: TypeAlias = TransformerConfig | AttentionNetworkConfig | FourierNetworkConfig | BaselineConfig
AnyConfig: TypeAlias = StringConfig | Seq2SeqConfig

TRANSFORMER = "transformer"  # the kind of a configuration that names none

KINDS: Registry[type[AnyConfig]] = Registry(
    "kind of model",
    {
        TRANSFORMER: TransformerConfig,
        seq2seq_config.KIND: Seq2SeqConfig,
        attention_network_config.KIND: AttentionNetworkConfig,
        fourier_network_config.KIND: FourierNetworkConfig,
        **{
            each.kind: each
            for each in (MLPConfig, CNNConfig, ResNetConfig, DenseNetConfig, ConvMixerConfig, LSTMConfig)
        },
    },
)


def configuration(fields: Mapping[str, Any]) -> AnyConfig:
    """The configuration with these fields, one of which names the kind; without it, a transformer."""
    kind = KINDS.canonical(fields.get("kind", TRANSFORMER))
    rest = {name: value for name, value in fields.items() if name != "kind"}
    return KINDS.definitions[kind].from_dict(rest if kind == TRANSFORMER else {**rest, "kind": kind})
