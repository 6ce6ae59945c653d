"""Memory formats of tensors."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor


def memory_format(*operands: Tensor) -> Any:
    """The memory format of a result: channels last if an operand has that format."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(operands[0].dim())
    return last if last is not None and any(map(_is_channels_last, operands)) else torch.contiguous_format


def _is_channels_last(x: Tensor) -> bool:
    """True if the strides grow from the channels over the pixels to the images. As in PyTorch, the strides of axes of
    extent 1 count: with one channel or one pixel, only these strides distinguish the formats."""
    axes = 1, *range(x.dim() - 1, 1, -1), 0
    steps = [(x.stride(axis), x.shape[axis]) for axis in axes]
    grow = all(above >= below * extent for (below, extent), (above, _) in pairwise(steps))
    return grow and 0 not in x.shape and 0 < x.stride(1) < x.stride(0)


def in_memory_format(x: Tensor, wanted: Any) -> Tensor:
    """The tensor in a memory format, with the strides of that format also along axes of extent 1."""
    return x.contiguous(memory_format=wanted).to(memory_format=wanted)
