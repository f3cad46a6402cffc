"""Sensitivity of one string of 100 bits (its logit and 100 flips): a rival's way, plain PyTorch, and the fast path.

  (i)   one forward per flip, batch 1, every position computed, as rivals do
  (ii)  well-batched PyTorch: every position of every layer, the best of several batch sizes
  (ii') the same tuned: the last layer only where it is read
  (iii) the fast path: exact algebra alone, and with deltas

One thread each side, CPU seconds, the least of a few interleaved repetitions. Heads 4, FFN --ffn times the width. The
column "i/peak" is what (i) over (iii) would be if the products of the middle layers, for every token and flip, ran at
the full speed of a large matrix product, by the fastest library that PyTorch has here, and all else took no time;
"share" is what part of that is reached (goal: at least 0.6 at widths 32 and 64); "error" is the largest error of
(iii)'s logits against float64, over that of (ii)'s (goal: at most 10).
Run with: make bench, or python benchmarks/flips.py [--quick] [--ffn 4] [--part grid|mix|screen|exhaustive]
  [--widths 32,64]
"""

from __future__ import annotations

import argparse
import copy
import os
import time
from collections.abc import Callable, Iterable, Mapping

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numpy as np
import torch
import torch.nn.functional as F

from flipscope.flips.fast import FastEngine
from flipscope.flips.screen import first_order_changes, screened_changes
from flipscope.models.config import TransformerConfig
from flipscope.models.init import Scheme
from flipscope.models.presets import encoder
from flipscope.models.shapes import random_shape
from flipscope.models.transformer import Transformer
from flipscope.native.span import preferred

LENGTH = 100
GUST_SECONDS = 5.0
PILOT = 4  # strings that the screen measures in full first
BATCHES = (8, 17, 101)
SCHEMES: tuple[Scheme, ...] = ("uniform", "gaussian", "xavier_normal")
ALL_SCHEMES: tuple[Scheme, ...] = ("uniform", "gaussian", "xavier_uniform", "xavier_normal")
EXACT_GOALS = {(32, 2): 3.0, (128, 4): 1.6, (512, 6): 1.35}
DELTA_GOALS = {(512, 2): 12.0, (512, 3): 3.0}


def neighbours(string: np.ndarray) -> torch.Tensor:
    """The flips of a string and, last, the string itself."""
    near = np.repeat(string[None], len(string) + 1, axis=0)
    near[np.arange(len(string)), np.arange(len(string))] ^= 1
    return torch.from_numpy(near).long()


@torch.inference_mode()
def every_position(model: Transformer, bits: torch.Tensor, batch: int) -> torch.Tensor:
    """Logits by computing every position of every layer, as a module that is only a module does."""
    parts = []
    for some in bits.split(batch):
        x = model.embed(some)
        for block in model.blocks:
            x = block(x)
        parts.append(model.read(x))
    return torch.cat(parts)


@torch.inference_mode()
def trimmed(model: Transformer, bits: torch.Tensor, batch: int) -> torch.Tensor:
    """Logits by the model's own forward, which computes the last layer only where it is read."""
    return torch.cat([model(some) for some in bits.split(batch)])


