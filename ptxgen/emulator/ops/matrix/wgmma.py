"""wgmma: matrix products of a warpgroup, wgmma groups and fences; setmaxnreg."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.ops.matrix.ldmatrix import gather
from ptxgen.emulator.ops.matrix.mma import Product
from ptxgen.emulator.ops.matrix.mma_sparse import SparseProduct
from ptxgen.emulator.ops.matrix.rounding import LOWEST, Terms, aligned_sum, decode, exponents, narrow, values
from ptxgen.emulator.ops.operands.builder import Builder
from ptxgen.emulator.ops.operands.undefined import Operands
from ptxgen.emulator.ops.registry import instruction
from ptxgen.emulator.ptx.dtypes import FP8
from ptxgen.emulator.ptx.syntax import SIZES, Imm, Instruction, Not, Operand, Reg, Vec
from ptxgen.emulator.reductions import all_true, any_true
from ptxgen.emulator.sync.async_state import async_state, warpgroup
from ptxgen.emulator.sync.warpgroup import Form
from ptxgen.emulator.warp_batch import Step, WarpBatch, fault, spread
from ptxgen.errors import AsyncFault, DivergenceFault, UninitialisedFault

Array = NDArray[Any]


Mask = NDArray[np.bool_] | None


_SHAPE = re.compile(r"m64n(\d+)k(\d+)$")


#: type of A -> k of an instruction
DEPTHS = {"f16": 16, "bf16": 16, "tf32": 8, **dict.fromkeys(FP8, 32), "s8": 32, "u8": 32, "b1": 256}


_UNSIGNED: dict[str, Any] = {
    "f16": np.uint16,
    "bf16": np.uint16,
    "tf32": np.uint32,
    "s8": np.int8,
    "u8": np.uint8,
    "b1": np.uint8,
    **dict.fromkeys(FP8, np.uint8),
}


_RESULTS: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "s32": np.int32}


#: fractional bits of aligned terms and of sums, for 8-bit floats; other types have 25 and 23
FP8_FRACTION_BITS = 13


#: number of elements of D that are processed at once
TILE = 1 << 14


def allowed(result: str, left: str, right: str) -> bool:
    """True if wgmma can multiply A and B of these types to a D of type ``result``."""
    if left in FP8 and right in FP8:
        return result in ("f32", "f16")
    if left in ("s8", "u8") and right in ("s8", "u8"):
        return result == "s32"
    if left == "b1":
        return (result, right) == ("s32", "b1")
    return left == right and (result == "f32" or (result == "f16" and left == "f16"))


def registers(b: Builder, op: Operand, count: int) -> list[Reg]:
    items = op.items if isinstance(op, Vec) else ()
    regs = [x for x in items if isinstance(x, Reg) and SIZES[x.type] == 4]
    if len(regs) != count or len(items) != count:
        raise b.malformed(f"{count} 32-bit registers are needed")
    return regs


def immediate_scale(b: Builder, op: Operand) -> int:
    if not isinstance(op, Imm) or op.value not in (1, -1, (1 << 64) - 1):
        raise b.malformed("a scale of A or B is neither 1 nor -1; it must be one of them")
    return 1 if op.value == 1 else -1


def immediate_transpose(b: Builder, op: Operand) -> bool:
    if not isinstance(op, Imm) or op.value not in (0, 1):
        raise b.malformed("a transpose operand is neither 0 nor 1; it must be one of them")
    return bool(op.value)


@instruction("wgmma.mma_async", execution="warp")
def mma_async(b: Builder, ins: Instruction) -> Step:
    mods = list(ins.mods[1:])
    sparse = "sp" in mods
    if sparse:
        mods.remove("sp")
    if mods[:2] != ["sync", "aligned"]:
        raise b.unsupported()
    shape = _SHAPE.match(mods[2]) if len(mods) > 2 else None
    mods = mods[3:]
    saturated = "satfinite" in mods
    if saturated:
        mods.remove("satfinite")
    if "b1" in mods and mods[2:4] == ["and", "popc"]:
        mods = [*mods[4:], *mods[:2]]  # of b1, s32 comes last
    if shape is None or len(mods) != 3 or not allowed(*mods) or (sparse and "b1" in mods):
        raise b.unsupported()
    n, k = int(shape[1]), int(shape[2])
    result, left, right = mods
    integer = result == "s32"
    if (
        k != DEPTHS[left] * (1 + sparse)
        or n % 8
        or not 8 <= n <= 256
        or (integer and n > 32 and n % 16)
        or (saturated and (not integer or left == "b1"))
    ):
        raise b.malformed("wgmma has no such shape for these types")
    operands = list(ins.operands)
    d = registers(b, operands.pop(0), n // 4 if result == "f16" else n // 2)
    in_registers = isinstance(operands[0], Vec)
    a = registers(b, operands.pop(0), 4) if in_registers else []
    half = left in ("f16", "bf16")
    count = (3 - in_registers if integer else 5 - in_registers + half * (2 - in_registers)) + 2 * sparse
    if len(operands) != count:
        raise b.malformed(f"{count} operands are needed after the registers")
    describe_a = None if in_registers else b.src(operands.pop(0), "u64")
    describe_b = b.src(operands.pop(0), "u64")
    metadata = Metadata(b, ins, k, left, operands.pop(0), operands.pop(0)) if sparse else None
    scale = operands.pop(0)
    negated = isinstance(scale, Not)
    if isinstance(scale, Not):
        scale = scale.reg
    accumulates = b.src(scale, "pred") if isinstance(scale, Reg) else None
    always = isinstance(scale, Imm) and scale.value != 0
    if accumulates is None and not isinstance(scale, Imm):
        raise b.malformed("scale-d is a predicate, 0 or 1")
    signs = (1, 1) if integer else (immediate_scale(b, operands.pop(0)), immediate_scale(b, operands.pop(0)))
    transposed_a = immediate_transpose(b, operands.pop(0)) if half and not in_registers else False
    transposed_b = immediate_transpose(b, operands.pop(0)) if half else False
    b.quiet_writes += d
    if accumulates is not None or always:
        b.quiet_reads += d
    for reg in a:
        b.src(reg, "b32")
    sets = b.register_sets
    rows = np.array([b.place(reg)[1] for reg in d])
    d_set, a_set = sets.number(d), sets.number(a) if a else None
    sets.rows[d_set] = rows
    rows_a = np.array([b.place(reg)[1] for reg in a]) if a else None
    multiply = multiplier(result, left, right, signs, saturated, b.options.mma == "hopper")
    form = Form(
        ins,
        n,
        rows,
        rows_a,
        d_set,
        a_set,
        _RESULTS[result],
        _UNSIGNED[left],
        (transposed_a, transposed_b),
        multiply,
        k // 2 if sparse else 0,
    )
    slots = [reg.slot for reg in d]

    def step(c: WarpBatch, m: Mask) -> None:
        group = warpgroup(c, ins, m)
        blocks = c.warps(m)
        check_fence(c, blocks, form, ins)
        descriptor_b = uniform(c, blocks, describe_b, ins, "descriptors")
        descriptor_a = np.zeros(c.blocks, np.uint64)
        if describe_a is not None:
            descriptor_a = uniform(c, blocks, describe_a, ins, "descriptors")
        if accumulates is not None:
            adds = uniform(c, blocks, accumulates, ins, "values of scale-d")
            adds = ~adds if negated else adds
        else:
            adds = np.full(c.blocks, always)
        check_accumulator(c, blocks & adds, slots, d, ins)
        columns = None if metadata is None else metadata.columns(c, blocks, ins)
        group.issue(c, blocks, form, descriptor_a, descriptor_b, adds, columns)
        for slot in slots:
            flag = c.wave.program.flags.get(slot)
            if flag is not None and c.written[flag] is not True:
                state = c.written[flag]
                c.written[flag] = True if m is None else m if state is False else m | state

    return step


class Metadata:
    """The metadata of a sparse A: a register, and the selector of the lanes whose metadata are read."""

    def __init__(
        self, b: Builder, ins: Instruction, k: int, element_type: str, register: Operand, selector: Operand
    ) -> None:
        self.view = b.src(register, "b32")
        chosen = selector.value & 0xFFFFFFFF if isinstance(selector, Imm) else -1
        self.p = SparseProduct(Product(16, k // 2, element_type, element_type, "f32"), k, chosen, False)
        self.p.check_selector(b, f"m64nNk{k}")

        def undefined(c: WarpBatch, operands: Operands) -> list[Array] | None:
            """The propagation of undefined metadata: those that the instruction reads are a fault, as are other
            undefined operands."""
            if all(
                reg == register and not any_true(bad.reshape(-1, 32) & self.p.contributing) for reg, bad in operands
            ):
                return []
            return None

        b.propagation = undefined

    def columns(self, c: WarpBatch, blocks: Array, ins: Instruction) -> Array:
        """The columns of the stored elements of the 16 rows of a warp, [block, row, stored column]."""
        indices = self.p.indices(gather(c, self.view, None))
        self.p.check(indices, c, ins, np.arange(len(indices)), blocks)
        return self.p.columns(indices)


def uniform(c: WarpBatch, blocks: Array, view: int, ins: Instruction, operands: str) -> Array:
    """The value of an operand that must be uniform in a warp, for each block; ``operands``: its plural name, for
    messages."""
    rows = spread(c.v[view], c.n).reshape(-1, 32)
    bad = (rows != rows[:, :1]).any(axis=1) & blocks
    if any_true(bad):
        raise fault(DivergenceFault, f"lanes of one warp give different {operands}", c, ins, 32 * int(np.argmax(bad)))
    out: Array = rows[:, 0].copy()
    return out


def check_fence(c: WarpBatch, blocks: Array, form: Form, ins: Instruction) -> None:
    """Faults if registers of a wgmma were accessed otherwise, and no wgmma.fence is between that access and the
    wgmma."""
    program = c.wave.program
    fenced = c.state.get("wgmma fenced")
    bad = blocks if fenced is None else blocks & ~fenced
    why = "no wgmma.fence precedes the first wgmma"
    if not any_true(bad):
        for number in (form.d_set, form.a_set):
            touched = blocks & c.touched_registers.get(number, False) if number is not None else bad
            if any_true(touched):
                bad, why = touched, "its registers were accessed with no wgmma.fence between"
                break
    if any_true(bad):
        raise fault(AsyncFault, why, c, ins, 32 * int(np.argmax(bad)))
    for other in program.register_sets.overlaps[form.d_set]:
        c.touched_registers[other] = blocks | c.touched_registers.get(other, False)


def check_accumulator(c: WarpBatch, blocks: Array, slots: list[int], d: list[Reg], ins: Instruction) -> None:
    """Faults if a product is added to an undefined D."""
    flags = c.wave.program.flags
    if not flags or not any_true(blocks):
        return
    for slot, reg in zip(slots, d, strict=True):
        flag = flags.get(slot)
        if flag is None or c.written[flag] is True:
            continue
        bad = np.repeat(blocks, 32)
        if c.written[flag] is not False:
            bad &= ~c.written[flag]
        if any_true(bad):
            text = f"register {reg.name} is added to before it is written: scale-d should be false"
            raise fault(UninitialisedFault, text, c, ins, int(np.argmax(bad)))


# ---- arithmetic


def factors(b: Array, columns: Array | None) -> Array:
    """The factors from B, [k, row of A or 1, n]; ``columns``: the columns of the stored elements of a sparse A."""
    return b.T[:, None, :] if columns is None else b[:, columns].transpose(2, 1, 0)


def contracted(a: Array, b: Array, columns: Array | None) -> Array:
    """The product of A and B, whose rows have k elements."""
    out: Array = a @ b.T if columns is None else np.einsum("mk,kmn->mn", a, factors(b, columns))
    return out


def multiplier(
    result: str, left: str, right: str, signs: tuple[int, int], saturated: bool, hopper: bool
) -> Callable[..., Array]:
    """A function that computes D from the bits of A and B, whose rows have k elements, and from the old D (None: zero).

    If A is sparse, its argument ``columns`` has the columns of the stored elements.
    """
    if result == "s32":
        to: Any = np.int8 if right == "s8" else np.uint8

        def integers(a: Array, b: Array, old: Array | None, columns: Array | None = None) -> Array:
            if left == "b1":  # the number of ones of a & b
                a, b = np.unpackbits(a, axis=1), np.unpackbits(b, axis=1)
            product = contracted(a.astype(np.float32), b.view(to).astype(np.float32), columns)
            total: Array = np.rint(product).astype(np.int64)
            if old is not None:
                total += old
            if saturated:
                np.clip(total, -(1 << 31), (1 << 31) - 1, out=total)
            return total.astype(np.int32)

        return integers
    negative = signs[0] * signs[1] < 0
    dtype = _RESULTS[result]
    fp8 = left in FP8

    def plain(a: Array, b: Array, old: Array | None, columns: Array | None = None) -> Array:
        x, y = values(a, left).astype(np.float32), values(b, right).astype(np.float32)
        total = contracted(-x if negative else x, y, columns)
        out: Array = (total if old is None else total + old.astype(np.float32)).astype(dtype)
        return out

    def exact(a: Array, b: Array, old: Array | None, columns: Array | None = None) -> Array:
        x, y = decode(a, left), decode(b, right)
        if negative:
            x = Terms(-x.value, x.exponent)
        rows, n = len(a), len(b)
        xv, xe = x.value.T[:, :, None], x.exponent.T[:, :, None]
        yv, ye = np.ascontiguousarray(factors(y.value, columns)), np.ascontiguousarray(factors(y.exponent, columns))
        out = np.empty((rows, n), dtype)
        step = max(TILE // n, 1)
        for i in range(0, rows, step):
            tile = slice(i, i + step)
            z = np.zeros((min(step, rows - i), n)) if old is None else old[tile].astype(np.float64)
            c = Terms(z, exponents(z, LOWEST["f16" if result == "f16" else "f32"]))
            terms = (
                Terms(xv[:, tile], xe[:, tile]),
                Terms(yv, ye) if columns is None else Terms(yv[:, tile], ye[:, tile]),
            )
            total = aligned_sum(*terms, c, FP8_FRACTION_BITS if fp8 else 25)
            out[tile] = narrow(total, result, FP8_FRACTION_BITS if fp8 else 23)
        return out

    return exact if hopper else plain


# ---- groups and fences


@instruction("wgmma.fence", execution="warp")
def fence(b: Builder, ins: Instruction) -> Step:
    def step(c: WarpBatch, m: Mask) -> None:
        warpgroup(c, ins, m)
        blocks = c.warps(m)
        fenced = c.state.get("wgmma fenced")
        c.state["wgmma fenced"] = blocks.copy() if fenced is None else fenced | blocks
        if all_true(blocks):
            c.touched_registers.clear()
            return
        for number in list(c.touched_registers):
            c.touched_registers[number] = c.touched_registers[number] & ~blocks

    return step


@instruction("wgmma.commit_group", execution="warp")
def commit_group(b: Builder, ins: Instruction) -> Step:
    def step(c: WarpBatch, m: Mask) -> None:
        warpgroup(c, ins, m).commit(c, c.warps(m))

    return step


@instruction("wgmma.wait_group", execution="blocking")
def wait_group(b: Builder, ins: Instruction) -> Step:
    if len(ins.operands) != 1 or not isinstance(ins.operands[0], Imm):
        raise b.malformed("a constant is needed")
    keep = ins.operands[0].value

    def step(c: WarpBatch, m: Mask, after: int) -> None:
        warpgroup(c, ins, m).wait(c, ins, c.live() if m is None else m, after, keep)

    return step


# ---- registers of a warpgroup


def entry_registers(c: WarpBatch) -> int:
    """The number of registers of a thread at kernel entry; 0 if the directives do not determine it."""
    directives = c.wave.program.function.directives
    if "maxnreg" in directives:
        return directives["maxnreg"][0]
    threads = directives.get("maxntid") or directives.get("reqntid")
    if threads is None or "minnctapersm" not in directives:
        return 0
    warps = -(-int(np.prod(threads)) // 128) * 4
    return min(65536 // (32 * warps * directives["minnctapersm"][0]) // 8 * 8, 240 if warps <= 8 else 255)


@instruction("setmaxnreg", execution="blocking")
def setmaxnreg(b: Builder, ins: Instruction) -> Step:
    """Changes the register count; .inc waits for registers that other warpgroups have released."""
    if ins.mods[0] not in ("inc", "dec") or ins.mods[1:] != ("sync", "aligned", "u32"):
        raise b.unsupported()
    if len(ins.operands) != 1 or not isinstance(ins.operands[0], Imm):
        raise b.malformed("a constant is needed")
    count_after = ins.operands[0].value
    if not 24 <= count_after <= 256 or count_after % 8:
        raise b.malformed(f"the number of registers is {count_after}; it must be a multiple of 8 from 24 to 256")
    grows = ins.mods[0] == "inc"

    def step(c: WarpBatch, m: Mask, after: int) -> None:
        warpgroup(c, ins, m)
        async_state(c.wave).registers.change(
            c, ins, c.live() if m is None else m, after, count_after, grows, entry_registers(c)
        )

    return step
