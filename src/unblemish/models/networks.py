"""The networks that models are made of: the paper's MLP, and a convolutional torso for larger images."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class Torso(Protocol):
    """A pair of networks between D cells and a few features. `labels` more inputs may follow the cells."""

    @property
    def features(self) -> int: ...

    def encoder(self, labels: int = 0) -> nn.Module:
        """(B, D + labels) -> (B, features), rectified."""

    def decoder(self, code: int) -> nn.Module:
        """(B, code) -> (B, D)."""


class Linear(nn.Linear):
    """A layer, and its ReLU where it has one."""

    def __init__(self, inputs: int, outputs: int, *, rectified: bool = False) -> None:
        super().__init__(inputs, outputs)
        self.rectified = rectified

    def forward(self, x: Tensor) -> Tensor:
        large = self.weight.numel() >= 10_000  # below, what is saved in the product is lost around it
        if large and x.dtype == torch.float32 and _in_bfloat16.get():
            y = F.linear(x.bfloat16(), self.weight.bfloat16(), self.bias.bfloat16())
            return (y.relu_() if self.rectified else y).float()
        if large and x.dtype == torch.float32 and x.device.type == "cpu" and _HAS_ONEDNN:
            return _OneDnnLinear.apply(x, self.weight, self.bias, self.rectified)  # type: ignore[no-untyped-call]
        y = F.linear(x, self.weight, self.bias)
        return y.relu_() if self.rectified else y


_in_bfloat16: ContextVar[bool] = ContextVar("_in_bfloat16", default=False)


@contextmanager
def bfloat16_products(wanted: bool) -> Iterator[None]:
    """Large layers multiply bfloat16 copies of their inputs and weights; on CPUs only where these have instructions."""
    before = _in_bfloat16.set(wanted and (torch.cuda.is_available() or torch.cpu._is_avx512_bf16_supported()))
    try:
        yield
    finally:
        _in_bfloat16.reset(before)


# torch multiplies float32 by MKL, whose AVX2 kernels on AMD take twice as long as oneDNN's with AVX-512
_HAS_ONEDNN = (
    torch.backends.mkldnn.is_available()
    and torch.backends.cpu.get_cpu_capability() == "AVX512"
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None, after: str = "none") -> Tensor:
    """after(x @ weight.T + bias), in float32 by oneDNN."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, after, [], "")


