"""Plans of wgmma kernels on images: im2col maps bring windows of them, so that a convolution is a product of matrices
nobody has to write down."""

from __future__ import annotations

from functools import lru_cache

from ptxgen.codegen.source import Argument, TensorMap, Walk
from ptxgen.families.wgmma.layout import Box, Operand, Shared
from ptxgen.families.wgmma.operand_packing import TMA_ALIGNED
from ptxgen.families.wgmma.pack_rows import CopiedPlan
from ptxgen.families.wgmma.plan import WgmmaPlan
from ptxgen.lowering import implicit_gemm
from ptxgen.lowering.im2col_descriptor import Digits, Window
from ptxgen.lowering.kernel_gemm import KernelGemm

#: parameters of an axis of the images
PER_AXIS = ("places", "lower", "steps", "taps", "wide", "dilation")


class Side:
    """How rows, or columns, of C lie: ``parameters`` are what a kernel finds them by."""

    def __init__(self, name: str, digits: Digits) -> None:
        self.name, self.apart = name, len(digits) > 1
        self.parameters = (f"step_{name}", *([f"by_{name}", f"shift_{name}", f"hop_{name}"] if self.apart else []))


class Pixels(Operand):
    """Images whose rows are pixels, contiguous along K: units of channels of one tap."""

    def settle(self, plan: WindowPlan) -> None:
        axes = range(len(plan.walked.extents))
        self.mode, self.rank = "im2col", plan.walked.rank
        self.boxes = [Box(b.offset, 0, n) for n, b in enumerate(self.boxes)]
        self.pixel = "".join(f", %pixel{a}" for a in axes)
        self.operands = ", {" + ", ".join(f"%offset{a}" for a in axes) + "}" + self.operands

    def inner(self, b: Box, first: str) -> str:
        return "%c"

    def place(self, first: str) -> str:
        return f"%inner{self.pixel}, %image"


class Filters(Operand):
    """Filters, one after the other, each taps of channels: contiguous along K, or along the other side."""

    def settle(self, plan: WindowPlan) -> None:
        self.rank = 3
        self.tap = "%back" if plan.flipped else "%tap"
        units = range(plan.units)
        if self.kmajor:
            self.boxes = [Box(b.offset, 0, n) for n, b in enumerate(self.boxes)]
            self.box = (self.box[0], 1, self.box[1])
        else:
            part = plan.unit * self.span
            self.boxes = [Box(b.offset + n * part, b.inner, n) for n in units for b in self.boxes]
            self.box = (self.box[0], 1, plan.unit)

    def inner(self, b: Box, first: str) -> str:
        return "%c" if self.kmajor else first

    def place(self, first: str) -> str:
        return f"%inner, {self.tap}, {first if self.kmajor else '%c'}"


class Columns(Operand):
    """Images whose columns are taps of channels, contiguous, and whose rows, along K, are pixels."""

    def settle(self, plan: WindowPlan) -> None:
        self.axes = range(len(plan.walked.extents))
        self.mode, self.rank = "im2col", plan.walked.rank
        self.pixel = "".join(f", %pixel{a}" for a in self.axes)
        #: where each box begins, from the tile's first column
        self.columns = [b.inner for b in self.boxes]
        self.boxes = [Box(b.offset, 0) for b in self.boxes]

    def inner(self, b: Box, first: str) -> str:
        return f"%c{self.boxes.index(b)}"

    def place(self, first: str) -> str:
        return f"%inner{self.pixel}, %image"

    def behind(self, b: Box) -> str:
        offsets = ", ".join(f"%offset{self.boxes.index(b) * len(self.axes) + a}" for a in self.axes)
        return f", {{{offsets}}}{self.operands}"


