"""f32 products on bf16 tensor cores: each operand is the sum of three planes of bf16.

A plane is what those before it leave of an element, rounded: x = x0 + x1 + x2 to all 24 bits. Of the nine products the
three smallest are dropped, which is less than f32 rounds away. A pass parts the operands into planes in the workspace,
with K contiguous whatever the layout was; the kernel multiplies planes.
"""

from __future__ import annotations

from types import SimpleNamespace

from ptxgen.codegen.registers import braces, width
from ptxgen.lowering.kernel_gemm import KernelGemm

COMPUTE = "f32_bf16x6"
PLANES = 3
#: planes of X and Y that are multiplied, the smallest products first: sums are cut relative to what is largest
PAIRS = ((0, 2), (2, 0), (1, 1), (0, 1), (1, 0), (0, 0))
FACTOR_BYTES = 2  #: of bf16
PROMOTED = 64  #: of K, at most, that wgmma sums before that is added in f32

ROW = 128  #: bytes that planes, and their rows, start at a multiple of
#: of the pass: rows and elements of K of a block, elements of a thread's vectors, and how far apart a block's rows lie
#: in shared memory, where K was not contiguous
BLOCK_ROWS, BLOCK_K, CHUNK, BLOCK_PITCH = 32, 64, 4, 65
THREADS = 256
ACROSS = BLOCK_K // CHUNK  #: threads of a row of planes
DOWN = THREADS // ACROSS  #: rows that are written at once
ROUNDS = BLOCK_ROWS // DOWN
LOADED = THREADS // BLOCK_ROWS  #: of K, that are loaded at once where K was not contiguous
HELD = ROUNDS * CHUNK  #: elements of a thread


def planes(p: KernelGemm) -> int:
    """Planes of an operand."""
    return PLANES if p.compute == COMPUTE else 1


def factor_bytes(p: KernelGemm) -> int:
    """Bytes of an element as wgmma takes it."""
    return FACTOR_BYTES if p.compute == COMPUTE else p.element.bytes


def parted(p: KernelGemm, name: str) -> SimpleNamespace:
    """The planes of an operand: ``rows`` of each, along M (or N), with ``pitch`` elements from one to the next;
    ``ld``, ``kmajor``: how it lies before; ``vec``: elements of the widest load of it along K, ``load`` its type;
    ``bytes`` of one item's planes."""
    first = name == "a"
    kmajor = p.layout[0] == "N" if first else p.layout[1] == "T"
    rows, ld = (p.m, p.lda) if first else (p.n, p.ldb)
    pitch = -(-max(p.k, 1) // BLOCK_K) * BLOCK_K
    vec = min(p.vectors[0 if first else 1], CHUNK)
    return SimpleNamespace(
        name=name,
        rows=rows,
        ld=ld,
        kmajor=kmajor,
        pitch=pitch,
        vec=vec,
        load=width(vec, "f32"),
        bytes=PLANES * rows * pitch * FACTOR_BYTES,
    )


def values(first: int, n: int) -> str:
    """Of the pass: registers of ``n`` elements from one on, as an operand."""
    return braces([f"%value{first + i}" for i in range(n)])


def own_items(p: KernelGemm, name: str, items: int) -> int:
    """How many of so many items have an operand of their own."""
    return items if p.offsets["ab".index(name)] else min(items, 1)


def all_bytes(p: KernelGemm, name: str, items: int) -> int:
    """Bytes of the planes of so many items."""
    return int(parted(p, name).bytes * own_items(p, name, items))


def workspace(p: KernelGemm) -> int:
    """Bytes of all planes."""
    return all_bytes(p, "a", p.batch) + all_bytes(p, "b", p.batch) if planes(p) > 1 and p.k else 0
