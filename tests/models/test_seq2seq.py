"""The encoder-decoder with a scratchpad: PyTorch's numbers, its own way of writing, its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flipscope.basics.errors import InputError
from flipscope.models.checkpoint import load, load_any, save
from flipscope.models.header import read_header, string_config
from flipscope.models.init import initialise
from flipscope.models.seq2seq import START, Seq2Seq
from flipscope.models.seq2seq_config import Seq2SeqConfig
from flipscope.models.transformer import Attention, LayerNorm
from flipscope.probes.blowup import blowup

CONFIG = Seq2SeqConfig(length=7, width=12, layers=2, heads=2, ffn_width=10)


def random_inputs(strings: int = 5, length: int = 6, seed: int = 0) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    bits, written = (torch.randint(0, 2, (strings, length), generator=stream) for _ in range(2))
    return torch.cat([bits, torch.full((strings, 1), START), written[:, :-1]], dim=1)


class Plain(nn.Module):
    """The same model by `nn.Transformer`."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.symbol = nn.Embedding(3, config.width // 2)
        self.position = nn.Embedding(config.length + 1, config.width // 2)
        self.inner = nn.Transformer(
            config.width, config.heads, config.layers, config.layers, config.ffn_width, 0.0, batch_first=True
        )
        self.head = nn.Linear(config.width, 1)

    def embed(self, symbols: Tensor) -> Tensor:
        places = self.position.weight[: symbols.shape[1]].expand(len(symbols), -1, -1)
        return torch.cat([self.symbol(symbols), places], dim=-1)

    def forward(self, inputs: Tensor) -> Tensor:
        bits, written = inputs.chunk(2, dim=1)
        mask = nn.Transformer.generate_square_subsequent_mask(written.shape[1])
        out: Tensor = self.head(self.inner(self.embed(bits), self.embed(written), tgt_mask=mask))
        return out.squeeze(-1)


def copied(plain: Plain) -> Seq2Seq:
    """Ours, with the numbers of PyTorch's."""
    ours = Seq2Seq(CONFIG)
    with torch.no_grad():

        def attention(mine: Attention, theirs: Any) -> None:
            for part, weight, bias in zip(
                (mine.query, mine.key, mine.value),
                theirs.in_proj_weight.chunk(3),
                theirs.in_proj_bias.chunk(3),
                strict=True,
            ):
                part.weight.copy_(weight)
                part.bias.copy_(bias)
            assert mine.output is not None
            mine.output.load_state_dict(theirs.out_proj.state_dict())

        def same(mine: nn.Module, theirs: nn.Module) -> None:
            mine.load_state_dict(theirs.state_dict())

        assert ours.embedding.symbol is not None
        assert ours.embedding.position is not None
        same(ours.embedding.symbol, plain.symbol)
        same(ours.embedding.position, plain.position)
        same(ours.head, plain.head)
        sides: Any = ((ours.encoder, plain.inner.encoder.layers), (ours.decoder, plain.inner.decoder.layers))
        for mine, theirs in (pair for blocks in sides for pair in zip(*blocks, strict=True)):
            attention(mine.attention, theirs.self_attn)
            same(mine.mlp.up, theirs.linear1)
            same(mine.mlp.down, theirs.linear2)
            same(mine.norm1, theirs.norm1)
            same(mine.norm2, theirs.norm2)
            if hasattr(mine, "cross"):
                attention(mine.cross, theirs.multihead_attn)
                same(mine.norm3, theirs.norm3)
        same(ours.encoder_norm, plain.inner.encoder.norm)
        same(ours.decoder_norm, plain.inner.decoder.norm)
    return ours


@pytest.fixture(scope="module")
def plain() -> Plain:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = Plain(CONFIG).eval()
        with torch.no_grad():
            for parameter in model.parameters():  # gains and biases that are not those of the start
                parameter.add_(0.3 * torch.randn(parameter.shape))
    return model


@pytest.mark.parametrize("length", [1, 4, 7])
def test_the_numbers_are_those_of_pytorch(plain: Plain, length: int) -> None:
    inputs = random_inputs(9, length)
    with torch.no_grad():
        torch.testing.assert_close(copied(plain)(inputs), plain(inputs), rtol=1e-5, atol=1e-5)


def test_the_gradients_are_those_of_pytorch(plain: Plain) -> None:
    ours, inputs = copied(plain), random_inputs()
    for model in (ours, plain):
        model.zero_grad()
        model(inputs).square().sum().backward()
    torch.testing.assert_close(ours.head.weight.grad, plain.head.weight.grad, rtol=1e-4, atol=1e-4)
    assert ours.embedding.symbol is not None
    torch.testing.assert_close(ours.embedding.symbol.weight.grad, plain.symbol.weight.grad, rtol=1e-3, atol=1e-3)


def test_it_starts_as_pytorch_does() -> None:
    # The same laws: half-widths of the uniform ones, by the largest of many numbers.
    config = Seq2SeqConfig(length=20, width=64, ffn_width=48)
    ours, theirs = Seq2Seq(config), Plain(config)
    block: Any = ours.decoder[0]
    layer: Any = theirs.inner.decoder.layers[0]
    pairs = [
        (block.attention.query.weight, layer.self_attn.in_proj_weight),
        (block.cross.output.weight, layer.multihead_attn.out_proj.weight),
        (block.mlp.up.weight, layer.linear1.weight),
        (block.mlp.up.bias, layer.linear1.bias),
        (ours.head.weight, theirs.head.weight),
    ]
    for mine, other in pairs:
        torch.testing.assert_close(mine.detach().abs().max(), other.detach().abs().max(), rtol=0.1, atol=0)
    assert torch.equal(block.norm3.weight, torch.ones(64))
    assert not torch.equal(Seq2Seq(config, seed=1).head.weight, ours.head.weight)


def test_writing_is_the_forward_fed_with_what_it_wrote() -> None:
    model = initialise(Seq2Seq(CONFIG), "gaussian", 5)
    inputs = random_inputs(40, 7)
    bits = inputs[:, :7]
    with torch.no_grad():
        model.head.bias.add_(0.5 - model(inputs).median())  # so that it writes both
    found = model.write(bits)
    written = torch.full((40, 1), START)
    with torch.no_grad():
        for _ in range(7):  # the slow way: everything anew for each bit
            count = written.shape[1]
            x = model.embedding(written)
            memory = model.encode(bits)
            for block in model.decoder:
                x = block(x, memory)
            answer = model.head(model.decoder_norm(x))[:, count - 1]
            written = torch.cat([written, (answer > 0.5).long()], dim=1)
    assert torch.equal(found, written[:, 1:])
    assert 0 < int(found.sum()) < found.numel()
    forced = torch.cat([bits, written[:, :-1]], dim=1)
    with torch.no_grad():
        assert torch.equal((model(forced) > 0.5).long(), found)


def test_what_is_written_later_is_not_seen() -> None:
    model, inputs = Seq2Seq(CONFIG), random_inputs()
    changed = inputs.clone()
    changed[:, -1] = 1 - changed[:, -1]
    with torch.no_grad():
        before, after = model(inputs), model(changed)
    torch.testing.assert_close(before[:, :-1], after[:, :-1])
    assert not torch.allclose(before[:, -1], after[:, -1])


def test_every_norm_is_seen_by_the_blowup() -> None:
    found = blowup(Seq2Seq(CONFIG), random_inputs())
    wanted = [f"encoder.{layer}.norm{k}" for layer in (0, 1) for k in (1, 2)]
    wanted += ["encoder_norm", *(f"decoder.{layer}.norm{k}" for layer in (0, 1) for k in (1, 2, 3)), "decoder_norm"]
    assert list(found.names) == wanted
    assert sum(isinstance(module, LayerNorm) for module in Seq2Seq(CONFIG).modules()) == len(wanted)


def test_parameters_of_the_papers_model() -> None:
    model = Seq2SeqConfig(length=1024).network()
    assert model.count_parameters() - model.count_parameters(positions=False) == 1025 * 16
    assert (
        model.count_parameters(positions=False)
        == sum(p.numel() for p in Plain(Seq2SeqConfig(length=1)).parameters()) - 32
    )


def test_a_file_holds_it(tmp_path: Path) -> None:
    model, path = Seq2Seq(CONFIG, seed=8), tmp_path / "model.safetensors"
    save(model, path)
    again = load_any(path)
    assert isinstance(again, Seq2Seq)
    assert again.config == CONFIG
    assert torch.equal(again(random_inputs()), model(random_inputs()))
    with pytest.raises(InputError, match="is an encoder-decoder"):
        load(path)
    with pytest.raises(InputError, match="is an encoder-decoder"):
        string_config(read_header(path))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Seq2SeqConfig(length=0), "length=0 must be"),
        (lambda: Seq2SeqConfig(length=4, width=7), "width=7 must be an even"),
        (lambda: Seq2SeqConfig(length=4, width=8, heads=3), "heads"),
        (lambda: Seq2SeqConfig.from_dict({"kind": "seq2seq"}), "has the fields"),
        (lambda: Seq2Seq(CONFIG)(torch.zeros(2, 5, dtype=torch.long)), "must be \\[string, 2 \\* position\\]"),
        (lambda: Seq2Seq(CONFIG)(torch.zeros(2, 16, dtype=torch.long)), "at most 7 bits"),
        (lambda: Seq2Seq(CONFIG)(torch.full((2, 4), 3)), "contain 3"),
        (lambda: Seq2Seq(CONFIG).write(torch.full((2, 4), 2)), "contain 2"),
        (lambda: Seq2Seq(CONFIG).write(torch.zeros(2, 8, dtype=torch.long)), "longer than length=7"),
    ],
)
def test_bad_input_is_one_sentence(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
