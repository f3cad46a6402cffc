"""The compiled attention: against its definition in float64, for every shape, width of vectors and layout."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from models.test_fast_logits import CONFIGS, build, gradients
from torch import Tensor

from flipscope.models import Transformer, compiled_attention, encoder
from flipscope.models.compiled_attention import applies, attend
from flipscope.models.fast_logits import logits_for
from flipscope.models.modes import first_derivatives
from flipscope.native.span import TOKENS, VARIABLE


def by_definition(query: Tensor, key: Tensor, value: Tensor, heads: int, scale: float) -> Tensor:
    """Eq 8 in float64, head by head and string by string."""
    query, key, value = (each.double().unflatten(-1, (heads, -1)) for each in (query, key, value))
    found = torch.empty_like(query)
    for string in range(len(query)):
        for head in range(heads):
            logits = query[string, :, head] @ key[string, :, head].T * scale
            found[string, :, head] = logits.softmax(dim=-1) @ value[string, :, head]
    return found.flatten(-2)


def drawn(shape: tuple[int, int, int], size: float = 1.0, seed: int = 0) -> list[Tensor]:
    stream = torch.Generator().manual_seed(seed)
    return [(torch.randn(shape, generator=stream) * size).requires_grad_() for _ in range(3)]


def compare(given: list[Tensor], heads: int, scale: float, tolerance: float = 3e-6) -> None:
    """Outputs and derivatives, relative to the largest of each; weights of the sum set all of them apart."""
    found, expected = attend(*given, heads, scale), by_definition(*given, heads, scale)
    slope = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    ours = [found, *torch.autograd.grad(found, given, slope)]
    theirs = [expected, *torch.autograd.grad(expected, given, slope.double())]
    for name, one, other in zip(("output", "query", "key", "value"), ours, theirs, strict=True):
        assert one.dtype == torch.float32
        reach = max(1.0, float(other.detach().abs().max()))
        torch.testing.assert_close(one.double(), other.double(), rtol=0, atol=tolerance * reach, msg=name)


@pytest.fixture(params=TOKENS)
def lanes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv(VARIABLE, str(request.param))
    return int(request.param)


# Every number of vectors from one to six of either width, and one more or less than whole ones.
@pytest.mark.parametrize("tokens", [1, 2, 7, 8, 9, 16, 17, 24, 33, 40, 48, 63, 65, 80, 95, 101])
def test_every_number_of_vectors(tokens: int, lanes: int) -> None:
    compare(drawn((2, tokens, 24)), 2, 0.3)


@pytest.mark.parametrize("size", [1, 3, 4, 8, 12, 15, 16, 17, 32, 51, 64, 80])
def test_every_size_of_heads(size: int, lanes: int) -> None:
    compare(drawn((2, 11, 3 * size)), 3, size**-0.5)


@given(
    strings=st.integers(1, 4),
    tokens=st.integers(1, 40),
    heads=st.integers(1, 4),
    size=st.integers(1, 40),
    scale=st.floats(0.01, 2),
    seed=st.integers(0, 99),
)
def test_any_shape(strings: int, tokens: int, heads: int, size: int, scale: float, seed: int) -> None:
    compare(drawn((strings, tokens, heads * size), seed=seed), heads, scale, 1e-5)


def test_logits_far_apart_and_beyond_the_range_of_exponentials(lanes: int) -> None:
    compare(drawn((2, 20, 16), size=30), 2, 1.0, 5e-3)  # of logits of thousands float32 has three decimals
    query, key, value = drawn((1, 9, 8))
    with torch.no_grad():
        key += 1e3  # all alike but for their rounding: only their differences count
    assert attend(query, key, value, 1, 1.0).isfinite().all()


def test_what_is_not_a_number_stays_so_in_its_own_string(lanes: int) -> None:
    given = drawn((3, 9, 8))
    for bad in (torch.nan, torch.inf):
        query = given[0].detach().clone()
        query[1, 4, 2] = bad
        found = attend(query, *given[1:], 2, 0.5)
        right = by_definition(query, *given[1:], 2, 0.5)
        assert torch.equal(found.isnan(), right.isnan())
        assert found[1, 4].isnan().any()
        assert found[[0, 2]].isfinite().all()


def test_layouts(lanes: int) -> None:
    """Parts of a wider tensor, as the first layer has them, expanded and turned ones."""
    stream = torch.Generator().manual_seed(2)
    joined = torch.randn(3, 10, 60, generator=stream)
    parts = [part.detach().requires_grad_() for part in joined.split([12, 16, 16, 16], dim=-1)[1:]]
    assert not parts[0].is_contiguous()
    compare(parts, 2, 0.4)
    turned = [torch.randn(3, 16, 10, generator=stream).transpose(1, 2).requires_grad_() for _ in range(3)]
    compare(turned, 4, 0.4)
    expanded = [torch.randn(1, 10, 16, generator=stream).expand(3, -1, -1).requires_grad_() for _ in range(3)]
    compare(expanded, 4, 0.4)


def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    given = drawn((9, 30, 24))
    found = []
    for threads in (1, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        monkeypatch.setattr("flipscope.native.compiled.cores", lambda: 2)
        monkeypatch.setattr("flipscope.native.compiled.config.NUMBA_NUM_THREADS", 2)
        out = attend(*given, 3, 0.3)
        found.append([out, *torch.autograd.grad(out.square().sum(), given)])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_another_default_precision() -> None:
    given = drawn((2, 5, 8))
    torch.set_default_dtype(torch.float64)
    try:
        compare(given, 2, 0.5)
    finally:
        torch.set_default_dtype(torch.float32)


def test_when_it_applies() -> None:
    query = torch.zeros(2, 3, 4)
    assert not applies(query, None)  # second derivatives might be asked for
    with torch.no_grad():
        assert applies(query, None)
    with first_derivatives():
        assert applies(query, None)
        assert not applies(query.double(), None)
        assert not applies(query, torch.ones(3, 3, dtype=torch.bool))
        assert not applies(query[:0], None)
        assert not applies(torch.zeros(1, 5_000, 1), None)
        assert not applies(torch.zeros(2, 3, 4, device="meta"), None)


def test_second_derivatives_are_refused() -> None:
    given = drawn((1, 4, 8))
    [slope] = torch.autograd.grad(attend(*given, 2, 0.5).square().sum(), given[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


@pytest.mark.parametrize("name", CONFIGS)
def test_in_training_the_models_own_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(compiled_attention, "attend", lambda *given: asked.append(given) or attend(*given))
    model, bits = build(CONFIGS[name], torch.float32)
    theirs = gradients(model, model(bits))
    with first_derivatives():
        found = logits_for(model)(bits)
    torch.testing.assert_close(found, model(bits), rtol=1e-5, atol=1e-5)
    for parameter, gradient in gradients(model, found).items():
        torch.testing.assert_close(gradient, theirs[parameter], rtol=1e-4, atol=1e-5, msg=parameter)
    config = model.config
    masked = config.attention != "softmax" or config.causal or config.mask_self
    assert len(asked) == (0 if masked else config.layers - 1)


def test_double_precision_takes_pytorchs_kernel() -> None:
    model = Transformer(dataclasses.replace(encoder(8, 3, 2), eps=1e-3), seed=0, dtype=torch.float64)
    bits = torch.randint(0, 2, (4, 9), dtype=torch.uint8)
    with first_derivatives():
        assert logits_for(model)(bits).dtype == torch.float64
