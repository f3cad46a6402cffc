"""Everybody's models at default arguments: flipscope against the loop that a good engineer writes for one model.

  by hand  one call per batch of strings and flips, the batch size that is fastest here, in inference mode
  ours     the function of flipscope with nothing but the model and the data

One thread each side, CPU seconds, medians of turns within one run: compare ratios (by hand / ours, more is better for
us). By hand nothing is checked: neither that an answer depends on its own string only, nor that its sign is right, nor
what the outputs mean. Each model is measured on 50,000 strings and flips or more, and on 16 strings, which shows the
cost of a small call. Answers of both sides are compared before they are timed.
Run with: make bench, or python benchmarks/foreign.py [--quick] [--only mlp cnn ...]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from _timing import medians, milliseconds
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import flipscope
from flipscope import Subject

Bits = NDArray[np.uint8]
Run = Callable[[], object]
BATCHES = (64, 256, 1024, 4096)
LARGE_BATCHES = (256, 1024, 4096, 16384, 1 << 20)  # of other libraries
STD, DRAWS, PROBES = 0.02, 100, 99


class CNN(nn.Module):
    """Two convolutions and a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(1, 16, 5, padding=2), nn.Conv1d(16, 32, 5, padding=2)
        self.head = nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(F.relu(self.second(F.relu(self.first(x[:, None])))).mean(-1))[:, 0]
        return out


class GRU(nn.Module):
    """A recurrent layer, read at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer, self.head = nn.Embedding(2, 16), nn.GRU(16, 32, batch_first=True), nn.Linear(32, 1)

    def forward(self, bits: Tensor) -> Tensor:
        out: Tensor = self.head(self.layer(self.table(bits))[0][:, -1])[:, 0]
        return out


class Encoder(nn.Module):
    """PyTorch's own encoder, read at the end."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(2, 64), nn.Parameter(torch.randn(length, 64) / 10)
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
        self.layers, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(64, 1)

    def forward(self, bits: Tensor) -> Tensor:
        out: Tensor = self.head(self.layers(self.table(bits) + self.places)[:, -1])[:, 0]
        return out


