from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest

from flipscope.basics.errors import InputError
from flipscope.models import TransformerConfig, encoder, fourier, gpt2, hardness, mingpt, recognizer, roberta, vit_small

ALL = [recognizer(), encoder(), hardness(30), fourier(), mingpt(100), vit_small(), roberta(), gpt2()]


@pytest.mark.parametrize("config", ALL)
def test_survives_json(config: TransformerConfig) -> None:
    assert TransformerConfig.from_dict(json.loads(json.dumps(config.as_dict()))) == config


def test_usual_values_follow_a_replacement() -> None:
    config = dataclasses.replace(encoder(64, 2, 4), width=128)
    assert (config.key_width, config.hidden_width, config.scale) == (32, 512, 1 / math.sqrt(32))


def test_papers_choices() -> None:
    eq8 = recognizer(24, 3, 2)
    assert (eq8.key_width, eq8.hidden_width, eq8.scale, eq8.eps) == (24, 24, 1.0, 0.0)
    assert fourier(20).scale == 2 * math.log(20) / math.sqrt(51)
    assert (fourier(20).mlp_count, fourier(20).layers) == (1, 2)
    assert (vit_small().key_width, vit_small().longest, vit_small().patch_width) == (64, 64, 240)
    assert hardness(7).symbol_width == 64
    assert roberta(attention="relu").attention == "relu"


def test_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        encoder().width = 3  # type: ignore[misc]


PATCHES: dict[str, Any] = {"inputs": "patches", "image_size": 8, "patch_size": 4, "channels": 1}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"norm": "middle"}, "norm='middle' is not one of once, post, pre, none"),
        ({"affine": 1}, "affine=1 must be True or False"),
        ({"layers": 0}, "layers=0 must be an integer of at least 1"),
        ({"width": True}, "width=True must be an integer"),
        ({"heads": 2.0}, "heads=2.0 must be an integer"),
        ({"ffn_width": 0}, "ffn_width=0 must be an integer of at least 1"),
        ({"eps": -1e-9}, "eps=-1e-09 must be a number of at least 0"),
        ({"eps": math.nan}, "eps=nan must be a finite number"),
        ({"dropout": 10**400}, "dropout=a number of 1329 bits must be a finite number"),
        ({"dropout": 1.0}, "dropout=1.0 must be at least 0 and less than 1"),
        ({"logit_scale": 0.0}, "logit_scale=0.0 must be a positive number"),
        ({"logit_scale": "big"}, "logit_scale='big' must be a finite number"),
        ({"vocabulary": 3}, "vocabulary=3 must be 2"),
        ({"patch_size": 4}, "patch_size=4 is for inputs='patches' only"),
        ({"shifted_patches": True}, "shifted_patches=True is for inputs='patches' only"),
        ({"patch_norm": True}, "patch_norm=True is for inputs='patches' only"),
        ({"inputs": "patches"}, "image_size must be given"),
        (PATCHES | {"patch_size": 3}, "image_size=8 must be a multiple of patch_size=3"),
        (PATCHES | {"max_length": 4}, "max_length=4 must be None"),
        ({"positions": "learned"}, "max_length must be given"),
        ({"positions": "cyclic"}, "period=None goes with positions='cyclic'"),
        ({"period": 3}, "period=3 goes with positions='cyclic', not 'sinusoidal'"),
        (
            {"positions": "cyclic", "period": 9},
            "9 one-hot positions do not fit into 8 coordinates: raise width",
        ),
        ({"positions": "one_hot", "max_length": 8}, "9 one-hot positions do not fit into 8"),
        ({"position_width": 3}, "position_width=3 goes with join='concatenate', not 'add'"),
        ({"join": "concatenate"}, "position_width=None goes with join='concatenate'"),
        ({"join": "concatenate", "position_width": 8}, "position_width=8 must be less than width=8"),
        ({"join": "concatenate", "position_width": 2, "positions": "none"}, "needs positions"),
        ({"heads": 3}, "width=8 must be a multiple of heads=3"),
        ({"heads": 2, "combine": "sum"}, "combine='sum' needs head_size=8"),
        ({"block": "sum"}, "norm='post' has no place in block='sum'"),
        ({"mlp_layers": 2}, "mlp_layers=2 must be at most layers=1"),
        ({"block": "sum", "norm": "once", "mlp_layers": 0}, "mlp_layers=0 must be None"),
        ({"mask_self": True, "causal": True}, "nothing to attend to"),
    ],
)
def test_refuses(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        TransformerConfig(**({"width": 8, "layers": 1} | fields))
    assert message in str(error.value)


def test_refuses_other_fields() -> None:
    fields = encoder().as_dict()
    with pytest.raises(InputError, match="unknown fields colour"):
        TransformerConfig.from_dict(fields | {"colour": "red"})
    del fields["eps"]
    with pytest.raises(InputError, match="lacks the fields eps"):
        TransformerConfig.from_dict(fields)


@pytest.mark.parametrize(("preset", "arguments"), [(hardness, (4, 7)), (fourier, (1,))])
def test_presets_refuse(preset: Any, arguments: tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        preset(*arguments)
