"""Boolean functions on disk: one ``.npz`` file with the structure as JSON and the tables as arrays; never unpickled."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from flipscope.basics import npz
from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.basics.files import replacing
from flipscope.cube import functions
from flipscope.cube.blocks import table_words
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.structure import (
    MAX_TABLE_BITS,
    Call,
    Const,
    Kernel,
    Leaf,
    Node,
    Symmetric,
    Table,
    apply,
    post_order,
    variable,
)

VERSION = 2  # 1: random functions are named by their seed, and the values meant by it were others
ZOO_CALLS: dict[str, Callable[..., BooleanFunction]] = {"address": functions.address, "random": functions.random}
# Everything that unzipping, numpy and the code below raise on damaged bytes.
_DAMAGE = (*npz.DAMAGE, ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError)


@checked_arguments
def save(f: BooleanFunction, path: Path) -> None:
    """Write f under a temporary name, then rename: a reader never sees half a file."""
    arrays: dict[str, Any] = {}
    structure = {"version": VERSION, "n": f.n, "nodes": _node_specs(f.node, arrays)}
    arrays["structure"] = np.frombuffer(json.dumps(structure).encode(), np.uint8)
    with replacing(path, "function") as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)
        file.flush()
        os.fsync(file.fileno())


@checked_arguments
def load(path: Path) -> BooleanFunction:
    """Read a function; InputError says what is wrong with a damaged file."""
    try:
        with npz.opened(path) as arrays:
            structure = json.loads(arrays["structure"].tobytes())
            if structure["version"] > VERSION:
                raise InputError(
                    f"{path} was written by a newer flipscope (format {structure['version']}); upgrade to read it."
                )
            specs = structure["nodes"]
            if structure["version"] < 2 and any(spec.get("kernel", {}).get("zoo") == "random" for spec in specs):
                raise InputError(
                    f"{path} holds a random function of an older flipscope, which meant other values by the same "
                    "seed; make the function anew."
                )
            return BooleanFunction(structure["n"], _read_nodes(specs, arrays))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist.") from None
    except PermissionError:
        raise InputError(f"{path} may not be read; check its permissions.") from None
    except InputError:
        raise
    except _DAMAGE:
        raise InputError(f"{path} is not a complete flipscope function file; save the function again.") from None


def _node_specs(node: Node, arrays: dict[str, Any]) -> list[Any]:
    """Every node once, children before the gates that name them by number; the last is the function."""
    specs: list[Any] = []
    number: dict[int, int] = {}
    for current in post_order(node):
        specs.append(_node_spec(current, number, arrays))
        number[id(current)] = len(specs) - 1
    return specs


def _node_spec(node: Node, number: dict[int, int], arrays: dict[str, Any]) -> Any:
    if isinstance(node, Const):
        return {"const": node.value}
    if isinstance(node.kernel, Call) and node.kernel.origin is None:
        return _table_spec(node, arrays)  # a user's code cannot be stored; its table can
    kernel = _kernel_spec(node.kernel, arrays)
    if isinstance(node, Leaf):
        return {"kernel": kernel, "positions": list(node.positions)}
    return {"kernel": kernel, "children": [number[id(child)] for child in node.children]}


def _table_spec(node: Node, arrays: dict[str, Any]) -> Any:
    if len(node.support) > MAX_TABLE_BITS:
        raise InputError(f"a callable of {len(node.support)} bits has no truth table that could be saved.")
    if not node.support:
        return {"const": int(table_words(node)[0] & np.uint64(1))}
    table = Table(len(node.support), table_words(node))
    return {"kernel": _kernel_spec(table, arrays), "positions": list(node.support)}


def _kernel_spec(kernel: Kernel, arrays: dict[str, Any]) -> Any:
    if isinstance(kernel, Call):
        assert kernel.origin is not None
        return {"zoo": kernel.origin[0], "arguments": kernel.origin[1]}
    name = f"array{len(arrays)}"
    if isinstance(kernel, Symmetric):
        arrays[name] = np.packbits(kernel.values)
        return {"symmetric": name, "arity": kernel.arity}
    arrays[name] = kernel.words.astype("<u8")
    return {"table": name, "arity": kernel.arity}


def _read_nodes(specs: Any, arrays: npz.Arrays) -> Node:
    nodes: list[Node] = []
    for spec in specs:
        nodes.append(_read_node(spec, nodes, arrays))
    return nodes[-1]


def _read_node(spec: Any, nodes: list[Node], arrays: npz.Arrays) -> Node:
    if "const" in spec:
        return Const(int(bool(spec["const"])))
    kernel = _kernel(spec["kernel"], arrays)
    if "positions" in spec:
        positions = [functions.checked_index(p, functions.MAX_BITS) for p in spec["positions"]]
        return apply(kernel, [variable(position) for position in positions])
    return apply(kernel, [nodes[functions.checked_index(child, len(nodes))] for child in spec["children"]])


def _kernel(spec: Any, arrays: npz.Arrays) -> Kernel:
    if "zoo" in spec:
        leaf = ZOO_CALLS[spec["zoo"]](**spec["arguments"]).node
        assert isinstance(leaf, Leaf)
        return leaf.kernel
    arity = functions.checked_bits(spec["arity"])
    if "symmetric" in spec:
        _check_length(arrays, spec["symmetric"], arity // 8 + 1)
        return Symmetric(np.unpackbits(arrays[spec["symmetric"]], count=arity + 1))
    _check_length(arrays, spec["table"], max(1, 1 << min(arity, MAX_TABLE_BITS) >> 6))
    whole = BooleanFunction.from_words(arrays[spec["table"]].astype(np.uint64, casting="equiv"), arity).node
    assert isinstance(whole, Leaf)
    return whole.kernel


def _check_length(arrays: npz.Arrays, name: str, length: int) -> None:
    """Raise ValueError unless an array, which is not unpacked for it, has this length."""
    if arrays.header(name).shape != (length,):
        raise ValueError("the array and the arity do not agree")
