#!/usr/bin/env python3
"""A decoder of transformer layers whose weights are fp8, computed by ptxgen and compared with f32.

    examples/fp8_decoder.py [--layers 4] [--hidden 1024] [--heads 16] [--tokens 128] [--batch 1]

The weights of the four linear layers of each layer are float8_e4m3fn with one scale for each output; the inputs of the
layers are converted in each call, with one scale for each token. ``ptxgen.torch.scaled_mm`` multiplies them; its
kernels apply both scales. Norms, attention and the activation are PyTorch's.

error    the norm of the difference from the same decoder with weights in f32, over the norm of its result
memory   bytes of the weights in fp8 over those in f32

--device cpu computes on the emulated device.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import ptxgen.torch  # noqa: E402

FP8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FP8).max


def quantized(x: Tensor) -> tuple[Tensor, Tensor]:
    """The pair (x in fp8, the scales of its rows): each row times its scale is x."""
    scale = x.float().abs().amax(1, keepdim=True).clamp(min=1e-12) / LARGEST
    return (x.float() / scale).to(FP8), scale


class Fp8Linear(nn.Module):
    """A linear layer without bias whose weight is fp8."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        data, scale = quantized(weight)
        self.register_buffer("weight", data)
        self.register_buffer("scale", scale.t().contiguous())

    def forward(self, x: Tensor) -> Tensor:
        rows, scale = quantized(x.reshape(-1, x.shape[-1]))
        y = ptxgen.torch.scaled_mm(rows, self.weight.t(), scale, self.scale)
        return y.to(x.dtype).reshape(*x.shape[:-1], -1)


class Layer(nn.Module):
    """Attention of each token to the tokens before it, and two linear layers."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.RMSNorm(hidden) for _ in range(2))
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.up, self.down = nn.Linear(hidden, 4 * hidden, bias=False), nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, hidden = x.shape
        parts = self.qkv(self.norms[0](x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, hidden))
        return x + self.down(functional.silu(self.up(self.norms[1](x))))


def in_fp8(model: nn.Module) -> nn.Module:
    """The model with fp8 weights in the place of its linear layers."""
    for layer in model.modules():
        for name, child in list(layer.named_children()):
            if isinstance(child, nn.Linear):
                setattr(layer, name, Fp8Linear(child.weight.detach()))
    return model


def bytes_of(model: nn.Module) -> int:
    """The memory of the weights and their scales."""
    return sum(x.numel() * x.element_size() for x in (*model.parameters(), *model.buffers()))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 4), ("hidden", 1024), ("heads", 16), ("tokens", 128), ("batch", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args(arguments)
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer(given.hidden, given.heads) for _ in range(given.layers))).to(given.device)
    x = torch.randn(given.batch, given.tokens, given.hidden, device=given.device)

    with torch.no_grad():
        wanted = model(x)
        before = bytes_of(model)
        result = in_fp8(model)(x)
        after = bytes_of(model)
    print(f"error {((result - wanted).norm() / wanted.norm()).item():.4f}")
    print(f"memory {after / before:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
