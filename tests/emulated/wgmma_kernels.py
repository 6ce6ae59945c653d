"""Hand-written kernels that use TMA, mbarriers and wgmma, in emulator_ptx, and functions that run them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ptxgen.emulator import Stats, launch, tensormap

PTX = Path(__file__).parent / "emulator_ptx"


@dataclass(frozen=True)
class Kernel:
    """D[m, n] = sum over k of X[m, k] * Y[n, k] in f16. ``bm``, ``bn``, ``bk``: the tile; ``x``, ``y``, ``d``: boxes
    (inner, outer) and the bytes of their swizzle; ``across``: whether X is M-major and Y N-major; ``cm``, ``ck``: the
    cluster along m and k; ``kw``: K slices through global memory."""

    bm: int
    bn: int
    bk: int
    threads: int
    shared: int
    x: tuple[int, int, int]
    y: tuple[int, int, int]
    d: tuple[int, int, int]
    across: tuple[bool, bool] = (False, False)
    along: str = "n"
    cm: int = 1
    ck: int = 1
    kw: int = 1
    fixup: str = ""
    persistent: bool = False


SQUARE, ROWS = (64, 64, 128), (64, 16, 128)
KERNELS = {
    "plain": Kernel(64, 16, 64, 160, 22592, SQUARE, ROWS, (16, 64, 32)),
    "plain_mn": Kernel(64, 16, 64, 160, 22592, SQUARE, (16, 64, 32), ROWS, (True, True), "m"),
    "cluster_async": Kernel(64, 16, 64, 160, 25664, SQUARE, ROWS, (8, 64, 16), ck=2),
    "cluster_sync": Kernel(64, 16, 64, 160, 26688, SQUARE, ROWS, (16, 64, 32), ck=2),
    "multicast": Kernel(64, 16, 64, 160, 22592, SQUARE, (64, 8, 128), (16, 64, 32), cm=2),
    "split_red": Kernel(64, 16, 64, 160, 22592, SQUARE, ROWS, (16, 64, 32), kw=2, fixup="red"),
    "split_poll": Kernel(64, 16, 64, 160, 22592, SQUARE, ROWS, (16, 64, 32), kw=2, fixup="poll"),
    "split_a2a": Kernel(64, 16, 64, 160, 21568, SQUARE, ROWS, (8, 64, 16), kw=2, fixup="a2a"),
    "persistent": Kernel(128, 32, 64, 288, 49216, SQUARE, (32, 64, 64), (16, 64, 32), (True, True), persistent=True),
    "persistent_multicast": Kernel(
        64, 16, 64, 160, 22592, SQUARE, (64, 8, 128), ROWS, along="m", cm=2, persistent=True
    ),
}


def text(name: str) -> str:
    return (PTX / f"wgmma_{name}.ptx").read_text()


def ceil(a: int, b: int) -> int:
    return -(-a // b)


def multiply(
    name: str, m: int, n: int, k: int, ptx: str = "", seed: int = 0, blocks: int = 4, **options: Any
) -> tuple[np.ndarray, np.ndarray, Stats]:
    """The triple (result, product in float64, statistics); NaN where nothing is stored. ``blocks``: of a persistent grid."""
    c = KERNELS[name]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((k, m) if c.across[0] else (m, k)).astype("f2")
    y = rng.standard_normal((k, n) if c.across[1] else (n, k)).astype("f2")
    d = np.full((n, m) if c.along == "m" else (m, n), np.nan, "f2")
    maps = [tensormap(t, box=b[:2], swizzle=b[2] if b[2] > 16 else 0) for t, b in ((x, c.x), (y, c.y), (d, c.d))]
    tm, tn = ceil(ceil(m, c.bm), c.cm), ceil(n, c.bn)
    workspace = np.full(1 << 18, 0 if c.fixup == "red" else 255, "u1")
    flags = np.zeros(256, "u4")
    before = workspace.copy()
    grid = (min(blocks, tm * tn * c.cm), 1, 1) if c.persistent else (tm * c.cm * c.ck, tn, c.kw)
    numbers = [np.uint32(v) for v in (tm, tn, ceil(k, c.bk), tm * tn * c.cm)]
    args = [*maps, workspace, flags, *numbers]
    stats = launch(ptx or text(name), "gemm", grid, c.threads, args, c.shared, seed=seed, **options)
    assert (workspace == before).all(), "the workspace is left as it was found"
    assert not flags.any()
    left, right = (x.T if c.across[0] else x), (y if c.across[1] else y.T)
    want = left.astype("f8") @ right.astype("f8")
    return (d.T if c.along == "m" else d), want, stats


def cooperative(m: int, n: int, k: int, **options: Any) -> tuple[np.ndarray, np.ndarray, Stats]:
    """A persistent kernel of 128 x 256 tiles in bf16, with setmaxnreg: (result, product, statistics)."""
    rng = np.random.default_rng(0)
    dtype = ml_dtypes.bfloat16
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((n, k)).astype(dtype)
    c = np.full((m, n), np.nan, dtype)
    maps = [tensormap(t, box=(64, rows), swizzle=128) for t, rows in ((a, 128), (b, 256), (c, 64))]
    tm, tiles = ceil(m, 128), ceil(m, 128) * ceil(n, 256)
    numbers = [np.uint32(v) for v in (tm, tiles, ceil(k, 64))]
    stats = launch(text("cooperative"), "gemm_tn_128x256x64", min(tiles, 2), 384, [*maps, *numbers], 213040, **options)
    return c, a.astype("f8") @ b.astype("f8").T, stats


def close(got: np.ndarray, want: np.ndarray) -> bool:
    near = 2.0**-8 if got.dtype == ml_dtypes.bfloat16 else 2.0**-10
    return bool((np.abs(got.astype("f8") - want) <= near * np.abs(want) + 1e-3).all())
