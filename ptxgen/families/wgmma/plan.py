"""The plan of a wgmma kernel."""

from __future__ import annotations

from functools import cached_property

from ptxgen.codegen.config import SPLIT_POLL, SPLIT_SHARE
from ptxgen.codegen.plan import Run
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.source import Argument, Launch, Step, TensorMap
from ptxgen.codegen.vectorized import WARP
from ptxgen.cuda_abi import GRID_LIMIT
from ptxgen.families.wgmma.epilogue import LeavingPlan
from ptxgen.families.wgmma.geometry import COLUMNS, ROWS, STEP, WARPGROUP, batch, length, owners, together
from ptxgen.families.wgmma.layout import ADDRESS_MASK, Operand, Product, Shared, Slot, batches, products
from ptxgen.families.wgmma.operand_packing import RESIDUES, lies
from ptxgen.families.wgmma.rs_fragments import BYTES, PLAIN, PLAIN_NEXT, WORDS, Fragments, Term
from ptxgen.families.wgmma.smem_realign import AT_ONCE, Lying
from ptxgen.lowering.kernel_gemm import KernelGemm

TILES_LIMIT = (1 << 31) - 1  #: that a walk counts
GROUP_BYTES = 16 * WARPGROUP  #: of a warpgroup's sums of 8 columns


