"""A model as one safetensors file: its tensors, and its configuration in the metadata."""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.basics.files import check_target
from flipscope.basics.limits import check_memory
from flipscope.models.attention_network import AttentionNetwork
from flipscope.models.attention_network_config import AttentionNetworkConfig
from flipscope.models.baselines.images import ImageNetwork
from flipscope.models.baselines.lstm import LSTM
from flipscope.models.config import TransformerConfig
from flipscope.models.fourier_network import FourierNetwork
from flipscope.models.header import KEY, VERSION, Header, read_header
from flipscope.models.kinds import AnyConfig
from flipscope.models.seal import SEAL, NotWhole, seal
from flipscope.models.seq2seq import Seq2Seq
from flipscope.models.transformer import Block, Transformer

# One answer per string, image or text.
StringModel: TypeAlias = Transformer | AttentionNetwork | FourierNetwork | ImageNetwork | LSTM
AnyModel: TypeAlias = StringModel | Seq2Seq


@checked_arguments
def save(model: AnyModel, path: str | os.PathLike[str], notes: Mapping[str, str] | None = None) -> None:
    """Write the model to the path atomically.

    `notes` are further entries of the file's metadata, such as the training history. `load` reads the file and detects
    changes by a checksum.

    >>> import tempfile
    >>> from flipscope.models import encoder
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Transformer(encoder(width=16, layers=1)), f"{folder}/model.safetensors", {"made by": "hand"})
    ...     os.listdir(folder)
    ['model.safetensors']
    """
    tensors = model_tensors(model)
    _check_finite(tensors, "the model")
    record = json.dumps({"version": VERSION, "config": model.config.as_dict()})
    metadata = {**(notes or {}), KEY: record}
    write_tensors(path, tensors, {**metadata, SEAL: _sealed(tensors, metadata)})


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The model's tensors in the form stored in a file."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}


def _sealed(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """The checksum of a model's file over its whole content."""
    notes = {name: text for name, text in metadata.items() if name not in (KEY, SEAL)}
    # The text from the file: a later version may have more fields.
    config = json.dumps(json.loads(metadata[KEY])["config"], sort_keys=True)
    return seal(tensors, {**notes, "config": config})


def write_tensors(path: str | os.PathLike[str], tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file under a temporary name and rename it, so that the path always has a complete file."""
    target = Path(path)
    check_target(target, "model")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        try:
            temporary.touch(exist_ok=False)
            rights = stat.S_IMODE(temporary.stat().st_mode)  # as the umask permits; safetensors would set fewer
            save_file(tensors, temporary, metadata=metadata)
            temporary.chmod(rights)
            _flush(temporary)
            os.replace(temporary, target)
            _flush(target.parent)  # so that the new name survives a power cut too
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{target} cannot be written: {_reason(error)}") from error


@checked_arguments
def load(path: str | os.PathLike[str] | Header) -> StringModel:
    """The model in the file, in evaluation mode, with the number type it was saved in.

    A file whose checksum does not match is rejected; one without a checksum is accepted. The file's header, if already
    read, can be passed instead of the path.

    >>> import tempfile
    >>> from flipscope.models import encoder
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Transformer(encoder(width=16, layers=1)), f"{folder}/model.safetensors")
    ...     load(f"{folder}/model.safetensors").config.width
    16
    """
    header = path if isinstance(path, Header) else read_header(path)
    model = load_any(header)
    if isinstance(model, Seq2Seq):
        raise InputError(f"{header.path} is an encoder-decoder, and a transformer is wanted here: give another file")
    return model


@checked_arguments
def load_any(path: str | os.PathLike[str] | Header) -> AnyModel:
    """The model in the file, of any kind, in evaluation mode."""
    header = path if isinstance(path, Header) else read_header(path)
    source, metadata = header.path, header.metadata
    try:
        with safe_open(source, framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            model = _blank(source, header.config, len(shapes))
            _check_shapes(source, model, shapes)
            check_memory(source.stat().st_size, str(source), "load it on a larger one")
            # Copies, since the file behind a memory map may change.
            tensors = {name: file.get_tensor(name).clone() for name in shapes}
    except (OSError, SafetensorError) as error:
        raise InputError(f"{source} cannot be read as safetensors: {_reason(error)}") from error
    types = {tensor.dtype for tensor in tensors.values()}
    if len(types) != 1 or not types <= {torch.float64, torch.float32, torch.float16, torch.bfloat16}:
        raise InputError(f"{source} mixes number types or holds other than floats: {_listed(map(str, types))}")
    if SEAL in metadata and metadata[SEAL] != _sealed(tensors, metadata):
        raise NotWhole(f"{source} is damaged: its content has changed")
    _check_finite(tensors, str(source))
    model.load_state_dict(tensors, assign=True)
    return model.eval()


def _blank(source: Path, config: AnyConfig, tensors: int) -> AnyModel:
    """The model without data; rejected if the file has too few tensors for its layers, which take time to create."""
    try:
        if not isinstance(config, TransformerConfig):
            heads = config.heads if isinstance(config, AttentionNetworkConfig) else 1
            if config.layers * heads <= tensors:
                return config.network(seed=None)
            raise OverflowError
        with torch.device("meta"):
            full, bare = (len(list(Block(config, has_mlp).parameters())) for has_mlp in (True, False))
        if config.mlp_count * full + (config.layers - config.mlp_count) * bare <= 2 * tensors:
            return Transformer(config, seed=None)
    except (RuntimeError, OverflowError, TypeError):  # sizes beyond 63 bits
        pass
    raise InputError(f"{source} is far too small for the sizes in its configuration")


def _check_shapes(source: Path, model: nn.Module, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise InputError unless the file has exactly the model's tensors, in their shapes."""
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if missing := expected.keys() - shapes.keys():
        raise InputError(f"{source} lacks the tensors {_listed(missing)}")
    if extra := shapes.keys() - expected.keys():
        raise InputError(f"{source} has tensors that its configuration does not know: {_listed(extra)}")
    for name, shape in expected.items():
        if shapes[name] != shape:
            raise InputError(f"{source} has {name} in shape {shapes[name]}, but its configuration says {shape}")


def _check_finite(tensors: Mapping[str, Tensor], where: str) -> None:
    """Raise InputError if a number is NaN or infinite."""
    if broken := [name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())]:
        raise InputError(f"{where} has NaN or infinite numbers in {_listed(broken)}")


def _listed(names: Iterable[str]) -> str:
    """The first few names, sorted."""
    ordered = sorted(names)
    return ", ".join(ordered[:3]) + (f" and {len(ordered) - 3} more" if len(ordered) > 3 else "")


def _reason(error: Exception) -> str:
    """The system's error message, else the exception's."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _flush(path: Path) -> None:
    """Flush a file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
