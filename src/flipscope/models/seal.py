"""Checksums of tensors and of files that contain them, to detect changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from flipscope.basics.errors import InputError

SEAL = "flipscope.sha256"  # metadata entry: checksum over the tensors and the other entries


class NotWhole(InputError):
    """A file is damaged, or not of the expected kind."""


def seal(tensors: Mapping[str, Tensor], texts: Mapping[str, str]) -> str:
    """SHA-256 of tensors and texts with their names, independent of their order."""
    names = sorted(tensors)
    found = hashlib.sha256(json.dumps([names, sorted(texts.items())]).encode())
    found.update(fingerprint(tensors[name] for name in names).encode())
    return found.hexdigest()


def fingerprint(tensors: Iterable[Tensor]) -> str:
    """SHA-256 of the tensors: their types, shapes and every bit."""
    found = hashlib.sha256()
    for tensor in tensors:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        found.update(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
        found.update(flat.view(torch.uint8).numpy().data)
    return found.hexdigest()
