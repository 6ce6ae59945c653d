"""The baseline Triton: a kernel that adds, one k at a time, the outer product of a column of A and a row of B, with
several tiles."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ptxgen.expr.python_text import TRITON, Library, PythonText, number, type_in
from ptxgen.operations.task.baselines.checked import Candidate, TileBaseline
from ptxgen.operations.task.baselines.libraries import load_triton, module_of
from ptxgen.operations.task.baselines.operands import padded_extents
from ptxgen.operations.task.baselines.parts import Parts, Read, identity_of, order_of
from ptxgen.operations.task.baselines.tensors import on_stream, tensor
from ptxgen.operations.task.text_blocks import filled
from ptxgen.problem.operation import VendorTimes
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.vendor_libraries import load_torch


class Tile(NamedTuple):
    """A tile of C, ``bm``×``bn``, with the number of unrolled steps and of warps."""

    bm: int
    bn: int
    steps: int
    warps: int


TILES = (Tile(128, 128, 8, 4), Tile(128, 64, 8, 4), Tile(128, 128, 8, 8))
GROUP = 8  #: the number of rows of tiles that form a group in the order of blocks
SOURCE = """\
import triton
import triton.language as tl


@triton.jit
def kernel(A, B, C, «arrays»M, N, K, MP, NP, KP, BM: tl.constexpr, BN: tl.constexpr, STEPS: tl.constexpr,
           GROUP: tl.constexpr):
    block = tl.program_id(0)
    tiles_m, tiles_n = MP // BM, NP // BN
    first = block // (GROUP * tiles_n) * GROUP
    rows = tl.minimum(tiles_m - first, GROUP)
    i = (first + block % (GROUP * tiles_n) % rows) * BM + tl.arange(0, BM)
    j = block % (GROUP * tiles_n) // rows * BN + tl.arange(0, BN)
    accum = tl.full((BM, BN), «identity», «type»)
    «vectors»
    at_a, at_b = A + i, B + j
    for first_k in tl.range(0, KP, STEPS):
        for step in tl.static_range(STEPS):
            k = first_k + step
            a = tl.load(at_a + step * MP)[:, None]
            b = tl.load(at_b + step * NP)[None, :]
            «along_k»
            «step»
        at_a += STEPS * MP
        at_b += STEPS * NP
    «elements»
    «value»
    tl.store(C + i[:, None].to(tl.int64) * NP + j[None, :], «result»)
"""


def text_of(read: Read) -> str:
    """The name of a variable in a kernel of tiles."""
    if read.indexed:
        return {"i": "i[:, None]", "j": "j[None, :]"}.get(read.name, read.name)
    return {"A": "a", "B": "b"}.get(read.name, f"{read.name}_{''.join(read.axes)}")


def load(read: Read, prefix: str) -> str:
    """The line that loads the elements of an array."""
    at = {
        ("i",): "{x} + i)[:, None]",
        ("j",): "{x} + j)[None, :]",
        ("k",): "{x} + k)",
        ("k", "i"): "{x} + k * MP + i)[:, None]",
        ("k", "j"): "{x} + k * NP + j)[None, :]",
        ("i", "j"): f"{{x}} + i[:, None].to({prefix}.int64) * NP + j[None, :])",
    }[order_of(read.axes)]
    return f"{text_of(read)} = {prefix}.load({at.format(x=read.name)}"


def blocks_of(parts: Parts, library: Library, prefix: str) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The blocks and the words by which ``filled`` completes the source of a kernel of tiles."""
    names = parts.names(text_of, parts.reduced, parts.value)
    step = PythonText([parts.reduced], names, library)
    value = PythonText([parts.value], names, library, "v")
    stored = value(parts.value)
    if parts.value.op == "constant":
        stored = f"{prefix}.full((BM, BN), {number(parts.value)}, {type_in(library, parts.value.type)})"
    in_steps = parts.arrays(parts.reduced)
    blocks = {
        "vectors": [load(r, prefix) for r in in_steps if "k" not in r.axes],
        "along_k": [load(r, prefix) for r in in_steps if "k" in r.axes],
        "step": [*step.definitions, f"accum = {step(parts.reduced)}"],
        "elements": [load(r, prefix) for r in parts.arrays(parts.value) if r not in in_steps],
        "value": value.definitions,
    }
    words = {
        "arrays": "".join(f"{name}, " for name in array_names(parts)),
        "identity": number(identity_of(parts)),
        "type": type_in(library, parts.algebra.type),
        "result": stored,
    }
    return blocks, words


def array_names(parts: Parts) -> list[str]:
    """The names of the arrays besides A and B."""
    return list(dict.fromkeys(r.name for r in parts.others))


def source_of(parts: Parts) -> str:
    """The source of the module with the kernel. DtypeError: Triton lacks an operator or a type."""
    return filled(SOURCE, *blocks_of(parts, TRITON, "tl"))


def inputs_of(torch: Any, parts: Parts, addresses: Mapping[str, int]) -> list[Any]:
    """The tensors that a kernel reads: A, B, then the others."""
    m, n, k = padded_extents(parts.problem)
    extents, uses = {"i": m, "j": n, "k": k}, {u.role: u for u in parts.problem.roles.uses}
    out = []
    for name in ("A", "B", *array_names(parts)):
        u = uses[name]
        shape = {"A": (k, m), "B": (k, n)}.get(name) or tuple(extents[axis] for axis in order_of(u.axes))
        out.append(tensor(torch, addresses[name], shape, u.dtype))
    return out


def tensors_of(torch: Any, parts: Parts, addresses: Mapping[str, int]) -> list[Any]:
    """The tensors that a kernel takes: A, B, C, then the others."""
    m, n, _ = padded_extents(parts.problem)
    a, b, *others = inputs_of(torch, parts, addresses)
    return [a, b, tensor(torch, addresses["C"], (m, n), parts.problem.out), *others]


class OfTiles(TileBaseline):
    """A baseline whose kernel is written in Triton or Gluon."""

    errors = (Exception,)  # its compilers raise their own

    def best(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> VendorTimes:
        with on_stream(load_torch(), self.driver):
            return super().best(sets, timing)


class TritonOuter(OfTiles):
    """The outer-product kernel in Triton, with each tile of ``TILES``."""

    title = "Triton"

    def candidates(self, sets: Sequence[Mapping[str, int]]) -> Iterator[Candidate]:
        load_triton()
        torch, p = load_torch(), self.problem
        kernel = module_of(source_of(self.parts)).kernel
        m, n, k = padded_extents(p)
        pointers = [tensors_of(torch, self.parts, addresses) for addresses in sets]
        for tile in TILES:
            grid = (m // tile.bm * (n // tile.bn),)
            options = {"BM": tile.bm, "BN": tile.bn, "STEPS": tile.steps, "GROUP": GROUP, "num_warps": tile.warps}
            launches = [functools.partial(kernel[grid], *each, p.m, p.n, p.k, m, n, k, **options) for each in pointers]
            yield Candidate(f"{tile.bm}×{tile.bn}, {tile.warps} warps", launches)
