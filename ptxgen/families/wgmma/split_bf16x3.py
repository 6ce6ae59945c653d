"""The plan of a wgmma kernel that multiplies f32 in planes of bf16, which a pass makes of the operands first."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from ptxgen.codegen.plan import Run
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.source import Argument, Launch, Step, TensorMap
from ptxgen.codegen.vectorized import ceil_div
from ptxgen.families.wgmma import bf16x3
from ptxgen.families.wgmma.geometry import STEP
from ptxgen.families.wgmma.layout import Box, Operand, Product, Shared
from ptxgen.families.wgmma.plan import WgmmaPlan
from ptxgen.lowering.kernel_gemm import KernelGemm


class Planes(Operand):
    """Planes of an operand, one behind the other in a stage: the last direction of their tensor."""

    def settle(self) -> None:
        """Every box as often as there are planes."""
        #: bytes from one plane to the next
        self.plane = self.tile * self.depth * self.element
        self.boxes = [
            Box(i * self.plane + b.offset, b.inner, b.unit, f", {i}") for i in range(bf16x3.PLANES) for b in self.boxes
        ]
        self.rank += 1
        self.loaded *= bf16x3.PLANES


class PartingPlan(WgmmaPlan):
    """Six products of planes a stage, summed there; the sums of stages are added outside the tensor cores."""

    before, sums = "addr/split_bf16x3.mako", "math/two_level_accumulate.mako"
    PARTING = bf16x3  #: the numbers of the pass
    item_number = "%item"  #: planes are the launch's own
    x: Planes
    y: Planes

    def _operand(self, role: str, name: str, base: int, shared: Shared | None) -> Operand:
        x = Planes(role, name, self.geometry, self.config, base, shared)
        x.settle()
        return x

    def _products(self) -> list[Product]:
        """Over all of a stage's K, pair of planes by pair."""
        steps = self.config.u * bf16x3.FACTOR_BYTES // STEP
        return [
            Product(
                m,
                self.x.step(k) + m * self.x.part + i * self.x.plane >> 4,
                self.y.step(k) + j * self.y.plane >> 4,
                str(int(n + k > 0)),
            )
            for n, (i, j) in enumerate(bf16x3.PAIRS)
            for k in range(steps)
            for m in range(self.mi)
        ]

    def _instruction(self) -> None:
        self.instruction = f"m64n{self.y_tile}k{STEP // bf16x3.FACTOR_BYTES}.f32.bf16.bf16"
        self.modes = ", 1, 1, 0, 0"

    def _schedule(self) -> None:
        super()._schedule()
        self.frees_last = False  # the last stage is freed like the others

    def _sums(self) -> None:
        super()._sums()
        self.into = Tile("pass", self.sum, self.acc.shape)

    @property
    def tiles(self) -> list[tuple[Tile, str]]:
        return [*super().tiles, (self.into, "sums of one pass")]

    # ---- the pass

    @property
    def parted(self) -> list[SimpleNamespace]:
        """The operands as the pass takes them."""
        return [bf16x3.parted(self.problem, name) for name in "ab"]

    @property
    def parting_parameters(self) -> list[str]:
        """The parameters of the pass, beside addresses, in lines."""
        names = ("rows", "ld", "at", *(("each", "items") if self.batched else ()))
        lines = [", ".join(f".param .u32 {n}_{x}" for n in names) for x in "ab"]
        items = [".param .u64 by_a, .param .u64 by_b, .param .u32 first_item,"] if self.batched else []
        return [".param .u32 K, .param .u32 pitch, .param .u32 blocks_a,", *items, f"{lines[0]},", lines[1]]

    # ---- launching

    def _source(self, p: KernelGemm, x: Operand, kind: str) -> TensorMap:
        return self._tensor_of(p, x, p.batch, 0)

    def _tensor_of(self, p: KernelGemm, x: Operand, items: int, at: int) -> TensorMap:
        """The map of the planes of so many items, which begin ``at`` bytes into the workspace. Without K, of zeros."""
        o, own = bf16x3.parted(p, x.name), bf16x3.own_items(p, x.name, items)
        pitch, plane = o.pitch * bf16x3.FACTOR_BYTES, o.bytes // bf16x3.PLANES
        extents = (p.k, o.rows) if p.k else (1, 1)
        more, apart, one = ((own,), (o.bytes,), (1,)) if self.batched else ((), (), ())
        return TensorMap(
            "W", "bf16", (*extents, *more, bf16x3.PLANES), (pitch, *apart, plane), (*x.box, *one, 1), x.span, offset=at
        )

    def _run(self, problem: KernelGemm, run: Run) -> Launch:
        made = super()._run(problem, run)
        if problem.k == 0:
            return made
        # planes lie behind what slices leave in the workspace
        at, end = {}, ceil_div(made.workspace, bf16x3.ROW) * bf16x3.ROW
        for name in "ab":
            at[name] = end
            end += bf16x3.all_bytes(problem, name, run.items)
        maps = iter([self._tensor_of(problem, x, run.items, at[x.name]) for x in (self.x, self.y)])
        settled = []
        for step in made.steps:
            given = ((kind, v, isinstance(v, TensorMap) and v.operand == "W") for kind, v in step.arguments)
            settled.append(replace(step, arguments=tuple((kind, next(maps) if ours else v) for kind, v, ours in given)))
        return Launch((self._parting(problem, run, at), *settled), end)

    def _parting(self, p: KernelGemm, run: Run, at: dict[str, int]) -> Step:
        """The launch of the pass."""
        operands = [bf16x3.parted(p, name) for name in "ab"]
        blocks = [ceil_div(o.rows, bf16x3.BLOCK_ROWS) * o.pitch // bf16x3.BLOCK_K for o in operands]
        facts: list[Argument] = [("u32", p.k), ("u32", operands[0].pitch), ("u32", blocks[0])]
        if self.batched:
            facts += [("u64", p.offsets[0]), ("u64", p.offsets[1]), ("u32", run.first)]
        for o in operands:
            facts += [("u32", n) for n in (o.rows, o.ld, at[o.name] // bf16x3.ROW)]
            if self.batched:
                facts += [("u32", o.bytes // bf16x3.ROW), ("u32", bf16x3.own_items(p, o.name, run.items))]
        pointers: tuple[Argument, ...] = (("u64", "A"), ("u64", "B"), ("u64", "C"), ("u64", "W"))
        shared = 4 * bf16x3.BLOCK_ROWS * bf16x3.BLOCK_PITCH
        return Step(
            f"{self.entry}_part",
            (sum(blocks), 1, run.items),
            (bf16x3.THREADS, 1, 1),
            shared,
            (*pointers, *self._arrays(p), *facts),
        )
