"""Layers: what is quick gives what torch's own layers give."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from unblemish.models import networks
from unblemish.models.networks import Linear, bfloat16_products, mlp


def outcome(layer: Callable[[Tensor], Tensor], parameters: list[Tensor], x: Tensor) -> list[Tensor]:
    """What comes out, and every gradient."""
    x = x.clone().requires_grad_()
    y = layer(x)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    return [y, *torch.autograd.grad((weights * y).sum(), [x, *parameters])]


def by_hand(layer: Linear) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        y = x @ layer.weight.T + layer.bias
        return y.relu() if layer.rectified else y

    return forward


# a small layer, which is left to torch, and a large one; one row, a few, and a batch
@pytest.mark.parametrize("rows", [1, 3, 128])
@pytest.mark.parametrize(("inputs", "outputs"), [(15, 50), (101, 120)])
@pytest.mark.parametrize("rectified", [False, True])
def test_layers_compute_what_their_equation_says(rows: int, inputs: int, outputs: int, rectified: bool) -> None:
    torch.manual_seed(0)
    layer = Linear(inputs, outputs, rectified=rectified)
    x = torch.randn(rows, 2 * inputs)[:, ::2]  # not contiguous
    parameters = list(layer.parameters())
    for ours, theirs in zip(outcome(layer, parameters, x), outcome(by_hand(layer), parameters, x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)
    with bfloat16_products(True):
        for rough, theirs in zip(outcome(layer, parameters, x), outcome(by_hand(layer), parameters, x), strict=True):
            assert rough.dtype == torch.float32
            assert (rough - theirs).norm() <= 0.05 * theirs.norm() + 1e-6


def test_an_input_that_needs_no_gradient_gets_none() -> None:
    layer = Linear(101, 120, rectified=True)
    x = torch.randn(4, 101)
    layer(x).sum().backward()
    assert layer.weight.grad is not None
    assert x.grad is None


@pytest.mark.skipif(not networks._HAS_ONEDNN, reason="this processor has no AVX-512")
def test_large_layers_take_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    original = networks._product
    monkeypatch.setattr(networks, "_product", lambda x, *args: (seen.append(x.numel()), original(x, *args))[1])
    Linear(15, 50)(torch.randn(4, 15))
    Linear(101, 120).double()(torch.randn(4, 101).double())
    assert not seen
    Linear(101, 120)(torch.randn(4, 101))
    assert len(seen) == 1


def test_bfloat16_is_for_its_block_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer, x = Linear(101, 120), torch.randn(4, 101)
    exact = layer(x)
    with bfloat16_products(False):
        assert torch.equal(layer(x), exact)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    with bfloat16_products(True):
        assert not torch.equal(layer(x), exact)
    assert torch.equal(layer(x), exact)
    with pytest.raises(RuntimeError, match="mat1"), bfloat16_products(True):
        layer(x[:, :7])
    assert torch.equal(layer(x), exact)


def test_a_processor_without_bfloat16_is_not_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    layer, x = Linear(101, 120), torch.randn(4, 101)
    exact = layer(x)
    with bfloat16_products(True):
        assert torch.equal(layer(x), exact)


def test_rectified_networks_end_in_relu() -> None:
    x = torch.randn(50, 6)
    assert (mlp(6, 5, 4)(x) < 0).any()
    assert (mlp(6, 5, 4, rectified=True)(x) >= 0).all()