def mlp(length: int, width: int = 64, depth: int = 1) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(length, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


# A model, the length of its strings, how bits become its input, and how many strings make 50,000 rows.
MODULES: dict[str, tuple[Callable[[], nn.Module], int, str, int]] = {
    "mlp": (lambda: mlp(100), 100, "floats", 500),
    "mlp 512x3": (lambda: mlp(100, 512, 3), 100, "floats", 500),
    "cnn": (CNN, 64, "signs", 800),
    "gru": (GRU, 50, "bits", 1000),
    "encoder": (lambda: Encoder(50), 50, "bits", 1000),
}
ENCODINGS: dict[str, Callable[[Bits], Tensor]] = {
    "floats": lambda bits: torch.from_numpy(bits).float(),
    "signs": lambda bits: 1 - 2 * torch.from_numpy(bits).float(),
    "bits": lambda bits: torch.from_numpy(bits).long(),
}


# ---------------------------------------------------------------- by hand


def with_flips(strings: Bits) -> Bits:
    length = strings.shape[1]
    rows = np.repeat(strings[:, None, :], length + 1, 1)
    index = np.arange(length)
    rows[:, index + 1, index] ^= 1
    return rows.reshape(-1, length)


def logits(
    model: Callable[[Tensor], Tensor], encode: Callable[[Bits], Tensor], strings: Bits, batch: int
) -> NDArray[Any]:
    rows = with_flips(strings)
    with torch.inference_mode():
        parts = [model(encode(rows[k : k + batch])).reshape(-1) for k in range(0, len(rows), batch)]
    found: NDArray[Any] = torch.cat(parts).reshape(len(strings), -1).numpy()
    return found


def counts(table: NDArray[Any]) -> NDArray[np.int64]:
    answers = table > 0
    found: NDArray[np.int64] = (answers[:, 1:] != answers[:, :1]).sum(1)
    return found


def lengths(table: NDArray[Any]) -> NDArray[Any]:
    found: NDArray[Any] = np.abs(table[:, 1:] - table[:, :1])
    return found


def sharpness_by_hand(model: nn.Module, given: Tensor, batch: int) -> list[float]:
    with torch.no_grad():

        def run() -> Tensor:
            return torch.cat([model(part).reshape(-1) for part in given.split(batch)])

        base, parameters, found = run(), list(model.parameters()), []
        kept = [each.clone() for each in parameters]
        for _ in range(DRAWS):
            for each, own in zip(parameters, kept, strict=True):
                each.copy_(own).add_(torch.randn_like(each), alpha=STD)
            found.append(float((run() - base).square().mean()))
        for each, own in zip(parameters, kept, strict=True):
            each.copy_(own)
    return found


def trace_by_hand(model: nn.Module, given: Tensor, targets: Tensor) -> float:
    parameters, total = list(model.parameters()), []
    with sdpa_kernel(SDPBackend.MATH):
        loss = F.mse_loss(model(given).reshape(-1), targets)
        slopes = torch.autograd.grad(loss, parameters, create_graph=True)
        for _ in range(PROBES):
            signs = [torch.randint(0, 2, each.shape).float() * 2 - 1 for each in parameters]
            bent = torch.autograd.grad(slopes, parameters, signs, retain_graph=True)
            total.append(float(sum((a * b).sum() for a, b in zip(bent, signs, strict=True))))
    return statistics.mean(total)


# ---------------------------------------------------------------- cells: hands by batch size, and ours

Cell = tuple[str, str, dict[str, Run], Run]


def of_modules(only: list[str]) -> Iterator[Cell]:
    for name, (make, length, kind, count) in MODULES.items():
        if not only or name in only:
            torch.manual_seed(0)
            yield from of_module(name, make().eval(), length, kind, count)


def of_module(name: str, model: nn.Module, length: int, kind: str, count: int) -> Iterator[Cell]:
    encode = ENCODINGS[kind]
    subject = model if kind != "signs" else Subject(model, encoding="signs")
    strings = np.random.default_rng(0).integers(0, 2, (count, length)).astype(np.uint8)
    np.testing.assert_array_equal(counts(logits(model, encode, strings, 256)), flipscope.sensitivity(subject, strings))

    def profile(batch: int) -> NDArray[np.int64]:
        drawn = np.random.default_rng(1).integers(0, 2, (count, length)).astype(np.uint8)
        return np.bincount(counts(logits(model, encode, drawn, batch)), minlength=length + 1)

    def sensitivity(given: Bits) -> tuple[dict[str, Run], Run]:
        hands = by_batch(lambda batch: counts(logits(model, encode, given, batch)))
        return hands, lambda: flipscope.sensitivity(subject, given)

    yield name, f"sensitivity {count}", *sensitivity(strings)
    yield name, "sensitivity 16", *sensitivity(strings[:16])
    ours: Run = lambda: flipscope.sensitivity_profile(subject, length, strings=count)  # noqa: E731
    yield name, f"profile {count}", by_batch(profile), ours
    hands = by_batch(lambda batch: lengths(logits(model, encode, strings, batch)))
    yield name, f"influences {count}", hands, lambda: flipscope.influences(subject, strings)
    explicit, some = Subject(model, encoding=kind), strings[:500]  # type: ignore[arg-type]
    given, targets = encode(some), np.random.default_rng(2).integers(0, 2, len(some)).astype(np.float32)
    hands = by_batch(lambda batch: sharpness_by_hand(model, given, batch))
    yield name, f"sharpness {DRAWS} draws", hands, lambda: flipscope.sharpness(explicit, some, std=STD)
    options: Any = {"what": "trace", "method": "hutchinson", "probes": PROBES}
    hands = {"": lambda: trace_by_hand(model, given, torch.from_numpy(targets))}
    yield (
        name,
        f"trace {PROBES} probes",
        hands,
        lambda: flipscope.curvature(explicit, "mse", (some, targets), **options),
    )


def by_batch(run: Callable[[int], object], batches: tuple[int, ...] = BATCHES) -> dict[str, Run]:
    return {str(batch): partial(run, batch) for batch in batches}


def of_tables(only: list[str]) -> Iterator[Cell]:
    if only and "exhaustive" not in only:
        return
    torch.manual_seed(0)
    model, n = mlp(16).eval(), 16

    def hand(batch: int) -> NDArray[np.int64]:
        with torch.inference_mode():
            every = ((torch.arange(1 << n)[:, None] >> torch.arange(n)) & 1).float()
            answers = (torch.cat([model(part).reshape(-1) for part in every.split(batch)]) > 0).numpy()
        found, index = np.zeros(1 << n, np.int8), np.arange(1 << n)
        for position in range(n):
            found += answers != answers[index ^ (1 << position)]
        return np.bincount(found, minlength=n + 1)

    assert flipscope.sensitivity_profile(model, n, exhaustive=True).profile == hand(4096).tolist()
    yield "mlp, n = 16", "exhaustive", by_batch(hand), lambda: flipscope.sensitivity_profile(model, n, exhaustive=True)


def of_other_libraries(only: list[str]) -> Iterator[Cell]:
    strings = np.random.default_rng(0).integers(0, 2, (500, 100)).astype(np.uint8)
    rows = np.random.default_rng(1).integers(0, 2, (500, 100))
    labels = (rows[:, :5].sum(1) > 2).astype(int)

    def table(ask: Callable[[NDArray[Any]], NDArray[Any]], batch: int) -> NDArray[Any]:
        every = with_flips(strings)
        parts = [ask(every[k : k + batch]) for k in range(0, len(every), batch)]
        return np.concatenate(parts).reshape(len(strings), -1)

    def cells(name: str, model: Any, answers: Any, scores: Any, scored: Any) -> Iterator[Cell]:
        if only and name not in only:
            return
        np.testing.assert_array_equal(counts(table(answers, 8192)), flipscope.sensitivity(model, strings))
        hands = by_batch(lambda batch: counts(table(answers, batch)), LARGE_BATCHES)
        yield name, "sensitivity 500", hands, lambda: flipscope.sensitivity(model, strings)
        if scores is not None:
            hands = by_batch(lambda batch: lengths(table(scores, batch)), LARGE_BATCHES)
            yield name, "influences 500", hands, lambda: flipscope.influences(scored, strings)

    try:
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        print("scikit-learn is not installed: its models are left out")
    else:
        linear = LogisticRegression().fit(rows, labels)
        scored = Subject(linear.decision_function, output="logit")
        yield from cells("logistic regression", linear, linear.predict, linear.decision_function, scored)
        forest = RandomForestClassifier(100, random_state=0).fit(rows, labels)
        yield from cells("forest", forest, forest.predict, None, None)
    session = onnx_session()
    if session is not None:

        def ask(part: NDArray[Any]) -> NDArray[Any]:
            found: NDArray[Any] = session.run(None, {"x": part.astype(np.float32)})[0][:, 0]
            return found

        yield from cells("onnx", session, ask, ask, session)


def onnx_session() -> Any:
    """An MLP as a session of ONNX Runtime; None without it."""
    try:
        import onnx
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError:
        print("onnx and onnxruntime are not installed: their model is left out")
        return None
    helper, stream = onnx.helper, np.random.default_rng(0)
    weights = [stream.standard_normal(shape).astype(np.float32) / 10 for shape in ((100, 64), (64, 1))]
    nodes = [("MatMul", ["x", "first"], ["h"]), ("Relu", ["h"], ["a"]), ("MatMul", ["a", "second"], ["y"])]
    graph = helper.make_graph(
        [helper.make_node(kind, given, made) for kind, given, made in nodes],
        "mlp",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["b", 100])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["b", 1])],
        [onnx.numpy_helper.from_array(each, name) for each, name in zip(weights, ("first", "second"), strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def of_language_models(only: list[str]) -> Iterator[Cell]:
    try:
        import transformers
    except ImportError:
        print("transformers is not installed: BERT and GPT-2 are left out")
        return
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 1000, "num_labels": 2}
    models: Any = transformers  # without types
    bert = models.BertForSequenceClassification(
        models.BertConfig(
            hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
            max_position_embeddings=64, **sizes,
        )
    ).eval()  # fmt: skip
    gpt2 = models.GPT2ForSequenceClassification(
        models.GPT2Config(
            n_embd=64, n_layer=2, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0, pad_token_id=0, **sizes
        )
    ).eval()
    ids = torch.randint(1, 1000, (64, 32))
    count, length = ids.shape

    def replaced(model: Any, batch: int) -> float:
        with torch.inference_mode():
            base = torch.cat([model(input_ids=part).logits.argmax(-1) for part in ids.split(batch)])
            rows, places = ids[:, None].repeat(1, length, 1), torch.arange(length)
            rows[:, places, places] = torch.randint(0, 1000, (count, length))
            parts = [model(input_ids=part).logits.argmax(-1) for part in rows.reshape(-1, length).split(batch)]
            return float((torch.cat(parts).view(count, length) != base[:, None]).float().mean())

    given = {"input_ids": ids}
    for name, model in (("bert", bert), ("gpt-2", gpt2)):
        if not only or name in only:
            ours = partial(flipscope.token_sensitivity, model, given, how="replace")
            yield name, "tokens replaced", by_batch(partial(replaced, model)), ours
    if only and "bert" not in only:
        return
    strings = np.random.default_rng(0).integers(0, 2, (50, 32)).astype(np.uint8)

    def tokens(bits: Bits) -> Tensor:
        return torch.from_numpy(bits).long() * 3 + 5

    def difference(given: Tensor) -> Tensor:
        found = bert(input_ids=given, attention_mask=torch.ones_like(given)).logits
        out: Tensor = found[:, 1] - found[:, 0]
        return out

    hands = by_batch(lambda batch: counts(logits(difference, tokens, strings, batch)))
    yield "bert", "sensitivity 50", hands, lambda: flipscope.sensitivity(Subject(bert, encoding=(5, 8)), strings)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    parser.add_argument("--only", nargs="*", default=[], metavar="MODEL", help="only these models")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{platform.machine()}, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}; CPU time, one thread")
    print(f"{'model':20} {'measurement':22} {'by hand':>10} {'batch':>6} {'ours':>10}  by hand / ours")
    ratios = []
    cells = (of_modules, of_tables, of_other_libraries, of_language_models)
    for name, what, hands, ours in (cell for make in cells for cell in make(arguments.only)):
        best = min(hands, key=lambda batch: _once(hands[batch]))
        seconds = medians({"hand": hands[best], "ours": ours}, 3 if arguments.quick else 7, time.process_time)
        ratio = seconds["hand"] / seconds["ours"]
        ratios.append(ratio)
        both = milliseconds(seconds["hand"]), milliseconds(seconds["ours"])
        print(f"{name:20} {what:22} {both[0]:>10} {best:>6} {both[1]:>10}  {ratio:.2f}", flush=True)
    print(f"median {statistics.median(ratios):.2f}, least {min(ratios):.2f} of {len(ratios)} cells")


def _once(run: Run) -> float:
    run()
    start = time.process_time()
    run()
    return time.process_time() - start


if __name__ == "__main__":
    main()
