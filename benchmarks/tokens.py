"""Rows of token sensitivity, one token disturbed in each: a loop over them, the same in batches by hand, and ours.

  one by one  a forward for each token and draw, one input in a call
  by hand     all tokens of an input in one call, with noise drawn at once
  ours        `flipscope.token_sensitivity`

One thread each side, wall seconds per row, medians of turns within one run: compare ratios. The text model is PyTorch's
encoder of two layers (width 256, 40 tokens), the image model one of four layers (width 128, 64 patches of 4 x 4).
Flipscope's own encoder computes its last layer only where it is read.

Further, how many rows `precision=` needs for the interval that 5 draws of every token give, as the paper measures, on
scikit-learn's digits; what kept prefixes save a causal language model and flipscope's causal transformer, and kept
states an LSTM; and the memory that a convolutional network takes beyond what it takes for one row, against the limit.
Run with: make bench, or python benchmarks/tokens.py [--quick]
"""

from __future__ import annotations

import argparse
import os
import platform
import resource

import torch
from _timing import medians, milliseconds
from torch import Tensor, nn

from flipscope import token_sensitivity
from flipscope.adapters.disturbing import patches
from flipscope.adapters.subject import Subject
from flipscope.models import Transformer, gpt2, roberta

INPUTS = 12
VARIANCE = 1.0
LIMIT = 64 << 20  # bytes


class Encoder(nn.Module):
    """PyTorch's own encoder on token vectors, read at the first one."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [input, 2]."""
        out: Tensor = self.head(self.layers(tokens)[:, 0])
        return out


class Vit(nn.Module):
    """The same on patches of 32 x 32 images."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.encoder = nn.Conv2d(3, 128, 4, 4), Encoder(128, 4)

    def forward(self, images: Tensor) -> Tensor:
        """Logits [input, 2]."""
        out: Tensor = self.encoder(self.embed(images).flatten(2).transpose(1, 2))
        return out


@torch.no_grad()
def one_by_one(model: nn.Module, inputs: Tensor, masks: Tensor) -> int:
    """How many tokens change the answer, by a forward for each."""
    changed = 0
    for one in inputs:
        before = model(one[None]).argmax()
        for mask in masks:
            changed += int(model((one + torch.randn_like(one) * mask)[None]).argmax() != before)
    return changed


@torch.no_grad()
def by_hand(model: nn.Module, inputs: Tensor, masks: Tensor) -> int:
    """The same with all tokens of an input in one call."""
    before = model(inputs).argmax(dim=1)
    changed = 0
    for one, answer in zip(inputs, before, strict=True):
        rows = one + torch.randn(len(masks), *one.shape) * masks
        changed += int((model(rows).argmax(dim=1) != answer).sum())
    return changed


def timed(name: str, model: nn.Module, inputs: Tensor, masks: Tensor, options: dict[str, object], repeats: int) -> None:
    model.eval()
    sides = {
        "one by one": lambda: one_by_one(model, inputs[:1], masks),
        "by hand": lambda: by_hand(model, inputs, masks),
        "ours": lambda: token_sensitivity(model, inputs, variance=VARIANCE, whole_variance=0.0, **options),  # type: ignore[arg-type]
    }
    rows = {side: len(masks) * (1 if side == "one by one" else len(inputs)) for side in sides}
    seconds = {side: total / rows[side] for side, total in medians(sides, repeats).items()}
    ours = seconds["ours"]
    told = ", ".join(f"{side} {milliseconds(each)}" for side, each in seconds.items())
    print(f"{name}: a row takes {told}; ours {seconds['one by one'] / ours:.2f} times one by one, "
          f"{seconds['by hand'] / ours:.2f} times by hand")  # fmt: skip


def read_at_one_position(repeats: int) -> None:
    """Flipscope's own encoder, whose last layer is computed where it is read, against all positions in batches."""
    for layers in (2, 4):
        model = Transformer(roberta(1000, layers=layers), seed=0).eval()
        texts = torch.randint(0, 1000, (INPUTS, 40))

        @torch.no_grad()
        def everywhere(model: Transformer = model, texts: Tensor = texts) -> int:
            changed, tokens = 0, torch.arange(40)
            answers = model(texts).argmax(dim=1)
            for text, answer in zip(texts, answers, strict=True):
                rows = text.repeat(40, 1)
                rows[tokens, tokens] = torch.randint(0, 1000, (40,))
                changed += int((model.read(model.states(rows)[-1]).argmax(dim=1) != answer).sum())
            return changed

        sides = {
            "by hand": everywhere,
            "ours": lambda model=model, texts=texts: token_sensitivity(model, texts, how="replace"),
        }
        seconds = medians(sides, repeats)
        print(f"read at one position, {layers} layers: ours {seconds['by hand'] / seconds['ours']:.2f} times by hand")


