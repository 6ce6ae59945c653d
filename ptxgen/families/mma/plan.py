"""The plan of an mma.sync kernel."""

from __future__ import annotations

from dataclasses import replace

from ptxgen.codegen.config import BOUNDS_PREDICATE
from ptxgen.codegen.multistage_plan import MultistagePlan
from ptxgen.codegen.plan import BatchRange
from ptxgen.codegen.registers import Tile, braces
from ptxgen.codegen.source import Argument, Launch, Step
from ptxgen.codegen.vectorized import ceil_div, log2
from ptxgen.families.mma import operand_packing
from ptxgen.families.mma.geometry import MmaGeometry
from ptxgen.families.mma.instructions import ROWS, instruction
from ptxgen.families.mma.layout import MmaOperand
from ptxgen.families.simt.layout import products
from ptxgen.lowering.kernel_gemm import KernelGemm


class MmaPlan(MultistagePlan):
    """Multistage schedule with mma.sync; each warp holds a tile of C in the registers of its lanes."""

    kernel = "kernel/multistage.mako"
    geometry: MmaGeometry
    fragment_addr = "addr/ldmatrix_addr.mako"
    math = "math/mma_sync.mako"
    shared_alignment = 128

    def _set_operands(self) -> None:
        c, g = self.config, self.geometry
        self.instruction = i = instruction(self.problem, self.device)
        if self.problem.element.fp8:
            self.ptx_version = max(self.ptx_version, "8.4")
        self.group, self.steps = int(g.group), int(g.steps)
        self.stage_bytes, self.wait = int(g.stage_bytes), c.stages - 2
        first, second = (bool(operand_packing.packs(c, name)) for name in "ab")
        self.a = MmaOperand(g.a, i, self.threads, c.u, self.steps, bool(c.fragment_prefetch), 0, first)
        self.b = MmaOperand(g.b, i, self.threads, c.u, self.steps, bool(c.fragment_prefetch), self.a.size, second)
        self.operands = (self.a, self.b)
        self.packed_operands = tuple(x for x in self.operands if x.packed_first)
        seen = operand_packing.inside(self.problem, c)
        for x, ld in ((self.a, seen.lda), (self.b, seen.ldb)):
            x.shared_pointer = x.shared_pointer and x.fits_32bit_offsets(ld)
        self._copies()
        self.copy_a, self.copy_b = (f"copy/{'cp_async' if x.asynchronous else 'ldg_sts'}.mako" for x in self.operands)
        self.asynchronous = self.a.asynchronous or self.b.asynchronous
        self.defers_sts = bool(c.deferred_sts) and not (self.a.asynchronous and self.b.asynchronous)
        self.predicated = c.bounds == BOUNDS_PREDICATE
        self.log2_group, self.log2_across = log2(self.group), log2(self.b.warps)
        #: rounds f32 to tf32, from sm_90 on in one instruction
        self.rounding = ""
        if self.problem.compute == "tf32":
            self.rounding = "cvt.rn.tf32.f32" if self.device.sm >= 90 else "cvt.rna.tf32.f32"
        self._accumulators()

    def _copies(self) -> None:
        """The auxiliary kernel that packs operands, 16 bytes per thread."""
        size = self.input_bytes = self.problem.element.bytes
        self.chunk = 16 // size
        #: elements on their way, and the words that they make
        self.elements = Tile("m", f"b{8 * max(size, 2)}", (self.chunk,))
        self.packed_words = Tile("w", "b32", (4,))
        step = 2 if size == 2 else 4  # elements of a word, of which the first holds two bytes where they are bytes
        self.packed_pairs: list[tuple[str, str]] = (
            []
            if size > 2
            else [
                (self.packed_words[n], braces([self.elements[n * step], self.elements[n * step + step // 2]]))
                for n in range(4)
            ]
        )
        self.packed_store_type = "v2.b64" if size == 8 else "v4.b32"
        whole = self.elements if size > 2 else self.packed_words
        self.packed_vector = whole.vector(0, n=whole.size)

    @property
    def parameters(self) -> list[str]:
        lines = super().parameters
        places = ", ".join(f".param .u32 at_{x.name}" for x in self.packed_operands)
        return [*lines[:-1], f"{lines[-1]},", places] if places else lines

    @property
    def pack_parameters(self) -> list[str]:
        """Parameters of the auxiliary kernel that packs operands."""
        names = ("rows", "columns", "ld", "pitch"), ("filled", "at", *(("each", "items") if self.batched else ()))
        lines = [", ".join(f".param .u32 {n}_{x.name}" for n in part) for x in self.packed_operands for part in names]
        first = [".param .u64 by_a, .param .u64 by_b, .param .u32 first_item,"] if self.batched else []
        return [*first, *(f"{line}," for line in lines[:-1]), *lines[-1:]]

    def _launch_range(self, problem: KernelGemm, run: BatchRange) -> Launch:
        made = super()._launch_range(operand_packing.inside(problem, self.config), run)
        if not self.packed_operands:
            return made
        # copies lie behind what slices leave in the workspace
        end = ceil_div(made.workspace, operand_packing.ROW)
        places: list[Argument] = []
        facts: list[Argument] = []
        chunks = 0
        for x in self.packed_operands:
            copy = operand_packing.packed_operand(problem, x.name)
            each, items = copy.bytes // operand_packing.ROW, operand_packing.copied_items(problem, x.name, run.items)
            numbers = (copy.rows, copy.columns, copy.ld, copy.pitch, copy.filled, end)
            facts += [("u32", n) for n in (*numbers, *((each, items) if self.batched else ()))]
            places.append(("u32", end))
            end += each * items
            chunks = max(chunks, copy.filled * copy.pitch // self.chunk)
        if self.batched:
            facts = [*(("u64", n) for n in problem.offsets[:2]), ("u32", run.first), *facts]
        grid = (max(ceil_div(chunks, self.AUX_KERNEL_THREADS), 1), len(self.packed_operands), run.items)
        pointers: tuple[Argument, ...] = (("u64", "A"), ("u64", "B"), ("u64", "C"), ("u64", "W"))
        first = Step(
            f"{self.entry}_repack",
            grid,
            (self.AUX_KERNEL_THREADS, 1, 1),
            0,
            (*pointers, *self._epilogue_arguments(problem), *facts),
        )
        rest = tuple(replace(s, arguments=(*s.arguments, *places)) if s.entry == self.entry else s for s in made.steps)
        return Launch((first, *rest), end * operand_packing.ROW)

    def _accumulators(self) -> None:
        i, c = self.instruction, self.config
        self.acc = Tile("acc", i.sum, (self.a.tiles, self.b.tiles, i.sums))
        self.packed = i.sums == 2
        #: rows and columns of C that a lane holds
        self.ms, self.ns = len(self.a.c_positions), len(self.b.c_positions)
        self.products = products(self.a.tiles, self.b.tiles, c.mma_order)

    def issues(self, i: int, j: int, k: int) -> list[tuple[str, str, str]]:
        """The instructions that add one step to tile (i, j): operands C (also D), A and B of each."""
        ins, a, b = self.instruction, self.a.buffer(k), self.b.buffer(k)
        halves = ROWS // ins.m
        per_a, per_b = self.a.registers * ins.k // ins.depth, self.b.registers * ins.k // ins.depth
        out = []
        for part in range(ins.depth // ins.k):
            for h in range(halves):
                rows = [self.a.fragment[a, i, part * per_a + n] for n in range(h, per_a, halves)]
                columns = [self.b.fragment[b, j, part * per_b + n] for n in range(per_b)]
                per_half = ins.sums // halves
                sums = [self.acc[i, j, h * per_half + n] for n in range(per_half)]
                out.append((operand_list(sums), operand_list(rows), operand_list(columns)))
        return out

    def sum_at(self, i: int, j: int) -> str:
        """The accumulator of row ``i`` and column ``j`` of what a lane holds (of two columns where sums are packed)."""
        (_, tile_m, low), (_, tile_n, right) = self.a.c_positions[i], self.b.c_positions[j]
        return self.acc[tile_m, tile_n, low if self.packed else 2 * low + right]

    @property
    def contiguous(self) -> int:
        return int(2 * self.b.together)

    @property
    def tiles(self) -> list[tuple[Tile, str]]:
        out = [(self.acc, "accumulators: tile along M, tile along N, the lane's elements of 16 x 8")]
        for x in self.operands:
            name = x.name.upper()
            out.append((x.fragment, f"fragments of {name}: buffer, tile, register"))
            if x.raw:
                out.append((x.raw, f"fragments of {name} as loaded, two tiles interleaved"))
            out.append((x.fragment_ptrs, f"shared-memory address of this lane's fragments of {name}"))
            if not x.asynchronous:
                out.append((x.staging, f"{name} between global and shared memory"))
        return out


def operand_list(names: list[str]) -> str:
    """An operand of mma: in braces, be it one register."""
    return braces(names) if len(names) > 1 else "{" + names[0] + "}"
