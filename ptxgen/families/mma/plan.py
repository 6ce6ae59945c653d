"""The plan of an mma.sync kernel."""

from __future__ import annotations

from dataclasses import replace

from ptxgen.codegen.config import BOUNDS_PREDICATE
from ptxgen.codegen.multistage_plan import CooperativePlan
from ptxgen.codegen.plan import Run
from ptxgen.codegen.registers import Tile, braces
from ptxgen.codegen.source import Argument, Launch, Step
from ptxgen.codegen.vectorized import ceil_div, log2
from ptxgen.families.mma import operand_packing
from ptxgen.families.mma.instructions import ROWS, instruction
from ptxgen.families.mma.layout import MmaOperand
from ptxgen.families.simt.layout import products
from ptxgen.lowering.kernel_gemm import KernelGemm


class MmaPlan(CooperativePlan):
    """Every warp copies and multiplies; a warp has a tile of C in the registers of its lanes."""

    kernel = "kernel/multistage.mako"
    reader = "addr/ldmatrix_addr.mako"
    math = "math/mma_sync.mako"
    shared_aligned = 128

    def _operands(self) -> None:
        c, g = self.config, self.geometry
        self.instruction = i = instruction(self.problem, self.device)
        if self.problem.element.bytes == 1 and i.sum == "f32":
            self.ptx_version = max(self.ptx_version, "8.4")
        self.group, self.steps = int(g.group), int(g.steps)
        self.stage_bytes, self.wait = int(g.stage), c.stages - 2
        first, second = bool(c.operand_path & operand_packing.A), bool(c.operand_path & operand_packing.B)
        self.a = MmaOperand(g.a, i, self.threads, c.u, self.steps, bool(c.fragment_prefetch), 0, first)
        self.b = MmaOperand(g.b, i, self.threads, c.u, self.steps, bool(c.fragment_prefetch), self.a.size, second)
        self.operands = (self.a, self.b)
        self.repacked = tuple(x for x in self.operands if x.copied)
        seen = operand_packing.inside(self.problem, c.operand_path)
        for x, ld in ((self.a, seen.lda), (self.b, seen.ldb)):
            x.many = x.many and x.near(ld)
        self._copies()
        self.copy_a, self.copy_b = (f"copy/{'cp_async' if x.asynchronous else 'ldg_sts'}.mako" for x in self.operands)
        self.asynchronous = self.a.asynchronous or self.b.asynchronous
        self.hold = bool(c.deferred_sts) and not (self.a.asynchronous and self.b.asynchronous)
        self.predicated = c.bounds == BOUNDS_PREDICATE
        self.log2_group, self.log2_across = log2(self.group), log2(self.b.warps)
        #: rounds f32 to tf32, from sm_90 on in one instruction
        self.rounding = ""
        if self.problem.compute == "tf32":
            self.rounding = "cvt.rn.tf32.f32" if self.device.sm >= 90 else "cvt.rna.tf32.f32"
        self._accumulators()

    def _copies(self) -> None:
        """The pass that copies operands, 16 bytes a thread."""
        size = self.element_in = self.problem.element.bytes
        self.chunk = 16 // size
        #: elements on their way, and the words that they make
        self.moved = Tile("m", f"b{8 * max(size, 2)}", (self.chunk,))
        self.packed_words = Tile("w", "b32", (4,))
        step = 2 if size == 2 else 4  # elements of a word, of which the first holds two bytes where they are bytes
        self.joined: list[tuple[str, str]] = (
            []
            if size > 2
            else [
                (self.packed_words[n], braces([self.moved[n * step], self.moved[n * step + step // 2]]))
                for n in range(4)
            ]
        )
        self.copied_kind = "v2.b64" if size == 8 else "v4.b32"
        whole = self.moved if size > 2 else self.packed_words
        self.copied = whole.vector(0, n=whole.size)

    @property
    def parameters(self) -> list[str]:
        lines = super().parameters
        places = ", ".join(f".param .u32 at_{x.name}" for x in self.repacked)
        return [*lines[:-1], f"{lines[-1]},", places] if places else lines

    @property
    def repack_parameters(self) -> list[str]:
        """The parameters of the pass that copies operands."""
        names = ("rows", "columns", "ld", "pitch"), ("filled", "at", *(("each", "items") if self.batched else ()))
        lines = [", ".join(f".param .u32 {n}_{x.name}" for n in part) for x in self.repacked for part in names]
        first = [".param .u64 by_a, .param .u64 by_b, .param .u32 first_item,"] if self.batched else []
        return [*first, *(f"{line}," for line in lines[:-1]), *lines[-1:]]

    def _run(self, problem: KernelGemm, run: Run) -> Launch:
        made = super()._run(operand_packing.inside(problem, self.config.operand_path), run)
        if not self.repacked:
            return made
        # copies lie behind what slices leave in the workspace
        end = ceil_div(made.workspace, operand_packing.ROW)
        places: list[Argument] = []
        facts: list[Argument] = []
        chunks = 0
        for x in self.repacked:
            copy = operand_packing.copy_of(problem, x.name)
            each, items = copy.bytes // operand_packing.ROW, operand_packing.copied_items(problem, x.name, run.items)
            numbers = (copy.rows, copy.columns, copy.ld, copy.pitch, copy.filled, end)
            facts += [("u32", n) for n in (*numbers, *((each, items) if self.batched else ()))]
            places.append(("u32", end))
            end += each * items
            chunks = max(chunks, copy.filled * copy.pitch // self.chunk)
        if self.batched:
            facts = [*(("u64", n) for n in problem.offsets[:2]), ("u32", run.first), *facts]
        grid = (max(ceil_div(chunks, self.PASS_THREADS), 1), len(self.repacked), run.items)
        pointers: tuple[Argument, ...] = (("u64", "A"), ("u64", "B"), ("u64", "C"), ("u64", "W"))
        first = Step(
            f"{self.entry}_repack", grid, (self.PASS_THREADS, 1, 1), 0, (*pointers, *self._arrays(problem), *facts)
        )
        rest = tuple(replace(s, arguments=(*s.arguments, *places)) if s.entry == self.entry else s for s in made.steps)
        return Launch((first, *rest), end * operand_packing.ROW)

    def _accumulators(self) -> None:
        i, c = self.instruction, self.config
        self.acc = Tile("acc", i.sum, (self.a.tiles, self.b.tiles, i.sums))
        self.packed = i.sums == 2
        #: rows and columns of C that a lane holds
        self.ms, self.ns = len(self.a.held), len(self.b.held)
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
                share = ins.sums // halves
                sums = [self.acc[i, j, h * share + n] for n in range(share)]
                out.append((braced(sums), braced(rows), braced(columns)))
        return out

    def sum_at(self, i: int, j: int) -> str:
        """The accumulator of row ``i`` and column ``j`` of what a lane holds (of two columns where sums are packed)."""
        (_, tile_m, low), (_, tile_n, right) = self.a.held[i], self.b.held[j]
        return self.acc[tile_m, tile_n, low if self.packed else 2 * low + right]

    @property
    def contiguous(self) -> int:
        return int(2 * self.b.together)

    @property
    def tiles(self) -> list[tuple[Tile, str]]:
        out = [(self.acc, "sums: tile along M, along N, and what a lane holds of 16 x 8")]
        for x in self.operands:
            name = x.name.upper()
            out.append((x.fragment, f"fragments of {name}: buffer, tile, register"))
            if x.raw:
                out.append((x.raw, f"fragments of {name}, two tiles mixed"))
            out.append((x.readers, f"where this lane reads {name} in shared memory"))
            if not x.asynchronous:
                out.append((x.staging, f"{name} on its way from global to shared memory"))
        return out


def braced(names: list[str]) -> str:
    """An operand of mma: in braces, be it one register."""
    return braces(names) if len(names) > 1 else "{" + names[0] + "}"