def digits() -> tuple[nn.Module, Tensor]:
    """A small network trained on scikit-learn's digits, and the images."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.from_numpy(data.images).float()[:, None] / 8 - 1
    labels = torch.from_numpy(data.target).long()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(300):
        some = torch.randint(len(images), (128,))
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images[some]), labels[some]).backward()
        optimiser.step()
    return model, images


def fewer_rows() -> None:
    model, images = digits()
    for count in (100, 250):
        paper = token_sensitivity(model, images[:count], feature_mask=patches(2), draws=5, whole_variance=0.0)
        wanted = paper.definition.half_width
        ours = token_sensitivity(model, images, feature_mask=patches(2), precision=wanted, whole_variance=0.0)
        print(f"precision: {count} inputs x 16 tokens x 5 draws are {paper.rows:,} rows for +-{wanted:.3f}; "
              f"precision={wanted:.3f} needs {ours.rows:,} (reached: {ours.reached}), {paper.rows / ours.rows:.2f} "
              "times fewer")  # fmt: skip


def memory() -> None:
    """How far the process grows beyond a single row, with a limit."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), nn.Conv2d(64, 64, 3, 2), nn.AdaptiveAvgPool2d(1),
                          nn.Flatten(), nn.Linear(64, 10)).eval()  # fmt: skip
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        model(images[:1])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    token_sensitivity(Subject(model, memory_limit=LIMIT), images, feature_mask=patches(56), whole_variance=0.0)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"memory: the process grew by {grown:.0f} MiB with a limit of {LIMIT >> 20} MiB")


def prefixes() -> None:
    """Rows of a causal language model with kept prefixes, against whole prompts."""
    try:
        import transformers
    except ImportError:
        print("prefixes: needs transformers")
        return
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=1000, n_embd=256, n_layer=4, n_head=8, n_positions=64, bos_token_id=0,
                                     eos_token_id=0)  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval()
    prompts = {"input_ids": torch.randint(0, 1000, (8, 64))}

    def last(out: object) -> Tensor:
        logits: Tensor = out.logits[:, -1]  # type: ignore[attr-defined]
        return logits

    sides = {
        "whole": lambda: token_sensitivity(Subject(model, output=last), prompts, how="replace"),
        "kept": lambda: token_sensitivity(model, prompts, how="replace", label_words="any"),
    }
    seconds = medians(sides, 3)
    whole, kept = seconds["whole"], seconds["kept"]
    print(f"prefixes: 8 prompts of 64 tokens take {milliseconds(whole)} whole and {milliseconds(kept)} with kept "
          f"prefixes, {whole / kept:.2f} times less")  # fmt: skip


def own_prefixes(repeats: int) -> None:
    """Rows of flipscope's causal transformer from the replaced token on, against the same model not recognised."""
    for length in (40, 128):
        model = Transformer(gpt2(1000, length, width=256, layers=4)).eval()
        texts = torch.randint(0, 1000, (8, length), generator=torch.Generator().manual_seed(0))
        sides = {
            "whole": lambda: token_sensitivity(lambda ids: model(ids), texts, how="replace", vocabulary=1000),  # noqa: B023
            "kept": lambda: token_sensitivity(model, texts, how="replace", vocabulary=1000),  # noqa: B023
        }
        seconds = medians(sides, repeats)
        whole, kept = seconds["whole"], seconds["kept"]
        print(f"own prefixes: 8 texts of {length} tokens take {milliseconds(whole)} whole, {milliseconds(kept)} from "
              f"the changed token on, {whole / kept:.2f} times less")  # fmt: skip


class Recurrent(nn.Module):
    """Two layers of an LSTM on token ids, read at the last position."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layers = nn.Embedding(1000, 128), nn.LSTM(128, 256, 2, batch_first=True)
        self.head = nn.Linear(256, 2)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits [input, 2]."""
        out: Tensor = self.head(self.layers(self.table(ids))[0][:, -1])
        return out


def recurrent(repeats: int) -> None:
    """Rows of an LSTM that starts at the replaced token, against the same inside a layer that is not recognised."""
    torch.manual_seed(0)
    model, texts = Recurrent().eval(), torch.randint(0, 1000, (50, 40))
    sides = {
        "whole": lambda: token_sensitivity(lambda ids: model(ids), texts, how="replace", vocabulary=1000),
        "kept": lambda: token_sensitivity(model, texts, how="replace", vocabulary=1000),
    }
    seconds = medians(sides, repeats)
    whole, kept = seconds["whole"], seconds["kept"]
    print(f"recurrent: 50 texts of 40 tokens take {milliseconds(whole)} whole and {milliseconds(kept)} with kept "
          f"states, {whole / kept:.2f} times less")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, 1 thread")
    memory()
    repeats = 3 if quick else 7
    torch.manual_seed(0)
    texts = torch.randn(INPUTS, 40, 256)
    timed("text", Encoder(256, 2), texts, torch.eye(40)[..., None], {}, repeats)
    images = torch.randn(INPUTS, 3, 32, 32)
    numbers = patches(4)((3, 32, 32))
    masks = torch.stack([(numbers == token).float() for token in range(64)])
    timed("images", Vit(), images, masks, {"feature_mask": patches(4)}, repeats)
    read_at_one_position(repeats)
    prefixes()
    own_prefixes(1 if quick else 3)
    recurrent(repeats)
    fewer_rows()


if __name__ == "__main__":
    main()
