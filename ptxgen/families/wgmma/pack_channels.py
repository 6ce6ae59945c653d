"""Plans of wgmma kernels on images that do not lie as TMA walks over them: a pass copies images, or what is beside
them, to rows of channels in the workspace first."""

from __future__ import annotations

from dataclasses import replace

from ptxgen.codegen.config import Config
from ptxgen.codegen.plan import PASS_THREADS, Run
from ptxgen.codegen.registers import Tile, width
from ptxgen.codegen.source import Argument, Launch, Step, TensorMap
from ptxgen.families.wgmma.im2col_plan import GradientPlan, TurnedGradientPlan, WindowPlan
from ptxgen.families.wgmma.layout import Operand
from ptxgen.families.wgmma.operand_packing import ROW, copy_bytes
from ptxgen.families.wgmma.pack_rows import placed
from ptxgen.lowering.im2col_descriptor import Copy, Window
from ptxgen.lowering.kernel_gemm import KernelGemm

WORD = 4  #: bytes of shared memory that a thread writes at once
TILE = 2048  #: words that a block copies
WORDS = (8, 16, 32)  #: of channels that these are of
CHUNK = 16  #: bytes that a thread stores at once


class Arrangement:
    """The numbers of the pass over an operand whose elements have ``size`` bytes: a block takes ``words`` of channels
    of ``columns`` places. Places lie ``pitch`` words apart in shared memory, so that neither side meets in a bank."""

    THREADS, CHUNK, WORD, ROW = PASS_THREADS, CHUNK, WORD, ROW
    #: of a copy: channels and elements between them, places, their digits, by how many elements and rows each moves
    NAMES = (
        "depth",
        "step",
        "places",
        "middle",
        "inner",
        "far",
        "mid",
        "near",
        "over",
        "between",
        "next",
        "row",
        "at",
        "tiles",
    )

    def __init__(self, name: str, copy: Copy, size: int) -> None:
        self.name, self.size, self.vec, self.straight = name, size, copy.vec, copy.straight
        #: elements of a word
        self.per = WORD // size
        self.words = next((w for w in WORDS if w * self.per >= copy.depth), WORDS[-1])
        self.columns, self.pitch = TILE // self.words, self.words + 1
        #: threads side by side in what is loaded, and what their number counts on from one row of them to the next
        self.across = self.words if self.straight else self.columns // self.vec
        self.down = PASS_THREADS // self.across
        self.rounds = TILE // self.vec // PASS_THREADS
        #: chunks of a place, and places that are stored at once
        self.chunks = self.words * WORD // CHUNK
        self.stored = PASS_THREADS // self.chunks
        self.bytes = WORD * self.columns * self.pitch
        halves = self.vec * size < WORD
        loaded = 1 if halves else self.vec * size // WORD
        self.got = Tile(f"{name}", "b16" if halves else "b32", (self.rounds, self.per, loaded))
        self.load = "b16" if halves else width(loaded, "b32")

    @property
    def parameters(self) -> list[str]:
        """Of the launch: numbers of the copy, and where it lies."""
        return [f"{n}_{self.name}" for n in self.NAMES]

    def numbers(self, copy: Copy, at: int) -> tuple[int, ...]:
        return (
            copy.depth,
            copy.step,
            copy.places,
            copy.extents[1],
            copy.extents[2],
            *copy.steps,
            *copy.rows,
            copy.pitch * self.size,
            at // ROW,
            self.tiles(copy),
        )

    def tiles(self, copy: Copy) -> int:
        """Of channels."""
        return -(-copy.pitch // (self.words * self.per))

    def blocks(self, copy: Copy) -> int:
        return self.tiles(copy) * -(-copy.places // self.columns)

    def words_of(self, r: int) -> list[tuple[str, str, int]]:
        """The words of a round: the registers that hold its halves (or the word, twice), how they are put together,
        places from the first."""
        out = []
        for q in range(self.vec):
            if self.size == WORD:
                out.append((self.got[r, 0, q], "", q))
            elif self.vec == 1:
                out.append((f"{{{self.got[r, 0, 0]}, {self.got[r, 1, 0]}}}", "", 0))
            else:
                pair = f"{self.got[r, 0, q // 2]}, {self.got[r, 1, q // 2]}"
                out.append((pair, "0x7632" if q % 2 else "0x5410", q))
        return out


class ArrangedPlan(WindowPlan):
    """What is copied is found in the workspace: of the forward product, and of the gradient of images where the stride
    is one."""

    before = "copy/pack_channels.mako"

    def _operands(self) -> None:
        super()._operands()
        size = self.problem.element.bytes
        copies = [(name, self.walked.copy(name)) for name in "ab"]
        self.arranged = [Arrangement(name, copy, size) for name, copy in copies if copy is not None]

    @property
    def arranging_parameters(self) -> list[str]:
        """The parameters of the pass, beside addresses, in lines."""
        first = [".param .u32 blocks_a,"] * (len(self.arranged) > 1)
        lines = [", ".join(f".param .u32 {name}" for name in x.parameters) for x in self.arranged]
        return [*first, *(f"{line}," for line in lines[:-1]), lines[-1]]

    @property
    def accesses(self) -> str:
        names = " and ".join(x.name.upper() for x in self.arranged)
        return f"{super().accesses}; a pass copies {names} to rows of channels first"

    # ---- launching

    def _source(self, p: KernelGemm, x: Operand, kind: str) -> TensorMap:
        made = super()._source(p, x, kind)
        return replace(made, operand="W") if self._copy(p, x.name) else made

    @staticmethod
    def _copy(p: KernelGemm, name: str) -> Copy | None:
        return p.window.copy(name) if p.window is not None else None

    def _run(self, problem: KernelGemm, run: Run) -> Launch:
        made = super()._run(problem, run)
        # copies lie behind what slices leave in the workspace
        at, end = {}, -(-made.workspace // ROW) * ROW
        facts: list[int] = []
        blocks: list[int] = []
        for x in self.arranged:
            copy = self._copy(problem, x.name)
            assert copy is not None
            facts += x.numbers(copy, end)
            blocks.append(x.blocks(copy))
            at[x.name], end = end, end + copy_bytes(problem, copy)
        pointers: tuple[Argument, ...] = (("u64", "A"), ("u64", "B"), ("u64", "C"), ("u64", "W"))
        first = blocks[:1] if len(blocks) > 1 else []
        arguments = (*pointers, *self._arrays(problem), *(("u32", n) for n in (*first, *facts)))
        shared = max(x.bytes for x in self.arranged)
        copying = Step(f"{self.entry}_arrange", (sum(blocks), 1, 1), (PASS_THREADS, 1, 1), shared, arguments)
        places = [at[x.name] for x in (self.x, self.y) if x.name in at]
        return Launch((copying, *placed(made.steps, places)), end)


class ArrangedGradientPlan(ArrangedPlan, GradientPlan):
    """The gradient of filters."""


def plan_of(images: Window, config: Config) -> type[WindowPlan]:
    """The kind of plan that computes with images, as they lie, on their side of the product."""
    if any(images.copies):
        return ArrangedGradientPlan if images.summed else ArrangedPlan
    if not images.summed:
        return WindowPlan
    return TurnedGradientPlan if config.operand_path else GradientPlan