def least(sides: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Least CPU seconds of each side over interleaved repetitions, after one to warm up.

    There are at least so many, and more where they are short: noise of the machine comes in gusts.
    """
    best = dict.fromkeys(sides, float("inf"))
    begin, turn = time.perf_counter(), 0
    while turn <= repeats or time.perf_counter() - begin < GUST_SECONDS:
        for name, run in sides.items():
            start = time.process_time()
            run()
            if turn:
                best[name] = min(best[name], time.process_time() - start)
        turn += 1
    return best


def gemm_peak() -> tuple[float, str]:
    """Multiply-adds per second of a large float32 product on one thread, and the library that is the fastest here.

    PyTorch's own product is MKL's, which takes AVX2 on processors of AMD even where there is AVX-512.
    """
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    sides: dict[str, Callable[[], object]] = {"PyTorch's mm": lambda: a @ b}
    if torch.backends.mkldnn.is_available():
        turned, bias = a.to_mkldnn(), torch.zeros(1024)
        sides["oneDNN"] = lambda: torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
        sides["oneDNN of its own tensors"] = lambda: F.linear(turned, b.to_mkldnn())
    rates = {name: 1024**3 / seconds for name, seconds in least(sides, 10).items()}
    told = ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in rates.items())
    return max(rates.values()), told


def multiply_adds(config: TransformerConfig) -> float:
    """Multiply-adds of (ii) for one layer of one string and its flips."""
    tokens = LENGTH + 1
    per_token = 4 * config.width**2 + 2 * config.width * config.hidden_width + 2 * tokens * config.width
    return tokens * tokens * per_token


def processor() -> str:
    """The processor's own name, or else what the compiler takes it for."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return f"{names[0] if names else 'unnamed'} ({llvm.get_host_cpu_name()})"


def machine() -> str:
    """What was measured on, and how busy it was."""
    load = ", ".join(f"{average:.2f}" for average in os.getloadavg())
    return f"{processor()}, load average {load}; {preferred().lanes} lanes"


def grid(widths: tuple[int, ...], layers: tuple[int, ...], ffn: int, repeats: int) -> None:
    """The table of widths, layers and initialisations."""
    peak, told = gemm_peak()
    print(f"GEMM peak of one thread: {peak / 1e9:.0f} G multiply-adds per second ({told}); FFN {ffn} x width\n")
    titles = (
        "width:5 layers:6 init:14 (i)_s:8 (ii)_s:8 peak:5 (ii)′_s:8 exact_s:8 deltas_s:8 |:1 ii/exact:8 ii/deltas:9 "
    )
    titles += "ii′/deltas:10 i/deltas:8 i/peak:6 share:5 error:6"
    columns = [title.replace("_", " ").split(":") for title in titles.split()]
    print(" ".join(name.rjust(int(size)) for name, size in columns) + "  goals")
    for width in widths:
        for depth in (*layers, 3) if width == 512 else layers:
            for scheme in SCHEMES:
                config = encoder(width, depth, 4, ffn_width=ffn * width)
                seconds = _sides(Transformer(config, scheme=scheme, seed=1).eval(), repeats)
                share = depth * multiply_adds(config) / seconds["plain"] / peak
                middle = (depth - 2) * multiply_adds(config) / peak
                limit = f"{seconds['rival'] / middle:.1f}" if middle else "-"
                reached = f"{middle / seconds['deltas']:.2f}" if middle else "-"
                goals = []
                if (width, depth) in EXACT_GOALS:
                    goals.append(f"exact {EXACT_GOALS[width, depth]}")
                if (width, depth) in DELTA_GOALS and scheme == "gaussian":
                    goals.append(f"deltas {DELTA_GOALS[width, depth]}")
                if width <= 64:
                    goals.append("(i) 10")
                print(
                    f"{width:5d} {depth:6d} {scheme:>14} {seconds['rival']:8.3f} {seconds['plain']:8.3f} {share:5.0%} "
                    f"{seconds['tuned']:8.3f} {seconds['exact']:8.3f} {seconds['deltas']:8.3f} | "
                    f"{seconds['plain'] / seconds['exact']:8.2f} {seconds['plain'] / seconds['deltas']:9.2f} "
                    f"{seconds['tuned'] / seconds['deltas']:10.2f} {seconds['rival'] / seconds['deltas']:8.1f} "
                    f"{limit:>6} {reached:>5} {seconds['error']:6.2f}  " + ", ".join(goals),
                    flush=True,
                )


def _sides(model: Transformer, repeats: int) -> dict[str, float]:
    string = np.random.default_rng(0).integers(0, 2, (1, LENGTH), np.uint8)
    bits = neighbours(string[0])
    exact, deltas = FastEngine(model, deltas=False), FastEngine(model)
    some = bits[:5]  # the rival's loop takes the same time for each flip
    sides: dict[str, Callable[[], object]] = {"rival": lambda: every_position(model, some, 1)}
    for batch in BATCHES:
        sides[f"plain{batch}"] = lambda batch=batch: every_position(model, bits, batch)
        sides[f"tuned{batch}"] = lambda batch=batch: trimmed(model, bits, batch)
    sides["exact"] = lambda: exact.flip_logits(string)
    sides["deltas"] = lambda: deltas.flip_logits(string)
    seconds = least(sides, repeats)
    return {
        "rival": seconds["rival"] * len(bits) / len(some),
        "plain": min(seconds[f"plain{batch}"] for batch in BATCHES),
        "tuned": min(seconds[f"tuned{batch}"] for batch in BATCHES),
        "exact": seconds["exact"],
        "deltas": seconds["deltas"],
        "error": _error(model, string, (exact, deltas)),
    }


def _error(model: Transformer, string: np.ndarray, engines: Iterable[FastEngine]) -> float:
    """The largest error of the engines' logits against float64, over that of plain forwards in float32."""
    bits = neighbours(string[0])
    exact = every_position(copy.deepcopy(model).double(), bits, 17).numpy()
    plain = np.abs(every_position(model, bits, 17).numpy() - exact).max()
    found = [np.append(flipped[0], base) for base, flipped in (engine.flip_logits(string) for engine in engines)]
    return float(max(np.abs(logits - exact).max() for logits in found) / plain)


def screen(strings_count: int, repeats: int) -> None:
    """Xavier models with the audited heuristic screen, against (ii) on the same strings."""
    print(f"\nAudited heuristic screen, xavier_normal, {strings_count} strings:")
    for width, depth in ((64, 4), (512, 2)):
        model = Transformer(encoder(width, depth, 4, ffn_width=2 * width), scheme="xavier_normal", seed=1).eval()
        strings = np.random.default_rng(0).integers(0, 2, (strings_count, LENGTH), np.uint8)
        bits = neighbours(strings[0])
        plain = least({"plain": lambda m=model, b=bits: every_position(m, b, 17)}, repeats)["plain"]
        engine = FastEngine(model)
        start = time.process_time()
        outcome = _screened(model, engine, strings)
        seconds = time.process_time() - start
        print(
            f"  width {width}, {depth} layers: {plain * strings_count / seconds:.0f} x (goal 100); skipped "
            f"{outcome.skipped:,} of {outcome.flips:,} flips, audit: {outcome.wrong} wrong of {outcome.audited}"
        )


def _screened(model: Transformer, engine: FastEngine, strings: np.ndarray):  # type: ignore[no-untyped-def]
    def flip_signs(some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        base, flipped = engine.flip_logits(some)
        return (base > 0).astype(np.uint8), (flipped > 0).astype(np.uint8)

    return screened_changes(
        engine,
        strings,
        estimate=lambda some: first_order_changes(model, some),
        threshold=0.0,
        signs=lambda some: (engine.logits(some) > 0).astype(np.uint8),
        flip_signs=flip_signs,
        seed=0,
    )[1]


def mix(count: int, screened_strings: int) -> None:
    """A seeded sample of App. F's shapes over all four initialisations: total seconds per string, so time-weighted."""
    plain = exact = deltas = with_screen = 0.0
    for seed in range(count):
        model = Transformer(random_shape(seed), scheme=ALL_SCHEMES[seed % 4], seed=seed).eval()
        strings = np.random.default_rng(seed).integers(0, 2, (screened_strings, LENGTH), np.uint8)
        bits = neighbours(strings[0])
        algebra, engine = FastEngine(model, deltas=False), FastEngine(model)
        seconds = least(
            {
                "plain": lambda m=model, b=bits: every_position(m, b, 17),
                "exact": lambda e=algebra, s=strings: e.flip_logits(s[:1]),
                "deltas": lambda e=engine, s=strings: e.flip_logits(s[:1]),
            },
            1,
        )
        plain, exact, deltas = plain + seconds["plain"], exact + seconds["exact"], deltas + seconds["deltas"]
        with_screen += _screened_seconds(model, engine, strings, seconds["deltas"])
        print(
            f"  {seed:3d} width {model.config.width:4d}, {model.config.layers} layers, {ALL_SCHEMES[seed % 4]:14s} "
            f"(ii) {seconds['plain']:7.2f} s, exact {seconds['exact']:7.2f}, deltas {seconds['deltas']:7.2f}; "
            f"so far (ii) over exact {plain / exact:.2f}, deltas {plain / deltas:.2f}, "
            f"screened {plain / with_screen:.2f}",
            flush=True,
        )
    print(
        f"The whole mix of {count} models, (ii) over: exact algebra {plain / exact:.2f} (goal 1.8), with deltas "
        f"{plain / deltas:.2f}, with deltas and screening {plain / with_screen:.2f} (goal 4)"
    )


def _screened_seconds(model: Transformer, engine: FastEngine, strings: np.ndarray, each: float) -> float:
    """Seconds per string with screening, when all the strings are measured.

    Where the screen lets most flips through, eight strings tell the time of each; the pilot is shared by all.
    """
    start = time.process_time()
    outcome = _screened(model, engine, strings[:8])
    seconds = time.process_time() - start
    if 2 * outcome.skipped < outcome.flips:
        return (seconds - PILOT * each) / 8 + PILOT * each / len(strings)
    start = time.process_time()
    _screened(model, engine, strings)
    return (time.process_time() - start) / len(strings)


def exhaustive(length: int) -> None:
    """All strings once and the cube's kernel, against n + 1 forwards per string."""
    from flipscope.probes.sensitivity import truth_table

    model = Transformer(encoder(32, 2, 4, ffn_width=64), scheme="gaussian", seed=1).eval()
    sample = np.random.default_rng(0).integers(0, 2, (512, length), np.uint8)

    near = torch.cat([neighbours(string) for string in sample])

    def all_at_once() -> None:
        from flipscope.cube.sensitivity import profile

        profile(truth_table(model, length))

    sides: dict[str, Callable[[], object]] = {"table": all_at_once}
    for batch in (64, 256, 1024):
        sides[f"flips{batch}"] = lambda batch=batch: trimmed(model, near, batch)
    seconds = least(sides, 2)
    by_flips = min(time for name, time in seconds.items() if name != "table")
    ratio = by_flips / len(sample) * 2**length / seconds["table"]
    print(f"\nExhaustive n = {length}: {ratio:.1f} x n + 1 forwards per string (goal {0.9 * (length + 1):.1f})")


def main() -> None:
    """Measure and print what is reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small widths and few models: a minute")
    parser.add_argument("--ffn", type=int, default=2, help="FFN width as a multiple of the width")
    parser.add_argument("--widths", help="only these widths of the grid, separated by commas")
    parser.add_argument("--models", type=int, default=24, help="models in the mix of App. F")
    parser.add_argument("--part", choices=("grid", "screen", "mix", "exhaustive"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(machine())
    parts = [options.part] if options.part else ["grid", "screen", "mix", "exhaustive"]
    if "grid" in parts:
        widths: tuple[int, ...] = (32, 64) if options.quick else (32, 64, 128, 512)
        if options.widths:
            widths = tuple(int(width) for width in options.widths.split(","))
        grid(widths, (2, 4, 6), options.ffn, 1 if options.quick else 2)
    if "screen" in parts:
        screen(200 if options.quick else 1000, 2)
    if "mix" in parts:
        print("\nApp. F's shapes, seeded:")
        mix(4 if options.quick else options.models, 50 if options.quick else 100)
    if "exhaustive" in parts:
        exhaustive(12 if options.quick else 16)


if __name__ == "__main__":
    main()
