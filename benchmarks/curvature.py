"""The trace of the Hessian of a transformer of 100,000 parameters by Hutchinson's probes: other ways against ours.

  naive        as one writes it: for every probe a forward, a gradient with its graph and a second gradient, with every
               position of every layer computed
  own forward  the same loop on the model's own forward, which computes the last layer only where it is read
  curvlinops   its HessianLinearOperator on the model's own forward
  eigenthings  the HessianOperator of hessian-eigenthings, also on the model's own forward
  ours         `flipscope.curvature`: one graph for all probes, the first layer from tables, the last without keys

Rivals take part where they are installed; all sides are given the same probes, and one thread. float32.
Seconds are those of the processor, per probe, medians of turns within one run: compare ratios. Peak memory is that of
a process of its own per side, which does nothing else; that of one which only builds the model is printed beside.
Run with: make bench, or python benchmarks/curvature.py [--quick]
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from sharpness import machine
from torch import Tensor, nn

from flipscope import curvature
from flipscope.models import Transformer, hardness
from flipscope.probes.spectral import signs

LENGTH, STRINGS, WIDTH, PROBES = 20, 256, 90, 10
PACKAGES = {"curvlinops": "curvlinops", "eigenthings": "hessian_eigenthings"}

Run = Callable[[], float]


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of all sides."""
    return (outputs - targets).square().mean()


def naive(
    forward: Callable[[Tensor], Tensor], parameters: Sequence[nn.Parameter], bits: Tensor, labels: Tensor
) -> float:
    """The trace by a loop of double backwards."""
    total = 0.0
    for vector in probes(parameters):
        pieces = vector.split([each.numel() for each in parameters])
        v = [piece.view(each.shape) for piece, each in zip(pieces, parameters, strict=True)]
        first = torch.autograd.grad(squares(forward(bits), labels), parameters, create_graph=True)
        along = torch.stack([(g * each).sum() for g, each in zip(first, v, strict=True)]).sum()
        second = torch.autograd.grad(along, parameters)
        total += sum(float((h * each).sum()) for h, each in zip(second, v, strict=True))
    return total / PROBES


def by_operator(operator: object, parameters: Sequence[nn.Parameter]) -> float:
    """The trace by the products of a rival."""
    total = 0.0
    for vector in probes(parameters):
        total += float(vector @ (operator @ vector))  # type: ignore[operator]
    return total / PROBES


def probes(parameters: Sequence[nn.Parameter]) -> Iterator[Tensor]:
    """The random signs of our own probes, so that all sides come to the same trace."""
    size = sum(each.numel() for each in parameters)
    for number in range(PROBES):
        yield torch.from_numpy(signs(0, number, size)).float()


def sides() -> dict[str, Run]:
    """What can be run here."""
    model = Transformer(hardness(LENGTH, width=WIDTH), seed=1).eval()
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(0, 2, (STRINGS, LENGTH), generator=generator, dtype=torch.uint8)
    labels = 2.0 * (bits.sum(dim=1) % 2) - 1
    moved = {name: each for name, each in model.named_parameters() if "position" not in name}
    parameters = list(moved.values())

    def everywhere(inputs: Tensor) -> Tensor:
        return model.read(model.states(inputs)[-1])

    def ours() -> float:
        found = curvature(model, "mse", (bits, labels), what="trace", method="hutchinson", probes=PROBES).trace
        assert found is not None
        return found.value.value

    found: dict[str, Run] = {
        "model only": lambda: float("nan"),
        "naive": lambda: naive(everywhere, parameters, bits, labels),
        "own forward": lambda: naive(model, parameters, bits, labels),
    }
    if importlib.util.find_spec("curvlinops"):
        from curvlinops import HessianLinearOperator

        operator = HessianLinearOperator(
            model, nn.MSELoss(), parameters, [(bits, labels)], check_deterministic=False, num_data=STRINGS
        )
        found["curvlinops"] = lambda: by_operator(operator, parameters)
    if importlib.util.find_spec("hessian_eigenthings"):
        from hessian_eigenthings.loss_fns.standard import supervised_loss
        from hessian_eigenthings.operators.hessian import HessianOperator

        chosen = set(moved)
        other = HessianOperator(
            model, [(bits, labels)], supervised_loss(squares), param_filter=lambda name, _: name in chosen
        )
        found["eigenthings"] = lambda: by_operator(other, parameters)
    return found | {"ours": ours}


def peak(side: str) -> float:
    """Megabytes that a process which runs this side once has had at most."""
    told = subprocess.run([sys.executable, __file__, "--side", side], capture_output=True, text=True, check=True)
    return float(told.stdout)


def high_water() -> float:
    """Megabytes that this process has had at most."""
    status = Path("/proc/self/status")
    if status.exists():  # where ru_maxrss begins with what the parent had
        lines = status.read_text(encoding="utf-8").splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 / (1024 if sys.platform == "darwin" else 1)


def medians(runs: dict[str, Run], turns: int) -> dict[str, tuple[float, float]]:
    """Median seconds of the processor per probe, and the last trace."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    traces = {name: run() for name, run in runs.items()}  # to warm up
    for _ in range(turns):
        for name, run in runs.items():
            start = time.process_time()
            traces[name] = run()
            seconds[name].append(time.process_time() - start)
    return {name: (statistics.median(times) / PROBES, traces[name]) for name, times in seconds.items()}


def main() -> None:
    """Measure and print what is reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one turn each, without peak memory: half a minute")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if options.side:
        sides()[options.side]()
        print(high_water())
        return
    runs = sides()
    size = sum(each.numel() for each in _parameters())
    print(f"{machine()}; torch {torch.__version__}; {size:,} parameters, {STRINGS} strings of {LENGTH} bits, float32")
    found = medians({name: run for name, run in runs.items() if name != "model only"}, 1 if options.quick else 5)
    ours = found["ours"][0]
    print(f"{'':>12} {'per probe':>10} {'side/ours':>10} {'trace':>8} {'peak memory':>12}")
    base = None if options.quick else peak("model only")
    for name, (seconds, trace) in found.items():
        memory = "-" if base is None else f"{peak(name):.0f} MB"
        print(f"{name:>12} {1e3 * seconds:7.1f} ms {seconds / ours:10.2f} {trace:8.1f} {memory:>12}", flush=True)
    if base is not None:
        print(f"A process that only builds the model has {base:.0f} MB.")
    for side, package in PACKAGES.items():
        if side not in runs:
            print(f"{package} is not installed, so that it takes no part.")


def _parameters() -> list[Tensor]:
    model = Transformer(hardness(LENGTH, width=WIDTH), seed=None)
    return [each for name, each in model.named_parameters() if "position" not in name]


if __name__ == "__main__":
    main()