class WindowPlan(WgmmaPlan):
    """What convolutions share; and the forward one, and the gradient of images where the stride is one."""

    addr = "addr/im2col.mako"
    #: of images, and of the other operand
    KINDS: tuple[type[Pixels | Columns], type[Operand]] = (Pixels, Filters)

    def _operands(self) -> None:
        images = self.problem.window
        assert images is not None
        self.walked, self.flipped = images, images.flipped
        self.unit = int(self.geometry.unit)
        self.units = self._units()
        self.axes = range(len(images.extents))
        super()._operands()
        self.images = self.x if isinstance(self.x, self.KINDS[0]) else self.y

    def _units(self) -> int:
        return self.config.u // self.unit

    def _operand(self, role: str, name: str, base: int, shared: Shared | None) -> Operand:
        x = self.KINDS[name != self.walked.side](role, name, self.geometry, self.config, base, shared)
        if isinstance(x, Pixels | Filters | Columns):
            x.settle(self)
        return x

    # ---- leaving

    def _leaving(self) -> None:
        super()._leaving()
        result = self.problem.window.result if self.problem.window else None
        #: how rows and columns of C lie, where it is no matrix
        self.sides = [Side(*x) for x in zip(("rows", "columns"), result, strict=True)] if result else []
        if self.sides:
            self.at_c = "epilogue/c_table.mako"
            self.at_out = "epilogue/c_strided.mako" if self.partial else self.at_c
            if self.config.epilogue_smem:
                self.boxes, self.lines_leave = "epilogue/scatter_smem.mako", "neighbours of many lines"
            elif not self.partial:
                self.leave = "epilogue/store_scatter.mako"
            #: whether two columns side by side are one access
            self.paired = self.problem.vectors[2] > 1

    @property
    def contiguous(self) -> int:
        return super().contiguous if self.walked.beside else 1

    # ---- launching

    @property
    def found_c(self) -> list[str]:
        return [".param .u64 rows_c, .param .u64 columns_c,"] if self.sides else []

    @staticmethod
    def _tables(problem: KernelGemm, operands: str) -> tuple[Argument, ...]:
        assert problem.window is not None
        return tuple(("table", t) for t in _tables_of(*problem.window.result)) if problem.window.result else ()

    @property
    def dividers(self) -> list[str]:
        """What the kernel divides by."""
        places = [f"places{a}" for a in self.axes]
        return places + (["each", *(f"taps{a}" for a in self.axes[:-1])] if self.slices_k else [])

    @property
    def more_parameters(self) -> tuple[str, ...]:  # type: ignore[override]
        lines = [("channels", "taps", "each"), *(tuple(f"{name}{a}" for name in PER_AXIS) for a in self.axes)]
        lines += [(f"by_{name}", f"shift_{name}") for name in self.dividers]
        lines += [side.parameters for side in self.sides]
        return tuple(" ".join(f".param .u32 {name}," for name in names) for names in lines)

    def _numbers(self, problem: KernelGemm) -> tuple[Argument, ...]:
        x = problem.window
        assert x is not None
        wide = [n * d for n, d in zip(x.taps, x.dilation, strict=True)]
        columns = (x.places, x.lower, x.steps, x.taps, wide, x.dilation)
        each = -(-x.channels // self.unit)
        divided = {"channels": x.channels, "each": each}
        divided.update((f"places{a}", x.places[a]) for a in self.axes)
        divided.update((f"taps{a}", x.taps[a]) for a in self.axes)
        # copies begin at whole 16 bytes, behind the last tap too
        chunk = max(TMA_ALIGNED // problem.element.bytes, 1)
        channels = x.channels if x.summed else -(-x.channels // chunk) * chunk
        values = [channels, x.tapped, each, *(column[a] & 0xFFFFFFFF for a in self.axes for column in columns)]
        values += [number for name in self.dividers for number in multiplier(divided[name])]
        values += [number for digits in x.result or () for number in side_numbers(digits)]
        return tuple(("u32", v) for v in values)

    def _box(self, name: str) -> str:
        x = self.x if self.x.name == name else self.y
        return f"{x.box[0]} x {x.box[-1]}" + (" pixels" if x is self.images else "")

    def _source(self, p: KernelGemm, x: Operand, kind: str) -> TensorMap:
        images, size = p.window, p.element.bytes
        assert images is not None
        if isinstance(x, Pixels | Columns):
            return windows(images, x, kind, size)
        along = p.n if x.name == "b" else p.m
        inner, outer = (images.channels, along) if x.kmajor else (along, images.channels)
        pitches = (images.row * size, images.row * size * images.tapped)
        return TensorMap(x.name.upper(), kind, (inner, images.tapped, outer), pitches, x.box, x.span)


class GradientPlan(WindowPlan):
    """The gradient of filters: K is pixels."""

    addr = "addr/wgrad_im2col.mako"
    KINDS = (Columns, Operand)

    @property
    def dividers(self) -> list[str]:
        return ["channels", *(f"places{a}" for a in self.axes), *(f"taps{a}" for a in self.axes[:-1])]

    def _units(self) -> int:
        return 1

    def _source(self, p: KernelGemm, x: Operand, kind: str) -> TensorMap:
        if isinstance(x, Columns):
            return super()._source(p, x, kind)
        assert p.window is not None
        along = p.n if x.name == "b" else p.m
        extents = (p.k, along) if x.kmajor else (along, p.k)
        return TensorMap(x.name.upper(), kind, extents, (p.window.row * p.element.bytes,), x.box, x.span)


class TurnedGradientPlan(CopiedPlan, GradientPlan):
    """The same of gradients of results that a pass transposes first: elements of one or four bytes."""


def multiplier(n: int) -> tuple[int, int]:
    """(by, shift): x // n is x · by >> shift, for x below 2^31 (Granlund & Montgomery, PLDI 1994)."""
    shift = 31 + (n - 1).bit_length()
    return (1 << shift) // n + 1, shift


def side_numbers(digits: Digits) -> tuple[int, ...]:
    """The values of a side's parameters: number n lies at n · step + n // extent · hop."""
    extent, step = digits[-1]
    if len(digits) == 1:
        return (step,)
    return step, *multiplier(extent), (digits[0][1] - extent * step) & 0xFFFFFFFF


@lru_cache(maxsize=64)
def _tables_of(rows: Digits, columns: Digits) -> tuple[implicit_gemm.Table, implicit_gemm.Table]:
    """What passes over C look up."""
    walks = [implicit_gemm.Walk(tuple(n for n, _ in x), tuple(step for _, step in x)) for x in (rows, columns)]
    return implicit_gemm.Operand(walks[0], walks[1]).tables


def windows(images: Window, x: Operand, kind: str, size: int) -> TensorMap:
    """The im2col map of images, in boxes of ``x``."""
    pitches = tuple(n * size for n in images.pitches)
    extents = (images.channels, *images.extents, images.count)
    walk = Walk(images.lower, images.upper, images.steps)
    return TensorMap(x.name.upper(), kind, extents, tuple(pitches), x.box, x.span, walk)
