"""The fused operations of the epilogue and their operands in global memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ptxgen.codegen.parts.part import Part
from ptxgen.expr.node import variable
from ptxgen.expr.ptx import Temporaries, statements
from ptxgen.expr.value_types import PRED
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.epilogue_ops import COLUMN, OPERAND, OVER_K, ROW, SCALE, SUMMED, EpilogueOp, EpilogueStep


@dataclass(frozen=True)
class FusedOps(Part):
    """The fused operations of an epilogue.

    ``template``: their slot; ``operands``: operand -> the PTX type of a load and the bytes of an element;
    ``operations``: the operations in order; ``type``: the PTX type of their arithmetic; ``sm``: the target
    architecture; ``out``: the type of 16-bit operands; ``scalar_bias``: True if one bias is added to all elements of C;
    ``batched_bias``: True if each batch item has its own bias, stored consecutively; ``grouped``: True if the operands
    of an item begin at offsets in its descriptor."""

    template: str
    operands: dict[str, tuple[str, int]]
    operations: tuple[EpilogueOp, ...]
    type: str
    sm: int
    out: str
    scalar_bias: bool
    batched_bias: bool
    grouped: bool = False

    @classmethod
    def of(cls, p: KernelProblem, batched: bool, sm: int, template: str = "epilogue/fused_ops.mako") -> FusedOps:
        """The fused operations of ``p``. ``template``: the slot, unless ``p`` has no fused operations."""
        sums = {step.array for op in p.sink.operations for step in op.steps if step.spans in (SUMMED, OVER_K)}
        read = [name for name in p.sink.arrays if name not in sums] if p.sink.epilogue else []
        types = {name: p.sink.array_dtype(name) for name in read}
        operands = {
            name: ("b16" if element.bytes == 2 else element.name, element.bytes) for name, element in types.items()
        }
        return cls(
            template if p.sink.epilogue else "epilogue/identity.mako",
            operands,
            p.sink.operations,
            p.sink.arithmetic,
            sm,
            p.sink.array_out if p.sink.epilogue else p.out,
            p.sink.scalar_bias and "bias" in operands,
            batched and p.sink.batched_bias and "bias" in operands,
            grouped(p),
        )

    @property
    def scales(self) -> tuple[EpilogueOp, ...]:
        """The operations that are applied before beta·C is added."""
        return tuple(op for op in self.operations if op.place == SCALE)

    @property
    def others(self) -> tuple[EpilogueOp, ...]:
        """The operations that are applied after beta·C is added, except gated activations."""
        return tuple(op for op in self.operations if op.place not in (SCALE, OPERAND) and not op.gated)

    @property
    def gates(self) -> tuple[EpilogueStep, ...]:
        """The steps that compute one element of C from two sums."""
        return tuple(step for op in self.operations if op.gated for step in op.steps)

    @property
    def steps(self) -> tuple[EpilogueStep, ...]:
        return tuple(step for op in self.operations for step in op.steps)

    @property
    def offsets(self) -> dict[str, range]:
        """Operand -> the byte offsets of its elements."""
        return {name: range(0, size << 16, size) for name, (_, size) in self.operands.items()}

    @property
    def words(self) -> range:
        """The byte offsets of pairs of stored sums."""
        size = 2 * dtype(self.out).bytes
        return range(0, 16 * size, size)

    @property
    def bias_extent(self) -> str:
        """The number of elements of a batch item's bias, as PTX operand."""
        if self.scalar_bias:
            return "1"
        return "%M" if any(op.name == "bias_row" for op in self.operations) else "%N"

    @property
    def bias_bytes(self) -> int:
        """The number of bytes of an element of the bias."""
        return self.operands["bias"][1]

    @property
    def of_items(self) -> list[str]:
        """The operands of which each batch item has its own."""
        return ["bias"] if self.batched_bias else []

    @property
    def aux_registers(self) -> str:
        """The declaration of the registers of a pair of elements of ``aux``, after a comma; empty: there is no
        ``aux``."""
        return ", %aux_val<2>" if "aux" in self.operands else ""

    @property
    def names(self) -> dict[str, str]:
        """Operand -> the noun for one of its elements in comments."""
        return {name: "residual" if name == "residual" else f"element of {name}" for name in self.operands}

    @property
    def residual(self) -> EpilogueStep:
        """The step that adds the residual."""
        return self.step_of("residual")

    def step_of(self, array: str) -> EpilogueStep:
        """The step that reads the operand ``array``."""
        return next(step for step in self.steps if step.array == array)

    @property
    def vectors(self) -> tuple[EpilogueStep, ...]:
        """The steps after the addition of beta·C that read one element for each row, or for each column, of C."""
        return tuple(step for op in self.others for step in op.steps if step.spans in (ROW, COLUMN))

    @property
    def activations(self) -> tuple[EpilogueOp, ...]:
        """The operations on each sum that read no operand or only ``aux``."""
        return tuple(op for op in self.others if all(step.array in ("", "aux") for step in op.steps))

    def lines(self, step: EpilogueStep, x: str, operand: str = "", guard: str = "") -> list[str]:
        """The instructions of a step on register ``x``, a sum. ``operand``: the register of the operand's element."""
        return self._lines(step, x, operand, guard, self._temporaries(step))

    def is_skipped(self, step: EpilogueStep, guard: str) -> bool:
        """True if a branch, rather than guards on instructions, skips the step where the guard is false. Without
        branches ptxas interleaves the steps of all vectors, and spills if a step uses temporary registers."""
        used = self._temporaries(step)
        self._lines(step, "%x", "%operand", "", used)
        return bool(guard) and used.counts.total() > 0

    def _temporaries(self, step: EpilogueStep) -> Temporaries:
        """The temporary registers of a step. ``%elem`` is one of them unless it holds the operand's element."""
        return Temporaries("fused", {**({} if step.array else {self.type: ["%elem"]}), PRED: ["%is_negative"]})

    def _lines(self, step: EpilogueStep, x: str, operand: str, guard: str, used: Temporaries) -> list[str]:
        names = {variable("x", self.type): x, variable("operand", self.type): operand}
        options: dict[str, bool] = {"guards_all": True, "fast": True}
        root = step.expression(self.type)
        return statements([root], names, [x], sm=self.sm, temporaries=used, guard=guard, **options).lines

    @property
    def declarations(self) -> list[str]:
        """The declarations of the temporary registers of all steps, except %elem and %is_negative."""
        counts: Counter[str] = Counter()
        for step in self.steps:
            used = self._temporaries(step)
            self._lines(step, "%x", "%operand", "", used)
            counts |= used.counts
        return [f".reg .{ptx_type} %fused_{ptx_type}_<{n}>;" for ptx_type, n in sorted(counts.items())]