class _OneDnnLinear(torch.autograd.Function):
    """The three products of a layer. It computes what torch's own does, up to the order of sums."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, rectified: bool) -> Tensor:
        y = _product(x, weight, bias, "relu" if rectified else "none")
        ctx.save_for_backward(x, weight, *([y] if rectified else []))
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        x, weight, *rectified = ctx.saved_tensors
        if rectified:
            grad = torch.ops.aten.threshold_backward(grad, rectified[0], 0)
        to_x = _product(grad, weight.t()) if ctx.needs_input_grad[0] else None
        return to_x, _product(grad.t(), x.t()), grad.sum(0), None


def mlp(*sizes: int, rectified: bool = False) -> nn.Sequential:
    """Linear layers of these sizes with ReLU between them, and after the last if `rectified`."""
    last = len(sizes) - 2
    return nn.Sequential(*(Linear(i, o, rectified=rectified or k < last) for k, (i, o) in enumerate(pairwise(sizes))))


@dataclass(frozen=True)
class Mlp:
    """The torso of the paper: D -> 200 -> 100 -> 50, and back."""

    cells: int
    widths: tuple[int, ...] = (200, 100, 50)

    @property
    def features(self) -> int:
        return self.widths[-1]

    def encoder(self, labels: int = 0) -> nn.Module:
        return mlp(self.cells + labels, *self.widths, rectified=True)

    def decoder(self, code: int) -> nn.Module:
        return mlp(code, *reversed(self.widths), self.cells)


@dataclass(frozen=True)
class Conv:
    """A convolutional torso for images of at least 16x16, halving them until 4 to 7 pixels are left."""

    height: int
    width: int
    channels: int
    filters: int = 16
    features: int = 128  # of the encoder's output

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 16:
            raise ValueError(
                f"the convolutional torso needs images of 16x16 or more, not {self.height}x{self.width}; use 'mlp'"
            )

    def sizes(self) -> list[tuple[int, int]]:
        """(height, width) from the full image down to the smallest."""
        sizes = [(self.height, self.width)]
        while min(sizes[-1]) >= 8:
            sizes.append(((sizes[-1][0] + 1) // 2, (sizes[-1][1] + 1) // 2))
        return sizes

    def depth(self, level: int) -> int:
        """Channels after so many halvings."""
        return min(self.filters * 2 ** max(level - 1, 0), 64)

    def encoder(self, labels: int = 0) -> nn.Module:
        return _ConvEncoder(self, labels)

    def decoder(self, code: int) -> nn.Module:
        return _ConvDecoder(self, code)


class _ConvEncoder(nn.Module):
    def __init__(self, torso: Conv, labels: int) -> None:
        super().__init__()
        self.torso, self.labels = torso, labels
        sizes = torso.sizes()
        depths = [torso.channels + labels] + [torso.depth(level) for level in range(1, len(sizes))]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(inputs, outputs, 3, stride=2, padding=1) for inputs, outputs in pairwise(depths)
        )
        height, width = sizes[-1]
        self.head = Linear(depths[-1] * height * width, torso.features, rectified=True)

    def forward(self, x: Tensor) -> Tensor:
        t = self.torso
        cells, labels = x[:, : x.shape[1] - self.labels], x[:, x.shape[1] - self.labels :]
        image = cells.view(-1, t.height, t.width, t.channels).permute(0, 3, 1, 2)
        planes = labels[:, :, None, None].expand(-1, -1, t.height, t.width)
        h = torch.cat([image, planes], 1)
        for convolution in self.convolutions:
            h = convolution(h).relu()
        return self.head(h.flatten(1))


class _ConvDecoder(nn.Module):
    def __init__(self, torso: Conv, code: int) -> None:
        super().__init__()
        self.torso = torso
        self.sizes = torso.sizes()[::-1]
        depths = [torso.depth(level) for level in range(len(self.sizes) - 1, 0, -1)] + [torso.channels]
        self.depth = depths[0]
        height, width = self.sizes[0]
        self.head = mlp(code, torso.features, self.depth * height * width, rectified=True)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(inputs, outputs, 3, padding=1) for inputs, outputs in pairwise(depths)
        )

    def forward(self, code: Tensor) -> Tensor:
        h = self.head(code).view(-1, self.depth, *self.sizes[0])
        for level, convolution in enumerate(self.convolutions, 1):
            # grown by copying and then convolved: any size is met exactly, and no checkerboard appears
            h = convolution(F.interpolate(h, size=self.sizes[level]))
            if level < len(self.convolutions):
                h = h.relu()
        return h.permute(0, 2, 3, 1).flatten(1)


def noise_like(z: Tensor) -> Tensor:
    """Standard normal noise; the one place where models draw it."""
    return torch.randn_like(z)


class Gaussians(NamedTuple):
    """A normal distribution for each row, with a diagonal covariance."""

    mean: Tensor  # (B, q)
    log_variance: Tensor  # (B, q)

    def sample(self) -> Tensor:
        return torch.addcmul(self.mean, (0.5 * self.log_variance).exp(), noise_like(self.mean))


class GaussianEncoder(nn.Module):
    """q(z | x) = N(mean(x), variance(x))."""

    def __init__(self, torso: Torso, code: int, labels: int = 0) -> None:
        super().__init__()
        self.body = torso.encoder(labels)
        self.head = nn.Linear(torso.features, 2 * code)

    def forward(self, x: Tensor) -> Gaussians:
        return Gaussians(*self.head(self.body(x)).chunk(2, dim=1))
