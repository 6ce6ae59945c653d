"""The matrix instructions: their shapes, the elements that each lane holds, and the targets that have them.

A step multiplies 16 rows of A by 8 columns of B, by one instruction or several. Fragment layouts are those of the PTX
ISA, "Matrix Fragments for mma". Let lane = 4g + t. A 32-bit register holds a run of ``run`` adjacent elements along K.
Register r of A holds row g + 8 (r mod 2), and its run starts at k = run (t + 4 (r div 2)). Register r of B holds column
g, and its run starts at k = run (t + 4 r). The four sums of a lane are at rows g, g, g + 8, g + 8 and columns 2t, 2t +
1, 2t, 2t + 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from ptxgen.codegen.registers import braces
from ptxgen.lowering.bit_products import COMPUTE, DIFFERENT_BITS, FIRST, INVERTED_FROM, LAST
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device
from ptxgen.problem.dtypes import DTYPES, FLOATS_8, Dtype, promotion_k

ROWS, COLUMNS = 16, 8  #: rows and columns of C that one instruction, or a pair of instructions, computes


@dataclass(frozen=True)
class Instruction:
    """A tensor-core instruction.

    ``name``: the PTX name; ``m``, ``k``: rows and depth of one instruction; ``depth``: depth of a step, for which
    fragments are loaded together; ``run``: elements per 32-bit register, 1 if a register holds one element;
    ``ptx_type``, ``sum``: PTX types of a fragment register and of an accumulator; ``sums``: accumulator registers of a
    16 x 8 tile; ``sm``: the first target; ``last``: the last target that does not emulate the instruction;
    ``promotes``: True if each instruction starts from zero and add.f32 adds its result to the sums; ``inverts``: True
    if two instructions make a product: A times inverted B, and inverted A times B; ``joins_parts``: True if one
    instruction multiplies complex elements: its rows are the real parts of eight rows, then their imaginary parts, and
    its K alternates between the parts of B. ``m``, ``k`` and ``depth`` then count complex elements.
    """

    name: str
    m: int
    k: int
    depth: int
    run: int
    ptx_type: str
    sum: str
    sums: int
    sm: int = 80
    last: int = 999
    promotes: bool = False
    inverts: bool = False
    joins_parts: bool = False

    @property
    def issued(self) -> int:
        """The number of instructions that add a product of depth ``k`` to a tile."""
        return 2 if self.inverts else 1

    @property
    def chained(self) -> int:
        """The number of instructions of one step that add to the same accumulator, one after the other."""
        return self.issued * self.depth // self.k

    def step(self, sums: list[str], a: list[str], b: list[str]) -> list[tuple[list[str], str, str]]:
        """The instructions of one step of a 16 x 8 tile, each as (accumulators, operand A, operand B).

        ``sums``, ``a``, ``b``: the registers of the tile's accumulators and fragments.
        """
        halves, parts = ROWS // self.m, self.depth // self.k
        per_a, per_b, per_half = len(a) // parts, len(b) // parts, len(sums) // halves
        return [
            (
                sums[h * per_half : (h + 1) * per_half],
                operand(a[part * per_a + h : (part + 1) * per_a : halves]),
                operand(b[part * per_b : (part + 1) * per_b]),
            )
            for part in range(parts)
            for h in range(halves)
        ]

    @property
    def partial(self) -> list[str]:
        """The registers for the result of one instruction that promotes."""
        return [f"%partial{n}" for n in range(self.sums)]

    @property
    def registers_a(self) -> int:
        """The number of fragment registers for 16 rows of A and one step."""
        return ROWS * self.depth // 32 // self.run

    @property
    def registers_b(self) -> int:
        return COLUMNS * self.depth // 32 // self.run

    @property
    def partial_registers(self) -> str:
        return ", ".join(self.partial)

    @property
    def zeros(self) -> str:
        """The accumulator operand of an instruction that promotes: zeros."""
        return ", ".join(["%zero"] * self.sums)


def operand(registers: list[str]) -> str:
    """The registers as an operand of mma: a list in braces, even of one register."""
    return braces(registers) if len(registers) > 1 else "{" + registers[0] + "}"


def _name(m: int, k: int, types: str) -> str:
    return f"mma.sync.aligned.m{m}n8k{k}.row.col.{types}"


#: (dtype, compute) -> instruction on sm_80 and later; the f64 instruction of sm_90 and later is ``DOUBLE_90``
_TABLE = {
    ("f16", "f32"): Instruction(_name(16, 16, "f32.f16.f16.f32"), 16, 16, 16, 2, "b32", "f32", 4),
    ("f16", "f16"): Instruction(_name(16, 16, "f16.f16.f16.f16"), 16, 16, 16, 2, "b32", "b32", 2),
    ("bf16", "f32"): Instruction(_name(16, 16, "f32.bf16.bf16.f32"), 16, 16, 16, 2, "b32", "f32", 4),
    ("f32", "tf32"): Instruction(_name(16, 8, "f32.tf32.tf32.f32"), 16, 8, 8, 1, "b32", "f32", 4),
    ("f64", "f64"): Instruction(_name(8, 4, "f64.f64.f64.f64"), 8, 4, 4, 1, "f64", "f64", 4),
    ("s8", "s32"): Instruction(_name(16, 32, "s32.s8.s8.s32"), 16, 32, 32, 4, "b32", "s32", 4),
    # K counts words of 32 bits
    ("u32", COMPUTE): Instruction(_name(16, 256, "s32.b1.b1.s32.and.popc"), 16, 8, 8, 1, "b32", "s32", 4, FIRST, LAST),
    **{
        (t.name, compute): Instruction(_name(16, 32, f"f32.{t.mma}.{t.mma}.f32"), 16, 32, 32, 4, "b32", "f32", 4, t.sm)
        for t in DTYPES.values()
        if t.fp8
        for compute in t.compute
    },
}
_FLOATS_8 = re.compile(rf"\.({'|'.join(FLOATS_8)})\.\1\.")  #: the operands in the name of an instruction
#: instructions of sm_75: half the depth of those of sm_80, with the same fragments
_TURING = {
    ("f16", "f32"): replace(_TABLE["f16", "f32"], name=_name(16, 8, "f32.f16.f16.f32"), k=8, sm=75),
    ("f16", "f16"): replace(_TABLE["f16", "f16"], name=_name(16, 8, "f16.f16.f16.f16"), k=8, sm=75),
    ("s8", "s32"): replace(_TABLE["s8", "s32"], name=_name(8, 16, "s32.s8.s8.s32"), m=8, k=16, sm=75),
}
#: the instruction that counts different bits, on targets that need not count them by two products of common bits
DIFFERENT = replace(_TABLE["u32", COMPUTE], name=_TABLE["u32", COMPUTE].name.replace(".and", ".xor"))
#: on an H200 3 % faster than m16n8k8; m16n8k16 is slower than both
DOUBLE_90 = Instruction(_name(16, 4, "f64.f64.f64.f64"), 16, 4, 4, 1, "f64", "f64", 4, 90)

#: the product of complex elements in parts of f64: by the instruction of twice the rows and twice the depth
COMPLEX_90 = replace(DOUBLE_90, name=_name(16, 8, "f64.f64.f64.f64"), m=8, joins_parts=True)


def by_words(p: KernelProblem, d: Device | None = None) -> Instruction | None:
    """The instruction of skinny kernels for the problem's types, if its fragments are 32-bit words in the order of
    memory; 16-bit types are summed in f32, whatever ``compute`` is. None: there is no such instruction. Without ``d``:
    an instruction with the same registers."""
    i = _entry(p.dtype, "f32" if p.element.bytes == 2 else p.compute, d)
    return _promoted(i, p, d) if i is not None and i.ptx_type == "b32" else None


def _entry(dtype: str, compute: str, d: Device | None) -> Instruction | None:
    """The instruction for dtype and compute on the target of ``d``."""
    types = dtype, compute
    return _TURING.get(types, _TABLE.get(types)) if d is not None and d.sm < 80 else _TABLE.get(types)


def lacks_wait(element_bytes: Any, fragment_prefetch: Any, rows: Any, columns: Any) -> Any:
    """True if a K loop over ``rows`` x ``columns`` of C per warp may read accumulators before they are written.

    ptxas 13.0 inserts no wait at the end of a loop for a DMMA whose accumulators the first DMMA of the next iteration
    reads, if fragments are prefetched and there is only one tile: results were wrong on an H200.
    """
    return (element_bytes >= 8) & (fragment_prefetch == 1) & (rows * columns <= ROWS * COLUMNS)


def _promoted(i: Instruction, p: KernelProblem, d: Device | None) -> Instruction:
    """Instruction ``i`` on ``d``; ``promotes`` is set if its accumulator may lose bits. The instruction for fp8 does
    not promote on sm_90, which multiplies fp8 as f16 (measured on an H200); no other target was measured."""
    return replace(i, promotes=promotion_k(p.element, p.compute) > 0 and d is not None and d.sm != 90)


def of_floats_8(i: Instruction, first: Dtype, second: Dtype) -> Instruction:
    """An instruction of equal 8-bit floats with operands of these types; any other instruction as it is."""
    if not (first.fp8 and second.fp8):
        return i
    operands = f".{first.mma}.{second.mma}."
    return replace(i, name=_FLOATS_8.sub(operands, i.name))


def multiplies(p: KernelProblem) -> bool:
    """True if a tensor-core instruction exists for the problem's types."""
    return (p.element.real, p.compute) in _TABLE and (p.element.real == "f64" or not p.element.part)


def instruction(p: KernelProblem, d: Device | None = None) -> Instruction:
    """The instruction for the problem's types on ``d``. Without ``d``: an instruction of the same depth and registers.

    Types without an instruction get the one of f16: rules reject them, but the geometry needs numbers.
    """
    if p.element.real == "f64" and d is not None and d.sm >= DOUBLE_90.sm:
        return DOUBLE_90 if p.element.parts == 1 else COMPLEX_90
    if p.compute == COMPUTE and p.algebra is DIFFERENT_BITS:
        return replace(_TABLE["u32", COMPUTE], inverts=True) if d is None or d.sm >= INVERTED_FROM else DIFFERENT
    i = _promoted(_entry(p.element.real, p.compute, d) or _TABLE["f16", "f32"], p, d)
    return of_floats_8(i, *(x.element for x in p.operands[:2])) if p.element.fp8 else i
