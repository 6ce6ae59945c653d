"""The arithmetic f32_bf16x6: f32 products on bf16 tensor cores, for which each operand is the sum of three bf16 planes.

Plane i is the rounded difference of an element and the planes before i: x = x0 + x1 + x2, to all 24 bits. Of the nine
products of planes, the three smallest are dropped; they are smaller than the rounding of f32. A packing kernel writes
the planes to the workspace, K-major for every layout of the operands; the main kernel multiplies planes.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.registers import braces, width
from ptxgen.lowering.kernel_problem import KernelProblem

COMPUTE = "f32_bf16x6"
PLANES = 3
#: (plane of X, plane of Y) of each product, the smallest products first, because wgmma truncates relative to the
#: largest term
PAIRS = ((0, 2), (2, 0), (1, 1), (0, 1), (1, 0), (0, 0))
FACTOR_BYTES = 2  #: bytes of a bf16
PROMOTED = 64  #: the most elements of K that wgmma sums before promotion

#: the packing kernel: rows of a block, elements of K of a block, elements of a thread's vectors, and the pitch of rows
#: in shared memory, which it uses if K is not contiguous
BLOCK_ROWS, BLOCK_K, CHUNK, BLOCK_PITCH = 32, 64, 4, 65
THREADS = 256
ACROSS = BLOCK_K // CHUNK  #: threads for a row of planes
DOWN = THREADS // ACROSS  #: rows that a block writes at once
ROUNDS = BLOCK_ROWS // DOWN
LOADED = THREADS // BLOCK_ROWS  #: elements of K that a block loads at once if K is not contiguous
HELD = ROUNDS * CHUNK  #: elements of a thread
WORD = 4  #: bytes of an f32
LOADED_BYTES = WORD * LOADED
#: if K is not contiguous: a thread's elements of K, counted from its first; their offsets in shared memory
TRANSPOSED_K = range(0, HELD * LOADED, LOADED)
TRANSPOSED_OFFSETS = range(0, HELD * LOADED_BYTES, LOADED_BYTES)
#: shared-memory offsets of the elements that a thread writes to planes
SHARED_OFFSETS = tuple(WORD * (i // CHUNK * DOWN * BLOCK_PITCH + i % CHUNK) for i in range(HELD))
MORE_PLANES = tuple(n + 1 < PLANES for n in range(PLANES))  #: for each plane, True if a plane follows it
#: for each round, the words of a plane that a thread writes: (word, both elements)
ROUND_WORDS = tuple(
    tuple((f"%word{w}", f"%value{n + 2 * w}", f"%value{n + 2 * w + 1}") for w in range(CHUNK // 2))
    for n in range(0, HELD, CHUNK)
)


@dataclass(frozen=True)
class PlanesOperand:
    """An operand, and its planes in the workspace."""

    name: str  #: a or b
    rows: int  #: rows of each plane, along M or N
    ld: int  #: leading dimension of the operand
    kmajor: bool  #: True if the operand is K-major
    pitch: int  #: elements from one row of a plane to the next
    vec: int  #: elements of the widest load of the operand along K
    load: str  #: PTX type of this load
    bytes: int  #: bytes of the planes of one batch item

    @property
    def round_loads(self) -> list[list[tuple[int, str, int]]]:
        """For each round, the loads of a K-major operand as (first element of K, registers, offset)."""
        firsts = range(0, CHUNK, self.vec)
        return [
            [(e, braces([f"%value{n + e + i}" for i in range(self.vec)]), WORD * e) for e in firsts]
            for n in range(0, HELD, CHUNK)
        ]


def planes(p: KernelProblem) -> int:
    """The number of planes of an operand."""
    return PLANES if p.compute == COMPUTE else 1


def factor_bytes(p: KernelProblem) -> int:
    """The number of bytes of an element in the type that wgmma multiplies."""
    return FACTOR_BYTES if p.compute == COMPUTE else p.element.bytes


def planes_of(p: KernelProblem, name: str) -> PlanesOperand:
    """The planes of operand ``name``."""
    first = name == "a"
    kmajor = p.layout[0] == "N" if first else p.layout[1] == "T"
    rows, ld = (p.m, p.operand("A").access.ld) if first else (p.n, p.operand("B").access.ld)
    pitch = -(-max(p.k, 1) // BLOCK_K) * BLOCK_K
    vec = min(p.vectors[0 if first else 1], CHUNK)
    return PlanesOperand(
        name=name,
        rows=rows,
        ld=ld,
        kmajor=kmajor,
        pitch=pitch,
        vec=vec,
        load=width(vec, "f32"),
        bytes=PLANES * rows * pitch * FACTOR_BYTES,
    )


def distinct_items(p: KernelProblem, name: str, items: int) -> int:
    """The number of batch items, of ``items``, that have an operand ``name`` of their own."""
    return items if p.offsets["ab".index(name)] else min(items, 1)


def all_bytes(p: KernelProblem, name: str, items: int) -> int:
    """The number of bytes of the planes of ``items`` batch items."""
    return planes_of(p, name).bytes * distinct_items(p, name, items)


def workspace(p: KernelProblem) -> int:
    """The number of bytes of all planes."""
    return all_bytes(p, "a", p.batch) + all_bytes(p, "b", p.batch) if planes(p) > 1 and p.k else 0
