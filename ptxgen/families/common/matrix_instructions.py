"""The matrix instructions: their shapes, which lane holds which element, and which target has them.

A step multiplies 16 rows of A by 8 columns of B, by one instruction or several. Fragment layouts: PTX ISA, "Matrix
Fragments for mma". With lane = 4g + t, a 32-bit register holds ``run`` adjacent elements along K; register r of A has
row g + 8 (r mod 2), register r of B column g, both the run that starts at k = run (t + 4 (r div 2)) (B: r for r div 2).
The four sums of a lane are at rows g, g, g + 8, g + 8 and columns 2t, 2t + 1, 2t, 2t + 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ptxgen.codegen.registers import braces
from ptxgen.lowering.bit_products import COMPUTE, DIFFERENT_BITS, FIRST, INVERTED_FROM, LAST
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device
from ptxgen.problem.dtypes import DTYPES, promotion_k

ROWS, COLUMNS = 16, 8  #: of the tile of C of one instruction, or of a pair of them


@dataclass(frozen=True)
class Instruction:
    """An instruction of tensor cores. ``name``: the PTX; ``m``, ``k``: its rows and depth; ``depth``: of one step, in
    which fragments are read; ``run``: elements of a 32-bit register, 1 where a register holds one element;
    ``ptx_type``, ``sum``: PTX types of a fragment register and of an accumulator; ``sums``: accumulator registers of 16
    x 8; ``sm``: the first target, ``last``: the last one that does not emulate it; ``promotes``: True if each
    instruction starts from zero, and add.f32 adds its products to the sums; ``inverts``: True if two instructions make
    a product, of A with the inverted bits of B and the other way round."""

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

    @property
    def issued(self) -> int:
        """Instructions that add one step to a tile."""
        return 2 if self.inverts else 1

    @property
    def chained(self) -> int:
        """Instructions of one step that add to the same accumulator, one after the other."""
        return self.issued * self.depth // self.k

    def step(self, sums: list[str], a: list[str], b: list[str]) -> list[tuple[list[str], str, str]]:
        """The instructions of one step of a 16 x 8 tile: accumulators, operand A and operand B of each.

        ``sums``, ``a``, ``b``: the registers of the tile's accumulators and fragments."""
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
        """Registers of the products of one instruction that promotes."""
        return [f"%partial{n}" for n in range(self.sums)]

    @property
    def registers_a(self) -> int:
        """Fragment registers of 16 rows and one step."""
        return ROWS * self.depth // 32 // self.run

    @property
    def registers_b(self) -> int:
        return COLUMNS * self.depth // 32 // self.run

    @property
    def partial_registers(self) -> str:
        return ", ".join(self.partial)

    @property
    def zeros(self) -> str:
        """The sums that an instruction that promotes starts from."""
        return ", ".join(["%zero"] * self.sums)


def operand(registers: list[str]) -> str:
    """An operand of mma: in braces, be it one register."""
    return braces(registers) if len(registers) > 1 else "{" + registers[0] + "}"


def _name(m: int, k: int, types: str) -> str:
    return f"mma.sync.aligned.m{m}n8k{k}.row.col.{types}"


#: by dtype and compute, from sm_80 on; f64 from sm_90 on is below
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
#: of sm_75: half the depth of those of sm_80, on the same fragments
_TURING = {
    ("f16", "f32"): replace(_TABLE["f16", "f32"], name=_name(16, 8, "f32.f16.f16.f32"), k=8, sm=75),
    ("f16", "f16"): replace(_TABLE["f16", "f16"], name=_name(16, 8, "f16.f16.f16.f16"), k=8, sm=75),
    ("s8", "s32"): replace(_TABLE["s8", "s32"], name=_name(8, 16, "s32.s8.s8.s32"), m=8, k=16, sm=75),
}
#: counts different bits, on targets that do not emulate it by two products of common bits
DIFFERENT = replace(_TABLE["u32", COMPUTE], name=_TABLE["u32", COMPUTE].name.replace(".and", ".xor"))
#: 3 % faster on an H200 than m16n8k8; m16n8k16 is slower than both
DOUBLE_90 = Instruction(_name(16, 4, "f64.f64.f64.f64"), 16, 4, 4, 1, "f64", "f64", 4, 90)


def by_words(p: KernelProblem, d: Device | None = None) -> Instruction | None:
    """The instruction of skinny kernels for the problem's types, if its fragments are words of 32 bits as they are in
    memory; without a device, one of the same registers. 16-bit types are summed in f32, whatever ``compute`` says."""
    i = _entry(p.dtype, "f32" if p.element.bytes == 2 else p.compute, d)
    return _promoted(i, p, d) if i is not None and i.ptx_type == "b32" else None


def _entry(dtype: str, compute: str, d: Device | None) -> Instruction | None:
    """The instruction of the target of ``d``, by dtype and compute."""
    types = dtype, compute
    return _TURING.get(types, _TABLE.get(types)) if d is not None and d.sm < 80 else _TABLE.get(types)


def lacks_wait(element_bytes: Any, fragment_prefetch: Any, rows: Any, columns: Any) -> Any:
    """True if a K loop over ``rows`` x ``columns`` of C per warp may read accumulators before they are written.

    ptxas 13.0 does not wait at the end of a loop for a DMMA whose accumulators the first DMMA of the next iteration
    reads, if fragments are prefetched and there is only one tile: results were wrong on an H200.
    """
    return (element_bytes >= 8) & (fragment_prefetch == 1) & (rows * columns <= ROWS * COLUMNS)


def _promoted(i: Instruction, p: KernelProblem, d: Device | None) -> Instruction:
    """The instruction on ``d``, which promotes if its accumulator may lose bits. That of fp8 products does not on
    sm_90, which multiplies fp8 as f16 (measured on an H200); no other target was measured."""
    return replace(i, promotes=promotion_k(p.element, p.compute) > 0 and d is not None and d.sm != 90)


def multiplies(p: KernelProblem) -> bool:
    """True if there is an instruction for the problem's types."""
    return (p.element.real, p.compute) in _TABLE and (p.element.real == "f64" or not p.element.part)


def instruction(p: KernelProblem, d: Device | None = None) -> Instruction:
    """The instruction for the problem's types on ``d``; without a device, one of the same depth and registers.

    Types without one get that of f16: rules reject them, but geometry has numbers for them.
    """
    if p.element.real == "f64" and d is not None and d.sm >= DOUBLE_90.sm:
        return DOUBLE_90
    if p.compute == COMPUTE and p.algebra is DIFFERENT_BITS:
        return replace(_TABLE["u32", COMPUTE], inverts=True) if d is None or d.sm >= INVERTED_FROM else DIFFERENT
    return _promoted(_entry(p.element.real, p.compute, d) or _TABLE["f16", "f32"], p, d)