class WgmmaPlan(LeavingPlan):
    """A warp copies by TMA, one or two warpgroups multiply; a warpgroup has 64-row tiles of C in registers."""

    kernel = "kernel/warp_specialized.mako"
    shared_aligned = 1024
    ADDRESS_MASK = ADDRESS_MASK
    #: how operands are found along K, and units of it in a stage: parts that are found each for itself
    addr, units = "addr/tensormap.mako", 1
    #: what is done to operands first, and what becomes of the sums of a pass over K
    before, sums = "addr/no_packing.mako", "math/accumulate_inplace.mako"
    math = "math/wgmma.mako"
    #: the register that counts items as the operands' tensors do
    item_number = "%number"

    # ---- operands and products

    def _operands(self) -> None:
        c, g = self.config, self.geometry
        self.target = f"{self.device.target}a"
        self.swapped = bool(c.transposed_mma)
        self.wg, self.mi, self.cluster, self.yc, self.kc = (
            c.math_warpgroups,
            int(g.mi),
            c.cluster_x,
            c.cluster_y,
            c.cluster_k,
        )
        #: blocks of a cluster that load for each other, and whether those are not in one line
        self.sharing, self.crossed = c.cluster_x * c.cluster_y, c.cluster_x > 1 and c.cluster_y > 1
        self.clustered = self.sharing * c.cluster_k > 1
        self.pingpong = bool(c.pingpong)
        names = "ba" if self.swapped else "ab"
        of_x, of_y = Shared.of(c.cluster_x, c.cluster_y)
        self.x = self._operand("x", names[0], 0, of_x)
        self.y = self._operand("y", names[1], int(g.x_bytes), of_y)
        #: operands that come as they lie, the thread that shifts some of each, and what it has of them
        self.lying = [x for x in (self.x, self.y) if isinstance(x, Lying)]
        self.mover, self.movers = ("%member", 1) if self.pingpong else ("%thread", c.math_warpgroups)
        self.batches_moved = batches([(x, m) for x in self.lying for m in x.moves], AT_ONCE)
        self.moved = Tile("moved", "b32", (2, 2, AT_ONCE))
        #: the slot of what is free once a stage is multiplied: the one that it was multiplied from
        self.freed = "%beneath_slot" if self.lying else "%slot"
        self.brought = "copy/smem_realign.mako" if self.lying else "copy/no_realign.mako"
        self._tensors()
        self.hinted = c.l2_evict_first > 0
        #: where in shared memory this block's part of Y goes
        self.y_to = "%y_to" if self.units > 1 and self.cluster > 1 else "%to"
        self.x_tile, self.y_tile = int(g.x_tile), int(g.y_tile)
        self.x_extent, self.y_extent = ("%N", "%M") if self.swapped else ("%M", "%N")
        self.stage_bytes, self.expected = int(g.stage), self.x.loaded * c.cluster_y + self.y.loaded * c.cluster_x
        self.products = self._products()
        #: elements along X, and bytes in shared memory, from one warpgroup's rows to the next's
        self.x_own = 0 if self.pingpong else self.mi * ROWS
        repeated = not self.x.kmajor and self.x.box[0] < ROWS
        self.x_part = 0 if self.pingpong or repeated else self.mi * self.x.part
        #: a thread's first row of 64, by bits of its number in the warpgroup, and how far its second is
        self.row_terms: tuple[Term, ...] = PLAIN
        self.row_next = PLAIN_NEXT
        self.fed = bool(g.fed)
        if self.fed:
            self._feed()
        self._instruction()
        self._schedule()
        self._sums()

    def _feed(self) -> None:
        """X comes from registers."""
        self.fragments = f = Fragments(int(self.geometry.size), self.mi, self.x.span, self.x.depth)
        self.math = self.sums = "math/wgmma_rs.mako"
        self.row_terms, self.row_next = WORDS if f.words else BYTES, 1
        self.x_part = 0 if self.pingpong else self.mi * ROWS // f.inner * f.box

    def _products(self) -> list[Product]:
        return products(self.x, self.y, self.mi)

    def _operand(self, role: str, name: str, base: int, shared: Shared | None) -> Operand:
        if lies(self.config, name):
            movers = WARPGROUP * (1 if self.pingpong else self.wg)
            return Lying(role, name, self.geometry, self.config, base, movers)
        return Operand(role, name, self.geometry, self.config, base, shared)

    def _tensors(self) -> None:
        """Items are a third direction of the tensors, in which shared operands have but one."""
        names = [x.name for x in (self.x, self.y)] if self.batched else []
        #: registers that have an item's place in each, and the last place there is
        self.item_at, self.last_item = [f"%item_{n}" for n in names], [f"%last_{n}" for n in names]
        for x, register in zip((self.x, self.y), self.item_at, strict=False):
            x.item, x.rank = register, x.rank + 1

    def _instruction(self) -> None:
        p = self.problem
        kind = "tf32" if p.compute == "tf32" else p.dtype
        self.instruction = f"m64n{self.y_tile}k{STEP // p.element.bytes}.{p.accumulator}.{kind}.{kind}"
        major = f", {int(not self.x.kmajor)}, {int(not self.y.kmajor)}"
        self.modes = ", 1, 1" + (major if p.element.bytes == 2 else "") if not p.accumulator.integer else ""

    def _schedule(self) -> None:
        c, g = self.config, self.geometry
        self.sched = "sched/persistent.mako" if c.persistent else "sched/one_tile.mako"
        self.numbered = bool(c.persistent) or c.raster_group > 1
        #: the register that has a tile's number in its item
        self.tile_number = "%in_item" if self.batched and c.persistent else "%tile"
        self.slices_k = c.kg * c.cluster_k > 1
        self.producer_warp = 4 * c.math_warpgroups
        #: registers that warps that copy keep, and that the others then have; None: all have the same
        self.gives = (int(g.keeps), int(g.takes)) if g.gives else None
        #: arrivals that free a stage: one of each warpgroup (or warp, where these read) in each block that it goes to
        self.releases = (
            (1 if self.pingpong else c.math_warpgroups)
            * (c.cluster_x + c.cluster_y - 1)
            * (WARPGROUP // WARP if self.fed else 1)
        )
        self.reporter = "%lane" if self.fed else "%member"
        self.release_scope = "cluster" if self.sharing > 1 else "cta"
        self.frees_last = bool(c.persistent) or self.sharing > 1
        self.barriers = int(g.shared - g.barriers)
        self.empty_at, self.added_at, self.got_at = 8 * c.stages, 16 * c.stages, 16 * c.stages + 8
        #: sums from other blocks of the cluster are counted in bytes, else a barrier of the cluster follows them
        self.counted = c.cluster_k > 1 and not c.dsmem_completion
        self.more_barriers = [(self.added_at, 1)] if self.counted else []
        #: the residual comes into the memory that C leaves through: before the products where that is free by then
        self.brings = bool(c.epilogue_smem) and "residual" in self.problem.stages
        self.brings_early = self.brings and not c.epilogue_aliases_ab and c.cluster_k * c.kg == 1
        #: of a warpgroup: for what C holds, then for each part of the residual that has memory of its own
        self.got_barriers = 1 + (c.epilogue_buffers if self.brings else 0)
        if c.epilogue_smem:
            self.more_barriers += [(self.got_at + 8 * n, 1) for n in range(c.math_warpgroups * self.got_barriers)]

    # ---- sums

    def _sums(self) -> None:
        c, g = self.config, self.geometry
        groups = self.y_tile // COLUMNS
        #: type of the registers of sums, which integers share with the f32 that they become; how parts are added
        self.held, self.join = ("b32", "add.s32") if self.converts else (self.sum, self.add)
        self.acc = Tile("acc", self.held, (self.mi, 4 * groups))
        #: what wgmma adds to
        self.packed = self.problem.accumulator.bytes == 2
        self.into = Tile("pair", "b32", (self.mi, 2 * groups)) if self.packed else self.acc
        #: what finished sums are in
        self.final = self.acc
        self.alone = bool(g.alone)
        self.cluster_owners = owners(groups, c.cluster_k)
        self.added_base, self.added_bytes = int(g.ring), int(g.added_used)
        if c.cluster_k > 1:
            groups //= self.cluster_owners
            self.part_wg = self.mi * groups * GROUP_BYTES
            self.sent = [self._share(owner, groups) for owner in range(self.cluster_owners)]
            if not self.alone:
                self.final = Tile("sum", self.held, (self.mi, 4 * groups))
            self.received = [
                Slot(sender * self.wg * self.part_wg + s.offset, s.into, sender == 0 and not self.alone)
                for sender in range(c.cluster_k - self.alone)
                for s in self._parts(self.final, groups)
            ]
        self.meets = c.kg > 1 and c.splitk in (SPLIT_POLL, SPLIT_SHARE)
        self.shares = self.meets and c.splitk == SPLIT_SHARE
        if self.meets:
            self._meeting(groups)
        self.finish = int(g.finish)

    def _parts(self, sums: Tile, groups: int) -> list[Slot]:
        """The groups of a tile of finished sums, as they lie in a workspace."""
        return [
            Slot((m * groups + j) * GROUP_BYTES, [sums[m, 4 * j + i] for i in range(4)], False)
            for m in range(self.mi)
            for j in range(groups)
        ]

    def _share(self, owner: int, groups: int) -> list[Slot]:
        """The accumulators that ``owner`` finishes, at their places in its part."""
        return [
            Slot(s.offset, [self.acc[m, 4 * (owner * groups + j) + i] for i in range(4)], False)
            for s, (m, j) in zip(
                self._parts(Tile("none", self.held, (self.mi, 4 * groups)), groups),
                [(m, j) for m in range(self.mi) for j in range(groups)],
                strict=True,
            )
        ]

    def _meeting(self, groups: int) -> None:
        c = self.config
        self.owners = int(self.geometry.own) if self.shares else 1
        groups //= self.owners
        self.part_wg = self.mi * groups * GROUP_BYTES
        self.part = self.wg * self.part_wg
        #: bits of a sum that are inverted in the workspace
        self.inverted = 0x80000000 if self.problem.accumulator.integer else 0xFFFFFFFF
        self.meet_bytes = self.owners * c.kg * self.part
        if self.shares:
            self.left = [
                Slot(owner * c.kg * self.part + s.offset, s.into, False)
                for owner in range(self.owners)
                for s in self._share(owner, groups)
            ]
            self.final = Tile("sum", self.held, (self.mi, 4 * groups))
        else:
            self.left = self._parts(self.final, groups)
        slots = [
            Slot(z * self.part + s.offset, s.into, self.shares and z == 0)
            for z in range(c.kg if self.shares else c.kg - 1)
            for s in self._parts(self.final, groups)
        ]
        self.batch = batch(self.acc.size)
        self.batches = batches(slots, self.batch)

    # ---- launching

    @property
    def maps(self) -> list[str]:
        leaving = ["map_c"] if self.config.epilogue_smem and self.boxed else []
        return ["map_x", "map_y", *leaving, *(["map_residual"] if self.brings else [])]

    @property
    def item_parameters(self) -> list[str]:
        """As other families, but for the last places along items of tensors A and B in place of their offsets."""
        if not self.batched:
            return []
        return [".param .u64 by_c, .param .u32 first_item, .param .u32 items, .param .u32 last_a, .param .u32 last_b,"]

    def _items(self, problem: KernelGemm, run: Run) -> tuple[Argument, ...]:
        if not self.batched:
            return ()
        last = [problem.batch - 1 if offset else 0 for offset in problem.offsets[:2]]
        numbers = (run.first, run.items, *last)
        return (("u64", problem.offsets[2]), *(("u32", n) for n in numbers))

    @property
    def parameters(self) -> list[str]:
        return [
            *([".param .u64 A, .param .u64 B,"] if self.lying else []),
            ".param .u64 C, .param .u64 W,",
            *self.array_parameters,
            *self.item_parameters,
            *([".param .u32 lda, .param .u32 ldb,"] if self.lying else []),
            ".param .u32 M, .param .u32 N, .param .u32 K, .param .u32 ldc, .param .u32 chunk, .param .u32 more,",
            f".param .{self.sum} alpha, .param .{self.sum} beta,",
            *self.more_parameters,
            ", ".join(f".param .align 64 .b8 {n}[{128 * self._count(n)}]" for n in self.maps),
        ]

    @property
    def directives(self) -> list[str]:
        across, down = (self.sharing, 1) if self.numbered else (self.cluster * self.kc, self.yc)
        cluster = [".explicitcluster", f".reqnctapercluster {across}, {down}, 1"] if self.clustered else []
        return [*cluster, *super().directives]

    def items_limit(self, problem: KernelGemm) -> int:
        c = self.config
        return TILES_LIMIT // self._tiles(problem)[2] if c.persistent else GRID_LIMIT // c.kg

    def _tiles(self, problem: KernelGemm) -> tuple[int, int, int]:
        """Blocks along X and Y of one item, whole clusters of them, and their product."""
        m, n = (problem.n, problem.m) if self.swapped else (problem.m, problem.n)
        across = -(-m // (self.x_tile * self.cluster)) * self.cluster
        down = -(-n // (self.y_tile * self.yc)) * self.yc
        return across, down, across * down

    def _run(self, problem: KernelGemm, run: Run) -> Launch:
        c = self.config
        across, down, tiles = self._tiles(problem)
        slices, z = c.kg * c.cluster_k, c.kg * run.items
        chunk, more = divmod(max(-(-int(length(problem, c)) // c.u), 1), slices)
        grid = (tiles, 1, z) if self.numbered else (across * self.kc, down, z)
        if c.persistent:
            grid = (min(int(together(self.device, c)), tiles * run.items), 1, 1)
        arguments: tuple[Argument, ...] = (
            *((("u64", "A"), ("u64", "B")) if self.lying else ()),
            ("u64", "C"),
            ("u64", "W"),
            *self._arrays(problem),
            *self._items(problem, run),
            *((("u32", problem.lda), ("u32", problem.ldb)) if self.lying else ()),
            ("u32", problem.m),
            ("u32", problem.n),
            ("u32", problem.k),
            ("u32", problem.ldc),
            ("u32", chunk),
            ("u32", more),
            (self.sum, "alpha"),
            (self.sum, "beta"),
            *self._numbers(problem),
            *(("map", each) for name in self.maps for each in self._maps(problem, name)),
        )
        main = Step(self.entry, grid, (self.threads, 1, 1), self.shared, arguments)
        if self.cleared:
            return Launch((self._pass("scale", problem, run, ()), main))
        if self.partial:
            size = c.kg * run.items * problem.m * problem.n * self.sum_bytes
            return Launch((main, self._pass("reduce", problem, run, (("u32", c.kg),))), size)
        if self.meets:
            return Launch((main,), tiles * run.items * self.kc * self.meet_bytes, zeroed=True)
        # where K is zero, the operands are zeros that W has
        return Launch((main,), 0 if problem.k else 1, zeroed=not problem.k)

    #: what the kernel takes beside a product's extents, in lines
    more_parameters: tuple[str, ...] = ()

    def _numbers(self, problem: KernelGemm) -> tuple[Argument, ...]:
        """Their values."""
        return ()

    def _count(self, name: str) -> int:
        """Maps of an operand."""
        return RESIDUES if any(name == f"map_{x.role}" for x in self.lying) else 1

    def _maps(self, p: KernelGemm, name: str) -> list[TensorMap]:
        for x in self.lying:
            if name == f"map_{x.role}":
                return x.maps(p, p.dtype, self._stored(p, x.name))
        return [self._map(p, name)]

    def _map(self, p: KernelGemm, name: str) -> TensorMap:
        if name in ("map_c", "map_residual"):
            operand, place = "C" if name == "map_c" else "residual", (p.n, p.m, p.ldc, p.offsets[2])
            return self._tensor(p, operand, p.out, place, p.output.bytes, self.staging.box, self.staging.span)
        x = self.x if name == "map_x" else self.y
        return self._source(p, x, "tf32" if p.compute == "tf32" else p.element.tma)

    def _source(self, p: KernelGemm, x: Operand, kind: str) -> TensorMap:
        """The map of an operand, its elements of type ``kind``."""
        size = p.element.bytes
        if p.k == 0:
            return self._tensor(p, "W", kind, (16, 1, 16, 0), size, x.box, x.span)
        return self._tensor(p, x.name.upper(), kind, self._stored(p, x.name), size, x.box, x.span)

    @staticmethod
    def _stored(p: KernelGemm, name: str) -> tuple[int, int, int, int]:
        """Where an operand is: columns, rows, leading dimension, bytes to the next item's."""
        if name == "a":
            return p.columns_a, p.rows_a, p.lda, p.offsets[0]
        return p.columns_b, p.rows_b, p.ldb, p.offsets[1]

    def _tensor(
        self,
        p: KernelGemm,
        operand: str,
        kind: str,
        place: tuple[int, int, int, int],
        size: int,
        box: tuple[int, ...],
        span: int,
        at: int = 0,
    ) -> TensorMap:
        """The map of a matrix with (columns, rows, leading dimension, bytes to the next item's) of one item's."""
        columns, rows, ld, item = place
        extents, pitches = (columns, rows), (_pitch(columns, ld, rows, size),)
        if not self.batched:
            return TensorMap(operand, kind, extents, pitches, box, span, offset=at)
        items = p.batch if item else 1
        return TensorMap(operand, kind, (*extents, items), (*pitches, item or 16), (*box, 1), span, offset=at)

    # ---- what a reader is told

    #: in what C leaves where TMA does not store it
    lines_leave = "words, a line a warp"

    @property
    def accesses(self) -> str:
        c = f"{self.vec_c} elements"
        if self.config.epilogue_smem:
            c = "boxes of {} x {}".format(*self.staging.box) if self.boxed else self.lines_leave
        return f"TMA brings boxes of {self._box('a')} elements of A, {self._box('b')} of B; C leaves in {c}"

    def _box(self, name: str) -> str:
        x = self.x if self.x.name == name else self.y
        return f"{x.box[0]} x {x.box[1]}"

    @property
    def grid(self) -> str:
        if self.config.persistent:
            return "(multiprocessors, 1, 1)"
        tiles = f"tiles of {self.x_extent[1:]}" + (f" x {self.kc}" if self.kc > 1 else "")
        last = "items of all slices" if self.batched else "slices"
        return f"({tiles}, tiles of {self.y_extent[1:]}, {last})" if not self.numbered else f"(tiles, 1, {last})"

    @cached_property
    def shared_map(self) -> list[str]:
        x, y = self.x, self.y
        lines = [
            f"{self.stages} stages of {self.stage_bytes} bytes: {x.name.upper()} at 0 ({x.span}-byte swizzle),"
            f" {y.name.upper()} at {y.base} ({y.span})"
        ]
        if self.kc > 1:
            lines.append(f"{self.added_base}: sums of the cluster's other blocks, {self.added_bytes} bytes")
        if self.config.epilogue_smem:
            parts = len(self.staging.chunks)
            lines.append(f"{self.staging_at}: C, {self.staging.buffers} of {parts} parts a warpgroup")
        lines.append(f"{self.barriers}: barriers: full, empty, sums, C")
        return lines

    @property
    def tiles(self) -> list[tuple[Tile, str]]:
        out = [(self.acc, "sums: instruction along X, pairs of columns")]
        if self.packed:
            out.append((self.into, "the same in f16, while products are added"))
        if self.final is not self.acc:
            out.append((self.final, "sums that this block finishes"))
        return out


def _pitch(columns: int, ld: int, rows: int, size: int) -> int:
    """Bytes from one row to the next; a lone row has none, and any legal number will do."""
    return ld * size if rows > 1 else -(-columns * size // 16) * 16
