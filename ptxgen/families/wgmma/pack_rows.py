"""The plan of a wgmma kernel whose operands are copied first.

One pass copies all operands that TMA cannot map, 16 bytes a thread, to rows of whole 128 bytes; another transposes
each whose copy is to have K contiguous.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace

from ptxgen.codegen.plan import PASS_THREADS, Run
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.source import Argument, Launch, Step, TensorMap
from ptxgen.families.wgmma.layout import Operand
from ptxgen.families.wgmma.operand_packing import ROW, copied, copy_of, mapped, straight, turns
from ptxgen.families.wgmma.plan import WgmmaPlan
from ptxgen.families.wgmma.transpose_kernel import Transposition
from ptxgen.lowering.kernel_gemm import KernelGemm

CHUNK = 16  #: bytes that a thread copies at once
ROUNDS = 4  #: how often, where there are more than LARGE of them: many bytes are then under way
LARGE = 1 << 18


class Pitch:
    """The numbers of the straight copy of elements of ``size`` bytes."""

    THREADS, CHUNK, ROW, ROUNDS = PASS_THREADS, CHUNK, ROW, ROUNDS

    def __init__(self, size: int) -> None:
        self.size, self.bits = size, 8 * size
        #: elements of a chunk
        self.count = CHUNK // size
        #: two aligned chunks, and what is left of them after each halving of how far into them the wanted one begins
        self.got = Tile("w", "b32", (ROUNDS, 8))
        self.halved = Tile("h", "b32", (6,))
        self.quartered = Tile("q", "b32", (5,))
        self.put = Tile("o", "b32", (4,)) if size < 4 else self.quartered


class CopiedPlan(WgmmaPlan):
    """``pitched``: names of the operands that ``pitch`` copies; ``turned``: that ``transposition`` transposes, all
    items of them."""

    before = "copy/pack_kernels.mako"

    def _operands(self) -> None:
        super()._operands()
        mine = [name for name in "ab" if copied(self.config, name)]
        self.turned = [name for name in mine if turns(self.problem, name)]
        self.pitched = [name for name in mine if not (name in self.turned and mapped(self.problem, name))]
        size = self.problem.element.bytes
        self.transposition, self.pitch = Transposition(size), Pitch(size)

    @property
    def pitch_loads(self) -> list[tuple[str, str]]:
        """The numbers that the straight copy of an operand takes, beside its address: type and name."""
        return [
            ("u64", "bytes"),
            ("u64", "ld"),
            ("u32", "rows"),
            ("u32", "columns"),
            ("u32", "at"),
            ("u32", "stride"),
            *([("u64", "by"), ("u32", "items"), ("u64", "each")] if self.batched else []),
        ]

    @property
    def pitch_parameters(self) -> list[str]:
        """The parameters of the straight copy, beside addresses, in lines."""
        first = [".param .u32 blocks_a"] * (len(self.pitched) > 1) + [".param .u32 first_item"] * self.batched
        lines = [*first, *(", ".join(f".param .{kind} {n}_{x}" for kind, n in self.pitch_loads) for x in self.pitched)]
        return [*(f"{line}," for line in lines[:-1]), *lines[-1:]]

    # ---- launching

    def _source(self, p: KernelGemm, x: Operand, kind: str) -> TensorMap:
        if not copied(self.config, x.name) or p.k == 0:
            return super()._source(p, x, kind)
        return self._tensor(p, "W", kind, copy_of(p, x.name).place, p.element.bytes, x.box, x.span)

    def _run(self, problem: KernelGemm, run: Run) -> Launch:
        made = super()._run(problem, run)
        if problem.k == 0:
            return made
        # copies lie behind what slices leave in the workspace
        last, first, end = {}, {}, -(-made.workspace // ROW) * ROW
        for name in "ab":
            if copied(self.config, name):
                last[name] = end
                end += copy_of(problem, name).bytes
        for name in self.pitched:
            first[name] = end if name in self.turned else last[name]
            end += straight(problem, name).bytes if name in self.turned else 0
        passes = [self._pitching(problem, run, first)] if first else []
        passes += [self._turning(problem, run, name, first.get(name), last[name]) for name in self.turned]
        places = [last[x.name] for x in (self.x, self.y) if x.name in last]
        return Launch((*passes, *placed(made.steps, places)), end)

    def _pitching(self, p: KernelGemm, run: Run, at: dict[str, int]) -> Step:
        """The launch of the pass that copies as it is: of the run's items, or of the one that all share."""
        size = p.element.bytes
        copies = {name: straight(p, name) for name in self.pitched}
        chunks = [x.place[1] * -(-x.place[0] * size // CHUNK) for x in copies.values()]
        rounds = ROUNDS if sum(chunks) > LARGE else 1
        blocks = [-(-n // (PASS_THREADS * rounds)) for n in chunks]
        facts: list[Argument] = [("u32", blocks[0])] if len(blocks) > 1 else []
        if self.batched:
            facts.append(("u32", run.first))
        for (name, x), n in zip(copies.items(), blocks, strict=True):
            facts += self._copying(p, run, name, x, at[name], n * PASS_THREADS)
        pointers: tuple[Argument, ...] = (("u64", "A"), ("u64", "B"), ("u64", "C"), ("u64", "W"))
        grid = (sum(blocks), 1, run.items if any(x.items > 1 for x in copies.values()) else 1)
        return Step(f"{self.entry}_pitch", grid, (PASS_THREADS, 1, 1), 0, (*pointers, *self._arrays(p), *facts))

    def _copying(self, p: KernelGemm, run: Run, name: str, x: SimpleNamespace, at: int, stride: int) -> list[Argument]:
        columns, rows, _, apart = x.place
        _, _, ld, by = self._stored(p, name)
        size = p.element.bytes
        span = ((rows - 1) * ld + columns) * size
        out: list[Argument] = [("u64", span), ("u64", ld * size)]
        out += [("u32", n) for n in (rows, columns, at // ROW, stride)]
        if self.batched:
            out += [("u64", by), ("u32", run.items if apart else 1), ("u64", apart)]
        return out

    def _turning(self, p: KernelGemm, run: Run, name: str, source: int | None, at: int) -> Step:
        """The launch of the pass that transposes: of the run's items, or of the one that all share; ``source``: where
        in the workspace a copy of the operand is, if it is one."""
        t, copy, size = self.transposition, copy_of(p, name), p.element.bytes
        kind = "s32" if size == 4 else "u8"
        place = self._stored(p, name) if source is None else straight(p, name).place
        maps = (
            self._tensor(
                p, name.upper() if source is None else "W", kind, place, size, (t.side, t.DEPTH), t.ROW, source or 0
            ),
            self._tensor(p, "W", kind, copy.place, size, (t.side, t.side), t.ROW, at),
        )
        across, extent = -(-p.k // t.DEPTH), copy.place[1]
        first, items = (0, 1) if copy.items == 1 else (run.first, run.items)
        arguments: tuple[Argument, ...] = (
            ("u64", "C"),
            ("u64", "W"),
            *self._arrays(p),
            ("u32", across),
            ("u32", first),
            *(("map", m) for m in maps),
        )
        grid = (across * -(-extent // t.side), 1, items)
        return Step(f"{self.entry}_repack", grid, (t.threads, 1, 1), t.shared, arguments)


def placed(steps: Iterable[Step], places: Sequence[int]) -> Iterator[Step]:
    """Steps whose maps of what lies in the workspace find it: one after the other at ``places``, bytes from there."""
    left = iter(places)
    for step in steps:
        arguments = [
            (kind, replace(v, offset=next(left)) if isinstance(v, TensorMap) and v.operand == "W" else v)
            for kind, v in step.arguments
        ]
        yield replace(step, arguments=tuple(arguments))
