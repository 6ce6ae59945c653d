#!/usr/bin/env python3
"""Runs PTX that Triton wrote on the emulated device, without a GPU, and finds an access out of bounds.

    examples/triton_ptx.py [--elements 1000]

The kernel doubles a vector in blocks of 128 elements. Its load lacks the mask that its store has. ``scale.ptx`` is what
Triton 3.9 made of these lines; Triton needs no GPU for it either:

    @triton.jit
    def scale(x, y, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + i, 2 * tl.load(x + i), mask=i < n)

    source = ASTSource(scale, {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 128})
    print(triton.compile(source, target=GPUTarget("cuda", 80, 32)).asm["ptx"])
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent)]

import numpy as np  # noqa: E402

from ptxgen.emulator import launch  # noqa: E402
from ptxgen.errors import OutOfBoundsFault  # noqa: E402

BLOCK = 128
UNUSED = np.uint64(0)  # the pointers to scratch memory that Triton adds


def scale(x: np.ndarray) -> np.ndarray:
    """2x by the kernel of Triton."""
    y = np.zeros_like(x)
    blocks = -(-x.size // BLOCK)
    text = (FOLDER / "scale.ptx").read_text()
    launch(text, "scale", grid=blocks, block=BLOCK, args=[x, y, np.int32(x.size), UNUSED, UNUSED])
    return y


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=1000)
    elements = parser.parse_args(arguments).elements
    whole = np.arange(-(-elements // BLOCK) * BLOCK, dtype=np.float32)
    y = scale(whole)
    print(f"{whole.size} elements: {'right' if np.array_equal(y, 2 * whole) else 'wrong'}")
    try:
        scale(whole[:elements].copy())
        print(f"{elements} elements: no fault")
    except OutOfBoundsFault as fault:
        print(f"{elements} elements: {fault}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
