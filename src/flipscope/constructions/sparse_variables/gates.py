"""Gates of gates: two layers of attention with ReLU, no MLP, for a function of functions of few bits each.

A head with sigma = ReLU is a whole gate: its softmax mixes the relevant bits into one number, W_V makes hinges of it
and W_C sums them to the gate's value. All rows have the same query, so that after the first layer every row holds the
values of all gates, and the second layer, whose attention is uniform, reads them from its own row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.constructions.sparse_variables.bases import Matrix, fixed_vectors
from flipscope.constructions.sparse_variables.build import fill
from flipscope.constructions.sparse_variables.functions import is_symmetric, patterns, sparse_function
from flipscope.constructions.sparse_variables.heads import Vector, positional_heads, usual_gamma
from flipscope.constructions.sparse_variables.mlp import MLP, value_network
from flipscope.constructions.sparse_variables.promises import Route
from flipscope.cube.functions import BooleanFunction
from flipscope.models.attention_network import AttentionNetwork
from flipscope.models.attention_network_config import AttentionNetworkConfig, FixedVectors

MOST_GATES = 8


@checked_arguments
def compose(
    outer: BooleanFunction, gates: Sequence[BooleanFunction], *, basis: str | Matrix = "orthonormal", seed: int = 0
) -> AttentionNetwork:
    """The two-layer network that computes outer(gate_1(x), ..., gate_m(x)) as -1 and +1, one head per gate.

    >>> from flipscope.cube.expression import parse
    >>> model = compose(parse("x1 ^ x2"), [parse("x1 & x2", 6), parse("x4 | x5 | x6", 6)])
    >>> bits = torch.tensor([[1, 1, 0, 0, 0, 0], [1, 1, 0, 1, 0, 0]])
    >>> [round(value, 9) for value in model(bits).tolist()]
    [1.0, -1.0]
    """
    count = len(gates)
    if not 1 <= count <= MOST_GATES or outer.n != count:
        raise InputError(f"{count} gates must be as many as the outer function has bits, {outer.n}, up to {MOST_GATES}")
    if len({gate.n for gate in gates}) != 1:
        raise InputError("the gates read strings of different lengths: give all the same n")
    sparse = [sparse_function(gate) for gate in gates]
    length = gates[0].n
    vectors = fixed_vectors("deterministic", length, count + 1, None, basis, seed, 1)
    width = len(vectors.marker)
    even = vectors.symbols.sum(axis=0) + vectors.marker  # its product with every row of X is 1
    first: list[_Head] = []
    for place, gate in enumerate(sparse):
        route: Route = "mean" if is_symmetric(gate.values) else "powers"
        gamma = usual_gamma(route, gate.sparsity)
        heads = positional_heads(route, "deterministic", gate.positions, vectors, gamma, False)
        chosen = (1 << np.arange(gate.sparsity + 1)) - 1 if route == "mean" else np.arange(len(gate.values))
        net = value_network(heads.target[chosen], gate.values[chosen].astype(np.float64), heads.spacing / 4, layers=2)
        gate_head = _Head(
            heads.scale * even, heads.key[0][:, 0], *_hinges(net, heads.value[0][:, 0], even, width, place)
        )
        first.append(gate_head)
    # One more head provides the constant 1 for the biases of the second layer's hinges.
    still = np.zeros(width)
    first.append(_Head(still, still, even[:, None], np.eye(1, width, count)))
    table = patterns(count)
    net = value_network(np.arange(len(table), dtype=np.float64)[:, None], 2.0 * outer(table) - 1, 0.25, layers=2)
    weights = np.zeros(width)
    weights[:count] = 2.0 ** np.arange(count)
    second = [_Head(still, still, *_hinges(net, weights, np.eye(width)[count], width, 0))]
    return _network(length, vectors, [first, second])


@dataclass(frozen=True, eq=False)
class _Head:
    query: Vector  # of W_Q = query e_1^T
    key: Vector
    value: Matrix
    mix: Matrix


def _hinges(net: MLP, direction: Vector, constant: Vector, width: int, written: int) -> tuple[Matrix, Matrix]:
    """W_V and W_C of a network of one hidden layer on the product with a direction, written to a coordinate."""
    slopes, biases = net.layers[0]
    return np.outer(direction, slopes) + np.outer(constant, biases), np.outer(net.output, np.eye(width)[written])


def _network(length: int, vectors: FixedVectors, layers: list[list[_Head]]) -> AttentionNetwork:
    """The network with these heads; a layer with fewer heads is filled up with zero heads."""
    width = len(vectors.marker)
    size = max(head.value.shape[1] for layer in layers for head in layer)
    config = AttentionNetworkConfig(
        length=length,
        width=width,
        head_size=size,
        layers=len(layers),
        heads=max(map(len, layers)),
        activation="relu",
        basis="given",
    )
    config.check_size(number=8)
    model = AttentionNetwork(config, seed=None, dtype=torch.float64).to_empty(device="cpu")
    fill(model.inputs, symbols=vectors.symbols, positions=vectors.positions, marker=vectors.marker)
    first = np.eye(size)[0]
    for place, layer in enumerate(layers):
        for number, head in enumerate(model.heads(place)):
            with torch.no_grad():
                for parameter in head.parameters():
                    parameter.zero_()
            if number < len(layer):
                weights = layer[number]
                spare = size - weights.value.shape[1]
                fill(
                    head,
                    query=np.outer(weights.query, first),
                    key=np.outer(weights.key, first),
                    value=np.pad(weights.value, ((0, 0), (0, spare))),
                    mix=np.pad(weights.mix, ((0, spare), (0, 0))),
                )
    fill(model.readout, weight=np.eye(1, width))
    return model.eval()
